/* The diffusers names of an SD1.x or SDXL UNet.
 *
 * With R res blocks per level: input block 1 + (R+1) * level + j is down_blocks.level, its j-th res
 * block, or the downsampler when j is R; output block (R+1) * level + j is up_blocks.level. */
#include "model/lora_names_impl.h"

#include "model/unet/unet.h"

#include <string.h>

/* What else adapters call these two (unet_diffusers_name() has the other name). */
static const struct pair {
    const char *ours, *theirs;
} more[] = {
    { "label_emb.0.0", "class_embedding.linear_1" },
    { "label_emb.0.2", "class_embedding.linear_2" },
};

static void add(struct lora_table *t, const char *q, const char *name)
{
    const struct lora_name all = { .key = name };
    struct str p = { 0 };
    lora_add(t, "lora_unet_", q, true, &all);
    lora_add(t, "lycoris_", q, true, &all);
    for (const char *s = q; *s; s++) { /* .to_ -> .processor.to_ */
        if (!strncmp(s, ".to_", 4))
            str_adds(&p, ".processor");
        str_addc(&p, *s);
    }
    if (str_ends(str_c(&p), p.n, ".to_out.0") && !p.bad)
        p.p[p.n - 2] = '\0';
    t->bad |= p.bad;
    lora_add(t, "", str_c(&p), false, &all);
    lora_add(t, "unet.", str_c(&p), false, &all);
    str_release(&p);
}

void unet_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    const char *prefix = net->alias.root;
    lora_diffusion(t, w, net);
    char path[LORA_NAME_MAX], q[LORA_NAME_MAX];
    unsigned res = 2;
    for (unsigned i = 1; i < 16; i++) /* the first downsampler stands behind the first level */
        if (lora_find(w, prefix, "input_blocks.%u.0.op.weight", i)) {
            res = i - 1;
            break;
        }
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!lora_path(e, prefix, path))
            continue;
        if (unet_diffusers_name(path, res, q, sizeof q))
            add(t, q, e->name);
        for (size_t k = 0; k < ARRAY_LEN(more); k++)
            if (!strcmp(path, more[k].ours))
                add(t, more[k].theirs, e->name);
    }
}
