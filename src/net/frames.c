/* frames: convolutions over frames, as sums of convolutions of pictures.
 *
 * A filter [OC, C, t, kh, kw] is t filters of pictures, one for each frame it sees. Frames are the
 * batch of those convolutions, so that each runs over many frames at once, and a filter whose frame
 * is all zeros, before the first one, does not run at all: of a single picture only the last one
 * does. Pictures whose edges go on are copied with their surroundings first, since a convolution
 * of pictures knows zeros alone. One filter at a time is copied out of the weight, which has the
 * frames of each channel side by side. */
#include "net/use.h"

struct frames { /* one such convolution */
    struct use *u;
    const struct net_layer *l;
    struct shape ws;         /* of its weight */
    struct view whole;       /* the weight, where filters can be copied from */
    struct act x, before, y; /* [frames, C, h, w] each */
    uint64_t step, first;    /* first: the frame that result 0 ends with */
    bool edge;               /* before the first frame there are others like it */
    struct op_conv2d op;     /* all but x, w, y, bias and add */
};

struct act net_rows(struct net_run *r, struct act a, uint64_t begin, uint64_t end)
{
    if (r->bad)
        return (struct act) { 0 };
    if (begin > end || !a.shape.ndim || end > a.shape.dim[0])
        BUG("rows %llu to %llu of %d dimensions", (unsigned long long)begin,
            (unsigned long long)end, a.shape.ndim);
    a.addr += begin * net_view(&a).stride[0];
    a.shape.dim[0] = end - begin;
    return a;
}

/* The weight where filters can be copied from: where it lies if it is of a type of activations,
 * else in F32. */
static struct view whole_weight(const struct frames *f)
{
    const struct net *n = f->u->r->n;
    const struct net_tensor *t = &f->l->weight;
    bool plain = t->dtype == DT_F32 || (n->backend && n->backend->acts & OP_TYPE(t->dtype));
    return plain ? net_packed(t->dtype, &f->ws, use_bytes(f->u, t)) : use_widened(f->u, t);
}

/* Filter k, [OC, C, kh, kw]: a copy in the slab, or the weight itself where it has no other. */
static struct view filter(const struct frames *f, uint64_t k)
{
    const uint64_t *w = f->ws.dim;
    const struct shape s = { .ndim = 4, .dim = { w[0], w[1], w[3], w[4] } };
    const struct shape rows = { .ndim = 2, .dim = { w[0] * w[1], w[3] * w[4] } };
    if (w[2] == 1)
        return use_weight(f->u, &f->l->weight, &s);
    const enum dtype t = f->whole.dtype;
    const size_t each = net_type_bytes(t), plane = (size_t)rows.dim[1] * each;
    struct view from = { .dtype = t, .shape = rows, .stride = { (size_t)w[2] * plane, each } };
    from.data = (char *)f->whole.data + k * plane;
    uint64_t place = use_place(f->u, rows.dim[0] * plane);
    struct view to = net_packed(t, &rows, (void *)(uintptr_t)place);
    use_op_copy(f->u, &(struct op_copy) { .x = from, .y = to });
    return net_packed(t, &s, to.data);
}

/* Results [at, at + n): the filter over as many frames of `from`, from frame `first` on. */
static void one_run(const struct frames *f, struct op_conv2d *a, struct act from, uint64_t first,
                    uint64_t at, uint64_t n, bool add)
{
    struct net_run *r = f->u->r;
    struct act x = net_rows(r, from, first, first + n), y = net_rows(r, f->y, at, at + n);
    size_t places = f->u->places;
    if (r->bad)
        return;
    a->x = net_view(&x);
    a->y = net_view(&y);
    a->add = add ? a->y : (struct view) { 0 };
    use_op_conv2d(f->u, a);
    use_give(f->u, places);
}

/* The frame `back` ones before the last that result j sees. False: there is none. */
static bool source(const struct frames *f, uint64_t j, uint64_t back, struct act *from,
                   uint64_t *at)
{
    const uint64_t last = f->first + f->step * j,
                   n = f->before.shape.ndim ? f->before.shape.dim[0] : 0;
    const bool in_x = last >= back, in_before = !in_x && back - last <= n;
    *from = in_x || !n ? f->x : f->before;
    *at = in_x ? last - back : in_before ? n - (back - last) : 0;
    return in_x || in_before || f->edge;
}

/* How many results from j on see frames that follow each other. */
static uint64_t run_of(const struct frames *f, uint64_t j, uint64_t back)
{
    struct act from, next;
    uint64_t at, to, n = 1;
    source(f, j, back, &from, &at);
    while (f->step == 1 && j + n < f->y.shape.dim[0] && source(f, j + n, back, &next, &to) &&
           next.addr == from.addr && to == at + n)
        n++;
    return n;
}

/* The filter that sees `back` frames before each result's last one, over all results. */
static void one_filter(const struct frames *f, uint64_t back, struct view bias, bool add)
{
    size_t places = f->u->places;
    bool any = false;
    struct op_conv2d a = f->op;
    a.bias = bias;
    for (uint64_t j = 0, n = 1; j < f->y.shape.dim[0] && !f->u->r->bad; j += n) {
        struct act from;
        uint64_t at;
        n = 1;
        if (!source(f, j, back, &from, &at))
            continue;
        n = run_of(f, j, back);
        if (!any)
            a.w = filter(f, f->ws.dim[2] - 1 - back);
        any = true;
        one_run(f, &a, from, at, j, n, add);
    }
    use_give(f->u, places);
}

/* A copy with its edges around it. */
static struct act with_edges(struct use *u, struct act x, const struct net_conv *c,
                             enum net_outside space)
{
    struct shape s = x.shape;
    if (u->r->bad || !s.ndim)
        return x;
    s.dim[2] += c->top + c->bottom;
    s.dim[3] += c->left + c->right;
    struct act y = net_new(u->r, &s);
    use_op_pad2d(u,
                 &(struct op_pad2d) { .x = net_view(&x),
                                      .y = net_view(&y),
                                      .top = c->top,
                                      .left = c->left,
                                      .kind = space == NET_EDGE ? OP_PAD_EDGE : OP_PAD_REFLECT });
    return y;
}

/* Results of so many frames; 0: not as many as they should be. */
static uint64_t result_count(uint64_t frames, const struct net_frames *n, uint64_t step)
{
    if (n->from_first)
        return frames ? (frames - 1) / step + 1 : 0;
    return frames % step ? 0 : frames / step;
}

/* add: NULL, or what is added, in its place. */
static struct act conv3d(struct net_run *r, struct act x, const char *layer, struct net_frames n,
                         const struct act *add)
{
    struct use u;
    struct frames f = { .u = &u, .step = n.step ? n.step : 1, .edge = n.time == NET_EDGE };
    struct net_conv c = n.plane;
    const bool edges = n.space != NET_ZEROS && (c.top | c.left | c.bottom | c.right);
    if (!use_begin(&u, r, layer) || !(f.l = net_layer_with(r, layer, 5, true, &f.ws)))
        return (struct act) { 0 };
    const uint64_t *w = f.ws.dim, *d = x.shape.dim;
    const uint32_t stride = c.stride ? c.stride : 1;
    const struct shape s = { .ndim = 4,
                             .dim = { result_count(d[0], &n, f.step), w[0],
                                      op_conv_side(d[2], c.top, c.bottom, w[3], stride),
                                      op_conv_side(d[3], c.left, c.right, w[4], stride) } };
    if (x.shape.ndim != 4 || !s.dim[0] || (add && !shape_eq(&add->shape, &s)))
        net_fail(r, BERTH_EINVAL, "%s: no such frames", layer);
    f.first = n.from_first ? 0 : f.step - 1;
    f.y = add ? *add : net_new(r, &s);
    f.x = edges ? with_edges(&u, x, &c, n.space) : x;
    f.before = edges ? with_edges(&u, n.before, &c, n.space) : n.before;
    if (edges)
        c = (struct net_conv) { .stride = stride };
    f.op = (struct op_conv2d) { .stride = stride,
                                .top = c.top,
                                .left = c.left,
                                .bottom = c.bottom,
                                .right = c.right,
                                .scaled = f.l->scale.there,
                                .scale = f.l->scale_value };
    u.keep = f.l->weight.block;
    struct view bias = use_param(&u, &f.l->bias);
    if (w[2] > 1)
        f.whole = whole_weight(&f);
    for (uint64_t back = 0; back < w[2] && !r->bad; back++)
        one_filter(&f, back, back ? (struct view) { 0 } : bias, back || add);
    use_end(&u);
    if (edges) {
        net_drop(r, &f.x);
        net_drop(r, &f.before);
    }
    return r->bad ? (struct act) { 0 } : f.y;
}

struct act net_conv3d(struct net_run *r, struct act x, const char *layer, struct net_frames f)
{
    return conv3d(r, x, layer, f, NULL);
}

struct act net_conv3d_add(struct net_run *r, struct act x, const char *layer, struct net_frames f,
                          struct act add)
{
    return conv3d(r, x, layer, f, &add);
}
