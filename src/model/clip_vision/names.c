/* names.c: tensors by transformers' names, whatever the file calls them. */
#include "model/clip_vision/clip_vision.h"

#include "model/canonical.h"

#include <string.h>

#define NUMBER_MAX 1000000000 /* of layers */

const char *clip_vision_list(bool openclip)
{
    return openclip ? "visual.transformer.resblocks" : "vision_model.encoder.layers";
}

/* The three of q, k and v are rows of one. */
static bool rename_layer(const char *canonical, uint64_t width, struct net_source *out)
{
    static const char *const list[][2] = {
        { "layer_norm1.", "ln_1." },
        { "layer_norm2.", "ln_2." },
        { "self_attn.out_proj.", "attn.out_proj." },
        { "mlp.fc1.", "mlp.c_fc." },
        { "mlp.fc2.", "mlp.c_proj." },
        { "self_attn.q_proj.", "attn.in_proj_" },
        { "self_attn.k_proj.", "attn.in_proj_" },
        { "self_attn.v_proj.", "attn.in_proj_" },
        { NULL },
    };
    const char *const *pair;
    unsigned n;
    if (!name_numbered(&canonical, clip_vision_list(false), NUMBER_MAX, &n) ||
        !(pair = name_pair(list, 0, &canonical)))
        return false;
    for (size_t i = 0; i < 3; i++)
        if (pair == list[ARRAY_LEN(list) - 4 + i]) {
            out->row = i * width;
            out->rows = width;
        }
    return name_print(out->name, sizeof out->name, "%s.%u.%s%s", clip_vision_list(true), n, pair[1],
                      canonical);
}

static bool rename_openclip(const char *canonical, uint64_t width, struct net_source *out)
{
    static const char *const list[][2] = {
        { "vision_model.embeddings.patch_embedding.", "conv1." },
        { "vision_model.embeddings.class_embedding.weight", "class_embedding" },
        { "vision_model.embeddings.position_embedding.weight", "positional_embedding" },
        { "vision_model.pre_layrnorm.", "ln_pre." },
        { "vision_model.post_layernorm.", "ln_post." },
        { "visual_projection.weight", "proj" },
        { NULL },
    };
    const char *rest = canonical, *const *pair = name_pair(list, 0, &rest);
    if (!pair)
        return rename_layer(canonical, width, out);
    out->transpose = !strcmp(pair[1], "proj"); /* a parameter, multiplied from the right */
    return name_print(out->name, sizeof out->name, "visual.%s%s", pair[1], rest);
}

bool clip_vision_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct vision_net *v = user;
    const bool class = !strcmp(canonical, "vision_model.embeddings.class_embedding.weight");
    bool other = false;
    *out = (struct net_source) { .row = 0 };
    if (clip_vision_of(v)->openclip)
        other = rename_openclip(canonical, v->width, out);
    else if (class) /* a parameter of its own */
        other = name_print(out->name, sizeof out->name, "vision_model.embeddings.class_embedding");
    if (class) /* looked up, as the only row of a table */
        out->as = (struct shape) { 2, { 1, v->width } };
    if (strcmp(canonical, "vision_model.embeddings.patch_embedding.weight") != 0)
        return other;
    /* A patch is multiplied as a row of numbers, whatever its sides. */
    out->as = (struct shape) { 2, { v->width, 3 * (uint64_t)v->patch * v->patch } };
    return other || name_print(out->name, sizeof out->name, "%s", canonical);
}
