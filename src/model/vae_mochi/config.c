/* What a file's VAE looks like, from the names and shapes of its tensors (mochi.md 6). */
#include "model/vae_mochi/vae_mochi.h"

#include "model/config_look.h"

#define SIDES 2 /* every level halves or doubles them */

static bool has(const struct weights *w, const char *root, const char *half, const char *of)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", half, of);
    return arch_find(w, root, name) != NULL;
}

#define DECODER_MARK "blocks.1.blocks.0.stack.5.weight"
#define ENCODER_MARK "layers.4.layers.1.attn_block.attn.qkv.weight"

bool vae_mochi_at(const struct weights *w, const char *root)
{
    return has(w, root, "decoder.", DECODER_MARK) || has(w, root, "encoder.", ENCODER_MARK) ||
           has(w, root, "", DECODER_MARK) || has(w, root, "", ENCODER_MARK);
}

struct look {
    const struct config_look *k;
    const char *lead; /* "decoder.", "encoder." or nothing */
};

/* A dimension of "<lead><list><n><of>". */
static berth_status dim(const struct look *l, int ndim, int axis, uint64_t *out, const char *list,
                        unsigned n, const char *of)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s%u%s", l->lead, list, n, of);
    return config_dim(l->k, name, ndim, axis, out);
}

static berth_status proj_dim(const struct look *l, int axis, uint64_t *out)
{
    char name[64];
    snprintf(name, sizeof name, "%soutput_proj.weight", l->lead);
    return config_dim(l->k, name, 2, axis, out);
}

static uint32_t count(const struct look *l, const char *list)
{
    char name[64];
    snprintf(name, sizeof name, "%s%s", l->lead, list);
    return arch_layers(l->k->w, l->k->root, name);
}

/* The first and the last members change no sides. */
static berth_status read_decoder(const struct look *l, struct vae_mochi *own, uint64_t *latents,
                                 uint64_t *colours)
{
    const uint32_t n = count(l, "blocks");
    if (n < 3 || n - 2 > VAE_MOCHI_LEVELS_MAX)
        return err_set(l->k->err, BERTH_EUNSUPPORTED, "a VAE of Mochi's kind of %u blocks", n);
    own->levels = (uint8_t)(n - 2);
    for (uint32_t i = 1; i + 1 < n; i++) {
        uint64_t rows, next;
        if (dim(l, 2, 0, &rows, "blocks.", i, ".proj.weight") ||
            (i + 2 < n ? dim(l, 5, 1, &next, "blocks.", i + 1, ".blocks.0.stack.2.weight")
                       : dim(l, 5, 1, &next, "blocks.", i + 1, ".0.stack.2.weight")))
            return l->k->err->code;
        const uint64_t cells = rows / next, time = cells / (SIDES * SIDES);
        if (rows % next || cells % (SIDES * SIDES) || !time || time > 8)
            return err_set(l->k->err, BERTH_EUNSUPPORTED, "blocks.%u makes cells of %llu", i,
                           (unsigned long long)cells);
        own->grow[i - 1] = (uint8_t)time;
    }
    return dim(l, 5, 1, latents, "blocks.", 0, ".0.weight") || proj_dim(l, 0, colours)
               ? l->k->err->code
               : BERTH_OK;
}

static berth_status read_encoder(const struct look *l, struct vae_mochi *own, uint64_t *latents,
                                 uint8_t *levels)
{
    const uint32_t n = count(l, "layers");
    uint64_t moments;
    if (n > UINT8_MAX)
        return err_set(l->k->err, BERTH_ELIMIT, "a VAE of Mochi's kind of %u layers", n);
    own->enc_layers = (uint8_t)n;
    *levels = 0;
    for (uint32_t i = 0; i < n; i++) {
        char name[64];
        uint64_t time;
        snprintf(name, sizeof name, "layers.%u.layers.0.weight", i);
        if (!has(l->k->w, l->k->root, l->lead, name))
            continue;
        if (dim(l, 5, 2, &time, "layers.", i, ".layers.0.weight"))
            return l->k->err->code;
        if (time > 8 || *levels == VAE_MOCHI_LEVELS_MAX)
            return err_set(l->k->err, BERTH_EUNSUPPORTED, "'%s' takes %llu frames", name,
                           (unsigned long long)time);
        own->shrink[(*levels)++] = (uint8_t)time;
    }
    if (proj_dim(l, 0, &moments))
        return l->k->err->code;
    *latents = moments / 2;
    return BERTH_OK;
}

static uint32_t product(const uint8_t *by, uint8_t n)
{
    uint32_t all = 1;
    for (uint8_t i = 0; i < n; i++)
        all *= by[i];
    return all;
}

berth_status vae_mochi_config(const struct weights *w, const char *root, struct vae_net *out,
                              berth_err *err)
{
    const struct config_look k = { w, root, "a VAE of Mochi's kind", VAE_MOCHI_CHANNELS_MAX, err };
    struct vae_mochi *own = vae_mochi_of(out);
    uint64_t latents[2] = { 0 }, colours = 3;
    uint8_t levels = 0;
    own->bare = has(w, root, "", DECODER_MARK) || has(w, root, "", ENCODER_MARK);
    out->decoder = has(w, root, own->bare ? "" : "decoder.", DECODER_MARK);
    out->encoder = has(w, root, own->bare ? "" : "encoder.", ENCODER_MARK);
    const struct look d = { &k, own->bare ? "" : "decoder." },
                      e = { &k, own->bare ? "" : "encoder." };
    if ((out->decoder && read_decoder(&d, own, &latents[1], &colours)) ||
        (out->encoder && read_encoder(&e, own, &latents[0], &levels)))
        return err->code;
    if (!out->decoder)
        own->levels = levels;
    const uint32_t grown = product(own->grow, own->levels), shrunk = product(own->shrink, levels);
    if (colours != 3 || (out->decoder && out->encoder &&
                         (levels != own->levels || latents[0] != latents[1] || grown != shrunk)))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a VAE of Mochi's kind whose halves differ, or not of colours");
    out->latent = (struct latent_format) { .name = "the Mochi kind",
                                           .channels = (uint32_t)latents[out->decoder],
                                           .rank = 3,
                                           .ratio = UINT32_C(1) << own->levels,
                                           .time_ratio = out->decoder ? grown : shrunk };
    return BERTH_OK;
}
