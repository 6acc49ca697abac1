/* What files call the layers of Flux.
 *
 * The forward asks for BFL's names, with two exceptions. Norms of queries and keys have a "weight"
 * like everything else; files call it "scale". And diffusers keeps apart what is one tensor here,
 * so the parts have names of their own: "img_attn.qkv" is "img_attn.q", ".k", ".v", and "linear1"
 * is "linear1.q", ".k", ".v", ".mlp". */
#include "model/flux/flux.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

#define LAYER(theirs_, layer_)                                                                     \
    {                                                                                              \
        .theirs = theirs_, .layer = layer_                                                         \
    }
#define ROWS(theirs_, layer_, in_, row_, rows_, of_)                                               \
    {                                                                                              \
        .theirs = theirs_, .layer = layer_, .in = in_, .row = row_, .rows = rows_, .of = of_       \
    }
const struct flux_name flux_once[] = {
    LAYER("x_embedder", "img_in"),
    LAYER("context_embedder", "txt_in"),
    LAYER("time_text_embed.timestep_embedder.linear_1", "time_in.in_layer"),
    LAYER("time_text_embed.timestep_embedder.linear_2", "time_in.out_layer"),
    LAYER("time_text_embed.guidance_embedder.linear_1", "guidance_in.in_layer"),
    LAYER("time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer"),
    LAYER("time_text_embed.text_embedder.linear_1", "vector_in.in_layer"),
    LAYER("time_text_embed.text_embedder.linear_2", "vector_in.out_layer"),
    { .theirs = "norm_out.linear", .layer = "final_layer.adaLN_modulation.1", .swap = true },
    LAYER("proj_out", "final_layer.linear"),
    { 0 },
};

const struct flux_name flux_double[] = {
    LAYER("norm1.linear", "img_mod.lin"),
    LAYER("norm1_context.linear", "txt_mod.lin"),
    ROWS("attn.to_q", "img_attn.q", "img_attn.qkv", 0, 1, 3),
    ROWS("attn.to_k", "img_attn.k", "img_attn.qkv", 1, 1, 3),
    ROWS("attn.to_v", "img_attn.v", "img_attn.qkv", 2, 1, 3),
    LAYER("attn.norm_q", "img_attn.norm.query_norm"),
    LAYER("attn.norm_k", "img_attn.norm.key_norm"),
    LAYER("attn.to_out.0", "img_attn.proj"),
    LAYER("ff.net.0.proj", "img_mlp.0"),
    LAYER("ff.net.2", "img_mlp.2"),
    ROWS("attn.add_q_proj", "txt_attn.q", "txt_attn.qkv", 0, 1, 3),
    ROWS("attn.add_k_proj", "txt_attn.k", "txt_attn.qkv", 1, 1, 3),
    ROWS("attn.add_v_proj", "txt_attn.v", "txt_attn.qkv", 2, 1, 3),
    LAYER("attn.norm_added_q", "txt_attn.norm.query_norm"),
    LAYER("attn.norm_added_k", "txt_attn.norm.key_norm"),
    LAYER("attn.to_add_out", "txt_attn.proj"),
    LAYER("ff_context.net.0.proj", "txt_mlp.0"),
    LAYER("ff_context.net.2", "txt_mlp.2"),
    { 0 },
};

const struct flux_name flux_single[] = {
    LAYER("norm.linear", "modulation.lin"),
    ROWS("attn.to_q", "linear1.q", "linear1", 0, 1, 7),
    ROWS("attn.to_k", "linear1.k", "linear1", 1, 1, 7),
    ROWS("attn.to_v", "linear1.v", "linear1", 2, 1, 7),
    ROWS("proj_mlp", "linear1.mlp", "linear1", 3, 4, 7),
    LAYER("attn.norm_q", "norm.query_norm"),
    LAYER("attn.norm_k", "norm.key_norm"),
    LAYER("proj_out", "linear2"),
    { 0 },
};

const struct flux_name flux_later_double[] = {
    LAYER("ff.linear_in", "img_mlp.0"),
    LAYER("ff.linear_out", "img_mlp.2"),
    LAYER("ff_context.linear_in", "txt_mlp.0"),
    LAYER("ff_context.linear_out", "txt_mlp.2"),
    { 0 },
};

const struct flux_name flux_later_single[] = {
    LAYER("attn.to_qkv_mlp_proj", "linear1"),
    LAYER("attn.to_out", "linear2"),
    { 0 },
};

static const char *find(const struct flux_name *list, const char *layer, size_t n)
{
    for (; list->layer; list++)
        if (strlen(list->layer) == n && !memcmp(list->layer, layer, n))
            return list->theirs;
    return NULL;
}

/* "<layer>.<what>": the layer is translated, what stays. */
static bool diffusers_names(const void *user, const char *canonical, struct net_source *out)
{
    const char *what = strrchr(canonical, '.'), *in = canonical, *q;
    unsigned i;
    (void)user;
    *out = (struct net_source) { .rows = 0 };
    if (!what)
        return false;
    if ((q = find(flux_once, canonical, (size_t)(what - canonical))))
        return name_print(out->name, sizeof out->name, "%s%s", q, what);
    const struct flux_name *list =
        name_numbered(&in, "double_blocks", FLUX_DEPTH_MAX, &i)   ? flux_double
        : name_numbered(&in, "single_blocks", FLUX_DEPTH_MAX, &i) ? flux_single
                                                                  : NULL;
    q = list && in < what ? find(list, in, (size_t)(what - in)) : NULL;
    return q && name_print(out->name, sizeof out->name, "%stransformer_blocks.%u.%s%s",
                           list == flux_single ? "single_" : "", i, q, what);
}

static bool own_names(const void *user, const char *canonical, struct net_source *out)
{
    static const char ours[] = "_norm.weight", theirs[] = "_norm.scale";
    size_t n = strlen(canonical);
    (void)user;
    *out = (struct net_source) { .rows = 0 };
    return str_ends(canonical, n, ours) && name_print(out->name, sizeof out->name, "%.*s%s",
                                                      (int)(n - strlen(ours)), canonical, theirs);
}

net_names_fn *flux_names(const struct flux_net *f)
{
    return f->diffusers ? diffusers_names : own_names;
}
