/* What files call the layers of Flux.
 *
 * The forward asks for BFL's names, with two exceptions. Norms of queries and keys have a "weight"
 * like everything else: files call it "scale". And diffusers keeps apart what is one tensor here, so
 * the parts have names of their own: "img_attn.qkv" is "img_attn.q", ".k", ".v", and "linear1" is
 * "linear1.q", ".k", ".v", ".mlp". */
#include "model/flux/flux.h"

#include "base/str.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    const char *ours, *theirs;
};

static const struct pair once[] = {
    { "img_in", "x_embedder" },
    { "txt_in", "context_embedder" },
    { "time_in.in_layer", "time_text_embed.timestep_embedder.linear_1" },
    { "time_in.out_layer", "time_text_embed.timestep_embedder.linear_2" },
    { "guidance_in.in_layer", "time_text_embed.guidance_embedder.linear_1" },
    { "guidance_in.out_layer", "time_text_embed.guidance_embedder.linear_2" },
    { "vector_in.in_layer", "time_text_embed.text_embedder.linear_1" },
    { "vector_in.out_layer", "time_text_embed.text_embedder.linear_2" },
    { "final_layer.adaLN_modulation.1", "norm_out.linear" }, /* its halves exchanged */
    { "final_layer.linear", "proj_out" },
};

static const struct pair twice[] = {
    /* of double_blocks.N */
    { "img_mod.lin", "norm1.linear" },
    { "txt_mod.lin", "norm1_context.linear" },
    { "img_attn.q", "attn.to_q" },
    { "img_attn.k", "attn.to_k" },
    { "img_attn.v", "attn.to_v" },
    { "img_attn.norm.query_norm", "attn.norm_q" },
    { "img_attn.norm.key_norm", "attn.norm_k" },
    { "img_attn.proj", "attn.to_out.0" },
    { "img_mlp.0", "ff.net.0.proj" },
    { "img_mlp.2", "ff.net.2" },
    { "txt_attn.q", "attn.add_q_proj" },
    { "txt_attn.k", "attn.add_k_proj" },
    { "txt_attn.v", "attn.add_v_proj" },
    { "txt_attn.norm.query_norm", "attn.norm_added_q" },
    { "txt_attn.norm.key_norm", "attn.norm_added_k" },
    { "txt_attn.proj", "attn.to_add_out" },
    { "txt_mlp.0", "ff_context.net.0.proj" },
    { "txt_mlp.2", "ff_context.net.2" },
};

static const struct pair single[] = {
    /* of single_blocks.N */
    { "modulation.lin", "norm.linear" }, { "linear1.q", "attn.to_q" },
    { "linear1.k", "attn.to_k" },        { "linear1.v", "attn.to_v" },
    { "linear1.mlp", "proj_mlp" },       { "norm.query_norm", "attn.norm_q" },
    { "norm.key_norm", "attn.norm_k" },  { "linear2", "proj_out" },
};

static const char *find(const struct pair *list, size_t count, const char *layer, size_t n)
{
    for (size_t i = 0; i < count; i++)
        if (strlen(list[i].ours) == n && !memcmp(list[i].ours, layer, n))
            return list[i].theirs;
    return NULL;
}

/* "<list>.<number>." in front of name: *number and how long that is; 0: something else. */
static size_t numbered(const char *name, const char *list, unsigned long *number)
{
    size_t n = strlen(list);
    char *end;
    if (strncmp(name, list, n) != 0 || name[n] != '.' || name[n + 1] < '0' || name[n + 1] > '9')
        return 0;
    *number = strtoul(name + n + 1, &end, 10);
    return *number < FLUX_DEPTH_MAX && *end == '.' ? (size_t)(end + 1 - name) : 0;
}

static bool fits(int n, size_t cap)
{
    return n > 0 && (size_t)n < cap;
}

/* "<layer>.<what>": the layer is translated, what stays. */
static bool diffusers_names(const void *user, const char *canonical, struct net_source *out)
{
    const char *what = strrchr(canonical, '.'), *q;
    unsigned long i;
    size_t at;
    (void)user;
    *out = (struct net_source) { .rows = 0 };
    if (!what)
        return false;
    size_t n = (size_t)(what - canonical);
    if ((q = find(once, ARRAY_LEN(once), canonical, n)))
        return fits(snprintf(out->name, sizeof out->name, "%s%s", q, what), sizeof out->name);
    if ((at = numbered(canonical, "double_blocks", &i)) && at < n)
        q = find(twice, ARRAY_LEN(twice), canonical + at, n - at);
    else if ((at = numbered(canonical, "single_blocks", &i)) && at < n)
        q = find(single, ARRAY_LEN(single), canonical + at, n - at);
    return q && fits(snprintf(out->name, sizeof out->name, "%stransformer_blocks.%lu.%s%s",
                              canonical[0] == 's' ? "single_" : "", i, q, what),
                     sizeof out->name);
}

static bool own_names(const void *user, const char *canonical, struct net_source *out)
{
    static const char ours[] = "_norm.weight", theirs[] = "_norm.scale";
    size_t n = strlen(canonical);
    (void)user;
    *out = (struct net_source) { .rows = 0 };
    return str_ends(canonical, n, ours) &&
           fits(snprintf(out->name, sizeof out->name, "%.*s%s", (int)(n - strlen(ours)), canonical,
                         theirs),
                sizeof out->name);
}

net_names_fn *flux_names(const struct flux_net *f)
{
    return f->diffusers ? diffusers_names : own_names;
}
