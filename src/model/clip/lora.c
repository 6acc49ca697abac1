/* What adapters call the tensors of a CLIP (lora.md 2). */
#include "model/clip/clip.h"
#include "model/lora_names_impl.h"

/* The tensor behind a module of layer b, whatever the file calls it; OpenCLIP's q, k and v are
 * thirds of one. False: there is none. */
static bool find_module(const struct weights *w, const char *root, unsigned b, const char *module,
                        struct lora_name *m)
{
    char name[LORA_NAME_MAX];
    struct net_source from;
    enum clip_style style = clip_style(w, root);
    snprintf(name, sizeof name, "text_model.encoder.layers.%u.%s.weight", b, module);
    const struct weights_entry *e = clip_entry(w, root, style, name);
    *m = (struct lora_name) { .key = e ? e->name : NULL };
    if (!e || !clip_rename(style, false, 1, name, &from) || !from.rows)
        return e != NULL;
    m->rows = e->shape.ndim == 2 && e->shape.dim[0] % 3 == 0 ? e->shape.dim[0] / 3 : 0;
    m->row = from.row * m->rows;
    return m->rows > 0;
}

/* The last projection. OpenCLIP keeps it as it multiplies from the right: transposed. */
static bool find_projection(const struct weights *w, const char *root, struct lora_name *m)
{
    const struct weights_entry *e = arch_find(w, root, "text_projection.weight");
    *m = (struct lora_name) { 0 };
    if (!e && (e = arch_find(w, root, "text_projection")))
        m->transpose = true;
    m->key = e ? e->name : NULL;
    return e && (!m->transpose || e->shape.ndim == 2);
}

void clip_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    static const char *const modules[] = { "mlp.fc1",          "mlp.fc2",
                                           "self_attn.q_proj", "self_attn.k_proj",
                                           "self_attn.v_proj", "self_attn.out_proj" };
    const char *root = net->alias.root;
    char q[LORA_NAME_MAX];
    struct lora_name m;
    for (size_t i = 0; i < weights_count(w); i++)
        if (lora_path(weights_at(w, i), root, q))
            lora_text(t, q, &(struct lora_name) { .key = weights_at(w, i)->name });
    for (unsigned b = 0; find_module(w, root, b, modules[0], &m); b++)
        for (size_t c = 0; c < ARRAY_LEN(modules); c++)
            if (find_module(w, root, b, modules[c], &m)) {
                snprintf(q, sizeof q, "text_model.encoder.layers.%u.%s", b, modules[c]);
                lora_numbered(t, net->te, true, q, &m);
            }
    if (!find_projection(w, root, &m))
        return;
    lora_numbered(t, net->te & (LORA_TE1 | LORA_TE2), false, "text_projection", &m);
    if (net->te & LORA_TE2)
        lora_add(t, "lora_prior_te_", "text_projection", false, &m);
}
