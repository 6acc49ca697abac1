/* What files call the layers of Wan.
 *
 * The forward asks for the names of its authors' files, with these exceptions: patches are rows of
 * a matrix, where files have filters; and what is added to modulations, and positions of pictures,
 * is rows to look up, where files have tensors of their own without ".weight". diffusers calls most
 * of it otherwise; norm2 and norm3 change places. */
#include "model/wan/wan.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

#define BLOCKS "blocks"

/* Ours and diffusers', outside of blocks and behind the number of one. */
static const char *const whole[][2] = {
    { "time_embedding.0.", "condition_embedder.time_embedder.linear_1." },
    { "time_embedding.2.", "condition_embedder.time_embedder.linear_2." },
    { "time_projection.1.", "condition_embedder.time_proj." },
    { "text_embedding.0.", "condition_embedder.text_embedder.linear_1." },
    { "text_embedding.2.", "condition_embedder.text_embedder.linear_2." },
    { "img_emb.proj.0.", "condition_embedder.image_embedder.norm1." },
    { "img_emb.proj.1.", "condition_embedder.image_embedder.ff.net.0.proj." },
    { "img_emb.proj.3.", "condition_embedder.image_embedder.ff.net.2." },
    { "img_emb.proj.4.", "condition_embedder.image_embedder.norm2." },
    { "img_emb.emb_pos.", "condition_embedder.image_embedder.pos_embed." },
    { "head.head.", "proj_out." },
    { "head.modulation.", "scale_shift_table." },
    { NULL },
};
static const char *const in_block[][2] = {
    { "self_attn.q.", "attn1.to_q." },
    { "self_attn.k.", "attn1.to_k." },
    { "self_attn.v.", "attn1.to_v." },
    { "self_attn.o.", "attn1.to_out.0." },
    { "self_attn.norm_q.", "attn1.norm_q." },
    { "self_attn.norm_k.", "attn1.norm_k." },
    { "cross_attn.q.", "attn2.to_q." },
    { "cross_attn.k.", "attn2.to_k." },
    { "cross_attn.v.", "attn2.to_v." },
    { "cross_attn.o.", "attn2.to_out.0." },
    { "cross_attn.norm_q.", "attn2.norm_q." },
    { "cross_attn.norm_k.", "attn2.norm_k." },
    { "cross_attn.k_img.", "attn2.add_k_proj." },
    { "cross_attn.v_img.", "attn2.add_v_proj." },
    { "cross_attn.norm_k_img.", "attn2.norm_added_k." },
    { "norm3.", "norm2." },
    { "ffn.0.", "ffn.net.0.proj." },
    { "ffn.2.", "ffn.net.2." },
    { "modulation.", "scale_shift_table." },
    { NULL },
};

static bool rename_it(const char *name, char *out, size_t cap)
{
    const char *const *pair = name_pair(whole, 0, &name);
    unsigned n;
    if (pair)
        return name_print(out, cap, "%s%s", pair[1], name);
    return name_numbered(&name, BLOCKS, WAN_DEPTH_MAX, &n) &&
           (pair = name_pair(in_block, 0, &name)) &&
           name_print(out, cap, BLOCKS ".%u.%s%s", n, pair[1], name);
}

bool wan_diffusers_path(const char *path, char *out, size_t n)
{
    char name[256];
    if (!name_print(name, sizeof name, "%s.", path) || !rename_it(name, out, n))
        return false;
    out[strlen(out) - 1] = '\0'; /* the dot */
    return true;
}

/* Tensors without ".weight", and the rows that they are to us. */
static bool bare(const struct wan_net *f, const char *layer, size_t n, struct shape *as)
{
    if (n == strlen("head.modulation") && str_ends(layer, n, "head.modulation"))
        *as = (struct shape) { .ndim = 2, .dim = { 2, f->hidden } };
    else if (str_ends(layer, n, ".modulation"))
        *as = (struct shape) { .ndim = 2, .dim = { 1, 6 * f->hidden } };
    else if (str_ends(layer, n, "img_emb.emb_pos"))
        *as = (struct shape) { .ndim = 2, .dim = { f->seen_most, WAN_SEEN_WIDTH } };
    else
        return false;
    return true;
}

static bool patches(const struct wan_net *f, const char *layer, struct shape *as)
{
    const uint64_t pixels = WAN_PATCH * WAN_PATCH;
    if (!strcmp(layer, "patch_embedding.weight"))
        *as = (struct shape) { .ndim = 2, .dim = { f->hidden, f->in_channels * pixels } };
    else if (!strcmp(layer, "vace_patch_embedding.weight"))
        *as = (struct shape) { .ndim = 2, .dim = { f->hidden, f->vace_channels * pixels } };
    else if (!strcmp(layer, "control_adapter.conv.weight"))
        *as =
            (struct shape) { .ndim = 2,
                             .dim = { f->hidden, f->camera * WAN_CAMERA_SIDE * WAN_CAMERA_SIDE } };
    else if (!strcmp(layer, "ref_conv.weight"))
        *as = (struct shape) { .ndim = 2, .dim = { f->hidden, f->ref_channels * pixels } };
    else
        return false;
    return true;
}

bool wan_names(const void *user, const char *canonical, struct net_source *out)
{
    static const char weight[] = ".weight";
    const struct wan_net *f = user;
    const size_t all = strlen(canonical), n = all - strlen(weight);
    char other[192];
    *out = (struct net_source) { .rows = 0 };
    if (patches(f, canonical, &out->as))
        return name_print(out->name, sizeof out->name, "%s", canonical);
    const bool renamed = f->diffusers && rename_it(canonical, other, sizeof other);
    const char *name = renamed ? other : canonical;
    if (str_ends(canonical, all, weight) && bare(f, canonical, n, &out->as))
        return name_print(out->name, sizeof out->name, "%.*s", (int)(strlen(name) - strlen(weight)),
                          name);
    return renamed && name_print(out->name, sizeof out->name, "%s", name);
}
