/* arch_nets: which networks stand where in a file, and what ComfyUI calls their tensors.
 *
 * A key is "<known><name behind the root>": diffusion_model.out.2.weight, whether the file is a
 * checkpoint or the UNet alone. Adapters find tensors by keys, and a key seeds the draws that fp8
 * is rounded by. Weights that ComfyUI takes apart when it loads them (OpenCLIP's stacked q, k, v)
 * have one key here where it has three. */
#include "model/arch.h"

#include "base/str.h"
#include "model/encoder.h"

/* The family of that role whose names begin right at the root. *text: of a text encoder, which. */
static const struct arch *family_at(const struct weights *w, const char *root, const char *role,
                                    struct text_found *text)
{
    if (strcmp(role, "clip") == 0)
        return text_find_at(w, root, text) ? &text->is->arch : NULL;
    for (size_t i = 0; i < arch_count(); i++) {
        const struct arch *a = arch_at(i);
        if (a->role && strcmp(a->role, role) == 0 && a->detect(w, root))
            return a;
    }
    return NULL;
}

/* Fills in what adapters and ComfyUI call the network of this role behind net->alias.root. beside:
 * it stands beside CLIP-L. False: there is none. */
static bool name_net(struct arch_net *net, const struct weights *w, const char *role, bool beside)
{
    struct text_found text = { .is = NULL };
    const char *root = net->alias.root;
    net->family = family_at(w, root, role, &text);
    if (!net->family)
        return false;
    net->te = !text.is ? 0 : beside ? text.is->te_beside : text.is->te;
    if (text.is)
        snprintf(net->alias.known, sizeof net->alias.known, "%s.transformer.%s", text.is->key,
                 text.is->key_lead ? text.is->key_lead(w, root) : "");
    else
        snprintf(net->alias.known, sizeof net->alias.known, "%s",
                 strcmp(role, "vae") == 0 ? "" : "diffusion_model.");
    return true;
}

/* Is one of the two inside the other? */
static bool overlap(const char *part, const char *root)
{
    return str_starts(part, strlen(part), root) || str_starts(root, strlen(root), part);
}

static bool net_at(const struct weights *w, const char *part, const struct net_place *p,
                   struct arch_net *net)
{
    return overlap(part, place_root(p, net->alias.root)) &&
           name_net(net, w, place_parts[p->part].role, !p->ask);
}

/* A network in a file of its own, or at a place of its own. */
static bool net_alone(const struct weights *w, const char *part, struct arch_net *net)
{
    const struct arch *a = arch_detect(w, part);
    return a && !a->holds_parts && arch_is(a, w, part, net->alias.root) &&
           name_net(net, w, a->role, false);
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
