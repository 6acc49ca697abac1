/* lora_names_unet: the diffusers names of an SD1.x or SDXL UNet.
 *
 * With R res blocks per level: input block 1 + (R+1) * level + j is down_blocks.level, its j-th res
 * block, or the downsampler when j is R; output block (R+1) * level + j is up_blocks.level. */
#include "model/lora_names_impl.h"

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
    { "label_emb.0.0", "class_embedding.linear_1" },
    { "label_emb.0.2", "class_embedding.linear_2" },
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
    *number = (unsigned)v;
    *rest = end + 1;
    return v < 1000 && *end == '.';
}

/* One part of a block: its module's number is the first digit of `in`. */
static bool module(char *q, const char *block, const char *in, unsigned j)
{
    if (!strncmp(in, "0.", 2)) {
        for (size_t i = 0; i < ARRAY_LEN(res_block); i++)
            if (!strcmp(in + 2, res_block[i].ours))
                return snprintf(q, LORA_NAME_MAX, "%s.resnets.%u.%s", block, j,
                                res_block[i].theirs) < LORA_NAME_MAX;
        return false;
    }
    return !strncmp(in, "1.", 2) &&
           snprintf(q, LORA_NAME_MAX, "%s.attentions.%u.%s", block, j, in + 2) < LORA_NAME_MAX;
}

/* The diffusers name of a path, in q. False: it has none here. */
static bool diffusers(const char *path, unsigned res, char *q)
{
    char block[64];
    const char *in;
    unsigned n;
    if (numbered(path, "input_blocks", &n, &in) && n > 0) {
        unsigned level = (n - 1) / (res + 1), j = (n - 1) % (res + 1);
        snprintf(block, sizeof block, "down_blocks.%u", level);
        if (j < res)
            return module(q, block, in, j);
        return !strcmp(in, "0.op") &&
               snprintf(q, LORA_NAME_MAX, "%s.downsamplers.0.conv", block) < LORA_NAME_MAX;
    }
    if (numbered(path, "output_blocks", &n, &in)) {
        snprintf(block, sizeof block, "up_blocks.%u", n / (res + 1));
        if (!strcmp(in, "1.conv") || !strcmp(in, "2.conv"))
            return snprintf(q, LORA_NAME_MAX, "%s.upsamplers.0.conv", block) < LORA_NAME_MAX;
        return module(q, block, in, n % (res + 1));
    }
    if (!numbered(path, "middle_block", &n, &in) || n > 2)
        return false;
    in = path + strlen("middle_block.");
    if (n == 2) { /* the second res block, numbered like a first one for module() */
        char second[LORA_NAME_MAX];
        snprintf(second, sizeof second, "0.%s", in + 2);
        return module(q, "mid_block", second, 1);
    }
    return module(q, "mid_block", in, 0);
}

static void add(struct lora_table *t, const char *q, const char *name)
{
    const struct lora_meant all = { .name = name };
    struct str p = { 0 };
    lora_add(t, "lora_unet_", q, true, &all);
    lora_add(t, "lycoris_", q, true, &all);
    for (const char *s = q; *s; s++) { /* .to_ -> .processor.to_ */
        if (!strncmp(s, ".to_", 4))
            str_adds(&p, ".processor");
        str_addc(&p, *s);
    }
    if (str_ends(str_c(&p), p.n, ".to_out.0") && !p.bad)
        p.p[p.n - 2] = '\0';
    t->bad |= p.bad;
    lora_add(t, "", str_c(&p), false, &all);
    lora_add(t, "unet.", str_c(&p), false, &all);
    str_release(&p);
}

void lora_unet(struct lora_table *t, const struct weights *w, const char *prefix)
{
    char path[LORA_NAME_MAX], q[LORA_NAME_MAX];
    unsigned res = 2;
    if (!lora_find(w, prefix, "input_blocks.0.0.weight") || !lora_find(w, prefix, "out.2.weight"))
        return;
    for (unsigned i = 1; i < 16; i++) /* the first downsampler stands behind the first level */
        if (lora_find(w, prefix, "input_blocks.%u.0.op.weight", i)) {
            res = i - 1;
            break;
        }
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!lora_path(e, prefix, path))
            continue;
        for (size_t k = 0; k < ARRAY_LEN(whole); k++)
            if (!strcmp(path, whole[k].ours))
                add(t, whole[k].theirs, e->name);
        if (diffusers(path, res, q))
            add(t, q, e->name);
    }
}
