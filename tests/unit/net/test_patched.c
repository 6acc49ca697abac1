/* Nets over models that adapters are merged into: they multiply by what the merge stored. */
#include "net/net.h"
#include "unit/residency/patch_toy.h"

#include <math.h>

struct pass {
    float x[COLS], y[ROWS];
};

static void layer_1(struct net_run *r, void *user)
{
    struct pass *p = user;
    struct act x = net_input(r, &(struct shape) { 2, { 1, COLS } }, p->x);
    struct act y = net_linear(r, x, "layers.1");
    net_drop(r, &x);
    net_output(r, y, p->y);
    net_drop(r, &y);
}

/* The net's result is that of the codes, the scale and the bias that lie in the block now. */
static void assert_as_stored(struct fixture *f, struct res_model *m)
{
    static float w[ROWS * COLS];
    struct pass p;
    struct net *n;
    float bias[ROWS], scale;
    berth_err err = { 0 };
    for (size_t i = 0; i < COLS; i++)
        p.x[i] = (float)(int)(i % 11) / 5 - 1;
    read_f32(m, 1, 0, w);
    read_f32(m, 1, 1, bias);
    read_f32(m, 1, 2, &scale);
    assert_ok(net_open(&(struct net_args) { .res = f->r, .m = m }, &n, &err), err);
    assert_ok(net_forward(n, layer_1, &p, &err), err);
    net_close(n);
    for (size_t r = 0; r < ROWS; r++) {
        double sum = (double)bias[r], size = fabs(sum);
        for (size_t i = 0; i < COLS; i++) {
            double v = (double)p.x[i] * (double)w[r * COLS + i] * (double)scale;
            sum += v;
            size += fabs(v);
        }
        if (!(fabs(sum - (double)p.y[r]) < 1e-5 * size))
            fail_msg("row %zu is %g, should be %g", r, (double)p.y[r], sum);
    }
}

static struct res_model *open_model(struct fixture *f, enum dtype weight, bool high_precision)
{
    struct res_open_args args = { .path = write_file("fp8", (struct stored)STORED(weight, true)),
                                  .plan.alloc = "#cpu",
                                  .high_precision = high_precision };
    struct res_model *m;
    berth_err err = { 0 };
    fixture_open(f, "cpu=32m,null:0=32m", NULL);
    assert_ok(res_open(f->r, &args, &m, NULL, &err), err);
    return m;
}

/* A merge into fp8 chooses a scale; here it is a hundredth of the file's 0.25. The net multiplies
 * by that one, wherever the block has moved since, and by the file's when the adapter is gone. */
static void scales_that_a_merge_chose(void **state)
{
    static const enum dtype type[] = { DT_F8_E4M3, DT_F8_E5M2 };
    (void)state;
    for (size_t i = 0; i < 2 * ARRAY_LEN(type); i++) {
        struct toy toy = toy_of("layers.1.weight", 0.3f, 1);
        struct plan_args other = { .alloc = "null:0,100%#cpu", .reserve = UINT64_MAX };
        struct fixture f;
        bool high = i % 2;
        float scale = 0, stored;
        berth_err err = { 0 };
        struct res_model *m = open_model(&f, type[i / 2], high);
        model_load(m);
        assert_false(res_scale_at(m, 1, &scale));
        assert_as_stored(&f, m);
        set(m, &toy, 1);
        model_load(m);
        read_f32(m, 1, 2, &stored);
        assert_true(res_scale_at(m, 1, &scale) && scale == stored);
        assert_true(high ? scale == 0.25f : scale < 0.05f);
        assert_false(res_scale_at(m, 0, &scale)); /* not touched */
        assert_as_stored(&f, m);
        assert_ok(res_replan(m, &other, NULL, &err), err);
        assert_int_equal(res_bytes_on(m, 1), res_info(m).resident);
        assert_as_stored(&f, m);
        set(m, NULL, 0);
        model_load(m);
        assert_false(res_scale_at(m, 1, &scale));
        assert_as_stored(&f, m);
        assert_ok(res_eject(m, &err), err);
        set(m, &toy, 1);
        model_load(m); /* derived in place */
        assert_as_stored(&f, m);
        fixture_check(&f);
        res_unref(m);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(scales_that_a_merge_chose) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
