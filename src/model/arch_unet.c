/* The UNet of SD1.x, SD2 and SDXL: down, middle, up. */
#include "model/arch.h"

static const struct arch_word words[] = {
    ARCH_WORD("time_embed"),
    ARCH_WORD("label_emb"),
    ARCH_WORD("input_blocks"),
    ARCH_WORD("middle_block"),
    ARCH_WORD("output_blocks"),
    ARCH_WORD("out"),
    /* a res block, or a step between levels; the shortcut first: what it reads goes away then */
    ARCH_WORD("skip_connection"),
    ARCH_WORD("in_layers"),
    ARCH_WORD("emb_layers"),
    ARCH_WORD("out_layers"),
    ARCH_WORD("op"),
    ARCH_WORD("conv"),
    /* a transformer and its blocks */
    ARCH_WORD("norm"),
    ARCH_WORD("proj_in"),
    ARCH_WORD("transformer_blocks"),
    ARCH_WORD("proj_out"),
    ARCH_WORD("norm1"),
    ARCH_WORD("attn1"),
    ARCH_WORD("norm2"),
    ARCH_WORD("attn2"),
    ARCH_WORD("norm3"),
    ARCH_WORD("ff"),
    ARCH_WORD("to_q"),
    ARCH_WORD("to_k"),
    ARCH_WORD("to_v"),
    ARCH_WORD("to_out"),
    ARCH_WORD("net"),
    ARCH_WORD("proj"),
};

static int order(const char *a, size_t an, const char *b, size_t bn)
{
    return arch_order(words, ARRAY_LEN(words), a, an, b, bn);
}

static size_t key(const char *name, size_t n, uint64_t *out, size_t cap)
{
    return arch_key(words, ARRAY_LEN(words), name, n, out, cap);
}

/* ---- what a step spends where ----
 *
 * Layers of one kind take about as long at every level: where channels are twice as many, pixels are
 * a quarter. So most bytes, which are at the lowest levels, have little time; by bytes they would be
 * streamed in a part of a step that is too short for them. Microseconds on an H200, the middle of
 * SD1.5 at 512x512 and SDXL at 1024x1024, with what runs between layers counted at the next one. */
static const struct {
    struct arch_word name; /* that ends the block's name */
    uint8_t us;
} times[] = {
    { ARCH_WORD("in_layers.0"), 20 },   { ARCH_WORD("in_layers.2"), 110 },
    { ARCH_WORD("emb_layers.1"), 6 },   { ARCH_WORD("out_layers.0"), 13 },
    { ARCH_WORD("out_layers.3"), 90 },  { ARCH_WORD("skip_connection"), 35 },
    { ARCH_WORD("0.op"), 55 },          { ARCH_WORD("conv"), 120 },
    { ARCH_WORD("norm"), 11 },          { ARCH_WORD("proj_in"), 25 },
    { ARCH_WORD("proj_out"), 30 },      { ARCH_WORD("to_q"), 11 },
    { ARCH_WORD("to_k"), 10 },          { ARCH_WORD("to_v"), 10 },
    { ARCH_WORD("to_out.0"), 40 },                                     /* attention */
    { ARCH_WORD("ff.net.0.proj"), 45 }, { ARCH_WORD("ff.net.2"), 30 }, /* between them GEGLU */
};

static uint64_t work(const char *block, size_t n, uint64_t weights)
{
    (void)weights;
    for (size_t i = 0; i < ARRAY_LEN(times); i++) {
        const struct arch_word *w = &times[i].name;
        if (w->len < n && block[n - w->len - 1] == '.' &&
            memcmp(block + n - w->len, w->text, w->len) == 0)
            return times[i].us;
    }
    return 5; /* a small norm, the embedding of time */
}

static bool detect(const struct weights *w, const char *root)
{
    return arch_find(w, root, "input_blocks.0.0.weight") &&
           arch_find(w, root, "time_embed.0.weight") &&
           arch_find(w, root, "out.2.weight"); /* a ControlNet has none */
}

const struct arch arch_sd_unet = {
    .base = { .name = "sd-unet",
              .about = "UNet of SD1.x, SD2, SDXL",
              .order = order,
              .key = key,
              .work = work,
              .aliases = arch_aliases },
    .naming = ARCH_DIFFUSION,
    .role = "unet",
    .detect = detect,
};
