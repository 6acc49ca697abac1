/* What adapters call the tensors of a T5: HF's paths, also where the file has llama.cpp's. */
#include "model/lora_names_impl.h"
#include "model/t5/t5.h"

void t5_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX], hf[LORA_NAME_MAX];
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct lora_name m = { .key = weights_at(w, i)->name };
        if (!lora_path(weights_at(w, i), net->alias.root, path))
            continue;
        const char *q = t5_hf_path(path, hf, sizeof hf) ? hf : path;
        lora_text(t, q, &m);
        lora_add(t, "text_encoders.transformer.", q, false, &m);
        lora_numbered(t, net->te, false, q, &m);
    }
}
