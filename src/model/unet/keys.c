/* The UNet of SD1.x and SDXL, walked in the order the reference builds it. */
#include "model/unet/presets.h"

#define SKIPS_MAX 32

static void res_block(struct keys *k, uint64_t in, uint64_t out, uint64_t emb)
{
    keys_norm(k, "in_layers.0", in);
    keys_conv(k, "in_layers.2", out, in, 3);
    keys_linear(k, "emb_layers.1", out, emb, KEYS_BIAS);
    keys_norm(k, "out_layers.0", out);
    keys_conv(k, "out_layers.3", out, out, 3);
    if (in != out)
        keys_conv(k, "skip_connection", out, in, 1);
}

static void attention(struct keys *k, const char *name, uint64_t ch, uint64_t context)
{
    size_t mark = keys_enter(k, "%s", name);
    keys_linear(k, "to_q", ch, ch, KEYS_NO_BIAS);
    keys_linear(k, "to_k", ch, context, KEYS_NO_BIAS);
    keys_linear(k, "to_v", ch, context, KEYS_NO_BIAS);
    keys_linear(k, "to_out.0", ch, ch, KEYS_BIAS);
    keys_leave(k, mark);
}

static void projection(struct keys *k, const struct unet_config *c, const char *name, uint64_t ch)
{
    if (c->linear_proj)
        keys_linear(k, name, ch, ch, KEYS_BIAS);
    else
        keys_conv(k, name, ch, ch, 1);
}

static void transformer(struct keys *k, const struct unet_config *c, uint64_t ch, int depth)
{
    keys_norm(k, "norm", ch);
    projection(k, c, "proj_in", ch);
    for (int i = 0; i < depth; i++) {
        size_t mark = keys_enter(k, "transformer_blocks.%d", i);
        attention(k, "attn1", ch, ch);
        keys_linear(k, "ff.net.0.proj", 8 * ch, ch, KEYS_BIAS); /* value and gate, 4 x each */
        keys_linear(k, "ff.net.2", ch, 4 * ch, KEYS_BIAS);
        attention(k, "attn2", ch, c->context_dim);
        keys_norm(k, "norm2", ch);
        keys_norm(k, "norm1", ch);
        keys_norm(k, "norm3", ch);
        keys_leave(k, mark);
    }
    projection(k, c, "proj_out", ch);
}

/* `.0` res block and `.1` transformer, the pair every block of a level starts with. */
static void res_and_transformer(struct keys *k, const struct unet_config *c, uint64_t in,
                                uint64_t out, int depth)
{
    size_t mark = keys_enter(k, "0");
    res_block(k, in, out, 4 * c->model_channels);
    keys_leave(k, mark);
    if (depth) {
        mark = keys_enter(k, "1");
        transformer(k, c, out, depth);
        keys_leave(k, mark);
    }
}

/* The way down and the middle; skip: channels each input block leaves. Returns those at the end. */
static uint64_t way_down(struct keys *k, const struct unet_config *c, uint64_t skip[SKIPS_MAX],
                         int *skips)
{
    const uint64_t M = c->model_channels, emb = 4 * M;
    if (c->levels * (c->res_blocks + 1) + 1 > SKIPS_MAX)
        BUG("%d levels of %d res blocks", c->levels, c->res_blocks);

    keys_linear(k, "time_embed.0", emb, M, KEYS_BIAS);
    keys_linear(k, "time_embed.2", emb, emb, KEYS_BIAS);
    if (c->adm_channels) {
        keys_linear(k, "label_emb.0.0", emb, c->adm_channels, KEYS_BIAS);
        keys_linear(k, "label_emb.0.2", emb, emb, KEYS_BIAS);
    }

    uint64_t ch = M;
    int block = 0;
    keys_conv(k, "input_blocks.0.0", ch, c->in_channels, 3);
    skip[(*skips)++] = ch;
    for (int level = 0; level < c->levels; level++) {
        uint64_t out = M * c->mult[level];
        for (int r = 0; r < c->res_blocks; r++) {
            size_t mark = keys_enter(k, "input_blocks.%d", ++block);
            res_and_transformer(k, c, ch, out, c->depth[level]);
            keys_leave(k, mark);
            skip[(*skips)++] = ch = out;
        }
        if (level + 1 < c->levels) {
            size_t mark = keys_enter(k, "input_blocks.%d", ++block);
            keys_conv(k, "0.op", ch, ch, 3);
            keys_leave(k, mark);
            skip[(*skips)++] = ch;
        }
    }

    size_t mid = keys_enter(k, "middle_block");
    res_and_transformer(k, c, ch, ch, c->depth_middle);
    size_t last = keys_enter(k, "2");
    res_block(k, ch, ch, emb);
    keys_leave(k, last);
    keys_leave(k, mid);

    return ch;
}

void keys_unet_control(struct keys *k, const struct unet_config *c, uint64_t hint)
{
    static const uint64_t width[] = { 16, 16, 32, 32, 96, 96, 256 };
    uint64_t skip[SKIPS_MAX] = { 0 }, in = hint;
    int skips = 0;
    char name[32];
    uint64_t ch = way_down(k, c, skip, &skips);
    for (int i = 0; i < skips; i++) {
        snprintf(name, sizeof name, "zero_convs.%d.0", i);
        keys_conv(k, name, skip[i], skip[i], 1);
    }
    for (size_t i = 0; i <= ARRAY_LEN(width); i++) {
        uint64_t out = i < ARRAY_LEN(width) ? width[i] : c->model_channels;
        snprintf(name, sizeof name, "input_hint_block.%zu", 2 * i);
        keys_conv(k, name, out, in, 3);
        in = out;
    }
    keys_conv(k, "middle_block_out.0", ch, ch, 1);
}

void keys_unet(struct keys *k, const struct unet_config *c)
{
    const uint64_t M = c->model_channels;
    uint64_t skip[SKIPS_MAX] = { 0 }; /* for the output blocks */
    int skips = 0, block = 0;
    uint64_t ch = way_down(k, c, skip, &skips);
    for (int level = c->levels - 1; level >= 0; level--) {
        uint64_t out = M * c->mult[level];
        for (int r = 0; r <= c->res_blocks; r++) {
            size_t mark = keys_enter(k, "output_blocks.%d", block++);
            res_and_transformer(k, c, ch + skip[--skips], out, c->depth[level]);
            ch = out;
            if (level && r == c->res_blocks) /* the upsample sits behind whatever is there */
                keys_conv(k, c->depth[level] ? "2.conv" : "1.conv", ch, ch, 3);
            keys_leave(k, mark);
        }
    }
    keys_norm(k, "out.0", ch);
    keys_conv(k, "out.2", c->out_channels, ch, 3);
}
