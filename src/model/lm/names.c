/* names.c: the decoder's tensors by ComfyUI's names, whatever the file calls them
 * (llm-encoders.md 1.6, formats.md). */
#include "model/lm/lm.h"

#include "base/str.h"
#include "model/canonical.h"

#include <stdio.h>
#include <string.h>

#define NUMBER_MAX 1000000000 /* of layers */

/* Ours and llama.cpp's; behind the number of a layer, and of all else. Those that another one
 * begins with come behind it. */
static const char *const in_layer[][2] = {
    { "self_attn.q_norm.", "attn_q_norm." }, { "self_attn.k_norm.", "attn_k_norm." },
    { "self_attn.q_proj.", "attn_q." },      { "self_attn.k_proj.", "attn_k." },
    { "self_attn.v_proj.", "attn_v." },      { "self_attn.o_proj.", "attn_output." },
    { "input_layernorm.", "attn_norm." },    { "post_attention_layernorm.", "ffn_norm." },
    { "mlp.gate_proj.", "ffn_gate." },       { "mlp.up_proj.", "ffn_up." },
    { "mlp.down_proj.", "ffn_down." },       { NULL },
};
static const char *const whole[][2] = {
    { "model.embed_tokens.", "token_embd." },
    { "model.norm.", "output_norm." },
    { "model.lm_head.", "output." },
    { NULL },
};

const char *lm_list(enum lm_style style)
{
    return style == LM_GGUF     ? "blk"
           : style == LM_NESTED ? "model.language_model.layers"
                                : "model.layers";
}

/* A name of one side as the other has it (0 ours, 1 llama.cpp's). False: called so in both. */
static bool rename_gguf(int to, const char *name, char *out, size_t cap)
{
    static const char *const list[] = { "model.layers", "blk" };
    const char *const *pair = name_pair(whole, !to, &name);
    unsigned n;
    if (pair)
        return name_print(out, cap, "%s%s", pair[to], name);
    return name_numbered(&name, list[!to], NUMBER_MAX, &n) &&
           (pair = name_pair(in_layer, !to, &name)) &&
           name_print(out, cap, "%s.%u.%s%s", list[to], n, pair[to], name);
}

/* As `from` at the front becomes `to`. */
static bool lead(const char *name, const char *from, const char *to, char *out, size_t cap)
{
    return str_starts(name, strlen(name), from) &&
           name_print(out, cap, "%s%s", to, name + strlen(from));
}

bool lm_rename(enum lm_style style, const char *canonical, struct net_source *out)
{
    char *to = out->name;
    const size_t cap = sizeof out->name;
    *out = (struct net_source) { .row = 0 };
    if (style == LM_GGUF)
        return rename_gguf(1, canonical, to, cap);
    if (lead(canonical, "model.lm_head.", "lm_head.", to, cap))
        return true;
    return style == LM_NESTED && (lead(canonical, "visual.", "model.visual.", to, cap) ||
                                  lead(canonical, "model.", "model.language_model.", to, cap));
}

/* A patch is multiplied as a row of numbers, whatever its sides. */
static bool is_patches(const struct lm_net *c, const char *canonical, struct net_source *out)
{
    const uint64_t p = c->sight.patch;
    if (strcmp(canonical, "visual.patch_embed.proj.weight") != 0)
        return false;
    if (!lm_rename(c->style, canonical, out))
        snprintf(out->name, sizeof out->name, "%s", canonical);
    out->as = (struct shape) { .ndim = 2, .dim = { c->sight.width, 3 * 2 * p * p } };
    return true;
}

/* Weights of a layer with a memory, each as one row; two are no layer's but tensors. */
static bool is_delta(const struct lm_net *c, const char *canonical, struct net_source *out)
{
    static const char *const name[] = { ".linear_attn.conv1d.weight", ".linear_attn.norm.weight",
                                        ".linear_attn.dt_bias.weight",
                                        ".linear_attn.A_log.weight" };
    const struct lm_delta_net *d = &c->delta;
    const uint64_t width = (uint64_t)d->heads + 2 * (uint64_t)d->key_heads;
    const uint64_t n[] = { width * d->head_dim * d->kernel, d->head_dim, d->heads, d->heads };
    const size_t len = strlen(canonical);
    size_t i = 0;
    while (i < ARRAY_LEN(name) && !str_ends(canonical, len, name[i]))
        i++;
    if (!d->heads || i == ARRAY_LEN(name))
        return false;
    if (!lm_rename(c->style, canonical, out))
        snprintf(out->name, sizeof out->name, "%s", canonical);
    if (i >= 2)
        out->name[strlen(out->name) - strlen(".weight")] = '\0';
    out->as = (struct shape) { .ndim = 2, .dim = { 1, n[i] } };
    return true;
}

bool lm_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct lm_net *c = user;
    if (c->head_inside && strcmp(canonical, "model.lm_head.weight") == 0)
        return false;
    return is_patches(c, canonical, out) || is_delta(c, canonical, out) ||
           lm_rename(c->style, canonical, out);
}

bool lm_hf_path(enum lm_style style, const char *path, char *out, size_t n)
{
    char name[256];
    if (!name_print(name, sizeof name, "%s.", path))
        return false;
    bool other = style == LM_GGUF ? rename_gguf(0, name, out, n)
                                  : lead(name, "lm_head.", "model.lm_head.", out, n) ||
                                        lead(name, "model.language_model.", "model.", out, n) ||
                                        lead(name, "model.visual.", "visual.", out, n);
    if (other)
        out[strlen(out) - 1] = '\0'; /* the dot */
    return other;
}
