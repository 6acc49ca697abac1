/* What a file's VAE looks like, from the names and shapes of its tensors (wan.md 6,
 * wan-variants.md 10). */
#include "model/vae_wan/vae_wan.h"

#include <string.h>

struct look {
    const struct weights *w;
    const char *root;
    bool stages; /* Wan 2.2's: lists in its lists, and folded pixels */
    berth_err *err;
};

bool vae_wan_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "decoder.middle.0.residual.0.gamma") ||
           arch_find(w, root, "encoder.middle.0.residual.0.gamma");
}

static bool has_stages(const struct weights *w, const char *root)
{
    return arch_find(w, root, "decoder.upsamples.0.upsamples.0.residual.2.weight") ||
           arch_find(w, root, "encoder.downsamples.0.downsamples.0.residual.2.weight");
}

/* A dimension of a filter over frames that must be there, 1..VAE_WAN_CHANNELS_MAX. */
static berth_status dim(const struct look *k, const char *name, int axis, uint64_t *out)
{
    const struct weights_entry *e = arch_find(k->w, k->root, name);
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a Wan VAE without '%s'", name);
    if (e->shape.ndim != 5 || !e->shape.dim[axis] || e->shape.dim[axis] > VAE_WAN_CHANNELS_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED, "'%.120s' is %s: no filter over frames", e->name,
                       shape_text(&e->shape, text));
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

struct list { /* what one half's list does to sides and frames */
    uint32_t blocks, sides, frames;
};

/* Adds what a list's members do: each with a "resample" halves or doubles the sides; with a
 * "time_conv" the frames, too. */
static void count_members(const struct look *k, const char *name, uint32_t n, struct list *out)
{
    char q[128];
    for (uint32_t i = 0; i < n; i++) {
        snprintf(q, sizeof q, "%s.%u.resample.1.weight", name, i);
        out->sides += arch_find(k->w, k->root, q) != NULL;
        snprintf(q, sizeof q, "%s.%u.time_conv.weight", name, i);
        out->frames += arch_find(k->w, k->root, q) != NULL;
    }
}

/* list: "downsamples" or "upsamples", which is what members of stages are called, too. */
static berth_status count(const struct look *k, const char *half, const char *list,
                          struct list *out)
{
    char name[64];
    snprintf(name, sizeof name, "%s.%s", half, list);
    *out = (struct list) { .blocks = arch_layers(k->w, k->root, name) };
    if (!out->blocks || out->blocks > VAE_WAN_BLOCKS_MAX)
        return err_set(k->err, out->blocks ? BERTH_ELIMIT : BERTH_EUNSUPPORTED,
                       "'%s' has %u blocks", name, out->blocks);
    if (!k->stages)
        count_members(k, name, out->blocks, out);
    for (uint32_t i = 0; k->stages && i < out->blocks; i++) {
        snprintf(name, sizeof name, "%s.%s.%u.%s", half, list, i, list);
        uint32_t n = arch_layers(k->w, k->root, name);
        if (n > VAE_WAN_BLOCKS_MAX)
            return err_set(k->err, BERTH_ELIMIT, "'%s' has %u blocks", name, n);
        count_members(k, name, n, out);
    }
    snprintf(name, sizeof name, "%s.%s", half, list);
    if (out->frames > out->sides || out->sides > 8)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%s' changes sides %u times and frames %u times", name, out->sides,
                       out->frames);
    return BERTH_OK;
}

struct half {
    struct list list;
    uint64_t colours, latent; /* channels */
};

static berth_status read_half(const struct look *k, bool encoder, struct half *out)
{
    uint64_t moments = 0;
    if (!encoder)
        return count(k, "decoder", "upsamples", &out->list) ||
                       dim(k, "decoder.head.2.weight", 0, &out->colours) ||
                       dim(k, "conv2.weight", 1, &out->latent)
                   ? k->err->code
                   : BERTH_OK;
    if (count(k, "encoder", "downsamples", &out->list) ||
        dim(k, "encoder.conv1.weight", 1, &out->colours) || dim(k, "conv1.weight", 0, &moments))
        return k->err->code;
    out->latent = moments / 2;
    return moments % 2 ? err_set(k->err, BERTH_EUNSUPPORTED, "a Wan VAE of %llu moments",
                                 (unsigned long long)moments)
                       : BERTH_OK;
}

/* Of video, as long as both halves do the same to it. */
static berth_status compare(const struct look *k, const struct half *e, const struct half *d)
{
    return e->latent == d->latent && e->colours == d->colours && e->list.sides == d->list.sides &&
                   e->list.frames == d->list.frames
               ? BERTH_OK
               : err_set(k->err, BERTH_EUNSUPPORTED, "a Wan VAE whose halves differ");
}

berth_status vae_wan_config(const struct weights *w, const char *root, struct vae_net *out,
                            berth_err *err)
{
    struct vae_wan *own = vae_wan_of(out);
    const struct look k = { w, root, has_stages(w, root), err };
    struct half e = { .colours = 0 }, d = { .colours = 0 };
    out->encoder = arch_find(w, root, "encoder.middle.0.residual.0.gamma") != NULL;
    out->decoder = arch_find(w, root, "decoder.middle.0.residual.0.gamma") != NULL;
    if (!out->encoder && !out->decoder)
        return err_set(err, BERTH_EUNSUPPORTED, "no Wan VAE behind '%s'", root);
    if ((out->encoder && read_half(&k, true, &e)) || (out->decoder && read_half(&k, false, &d)) ||
        (out->encoder && out->decoder && compare(&k, &e, &d)))
        return err->code;
    struct half *h = out->decoder ? &d : &e;
    const uint64_t fold = k.stages ? VAE_WAN_FOLD : 1;
    if (h->colours % (fold * fold) == 0)
        h->colours /= fold * fold;
    if (h->colours != 3 && h->colours != 4)
        return err_set(err, BERTH_EUNSUPPORTED, "a VAE whose pictures have %llu channels",
                       (unsigned long long)h->colours);
    own->enc_blocks = e.list.blocks;
    own->dec_blocks = d.list.blocks;
    own->stages = k.stages;
    out->colours = (uint32_t)h->colours;
    out->latent = (struct latent_format) { .name = k.stages ? "the Wan 2.2 kind"
                                                            : "the Wan 2.1 and Qwen-Image kind",
                                           .channels = (uint32_t)h->latent,
                                           .rank = 3,
                                           .ratio = (uint32_t)fold << h->list.sides,
                                           .time_ratio = UINT32_C(1) << h->list.frames };
    return BERTH_OK;
}
