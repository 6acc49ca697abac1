/* What adapters call the layers of a Krea 2 transformer (krea2.md 10): its own paths, dotted and
 * flat, and diffusers' names with several leads. */
#include "model/lora_names_impl.h"

#include "model/krea2/krea2.h"

struct name {
    const char *theirs, *layer; /* layer NULL: the list's end */
};

static const struct name once[] = {
    { "img_in", "first" },
    { "time_embed.linear_1", "tmlp.0" },
    { "time_embed.linear_2", "tmlp.2" },
    { "time_mod_proj", "tproj.1" },
    { "txt_in.linear_1", "txtmlp.1" },
    { "txt_in.linear_2", "txtmlp.3" },
    { "text_fusion.projector", "txtfusion.projector" },
    { "final_layer.linear", "last.linear" },
    { NULL, NULL },
};

static const struct name of_block[] = {
    { "attn.to_q", "attn.wq" },
    { "attn.to_k", "attn.wk" },
    { "attn.to_v", "attn.wv" },
    { "attn.to_gate", "attn.gate" },
    { "attn.to_out.0", "attn.wo" },
    { "attn.to_out", "attn.wo" }, /* some trainers drop the number */
    { "ff.gate", "mlp.gate" },
    { "ff.up", "mlp.up" },
    { "ff.down", "mlp.down" },
    { NULL, NULL },
};

static const struct name lists[] = {
    { "transformer_blocks", "blocks" },
    { "text_fusion.layerwise_blocks", "txtfusion.layerwise_blocks" },
    { "text_fusion.refiner_blocks", "txtfusion.refiner_blocks" },
    { NULL, NULL },
};

/* Layers behind `ours`, which they call `theirs`. */
static void add(struct lora_table *t, const struct weights *w, const char *root, const char *theirs,
                const char *ours, const struct name *n)
{
    char q[LORA_NAME_MAX];
    for (; n->layer; n++) {
        const struct weights_entry *e = lora_find(w, root, "%s%s.weight", ours, n->layer);
        if (!e)
            continue;
        const struct lora_name all = { .key = e->name };
        snprintf(q, sizeof q, "%s%s", theirs, n->theirs);
        lora_add(t, "diffusion_model.", q, false, &all);
        lora_add(t, "transformer.", q, false, &all);
        lora_add(t, "lycoris_", q, true, &all);
        lora_add(t, "", q, false, &all);
    }
}

void krea2_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    const char *root = net->alias.root;
    char theirs[64], ours[64];
    lora_diffusion(t, w, net);
    add(t, w, root, "", "", once);
    for (const struct name *list = lists; list->layer; list++)
        for (uint32_t i = 0, n = arch_layers(w, root, list->layer); i < n; i++) {
            snprintf(theirs, sizeof theirs, "%s.%u.", list->theirs, i);
            snprintf(ours, sizeof ours, "%s.%u.", list->layer, i);
            add(t, w, root, theirs, ours, of_block);
        }
}
