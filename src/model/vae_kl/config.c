/* What a file's VAE looks like, from the names and shapes of its tensors (vae.md 2). */
#include "model/vae_kl/vae_kl.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

struct walk {
    uint64_t z; /* channels of latents */
    struct canonical in;
    struct vae_net *v;
    struct vae_kl *kl; /* of v */
    berth_err *err;
};

static bool any(const struct walk *k, const char *lead)
{
    size_t root = strlen(k->in.root);
    for (size_t i = 0; i < weights_count(k->in.w); i++) {
        const struct weights_entry *e = weights_at(k->in.w, i);
        if (str_starts(e->name, e->name_len, k->in.root) &&
            str_starts(e->name + root, e->name_len - root, lead))
            return true;
    }
    return false;
}

/* A dimension of a 2-D convolution's weight that must be there, 1..VAE_CHANNELS_MAX. */
static berth_status dim(const struct walk *k, const char *name, int axis, uint64_t *out)
{
    const struct weights_entry *e = canonical_find(&k->in, "%s", name);
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a VAE without '%s'", name);
    if (e->shape.ndim != 4 || !e->shape.dim[axis] || e->shape.dim[axis] > VAE_CHANNELS_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED, "'%.120s' is %s: no layer of a VAE for pictures",
                       e->name, shape_text(&e->shape, text));
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

/* One half: levels, and blocks of the level that has most. */
static berth_status count(const struct walk *k, const char *half, uint32_t *levels,
                          uint32_t *blocks)
{
    bool enc = half[0] == 'e', theirs = k->kl->diffusers;
    char side[64], list[96];
    snprintf(side, sizeof side, "%s.%s%s", half, enc ? "down" : "up", theirs ? "_blocks" : "");
    *blocks = 0;
    *levels = arch_layers(k->in.w, k->in.root, side);
    for (uint32_t i = 0; i < *levels && i < VAE_LEVELS_MAX; i++) {
        snprintf(list, sizeof list, "%s.%u.%s", side, i, theirs ? "resnets" : "block");
        uint32_t n = arch_layers(k->in.w, k->in.root, list);
        *blocks = n > *blocks ? n : *blocks;
    }
    if (!*levels || *levels > VAE_LEVELS_MAX || *blocks > VAE_BLOCKS_MAX)
        return err_set(k->err, *levels ? BERTH_ELIMIT : BERTH_EUNSUPPORTED,
                       "'%s' has %u levels of %u blocks", side, *levels, *blocks);
    return BERTH_OK;
}

/* Files in diffusers' names: how many levels there are decides what a level is called. */
static void look_for_diffusers(struct walk *k)
{
    static const char *const half[] = { "decoder.up_blocks", "encoder.down_blocks" };
    for (size_t i = 0; i < ARRAY_LEN(half) && !k->kl->levels; i++) {
        uint32_t n = arch_layers(k->in.w, k->in.root, half[i]);
        k->kl->levels = n <= VAE_LEVELS_MAX ? n : 0;
    }
    k->kl->diffusers = k->kl->levels > 0;
    k->kl->old_attention =
        arch_find(k->in.w, k->in.root, "decoder.mid_block.attentions.0.query.weight") ||
        arch_find(k->in.w, k->in.root, "encoder.mid_block.attentions.0.query.weight");
}

/* Other codecs, told by a tensor of theirs. */
static berth_status refuse_others(const struct walk *k)
{
    static const struct {
        const char *name, *what;
    } other[] = {
        { "taesd_decoder.1.weight", "TAESD" },
    };
    for (size_t i = 0; i < ARRAY_LEN(other); i++)
        if (arch_find(k->in.w, k->in.root, other[i].name))
            return err_set(k->err, BERTH_EUNSUPPORTED, "the VAE is %s's", other[i].what);
    return BERTH_OK;
}

static berth_status read_decoder(struct walk *k)
{
    struct vae_kl *kl = k->kl;
    uint64_t rgb;
    uint32_t levels; /* v's own are what names are read with meanwhile */
    if (dim(k, "decoder.conv_in.weight", 1, &k->z) ||
        (kl->post_quant && dim(k, "post_quant_conv.weight", 1, &k->z)) ||
        dim(k, "decoder.conv_out.weight", 0, &rgb) || count(k, "decoder", &levels, &kl->dec_blocks))
        return k->err->code;
    kl->levels = levels;
    if (rgb != 3)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a VAE whose pictures have %llu channels",
                       (unsigned long long)rgb);
    return BERTH_OK;
}

static berth_status read_encoder(struct walk *k)
{
    struct vae_net *v = k->v;
    struct vae_kl *kl = k->kl;
    uint64_t rgb, moments;
    uint32_t levels;
    if (dim(k, "encoder.conv_in.weight", 1, &rgb) ||
        dim(k, kl->quant ? "quant_conv.weight" : "encoder.conv_out.weight", 0, &moments) ||
        count(k, "encoder", &levels, &kl->enc_blocks))
        return k->err->code;
    if (rgb != 3 || moments % 2)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a VAE of %llu channels in, %llu out",
                       (unsigned long long)rgb, (unsigned long long)moments);
    if (v->decoder && (levels != kl->levels || moments / 2 != k->z))
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a VAE whose halves differ: %u and %u levels, %llu and %llu latent channels",
                       levels, kl->levels, (unsigned long long)moments / 2,
                       (unsigned long long)k->z);
    kl->levels = levels;
    k->z = moments / 2;
    return BERTH_OK;
}

/* What nodes see of its latents. */
static berth_status read_latent(const struct walk *k)
{
    struct vae_kl *kl = k->kl;
    const uint64_t pixels = kl->packed ? VAE_PACKED * VAE_PACKED : 1;
    const struct weights_entry *bn = arch_find(k->in.w, k->in.root, VAE_MEAN);
    if (kl->packed && (bn->shape.ndim != 1 || arch_dim(bn, 0) != pixels * k->z))
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'" VAE_MEAN "' has %llu values, not %llu for each of %llu channels",
                       (unsigned long long)arch_dim(bn, 0), (unsigned long long)pixels,
                       (unsigned long long)k->z);
    kl->channels = (uint32_t)k->z;
    k->v->latent = (struct latent_format) { .name = kl->packed  ? "the Flux.2 kind"
                                                    : k->z == 4 ? "the SD1, SD2 and SDXL kind"
                                                                : "the SD3 and Flux kind",
                                            .channels = (uint32_t)(pixels * k->z),
                                            .rank = 2,
                                            .ratio = (kl->packed ? UINT32_C(2) : UINT32_C(1))
                                                     << (kl->levels - 1) };
    return BERTH_OK;
}

berth_status vae_kl_config(const struct weights *w, const char *root, struct vae_net *out,
                           berth_err *err)
{
    struct vae_kl *kl = vae_kl_of(out);
    struct walk k = { .in = { .w = w, .root = root, .user = out }, .v = out, .kl = kl, .err = err };
    look_for_diffusers(&k);
    if (refuse_others(&k))
        return err->code;
    kl->packed = arch_find(w, root, VAE_MEAN);
    kl->nested_quant = arch_find(w, root, "decoder.post_quant_conv.weight") ||
                       arch_find(w, root, "encoder.quant_conv.weight");
    k.in.names = vae_kl_names(out);
    kl->quant =
        canonical_find(&k.in, "quant_conv.weight") || canonical_find(&k.in, "quant_conv.bias");
    kl->post_quant = canonical_find(&k.in, "post_quant_conv.weight") ||
                     canonical_find(&k.in, "post_quant_conv.bias");
    if (!canonical_find(&k.in, "encoder.conv_in.weight") &&
        !canonical_find(&k.in, "decoder.conv_in.weight"))
        return err_set(err, BERTH_EUNSUPPORTED, "no VAE behind '%s'", root);
    out->encoder = any(&k, "encoder.");
    out->decoder = any(&k, "decoder.");
    if ((out->encoder && kl->post_quant && !kl->quant) ||
        (out->decoder && kl->quant && !kl->post_quant))
        return err_set(err, BERTH_EUNSUPPORTED, "a VAE without '%.100s%s_conv.weight'", root,
                       kl->quant ? "post_quant" : "quant");
    if ((out->decoder && read_decoder(&k)) || (out->encoder && read_encoder(&k)))
        return err->code;
    return read_latent(&k);
}
