/* lora_forms: Flux adapters whose tensors are not called <base name><suffix>.
 *
 *   control    BFL's (canny, depth): bare paths of the network, biases as .lora_B.bias, scales of
 *              norms whole; its img_in has more inputs than the model's
 *   processor  XLabs', USO's: double_blocks.0.processor.qkv_lora1.up.weight; 1 is the picture's
 *              stream, 2 the text's */
#include "lora/lora_impl.h"

#include "base/str.h"

#include <string.h>

static bool has(const struct weights *w, const char *name)
{
    return weights_find(w, name, strlen(name)) != NULL;
}

static bool is_processor(const char *name, size_t n)
{
    return (str_starts(name, n, "double_blocks.") || str_starts(name, n, "single_blocks.")) &&
           strstr(name, ".processor.");
}

enum lora_form lora_form(const struct weights *w)
{
    if (has(w, "img_in.lora_A.weight") && has(w, "single_blocks.0.norm.key_norm.scale"))
        return LORA_CONTROL;
    for (size_t i = 0; i < weights_count(w); i++)
        if (is_processor(weights_at(w, i)->name, weights_at(w, i)->name_len))
            return LORA_PROCESSOR;
    return LORA_PLAIN;
}

struct swap {
    const char *from, *to;
};

static const struct swap control[] = { { ".lora_B.bias", ".diff_b" },
                                       { "_norm.scale", "_norm.scale.set_weight" } };
static const struct swap processor[] = {
    { ".down.weight", ".lora_down.weight" },
    { ".up.weight", ".lora_up.weight" },
    { ".processor.qkv_lora1.", ".img_attn.qkv." },
    { ".processor.qkv_lora2.", ".txt_attn.qkv." },
    { ".processor.proj_lora1.", ".img_attn.proj." },
    { ".processor.proj_lora2.", ".txt_attn.proj." },
    { ".processor.qkv_lora.", ".linear1_qkv." },
    { ".processor.proj_lora.", ".linear2." },
};

const char *lora_form_name(enum lora_form form, const char *name, struct arena *mem)
{
    if (form == LORA_PLAIN)
        return name;
    const struct swap *swap = form == LORA_CONTROL ? control : processor;
    size_t n = form == LORA_CONTROL ? ARRAY_LEN(control) : ARRAY_LEN(processor);
    const char *now = arena_printf(mem, "diffusion_model.%s", name);
    for (size_t i = 0; now && i < n; i++) {
        const char *at = strstr(now, swap[i].from);
        if (at)
            now = arena_printf(mem, "%.*s%s%s", (int)(at - now), now, swap[i].to,
                               at + strlen(swap[i].from));
    }
    return now;
}
