/* hypernet.c: see hypernet.h. */
#include "model/hypernet.h"

#include "base/str.h"
#include "format/weights.h"
#include "tensor/convert.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* ---- activations ---- */

struct hyper_activation {
    const char *name;
    float (*of)(float x);
};

static float relu(float x)
{
    return x > 0 ? x : 0;
}
static float leaky_relu(float x)
{
    return x > 0 ? x : 0.01f * x;
}
static float elu(float x)
{
    return x > 0 ? x : expm1f(x);
}
static float hard_swish(float x)
{
    float y = x + 3 < 0 ? 0 : x + 3 > 6 ? 6 : x + 3;
    return x * y / 6;
}
static float sigmoid(float x)
{
    return 1 / (1 + expf(-x));
}
static float soft_sign(float x)
{
    return x / (1 + fabsf(x));
}
static float mish(float x)
{
    return x * tanhf(x > 20 ? x : log1pf(expf(x)));
}

/* "linear" is none at all. */
static const struct hyper_activation activations[] = {
    { "relu", relu },
    { "leakyrelu", leaky_relu },
    { "elu", elu },
    { "swish", hard_swish },
    { "tanh", tanhf },
    { "sigmoid", sigmoid },
    { "softsign", soft_sign },
    { "mish", mish },
};

/* ---- files ---- */

struct layer_name { /* "320.0.linear.3.weight" */
    uint64_t dim;
    size_t which; /* 0 keys, 1 values */
    const struct weights_entry *weight;
};

static bool read_number(const char **s, uint64_t *out)
{
    char *end;
    if (**s < '0' || **s > '9')
        return false;
    *out = strtoull(*s, &end, 10);
    bool ok = *end == '.' && end - *s < 10;
    *s = end + 1;
    return ok;
}

/* False: it is no weight of a layer. */
static bool read_name(const struct weights_entry *e, struct layer_name *out)
{
    const char *s = e->name;
    uint64_t which;
    if (!read_number(&s, &out->dim) || !read_number(&s, &which) || which > 1 ||
        !str_ends(e->name, e->name_len, ".weight"))
        return false;
    out->which = (size_t)which;
    out->weight = e;
    return true;
}

/* Numbers in names count as such: linear.2 before linear.10. */
static int by_name(const void *a, const void *b)
{
    const struct layer_name *x = a, *y = b;
    const char *s = x->weight->name, *t = y->weight->name;
    for (;; s++, t++) {
        bool digits = *s >= '0' && *s <= '9' && *t >= '0' && *t <= '9';
        char *se, *te;
        uint64_t m = digits ? strtoull(s, &se, 10) : (unsigned char)*s;
        uint64_t n = digits ? strtoull(t, &te, 10) : (unsigned char)*t;
        if (m != n)
            return m < n ? -1 : 1;
        if (!digits && !*s)
            return 0;
        if (digits) {
            s = se - 1;
            t = te - 1;
        }
    }
}

static berth_status read_floats(struct hypernet *h, const struct weights *w,
                                const struct weights_entry *e, const float **out, berth_err *err)
{
    uint64_t n;
    if (!shape_count(&e->shape, &n) || n > HYPER_BYTES_MAX / sizeof(float) ||
        !convert_possible(e->dtype, DT_F32))
        return err_set(err, BERTH_EFORMAT, "'%.80s' is no weight of a hypernetwork", e->name);
    float *to = arena_array(&h->mem, (size_t)n, sizeof *to);
    *out = to;
    if (!to)
        return err_set(err, BERTH_ENOMEM, "'%.80s'", e->name);
    return convert(e->dtype, weights_data(w, e), DT_F32, to, (size_t)n, err);
}

static const struct weights_entry *bias_of(const struct weights *w, const struct weights_entry *e)
{
    char name[256];
    int n = snprintf(name, sizeof name, "%.*sbias", (int)(e->name_len - strlen("weight")), e->name);
    return n > 0 && (size_t)n < sizeof name ? weights_find(w, name, (size_t)n) : NULL;
}

static struct hyper_step *new_step(struct hyper_net *n, int kind)
{
    if (n->steps == HYPER_STEPS_MAX)
        return NULL;
    n->step[n->steps] = (struct hyper_step) { .kind = kind };
    return &n->step[n->steps++];
}

/* width: of what the net has come to so far. */
static berth_status add_layer(struct hypernet *h, const struct weights *w, struct hyper_net *net,
                              const struct weights_entry *e, bool norm, uint64_t *width,
                              berth_err *err)
{
    const struct weights_entry *b = bias_of(w, e);
    struct hyper_step *s = new_step(net, norm ? HYPER_NORM : HYPER_LINEAR);
    if (!s)
        return err_set(err, BERTH_ELIMIT, "more than %d layers", HYPER_STEPS_MAX);
    if (!b || e->shape.ndim != (norm ? 1 : 2) || e->shape.dim[norm ? 0 : 1] != *width ||
        b->shape.ndim != 1 || b->shape.dim[0] != e->shape.dim[0] || !e->shape.dim[0])
        return err_set(err, BERTH_EFORMAT, "'%.80s' is no layer behind %llu values", e->name,
                       (unsigned long long)*width);
    s->in = *width;
    s->out = *width = e->shape.dim[0];
    return read_floats(h, w, e, &s->w, err) || read_floats(h, w, b, &s->b, err) ? err->code
                                                                                : BERTH_OK;
}

static bool meta_bool(const struct weights *w, const char *key)
{
    const struct weights_meta *m = weights_meta_find(w, key);
    return m && ((m->kind == META_BOOL && m->b) || (m->kind == META_INT && m->i));
}

static berth_status find_activation(struct hypernet *h, const struct weights *w, berth_err *err)
{
    const struct weights_meta *m = weights_meta_find(w, "activation_func");
    if (!m || m->kind != META_STRING || strcmp(m->str, "linear") == 0)
        return BERTH_OK;
    for (size_t i = 0; i < ARRAY_LEN(activations); i++)
        if (strcmp(m->str, activations[i].name) == 0)
            h->activation = &activations[i];
    return h->activation ? BERTH_OK
                         : err_set(err, BERTH_EUNSUPPORTED,
                                   "a hypernetwork whose activation '%.40s' is not known", m->str);
}

/* n layers of one net, in order. */
static berth_status add_net(struct hypernet *h, const struct weights *w, struct hyper_net *net,
                            const struct layer_name *at, size_t n, berth_err *err)
{
    const bool norms = meta_bool(w, "is_layer_norm"), last = meta_bool(w, "activate_output");
    uint64_t width = at->dim;
    for (size_t i = 0; i < n; i++) {
        bool end = i + 1 == n;
        if (add_layer(h, w, net, at[i].weight, false, &width, err))
            return err->code;
        if (h->activation && (!end || last) && !new_step(net, HYPER_ACTIVATION))
            return err_set(err, BERTH_ELIMIT, "more than %d layers", HYPER_STEPS_MAX);
        if (norms && end)
            return err_set(err, BERTH_EFORMAT, "a layer without its norm");
        if (norms && add_layer(h, w, net, at[++i].weight, true, &width, err))
            return err->code;
    }
    return width == at->dim ? BERTH_OK
                            : err_set(err, BERTH_EFORMAT, "a hypernetwork from %llu to %llu",
                                      (unsigned long long)at->dim, (unsigned long long)width);
}

static berth_status add_pairs(struct hypernet *h, const struct weights *w,
                              const struct layer_name *at, size_t n, berth_err *err)
{
    for (size_t i = 0, to; i < n; i = to) {
        for (to = i + 1; to < n && at[to].dim == at[i].dim && at[to].which == at[i].which;)
            to++;
        struct hyper_pair *p = h->n ? &h->at[h->n - 1] : NULL;
        if (!p || p->dim != at[i].dim) {
            if (h->n == HYPER_DIMS_MAX)
                return err_set(err, BERTH_ELIMIT, "more than %d widths", HYPER_DIMS_MAX);
            p = &h->at[h->n++];
            p->dim = at[i].dim;
        }
        if (add_net(h, w, &p->of[at[i].which], at + i, to - i, err))
            return err->code;
    }
    for (size_t i = 0; i < h->n; i++)
        if (!h->at[i].of[0].steps || !h->at[i].of[1].steps)
            return err_set(err, BERTH_EFORMAT, "width %llu has not both its networks",
                           (unsigned long long)h->at[i].dim);
    return h->n ? BERTH_OK : err_set(err, BERTH_EFORMAT, "no hypernetwork");
}

static berth_status read_nets(struct hypernet *h, const struct weights *w, berth_err *err)
{
    size_t n = 0;
    struct layer_name *at = calloc(weights_count(w) + 1, sizeof *at);
    h->at = arena_array(&h->mem, HYPER_DIMS_MAX, sizeof *h->at);
    h->dropout = meta_bool(w, "use_dropout");
    berth_status s =
        at && h->at ? find_activation(h, w, err) : err_set(err, BERTH_ENOMEM, "a hypernetwork");
    for (size_t i = 0; !s && i < weights_count(w); i++)
        n += read_name(weights_at(w, i), &at[n]);
    if (!s && n)
        qsort(at, n, sizeof *at, by_name);
    if (!s)
        s = add_pairs(h, w, at, n, err);
    free(at);
    return s ? s : weights_check(w, err);
}

berth_status hypernet_read(const struct weights *w, struct hypernet **out, berth_err *err)
{
    struct hypernet *h = calloc(1, sizeof *h);
    berth_status s = h ? read_nets(h, w, err) : err_set(err, BERTH_ENOMEM, "a hypernetwork");
    if (s)
        hypernet_free(h);
    *out = s ? NULL : h;
    return s;
}

berth_status hypernet_open(const char *path, struct hypernet **out, berth_err *err)
{
    struct weights *w;
    *out = NULL;
    if (weights_open(path, NULL, &w, err))
        return err->code;
    berth_status s = hypernet_read(w, out, err);
    weights_close(w);
    return s ? err_add(err, "'%.150s'", path) : BERTH_OK;
}

void hypernet_free(struct hypernet *h)
{
    if (!h)
        return;
    arena_release(&h->mem);
    free(h);
}

/* ---- in a network ---- */

struct host_step { /* what no op computes */
    const struct hypernet *h;
    const struct hyper_step *step;
};

static void normalize(const float *x, const struct hyper_step *s, float *y)
{
    double sum = 0, squares = 0;
    for (uint64_t i = 0; i < s->in; i++)
        sum += (double)x[i];
    double mean = sum / (double)s->in;
    for (uint64_t i = 0; i < s->in; i++)
        squares += ((double)x[i] - mean) * ((double)x[i] - mean);
    double by = 1 / sqrt(squares / (double)s->in + 1e-5);
    for (uint64_t i = 0; i < s->in; i++)
        y[i] = (float)(((double)x[i] - mean) * by) * s->w[i] + s->b[i];
}

static void on_host(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                    const void *user)
{
    const struct host_step *k = user;
    size_t n = 1, row = (size_t)shape_last(xs, 1);
    (void)ys;
    for (int i = 0; i < xs->ndim; i++)
        n *= (size_t)xs->dim[i];
    for (size_t i = 0; k->step->kind == HYPER_ACTIVATION && i < n; i++)
        y[i] = k->h->activation->of(x[i]);
    for (size_t i = 0; k->step->kind == HYPER_NORM && i < n; i += row)
        normalize(x + i, k->step, y + i);
}

struct scaling {
    float by;
};

static void scaled(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                   const void *user)
{
    const struct scaling *s = user;
    size_t n = 1;
    (void)ys;
    for (int i = 0; i < xs->ndim; i++)
        n *= (size_t)xs->dim[i];
    for (size_t i = 0; i < n; i++)
        y[i] = x[i] * s->by;
}

/* x + net(x) * strength, a new act; x stays. */
static struct act changed(struct net_run *r, const struct hypernet *h, const struct hyper_net *net,
                          double strength, struct act x)
{
    struct act y = x;
    for (size_t i = 0; i < net->steps && !net_bad(r); i++) {
        const struct hyper_step *s = &net->step[i];
        const struct host_step k = { h, s };
        struct act next = s->kind == HYPER_LINEAR ? net_linear_given(r, y, s->w, s->b, s->out)
                                                  : net_host(r, y, &y.shape, on_host, &k);
        if (i)
            net_drop(r, &y);
        y = next;
    }
    if (strength != 1 && !net_bad(r)) {
        struct act next = net_host(r, y, &y.shape, scaled, &(struct scaling) { (float)strength });
        net_drop(r, &y);
        y = next;
    }
    net_add(r, &y, x);
    return y;
}

static void attends(struct net_run *r, const struct net_patch *p, const struct family_batch *b,
                    struct patch_attn *a)
{
    const struct hypernet *h = p->hyper;
    const struct hyper_pair *pair = NULL;
    (void)b;
    if (net_bad(r) || !h)
        return;
    for (size_t i = 0; i < h->n; i++)
        if (h->at[i].dim == shape_last(&a->k.shape, 1))
            pair = &h->at[i];
    if (!pair || shape_last(&a->v.shape, 1) != pair->dim)
        return;
    struct act k = changed(r, h, &pair->of[0], p->p[0], a->k);
    struct act v = changed(r, h, &pair->of[1], p->p[0], a->v);
    if (a->own_k)
        net_drop(r, &a->k);
    if (a->own_v)
        net_drop(r, &a->v);
    a->k = k;
    a->v = v;
    a->own_k = a->own_v = true;
}

const struct net_patch_kind patch_hypernet = { .name = "HypernetworkLoader",
                                               .places = PATCH_SELF_ATTENTION,
                                               .attends = attends };
