/* Where a VAE's tensors are in its file: diffusers' names, and quant convolutions inside of the
 * halves. */
#include "model/vae_kl/vae_kl.h"

#include "model/canonical.h"

#include <string.h>

#define NUMBER_MAX (VAE_LEVELS_MAX * VAE_BLOCKS_MAX)

static bool middle_name(char *q, size_t cap, const char *half, const char *in)
{
    static const char *const word[][2] = { { "block_1.", "resnets.0." },
                                           { "block_2.", "resnets.1." },
                                           { "attn_1.norm.", "attentions.0.group_norm." },
                                           { "attn_1.q.", "attentions.0.to_q." },
                                           { "attn_1.k.", "attentions.0.to_k." },
                                           { "attn_1.v.", "attentions.0.to_v." },
                                           { "attn_1.proj_out.", "attentions.0.to_out.0." },
                                           { NULL } };
    const char *const *pair = name_pair(word, 0, &in);
    return pair && name_print(q, cap, "%s.mid_block.%s%s", half, pair[1], in);
}

/* The diffusers name of a tensor; false: it is the same. */
static bool diffusers(const struct vae_kl *v, const char *name, char *q, size_t cap)
{
    static const char *const shortcut[][2] = { { "nin_shortcut.", "conv_shortcut." }, { NULL } },
                             *const down[][2] = { { "downsample.", "downsamplers.0." }, { NULL } },
                             *const up[][2] = { { "upsample.", "upsamplers.0." }, { NULL } };
    bool enc = !strncmp(name, "encoder.", 8), dec = !strncmp(name, "decoder.", 8);
    const char *half = enc ? "encoder" : "decoder", *in = name + 8;
    unsigned level, j;
    if (!enc && !dec)
        return false;
    if (!strncmp(in, "norm_out.", 9))
        return name_print(q, cap, "%s.conv_norm_out.%s", half, in + 9);
    if (!strncmp(in, "mid.", 4))
        return middle_name(q, cap, half, in + 4);
    if (!name_numbered(&in, enc ? "down" : "up", NUMBER_MAX, &level) || level >= v->levels)
        return false;
    const char *block = enc ? "down_blocks" : "up_blocks";
    if (dec)
        level = v->levels - 1 - level;                 /* counted in the order they run */
    if (name_numbered(&in, "block", NUMBER_MAX, &j)) { /* only the shortcut has another name */
        const char *const *pair = name_pair(shortcut, 0, &in);
        return name_print(q, cap, "%s.%s.%u.resnets.%u.%s%s", half, block, level, j,
                          pair ? pair[1] : "", in);
    }
    const char *const *pair = name_pair(enc ? down : up, 0, &in);
    return pair && name_print(q, cap, "%s.%s.%u.%s%s", half, block, level, pair[1], in);
}

/* Old diffusers files call the attention's layers so. */
static void old_names(char *q, size_t cap)
{
    static const struct {
        const char *now, *then;
    } word[] = {
        { ".to_q.", ".query." },
        { ".to_k.", ".key." },
        { ".to_v.", ".value." },
        { ".to_out.0.", ".proj_attn." },
    };
    for (size_t i = 0; i < ARRAY_LEN(word); i++) {
        char *at = strstr(q, word[i].now), rest[32];
        if (!at)
            continue;
        snprintf(rest, sizeof rest, "%s", at + strlen(word[i].now));
        snprintf(at, cap - (size_t)(at - q), "%s%s", word[i].then, rest);
        return;
    }
}

/* A vector of the batch norm, as the one row of a table. */
static bool batch_norm(const struct vae_kl *v, const char *canonical, struct net_source *out)
{
    static const char *const word[][2] = { { VAE_MEAN ".weight", VAE_MEAN },
                                           { VAE_VARIANCE ".weight", VAE_VARIANCE },
                                           { NULL } };
    const char *const *pair = v->packed ? name_pair(word, 0, &canonical) : NULL;
    if (!pair)
        return false;
    out->as = (struct shape) { 2, { 1, (uint64_t)v->channels * VAE_PACKED * VAE_PACKED } };
    return name_print(out->name, sizeof out->name, "%s", pair[1]);
}

static bool names(const void *user, const char *canonical, struct net_source *out)
{
    const struct vae_kl *v = vae_kl_in(user);
    *out = (struct net_source) { .rows = 0 };
    if (batch_norm(v, canonical, out))
        return true;
    if (v->nested_quant &&
        (!strncmp(canonical, "quant_conv.", 11) || !strncmp(canonical, "post_quant_conv.", 16)))
        return name_print(out->name, sizeof out->name, "%s.%s",
                          canonical[0] == 'q' ? "encoder" : "decoder", canonical);
    if (!v->diffusers || !diffusers(v, canonical, out->name, sizeof out->name))
        return false;
    if (v->old_attention)
        old_names(out->name, sizeof out->name);
    return true;
}

net_names_fn *vae_kl_names(const struct vae_net *v)
{
    const struct vae_kl *kl = vae_kl_in(v);
    return kl->diffusers || kl->nested_quant || kl->packed ? names : NULL;
}
