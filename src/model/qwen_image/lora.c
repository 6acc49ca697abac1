/* What adapters call the layers of a Qwen-Image transformer (qwen-image.md 6): their own paths,
 * bare or behind a word, and flat ones. */
#include "model/lora_names_impl.h"

#include "model/qwen_image/qwen_image.h"

void qwen_image_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX];
    lora_diffusion(t, w, net);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct lora_name all = { .key = weights_at(w, i)->name };
        if (!lora_path(weights_at(w, i), net->alias.root, path))
            continue;
        lora_add(t, "", path, false, &all);
        lora_add(t, "transformer.", path, false, &all);
        lora_add(t, "lycoris_", path, true, &all);
    }
}
