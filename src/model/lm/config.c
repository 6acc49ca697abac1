/* config.c: what a file's names and shapes say of the decoder in it (llm-encoders.md 1.1, 1.6). */
#include "model/lm/lm.h"

#include "model/canonical.h"
#include "model/lm/vision.h"

#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#define WIDTH_MAX 65536
#define VOCAB_MAX (1u << 24)
#define LAYERS_MAX 1024
#define TOKENS_MAX 65536 /* of a prompt, and what is generated behind it */

enum lm_style lm_style(const struct weights *w, const char *root)
{
    return arch_find(w, root, "model.layers.0.input_layernorm.weight")                  ? LM_HF
           : arch_find(w, root, "model.language_model.layers.0.input_layernorm.weight") ? LM_NESTED
           : arch_find(w, root, "blk.0.attn_norm.weight")                               ? LM_GGUF
                                                                                        : LM_NONE;
}

const struct weights_entry *lm_entry(const struct weights *w, const char *root,
                                     const char *canonical)
{
    struct net_source from;
    const struct weights_entry *e = NULL;
    if (lm_rename(lm_style(w, root), canonical, &from))
        e = arch_find(w, root, from.name);
    return e ? e : arch_find(w, root, canonical);
}

/* llama.cpp stores q and k of a Llama in another order, for turning pairs. */
static bool is_gguf_llama(const struct weights *w)
{
    const struct weights_meta *m = weights_meta_find(w, "general.architecture");
    return m && m->kind == META_STRING && strcmp(m->str, "llama") == 0;
}

static berth_status check(const struct lm_net *c, const char *root, uint64_t q, uint64_t k,
                          berth_err *err)
{
    const char *name = c->kind->name;
    if (c->width == 0 || c->width > WIDTH_MAX || c->vocab == 0 || c->vocab > VOCAB_MAX ||
        c->mlp == 0 || c->layers == 0 || c->layers > LAYERS_MAX)
        return err_set(err, BERTH_EFORMAT,
                       "%s at '%.60s': width %" PRIu64 ", %" PRIu64 " tokens, mlp %" PRIu64
                       ", %u layers",
                       name, root, c->width, c->vocab, c->mlp, c->layers);
    uint64_t d = c->head_dim;
    if (d == 0 || d % 2 || d > WIDTH_MAX || c->turned == 0 || c->turned % 2 || q == 0 || k == 0 ||
        q > WIDTH_MAX || k > WIDTH_MAX || q % d || k % d || (q / d) % (k / d))
        return err_set(err, BERTH_EFORMAT,
                       "%s at '%.60s': queries of %" PRIu64 " and keys of %" PRIu64
                       " are not heads of %" PRIu64,
                       name, root, q, k, d);
    return BERTH_OK;
}

/* Qwen3-VL 8B's are not at equal distances. */
static void depths(struct lm_sight_net *s)
{
    const uint32_t step = s->blocks / (s->deep + 1);
    static const uint32_t of_27[] = { 8, 16, 24 };
    for (uint32_t i = 0; i < s->deep; i++)
        s->given[i] = s->blocks == 27 && i < 3 ? of_27[i] : (i + 1) * step - 1;
}

/* The table of positions is square. */
static uint32_t table_side(uint64_t rows)
{
    uint32_t side = 0;
    while (rows < UINT32_MAX && (uint64_t)(side + 1) * (side + 1) <= rows)
        side++;
    return (uint64_t)side * side == rows ? side : 0;
}

static berth_status configure_sight(const struct weights *w, const char *root, struct lm_net *c,
                                    berth_err *err)
{
    const struct weights_entry *patch = lm_entry(w, root, "visual.patch_embed.proj.weight"),
                               *table = lm_entry(w, root, "visual.pos_embed.weight");
    struct lm_sight_net s = { .width = arch_dim(patch, 0) };
    if (!patch)
        return BERTH_OK;
    const char *top = c->style == LM_NESTED ? "model.visual" : "visual";
    char list[64];
    snprintf(list, sizeof list, "%s.deepstack_merger_list", top);
    s.deep = arch_layers(w, root, list);
    snprintf(list, sizeof list, "%s.blocks", top);
    s.blocks = arch_layers(w, root, list);
    uint64_t side = patch->shape.ndim == 5 ? arch_dim(patch, 4) : 0;
    s.patch = side && side <= 64 && arch_dim(patch, 3) == side ? (uint32_t)side : 0;
    s.table = table ? table_side(arch_dim(table, 0)) : 0;
    s.heads = s.width == SIGHT_WIDTH_12 ? 12 : 16;
    bool fits = s.patch && arch_dim(patch, 1) == 3 && arch_dim(patch, 2) == 2 && s.blocks &&
                s.blocks <= LAYERS_MAX && s.width && s.width <= WIDTH_MAX &&
                s.width % (4 * s.heads) == 0 && s.deep <= ARRAY_LEN(s.given) &&
                (table || !s.deep) && (!table || s.table) && s.deep < s.blocks;
    if (!fits)
        return err_set(err, BERTH_EFORMAT,
                       "%s at '%.60s': a vision tower of width %" PRIu64
                       ", %u blocks, %u depths and patches "
                       "of %" PRIu64,
                       c->kind->name, root, s.width, s.blocks, s.deep, side);
    depths(&s);
    c->sight = s;
    return BERTH_OK;
}

/* Layers with a memory, from the first that has one; the first without tells how many there are
 * between. */
static berth_status configure_delta(const struct canonical *in, struct lm_net *c, berth_err *err)
{
    const char *layer = "model.layers.0.linear_attn.";
    const struct weights_entry *norm = canonical_find(in, "%snorm.weight", layer),
                               *qkv = canonical_find(in, "%sin_proj_qkv.weight", layer),
                               *z = canonical_find(in, "%sin_proj_z.weight", layer),
                               *conv = canonical_find(in, "%sconv1d.weight", layer);
    if (!qkv)
        return BERTH_OK;
    const uint64_t dim = arch_dim(norm, 0), values = arch_dim(z, 0), all = arch_dim(qkv, 0);
    const uint64_t kernel = conv && conv->shape.ndim == 3 ? arch_dim(conv, 2) : 0;
    uint32_t full = 0;
    while (full < c->layers && !canonical_find(in, "model.layers.%u.self_attn.q_proj.weight", full))
        full++;
    const uint64_t keys = all > values ? (all - values) / 2 : 0;
    if (!dim || dim > WIDTH_MAX || all > WIDTH_MAX || !values || values % dim || !keys ||
        keys % dim || values % keys || kernel < 2 || kernel > 16 || full == 0 || full == c->layers)
        return err_set(err, BERTH_EFORMAT,
                       "%s at '%.60s': %" PRIu64 " rows of which %" PRIu64
                       " are values, in heads of %" PRIu64 ", a convolution over %" PRIu64
                       " tokens, attention in layer %u of %u",
                       c->kind->name, in->root, all, values, dim, kernel, full, c->layers);
    c->delta = (struct lm_delta_net) { .heads = (uint32_t)(values / dim),
                                       .key_heads = (uint32_t)(keys / dim),
                                       .head_dim = (uint32_t)dim,
                                       .kernel = (uint32_t)kernel,
                                       .full_every = full + 1 };
    return BERTH_OK;
}

berth_status lm_configure(const struct lm_kind *kind, const struct weights *w, const char *root,
                          struct lm_net *c, berth_err *err)
{
    *c = (struct lm_net) { .kind = kind, .style = lm_style(w, root) };
    if (c->style == LM_NONE)
        return err_set(err, BERTH_ENOTFOUND, "no language model at '%.100s'", root);
    char layer[32];
    const struct canonical in = { .w = w, .root = root, .names = lm_names, .user = c };
    c->layers = arch_layers(w, root, lm_list(c->style));
    if (configure_delta(&in, c, err))
        return err->code;
    snprintf(layer, sizeof layer, "model.layers.%u.", c->delta.heads ? c->delta.full_every - 1 : 0);
#define IN_LAYER(name) canonical_find(&in, "%s%s", layer, name)
    const struct weights_entry *tokens = canonical_find(&in, "model.embed_tokens.weight"),
                               *norm = IN_LAYER("self_attn.q_norm.weight"),
                               *q = IN_LAYER("self_attn.q_proj.weight"),
                               *k = IN_LAYER("self_attn.k_proj.weight"),
                               *gate = IN_LAYER("mlp.gate_proj.weight");
    c->vocab = arch_dim(tokens, 0);
    c->width = arch_dim(tokens, 1);
    c->mlp = arch_dim(gate, 0);
    c->qk_norm = norm != NULL;
    c->bias = IN_LAYER("self_attn.k_proj.bias") != NULL;
#undef IN_LAYER
    c->final_norm = canonical_find(&in, "model.norm.weight") != NULL;
    c->head_inside = arch_find(w, root, "model.lm_head.weight") != NULL;
    c->head = c->head_inside || canonical_find(&in, "model.lm_head.weight") != NULL;
    c->adjacent = c->style == LM_GGUF && is_gguf_llama(w);
    uint64_t head_dim = norm ? arch_dim(norm, 0) : kind->head_dim;
    c->head_dim = head_dim <= WIDTH_MAX ? (uint32_t)head_dim : 0;
    c->turned = kind->turns_part ? c->head_dim / kind->turns_part : c->head_dim;
    c->gated = c->delta.heads > 0;
    const uint64_t queries = arch_dim(q, 0) / (c->gated ? 2 : 1);
    if (check(c, root, queries, arch_dim(k, 0), err))
        return err->code;
    c->heads = (uint32_t)(queries / head_dim);
    c->kv_heads = (uint32_t)(arch_dim(k, 0) / head_dim);
    return configure_sight(w, root, c, err);
}

struct encoder_size lm_size(const void *config)
{
    const struct lm_net *c = config;
    return (struct encoder_size) { .width = c->width,
                                   .vocab = c->vocab,
                                   .tokens = TOKENS_MAX,
                                   .layers = c->layers,
                                   .chunks = 2, /* the prompt and the empty one */
                                   .scale = c->kind->scaled ? (float)sqrt((double)c->width) : 0 };
}
