/* Mochi's VAE: levels of blocks, those of the encoder with an attention over time. */
#include "model/vae_mochi/presets.h"

#define SIDE 3 /* of filters, and their frames */
#define LEVELS 3
#define IN 15 /* colours, and sines and cosines of them */

static const uint64_t mult[LEVELS + 1] = { 1, 2, 4, 6 };
static const uint64_t frames[LEVELS] = { 1, 2, 3 };
static const int usual[] = { 3, 3, 4, 6, 3 }; /* blocks, from the pictures on */

static void res_block(struct keys *k, uint64_t ch, bool looks)
{
    keys_norm(k, "stack.0", ch);
    keys_conv3d(k, "stack.2", ch, ch, SIDE, SIDE);
    keys_norm(k, "stack.3", ch);
    keys_conv3d(k, "stack.5", ch, ch, SIDE, SIDE);
    if (!looks)
        return;
    keys_norm(k, "attn_block.norm", ch);
    keys_linear(k, "attn_block.attn.qkv", 3 * ch, ch, KEYS_NO_BIAS);
    keys_linear(k, "attn_block.attn.out", ch, ch, KEYS_BIAS);
}

/* n blocks, called by numbers from `from` on behind `list`. */
static void blocks(struct keys *k, const char *list, int from, int n, uint64_t ch, bool looks)
{
    for (int i = 0; i < n; i++) {
        size_t mark = keys_enter(k, "%s%s%d", list, *list ? "." : "", from + i);
        res_block(k, ch, looks);
        keys_leave(k, mark);
    }
}

static int many(const struct vae_mochi_config *c, int level)
{
    return c->blocks ? c->blocks : usual[level];
}

static void encoder(struct keys *k, const struct vae_mochi_config *c)
{
    uint64_t ch = c->encoder;
    size_t top = keys_enter(k, "encoder");
    keys_linear(k, "layers.0", ch, IN, KEYS_BIAS);
    /* three, however many others have: the fourth layer tells such files */
    blocks(k, "layers", 1, usual[0], ch, false);
    int at = 1 + usual[0];
    for (int i = 0; i < LEVELS; i++, at++) {
        const uint64_t out = c->encoder * mult[i + 1];
        const struct shape filter = { 5, { out, ch, frames[i], 2, 2 } };
        size_t mark = keys_enter(k, "layers.%d", at);
        keys_shape(k, "layers.0.weight", &filter);
        keys_tensor(k, "layers.0.bias", out, 0, 0, 0);
        blocks(k, "layers", 1, many(c, i + 1), out, true);
        keys_leave(k, mark);
        ch = out;
    }
    blocks(k, "layers", at, many(c, 4), ch, true);
    keys_norm(k, "output_norm", ch);
    keys_linear(k, "output_proj", 2 * c->latents, ch, KEYS_NO_BIAS);
    keys_leave(k, top);
}

static void decoder(struct keys *k, const struct vae_mochi_config *c)
{
    uint64_t ch = c->decoder * mult[LEVELS];
    size_t top = keys_enter(k, "decoder");
    keys_conv3d(k, "blocks.0.0", ch, c->latents, 1, 1);
    blocks(k, "blocks.0", 1, many(c, 4), ch, false);
    for (int i = 0; i < LEVELS; i++) {
        const int level = LEVELS - 1 - i;
        const uint64_t out = c->decoder * mult[level];
        size_t mark = keys_enter(k, "blocks.%d", i + 1);
        blocks(k, "blocks", 0, many(c, level + 1), ch, false);
        keys_linear(k, "proj", out * frames[level] * 4, ch, KEYS_BIAS);
        keys_leave(k, mark);
        ch = out;
    }
    size_t mark = keys_enter(k, "blocks.%d", LEVELS + 1);
    blocks(k, "", 0, many(c, 0), ch, false);
    keys_leave(k, mark);
    keys_linear(k, "output_proj", 3, ch, KEYS_BIAS);
    keys_leave(k, top);
}

void keys_vae_mochi(struct keys *k, const struct vae_mochi_config *c)
{
    encoder(k, c);
    decoder(k, c);
}

static void build(struct keys *k, const void *config)
{
    keys_vae_mochi(k, config);
}

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .build = build, .config = &(const struct vae_mochi_config) \
        {                                                                                          \
            .latents = 12, __VA_ARGS__                                                             \
        }                                                                                          \
    }
const struct preset vae_mochi_presets[] = {
    PRESET("mochi-tiny-vae", "VAE of Mochi, narrow", .encoder = 32, .decoder = 32, .blocks = 1),
    PRESET("mochi-vae", "VAE of Mochi, full size", .encoder = 64, .decoder = 128),
    { .name = NULL },
};
