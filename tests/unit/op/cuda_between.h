/* cuda_between: kernels that stand between the libraries', without those: around a convolution of
 * cuDNN's pictures in its order and back, filters, biases, what is added afterwards (every byte is
 * known: nothing is computed but one rounding); between two products of cuBLASLt's the weights of
 * attention. For any card, the fake one too. */
#ifndef UNIT_OP_CUDA_BETWEEN_H
#define UNIT_OP_CUDA_BETWEEN_H

#include "op/cuda/args.cuh"
#include "op/cuda/cuda_op.h"
#include "support/rng.h"
#include "unit/op/op_device.h"

/* ---- memory ---- */

enum { PICTURES = 2, EDGE = 64 }; /* values around, which nobody touches */

struct range { /* of the card, and a copy of it here */
    struct dev_mem there;
    uint16_t *here;
    size_t n;
};

static struct range range_new(struct stand *s, size_t n, struct rng *rng)
{
    struct range r = { .n = n };
    berth_err err = { 0 };
    r.here = malloc((n + 2 * EDGE) * sizeof *r.here);
    assert_non_null(r.here);
    /* Finite in both types: signs, small exponents. */
    for (size_t i = 0; i < n + 2 * EDGE; i++)
        r.here[i] = (uint16_t)(rng_below(rng, 2) << 15 | (0x3800 + rng_below(rng, 0x800)));
    assert_ok(dev_alloc(s->dev, s->owner, (n + 2 * EDGE) * sizeof *r.here, &r.there, &err), err);
    assert_ok(dev_copy_h2d(s->stream, r.there.addr, r.here, (n + 2 * EDGE) * sizeof *r.here, &err),
              err);
    assert_ok(dev_stream_sync(s->stream, &err), err);
    return r;
}

static void range_free(struct range *r)
{
    dev_free(&r->there);
    free(r->here);
}

static void *at_card(const struct range *r)
{
    return (uint16_t *)(uintptr_t)r->there.addr + EDGE;
}

static uint16_t *fetch(struct stand *s, const struct range *r)
{
    berth_err err = { 0 };
    size_t bytes = (r->n + 2 * EDGE) * sizeof *r->here;
    uint16_t *now = malloc(bytes);
    assert_non_null(now);
    assert_ok(dev_copy_d2h(s->stream, now, r->there.addr, bytes, &err), err);
    assert_ok(dev_stream_sync(s->stream, &err), err);
    return now;
}

static float value_of(enum dtype t, const void *p, size_t i)
{
    const struct dtype_desc *d = dtype_desc(t);
    float f;
    d->to_f32((const char *)p + i * d->bytes, &f, 1);
    return f;
}

static void put_value(enum dtype t, void *p, size_t i, float f)
{
    berth_err err;
    assert_ok(convert(DT_F32, &f, t, (char *)p + i * dtype_desc(t)->bytes, 1, &err), err);
}

/* n values of a type; those of 32 bits are finite, too. */
static struct range range_of(struct stand *s, enum dtype t, size_t n, struct rng *rng)
{
    return range_new(s, n * dtype_desc(t)->bytes / sizeof(uint16_t), rng);
}

static void launch_conv(struct stand *s, const char *kernel, enum dtype type,
                        const unsigned grid[3], void *args)
{
    const struct op_env env = { .backend = s->backend, .stream = s->stream };
    const struct cuda_launch l = { .module = CUDA_MODULE_conv2d,
                                   .kernel = kernel,
                                   .type = type,
                                   .grid = { grid[0], grid[1], grid[2] },
                                   .block = { CONV_THREADS },
                                   .args = args };
    berth_err err = { 0 };
    assert_ok(cuda_launch(&env, &l, &err), err);
}

/* ---- pictures in cuDNN's order and back ---- */

struct shape_of {
    uint32_t channels;
    int64_t plane, from, pixels;
};
/* Around tiles of 64, odd ones that go value by value, and pieces out of the middle of a plane. */
static const struct shape_of shapes[] = {
    { 1, 1, 0, 1 },       { 3, 64, 0, 64 },    { 4, 65, 0, 65 },      { 64, 63, 0, 63 },
    { 65, 128, 0, 128 },  { 9, 77, 5, 70 },    { 130, 200, 40, 120 }, { 7, 194, 64, 130 },
    { 320, 256, 0, 256 }, { 33, 129, 1, 127 },
};

static uint64_t tiles(uint64_t n)
{
    return (n + CONV_TILE - 1) / CONV_TILE;
}

static void turn(struct stand *s, const char *kernel, enum dtype type, uint32_t channels,
                 struct conv_turn *t)
{
    launch_conv(
        s, kernel, type,
        (unsigned[]) { (unsigned)tiles((uint64_t)t->pixels), (unsigned)tiles(channels), PICTURES },
        t);
}

/* What a range must be: `want` has all of it, edges included. */
static void assert_same(const char *what, const struct shape_of *sh, const uint16_t *got,
                        const uint16_t *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s, %u channels, pixels %lld to %lld of %lld: value %zu of %zu is %04x, not "
                     "%04x",
                     what, sh->channels, (long long)sh->from, (long long)(sh->from + sh->pixels),
                     (long long)sh->plane, i, n, got[i], want[i]);
}

/* Bias and add as conv2d.c has them: neither, a bias of each type, add that is dst itself. */
struct more {
    enum dtype bias; /* DT_NONE: no bias */
    bool add;
};

static void turn_back(struct stand *s, const struct shape_of *sh, struct conv_turn t,
                      enum dtype type, struct more more, struct rng *rng)
{
    struct range pixels = range_new(s, PICTURES * (size_t)sh->pixels * t.padded, rng);
    struct range planes = range_new(s, PICTURES * (size_t)sh->plane * sh->channels, rng);
    struct range bias = range_new(s, 2 * (size_t)sh->channels, rng); /* room for F32 */
    t.src = at_card(&pixels);
    t.dst = at_card(&planes);
    t.add = more.add ? t.dst : NULL;
    t.bias = more.bias == DT_NONE ? NULL : at_card(&bias);
    t.bias_type = more.bias == DT_F16 ? 1 : more.bias == DT_BF16 ? 2 : 0;
    turn(s, "conv2d_unpack", type, sh->channels, &t);
    uint16_t *got = fetch(s, &planes), *want = planes.here;
    for (size_t n = 0; n < PICTURES; n++)
        for (size_t c = 0; c < sh->channels; c++)
            for (size_t p = 0; p < (size_t)sh->pixels; p++) {
                size_t to =
                    EDGE + (n * sh->channels + c) * (size_t)sh->plane + (size_t)sh->from + p;
                uint16_t bits = pixels.here[EDGE + (n * (size_t)sh->pixels + p) * t.padded + c];
                float sum = value_of(type, &bits, 0);
                if (t.bias)
                    sum += value_of(more.bias, bias.here + EDGE, c);
                if (more.add)
                    sum += value_of(type, want, to);
                put_value(type, want, to, sum);
            }
    assert_same("unpack", sh, got, want, planes.n + 2 * (size_t)EDGE);
    free(got);
    range_free(&pixels), range_free(&planes), range_free(&bias);
}

static void turn_there(struct stand *s, const struct shape_of *sh, struct conv_turn t,
                       struct rng *rng)
{
    struct range planes = range_new(s, PICTURES * (size_t)sh->plane * sh->channels, rng);
    struct range pixels = range_new(s, PICTURES * (size_t)sh->pixels * t.padded, rng);
    t.src = at_card(&planes);
    t.dst = at_card(&pixels);
    turn(s, "conv2d_pack", DT_NONE, t.padded, &t);
    uint16_t *got = fetch(s, &pixels), *want = pixels.here;
    for (size_t n = 0; n < PICTURES; n++)
        for (size_t p = 0; p < (size_t)sh->pixels; p++)
            for (size_t c = 0; c < t.padded; c++)
                want[EDGE + (n * (size_t)sh->pixels + p) * t.padded + c] =
                    c < sh->channels
                        ? planes.here[EDGE + (n * sh->channels + c) * (size_t)sh->plane +
                                      (size_t)sh->from + p]
                        : 0;
    assert_same("pack", sh, got, want, pixels.n + 2 * (size_t)EDGE);
    free(got);
    range_free(&planes), range_free(&pixels);
}

static void check_turns(struct stand *s, struct rng *rng)
{
    static const struct more mores[] = { { DT_NONE, false },
                                         { DT_F32, false },
                                         { DT_F16, true },
                                         { DT_BF16, true },
                                         { DT_NONE, true } };
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct shape_of *sh = &shapes[i];
        struct conv_turn t = { .plane = sh->plane,
                               .from = sh->from,
                               .pixels = sh->pixels,
                               .channels = sh->channels,
                               .padded = (sh->channels + 7) / 8 * 8,
                               .pairs = (sh->plane | sh->from | sh->pixels) % 2 == 0 };
        turn_there(s, sh, t, rng);
        for (size_t m = 0; m < ARRAY_LEN(mores); m++)
            for (size_t type = 1; type < TYPES; type++)
                turn_back(s, sh, t, act_types[type], mores[m], rng);
    }
}

/* ---- filters, biases, what is added ---- */

static unsigned blocks_of(uint64_t n)
{
    return (unsigned)((n + CONV_THREADS - 1) / CONV_THREADS);
}

/* What a kernel left in y, which should be y.here by now. */
static void assert_range(struct stand *s, const char *kernel, enum dtype type,
                         const struct range *y)
{
    uint16_t *got = fetch(s, y);
    for (size_t i = 0; i < y->n + 2 * (size_t)EDGE; i++)
        if (got[i] != y->here[i])
            fail_msg("%s_%s: half word %zu of %zu is %04x, not %04x", kernel, cuda_type_name(type),
                     i, y->n, got[i], y->here[i]);
    free(got);
}

static void check_filter(struct stand *s, enum dtype type, struct rng *rng)
{
    static const struct {
        uint32_t out, in, out_padded, in_padded, window;
    } at[] = { { 1, 1, 1, 1, 1 }, { 5, 3, 8, 8, 9 }, { 17, 64, 24, 64, 9 }, { 1, 300, 1, 300, 1 } };
    for (size_t i = 0; i < ARRAY_LEN(at); i++) {
        const size_t in = at[i].in, window = at[i].window;
        struct conv_filter f = { .n = (int64_t)at[i].out_padded * at[i].in_padded * at[i].window,
                                 .out = at[i].out,
                                 .in = at[i].in,
                                 .in_padded = at[i].in_padded,
                                 .window = at[i].window,
                                 .scale = i % 2 ? 1.7f : 1 };
        struct range x = range_of(s, type, at[i].out * in * window, rng);
        struct range y = range_of(s, type, (size_t)f.n, rng);
        f.src = at_card(&x), f.dst = at_card(&y);
        launch_conv(s, "conv2d_filter", type, (unsigned[]) { blocks_of((uint64_t)f.n), 1, 1 }, &f);
        for (size_t e = 0; e < (size_t)f.n; e++) {
            size_t ic = e % f.in_padded, rs = e / f.in_padded % window;
            size_t oc = e / f.in_padded / window;
            bool is = ic < in && oc < at[i].out;
            float v = is ? value_of(type, x.here + EDGE, (oc * in + ic) * window + rs) : 0;
            put_value(type, y.here + EDGE, e, v * f.scale);
        }
        assert_range(s, "conv2d_filter", type, &y);
        range_free(&x), range_free(&y);
    }
}

static void check_bias(struct stand *s, enum dtype type, struct rng *rng)
{
    for (uint32_t i = 0; i < 4; i++) { /* the last: there is none */
        enum dtype from = act_types[i % TYPES];
        struct conv_bias b = { .n = 1 + 131 * i,
                               .padded = (131 * i + 8) / 8 * 8,
                               .type = (int32_t)(i % TYPES) };
        struct range x = range_of(s, from, b.n, rng), y = range_of(s, type, b.padded, rng);
        b.src = i < TYPES ? at_card(&x) : NULL, b.dst = at_card(&y);
        launch_conv(s, "conv2d_bias", type, (unsigned[]) { blocks_of(b.padded), 1, 1 }, &b);
        for (uint32_t e = 0; e < b.padded; e++)
            put_value(type, y.here + EDGE, e,
                      b.src && e < b.n ? value_of(from, x.here + EDGE, e) : 0);
        assert_range(s, "conv2d_bias", type, &y);
        range_free(&x), range_free(&y);
    }
}

static void check_finish(struct stand *s, enum dtype type, struct rng *rng)
{
    static const struct {
        uint32_t channels;
        int64_t plane;
    } at[] = { { 1, 1 }, { 3, CONV_RUN }, { 5, CONV_RUN + 77 }, { 7, 300 } };
    for (uint32_t i = 0; i < ARRAY_LEN(at); i++) {
        enum dtype from = act_types[i % TYPES];
        const size_t plane = (size_t)at[i].plane, n = PICTURES * at[i].channels * plane;
        struct conv_finish f = { .plane = at[i].plane,
                                 .channels = at[i].channels,
                                 .runs = (uint32_t)((plane + CONV_RUN - 1) / CONV_RUN),
                                 .bias_type = (int32_t)(i % TYPES) };
        struct range x = range_of(s, type, n, rng), y = range_of(s, type, n, rng);
        struct range bias = range_of(s, from, at[i].channels, rng);
        f.src = at_card(&x), f.dst = at_card(&y);
        f.bias = i % 2 ? at_card(&bias) : NULL;
        f.add = i < 3 ? f.dst : NULL;
        launch_conv(s, "conv2d_finish", type,
                    (unsigned[]) { PICTURES * at[i].channels * f.runs, 1, 1 }, &f);
        for (size_t e = 0; e < n; e++) {
            float v = value_of(type, x.here + EDGE, e);
            v += f.bias ? value_of(from, bias.here + EDGE, e / plane % at[i].channels) : 0;
            v += f.add ? value_of(type, y.here + EDGE, e) : 0;
            put_value(type, y.here + EDGE, e, v);
        }
        assert_range(s, "conv2d_finish", type, &y);
        range_free(&x), range_free(&y), range_free(&bias);
    }
}

/* All of them. */
static void check_pictures(struct stand *s)
{
    struct rng rng = { 1 };
    check_turns(s, &rng);
    for (size_t t = 0; t < TYPES; t++) {
        check_filter(s, act_types[t], &rng);
        check_finish(s, act_types[t], &rng);
        if (act_types[t] != DT_F32)
            check_bias(s, act_types[t], &rng);
    }
}

/* ---- rows of scores, between products that are not there ---- */

static void check_rows(struct stand *s, enum dtype type, uint32_t keys)
{
    enum { ROWS = 3 };
    const size_t pitch = (keys + 63) / 64 * 64, n = ROWS * pitch;
    const struct op_env env = { .backend = s->backend, .stream = s->stream };
    struct rng rng = { keys };
    struct range scores = range_of(s, DT_F32, n, &rng), weights = range_of(s, type, n, &rng);
    struct attention_rows g = { .scores = at_card(&scores),
                                .weights = type == DT_F32 ? at_card(&scores) : at_card(&weights),
                                .pitch = (int64_t)pitch,
                                .keys = keys,
                                .size = type == DT_F16 ? 32768 : 1 };
    float *x = (float *)(void *)(scores.here + EDGE);
    berth_err err = { 0 };
    for (size_t i = 0; i < n; i++)
        x[i] = (float)(keys < 5000 ? 80 : 3) * uniform(&rng); /* of many none may be all */
    assert_ok(dev_copy_h2d(s->stream, scores.there.addr + EDGE * sizeof *scores.here, x,
                           n * sizeof *x, &err),
              err);
    assert_ok(cuda_launch(&env,
                          &(struct cuda_launch) { .module = CUDA_MODULE_attention,
                                                  .kernel = "attention_weights",
                                                  .type = type,
                                                  .grid = { ROWS },
                                                  .block = { ATTENTION_THREADS },
                                                  .args = &g },
                          &err),
              err);
    uint16_t *now = fetch(s, type == DT_F32 ? &scores : &weights);
    for (size_t r = 0; r < ROWS; r++) {
        double top = -INFINITY, sum = 0;
        for (size_t k = 0; k < keys; k++)
            top = fmax(top, (double)x[r * pitch + k]);
        for (size_t k = 0; k < keys; k++)
            sum += exp((double)x[r * pitch + k] - top);
        for (size_t k = 0; k < keys; k++) {
            double want = exp((double)x[r * pitch + k] - top) / sum * (double)g.size;
            double got = (double)value_of(type, now + EDGE, r * pitch + k);
            double tol = type == DT_F32 ? 1e-5 : type == DT_F16 ? 1e-3 : 8e-3;
            if (!(fabs(got - want) <= tol * want + 1e-7))
                fail_msg("%s, %u keys: weight %zu of row %zu is %g, not %g", dtype_name(type), keys,
                         k, r, got, want);
        }
    }
    free(now);
    range_free(&scores);
    range_free(&weights);
}

static void check_weights(struct stand *s)
{
    for (size_t t = 0; t < TYPES; t++)
        for (uint32_t keys = 1; keys < 100000; keys = keys * 5 + 2)
            check_rows(s, act_types[t], keys);
}

#endif
