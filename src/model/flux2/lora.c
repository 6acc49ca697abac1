/* What adapters call the layers of a Flux.2 transformer (flux2.md 11): BFL's paths, and diffusers'
 * names of Flux.1's layers with a few of its own. */
#include "model/flux/flux.h"
#include "model/flux2/flux2.h"
#include "model/lora_names_impl.h"

#include <string.h>

#define QKV_ROWS 3 /* times the width: queries, keys, values */

static void add(struct lora_table *t, const char *q, const struct lora_name *m)
{
    lora_add(t, "", q, false, m);
    lora_add(t, "transformer.", q, false, m);
    lora_add(t, "lycoris_", q, true, m);
    lora_add(t, "lora_transformer_", q, true, m);
}

/* Layers of a list; ours, theirs: what stands in front of their names. Rows that the tensor has not
 * (Flux.1's feed-forward in single blocks) are left out. */
static void add_list(struct lora_table *t, const struct weights *w, const char *prefix,
                     const char *ours, const char *theirs, const struct flux_name *n, uint64_t D)
{
    char q[LORA_NAME_MAX];
    for (; n->layer; n++) {
        const char *layer = n->in ? n->in : n->layer;
        const struct weights_entry *e = lora_find(w, prefix, "%s%s.weight", ours, layer);
        if (!e)
            e = lora_find(w, prefix, "%s%s.scale", ours, layer);
        if (!e || n->rows > 1)
            continue;
        snprintf(q, sizeof q, "%s%s", theirs, n->theirs);
        add(t, q,
            &(struct lora_name) {
                .key = e->name, .row = n->row * D, .rows = n->rows * D, .swap = n->swap });
    }
}

static void add_blocks(struct lora_table *t, const struct weights *w, const char *prefix,
                       const char *ours, const char *theirs, const struct flux_name *const lists[2],
                       uint64_t D)
{
    char us[64], them[64];
    const uint32_t n = arch_layers(w, prefix, ours);
    for (uint32_t i = 0; i < n; i++) {
        snprintf(us, sizeof us, "%s.%u.", ours, i);
        snprintf(them, sizeof them, "%s.%u.", theirs, i);
        add_list(t, w, prefix, us, them, lists[0], D);
        add_list(t, w, prefix, us, them, lists[1], D);
    }
}

void flux2_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    static const struct flux_name *const doubles[2] = { flux_double, flux_later_double },
                                         *const singles[2] = { flux_single, flux_later_single };
    const char *prefix = net->alias.root;
    const struct weights_entry *in = lora_find(w, prefix, "img_in.weight"), *e;
    lora_diffusion(t, w, net);
    flux_lora_norms(t, w, prefix);
    const uint64_t D = in ? arch_dim(in, 0) : 0;
    if (!D || D > UINT32_MAX) /* so that a few of them are a number */
        return;
    add_blocks(t, w, prefix, "double_blocks", "transformer_blocks", doubles, D);
    add_blocks(t, w, prefix, "single_blocks", "single_transformer_blocks", singles, D);
    add_list(t, w, prefix, "", "", flux_once, D);
    for (unsigned i = 0; (e = lora_find(w, prefix, "single_blocks.%u.linear1.weight", i)); i++) {
        char q[LORA_NAME_MAX];
        snprintf(q, sizeof q, "single_blocks.%u.linear1_qkv", i);
        lora_add(t, "diffusion_model.", q, false,
                 &(struct lora_name) { .key = e->name, .rows = QKV_ROWS * D });
    }
}
