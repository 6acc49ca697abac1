/* Every op of ops.def, every level of the CPU and every other device against the reference, with
 * the cases of op_cases.h. And the promise of ops.h that a result has the same bits for any number
 * of threads, thrifty or not, and for a batch in one piece or row by row. op_device.h has what the
 * environment can ask for. */
#include "op/cpu/cpu_impl.h"
#include "unit/op/op_device.h"

/* Of one case on the host. */
static void run_with(const struct op_case *op, const union any *a, struct op_env env)
{
    berth_err err = { 0 };
    if (run_on_host(op, a, env, &err))
        fail_msg("%s: %s", op->name, err.msg);
}

static float *compute(const struct rig *r, const struct op_backend *b, struct tpool *pool)
{
    rig_restore(r);
    run_with(r->op, &r->a, (struct op_env) { .backend = b, .pool = pool });
    return result(r);
}

/* With little scratch, and never more than otherwise. */
static float *compute_thrifty(const struct rig *r, const struct op_backend *b, struct tpool *pool)
{
    struct op_env env = { .backend = b, .pool = pool };
    size_t usual = r->op->scratch(&env, &r->a);
    env.thrifty = true;
    assert_true(r->op->scratch(&env, &r->a) <= usual);
    rig_restore(r);
    run_with(r->op, &r->a, env);
    return result(r);
}

static void assert_near(const struct rig *r, const char *who, const float *got, const float *want)
{
    size_t n = result_count(r->op, &r->a);
    double most = 1e-30;
    for (size_t i = 0; i < n; i++)
        most = fabs((double)want[i]) > most ? fabs((double)want[i]) : most;
    for (size_t i = 0; i < n; i++) {
        double off = fabs((double)got[i] - (double)want[i]);
        if (!(off <= r->tol * most))
            fail_msg(
                "%s case %zu, %s: element %zu is %.9g, the reference has %.9g (off by %g of %g)",
                r->op->name, r->i, who, i, (double)got[i], (double)want[i], off, most);
    }
}

static void assert_bits(const struct rig *r, const char *who, const float *got, const float *want)
{
    for (size_t i = 0, n = result_count(r->op, &r->a); i < n; i++)
        if (memcmp(&got[i], &want[i], sizeof(float)) != 0)
            fail_msg("%s case %zu, %s: element %zu is %.9g, in one piece it was %.9g", r->op->name,
                     r->i, who, i, (double)got[i], (double)want[i]);
}

/* Pictures that can be computed one by one: as many as the first result has. */
static uint64_t pictures(const struct rig *r)
{
    const struct operand *o = r->op->operand;
    return o->how & BATCHED ? operand(&r->a, o)->shape.dim[0] : 1;
}

/* The picture row by row. */
static float *compute_split(const struct rig *r, const struct op_backend *b)
{
    rig_restore(r);
    uint64_t rows = pictures(r);
    for (uint64_t k = 0; k < rows; k++) {
        union any part = r->a;
        for (const struct operand *o = r->op->operand; o->name; o++) {
            struct view *w = operand(&part, o);
            berth_err err;
            if (o->how & BATCHED && w->shape.ndim && w->shape.dim[0] == rows)
                assert_ok(view_slice(w, 0, k, k + 1, w, &err), err);
        }
        run_with(r->op, &part, (struct op_env) { .backend = b });
    }
    return result(r);
}

static void check_levels(const struct rig *r, struct tpool *const pool[3])
{
    float *want = compute(r, NULL, NULL);
    struct op_env best = { 0 };
    for (int l = 0; l <= (int)cpu_kernels(&best); l++) {
        const struct op_backend *b = &op_cpu_at[l];
        float *one = compute(r, b, NULL);
        assert_near(r, b->name, one, want);
        for (size_t t = 0; t < 3; t++) {
            float *more = compute(r, b, pool[t]);
            assert_bits(r, "other threads", more, one);
            free(more);
        }
        float *little = compute_thrifty(r, b, pool[2]);
        assert_bits(r, "thrifty", little, one);
        free(little);
        if (pictures(r) > 1) {
            float *split = compute_split(r, b);
            assert_bits(r, "row by row", split, one);
            free(split);
        }
        free(one);
    }
    free(want);
}

static void every_op_at_every_level(void **state)
{
    (void)state;
    if (!wanted("BERTH_TEST_BACKEND", "cpu")) {
        print_message("skipped: BERTH_TEST_BACKEND is %s\n", getenv("BERTH_TEST_BACKEND"));
        skip();
    }
    struct tpool *pool[3];
    berth_err err;
    for (size_t t = 0; t < 3; t++)
        assert_ok(tpool_new(t + 1, &pool[t], &err), err);
    for (size_t o = 0; o < OPS; o++) {
        size_t cases = 0;
        if (!wanted("BERTH_TEST_OP", ops[o].name))
            continue;
        for (struct rig r; rig_make(&r, &ops[o], cases); cases++) {
            check_levels(&r, pool);
            rig_free(&r);
        }
        assert_true(cases > 2);
    }
    for (size_t t = 0; t < 3; t++)
        tpool_free(pool[t]);
}

static void every_op_on_cuda(void **state)
{
    (void)state;
    every_op_on("cuda", "cuda:0");
}

/* A query that sees nothing gets zeros; NaN and infinity are not swallowed. */
static void hidden_and_broken_scores(void **state)
{
    (void)state;
    struct bag bag = { .rng = { 9 } };
    struct op_env best = { 0 };
    for (int l = -1; l <= (int)cpu_kernels(&best); l++) {
        const struct op_backend *b = l < 0 ? NULL : &op_cpu_at[l];
        union any a = { .attention = { .q = tensor(&bag, S4(1, 3, 1, 8)),
                                       .k = tensor(&bag, S4(1, 70, 1, 8)),
                                       .v = tensor(&bag, S4(1, 70, 1, 8)),
                                       .y = tensor(&bag, S4(1, 3, 1, 8)),
                                       .mask = tensor(&bag, S4(1, 1, 3, 70)) } };
        float *mask = op_f32(&a.attention.mask), *y = op_f32(&a.attention.y);
        for (size_t i = 0; i < 70; i++)
            mask[i] = -INFINITY;
        op_f32(&a.attention.q)[2 * 8] = NAN;
        for (size_t i = 70; i < 140; i++) /* does not hide: all keys count alike */
            mask[i] = -FLT_MAX;
        double mean[8] = { 0 };
        for (size_t i = 0; i < 70 * 8; i++)
            mean[i % 8] += (double)op_f32(&a.attention.v)[i] / 70;
        berth_err err = { 0 };
        for (size_t o = 0; o < OPS; o++)
            if (ops[o].make == make_attention)
                assert_ok(run_on_host(&ops[o], &a, (struct op_env) { .backend = b }, &err), err);
        for (size_t d = 0; d < 8; d++) {
            assert_true(y[d] == 0);
            assert_float_equal(y[8 + d], (float)mean[d], 1e-6f);
            assert_true(isnan(y[16 + d]));
        }
        bag_empty(&bag);
    }
}

/* Functions at the ends of their range, level by level. */
static void extremes_of_functions(void **state)
{
    (void)state;
    static float x[] = { 0,      -0.0f, 1e-30f, -1e-30f, 30,    -30,   87.5f,  -87.5f,  88.5f,
                         -88.5f, 100,   -100,   1e4f,    -1e4f, 1e30f, -1e30f, INFINITY };
    enum { N = sizeof x / sizeof *x };
    struct op_env best = { 0 };
    for (int l = 0; l <= (int)cpu_kernels(&best); l++)
        for (int kind = 0; kind < OP_UNARY_COUNT; kind++) {
            float want[N + 1], got[N + 1], in[N + 1];
            memcpy(in, x, sizeof x);
            in[N] = NAN;
            berth_err err;
            struct op_unary u = { .kind = (enum op_unary_kind)kind };
            struct shape s = S1(N + 1);
            assert_ok(view_init(DT_F32, &s, in, sizeof in, &u.x, &err), err);
            u.y = u.x;
            u.y.data = want;
            assert_ok(op_unary(&(struct op_env) { 0 }, &u, &err), err);
            u.y.data = got;
            assert_ok(op_unary(&(struct op_env) { .backend = &op_cpu_at[l] }, &u, &err), err);
            assert_true(isnan(got[N]) && isnan(want[N]));
            for (size_t i = 0; i < N; i++) {
                double off = fabs((double)got[i] - (double)want[i]);
                if (got[i] != want[i] && !(off <= 1e-6 * (1 + fabs((double)want[i]))))
                    fail_msg("%s kind %d of %g: %.9g, not %.9g", op_cpu_at[l].name, kind,
                             (double)in[i], (double)got[i], (double)want[i]);
            }
        }
}

static struct view of(struct shape s, float *data)
{
    struct view v;
    berth_err err = { 0 };
    assert_ok(view_init(DT_F32, &s, data, 64 * sizeof *data, &v, &err), err);
    return v;
}

/* Kernels divide work by its size: where there is nothing to write they are not called. */
static void nothing_to_do(void **state)
{
    (void)state;
    static const struct shape empty[] = { { 3, { 0, 4, 3 } }, { 3, { 2, 4, 0 } } };
    float x[64] = { 0 }, y[64], w[64] = { 0 }, z[64] = { 0 }, was[64];
    struct op_env best = { 0 };
    memset(y, 0x55, sizeof y);
    memcpy(was, y, sizeof y);
    for (int l = 0; l <= (int)cpu_kernels(&best); l++)
        for (size_t i = 0; i < ARRAY_LEN(empty); i++) {
            const struct op_env env = { .backend = &op_cpu_at[l] };
            struct shape s = empty[i], across = { 3, { s.dim[1], s.dim[0], s.dim[2] } };
            berth_err err = { 0 };
            const struct op_channel_norm norm = { of(s, x), of(S1(4), w), of(s, y), .eps = 1 };
            const struct op_gate gate = { of(s, x), of(S2(s.dim[0], s.dim[2]), w), of(s, z),
                                          of(s, y) };
            struct op_copy copy = { .x = of(s, x), .y = of(across, y) };
            size_t stride = copy.y.stride[0];
            copy.y.shape = s; /* turned round, so that it is no plain run */
            copy.y.stride[0] = copy.y.stride[1];
            copy.y.stride[1] = stride;
            assert_ok(op_channel_norm(&env, &norm, &err), err);
            assert_ok(op_gate(&env, &gate, &err), err);
            assert_ok(op_copy(&env, &copy, &err), err);
            assert_memory_equal(y, was, sizeof y);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_op_on_cuda), /* while there are no threads: it forks */
        cmocka_unit_test(every_op_at_every_level), cmocka_unit_test(hidden_and_broken_scores),
        cmocka_unit_test(extremes_of_functions),   cmocka_unit_test(nothing_to_do),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
