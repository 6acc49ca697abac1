/* walk: opens files in memory as a fuzz target does, and uses everything an index offers. */
#ifndef FUZZ_FORMAT_WALK_H
#define FUZZ_FORMAT_WALK_H

#include "base/hash.h"
#include "format/format_impl.h"
#include "format/layout.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static inline void fuzz_require(bool ok)
{
    if (!ok)
        abort();
}

static inline void fuzz_entry(const struct weights *w, const struct weights_entry *e)
{
    uint8_t buf[4096];
    berth_err err;
    for (uint64_t off = 0; off < e->size; off += sizeof buf) {
        size_t n = e->size - off < sizeof buf ? (size_t)(e->size - off) : sizeof buf;
        fuzz_require(weights_read(w, e, off, buf, n, &err) == BERTH_OK);
    }
    fuzz_require(weights_read(w, e, e->size, buf, 1, &err) == BERTH_EINVAL);
    fuzz_require(weights_find(w, e->name, e->name_len) == e);
}

/* The first and the last row of a quantised weight, as far as they go. */
static inline void fuzz_layout(const struct weights *w, const struct weights_entry *e)
{
    float row[4096];
    struct coded c;
    berth_err err;
    if (!e->layout || e->shape.ndim != 2 || layout_mapped(w, e, &c, &err))
        return;
    size_t n = e->shape.dim[1] < ARRAY_LEN(row) ? (size_t)e->shape.dim[1] : ARRAY_LEN(row);
    coded_expand(&c, 0, 0, n, row);
    coded_expand(&c, e->shape.dim[0] - 1, e->shape.dim[1] - n, n, row);
    if (coded_is_int(&c))
        coded_ints(&c, 0, 0, n, (int8_t *)row);
}

static inline void fuzz_meta(const struct weights *w, const struct weights_meta *m)
{
    fuzz_require(weights_meta_find(w, m->key) == m);
    if (m->kind == META_ARRAY)
        (void)hash_xxh64(m->raw, m->raw_len, 0); /* reads every byte */
    if (m->kind == META_STRING)
        fuzz_require(strlen(m->str) == m->str_len && str_is_utf8(m->str, m->str_len));
}

static inline void fuzz_walk(const struct weights_file *files, size_t count)
{
    struct weights *w = NULL;
    berth_err err = { 0 };
    if (weights_open_memory(files, count, NULL, &w, &err)) {
        fuzz_require(!w && err.code && err.msg[0]);
        return;
    }
    weights_verify(w);
    for (size_t i = 0; i < weights_count(w); i++) {
        fuzz_entry(w, weights_at(w, i));
        fuzz_layout(w, weights_at(w, i));
    }
    fuzz_require(!layouts_check(w, NULL, true, &err) || err.msg[0]);
    for (size_t i = 0; i < weights_meta_count(w); i++)
        fuzz_meta(w, weights_meta_at(w, i));
    weights_close(w);
}

#endif
