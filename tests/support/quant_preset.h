/* quant_preset: a preset's tensors with one layer stored in a layout of its own (quant_files.h). */
#ifndef SUPPORT_QUANT_PRESET_H
#define SUPPORT_QUANT_PRESET_H

#include "model/preset.h"
#include "support/quant_files.h"

static inline void quant_write_preset(const char *path, const char *preset,
                                      const struct quant_layer *q)
{
    struct keys k = { 0 };
    berth_err err = { 0 };
    assert_ok(preset_keys(preset_find(preset), &k, &err), err);
    struct weights_spec *spec = calloc(k.n, sizeof *spec);
    assert_non_null(spec);
    for (size_t i = 0; i < k.n; i++)
        spec[i] = (struct weights_spec) { k.at[i].name, DT_F16, k.at[i].shape };
    quant_write(path, spec, k.n, q);
    free(spec);
    keys_release(&k);
}

#endif
