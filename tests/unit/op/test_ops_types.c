/* Activations of 16 bits, and the loop that holds devices against the reference (op_device.h), by
 * means of a backend that does nothing but widen, ask the reference and round once (op_rounding.h).
 * It must pass on every case; with something wrong about it, the loop must see that in every op. */
#include "unit/op/op_device.h"
#include "unit/op/op_rounding.h"

#include <signal.h>

static enum sabotage {
    HONEST,
    MISSES_ONE,  /* the last element is not written */
    GOES_BEYOND, /* one behind it is */
    IS_OFF,      /* one value is a hundredth off, of the largest */
    WAVERS,      /* and that only the second time */
    GREEDY,      /* writes behind its scratch */
    REFUSES,
    SABOTAGES,
    DIES, /* at the tenth call of a process */
} sabotage;
static unsigned calls;

static berth_status spoil(const struct op_env *env, berth_err *err)
{
    calls += !env->fp8;
    if (sabotage == DIES && calls == 10)
        raise(SIGKILL);
    if (sabotage == REFUSES)
        return err_set(err, BERTH_EUNSUPPORTED, "not today");
    if (sabotage == GREEDY)
        ((char *)env->scratch)[env->scratch_bytes] = 1;
    return BERTH_OK;
}

static void put_spoilt(const struct view *v, float *f)
{
    size_t n = op_count(v), bytes = dtype_desc(v->dtype)->bytes;
    char *last = element(v, n - 1), before[sizeof(float)];
    float most = 0;
    for (size_t e = 0; e < n; e++)
        most = fmaxf(most, fabsf(f[e]));
    if (sabotage == IS_OFF || (sabotage == WAVERS && calls % 2 == 0))
        f[n - 1] += 0.03f * most;
    memcpy(before, last, bytes);
    rounding_put(v, f);
    if (sabotage == MISSES_ONE)
        memcpy(last, before, bytes);
    if (sabotage == GOES_BEYOND)
        memset(last + bytes, 0x11, bytes);
}

static void one_rounding_of_the_reference_passes(void **state)
{
    (void)state;
    sabotage = HONEST;
    for (size_t o = 0; o < OPS; o++) {
        struct tally t = { 0 };
        struct stand s;
        berth_err err = { 0 };
        assert_ok(stand_open(&s, "cpu", &op_rounding, &t, &err), err);
        try_op(&s, &ops[o], o % 4, 4); /* with the types taking turns */
        assert_int_equal(tally_bad(&t), 0);
        assert_true(t.cases[0] && t.cases[1] && t.cases[2]);
        stand_close(&s);
    }
}

/* The first few cases of each op will do. */
static void what_is_wrong_is_seen(void **state)
{
    (void)state;
    for (size_t o = 0; o < OPS; o++)
        for (sabotage = MISSES_ONE; sabotage < SABOTAGES; sabotage++) {
            struct tally t = { 0 };
            struct stand s;
            berth_err err = { 0 };
            assert_ok(stand_open(&s, "cpu", &op_rounding, &t, &err), err);
            s.quiet = true;
            calls = 1;
            for (t.at = 6; t.at < 12 && try_case(&s, &ops[o], t.at / TYPES, t.at % TYPES); t.at++)
                ;
            /* What is read as well is no NaN before: there a missing value may pass. */
            size_t least = sabotage == MISSES_ONE ? 1 : t.cases[0] + t.cases[1] + t.cases[2];
            bool may_pass = sabotage == MISSES_ONE && ops[o].operand[0].how & IN_PLACE;
            if (tally_bad(&t) < least && !may_pass)
                fail_msg("%s, sabotage %d: %zu of %zu are seen", ops[o].name, (int)sabotage,
                         tally_bad(&t), least);
            stand_close(&s);
        }
    sabotage = HONEST;
}

/* The same loop over the memory of a device: the CPU's own kernels. */
static void the_cpu_as_a_device(void **state)
{
    (void)state;
    struct tally t = { 0 };
    struct stand s;
    berth_err err = { 0 };
    assert_ok(stand_open(&s, "cpu", NULL, &t, &err), err);
    assert_string_equal(s.backend->name, "cpu");
    for (size_t o = 0; o < OPS; o++)
        try_op(&s, &ops[o], 0, TYPES);
    assert_int_equal(tally_bad(&t), 0);
    assert_true(t.cases[0] > 300 && t.cases[1] == 0);
    stand_close(&s);
}

/* A backend without a single kernel, for memory that the host cannot touch: the reference computes
 * on copies, in every type that the backend says it has. */
static void the_reference_on_copies(void **state)
{
    (void)state;
    static const struct op_backend bare = { .name = "bare",
                                            .acts = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16),
                                            .params = OP_TYPE(DT_F16) | OP_TYPE(DT_BF16) };
    struct tally t = { 0 };
    struct stand s;
    berth_err err = { 0 };
    assert_ok(stand_open(&s, "null:0=256m", &bare, &t, &err), err);
    s.large = false;
    for (size_t o = 0; o < OPS; o++)
        try_op(&s, &ops[o], o % 4, 4); /* with the types taking turns */
    assert_int_equal(tally_bad(&t), 0);
    assert_true(t.cases[0] > 50 && t.cases[1] > 50 && t.cases[2] > 50);
    stand_close(&s);
}

/* A device nobody has is a reason to skip, or an error where it was asked for. */
static void no_such_device(void **state)
{
    (void)state;
    static struct tally t;
    const struct post p = { .device = "cuda:200" };
    assert_int_equal(child(&p, NULL, 0, &t), CHILD_NO_DEVICE);
    assert_non_null(strstr(t.why, "cuda:200"));
}

/* A process that dies costs the case it was at: the fourth of each, with three calls a case. */
static void the_loop_outlives_its_processes(void **state)
{
    (void)state;
    const struct post p = { .device = "cpu", .backend = &op_rounding };
    struct tally *t = shared_tally();
    const struct op_case *op = NULL;
    for (size_t o = 0; o < OPS; o++)
        op = ops[o].make == make_timestep ? &ops[o] : op;
    sabotage = DIES;
    calls = 0;
    setenv("BERTH_TEST_FORK", "1", 1);
    assert_true(op_apart(&p, op, t));
    sabotage = HONEST;
    for (size_t i = 0; i < TYPES; i++) { /* the fourth, eighth and twelfth: F32, F16, BF16 */
        assert_int_equal(t->cases[i], 5);
        assert_int_equal(t->bad[i], 1);
    }
    munmap(t, sizeof *t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_loop_outlives_its_processes),
        cmocka_unit_test(one_rounding_of_the_reference_passes),
        cmocka_unit_test(what_is_wrong_is_seen),
        cmocka_unit_test(the_cpu_as_a_device),
        cmocka_unit_test(the_reference_on_copies),
        cmocka_unit_test(no_such_device),
    };
    rounding_by.before = spoil;
    rounding_by.put = put_spoilt;
    return cmocka_run_group_tests(tests, NULL, NULL);
}
