/* Tensors of layers: found by name, and handed to kernels where they lie, or copied into the slab
 * where no kernel reads them so: widened, rounded, transposed. */
#include "net/use.h"

#include <inttypes.h>

/* <prefix><layer>, or NULL: the run is bad. */
static const struct net_layer *layer_of(struct net_run *r, const char *layer)
{
    char name[NET_NAME_MAX];
    if (r->bad)
        return NULL;
    int n = snprintf(name, sizeof name, "%s%s", r->prefix, layer);
    if (n < 0 || (size_t)n >= sizeof name) {
        net_fail(r, BERTH_ELIMIT, "a layer's name of %d bytes", n);
        return NULL;
    }
    const struct net_layer *l = net_layer_get(r->from, name, &r->err);
    if (!l)
        net_failed(r, layer);
    return l;
}

/* The weight's shape in so many dimensions. A convolution of 1x1 is a product, and files keep the
 * one for the other: [N, K] and [N, K, 1, 1] are the same to both. */
static bool shape_as(const struct shape *s, int ndim, struct shape *out)
{
    *out = *s;
    for (; out->ndim > ndim && ndim == 2 && out->dim[out->ndim - 1] == 1; out->ndim--)
        out->dim[out->ndim - 1] = 0;
    for (; out->ndim < ndim && ndim == 4 && s->ndim == 2; out->ndim++)
        out->dim[out->ndim] = 1;
    return out->ndim == ndim;
}

static void used(struct net_run *r, const struct net_tensor *t)
{
    if (t->there && r->n->trace)
        trace_tensor(r->n, t->index);
    else if (t->there)
        r->from->used[t->index] = true;
}

const struct net_layer *net_layer_with(struct net_run *r, const char *layer, int ndim, bool bias,
                                       struct shape *shape)
{
    const struct net_layer *l = layer_of(r, layer);
    char text[SHAPE_TEXT_MAX], name[2 * NET_NAME_MAX];
    if (!l)
        return NULL;
    bool there = l->weight.there && (!bias || l->bias.there);
    if (there && shape_as(&l->weight.shape, ndim, shape)) {
        used(r, &l->weight);
        r->layer = l->weight.index;
        used(r, &l->scale);
        if (bias)
            used(r, &l->bias);
        return l;
    }
    snprintf(name, sizeof name, "%s%s", r->prefix, layer);
    if (!there)
        net_missing(r->from, name, l->weight.there ? "bias" : "weight", &r->err);
    else
        err_set(&r->err, BERTH_EINVAL, "its weight is %s, not of %d dimensions",
                shape_text(&l->weight.shape, text), ndim);
    net_failed(r, layer);
    return NULL;
}

static const struct net_layer *without_scale(struct net_run *r, const char *layer,
                                             const struct net_layer *l)
{
    if (!l || !l->scale.there || l->scale_value == 1)
        return l;
    net_fail(r, BERTH_EUNSUPPORTED,
             "%s: a scale of %g beside its weight, which only products and convolutions have",
             layer, (double)l->scale_value);
    return NULL;
}

const struct net_layer *net_layer_plain(struct net_run *r, const char *layer, int ndim, bool bias)
{
    struct shape shape;
    return without_scale(r, layer, net_layer_with(r, layer, ndim, bias, &shape));
}

const struct net_layer *net_layer_table(struct net_run *r, const char *layer)
{
    struct shape shape;
    const struct net_layer *l = net_layer_with(r, layer, 2, false, &shape);
    return l && l->weight.coded ? l : without_scale(r, layer, l);
}

bool net_has(struct net_run *r, const char *layer)
{
    const struct net_layer *l = layer_of(r, layer);
    return l && (l->weight.there || l->bias.there);
}

uint64_t net_unit(const struct shape *s)
{
    uint64_t n = 1;
    for (int i = 1; i < s->ndim; i++)
        n *= s->dim[i]; /* fits: the file's index saw to it */
    return n;
}

struct view net_packed(enum dtype t, const struct shape *s, void *data)
{
    struct view v = { .dtype = t, .shape = *s, .data = data };
    const struct dtype_desc *d = dtype_desc(t);
    size_t elems = 1;
    for (int i = s->ndim - 1; i >= 0; i--) {
        v.stride[i] = elems < d->elems ? d->bytes : elems / d->elems * d->bytes;
        elems *= s->dim[i] ? s->dim[i] : 1;
    }
    return v;
}

struct view use_widened(struct use *u, const struct net_tensor *t)
{
    uint64_t n = 0;
    void *src = use_bytes(u, t);
    if (!src || !shape_count(&t->stored, &n))
        return (struct view) { 0 };
    const struct shape flat = { .ndim = 1, .dim = { n } };
    struct view y = net_packed(DT_F32, &flat, (void *)(uintptr_t)use_place(u, n * sizeof(float)));
    use_op_copy(u, &(struct op_copy) { .x = net_packed(t->dtype, &flat, src), .y = y });
    return net_packed(DT_F32, &t->stored, y.data);
}

/* All of a weight in F32, with or without codes. */
static struct view values(struct use *u, const struct net_tensor *t)
{
    return t->coded && !t->coded->by_scale ? use_decoded(u, t, 0, &t->stored, DT_F32)
                                           : use_widened(u, t);
}

/* The same with rows and columns exchanged. */
static struct view transposed(struct use *u, const struct net_tensor *t)
{
    static const int other[] = { 1, 0 };
    struct view from = values(u, t), across;
    const struct shape s = { .ndim = 2, .dim = { t->stored.dim[1], t->stored.dim[0] } };
    if (u->r->bad)
        return from;
    if (view_permute(&from, other, &across, &u->r->err)) {
        use_failed(u);
        return from;
    }
    uint64_t n = s.dim[0] * s.dim[1] * net_type_bytes(from.dtype);
    struct view y = net_packed(from.dtype, &s, (void *)(uintptr_t)use_place(u, n));
    use_op_copy(u, &(struct op_copy) { .x = across, .y = y });
    return y;
}

struct view use_weight(struct use *u, const struct net_tensor *t, const struct shape *s)
{
    bool decode = t->coded && !t->coded->by_scale;
    if (decode || t->transpose || net_unit(s) % dtype_desc(t->dtype)->elems) {
        struct view own = t->transpose ? transposed(u, t) : values(u, t);
        return net_packed(own.dtype, s, own.data);
    }
    return net_packed(t->dtype, s, use_bytes(u, t));
}

struct view use_param(struct use *u, const struct net_tensor *t)
{
    const struct net *n = u->r->from;
    if (!t->there || u->r->bad)
        return (struct view) { 0 };
    bool read = t->dtype == DT_F32 || (n->backend && n->backend->params & OP_TYPE(t->dtype));
    if (read && !t->transpose) {
        if (t->block == u->keep)
            return net_packed(t->dtype, &t->shape, use_bytes(u, t));
        if (stream_resident(n->stream, t->block))
            return net_packed(t->dtype, &t->shape, use_resident_bytes(u, t));
    }
    struct view own = use_widened(u, t);
    return net_packed(own.dtype, &t->shape, own.data);
}
