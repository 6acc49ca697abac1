/* Linear layers and products as cuBLASLt is told of them: a library that computes what it is told,
 * and a card without kernels. What needs those is tested on cards, by test_ops.c. */
#include "op/cuda/blas.h"

#include "support/devices.h"
#include "support/fake_cublaslt.h"
#include "support/fake_cuda.h"
#include "support/fake_symbol.h"
#include "support/oom.h"
#include "support/rng.h"
#include "support/seed.h"

#include <math.h>

enum { ROUNDS = 150 };

/* ---- the card ---- */

struct rig {
    struct dev_env env;
    struct fake_cublaslt *blas;
    struct fake_cuda *cuda;
    const struct log *log;
    struct devset *set;
    struct dev_stream *stream;
};

static struct rig setup(void)
{
    struct rig r = { 0 };
    fake_cuda_reset_fn *reset;
    fake_cuda_fn *card;
    fake_cublaslt_fn *control;
    berth_err err = { 0 };
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda_reset", &reset);
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda", &card);
    fake_symbol(BERTH_FAKE_CUBLASLT, "fake_cublaslt", &control);
    reset();
    r.cuda = card();
    r.blas = control();
    *r.blas = (struct fake_cublaslt) { 0 };
    r.env.cuda_library = BERTH_FAKE_CUDA;
    r.set = open_devices("cuda:0=64m", &r.env);
    assert_ok(dev_stream_new(devset_at(r.set, 0), &r.stream, &err), err);
    return r;
}

static void teardown(struct rig *r)
{
    dev_stream_free(r->stream);
    devset_close(r->set);
    assert_int_equal(r->blas->live, 0);
}

static struct op_env on_card(const struct rig *r)
{
    return (struct op_env) { .backend = op_backend_for(devset_at(r->set, 0)),
                             .stream = r->stream,
                             .log = r->log };
}

/* ---- operands ---- */

#define EDGE 16 /* elements around, which nobody touches */
#define UNTOUCHED 0xee

struct mat {
    struct view v;
    uint8_t *mem;
    size_t bytes;
};

/* [rows, row] with `gap` elements between rows, `shift` elements behind an aligned address. */
static struct mat mat_new(enum dtype t, size_t rows, size_t row, size_t gap, size_t shift)
{
    struct mat m = { 0 };
    size_t elem = dtype_desc(t)->bytes, n = rows * (row + gap) + EDGE + shift;
    m.bytes = (n * elem + 255) / 256 * 256;
    m.mem = aligned_alloc(256, m.bytes);
    assert_non_null(m.mem);
    memset(m.mem, UNTOUCHED, m.bytes);
    m.v = (struct view) { .dtype = t,
                          .shape = { .ndim = 2, .dim = { rows, row } },
                          .stride = { (row + gap) * elem, elem },
                          .data = m.mem + shift * elem };
    return m;
}

static void mat_free(struct mat *m)
{
    free(m->mem);
}

static size_t index_of(const struct view *v, size_t i, size_t j)
{
    return i * (v->stride[0] / dtype_desc(v->dtype)->bytes) + j;
}

static double mat_get(const struct view *v, size_t i, size_t j)
{
    const struct dtype_desc *d = dtype_desc(v->dtype);
    float f;
    d->to_f32((const char *)v->data + index_of(v, i, j) * d->bytes, &f, 1);
    return (double)f;
}

static void mat_fill(struct rng *rng, const struct view *v)
{
    const struct dtype_desc *d = dtype_desc(v->dtype);
    for (size_t i = 0; i < v->shape.dim[0]; i++)
        for (size_t j = 0; j < v->shape.dim[1]; j++) {
            float f = (float)rng_below(rng, 2001) / 1000 - 1;
            d->from_f32(&f, (char *)v->data + index_of(v, i, j) * d->bytes, 1);
        }
}

/* Nothing but the elements of m is written. */
static void assert_untouched(const struct mat *m)
{
    size_t elem = dtype_desc(m->v.dtype)->bytes, row = m->v.shape.dim[1] * elem;
    size_t first = (size_t)((uint8_t *)m->v.data - m->mem);
    for (size_t i = 0; i < m->bytes; i++) {
        size_t k = i < first ? SIZE_MAX : (i - first) / m->v.stride[0];
        bool mine = k < m->v.shape.dim[0] && (i - first) % m->v.stride[0] < row;
        if (!mine && m->mem[i] != UNTOUCHED)
            fail_msg("byte %zu of %zu is written, the result begins at %zu", i, m->bytes, first);
    }
}

static double tolerance(enum dtype t)
{
    return t == DT_F32 ? 1e-5 : t == DT_F16 ? 2e-3 : 1.6e-2;
}

/* ---- linear ---- */

struct layer {
    struct mat x, w, bias, add, y;
    struct op_linear a;
};

/* Weights in the type of activations, biases in that of the result: no kernels. m > 4: fewer are
 * for a kernel. */
static void layer_new(struct layer *l, struct rng *rng, enum dtype t, enum dtype to)
{
    size_t m = 5 + rng_below(rng, 20), n = 1 + rng_below(rng, 40), k = 1 + rng_below(rng, 40);
    bool apart = rng_below(rng, 2);
    size_t gap[3], shift[3];
    for (int i = 0; i < 3; i++) {
        gap[i] = apart ? rng_below(rng, 9) : 0;
        shift[i] = apart ? rng_below(rng, 9) : 0;
    }
    l->x = mat_new(t, m, k, gap[0], shift[0]);
    l->w = mat_new(t, n, k, 0, 0);
    l->bias = mat_new(to, 1, n, 0, 0);
    l->add = mat_new(to, m, n, gap[1], shift[1]);
    l->y = mat_new(to, m, n, gap[2], shift[2]);
    mat_fill(rng, &l->x.v);
    mat_fill(rng, &l->w.v);
    mat_fill(rng, &l->bias.v);
    mat_fill(rng, &l->add.v);
    mat_fill(rng, &l->y.v);
    l->a = (struct op_linear) { .x = l->x.v, .w = l->w.v, .y = l->y.v, .scale = 0.5f };
    l->a.scaled = rng_below(rng, 2);
    if (rng_below(rng, 2)) {
        l->a.bias = l->bias.v;
        l->a.bias.shape = (struct shape) { .ndim = 1, .dim = { n } };
        l->a.bias.stride[0] = l->a.bias.stride[1];
    }
    switch (rng_below(rng, 4)) {
    case 0:
        l->a.after = OP_AFTER_GELU_TANH;
        break;
    case 1:
        l->a.add = l->add.v;
        break;
    case 2:
        l->a.add = l->y.v;
        break;
    }
}

static void layer_free(struct layer *l)
{
    mat_free(&l->x);
    mat_free(&l->w);
    mat_free(&l->bias);
    mat_free(&l->add);
    mat_free(&l->y);
}

static double wanted(const struct op_linear *a, size_t i, size_t j)
{
    double v = 0;
    for (size_t k = 0; k < a->w.shape.dim[1]; k++)
        v += mat_get(&a->x, i, k) * mat_get(&a->w, j, k);
    v *= a->scaled ? (double)a->scale : 1;
    if (a->bias.data) {
        struct view row = a->bias;
        row.stride[0] = 0;
        v += mat_get(&row, 0, j);
    }
    if (a->after == OP_AFTER_GELU_TANH)
        v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
    return v + (a->add.data ? mat_get(&a->add, i, j) : 0);
}

/* Runs it in scratch of exactly the bytes that were asked for, between untouched ones. */
static berth_status run(const struct rig *r, const struct op_linear *a, berth_err *err)
{
    struct op_env env = on_card(r);
    env.scratch_bytes = op_linear_scratch(&env, a);
    enum { BEFORE = OP_SCRATCH_ALIGN };
    size_t bytes = (env.scratch_bytes / BEFORE + 3) * BEFORE;
    uint8_t *mem = aligned_alloc(BEFORE, bytes);
    assert_non_null(mem);
    memset(mem, UNTOUCHED, bytes);
    env.scratch = mem + BEFORE;
    berth_status s = op_linear(&env, a, err);
    for (size_t i = 0; i < bytes; i++)
        if ((i < BEFORE || i >= BEFORE + env.scratch_bytes) && mem[i] != UNTOUCHED)
            fail_msg("byte %zu of scratch is written, it has %zu", i - BEFORE, env.scratch_bytes);
    free(mem);
    return s;
}

static void linear(void **state)
{
    (void)state;
    static const enum dtype types[] = { DT_F32, DT_F16, DT_BF16 };
    struct rng rng = { running = rng_seed() };
    struct rig r = setup();
    for (int round = 0; round < ROUNDS; round++) {
        struct layer l;
        berth_err err = { 0 };
        enum dtype t = types[rng_below(&rng, ARRAY_LEN(types))];
        enum dtype to = rng_below(&rng, 3) ? t : DT_F32;
        layer_new(&l, &rng, t, to);
        size_t m = l.y.v.shape.dim[0], n = l.y.v.shape.dim[1];
        double *want = malloc(m * n * sizeof *want);
        assert_non_null(want);
        for (size_t i = 0; i < m * n; i++)
            want[i] = wanted(&l.a, i / n, i % n);
        assert_ok(run(&r, &l.a, &err), err);
        for (size_t i = 0; i < m * n; i++) {
            double got = mat_get(&l.y.v, i / n, i % n);
            if (!(fabs(got - want[i]) <= tolerance(to) * (1 + fabs(want[i]))))
                fail_msg("%s: element %zu of [%zu, %zu] is %g, not %g", dtype_name(t), i, m, n, got,
                         want[i]);
        }
        assert_untouched(&l.y);
        free(want);
        layer_free(&l);
    }
    assert_int_equal(r.blas->products, ROUNDS);
    assert_false(r.blas->split_out);
    teardown(&r);
    running = 0;
}

/* ---- products of activations ---- */

static void matmul(void **state)
{
    (void)state;
    struct rng rng = { running = rng_seed() };
    struct rig r = setup();
    for (int round = 0; round < ROUNDS; round++) {
        size_t b = 1 + rng_below(&rng, 3), m = 1 + rng_below(&rng, 20);
        size_t n = 1 + rng_below(&rng, 20), k = 1 + rng_below(&rng, 20);
        bool turned = rng_below(&rng, 2);
        enum dtype t = rng_below(&rng, 2) ? DT_F32 : DT_BF16;
        size_t elem = dtype_desc(t)->bytes, rows = turned ? n : k, row = turned ? k : n;
        struct mat x = mat_new(t, b * m, k, 0, 0), w = mat_new(t, b * rows, row, 0, 0);
        struct mat y = mat_new(t, b * m, n, 0, 0);
        berth_err err = { 0 };
        mat_fill(&rng, &x.v);
        mat_fill(&rng, &w.v);
        struct op_matmul a = { .a = x.v, .b = w.v, .y = y.v, .b_transposed = turned };
        a.a.shape = (struct shape) { .ndim = 3, .dim = { b, m, k } };
        a.b.shape = (struct shape) { .ndim = 3, .dim = { b, rows, row } };
        a.y.shape = (struct shape) { .ndim = 3, .dim = { b, m, n } };
        struct view *v[] = { &a.a, &a.b, &a.y };
        for (size_t i = 0; i < ARRAY_LEN(v); i++) {
            v[i]->stride[2] = elem;
            v[i]->stride[1] = elem * (size_t)v[i]->shape.dim[2];
            v[i]->stride[0] = v[i]->stride[1] * (size_t)v[i]->shape.dim[1];
        }
        struct op_env env = on_card(&r);
        env.scratch_bytes = op_matmul_scratch(&env, &a);
        env.scratch = aligned_alloc(256, env.scratch_bytes);
        assert_ok(op_matmul(&env, &a, &err), err);
        for (size_t i = 0; i < b * m; i++)
            for (size_t j = 0; j < n; j++) {
                double want = 0, got = mat_get(&y.v, i, j);
                for (size_t q = 0; q < k; q++)
                    want += mat_get(&x.v, i, q) * (turned ? mat_get(&w.v, i / m * n + j, q)
                                                          : mat_get(&w.v, i / m * k + q, j));
                if (!(fabs(got - want) <= tolerance(t) * (1 + fabs(want))))
                    fail_msg("[%zu, %zu] of %zu x %zu x %zu x %zu%s is %g, not %g", i, j, b, m, n,
                             k, turned ? " turned" : "", got, want);
            }
        assert_untouched(&y);
        free(env.scratch);
        mat_free(&x);
        mat_free(&w);
        mat_free(&y);
    }
    teardown(&r);
    running = 0;
}

/* ---- choices ---- */

static void layer_plain(struct layer *l, enum dtype t, size_t m, size_t n, size_t k)
{
    struct rng rng = { 1 };
    memset(l, 0, sizeof *l);
    l->x = mat_new(t, m, k, 0, 8);
    l->w = mat_new(t, n, k, 0, 0);
    l->y = mat_new(t, m, n, 0, 0);
    l->bias = mat_new(t, 1, n, 0, 0);
    mat_fill(&rng, &l->x.v);
    mat_fill(&rng, &l->w.v);
    mat_fill(&rng, &l->bias.v);
    l->a = (struct op_linear) { .x = l->x.v, .w = l->w.v, .y = l->y.v };
}

static void choices_are_kept(void **state)
{
    (void)state;
    struct rig r = setup();
    struct layer l;
    berth_err err = { 0 };
    layer_plain(&l, DT_BF16, 6, 16, 8);
    for (int i = 0; i < 3; i++)
        assert_ok(run(&r, &l.a, &err), err);
    assert_int_equal(r.blas->asked, 1);
    assert_int_equal(r.blas->products, 3);
    /* elsewhere, but as well aligned: the same; less well: another */
    l.a.x.data = (char *)l.x.v.data - 16;
    assert_ok(run(&r, &l.a, &err), err);
    assert_int_equal(r.blas->asked, 2);
    l.a.x.data = (char *)l.x.v.data - 2;
    assert_ok(run(&r, &l.a, &err), err);
    l.a.x.data = (char *)l.x.v.data - 6;
    assert_ok(run(&r, &l.a, &err), err);
    assert_int_equal(r.blas->asked, 3);
    /* an epilogue is another, scale is not */
    l.a.after = OP_AFTER_GELU_TANH;
    assert_ok(run(&r, &l.a, &err), err);
    l.a.scaled = true;
    assert_ok(run(&r, &l.a, &err), err);
    assert_int_equal(r.blas->asked, 4);
    layer_free(&l);
    teardown(&r);
}

/* What the library has no kernel for goes to one of ours, which this card cannot load. */
static void refusals(void **state)
{
    (void)state;
    struct rig r = setup();
    struct layer l;
    berth_err err = { 0 };
    layer_plain(&l, DT_F16, 5, 8, 8);
    r.blas->refuses = FAKE_REFUSES_EPILOGUES;
    assert_ok(run(&r, &l.a, &err), err);
    l.a.after = OP_AFTER_GELU_TANH;
    assert_fails(run(&r, &l.a, &err), err, BERTH_EDEVICE, "product.cu");
    assert_int_equal(r.blas->products, 2); /* without its epilogue */
    r.blas->refuses = FAKE_REFUSES_ALL;
    l.a.w.shape.dim[0] = 7; /* a shape it has not been asked for */
    l.a.y.shape.dim[1] = 7;
    l.a.y.stride[0] = 14;
    assert_fails(run(&r, &l.a, &err), err, BERTH_EDEVICE, "product.cu");
    assert_int_equal(r.blas->products, 2);
    layer_free(&l);
    teardown(&r);
}

static void failures(void **state)
{
    (void)state;
    struct rig r = setup();
    struct layer l;
    berth_err err = { 0 };
    layer_plain(&l, DT_BF16, 5, 8, 8);
    r.blas->fail_with = 13; /* CUBLAS_STATUS_EXECUTION_FAILED */
    assert_fails(run(&r, &l.a, &err), err, BERTH_EDEVICE, "CUBLAS_STATUS_EXECUTION_FAILED");
    assert_non_null(strstr(err.msg, "5 x 8 x 8 in BF16"));
    assert_non_null(strstr(err.msg, "cuda:0"));
    r.blas->fail_with = 0;
    assert_ok(run(&r, &l.a, &err), err);
    layer_free(&l);
    teardown(&r);
}

/* What the library's words mean. */
static void words_of_failures(void **state)
{
    (void)state;
    enum {
        NOT_INITIALIZED = 1,
        ALLOC = 3,
        INVALID = 7,
        ARCH = 8,
        INTERNAL = 14,
        NOT_SUPPORTED = 15
    };
    static const struct {
        int says;
        size_t total;
        berth_status is;
        const char *text;
    } at[] = {
        { ALLOC, 1 << 30, BERTH_ENOMEM, "cublasLtMatmul" },
        { ALLOC, 200 << 20, BERTH_ENODEVMEM, "of 209715200 bytes free" },
        { NOT_INITIALIZED, 200 << 20, BERTH_ENODEVMEM, "of 209715200 bytes free" },
        { NOT_INITIALIZED, 1 << 30, BERTH_EDEVICE, "cublasLtMatmul" },
        { INTERNAL, 200 << 20, BERTH_ENODEVMEM, "bytes free" },
        { INVALID, 200 << 20, BERTH_EDEVICE, "cublasLtMatmul" },
        { ARCH, 1 << 30, BERTH_EUNSUPPORTED, "cuBLASLt 130000 has no kernels for sm_90" },
    };
    struct rig r = setup();
    struct layer l;
    berth_err err = { 0 };
    layer_plain(&l, DT_BF16, 5, 8, 8);
    assert_ok(run(&r, &l.a, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        r.cuda->total = at[i].total;
        r.blas->fail_with = at[i].says;
        assert_fails(run(&r, &l.a, &err), err, at[i].is, at[i].text);
        r.blas->fail_with = 0; /* and nothing of it is kept */
        assert_ok(run(&r, &l.a, &err), err);
    }
    r.blas->ask_with = ARCH; /* not a refusal of the shape, before either */
    l.a.after = OP_AFTER_GELU_TANH;
    assert_fails(run(&r, &l.a, &err), err, BERTH_EUNSUPPORTED, "has no kernels for sm_90");
    r.blas->ask_with = 0;
    assert_ok(run(&r, &l.a, &err), err);
    layer_free(&l);
    teardown(&r);
}

/* The library is there before the pass, or it is said why not; few rows do without it. */
static void made_ready(void **state)
{
    (void)state;
    struct rig r = setup();
    const struct op_env env = on_card(&r);
    struct layer l;
    berth_err err = { 0 };
    struct op_matmul m = { .y = { .dtype = DT_F32 } };
    r.cuda->total = 200 << 20;
    r.blas->open_with = 1; /* CUBLAS_STATUS_NOT_INITIALIZED */
    layer_plain(&l, DT_BF16, 5, 8, 8);
    assert_fails(cuda_linear_ready(&env, &l.a, &err), err, BERTH_ENODEVMEM, "linear: cuda:0");
    assert_fails(cuda_matmul_ready(&env, &m, &err), err, BERTH_ENODEVMEM, "matmul: cuda:0");
    struct op_linear few = l.a;
    few.x.shape.dim[0] = few.y.shape.dim[0] = 4;
    assert_ok(cuda_linear_ready(&env, &few, &err), err);
    r.blas->open_with = 0;
    assert_ok(cuda_linear_ready(&env, &l.a, &err), err);
    assert_ok(cuda_matmul_ready(&env, &m, &err), err);
    assert_int_equal(r.blas->live, 1);
    layer_free(&l);
    teardown(&r);
}

struct lines {
    int n;
    char last[400];
};

static void write_line(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                       const char *text)
{
    struct lines *l = user;
    (void)wall_ns;
    l->n++;
    snprintf(l->last, sizeof l->last, "%s %s %s", log_level_name(level), event, text);
}

/* Nothing becomes slow in silence: once for a shape. */
static void refusals_are_told(void **state)
{
    (void)state;
    struct lines lines = { 0 };
    const struct log log = { .level = LOG_DEBUG, .write = write_line, .user = &lines };
    struct rig r = setup();
    struct layer l;
    berth_err err = { 0 };
    r.log = &log;
    layer_plain(&l, DT_F16, 5, 8, 8);
    assert_ok(run(&r, &l.a, &err), err);
    assert_int_equal(lines.n, 0);
    r.blas->fail_with = 15;       /* CUBLAS_STATUS_NOT_SUPPORTED: proposed, and does not run */
    for (int i = 0; i < 2; i++) { /* this card cannot load our own kernels */
        assert_fails(run(&r, &l.a, &err), err, BERTH_EDEVICE, "product.cu");
        assert_int_equal(lines.n, 1);
    }
    assert_non_null(strstr(lines.last, "warn op.slow dev=cuda:0 product=5x8x8 batch=1 type=F16"));
    r.blas->fail_with = 0;
    r.blas->refuses = FAKE_REFUSES_EPILOGUES;
    l.a.after = OP_AFTER_GELU_TANH;
    for (int i = 0; i < 2; i++) {
        assert_fails(run(&r, &l.a, &err), err, BERTH_EDEVICE, "product.cu");
        assert_int_equal(lines.n, 2);
    }
    assert_non_null(strstr(lines.last, "info op.slow"));
    assert_non_null(strstr(lines.last, "gelu=1"));
    layer_free(&l);
    teardown(&r);
}

static void survives_exhausted_memory(void **state)
{
    (void)state;
    berth_status s = BERTH_ENOMEM;
    struct rig r = setup();
    struct layer l;
    layer_plain(&l, DT_BF16, 5, 8, 8);
    struct op_env env = on_card(&r);
    env.scratch_bytes = op_linear_scratch(&env, &l.a);
    env.scratch = aligned_alloc(256, (env.scratch_bytes + 255) / 256 * 256);
    for (int k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = op_linear(&env, &l.a, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
    }
    free(env.scratch);
    layer_free(&l);
    teardown(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(linear, say_seed),
        cmocka_unit_test_teardown(matmul, say_seed),
        cmocka_unit_test(choices_are_kept),
        cmocka_unit_test(refusals),
        cmocka_unit_test(failures),
        cmocka_unit_test(words_of_failures),
        cmocka_unit_test(refusals_are_told),
        cmocka_unit_test(made_ready),
        cmocka_unit_test(survives_exhausted_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
