/* resave: a weight file again, every tensor in one type: what weight_dtype is held to. */
#ifndef SUPPORT_RESAVE_H
#define SUPPORT_RESAVE_H

#include "support/test.h"

#include "format/weights.h"
#include "tensor/convert.h"

struct resaving {
    const struct weights *from;
    enum dtype to;
};

static inline berth_status resave_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                       berth_err *err)
{
    const struct resaving *s = user;
    const struct weights_entry *e = weights_at(s->from, i);
    size_t each = dtype_desc(s->to)->bytes;
    return convert(e->dtype, weights_data(s->from, e) + off / each * dtype_desc(e->dtype)->bytes,
                   s->to, dst, n / each, err);
}

/* from: plain types. to: a plain type. Metadata is not copied. */
static inline void resave(const char *from, enum dtype to, const char *path)
{
    struct resaving s = { .to = to };
    struct weights *w;
    berth_err err = { 0 };
    assert_ok(weights_open(from, NULL, &w, &err), err);
    struct weights_spec *spec = calloc(weights_count(w), sizeof *spec);
    assert_non_null(spec);
    for (size_t i = 0; i < weights_count(w); i++)
        spec[i] = (struct weights_spec) { weights_at(w, i)->name, to, weights_at(w, i)->shape };
    s.from = w;
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = weights_count(w),
                                       .fill = resave_fill,
                                       .user = &s };
    assert_ok(weights_write(&args, &err), err);
    free(spec);
    weights_close(w);
}

#endif
