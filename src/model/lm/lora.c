/* What adapters call the tensors of a language model: ComfyUI's paths, whatever the file has; and
 * kohya's, without what all of them begin with. */
#include "model/lm/lm.h"
#include "model/lora_names_impl.h"

#include <string.h>

void lm_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX], hf[LORA_NAME_MAX];
    const char *root = net->alias.root;
    enum lm_style style = lm_style(w, root);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct lora_name m = { .key = weights_at(w, i)->name };
        if (!lora_path(weights_at(w, i), root, path))
            continue;
        const char *q = lm_hf_path(style, path, hf, sizeof hf) ? hf : path;
        lora_text(t, q, &m);
        lora_add(t, "text_encoders.transformer.", q, false, &m);
        if (str_starts(q, strlen(q), "model."))
            lora_numbered(t, net->te, false, q + strlen("model."), &m);
    }
}
