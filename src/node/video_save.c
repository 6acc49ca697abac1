/* video_save.c: video into files. */
#include "node/clips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* x264 keeps the frames it looks ahead at: 4 MiB each of 1280x720, so 32 and not its 40
 * (bench/media). */
#define H264_AHEAD "rc-lookahead=32"

struct save_as {
    const char *format, *codec; /* of the node: "auto", "mp4", ...; "auto", "h264", "av1" */
    double crf;                 /* NAN: the encoder's own */
    enum media_color color;     /* MEDIA_COLOR_UNKNOWN: auto */
    const char *container, *muxer_options, *ext;
    const char *encoder; /* of FFmpeg */
    char options[64];
};

/* ---- what is asked for ---- */

/* `codec` is under the format, or, in older prompts, beside it. */
static berth_status read_codec(struct node_call *c, const char *codec, struct save_as *a,
                               berth_err *err)
{
    char name[80];
    const char *mode = NULL, *color = NULL;
    a->crf = NAN;
    if (in_text(c, codec, &a->codec, err))
        return err->code;
    snprintf(name, sizeof name, "%s.encoding", codec);
    if (!in_given(c, name))
        return BERTH_OK;
    if (in_text(c, name, &mode, err) || strcmp(mode, "re-encode"))
        return err->code;
    snprintf(name, sizeof name, "%s.encoding.crf", codec);
    if (in_f64(c, name, &a->crf, err))
        return err->code;
    snprintf(name, sizeof name, "%s.encoding.color_space", codec);
    if (in_text(c, name, &color, err))
        return err->code;
    a->color = !strcmp(color, "sRGB")     ? MEDIA_SRGB
               : !strcmp(color, "HDR")    ? MEDIA_HLG
               : !strcmp(color, "HDR PQ") ? MEDIA_PQ
                                          : MEDIA_COLOR_UNKNOWN;
    return BERTH_OK;
}

static berth_status read_choices(struct node_call *c, struct save_as *a, berth_err *err)
{
    *a = (struct save_as) { .codec = "auto", .crf = NAN };
    if (in_text(c, "format", &a->format, err))
        return err->code;
    berth_status s = in_given(c, "format.codec") ? read_codec(c, "format.codec", a, err)
                     : in_given(c, "codec")      ? read_codec(c, "codec", a, err)
                                                 : BERTH_OK;
    if (s)
        return s;
    bool webm = !strcmp(a->format, "webm"), mkv = !strcmp(a->format, "mkv");
    a->container = webm ? "webm" : mkv ? "matroska" : "mp4";
    a->ext = webm ? ".webm" : mkv ? ".mkv" : ".mp4";
    a->muxer_options = webm || mkv ? NULL : "movflags=use_metadata_tags+faststart";
    bool av1 = !strcmp(a->codec, "av1") || (webm && !strcmp(a->codec, "auto"));
    if (webm && !av1)
        return err_set(err, BERTH_EINVAL, "WebM output requires the AV1 codec, not '%s'", a->codec);
    a->encoder = av1 ? "libsvtav1" : "libx264";
    if (!isnan(a->crf) && av1 && a->crf == 0)
        snprintf(a->options, sizeof a->options, "svtav1-params=lossless=1");
    else if (!isnan(a->crf))
        snprintf(a->options, sizeof a->options, "%scrf=%g", av1 ? "" : H264_AHEAD ":", a->crf);
    else if (!av1)
        snprintf(a->options, sizeof a->options, H264_AHEAD);
    return BERTH_OK;
}

/* What encoders of 4:2:0 do not take; some of them crash. */
static berth_status sides_fit(const char *encoder, uint32_t w, uint32_t h, berth_err *err)
{
    bool av1 = !strcmp(encoder, "libsvtav1");
    if (av1 && (w < 64 || h < 64))
        return err_set(err, BERTH_EINVAL, "%s wants sides of 64 and more, and the frames are %ux%u",
                       encoder, w, h);
    if (w % 2 || h % 2)
        return err_set(err, BERTH_EINVAL, "%s wants even sides, and the frames are %ux%u", encoder,
                       w, h);
    return BERTH_OK;
}

/* ---- pictures ---- */

static berth_status save_parts(struct node_call *c, const struct video *v, const struct save_as *a,
                               struct saved *to, berth_err *err)
{
    enum media_color color = a->color == MEDIA_COLOR_UNKNOWN ? MEDIA_SRGB : a->color;
    bool deep = v->bit_depth >= 10 || color != MEDIA_SRGB, webm = !strcmp(a->container, "webm");
    struct clip_out f = { .args = { .container = a->container, .muxer_options = a->muxer_options },
                          .images = v->images,
                          .at = v->at,
                          .n = v->n,
                          .sound = v->audio ? v->audio->object.obj : NULL,
                          .ext = a->ext,
                          .key = "images" };
    struct audio resampled = { 0 };
    f.args.video = (struct media_write_video) { .encoder = a->encoder,
                                                .options = a->options,
                                                .pixels = deep ? "yuv420p10le" : "yuv420p",
                                                .w = (uint32_t)dim(v->images, 2),
                                                .h = (uint32_t)dim(v->images, 1),
                                                .channels = 3,
                                                .bits = deep ? 16 : 8,
                                                .color = color };
    if (sides_fit(a->encoder, f.args.video.w, f.args.video.h, err) ||
        clip_rate(v->fps, &f.args.video.rate_num, &f.args.video.rate_den, err))
        return err->code;
    if (f.sound && webm && f.sound->rate != 48000) {
        if (wave_resample(f.sound->wave, f.sound->rate, 48000, &resampled.wave, err))
            return err->code;
        resampled.rate = 48000;
        f.sound = &resampled;
    }
    if (f.sound) {
        double rate = (double)f.args.video.rate_num / f.args.video.rate_den;
        f.samples = (size_t)ceil((double)f.sound->rate / rate * (double)v->n);
        f.args.audio = (struct media_write_audio) { .encoder = webm ? "libopus" : "aac",
                                                    .rate = f.sound->rate,
                                                    .channels = (uint32_t)dim(f.sound->wave, 1) };
    }
    berth_status s = clip_save(c, to, &f, err);
    htensor_unref(resampled.wave);
    return s;
}

/* ---- files ---- */

static bool has_format(const char *list, const char *name)
{
    size_t n = strlen(name);
    for (; *list; list += strcspn(list, ","), list += *list == ',')
        if (!strncmp(list, name, n) && (list[n] == ',' || !list[n]))
            return true;
    return false;
}

/* May its streams stay as they are? */
static bool fits(const struct video *v, const struct media_info *i, const struct save_as *a)
{
    return (!strcmp(a->format, "auto") || has_format(i->format, a->container)) &&
           (strcmp(a->container, "webm") || i->webm_fits) &&
           (!strcmp(a->codec, "auto") || !strcmp(a->codec, i->video_codec)) && isnan(a->crf) &&
           a->color == MEDIA_COLOR_UNKNOWN && v->start == 0 && v->duration == 0;
}

struct passing { /* progress of a copy */
    struct node_call *c;
    double seconds;
};

static berth_status on_progress(void *user, double seconds, berth_err *err)
{
    struct passing *p = user;
    double most = fmax(p->seconds, seconds);
    return call_progress(p->c, seconds, most > 0 ? most : 1, err);
}

static const char *color_text(enum media_color k)
{
    return k == MEDIA_HLG ? "HDR" : k == MEDIA_PQ ? "HDR PQ" : "sRGB";
}

static berth_status copy_args(struct node_call *c, const struct video *v,
                              const struct video_facts *f, const struct save_as *a,
                              struct passing *p, struct media_copy_args *out, berth_err *err)
{
    const struct media_info *i = &f->file;
    bool webm = !strcmp(a->container, "webm");
    *out = (struct media_copy_args) { .container = a->container,
                                      .muxer_options = a->muxer_options,
                                      .progress = on_progress,
                                      .user = p };
    *p = (struct passing) { c, f->duration };
    if (i->color != MEDIA_COLOR_UNKNOWN && a->color != MEDIA_COLOR_UNKNOWN && i->color != a->color)
        return err_set(err, BERTH_EINVAL,
                       "Cannot save %s video as %s without color conversion; use auto or %s",
                       color_text(i->color), color_text(a->color), color_text(i->color));
    if (fits(v, i, a))
        return BERTH_OK;
    bool deep = i->bit_depth >= 10 || a->color == MEDIA_HLG || a->color == MEDIA_PQ;
    out->cut = video_cut(v, f);
    p->seconds = out->cut.duration > 0 ? out->cut.duration : f->duration - out->cut.start;
    out->encoder = a->encoder;
    out->options = a->options;
    out->pixels = deep ? "yuv420p10le" : "yuv420p";
    out->color = a->color;
    out->sound = !i->audio ? NULL : webm ? "libopus" : "aac";
    out->sound_rate = webm ? 48000 : 0;
    return sides_fit(a->encoder, f->w, f->h, err);
}

static berth_status copy_file(struct node_call *c, const struct video *v,
                              const struct media_copy_args *args, const struct save_as *a,
                              struct saved *to, berth_err *err)
{
    struct media_host host = clip_host(c);
    struct media_copy_args x = *args;
    struct save_stream file;
    struct str name = { 0 };
    struct media_text *tags = clip_tags(to, err);
    if (!tags || path_save_open(&to->path, &file, err)) {
        free(tags);
        return err->code;
    }
    x.fd = file.fd;
    x.what = str_c(&to->path.name);
    x.text = tags;
    x.texts = to->texts;
    berth_status s = media_copy(&host, v->path, &x, err);
    berth_err closed = { 0 };
    if (path_save_close(c->env->saves, &to->path, 0, a->ext, !s, &file, &name, &closed) && !s) {
        *err = closed;
        s = closed.code;
    }
    if (!s)
        s = ui_add_file(c, "images", str_c(&name), str_c(&to->path.subfolder), to->kind, err);
    str_release(&name);
    free(tags);
    return s;
}

static berth_status save_file(struct node_call *c, const struct video *v,
                              const struct video_facts *f, const struct save_as *a,
                              struct saved *to, berth_err *err)
{
    struct media_copy_args args;
    struct passing p;
    return copy_args(c, v, f, a, &p, &args, err) ? err->code : copy_file(c, v, &args, a, to, err);
}

static berth_status save_run(struct node_call *c, berth_err *err)
{
    const struct video *v;
    const char *prefix;
    struct save_as a;
    struct video_facts f;
    struct saved to = { 0 };
    if (in_video(c, "video", &v, err) || in_text(c, "filename_prefix", &prefix, err) ||
        read_choices(c, &a, err))
        return err->code;
    berth_status s = video_facts(c, v, &f, err);
    if (!s)
        s = save_begin(c, "output", prefix, f.w, f.h, &to, err);
    if (!s)
        s = v->path ? save_file(c, v, &f, &a, &to, err) : save_parts(c, v, &a, &to, err);
    save_end(&to);
    video_facts_release(&f);
    if (!s)
        s = ui_add(c, "animated", json_true(), err);
    return s ? s : out_input(c, 0, "video", err);
}

/* What containers and codecs may be chosen, and what an encoder is told. */
#define RE_ENCODE(crf, most)                                                                       \
    DYNCOMBO_IN(                                                                                   \
        "encoding",                                                                                \
        WITH(CHOICE0("auto"),                                                                      \
             CHOICE("re-encode", FLOAT_IN("crf", crf, 0.0, most, 1.0),                             \
                    COMBO_IN("color_space", CHOICES("auto", "sRGB", "HDR", "HDR PQ"),              \
                             .sdef = "auto", .more = "\"display_name\":\"color space\""))),        \
        .optional = true, .more = "\"display_name\":\"encoding mode\"")
#define H264 CHOICE("h264", RE_ENCODE(23.0, 51.0))
#define AV1 CHOICE("av1", RE_ENCODE(30.0, 63.0))
#define CODEC_IN(...) DYNCOMBO_IN("codec", WITH(CHOICE0("auto"), __VA_ARGS__))

NODE_CLASS(SaveVideo, .display = "Save Video", .category = "image/video", .module = MOD("video"),
           .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO | NODE_MEDIA,
           INS(SOCKET("video", "VIDEO"), TEXT_IN("filename_prefix", "video/ComfyUI"),
               DYNCOMBO_IN("format",
                           WITH(CHOICE("auto", CODEC_IN(H264, AV1)),
                                CHOICE("mp4", CODEC_IN(H264, AV1)),
                                CHOICE("mkv", CODEC_IN(H264, AV1)), CHOICE("webm", CODEC_IN(AV1)))),
               /* where prompts had it before */
               DYNCOMBO_IN("codec", WITH(CHOICE0("auto"), H264, AV1), .optional = true,
                           .more = "\"hidden\":true")),
           OUTS({ .type = "VIDEO", .name = "video" }), .run = save_run);

/* ---- SaveWEBM ---- */

static berth_status webm_run(struct node_call *c, berth_err *err)
{
    struct clip_out f = { .args = { .container = "webm" }, .ext = ".webm", .key = "images" };
    struct media_write_video *v = &f.args.video;
    struct saved to = { 0 };
    struct htensor *t;
    const char *prefix, *codec;
    char options[64];
    double fps, crf;
    if (in_image(c, "images", &t, err) || in_text(c, "filename_prefix", &prefix, err) ||
        in_text(c, "codec", &codec, err) || in_f64(c, "fps", &fps, err) ||
        in_f64(c, "crf", &crf, err) || clip_rate(fps, &v->rate_num, &v->rate_den, err))
        return err->code;
    bool av1 = !strcmp(codec, "av1"), alpha = !av1 && dim(t, 3) == 4;
    if (!(crf >= 0 && crf <= 63))
        return err_set(err, BERTH_EINVAL, "crf %g, not 0 to 63", crf);
    snprintf(options, sizeof options, "crf=%g%s", crf, av1 ? ":preset=6" : "");
    v->encoder = av1 ? "libsvtav1" : "libvpx-vp9";
    v->options = options;
    v->pixels = av1 ? "yuv420p10le" : alpha ? "yuva420p" : "yuv420p";
    v->w = (uint32_t)dim(t, 2);
    v->h = (uint32_t)dim(t, 1);
    v->channels = alpha ? 4 : 3;
    v->bits = 8;
    v->no_bit_rate = true;
    f.images = t;
    f.n = dim(t, 0);
    berth_status s = av1 ? sides_fit(v->encoder, v->w, v->h, err) : BERTH_OK;
    if (!s)
        s = save_begin(c, "output", prefix, v->w, v->h, &to, err);
    if (!s)
        s = clip_save(c, &to, &f, err);
    save_end(&to);
    if (!s)
        s = ui_add(c, "animated", json_true(), err);
    return s ? s : out_input(c, 0, "images", err);
}

NODE_CLASS(SaveWEBM, .category = "image/video", .module = MOD("video"),
           .flags = NODE_V3 | NODE_OUTPUT | NODE_EXPERIMENTAL | NODE_PROMPT | NODE_EXTRA_PNGINFO |
                    NODE_MEDIA,
           INS(SOCKET("images", "IMAGE"), TEXT_IN("filename_prefix", "ComfyUI"),
               COMBO_IN("codec", CHOICES("vp9", "av1")), FLOAT_IN("fps", 24.0, 0.01, 1000.0, 0.01),
               FLOAT_IN("crf", 32.0, 0, 63.0, 1)),
           OUTS({ .type = "IMAGE", .name = "images" }), .run = webm_run);
