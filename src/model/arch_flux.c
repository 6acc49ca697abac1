/* Flux.1: double-stream blocks, then single-stream ones. The image and the text stream of a double
 * block take turns: both reach the attention before either goes on. flux.c comes to its layers in
 * this order; tests/unit/model/test_flux.c holds the two together.
 *
 * Files in diffusers' names have words of their own; where a word is in both, one place suits
 * both. */
#include "model/arch.h"

static const struct arch_word words[] = {
    ARCH_WORD("img_in"),
    ARCH_WORD("time_in"),
    ARCH_WORD("guidance_in"),
    ARCH_WORD("vector_in"),
    ARCH_WORD("txt_in"),
    ARCH_WORD("x_embedder"),
    ARCH_WORD("time_text_embed.timestep_embedder"),
    ARCH_WORD("time_text_embed.guidance_embedder"),
    ARCH_WORD("time_text_embed.text_embedder"),
    ARCH_WORD("context_embedder"),
    ARCH_WORD("double_blocks"),
    ARCH_WORD("transformer_blocks"),
    ARCH_WORD("single_blocks"),
    ARCH_WORD("single_transformer_blocks"),
    ARCH_WORD("final_layer"),
    ARCH_WORD("norm_out"),
    /* embedders */
    ARCH_WORD("in_layer"),
    ARCH_WORD("out_layer"),
    ARCH_WORD("linear_1"),
    ARCH_WORD("linear_2"),
    /* a double block */
    ARCH_WORD("img_mod"),
    ARCH_WORD("txt_mod"),
    ARCH_WORD("img_attn.qkv"),
    ARCH_WORD("img_attn.norm"),
    ARCH_WORD("txt_attn.qkv"),
    ARCH_WORD("txt_attn.norm"),
    ARCH_WORD("img_attn.proj"),
    ARCH_WORD("img_mlp"),
    ARCH_WORD("txt_attn.proj"),
    ARCH_WORD("txt_mlp"),
    /* a single block */
    ARCH_WORD("modulation"),
    ARCH_WORD("linear1"),
    ARCH_WORD("norm"),
    ARCH_WORD("linear2"),
    /* blocks of both kinds in diffusers' names; a single one begins with "norm" */
    ARCH_WORD("norm1"),
    ARCH_WORD("norm1_context"),
    ARCH_WORD("attn.to_q"),
    ARCH_WORD("attn.to_k"),
    ARCH_WORD("attn.to_v"),
    ARCH_WORD("proj_mlp"),
    ARCH_WORD("attn.norm_q"),
    ARCH_WORD("attn.norm_k"),
    ARCH_WORD("attn.add_q_proj"),
    ARCH_WORD("attn.add_k_proj"),
    ARCH_WORD("attn.add_v_proj"),
    ARCH_WORD("attn.norm_added_q"),
    ARCH_WORD("attn.norm_added_k"),
    ARCH_WORD("attn.to_out"),
    ARCH_WORD("ff"),
    ARCH_WORD("attn.to_add_out"),
    ARCH_WORD("ff_context"),
    ARCH_WORD("proj_out"), /* of a single block, and behind them all */
    /* inside norms and modulations */
    ARCH_WORD("query_norm"),
    ARCH_WORD("key_norm"),
    ARCH_WORD("lin"),
    /* the final layer */
    ARCH_WORD("adaLN_modulation"),
    ARCH_WORD("linear"),
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
 * A layer's time is about its weights times the rows they are multiplied with, and what it takes to
 * read them, as long as 256 rows do: measured on an H200 with a picture of 1024x1024 (4096 rows)
 * and 512 of text, within a quarter for all but the least. Larger pictures and other cards shift
 * this in favour of what is large already. A double block has 2.4 times the bytes of a single one,
 * and takes as long. Attention and the norms, gates and rotations of a block take as long as five
 * matrices of hidden x hidden; they are counted at the layer behind the attention: one such matrix
 * in a double block, five in a single one. Modulations see one row: all bytes and no time. */
enum {
    READ = 256,
    PICTURE = READ + 4096,
    TEXT = READ + 512,
    BOTH = READ + 4096 + 512,
    ATTENTION = 5 * (4096 + 512),
};

struct layer {
    struct arch_word name; /* whole parts of a name, that begin it */
    uint32_t work;
};
static const struct layer in_double[] = {
    { ARCH_WORD("img_attn.qkv"), PICTURE },
    { ARCH_WORD("txt_attn"), TEXT },
    { ARCH_WORD("img_attn.proj"), PICTURE + ATTENTION },
    { ARCH_WORD("img_mlp"), PICTURE },
    { ARCH_WORD("txt_mlp"), TEXT },
    /* diffusers */
    { ARCH_WORD("attn.to_q"), PICTURE },
    { ARCH_WORD("attn.to_k"), PICTURE },
    { ARCH_WORD("attn.to_v"), PICTURE },
    { ARCH_WORD("attn.add_q_proj"), TEXT },
    { ARCH_WORD("attn.add_k_proj"), TEXT },
    { ARCH_WORD("attn.add_v_proj"), TEXT },
    { ARCH_WORD("attn.to_out"), PICTURE + ATTENTION },
    { ARCH_WORD("ff"), PICTURE },
    { ARCH_WORD("attn.to_add_out"), TEXT },
    { ARCH_WORD("ff_context"), TEXT },
};
static const struct layer in_single[] = {
    { ARCH_WORD("linear1"), BOTH },
    { ARCH_WORD("linear2"), BOTH + ATTENTION / 5 },
    /* diffusers */
    { ARCH_WORD("attn.to_q"), BOTH },
    { ARCH_WORD("attn.to_k"), BOTH },
    { ARCH_WORD("attn.to_v"), BOTH },
    { ARCH_WORD("proj_mlp"), BOTH },
    { ARCH_WORD("proj_out"), BOTH + ATTENTION / 5 },
};

/* The layer of that name, or inside of what has it. */
static uint32_t work_in(const struct layer *layer, size_t layers, const char *name, size_t n)
{
    for (size_t i = 0; i < layers; i++) {
        const struct arch_word *w = &layer[i].name;
        if (w->len <= n && memcmp(name, w->text, w->len) == 0 &&
            (n == w->len || name[w->len] == '.'))
            return layer[i].work;
    }
    return READ;
}

static uint32_t rows_of(const char *block, size_t n)
{
    static const struct {
        struct arch_word list;
        const struct layer *layer;
        size_t layers;
    } part[] = {
        { ARCH_WORD("double_blocks."), in_double, ARRAY_LEN(in_double) },
        { ARCH_WORD("transformer_blocks."), in_double, ARRAY_LEN(in_double) },
        { ARCH_WORD("single_blocks."), in_single, ARRAY_LEN(in_single) },
        { ARCH_WORD("single_transformer_blocks."), in_single, ARRAY_LEN(in_single) },
    };
    for (size_t i = 0; i < ARRAY_LEN(part); i++) {
        size_t len = part[i].list.len;
        if (n < len || memcmp(block, part[i].list.text, len) != 0)
            continue;
        const char *dot = memchr(block + len, '.', n - len); /* behind the number */
        size_t at = dot ? (size_t)(dot - block) + 1 : n;
        return work_in(part[i].layer, part[i].layers, block + at, n - at);
    }
    return READ;
}

static uint64_t work(const char *block, size_t n, uint64_t weights)
{
    uint64_t out; /* beyond 64 bits it is all the same */
    return __builtin_mul_overflow(weights, rows_of(block, n), &out) ? UINT64_MAX : out;
}

static bool diffusers(const struct weights *w, const char *root)
{
    return arch_find(w, root, "transformer_blocks.0.attn.norm_added_k.weight") &&
           arch_find(w, root, "single_transformer_blocks.0.proj_mlp.weight") &&
           arch_find(w, root, "x_embedder.weight") &&
           arch_find(w, root, "context_embedder.weight") &&
           arch_find(w, root, "time_text_embed.text_embedder.linear_1.weight");
}

static bool detect(const struct weights *w, const char *root)
{
    if (diffusers(w, root))
        return true;
    /* Others with these blocks (Flux2, Chroma, Hunyuan) have more in front of them. */
    return arch_find(w, root, "double_blocks.0.img_attn.norm.key_norm.scale") &&
           arch_find(w, root, "img_in.weight") && arch_find(w, root, "time_in.in_layer.weight") &&
           arch_find(w, root, "vector_in.in_layer.weight") && arch_find(w, root, "txt_in.weight");
}

const struct arch arch_flux = {
    .base = { .name = "flux",
              .about = "Flux.1 transformer",
              .order = order,
              .key = key,
              .work = work,
              .aliases = arch_aliases },
    .naming = ARCH_DIFFUSION,
    .role = "unet",
    .detect = detect,
};
