/* layout_files: presets in the layouts of quantised files, and such a file expanded beforehand. */
#ifndef SUPPORT_LAYOUT_FILES_H
#define SUPPORT_LAYOUT_FILES_H

#include "support/presets.h"

#include "format/layout.h"

/* keys in a layout, as safetensors. */
static inline void layout_write_keys(const struct keys *keys, const struct synth_layout *layout,
                                     const char *const *hiprec, const char *path)
{
    struct synth synth;
    berth_err err = { 0 };
    assert_ok(synth_layout_init(&synth, keys, layout, hiprec, NULL, &err), err);
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = synth.spec,
                                       .count = synth.n,
                                       .fill = synth_weights_fill,
                                       .user = &synth };
    assert_ok(weights_write(&args, &err), err);
    synth_release(&synth);
}

static inline void layout_write(const char *preset, const char *layout, const char *path)
{
    const struct preset *p = preset_find(preset);
    struct keys keys = { 0 };
    berth_err err = { 0 };
    assert_ok(preset_keys(p, &keys, &err), err);
    layout_write_keys(&keys, synth_layout_find(layout), p->hiprec, path);
    keys_release(&keys);
}

struct expanding {
    struct weights *w;
    const struct weights_entry **from; /* [count] */
    struct weights_spec *spec;
    size_t count, coded;
    float *now;
    size_t at;
};

static inline berth_status expand_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                       berth_err *err)
{
    struct expanding *x = user;
    const struct weights_entry *e = x->from[i];
    if (!e->layout)
        return weights_read(x->w, e, off, dst, n, err);
    if (!x->now || x->at != i) {
        free(x->now);
        uint64_t count = 0;
        assert_true(shape_count(&e->shape, &count));
        x->now = malloc((size_t)count * sizeof *x->now);
        assert_non_null(x->now);
        assert_ok(layout_values(x->w, e, x->now, err), *err);
        x->at = i;
    }
    memcpy(dst, (const char *)x->now + off, n);
    return BERTH_OK;
}

/* The file's weights as F32 values in `to`, without anything beside them. Returns how many there
 * were. */
static inline size_t layout_expand(const char *path, const char *to)
{
    struct expanding x = { .at = 0 };
    berth_err err = { 0 };
    assert_ok(weights_open(path, NULL, &x.w, &err), err);
    size_t n = weights_count(x.w);
    x.from = calloc(n, sizeof *x.from);
    x.spec = calloc(n, sizeof *x.spec);
    assert_true(x.from && x.spec);
    for (size_t i = 0; i < n; i++) {
        const struct weights_entry *e = weights_at(x.w, i);
        if (layout_owner(x.w, e))
            continue;
        x.from[x.count] = e;
        x.spec[x.count++] =
            (struct weights_spec) { e->name, e->layout ? DT_F32 : e->dtype, e->shape };
        x.coded += e->layout != NULL;
    }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = to,
                                       .spec = x.spec,
                                       .count = x.count,
                                       .fill = expand_fill,
                                       .user = &x };
    assert_ok(weights_write(&args, &err), err);
    free(x.from);
    free(x.spec);
    free(x.now);
    weights_close(x.w);
    return x.coded;
}

#endif
