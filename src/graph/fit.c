/* fit: can the VAE of a prompt decode what the sampler before it makes? Checked before anything is
 * sampled, where both come straight from files of loaders. With merges, switches or changed latents
 * between them nothing is refused here: the decoder reports it. */
#include "graph/graph_impl.h"

static bool is_of(const struct wf_node *n, const struct wf_link *l, const char *type)
{
    const char *declared = n->in[l->in].type;
    return declared && strcmp(declared, type) == 0;
}

/* The node's only link of this type; NULL: none, or several. *none: which. */
static const struct wf_link *only_link(const struct workflow *w, const struct wf_node *n,
                                       const char *type, bool *none)
{
    const struct wf_link *found = NULL;
    size_t count = 0;
    for (size_t i = n->link; i < n->link + n->links; i++)
        if (is_of(n, &w->link[i], type)) {
            found = &w->link[i];
            count++;
        }
    *none = !count;
    return count == 1 ? found : NULL;
}

static const struct wf_link *link_called(const struct workflow *w, const struct wf_node *n,
                                         const char *name, const char *type)
{
    for (size_t i = n->link; i < n->link + n->links; i++)
        if (is_of(n, &w->link[i], type) && strcmp(n->in[w->link[i].in].name, name) == 0)
            return &w->link[i];
    return NULL;
}

/* Where a MODEL or VAE begins, through nodes that only change it; NULL: it is not told. */
static const struct wf_node *loader_of(const struct workflow *w, const struct wf_link *l,
                                       const char *type)
{
    for (size_t steps = 0; l && steps <= w->n; steps++) { /* cycles end, too */
        const struct wf_node *n = &w->node[l->from];
        bool none;
        if (n->broken || strcmp(n->cls->out[l->slot].type, type) != 0)
            return NULL;
        l = only_link(w, n, type, &none);
        if (none)
            return n;
    }
    return NULL;
}

static bool samples(const struct wf_node *n)
{
    for (size_t i = 0; i < n->ins; i++)
        if (strcmp(n->in[i].name, "sampler_name") == 0 ||
            (n->in[i].type && strcmp(n->in[i].type, "SAMPLER") == 0))
            return true;
    return false;
}

/* The MODEL whose latents this link brings; NULL: it comes from no sampler. */
static const struct wf_link *sampled_model(const struct workflow *w, const struct wf_link *latent)
{
    const struct wf_node *n = &w->node[latent->from];
    if (n->broken || !samples(n))
        return NULL;
    const struct wf_link *guider = link_called(w, n, "guider", "GUIDER");
    return link_called(w, guider ? &w->node[guider->from] : n, "model", "MODEL");
}

static void add_shape(struct str *out, const struct node_latents *l)
{
    str_addf(out, "[n, %u, %sh, w]", l->channels, l->rank == 3 ? "t, " : "");
}

static bool latents_of(const struct node_env *env, const struct wf_node *n, const char *role,
                       struct node_latents *out)
{
    struct node_check k = { .env = env, .cls = n->cls, .id = n->id, .inputs = n->inputs };
    return node_latents(&k, role, out);
}

bool fit_check(const struct node_env *env, const struct workflow *w, size_t node, struct str *why)
{
    const struct wf_node *n = &w->node[node], *model, *vae;
    const struct wf_link *latent = link_called(w, n, "samples", "LATENT");
    const struct wf_link *with = link_called(w, n, "vae", "VAE");
    struct node_latents made, decoded;
    if (!latent || !with)
        return true;
    model = loader_of(w, sampled_model(w, latent), "MODEL");
    vae = loader_of(w, with, "VAE");
    if (!model || !vae || !latents_of(env, model, "unet", &made) ||
        !latents_of(env, vae, "vae", &decoded) ||
        (made.channels == decoded.channels && made.rank == decoded.rank))
        return true;
    str_addf(why, "vae - '%s' is a VAE of %s and decodes latents ", decoded.file, decoded.is);
    add_shape(why, &decoded);
    str_addf(why, "; those of '%s' (%s) are ", made.file, made.is);
    add_shape(why, &made);
    str_adds(why, ": take the VAE that belongs to that model");
    return false;
}
