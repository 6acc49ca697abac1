/* In which type a net computes: the first wish that its device is made for. */
#define FIXTURE_FAKE_CARDS 1
#include "net/net_impl.h"
#include "unit/net/toy_net.h"

#ifdef BERTH_CUDA
#include "device/cuda/cuda.h"
#endif

static const struct choice {
    const char *alloc;
    int sm;
    enum dtype act, otherwise, got;
} choices[] = {
#ifdef BERTH_CUDA
    { "#cuda:0", 90, DT_BF16, DT_F16, DT_BF16 }, { "#cuda:0", 80, DT_BF16, DT_F16, DT_BF16 },
    { "#cuda:0", 75, DT_BF16, DT_F16, DT_F16 },  { "#cuda:0", 75, DT_BF16, DT_F32, DT_F32 },
    { "#cuda:0", 75, DT_F16, DT_BF16, DT_F16 },  { "#cuda:0", 75, DT_F32, DT_F16, DT_F32 },
    { "#cuda:0", 75, DT_NONE, DT_NONE, DT_F32 }, { "#cuda:0", 90, DT_Q8_0, DT_F32, DT_F32 },
#endif
    { "#cpu", 0, DT_BF16, DT_F16, DT_F32 },      { "#cpu", 0, DT_NONE, DT_F32, DT_F32 },
};

static void the_device_decides(void **state)
{
    const char *path = toy_write((struct toy_file) { .weight = DT_F16 });
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(choices); i++) {
        const struct choice *c = &choices[i];
        struct toy t = { .m = NULL };
        fixture_open(&t.f, strcmp(c->alloc, "#cpu") ? "cuda:0=64m,cpu=64m" : "cpu=64m", NULL);
        toy_load(&t, path, c->alloc);
#ifdef BERTH_CUDA
        if (c->sm)
            cuda_of(device_named(t.f.set, "cuda:0")->phys)->sm = c->sm;
#endif
        t.args.act = c->act;
        t.args.act_else = c->otherwise;
        toy_net(&t);
        assert_int_equal(t.net->act, c->got);
        toy_close(&t);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(the_device_decides) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
