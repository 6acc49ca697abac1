/* encoder.c: sets of encoders: which layer each gives, weights against the empty prompt, assembly
 * (text-encoders.md 3, 6, 9). */
#include "text/encoder.h"

#include "base/log.h"
#include "base/sz.h"

#include <inttypes.h>
#include <string.h>

/* How an encoder is used in a set. */
struct use {
    enum text_kind kind;
    int layer; /* clip_out_args.layer without clip skip */
    bool norm_hidden, project;
    bool pooled; /* the set's pooled output is this one's */
};
static const struct set {
    const char *name;
    struct use use[2]; /* in the order of their columns in cond */
    size_t n;
} sets[] = {
    [TEXT_SD1] = { "SD1", { { TEXT_CLIP_L, 0, true, false, true } }, 1 },
    [TEXT_SD2] = { "SD2", { { TEXT_CLIP_H, -2, true, true, true } }, 1 },
    [TEXT_SDXL] = { "SDXL",
                    { { TEXT_CLIP_L, -2, false, false, false },
                      { TEXT_CLIP_G, -2, false, true, true } },
                    2 },
    [TEXT_REFINER] = { "SDXL refiner", { { TEXT_CLIP_G, -2, false, true, true } }, 1 },
    [TEXT_FLUX] = { "Flux",
                    { { TEXT_T5, 0, true, false, false }, { TEXT_CLIP_L, 0, true, false, true } },
                    2 },
};

static const struct kind {
    const char *name;
    const char *key;   /* of embedding files */
    bool pad_with_end; /* else with 0 */
} kinds[] = {
    [TEXT_CLIP_L] = { "CLIP-L", "clip_l", true },
    [TEXT_CLIP_G] = { "CLIP-G", "clip_g", false },
    [TEXT_CLIP_H] = { "CLIP-H", "clip_h", false },
    [TEXT_T5] = { "T5", "t5xxl", false },
};

struct one { /* an encoder at work */
    const struct use *use;
    const struct text_encoder *enc;
    struct chunks in;
    float *z; /* [in.n * length, width] */
    float *pooled;
};

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "the conditioning of a prompt");
}

static const struct text_encoder *find_encoder(const struct text_args *a, enum text_kind kind)
{
    for (size_t i = 0; i < a->encoders; i++)
        if (a->enc[i].kind == kind)
            return &a->enc[i];
    return NULL;
}

static berth_status tokenize(const struct text_args *a, struct one *o, const char *text,
                             struct arena *mem, berth_err *err)
{
    const struct kind *k = &kinds[o->use->kind];
    struct chunk_rules rules = { .start = bpe_start(a->bpe),
                                 .end = bpe_end(a->bpe),
                                 .pad = k->pad_with_end ? bpe_end(a->bpe) : 0,
                                 .max_length = (uint32_t)o->enc->clip.positions,
                                 .pad_to_max = true };
    return text_chunks(text, strlen(text), text_encode_bpe, a->bpe, &rules, k->key, a->emb, mem,
                       &o->in, err);
}

/* n chunks, those behind the prompt's own being the empty prompt's. */
static berth_status extend(struct chunks *c, size_t n, struct arena *mem, berth_err *err)
{
    struct token **chunk = arena_array(mem, n, sizeof *chunk), *empty;
    size_t *len = arena_array(mem, n, sizeof *len);
    if (!chunk || !len)
        return no_memory(err);
    if (text_empty_chunk(&c->rules, c->len[0], mem, &empty, err))
        return err->code;
    memcpy(chunk, c->chunk, c->n * sizeof *chunk);
    for (size_t i = 0; i < n; i++) {
        len[i] = c->len[0];
        if (i >= c->n)
            chunk[i] = empty;
    }
    *c = (struct chunks) { .chunk = chunk, .len = len, .n = n, .rules = c->rules };
    return BERTH_OK;
}

static bool has_weights(const struct chunks *c)
{
    for (size_t i = 0; i < c->n; i++)
        for (size_t k = 0; k < c->len[i]; k++)
            if (c->chunk[i][k].weight != 1.0)
                return true;
    return false;
}

/* z = (z - empty) * weight + empty, where a weight is not 1. */
static void apply_weights(const struct one *o, size_t width, const float *empty)
{
    size_t len = o->in.len[0];
    for (size_t i = 0; i < o->in.n; i++)
        for (size_t k = 0; k < len; k++) {
            double weight = o->in.chunk[i][k].weight;
            float w = (float)weight, *z = o->z + (i * len + k) * width;
            const float *e = empty + k * width;
            for (size_t x = 0; weight != 1.0 && x < width; x++)
                z[x] = (z[x] - e[x]) * w + e[x];
        }
}

static berth_status encode(const struct text_args *a, struct one *o, struct arena *mem,
                           berth_err *err)
{
    const struct clip_net *c = &o->enc->clip;
    struct clip_out_args how = { .layer = a->skip ? a->skip : o->use->layer,
                                 .norm_hidden = o->use->norm_hidden,
                                 .project = o->use->project };
    struct chunks all = o->in;
    bool weighted = has_weights(&o->in);
    size_t n, dropped = 0, width = (size_t)c->width, len = o->in.len[0];
    if (weighted && extend(&all, o->in.n + 1, mem, err))
        return err->code;
    if (!sz_mul(all.n * len, width, &n) || !(o->z = arena_array(mem, n, sizeof *o->z)) ||
        !(o->pooled = arena_array(mem, width, sizeof *o->pooled)))
        return no_memory(err);
    if (clip_encode(o->enc->net, c, &all, &how, o->z, o->use->pooled ? o->pooled : NULL, &dropped,
                    err))
        return err_add(err, "%s", kinds[o->use->kind].name);
    if (dropped && a->emb)
        log_warn(a->emb->log, "text.embedding", "what=width ignored=%zu width=%zu encoder=%s",
                 dropped, width, kinds[o->use->kind].name);
    if (weighted)
        apply_weights(o, width, o->z + o->in.n * len * width);
    return BERTH_OK;
}

/* Columns side by side, as many rows as the shorter has. */
static berth_status assemble(const struct one *o, size_t n, struct arena *mem,
                             struct text_cond *out, berth_err *err)
{
    *out = (struct text_cond) { .tokens = SIZE_MAX };
    for (size_t i = 0; i < n; i++) {
        size_t rows = o[i].in.n * o[i].in.len[0];
        out->tokens = rows < out->tokens ? rows : out->tokens;
        out->width += (size_t)o[i].enc->clip.width;
        if (o[i].use->pooled) {
            out->pooled = o[i].pooled;
            out->pooled_n = (size_t)o[i].enc->clip.width;
        }
    }
    if (n == 1) {
        out->cond = o[0].z;
        return BERTH_OK;
    }
    size_t all, at = 0;
    if (!sz_mul(out->tokens, out->width, &all) ||
        !(out->cond = arena_array(mem, all, sizeof *out->cond)))
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        size_t width = (size_t)o[i].enc->clip.width;
        for (size_t row = 0; row < out->tokens; row++)
            memcpy(out->cond + row * out->width + at, o[i].z + row * width,
                   width * sizeof *out->cond);
        at += width;
    }
    return BERTH_OK;
}

berth_status text_encode(const struct text_args *a, const char *text, const char *text_l,
                         struct arena *mem, struct text_cond *out, berth_err *err)
{
    const struct set *set = &sets[a->set];
    struct one one[2] = { 0 };
    size_t most = 0;
    *out = (struct text_cond) { 0 };
    for (size_t i = 0; i < set->n; i++) {
        struct one *o = &one[i];
        o->use = &set->use[i];
        o->enc = find_encoder(a, o->use->kind);
        if (!o->enc)
            return err_set(err, BERTH_EINVAL, "%s needs %s, which is not among its text encoders",
                           set->name, kinds[o->use->kind].name);
        if (tokenize(a, o, text_l && o->use->kind == TEXT_CLIP_L ? text_l : text, mem, err))
            return err->code;
        most = o->in.n > most ? o->in.n : most;
    }
    for (size_t i = 0; i < set->n; i++) {
        if (text_l && one[i].in.n < most && extend(&one[i].in, most, mem, err))
            return err->code;
        if (encode(a, &one[i], mem, err))
            return err->code;
    }
    return assemble(one, set->n, mem, out, err);
}
