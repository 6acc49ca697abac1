/* Noise levels without a model. tests/golden/node/test_sigmas.c has the reference's own numbers. */
#include "support/node_rig.h"

#include <math.h>

static void is(struct node_rig *r, size_t out, size_t n, const float *want)
{
    rig_expect(rig_out(r, out)->tensor, 1, &n, want, 1e-5f);
}
#define IS(r, out, ...)                                                                            \
    is(r, out, sizeof((float[]) { __VA_ARGS__ }) / sizeof(float), (float[]) { __VA_ARGS__ })
#define IS_EMPTY(r, out) is(r, out, 0, NULL)

static void list(struct node_rig *r, const char *node, size_t n, const float *at)
{
    rig_node(r, node);
    rig_set(r, "sigmas", rig_tensor(1, &n, at));
}

static void schedule(struct node_rig *r, const char *node, int64_t steps, double max, double min)
{
    rig_node(r, node);
    rig_int(r, "steps", steps);
    rig_float(r, "sigma_max", max);
    rig_float(r, "sigma_min", min);
}

static void formulas(void **state)
{
    struct node_rig r;
    (void)state;
    rig_open(&r);
    schedule(&r, "KarrasScheduler", 3, 16, 1);
    rig_float(&r, "rho", 2);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 16, 6.25f, 1, 0);
    schedule(&r, "ExponentialScheduler", 3, 16, 1);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 16, 4, 1, 0);
    schedule(&r, "PolyexponentialScheduler", 3, 16, 1);
    rig_float(&r, "rho", 2);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 16, 2, 1, 0);
    schedule(&r, "ExponentialScheduler", 1, 16, 1); /* one step: the first */
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 16, 0);
    schedule(&r, "ExponentialScheduler", 4, 16, 0);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "more than 0");
    schedule(&r, "PolyexponentialScheduler", 4, 0, 1);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "more than 0");
    schedule(&r, "KarrasScheduler", 4, 16, 1);
    rig_float(&r, "rho", 0);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "rho is 0");
    schedule(&r, "KarrasScheduler", 0, 16, 1); /* links bring what no validation saw */
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "0 steps");
    schedule(&r, "KarrasScheduler", INT64_MAX, 16, 1);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "9223372036854775807 steps");
    rig_close(&r);
}

static void ltxv(void **state)
{
    struct node_rig r;
    (void)state;
    rig_open(&r);
    for (int stretched = 0; stretched < 2; stretched++) {
        rig_node(&r, "LTXVScheduler");
        rig_int(&r, "steps", 2);
        rig_float(&r, "max_shift", log(3.0)); /* of 4096 tokens: e^shift is 3 */
        rig_float(&r, "base_shift", 0);
        rig_bool(&r, "stretch", stretched);
        rig_float(&r, "terminal", 0.25);
        assert_ok(rig_run(&r), r.err);
        IS(&r, 0, 1, stretched ? 0.25f : 0.75f, 0);
    }
    rig_set(&r, "latent", rig_latent(5, (size_t[]) { 1, 1, 4, 16, 16 }, NULL)); /* 1024: no shift */
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 1, 0.25f, 0);
    values_release(&r.in[node_input_index(r.call.cls, "stretch")]);
    rig_bool(&r, "stretch", false);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 1, 0.5f, 0);
    rig_node(&r, "LTXVScheduler"); /* nothing between 1 and 0: no stretching into NaN */
    rig_int(&r, "steps", 1);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 1, 0);
    rig_float(&r, "max_shift", 100);
    rig_float(&r, "base_shift", 100);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL,
                 "max_shift 100 and base_shift 100 make a shift of 100 at 4096 tokens");
    rig_close(&r);
}

/* Few tokens: a line for 10 steps and one for 200; many: the latter, whatever the steps. */
static void flux2(void **state)
{
    static const struct {
        int64_t steps, side;
        double shift;
    } row[] = { { 10, 128, 8.73809524e-05 * 64 + 1.89833333 },
                { 200, 128, 0.00016927 * 64 + 0.45666666 },
                { 2, 2048, 0.00016927 * 16384 + 0.45666666 },
                { 50, 2048, 0.00016927 * 16384 + 0.45666666 } };
    struct node_rig r;
    (void)state;
    rig_open(&r);
    for (size_t i = 0; i < sizeof row / sizeof *row; i++) {
        const double e = exp(row[i].shift), t = 1 - 1 / (double)row[i].steps;
        rig_node(&r, "Flux2Scheduler");
        rig_int(&r, "steps", row[i].steps);
        rig_int(&r, "width", row[i].side);
        rig_int(&r, "height", row[i].side);
        assert_ok(rig_run(&r), r.err);
        const struct htensor *s = rig_out(&r, 0)->tensor;
        assert_int_equal(s->shape.dim[0], row[i].steps + 1);
        assert_float_equal(s->data[0], 1, 1e-6);
        assert_float_equal(s->data[1], (float)(e / (e + 1 / t - 1)), 1e-6);
        assert_float_equal(s->data[row[i].steps], 0, 0);
    }
    rig_node(&r, "Flux2Scheduler"); /* links bring what no validation saw */
    rig_int(&r, "steps", 0);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "0 steps");
    rig_node(&r, "Flux2Scheduler");
    rig_int(&r, "width", INT64_MAX);
    rig_int(&r, "height", INT64_MAX);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "a picture of");
    rig_close(&r);
}

static void aligned(void **state)
{
    struct node_rig r;
    (void)state;
    rig_open(&r);
    rig_node(&r, "AlignYourStepsScheduler");
    rig_text(&r, "model_type", "SVD");
    rig_int(&r, "steps", 10);
    rig_float(&r, "denoise", 0.3);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 0.403f, 0.173f, 0.034f, 0);
    rig_node(&r, "AlignYourStepsScheduler"); /* between the published ones: their geometric mean */
    rig_text(&r, "model_type", "SD1");
    rig_int(&r, "steps", 20);
    assert_ok(rig_run(&r), r.err);
    const float *p = rig_out(&r, 0)->tensor->data;
    assert_int_equal(rig_out(&r, 0)->tensor->shape.dim[0], 21);
    assert_float_equal(p[0], 14.6146412293f, 1e-5);
    assert_float_equal(p[1], sqrt(14.6146412293 * 6.4745760956), 1e-5);
    assert_float_equal(p[2], 6.4745760956, 1e-5);
    assert_float_equal(p[20], 0, 0);
    rig_float(&r, "denoise", 0);
    assert_ok(rig_run(&r), r.err);
    IS_EMPTY(&r, 0);
    rig_close(&r);
}

static void lists(void **state)
{
    static const float five[] = { 8, 4, 2, 1, 0 };
    struct node_rig r;
    (void)state;
    rig_open(&r);
    list(&r, "SplitSigmas", 5, five);
    rig_int(&r, "step", 2);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 8, 4, 2);
    IS(&r, 1, 2, 1, 0);
    list(&r, "SplitSigmas", 5, five); /* beyond its end */
    rig_int(&r, "step", INT64_MAX);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 8, 4, 2, 1, 0);
    IS_EMPTY(&r, 1);
    list(&r, "SplitSigmasDenoise", 5, five);
    rig_float(&r, "denoise", 0.5);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 8, 4, 2);
    IS(&r, 1, 2, 1, 0);
    list(&r, "SplitSigmasDenoise", 5, five);
    rig_float(&r, "denoise", 0);
    assert_ok(rig_run(&r), r.err);
    IS_EMPTY(&r, 0);
    IS(&r, 1, 0);
    list(&r, "SplitSigmasDenoise", 0, five);
    rig_float(&r, "denoise", 1);
    assert_ok(rig_run(&r), r.err);
    IS_EMPTY(&r, 0);
    IS_EMPTY(&r, 1);
    list(&r, "SplitSigmasDenoise", 5, five);
    rig_float(&r, "denoise", NAN);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "denoise");
    list(&r, "FlipSigmas", 5, five);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 0.0001f, 1, 2, 4, 8);
    list(&r, "FlipSigmas", 0, five);
    assert_ok(rig_run(&r), r.err);
    IS_EMPTY(&r, 0);
    list(&r, "SetFirstSigma", 5, five);
    rig_float(&r, "sigma", 16);
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 16, 4, 2, 1, 0);
    list(&r, "SetFirstSigma", 0, five);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "empty");
    rig_node(&r, "FlipSigmas"); /* a picture is no list */
    rig_set(&r, "sigmas", rig_tensor(4, (size_t[]) { 1, 1, 1, 3 }, NULL));
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "no list");
    rig_close(&r);
}

static void typed(struct node_rig *r, const char *text)
{
    rig_node(r, "ManualSigmas");
    rig_text(r, "sigmas", text);
}

static void by_hand(void **state)
{
    struct node_rig r;
    (void)state;
    rig_open(&r);
    typed(&r, "14.6, 7.5;.5 -3+2 [0]");
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 14.6f, 7.5f, 0.5f, -3, 2, 0);
    typed(&r, "1e-2 3. 0x4"); /* the reference knows no exponents */
    assert_ok(rig_run(&r), r.err);
    IS(&r, 0, 1, -2, 3, 0, 4);
    typed(&r, "none. - at all");
    assert_ok(rig_run(&r), r.err);
    IS_EMPTY(&r, 0);
    typed(&r, "1, 2..5");
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "could not convert string to float: '2..5'");
    rig_close(&r);
}

static void cfg_list(struct node_rig *r, const char *how, double start, double end,
                     const char *want)
{
    struct str text = { 0 };
    rig_node(r, "CreateCFGScheduleFloatList");
    rig_int(r, "steps", 5);
    rig_float(r, "cfg_scale_start", 6);
    rig_float(r, "cfg_scale_end", 2);
    rig_text(r, "interpolation", how);
    rig_float(r, "start_percent", start);
    rig_float(r, "end_percent", end);
    assert_ok(rig_run(r), r->err);
    assert_int_equal(rig_out(r, 0)->kind, V_JSON);
    js_write(rig_out(r, 0)->json, 0, &text);
    assert_string_equal(str_c(&text), want);
    str_release(&text);
}

static void guidance_per_step(void **state)
{
    struct node_rig r;
    (void)state;
    rig_open(&r);
    cfg_list(&r, "linear", 0, 1, "[6.0,5.0,4.0,3.0,2.0]");
    cfg_list(&r, "ease_in", 0, 1, "[6.0,5.75,5.0,3.75,2.0]");
    cfg_list(&r, "ease_out", 0, 0.65, "[6.0,3.78,2.44,2.0,1.0]");
    cfg_list(&r, "linear", 0.4, 0.4, "[1.0,1.0,6.0,1.0,1.0]");
    cfg_list(&r, "linear", 0.1, 1, "[1.0,5.0,4.0,3.0,2.0]");
    rig_int(&r, "steps", 5);
    rig_node(&r, "CreateCFGScheduleFloatList");
    rig_int(&r, "steps", 0);
    assert_fails(rig_run(&r), r.err, BERTH_EINVAL, "0 steps");
    rig_close(&r);
}

/* What cannot be computed says so. */
static void reasons(void **state)
{
    struct node_rig r;
    (void)state;
    rig_open(&r);
    rig_node(&r, "GLSLShader");
    assert_fails(rig_run(&r), r.err, BERTH_EUNSUPPORTED, "GLSLShader cannot be computed yet");
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(formulas),          cmocka_unit_test(ltxv),    cmocka_unit_test(flux2),
        cmocka_unit_test(aligned),           cmocka_unit_test(lists),   cmocka_unit_test(by_hand),
        cmocka_unit_test(guidance_per_step), cmocka_unit_test(reasons),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
