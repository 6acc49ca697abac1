/* video_file.c: video made of pictures, taken from files, and taken apart. */
#include "node/clips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#define MEDIA_NODE (NODE_V3 | NODE_MEDIA)

static berth_status create_run(struct node_call *c, berth_err *err)
{
    struct video v = { 0 };
    const struct audio *a;
    struct htensor *t;
    int64_t depth;
    if (in_image(c, "images", &t, err) || in_f64(c, "fps", &v.fps, err) ||
        in_audio(c, "audio", &a, err) || in_i64(c, "bit_depth", &depth, err))
        return err->code;
    if (!(v.fps > 0 && v.fps <= 1e6))
        return err_set(err, BERTH_EINVAL, "%g frames a second", v.fps);
    v.bit_depth = depth >= 10 ? 10 : 8;
    v.images = htensor_ref(t);
    v.n = dim(t, 0);
    v.audio = a ? value_ref(in_value(c, "audio")) : NULL;
    return out_video(c, 0, &v, err);
}

NODE_CLASS(CreateVideo, .display = "Create Video", .category = "image/video", V3("video"),
           INS(SOCKET("images", "IMAGE"), FLOAT_IN("fps", 30.0, 1.0, 120.0, 1.0),
               OPTIONAL("audio", "AUDIO"),
               INT_IN("bit_depth", 8, 8, 10, 2, .optional = true,
                      .more = "\"display\":\"number\"")),
           OUT_OF("VIDEO"), .run = create_run);

/* ---- from files ---- */

static berth_status load_run(struct node_call *c, berth_err *err)
{
    struct video v = { 0 };
    struct str path = { 0 };
    const char *name;
    if (in_text(c, "file", &name, err) || input_path(c->env, name, &path, err)) {
        str_release(&path);
        return err->code;
    }
    v.path = str_take(&path);
    str_release(&path);
    return v.path ? out_video(c, 0, &v, err) : err_set(err, BERTH_ENOMEM, "the path of '%s'", name);
}

/* A clip may be large: its time of change tells whether it is another, as in ComfyUI. */
static berth_status load_changed(const struct node_check *k, struct str *out, berth_err *err)
{
    const json_t *v = check_input(k, "file");
    struct str path = { 0 };
    struct stat st;
    const char *name = v && js_kind(v) == JS_STRING ? json_string_value(v) : NULL;
    if (!name)
        return err_set(err, BERTH_EINVAL, "'file' is not known before the node runs");
    berth_status s = input_path(k->env, name, &path, err);
    if (!s && stat(str_c(&path), &st))
        s = err_set(err, BERTH_ENOTFOUND, "'%s' is not there", name);
    str_release(&path);
    if (s)
        return s;
    str_addf(out, "%lld.%09ld %lld", (long long)st.st_mtim.tv_sec, st.st_mtim.tv_nsec,
             (long long)st.st_size);
    return out->bad ? err_set(err, BERTH_ENOMEM, "time of '%s'", name) : BERTH_OK;
}

static berth_status load_validate(const struct node_check *k, berth_err *err)
{
    return input_there(k, "video", err);
}

NODE_CLASS(LoadVideo, .display = "Load Video", .category = "image/video", .module = MOD("video"),
           .flags = MEDIA_NODE,
           INS(COMBO_IN("file", NULL, .options_fn = input_videos, .more = "\"video_upload\":true")),
           OUT_OF("VIDEO"), .run = load_run, .changed = load_changed, .validate = load_validate,
           .validates = "file");

/* ---- apart ---- */

static berth_status give_parts(struct node_call *c, const struct video *v, berth_err *err)
{
    struct htensor *t = NULL;
    if (v->at == 0 && v->n == dim(v->images, 0))
        t = htensor_ref(v->images);
    else if (tensor_slice(v->images, v->at, v->n, &t, err))
        return err->code;
    if (out_tensor(c, 0, t, err))
        return err->code;
    return v->audio ? out_value(c, 1, value_ref(v->audio), err) : out_no_audio(c, 1, err);
}

/* Its frames, then its sound: each is read by itself. */
static berth_status give_decoded(struct node_call *c, const struct video *v,
                                 const struct video_facts *f, berth_err *err)
{
    struct media_cut cut = video_cut(v, f);
    const struct media_frames_args frames = { .cut = cut };
    const struct media_sound_args sound = { .cut = cut };
    struct htensor *t, *part;
    struct value *a = NULL;
    double seconds = cut.duration > 0 ? cut.duration : f->duration - cut.start;
    uint64_t about = seconds > 0 && seconds < 1e6 ? (uint64_t)ceil(seconds * f->fps) : 0;
    if (clip_frames(c, v->path, &frames, about, &t, err) || out_tensor(c, 0, t, err) ||
        clip_sound(c, v->path, &sound, &a, err))
        return err->code;
    if (!a)
        return out_no_audio(c, 1, err);
    const struct audio *all = a->object.obj;
    size_t most = (size_t)(cut.duration * all->rate);
    if (cut.duration <= 0 || most >= dim(all->wave, 2))
        return out_value(c, 1, a, err);
    berth_status s = wave_part(all->wave, 0, most, &part, err);
    s = out_audio(c, 1, s, s ? NULL : part, all->rate, err);
    value_unref(a);
    return s;
}

static const char *color_name(enum media_color k)
{
    return k == MEDIA_HLG ? "HDR" : k == MEDIA_PQ ? "HDR PQ" : "sRGB";
}

static berth_status apart_run(struct node_call *c, berth_err *err)
{
    const struct video *v;
    struct video_facts f = { 0 };
    berth_status s = in_video(c, "video", &v, err);
    if (!s)
        s = video_facts(c, v, &f, err);
    if (!s)
        s = v->path ? give_decoded(c, v, &f, err) : give_parts(c, v, err);
    const char *color = color_name(f.color);
    if (!s &&
        (out_value(c, 2, value_float(f.fps), err) || out_value(c, 3, value_int(f.bit_depth), err) ||
         out_value(c, 4, value_string(color, strlen(color)), err)))
        s = err->code;
    video_facts_release(&f);
    return s;
}

NODE_CLASS(GetVideoComponents, .display = "Get Video Components", .category = "image/video",
           V3("video"), INS(SOCKET("video", "VIDEO")),
           OUTS({ .type = "IMAGE", .name = "images" }, { .type = "AUDIO", .name = "audio" },
                { .type = "FLOAT", .name = "fps" }, { .type = "INT", .name = "bit_depth" },
                { .type = "COMBO", .name = "color_space" }),
           .run = apart_run);

/* ---- Video Slice ---- */

static berth_status too_short(double has, double start, double wants, berth_err *err)
{
    return err_set(err, BERTH_EINVAL,
                   "Failed to slice video: it lasts %g seconds, and %g seconds from %g on are "
                   "wanted",
                   has, wants, start);
}

static berth_status slice_file(struct node_call *c, const struct video *v, double start,
                               double duration, bool strict, berth_err *err)
{
    struct video o = { .start = v->start + start, .duration = duration };
    struct video_facts f;
    berth_status s = video_facts(c, v, &f, err);
    double has = f.duration;
    video_facts_release(&f);
    if (s)
        return s;
    double left = o.start < 0 ? fmin(has, -o.start) : has - o.start;
    if (strict && left < duration)
        return too_short(has, start, duration, err);
    if (!(o.path = strdup(v->path)))
        return err_set(err, BERTH_ENOMEM, "a part of a video");
    return out_video(c, 0, &o, err);
}

/* Pictures need not become a file to be cut. */
static berth_status slice_parts(struct node_call *c, const struct video *v, double start,
                                double duration, berth_err *err)
{
    double has = (double)v->n / v->fps, from = start < 0 ? fmax(has + start, 0) : start;
    struct video o = *v;
    if (has < start + duration)
        return too_short(has, start, duration, err);
    double first = ceil(from * v->fps - 1e-6);
    double end = duration > 0 ? ceil((from + duration) * v->fps - 1e-6) : (double)v->n;
    first = first < 0 ? 0 : first > (double)v->n ? (double)v->n : first;
    end = end > (double)v->n ? (double)v->n : end;
    if (end <= first)
        return err_set(err, BERTH_EINVAL, "no frame of the video lies %g seconds from %g on",
                       duration, start);
    o.at = v->at + (size_t)first;
    o.n = (size_t)(end - first);
    o.audio = NULL;
    const struct audio *a = v->audio ? v->audio->object.obj : NULL;
    if (a) {
        struct htensor *part;
        size_t all = dim(a->wave, 2), skip = (size_t)fmin(from * a->rate, (double)all);
        size_t n =
            duration > 0 ? (size_t)fmin(duration * a->rate, (double)(all - skip)) : all - skip;
        if (wave_part(a->wave, skip, n, &part, err))
            return err->code;
        if (!(o.audio = value_audio(part, a->rate)))
            return err_set(err, BERTH_ENOMEM, "the sound of a part of a video");
    }
    o.images = htensor_ref(v->images);
    return out_video(c, 0, &o, err);
}

static berth_status slice_run(struct node_call *c, berth_err *err)
{
    const struct video *v;
    double start, duration;
    bool strict;
    if (in_video(c, "video", &v, err) || in_f64(c, "start_time", &start, err) ||
        in_f64(c, "duration", &duration, err) || in_bool(c, "strict_duration", &strict, err))
        return err->code;
    if (!isfinite(start) || !isfinite(duration) || duration < 0)
        return err_set(err, BERTH_EINVAL, "%g seconds from %g on", duration, start);
    return v->path ? slice_file(c, v, start, duration, strict, err)
                   : slice_parts(c, v, start, duration, err);
}

const struct node_class node_VideoSlice = {
    .name = "Video Slice",
    .display = "Trim Video",
    .category = "video",
    V3("video"),
    INS(SOCKET("video", "VIDEO"), FLOAT_IN("start_time", 0.0, -1e5, 1e5, 0.001),
        FLOAT_IN("duration", 0.0, 0, 0, 0.001, .no_range = true, .more = "\"min\":0.0"),
        BOOL_IN("strict_duration", false)),
    OUT_OF("VIDEO"),
    .run = slice_run,
};
