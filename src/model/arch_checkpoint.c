/* Files that hold several networks under prefixes: text encoders, the diffusion model, the VAE, in
 * the order a picture needs them. Also files that hold only some of them.
 *
 * The prefixes are the same for every diffusion model; which of its families is meant is the one
 * difference between the two tables. */
#include "model/arch.h"

#include "base/str.h"

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

/* Index of the part a block is of, or parts; *rest: its name inside. A block of
 * tensors right below the prefix has the prefix without its dot for a name. */
static size_t find(const struct arch_part *part, size_t parts, const char *name, size_t n,
                   size_t *rest)
{
    for (size_t i = 0; i < parts; i++) {
        size_t len = strlen(part[i].prefix);
        if (str_starts(name, n, part[i].prefix)) {
            *rest = len;
            return i;
        }
        if (n + 1 == len && memcmp(name, part[i].prefix, n) == 0) {
            *rest = n;
            return i;
        }
    }
    *rest = 0;
    return parts;
}

static int order_in(const struct arch_part *part, size_t parts, const char *a, size_t an,
                    const char *b, size_t bn)
{
    size_t x, y, i = find(part, parts, a, an, &x), k = find(part, parts, b, bn, &y);
    if (i != k)
        return i < k ? -1 : 1;
    return i == parts ? 0 : part[i].family->base.order(a + x, an - x, b + y, bn - y);
}

static bool embedding_in(const struct arch_part *part, size_t parts, const char *block, size_t n)
{
    size_t x, i = find(part, parts, block, n, &x);
    return i < parts && part[i].family->base.embedding &&
           part[i].family->base.embedding(block + x, n - x);
}

static int sd_order(const char *a, size_t an, const char *b, size_t bn)
{
    return order_in(sd_parts, ARRAY_LEN(sd_parts), a, an, b, bn);
}

static int flux_order(const char *a, size_t an, const char *b, size_t bn)
{
    return order_in(flux_parts, ARRAY_LEN(flux_parts), a, an, b, bn);
}

static bool embedding(const char *block, size_t n) /* no diffusion model has any */
{
    return embedding_in(sd_parts, ARRAY_LEN(sd_parts), block, n);
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
              .about = "SD1.x, SD2 or SDXL: UNet, text encoders and VAE in one file",
              .embedding = embedding,
              .order = sd_order },
    .detect = sd_detect,
    .part = sd_parts,
    .parts = ARRAY_LEN(sd_parts),
};

const struct arch arch_flux_checkpoint = {
    .base = { .name = "flux-checkpoint",
              .about = "Flux.1: transformer, text encoders and VAE in one file",
              .embedding = embedding,
              .order = flux_order },
    .detect = flux_detect,
    .part = flux_parts,
    .parts = ARRAY_LEN(flux_parts),
};
