/* Adapters merged on a card: the fake one, whose kernels are ours and run on the host. The same
 * bits as the host's merge, in every type and order of threads. */
#define FIXTURE_FAKE_CARDS
#include "card_merge.h"
#include "support/cuda_simt/plug.h"

static void ignore_failure(void *stream)
{
    CUresult (*sync)(CUstream s);
    fake_symbol(BERTH_FAKE_CUDA, "cuStreamSynchronize", &sync);
    (void)sync(stream);
}

static uint64_t launches(const char *kernel)
{
    for (size_t k = 0; k < simt_merge.base.kernels; k++)
        if (strcmp(simt_merge.base.kernel[k].name, kernel) == 0)
            return (uint64_t)simt_merge.base.kernel[k].launches;
    fail_msg("no kernel '%s'", kernel);
    return 0;
}

static void to_the_bit(void **state)
{
    (void)state;
    static const struct card_file files[] = {
        { DT_F16, 70, 512 },  { DT_BF16, 130, 257 }, { DT_F32, 33, 130 },
        { DT_Q4_0, 70, 512 }, { DT_Q8_0, 70, 512 },  { DT_F16, 4200, 1024 },
    };
    for (size_t i = 0; i < ARRAY_LEN(files); i++)
        for (unsigned order = 0; order < (i + 1 < ARRAY_LEN(files) ? SIMT_ORDERS : 1); order++) {
            struct fixture x;
            struct pairs p;
            struct dev_stream *s;
            berth_err err = { 0 };
            pairs_init(&p);
            const struct res_patch patch[] = { { &p.base, 0.5f }, { &p.base, -0.75f } };
            fixture_open(&x, "cpu=256m,cuda:0=256m", NULL);
            plug_kernels(FAKE_REFUSES_NOTHING, ignore_failure);
            struct device *d = device_named(x.set, "cuda:0");
            assert_ok(dev_stream_new(d, &s, &err), err);
            plug_no_dnn(&(struct op_env) { .backend = op_backend_for(d), .stream = s });
            dev_stream_free(s);
            simt_in_order((enum simt_order)order);
            struct res_model *m = model_open(&x, card_write(&files[i]), "#cuda:0", RES_AUTO);
            const uint64_t before = launches("add_product");
            assert_ok(res_set_patches(m, patch, 2, &err), err);
            model_load(m);
            assert_true(launches("add_product") - before >= 4);
            card_check(m, &files[i], patch, 2);
            res_unref(m);
            fixture_close(&x);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(to_the_bit) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
