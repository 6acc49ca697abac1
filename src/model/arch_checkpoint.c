/* Files that hold several networks under prefixes: text encoders, the diffusion model, the VAE, in
 * the order a picture needs them. Also files that hold only some of them.
 *
 * The prefixes are the same for every diffusion model; which of its families is meant is the one
 * difference between the two tables. */
#include "model/arch.h"

#define PARTS(X, DIFFUSION)                                                                        \
    X("cond_stage_model.", "clip", arch_clip)        /* SD1, SD2 */                                \
    X("conditioner.embedders.0.", "clip", arch_clip) /* SDXL */                                    \
    X("conditioner.embedders.1.", "clip", arch_clip)                                               \
    X("text_encoders.clip_l.", "clip", arch_clip) /* ComfyUI's all-in-one files */                 \
    X("text_encoders.clip_g.", "clip", arch_clip)                                                  \
    X("text_encoders.t5xxl.", "clip", arch_t5)                                                     \
    X("model.diffusion_model.", "unet", DIFFUSION)                                                 \
    X("first_stage_model.", "vae", arch_vae)                                                       \
    X("vae.", "vae", arch_vae)

#define PART(prefix_, role_, family_) { .prefix = prefix_, .role = role_, .family = &family_ },

static const struct arch_part sd_parts[] = { PARTS(PART, arch_sd_unet) };
static const struct arch_part flux_parts[] = { PARTS(PART, arch_flux) };

static int order_in(const struct arch *arch, const char *a, size_t an, const char *b, size_t bn)
{
    size_t x, y, i = arch_part_of(arch, a, an, &x), k = arch_part_of(arch, b, bn, &y);
    if (i != k)
        return i < k ? -1 : 1;
    return i == arch->parts ? 0 : arch->part[i].family->base.order(a + x, an - x, b + y, bn - y);
}

/* The part, then the key inside of it. */
static size_t key_in(const struct arch *arch, const char *name, size_t n, uint64_t *out, size_t cap)
{
    size_t x, i = arch_part_of(arch, name, n, &x);
    out[0] = i;
    return 1 + (i == arch->parts
                    ? 0
                    : arch->part[i].family->base.key(name + x, n - x, out + 1, cap - 1));
}

static int sd_order(const char *a, size_t an, const char *b, size_t bn)
{
    return order_in(&arch_sd_checkpoint, a, an, b, bn);
}

static int flux_order(const char *a, size_t an, const char *b, size_t bn)
{
    return order_in(&arch_flux_checkpoint, a, an, b, bn);
}

static size_t sd_key(const char *name, size_t n, uint64_t *out, size_t cap)
{
    return key_in(&arch_sd_checkpoint, name, n, out, cap);
}

static size_t flux_key(const char *name, size_t n, uint64_t *out, size_t cap)
{
    return key_in(&arch_flux_checkpoint, name, n, out, cap);
}

static bool embedding(const char *block, size_t n) /* no diffusion model has any: one for both */
{
    size_t x, i = arch_part_of(&arch_sd_checkpoint, block, n, &x);
    const struct arch *family = i < arch_sd_checkpoint.parts ? sd_parts[i].family : NULL;
    return family && family->base.embedding && family->base.embedding(block + x, n - x);
}

static bool sd_detect(const struct weights *w, const char *prefix)
{
    for (size_t i = 0; i < ARRAY_LEN(sd_parts); i++)
        if (arch_has_part(w, prefix, &sd_parts[i]))
            return true;
    return false;
}

/* A file without a diffusion model is the other's. */
static bool flux_detect(const struct weights *w, const char *prefix)
{
    for (size_t i = 0; i < ARRAY_LEN(flux_parts); i++)
        if (flux_parts[i].family == &arch_flux && arch_has_part(w, prefix, &flux_parts[i]))
            return true;
    return false;
}

const struct arch arch_sd_checkpoint = {
    .base = { .name = "sd-checkpoint",
              .about =
                  "an SD1.x, SD2 or SDXL checkpoint, or parts of one (UNet, text encoders, VAE)",
              .embedding = embedding,
              .order = sd_order,
              .key = sd_key,
              .aliases = arch_aliases },
    .detect = sd_detect,
    .part = sd_parts,
    .parts = ARRAY_LEN(sd_parts),
};

const struct arch arch_flux_checkpoint = {
    .base = { .name = "flux-checkpoint",
              .about = "a Flux.1 checkpoint, or parts of one (transformer, text encoders, VAE)",
              .embedding = embedding,
              .order = flux_order,
              .key = flux_key,
              .aliases = arch_aliases },
    .detect = flux_detect,
    .part = flux_parts,
    .parts = ARRAY_LEN(flux_parts),
};
