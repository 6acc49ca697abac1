/* sparse_open: weight files without their bytes, written and opened: for tests that look at names
 * and shapes alone. */
#ifndef SUPPORT_SPARSE_OPEN_H
#define SUPPORT_SPARSE_OPEN_H

#include "support/sparse.h"
#include "support/test.h"
#include "support/tmp.h"

/* k is released. */
static inline struct weights *sparse_open(struct keys *k)
{
    struct weights *w;
    berth_err err;
    assert_false(k->bad);
    const char *path = tmp_path("sparse.safetensors");
    assert_ok(sparse_keys(path, k, DT_F16, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    keys_release(k);
    return w;
}

static inline struct weights *sparse_open_preset(const char *name)
{
    struct keys k = { 0 };
    berth_err err;
    assert_ok(preset_keys(preset_find(name), &k, &err), err);
    return sparse_open(&k);
}

#endif
