/* What adapters call the layers of HunyuanVideo (hunyuan-video.md 5): ComfyUI's paths, dotted and
 * flat, and its authors' behind two leads. */
#include "model/lora_names_impl.h"

#include "model/hunyuan_video/hunyuan_video.h"

#include <string.h>

/* One name of a layer, behind the leads that trainers have. */
static void add(struct lora_table *t, const char *path, const struct lora_name *all)
{
    lora_add(t, "transformer.", path, false, all);
    lora_add(t, "diffusion_model.", path, false, all);
    lora_add(t, "lora_unet_", path, true, all);
}

/* ComfyUI's name of a layer that a file has in its authors' names, or the other way round. */
static bool other_name(const char *path, char *out, size_t n)
{
    static const char *const back[][2] = {
        { "_mod.linear", "_mod.lin" },
        { ".modulation.linear", ".modulation.lin" },
        { "_attn_qkv", "_attn.qkv" },
        { "_attn_proj", "_attn.proj" },
        { "mlp.fc1", "mlp.0" },
        { "mlp.fc2", "mlp.2" },
        { "time_in.mlp.0", "time_in.in_layer" },
        { "time_in.mlp.2", "time_in.out_layer" },
        { "guidance_in.mlp.0", "guidance_in.in_layer" },
        { "guidance_in.mlp.2", "guidance_in.out_layer" },
        { "txt_in.t_embedder.mlp.0", "txt_in.t_embedder.in_layer" },
        { "txt_in.t_embedder.mlp.2", "txt_in.t_embedder.out_layer" },
        { "txt_in.c_embedder.linear_1", "txt_in.c_embedder.in_layer" },
        { "txt_in.c_embedder.linear_2", "txt_in.c_embedder.out_layer" },
    };
    for (size_t i = 0; i < ARRAY_LEN(back); i++) {
        const char *at = strstr(path, back[i][0]);
        const size_t len = strlen(back[i][0]);
        if (!at || (at[len] && at[len] != '.'))
            continue;
        return snprintf(out, n, "%.*s%s%s", (int)(at - path), path, back[i][1], at + len) < (int)n;
    }
    return hunyuan_authors_name(path, out, n);
}

void hunyuan_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net)
{
    char path[LORA_NAME_MAX], other[LORA_NAME_MAX];
    lora_diffusion(t, w, net);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct lora_name all = { .key = weights_at(w, i)->name };
        if (!lora_path(weights_at(w, i), net->alias.root, path))
            continue;
        lora_add(t, "transformer.", path, false, &all);
        if (other_name(path, other, sizeof other))
            add(t, other, &all);
    }
}
