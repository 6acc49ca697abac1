/* linear, matmul and conv2d at every level this processor has, on odd shapes and stored types,
 * against sums in double; the same bits whatever the threads, the batch and the rows beside;
 * cancelling. Scratch is exactly what was asked for and full of NaN beforehand. */
#include "support/rng.h"
#include "support/test.h"

#include "op/cpu/cpu_impl.h"
#include "op/cpu/gemm.h"
#include "op/cpu/winograd.h"
#include "tensor/convert.h"

#include <math.h>

#define TOLERANCE 1e-5 /* of the sum of magnitudes; fp32 sums of 20,000 terms stay far below */

static struct tpool *pool;

static int make_pool(void **state)
{
    (void)state;
    berth_err err;
    return tpool_new(3, &pool, &err) != BERTH_OK;
}

static int drop_pool(void **state)
{
    (void)state;
    tpool_free(pool);
    return 0;
}

/* ---- operands ---- */

static void *bytes_of(size_t n)
{
    void *p = malloc(n ? n : 1);
    assert_non_null(p);
    return p;
}

static struct view view_of(enum dtype t, int ndim, const uint64_t *dim, void *data)
{
    struct view v;
    struct shape s = { .ndim = ndim };
    uint64_t n, size;
    berth_err err;
    memcpy(s.dim, dim, (size_t)ndim * sizeof *dim);
    assert_true(shape_count(&s, &n) && dtype_bytes(t, n, &size));
    if (dim[ndim - 1] %
        dtype_desc(t)->elems) { /* a quant under a filter's shape: packed, no strides */
        v = (struct view) { .dtype = t, .shape = s, .data = data };
        return v;
    }
    assert_ok(view_init(t, &s, data, (size_t)size, &v, &err), err);
    return v;
}
#define VIEW(t, data, ...)                                                                         \
    view_of(t, (int)(sizeof(uint64_t[]) { __VA_ARGS__ } / sizeof(uint64_t)),                       \
            (uint64_t[]) { __VA_ARGS__ }, data)

static float *floats(struct rng *r, size_t n)
{
    float *p = bytes_of(n * sizeof *p);
    for (size_t i = 0; i < n; i++)
        p[i] = (float)((int64_t)(rng_u64(r) >> 40) - (1 << 23)) * 0x1p-23f;
    return p;
}

/* n random weights of a type; *wide gets what they say. */
static void *weights(struct rng *r, enum dtype t, size_t n, float **wide)
{
    berth_err err;
    uint64_t size;
    *wide = floats(r, n);
    assert_true(dtype_bytes(t, n, &size));
    void *w = bytes_of((size_t)size);
    assert_ok(convert(DT_F32, *wide, t, w, n, &err), err);
    assert_ok(convert(t, w, DT_F32, *wide, n, &err), err);
    return w;
}

/* The kernels of a level; NULL: not on this processor. */
static const struct op_backend *level_of(int level)
{
    return level <= (int)cpu_kernels(&(struct op_env) { 0 }) ? &op_cpu_at[level] : NULL;
}

static struct op_env env_of(const struct op_backend *l, struct tpool *p, size_t scratch)
{
    struct op_env env = { .backend = l, .pool = p, .scratch_bytes = scratch };
    env.scratch = aligned_alloc(64, (scratch + 63) / 64 * 64 + 64); /* never empty */
    assert_non_null(env.scratch);
    memset(env.scratch, 0xff, scratch); /* NaN */
    return env;
}

struct sums { /* in double: the value and the sum of magnitudes */
    double sum, size;
};

static void near(const char *what, size_t at, float got, struct sums want)
{
    if (!(fabs((double)got - want.sum) <= TOLERANCE * want.size))
        fail_msg("%s: element %zu is %.9g, should be %.9g (terms add up to %g)", what, at,
                 (double)got, want.sum, want.size);
}

/* ---- linear ---- */

struct linear_case {
    size_t rows, k, n;
    enum dtype dtype;
    bool bias, add;
    float scale;
};
static const struct linear_case linears[] = {
    { 1, 1, 1, DT_F32, false, false, 0 },        { 3, 7, 5, DT_F32, true, false, 0 },
    { 2, 33, 65, DT_F16, true, true, 0 },        { 14, 32, 32, DT_F32, false, true, 2 },
    { 15, 31, 33, DT_BF16, true, false, 0 },     { 29, 384, 64, DT_F32, true, true, 0 },
    { 13, 385, 31, DT_F32, false, false, 0 },    { 28, 769, 17, DT_F16, true, true, 0.5f },
    { 77, 96, 130, DT_F8_E4M3, true, false, 3 }, { 130, 64, 300, DT_Q8_0, true, true, 0 },
    { 5, 512, 70, DT_Q4_0, true, false, 0 },     { 240, 40, 520, DT_F32, true, true, 0 },
    { 9, 256, 33, DT_Q8_0, false, true, 0 },     { 2, 20000, 9, DT_F32, true, false, 0 },
    { 6, 12, 900, DT_F8_E5M2, false, false, 0 }, { 1, 70000, 40, DT_F32, false, false, 0 },
    { 500, 130, 700, DT_F16, true, true, 0 },
};

struct linear_data { /* rows of x lie k + 3 apart, of add and y n + 5 */
    struct linear_case c;
    void *w;
    float *wide, *x, *add, *bias;
};

static void linear_make(struct rng *r, const struct linear_case *c, struct linear_data *d)
{
    d->c = *c;
    d->w = weights(r, c->dtype, c->n * c->k, &d->wide);
    d->x = floats(r, c->rows * (c->k + 3));
    d->add = floats(r, c->rows * (c->n + 5));
    d->bias = floats(r, c->n);
}

static void linear_free(struct linear_data *d)
{
    free(d->w), free(d->wide), free(d->x), free(d->add), free(d->bias);
}

/* Rows [first, first + rows) of the case into y, whose rows are n + 5 apart. With `add`, y itself
 * is it. */
static berth_status linear_run(const struct linear_data *d, const struct op_backend *l,
                               struct tpool *p, size_t first, size_t rows, float *y, bool apart,
                               bool thrifty, berth_err *err)
{
    const struct linear_case *c = &d->c;
    struct op_linear a = { .x = VIEW(DT_F32, d->x + first * (c->k + 3), rows, c->k),
                           .w = VIEW(c->dtype, d->w, c->n, c->k),
                           .y = VIEW(DT_F32, y, rows, c->n),
                           .scaled = c->scale != 0,
                           .scale = c->scale };
    a.x.stride[0] = (c->k + 3) * sizeof(float);
    a.y.stride[0] = (c->n + 5) * sizeof(float);
    if (c->bias)
        a.bias = VIEW(DT_F32, d->bias, c->n);
    if (c->add) {
        a.add = a.y;
        if (apart)
            a.add.data = d->add + first * (c->n + 5);
        else
            memcpy(y, d->add + first * (c->n + 5), rows * (c->n + 5) * sizeof *y);
    }
    struct op_env ask = { .backend = l, .pool = p, .thrifty = thrifty };
    struct op_env env = env_of(l, p, cpu_linear_scratch(&ask, &a));
    env.thrifty = thrifty;
    berth_status s = cpu_linear(&env, &a, err);
    free(env.scratch);
    return s;
}

static void linear_check(const struct linear_data *d, const float *y, const char *what)
{
    const struct linear_case *c = &d->c;
    for (size_t i = 0; i < c->rows; i++)
        for (size_t j = 0; j < c->n; j++) {
            double sum = 0, size = 0, scale = c->scale == 0 ? 1 : (double)c->scale;
            for (size_t k = 0; k < c->k; k++) {
                double t = (double)d->x[i * (c->k + 3) + k] * (double)d->wide[j * c->k + k];
                sum += t;
                size += fabs(t);
            }
            struct sums want = { sum * scale, size * fabs(scale) };
            double b = c->bias ? (double)d->bias[j] : 0;
            double e = c->add ? (double)d->add[i * (c->n + 5) + j] : 0;
            want.sum += b + e;
            want.size += fabs(b) + fabs(e);
            near(what, i * c->n + j, y[i * (c->n + 5) + j], want);
        }
}

static void linear_is_the_product(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(linears); i++)
        for (int level = 0; level < CPU_LEVELS; level++) {
            const struct op_backend *l = level_of(level);
            if (!l)
                continue;
            struct linear_data d;
            char what[96];
            linear_make(&r, &linears[i], &d);
            snprintf(what, sizeof what, "linear %zu (%zu x %zu x %zu %s) %s", i, d.c.rows, d.c.k,
                     d.c.n, dtype_name(d.c.dtype), cpu_level_name((enum cpu_level)level));
            float *y = floats(&r, d.c.rows * (d.c.n + 5));
            assert_ok(linear_run(&d, l, i % 2 ? pool : NULL, 0, d.c.rows, y, i % 3 == 0, i % 5 == 4,
                                 &err),
                      err);
            linear_check(&d, y, what);
            free(y);
            linear_free(&d);
        }
}

/* In two pieces, on one thread or three, with `add` apart or not, thrifty or not: the same bits. */
static void linear_rows_are_alone(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(linears); i++)
        for (int level = 0; level < CPU_LEVELS; level++) {
            const struct op_backend *l = level_of(level);
            struct linear_data d;
            if (!l)
                continue;
            linear_make(&r, &linears[i], &d);
            size_t ld = d.c.n + 5, rows = d.c.rows, half = rows / 2;
            float *all = floats(&r, rows * ld), *part = floats(&r, rows * ld);
            assert_ok(linear_run(&d, l, pool, 0, rows, all, true, false, &err), err);
            if (half)
                assert_ok(linear_run(&d, l, NULL, 0, half, part, false, false, &err), err);
            assert_ok(
                linear_run(&d, l, pool, half, rows - half, part + half * ld, false, true, &err),
                err);
            for (size_t k = 0; k < rows; k++)
                if (memcmp(all + k * ld, part + k * ld, d.c.n * sizeof *all))
                    fail_msg("linear %zu at %s: row %zu differs", i,
                             cpu_level_name((enum cpu_level)level), k);
            free(all), free(part);
            linear_free(&d);
        }
}

/* ---- matmul ---- */

static void matmul_is_the_product(void **state)
{
    (void)state;
    static const size_t shapes[][4] = { { 1, 1, 1, 1 },    { 2, 3, 5, 7 },     { 3, 15, 400, 33 },
                                        { 2, 64, 40, 64 }, { 1, 130, 96, 77 }, { 0, 4, 4, 4 },
                                        { 2, 0, 4, 4 } };
    struct rng r = { .state = rng_seed() };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(shapes) * 2; i++)
        for (int level = 0; level < CPU_LEVELS; level++) {
            const struct op_backend *l = level_of(level);
            if (!l)
                continue;
            size_t B = shapes[i / 2][0], M = shapes[i / 2][1], K = shapes[i / 2][2],
                   N = shapes[i / 2][3];
            bool turned = i % 2;
            float *x = floats(&r, B * M * K), *b = floats(&r, B * K * N),
                  *y = floats(&r, B * M * N);
            struct op_matmul a = { .a = VIEW(DT_F32, x, B, M, K),
                                   .b =
                                       turned ? VIEW(DT_F32, b, B, N, K) : VIEW(DT_F32, b, B, K, N),
                                   .y = VIEW(DT_F32, y, B, M, N),
                                   .b_transposed = turned };
            struct op_env ask = { .backend = l, .pool = pool };
            struct op_env env = env_of(l, pool, cpu_matmul_scratch(&ask, &a));
            assert_ok(cpu_matmul(&env, &a, &err), err);
            for (size_t e = 0; e < B * M * N; e++) {
                size_t j = e % N, m = e / N % M, n = e / N / M;
                struct sums want = { 0, 0 };
                for (size_t k = 0; k < K; k++) {
                    double t = (double)x[(n * M + m) * K + k] *
                               (double)b[turned ? (n * N + j) * K + k : (n * K + k) * N + j];
                    want.sum += t;
                    want.size += fabs(t);
                }
                near(turned ? "matmul, b turned" : "matmul", e, y[e], want);
            }
            free(x), free(b), free(y), free(env.scratch);
        }
}

/* ---- conv2d ---- */

struct conv_case {
    size_t n, ic, oc, h, w, k;
    uint32_t stride, groups, pad[4]; /* top left bottom right */
    enum dtype dtype;
    bool bias, add;
    float scale;
};
static const struct conv_case convs[] = {
    { 1, 1, 1, 1, 1, 1, 1, 1, { 0 }, DT_F32, false, false, 0 },
    { 2, 3, 5, 7, 9, 3, 1, 1, { 1, 1, 1, 1 }, DT_F32, true, true, 0 },
    { 2, 9, 15, 8, 8, 1, 1, 1, { 0 }, DT_F16, true, false, 2 },
    { 1, 5, 30, 9, 11, 3, 2, 1, { 0, 0, 1, 1 }, DT_F32, true, false, 0 },
    { 2, 8, 12, 10, 7, 3, 2, 2, { 1, 1, 1, 1 }, DT_F32, true, true, 0 },
    { 1, 6, 6, 6, 6, 3, 1, 6, { 1, 1, 1, 1 }, DT_BF16, false, true, 0 },
    { 1, 4, 17, 13, 40, 5, 3, 1, { 4, 2, 0, 6 }, DT_F32, true, false, 0 },
    { 1, 2, 3, 3, 3, 4, 1, 1, { 3, 3, 3, 3 }, DT_F32, false, false, 0 },
    { 1, 64, 20, 9, 3, 1, 2, 1, { 0 }, DT_Q8_0, true, false, 0 },
    { 2, 32, 33, 5, 3, 3, 1, 1, { 1, 1, 1, 1 }, DT_Q8_0, true, false, 0 },
    { 1, 130, 40, 6, 6, 3, 2, 1, { 1, 1, 1, 1 }, DT_F32, true, true, 0 },
    /* Winograd's */
    { 1, 32, 32, 4, 4, 3, 1, 1, { 1, 1, 1, 1 }, DT_F32, false, false, 0 },
    { 2, 33, 47, 9, 11, 3, 1, 1, { 1, 1, 1, 1 }, DT_F32, true, true, 0 },
    { 3, 40, 35, 8, 8, 3, 1, 1, { 1, 1, 1, 1 }, DT_F16, true, false, 0 },
    { 2, 32, 60, 5, 71, 3, 1, 1, { 0, 2, 1, 3 }, DT_F32, true, true, 1.5f },
    { 1, 400, 33, 7, 6, 3, 1, 1, { 0, 0, 0, 0 }, DT_F32, true, false, 0 },
    { 1, 64, 130, 12, 64, 3, 1, 1, { 1, 1, 1, 1 }, DT_Q8_0, false, true, 0 },
    { 1, 256, 32, 4, 5, 3, 1, 1, { 2, 2, 2, 2 }, DT_Q4_0, true, false, 0 },
    { 2, 17, 3, 6, 37, 3, 1, 1, { 1, 1, 1, 1 }, DT_F32, true, true, 0 },
    { 2, 16, 20, 41, 47, 3, 1, 1, { 1, 1, 1, 1 }, DT_F16, true, true, 0 },
    { 3, 32, 33, 32, 32, 3, 1, 1, { 1, 1, 1, 1 }, DT_Q8_0, false, true, 2 },
    { 1, 20, 15, 17, 150, 3, 1, 1, { 0, 2, 3, 1 }, DT_F32, true, false, 0 },
    { 2, 390, 17, 33, 35, 3, 1, 1, { 1, 1, 1, 1 }, DT_F32, true, false, 0 },
    /* in chunks of filters and of tiles, thrifty; the last one even if not */
    { 2, 64, 150, 60, 90, 3, 1, 1, { 1, 1, 1, 1 }, DT_F16, true, true, 0 },
    { 2, 320, 90, 30, 60, 3, 1, 1, { 1, 1, 1, 1 }, DT_Q8_0, true, false, 0 },
    { 2, 1280, 45, 33, 34, 3, 1, 1, { 1, 1, 1, 1 }, DT_F16, true, true, 0 },
};

struct conv_data {
    struct conv_case c;
    size_t oh, ow;
    void *w;
    float *wide, *x, *add, *bias;
};

static size_t side(size_t n, uint32_t before, uint32_t after, size_t k, uint32_t stride)
{
    return (n + before + after - k) / stride + 1;
}

static void conv_make(struct rng *r, const struct conv_case *c, struct conv_data *d)
{
    d->c = *c;
    d->oh = side(c->h, c->pad[0], c->pad[2], c->k, c->stride);
    d->ow = side(c->w, c->pad[1], c->pad[3], c->k, c->stride);
    d->w = weights(r, c->dtype, c->oc * c->ic / c->groups * c->k * c->k, &d->wide);
    d->x = floats(r, c->n * c->ic * c->h * c->w);
    d->add = floats(r, c->n * c->oc * d->oh * d->ow);
    d->bias = floats(r, c->oc);
}

static void conv_free(struct conv_data *d)
{
    free(d->w), free(d->wide), free(d->x), free(d->add), free(d->bias);
}

/* Pictures [first, first + n). */
static berth_status conv_run(const struct conv_data *d, const struct op_backend *l, struct tpool *p,
                             size_t first, size_t n, float *y, bool apart, bool thrifty,
                             berth_err *err)
{
    const struct conv_case *c = &d->c;
    size_t out = c->oc * d->oh * d->ow;
    struct op_conv2d a = { .x = VIEW(DT_F32, d->x + first * c->ic * c->h * c->w, n, c->ic, c->h,
                                     c->w),
                           .w = VIEW(c->dtype, d->w, c->oc, c->ic / c->groups, c->k, c->k),
                           .y = VIEW(DT_F32, y, n, c->oc, d->oh, d->ow),
                           .stride = c->stride,
                           .groups = c->groups,
                           .top = c->pad[0],
                           .left = c->pad[1],
                           .bottom = c->pad[2],
                           .right = c->pad[3],
                           .scaled = c->scale != 0,
                           .scale = c->scale };
    if (c->bias)
        a.bias = VIEW(DT_F32, d->bias, c->oc);
    if (c->add) {
        a.add = a.y;
        if (apart)
            a.add.data = d->add + first * out;
        else
            memcpy(y, d->add + first * out, n * out * sizeof *y);
    }
    struct op_env ask = { .backend = l, .pool = p, .thrifty = thrifty };
    struct op_env env = env_of(l, p, cpu_conv2d_scratch(&ask, &a));
    env.thrifty = thrifty;
    berth_status s = cpu_conv2d(&env, &a, err);
    free(env.scratch);
    return s;
}

static struct sums conv_at(const struct conv_data *d, size_t n, size_t oc, size_t oy, size_t ox)
{
    const struct conv_case *c = &d->c;
    size_t each = c->ic / c->groups, group = oc / (c->oc / c->groups);
    struct sums s = { 0, 0 };
    for (size_t i = 0; i < each; i++)
        for (size_t ky = 0; ky < c->k; ky++)
            for (size_t kx = 0; kx < c->k; kx++) {
                size_t y = oy * c->stride + ky - c->pad[0], x = ox * c->stride + kx - c->pad[1];
                if (y >= c->h || x >= c->w) /* or below zero: wrapped around */
                    continue;
                double t = (double)d->x[((n * c->ic + group * each + i) * c->h + y) * c->w + x] *
                           (double)d->wide[((oc * each + i) * c->k + ky) * c->k + kx];
                s.sum += t;
                s.size += fabs(t);
            }
    double scale = c->scale == 0 ? 1 : (double)c->scale;
    return (struct sums) { s.sum * scale, s.size * scale };
}

/* The large cases are for chunks, which no level has of its own: at the best one. */
static const struct op_backend *level_for(size_t i, int level)
{
    bool large = convs[i].ic * convs[i].oc * convs[i].h * convs[i].w > 20000000;
    return large && level < (int)cpu_kernels(&(struct op_env) { 0 }) ? NULL : level_of(level);
}

static void conv_is_the_sum(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(convs); i++)
        for (int level = 0; level < CPU_LEVELS; level++) {
            const struct op_backend *l = level_for(i, level);
            struct conv_data d;
            char what[96];
            if (!l)
                continue;
            conv_make(&r, &convs[i], &d);
            snprintf(what, sizeof what, "convolution %zu at %s", i,
                     cpu_level_name((enum cpu_level)level));
            size_t plane = d.oh * d.ow, out = d.c.n * d.c.oc * plane;
            float *y = floats(&r, out);
            assert_ok(
                conv_run(&d, l, i % 2 ? pool : NULL, 0, d.c.n, y, i % 3 == 0, i % 5 == 4, &err),
                err);
            size_t step = out > 200000 ? 61 : 1; /* sums in double take their time */
            for (size_t e = 0; e < out; e += step) {
                size_t oc = e / plane % d.c.oc;
                struct sums want = conv_at(&d, e / plane / d.c.oc, oc, e % plane / d.ow, e % d.ow);
                double b = d.c.bias ? (double)d.bias[oc] : 0, a = d.c.add ? (double)d.add[e] : 0;
                want.sum += b + a;
                /* Winograd's terms are not these: a window of zeros leaves the rest of its tile */
                want.size += fabs(b) + fabs(a) + 0.1;
                near(what, e, y[e], want);
            }
            free(y);
            conv_free(&d);
        }
}

static void pictures_are_alone(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(convs); i++)
        for (int level = 0; level < CPU_LEVELS; level++) {
            const struct op_backend *l = level_for(i, level);
            struct conv_data d;
            if (!l)
                continue;
            conv_make(&r, &convs[i], &d);
            size_t out = d.c.oc * d.oh * d.ow;
            float *all = floats(&r, d.c.n * out), *part = floats(&r, d.c.n * out);
            assert_ok(conv_run(&d, l, pool, 0, d.c.n, all, true, false, &err), err);
            for (size_t n = 0; n < d.c.n; n++)
                assert_ok(
                    conv_run(&d, l, n % 2 ? pool : NULL, n, 1, part + n * out, false, n % 2, &err),
                    err);
            if (memcmp(all, part, d.c.n * out * sizeof *all))
                fail_msg("convolution %zu at %s: pictures differ", i,
                         cpu_level_name((enum cpu_level)level));
            free(all), free(part);
            conv_free(&d);
        }
}

/* What one large value does to results: those whose window has it round as sums of its size do;
 * Winograd's tiles have it in common, so that results beside get rounding of it, too (ops.h, Same
 * bits). Allowed, as a part of the value at weights up to 1: twice what was seen. A NaN stays
 * within the tile. */
static void outliers_reach_their_tile_alone(void **state)
{
    (void)state;
    static const struct conv_case cases[] = {
        { 1, 64, 16, 40, 36, 3, 1, 1, { 1, 1, 1, 1 }, DT_F32, false, false, 0 }, /* 4x4 */
        { 1, 64, 16, 24, 36, 3, 1, 1, { 1, 1, 1, 1 }, DT_F32, false, false, 0 }, /* 2x2 */
    };
    static const double allowed[][2] = { { 6e-6, 1.6e-5 }, { 3e-10, 3e-6 } }; /* beside, own */
    enum { Y = 18, X = 17, CHANNEL = 5 };
    const float outlier = 1e5f;
    struct rng r = { .state = rng_seed() };
    berth_err err;
    for (size_t i = 0; i < ARRAY_LEN(cases) * CPU_LEVELS; i++) {
        const struct op_backend *l = level_of((int)(i % CPU_LEVELS));
        struct conv_data d;
        if (!l)
            continue;
        conv_make(&r, &cases[i / CPU_LEVELS], &d);
        size_t plane = d.oh * d.ow, out = d.c.oc * plane;
        float *quiet = floats(&r, out), *loud = floats(&r, out), *broken = floats(&r, out);
        float *at = d.x + (CHANNEL * d.c.h + Y) * d.c.w + X;
        assert_ok(conv_run(&d, l, NULL, 0, 1, quiet, true, false, &err), err);
        *at = NAN;
        assert_ok(conv_run(&d, l, NULL, 0, 1, broken, true, false, &err), err);
        *at = outlier;
        assert_ok(conv_run(&d, l, NULL, 0, 1, loud, true, false, &err), err);
        for (size_t e = 0; e < out; e++) {
            int y = (int)(e % plane / d.ow), x = (int)(e % d.ow);
            bool far = abs(y - Y) > 4 || abs(x - X) > 4, own = abs(y - Y) <= 1 && abs(x - X) <= 1;
            struct sums want = conv_at(&d, 0, e / plane, (size_t)y, (size_t)x);
            double off = fabs((double)loud[e] - want.sum);
            if (far && (memcmp(&loud[e], &quiet[e], 4) || memcmp(&broken[e], &quiet[e], 4)))
                fail_msg("case %zu, pixel %d, %d: changed by one at %d, %d", i, y, x, Y, X);
            if (!(off <= allowed[i / CPU_LEVELS][own] * (double)outlier))
                fail_msg("case %zu, pixel %d, %d: off by %g of %g", i, y, x, off, (double)outlier);
            if (own)
                assert_true(isnan(broken[e]));
        }
        free(quiet), free(loud), free(broken);
        conv_free(&d);
    }
}

static void winograd_takes_some(void **state)
{
    (void)state;
    size_t taken = 0;
    for (size_t i = 0; i < ARRAY_LEN(convs); i++) {
        const struct conv_case *c = &convs[i];
        struct op_conv2d a = {
            .w = { .shape = { 4, { c->oc, c->ic / c->groups, c->k, c->k } } },
            .y = { .shape = { 4,
                              { c->n, c->oc, side(c->h, c->pad[0], c->pad[2], c->k, c->stride),
                                side(c->w, c->pad[1], c->pad[3], c->k, c->stride) } } },
            .stride = c->stride,
            .groups = c->groups
        };
        taken += winograd_suits(&a);
    }
    assert_int_equal(taken, 15);
}

/* ---- all ---- */

static void cancelled_products_end(void **state)
{
    (void)state;
    struct rng r = { .state = rng_seed() };
    atomic_bool stop = true;
    berth_err err;
    float *x = floats(&r, 64 * 64 * 16), *w = floats(&r, 64 * 64 * 9),
          *y = floats(&r, 64 * 64 * 16);
    struct op_env env = env_of(NULL, pool, (size_t)64 << 20);
    env.cancel = &stop;
    struct op_linear l = { .x = VIEW(DT_F32, x, 64, 64),
                           .w = VIEW(DT_F32, w, 64, 64),
                           .y = VIEW(DT_F32, y, 64, 64) };
    struct op_matmul m = { .a = VIEW(DT_F32, x, 1, 64, 64),
                           .b = VIEW(DT_F32, w, 1, 64, 64),
                           .y = VIEW(DT_F32, y, 1, 64, 64) };
    struct op_conv2d c = { .x = VIEW(DT_F32, x, 1, 64, 32, 32),
                           .w = VIEW(DT_F32, w, 64, 64, 3, 3),
                           .y = VIEW(DT_F32, y, 1, 64, 32, 32),
                           .top = 1,
                           .left = 1,
                           .bottom = 1,
                           .right = 1 };
    assert_fails(cpu_linear(&env, &l, &err), err, BERTH_ECANCELED, "64 x 64");
    assert_fails(cpu_matmul(&env, &m, &err), err, BERTH_ECANCELED, "64 x 64");
    assert_fails(cpu_conv2d(&env, &c, &err), err, BERTH_ECANCELED, "64 to 64 channels");
    c.groups = 2;
    c.w = VIEW(DT_F32, w, 64, 32, 3, 3);
    assert_fails(cpu_conv2d(&env, &c, &err), err, BERTH_ECANCELED, "32 x 1024 x 288");
    free(x), free(w), free(y), free(env.scratch);
}

/* A network's largest products stay within tens of MiB, and a larger batch asks for no more. */
static void scratch_is_modest(void **state)
{
    (void)state;
    struct op_env env = { .pool = pool };
    for (size_t n = 1; n <= 64; n *= 8) {
        struct op_linear l = { .x = VIEW(DT_F32, NULL, n * 4096, 1280),
                               .w = VIEW(DT_F16, NULL, 10240, 1280),
                               .y = VIEW(DT_F32, NULL, n * 4096, 10240) };
        struct op_conv2d c = { .x = VIEW(DT_F32, NULL, n, 2560, 16, 16),
                               .w = VIEW(DT_F16, NULL, 1280, 2560, 3, 3),
                               .y = VIEW(DT_F32, NULL, n, 1280, 16, 16) };
        assert_in_range(cpu_linear_scratch(&env, &l), 1, (size_t)16 << 20);
        assert_in_range(cpu_conv2d_scratch(&env, &c), 1, (size_t)40 << 20);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(linear_is_the_product), cmocka_unit_test(linear_rows_are_alone),
        cmocka_unit_test(matmul_is_the_product), cmocka_unit_test(conv_is_the_sum),
        cmocka_unit_test(pictures_are_alone),    cmocka_unit_test(outliers_reach_their_tile_alone),
        cmocka_unit_test(winograd_takes_some),   cmocka_unit_test(cancelled_products_end),
        cmocka_unit_test(scratch_is_modest),
    };
    return cmocka_run_group_tests(tests, make_pool, drop_pool);
}
