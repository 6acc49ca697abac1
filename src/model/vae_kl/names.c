/* Where a VAE's tensors are in its file: diffusers' names, and quant convolutions inside of the
 * halves. */
#include "model/vae_kl/vae_kl.h"

#include <stdlib.h>
#include <string.h>

static bool fits(int n, size_t cap)
{
    return n > 0 && (size_t)n < cap;
}

/* "<word><number>." at the start of *s; on behind it. */
static bool numbered(const char **s, const char *word, unsigned *number)
{
    size_t n = strlen(word);
    if (strncmp(*s, word, n) != 0 || (*s)[n] < '0' || (*s)[n] > '9')
        return false;
    char *end;
    unsigned long v = strtoul(*s + n, &end, 10);
    if (v >= VAE_LEVELS_MAX * VAE_BLOCKS_MAX || *end != '.')
        return false;
    *number = (unsigned)v;
    *s = end + 1;
    return true;
}

/* In a res block: only the shortcut has another name. */
static bool res_name(char *q, size_t cap, const char *half, const char *block, unsigned level,
                     unsigned j, const char *in)
{
    static const char shortcut[] = "nin_shortcut.";
    const char *lead = "";
    if (!strncmp(in, shortcut, sizeof shortcut - 1)) {
        lead = "conv_shortcut.";
        in += sizeof shortcut - 1;
    }
    return fits(snprintf(q, cap, "%s.%s.%u.resnets.%u.%s%s", half, block, level, j, lead, in), cap);
}

static bool middle_name(char *q, size_t cap, const char *half, const char *in)
{
    static const struct {
        const char *ours, *theirs;
    } word[] = {
        { "norm.", "group_norm." },   { "q.", "to_q." }, { "k.", "to_k." }, { "v.", "to_v." },
        { "proj_out.", "to_out.0." },
    };
    if (!strncmp(in, "block_", 6) && (in[6] == '1' || in[6] == '2') && in[7] == '.')
        return fits(snprintf(q, cap, "%s.mid_block.resnets.%c.%s", half, in[6] - 1, in + 8), cap);
    if (strncmp(in, "attn_1.", 7) != 0)
        return false;
    for (size_t i = 0; i < ARRAY_LEN(word); i++)
        if (!strncmp(in + 7, word[i].ours, strlen(word[i].ours)))
            return fits(snprintf(q, cap, "%s.mid_block.attentions.0.%s%s", half, word[i].theirs,
                                 in + 7 + strlen(word[i].ours)),
                        cap);
    return false;
}

/* The diffusers name of a tensor; false: it is the same. */
static bool diffusers(const struct vae_kl *v, const char *name, char *q, size_t cap)
{
    bool enc = !strncmp(name, "encoder.", 8), dec = !strncmp(name, "decoder.", 8);
    const char *half = enc ? "encoder" : "decoder", *in = name + 8;
    unsigned level, j;
    if (!enc && !dec)
        return false;
    if (!strncmp(in, "norm_out.", 9))
        return fits(snprintf(q, cap, "%s.conv_norm_out.%s", half, in + 9), cap);
    if (!strncmp(in, "mid.", 4))
        return middle_name(q, cap, half, in + 4);
    if (!numbered(&in, enc ? "down." : "up.", &level) || level >= v->levels)
        return false;
    const char *block = enc ? "down_blocks" : "up_blocks";
    if (dec)
        level = v->levels - 1 - level; /* counted in the order they run */
    if (numbered(&in, "block.", &j))
        return res_name(q, cap, half, block, level, j, in);
    const char *ours = enc ? "downsample." : "upsample.";
    return !strncmp(in, ours, strlen(ours)) &&
           fits(snprintf(q, cap, "%s.%s.%u.%ss.0.%s", half, block, level,
                         enc ? "downsampler" : "upsampler", in + strlen(ours)),
                cap);
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

static bool names(const void *user, const char *canonical, struct net_source *out)
{
    const struct vae_kl *v = vae_kl_in(user);
    *out = (struct net_source) { .rows = 0 };
    if (v->nested_quant &&
        (!strncmp(canonical, "quant_conv.", 11) || !strncmp(canonical, "post_quant_conv.", 16)))
        return fits(snprintf(out->name, sizeof out->name, "%s.%s",
                             canonical[0] == 'q' ? "encoder" : "decoder", canonical),
                    sizeof out->name);
    if (!v->diffusers || !diffusers(v, canonical, out->name, sizeof out->name))
        return false;
    if (v->old_attention)
        old_names(out->name, sizeof out->name);
    return true;
}

net_names_fn *vae_kl_names(const struct vae_net *v)
{
    return vae_kl_in(v)->diffusers || vae_kl_in(v)->nested_quant ? names : NULL;
}
