/* video_vhs.c: VideoHelperSuite's nodes: clips as pictures, and pictures as clips. */
#include "node/clips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define BADGE "\xf0\x9f\x8e\xa5\xf0\x9f\x85\xa5\xf0\x9f\x85\x97\xf0\x9f\x85\xa2"
#define VHS                                                                                        \
    .category = "Video Helper Suite " BADGE, .module = "custom_nodes.ComfyUI-VideoHelperSuite"

/* ---- loading ---- */

struct asked {   /* of a clip */
    double rate; /* 0: its own */
    uint64_t w, h, cap, skip, every;
    const struct model_kind *kind;
};

/* What a family of models takes: sides in steps, and n * step + 1 frames. */
static const struct model_kind {
    const char *name;
    uint32_t side, step;
} kinds[] = {
    { "None", 1, 1 },     { "AnimateDiff", 8, 1 }, { "Mochi", 16, 6 }, { "LTXV", 32, 8 },
    { "Hunyuan", 16, 4 }, { "Cosmos", 16, 8 },     { "Wan", 8, 4 },
};

static berth_status read_asked(struct node_call *c, struct asked *a, berth_err *err)
{
    const char *kind = "None";
    if (in_f64(c, "force_rate", &a->rate, err) || in_u64(c, "custom_width", &a->w, err) ||
        in_u64(c, "custom_height", &a->h, err) || in_u64(c, "frame_load_cap", &a->cap, err) ||
        in_u64(c, "skip_first_frames", &a->skip, err) ||
        in_u64(c, "select_every_nth", &a->every, err) ||
        (in_given(c, "format") && in_text(c, "format", &kind, err)))
        return err->code;
    if (in_given(c, "meta_batch") || in_given(c, "vae"))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "%s: batches of a batch manager and a VAE at the loader cannot be computed "
                       "yet; VAEEncode behind it can",
                       c->cls->name);
    if (!a->every || !(a->rate >= 0 && a->rate <= 1000))
        return err_set(err, BERTH_EINVAL, "every %lluth frame, at %g a second",
                       (unsigned long long)a->every, a->rate);
    a->kind = &kinds[0];
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++)
        if (!strcmp(kinds[i].name, kind))
            a->kind = &kinds[i];
    return BERTH_OK;
}

/* The sides that are wanted of a w x h clip, in whole steps. */
static void wanted_sides(const struct asked *a, size_t w, size_t h, size_t *to_w, size_t *to_h)
{
    double x = (double)w, y = (double)h, step = a->kind->side;
    if (a->w && a->h) {
        x = (double)a->w;
        y = (double)a->h;
    } else if (a->w) {
        y *= (double)a->w / x;
        x = (double)a->w;
    } else if (a->h) {
        x *= (double)a->h / y;
        y = (double)a->h;
    }
    *to_w = (size_t)(floor(x / step + 0.5) * step);
    *to_h = (size_t)(floor(y / step + 0.5) * step);
}

/* Frames as they are wanted; *rate is theirs. */
static berth_status load_frames(struct node_call *c, const char *path, const struct asked *a,
                                const struct media_info *i, struct htensor **out, berth_err *err)
{
    const struct media_frames_args args = {
        .bytes = true, .rate = a->rate, .skip = a->skip, .every = a->every, .cap = a->cap
    };
    struct htensor *t = NULL, *o = NULL;
    size_t w, h;
    uint64_t about = a->cap ? a->cap : i->frames;
    if (clip_frames(c, path, &args, about, &t, err))
        return err->code;
    size_t n = dim(t, 0), keep = n ? (n - 1) / a->kind->step * a->kind->step + 1 : 0;
    berth_status s =
        n ? BERTH_OK : err_set(err, BERTH_EINVAL, "No frames generated from '%s'", path);
    if (!s && keep < n) {
        s = tensor_slice(t, 0, keep, &o, err);
        htensor_unref(t);
        t = s ? NULL : o;
    }
    if (!s) {
        wanted_sides(a, dim(t, 2), dim(t, 1), &w, &h);
        if (w != dim(t, 2) || h != dim(t, 1)) {
            s = scale_image(c, t, w, h, "lanczos", true, &o, err);
            htensor_unref(t);
            t = s ? NULL : o;
        }
    }
    if (s)
        htensor_unref(t);
    else
        *out = t;
    return s;
}

static json_t *about_clip(const struct media_info *i, const struct htensor *t, double each)
{
    double fps = i->rate_num ? (double)i->rate_num / i->rate_den : 1, n = (double)dim(t, 0);
    double frames = i->frames ? (double)i->frames : nearbyint(fmax(i->duration, 0) * fps);
    return json_pack("{s:f, s:I, s:f, s:I, s:I, s:f, s:I, s:f, s:I, s:I}", "source_fps", fps,
                     "source_frame_count", (json_int_t)frames, "source_duration", frames / fps,
                     "source_width", (json_int_t)i->w, "source_height", (json_int_t)i->h,
                     "loaded_fps", 1 / each, "loaded_frame_count", (json_int_t)n, "loaded_duration",
                     n * each, "loaded_width", (json_int_t)dim(t, 2), "loaded_height",
                     (json_int_t)dim(t, 1));
}

static berth_status give_clip(struct node_call *c, const char *path, const struct asked *a,
                              const struct media_info *i, berth_err *err)
{
    struct htensor *t = NULL;
    struct value *sound = NULL;
    double fps = a->rate > 0 ? a->rate : i->rate_num ? (double)i->rate_num / i->rate_den : 1;
    const struct media_sound_args args = {
        .cut = { .start = (double)a->skip / fps, .duration = (double)(a->cap * a->every) / fps }
    };
    if (load_frames(c, path, a, i, &t, err))
        return err->code;
    json_t *about = about_clip(i, t, (double)a->every / fps);
    int64_t n = (int64_t)dim(t, 0);
    if (out_tensor(c, 0, t, err) || out_value(c, 1, value_int(n), err) ||
        clip_sound(c, path, &args, &sound, err) ||
        (sound ? out_value(c, 2, sound, err) : out_no_audio(c, 2, err))) {
        json_decref(about);
        return err->code;
    }
    return out_value(c, 3, value_json(about), err);
}

static berth_status load_run(struct node_call *c, berth_err *err)
{
    struct media_host host = clip_host(c);
    struct asked a = { 0 };
    struct str path = { 0 };
    struct media_info i = { 0 };
    const char *name;
    if (read_asked(c, &a, err) || in_text(c, "video", &name, err))
        return err->code;
    berth_status s = input_path(c->env, name, &path, err);
    if (!s)
        s = media_probe(&host, str_c(&path), &i, err);
    if (!s && !i.video)
        s = err_set(err, BERTH_EFORMAT, "'%s' has no video", name);
    if (!s)
        s = give_clip(c, str_c(&path), &a, &i, err);
    media_info_release(&i);
    str_release(&path);
    return s;
}

#define CLIP_IN                                                                                    \
    FLOAT_IN("force_rate", 0.0, 0.0, 60.0, 1.0), INT_IN("custom_width", 0, 0, MAX_SIDE, 0),        \
        INT_IN("custom_height", 0, 0, MAX_SIDE, 0), INT_IN("frame_load_cap", 0, 0, INT32_MAX, 1),  \
        INT_IN("skip_first_frames", 0, 0, INT32_MAX, 1),                                           \
        INT_IN("select_every_nth", 1, 1, INT32_MAX, 1),                                            \
        OPTIONAL("meta_batch", "VHS_BatchManager"), OPTIONAL("vae", "VAE"),                        \
        COMBO_IN("format",                                                                         \
                 CHOICES("None", "AnimateDiff", "Mochi", "LTXV", "Hunyuan", "Cosmos", "Wan"),      \
                 .optional = true)
#define CLIP_OUT                                                                                   \
    OUTS({ .type = "IMAGE" }, { .type = "INT", .name = "frame_count" },                            \
         { .type = "AUDIO", .name = "audio" }, { .type = "VHS_VIDEOINFO", .name = "video_info" })

NODE_CLASS(VHS_LoadVideo, .display = "Load Video (Upload) " BADGE, VHS,
           .flags = NODE_UNIQUE_ID | NODE_MEDIA,
           INS({ .name = "video",
                 .kind = IN_COMBO,
                 .options_fn = input_videos,
                 .more = "\"video_upload\":true" },
               CLIP_IN),
           CLIP_OUT, .run = load_run, INPUT_FILE("video"));

/* Only below the input folder, or [output], [temp]: clients name no other file of this machine. */
NODE_CLASS(VHS_LoadVideoPath, .display = "Load Video (Path) " BADGE, VHS,
           .flags = NODE_UNIQUE_ID | NODE_MEDIA,
           INS(TEXT_IN("video", NULL, .no_default = true,
                       .more = "\"placeholder\":\"clip.mp4\",\"vhs_path_extensions\":"
                               "[\"webm\",\"mp4\",\"mkv\",\"gif\",\"mov\"]"),
               CLIP_IN),
           CLIP_OUT, .run = load_run, INPUT_FILE("video"));

/* ---- VHS_VideoInfo ---- */

static berth_status info_run(struct node_call *c, berth_err *err)
{
    static const char *const key[] = { "fps", "frame_count", "duration", "width", "height" };
    static const char *const of[] = { "source", "loaded" };
    const char *only = c->cls->own;
    const struct value *v = in_value(c, "video_info");
    size_t at = 0;
    for (size_t i = 0; i < 2; i++)
        for (size_t k = 0; k < ARRAY_LEN(key); k++) {
            char name[32];
            snprintf(name, sizeof name, "%s_%s", of[i], key[k]);
            const json_t *x = v && v->kind == V_JSON ? json_object_get(v->json, name) : NULL;
            if (!x)
                return err_set(err, BERTH_EINVAL, "input 'video_info' has no '%s'", name);
            if ((!only || !strcmp(only, of[i])) && out_value(c, at++, value_from_json(x), err))
                return err->code;
        }
    return BERTH_OK;
}

#define YELLOW "\xf0\x9f\x9f\xa8"
#define BLUE "\xf0\x9f\x9f\xa6"
#define FACTS(pre, mark)                                                                           \
    { .type = "FLOAT", .name = pre "fps" mark },                                                   \
        { .type = "INT", .name = pre "frame_count" mark },                                         \
        { .type = "FLOAT", .name = pre "duration" mark },                                          \
        { .type = "INT", .name = pre "width" mark },                                               \
    {                                                                                              \
        .type = "INT", .name = pre "height" mark                                                   \
    }
#define INFO_IN INS(SOCKET("video_info", "VHS_VIDEOINFO"))

NODE_CLASS(VHS_VideoInfo, .display = "Video Info " BADGE, VHS, INFO_IN,
           OUTS(FACTS("source_", YELLOW), FACTS("loaded_", BLUE)), .run = info_run);
NODE_CLASS(VHS_VideoInfoSource, .display = "Video Info (Source) " BADGE, VHS, INFO_IN,
           OUTS(FACTS("", YELLOW)), .run = info_run, .own = "source");
NODE_CLASS(VHS_VideoInfoLoaded, .display = "Video Info (Loaded) " BADGE, VHS, INFO_IN,
           OUTS(FACTS("", BLUE)), .run = info_run, .own = "loaded");

/* ---- VHS_VideoCombine ---- */

#define DEEP_PIXELS "yuv420p10le"
static const struct film_kind {
    const char *name, *ext, *container, *encoder, *options;
    const char *crf; /* the encoder's name for it; NULL: none */
    int crf_def;
    const char *pixels[6]; /* that may be asked for; the first by default */
    bool deep;             /* 16 bits a sample are handed over */
    const char *sound, *muxer_options;
} films[] = {
    { "image/gif", ".gif", "gif", "gif", NULL, NULL, 0, { "rgb8" }, false, NULL, NULL },
    { "video/h264-mp4",
      ".mp4",
      "mp4",
      "libx264",
      NULL,
      "crf",
      19,
      { "yuv420p", DEEP_PIXELS },
      false,
      "aac",
      "movflags=use_metadata_tags" },
    { "video/h265-mp4",
      ".mp4",
      "mp4",
      "libx265",
      "preset=medium",
      "crf",
      22,
      { DEEP_PIXELS, "yuv420p" },
      false,
      "aac",
      "movflags=use_metadata_tags" },
    { "video/webm",
      ".webm",
      "webm",
      "libvpx-vp9",
      NULL,
      "crf",
      20,
      { "yuv420p", "yuva420p" },
      false,
      "libvorbis",
      NULL },
    { "video/av1-webm",
      ".webm",
      "webm",
      "libsvtav1",
      NULL,
      "crf",
      23,
      { DEEP_PIXELS, "yuv420p" },
      false,
      "libopus",
      NULL },
    { "video/ffv1-mkv",
      ".mkv",
      "matroska",
      "ffv1",
      "level=3:coder=1:context=1:slices=16:slicecrc=1",
      NULL,
      0,
      { "rgba64le", "bgra", "yuv420p", "yuv422p", "yuv444p", DEEP_PIXELS },
      true,
      "flac",
      NULL },
    { "video/ProRes",
      ".mov",
      "mov",
      "prores_ks",
      "profile=3",
      NULL,
      0,
      { "yuv422p10le" },
      false,
      "pcm_s16le",
      NULL },
    { "video/nvenc_h264-mp4",
      ".mp4",
      "mp4",
      "h264_nvenc",
      NULL,
      NULL,
      0,
      { "yuv420p" },
      false,
      "aac",
      "movflags=use_metadata_tags" },
    { "video/nvenc_hevc-mp4",
      ".mp4",
      "mp4",
      "hevc_nvenc",
      NULL,
      NULL,
      0,
      { "yuv420p" },
      false,
      "aac",
      "movflags=use_metadata_tags" },
    { "video/nvenc_av1-mp4",
      ".mp4",
      "mp4",
      "av1_nvenc",
      NULL,
      NULL,
      0,
      { "yuv420p" },
      false,
      "aac",
      "movflags=use_metadata_tags" },
};

struct combining {
    struct htensor *images;
    const struct audio *sound;
    const char *prefix, *format;
    const struct film_kind *kind; /* NULL: image/webp */
    double rate;
    uint64_t loops;
    bool pingpong, save;
    /* what the format wants beside these, by undeclared inputs */
    const char *pixels;
    int crf;
    bool metadata, trim;
    size_t *order; /* of n frames */
    size_t n;
};

static bool extra_flag(const struct node_call *c, const char *name, bool def)
{
    const json_t *v = json_object_get(c->raw, name);
    return json_is_boolean(v) ? json_is_true(v) : def;
}

static berth_status read_extras(struct node_call *c, struct combining *m, berth_err *err)
{
    const char *pixels = json_string_value(json_object_get(c->raw, "pix_fmt"));
    double crf = m->kind ? m->kind->crf_def : 0;
    js_get_f64(json_object_get(c->raw, "crf"), &crf);
    m->metadata = extra_flag(c, "save_metadata", true);
    m->trim = extra_flag(c, "trim_to_audio", false);
    m->crf = (int)fmin(fmax(crf, 0), 63);
    for (size_t i = 0; m->kind && i < ARRAY_LEN(m->kind->pixels) && m->kind->pixels[i]; i++)
        if (!i || (pixels && !strcmp(pixels, m->kind->pixels[i])))
            m->pixels = m->kind->pixels[i];
    if (m->kind && pixels && strcmp(pixels, m->pixels))
        return err_set(err, BERTH_EUNSUPPORTED, "pix_fmt '%.40s' of %s cannot be computed", pixels,
                       m->kind->name);
    return BERTH_OK;
}

static berth_status read_combining(struct node_call *c, struct combining *m, berth_err *err)
{
    const struct value *v = in_value(c, "images");
    if (v && v->kind == V_LATENT)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "%s: latents cannot be computed yet; VAEDecode before it can", c->cls->name);
    if (in_given(c, "meta_batch"))
        return err_set(err, BERTH_EUNSUPPORTED, "%s: batch managers cannot be computed yet",
                       c->cls->name);
    if (in_image(c, "images", &m->images, err) || in_f64(c, "frame_rate", &m->rate, err) ||
        in_u64(c, "loop_count", &m->loops, err) || in_text(c, "filename_prefix", &m->prefix, err) ||
        in_text(c, "format", &m->format, err) || in_bool(c, "pingpong", &m->pingpong, err) ||
        in_bool(c, "save_output", &m->save, err) || in_audio(c, "audio", &m->sound, err))
        return err->code;
    if (!(m->rate > 0 && m->rate <= 1000))
        return err_set(err, BERTH_EINVAL, "%g frames a second", m->rate);
    for (size_t i = 0; i < ARRAY_LEN(films); i++)
        if (!strcmp(films[i].name, m->format))
            m->kind = &films[i];
    if (!m->kind && strcmp(m->format, "image/webp"))
        return err_set(err, BERTH_EUNSUPPORTED, "format '%.40s' cannot be computed", m->format);
    return read_extras(c, m, err);
}

/* There and back again, and so often. Files of pictures loop by themselves. */
static berth_status make_order(struct combining *m, berth_err *err)
{
    size_t n = dim(m->images, 0), once = m->pingpong && n > 2 ? 2 * n - 2 : n;
    size_t times = strncmp(m->format, "image/", 6) ? (size_t)m->loops + 1 : 1;
    if (m->sound && m->trim) {
        double has = (double)dim(m->sound->wave, 2) / m->sound->rate * m->rate;
        once = has < (double)once ? (size_t)fmax(ceil(has), 1) : once;
    }
    if (times > 101 || once > SIZE_MAX / 8 / times)
        return err_set(err, BERTH_ELIMIT, "%zu frames, %zu times", once, times);
    m->n = once * times;
    m->order = malloc(m->n * sizeof *m->order);
    for (size_t i = 0; m->order && i < m->n; i++) {
        size_t at = i % once;
        m->order[i] = at < n ? at : 2 * n - 2 - at;
    }
    return m->order ? BERTH_OK : err_set(err, BERTH_ENOMEM, "an order of %zu frames", m->n);
}

/* The first picture, which carries the workflow for frontends. */
static berth_status save_first(struct node_call *c, const struct combining *m, struct saved *to,
                               struct str *name, berth_err *err)
{
    struct image im = { 0 };
    struct str png = { 0 };
    const struct image_png_args args = { .level = 4, .text = to->text, .texts = to->texts };
    berth_status s = image_8bit(m->images, 0, &im, err);
    if (!s)
        s = image_png(&im, &args, &png, err);
    if (!s)
        s = path_save_file(c->env->saves, &to->path, 0, ".png", str_c(&png), png.n, name, err);
    image_release(&im);
    str_release(&png);
    return s;
}

static berth_status save_webp(struct node_call *c, const struct combining *m, struct saved *to,
                              struct str *name, berth_err *err)
{
    const struct image_anim_args args = { .fps = m->rate,
                                          .lossless = extra_flag(c, "lossless", true),
                                          .quality = 80,
                                          .method = 4,
                                          .cancel = cancel_of(c) };
    struct image *frame = calloc(m->n, sizeof *frame);
    struct str bytes = { 0 };
    berth_status s = frame ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu frames", m->n);
    for (size_t i = 0; !s && i < m->n; i++)
        if (!(s = image_8bit(m->images, m->order[i], &frame[i], err)))
            s = call_check(c, err);
    if (!s)
        s = image_anim_webp(frame, m->n, &args, &bytes, err);
    if (!s)
        s = path_save_file(c->env->saves, &to->path, 0, ".webp", str_c(&bytes), bytes.n, name, err);
    for (size_t i = 0; frame && i < m->n; i++)
        image_release(&frame[i]);
    free(frame);
    str_release(&bytes);
    return s;
}

static berth_status save_film(struct node_call *c, const struct combining *m, struct saved *to,
                              struct str *name, berth_err *err)
{
    const struct film_kind *k = m->kind;
    char options[128], ext[24];
    struct clip_out f = { .args = { .container = k->container, .muxer_options = k->muxer_options },
                          .images = m->images,
                          .n = m->n,
                          .order = m->order,
                          .sound = k->sound ? m->sound : NULL,
                          .ext = ext,
                          .plain = !m->metadata,
                          .name = name };
    struct media_write_video *v = &f.args.video;
    struct audio resampled = { 0 };
    snprintf(ext, sizeof ext, "%s%s", f.sound ? "-audio" : "", k->ext);
    snprintf(options, sizeof options, "%s%s", k->options ? k->options : "",
             k->options && k->crf ? ":" : "");
    if (k->crf)
        snprintf(options + strlen(options), sizeof options - strlen(options), "%s=%d", k->crf,
                 m->crf);
    *v = (struct media_write_video) {
        .encoder = k->encoder,
        .options = options,
        .pixels = m->pixels,
        .w = (uint32_t)(dim(m->images, 2) + dim(m->images, 2) % 2), /* edges are repeated */
        .h = (uint32_t)(dim(m->images, 1) + dim(m->images, 1) % 2),
        .channels = k->deep || dim(m->images, 3) < 4 ? 3 : 4,
        .bits = k->deep ? 16 : 8,
        .color = strchr(m->pixels, 'y') ? MEDIA_BT709 : MEDIA_COLOR_UNKNOWN,
        .no_bit_rate = !strcmp(k->encoder, "libvpx-vp9"),
    };
    if (clip_rate(m->rate, &v->rate_num, &v->rate_den, err))
        return err->code;
    if (f.sound && !strcmp(k->sound, "libopus") && f.sound->rate != 48000) {
        if (wave_resample(f.sound->wave, f.sound->rate, 48000, &resampled.wave, err))
            return err->code;
        resampled.rate = 48000;
        f.sound = &resampled;
    }
    if (f.sound) {
        f.samples = (size_t)ceil(f.sound->rate / m->rate * (double)m->n);
        f.args.audio = (struct media_write_audio) { .encoder = k->sound,
                                                    .rate = f.sound->rate,
                                                    .channels = (uint32_t)dim(f.sound->wave, 1) };
    }
    berth_status s = clip_save(c, to, &f, err);
    htensor_unref(resampled.wave);
    return s;
}

static berth_status tell(struct node_call *c, const struct combining *m, const struct saved *to,
                         const char *png, const char *clip, berth_err *err)
{
    const char *sub = str_c(&to->path.subfolder);
    if (ui_add(c, "gifs",
               json_pack("{s:s, s:s, s:s, s:s, s:f, s:s}", "filename", clip, "subfolder", sub,
                         "type", to->kind, "format", m->format, "frame_rate", m->rate, "workflow",
                         png),
               err))
        return err->code;
    const char *slash = *sub ? "/" : "";
    return out_value(
        c, 0,
        value_json(json_pack("[b, [o, o]]", m->save, json_sprintf("%s%s%s", sub, slash, png),
                             json_sprintf("%s%s%s", sub, slash, clip))),
        err);
}

static berth_status combine_run(struct node_call *c, berth_err *err)
{
    struct combining m = { 0 };
    struct saved to = { 0 };
    struct str png = { 0 }, clip = { 0 }, path = { 0 };
    berth_status s = read_combining(c, &m, err);
    if (!s)
        s = make_order(&m, err);
    if (!s)
        s = save_begin(c, m.save ? "output" : "temp", m.prefix, dim(m.images, 2), dim(m.images, 1),
                       &to, err);
    to.path.bare = true;
    uint64_t number = to.path.counter;
    if (!s)
        s = save_first(c, &m, &to, &png, err);
    to.path.counter =
        to.path.counter > number ? to.path.counter - 1 : number; /* the same for both */
    if (!s)
        s = m.kind ? save_film(c, &m, &to, &clip, err) : save_webp(c, &m, &to, &clip, err);
    if (!s)
        s = tell(c, &m, &to, str_c(&png), str_c(&clip), err);
    if (s && png.n) { /* half of it is none */
        str_addf(&path, "%s/%s", str_c(&to.path.folder), str_c(&png));
        unlink(str_c(&path));
    }
    str_release(&path);
    free(m.order);
    str_release(&png);
    str_release(&clip);
    save_end(&to);
    return s;
}

/* What a format wants beside these arrives as undeclared inputs: pix_fmt, crf, save_metadata. */
NODE_CLASS(VHS_VideoCombine, .display = "Video Combine " BADGE, VHS,
           .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO | NODE_UNIQUE_ID |
                    NODE_ANY_INPUT | NODE_MEDIA,
           INS(SOCKET("images", "IMAGE,LATENT"),
               FLOAT_IN("frame_rate", 8.0, 0.0, 0.0, 1.0, .no_range = true, .more = "\"min\":1"),
               INT_IN("loop_count", 0, 0, 100, 1), TEXT_IN("filename_prefix", "AnimateDiff"),
               COMBO_IN("format", CHOICES("image/gif", "image/webp", "video/16bit-png",
                                          "video/8bit-png", "video/av1-webm", "video/ffmpeg-gif",
                                          "video/ffv1-mkv", "video/h264-mp4", "video/h265-mp4",
                                          "video/nvenc_av1-mp4", "video/nvenc_h264-mp4",
                                          "video/nvenc_hevc-mp4", "video/ProRes", "video/webm")),
               BOOL_IN("pingpong", false), BOOL_IN("save_output", true), OPTIONAL("audio", "AUDIO"),
               OPTIONAL("meta_batch", "VHS_BatchManager"), OPTIONAL("vae", "VAE")),
           OUTS({ .type = "VHS_FILENAMES", .name = "Filenames" }), .run = combine_run);
