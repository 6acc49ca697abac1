/* Files of hypernetworks, right and wrong. Numbers: golden.node.patches. */
#include "format/weights.h"
#include "model/hypernet.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

struct tensor {
    const char *name;
    uint64_t out, in; /* in 0: a vector */
};

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user;
    (void)err;
    for (size_t k = 0; k < n / sizeof(float); k++)
        ((float *)dst)[k] = (float)(i + 1) + (float)(off / sizeof(float) + k) * 0.01f;
    return BERTH_OK;
}

static const char *write_net(const struct tensor *t, size_t n, const struct weights_meta_spec *meta,
                             size_t metas)
{
    struct weights_spec spec[16];
    const char *path = tmp_path("hyper.safetensors");
    berth_err err = { 0 };
    for (size_t i = 0; i < n; i++) {
        spec[i] = (struct weights_spec) { .name = t[i].name, .dtype = DT_F32 };
        spec[i].shape = t[i].in ? (struct shape) { 2, { t[i].out, t[i].in } }
                                : (struct shape) { 1, { t[i].out } };
    }
    const struct weights_write_args args = { .format = "safetensors",
                                             .path = path,
                                             .spec = spec,
                                             .count = n,
                                             .meta = meta,
                                             .meta_count = metas,
                                             .fill = fill };
    assert_ok(weights_write(&args, &err), err);
    return path;
}

#define NET(w)                                                                                     \
    { "4." w ".linear.2.weight", 6, 4 }, { "4." w ".linear.2.bias", 6, 0 },                        \
        { "4." w ".linear.10.weight", 4, 6 },                                                      \
    {                                                                                              \
        "4." w ".linear.10.bias", 4, 0                                                             \
    }
static const struct tensor pair[] = { NET("0"), NET("1") };

static void layers_are_in_the_order_of_their_numbers(void **state)
{
    struct hypernet *h;
    berth_err err = { 0 };
    (void)state;
    const char *path = write_net(pair, ARRAY_LEN(pair), NULL, 0);
    assert_ok(hypernet_open(path, &h, &err), err);
    assert_int_equal(h->n, 1);
    assert_int_equal(h->at[0].dim, 4);
    for (int i = 0; i < 2; i++) {
        assert_int_equal(h->at[0].of[i].steps, 2);
        assert_int_equal(h->at[0].of[i].step[0].in, 4);
        assert_int_equal(h->at[0].of[i].step[0].out, 6);
        assert_int_equal(h->at[0].of[i].step[1].out, 4);
    }
    hypernet_free(h);
}

static void activations_stand_between(void **state)
{
    const struct weights_meta_spec relu = { "activation_func", "relu" };
    const struct weights_meta_spec odd = { "activation_func", "softsine" };
    struct hypernet *h;
    berth_err err = { 0 };
    (void)state;
    assert_ok(hypernet_open(write_net(pair, ARRAY_LEN(pair), &relu, 1), &h, &err), err);
    assert_int_equal(h->at[0].of[0].steps, 3);
    assert_int_equal(h->at[0].of[0].step[1].kind, HYPER_ACTIVATION);
    hypernet_free(h);
    assert_fails(hypernet_open(write_net(pair, ARRAY_LEN(pair), &odd, 1), &h, &err), err,
                 BERTH_EUNSUPPORTED, "softsine");
}

static void what_is_none_is_refused(void **state)
{
    static const struct tensor none[] = { { "x.weight", 2, 2 } };
    static const struct tensor half[] = { NET("0") };
    static const struct tensor no_bias[] = { { "4.0.linear.0.weight", 4, 4 } };
    static const struct tensor wide[] = { { "4.0.linear.0.weight", 6, 4 },
                                          { "4.0.linear.0.bias", 6, 0 } };
    static const struct tensor other[] = { { "4.0.linear.0.weight", 4, 5 },
                                           { "4.0.linear.0.bias", 4, 0 } };
    static const struct {
        const struct tensor *t;
        size_t n;
        const char *says;
    } bad[] = { { none, 1, "no hypernetwork" },
                { half, ARRAY_LEN(half), "not both" },
                { no_bias, 1, "no layer behind 4 values" },
                { wide, 2, "from 4 to 6" },
                { other, 2, "no layer behind 4 values" } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct hypernet *h;
        berth_err err = { 0 };
        assert_fails(hypernet_open(write_net(bad[i].t, bad[i].n, NULL, 0), &h, &err), err,
                     BERTH_EFORMAT, bad[i].says);
        assert_null(h);
    }
}

static void failing_allocations(void **state)
{
    const struct weights_meta_spec relu = { "activation_func", "relu" };
    const char *path = write_net(pair, ARRAY_LEN(pair), &relu, 1);
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    (void)state;
    for (; s != BERTH_OK; k++) {
        struct hypernet *h;
        berth_err err = { 0 };
        oom_after(k);
        s = hypernet_open(path, &h, &err);
        oom_off();
        if (s && (s != BERTH_ENOMEM || !err.msg[0]))
            fail_msg("allocation %ld: %s '%s'", k, berth_status_name(s), err.msg);
        hypernet_free(h);
    }
    assert_true(k > 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(layers_are_in_the_order_of_their_numbers),
        cmocka_unit_test(activations_stand_between),
        cmocka_unit_test(what_is_none_is_refused),
        cmocka_unit_test(failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
