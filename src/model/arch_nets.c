/* arch_nets: which networks stand where in a file, and what ComfyUI calls their tensors.
 *
 * A key is "<known><name behind the root>": diffusion_model.out.2.weight, whether the file is a
 * checkpoint or the UNet alone. Adapters find tensors by keys, and a key seeds the draws that fp8
 * is rounded by. Weights that ComfyUI takes apart when it loads them (OpenCLIP's stacked q, k, v)
 * have one key here where it has three. */
#include "model/arch.h"

#include "model/lora_names.h"

#include "base/str.h"

#include <string.h>

static const struct {
    uint64_t width;
    const char *word;
    unsigned te; /* G alone counts as the first, beside L as the second */
} clips[] = {
    { 768, "clip_l", LORA_TE | LORA_TE1 },
    { 1024, "clip_h", LORA_TE | LORA_TE1 },
    { 1280, "clip_g", LORA_TE | LORA_TE2 },
};

/* Numbers of the text encoder that stands there. */
static unsigned numbers_at(const struct net_place *p)
{
    if (strcmp(p->word, "t5xxl") == 0) /* beside CLIP-L alone it is Flux's second, or the third */
        return LORA_TE2 | LORA_TE3;
    if (strcmp(p->word, "clip_g") == 0 && !p->ask)
        return LORA_TE2;
    return LORA_TE | LORA_TE1;
}

/* Fills in what adapters and ComfyUI call the network; its root is in `net` and its family is
 * there. word: NULL of those that are no text encoders; by_width: the width says which it is, if it
 * is a known one. */
static void name_net(struct arch_net *net, const struct weights *w, const char *word, unsigned te,
                     bool by_width)
{
    bool clip = net->family == &arch_clip;
    uint64_t width = clip && by_width ? arch_clip_width(w, net->alias.root) : 0;
    net->te = te;
    for (size_t i = 0; i < ARRAY_LEN(clips); i++)
        if (width == clips[i].width) {
            word = clips[i].word;
            net->te = clips[i].te;
        }
    if (strcmp(net->family->role, "unet") == 0)
        snprintf(net->alias.known, sizeof net->alias.known, "diffusion_model.");
    else if (word)
        snprintf(net->alias.known, sizeof net->alias.known, "%s.transformer.%s", word,
                 clip && arch_clip_is_bare(w, net->alias.root) ? "text_model." : "");
    else
        net->alias.known[0] = '\0';
}

/* Is one of the two inside the other? */
static bool overlap(const char *part, const char *root)
{
    return str_starts(part, strlen(part), root) || str_starts(root, strlen(root), part);
}

/* The family of that role whose names begin right at the root. */
static const struct arch *family_at(const struct weights *w, const char *root, const char *role)
{
    for (size_t i = 0; i < arch_count(); i++) {
        const struct arch *a = arch_at(i);
        if (a->role && strcmp(a->role, role) == 0 && a->detect(w, root))
            return a;
    }
    return NULL;
}

static bool net_at(const struct weights *w, const char *part, const struct net_place *p,
                   struct arch_net *net)
{
    const char *root = place_root(p, net->alias.root);
    if (!overlap(part, root))
        return false;
    net->family = family_at(w, root, place_parts[p->part].role);
    if (!net->family)
        return false;
    name_net(net, w, p->word, p->word ? numbers_at(p) : 0, p->ask);
    return true;
}

/* A network in a file of its own, or at a place of its own. */
static bool net_alone(const struct weights *w, const char *part, struct arch_net *net)
{
    net->family = arch_detect(w, part);
    if (!net->family || net->family->holds_parts || !arch_is(net->family, w, part, net->alias.root))
        return false;
    name_net(net, w, net->family->word, net->family->te, true);
    return true;
}

size_t arch_nets(const struct weights *w, const char *part, struct arch_net out[ARCH_NETS_MAX])
{
    size_t n = 0;
    part = part ? part : "";
    if (place_count() > ARCH_NETS_MAX)
        BUG("%zu places", place_count());
    for (size_t i = 0; i < place_count(); i++)
        n += net_at(w, part, place_at(i), &out[n]);
    return n ? n : net_alone(w, part, &out[0]);
}

size_t arch_aliases(const struct weights *w, const char *part, struct block_alias *out, size_t cap)
{
    struct arch_net net[ARCH_NETS_MAX];
    size_t n = arch_nets(w, part, net);
    n = n < cap ? n : cap;
    for (size_t i = 0; i < n; i++)
        out[i] = net[i].alias;
    return n;
}
