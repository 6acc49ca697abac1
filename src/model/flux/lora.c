/* The diffusers names of a Flux transformer (flux.md 6).
 *
 * Diffusers keeps q, k, v and the mlp apart; here they are rows of one tensor, D to each of the
 * first three. Its last modulation holds (scale, shift) where ours holds (shift, scale). */
#include "model/flux/flux.h"
#include "model/lora_names_impl.h"

#include <string.h>

struct flux_name {
    const char *theirs, *ours; /* behind the block's number; ours with its last part */
    uint64_t row, rows;        /* in multiples of D; rows 0: all */
};

static const struct flux_name twice[] = {
    /* of double_blocks.N */
    { "attn.to_q", "img_attn.qkv.weight", 0, 1 },
    { "attn.to_k", "img_attn.qkv.weight", 1, 1 },
    { "attn.to_v", "img_attn.qkv.weight", 2, 1 },
    { "attn.add_q_proj", "txt_attn.qkv.weight", 0, 1 },
    { "attn.add_k_proj", "txt_attn.qkv.weight", 1, 1 },
    { "attn.add_v_proj", "txt_attn.qkv.weight", 2, 1 },
    { "attn.to_out.0", "img_attn.proj.weight", 0, 0 },
    { "attn.to_add_out", "txt_attn.proj.weight", 0, 0 },
    { "norm1.linear", "img_mod.lin.weight", 0, 0 },
    { "norm1_context.linear", "txt_mod.lin.weight", 0, 0 },
    { "ff.net.0.proj", "img_mlp.0.weight", 0, 0 },
    { "ff.net.2", "img_mlp.2.weight", 0, 0 },
    { "ff_context.net.0.proj", "txt_mlp.0.weight", 0, 0 },
    { "ff_context.net.2", "txt_mlp.2.weight", 0, 0 },
    { "attn.norm_q", "img_attn.norm.query_norm.scale", 0, 0 },
    { "attn.norm_k", "img_attn.norm.key_norm.scale", 0, 0 },
    { "attn.norm_added_q", "txt_attn.norm.query_norm.scale", 0, 0 },
    { "attn.norm_added_k", "txt_attn.norm.key_norm.scale", 0, 0 },
};

static const struct flux_name single[] = {
    /* of single_blocks.N */
    { "attn.to_q", "linear1.weight", 0, 1 },
    { "attn.to_k", "linear1.weight", 1, 1 },
    { "attn.to_v", "linear1.weight", 2, 1 },
    { "proj_mlp", "linear1.weight", 3, 4 },
    { "proj_out", "linear2.weight", 0, 0 },
    { "norm.linear", "modulation.lin.weight", 0, 0 },
    { "attn.norm_q", "norm.query_norm.scale", 0, 0 },
    { "attn.norm_k", "norm.key_norm.scale", 0, 0 },
};

static const struct flux_name once[] = {
    { "time_text_embed.timestep_embedder.linear_1", "time_in.in_layer.weight", 0, 0 },
    { "time_text_embed.timestep_embedder.linear_2", "time_in.out_layer.weight", 0, 0 },
    { "time_text_embed.text_embedder.linear_1", "vector_in.in_layer.weight", 0, 0 },
    { "time_text_embed.text_embedder.linear_2", "vector_in.out_layer.weight", 0, 0 },
    { "time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer.weight", 0, 0 },
    { "time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer.weight", 0, 0 },
    { "context_embedder", "txt_in.weight", 0, 0 },
    { "x_embedder", "img_in.weight", 0, 0 },
    { "proj_out", "final_layer.linear.weight", 0, 0 },
};

static void add(struct lora_table *t, const char *q, const struct lora_meant *m)
{
    lora_add(t, "transformer.", q, false, m);
    lora_add(t, "lycoris_", q, true, m);
    lora_add(t, "lora_transformer_", q, true, m);
}

static void add_block(struct lora_table *t, const struct weights *w, const char *prefix,
                      const char *ours, const char *theirs, unsigned i, const struct flux_name *n,
                      uint64_t D)
{
    char q[LORA_NAME_MAX];
    const struct weights_entry *e = lora_find(w, prefix, "%s.%u.%s", ours, i, n->ours);
    if (!e)
        return;
    snprintf(q, sizeof q, "%s.%u.%s", theirs, i, n->theirs);
    add(t, q, &(struct lora_meant) { .name = e->name, .row = n->row * D, .rows = n->rows * D });
}

/* ---- files in diffusers' own names: what adapters keep stacked is several tensors there ---- */

/* BFL's and kohya's names of one tensor of such a file, and BFL's of the bias beside it. */
static void add_ours(struct lora_table *t, const struct weights *w, const char *prefix,
                     const char *theirs, const char *ours, const struct lora_meant *m)
{
    char q[LORA_NAME_MAX];
    const struct weights_entry *bias = lora_find(w, prefix, "%s.bias", theirs);
    size_t n = strlen(ours), tail = strlen(".weight");
    bool weight = str_ends(ours, n, ".weight");
    snprintf(q, sizeof q, "%.*s", (int)(weight ? n - tail : n), ours);
    if (weight)
        lora_add(t, "lora_unet_", q, true, m);
    lora_add(t, "diffusion_model.", q, false, m);
    if (!weight || !bias)
        return;
    struct lora_meant b = *m;
    b.name = bias->name;
    snprintf(q, sizeof q, "%.*s.bias", (int)(n - tail), ours);
    lora_add(t, "diffusion_model.", q, false, &b);
}

static void add_stacked(struct lora_table *t, const struct weights *w, const char *prefix,
                        const char *ours, const char *theirs, unsigned i, const struct flux_name *n,
                        uint64_t D)
{
    char q[LORA_NAME_MAX], of[LORA_NAME_MAX];
    snprintf(of, sizeof of, "%s.%u.%s", theirs, i, n->theirs);
    const struct weights_entry *e = lora_find(w, prefix, "%s.weight", of);
    if (!e)
        return;
    bool linear1 = strcmp(n->ours, "linear1.weight") == 0;
    struct lora_meant m = { .name = e->name };
    if (n->rows) {
        m.from = n->row * D;
        m.of = (linear1 ? 7 : 3) * D;
    }
    snprintf(q, sizeof q, "%s.%u.%s", ours, i, n->ours);
    add_ours(t, w, prefix, of, q, &m);
    if (linear1 && n->row < 3) {
        m.of = 3 * D;
        snprintf(q, sizeof q, "%s.%u.linear1_qkv", ours, i);
        lora_add(t, "diffusion_model.", q, false, &m);
    }
}

static void add_diffusers(struct lora_table *t, const struct weights *w, const char *prefix,
                          uint64_t D)
{
    char path[LORA_NAME_MAX];
    const struct weights_entry *e;
    for (size_t i = 0; i < weights_count(w); i++)
        if (lora_path(weights_at(w, i), prefix, path))
            add(t, path, &(struct lora_meant) { .name = weights_at(w, i)->name });
    for (unsigned i = 0; lora_find(w, prefix, "transformer_blocks.%u.attn.to_q.weight", i); i++)
        for (size_t k = 0; k < ARRAY_LEN(twice); k++)
            add_stacked(t, w, prefix, "double_blocks", "transformer_blocks", i, &twice[k], D);
    for (unsigned i = 0; lora_find(w, prefix, "single_transformer_blocks.%u.proj_mlp.weight", i);
         i++)
        for (size_t k = 0; k < ARRAY_LEN(single); k++)
            add_stacked(t, w, prefix, "single_blocks", "single_transformer_blocks", i, &single[k],
                        D);
    for (size_t k = 0; k < ARRAY_LEN(once); k++)
        if ((e = lora_find(w, prefix, "%s.weight", once[k].theirs)))
            add_ours(t, w, prefix, once[k].theirs, once[k].ours,
                     &(struct lora_meant) { .name = e->name });
    if ((e = lora_find(w, prefix, "norm_out.linear.weight")))
        add_ours(t, w, prefix, "norm_out.linear", "final_layer.adaLN_modulation.1.weight",
                 &(struct lora_meant) { .name = e->name, .swap = true });
}

void flux_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    const char *prefix = net->alias.root;
    lora_diffusion(t, w, net);
    const struct weights_entry *in = lora_find(w, prefix, "x_embedder.weight"), *e;
    if (in && in->shape.ndim == 2 && in->shape.dim[0] && in->shape.dim[0] <= UINT32_MAX &&
        lora_find(w, prefix, "transformer_blocks.0.attn.add_q_proj.weight")) {
        add_diffusers(t, w, prefix, in->shape.dim[0]);
        return;
    }
    in = lora_find(w, prefix, "img_in.weight");
    if (!in || in->shape.ndim != 2 || !lora_find(w, prefix, "double_blocks.0.img_attn.qkv.weight"))
        return;
    const uint64_t D = in->shape.dim[0];
    if (!D || D > UINT32_MAX) /* so that 7 * D is a number */
        return;
    for (unsigned i = 0; lora_find(w, prefix, "double_blocks.%u.img_attn.qkv.weight", i); i++)
        for (size_t k = 0; k < ARRAY_LEN(twice); k++)
            add_block(t, w, prefix, "double_blocks", "transformer_blocks", i, &twice[k], D);
    for (unsigned i = 0; (e = lora_find(w, prefix, "single_blocks.%u.linear1.weight", i)); i++) {
        char q[LORA_NAME_MAX];
        for (size_t k = 0; k < ARRAY_LEN(single); k++)
            add_block(t, w, prefix, "single_blocks", "single_transformer_blocks", i, &single[k], D);
        snprintf(q, sizeof q, "single_blocks.%u.linear1_qkv", i);
        lora_add(t, "diffusion_model.", q, false,
                 &(struct lora_meant) { .name = e->name, .rows = 3 * D });
    }
    for (size_t k = 0; k < ARRAY_LEN(once); k++)
        if ((e = lora_find(w, prefix, "%s", once[k].ours)))
            add(t, once[k].theirs, &(struct lora_meant) { .name = e->name });
    if ((e = lora_find(w, prefix, "final_layer.adaLN_modulation.1.weight")))
        add(t, "norm_out.linear", &(struct lora_meant) { .name = e->name, .swap = true });
}
