/* names.c: CLIP's tensors by their HF names, whatever the file calls them (text-encoders.md 6,
 * Key layouts). */
#include "model/clip/clip.h"

#include "base/str.h"
#include "model/canonical.h"

#include <stdio.h>
#include <string.h>

#define LAYERS "text_model.encoder.layers."
#define NUMBER_MAX 1000000000 /* of layers */

static bool rename_openclip(uint64_t width, const char *canonical, struct net_source *out)
{
    static const char *const whole[][2] = {
        { "text_model.embeddings.token_embedding.", "token_embedding." },
        { "text_model.embeddings.position_embedding.weight", "positional_embedding" },
        { "text_model.final_layer_norm.", "ln_final." },
        { NULL },
    };
    static const char *const in_layer[][2] = {
        { "layer_norm1.", "ln_1." },
        { "layer_norm2.", "ln_2." },
        { "self_attn.out_proj.", "attn.out_proj." },
        { "mlp.fc1.", "mlp.c_fc." },
        { "mlp.fc2.", "mlp.c_proj." },
        { "self_attn.q_proj.", "attn.in_proj_" }, /* the three are rows of one */
        { "self_attn.k_proj.", "attn.in_proj_" },
        { "self_attn.v_proj.", "attn.in_proj_" },
        { NULL },
    };
    const char *const *pair = name_pair(whole, 0, &canonical);
    unsigned n;
    *out = (struct net_source) { .row = 0 };
    if (pair)
        return name_print(out->name, sizeof out->name, "%s%s", pair[1], canonical);
    if (!name_numbered(&canonical, "text_model.encoder.layers", NUMBER_MAX, &n) ||
        !(pair = name_pair(in_layer, 0, &canonical)))
        return false;
    for (size_t i = 0; i < 3; i++)
        if (pair == in_layer[ARRAY_LEN(in_layer) - 4 + i]) {
            out->row = i * width;
            out->rows = width;
        }
    return name_print(out->name, sizeof out->name, "transformer.resblocks.%u.%s%s", n, pair[1],
                      canonical);
}

bool clip_rename(enum clip_style style, bool bare_projection, uint64_t width, const char *canonical,
                 struct net_source *out)
{
    if (strcmp(canonical, "text_projection.weight") == 0) {
        *out = (struct net_source) { .name = "text_projection", .transpose = true };
        return bare_projection; /* a parameter, multiplied from the right: the other way round */
    }
    if (style == CLIP_OPENCLIP)
        return rename_openclip(width, canonical, out);
    if (style != CLIP_OLD || !str_starts(canonical, strlen(canonical), "text_model."))
        return false;
    *out = (struct net_source) { .row = 0 };
    snprintf(out->name, sizeof out->name, "%s", canonical + strlen("text_model."));
    return true;
}

bool clip_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct clip_net *c = user;
    return clip_rename(c->style, c->bare_projection, c->width, canonical, out);
}

const char *clip_list(enum clip_style style)
{
    return style == CLIP_HF    ? "text_model.encoder.layers"
           : style == CLIP_OLD ? "encoder.layers"
                               : "transformer.resblocks";
}

enum clip_style clip_style(const struct weights *w, const char *root)
{
    return arch_find(w, root, LAYERS "0.layer_norm1.weight")           ? CLIP_HF
           : arch_find(w, root, "encoder.layers.0.layer_norm1.weight") ? CLIP_OLD
           : arch_find(w, root, "transformer.resblocks.0.ln_1.weight") ? CLIP_OPENCLIP
                                                                       : CLIP_NONE;
}

const struct weights_entry *clip_entry(const struct weights *w, const char *root,
                                       enum clip_style style, const char *canonical)
{
    struct net_source from;
    bool other = clip_rename(style, false, 0, canonical, &from);
    const struct weights_entry *e = arch_find(w, root, other ? from.name : canonical);
    if (!e && clip_rename(style, true, 0, canonical, &from))
        e = arch_find(w, root, from.name);
    return e;
}
