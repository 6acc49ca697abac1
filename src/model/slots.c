/* slots.c: chunks to rows of a table, and vectors between them. */
#include "model/slots.h"

#include "base/sz.h"

#include <inttypes.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

berth_status slots_check(const struct chunks *in, uint64_t vocab, berth_err *err)
{
    if (in->n == 0 || in->n > TEXT_CHUNKS_MAX + 1 || in->len[0] == 0)
        return err_set(err, BERTH_EINVAL, "%zu chunks of %zu tokens", in->n,
                       in->n ? in->len[0] : 0);
    for (size_t i = 0; i < in->n; i++) {
        if (in->len[i] != in->len[0])
            return err_set(err, BERTH_EINVAL, "chunks of %zu and of %zu tokens", in->len[0],
                           in->len[i]);
        for (size_t k = 0; k < in->len[i]; k++) {
            const struct token *t = &in->chunk[i][k];
            if (!t->vector && (t->id < 0 || (uint64_t)t->id >= vocab))
                return err_set(err, BERTH_EINVAL,
                               "token %d is not among the encoder's %" PRIu64
                               ": the tokenizer is another model's",
                               (int)t->id, vocab);
        }
    }
    return BERTH_OK;
}

static berth_status no_memory(const struct slots *s, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "%zu chunks of %zu tokens", s->n, s->len);
}

static berth_status make(struct slots *s, size_t n, size_t len, uint64_t width, berth_err *err)
{
    size_t total;
    *s = (struct slots) { .n = n, .len = len, .width = width };
    if (!sz_mul(n, len, &total))
        return no_memory(s, err);
    s->id = calloc(total, sizeof *s->id);
    s->vector = calloc(total, sizeof *s->vector);
    return s->id && s->vector ? BERTH_OK : no_memory(s, err);
}

/* A chunk's slots; returns how many vectors moved out. */
static size_t fit_chunk(struct slots *s, size_t at, const struct token *t, int32_t pad, bool *any)
{
    size_t to = 0;
    for (size_t i = 0; i < s->len; i++) {
        if (t[i].vector && t[i].width != s->width)
            continue;
        s->id[at + to] = t[i].vector ? 0 : t[i].id;
        s->vector[at + to++] = t[i].vector;
        *any = *any || t[i].vector;
    }
    for (size_t i = to; i < s->len; i++)
        s->id[at + i] = pad;
    return s->len - to;
}

berth_status slots_init(struct slots *s, const struct chunks *in, size_t from, size_t n,
                        uint64_t width, bool fix, size_t *dropped, berth_err *err)
{
    size_t total;
    bool change = fix;
    if (make(s, n, in->len[0], width, err))
        return err->code;
    s->fix = fix;
    for (size_t i = 0; i < n; i++)
        *dropped += fit_chunk(s, i * s->len, in->chunk[from + i], in->rules.pad, &change);
    if (!change)
        return BERTH_OK;
    if (!sz_mul(n * s->len, (size_t)width, &total) || !(s->row = calloc(total, sizeof *s->row)))
        return no_memory(s, err);
    return BERTH_OK;
}

berth_status slots_init_one(struct slots *s, uint64_t width, berth_err *err)
{
    return make(s, 1, 1, width, err);
}

void slots_release(struct slots *s)
{
    free(s->id);
    free(s->vector);
    free(s->row);
    *s = (struct slots) { 0 };
}

/* What came from the table, put right on the host. */
static void change_rows(const struct slots *s)
{
    size_t width = (size_t)s->width, total = s->n * s->len;
    for (size_t i = 0; i < total; i++) {
        float *row = s->row + i * width;
        if (s->vector[i])
            memcpy(row, s->vector[i], width * sizeof *row);
        for (size_t k = 0; k < width && s->fix && !s->vector[i]; k++)
            row[k] = isnan(row[k]) ? 0 : row[k];
        for (size_t k = 0; k < width && s->scale != 0 && !s->vector[i]; k++)
            row[k] *= s->scale;
    }
}

struct act slots_embed(struct net_run *r, const struct slots *s, const char *layer)
{
    struct shape shape = { .ndim = 3, .dim = { s->n, s->len, s->width } };
    struct act x = net_embedding(r, s->id, s->n * s->len, layer);
    if (s->row && !net_bad(r)) {
        net_output(r, x, s->row); /* waits until it is there */
        net_drop(r, &x);
        if (!net_bad(r))
            change_rows(s); /* zeros in a dry run */
        return net_input(r, &shape, s->row);
    }
    if (s->scale != 0) {
        struct act by = net_input(r, &(struct shape) { .ndim = 2, .dim = { 1, 1 } }, &s->scale);
        net_mul(r, &x, by);
        net_drop(r, &by);
    }
    return net_reshape(r, x, &shape);
}
