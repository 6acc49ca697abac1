/* writer.c: pictures and sound into a file, through a helper. */
#include "media/media_impl.h"

#include <stdlib.h>
#include <string.h>

struct media_writer {
    struct media_process p;
    struct media_host host;
    uint32_t w, h, channels;
    size_t frame; /* bytes of one */
};

static berth_status fill(const struct media_write_args *a, struct media_request *q, berth_err *err)
{
    const struct media_write_video *v = &a->video;
    const struct media_write_audio *s = &a->audio;
    *q = (struct media_request) { .op = MEDIA_WRITE,
                                  .w = v->w,
                                  .h = v->h,
                                  .rate_num = v->rate_num,
                                  .rate_den = v->rate_den,
                                  .channels = v->channels,
                                  .bits = v->bits,
                                  .color = v->color,
                                  .no_bit_rate = v->no_bit_rate,
                                  .quality = s->quality,
                                  .sound_rate = s->rate,
                                  .sound_channels = s->channels,
                                  .sound_bit_rate = s->bit_rate };
    if (v->encoder && (!v->w || !v->h || v->w > MEDIA_SIDE_MAX || v->h > MEDIA_SIDE_MAX))
        return err_set(err, BERTH_EINVAL, "'%s': frames of %ux%u; sides are 1 to %d", a->what, v->w,
                       v->h, MEDIA_SIDE_MAX);
    if (v->encoder && (!v->rate_num || !v->rate_den))
        return err_set(err, BERTH_EINVAL, "'%s': %u/%u frames a second", a->what, v->rate_num,
                       v->rate_den);
    if (s->encoder &&
        (!s->rate || s->rate > MEDIA_RATE_MAX || !s->channels || s->channels > MEDIA_CHANNELS_MAX))
        return err_set(err, BERTH_EINVAL, "'%s': %u channels of %u samples a second", a->what,
                       s->channels, s->rate);
    return REQUEST_NAME(q->container, a->container, err) ||
                   REQUEST_NAME(q->muxer_options, a->muxer_options, err) ||
                   REQUEST_NAME(q->encoder, v->encoder, err) ||
                   REQUEST_NAME(q->options, v->options, err) ||
                   REQUEST_NAME(q->pixels, v->pixels, err) ||
                   REQUEST_NAME(q->sound, s->encoder, err) ||
                   REQUEST_NAME(q->sound_options, s->options, err)
               ? err->code
               : BERTH_OK;
}

berth_status media_writer_open(const struct media_host *host, const struct media_write_args *args,
                               struct media_writer **out, berth_err *err)
{
    struct media_request q;
    *out = NULL;
    if (fill(args, &q, err))
        return err->code;
    struct media_writer *w = calloc(1, sizeof *w);
    if (!w)
        return err_set(err, BERTH_ENOMEM, "a writer of '%s'", args->what);
    w->host = *host;
    w->channels = args->audio.channels;
    w->frame = (size_t)q.w * q.h * q.channels * (q.bits / 8);
    if (process_start(&w->host, &q, -1, args->fd, args->what, &w->p, err)) {
        free(w);
        return err->code;
    }
    if (process_texts(&w->p, args->text, args->texts, err)) {
        media_writer_close(w);
        return err->code;
    }
    *out = w;
    return BERTH_OK;
}

berth_status media_write_frame(struct media_writer *w, const void *px, berth_err *err)
{
    return process_send(&w->p, &(struct media_msg) { .say = SAY_FRAME, .n = w->frame }, px, err);
}

berth_status media_write_sound(struct media_writer *w, const float *data, size_t n, berth_err *err)
{
    size_t each = w->channels * sizeof *data, most = MEDIA_PIECE / each;
    for (size_t at = 0, k; at < n; at += k) {
        k = n - at < most ? n - at : most;
        struct media_msg m = { .say = SAY_SOUND, .n = k * each };
        if (process_send(&w->p, &m, data + at * w->channels, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status media_writer_finish(struct media_writer *w, berth_err *err)
{
    struct media_msg m = { .say = SAY_END };
    if (process_send(&w->p, &m, NULL, err) || process_next(&w->p, &m, err))
        return err->code;
    return m.say == SAY_END ? BERTH_OK : process_nonsense(&w->p, err);
}

void media_writer_close(struct media_writer *w)
{
    if (!w)
        return;
    process_end(&w->p);
    free(w);
}
