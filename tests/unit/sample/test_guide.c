/* The guide with a made-up network: what it is asked, and D by formulas worked out by hand. */
#include "support/oom.h"
#include "support/test.h"

#include "sample/guide.h"

#include <math.h>

#define H 16
#define W 16
#define HW (H * W)
#define MAX (3 * 2 * HW)

struct call {
    size_t n, h, w;
    double value[16]; /* which conditionings, in order */
    size_t item[16];
    struct guide_area area[16];
    float t;
};

struct rig {
    struct msampling ms;
    struct guide g;
    struct guide_patch patch;
    struct guide_memory memory;
    struct call call[16];
    size_t calls;
    bool echo;   /* the network answers with its input, plus its conditioning */
    int fail_at; /* the call that fails, from 1; 0: none */
    float x[MAX], out[MAX], uncond[MAX];
};

/* Predicts the picture (X0 models): the conditioning's number everywhere. */
static berth_status net(void *user, const struct guide_batch *b, berth_err *err)
{
    struct rig *r = user;
    size_t n = (size_t)b->shape.dim[0], each = (size_t)shape_inner(&b->shape, 1);
    size_t h = (size_t)b->shape.dim[b->shape.ndim - 2], w = (size_t)b->shape.dim[b->shape.ndim - 1];
    assert_true(n <= 16 && r->calls < 16 && b->shape.ndim == r->g.shape.ndim);
    struct call *k = &r->call[r->calls++];
    *k = (struct call) { .n = n, .h = h, .w = w, .t = b->t[0] };
    for (size_t i = 0; i < n; i++) {
        double v = *(const double *)b->cond[i];
        k->value[i] = v;
        k->item[i] = b->item[i];
        k->area[i] = b->area[i];
        assert_true(b->t[i] == b->t[0] && b->area[i].h == h && b->area[i].w == w);
        for (size_t e = i * each; e < (i + 1) * each; e++)
            b->out[e] = (float)v + (r->echo ? b->x[e] : 0);
    }
    if (r->fail_at && (int)r->calls == r->fail_at)
        return err_set(err, BERTH_ECANCELED, "stopped");
    return BERTH_OK;
}

static struct rig *rig_new(size_t b, size_t c, enum ms_type type)
{
    struct rig *r = calloc(1, sizeof *r);
    berth_err err;
    assert_non_null(r);
    assert_ok(ms_init(&r->ms, &(struct ms_config) { .type = type }, &err), err);
    r->g = (struct guide) {
        .ms = &r->ms, .shape = { .ndim = 4, .dim = { b, c, H, W } }, .cfg = 1, .net = net, .user = r
    };
    for (size_t i = 0; i < MAX; i++)
        r->x[i] = 0.01f * (float)(i % 97) - 0.3f;
    return r;
}

static void rig_free(struct rig *r)
{
    ms_release(&r->ms);
    free(r);
}

static void denoise(struct rig *r, float sigma)
{
    berth_err err;
    r->calls = 0;
    assert_ok(guide_denoise(&r->g, r->x, sigma, r->out, NULL, &err), err);
}

static struct guide_cond cond(const double *value)
{
    return (struct guide_cond) {
        .cond = value, .strength = 1, .mask_strength = 1, .sigma_start = HUGE_VAL
    };
}

static void all_equal(const float *x, size_t n, double want)
{
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)x[i] - want) <= 1e-5 * fmax(1, fabs(want))))
            fail_msg("value %zu is %g, not %g", i, (double)x[i], want);
}

static const double one = 1, two = 2, five = 5, ten = 10;

/* ---- cfg ---- */

static void cfg_and_its_batch(void **state)
{
    (void)state;
    struct rig *r = rig_new(2, 2, MS_X0);
    struct guide_cond p = cond(&five), n = cond(&two);
    r->g.positive = &p, r->g.positives = 1;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = 7.5;
    denoise(r, 1.6128862f);
    all_equal(r->out, 2 * 2 * HW, 2 + (5 - 2) * 7.5);
    assert_int_equal(r->calls, 1); /* the negative's items first, then the positive's */
    assert_int_equal(r->call[0].n, 4);
    for (size_t i = 0; i < 4; i++) {
        assert_true(r->call[0].value[i] == (i < 2 ? 2 : 5));
        assert_int_equal(r->call[0].item[i], i % 2);
    }
    assert_true(r->call[0].t == 499);
    rig_free(r);
}

static void cfg_one_skips_the_negative(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 2, MS_X0);
    struct guide_cond p = cond(&five), n = cond(&two);
    berth_err err;
    r->g.positive = &p, r->g.positives = 1;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = 1 + 1e-10;
    denoise(r, 1);
    all_equal(r->out, 2 * HW, 5);
    assert_int_equal(r->call[0].n, 1);
    r->g.always_uncond = true;
    denoise(r, 1);
    all_equal(r->out, 2 * HW, 5);
    assert_int_equal(r->call[0].n, 2);
    r->g.always_uncond = false; /* asked for by the sampler */
    assert_ok(guide_denoise(&r->g, r->x, 1, r->out, r->uncond, &err), err);
    all_equal(r->uncond, 2 * HW, 2);
    r->g.negatives = 0; /* none: cfg says nothing, and its prediction is 0 */
    r->g.cfg = 7;
    assert_ok(guide_denoise(&r->g, r->x, 1, r->out, r->uncond, &err), err);
    all_equal(r->out, 2 * HW, 5);
    all_equal(r->uncond, 2 * HW, 0);
    rig_free(r);
}

/* What the network says is scaled and turned as the model's type has it. */
static void x_is_scaled_for_the_network(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 2, MS_EPS);
    struct guide_cond p = cond(&five);
    float sigma = 2;
    r->echo = true;
    r->g.positive = &p, r->g.positives = 1;
    denoise(r, sigma);
    for (size_t i = 0; i < 2 * HW; i++) {
        float said = 5 + r->x[i] / sqrtf(sigma * sigma + 1);
        assert_float_equal(r->out[i], r->x[i] - said * sigma, 1e-5f);
    }
    rig_free(r);
}

static void combine_is_an_average(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 2, MS_X0);
    struct guide_cond p[3] = { cond(&one), cond(&five), cond(&ten) };
    p[1].strength = 2;
    r->g.positive = p, r->g.positives = 2;
    denoise(r, 1);
    all_equal(r->out, 2 * HW, (1 + 2 * 5) / 3.0);
    assert_int_equal(r->calls, 1);
    assert_true(r->call[0].value[0] == 5 && r->call[0].value[1] == 1); /* the last one first */
    r->g.positives = 1;
    p[0].strength = 0.25; /* alone, strength does not matter */
    denoise(r, 1);
    all_equal(r->out, 2 * HW, 1);
    p[0].strength = 0; /* nothing counts: 0, not NaN */
    denoise(r, 1);
    all_equal(r->out, 2 * HW, 0);
    rig_free(r);
}

static void ranges_of_noise(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p[2] = { cond(&one), cond(&five) };
    p[0].sigma_end = 3;
    p[1].sigma_start = 3;
    p[1].sigma_end = 0.5;
    r->g.positive = p, r->g.positives = 2;
    denoise(r, 10);
    all_equal(r->out, HW, 1);
    denoise(r, 3); /* both ends belong to a range */
    all_equal(r->out, HW, 3);
    denoise(r, 1);
    all_equal(r->out, HW, 5);
    denoise(r, 0.4f); /* nobody */
    all_equal(r->out, HW, 0);
    assert_int_equal(r->calls, 0);
    rig_free(r);
}

/* An inactive negative is 0, and cfg still counts. */
static void a_silent_negative(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p = cond(&five), n = cond(&two);
    n.sigma_start = 0.1;
    r->g.positive = &p, r->g.positives = 1;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = 3;
    denoise(r, 1);
    all_equal(r->out, HW, 15);
    rig_free(r);
}

/* ---- areas and masks ---- */

/* Two areas side by side under one for all: each part sees its crop, sizes are batches of their
 * own. */
static void areas_see_their_crop(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 2, MS_EPS);
    struct guide_cond p = cond(&five);
    p.has_area = true;
    p.area = (struct guide_area) { .h = 4, .w = 6, .y = 3, .x = 5 };
    r->g.positive = &p, r->g.positives = 1;
    r->echo = true;
    float sigma = 1;
    denoise(r, sigma);
    assert_int_equal(r->call[0].h, 4);
    assert_int_equal(r->call[0].w, 6);
    assert_int_equal(r->call[0].area[0].y, 3);
    for (size_t c = 0; c < 2; c++)
        for (size_t y = 0; y < H; y++)
            for (size_t x = 0; x < W; x++) {
                size_t i = (c * H + y) * W + x;
                bool in = y >= 3 && y < 7 && x >= 5 && x < 11;
                float want = in ? r->x[i] - (5 + r->x[i] / sqrtf(2)) : 0;
                assert_float_equal(r->out[i], want, 1e-5f);
            }
    rig_free(r);
}

static void sizes_are_batches(void **state)
{
    (void)state;
    struct rig *r = rig_new(2, 1, MS_X0);
    struct guide_cond p[4] = { cond(&one), cond(&two), cond(&five), cond(&ten) }, n = cond(&two);
    for (int i = 1; i < 4; i++)
        p[i].has_area = true;
    p[1].area = (struct guide_area) { .h = 8, .w = 8 };
    p[2].area = (struct guide_area) { .h = 4, .w = 8, .y = 2 };
    p[3].area = (struct guide_area) { .h = 8, .w = 8, .y = 8, .x = 8 };
    r->g.positive = p, r->g.positives = 4;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = 2;
    denoise(r, 1);
    assert_int_equal(r->calls, 3);
    assert_int_equal(r->call[0].n, 4); /* all of it: the negative, then the first positive */
    assert_true(r->call[0].value[0] == 2 && r->call[0].value[2] == 1);
    assert_int_equal(r->call[1].n, 4); /* 8 x 8, the last one first */
    assert_true(r->call[1].value[0] == 10 && r->call[1].value[2] == 2);
    assert_int_equal(r->call[1].area[0].x, 8);
    assert_int_equal(r->call[1].area[2].x, 0);
    assert_int_equal(r->call[2].h, 4);
    rig_free(r);
}

/* Edges inside of the latent fade over min(8, size / 4) pixels; those at its border do not. */
static void edges_are_feathered(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p[2] = { cond(&ten), cond(&one) };
    p[0].has_area = true;
    p[0].strength = 0.5;
    p[0].area = (struct guide_area) { .h = 8, .w = 16, .y = 4, .x = 0 };
    r->g.positive = p, r->g.positives = 2;
    denoise(r, 1);
    for (size_t y = 0; y < H; y++) {
        size_t in = y - 4, edge = in < 4 ? in : 7 - in; /* ramp of 2 */
        double w = y < 4 || y >= 12 ? 0 : 0.5 * (edge >= 2 ? 1 : (double)(edge + 1) / 2);
        all_equal(r->out + y * W, W, (10 * w + 1) / (w + 1));
    }
    p[0].area = (struct guide_area) { .h = 16, .w = 13, .y = 0, .x = 3 };
    denoise(r, 1);
    for (size_t x = 0; x < W; x++) { /* ramp of 3, on the left alone */
        double w = x < 3 ? 0 : 0.5 * (x - 3 < 3 ? (double)(x - 2) / 3 : 1);
        for (size_t y = 0; y < H; y++)
            all_equal(r->out + y * W + x, 1, (10 * w + 1) / (w + 1));
    }
    p[0].area = (struct guide_area) { .h = 3, .w = 3, .y = 1, .x = 1 }; /* too small to fade */
    denoise(r, 1);
    all_equal(r->out + W + 1, 1, 6 / 1.5);
    rig_free(r);
}

static void areas_are_cut_to_the_latent(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p[2] = { cond(&ten), cond(&one) };
    p[0].has_area = true;
    p[0].area = (struct guide_area) { .h = UINT32_MAX, .w = 9, .y = 10, .x = 12 };
    r->g.positive = p, r->g.positives = 2;
    denoise(r, 1);
    assert_int_equal(r->calls, 2);
    assert_int_equal(r->call[0].h, 6);
    assert_int_equal(r->call[0].w, 4);
    p[0].area = (struct guide_area) { .h = 4, .w = 4, .y = 16, .x = 0 }; /* beside it */
    denoise(r, 1);
    assert_int_equal(r->calls, 1);
    all_equal(r->out, HW, 1);
    p[0].area = (struct guide_area) { .h = 0, .w = 4 };
    denoise(r, 1);
    all_equal(r->out, HW, 1);
    rig_free(r);
}

static void masks_weigh(void **state)
{
    (void)state;
    struct rig *r = rig_new(2, 2, MS_X0);
    struct guide_cond p[2] = { cond(&ten), cond(&one) };
    float mask[2 * HW];
    for (size_t i = 0; i < 2 * HW; i++)
        mask[i] = (float)(i % 5) / 4 * (i < HW ? 1.0f : 0.5f);
    p[0].mask = mask;
    p[0].mask_n = 2;
    p[0].mask_strength = 0.8;
    p[0].strength = 2;
    r->g.positive = p, r->g.positives = 2;
    denoise(r, 1);
    for (size_t i = 0; i < 4 * HW; i++) {
        double w = 1.6 * mask[i / (2 * HW) * HW + i % HW];
        all_equal(r->out + i, 1, (10 * w + 1) / (w + 1));
    }
    p[0].mask_n = 1; /* one for all items, cut to an area and not feathered there */
    p[0].has_area = true;
    p[0].area = (struct guide_area) { .h = 8, .w = 8, .y = 4, .x = 4 };
    denoise(r, 1);
    for (size_t i = 0; i < 4 * HW; i++) {
        size_t y = i % HW / W, x = i % W;
        bool in = y >= 4 && y < 12 && x >= 4 && x < 12;
        double w = in ? 1.6 * mask[i % HW] : 0;
        all_equal(r->out + i, 1, (10 * w + 1) / (w + 1));
    }
    rig_free(r);
}

/* ---- other guides ---- */

static void dual_cfg(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p = cond(&ten), m = cond(&five), n = cond(&two);
    berth_err err;
    r->g.positive = &p, r->g.positives = 1;
    r->g.middle = &m, r->g.middles = 1;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = 3, r->g.cfg_middle = 4;
    denoise(r, 1);
    all_equal(r->out, HW, 2 + (5 - 2) * 4 + (10 - 5) * 3);
    assert_int_equal(r->call[0].n, 3);
    r->g.cfg_middle = 1; /* the negative does not count */
    denoise(r, 1);
    all_equal(r->out, HW, 5 + (10 - 5) * 3);
    assert_int_equal(r->call[0].n, 2);
    r->g.cfg = 1; /* nor the middle */
    denoise(r, 1);
    all_equal(r->out, HW, 10);
    assert_int_equal(r->call[0].n, 1);
    r->g.nested = true;
    r->g.cfg = 3, r->g.cfg_middle = 4;
    assert_ok(guide_denoise(&r->g, r->x, 1, r->out, r->uncond, &err), err);
    all_equal(r->out, HW, 2 + 4 * (5 + (10 - 5) * 3 - 2));
    all_equal(r->uncond, HW, 5);
    rig_free(r);
}

static void set_rescale(struct rig *r, double by)
{
    r->patch = (struct guide_patch) { .is = &guide_rescale_cfg, .p = { by } };
    r->g.patch = &r->patch;
    r->g.memory = &r->memory;
    r->g.patches = 1;
}

/* RescaleCFG in v-space, worked out in double. */
static void rescale_cfg(void **state)
{
    (void)state;
    struct rig *r = rig_new(2, 2, MS_EPS);
    struct guide_cond p = cond(&five), n = cond(&two);
    enum { N = 2 * HW };
    const double sigma = 1.5, var = sigma * sigma + 1, scale = 6, by = 0.7;
    double cv[N], cfg[N], dev[2];
    r->echo = true;
    r->g.positive = &p, r->g.positives = 1;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = scale;
    set_rescale(r, by);
    denoise(r, (float)sigma);
    for (size_t item = 0; item < 2; item++) {
        const float *x = r->x + item * N;
        for (size_t i = 0; i < N; i++) {
            double c = x[i] - sigma * (5 + x[i] / sqrt(var)),
                   u = x[i] - sigma * (2 + x[i] / sqrt(var));
            double uv = (x[i] / var - u) * sqrt(var) / sigma;
            cv[i] = (x[i] / var - c) * sqrt(var) / sigma;
            cfg[i] = uv + scale * (cv[i] - uv);
        }
        for (int k = 0; k < 2; k++) {
            const double *v = k ? cfg : cv;
            double mean = 0, sum = 0;
            for (size_t i = 0; i < N; i++)
                mean += v[i] / N;
            for (size_t i = 0; i < N; i++)
                sum += (v[i] - mean) * (v[i] - mean);
            dev[k] = sqrt(sum / (N - 1));
        }
        for (size_t i = 0; i < N; i++) {
            double v = by * cfg[i] * dev[0] / dev[1] + (1 - by) * cfg[i];
            double want = x[i] / var - v * sigma / sqrt(var);
            assert_float_equal(r->out[item * N + i], (float)want, 2e-4f);
        }
    }
    rig_free(r);
}

static void rescale_of_flat_latents(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p = cond(&five), n = cond(&two);
    memset(r->x, 0, sizeof r->x);
    r->g.positive = &p, r->g.positives = 1;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = 6;
    set_rescale(r, 1);
    denoise(r, 2);
    all_equal(r->out, HW, 2 + 3 * 6);
    rig_free(r);
}

/* ---- inpainting ---- */

static void inpainting(void **state)
{
    (void)state;
    struct rig *r = rig_new(2, 2, MS_EPS);
    struct guide_cond p = cond(&five);
    float mask[4 * HW], latent[4 * HW], noise[4 * HW], sigma = 2, root = sqrtf(5);
    for (size_t i = 0; i < 4 * HW; i++) {
        mask[i] = (float)(i % 3) / 2;
        latent[i] = (float)(i % 11) / 11;
        noise[i] = (float)(i % 7) / 7 - 0.5f;
    }
    r->echo = true;
    r->g.positive = &p, r->g.positives = 1;
    r->g.mask = mask, r->g.latent = latent, r->g.noise = noise;
    denoise(r, sigma);
    for (size_t i = 0; i < 4 * HW; i++) {
        float m = mask[i];
        float x = r->x[i] * m + (noise[i] * sigma + latent[i]) * (1 - m);
        float d = x - (5 + x / root) * sigma;
        assert_float_equal(r->out[i], d * m + latent[i] * (1 - m), 1e-5f);
    }
    rig_free(r);
}

/* ---- failures ---- */

static void errors_of_the_network_come_through(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p[2] = { cond(&five), cond(&two) };
    berth_err err;
    p[1].has_area = true;
    p[1].area = (struct guide_area) { .h = 4, .w = 4 };
    r->g.positive = p, r->g.positives = 2;
    for (r->fail_at = 1; r->fail_at <= 2; r->fail_at++) {
        r->calls = 0;
        assert_fails(guide_denoise(&r->g, r->x, 1, r->out, NULL, &err), err, BERTH_ECANCELED,
                     "stopped");
        assert_int_equal(r->calls, r->fail_at);
    }
    r->g.shape = (struct shape) { .ndim = 2, .dim = { 4, 4 } };
    assert_fails(guide_denoise(&r->g, r->x, 1, r->out, NULL, &err), err, BERTH_EINVAL, "[4, 4]");
    rig_free(r);
}

static void survives_exhausted_memory(void **state)
{
    (void)state;
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p = cond(&five), n = cond(&two);
    float mask[HW] = { 1 };
    berth_status s = BERTH_ENOMEM;
    r->g.positive = &p, r->g.positives = 1;
    r->g.negative = &n, r->g.negatives = 1;
    r->g.cfg = 6;
    set_rescale(r, 0.5);
    r->g.mask = mask, r->g.latent = r->x, r->g.noise = r->x;
    for (long k = 0; s; k++) {
        berth_err err = { 0 };
        r->calls = 0;
        oom_after(k);
        s = guide_denoise(&r->g, r->x, 1, r->out, r->uncond, &err);
        oom_off();
        assert_true(!s || (s == BERTH_ENOMEM && strstr(err.msg, "[1, 1, 16, 16]")));
    }
    rig_free(r);
}

/* ---- video ---- */

/* Frames have masks of their own, those of prompts and those of inpainting; an area is all of the
 * time. */
static void masks_of_frames(void **state)
{
    enum { FRAMES = 3, ALL = FRAMES * HW };
    struct rig *r = rig_new(1, 1, MS_X0);
    struct guide_cond p[2] = { cond(&two), cond(&ten) };
    float first[ALL], second[ALL], paint[ALL], kept[ALL];
    (void)state;
    r->g.shape = (struct shape) { 5, { 1, 1, FRAMES, H, W } };
    r->g.positive = p, r->g.positives = 2;
    for (size_t i = 0; i < ALL; i++) {
        first[i] = i / HW == 2 ? 0.25f : i / HW == 1 ? 0 : 1;
        second[i] = 1 - first[i];
        paint[i] = i / HW ? 1 : 0; /* the first frame stays */
        kept[i] = 7;
    }
    p[0].mask = first, p[1].mask = second;
    denoise(r, 1);
    all_equal(r->out, HW, 2);
    all_equal(r->out + HW, HW, 10);
    all_equal(r->out + 2 * HW, HW, 8);
    assert_int_equal(r->call[0].n, 2);

    r->g.mask = paint, r->g.latent = r->g.noise = kept;
    denoise(r, 1);
    all_equal(r->out, HW, 7);
    all_equal(r->out + HW, HW, 10);

    r->g.mask = NULL;
    p[0].mask = p[1].mask = NULL;
    p[1].has_area = true;
    p[1].area = (struct guide_area) { .h = 4, .w = W, .y = 8 };
    denoise(r, 1);
    for (size_t f = 0; f < FRAMES; f++) {
        all_equal(r->out + f * HW, 8 * W, 2);
        all_equal(r->out + f * HW + 9 * W, W, r->out[9 * W]); /* feathered, in each alike */
        assert_true(r->out[f * HW + 9 * W] > 4);
    }
    rig_free(r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cfg_and_its_batch),
        cmocka_unit_test(cfg_one_skips_the_negative),
        cmocka_unit_test(x_is_scaled_for_the_network),
        cmocka_unit_test(combine_is_an_average),
        cmocka_unit_test(ranges_of_noise),
        cmocka_unit_test(a_silent_negative),
        cmocka_unit_test(areas_see_their_crop),
        cmocka_unit_test(sizes_are_batches),
        cmocka_unit_test(edges_are_feathered),
        cmocka_unit_test(areas_are_cut_to_the_latent),
        cmocka_unit_test(masks_weigh),
        cmocka_unit_test(dual_cfg),
        cmocka_unit_test(rescale_cfg),
        cmocka_unit_test(rescale_of_flat_latents),
        cmocka_unit_test(inpainting),
        cmocka_unit_test(errors_of_the_network_come_through),
        cmocka_unit_test(masks_of_frames),
        cmocka_unit_test(survives_exhausted_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
