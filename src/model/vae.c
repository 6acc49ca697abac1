/* The doors of VAEs: what a file has, opened. */
#include "model/vae_impl.h"

#include "base/str.h"

static const struct vae_family *const all[] = {
#define VAE(x) &vae_##x,
#include "model/vaes.def"
#undef VAE
};

static const struct vae_family *family_at(const struct weights *w, const char *root)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->at(w, root))
            return all[i];
    return NULL;
}

static berth_status configure(const struct vae_family *f, const struct weights *w, const char *root,
                              struct vae_net *out, berth_err *err)
{
    *out = (struct vae_net) { .family = f, .colours = 3 };
    return f->config(w, root, out, err);
}

berth_status vae_detect(const struct weights *w, const char *root, struct vae_net *out,
                        berth_err *err)
{
    const struct vae_family *f = family_at(w, root);
    return configure(f ? f : all[0], w, root, out, err); /* which says what is there instead */
}

berth_status vae_find(const struct weights *w, const char *part, char root[ARCH_ROOT_MAX],
                      struct vae_net *out, berth_err *err)
{
    part = part ? part : "";
    for (const char *const *lead = place_leads("vae"); *lead; lead++) {
        if (!place_join(part, *lead, root))
            return err_set(err, BERTH_EINVAL, "a part called '%.40s...'", part);
        if (family_at(w, root))
            return vae_detect(w, root, out, err);
    }
    place_join(part, "", root);
    return vae_detect(w, root, out, err);
}

/* Dry runs of both halves, of video with a frame after the first, which some layers are for. What
 * is missing is said when its half runs: the other may do. */
static berth_status run_dry(struct net *net, const struct vae_net *v, size_t side, berth_err *err)
{
    const struct shape still = { 4, { 1, v->latent.channels, side, side } };
    const struct shape video = { 5, { 1, v->latent.channels, 2, side, side } };
    struct vae_pass small = { .vae = v, .shape = v->latent.rank == 3 ? video : still };
    struct vae_pass large = { .vae = v, .shape = vae_decoded(v, &small.shape) };
    uint64_t peak;
    berth_status s =
        v->encoder ? net_predict(net, v->family->encode, &large, &peak, err) : BERTH_OK;
    berth_err other;
    berth_status d =
        v->decoder ? net_predict(net, v->family->decode, &small, &peak, &other) : BERTH_OK;
    if (!s && d)
        *err = other;
    return s ? s : d;
}

#define USUAL_SIDE 64 /* of latents that costs are estimated for */

berth_status vae_trace(const struct arch *arch, const struct weights *w, const char *root,
                       struct block_trace *out, berth_err *err)
{
    const struct vae_family *f = (const struct vae_family *)arch; /* its first member */
    struct vae_net v;
    struct net *net;
    if (configure(f, w, root, &v, err))
        return err->code;
    const struct net_trace_args args = {
        .w = w, .root = root, .names = f->names(&v), .names_user = &v, .out = out
    };
    if (net_trace_open(&args, &net, err))
        return err->code;
    berth_status s = run_dry(net, &v, USUAL_SIDE, err);
    net_close(net);
    return s;
}

berth_status vae_open(const struct net_args *a, const char *part, struct vae_net *vae,
                      struct net **out, berth_err *err)
{
    const struct weights *w = res_weights(a->m);
    char root[ARCH_ROOT_MAX];
    const char *first;
    berth_err unsaid;
    *out = NULL;
    if (vae_find(w, part, root, vae, err))
        return err_add(err, "'%.120s'", weights_path(w));
    struct net_args args = *a;
    args.root = root;
    args.names = vae->family->names(vae);
    args.names_user = vae;
    if (net_open(&args, out, err))
        return err->code;
    if (!run_dry(*out, vae, VAE_TILE_MIN, &unsaid))
        net_unused(*out, &first); /* what no layer asks for is logged */
    return BERTH_OK;
}
