/* lora_names_text: CLIP and T5 text encoders. */
#include "model/lora_names.h"

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
    if (!e && (e = lora_find(w, prefix, "transformer.resblocks.%u.%s", b, c->open)) &&
        c->third >= 0) {
        uint64_t D = e->shape.ndim == 2 ? e->shape.dim[0] / 3 : 0;
        if (!D || e->shape.dim[0] % 3)
            return false;
        m->row = (uint64_t)c->third * D;
        m->rows = D;
    }
    m->key = e ? e->name : NULL;
    return e != NULL;
}

static void clip(struct lora_table *t, const struct weights *w, const struct lora_text *x)
{
    char q[LORA_NAME_MAX];
    struct lora_meant m;
    for (unsigned b = 0; clip_module(w, x->prefix, b, &modules[0], &m); b++)
        for (size_t c = 0; c < ARRAY_LEN(modules); c++)
            if (clip_module(w, x->prefix, b, &modules[c], &m)) {
                snprintf(q, sizeof q, "text_model.encoder.layers.%u.%s", b, modules[c].hf);
                add_clip(t, x->te, q, &m);
            }
    const struct weights_entry *e = lora_find(w, x->prefix, "text_projection.weight");
    if (!e)
        return;
    m = (struct lora_meant) { .key = e->name };
    for (size_t i = 0; i < ARRAY_LEN(leads); i++)
        if (x->te & leads[i].te & (LORA_TE1 | LORA_TE2))
            lora_add(t, leads[i].flat, "text_projection", true, &m);
}

static void t5(struct lora_table *t, const char *path, unsigned te, const struct lora_meant *m)
{
    for (size_t i = 0; i < ARRAY_LEN(leads); i++)
        if (te & leads[i].te)
            lora_add(t, leads[i].flat, path, true, m);
}

berth_status lora_names_text(struct lora_table *t, const struct weights *w,
                             const struct lora_text *which, berth_err *err)
{
    const char *prefix = which->prefix;
    bool is_t5 = lora_find(w, prefix, "encoder.block.0.layer.0.SelfAttention.q.weight");
    char path[LORA_NAME_MAX], lead[LORA_NAME_MAX];
    snprintf(lead, sizeof lead, "text_encoders.%.100s.transformer.", which->comfy);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!lora_path(e, prefix, path))
            continue;
        const struct lora_meant all = { .key = e->name };
        lora_add(t, lead, path, false, &all);
        if (is_t5)
            t5(t, path, which->te, &all);
    }
    if (!is_t5)
        clip(t, w, which);
    return t->bad ? err_set(err, BERTH_ENOMEM, "adapter names of %.100s", weights_path(w))
                  : BERTH_OK;
}
