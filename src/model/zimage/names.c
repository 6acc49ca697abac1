/* What files call the layers of Z-Image and Lumina2.
 *
 * The forward asks for the names of their authors' files, with one exception: pad tokens are
 * tensors of their own, not a layer's weight, so "x_pad_token.weight" is "x_pad_token" in files.
 * Diffusers keeps apart what is one tensor here, so the parts have names of their own:
 * "attention.qkv" is "attention.q", ".k", ".v". */
#include "model/zimage/zimage.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

const struct zimage_name zimage_once_names[] = {
    { .theirs = "all_x_embedder.2-1", .layer = "x_embedder" },
    { .theirs = "all_final_layer.2-1.linear", .layer = "final_layer.linear" },
    { .theirs = "all_final_layer.2-1.adaLN_modulation.1",
      .layer = "final_layer.adaLN_modulation.1" },
    { 0 },
};

#define ROWS(theirs_, layer_, part_)                                                               \
    {                                                                                              \
        .theirs = theirs_, .layer = layer_, .in = "attention.qkv", .part = part_                   \
    }
const struct zimage_name zimage_block_names[] = {
    ROWS("attention.to_q", "attention.q", ZIMAGE_Q),
    ROWS("attention.to_k", "attention.k", ZIMAGE_K),
    ROWS("attention.to_v", "attention.v", ZIMAGE_V),
    { .theirs = "attention.norm_q", .layer = "attention.q_norm" },
    { .theirs = "attention.norm_k", .layer = "attention.k_norm" },
    { .theirs = "attention.to_out.0", .layer = "attention.out" },
    { 0 },
};

const char *const zimage_lists[] = { "layers",
                                     "noise_refiner",
                                     "context_refiner",
                                     "siglip_refiner",
                                     "control_layers",
                                     "control_noise_refiner",
                                     NULL };

void zimage_rows(const struct zimage_net *f, unsigned part, uint64_t *row, uint64_t *rows)
{
    const uint64_t q = (uint64_t)f->heads * f->head_dim, k = (uint64_t)f->kv_heads * f->head_dim;
    *row = part == ZIMAGE_Q ? 0 : part == ZIMAGE_K ? q : q + k;
    *rows = part == ZIMAGE_Q ? q : k;
}

static const char *find(const struct zimage_name *list, const char *layer, size_t n)
{
    for (; list->layer; list++)
        if (strlen(list->layer) == n && !memcmp(list->layer, layer, n))
            return list->theirs;
    return NULL;
}

/* "<layer>.<what>": the layer is translated, what stays. */
static bool diffusers_name(const char *canonical, struct net_source *out)
{
    const char *what = strrchr(canonical, '.'), *q;
    unsigned i;
    if (!what)
        return false;
    if ((q = find(zimage_once_names, canonical, (size_t)(what - canonical))))
        return name_print(out->name, sizeof out->name, "%s%s", q, what);
    for (const char *const *list = zimage_lists; *list; list++) {
        const char *in = canonical;
        if (!name_numbered(&in, *list, ZIMAGE_DEPTH_MAX, &i))
            continue;
        q = in < what ? find(zimage_block_names, in, (size_t)(what - in)) : NULL;
        return q && name_print(out->name, sizeof out->name, "%s.%u.%s%s", *list, i, q, what);
    }
    return false;
}

/* A pad token is one row, whether the file says so or has a vector. */
static bool pad_name(const struct zimage_net *f, const char *canonical, struct net_source *out)
{
    static const char token[] = "_pad_token", weight[] = ".weight";
    size_t n = strlen(canonical), tail = strlen(weight);
    if (!str_ends(canonical, n, weight) || !str_ends(canonical, n - tail, token))
        return false;
    out->as = (struct shape) { .ndim = 2, .dim = { 1, f->hidden } };
    return name_print(out->name, sizeof out->name, "%.*s", (int)(n - tail), canonical);
}

bool zimage_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct zimage_net *f = user;
    *out = (struct net_source) { .rows = 0 };
    return pad_name(f, canonical, out) || (f->diffusers && diffusers_name(canonical, out));
}
