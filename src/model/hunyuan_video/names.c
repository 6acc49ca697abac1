/* What files call the layers of HunyuanVideo.
 *
 * The forward asks for ComfyUI's names, which files made for it have, with or without "scale" as
 * what norms of heads end in. The authors' own files have other names for most layers. */
#include "model/hunyuan_video/hunyuan_video.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

static const char *const pairs[][2] = {
    /* ours, the authors' */
    { "txt_in.t_embedder.in_layer", "txt_in.t_embedder.mlp.0" },
    { "txt_in.t_embedder.out_layer", "txt_in.t_embedder.mlp.2" },
    { "txt_in.c_embedder.in_layer", "txt_in.c_embedder.linear_1" },
    { "txt_in.c_embedder.out_layer", "txt_in.c_embedder.linear_2" },
    { "time_in.in_layer", "time_in.mlp.0" },
    { "time_in.out_layer", "time_in.mlp.2" },
    { "guidance_in.in_layer", "guidance_in.mlp.0" },
    { "guidance_in.out_layer", "guidance_in.mlp.2" },
    { "_mod.lin", "_mod.linear" },
    { ".modulation.lin", ".modulation.linear" },
    { "_attn.qkv", "_attn_qkv" },
    { "_attn.proj", "_attn_proj" },
    { "_attn.norm.query_norm", "_attn_q_norm" },
    { "_attn.norm.key_norm", "_attn_k_norm" },
    { ".norm.query_norm", ".q_norm" },
    { ".norm.key_norm", ".k_norm" },
    { "mlp.0", "mlp.fc1" },
    { "mlp.2", "mlp.fc2" },
};

bool hunyuan_authors_name(const char *ours, char *out, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(pairs); i++) {
        const char *at = strstr(ours, pairs[i][0]);
        const size_t len = strlen(pairs[i][0]);
        if (!at || (at[len] && at[len] != '.'))
            continue;
        return name_print(out, n, "%.*s%s%s", (int)(at - ours), ours, pairs[i][1], at + len);
    }
    return false;
}

bool hunyuan_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct hunyuan_net *f = user;
    const size_t n = strlen(canonical), all = sizeof "_norm.weight" - 1;
    *out = (struct net_source) { .rows = 0 };
    if (!strcmp(canonical, "img_in.proj.weight")) {
        out->as =
            (struct shape) { 2, { f->hidden, f->in_channels * HUNYUAN_PATCH * HUNYUAN_PATCH } };
        return name_print(out->name, sizeof out->name, "%s", canonical);
    }
    if (f->authors)
        return hunyuan_authors_name(canonical, out->name, sizeof out->name);
    return f->scales && n > all && str_ends(canonical, n, "_norm.weight") &&
           name_print(out->name, sizeof out->name, "%.*s.scale", (int)(n - strlen(".weight")),
                      canonical);
}
