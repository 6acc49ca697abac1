/* What nodes ask and give: conversions, defaults, ownership; constants. */
#include "node/node_impl.h"
#include "support/node_rig.h"
#include "support/oom.h"

static void inputs_convert(void **state)
{
    struct node_rig *r = *state;
    int64_t i;
    uint64_t u;
    double f;
    bool b;
    const char *text;
    rig_node(r, "KSampler");
    assert_ok(in_i64(&r->call, "steps", &i, &r->err), r->err); /* defaults */
    assert_ok(in_f64(&r->call, "cfg", &f, &r->err), r->err);
    assert_ok(in_text(&r->call, "sampler_name", &text, &r->err), r->err);
    assert_true(i == 20 && f == 8.0 && !strcmp(text, "euler"));
    assert_false(in_given(&r->call, "model"));
    rig_set(r, "seed", value_uint(UINT64_MAX));
    assert_ok(in_u64(&r->call, "seed", &u, &r->err), r->err);
    assert_true(u == UINT64_MAX);
    assert_fails(in_i64(&r->call, "seed", &i, &r->err), r->err, BERTH_EINVAL, "'seed'");
    rig_int(r, "cfg", 3);
    assert_ok(in_f64(&r->call, "cfg", &f, &r->err), r->err);
    assert_true(f == 3.0);
    rig_float(r, "steps", 2.0);
    assert_fails(in_i64(&r->call, "steps", &i, &r->err), r->err, BERTH_EINVAL,
                 "wants INT and got FLOAT");
    rig_node(r, "GrowMask");
    rig_int(r, "expand", -3);
    assert_fails(in_u64(&r->call, "expand", &u, &r->err), r->err, BERTH_EINVAL, "negative");
    assert_ok(in_bool(&r->call, "tapered_corners", &b, &r->err), r->err);
    assert_true(b);
    rig_int(r, "tapered_corners", 0);
    assert_ok(in_bool(&r->call, "tapered_corners", &b, &r->err), r->err);
    assert_false(b);
    rig_node(r, "CheckpointLoaderSimple"); /* a listing has no default of its own */
    assert_fails(in_text(&r->call, "ckpt_name", &text, &r->err), r->err, BERTH_EINVAL,
                 "'ckpt_name' is not given");
    const struct model_ref *m;
    rig_node(r, "VAEDecode");
    rig_set(r, "vae", value_int(1));
    assert_fails(in_model(&r->call, "vae", &m, &r->err), r->err, BERTH_EINVAL,
                 "wants VAE and got INT");
}

static void constants_pass_through(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "PrimitiveInt");
    rig_int(r, "value", -7);
    assert_ok(rig_run(r), r->err);
    assert_int_equal(rig_out(r, 0)->i, -7);
    rig_node(r, "PrimitiveFloat");
    rig_float(r, "value", 0.5);
    assert_ok(rig_run(r), r->err);
    assert_true(rig_out(r, 0)->f == 0.5);
    rig_node(r, "PrimitiveStringMultiline");
    rig_text(r, "value", "a\nb");
    assert_ok(rig_run(r), r->err);
    assert_string_equal(rig_out(r, 0)->s.p, "a\nb");
    rig_node(r, "PrimitiveBoolean");
    assert_ok(rig_run(r), r->err);
    assert_true(rig_out(r, 0)->kind == V_BOOL && !rig_out(r, 0)->b);
    rig_node(r, "INTConstant");
    rig_set(r, "value", value_uint(UINT64_MAX));
    assert_ok(rig_run(r), r->err);
    assert_true(rig_out(r, 0)->u == UINT64_MAX);
}

static void shows(struct node_rig *r, struct value *v, const char *want)
{
    rig_node(r, "PreviewAny");
    if (v)
        rig_set(r, "source", v);
    assert_ok(rig_run(r), r->err);
    assert_string_equal(json_string_value(json_array_get(json_object_get(r->call.ui, "text"), 0)),
                        want);
}

static void anything_can_be_shown(void **state)
{
    struct node_rig *r = *state;
    shows(r, value_string("x\"y", 3), "x\"y");
    shows(r, value_int(5), "5");
    shows(r, value_uint(UINT64_MAX), "18446744073709551615");
    shows(r, value_float(1), "1.0");
    shows(r, value_bool(true), "True");
    shows(r, value_null(), "None");
    shows(r, NULL, "None");
    shows(r, value_json(json_pack("[i,s]", 1, "a")), "[\n    1,\n    \"a\"\n]");
    shows(r, rig_tensor(3, (size_t[]) { 1, 2, 3 }, NULL), "tensor [1, 2, 3]");
}

static berth_status refuse(void *user, const struct node_step *s, berth_err *err)
{
    (void)user, (void)s;
    return err_set(err, BERTH_ECANCELED, "no more");
}

static void interrupts_are_seen(void **state)
{
    struct node_rig *r = *state;
    rig_node(r, "SaveImageWebsocket");
    assert_ok(call_progress(&r->call, 1, 2, &r->err), r->err);
    r->host.progress = refuse;
    assert_fails(call_progress(&r->call, 1, 2, &r->err), r->err, BERTH_ECANCELED, "no more");
    r->host.progress = NULL;
    r->cancel = true;
    assert_fails(call_check(&r->call, &r->err), r->err, BERTH_ECANCELED, "SaveImageWebsocket");
    r->cancel = false;
}

static void constants_are_checked_without_links(void **state)
{
    (void)state;
    json_t *inputs = json_pack("{s:[s,i], s:i}", "a", "1", 0, "b", 2);
    struct node_check k = { .inputs = inputs };
    assert_null(check_input(&k, "a"));
    assert_null(check_input(&k, "c"));
    assert_int_equal(json_integer_value(check_input(&k, "b")), 2);
    json_decref(inputs);
}

/* Nodes of every family with allocations that fail one after the other: a clean error, nothing
 * half given (ASan counts what is left). */
static void nodes_survive_oom(void **state)
{
    struct node_rig *r = *state;
    static const char *const name[] = {
        "EmptyImage",
        "ImageInvert",
        "ImageScale",
        "ImageBatch",
        "ImageCrop",
        "RepeatImageBatch",
        "ImageFromBatch",
        "ImagePadForOutpaint",
        "ImageBlur",
        "Canny",
        "GetImageSize",
        "ImageConcatMulti",
        "ImageResizeKJv2",
        "MaskToImage",
        "ImageToMask",
        "GrowMask",
        "MaskComposite",
        "FeatherMask",
        "JoinImageWithAlpha",
        "SplitImageWithAlpha",
        "ImageCompositeMasked",
        "EmptyLatentImage",
        "LatentUpscaleBy",
        "LatentFromBatch",
        "RepeatLatentBatch",
        "LatentBatch",
        "RebatchLatents",
        "LatentComposite",
        "LatentCrop",
        "LatentRotate",
        "SetLatentNoiseMask",
        "TrimVideoLatent",
        "PrimitiveString",
    };
    for (size_t i = 0; i < sizeof name / sizeof *name; i++) {
        berth_status s = BERTH_ENOMEM;
        long k = 0;
        for (; s && k < 1000; k++) {
            rig_node(r, name[i]);
            const struct node_class *c = r->call.cls;
            for (size_t j = 0; j < c->ins; j++) { /* enough of everything */
                if (c->in[j].kind != IN_SOCKET)
                    continue;
                if (!strcmp(c->in[j].type, "IMAGE"))
                    rig_set(r, c->in[j].name, rig_tensor(4, (size_t[]) { 2, 9, 10, 3 }, NULL));
                else if (!strcmp(c->in[j].type, "MASK"))
                    rig_set(r, c->in[j].name, rig_tensor(3, (size_t[]) { 2, 9, 10 }, NULL));
                else if (!strcmp(c->in[j].type, "LATENT"))
                    rig_set(r, c->in[j].name, rig_latent(4, (size_t[]) { 3, 4, 9, 10 }, NULL));
            }
            if (node_input_index(c, "width") != SIZE_MAX) {
                rig_int(r, "width", 64);
                rig_int(r, "height", 64);
            }
            oom_after(k);
            s = rig_run(r);
            oom_off();
            if (s != BERTH_OK && !(s == BERTH_ENOMEM && r->err.msg[0]))
                fail_msg("%s, allocation %ld: %s", name[i], k, r->err.msg);
        }
        if (s || k < 2)
            fail_msg("%s: done after %ld allocations", name[i], k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(inputs_convert),
        cmocka_unit_test(constants_pass_through),
        cmocka_unit_test(anything_can_be_shown),
        cmocka_unit_test(interrupts_are_seen),
        cmocka_unit_test(constants_are_checked_without_links),
        cmocka_unit_test(nodes_survive_oom),
    };
    return cmocka_run_group_tests(tests, rig_setup, rig_teardown);
}
