/* Config of a Flux.2 transformer, from names and shapes of its tensors (flux2.md 1). */
#include "model/flux2/flux2.h"

#include "base/str.h"
#include "model/arch.h"
#include "model/canonical.h"

#include <string.h>

#define KEY_NORM "double_blocks.0.img_attn.norm.key_norm."

struct look {
    struct canonical in;
    struct flux2_net *f;
    berth_err *err;
};

bool flux2_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "double_stream_modulation_img.lin.weight") &&
           arch_find(w, root, "img_in.weight") &&
           (arch_find(w, root, KEY_NORM "scale") || arch_find(w, root, KEY_NORM "weight"));
}

static bool names(const void *user, const char *canonical, struct net_source *out)
{
    static const char ours[] = "_norm.weight", theirs[] = "_norm.scale";
    size_t n = strlen(canonical);
    (void)user;
    *out = (struct net_source) { .rows = 0 };
    return str_ends(canonical, n, ours) && name_print(out->name, sizeof out->name, "%.*s%s",
                                                      (int)(n - strlen(ours)), canonical, theirs);
}

net_names_fn *flux2_names(const struct flux2_net *f)
{
    return f->scale_names ? names : NULL;
}

/* A dimension of a tensor that must be there, 1..FLUX2_WIDTH_MAX. */
static berth_status dim(const struct look *k, const char *name, int ndim, int axis, uint64_t *out)
{
    const struct weights_entry *e = canonical_find(&k->in, "%s", name);
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "a Flux.2 transformer without '%s'", name);
    if (e->shape.ndim != ndim || !e->shape.dim[axis] || e->shape.dim[axis] > FLUX2_WIDTH_MAX)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%.120s' is %s, not of %d dimensions of at most %d", e->name,
                       shape_text(&e->shape, text), ndim, FLUX2_WIDTH_MAX);
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

/* Heads follow from the norm of one; each axis of positions turns a quarter of it. */
static berth_status heads(const struct look *k)
{
    struct flux2_net *f = k->f;
    uint64_t head;
    if (dim(k, KEY_NORM "weight", 1, 0, &head))
        return k->err->code;
    if (head % (2 * FLUX2_AXES) || f->hidden % head)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "a Flux.2 transformer of width %llu with heads of %llu: they have no whole "
                       "pairs for each axis, or are not all of it",
                       (unsigned long long)f->hidden, (unsigned long long)head);
    f->head_dim = (uint32_t)head;
    f->heads = (uint32_t)(f->hidden / head);
    f->axis = f->head_dim / FLUX2_AXES;
    return BERTH_OK;
}

static berth_status depth(const struct look *k, const char *list, uint32_t *out)
{
    *out = arch_layers(k->in.w, k->in.root, list);
    return *out > FLUX2_DEPTH_MAX ? err_set(k->err, BERTH_ELIMIT, "%u %s, at most %d are taken",
                                            *out, list, FLUX2_DEPTH_MAX)
                                  : BERTH_OK;
}

berth_status flux2_detect(const struct weights *w, const char *root, struct flux2_net *f,
                          berth_err *err)
{
    *f = (struct flux2_net) { .scale_names = arch_find(w, root, KEY_NORM "scale") };
    struct look k = { .in = { .w = w, .root = root, .names = flux2_names(f), .user = f },
                      .f = f,
                      .err = err };
    if (!flux2_at(w, root))
        return err_set(err, BERTH_EUNSUPPORTED, "no Flux.2 transformer behind '%s'", root);
    if (dim(&k, "img_in.weight", 2, 0, &f->hidden) ||
        dim(&k, "img_in.weight", 2, 1, &f->in_channels) ||
        dim(&k, "final_layer.linear.weight", 2, 0, &f->out_channels) ||
        dim(&k, "txt_in.weight", 2, 1, &f->context_dim) ||
        dim(&k, "double_blocks.0.img_mlp.2.weight", 2, 1, &f->mlp) || heads(&k) ||
        depth(&k, "double_blocks", &f->depth) || depth(&k, "single_blocks", &f->depth_single))
        return err->code;
    f->guidance = canonical_find(&k.in, "guidance_in.in_layer.weight") ||
                  canonical_find(&k.in, "guidance_in.out_layer.weight");
    return BERTH_OK;
}
