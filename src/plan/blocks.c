/* blocks: from the tensors of a file to the units that are placed. */
#include "plan/blocks.h"

#include "base/map.h"
#include "base/str.h"
#include "base/sz.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *block_kind_name(enum block_kind kind)
{
    static const char *const name[] = {
#define NAME(id, text) [BLOCK_##id] = text,
        BLOCK_KIND_MAP(NAME)
#undef NAME
    };
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
    berth_err *err;
};

/* "double_blocks.0.img_attn.qkv.weight" -> the part before the last dot; without a dot all of
 * it. */
static size_t block_name_length(const char *name, size_t n)
{
    for (size_t i = n; i-- > 0;)
        if (name[i] == '.')
            return i;
    return n;
}

static berth_status no_memory(struct builder *b)
{
    return err_set(b->err, BERTH_ENOMEM, "blocks of '%s'", b->w ? weights_path(b->w) : "a list");
}

/* A weight's dimensions tell the kind of layer. */
static void learn_kind(struct block *k, const struct weights_entry *e)
{
    if (!str_ends(e->name, e->name_len, ".weight") || k->kind == BLOCK_EMBEDDING)
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

static bool is_embedding(const struct block_arch *arch, const char *name, size_t n)
{
    if (!arch)
        return embedding_by_name(name, n);
    return arch->embedding && arch->embedding(name, n);
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
            if (is_embedding(b->arch, out->at[at].name, len)) {
                out->at[at].embedding = true;
                out->at[at].kind = BLOCK_EMBEDDING;
            }
            out->n++;
            break;
        }
        out->at[at].n++;
        learn_kind(&out->at[at], e);
        b->taken[out->tensors].entry = (uint32_t)i;
        b->taken[out->tensors++].block = (uint32_t)at;
    }
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

/* What a step spends on the block's weights. Beyond 64 bits it is all the same. */
static void estimate(const struct builder *b, struct block *k)
{
    uint64_t weights = 0, count;
    if (!b->arch || !b->arch->work)
        return;
    for (uint32_t t = k->first; t < k->first + k->n; t++)
        if (!shape_count(&b->out->tensor[t].entry->shape, &count) ||
            __builtin_add_overflow(weights, count, &weights))
            weights = UINT64_MAX;
    k->work = b->arch->work(k->name, k->name_len, weights);
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
        estimate(b, k);
    }
    return BERTH_OK;
}

/* ---- execution order ---- */

struct runner { /* a block on its way to its place */
    const struct block *block;
    const uint64_t *key; /* NULL: ask the architecture about names */
    size_t n;
};

static bool runs_after(const struct block_arch *arch, const struct runner *a,
                       const struct runner *b)
{
    if (!a->key || !b->key)
        return arch->order(a->block->name, a->block->name_len, b->block->name, b->block->name_len) >
               0;
    for (size_t i = 0; i < a->n; i++)
        if (i == b->n || a->key[i] != b->key[i])
            return i == b->n || a->key[i] > b->key[i];
    return false;
}

/* Where in the sorted a[0..n) the blocks begin that run after `b`. */
static size_t first_after(const struct block_arch *arch, const struct runner *a, size_t n,
                          const struct runner *b)
{
    size_t from = 0;
    while (from < n) {
        size_t mid = from + (n - from) / 2;
        if (runs_after(arch, &a[mid], b))
            n = mid;
        else
            from = mid + 1;
    }
    return from;
}

/* Merge sort: stable, so that what the architecture does not order stays in file order. Files are
 * mostly in order, and asking for it costs more than anything else here: only where the halves
 * overlap are they merged. */
static void sort_runners(struct runner *a, struct runner *tmp, size_t n,
                         const struct block_arch *arch)
{
    if (n < 2)
        return;
    size_t half = n / 2;
    sort_runners(a, tmp, half, arch);
    sort_runners(a + half, tmp, n - half, arch);
    size_t at = first_after(arch, a, half, &a[half]), i = at, k = half;
    memcpy(tmp + at, a + at, (half - at) * sizeof *a);
    for (; i < half; at++) /* what is left of the upper half then is in its place */
        a[at] = k < n && runs_after(arch, &tmp[i], &a[k]) ? a[k++] : tmp[i++];
}

#define KEY_MAX 64 /* numbers; names beyond that are compared as names, with everybody */

/* Reading a name costs more than comparing two keys, and a sort compares each some 13 times. */
static berth_status read_key(struct builder *b, struct runner *r)
{
    uint64_t key[KEY_MAX];
    size_t n = b->arch->key(r->block->name, r->block->name_len, key, KEY_MAX);
    if (n > KEY_MAX)
        return BERTH_OK;
    uint64_t *keep = arena_array(&b->tmp, n + 1, sizeof *keep);
    if (!keep)
        return no_memory(b);
    memcpy(keep, key, n * sizeof *key);
    r->key = keep;
    r->n = n;
    return BERTH_OK;
}

static berth_status sort_blocks(struct builder *b)
{
    struct blocks *out = b->out;
    struct block *old = arena_array(&b->tmp, out->n, sizeof *old);
    struct runner *r = arena_array(&b->tmp, out->n, sizeof *r);
    struct runner *spare = arena_array(&b->tmp, out->n, sizeof *spare);
    if (!old || !r || !spare)
        return no_memory(b);
    memcpy(old, out->at, out->n * sizeof *old);
    for (size_t i = 0; i < out->n; i++) {
        r[i] = (struct runner) { .block = &old[i] };
        if (b->arch->key && read_key(b, &r[i]))
            return b->err->code;
    }
    sort_runners(r, spare, out->n, b->arch);
    for (size_t i = 0; i < out->n; i++)
        out->at[i] = *r[i].block;
    return BERTH_OK;
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
    return b->arch && b->arch->order ? sort_blocks(b) : BERTH_OK;
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

static berth_status add_spec(struct builder *b, const struct block_spec *spec)
{
    struct blocks *out = b->out;
    struct block *k = &out->at[out->n++];
    k->name_len = (uint32_t)strlen(spec->name);
    k->name = arena_strndup(&out->mem, spec->name, k->name_len);
    if (!k->name)
        return no_memory(b);
    k->embedding = spec->embedding;
    k->kind = k->embedding ? BLOCK_EMBEDDING : BLOCK_LINEAR;
    k->first = (uint32_t)out->tensors++;
    k->n = 1;
    out->tensor[k->first].bytes = spec->bytes;
    return place(b, k, &out->tensor[k->first]);
}

berth_status blocks_from_specs(const struct block_spec *spec, size_t n, struct blocks *out,
                               berth_err *err)
{
    memset(out, 0, sizeof *out);
    struct builder b = { .out = out, .err = err };
    out->at = arena_array(&out->mem, n + 1, sizeof *out->at);
    out->tensor = arena_array(&out->mem, n + 1, sizeof *out->tensor);
    if (!out->at || !out->tensor) {
        blocks_release(out);
        return no_memory(&b);
    }
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < n && !s; i++)
        s = add_spec(&b, &spec[i]);
    if (s)
        blocks_release(out);
    return s;
}

void blocks_release(struct blocks *b)
{
    arena_release(&b->mem);
    memset(b, 0, sizeof *b);
}
