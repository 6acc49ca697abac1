/* An op, a backend of one kernel and a device, each added the way docs/adding.md tells it: one file
 * and one line (defs/, which stands before src/ on the include path). src/ itself is not
 * touched. */
#include "adding/negate.h"
#include "net/use.h"
#include "unit/device/contract.h"
#include "unit/net/toy_net.h"

static void an_op(void **state)
{
    (void)state;
    float v[] = { 1, -2, 0.5f };
    struct view x;
    berth_err err = { 0 };
    assert_ok(view_init(DT_F32, &(struct shape) { 1, { 3 } }, v, sizeof v, &x, &err), err);
    struct op_negate a = { .x = x, .y = x };
    const struct op_env env = { 0 };
    assert_ok(op_negate_ready(&env, &a, &err), err);
    assert_int_equal(op_negate_scratch(&env, &a), 0);
    assert_ok(op_negate(&env, &a, &err), err);
    assert_true(v[0] == -1 && v[1] == 2 && v[2] == -0.5f);
    a.y.shape.dim[0] = 2;
    assert_fails(op_negate(&env, &a, &err), err, BERTH_EINVAL, "negate: x [3] and y [2] differ");
}

static void a_device(void **state)
{
    (void)state;
    struct devset *set = open_devices("stub:0=64m,cpu=64m", NULL);
    assert_non_null(device_named(set, "stub:0"));
    a_phys_is_sound(set);
    bytes_arrive(set);
    devset_close(set);
}

/* ---- a whole network on a backend of one kernel ---- */

/* The toy, and the ops that it has not: everything in ops.def but matmul, pad2d and binary's
 * relatives, with slices of a fused projection that have neighbours. */
struct more {
    struct toy_in in;
    float table[TOY_W * TOY_H * TOY_C / 2];
};

static struct act one_way(struct net_run *r, struct act x, const float *table)
{
    uint64_t n = x.shape.dim[0], tokens = x.shape.dim[1];
    struct act qkv = net_new(r, &(struct shape) { 3, { n, tokens, 3 * TOY_C } });
    static const char *const layer[] = { "time.0", "attn.out", "time.0" };
    struct view part[3];
    for (int i = 0; i < 3; i++) {
        struct view v = net_view(&qkv);
        part[i] = net_part(r, v, 2, (uint64_t)i * TOY_C, (uint64_t)(i + 1) * TOY_C);
        struct net_product p = { .layer = layer[i], .x = net_view(&x), .y = part[i] };
        net_product(r, &p);
    }
    struct act at = net_input_f32(r, &(struct shape) { 3, { tokens, TOY_C / 4, 2 } }, table);
    net_qk_rope(r, net_split(r, part[0], 2), net_split(r, part[1], 2), NULL, NULL, at, 1e-6f);
    net_drop(r, &at);
    struct act y = net_new(r, &x.shape);
    struct view out = net_view(&y);
    net_attend(r, net_split(r, part[0], 2), net_split(r, part[1], 2), net_split(r, part[2], 2),
               net_split(r, out, 2), (struct net_attn) { .heads = 2 });
    net_drop(r, &qkv);
    return y;
}

static void forward(struct net_run *r, void *user)
{
    static const int to_tokens[] = { 0, 2, 1 };
    const struct more *m = user;
    uint64_t n = m->in.n, h = m->in.h, w = m->in.w;
    struct use u;
    struct act x0 = net_input(r, &(struct shape) { 4, { n, TOY_IN, h, w } }, m->in.x);
    struct act x = net_conv2d(r, x0, "conv_in", NET_PAD1);
    net_drop(r, &x0);
    x = net_reshape(r, x, &(struct shape) { 3, { n, TOY_C, h * w } });
    struct act t = net_permute(r, x, to_tokens);
    net_drop(r, &x);
    struct act y = one_way(r, t, m->table), halves[] = { t, y };
    struct act both = net_concat(r, halves, 2, 2), z = net_geglu(r, both);
    net_drop(r, &both);
    if (use_begin(&u, r, "negate")) {
        use_op_negate(&u, &(struct op_negate) { .x = net_view(&z), .y = net_view(&z) });
        use_end(&u);
    }
    struct act g = net_slice(r, y, 1, 0, 1);
    g = net_reshape(r, g, &(struct shape) { 2, { n, TOY_C } });
    net_gate(r, net_view(&t), net_view(&g), z);
    net_drop(r, &g);
    net_drop(r, &y);
    net_drop(r, &z);
    x = net_permute(r, t, to_tokens);
    net_drop(r, &t);
    x = net_reshape(r, x, &(struct shape) { 4, { n, TOY_C, h, w } });
    y = net_nearest(r, x, 2 * h, 2 * w);
    net_drop(r, &x);
    x = net_conv2d(r, y, "conv_out",
                   (struct net_conv) { .stride = 2, .top = 1, .left = 1, .bottom = 1, .right = 1 });
    net_drop(r, &y);
    net_finite(r, x, "out");
    net_output(r, x, m->in.out);
    net_drop(r, &x);
}

struct said {
    struct log log;
    unsigned bounces, of_linear, of_unary;
};

static void hear(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                 const char *text)
{
    struct said *s = user;
    (void)level, (void)wall_ns;
    if (strcmp(event, "op.bounce") != 0)
        return;
    assert_non_null(strstr(text, "dev=null:0"));
    s->bounces++;
    s->of_linear += strstr(text, "op=linear ") != NULL;
    s->of_unary += strstr(text, "op=unary ") != NULL;
}

static void passes(const char *devices, const char *alloc, enum dtype weight, struct said *said,
                   float out[2][TOY_OUT])
{
    struct toy t = { .m = NULL };
    struct res_config cfg = { .reserve = 4096 };
    float x[TOY_OUT];
    struct more m = { .in = { TOY_N, TOY_H, TOY_W, x, out[1] } };
    berth_err err = { 0 };
    toy_input(x, TOY_OUT);
    toy_value("table", m.table, ARRAY_LEN(m.table), 0);
    fixture_open(&t.f, devices, &cfg);
    toy_load(&t, toy_write((struct toy_file) { .weight = weight, .param = DT_F16 }), alloc);
    t.args.log = said ? &said->log : NULL;
    toy_net(&t);
    if (!said)
        t.net->backend = NULL; /* the reference */
    for (int i = 0; i < 2; i++) {
        toy_pass(&t, out[0]);
        assert_ok(net_forward(t.net, forward, &m, &err), err);
    }
    assert_int_equal(t.net->rep.peak, t.net->rep.predicted);
    toy_close(&t); /* no hazards: every byte was read after it was written */
}

static void one_kernel_is_enough(void **state)
{
    (void)state;
    static const enum dtype weight[] = { DT_F32, DT_F16, DT_Q8_0 };
    for (size_t i = 0; i < ARRAY_LEN(weight); i++) {
        float want[2][TOY_OUT] = { 0 }, got[2][TOY_OUT] = { 0 };
        struct said said = { .log = { .write = hear, .level = LOG_DEBUG } };
        said.log.user = &said;
        passes("cpu=64m", "#cpu", weight[i], NULL, want);
        passes("null:0=64m,cpu=64m", "#null:0", weight[i], &said, got);
        assert_memory_equal(want, got, sizeof want);
        assert_int_equal(said.of_unary, 0);
        assert_int_equal(said.of_linear, 1); /* once, however many */
        assert_true(said.bounces >= 13);
    }
}

/* Device calls that fail in the middle of it: the pass is run again, or fails in words. */
static void failing_copies_leak_nothing(void **state)
{
    (void)state;
    static const enum null_call calls[] = { NULL_COPY, NULL_STREAM_SYNC, NULL_LAUNCH };
    for (size_t c = 0; c < ARRAY_LEN(calls); c++)
        for (uint64_t k = 1; k < 90; k += 31) {
            struct toy t;
            float want[TOY_OUT], got[TOY_OUT];
            toy_open(&t, "null:0=64m,cpu=64m", "#null:0", (struct toy_file) { .weight = DT_F16 });
            toy_pass(&t, want);
            null_fail(device_named(t.f.set, "null:0"), calls[c], k);
            toy_pass(&t, got);
            assert_memory_equal(want, got, sizeof want);
            null_fail(device_named(t.f.set, "null:0"), calls[c], 0);
            toy_close(&t);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(an_op),
        cmocka_unit_test(a_device),
        cmocka_unit_test(one_kernel_is_enough),
        cmocka_unit_test(failing_copies_leak_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
