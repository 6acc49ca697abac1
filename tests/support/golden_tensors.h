/* golden_tensors: the tensors of a golden file, read whole. For tests linked with format/. */
#ifndef SUPPORT_GOLDEN_TENSORS_H
#define SUPPORT_GOLDEN_TENSORS_H

#include "format/weights.h"
#include "support/golden.h"
#include "support/test.h"

static inline struct weights *golden_open(const char *file)
{
    struct weights *w;
    berth_err err;
    assert_ok(weights_open(golden_path(file), NULL, &w, &err), err);
    assert_true(weights_count(w) > 0);
    return w;
}

/* The values of a float32 tensor, to be freed. */
static inline float *golden_floats(const struct weights *w, const struct weights_entry *e,
                                   size_t *n)
{
    berth_err err;
    float *p = malloc(e->size ? e->size : 1);
    assert_non_null(p);
    assert_int_equal(e->dtype, DT_F32);
    assert_ok(weights_read(w, e, 0, p, e->size, &err), err);
    *n = (size_t)(e->size / sizeof *p);
    return p;
}

#endif
