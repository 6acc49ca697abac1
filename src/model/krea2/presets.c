/* Krea 2: text fused from taps, then blocks over text and picture. */
#include "model/krea2/presets.h"

#define TIME_WIDTH 256 /* of the sinusoidal embedding */
#define PIXELS 4       /* of a patch */
#define TEXT_BLOCKS 2  /* over taps, and as many over tokens */
#define CHUNKS 6       /* of a modulation: scale, shift, gate for attention and for mlp */

static void scale(struct keys *k, const char *name, uint64_t n)
{
    char full[64];
    snprintf(full, sizeof full, "%s.scale", name);
    keys_tensor(k, full, n, 0, 0, 0);
}

/* About 8 / 3 of D, in multiples of 128. */
static uint64_t mlp_width(uint64_t D)
{
    return (2 * D / 3 * 4 + 127) / 128 * 128;
}

/* Behind what was entered. */
static void block(struct keys *k, uint64_t D, uint64_t heads, uint64_t kv_heads)
{
    const uint64_t head = D / heads, mlp = mlp_width(D);
    scale(k, "prenorm", D);
    scale(k, "postnorm", D);
    keys_linear(k, "attn.wq", D, D, KEYS_NO_BIAS);
    keys_linear(k, "attn.wk", head * kv_heads, D, KEYS_NO_BIAS);
    keys_linear(k, "attn.wv", head * kv_heads, D, KEYS_NO_BIAS);
    keys_linear(k, "attn.gate", D, D, KEYS_NO_BIAS);
    scale(k, "attn.qknorm.qnorm", head);
    scale(k, "attn.qknorm.knorm", head);
    keys_linear(k, "attn.wo", D, D, KEYS_NO_BIAS);
    keys_linear(k, "mlp.gate", mlp, D, KEYS_NO_BIAS);
    keys_linear(k, "mlp.up", mlp, D, KEYS_NO_BIAS);
    keys_linear(k, "mlp.down", D, mlp, KEYS_NO_BIAS);
}

static void text_blocks(struct keys *k, const struct krea2_config *c, const char *list)
{
    for (int i = 0; i < TEXT_BLOCKS; i++) {
        size_t mark = keys_enter(k, "txtfusion.%s.%d", list, i);
        block(k, c->text_dim, c->text_heads, c->text_heads);
        keys_leave(k, mark);
    }
}

void keys_krea2(struct keys *k, const struct krea2_config *c)
{
    const uint64_t D = c->hidden;
    keys_linear(k, "first", D, PIXELS * c->channels, KEYS_BIAS);
    for (int i = 0; i < c->depth; i++) {
        size_t mark = keys_enter(k, "blocks.%d", i);
        keys_tensor(k, "mod.lin", CHUNKS * D, 0, 0, 0);
        block(k, D, c->heads, c->kv_heads);
        keys_leave(k, mark);
    }
    keys_linear(k, "tmlp.0", D, TIME_WIDTH, KEYS_BIAS);
    keys_linear(k, "tmlp.2", D, D, KEYS_BIAS);
    text_blocks(k, c, "layerwise_blocks");
    keys_linear(k, "txtfusion.projector", 1, c->taps, KEYS_NO_BIAS);
    text_blocks(k, c, "refiner_blocks");
    scale(k, "txtmlp.0", c->text_dim);
    keys_linear(k, "txtmlp.1", D, c->text_dim, KEYS_BIAS);
    keys_linear(k, "txtmlp.3", D, D, KEYS_BIAS);
    scale(k, "last.norm", D);
    keys_linear(k, "last.linear", PIXELS * c->channels, D, KEYS_BIAS);
    keys_tensor(k, "last.modulation.lin", 2, D, 0, 0);
    keys_linear(k, "tproj.1", CHUNKS * D, D, KEYS_BIAS);
}

static void build(struct keys *k, const void *config)
{
    keys_krea2(k, config);
}

/* What converters to GGUF leave unquantised: the way in and the way out, and what makes
 * modulations. */
static const char *const hiprec[] = { "first.", "last.",   "tmlp.",
                                      "tproj.", "txtmlp.", "txtfusion.projector.",
                                      NULL };

#define PRESET(name_, about_, ...)                                                                 \
    {                                                                                              \
        .name = name_, .about = about_, .arch = "krea2", .hiprec = hiprec, .build = build,         \
        .config = &(const struct krea2_config)                                                     \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
const struct preset krea2_presets[] = {
    PRESET("krea2-tiny", "Krea 2 transformer, 2 blocks of width 256", .channels = 16, .hidden = 256,
           .heads = 2, .kv_heads = 1, .text_dim = 160, .text_heads = 20, .taps = 12, .depth = 2),
    PRESET("krea2", "Krea 2 or Krea 2 Turbo transformer, full size", .channels = 16, .hidden = 6144,
           .heads = 48, .kv_heads = 12, .text_dim = 2560, .text_heads = 20, .taps = 12,
           .depth = 28),
    { .name = NULL },
};
