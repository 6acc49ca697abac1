/* made_file: a synthetic file of several lists of tensors, each behind a prefix, with metadata.
 *
 *     const struct made_part part[] = { { "ltxv_09_tiny_keys.json", "model.diffusion_model." } };
 *     made_file(path, part, 1, &(struct weights_meta_spec) { "config", text }, 1);
 *
 * Weights follow from names without the prefix (synth.h), but for a few that the rule would make
 * useless: deviations of latents are 1 more, and a factor of noise levels is what it always is. */
#ifndef SUPPORT_MADE_FILE_H
#define SUPPORT_MADE_FILE_H

#include "support/golden.h"
#include "support/models.h"

#include "base/str.h"
#include "format/weights.h"
#include "model/keys.h"
#include "model/synth.h"

#define MADE_PARTS 4

struct made_part {
    const char *keys, *prefix; /* a golden file; in front of its names */
};
struct made {
    const struct key **key;
};

static inline berth_status made_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                     berth_err *err)
{
    const struct key *k = ((const struct made *)user)->key[i];
    float *to = dst;
    (void)err;
    synth_fill(k->name, k->name_len, &k->shape, off / sizeof(float), n / sizeof(float), to);
    for (size_t e = 0; e < n / sizeof(float); e++) {
        if (str_ends(k->name, k->name_len, "std-of-means"))
            to[e] += 1;
        if (str_ends(k->name, k->name_len, "timestep_scale_multiplier"))
            to[e] = 1000;
    }
    return BERTH_OK;
}

static inline void made_file(const char *path, const struct made_part *part, size_t parts,
                             const struct weights_meta_spec *meta, size_t metas)
{
    struct keys list[MADE_PARTS] = { 0 };
    size_t n = 0, at = 0;
    berth_err err = { 0 };
    assert_true(parts <= MADE_PARTS);
    for (size_t i = 0; i < parts; i++) {
        assert_ok(keys_read(golden_path(part[i].keys), &list[i], &err), err);
        n += list[i].n;
    }
    struct weights_spec *spec = calloc(n, sizeof *spec);
    struct made m = { calloc(n, sizeof *m.key) };
    char(*name)[192] = calloc(n, sizeof *name);
    assert_true(spec && m.key && name);
    for (size_t i = 0; i < parts; i++)
        for (size_t k = 0; k < list[i].n; k++, at++) {
            snprintf(name[at], sizeof *name, "%s%s", part[i].prefix, list[i].at[k].name);
            m.key[at] = &list[i].at[k];
            spec[at] = (struct weights_spec) { name[at], DT_F32, list[i].at[k].shape };
        }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = n,
                                       .meta = meta,
                                       .meta_count = metas,
                                       .fill = made_fill,
                                       .user = &m };
    assert_ok(weights_write(&args, &err), err);
    for (size_t i = 0; i < parts; i++)
        keys_release(&list[i]);
    free(spec), free(m.key), free(name);
}

/* {"transformer": ..., "vae": ...} as text, as files carry it; either may be NULL. To be freed. */
static inline char *made_config(const json_t *transformer, const json_t *vae)
{
    json_t *all = json_object();
    if (transformer)
        json_object_set(all, "transformer", (json_t *)(uintptr_t)transformer);
    if (vae)
        json_object_set(all, "vae", (json_t *)(uintptr_t)vae);
    char *text = json_dumps(all, JSON_COMPACT);
    assert_non_null(text);
    json_decref(all);
    return text;
}

#endif
