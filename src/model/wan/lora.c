/* What adapters call the layers of a Wan transformer (wan-variants.md 11): its own paths, dotted
 * and flat, and diffusers'. Some trainers of Wan-Fun put a second underscore behind lora_unet_. */
#include "model/lora_names_impl.h"

#include "model/wan/wan.h"

void wan_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX], theirs[LORA_NAME_MAX];
    lora_diffusion(t, w, net);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct lora_name all = { .key = weights_at(w, i)->name };
        if (!lora_path(weights_at(w, i), net->alias.root, path))
            continue;
        lora_add(t, "", path, false, &all);
        lora_add(t, "transformer.", path, false, &all);
        lora_add(t, "lycoris_", path, true, &all);
        lora_add(t, "lora_unet__", path, true, &all);
        if (!wan_diffusers_path(path, theirs, sizeof theirs))
            continue;
        lora_add(t, "transformer.", theirs, false, &all);
        lora_add(t, "diffusion_model.", theirs, false, &all);
        lora_add(t, "lycoris_", theirs, true, &all);
    }
}
