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
    bool cond;           /* its z are columns of cond */
    bool pooled;         /* the set's pooled output is this one's */
    uint32_t min_length; /* of T5's chunk */
};
static const struct set {
    const char *name;
    struct use use[2]; /* in the order of their columns in cond */
    size_t n;
    bool fill_up; /* given a text for each, the shorter list of chunks gets empty ones */
} sets[] = {
    [TEXT_SD1] = { .name = "SD1",
                   .use = { { TEXT_CLIP_L, .norm_hidden = true, .cond = true, .pooled = true } },
                   .n = 1 },
    [TEXT_SD2] = { .name = "SD2",
                   .use = { { TEXT_CLIP_H, -2, .norm_hidden = true, .project = true, .cond = true,
                              .pooled = true } },
                   .n = 1 },
    [TEXT_SDXL] = { .name = "SDXL",
                    .use = { { TEXT_CLIP_L, -2, .cond = true },
                             { TEXT_CLIP_G, -2, .project = true, .cond = true, .pooled = true } },
                    .n = 2,
                    .fill_up = true },
    [TEXT_REFINER] = { .name = "SDXL refiner",
                       .use = { { TEXT_CLIP_G, -2, .project = true, .cond = true,
                                  .pooled = true } },
                       .n = 1 },
    [TEXT_FLUX] = { .name = "Flux",
                    .use = { { TEXT_T5, .norm_hidden = true, .cond = true, .min_length = 256 },
                             { TEXT_CLIP_L, .norm_hidden = true, .pooled = true } },
                    .n = 2 },
};

static const struct kind {
    const char *name;
    const char *key;   /* of embedding files */
    bool pad_with_end; /* else with 0; CLIPs */
    bool t5;           /* its own network */
    const struct tokenizer *tokenizer;
} kinds[] = {
    [TEXT_CLIP_L] = { .name = "CLIP-L",
                      .key = "clip_l",
                      .pad_with_end = true,
                      .tokenizer = &tokenizer_clip },
    [TEXT_CLIP_G] = { .name = "CLIP-G", .key = "clip_g", .tokenizer = &tokenizer_clip },
    [TEXT_CLIP_H] = { .name = "CLIP-H", .key = "clip_h", .tokenizer = &tokenizer_clip },
    [TEXT_T5] = { .name = "T5", .key = "t5xxl", .t5 = true, .tokenizer = &tokenizer_t5 },
};

const struct tokenizer *text_tokenizer(enum text_kind kind)
{
    return kinds[kind].tokenizer;
}

struct one { /* an encoder at work */
    const struct use *use;
    struct text_encoder *enc;
    struct chunks in;
    size_t width;
    float *z;      /* [in.n * length, width]; NULL: not in cond */
    float *pooled; /* [width]; NULL: not the set's */
};

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "the conditioning of a prompt");
}

static struct text_encoder *find_encoder(const struct text_args *a, enum text_kind kind)
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
    const void *tok = o->enc->tok;
    if (!tok)
        return err_set(err, BERTH_EINVAL, "no tokenizer for %s", k->name);
    struct token_ids ids = k->tokenizer->ids(tok);
    struct chunk_rules rules = { .start = ids.start, .end = ids.end, .pad = ids.pad };
    if (k->t5) {
        rules.min_length = o->use->min_length;
    } else {
        rules.pad = k->pad_with_end ? ids.end : ids.pad;
        rules.max_length = (uint32_t)o->enc->clip.positions;
        rules.pad_to_max = true;
    }
    return text_chunks(text, strlen(text), k->tokenizer->encode, tok, &rules, k->key, a->emb, mem,
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

/* z and pooled of all chunks, through whichever network it is. */
static berth_status compute(const struct text_args *a, struct one *o, const struct chunks *all,
                            size_t *dropped, berth_err *err)
{
    const struct text_encoder *e = o->enc;
    int layer = a->skip ? a->skip : o->use->layer;
    if (kinds[e->kind].t5)
        return t5_encode(e->net, &e->t5, all, layer, o->z, dropped, err);
    struct clip_out_args how = { .layer = layer,
                                 .norm_hidden = o->use->norm_hidden,
                                 .project = o->use->project };
    return clip_encode(e->net, &e->clip, all, &how, o->z, o->pooled, dropped, err);
}

static void warn_one(const struct log *log, const struct one *o, const struct token *t, size_t n)
{
    if (t)
        log_warn(log, "text.embedding",
                 "what=width name=\"%.200s\" ignored=%zu has=%" PRIu32 " width=%zu encoder=%s",
                 t->embedding, n, t->width, o->width, kinds[o->use->kind].name);
}

/* Embeddings of another width are left out, as in ComfyUI: a warning for each time one is named. */
static void warn_ignored(const struct log *log, const struct one *o)
{
    const struct token *last = NULL;
    size_t n = 0;
    for (size_t i = 0; i < o->in.n; i++)
        for (size_t k = 0; k < o->in.len[i]; k++) {
            const struct token *t = &o->in.chunk[i][k];
            if (!t->vector || t->width == o->width)
                continue;
            if (last && last->embedding == t->embedding) {
                n++;
                continue;
            }
            warn_one(log, o, last, n);
            last = t;
            n = 1;
        }
    warn_one(log, o, last, n);
}

static berth_status encode(const struct text_args *a, struct one *o, struct arena *mem,
                           berth_err *err)
{
    struct chunks all = o->in;
    bool weighted = o->use->cond && has_weights(&o->in);
    size_t n, dropped = 0, len = o->in.len[0];
    if (weighted && extend(&all, o->in.n + 1, mem, err))
        return err->code;
    if (!sz_mul(all.n * len, o->width, &n) ||
        (o->use->cond && !(o->z = arena_array(mem, n, sizeof *o->z))) ||
        (o->use->pooled && !(o->pooled = arena_array(mem, o->width, sizeof *o->pooled))))
        return no_memory(err);
    if (a->begin && a->begin(a->user, o->enc, err))
        return err->code;
    berth_status s = compute(a, o, &all, &dropped, err);
    if (a->end)
        a->end(a->user, o->enc);
    if (s)
        return err_add(err, "%s", kinds[o->use->kind].name);
    if (dropped && a->emb)
        warn_ignored(a->emb->log, o);
    if (weighted)
        apply_weights(o, o->width, o->z + o->in.n * len * o->width);
    return BERTH_OK;
}

/* Columns side by side, as many rows as the shorter has. */
static berth_status assemble(const struct one *o, size_t n, struct arena *mem,
                             struct text_cond *out, berth_err *err)
{
    *out = (struct text_cond) { .tokens = SIZE_MAX };
    size_t columns = 0, all, at = 0;
    for (size_t i = 0; i < n; i++) {
        size_t rows = o[i].in.n * o[i].in.len[0];
        if (o[i].pooled) {
            out->pooled = o[i].pooled;
            out->pooled_n = o[i].width;
        }
        if (!o[i].z)
            continue;
        out->tokens = rows < out->tokens ? rows : out->tokens;
        out->width += o[i].width;
        out->cond = o[i].z;
        columns++;
    }
    if (columns == 1)
        return BERTH_OK;
    if (!sz_mul(out->tokens, out->width, &all) ||
        !(out->cond = arena_array(mem, all, sizeof *out->cond)))
        return no_memory(err);
    for (size_t i = 0; i < n; i++) {
        for (size_t row = 0; o[i].z && row < out->tokens; row++)
            memcpy(out->cond + row * out->width + at, o[i].z + row * o[i].width,
                   o[i].width * sizeof *out->cond);
        at += o[i].z ? o[i].width : 0;
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
        o->width = (size_t)(kinds[o->use->kind].t5 ? o->enc->t5.width : o->enc->clip.width);
        if (tokenize(a, o, text_l && o->use->kind == TEXT_CLIP_L ? text_l : text, mem, err))
            return err->code;
        most = o->in.n > most ? o->in.n : most;
    }
    for (size_t i = 0; i < set->n; i++) {
        if (text_l && set->fill_up && one[i].in.n < most && extend(&one[i].in, most, mem, err))
            return err->code;
        if (encode(a, &one[i], mem, err))
            return err->code;
    }
    return assemble(one, set->n, mem, out, err);
}
