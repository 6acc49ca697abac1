/* presets: the built-in shape tables as files of synthetic weights. */
#ifndef SUPPORT_PRESETS_H
#define SUPPORT_PRESETS_H

#include "support/test.h"
#include "support/tmp.h"

#include "model/preset.h"
#include "model/synth.h"

/* Writes a preset to `path`, replacing what is there; as GGUF where the name ends so. more: one
 * entry of metadata beside its own; NULL: none. */
static inline void preset_write_with(const char *preset, enum dtype dtype, const char *path,
                                     const struct weights_meta_spec *more)
{
    const struct preset *p = preset_find(preset);
    const char *dot = strrchr(path, '.');
    bool gguf = dot && strcmp(dot, ".gguf") == 0;
    const struct weights_writer *format = weights_writer_find(gguf ? "gguf" : "safetensors");
    struct keys keys = { 0 };
    struct synth synth;
    struct preset_meta meta;
    berth_err err = { 0 };
    assert_ok(preset_keys(p, &keys, &err), err);
    assert_ok(synth_init(&synth, &keys, dtype, format, gguf ? p->hiprec : NULL, NULL, &err), err);
    struct weights_meta_spec all[ARRAY_LEN(meta.at) + 1];
    size_t n = preset_meta(p, gguf, &meta);
    memcpy(all, meta.at, n * sizeof *all);
    if (more)
        all[n++] = *more;
    struct weights_write_args args = { .format = format->name,
                                       .path = path,
                                       .spec = synth.spec,
                                       .count = keys.n,
                                       .fill = synth_weights_fill,
                                       .user = &synth,
                                       .meta = all,
                                       .meta_count = n };
    assert_ok(weights_write(&args, &err), err);
    synth_release(&synth);
    keys_release(&keys);
}

static inline void preset_write(const char *preset, enum dtype dtype, const char *path)
{
    preset_write_with(preset, dtype, path, NULL);
}

/* <preset>-<type>.safetensors in the test's folder, written once per program. Good as
 * tmp_path(). */
static inline const char *preset_file(const char *preset, enum dtype dtype)
{
    char file[96];
    snprintf(file, sizeof file, "%s-%s.safetensors", preset, dtype_name(dtype));
    const char *path = tmp_path(file);
    FILE *there = fopen(path, "rb");
    if (there)
        fclose(there);
    else
        preset_write(preset, dtype, path);
    return path;
}

#endif
