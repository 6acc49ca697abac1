/* products: linear and conv2d at the sizes of an SD1.5 UNet (64x64 latent, batch 2) and its VAE,
 * with weights stored as F32, F16 and Q8_0; beside them, where this was built with oneDNN, its
 * convolution (weights reordered beforehand, pictures on each call, as a caller with plain pictures
 * must) and its sgemm.
 *
 * Each number is the best of several tries, in GFLOP/s of the plain sum: Winograd does fewer
 * multiplications than are counted. All use every core. */
#include "base/tpool.h"
#include "bench.h"
#include "op/cpu/cpu_impl.h"
#include "tensor/convert.h"

#ifdef BENCH_DNNL
#include <oneapi/dnnl/dnnl.h>
#endif

#define TRIES 5
#define SCRATCH ((size_t)64 << 20)

struct size {
    const char *name;
    uint64_t n, k, oc, side, taps; /* linear: n rows, taps 0 */
    uint32_t stride;
};
static const struct size sizes[] = {
    { "conv3 320 at 64", 2, 320, 320, 64, 3, 1 },
    { "conv3 640 at 64", 2, 640, 320, 64, 3, 1 },
    { "conv3 960 to 320 at 64", 2, 960, 320, 64, 3, 1 },
    { "conv3 640 at 32", 2, 640, 640, 32, 3, 1 },
    { "conv3 1920 to 640 at 32", 2, 1920, 640, 32, 3, 1 },
    { "conv3 1280 at 16", 2, 1280, 1280, 16, 3, 1 },
    { "conv3 2560 to 1280 at 16", 2, 2560, 1280, 16, 3, 1 },
    { "conv3 1280 at 8", 2, 1280, 1280, 8, 3, 1 },
    { "conv3 2560 to 1280 at 8", 2, 2560, 1280, 8, 3, 1 },
    { "conv3 320 at 64, stride 2", 2, 320, 320, 64, 3, 2 },
    { "conv3 4 to 320 at 64", 2, 4, 320, 64, 3, 1 },
    { "conv3 320 to 4 at 64", 2, 320, 4, 64, 3, 1 },
    { "conv1 320 at 64", 2, 320, 320, 64, 1, 1 },
    { "conv1 1280 at 16", 2, 1280, 1280, 16, 1, 1 },
    { "linear 8192 x 320 to 320", 8192, 320, 320, 0, 0, 0 },
    { "linear 8192 x 320 to 2560", 8192, 320, 2560, 0, 0, 0 },
    { "linear 8192 x 1280 to 320", 8192, 1280, 320, 0, 0, 0 },
    { "linear 2048 x 640 to 5120", 2048, 640, 5120, 0, 0, 0 },
    { "linear 512 x 1280 to 10240", 512, 1280, 10240, 0, 0, 0 },
    { "linear 128 x 1280 to 1280", 128, 1280, 1280, 0, 0, 0 },
    { "linear 154 x 768 to 320", 154, 768, 320, 0, 0, 0 },
    { "linear 154 x 768 to 1280", 154, 768, 1280, 0, 0, 0 },
    { "linear 2 x 1280 to 1280", 2, 1280, 1280, 0, 0, 0 },
    { "vae conv3 512 at 64", 1, 512, 512, 64, 3, 1 },
    { "vae conv3 512 at 256", 1, 512, 512, 256, 3, 1 },
    { "vae conv3 256 at 256", 1, 256, 256, 256, 3, 1 },
    { "vae conv3 128 at 512", 1, 128, 128, 512, 3, 1 },
    { "vae conv3 128 to 3 at 512", 1, 128, 3, 512, 3, 1 },
};
static const enum dtype types[] = { DT_F32, DT_F16, DT_Q8_0 };

struct bench {
    struct op_env env;
    float *x, *y, *w, *bias;
    void *stored;
};

static struct view view4(enum dtype t, void *data, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    struct view v = { .dtype = t, .data = data, .shape = { 4, { a, b, c, d } } };
    v.stride[3] = dtype_desc(t)->bytes;
    for (int i = 2; i >= 0; i--)
        v.stride[i] = v.stride[i + 1] * (size_t)v.shape.dim[i + 1];
    return v;
}

static struct view view2(enum dtype t, void *data, uint64_t a, uint64_t b)
{
    const struct dtype_desc *d = dtype_desc(t);
    return (struct view) { .dtype = t,
                           .data = data,
                           .shape = { 2, { a, b } },
                           .stride = { (size_t)b / d->elems * d->bytes, d->bytes } };
}

static double ours(struct bench *b, const struct size *s, enum dtype t)
{
    berth_err err;
    size_t n = (size_t)(s->k * s->oc * (s->taps ? s->taps * s->taps : 1));
    if (n / s->oc % dtype_desc(t)->elems || convert(DT_F32, b->w, t, b->stored, n, &err))
        return 0;
    double best = 1e30;
    for (int i = 0; i < TRIES; i++) {
        double at = bench_now_ms();
        berth_status st;
        if (s->taps) {
            uint64_t side = (s->side - 1) / s->stride + 1;
            uint32_t pad = (uint32_t)s->taps / 2;
            struct op_conv2d a = { .x = view4(DT_F32, b->x, s->n, s->k, s->side, s->side),
                                   .w = view4(t, b->stored, s->oc, s->k, s->taps, s->taps),
                                   .bias = { .data = b->bias },
                                   .y = view4(DT_F32, b->y, s->n, s->oc, side, side),
                                   .stride = s->stride,
                                   .top = pad,
                                   .left = pad,
                                   .bottom = pad,
                                   .right = pad };
            if (cpu_conv2d_scratch(&b->env, &a) > SCRATCH)
                return 0;
            st = cpu_conv2d(&b->env, &a, &err);
        } else {
            struct op_linear a = { .x = view2(DT_F32, b->x, s->n, s->k),
                                   .w = view2(t, b->stored, s->oc, s->k),
                                   .bias = { .data = b->bias },
                                   .y = view2(DT_F32, b->y, s->n, s->oc) };
            if (cpu_linear_scratch(&b->env, &a) > SCRATCH)
                return 0;
            st = cpu_linear(&b->env, &a, &err);
        }
        if (st) {
            fprintf(stderr, "%s: %s\n", s->name, err.msg);
            exit(1);
        }
        double ms = bench_now_ms() - at;
        best = ms < best ? ms : best;
    }
    return best;
}

#ifdef BENCH_DNNL
static void must(dnnl_status_t s)
{
    if (s != dnnl_success) {
        fprintf(stderr, "oneDNN: error %d\n", (int)s);
        exit(1);
    }
}

static dnnl_memory_t memory(dnnl_engine_t e, const dnnl_memory_desc_t *d, void *data)
{
    dnnl_memory_t m;
    must(dnnl_memory_create(&m, d, e, data));
    return m;
}

static void reorder(dnnl_engine_t e, dnnl_stream_t s, dnnl_memory_t from, dnnl_memory_t to)
{
    const dnnl_memory_desc_t *f, *t;
    dnnl_primitive_desc_t pd;
    dnnl_primitive_t p;
    must(dnnl_memory_get_memory_desc(from, &f));
    must(dnnl_memory_get_memory_desc(to, &t));
    must(dnnl_reorder_primitive_desc_create(&pd, f, e, t, e, NULL));
    must(dnnl_primitive_create(&p, pd));
    must(dnnl_primitive_execute(
        p, s, 2, (dnnl_exec_arg_t[]) { { DNNL_ARG_FROM, from }, { DNNL_ARG_TO, to } }));
    dnnl_primitive_destroy(p);
    dnnl_primitive_desc_destroy(pd);
}

struct dnnl_conv { /* memories as the primitive likes them */
    dnnl_engine_t e;
    dnnl_stream_t s;
    dnnl_memory_t plain_x, plain_y, x, w, y, bias;
    dnnl_primitive_t p;
};

static double dnnl_conv_time(struct dnnl_conv *c)
{
    double best = 1e30;
    for (int i = 0; i < TRIES; i++) {
        double at = bench_now_ms();
        reorder(c->e, c->s, c->plain_x, c->x);
        must(dnnl_primitive_execute(c->p, c->s, 4,
                                    (dnnl_exec_arg_t[]) { { DNNL_ARG_SRC, c->x },
                                                          { DNNL_ARG_WEIGHTS, c->w },
                                                          { DNNL_ARG_BIAS, c->bias },
                                                          { DNNL_ARG_DST, c->y } }));
        reorder(c->e, c->s, c->y, c->plain_y);
        must(dnnl_stream_wait(c->s));
        double ms = bench_now_ms() - at;
        best = ms < best ? ms : best;
    }
    return best;
}

static double theirs_conv(struct bench *b, const struct size *s)
{
    struct dnnl_conv c;
    int64_t side = (int64_t)((s->side - 1) / s->stride + 1), in = (int64_t)s->side,
            pad = (int64_t)s->taps / 2;
    const dnnl_dims_t xd = { (int64_t)s->n, (int64_t)s->k, in, in };
    const dnnl_dims_t wd = { (int64_t)s->oc, (int64_t)s->k, (int64_t)s->taps, (int64_t)s->taps };
    const dnnl_dims_t yd = { (int64_t)s->n, (int64_t)s->oc, side, side }, bd = { (int64_t)s->oc };
    dnnl_memory_desc_t x, w, y, bias, any_x, any_w, any_y;
    must(dnnl_engine_create(&c.e, dnnl_cpu, 0));
    must(dnnl_stream_create(&c.s, c.e, dnnl_stream_default_flags));
    must(dnnl_memory_desc_init_by_tag(&x, 4, xd, dnnl_f32, dnnl_nchw));
    must(dnnl_memory_desc_init_by_tag(&w, 4, wd, dnnl_f32, dnnl_oihw));
    must(dnnl_memory_desc_init_by_tag(&y, 4, yd, dnnl_f32, dnnl_nchw));
    must(dnnl_memory_desc_init_by_tag(&bias, 1, bd, dnnl_f32, dnnl_x));
    must(dnnl_memory_desc_init_by_tag(&any_x, 4, xd, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&any_w, 4, wd, dnnl_f32, dnnl_format_tag_any));
    must(dnnl_memory_desc_init_by_tag(&any_y, 4, yd, dnnl_f32, dnnl_format_tag_any));
    const dnnl_dims_t strides = { s->stride, s->stride }, pads = { pad, pad };
    dnnl_convolution_desc_t d;
    dnnl_primitive_desc_t pd;
    must(dnnl_convolution_forward_desc_init(&d, dnnl_forward_inference, dnnl_convolution_auto,
                                            &any_x, &any_w, &bias, &any_y, strides, pads, pads));
    must(dnnl_primitive_desc_create(&pd, &d, NULL, c.e, NULL));
    must(dnnl_primitive_create(&c.p, pd));
    c.plain_x = memory(c.e, &x, b->x);
    c.plain_y = memory(c.e, &y, b->y);
    c.bias = memory(c.e, &bias, b->bias);
    c.x = memory(c.e, dnnl_primitive_desc_query_md(pd, dnnl_query_src_md, 0), DNNL_MEMORY_ALLOCATE);
    c.w = memory(c.e, dnnl_primitive_desc_query_md(pd, dnnl_query_weights_md, 0),
                 DNNL_MEMORY_ALLOCATE);
    c.y = memory(c.e, dnnl_primitive_desc_query_md(pd, dnnl_query_dst_md, 0), DNNL_MEMORY_ALLOCATE);
    dnnl_memory_t plain_w = memory(c.e, &w, b->w);
    reorder(c.e, c.s, plain_w, c.w);
    double best = dnnl_conv_time(&c);
    dnnl_memory_t all[] = { plain_w, c.plain_x, c.plain_y, c.bias, c.x, c.w, c.y };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        dnnl_memory_destroy(all[i]);
    dnnl_primitive_destroy(c.p);
    dnnl_primitive_desc_destroy(pd);
    dnnl_stream_destroy(c.s);
    dnnl_engine_destroy(c.e);
    return best;
}

static double theirs(struct bench *b, const struct size *s)
{
    if (s->taps)
        return theirs_conv(b, s);
    double best = 1e30;
    for (int i = 0; i < TRIES; i++) {
        double at = bench_now_ms();
        must(dnnl_sgemm('N', 'T', (dnnl_dim_t)s->n, (dnnl_dim_t)s->oc, (dnnl_dim_t)s->k, 1, b->x,
                        (dnnl_dim_t)s->k, b->w, (dnnl_dim_t)s->k, 0, b->y, (dnnl_dim_t)s->oc));
        double ms = bench_now_ms() - at;
        best = ms < best ? ms : best;
    }
    return best;
}
#else
static double theirs(struct bench *b, const struct size *s)
{
    (void)b, (void)s;
    return 0;
}
#endif

static bool make_data(struct bench *b)
{
    size_t most = (size_t)512 * 256 * 256, weights = (size_t)2560 * 1280 * 9;
    b->x = malloc(most * sizeof *b->x);
    b->y = malloc(most * sizeof *b->y);
    b->w = malloc(weights * sizeof *b->w);
    b->stored = malloc(weights * sizeof *b->w);
    b->bias = calloc(10240, sizeof *b->bias);
    b->env.scratch = aligned_alloc(OP_SCRATCH_ALIGN, SCRATCH);
    if (!b->x || !b->y || !b->w || !b->stored || !b->bias || !b->env.scratch)
        return false;
    for (size_t i = 0; i < most; i++)
        b->x[i] = (float)((uint32_t)(i * 2654435761u) >> 8) * 0x1p-23f - 1;
    for (size_t i = 0; i < weights; i++)
        b->w[i] = (float)((uint32_t)(i * 2246822519u) >> 8) * 0x1p-28f - 0x1p-5f;
    memset(b->y, 0, most * sizeof *b->y);
    memset(b->env.scratch, 0, SCRATCH);
    return true;
}

int main(int argc, char **argv)
{
    bool json;
    int rc = bench_args(argc, argv, "products [--json]: GFLOP/s of linear and conv2d\n", &json);
    if (rc >= 0)
        return rc;
    struct bench b = { 0 };
    berth_err err;
    if (tpool_new(0, &b.env.pool, &err) || !make_data(&b)) {
        fprintf(stderr, "products: no memory or threads\n");
        return 1;
    }
    if (!json)
        printf("%-28s %8s %8s %8s %8s %8s\n", "GFLOP/s", "F32", "F16", "Q8_0", "oneDNN", "ratio");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const struct size *s = &sizes[i];
        double side = s->taps ? (double)((s->side - 1) / s->stride + 1) : 1;
        double taps = s->taps ? (double)(s->taps * s->taps) : 1;
        double gf = 2e-6 * (double)s->n * (double)s->k * (double)s->oc * side * side * taps;
        double ms[3], other = theirs(&b, s);
        for (size_t t = 0; t < ARRAY_LEN(types); t++)
            ms[t] = ours(&b, s, types[t]);
        if (json)
            printf("{\"name\":\"%s\",\"ms_f32\":%.3f,\"ms_f16\":%.3f,\"ms_q8_0\":%.3f,\"ms_"
                   "onednn\":%.3f}\n",
                   s->name, ms[0], ms[1], ms[2], other);
        else
            printf("%-28s %8.1f %8.1f %8.1f %8.1f %8.2f\n", s->name, gf / ms[0], gf / ms[1],
                   ms[2] > 0 ? gf / ms[2] : 0, other > 0 ? gf / other : 0,
                   other > 0 ? ms[0] / other : 0);
        fflush(stdout);
    }
    tpool_free(b.env.pool);
    free(b.x), free(b.y), free(b.w), free(b.stored), free(b.bias), free(b.env.scratch);
    return 0;
}
