/* What adapters call the layers of Mochi (mochi.md 7): its own paths, dotted, flat and bare. */
#include "model/lora_names_impl.h"

#include "model/mochi/mochi.h"

void mochi_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX];
    lora_diffusion(t, w, net);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct lora_name all = { .key = weights_at(w, i)->name };
        if (lora_path(weights_at(w, i), net->alias.root, path))
            lora_add(t, "", path, false, &all);
    }
}
