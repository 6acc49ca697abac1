/* A fault at every device call: nothing leaks, the registry is consistent, the error says which
 * block, device and bytes; the same thing works afterwards. */
#include "support/models.h"

#define DEVICES "cpu=1m,null:0=400k,null:1=400k"
enum { LAYERS = 6, BYTES = 64 << 10, MOST_CALLS = 2000 };

struct scene {
    struct fixture f;
    struct res_model *m, *other;
};

/* What is tried; returns its status. */
typedef berth_status act_fn(struct scene *s, berth_err *err);

static berth_status act_load(struct scene *s, berth_err *err)
{
    return res_load(s->m, NULL, NULL, err);
}

static berth_status act_replan(struct scene *s, berth_err *err)
{
    struct plan_args plan = { .alloc = "null:1,128kb;null:0,128kb;cpu,*#null:1" };
    return res_replan(s->m, &plan, NULL, err);
}

static berth_status act_eject(struct scene *s, berth_err *err)
{
    return res_eject(s->m, err);
}

static berth_status act_read(struct scene *s, berth_err *err)
{
    uint64_t sum;
    return res_checksum(s->m, &sum, err);
}

/* Memory that only a demotion can make room for. */
static berth_status act_alloc(struct scene *s, berth_err *err)
{
    struct device *d = devset_at(s->f.set, 1);
    struct dev_owner *o;
    struct dev_mem mem;
    if (dev_owner_open(d, "step", DEV_ACTIVATIONS, &o, err))
        return err->code;
    berth_status st =
        res_alloc(s->f.r, &(struct res_alloc_args) { d, o, 300 << 10, NULL }, &mem, err);
    dev_free(&mem);
    dev_owner_close(o);
    return st;
}

static const struct {
    const char *name, *alloc;
    act_fn *act;
    bool loaded; /* s->m before the act */
    bool tenant; /* another model stands in the way on null:0 */
    bool names;  /* errors name block, device and bytes */
    bool cannot_fail;
} acts[] = {
    { "load on a card", "#null:0", act_load, false, false, true, false },
    { "load split", "null:0,128kb;null:1,128kb;cpu,*#null:0", act_load, false, false, true, false },
    { "load, pushing out", "#null:0", act_load, false, true, true, false },
    { "replan", "null:0,256kb;cpu,*#null:0", act_replan, true, false, true, false },
    { "eject", "null:0,256kb;cpu,*#null:0", act_eject, true, false, false, true },
    { "read", "null:0,256kb;cpu,*#null:0", act_read, true, false, true, false },
    { "demote", "#null:0", act_alloc, true, false, false, false },
};

static void open_scene(struct scene *s, size_t i)
{
    fixture_open(&s->f, DEVICES, NULL);
    s->other = NULL;
    if (acts[i].tenant) {
        s->other = model_open(&s->f, tmp_path("b.safetensors"), "#null:0", RES_AUTO);
        model_load(s->other);
    }
    s->m = model_open(&s->f, tmp_path("a.safetensors"), acts[i].alloc, RES_AUTO);
    if (acts[i].loaded)
        model_load(s->m);
}

/* Every block is somewhere and right, whatever happened. */
static void sane(struct scene *s, size_t i, berth_status got)
{
    fixture_check(&s->f);
    enum res_state state = res_info(s->m).state;
    if (acts[i].act == act_load)
        assert_int_equal(state, got ? RES_REGISTERED : RES_RESIDENT);
    else if (acts[i].act == act_eject)
        assert_int_equal(state, RES_EJECTED);
    if (state == RES_RESIDENT)
        model_intact(s->m);
    if (s->other && res_info(s->other).state == RES_RESIDENT)
        model_intact(s->other);
}

static void named(size_t i, uint64_t k, const berth_err *err)
{
    if (!strstr(err->msg, "block 'layers.") || !strstr(err->msg, "(64.0 KiB)") ||
        !(strstr(err->msg, "null:") || strstr(err->msg, "cpu")) || !strstr(err->msg, "a#"))
        fail_msg("%s, call %llu: '%s' does not name block, model, device and bytes", acts[i].name,
                 (unsigned long long)k, err->msg);
}

/* Fails the k-th call on device d. False: the act has fewer calls. */
static bool fault(size_t i, size_t d, uint64_t k)
{
    struct scene s;
    berth_err err = { 0 };
    open_scene(&s, i);
    struct device *dev = devset_at(s.f.set, d);
    uint64_t before = null_calls(dev, NULL_ANY);
    null_fail(dev, NULL_ANY, k);
    berth_status got = acts[i].act(&s, &err);
    bool reached = null_calls(dev, NULL_ANY) - before >= k;
    null_fail(dev, NULL_ANY, 0);
    if (got) {
        assert_true(reached && !acts[i].cannot_fail);
        assert_true(err.msg[0] && err.code == got);
        if (acts[i].names)
            named(i, k, &err);
    }
    sane(&s, i, got);
    if (got) { /* it was once: the same again works, from where we are */
        assert_ok(acts[i].act(&s, &err), err);
        sane(&s, i, BERTH_OK);
    }
    res_unref(s.m);
    res_unref(s.other);
    fixture_close(&s.f);
    return reached;
}

static void every_call(void **state)
{
    (void)state;
    model_file("a", LAYERS, BYTES);
    model_file("b", 5, BYTES);
    for (size_t i = 0; i < ARRAY_LEN(acts); i++)
        for (size_t d = 1; d <= 2; d++) {
            uint64_t k = 1;
            while (fault(i, d, k))
                assert_true(++k < MOST_CALLS);
        }
}

/* Failures of one kind of call that stay: the device is gone for copies, or for memory. */
static void a_device_that_is_lost(void **state)
{
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, DEVICES, NULL);
    struct res_model *m = model_open(&f, model_file("a", LAYERS, BYTES), "#null:0", RES_AUTO);
    for (int i = 0; i < 20; i++) {
        null_fail(devset_at(f.set, 1), NULL_COPY, 1);
        assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EDEVICE, "told to fail");
        assert_int_equal(fixture_in_use(&f, "null:0") + fixture_in_use(&f, "cpu"), 0);
    }
    assert_int_equal(res_metrics(f.r).load_failures, 20);
    model_load(m);
    model_intact(m);
    res_unref(m);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_call),
        cmocka_unit_test(a_device_that_is_lost),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
