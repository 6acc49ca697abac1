/* Opening nets: names in files, ways of storing, what is refused, failing allocations. */
#include "toy_net.h"

#include "base/tpool.h"
#include "net/net_impl.h"
#include "support/oom.h"

/* ---- names ---- */

/* A file that keeps q, k and v in one matrix, a projection the other way round, and a product as a
 * convolution. */
static const struct toy_tensor odd[] = {
    { "attn.in_proj_weight", { 2, { 12, 8 } } }, { "attn.in_proj_bias", { 1, { 12 } } },
    { "text_projection", { 2, { 8, 3 } } },      { "mix.weight", { 4, { 5, 8, 1, 1 } } },
    { "plain.weight", { 2, { 4, 8 } } },
};

static bool translate(const void *user, const char *canonical, struct net_source *out)
{
    static const struct {
        const char *canonical;
        struct net_source source;
    } table[] = {
        { "q.weight", { .name = "attn.in_proj_weight", .row = 0, .rows = 4 } },
        { "k.weight", { .name = "attn.in_proj_weight", .row = 4, .rows = 4 } },
        { "k.bias", { .name = "attn.in_proj_bias", .row = 4, .rows = 4 } },
        { "v.weight", { .name = "attn.in_proj_weight", .row = 8, .rows = 4 } },
        { "project.weight", { .name = "text_projection", .transpose = true } },
        { "mix2.weight", { .name = "mix.weight", .as = { 2, { 5, 8 } } } },
        { "beyond.weight", { .name = "attn.in_proj_weight", .row = 9, .rows = 4 } },
        { "bent.weight", { .name = "mix.weight", .as = { 2, { 5, 9 } } } },
        { "gone.weight", { .name = "nowhere" } },
        { "apart.weight", { .name = "plain.weight" } },
        { "apart.bias", { .name = "attn.in_proj_bias", .row = 2, .rows = 4 } },
    };
    assert_ptr_equal(user, odd);
    for (size_t i = 0; i < ARRAY_LEN(table); i++)
        if (strcmp(canonical, table[i].canonical) == 0) {
            *out = table[i].source;
            return true;
        }
    return false;
}

static void odd_open(struct toy *t, enum dtype weight)
{
    toy_open(t, "cpu=64m", "cpu,*",
             (struct toy_file) { .name = "odd",
                                 .root = "deep.",
                                 .weight = weight,
                                 .param = DT_F32,
                                 .tensor = odd,
                                 .n = ARRAY_LEN(odd) });
    net_close(t->net);
    t->args.names = translate;
    t->args.names_user = odd;
    toy_net(t);
}

/* As a forward will see the layer's weight or bias. False: there is none, or not as `translate`
 * says. */
static bool shape_of(struct net *n, const char *layer, bool bias, struct shape *out)
{
    berth_err err;
    const struct net_layer *l = net_layer_get(n, layer, &err);
    *out = l ? (bias ? l->bias : l->weight).shape : (struct shape) { 0 };
    return out->ndim > 0;
}

static void names_are_translated(void **state)
{
    struct toy t;
    struct shape s;
    (void)state;
    odd_open(&t, DT_F16);
    assert_true(shape_of(t.net, "q", false, &s));
    assert_true(shape_eq(&s, &(struct shape) { 2, { 4, 8 } }));
    assert_true(shape_of(t.net, "k", true, &s));
    assert_true(shape_eq(&s, &(struct shape) { 1, { 4 } }));
    assert_true(shape_of(t.net, "project", false, &s));
    assert_true(shape_eq(&s, &(struct shape) { 2, { 3, 8 } }));
    assert_true(shape_of(t.net, "mix2", false, &s));
    assert_true(shape_eq(&s, &(struct shape) { 2, { 5, 8 } }));
    assert_true(shape_of(t.net, "plain", false, &s)); /* called so in the file */
    assert_false(shape_of(t.net, "gone", false, &s));
    assert_false(shape_of(t.net, "beyond", false, &s));
    assert_false(shape_of(t.net, "bent", false, &s));
    assert_int_equal(s.ndim, 0);
    toy_close(&t);
}

struct product {
    const char *layer;
    uint64_t in;
    bool bias; /* it has one */
    float out[16];
};

static void product(struct net_run *r, void *user)
{
    struct product *p = user;
    static const float x[16] = { [2] = 1, [5] = 3 }; /* picks columns */
    struct act a = net_input(r, &(struct shape) { 2, { 1, p->in } }, x);
    struct act y = p->bias ? net_linear(r, a, p->layer) : net_linear_no_bias(r, a, p->layer);
    net_output(r, y, p->out);
    net_drop(r, &y);
    net_drop(r, &a);
}

static struct product run_product(struct toy *t, const char *layer, uint64_t in)
{
    struct product p = { .layer = layer, .in = in };
    berth_err err = { 0 };
    struct shape s;
    p.bias = shape_of(t->net, layer, true, &s);
    assert_ok(net_forward(t->net, product, &p, &err), err);
    return p;
}

static float value(const char *name, uint64_t i)
{
    float x;
    toy_value(name, &x, 1, i);
    return x; /* F16 holds it exactly */
}

static void slices_transposes_and_shapes_are_multiplied(void **state)
{
    struct toy t;
    (void)state;
    for (int as = 0; as < 2; as++) {
        odd_open(&t, as ? DT_F32 : DT_F16);
        struct product k = run_product(&t, "k", 8), v = run_product(&t, "v", 8);
        struct product p = run_product(&t, "project", 8), m = run_product(&t, "mix", 8);
        struct product m2 = run_product(&t, "mix2", 8);
        for (uint64_t i = 0; i < 4; i++) {
            const char *w = "deep.attn.in_proj_weight";
            float want = value(w, (4 + i) * 8 + 2) + 3 * value(w, (4 + i) * 8 + 5);
            assert_true(k.out[i] == want + value("deep.attn.in_proj_bias", 4 + i));
            assert_true(v.out[i] == value(w, (8 + i) * 8 + 2) + 3 * value(w, (8 + i) * 8 + 5));
        }
        for (uint64_t i = 0; i < 3; i++)
            assert_true(p.out[i] == value("deep.text_projection", 2 * 3 + i) +
                                        3 * value("deep.text_projection", 5 * 3 + i));
        for (uint64_t i = 0; i < 5; i++)
            assert_true(m.out[i] == value("deep.mix.weight", i * 8 + 2) +
                                        3 * value("deep.mix.weight", i * 8 + 5));
        assert_memory_equal(m.out, m2.out, sizeof m.out);
        toy_close(&t);
    }
}

/* Weight and bias in two blocks, and a ring that holds one at a time. */
static void one_block_at_a_time_is_enough(void **state)
{
    struct toy t;
    struct product want;
    (void)state;
    odd_open(&t, DT_F16);
    want = run_product(&t, "apart", 8);
    assert_true(want.out[1] == value("deep.plain.weight", 8 + 2) +
                                   3 * value("deep.plain.weight", 8 + 5) +
                                   value("deep.attn.in_proj_bias", 3));
    toy_close(&t);
    t = (struct toy) { .m = NULL };
    struct toy_file f = { .name = "odd", .root = "deep.", .weight = DT_F16, .param = DT_F32 };
    f.tensor = odd;
    f.n = ARRAY_LEN(odd);
    fixture_open(&t.f, "cpu=64m,null:0=32m", NULL);
    toy_load(&t, toy_write(f), "null:0,*#cpu");
    t.args.root = f.root;
    t.args.names = translate;
    t.args.names_user = odd;
    toy_net(&t);
    berth_err err = { 0 };
    stream_close(t.net->stream);
    t.net->ring = NET_RINGS - 1;
    assert_ok(net_stream_open(t.net, &err), err);
    for (int i = 0; i < 3; i++) {
        struct product got = run_product(&t, "apart", 8);
        assert_memory_equal(want.out, got.out, sizeof got.out);
        run_product(&t, "k", 8);
    }
    assert_int_equal(net_report(t.net).stream.slots, 1);
    toy_close(&t);
}

static void what_is_not_there_is_named(void **state)
{
    struct toy t;
    struct product p = { .layer = "nothing.at.all", .in = 8 };
    berth_err err = { 0 };
    (void)state;
    odd_open(&t, DT_F16);
    assert_fails(net_forward(t.net, product, &p, &err), err, BERTH_ENOTFOUND,
                 "nothing.at.all: no such weight 'deep.nothing.at.all.weight' in '");
    p.layer = "plain"; /* a bias is not optional: a file without it is broken */
    p.bias = true;
    assert_fails(net_forward(t.net, product, &p, &err), err, BERTH_ENOTFOUND,
                 "plain: no such weight 'deep.plain.bias' in '");
    p.bias = false;
    p.layer = "beyond";
    assert_fails(net_forward(t.net, product, &p, &err), err, BERTH_EFORMAT,
                 "beyond: 'deep.attn.in_proj_weight' is F16 [12, 8]: no rows 9 to 13");
    p.layer = "bent";
    assert_fails(net_forward(t.net, product, &p, &err), err, BERTH_EFORMAT,
                 "bent: 'deep.mix.weight' is F16 [5, 8, 1, 1]: not as many numbers as [5, 9]");
    p.layer = "k";
    p.in = 7;
    assert_fails(net_forward(t.net, product, &p, &err), err, BERTH_EINVAL, "k: linear: x [1, 7]");
    assert_int_equal(net_report(t.net).passes, 0);
    run_product(&t, "k", 8); /* and goes on */
    toy_close(&t);
}

/* What no layer asked for is told, apart from what files carry along. */
static void left_over_tensors_are_named(void **state)
{
    static const struct toy_tensor tensors[] = {
        { "a.weight", { 2, { 4, 8 } } },    { "a.bias", { 1, { 4 } } },
        { "b.weight", { 2, { 4, 8 } } },    { "b.bias", { 1, { 4 } } },
        { "x.position_ids", { 1, { 4 } } }, { "logit_scale", { 1, { 1 } } },
        { "loss.a.weight", { 1, { 4 } } },
    };
    struct toy t;
    struct product p = { .layer = "a", .in = 8 };
    berth_err err = { 0 };
    const char *first;
    uint64_t peak;
    (void)state;
    toy_open(&t, "cpu=64m", "cpu,*",
             (struct toy_file) { .name = "left",
                                 .root = "r.",
                                 .weight = DT_F16,
                                 .param = DT_F32,
                                 .tensor = tensors,
                                 .n = ARRAY_LEN(tensors) });
    assert_int_equal(net_unused(t.net, &first), 4);
    assert_ok(net_predict(t.net, product, &p, &peak, &err), err);
    assert_int_equal(net_unused(t.net, &first), 3); /* its bias was not asked for */
    p.bias = true;
    assert_ok(net_predict(t.net, product, &p, &peak, &err), err);
    assert_int_equal(net_unused(t.net, &first), 2);
    assert_non_null(strstr(first, "r.b."));
    p.layer = "b";
    assert_ok(net_predict(t.net, product, &p, &peak, &err), err);
    assert_int_equal(net_unused(t.net, &first), 0);
    assert_null(first);
    toy_close(&t);
}

/* ---- ways of storing ---- */

static void scale_value(const char *name, float *v, size_t n, uint64_t first)
{
    if (!strstr(name, "scale"))
        toy_value(name, v, n, first);
    else
        for (size_t i = 0; i < n; i++)
            v[i] = 4;
}

static void scaled_fp8(void **state)
{
    static const char *const called[] = { "a.scale_weight", "a.weight_scale" };
    float plain[8];
    (void)state;
    for (size_t k = 0; k < 3; k++) {
        const struct toy_tensor tensors[] = { { "a.weight", { 2, { 4, 8 } } },
                                              { k ? called[k - 1] : "b", { k ? 0 : 1, { 1 } } } };
        struct toy t;
        toy_open(&t, "cpu=64m", "cpu,*",
                 (struct toy_file) { .name = "fp8",
                                     .weight = DT_F8_E4M3,
                                     .param = DT_F32,
                                     .tensor = tensors,
                                     .n = 2,
                                     .value = scale_value });
        struct product p = run_product(&t, "a", 8);
        if (k == 0)
            memcpy(plain, p.out, sizeof plain);
        for (size_t i = 0; k && i < 4; i++)
            assert_true(p.out[i] == 4 * plain[i]);
        toy_close(&t);
    }
}

/* Norms multiply by no scale: the numbers would be wrong in silence. */
static float one_scale;
static void given_scale(const char *name, float *v, size_t n, uint64_t first)
{
    toy_value(name, v, n, first);
    for (size_t i = 0; strstr(name, "scale") && i < n; i++)
        v[i] = one_scale;
}

static void normed(struct net_run *r, void *user)
{
    static const float x[8] = { 1, 2, 3, 4 };
    struct act a = net_input(r, &(struct shape) { 2, { 1, 8 } }, x);
    struct act y = net_rms_norm(r, a, "n", 1e-5f);
    net_output(r, y, user);
    net_drop(r, &y);
    net_drop(r, &a);
}

static void look_up(struct net_run *r, void *user)
{
    static const int32_t ids[] = { 3, 0, 3 };
    struct act y = net_embedding(r, ids, 3, "a");
    net_output(r, y, user);
    net_drop(r, &y);
}

static void scales_nobody_multiplies_by(void **state)
{
    static const struct toy_tensor tensors[] = { { "a.weight", { 2, { 4, 8 } } },
                                                 { "a.scale_weight", { 0, { 0 } } },
                                                 { "n.weight", { 1, { 8 } } },
                                                 { "n.weight_scale", { 1, { 1 } } } };
    float out[3 * 8], plain[3 * 8];
    (void)state;
    for (int k = 0; k < 2; k++) {
        struct toy_file f = { .name = "scales", .weight = DT_F8_E4M3, .param = DT_F8_E4M3 };
        struct toy t;
        berth_err err = { 0 };
        f.tensor = tensors;
        f.n = ARRAY_LEN(tensors);
        f.value = given_scale;
        one_scale = k ? 4 : 1;
        toy_open(&t, "cpu=64m", "cpu,*", f);
        assert_ok(net_forward(t.net, look_up, out, &err), err);
        if (k == 0)
            memcpy(plain, out, sizeof plain);
        for (size_t i = 0; i < ARRAY_LEN(out); i++) /* tables know their layout */
            assert_true(out[i] == one_scale * plain[i]);
        berth_status n = net_forward(t.net, normed, out, &err);
        assert_fails(n, err, k ? BERTH_EUNSUPPORTED : BERTH_OK,
                     k ? "n: a scale of 4 beside its" : "");
        toy_close(&t);
    }
}

static const char *quant_text;
static void quant_value(const char *name, float *v, size_t n, uint64_t first)
{
    if (!str_ends(name, strlen(name), "_quant")) {
        toy_value(name, v, n, first);
        return;
    }
    for (size_t i = 0; i < n; i++)
        v[i] = (float)(unsigned char)quant_text[first + i];
}

static void try_file(struct toy_file f, berth_status want, const char *says)
{
    struct toy t = { .m = NULL };
    struct product p = { .layer = "a", .in = 8 };
    berth_err err = { 0 };
    fixture_open(&t.f, "cpu=64m", NULL);
    toy_load(&t, toy_write(f), "cpu,*");
    t.args.root = f.root;
    berth_status s = net_open(&t.args, &t.net, &err);
    assert_fails(s ? s : net_forward(t.net, product, &p, &err), err, want, says);
    toy_close(&t);
}

static void layouts_nobody_knows_are_refused_by_name(void **state)
{
    static const struct {
        const char *text; /* of comfy_quant */
        berth_status want;
        const char *says;
    } cases[] = {
        { "{\"format\": \"float8_e4m3fn\"}", BERTH_OK, "" },
        { "{\"format\": \"nvfp4\"}", BERTH_EFORMAT,
          "'a.weight' is F8_E4M3, and stored in the layout 'nvfp4'" },
        { "{\"format\": \"gptq\"}", BERTH_EUNSUPPORTED,
          "'a.weight' is stored in the layout 'gptq'" },
        { "{}", BERTH_EUNSUPPORTED, "layout '?'" },
        { "{", BERTH_EFORMAT, "a.comfy_quant" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct toy_tensor tensors[] = {
            { "a.weight", { 2, { 4, 8 } } },
            { "a.comfy_quant", { 1, { strlen(cases[i].text) } } },
        };
        quant_text = cases[i].text;
        try_file((struct toy_file) { .name = "marked",
                                     .weight = DT_F8_E4M3,
                                     .tensor = tensors,
                                     .n = 2,
                                     .value = quant_value },
                 cases[i].want, cases[i].says);
    }
}

static void types_and_metadata_nobody_knows(void **state)
{
    static const struct toy_tensor plain[] = { { "a.weight", { 2, { 4, 8 } } } };
    static const struct toy_tensor rows[] = { { "a.weight", { 2, { 4, 8 } } },
                                              { "a.weight_scale", { 2, { 4, 1 } } } };
    const struct weights_meta_spec good[] = {
        { "_quantization_metadata", "{\"layers\": {\"a\": {\"format\": \"float8_e4m3fn\"}}}" }
    };
    const struct weights_meta_spec bad[] = { { "_quantization_metadata",
                                               "{\"layers\": {\"a\": {\"format\": \"svd\"}}}" } };

    const struct weights_meta_spec others[] = {
        { "_quantization_metadata", "{\"layers\": {\"y.a\": {\"format\": \"mxfp8\"}}}" }
    };
    struct toy_file f = { .name = "kinds", .weight = DT_U8, .tensor = plain, .n = 1 };
    (void)state;
    try_file(f, BERTH_EUNSUPPORTED, "a: stored as U8");
    f.weight = DT_F8_E4M3;
    f.meta = good;
    f.metas = 1;
    try_file(f, BERTH_OK, "");
    f.meta = bad;
    try_file(f, BERTH_EUNSUPPORTED, "'a.weight' is stored in the layout 'svd'");
    f.root = "model.diffusion_model."; /* layers may be named without what stands in front */
    try_file(f, BERTH_EUNSUPPORTED,
             "'model.diffusion_model.a.weight' is stored in the layout 'svd'");
    f.meta = others;
    try_file(f, BERTH_OK, "");
    f = (struct toy_file) { .name = "rows", .weight = DT_F8_E4M3, .tensor = rows, .n = 2 };
    try_file(f, BERTH_OK, ""); /* a scale for each row */
}

/* Tensors whose filters are no whole blocks of their quant are widened for the op. */
static void convolve(struct net_run *r, void *user)
{
    static float x[2 * 4 * 4];
    toy_input(x, ARRAY_LEN(x));
    struct act a = net_input(r, &(struct shape) { 4, { 1, 2, 4, 4 } }, x);
    struct act y = net_conv2d(r, a, "c", NET_PAD1);
    net_output(r, y, user);
    net_drop(r, &y);
    net_drop(r, &a);
}

static void quants_that_cross_filters(void **state)
{
    static const struct toy_tensor tensors[] = { { "c.weight", { 4, { 16, 2, 3, 3 } } },
                                                 { "c.bias", { 1, { 16 } } } };
    float want[16 * 16], got[16 * 16];
    struct toy t;
    berth_err err = { 0 };
    (void)state;
    toy_open(&t, "cpu=64m", "cpu,*",
             (struct toy_file) {
                 .name = "c", .weight = DT_F32, .tensor = tensors, .param = DT_F32, .n = 2 });
    assert_ok(net_forward(t.net, convolve, want, &err), err);
    toy_close(&t);
    toy_open(&t, "cpu=64m", "cpu,*",
             (struct toy_file) {
                 .name = "c", .weight = DT_Q8_0, .tensor = tensors, .param = DT_F32, .n = 2 });
    assert_ok(net_forward(t.net, convolve, got, &err), err);
    toy_close(&t);
    for (size_t i = 0; i < ARRAY_LEN(want); i++)
        if (!(got[i] - want[i] < 0.05f && want[i] - got[i] < 0.05f))
            fail_msg("%zu: %g, not %g", i, (double)got[i], (double)want[i]);
}

/* ---- what cannot be run ---- */

static void devices_without_kernels_are_refused(void **state)
{
    struct toy t = { .m = NULL };
    berth_err err = { 0 };
    struct toy_file f = { .weight = DT_F16, .param = DT_F16 };
    (void)state;
    fixture_open(&t.f, "cpu=64m,null:0=32m,cuda:0@cpu=16m", NULL);
    toy_load(&t, toy_write(f), "null:0,*#null:0");
    assert_fails(net_open(&t.args, &t.net, &err), err, BERTH_EUNSUPPORTED,
                 "running model toy: null:0 cannot compute, this build has no kernels for devices "
                 "of driver null; cpu, cuda:0 can");
    assert_null(t.net);
    toy_close(&t);
}

static void models_without_bytes_are_refused(void **state)
{
    struct toy t;
    struct net *n;
    berth_err err = { 0 };
    (void)state;
    toy_open(&t, "cpu=64m", "cpu,*", (struct toy_file) { .weight = DT_F16 });
    net_close(t.net);
    t.net = NULL;
    assert_ok(res_eject(t.m, &err), err);
    assert_fails(net_open(&t.args, &n, &err), err, BERTH_EINVAL,
                 "running model toy: it is ejected");
    assert_null(n);
    toy_close(&t);
}

static void a_net_holds_its_model(void **state)
{
    struct toy t;
    float out[TOY_OUT];
    berth_err err = { 0 };
    (void)state;
    toy_open(&t, "cpu=64m", "cpu,*", (struct toy_file) { .weight = DT_F16 });
    assert_int_equal(res_eject(t.m, &err), BERTH_EBUSY);
    res_unref(t.m); /* the net's is the last */
    toy_pass(&t, out);
    net_close(t.net);
    assert_int_equal(res_model_count(t.f.r), 0);
    net_close(NULL);
    fixture_close(&t.f);
}

/* ---- failing allocations ---- */

static void opening_survives_failing_allocations(void **state)
{
    struct toy t;
    (void)state;
    toy_open(&t, "cpu=64m,null:0=32m", "null:0,60%;cpu,40%#cpu",
             (struct toy_file) { .weight = DT_F16 });
    net_close(t.net);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = net_open(&t.args, &t.net, &err);
        oom_off();
        assert_true(s == BERTH_OK || (!t.net && err.msg[0]));
        if (s && s != BERTH_ENOMEM && s != BERTH_ENODEVMEM)
            fail_msg("%s: %s", berth_status_name(s), err.msg);
        fixture_check(&t.f);
        assert_int_equal(res_info(t.m).uses, s ? 0 : 1);
    }
    toy_close(&t);
}

static void passes_survive_failing_allocations(void **state)
{
    struct toy t;
    float want[TOY_OUT], got[TOY_OUT];
    (void)state;
    toy_open(&t, "cpu=64m,null:0=32m", "null:0,60%;cpu,40%#cpu",
             (struct toy_file) { .weight = DT_F16 });
    toy_pass(&t, want);
    net_close(t.net);
    toy_net(&t);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = toy_try(&t, got, &err);
        oom_off();
        if (s && s != BERTH_ENOMEM && s != BERTH_ENODEVMEM)
            fail_msg("%s: %s", berth_status_name(s), err.msg);
        fixture_check(&t.f);
    }
    assert_memory_equal(want, got, sizeof got);
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(names_are_translated),
        cmocka_unit_test(slices_transposes_and_shapes_are_multiplied),
        cmocka_unit_test(one_block_at_a_time_is_enough),
        cmocka_unit_test(what_is_not_there_is_named),
        cmocka_unit_test(left_over_tensors_are_named),
        cmocka_unit_test(scaled_fp8),
        cmocka_unit_test(scales_nobody_multiplies_by),
        cmocka_unit_test(layouts_nobody_knows_are_refused_by_name),
        cmocka_unit_test(types_and_metadata_nobody_knows),
        cmocka_unit_test(quants_that_cross_filters),
        cmocka_unit_test(devices_without_kernels_are_refused),
        cmocka_unit_test(models_without_bytes_are_refused),
        cmocka_unit_test(a_net_holds_its_model),
        cmocka_unit_test(opening_survives_failing_allocations),
        cmocka_unit_test(passes_survive_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
