/* speak.c: writing text, token by token (llm-encoders.md 5.1). */
#include "base/sz.h"
#include "model/lm/delta.h"
#include "model/lm/lm.h"

#include <stdlib.h>

struct talk {
    const struct text_encoder *e;
    const struct lm_net *net;
    struct lm_step step;
    float *memory; /* [2, layers, lm_delta_floats()] of layers that have one; of the last step the
                      first or the second */
    bool second;
    struct speech speech;
    struct vec *said;
    int64_t position; /* of the next token */
    size_t most;      /* tokens of prompt and text together */
};

static uint64_t piece_bytes(const struct talk *t, size_t room)
{
    return lm_kept_bytes(t->net, room, dtype_desc(net_act(t->e->net))->bytes);
}

/* How many tokens there is to be room for when there are so many: some more, not the longest text
 * that is allowed, which few are. */
static size_t next_room(const struct talk *t, size_t tokens)
{
    const size_t step = t->speech.how->room ? t->speech.how->room : SPEECH_ROOM;
    return t->most - tokens < step ? t->most : tokens + step;
}

static berth_status take_room(struct talk *t, size_t prompt, berth_err *err)
{
    uint64_t bytes;
    t->step.room = next_room(t, prompt);
    if (__builtin_mul_overflow(lm_kept_pieces(t->net), piece_bytes(t, t->step.room), &bytes))
        return err_set(err, BERTH_ELIMIT, "%zu tokens to be kept", t->step.room);
    return net_keep(t->e->net, bytes, err);
}

/* Room for one token more. */
static berth_status more_room(struct talk *t, berth_err *err)
{
    const size_t room = next_room(t, t->step.room);
    if (t->step.past < t->step.room)
        return BERTH_OK;
    if (net_keep_more(t->e->net, lm_kept_pieces(t->net), piece_bytes(t, t->step.room),
                      piece_bytes(t, room), err))
        return err_add(err, "a text of %zu tokens so far", t->step.past);
    t->step.room = room;
    return BERTH_OK;
}

static bool ends(const struct lm_kind *k, int32_t id)
{
    for (const int32_t *stop = k->stop; *stop >= 0; stop++)
        if (*stop == id)
            return true;
    return false;
}

static berth_status take_memory(struct talk *t, berth_err *err)
{
    size_t n;
    if (!t->net->delta.heads)
        return BERTH_OK;
    if (!sz_mul(lm_delta_floats(t->net), (size_t)2 * t->net->layers, &n) ||
        !(t->memory = calloc(n, sizeof *t->memory)))
        return err_set(err, BERTH_ENOMEM, "what %u layers remember", t->net->layers);
    return BERTH_OK;
}

/* Layers read what the last step left and write into the other half. */
static void give_memory(struct talk *t, struct lm_host *host)
{
    const size_t each = lm_delta_floats(t->net), all = each * t->net->layers;
    const float *from = t->memory + (t->second ? all : 0);
    float *to = t->memory + (t->second ? 0 : all);
    for (uint32_t i = 0; i < t->net->layers; i++) {
        host->delta[i].from = t->step.past ? from + i * each : NULL;
        host->delta[i].to = to + i * each;
    }
}

/* What is in step.in goes through; logits come. Takes host. */
static berth_status run_step(struct talk *t, struct lm_host *host, berth_err *err)
{
    if (!host)
        return err_set(err, BERTH_ENOMEM, "positions of text");
    t->step.host = host;
    if (t->memory)
        give_memory(t, host);
    berth_status s = net_forward(t->e->net, lm_step_forward, &t->step, err);
    t->position = host->last + 1;
    t->second = !t->second;
    t->step.past += t->step.in.len;
    free(host);
    return s;
}

/* The prompt, as it stands: pads, if there are any, are words like others. */
static berth_status listen(struct talk *t, const struct encoder_job *job, berth_err *err)
{
    const struct encoder_size size = t->e->is->size(t->e->config);
    size_t dropped = 0;
    berth_status s =
        slots_init(&t->step.in, job->in, 0, 1, size.width, size.zero_nans, &dropped, err);
    t->step.in.scale = size.scale;
    const struct encoder_pass p = { .is = t->e->is,
                                    .config = t->e->config,
                                    .in = t->step.in,
                                    .picture = job->picture,
                                    .pictures = t->net->kind->speaks_flat ? 0 : job->pictures };
    t->step.picture = job->picture;
    t->step.pictures = job->pictures;
    if (!s)
        s = run_step(t, lm_prepare(&p), err);
    slots_release(&t->step.in);
    t->step.pictures = 0;
    return s;
}

/* One token more. */
static berth_status go_on(struct talk *t, int32_t id, berth_err *err)
{
    const struct encoder_size size = t->e->is->size(t->e->config);
    const int64_t at[3] = { t->position, t->position, t->position };
    if (more_room(t, err))
        return err->code;
    berth_status s = slots_init_one(&t->step.in, size.width, err);
    t->step.in.scale = size.scale;
    if (!s) {
        t->step.in.id[0] = id;
        s = run_step(t, lm_host_new(t->net, at, 1, NULL, 1), err);
    }
    slots_release(&t->step.in);
    return s;
}

static berth_status talk_on(struct talk *t, berth_err *err)
{
    const struct speech_how *how = t->speech.how;
    for (uint32_t i = 0; i < how->most; i++) {
        int32_t id = speech_next(&t->speech, t->step.logits, t->said);
        if (!vec_push(t->said, &id))
            return err_set(err, BERTH_ENOMEM, "text of %zu tokens", t->said->n);
        if (how->said && how->said(how->user, id, err))
            return err->code;
        if (ends(t->net->kind, id) || i + 1 == how->most)
            break;
        if (go_on(t, id, err))
            return err->code;
    }
    return BERTH_OK;
}

static bool there(const void *config)
{
    const struct lm_net *c = config;
    return c->kind->stop && c->final_norm;
}

static berth_status speak(const struct text_encoder *e, const struct encoder_job *job,
                          const struct speech_how *how, struct vec *said, berth_err *err)
{
    const struct encoder_size size = e->is->size(e->config);
    struct talk t = { .e = e, .net = e->config, .said = said, .step = { .net = e->config } };
    size_t len = job->in->len[0];
    if (len + how->most > size.tokens)
        return err_set(err, BERTH_ELIMIT, "a prompt of %zu tokens and %u behind it, more than %llu",
                       len, how->most, (unsigned long long)size.tokens);
    t.most = len + how->most;
    berth_status s = slots_check(job->in, size.vocab, err);
    if (!s)
        s = speech_init(&t.speech, how, (size_t)size.vocab, err);
    if (!s && !(t.step.logits = malloc((size_t)size.vocab * sizeof *t.step.logits)))
        s = err_set(err, BERTH_ENOMEM, "%llu logits", (unsigned long long)size.vocab);
    if (!s)
        s = take_room(&t, len, err);
    if (!s)
        s = take_memory(&t, err);
    if (!s)
        s = listen(&t, job, err);
    if (!s)
        s = talk_on(&t, err);
    free(t.step.logits);
    free(t.memory);
    speech_release(&t.speech);
    return s;
}

const struct encoder_speech lm_speech = { .there = there, .speak = speak };
