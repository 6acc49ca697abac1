/* Boxes with texts: tokens made of them, and the gated attention that looks at those. */
#include "model/gligen.h"

#include "base/str.h"
#include "model/arch.h"
#include "model/canonical.h"
#include "tensor/convert.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#define FREQUENCIES 8
#define POSITION (FREQUENCIES * 2 * 4) /* sines and cosines of a box's four sides */
#define WIDTH_MAX 8192
#define EPS 1e-5f
#define SD1_WIDTH 768 /* of tokens; there are 8 heads then, else they are 64 wide */

struct gligen {
    struct net *net;
    uint64_t text, width; /* of a box's text, of its token */
    float *none;          /* [text + POSITION]: of a token that is no box */
};

/* One that is a number has no ".weight" in the file. */
static bool names(const void *user, const char *canonical, struct net_source *out)
{
    const size_t n = strlen(canonical);
    (void)user;
    *out = (struct net_source) { .as = { 2, { 1, 1 } } }; /* as tables are */
    return strstr(canonical, ".alpha_") && str_ends(canonical, n, ".weight") &&
           name_print(out->name, sizeof out->name, "%.*s", (int)(n - strlen(".weight")), canonical);
}

static berth_status vector(const struct weights *w, const char *name, uint64_t want, uint64_t *n,
                           berth_err *err)
{
    const struct weights_entry *e = arch_find(w, "", name);
    if (!e)
        return err_set(err, BERTH_EUNSUPPORTED, "no GLIGEN of text boxes: it has no '%s'", name);
    *n = arch_dim(e, 0);
    if (e->shape.ndim != 1 || !*n || *n > WIDTH_MAX || (want && *n != want))
        return err_set(err, BERTH_EUNSUPPORTED, "a GLIGEN whose '%s' has %llu values", name,
                       (unsigned long long)*n);
    return BERTH_OK;
}

static berth_status find_widths(const struct weights *w, uint64_t *text, uint64_t *width,
                                berth_err *err)
{
    const struct weights_entry *in = arch_find(w, "", "position_net.linears.0.weight");
    const struct weights_entry *out = arch_find(w, "", "position_net.linears.4.weight");
    uint64_t position;
    if (vector(w, "position_net.null_positive_feature", 0, text, err) ||
        vector(w, "position_net.null_position_feature", POSITION, &position, err))
        return err->code;
    *width = arch_dim(out, 0);
    if (arch_dim(in, 1) != *text + POSITION || !*width || *width > WIDTH_MAX)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a GLIGEN whose boxes have %llu values and become %llu",
                       (unsigned long long)arch_dim(in, 1), (unsigned long long)*width);
    return BERTH_OK;
}

berth_status gligen_check(const struct weights *w, uint64_t *text, berth_err *err)
{
    uint64_t t, width;
    if (find_widths(w, &t, &width, err))
        return err->code;
    if (text)
        *text = t;
    return BERTH_OK;
}

/* A vector of the file, in F32. */
static berth_status read_vector(const struct weights *w, const char *name, uint64_t n, float *out,
                                berth_err *err)
{
    const struct weights_entry *e = arch_find(w, "", name);
    if (!convert_possible(e->dtype, DT_F32))
        return err_set(err, BERTH_EUNSUPPORTED, "'%s' is %s", name, dtype_name(e->dtype));
    void *raw = malloc((size_t)e->size);
    if (!raw)
        return err_set(err, BERTH_ENOMEM, "'%s'", name);
    berth_status s = weights_read(w, e, 0, raw, (size_t)e->size, err);
    if (!s)
        s = convert(e->dtype, raw, DT_F32, out, (size_t)n, err);
    free(raw);
    return s;
}

berth_status gligen_open(const struct net_args *a, struct net *of, struct gligen **out,
                         berth_err *err)
{
    const struct weights *w = res_weights(a->m);
    struct gligen *g = calloc(1, sizeof *g);
    struct net_args args = *a;
    *out = NULL;
    if (!g)
        return err_set(err, BERTH_ENOMEM, "a GLIGEN");
    berth_status s = find_widths(w, &g->text, &g->width, err);
    if (!s && !(g->none = malloc((size_t)(g->text + POSITION) * sizeof(float))))
        s = err_set(err, BERTH_ENOMEM, "a GLIGEN");
    if (!s &&
        (read_vector(w, "position_net.null_positive_feature", g->text, g->none, err) ||
         read_vector(w, "position_net.null_position_feature", POSITION, g->none + g->text, err)))
        s = err->code;
    args.root = "";
    args.names = names;
    args.names_user = NULL;
    if (!s && (net_open(&args, &g->net, err) || net_invite(of, g->net, err)))
        s = err->code;
    if (s) {
        gligen_close(g);
        return err_add(err, "'%.120s'", weights_path(w));
    }
    *out = g;
    return BERTH_OK;
}

void gligen_close(struct gligen *g)
{
    if (!g)
        return;
    net_close(g->net);
    free(g->none);
    free(g);
}

uint64_t gligen_text(const struct gligen *g)
{
    return g->text;
}

uint64_t gligen_features_n(const struct gligen *g)
{
    return GLIGEN_BOXES * (g->text + POSITION);
}

/* The sides of a box, as fractions of the picture, at eight frequencies up to 100: as float32, the
 * reference's. */
static void waves(const struct gligen_box *b, uint64_t h, uint64_t w, float *out)
{
    const float side[4] = { (float)(b->x / (double)w), (float)(b->y / (double)h),
                            (float)((b->x + b->w) / (double)w),
                            (float)((b->y + b->h) / (double)h) };
    for (int f = 0; f < FREQUENCIES; f++) {
        const float by = powf(100.0f, (float)f / FREQUENCIES);
        for (int i = 0; i < 4; i++) {
            out[f * 8 + i] = sinf(by * side[i]);
            out[f * 8 + 4 + i] = cosf(by * side[i]);
        }
    }
}

void gligen_features(const struct gligen *g, const struct gligen_box *box, size_t n, uint64_t h,
                     uint64_t w, float *out)
{
    const size_t text = (size_t)g->text, each = text + POSITION;
    for (size_t i = 0; i < GLIGEN_BOXES; i++, out += each) {
        memcpy(out, i < n ? box[i].text : g->none, text * sizeof *out);
        memcpy(out + text, g->none + text, POSITION * sizeof *out);
        if (i < n)
            waves(&box[i], h, w, out + text);
    }
}

/* ---- in a pass ---- */

/* y(x), and x goes. */
static struct act linear(struct net_run *r, struct act x, const char *layer)
{
    struct act y = net_linear(r, x, layer);
    net_drop(r, &x);
    return y;
}

struct act gligen_objects(struct net_run *r, const struct gligen *g, const float *features,
                          uint64_t B)
{
    const struct shape s = { 3, { B, GLIGEN_BOXES, g->text + POSITION } };
    net_visit(r, true);
    size_t mark = net_enter(r, "position_net.linears.");
    struct act x = linear(r, net_input(r, &s, features), "0");
    net_unary(r, &x, OP_SILU);
    x = linear(r, x, "2");
    net_unary(r, &x, OP_SILU);
    x = linear(r, x, "4");
    net_leave(r, mark);
    net_visit(r, false);
    return x;
}

/* x += tanh(alpha) * y, in x's place; takes y. */
static void gated(struct net_run *r, struct act *x, struct act y, const char *alpha)
{
    static const int32_t first = 0;
    struct act by = net_embedding(r, &first, 1, alpha); /* [1, 1] */
    net_unary(r, &by, OP_TANH);
    by = net_reshape(r, by, &(struct shape) { 3, { 1, 1, 1 } });
    net_mul(r, &y, by);
    net_drop(r, &by);
    net_add(r, x, y);
    net_drop(r, &y);
}

/* Attention of the picture's tokens n over themselves and the boxes' o, both behind the norm. */
static struct act attention(struct net_run *r, const struct gligen *g, struct act n, struct act o)
{
    const uint64_t C = n.shape.dim[2], heads = g->width == SD1_WIDTH ? 8 : C / 64;
    const struct act both[] = { n, o };
    size_t mark = net_enter(r, "attn.");
    if (!heads || C % heads)
        net_fail(r, BERTH_EUNSUPPORTED, "a GLIGEN of %llu channels", (unsigned long long)C);
    struct act seen = net_concat(r, both, 2, 1);
    struct act q = net_linear_no_bias(r, n, "to_q");
    struct act k = net_linear_no_bias(r, seen, "to_k");
    struct act v = net_linear_no_bias(r, seen, "to_v");
    net_drop(r, &seen);
    struct act y =
        net_attention(r, q, k, v, (struct net_attn) { .heads = (uint32_t)heads, .scale = 0.0f });
    net_drop(r, &q);
    net_drop(r, &k);
    net_drop(r, &v);
    y = linear(r, y, "to_out.0");
    net_leave(r, mark);
    return y;
}

struct act gligen_fuse(struct net_run *r, const struct gligen *g, struct act x, struct act objects)
{
    net_visit(r, true);
    size_t mark = net_enter(r, "fuser.");
    struct act o = net_linear(r, objects, "linear"); /* [B, GLIGEN_BOXES, C] */
    struct act n = net_layer_norm(r, x, "norm1", EPS), on = net_layer_norm(r, o, "norm1", EPS);
    net_drop(r, &o);
    struct act y = attention(r, g, n, on);
    net_drop(r, &n);
    net_drop(r, &on);
    gated(r, &x, y, "alpha_attn");
    n = net_layer_norm(r, x, "norm2", EPS);
    struct act f = linear(r, n, "ff.net.0.proj");
    y = net_geglu(r, f);
    net_drop(r, &f);
    y = linear(r, y, "ff.net.2");
    gated(r, &x, y, "alpha_dense");
    net_leave(r, mark);
    net_visit(r, false);
    return x;
}
