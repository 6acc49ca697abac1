/* names.c: CLIP's tensors by their HF names, whatever the file calls them (text-encoders.md 6,
 * Key layouts). */
#include "base/str.h"
#include "model/clip/clip.h"

#include <stdio.h>
#include <string.h>

#define LAYERS "text_model.encoder.layers."

/* Behind "text_model.encoder.layers.<n digits at s>.". */
static bool rename_in_layer(const char *s, int digits, const char *rest, uint64_t width,
                            struct net_source *out)
{
    static const char *const word[][2] = {
        { "layer_norm1.", "ln_1." },
        { "layer_norm2.", "ln_2." },
        { "self_attn.out_proj.", "attn.out_proj." },
        { "mlp.fc1.", "mlp.c_fc." },
        { "mlp.fc2.", "mlp.c_proj." },
    };
    static const char *const qkv[] = { "self_attn.q_proj.", "self_attn.k_proj.",
                                       "self_attn.v_proj." };
    size_t n = strlen(rest);
    *out = (struct net_source) { .row = 0 };
    for (size_t i = 0; i < ARRAY_LEN(qkv); i++)
        if (str_starts(rest, n, qkv[i])) {
            snprintf(out->name, sizeof out->name, "transformer.resblocks.%.*s.attn.in_proj_%s",
                     digits, s, rest + strlen(qkv[i]));
            out->row = i * width;
            out->rows = width;
            return true;
        }
    for (size_t i = 0; i < ARRAY_LEN(word); i++)
        if (str_starts(rest, n, word[i][0])) {
            snprintf(out->name, sizeof out->name, "transformer.resblocks.%.*s.%s%s", digits, s,
                     word[i][1], rest + strlen(word[i][0]));
            return true;
        }
    return false;
}

static bool rename_openclip(uint64_t width, const char *canonical, struct net_source *out)
{
    static const char *const whole[][2] = {
        { "text_model.embeddings.token_embedding.weight", "token_embedding.weight" },
        { "text_model.embeddings.position_embedding.weight", "positional_embedding" },
        { "text_model.final_layer_norm.weight", "ln_final.weight" },
        { "text_model.final_layer_norm.bias", "ln_final.bias" },
    };
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        if (strcmp(canonical, whole[i][0]) == 0) {
            *out = (struct net_source) { .row = 0 };
            snprintf(out->name, sizeof out->name, "%s", whole[i][1]);
            return true;
        }
    if (!str_starts(canonical, strlen(canonical), LAYERS))
        return false;
    const char *s = canonical + strlen(LAYERS), *dot = strchr(s, '.');
    return dot && dot - s < 10 && rename_in_layer(s, (int)(dot - s), dot + 1, width, out);
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
