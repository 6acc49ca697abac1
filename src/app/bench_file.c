/* bench_file: weights to measure with. What they are does not matter, that they are not zeros does:
 * cards multiply those faster. */
#include "app/bench.h"
#include "app/presets.h"

#include "base/hash.h"
#include "base/tpool.h"
#include "model/arch.h"
#include "model/synth.h"

#include <math.h>

#define GOLDEN UINT64_C(0x9E3779B97F4A7C15)

struct filler {
    struct synth synth;
    enum dtype random; /* tensors of this type are random blocks; DT_NONE: none are */
};

/* Where in a block of a K quant its factors are. */
static void put_factors(enum dtype t, uint8_t *block, float scale)
{
    uint16_t half[2];
    const float f[2] = { scale / 200, scale / 27 }; /* d * 32 * 7.5 == dmin * 32 */
    dtype_desc(DT_F16)->from_f32(f, half, 2);
    if (t == DT_Q4_K) /* d, dmin, scales, nibbles */
        memcpy(block, half, sizeof half);
}

static uint64_t mix(uint64_t z)
{
    z = (z ^ z >> 30) * UINT64_C(0xBF58476D1CE4E5B9);
    z = (z ^ z >> 27) * UINT64_C(0x94D049BB133111EB);
    return z ^ z >> 31;
}

static void fill_random(const struct weights_spec *spec, uint64_t off, uint8_t *dst, size_t n)
{
    const struct dtype_desc *d = dtype_desc(spec->dtype);
    uint64_t seed = hash_fnv1a64(spec->name, strlen(spec->name)), fan = 1;
    for (int i = 1; i < spec->shape.ndim; i++)
        fan *= spec->shape.dim[i];
    float scale = sqrtf(1.0f / (float)(fan ? fan : 1));
    for (size_t i = 0; i < n; i++) { /* bytes follow from their place: pieces may be cut anywhere */
        uint64_t z = mix(seed + ((off + i) / 8 + 1) * GOLDEN);
        dst[i] = (uint8_t)(z >> (off + i) % 8 * 8);
    }
    for (uint64_t at = off / d->bytes * d->bytes; at < off + n; at += d->bytes) {
        uint8_t head[4];
        put_factors(spec->dtype, head, scale);
        for (uint64_t k = 0; k < sizeof head; k++)
            if (at + k >= off && at + k < off + n)
                dst[at + k - off] = head[k];
    }
}

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    struct filler *f = user;
    if (f->synth.spec[i].dtype != f->random)
        return synth_weights_fill(&f->synth, i, off, dst, n, err);
    if (f->synth.cancel && atomic_load_explicit(f->synth.cancel, memory_order_relaxed))
        return err_set(err, BERTH_ECANCELED, "canceled");
    fill_random(&f->synth.spec[i], off, dst, n);
    return BERTH_OK;
}

/* Is it one of a diffusion model's? */
static bool makes_pictures(const struct preset *p)
{
    for (size_t a = 0; a < arch_count(); a++)
        for (const struct preset *q = arch_at(a)->presets; q && q->name; q++)
            if (q == p)
                return arch_at(a)->role && strcmp(arch_at(a)->role, "unet") == 0;
    return false;
}

berth_status bench_preset_runs(const struct preset *p, berth_err *err)
{
    return makes_pictures(p) ? BERTH_OK
                             : err_set(err, BERTH_EINVAL, "'%s' (%s) holds no diffusion model",
                                       p->name, p->about);
}

berth_status bench_part(const char *path, const char **part, berth_err *err)
{
    struct weights *w;
    bool found = false;
    *part = NULL;
    if (weights_open(path, NULL, &w, err))
        return err->code;
    const struct arch *arch = arch_detect(w, NULL);
    if (arch && arch->holds_parts)
        found = (*part = arch_part_with(w, arch, "unet"));
    else if (arch)
        found = strcmp(arch->role, "unet") == 0;
    weights_close(w);
    return found ? BERTH_OK
                 : err_set(err, BERTH_EUNSUPPORTED, "'%s' (%s) holds no diffusion model", path,
                           arch ? arch->base.about : "of a family that is not known");
}

berth_status bench_write(const struct preset *p, enum dtype dtype, const char *path,
                         const atomic_bool *cancel, berth_err *err)
{
    const struct weights_writer *format = app_format_of(dtype);
    struct filler f = { .random = dtype == DT_Q4_K ? dtype : DT_NONE };
    struct keys keys = { 0 };
    struct tpool *pool = NULL;
    struct preset_meta meta;
    berth_status s = preset_keys(p, &keys, err);
    if (!s)
        s = synth_init(&f.synth, &keys, dtype, format, p->hiprec, cancel, err);
    if (!s)
        s = tpool_new(0, &pool, err);
    if (!s) {
        size_t metas = preset_meta(p, format->mixed, &meta);
        struct weights_write_args args = { .format = format->name,
                                           .path = path,
                                           .spec = f.synth.spec,
                                           .count = keys.n,
                                           .meta = meta.at,
                                           .meta_count = metas,
                                           .fill = fill,
                                           .user = &f,
                                           .pool = pool };
        s = weights_write(&args, err);
    }
    tpool_free(pool);
    synth_release(&f.synth);
    keys_release(&keys);
    return s;
}
