/* media.c: what files are, and what they hold, through a helper. */
#include "media/media_impl.h"

#include "base/sz.h"

#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#define FRAMES_MAX ((uint64_t)1 << 20)
#define SAMPLES_MAX ((uint64_t)1 << 30)

bool media_built(void)
{
#ifdef BERTH_MEDIA
    return true;
#else
    return false;
#endif
}

#ifndef BERTH_MEDIA
int media_helper(void)
{
    return 2;
}
#endif

static berth_status open_file(const char *path, int *fd, berth_err *err)
{
    struct stat st;
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0)
        return err_sys(err, errno == ENOENT ? BERTH_ENOTFOUND : BERTH_EIO, errno, "'%s'", path);
    if (!fstat(*fd, &st) && S_ISREG(st.st_mode))
        return BERTH_OK;
    close(*fd);
    return err_set(err, BERTH_EINVAL, "'%s' is no file", path);
}

static berth_status start_reading(const struct media_host *host, const struct media_request *q,
                                  const char *path, struct media_process *p, berth_err *err)
{
    int fd;
    if (open_file(path, &fd, err))
        return err->code;
    berth_status s = process_start(host, q, fd, -1, path, p, err);
    close(fd);
    return s;
}

/* ---- probing ---- */

void media_info_release(struct media_info *i)
{
    for (size_t k = 0; k < i->texts; k++) {
        free(i->text[k].key);
        free(i->text[k].value);
    }
    free(i->text);
    *i = (struct media_info) { 0 };
}

static berth_status take_text(struct media_process *p, const struct media_msg *m, size_t *all,
                              struct media_info *out, berth_err *err)
{
    if (m->a > m->n || m->n > MEDIA_TEXT_MAX - *all || out->texts == MEDIA_TAGS_MAX)
        return err_set(err, BERTH_ELIMIT, "'%s': more than %zu bytes of tags, or more than %d",
                       p->about, MEDIA_TEXT_MAX, MEDIA_TAGS_MAX);
    *all += (size_t)m->n;
    struct media_text *at = realloc(out->text, (out->texts + 1) * sizeof *at);
    if (!at)
        return err_set(err, BERTH_ENOMEM, "tags of '%s'", p->about);
    out->text = at;
    at += out->texts;
    size_t value = (size_t)m->n - m->a;
    at->key = calloc(1, m->a + 1);
    at->value = calloc(1, value + 1);
    out->texts++;
    if (!at->key || !at->value)
        return err_set(err, BERTH_ENOMEM, "tags of '%s'", p->about);
    return process_data(p, at->key, m->a, err) ? err->code : process_data(p, at->value, value, err);
}

/* A byte that is neither true nor false must not be read as a bool. */
static bool is_bool(const bool *b)
{
    unsigned char byte;
    memcpy(&byte, b, 1);
    return byte <= 1;
}

/* Is what a helper says about a file possible? */
static bool plausible(struct media_info *i)
{
    i->format[sizeof i->format - 1] = '\0';
    i->video_codec[sizeof i->video_codec - 1] = '\0';
    i->audio_codec[sizeof i->audio_codec - 1] = '\0';
    return i->w <= MEDIA_SIDE_MAX && i->h <= MEDIA_SIDE_MAX && i->turns >= 0 && i->turns < 4 &&
           is_bool(&i->video) && is_bool(&i->audio) && is_bool(&i->alpha) &&
           is_bool(&i->webm_fits) && i->rate_den && isfinite(i->duration) &&
           isfinite(i->video_duration) && i->bit_depth >= 1 && i->bit_depth <= 64 &&
           (unsigned)i->color <= MEDIA_PQ && i->sample_rate <= MEDIA_RATE_MAX &&
           i->channels <= MEDIA_CHANNELS_MAX;
}

berth_status media_probe(const struct media_host *host, const char *path, struct media_info *out,
                         berth_err *err)
{
    const struct media_request q = { .op = MEDIA_PROBE };
    struct media_process p;
    struct media_msg m = { 0 };
    size_t all = 0;
    bool told = false;
    *out = (struct media_info) { 0 };
    berth_status s = start_reading(host, &q, path, &p, err);
    if (s)
        return s;
    while (!s && !(s = process_next(&p, &m, err)) && m.say != SAY_END) {
        if (m.say == SAY_INFO && m.n == sizeof *out && !told) {
            told = true;
            s = process_data(&p, out, sizeof *out, err);
            out->text = NULL; /* pointers of another process */
            out->texts = 0;
            if (!s && !plausible(out))
                s = process_nonsense(&p, err);
        } else {
            s = m.say == SAY_TEXT && told ? take_text(&p, &m, &all, out, err)
                                          : process_nonsense(&p, err);
        }
    }
    if (!s && !told)
        s = process_nonsense(&p, err);
    process_end(&p);
    if (s)
        media_info_release(out);
    return s;
}

/* ---- pictures ---- */

struct media_reader {
    struct media_process p;
    struct media_host host;
    struct media_frames_args args;
    uint64_t frames; /* so far */
    uint32_t w, h;   /* of the first */
    uint64_t bytes;  /* of the one that is to be taken; 0: none */
    uint8_t *row;    /* with args.bytes: a row of it */
};

berth_status media_frames_open(const struct media_host *host, const char *path,
                               const struct media_frames_args *args, struct media_reader **out,
                               berth_err *err)
{
    const struct media_request q = { .op = MEDIA_FRAMES,
                                     .cut = args->cut,
                                     .rate = args->rate,
                                     .skip = args->skip,
                                     .every = args->every,
                                     .cap = args->cap,
                                     .bytes = args->bytes };
    *out = NULL;
    struct media_reader *r = calloc(1, sizeof *r);
    if (!r)
        return err_set(err, BERTH_ENOMEM, "a reader of '%s'", path);
    r->host = *host;
    r->args = *args;
    if (!r->args.max_frames)
        r->args.max_frames = FRAMES_MAX;
    if (start_reading(&r->host, &q, path, &r->p, err)) {
        free(r);
        return err->code;
    }
    *out = r;
    return BERTH_OK;
}

static berth_status frame_fits(struct media_reader *r, const struct media_msg *m, berth_err *err)
{
    uint64_t n = (uint64_t)m->a * m->b * 3 * (r->args.bytes ? 1 : sizeof(float));
    if (m->say != SAY_FRAME || !m->a || !m->b || m->a > MEDIA_SIDE_MAX || m->b > MEDIA_SIDE_MAX ||
        m->n != n || !isfinite(m->x))
        return process_nonsense(&r->p, err);
    if (r->frames == r->args.max_frames)
        return err_set(err, BERTH_ELIMIT, "'%s' has more than %llu frames", r->p.about,
                       (unsigned long long)r->args.max_frames);
    if (r->frames && (m->a != r->w || m->b != r->h))
        return err_set(err, BERTH_EFORMAT, "'%s': frame %llu is %ux%u, those before it %ux%u",
                       r->p.about, (unsigned long long)r->frames, m->a, m->b, r->w, r->h);
    return BERTH_OK;
}

bool media_frame_next(struct media_reader *r, struct media_picture *out, berth_err *err)
{
    struct media_msg m;
    *err = (berth_err) { 0 };
    if (r->bytes)
        BUG("a frame that nobody took");
    if (process_next(&r->p, &m, err) || m.say == SAY_END || frame_fits(r, &m, err))
        return false;
    r->w = m.a;
    r->h = m.b;
    r->frames++;
    r->bytes = m.n;
    *out = (struct media_picture) { m.a, m.b, m.x };
    return true;
}

berth_status media_frame_take(struct media_reader *r, float *rgb, berth_err *err)
{
    size_t n = (size_t)r->bytes, row = (size_t)r->w * 3;
    r->bytes = 0;
    if (!r->args.bytes)
        return process_data(&r->p, rgb, n, err) ? process_why(&r->p, err) : BERTH_OK;
    if (!r->row && !(r->row = malloc(row)))
        return err_set(err, BERTH_ENOMEM, "a row of '%s'", r->p.about);
    for (size_t at = 0; at < n; at += row) {
        if (process_data(&r->p, r->row, row, err))
            return process_why(&r->p, err);
        for (size_t i = 0; i < row; i++)
            rgb[at + i] = (float)r->row[i] / 255.0f;
    }
    return BERTH_OK;
}

void media_close(struct media_reader *r)
{
    if (!r)
        return;
    process_end(&r->p);
    free(r->row);
    free(r);
}

/* ---- sound ---- */

void media_sound_release(struct media_sound *s)
{
    free(s->data);
    *s = (struct media_sound) { 0 };
}

/* Room for n samples of each channel more. */
static berth_status sound_room(struct media_process *p, struct media_sound *s, size_t *cap,
                               size_t n, uint64_t most, berth_err *err)
{
    size_t want = s->n + n, bytes;
    if ((uint64_t)want * s->channels > most)
        return err_set(err, BERTH_ELIMIT, "'%s' has more than %llu samples of sound", p->about,
                       (unsigned long long)most);
    if (want <= *cap)
        return BERTH_OK;
    size_t more = want + want / 2;
    float *at = sz_mul(more, s->channels * sizeof(float), &bytes) ? realloc(s->data, bytes) : NULL;
    if (!at)
        return err_set(err, BERTH_ENOMEM, "%zu samples of sound of '%s'", more, p->about);
    s->data = at;
    *cap = more;
    return BERTH_OK;
}

static berth_status take_sound(struct media_process *p, const struct media_msg *m, size_t *cap,
                               uint64_t most, struct media_sound *s, berth_err *err)
{
    if (m->say == SAY_HEAD && !s->rate && m->a && m->b && m->a <= MEDIA_RATE_MAX &&
        m->b <= MEDIA_CHANNELS_MAX) {
        s->rate = m->a;
        s->channels = m->b;
        return BERTH_OK;
    }
    size_t each = s->channels * sizeof(float);
    if (m->say != SAY_SOUND || !s->rate || m->n > MEDIA_PIECE || m->n % each)
        return process_nonsense(p, err);
    size_t n = (size_t)m->n / each;
    if (sound_room(p, s, cap, n, most, err) ||
        process_data(p, s->data + s->n * s->channels, (size_t)m->n, err))
        return err->code;
    s->n += n;
    return BERTH_OK;
}

berth_status media_sound_read(const struct media_host *host, const char *path,
                              const struct media_sound_args *args, struct media_sound *out,
                              berth_err *err)
{
    const struct media_request q = { .op = MEDIA_SOUND, .cut = args->cut, .first = args->first };
    struct media_process p;
    struct media_msg m = { 0 };
    size_t cap = 0;
    uint64_t most = args->max_samples ? args->max_samples : SAMPLES_MAX;
    *out = (struct media_sound) { 0 };
    berth_status s = start_reading(host, &q, path, &p, err);
    if (s)
        return s;
    while (!s && !(s = process_next(&p, &m, err)) && m.say != SAY_END)
        s = take_sound(&p, &m, &cap, most, out, err);
    process_end(&p);
    if (s)
        media_sound_release(out);
    return s;
}

/* ---- copies ---- */

berth_status media_copy(const struct media_host *host, const char *path,
                        const struct media_copy_args *a, berth_err *err)
{
    struct media_request q = {
        .op = MEDIA_COPY, .cut = a->cut, .color = a->color, .sound_rate = a->sound_rate
    };
    struct media_process p;
    struct media_msg m = { 0 };
    int fd;
    if (REQUEST_NAME(q.container, a->container, err) ||
        REQUEST_NAME(q.muxer_options, a->muxer_options, err) ||
        REQUEST_NAME(q.encoder, a->encoder, err) || REQUEST_NAME(q.options, a->options, err) ||
        REQUEST_NAME(q.pixels, a->pixels, err) || REQUEST_NAME(q.sound, a->sound, err) ||
        open_file(path, &fd, err))
        return err->code;
    berth_status s = process_start(host, &q, fd, a->fd, path, &p, err);
    close(fd);
    if (s)
        return s;
    s = process_texts(&p, a->text, a->texts, err);
    if (!s)
        s = process_send(&p, &(struct media_msg) { .say = SAY_END }, NULL, err);
    while (!s && !(s = process_next(&p, &m, err)) && m.say != SAY_END) {
        if (m.say != SAY_STEP || m.n || !isfinite(m.x))
            s = process_nonsense(&p, err);
        else if (a->progress)
            s = a->progress(a->user, m.x, err);
    }
    process_end(&p);
    return s;
}
