/* blocks: from the tensors of a file to the units that are placed. */
#include "residency/blocks.h"

#include "base/map.h"
#include "base/str.h"
#include "base/sz.h"

#include <inttypes.h>
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

/* "double_blocks.0.img_attn.qkv.weight" -> the part before the last dot; without a dot all of it. */
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
            if (b->arch && b->arch->embedding && b->arch->embedding(out->at[at].name, len)) {
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

/* One more tensor behind those the block has. */
static berth_status add_tensor(struct builder *b, struct block *k, const struct weights_entry *e,
                               uint64_t bytes)
{
    struct block_tensor *t = &b->out->tensor[k->first + k->n++];
    size_t off, span, sum, all;
    if (!sz_align(k->span, BLOCK_ALIGN, &off) || !sz_add(off, bytes, &span) ||
        !sz_add(k->bytes, bytes, &sum) || !sz_add(b->out->bytes, bytes, &all))
        return err_set(b->err, BERTH_ELIMIT, "block '%.80s': %" PRIu64 " more bytes pass 2^64",
                       k->name, bytes);
    *t = (struct block_tensor) { .entry = e, .off = off, .bytes = bytes };
    k->span = span;
    k->bytes = sum;
    b->out->bytes = all;
    return BERTH_OK;
}

/* Second walk: the tensors of a block beside each other, in file order. */
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
        if (add_tensor(b, &out->at[b->taken[i].block], e, e->size))
            return b->err->code;
    }
    return BERTH_OK;
}

static bool runs_after(const struct block_arch *arch, const struct block *a, const struct block *b)
{
    return arch->order(a->name, a->name_len, b->name, b->name_len) > 0;
}

/* Where in the sorted a[0..n) the blocks begin that run after `b`. */
static size_t first_after(const struct block_arch *arch, const struct block *a, size_t n,
                          const struct block *b)
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
static void sort_blocks(struct block *a, struct block *tmp, size_t n, const struct block_arch *arch)
{
    if (n < 2)
        return;
    size_t half = n / 2;
    sort_blocks(a, tmp, half, arch);
    sort_blocks(a + half, tmp, n - half, arch);
    size_t at = first_after(arch, a, half, &a[half]), i = at, k = half;
    memcpy(tmp + at, a + at, (half - at) * sizeof *a);
    for (; i < half; at++) /* what is left of the upper half then is in its place */
        a[at] = k < n && runs_after(arch, &tmp[i], &a[k]) ? a[k++] : tmp[i++];
}

static berth_status build(struct builder *b)
{
    struct blocks *out = b->out;
    size_t n = weights_count(b->w);
    b->taken = arena_array(&b->tmp, n + 1, sizeof *b->taken);
    struct block *spare = arena_array(&b->tmp, n + 1, sizeof *spare);
    out->at = arena_array(&out->mem, n + 1, sizeof *out->at);
    out->tensor = arena_array(&out->mem, n + 1, sizeof *out->tensor);
    if (!b->taken || !spare || !out->at || !out->tensor)
        return no_memory(b);
    if (collect(b) || lay_out(b))
        return b->err->code;
    if (b->arch && b->arch->order)
        sort_blocks(out->at, spare, out->n, b->arch);
    return BERTH_OK;
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
    return add_tensor(b, k, NULL, spec->bytes);
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
