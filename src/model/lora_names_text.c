/* lora_names_text: CLIP and T5 text encoders. */
#include "model/lora_names_impl.h"
#include "text/clip/clip.h"
#include "text/t5/t5.h"

#include <string.h>

/* Of a CLIP's layer. */
static const char *const modules[] = {
    "mlp.fc1",          "mlp.fc2",          "self_attn.q_proj",
    "self_attn.k_proj", "self_attn.v_proj", "self_attn.out_proj"
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

/* The tensor behind a module of layer b, whatever the file calls it; OpenCLIP's q, k and v are
 * thirds of one. False: there is none. */
static bool clip_module(const struct weights *w, const char *root, unsigned b, const char *module,
                        struct lora_meant *m)
{
    char name[LORA_NAME_MAX];
    struct net_source from;
    enum clip_style style = clip_style(w, root);
    snprintf(name, sizeof name, "text_model.encoder.layers.%u.%s.weight", b, module);
    const struct weights_entry *e = clip_entry(w, root, style, name);
    *m = (struct lora_meant) { .name = e ? e->name : NULL };
    if (!e || !clip_rename(style, false, 1, name, &from) || !from.rows)
        return e != NULL;
    m->rows = e->shape.ndim == 2 && e->shape.dim[0] % 3 == 0 ? e->shape.dim[0] / 3 : 0;
    m->row = from.row * m->rows;
    return m->rows > 0;
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

static bool text_path(const struct weights_entry *e, const char *root, char path[LORA_NAME_MAX])
{
    char hf[LORA_NAME_MAX];
    if (!lora_path(e, root, path))
        return false;
    if (t5_hf_path(path, hf, sizeof hf))
        memcpy(path, hf, sizeof hf);
    return true;
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
    for (unsigned b = 0; clip_module(w, root, b, modules[0], &m); b++)
        for (size_t c = 0; c < ARRAY_LEN(modules); c++)
            if (clip_module(w, root, b, modules[c], &m)) {
                snprintf(q, sizeof q, "text_model.encoder.layers.%u.%s", b, modules[c]);
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
