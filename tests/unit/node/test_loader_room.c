/* Loaders where memory is short: what goes around what is kept, and what a failure leaves. */
#include "support/loader_rig.h"
#include "support/oom.h"

/* The card holds the UNet, and beside it not even the text encoder's table of tokens. */
#define SHORT "cpu=256m,null:0=20m"
static const char keep[] = "{\"ckpt_name\": \"sd15.safetensors\", \"compute_device\": \"null:0\", "
                           "\"virtual_vram_gb\": 0, \"eject_models\": false, "
                           "\"keep_loaded\": true}";

static int fill(void **state)
{
    struct rig r;
    char to[1024];
    (void)state;
    rig_open(&r, SHORT);
    rig_preset(&r, "checkpoints/sd15.safetensors", "sd15-tiny");
    rig_preset(&r, "diffusion_models/flux.safetensors", "flux-tiny");
    rig_t5(&r, "text_encoders/t5.safetensors");
    snprintf(to, sizeof to, "%s", rig_path(&r, "controlnet/other.safetensors"));
    assert_int_equal(rename(model_file("other", 6, 256 << 10), to), 0);
    rig_close(&r);
    return 0;
}

static void eject_all(struct rig *r)
{
    berth_err err = { 0 };
    while (res_model_count(r->f.r))
        assert_ok(res_eject(res_model_at(r->f.r, 0), &err), err);
}

static const char *compute_of(const struct res_model *m)
{
    return res_plan(m)->devices.at[res_plan(m)->quotas.compute].name;
}

struct heard {
    char text[256];
};

static void on_text(void *user, const char *s, size_t n)
{
    struct heard *h = user;
    snprintf(h->text, sizeof h->text, "%.*s", (int)n, s);
}

/* All three are kept and all three have a place; again after a reset nothing is read or moved. */
static void parts_go_around_what_is_kept(void **state)
{
    struct rig r;
    struct call x;
    struct heard heard = { "" };
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, SHORT);
    rig_call(&r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU", keep);
    x.host = (struct node_host) { .user = &heard, .text = on_text };
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct res_model *unet = call_model(&x, 0)->part[0], *clip = call_model(&x, 1)->part[0];
    assert_true(rig_bytes_on(&r, unet, "null:0") > 10 << 20);
    assert_int_equal(rig_bytes_on(&r, clip, "cpu"), res_info(clip).bytes);
    assert_string_equal(compute_of(unet), "null:0");
    assert_string_equal(compute_of(clip), "cpu");
    assert_non_null(strstr(heard.text, "null:0 has no room for the clip"));
    for (size_t i = 0; i < 3; i++)
        assert_int_equal(res_info(call_model(&x, i)->part[0]).retention, RES_KEEP);
    call_release(&x);

    struct res_metrics before = res_metrics(r.f.r);
    assert_ok(rig_run(&r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU", keep, &err), err);
    struct res_metrics after = res_metrics(r.f.r);
    assert_ptr_equal(call_model(&x, 0)->part[0], unet);
    assert_ptr_equal(call_model(&x, 1)->part[0], clip);
    assert_int_equal(after.read_bytes, before.read_bytes);
    assert_int_equal(after.moved_bytes, before.moved_bytes);
    call_release(&x);
    eject_all(&r);
    rig_close(&r);
}

/* A plain loader, whose models are auto, beside a kept one. */
static void plain_loaders_go_around_too(void **state)
{
    struct rig r;
    struct call a, b;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, SHORT);
    assert_ok(rig_run(&r, &a, "UNETLoaderDisTorch2MultiGPU",
                      "{\"unet_name\": \"flux.safetensors\", \"compute_device\": \"null:0\", "
                      "\"virtual_vram_gb\": 0, \"keep_loaded\": true}",
                      &err),
              err);
    uint64_t kept = rig_bytes_on(&r, call_model(&a, 0)->part[0], "null:0");
    assert_true(kept > 10 << 20);
    assert_ok(
        rig_run(&r, &b, "CheckpointLoaderSimple", "{\"ckpt_name\": \"sd15.safetensors\"}", &err),
        err);
    assert_int_equal(rig_bytes_on(&r, call_model(&a, 0)->part[0], "null:0"), kept);
    call_release(&a);
    call_release(&b);
    eject_all(&r);
    rig_close(&r);
}

/* The UNet finds a place and the text encoders do not: nothing stays of what the node began. */
static void a_loader_that_fails_keeps_nothing(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=12m,null:0=20m");
    berth_status s = rig_run(&r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU", keep, &err);
    assert_fails(s, err, BERTH_ENODEVMEM, "sd15.safetensors");
    const char *wanted = strstr(err.msg, "null:0 is full"); /* where it was to go, first */
    assert_non_null(wanted);
    assert_non_null(strstr(wanted, "; on cpu instead: "));
    assert_non_null(strstr(wanted, "cpu is full: needs"));
    call_release(&x);
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

/* What was there before is retained as it was before. */
static void a_loader_that_fails_gives_retention_back(void **state)
{
    static const enum res_retention was[] = { RES_AUTO, RES_KEEP, RES_EJECT };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(was); i++)
        for (int to = 0; to < 2; to++) {
            struct rig r;
            struct call x, dual;
            char in[256];
            berth_err err = { 0 };
            rig_open(&r, "cpu=256m,null:0=128m");
            assert_ok(rig_run(&r, &x, "CLIPLoaderMultiGPU",
                              "{\"clip_name\": \"t5.safetensors\", \"device\": \"cpu\"}", &err),
                      err);
            struct res_model *m = call_model(&x, 0)->part[0];
            res_set_retention(m, was[i]);
            unsigned anchors = res_info(m).anchors;
            snprintf(in, sizeof in,
                     "{\"clip_name1\": \"t5.safetensors\", \"clip_name2\": \"gone.safetensors\", "
                     "\"device\": \"cpu\", \"virtual_vram_gb\": 0, \"keep_loaded\": %s}",
                     to ? "true" : "false");
            assert_int_not_equal(rig_run(&r, &dual, "DualCLIPLoaderDisTorch2MultiGPU", in, &err),
                                 BERTH_OK);
            call_release(&dual);
            assert_int_equal(res_info(m).retention, was[i]);
            assert_int_equal(res_info(m).anchors, anchors);
            assert_int_equal(res_info(m).handles, 1);
            call_release(&x);
            eject_all(&r);
            rig_close(&r);
        }
}

struct marker { /* holds the first network; marks it when the second one comes, and interrupts */
    struct residency *r;
    struct res_model *m;
    atomic_bool cancel;
};

static berth_status mark_on_the_way(void *user, const struct node_step *s, berth_err *err)
{
    struct marker *k = user;
    (void)s, (void)err;
    if (!k->m) {
        k->m = res_model_at(k->r, 0);
        res_ref(k->m);
    } else if (res_model_count(k->r) > 1) {
        res_set_retention(k->m, RES_EJECT);
        atomic_store(&k->cancel, true);
    }
    return BERTH_OK;
}

static berth_status mark_the_first(void *user, const struct node_step *s, berth_err *err)
{
    (void)s, (void)err;
    if (res_model_count(user) == 1) /* while it is loaded; not while others are */
        res_set_retention(res_model_at(user, 0), RES_EJECT);
    return BERTH_OK;
}

/* Retention is also changed through the server, between the steps of a prompt: the loader said what
 * it wants before. */
static void a_mark_during_the_load_is_the_last_word(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m,null:0=128m");
    for (int again = 0; again < 2; again++) { /* and the next load means what it says */
        rig_call(&r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU", keep);
        if (!again)
            x.host = (struct node_host) { .user = r.f.r, .progress = mark_the_first };
        assert_ok(x.c.cls->run(&x.c, &err), err);
        assert_int_equal(res_info(res_model_at(r.f.r, 0)).retention, again ? RES_KEEP : RES_EJECT);
        assert_int_equal(res_info(res_model_at(r.f.r, 1)).retention, RES_KEEP);
        call_release(&x);
        eject_all(&r);
    }
    rig_close(&r);
}

static void a_loader_that_fails_leaves_other_peoples_marks(void **state)
{
    struct rig r;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m,null:0=128m");
    struct marker k = { .r = r.f.r };
    rig_call(&r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU", keep);
    x.host = (struct node_host) { .user = &k, .progress = mark_on_the_way, .cancel = &k.cancel };
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_ECANCELED);
    call_release(&x);
    assert_int_equal(res_info(k.m).retention, RES_EJECT);
    res_unref(k.m);
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

static void an_interrupted_loader_keeps_nothing(void **state)
{
    struct rig r;
    struct call x;
    atomic_bool cancel = true;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, SHORT);
    rig_call(&r, &x, "CheckpointLoaderSimpleDisTorch2MultiGPU", keep);
    x.host.cancel = &cancel;
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_ECANCELED);
    call_release(&x);
    assert_int_equal(res_model_count(r.f.r), 0);
    rig_close(&r);
}

static void keeping_survives_oom(void **state)
{
    berth_status s = BERTH_ENOMEM;
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=8m,null:0=1m");
    for (long k = 0; s != BERTH_OK; k++) {
        struct call x;
        berth_err err = { 0 };
        rig_call(&r, &x, "ControlNetLoaderDisTorch2MultiGPU",
                 "{\"control_net_name\": \"other.safetensors\", \"compute_device\": \"null:0\", "
                 "\"virtual_vram_gb\": 0, \"keep_loaded\": true}");
        oom_after(k);
        s = x.c.cls->run(&x.c, &err);
        oom_off();
        if (s && (s != BERTH_ENOMEM || !err.msg[0]))
            fail_msg("%ld: %s", k, err.msg);
        call_release(&x);
        assert_int_equal(res_model_count(r.f.r), s ? 0 : 1);
    }
    eject_all(&r);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(parts_go_around_what_is_kept),
        cmocka_unit_test(plain_loaders_go_around_too),
        cmocka_unit_test(a_loader_that_fails_keeps_nothing),
        cmocka_unit_test(a_loader_that_fails_gives_retention_back),
        cmocka_unit_test(a_mark_during_the_load_is_the_last_word),
        cmocka_unit_test(a_loader_that_fails_leaves_other_peoples_marks),
        cmocka_unit_test(an_interrupted_loader_keeps_nothing),
        cmocka_unit_test(keeping_survives_oom),
    };
    return cmocka_run_group_tests(tests, fill, NULL);
}
