/* Select Model Device and kin over logical devices: where a model computes, and back again. */
#include "support/loader_rig.h"

#include "node/compute.h"

#define DEVICES "cpu=1g,cuda:0@cpu=512m,cuda:1@cpu=512m"

/* The class over one input; the model that comes out is borrowed from *x. */
static const struct model_ref *chosen(struct rig *r, const char *cls, const char *input,
                                      struct value *from, const char *device, struct call *x)
{
    char inputs[64];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"device\": \"%s\"}", device);
    rig_call(r, x, cls, inputs);
    call_give(x, input, from);
    assert_ok(x->c.cls->run(&x->c, &err), err);
    return call_model(x, 0);
}

static void devices(void **state)
{
    static const struct {
        const char *cls, *input;
        size_t output;
    } row[] = { { "SelectModelDevice", "model", 0 },
                { "SelectCLIPDevice", "clip", 1 },
                { "SelectVAEDevice", "vae", 2 } };
    struct rig r;
    struct call ckpt;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, DEVICES);
    rig_preset(&r, "checkpoints/x.safetensors", "sd15-tiny");
    assert_ok(
        rig_run(&r, &ckpt, "CheckpointLoaderSimple", "{\"ckpt_name\": \"x.safetensors\"}", &err),
        err);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call a, b, c, d;
        struct value *from = ckpt.out[row[i].output].at[0];
        const struct model_ref *was = &from->model;
        assert_string_equal(res_compute(was->part[0])->name, "cuda:0");
        const struct model_ref *m = chosen(&r, row[i].cls, row[i].input, from, "gpu:1", &a);
        assert_string_equal(res_compute(m->part[0])->name, "cuda:1");
        assert_ptr_not_equal(m->part[0], was->part[0]);
        m = chosen(&r, row[i].cls, row[i].input, a.out[0].at[0], "cpu", &b);
        assert_string_equal(res_compute(m->part[0])->name, "cpu");
        m = chosen(&r, row[i].cls, row[i].input, b.out[0].at[0], "default", &c);
        assert_ptr_equal(m->part[0], was->part[0]);
        m = chosen(&r, row[i].cls, row[i].input, a.out[0].at[0], "gpu:7", &d); /* none such */
        assert_ptr_equal(m->part[0], call_model(&a, 0)->part[0]);
        call_release(&d);
        call_release(&c);
        call_release(&b);
        call_release(&a);
    }
    call_release(&ckpt);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(devices) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
