/* clips.c: sound and video as values, and their ways into files and out of them. */
#include "node/clips.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- AUDIO ---- */

static void audio_free(void *obj)
{
    struct audio *a = obj;
    htensor_unref(a->wave);
    free(a);
}

static size_t audio_bytes(const void *obj)
{
    const struct audio *a = obj;
    return sizeof *a + htensor_count(a->wave) * sizeof(float);
}

const struct value_type type_audio = { .name = "AUDIO", .free = audio_free, .bytes = audio_bytes };

static berth_status wrong(const char *name, const char *want, const struct value *v, berth_err *err)
{
    json_t *is = value_describe(v);
    const char *text = json_string_value(is);
    err_set(err, BERTH_EINVAL, "input '%s' wants %s and got %.80s", name, want,
            text ? text : "a number");
    json_decref(is);
    return err->code;
}

berth_status in_audio(const struct node_call *c, const char *name, const struct audio **out,
                      berth_err *err)
{
    const struct value *v = in_value(c, name);
    *out = NULL;
    if (!v || v->kind == V_NULL)
        return BERTH_OK;
    if (v->kind != V_OBJECT || v->object.type != &type_audio)
        return wrong(name, "AUDIO", v, err);
    *out = v->object.obj;
    return BERTH_OK;
}

berth_status in_some_audio(const struct node_call *c, const char *name, const struct audio **out,
                           berth_err *err)
{
    if (in_audio(c, name, out, err) || *out)
        return err->code;
    return err_set(err, BERTH_EINVAL, "%s: input '%s' is None (a video without sound, perhaps)",
                   c->cls->name, name);
}

struct value *value_audio(struct htensor *taken, uint32_t rate)
{
    struct audio *a = taken ? malloc(sizeof *a) : NULL;
    if (!a) {
        htensor_unref(taken);
        return NULL;
    }
    *a = (struct audio) { taken, rate };
    return value_object(&type_audio, a);
}

berth_status out_audio(struct node_call *c, size_t i, berth_status s, struct htensor *taken,
                       uint32_t rate, berth_err *err)
{
    if (!s)
        return out_value(c, i, value_audio(taken, rate), err);
    htensor_unref(taken);
    return s;
}

berth_status out_no_audio(struct node_call *c, size_t i, berth_err *err)
{
    return out_value(c, i, value_none(strdup("there is no sound")), err);
}

berth_status wave_new(size_t b, size_t c, size_t n, struct htensor **out, berth_err *err)
{
    const struct shape s = { .ndim = 3, .dim = { b, c, n } };
    return htensor_zeros(&s, out, err);
}

berth_status wave_part(const struct htensor *w, size_t from, size_t n, struct htensor **out,
                       berth_err *err)
{
    size_t rows = dim(w, 0) * dim(w, 1), all = dim(w, 2);
    if (wave_new(dim(w, 0), dim(w, 1), n, out, err))
        return err->code;
    size_t has = from < all ? all - from : 0;
    for (size_t i = 0; i < rows && n; i++)
        memcpy((*out)->data + i * n, w->data + i * all + (has ? from : 0),
               (has < n ? has : n) * sizeof(float));
    return BERTH_OK;
}

/* ---- VIDEO ---- */

static void video_release(struct video *v)
{
    free(v->path);
    htensor_unref(v->images);
    value_unref(v->audio);
    *v = (struct video) { 0 };
}

static void video_free(void *obj)
{
    video_release(obj);
    free(obj);
}

static size_t video_bytes(const void *obj)
{
    const struct video *v = obj;
    return sizeof *v + (v->images ? htensor_count(v->images) * sizeof(float) : 0) +
           (v->audio ? value_bytes(v->audio) : 0);
}

const struct value_type type_video = { .name = "VIDEO", .free = video_free, .bytes = video_bytes };

berth_status in_video(const struct node_call *c, const char *name, const struct video **out,
                      berth_err *err)
{
    const struct value *v = in_value(c, name);
    if (!v)
        return err_set(err, BERTH_EINVAL, "input '%s' is not given", name);
    if (v->kind != V_OBJECT || v->object.type != &type_video)
        return wrong(name, "VIDEO", v, err);
    *out = v->object.obj;
    return BERTH_OK;
}

berth_status out_video(struct node_call *c, size_t i, struct video *v, berth_err *err)
{
    struct video *own = malloc(sizeof *own);
    if (!own) {
        video_release(v);
        return err_set(err, BERTH_ENOMEM, "a video");
    }
    *own = *v;
    *v = (struct video) { 0 };
    return out_value(c, i, value_object(&type_video, own), err);
}

struct media_host clip_host(const struct node_call *c)
{
    return (struct media_host) { .helper = c->env->media_helper, .cancel = cancel_of(c) };
}

void video_facts_release(struct video_facts *f)
{
    media_info_release(&f->file);
}

berth_status video_facts(struct node_call *c, const struct video *v, struct video_facts *out,
                         berth_err *err)
{
    struct media_host host = clip_host(c);
    *out = (struct video_facts) { 0 };
    if (!v->path) {
        out->w = (uint32_t)dim(v->images, 2);
        out->h = (uint32_t)dim(v->images, 1);
        out->fps = v->fps;
        out->frames = v->n;
        out->duration = (double)v->n / v->fps;
        out->bit_depth = (unsigned)v->bit_depth;
        out->color = MEDIA_SRGB;
        return BERTH_OK;
    }
    if (media_probe(&host, v->path, &out->file, err))
        return err->code;
    const struct media_info *i = &out->file;
    if (!i->video)
        return err_set(err, BERTH_EFORMAT, "'%s' has no video", v->path);
    out->w = i->w;
    out->h = i->h;
    out->fps = i->rate_num ? (double)i->rate_num / i->rate_den : 1;
    out->duration = i->duration;
    out->frames = i->frames;
    out->bit_depth = i->bit_depth;
    out->color = i->color;
    return BERTH_OK;
}

struct media_cut video_cut(const struct video *v, const struct video_facts *f)
{
    double start = v->start < 0 ? fmax(f->duration + v->start, 0) : v->start;
    return (struct media_cut) { start, v->duration };
}

/* ---- out of files ---- */

#define FRAMES_FIRST_ROOM ((size_t)16)

struct growing { /* frames so far */
    float *data;
    size_t cap, n, each; /* frames, and samples of one */
    uint32_t w, h;
};

/* expected: a file's or a user's word, so that a clip without room for as many is still read. */
static berth_status grow(struct growing *g, uint64_t expected, const char *path, berth_err *err)
{
    const size_t frame = g->each * sizeof(float), most = HTENSOR_MAX / frame;
    size_t few = FRAMES_FIRST_ROOM < most ? FRAMES_FIRST_ROOM : most;
    size_t want = g->n                             ? g->n + g->n / 2 + 1
                  : expected && expected < 1 << 20 ? (size_t)expected
                                                   : few;
    berth_err none;
    if (g->n < g->cap)
        return BERTH_OK;
    want = want < most ? want : most;
    if (!g->n && want > few && host_room("", want * frame, &none))
        want = few;
    if (want <= g->n)
        return err_set(err, BERTH_ELIMIT, "'%s': %zu frames of %ux%u are all that %zu bytes hold",
                       path, g->n, g->w, g->h, HTENSOR_MAX);
    if (host_room("", (want - g->cap) * frame, err))
        return err_add(err, "frames of '%s'", path);
    float *at = realloc(g->data, want * frame);
    if (!at)
        return err_set(err, BERTH_ENOMEM, "%zu frames of %ux%u of '%s'", want, g->w, g->h, path);
    g->data = at;
    g->cap = want;
    return BERTH_OK;
}

static berth_status read_frames(struct node_call *c, struct media_reader *r, const char *path,
                                uint64_t expected, struct growing *g, berth_err *err)
{
    struct media_picture p;
    while (media_frame_next(r, &p, err)) {
        g->w = p.w;
        g->h = p.h;
        g->each = (size_t)p.w * p.h * 3;
        if (grow(g, expected, path, err) || media_frame_take(r, g->data + g->n * g->each, err))
            return err->code;
        g->n++;
        double most = (double)(g->n > expected ? g->n : expected);
        if (expected && call_progress(c, (double)g->n, most, err))
            return err->code;
    }
    return err->code;
}

berth_status clip_frames(struct node_call *c, const char *path,
                         const struct media_frames_args *args, uint64_t expected,
                         struct htensor **out, berth_err *err)
{
    struct media_host host = clip_host(c);
    struct media_reader *r;
    struct growing g = { 0 };
    *out = NULL;
    if (media_frames_open(&host, path, args, &r, err))
        return err->code;
    berth_status s = read_frames(c, r, path, expected, &g, err);
    media_close(r);
    if (!s && g.n && g.n < g.cap) {
        float *fit = realloc(g.data, g.n * g.each * sizeof(float));
        g.data = fit ? fit : g.data;
    }
    const struct shape shape = { .ndim = 4, .dim = { g.n, g.h, g.w, 3 } };
    if (!s)
        return htensor_take(&shape, g.data, out, err);
    free(g.data);
    return s;
}

berth_status clip_sound(struct node_call *c, const char *path, const struct media_sound_args *args,
                        struct value **out, berth_err *err)
{
    struct media_host host = clip_host(c);
    struct media_sound s;
    struct htensor *w = NULL;
    *out = NULL;
    if (media_sound_read(&host, path, args, &s, err))
        return err->code;
    berth_status st = BERTH_OK;
    if (s.rate && !(st = wave_new(1, s.channels, s.n, &w, err))) {
        for (size_t i = 0; i < s.n; i++)
            for (size_t k = 0; k < s.channels; k++)
                w->data[k * s.n + i] = s.data[i * s.channels + k];
        if (!(*out = value_audio(w, s.rate)))
            st = err_set(err, BERTH_ENOMEM, "the sound of '%s'", path);
    }
    media_sound_release(&s);
    return st;
}

/* ---- into files ---- */

berth_status clip_rate(double fps, uint32_t *num, uint32_t *den, berth_err *err)
{
    double k = nearbyint(fps * 1000);
    if (!(k >= 1 && k <= 1e9))
        return err_set(err, BERTH_EINVAL, "%g frames a second", fps);
    uint32_t a = (uint32_t)k, b = 1000, x = a, y = b;
    while (y) {
        uint32_t t = x % y;
        x = y;
        y = t;
    }
    *num = a / x;
    *den = b / x;
    return BERTH_OK;
}

struct media_text *clip_tags(const struct saved *to, berth_err *err)
{
    struct media_text *t = calloc(to->texts + 1, sizeof *t);
    if (!t)
        err_set(err, BERTH_ENOMEM, "tags");
    for (size_t i = 0; t && i < to->texts; i++)
        t[i] = (struct media_text) { to->text[i].key, to->text[i].value };
    return t;
}

/* Sample j of a pixel that has `has` of them. */
static float sample_of(const float *px, size_t has, size_t j)
{
    return j < has ? px[j] : j == 3 ? 1.0f : has == 1 ? px[0] : 0.0f;
}

/* Picture i in the writer's samples: fractions cut, NaN 0. Where the writer's frames are larger the
 * picture stands in the middle, and its edge is repeated. */
static void frame_samples(const struct htensor *t, size_t i, const struct media_write_video *v,
                          void *px)
{
    size_t h = dim(t, 1), w = dim(t, 2), has = dim(t, 3), c = v->channels;
    size_t top = (v->h - h) / 2, left = (v->w - w) / 2;
    const float *from = t->data + i * h * w * has;
    float most = v->bits == 16 ? 65535.0f : 255.0f;
    uint8_t *bytes = px;
    uint16_t *words = px;
    for (size_t y = 0; y < v->h; y++)
        for (size_t x = 0; x < v->w; x++)
            for (size_t j = 0; j < c; j++) {
                size_t fy = y < top ? 0 : y - top < h ? y - top : h - 1;
                size_t fx = x < left ? 0 : x - left < w ? x - left : w - 1;
                float s = sample_of(from + (fy * w + fx) * has, has, j) * most;
                s = s > 0 ? (s < most ? s : most) : 0;
                if (v->bits == 16)
                    words[(y * v->w + x) * c + j] = (uint16_t)s;
                else
                    bytes[(y * v->w + x) * c + j] = (uint8_t)s;
            }
}

static berth_status put_frames(struct node_call *c, const struct clip_out *f,
                               struct media_writer *w, berth_err *err)
{
    const struct media_write_video *v = &f->args.video;
    void *px = malloc((size_t)v->w * v->h * v->channels * (v->bits / 8));
    berth_status s = px ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a frame of %ux%u", v->w, v->h);
    for (size_t i = 0; !s && i < f->n; i++) {
        frame_samples(f->images, f->at + (f->order ? f->order[i] : i), v, px);
        s = media_write_frame(w, px, err);
        if (!s)
            s = call_progress(c, (double)(i + 1), (double)f->n, err);
    }
    free(px);
    return s;
}

#define PIECE 8192

static berth_status put_sound(const struct clip_out *f, struct media_writer *w, berth_err *err)
{
    const struct htensor *t = f->sound->wave;
    size_t channels = dim(t, 1), all = dim(t, 2), n = all < f->samples ? all : f->samples;
    const float *from = t->data + f->item * channels * all;
    float *piece = malloc(PIECE * channels * sizeof *piece);
    berth_status s = piece ? BERTH_OK : err_set(err, BERTH_ENOMEM, "samples of sound");
    for (size_t at = 0, k; !s && at < n; at += k) {
        k = n - at < PIECE ? n - at : PIECE;
        for (size_t i = 0; i < k; i++)
            for (size_t j = 0; j < channels; j++)
                piece[i * channels + j] = from[j * all + at + i];
        s = media_write_sound(w, piece, k, err);
    }
    free(piece);
    return s;
}

static berth_status write_all(struct node_call *c, const struct clip_out *f,
                              const struct media_write_args *args, berth_err *err)
{
    struct media_host host = clip_host(c);
    struct media_writer *w;
    if (media_writer_open(&host, args, &w, err))
        return err->code;
    berth_status s = f->images ? put_frames(c, f, w, err) : BERTH_OK;
    if (!s && f->sound)
        s = put_sound(f, w, err);
    if (!s)
        s = media_writer_finish(w, err);
    media_writer_close(w);
    return s;
}

berth_status clip_save(struct node_call *c, struct saved *to, const struct clip_out *f,
                       berth_err *err)
{
    struct save_stream file;
    struct str name = { 0 };
    struct media_write_args args = f->args;
    struct media_text *tags = clip_tags(to, err);
    if (!tags)
        return err->code;
    if (path_save_open(&to->path, &file, err)) {
        free(tags);
        return err->code;
    }
    args.fd = file.fd;
    args.what = str_c(&to->path.name);
    args.text = tags;
    args.texts = f->plain ? 0 : to->texts;
    berth_status s = write_all(c, f, &args, err);
    berth_err closed = { 0 };
    if (path_save_close(c->env->saves, &to->path, f->batch, f->ext, !s, &file, &name, &closed) &&
        !s) {
        *err = closed;
        s = closed.code;
    }
    if (!s && f->name) {
        str_clear(f->name);
        str_adds(f->name, str_c(&name));
        s = f->name->bad ? err_set(err, BERTH_ENOMEM, "the name of a file") : BERTH_OK;
    }
    if (!s && f->key)
        s = ui_add_file(c, f->key, str_c(&name), str_c(&to->path.subfolder), to->kind, err);
    str_release(&name);
    free(tags);
    return s;
}
