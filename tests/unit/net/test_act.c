/* In which type a net computes: the first wish that its device is made for. */
#include "net/net_impl.h"
#include "support/devices.h"

#ifdef BERTH_CUDA
#include "unit/device/cuda_rig.h"

static void cards_differ(void **state)
{
    static const struct {
        int sm;
        enum dtype act, otherwise, got;
    } list[] = {
        { 90, DT_BF16, DT_F16, DT_BF16 }, { 80, DT_BF16, DT_F16, DT_BF16 },
        { 75, DT_BF16, DT_F16, DT_F16 },  { 75, DT_BF16, DT_F32, DT_F32 },
        { 75, DT_F16, DT_BF16, DT_F16 },  { 75, DT_F32, DT_F16, DT_F32 },
        { 75, DT_NONE, DT_NONE, DT_F32 }, { 90, DT_Q8_0, DT_F32, DT_F32 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct rig r;
        fake_rig(&r);
        r.fake->sm = list[i].sm;
        struct devset *set = open_devices("cuda:0=64m,cuda:1@cuda:0=*", &r.env);
        struct net_args a = { .act = list[i].act, .act_else = list[i].otherwise };
        assert_int_equal(net_act_on(devset_at(set, 0), &a), list[i].got);
        assert_int_equal(net_act_on(devset_at(set, 1), &a), list[i].got);
        close_clean(&r, set);
    }
}
#endif

static void the_processor_computes_in_f32(void **state)
{
    struct devset *set = open_devices("cpu=64m,null:0=64m,cuda:0@cpu=*", NULL);
    const struct net_args a = { .act = DT_BF16, .act_else = DT_F16 };
    (void)state;
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(net_act_on(devset_at(set, i), &a), DT_F32);
    devset_close(set);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef BERTH_CUDA
        cmocka_unit_test(cards_differ),
#endif
        cmocka_unit_test(the_processor_computes_in_f32),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
