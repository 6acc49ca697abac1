/* What diffusers calls the layers of a UNet: read by nets of such files, and by adapters, whose
 * names they are (lora_names_unet.c). */
#include "model/unet/unet.h"

#include <stdlib.h>
#include <string.h>

struct pair {
    const char *ours, *theirs;
};

static const struct pair whole[] = {
    { "input_blocks.0.0", "conv_in" },
    { "out.0", "conv_norm_out" },
    { "out.2", "conv_out" },
    { "time_embed.0", "time_embedding.linear_1" },
    { "time_embed.2", "time_embedding.linear_2" },
    { "label_emb.0.0", "add_embedding.linear_1" },
    { "label_emb.0.2", "add_embedding.linear_2" },
};

static const struct pair res_block[] = {
    { "in_layers.0", "norm1" },          { "in_layers.2", "conv1" },
    { "emb_layers.1", "time_emb_proj" }, { "out_layers.0", "norm2" },
    { "out_layers.3", "conv2" },         { "skip_connection", "conv_shortcut" },
};

/* "<word>.<number>." at the start of s: the number, and *rest behind it. False: something else. */
static bool numbered(const char *s, const char *word, unsigned *number, const char **rest)
{
    size_t n = strlen(word);
    if (strncmp(s, word, n) != 0 || s[n] != '.' || s[n + 1] < '0' || s[n + 1] > '9')
        return false;
    char *end;
    unsigned long v = strtoul(s + n + 1, &end, 10);
    if (v >= 1000 || *end != '.')
        return false;
    *number = (unsigned)v;
    *rest = end + 1;
    return true;
}

static bool fits(int n, size_t cap)
{
    return n > 0 && (size_t)n < cap;
}

/* One part of a block: its module's number is the first digit of `in`. */
static bool module(char *q, size_t cap, const char *block, const char *in, unsigned j)
{
    if (!strncmp(in, "0.", 2)) {
        for (size_t i = 0; i < ARRAY_LEN(res_block); i++)
            if (!strcmp(in + 2, res_block[i].ours))
                return fits(snprintf(q, cap, "%s.resnets.%u.%s", block, j, res_block[i].theirs),
                            cap);
        return false;
    }
    return !strncmp(in, "1.", 2) &&
           fits(snprintf(q, cap, "%s.attentions.%u.%s", block, j, in + 2), cap);
}

bool unet_diffusers_name(const char *path, uint32_t res, char *q, size_t cap)
{
    char block[64];
    const char *in;
    unsigned n;
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        if (!strcmp(path, whole[i].ours))
            return fits(snprintf(q, cap, "%s", whole[i].theirs), cap);
    if (numbered(path, "input_blocks", &n, &in) && n > 0) {
        unsigned level = (n - 1) / (res + 1), j = (n - 1) % (res + 1);
        snprintf(block, sizeof block, "down_blocks.%u", level);
        if (j < res)
            return module(q, cap, block, in, j);
        return !strcmp(in, "0.op") && fits(snprintf(q, cap, "%s.downsamplers.0.conv", block), cap);
    }
    if (numbered(path, "output_blocks", &n, &in)) {
        snprintf(block, sizeof block, "up_blocks.%u", n / (res + 1));
        if (!strcmp(in, "1.conv") || !strcmp(in, "2.conv"))
            return n % (res + 1) == res &&
                   fits(snprintf(q, cap, "%s.upsamplers.0.conv", block), cap);
        return module(q, cap, block, in, n % (res + 1));
    }
    if (!numbered(path, "middle_block", &n, &in) || n > 2)
        return false;
    in = path + strlen("middle_block.");
    if (n == 2) { /* the second res block, numbered like a first one for module() */
        char second[256];
        return fits(snprintf(second, sizeof second, "0.%s", in + 2), sizeof second) &&
               module(q, cap, "mid_block", second, 1);
    }
    return module(q, cap, "mid_block", in, 0);
}

/* "<layer>.<what>": the layer is translated, what stays. */
static bool names(const void *user, const char *canonical, struct net_source *out)
{
    const struct unet_net *u = user;
    char layer[sizeof out->name];
    const char *what = strrchr(canonical, '.');
    size_t n = what ? (size_t)(what - canonical) : sizeof layer;
    *out = (struct net_source) { .rows = 0 };
    if (n >= sizeof layer)
        return false;
    memcpy(layer, canonical, n);
    layer[n] = '\0';
    if (!unet_diffusers_name(layer, u->res[0], out->name, sizeof out->name))
        return false;
    size_t at = strlen(out->name);
    return fits(snprintf(out->name + at, sizeof out->name - at, "%s", what), sizeof out->name - at);
}

net_names_fn *unet_names(const struct unet_net *u)
{
    return u->diffusers ? names : NULL;
}
