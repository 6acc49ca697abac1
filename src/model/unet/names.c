/* What diffusers calls the layers of a UNet: read by nets of such files, and by adapters, whose
 * names they are (lora.c). */
#include "model/unet/unet.h"

#include "model/canonical.h"

#include <string.h>

#define NUMBER_MAX 1000 /* of blocks */

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

/* One part of a block: its module's number is the first digit of `in`. */
static bool module(char *q, size_t cap, const char *block, const char *in, unsigned j)
{
    if (!strncmp(in, "0.", 2)) {
        for (size_t i = 0; i < ARRAY_LEN(res_block); i++)
            if (!strcmp(in + 2, res_block[i].ours))
                return name_print(q, cap, "%s.resnets.%u.%s", block, j, res_block[i].theirs);
        return false;
    }
    return !strncmp(in, "1.", 2) && name_print(q, cap, "%s.attentions.%u.%s", block, j, in + 2);
}

bool unet_diffusers_name(const char *path, uint32_t res, char *q, size_t cap)
{
    char block[64];
    const char *in = path;
    unsigned n;
    for (size_t i = 0; i < ARRAY_LEN(whole); i++)
        if (!strcmp(path, whole[i].ours))
            return name_print(q, cap, "%s", whole[i].theirs);
    if (name_numbered(&in, "input_blocks", NUMBER_MAX, &n) && n > 0) {
        unsigned level = (n - 1) / (res + 1), j = (n - 1) % (res + 1);
        snprintf(block, sizeof block, "down_blocks.%u", level);
        if (j < res)
            return module(q, cap, block, in, j);
        return !strcmp(in, "0.op") && name_print(q, cap, "%s.downsamplers.0.conv", block);
    }
    if (name_numbered(&in, "output_blocks", NUMBER_MAX, &n)) {
        snprintf(block, sizeof block, "up_blocks.%u", n / (res + 1));
        if (!strcmp(in, "1.conv") || !strcmp(in, "2.conv"))
            return n % (res + 1) == res && name_print(q, cap, "%s.upsamplers.0.conv", block);
        return module(q, cap, block, in, n % (res + 1));
    }
    if (!name_numbered(&in, "middle_block", 3, &n))
        return false;
    char part[256]; /* the second res block is numbered like a first one for module() */
    return name_print(part, sizeof part, "%u.%s", n == 2 ? 0 : n, in) &&
           module(q, cap, "mid_block", part, n == 2);
}

/* "<layer>.<what>": the layer is translated, what stays. */
bool unet_diffusers_tensor(const void *user, const char *canonical, struct net_source *out)
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
    return name_print(out->name + at, sizeof out->name - at, "%s", what);
}

net_names_fn *unet_names(const struct unet_net *u)
{
    return u->diffusers ? unet_diffusers_tensor : NULL;
}
