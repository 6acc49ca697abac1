/* lora_names_text: CLIP and T5 text encoders. */
#include "model/lora_names_impl.h"

#include <string.h>

struct module { /* HF's name; OpenCLIP's under resblocks.N, and its part of three rows */
    const char *hf, *open;
    int third; /* -1: all */
};
static const struct module modules[] = {
    { "mlp.fc1", "mlp.c_fc.weight", -1 },
    { "mlp.fc2", "mlp.c_proj.weight", -1 },
    { "self_attn.q_proj", "attn.in_proj_weight", 0 },
    { "self_attn.k_proj", "attn.in_proj_weight", 1 },
    { "self_attn.v_proj", "attn.in_proj_weight", 2 },
    { "self_attn.out_proj", "attn.out_proj.weight", -1 },
};

static const struct {
    unsigned te;
    const char *flat, *dotted; /* dotted: of CLIP only; NULL: none */
} leads[] = {
    { LORA_TE, "lora_te_", "text_encoder." },
    { LORA_TE1, "lora_te1_", NULL },
    { LORA_TE2, "lora_te2_", "text_encoder_2." },
    { LORA_TE3, "lora_te3_", NULL },
};

/* One CLIP layer's module, under every number it goes by. */
static void add_clip(struct lora_table *t, unsigned te, const char *q, const struct lora_meant *m)
{
    for (size_t i = 0; i < ARRAY_LEN(leads); i++) {
        if (!(te & leads[i].te))
            continue;
        lora_add(t, leads[i].flat, q, true, m);
        if (leads[i].dotted)
            lora_add(t, leads[i].dotted, q, false, m);
    }
}

/* The tensor behind a module of layer b, in HF or OpenCLIP names. False: there is none. */
static bool clip_module(const struct weights *w, const char *prefix, unsigned b,
                        const struct module *c, struct lora_meant *m)
{
    const struct weights_entry *e =
        lora_find(w, prefix, "text_model.encoder.layers.%u.%s.weight", b, c->hf);
    *m = (struct lora_meant) { 0 };
    if (!e)
        e = lora_find(w, prefix, "encoder.layers.%u.%s.weight", b, c->hf);
    if (!e && (e = lora_find(w, prefix, "transformer.resblocks.%u.%s", b, c->open)) &&
        c->third >= 0) {
        uint64_t D = e->shape.ndim == 2 ? e->shape.dim[0] / 3 : 0;
        if (!D || e->shape.dim[0] % 3)
            return false;
        m->row = (uint64_t)c->third * D;
        m->rows = D;
    }
    m->name = e ? e->name : NULL;
    return e != NULL;
}

/* The last projection. OpenCLIP keeps it as it multiplies from the right: the other way round. */
static bool projection(const struct weights *w, const char *root, struct lora_meant *m)
{
    const struct weights_entry *e = lora_find(w, root, "text_projection.weight");
    *m = (struct lora_meant) { 0 };
    if (!e && (e = lora_find(w, root, "text_projection")))
        m->transpose = true;
    m->name = e ? e->name : NULL;
    return e && (!m->transpose || e->shape.ndim == 2);
}

/* llama.cpp's names of a T5 to HF's, which adapters go by; others stay. */
static void hf_path(char path[LORA_NAME_MAX])
{
    static const struct {
        const char *theirs, *hf; /* behind the block's number */
    } layer[] = {
        { "attn_q", "layer.0.SelfAttention.q" },
        { "attn_k", "layer.0.SelfAttention.k" },
        { "attn_v", "layer.0.SelfAttention.v" },
        { "attn_o", "layer.0.SelfAttention.o" },
        { "attn_rel_b", "layer.0.SelfAttention.relative_attention_bias" },
        { "attn_norm", "layer.0.layer_norm" },
        { "ffn_gate", "layer.1.DenseReluDense.wi_0" },
        { "ffn_up", "layer.1.DenseReluDense.wi_1" },
        { "ffn_down", "layer.1.DenseReluDense.wo" },
        { "ffn_norm", "layer.1.layer_norm" },
    };
    static const char block[] = "enc.blk.";
    if (strcmp(path, "token_embd") == 0)
        snprintf(path, LORA_NAME_MAX, "shared");
    else if (strcmp(path, "enc.output_norm") == 0)
        snprintf(path, LORA_NAME_MAX, "encoder.final_layer_norm");
    if (strncmp(path, block, sizeof block - 1) != 0)
        return;
    const char *number = path + sizeof block - 1;
    size_t digits = strspn(number, "0123456789");
    for (size_t i = 0; digits && digits < 10 && i < ARRAY_LEN(layer); i++)
        if (number[digits] == '.' && strcmp(number + digits + 1, layer[i].theirs) == 0) {
            char n[16];
            snprintf(n, sizeof n, "%.*s", (int)digits, number);
            snprintf(path, LORA_NAME_MAX, "encoder.block.%s.%s", n, layer[i].hf);
            return;
        }
}

static bool text_path(const struct weights_entry *e, const char *root, char path[LORA_NAME_MAX])
{
    bool there = lora_path(e, root, path);
    if (there)
        hf_path(path);
    return there;
}

/* text_encoders.<key without .weight> of every weight. */
static void generic(struct lora_table *t, const struct weights *w, const char *root)
{
    char path[LORA_NAME_MAX], lead[sizeof "text_encoders." + BLOCK_ALIAS_MAX];
    snprintf(lead, sizeof lead, "text_encoders.%s", t->alias->known);
    for (size_t i = 0; i < weights_count(w); i++)
        if (text_path(weights_at(w, i), root, path))
            lora_add(t, lead, path, false, &(struct lora_meant) { .name = weights_at(w, i)->name });
}

void lora_clip(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    const char *root = net->alias.root;
    char q[LORA_NAME_MAX];
    struct lora_meant m;
    generic(t, w, root);
    for (unsigned b = 0; clip_module(w, root, b, &modules[0], &m); b++)
        for (size_t c = 0; c < ARRAY_LEN(modules); c++)
            if (clip_module(w, root, b, &modules[c], &m)) {
                snprintf(q, sizeof q, "text_model.encoder.layers.%u.%s", b, modules[c].hf);
                add_clip(t, net->te, q, &m);
            }
    for (size_t i = 0; projection(w, root, &m) && i < ARRAY_LEN(leads); i++)
        if (net->te & leads[i].te & (LORA_TE1 | LORA_TE2))
            lora_add(t, leads[i].flat, "text_projection", true, &m);
}

void lora_t5(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX];
    generic(t, w, net->alias.root);
    for (size_t k = 0; k < weights_count(w); k++) {
        const struct weights_entry *e = weights_at(w, k);
        for (size_t i = 0; text_path(e, net->alias.root, path) && i < ARRAY_LEN(leads); i++)
            if (net->te & leads[i].te)
                lora_add(t, leads[i].flat, path, true, &(struct lora_meant) { .name = e->name });
    }
}
