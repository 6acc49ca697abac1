/* arch_nets: where the networks of a file stand, and what ComfyUI calls their tensors.
 *
 * A key is "<known><name behind the root>": diffusion_model.out.2.weight, whether the file is a
 * checkpoint or the UNet alone. Adapters find tensors by keys, and fp8 is rounded by draws that a key
 * seeds. Weights that ComfyUI takes apart when it loads them (OpenCLIP's stacked q, k, v) have one key
 * here where it has three. */
#include "model/arch.h"

#include "model/lora_names.h"

#include "base/str.h"

#define CLIP_L (LORA_TE | LORA_TE1)

static const struct place {
    const char *root;
    const struct arch *family; /* NULL: the diffusion model, whichever it is */
    const char *word;          /* ComfyUI's for the text encoder, before ".transformer." */
    unsigned te;
    bool any_width; /* the width says which it is, if it is a known one */
} places[] = {
    { "cond_stage_model.transformer.", &arch_clip, "clip_l", CLIP_L, false },        /* SD1 */
    { "cond_stage_model.model.", &arch_clip, "clip_h", CLIP_L, true },               /* SD2 */
    { "conditioner.embedders.0.transformer.", &arch_clip, "clip_l", CLIP_L, false }, /* SDXL */
    { "conditioner.embedders.0.model.", &arch_clip, "clip_h", CLIP_L, true }, /* SD2, refiner */
    { "conditioner.embedders.1.model.", &arch_clip, "clip_g", LORA_TE2, false },
    { "conditioner.embedders.1.model.transformer.", &arch_clip, "clip_g", LORA_TE2, false },
    { "text_encoders.clip_l.transformer.", &arch_clip, "clip_l", CLIP_L, false },
    { "text_encoders.clip_g.transformer.", &arch_clip, "clip_g", LORA_TE2, false },
    /* Beside CLIP-L alone it is Flux's, whose adapters count it as the second or the third. */
    { "text_encoders.t5xxl.transformer.", &arch_t5, "t5xxl", LORA_TE2 | LORA_TE3, false },
    { "model.diffusion_model.", NULL, NULL, 0, false },
    { "first_stage_model.", &arch_vae, NULL, 0, false },
    { "vae.", &arch_vae, NULL, 0, false },
};
_Static_assert(ARRAY_LEN(places) <= ARCH_NETS_MAX, "every place may hold a network");

static const struct {
    uint64_t width;
    const char *word;
    unsigned te; /* G alone counts as the first, beside L as the second */
} clips[] = {
    { 768, "clip_l", CLIP_L },
    { 1024, "clip_h", CLIP_L },
    { 1280, "clip_g", LORA_TE | LORA_TE2 },
};

/* Fills in what is at the place; its root is in `net` and its family is there. */
static void name_net(struct arch_net *net, const struct weights *w, const struct place *p)
{
    const char *word = p->word;
    enum arch_naming naming = net->family->naming;
    uint64_t width = p->any_width ? arch_clip_width(w, net->alias.root) : 0;
    net->te = p->te;
    for (size_t i = 0; i < ARRAY_LEN(clips); i++)
        if (width == clips[i].width) {
            word = clips[i].word;
            net->te = clips[i].te;
        }
    if (naming == ARCH_DIFFUSION)
        snprintf(net->alias.known, sizeof net->alias.known, "diffusion_model.");
    else if (word)
        snprintf(net->alias.known, sizeof net->alias.known, "%s.transformer.%s", word,
                 naming == ARCH_CLIP && arch_clip_is_bare(w, net->alias.root) ? "text_model." : "");
    else
        net->alias.known[0] = '\0';
}

/* Is one of the two inside the other? */
static bool overlap(const char *part, const char *root)
{
    return str_starts(part, strlen(part), root) || str_starts(root, strlen(root), part);
}

static bool net_at(const struct weights *w, const struct place *p, struct arch_net *net)
{
    *net = (struct arch_net) { .family = p->family ? p->family : arch_detect(w, p->root) };
    if (!net->family || !net->family->detect(w, p->root))
        return false;
    snprintf(net->alias.root, sizeof net->alias.root, "%s", p->root);
    name_net(net, w, p);
    return true;
}

/* A network in a file of its own, or at a place of its own. */
static bool net_alone(const struct weights *w, const char *part, struct arch_net *net)
{
    static const struct place as[] = {
        [ARCH_CLIP] = { .word = "clip_l", .te = CLIP_L, .any_width = true },
        [ARCH_T5] = { .word = "t5xxl", .te = LORA_TE2 | LORA_TE3 },
    };
    *net = (struct arch_net) { .family = arch_detect(w, part) };
    if (!net->family || net->family->parts || !arch_is(net->family, w, part, net->alias.root))
        return false;
    name_net(net, w, &as[net->family->naming]);
    return true;
}

size_t arch_nets(const struct weights *w, const char *part, struct arch_net out[ARCH_NETS_MAX])
{
    size_t n = 0;
    part = part ? part : "";
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (overlap(part, places[i].root))
            n += net_at(w, &places[i], &out[n]);
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
