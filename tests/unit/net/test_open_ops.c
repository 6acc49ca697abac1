/* What ops need on a card is asked for when a net is opened there, before memory is counted on. A
 * card that cannot have it now (this one loads no modules) is the first pass's to mend or say. */
#define FIXTURE_FAKE_CARDS 1
#include "net/net_impl.h"
#include "unit/net/toy_net.h"

#ifdef BERTH_CUDA
#include "device/cuda/cuda.h"

static void asked_for_at_open(void **state)
{
    const char *path = toy_write((struct toy_file) { .weight = DT_F16 });
    struct toy t = { .m = NULL };
    (void)state;
    fixture_open(&t.f, "cuda:0=64m,cpu=64m", NULL);
    toy_load(&t, path, "#cuda:0");
    const struct cuda_phys *p = cuda_of(device_named(t.f.set, "cuda:0")->phys);
    assert_null(p->op);
    toy_net(&t);
    assert_ptr_equal(t.net->compute->phys, p);
    assert_non_null(p->op);
    toy_close(&t);
}
#endif

static void a_processor_needs_nothing(void **state)
{
    const char *path = toy_write((struct toy_file) { .weight = DT_F16 });
    struct toy t = { .m = NULL };
    (void)state;
    fixture_open(&t.f, "cpu=64m", NULL);
    toy_load(&t, path, "#cpu");
    toy_net(&t);
    toy_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
#ifdef BERTH_CUDA
        cmocka_unit_test(asked_for_at_open),
#endif
        cmocka_unit_test(a_processor_needs_nothing),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
