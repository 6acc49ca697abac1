/* blocks: from the tensors of a file to the units that are placed. */
#include "plan/blocks.h"

#include "base/map.h"
#include "base/str.h"
#include "base/sz.h"

#include <inttypes.h>

const char *block_kind_name(enum block_kind kind)
{
    static const char *const name[] = { "Linear", "Conv", "Norm", "Embedding", "Other" };
    return name[kind];
}

struct builder {
    const struct weights *w;
    const char *prefix;
    size_t prefix_len;
    const struct block_arch *arch;
    struct blocks *out;
    struct map names; /* block name -> index */
    struct arena tmp; /* dies with the call */
    struct {
        uint32_t entry, block; /* indices */
    } * taken;                 /* [out->tensors] in file order */
    struct block_trace trace;  /* use NULL: nobody knows */
    berth_err *err;
};

size_t block_name_length(const char *name, size_t n)
{
    for (size_t i = n; i-- > 0;)
        if (name[i] == '.')
            return i;
    return n;
}

static berth_status no_memory(struct builder *b)
{
    return err_set(b->err, BERTH_ENOMEM, "blocks of '%s'", weights_path(b->w));
}

/* A weight's dimensions tell the kind of layer. */
static void learn_kind(struct block *k, const struct weights_entry *e)
{
    if (!str_ends(e->name, e->name_len, ".weight"))
        return;
    int ndim = e->shape.ndim;
    k->kind = ndim == 0   ? BLOCK_OTHER
              : ndim == 1 ? BLOCK_NORM
              : ndim == 2 ? BLOCK_LINEAR
                          : BLOCK_CONV;
}

/* Names of input embeddings as people choose them, for files nobody knows. Whole parts only: a
 * "patch_embed" is multiplied through like any other layer. */
static bool embedding_by_name(const char *name, size_t n)
{
    static const char *const word[] = {
        "embed_tokens", "token_embd", "token_embedding", "position_embedding",
        "wte",          "wpe",        "shared"
    };
    for (size_t i = 0; i < ARRAY_LEN(word); i++) {
        size_t len = strlen(word[i]);
        if (str_ends(name, n, word[i]) && (n == len || name[n - len - 1] == '.'))
            return true;
    }
    return false;
}

static void be_embedding(struct block *k)
{
    k->embedding = true;
    k->kind = BLOCK_EMBEDDING;
}

/* First walk over the file: who is there. Blocks come in the order of their first tensor. */
static berth_status collect(struct builder *b)
{
    struct blocks *out = b->out;
    for (size_t i = 0; i < weights_count(b->w); i++) {
        const struct weights_entry *e = weights_at(b->w, i);
        if (!str_starts(e->name, e->name_len, b->prefix))
            continue;
        const char *name = e->name + b->prefix_len;
        size_t len = block_name_length(name, e->name_len - b->prefix_len);
        uint64_t at = out->n;
        switch (map_add(&b->names, name, len, at)) {
        case MAP_NOMEM:
            return no_memory(b);
        case MAP_EXISTS:
            map_get(&b->names, name, len, &at);
            break;
        case MAP_ADDED:
            out->at[at].kind = BLOCK_OTHER;
            out->at[at].name = arena_strndup(&out->mem, name, len);
            out->at[at].name_len = (uint32_t)len;
            if (!out->at[at].name)
                return no_memory(b);
            out->n++;
            break;
        }
        out->at[at].n++;
        learn_kind(&out->at[at], e);
        b->taken[out->tensors].entry = (uint32_t)i;
        b->taken[out->tensors++].block = (uint32_t)at;
    }
    for (size_t i = 0; !b->arch && i < out->n; i++)
        if (embedding_by_name(out->at[i].name, out->at[i].name_len))
            be_embedding(&out->at[i]);
    if (!out->n)
        return err_set(b->err, BERTH_ENOTFOUND, "'%s' has no tensor whose name starts with '%.80s'",
                       weights_path(b->w), b->prefix);
    return BERTH_OK;
}

/* The block's next tensor gets its place behind those that have one. */
static berth_status place(struct builder *b, struct block *k, struct block_tensor *t)
{
    size_t off, span, sum, all;
    if (!sz_align(k->span, BLOCK_ALIGN, &off) || !sz_add(off, t->bytes, &span) ||
        !sz_add(k->bytes, t->bytes, &sum) || !sz_add(b->out->bytes, t->bytes, &all))
        return err_set(b->err, BERTH_ELIMIT, "block '%.80s': %" PRIu64 " more bytes pass 2^64",
                       k->name, t->bytes);
    t->off = off;
    k->span = span;
    k->bytes = sum;
    b->out->bytes = all;
    return BERTH_OK;
}

/* Largest first; of one size as in the file, whose order `off` tells until they have a place. */
static int by_size(const void *a, const void *b)
{
    const struct block_tensor *x = a, *y = b;
    if (x->bytes != y->bytes)
        return x->bytes > y->bytes ? -1 : 1;
    return x->off < y->off ? -1 : x->off > y->off;
}

/* Second walk: the tensors of a block beside each other. */
static berth_status lay_out(struct builder *b)
{
    struct blocks *out = b->out;
    uint32_t first = 0;
    for (size_t i = 0; i < out->n; i++) {
        out->at[i].first = first;
        first += out->at[i].n;
        out->at[i].n = 0;
    }
    for (size_t i = 0; i < out->tensors; i++) {
        const struct weights_entry *e = weights_at(b->w, b->taken[i].entry);
        struct block *k = &out->at[b->taken[i].block];
        out->tensor[k->first + k->n++] =
            (struct block_tensor) { .entry = e, .off = i, .bytes = e->size };
    }
    for (size_t i = 0; i < out->n; i++) {
        struct block *k = &out->at[i];
        qsort(out->tensor + k->first, k->n, sizeof *out->tensor, by_size);
        for (uint32_t t = k->first; t < k->first + k->n; t++)
            if (place(b, k, &out->tensor[t]))
                return b->err->code;
    }
    return BERTH_OK;
}

/* ---- what a pass does ---- */

struct turn { /* a block on its way to its place */
    struct block block;
    uint64_t when; /* of the first of its tensors; UINT64_MAX: no pass comes to it */
    size_t in_file;
    bool lookup, product; /* a tensor of it is looked up; another is multiplied through */
};

static int by_turn(const void *a, const void *b)
{
    const struct turn *x = a, *y = b;
    if (x->when != y->when)
        return x->when < y->when ? -1 : 1;
    return x->in_file < y->in_file ? -1 : x->in_file > y->in_file;
}

/* Order, roles and work, as the architecture traced them. */
static berth_status apply_trace(struct builder *b)
{
    struct blocks *out = b->out;
    struct turn *t = arena_array(&b->tmp, out->n, sizeof *t);
    if (!t)
        return no_memory(b);
    for (size_t i = 0; i < out->n; i++)
        t[i] = (struct turn) { .block = out->at[i], .when = UINT64_MAX, .in_file = i };
    for (size_t i = 0; i < out->tensors; i++) {
        const struct block_use *use = &b->trace.use[b->taken[i].entry];
        struct turn *of = &t[b->taken[i].block];
        of->lookup |= use->lookup;
        of->product |= use->when && !use->lookup;
        if (use->when && use->when < of->when)
            of->when = use->when;
        if (__builtin_add_overflow(of->block.work, use->work, &of->block.work))
            of->block.work = UINT64_MAX; /* beyond 64 bits it is all the same */
    }
    qsort(t, out->n, sizeof *t, by_turn);
    for (size_t i = 0; i < out->n; i++) {
        out->at[i] = t[i].block;
        if (t[i].lookup && !t[i].product)
            be_embedding(&out->at[i]);
    }
    return BERTH_OK;
}

static berth_status trace(struct builder *b, size_t tensors)
{
    b->trace.use = arena_array(&b->tmp, tensors + 1, sizeof *b->trace.use);
    if (!b->trace.use)
        return no_memory(b);
    return b->arch->trace(b->arch, b->w, b->prefix, &b->trace, b->err) ? b->err->code
                                                                       : apply_trace(b);
}

static berth_status build(struct builder *b)
{
    struct blocks *out = b->out;
    size_t n = weights_count(b->w);
    b->taken = arena_array(&b->tmp, n + 1, sizeof *b->taken);
    out->at = arena_array(&out->mem, n + 1, sizeof *out->at);
    out->tensor = arena_array(&out->mem, n + 1, sizeof *out->tensor);
    if (!b->taken || !out->at || !out->tensor)
        return no_memory(b);
    if (collect(b) || lay_out(b))
        return b->err->code;
    return b->arch && b->arch->trace ? trace(b, n) : BERTH_OK;
}

berth_status blocks_from_weights(const struct weights *w, const char *prefix,
                                 const struct block_arch *arch, struct blocks *out, berth_err *err)
{
    memset(out, 0, sizeof *out);
    prefix = prefix ? prefix : "";
    struct builder b = {
        .w = w, .prefix = prefix, .prefix_len = strlen(prefix), .arch = arch, .out = out, .err = err
    };
    b.names.seed =
        (uint64_t)(uintptr_t)w * UINT64_C(0x9e3779b97f4a7c15); /* names are a stranger's */
    berth_status s = build(&b);
    map_release(&b.names);
    arena_release(&b.tmp);
    if (s)
        blocks_release(out);
    return s;
}

void blocks_release(struct blocks *b)
{
    arena_release(&b->mem);
    memset(b, 0, sizeof *b);
}
