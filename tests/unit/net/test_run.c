/* The doors of a forward: what each computes, and how a run ends that goes wrong. */
#include "toy_net.h"

#include "net/net_impl.h"

#include "base/tpool.h"

#include <math.h>

#define C 8

static const struct toy_tensor tensors[] = {
    { "lin.weight", { 2, { 6, C } } },       { "lin.bias", { 1, { 6 } } },
    { "sq.weight", { 2, { C, C } } },        { "sq.bias", { 1, { C } } },
    { "same.bias", { 1, { C } } },           { "conv.weight", { 4, { 5, C, 3, 3 } } },
    { "conv.bias", { 1, { 5 } } },           { "same.weight", { 4, { C, C, 3, 3 } } },
    { "norm.weight", { 1, { C } } },         { "norm.bias", { 1, { C } } },
    { "deep.er.norm.weight", { 1, { C } } }, { "deep.er.norm.bias", { 1, { C } } },
    { "deep.er.half.weight", { 1, { C } } }, { "table.weight", { 2, { 7, C } } },
    { "rms.weight", { 1, { C } } },
};

static void doors_open(struct toy *t)
{
    toy_open(t, "cpu=64m", "cpu,*",
             (struct toy_file) { .name = "doors",
                                 .weight = DT_F16,
                                 .param = DT_F16,
                                 .tensor = tensors,
                                 .n = ARRAY_LEN(tensors) });
}

static float value(const char *name, uint64_t i)
{
    float x;
    toy_value(name, &x, 1, i);
    return x; /* F16 holds it exactly */
}

static void near(const float *got, const float *want, size_t n, const char *what)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabsf(got[i] - want[i]) <= 1e-5f * (1 + fabsf(want[i]))))
            fail_msg("%s: %zu is %.9g, not %.9g", what, i, (double)got[i], (double)want[i]);
}

/* ---- what they compute, against loops of the test's own ---- */

static float in[2 * C * 4 * 5];

struct outs {
    float linear[2][6], linear_add[2][C], conv[2 * 5 * 2 * 3], conv_add[2 * C * 4 * 5];
    float conv_plus[2 * C * 20], kept[2 * C * 20];
    float group[2 * C * 20], layer[20][C], bare[20][C], rms[20][C], silu[2 * C * 20];
    float added[2 * C * 20], geglu[20][C / 2], rows[3][C], time[2][C], near[2 * C * 8 * 5];
    float cat[2 * 2 * C * 20], across[C * 2 * 20], cut[2 * 3 * 20], attn[2][10][C];
};

static void give(struct net_run *r, struct act a, float *to)
{
    net_output(r, a, to);
    net_drop(r, &a);
}

static void weighted(struct net_run *r, struct outs *o, struct act x, struct act rows)
{
    struct act first = net_slice(r, rows, 0, 0, 2);
    give(r, net_linear(r, first, "lin"), o->linear[0]);
    struct act add = net_slice(r, rows, 0, 2, 4);
    give(r, net_linear_add(r, first, "sq", add), o->linear_add[0]);
    net_drop(r, &first);
    give(r, net_conv2d(r, x, "conv", (struct net_conv) { .stride = 2, .top = 1, .right = 2 }),
         o->conv);
    add = net_slice(r, x, 0, 0, 2);
    give(r, net_conv2d_plus(r, x, "same", NET_PAD1, add), o->conv_plus);
    net_output(r, add, o->kept);
    give(r, net_conv2d_add(r, x, "same", NET_PAD1, add), o->conv_add);
    give(r, net_group_norm(r, x, "norm", 2, 1e-5f, true), o->group);
    give(r, net_layer_norm(r, rows, "norm", 1e-5f), o->layer[0]);
    give(r, net_layer_norm(r, rows, NULL, 1e-5f), o->bare[0]);
    give(r, net_rms_norm(r, rows, "rms", 1e-5f), o->rms[0]);
}

static void moved(struct net_run *r, struct outs *o, struct act x)
{
    const int across[] = { 1, 0, 2, 3 };
    const struct act both[] = { x, x };
    give(r, net_nearest(r, x, 8, 5), o->near);
    give(r, net_concat(r, both, 2, 1), o->cat);
    give(r, net_permute(r, x, across), o->across);
    give(r, net_slice(r, x, 1, 2, 5), o->cut);
}

static void doors(struct net_run *r, void *user)
{
    struct outs *o = user;
    static const int32_t ids[] = { 6, 0, 3 };
    static const float t[] = { 3, 500 };
    struct act x = net_input(r, &(struct shape) { 4, { 2, C, 4, 5 } }, in);
    struct act rows = net_input(r, &(struct shape) { 2, { 20, C } }, in);
    weighted(r, o, x, rows);
    struct act y = net_slice(r, x, 0, 0, 2);
    net_unary(r, &y, OP_SILU);
    net_output(r, y, o->silu);
    struct act b = net_input(r, &(struct shape) { 4, { 2, C, 1, 1 } }, in);
    net_add(r, &y, b);
    net_drop(r, &b);
    give(r, y, o->added);
    give(r, net_geglu(r, rows), o->geglu[0]);
    give(r, net_embedding(r, ids, 3, "table"), o->rows[0]);
    give(r, net_timestep(r, t, 2, C), o->time[0]);
    moved(r, o, x);
    struct act q = net_reshape(r, rows, &(struct shape) { 3, { 2, 10, C } });
    give(r, net_attention(r, q, q, q, (struct net_attn) { .heads = 2, .causal = true }),
         o->attn[0][0]);
    net_drop(r, &q); /* rows' place */
    net_drop(r, &x);
}

static void check_products(const struct outs *o)
{
    float want[2 * C * 20];
    for (size_t m = 0; m < 2; m++)
        for (size_t n = 0; n < 6; n++) {
            want[m * 6 + n] = value("lin.bias", n);
            for (size_t k = 0; k < C; k++)
                want[m * 6 + n] += in[m * C + k] * value("lin.weight", n * C + k);
        }
    near(o->linear[0], want, 12, "linear");
    for (size_t m = 0; m < 2; m++)
        for (size_t n = 0; n < C; n++) {
            want[m * C + n] = in[(m + 2) * C + n] + value("sq.bias", n);
            for (size_t k = 0; k < C; k++)
                want[m * C + n] += in[m * C + k] * value("sq.weight", n * C + k);
        }
    near(o->linear_add[0], want, 2 * C, "linear_add");
}

/* x[2, C, 4, 5] at (n, c, y, x), zero outside */
static float at(size_t n, size_t c, long y, long x)
{
    return y < 0 || x < 0 || y > 3 || x > 4 ? 0 : in[((n * C + c) * 4 + (size_t)y) * 5 + (size_t)x];
}

static void check_convs(const struct outs *o)
{
    float want[2 * C * 20];
    for (size_t n = 0, i = 0; n < 2; n++) /* stride 2, 1 above, 2 to the right: [2, 5, 2, 3] */
        for (size_t oc = 0; oc < 5; oc++)
            for (long y = 0; y < 2; y++)
                for (long x = 0; x < 3; x++, i++) {
                    want[i] = value("conv.bias", oc);
                    for (size_t k = 0; k < C * 9; k++)
                        want[i] +=
                            value("conv.weight", oc * C * 9 + k) *
                            at(n, k / 9, y * 2 - 1 + (long)(k % 9 / 3), x * 2 + (long)(k % 3));
                }
    near(o->conv, want, 2 * 5 * 6, "conv2d");
    for (size_t n = 0, i = 0; n < 2; n++)
        for (size_t oc = 0; oc < C; oc++)
            for (long y = 0; y < 4; y++)
                for (long x = 0; x < 5; x++, i++) {
                    want[i] = in[i] + value("same.bias", oc);
                    for (size_t k = 0; k < C * 9; k++)
                        want[i] += value("same.weight", oc * C * 9 + k) *
                                   at(n, k / 9, y - 1 + (long)(k % 9 / 3), x - 1 + (long)(k % 3));
                }
    near(o->conv_add, want, 2 * C * 20, "conv2d_add");
    assert_memory_equal(o->conv_plus, o->conv_add, sizeof o->conv_add);
    assert_memory_equal(o->kept, in, sizeof o->kept);
}

static float silu(float x)
{
    return x / (1 + expf(-x));
}

/* (x - mean) / sqrt(var + eps) of n values that lie together */
static void normalise(const float *x, float *y, size_t n, bool rms)
{
    double mean = 0, var = 0;
    for (size_t i = 0; i < n && !rms; i++)
        mean += (double)x[i] / (double)n;
    for (size_t i = 0; i < n; i++)
        var += ((double)x[i] - mean) * ((double)x[i] - mean) / (double)n;
    for (size_t i = 0; i < n; i++)
        y[i] = (float)(((double)x[i] - mean) / sqrt(var + 1e-5));
}

static void check_norms(const struct outs *o)
{
    float want[2 * C * 20], row[3][20 * C];
    for (size_t g = 0; g < 4; g++)
        normalise(in + g * C * 10, want + g * C * 10, C * 10, false);
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        want[i] = silu(want[i] * value("norm.weight", i / 20 % C) + value("norm.bias", i / 20 % C));
    near(o->group, want, ARRAY_LEN(want), "group_norm");
    for (size_t m = 0; m < 20; m++) {
        normalise(in + m * C, row[1] + m * C, C, false);
        normalise(in + m * C, row[2] + m * C, C, true);
    }
    for (size_t i = 0; i < 20 * C; i++) {
        row[0][i] = row[1][i] * value("norm.weight", i % C) + value("norm.bias", i % C);
        row[2][i] *= value("rms.weight", i % C);
    }
    near(o->layer[0], row[0], 20 * C, "layer_norm");
    near(o->bare[0], row[1], 20 * C, "layer_norm without parameters");
    near(o->rms[0], row[2], 20 * C, "rms_norm");
}

static void check_values(const struct outs *o)
{
    float want[2 * 2 * C * 20];
    for (size_t i = 0; i < 2 * C * 20; i++)
        want[i] = silu(in[i]);
    near(o->silu, want, 2 * C * 20, "unary");
    for (size_t i = 0; i < 2 * C * 20; i++)
        want[i] += in[i / 20];
    near(o->added, want, 2 * C * 20, "add");
    for (size_t i = 0; i < 20 * C / 2; i++) {
        float a = in[i / 4 * C + i % 4], g = in[i / 4 * C + 4 + i % 4];
        want[i] = a * (g * 0.5f * (1 + erff(g * 0.70710678f)));
    }
    near(o->geglu[0], want, 20 * C / 2, "geglu");
    for (size_t i = 0; i < 3 * C; i++)
        want[i] = value("table.weight", (size_t[]) { 6, 0, 3 }[i / C] * C + i % C);
    near(o->rows[0], want, 3 * C, "embedding");
    for (size_t i = 0; i < 2 * C; i++) {
        float f = (i / C ? 500.0f : 3.0f) * expf(-logf(10000) * (float)(i % (C / 2)) / (C / 2));
        want[i] = i % C < C / 2 ? cosf(f) : sinf(f);
    }
    for (size_t i = 0; i < 2 * C; i++)
        assert_true(fabsf(o->time[i / C][i % C] - want[i]) < 1e-4f);
}

static void check_moves(const struct outs *o)
{
    float want[2 * 2 * C * 40];
    for (size_t i = 0; i < 2 * C * 40; i++)
        want[i] = in[i / 40 * 20 + i % 40 / 10 * 5 + i % 5];
    near(o->near, want, 2 * C * 40, "nearest");
    for (size_t i = 0; i < 2 * 2 * C * 20; i++)
        want[i] = in[i / (2 * C * 20) * C * 20 + i % (C * 20)];
    near(o->cat, want, 2 * 2 * C * 20, "concat");
    for (size_t i = 0; i < 2 * C * 20; i++)
        want[i] = in[i / 20 % 2 * C * 20 + i / 40 * 20 + i % 20];
    near(o->across, want, 2 * C * 20, "permute");
    for (size_t i = 0; i < 2 * 3 * 20; i++)
        want[i] = in[i / 60 * C * 20 + 2 * 20 + i % 60];
    near(o->cut, want, 2 * 3 * 20, "slice");
}

static void check_attention(const struct outs *o)
{
    float want[2][10][C];
    for (size_t b = 0; b < 2; b++)
        for (size_t t = 0; t < 10; t++)
            for (size_t c = 0; c < C; c++) {
                size_t h = c / 4;
                double sum = 0, y = 0;
                for (size_t s = 0; s <= t; s++) { /* causal */
                    double dot = 0;
                    for (size_t d = 0; d < 4; d++)
                        dot += (double)in[(b * 10 + t) * C + h * 4 + d] *
                               (double)in[(b * 10 + s) * C + h * 4 + d];
                    sum += exp(dot / 2);
                    y += exp(dot / 2) * (double)in[(b * 10 + s) * C + c];
                }
                want[b][t][c] = (float)(y / sum);
            }
    near(o->attn[0][0], want[0][0], 20 * C, "attention");
}

static void every_door(void **state)
{
    static struct outs o, again;
    struct toy t;
    struct tpool *pool;
    berth_err err = { 0 };
    (void)state;
    toy_input(in, ARRAY_LEN(in));
    doors_open(&t);
    assert_ok(net_forward(t.net, doors, &o, &err), err);
    check_products(&o);
    check_convs(&o);
    check_norms(&o);
    check_values(&o);
    check_moves(&o);
    check_attention(&o);
    net_close(t.net);
    assert_ok(tpool_new(3, &pool, &err), err);
    t.args.pool = pool;
    toy_net(&t);
    assert_ok(net_forward(t.net, doors, &again, &err), err);
    assert_memory_equal(&o, &again, sizeof o);
    toy_close(&t);
    tpool_free(pool);
}

/* ---- names and errors ---- */

struct script { /* what a forward does, by number; and what it saw */
    int what;
    atomic_bool *cancel;
    unsigned calls, real;
    bool has, has_not;
    float *out;
};

static void branches(struct net_run *r, struct script *s, struct act x)
{
    const struct shape wrong = { 2, { 3, 3 } };
    switch (s->what) {
    case 0:
        net_fail(r, BERTH_EUNSUPPORTED, "no such %s", "thing");
        net_fail(r, BERTH_EINVAL, "never seen");
        break;
    case 1:
        net_group_norm(r, x, "norm", 3, 1e-5f, false);
        break;
    case 2:
        net_reshape(r, x, &wrong);
        break;
    case 3:
        if (!r->dry)
            atomic_store(s->cancel, true);
        net_layer_norm(r, x, NULL, 0);
        break;
    case 4: /* another pass than the dry one */
        if (!r->dry)
            net_new(r, &x.shape);
        break;
    case 5:
        net_enter(r, "%0300d.", 1);
        break;
    case 6:
        net_slice(r, x, 0, 1, 3);
        break;
    case 7:
        net_new(r, &(struct shape) { 2, { UINT64_C(1) << 40, UINT64_C(1) << 40 } });
        break;
    case 8:
        net_linear_add(r, x, "lin", x);
        break;
    case 9:
        net_concat(r, &x, 1, 2);
        break;
    case 10:
        net_attention(r, x, x, x, (struct net_attn) { .heads = 3 });
        break;
    case 11:
        net_linear(r, x, "norm");
        break;
    case 12:
        net_new(r, &(struct shape) { 1, { UINT64_C(1) << 50 } });
        break;
    case 13: /* less than in the dry one, and elsewhere */
        if (r->dry)
            net_new(r, &x.shape);
        break;
    case 14: /* norms without their bias */
        net_layer_norm(r, x, "half", 1e-5f);
        break;
    case 15:
        net_group_norm(r, x, "half", 2, 1e-5f, false);
        break;
    default:
        break;
    }
}

static void scripted(struct net_run *r, void *user)
{
    struct script *s = user;
    static const float x[C] = { 1, 2, 3 };
    s->calls++;
    s->real += !r->dry;
    size_t mark = net_enter(r, "deep."), inner = net_enter(r, "%s.", "er");
    s->has = net_has(r, "norm");
    s->has_not = net_has(r, "lin");
    struct act a = net_input(r, &(struct shape) { 2, { 1, C } }, x);
    if (s->what != 8 && s->what != 11)
        branches(r, s, a);
    net_leave(r, inner);
    net_leave(r, mark);
    if (s->what == 8 || s->what == 11)
        branches(r, s, a);
    struct act y = net_linear(r, a, "lin"); /* does nothing after an error */
    assert_int_equal(y.addr != 0, !net_bad(r));
    assert_int_equal(y.shape.ndim, net_bad(r) ? 0 : 2);
    if (s->out)
        net_output(r, y, s->out);
    net_drop(r, &y);
    net_drop(r, &a);
}

static void errors_name_the_layer_and_end_the_run(void **state)
{
    static const struct {
        berth_status want;
        const char *says;
        unsigned calls;
    } cases[] = {
        { BERTH_EUNSUPPORTED, "deep.er: no such thing", 1 },
        { BERTH_EINVAL, "deep.er.norm: group_norm: x [1, 8] has no 3 equal", 1 },
        { BERTH_EINVAL, "deep.er: reshape: [1, 8] has not as many elements as [3, 3]", 1 },
        { BERTH_ECANCELED, "cancel", 2 },
        { BERTH_EINVAL, "the pass is not the one that was predicted", 2 },
        { BERTH_ELIMIT, "a layer's name of more than", 1 },
        { BERTH_EINVAL, "slice: [1, 3) of 1", 1 },
        { BERTH_ELIMIT, "an activation [1099511627776, 1099511627776]", 1 },
        { BERTH_EINVAL, "adding [1, 8] to [1, 6]", 1 },
        { BERTH_EINVAL, "concat: 1 activations along axis 2", 1 },
        { BERTH_EINVAL, "deep.er.attention: attention:", 1 },
        { BERTH_EINVAL, "norm: its weight is [8], not of 2 dimensions", 1 },
        { BERTH_ENODEVMEM, "a pass of 4.00 PiB", 1 },
        { BERTH_EINVAL, "predicted", 2 },
        { BERTH_ENOTFOUND, "deep.er.half: no such weight 'deep.er.half.bias' in '", 1 },
        { BERTH_ENOTFOUND, "deep.er.half: no such weight 'deep.er.half.bias' in '", 1 },
    };
    struct toy t;
    float out[6];
    atomic_bool cancel;
    (void)state;
    doors_open(&t);
    net_close(t.net);
    atomic_init(&cancel, false);
    t.args.cancel = &cancel;
    toy_net(&t);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct script s = { .what = (int)i, .cancel = &cancel, .out = out };
        berth_err err = { 0 };
        t.net->seen.fn = NULL; /* it runs dry first */
        assert_fails(net_forward(t.net, scripted, &s, &err), err, cases[i].want, cases[i].says);
        atomic_store(&cancel, false);
        if (i != 12) /* which walks the ladder first */
            assert_int_equal(s.calls, cases[i].calls);
        s = (struct script) { .what = -1, .out = out };
        assert_ok(net_forward(t.net, scripted, &s, &err), err); /* and goes on */
        assert_true(s.has && !s.has_not);
        assert_int_equal(s.calls, 2);
        assert_ok(net_forward(t.net, scripted, &s, &err), err);
        assert_true(t.net->seen.steady); /* the next one does not */
        s = (struct script) { .what = (int)i, .cancel = &cancel, .out = out };
        if (i != 13) /* nobody could tell */
            assert_fails(net_forward(t.net, scripted, &s, &err), err, cases[i].want, cases[i].says);
        atomic_store(&cancel, false);
    }
    uint64_t bytes[DEV_KIND_COUNT];
    dev_by_kind(device_named(t.f.set, "cpu"), bytes);
    assert_int_equal(bytes[DEV_ACTIVATIONS], 0); /* no slab is left */
    toy_close(&t);
}

/* ---- values that went wrong ---- */

static void wrong_value(struct net_run *r, void *user)
{
    static float x[2 * 3 * 2000], out[2 * 3 * 2000];
    memset(x, 0, sizeof x);
    memcpy(x + 6005, user, sizeof(float));
    struct act a = net_input(r, &(struct shape) { 3, { 2, 3, 2000 } }, x);
    net_finite(r, a, "latent");
    net_output(r, a, out);
    net_drop(r, &a);
}

static void nan_is_found_and_named(void **state)
{
    struct toy t;
    berth_err err = { 0 };
    float nan_ = NAN, inf = -INFINITY, fine = 1e30f;
    (void)state;
    doors_open(&t);
    assert_fails(net_forward(t.net, wrong_value, &nan_, &err), err, BERTH_EINVAL,
                 "latent: NaN at [1, 0, 5]");
    assert_fails(net_forward(t.net, wrong_value, &inf, &err), err, BERTH_EINVAL,
                 "latent: infinity at [1, 0, 5]");
    assert_ok(net_forward(t.net, wrong_value, &fine, &err), err);
    toy_close(&t);
}

/* ---- peaks ---- */

static void places(struct net_run *r, void *user)
{
    const struct shape k1 = { 1, { 256 } }, k3 = { 1, { 768 } };
    (void)user;
    struct act a = net_new(r, &k1), b = net_new(r, &k3), c = net_new(r, &k1);
    net_drop(r, &b);
    struct act d = net_new(r, &k1), e = net_new(r, &k1); /* in b's place */
    net_drop(r, &a);
    net_drop(r, &c);
    net_drop(r, &d);
    net_drop(r, &e);
    net_drop(r, &e); /* empty: fine */
}

static void nothing(struct net_run *r, void *user)
{
    (void)r, (void)user;
}

static void peaks_are_predicted_to_the_byte(void **state)
{
    static struct outs o;
    struct toy t;
    uint64_t peak;
    berth_err err = { 0 };
    (void)state;
    doors_open(&t);
    assert_ok(net_predict(t.net, places, NULL, &peak, &err), err);
    assert_int_equal(peak, 5 * 1024);
    assert_int_equal(net_report(t.net).passes, 0);
    assert_ok(net_forward(t.net, places, NULL, &err), err);
    assert_int_equal(net_report(t.net).peak, 5 * 1024);
    assert_ok(net_predict(t.net, doors, &o, &peak, &err), err);
    assert_ok(net_forward(t.net, doors, &o, &err), err);
    struct net_report rep = net_report(t.net);
    assert_true(rep.predicted == peak && rep.peak == peak && rep.largest == peak);
    assert_ok(net_forward(t.net, nothing, NULL, &err), err);
    rep = net_report(t.net);
    assert_true(rep.peak == 0 && rep.largest == peak && rep.passes == 3 && rep.rungs == 0);
    assert_string_equal(rep.device, "cpu");
    toy_close(&t);
}

/* ---- passes that are alike ---- */

struct alike {
    uint64_t pictures, rows;
    char seen[8]; /* 'd' and 'r' of the runs of a pass */
    float out[3 * 6];
};

static void alike(struct net_run *r, void *user)
{
    struct alike *a = user;
    static const float x[3 * C] = { 1, 2, 3, 4, 5, 6, 7, 8, 9 };
    size_t n = strlen(a->seen);
    a->seen[n] = r->dry ? 'd' : 'r';
    a->seen[n + 1] = 0;
    struct act v = net_input(r, &(struct shape) { 3, { a->pictures, a->rows, C } }, x);
    struct act y = net_linear(r, v, "lin");
    net_drop(r, &v);
    net_output(r, y, a->out);
    net_drop(r, &y);
}

#ifdef BERTH_CHECKS
#define UNPROVEN "rd" /* and compared afterwards */
#else
#define UNPROVEN "r"
#endif

/* From the third pass on without a dry run, until one differs; the results are those of nets that
 * ran nothing before. */
static void alike_passes_run_dry_twice(void **state)
{
    static const struct {
        uint64_t pictures, rows;
        const char *runs;
    } pass[] = { { 1, 1, "dr" },     { 1, 1, "dr" },     { 1, 1, UNPROVEN },
                 { 1, 1, UNPROVEN }, { 1, 3, "rdr" },    { 1, 3, "dr" },
                 { 1, 3, UNPROVEN }, { 3, 1, "rdr" }, /* same bytes */
                 { 3, 1, "dr" },     { 3, 1, UNPROVEN }, { 1, 1, "rdr" },
                 { 1, 3, "dr" },     { 1, 1, "dr" },     { 1, 1, "dr" },
                 { 1, 1, UNPROVEN }, { 1, 2, "rdr" } };
    struct toy t, fresh;
    berth_err err = { 0 };
    (void)state;
    doors_open(&t);
    for (size_t i = 0; i < ARRAY_LEN(pass); i++) {
        struct alike got = { .pictures = pass[i].pictures, .rows = pass[i].rows }, want = got;
        assert_ok(net_forward(t.net, alike, &got, &err), err);
        assert_string_equal(got.seen, pass[i].runs);
        assert_int_equal(net_report(t.net).peak, net_report(t.net).predicted);
        doors_open(&fresh);
        assert_ok(net_forward(fresh.net, alike, &want, &err), err);
        toy_close(&fresh);
        assert_memory_equal(got.out, want.out, sizeof got.out);
    }
    assert_int_equal(net_report(t.net).passes, ARRAY_LEN(pass));
    toy_close(&t);
}

/* ---- memory that stays ---- */

struct keeping {
    float out[2 * C];
    bool write; /* rows of `in` first */
    uint64_t at;
};

static void keep_forward(struct net_run *r, void *user)
{
    struct keeping *k = user;
    const struct shape rows = { 2, { 2, C } };
    struct act kept = net_kept(r, k->at, &rows);
    if (k->write) {
        struct act x = net_input(r, &rows, in);
        net_copy(r, net_view(&x), net_view(&kept));
        net_drop(r, &x);
    }
    net_output(r, kept, k->out);
}

/* A pass finds what the one before it wrote; beyond what is kept there is nothing. */
static void kept_between_passes(void **state)
{
    (void)state;
    struct toy t;
    berth_err err = { 0 };
    struct keeping k = { .write = true, .at = 64 }, beyond = { .at = 128 };
    doors_open(&t);
    for (size_t i = 0; i < 2 * C; i++)
        in[i] = (float)i - 3;
    assert_ok(net_keep(t.net, 64 + sizeof k.out, &err), err);
    assert_ok(net_forward(t.net, keep_forward, &k, &err), err);
    k = (struct keeping) { .at = 64 };
    assert_ok(net_forward(t.net, keep_forward, &k, &err), err);
    assert_memory_equal(k.out, in, sizeof k.out);
    assert_fails(net_forward(t.net, keep_forward, &beyond, &err), err, BERTH_EINVAL,
                 "[2, 8] at byte 128 of 128 that are kept");
    const uint64_t half = (64 + sizeof k.out) / 2; /* two pieces; the second one has the rows */
    assert_int_equal(half, 64);
    assert_ok(net_keep_more(t.net, 2, half, 192, &err), err);
    k = (struct keeping) { .at = 192 };
    assert_ok(net_forward(t.net, keep_forward, &k, &err), err);
    assert_memory_equal(k.out, in, sizeof k.out);
    assert_fails(net_keep_more(t.net, 2, 192, 191, &err), err, BERTH_ELIMIT, "");
    assert_fails(net_keep_more(t.net, 3, 192, 200, &err), err, BERTH_ELIMIT, "");
    assert_fails(net_keep_more(t.net, 2, 192, UINT64_C(1) << 40, &err), err, BERTH_ENODEVMEM, "");
    assert_ok(net_forward(t.net, keep_forward, &k, &err), err); /* still there */
    assert_memory_equal(k.out, in, sizeof k.out);
    assert_ok(net_keep(t.net, 4096, &err), err); /* in place of the first */
    assert_fails(net_keep(t.net, UINT64_C(1) << 40, &err), err, BERTH_ENODEVMEM, "");
    assert_fails(net_forward(t.net, keep_forward, &k, &err), err, BERTH_EINVAL,
                 "of 0 that are kept");
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(kept_between_passes),
        cmocka_unit_test(every_door),
        cmocka_unit_test(errors_name_the_layer_and_end_the_run),
        cmocka_unit_test(nan_is_found_and_named),
        cmocka_unit_test(peaks_are_predicted_to_the_byte),
        cmocka_unit_test(alike_passes_run_dry_twice),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
