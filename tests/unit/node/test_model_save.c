/* Models saved and loaded again: the same names, bytes and pictures; merged ones too. */
#include "support/lora_files.h"
#include "support/tiny_rig.h"

static const char settings[] = "{\"seed\": 7, \"steps\": 2, \"cfg\": 4, "
                               "\"sampler_name\": \"euler\", \"scheduler\": \"normal\"}";

static struct htensor *picture(struct tiny *t, struct value *model)
{
    struct call x;
    berth_err err = { 0 };
    assert_ok(tiny_try(t, &x, "KSampler", model, settings, tiny_empty(1, 4, 8, 8), &err), err);
    struct htensor *out = htensor_ref(x.out[0].at[0]->latent.samples);
    call_release(&x);
    return out;
}

static struct value *prompt(void)
{
    struct htensor *t;
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(htensor_zeros(&(struct shape) { 3, { 1, 77, 64 } }, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i % 13) / 13.0f - 0.5f;
    assert_ok(conditioning_new(t, NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

/* The checkpoint, and prompts that need no tokenizer. */
static void setup(struct tiny *t)
{
    struct value *p = prompt();
    berth_err err = { 0 };
    tiny_open(t, "sample_sd15_tiny");
    tiny_sd15_file(t);
    assert_ok(rig_run(&t->r, &t->ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"" TINY_SD15 "\"}", &err),
              err);
    assert_ok(values_add(&t->positive.out[0], value_ref(p), &err), err);
    assert_ok(values_add(&t->negative.out[0], p, &err), err);
}

/* Runs a node that saves, over these links; returns the path of `name` in the output folder. */
static const char *saved(struct tiny *t, const char *cls, const char *prefix, struct value *model,
                         bool clip, bool vae, const char *name)
{
    static char path[1024];
    char inputs[128];
    struct call x;
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"filename_prefix\": \"%s\"}", prefix);
    rig_call(&t->r, &x, cls, inputs);
    if (model)
        call_give(&x, "model", model);
    if (clip)
        call_give(&x, "clip", t->ckpt.out[1].at[0]);
    if (vae)
        call_give(&x, "vae", t->ckpt.out[2].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    call_release(&x);
    snprintf(path, sizeof path, "%s/output/%s", t->r.base, name);
    return path;
}

static struct weights *opened(const char *path)
{
    struct weights *w;
    berth_err err = { 0 };
    assert_ok(weights_open(path, NULL, &w, &err), err);
    return w;
}

/* Every tensor of a is in b under the name behind `skip` of it, with the same bytes. Returns their
 * number. */
static size_t same_tensors(const struct weights *a, const struct weights *b, const char *front,
                           const char *skip)
{
    size_t n = 0;
    berth_err err = { 0 };
    for (size_t i = 0; i < weights_count(a); i++) {
        const struct weights_entry *e = weights_at(a, i);
        if (!str_starts(e->name, e->name_len, front))
            continue;
        const char *name = e->name + strlen(skip);
        const struct weights_entry *o = weights_find(b, name, strlen(name));
        if (!o)
            fail_msg("'%s' was not saved", name);
        assert_true(shape_eq(&e->shape, &o->shape) && e->dtype == o->dtype);
        char *x = malloc(e->size), *y = malloc(e->size);
        assert_ok(weights_read(a, e, 0, x, (size_t)e->size, &err), err);
        assert_ok(weights_read(b, o, 0, y, (size_t)e->size, &err), err);
        assert_memory_equal(x, y, e->size);
        free(x);
        free(y);
        n++;
    }
    return n;
}

static void checkpoint_comes_back(void **state)
{
    struct tiny t;
    (void)state;
    setup(&t);
    struct weights *was = opened(rig_path(&t.r, "checkpoints/" TINY_SD15));
    const char *path = saved(&t, "CheckpointSave", "checkpoints/x", t.ckpt.out[0].at[0], true, true,
                             "checkpoints/x_00001_.safetensors");
    struct weights *is = opened(path);
    size_t n = same_tensors(was, is, "", "");
    assert_int_equal(n, weights_count(was));
    assert_int_equal(n, weights_count(is));
    assert_string_equal(weights_meta_find(is, "modelspec.predict_key")->str, "epsilon");
    weights_close(is);
    /* a second one has the next number */
    is = opened(saved(&t, "CheckpointSave", "checkpoints/x", t.ckpt.out[0].at[0], true, true,
                      "checkpoints/x_00002_.safetensors"));
    weights_close(is);
    weights_close(was);
    tiny_close(&t);
}

/* There is room for the largest of the three only: each is loaded when it is its turn. */
static void parts_that_do_not_fit_together(void **state)
{
    struct tiny t;
    struct rig r;
    struct call x, ckpt;
    uint64_t bytes, most = 0, all = 0;
    char devices[64], path[1100];
    berth_err err = { 0 };
    (void)state;
    setup(&t);
    for (size_t i = 0; i < 3; i++) {
        bytes = res_info(call_model(&t.ckpt, i)->part[0]).bytes;
        most = bytes > most ? bytes : most;
        all += bytes;
    }
    tiny_close(&t);
    snprintf(devices, sizeof devices, "cpu=%llum", (unsigned long long)(most >> 20) + 2);
    assert_true(all > ((most >> 20) + 2) << 20);
    rig_open(&r, devices);
    assert_ok(
        rig_run(&r, &ckpt, "CheckpointLoaderSimple", "{\"ckpt_name\": \"" TINY_SD15 "\"}", &err),
        err);
    rig_call(&r, &x, "CheckpointSave", "{\"filename_prefix\": \"short\"}");
    call_give(&x, "model", ckpt.out[0].at[0]);
    call_give(&x, "clip", ckpt.out[1].at[0]);
    call_give(&x, "vae", ckpt.out[2].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    snprintf(path, sizeof path, "%s/output/short_00001_.safetensors", r.base);
    struct weights *was = opened(rig_path(&r, "checkpoints/" TINY_SD15)), *is = opened(path);
    assert_int_equal(same_tensors(was, is, "", ""), weights_count(is));
    assert_int_equal(weights_count(was), weights_count(is));
    weights_close(is);
    weights_close(was);
    call_release(&x);
    call_release(&ckpt);
    rig_close(&r);
}

static void parts_have_their_own_names(void **state)
{
    struct tiny t;
    (void)state;
    setup(&t);
    struct weights *was = opened(rig_path(&t.r, "checkpoints/" TINY_SD15));
    struct weights *vae =
        opened(saved(&t, "VAESave", "vae/v", NULL, false, true, "vae/v_00001_.safetensors"));
    struct weights *clip = opened(
        saved(&t, "CLIPSave", "clip/c", NULL, true, false, "clip/c_clip_l_00001_.safetensors"));
    assert_int_equal(same_tensors(was, vae, "first_stage_model.", "first_stage_model."),
                     weights_count(vae));
    assert_int_equal(
        same_tensors(was, clip, "cond_stage_model.transformer.", "cond_stage_model.transformer."),
        weights_count(clip));
    assert_true(weights_count(vae) && weights_count(clip));
    weights_close(clip);
    weights_close(vae);
    weights_close(was);
    tiny_close(&t);
}

/* A model merged with attention made stronger: what is saved paints what was merged, to the bit. */
static void merges_are_saved(void **state)
{
    struct tiny t;
    struct call scaled, merged, loaded;
    char copy[1200], command[2500];
    berth_err err = { 0 };
    (void)state;
    setup(&t);
    struct value *base = t.ckpt.out[0].at[0];
    rig_call(&t.r, &scaled, "UNetSelfAttentionMultiply", "{\"q\": 1.5, \"v\": 0.5}");
    call_give(&scaled, "model", base);
    assert_ok(scaled.c.cls->run(&scaled.c, &err), err);
    rig_call(&t.r, &merged, "ModelMergeSimple", "{\"ratio\": 0.25}");
    call_give(&merged, "model1", base);
    call_give(&merged, "model2", scaled.out[0].at[0]);
    assert_ok(merged.c.cls->run(&merged.c, &err), err);
    struct htensor *plain = picture(&t, base), *want = picture(&t, merged.out[0].at[0]);
    const char *path =
        saved(&t, "ModelSave", "m", merged.out[0].at[0], false, false, "m_00001_.safetensors");
    snprintf(copy, sizeof copy, "%s", rig_path(&t.r, "diffusion_models/merged.safetensors"));
    snprintf(command, sizeof command, "cp '%s' '%s'", path, copy);
    assert_int_equal(system(command), 0);
    assert_ok(rig_run(&t.r, &loaded, "UNETLoader", "{\"unet_name\": \"merged.safetensors\"}", &err),
              err);
    struct htensor *got = picture(&t, loaded.out[0].at[0]);
    size_t bytes = htensor_count(want) * sizeof(float);
    assert_memory_equal(got->data, want->data, bytes);
    assert_memory_not_equal(plain->data, want->data, bytes);
    struct htensor *again = picture(&t, base); /* the base is as it was */
    assert_memory_equal(again->data, plain->data, bytes);
    htensor_unref(again);
    htensor_unref(got);
    htensor_unref(want);
    htensor_unref(plain);
    call_release(&loaded);
    call_release(&merged);
    call_release(&scaled);
    tiny_close(&t);
}

/* What an adapter made of a model is what goes into a merge, on either side: of two such models
 * the one that has all the weight comes out as it went in. */
static void merges_hear_adapters(void **state)
{
    struct tiny t;
    struct call lora, merged;
    berth_err err = { 0 };
    (void)state;
    setup(&t);
    struct value *base = t.ckpt.out[0].at[0];
    lora_file(rig_path(&t.r, "loras/a.safetensors"), base->model.part[0],
              t.ckpt.out[1].at[0]->model.part[0]);
    rig_call(&t.r, &lora, "LoraLoaderModelOnly",
             "{\"lora_name\": \"a.safetensors\", \"strength_model\": 0.5}");
    call_give(&lora, "model", base);
    assert_ok(lora.c.cls->run(&lora.c, &err), err);
    struct value *both[2] = { base, lora.out[0].at[0] };
    struct htensor *want[2] = { picture(&t, both[0]), picture(&t, both[1]) };
    size_t bytes = htensor_count(want[0]) * sizeof(float);
    assert_memory_not_equal(want[0]->data, want[1]->data, bytes);
    for (int first = 0; first < 2; first++)
        for (int ratio = 0; ratio < 2; ratio++) {
            char text[32];
            snprintf(text, sizeof text, "{\"ratio\": %d.0}", ratio);
            rig_call(&t.r, &merged, "ModelMergeSimple", text);
            call_give(&merged, "model1", both[first]);
            call_give(&merged, "model2", both[!first]);
            assert_ok(merged.c.cls->run(&merged.c, &err), err);
            struct htensor *got = picture(&t, merged.out[0].at[0]);
            assert_memory_equal(got->data, want[ratio ? first : !first]->data, bytes);
            htensor_unref(got);
            call_release(&merged);
        }
    htensor_unref(want[0]);
    htensor_unref(want[1]);
    call_release(&lora);
    tiny_close(&t);
}

/* A text encoder minus itself is 0; also where it is converted as it is loaded. */
static void clip_minus_itself(void **state)
{
    struct tiny t;
    struct call none;
    berth_err err = { 0 };
    (void)state;
    tiny_open(&t, "sample_sd15_tiny");
    tiny_sd15_file(&t);
    t.r.env.numbers.weights_text = "F16";
    assert_ok(rig_run(&t.r, &t.ckpt, "CheckpointLoaderSimple", "{\"ckpt_name\": \"" TINY_SD15 "\"}",
                      &err),
              err);
    rig_call(&t.r, &none, "CLIPMergeSubtract", "{\"multiplier\": 2}");
    call_give(&none, "clip1", t.ckpt.out[1].at[0]);
    call_give(&none, "clip2", t.ckpt.out[1].at[0]);
    assert_ok(none.c.cls->run(&none.c, &err), err);
    struct call x;
    char path[1100];
    rig_call(&t.r, &x, "CLIPSave", "{\"filename_prefix\": \"none\"}");
    call_give(&x, "clip", none.out[0].at[0]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    snprintf(path, sizeof path, "%s/output/none_clip_l_00001_.safetensors", t.r.base);
    struct weights *w = opened(path);
    assert_true(weights_count(w) > 10);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        uint8_t *bytes = malloc(e->size);
        assert_int_equal(e->dtype, DT_F16);
        assert_ok(weights_read(w, e, 0, bytes, (size_t)e->size, &err), err);
        for (size_t k = 0; k < e->size; k++)
            assert_true(bytes[k] == 0 || bytes[k] == 0x80); /* -0 is fine */
        free(bytes);
    }
    weights_close(w);
    call_release(&x);
    call_release(&none);
    tiny_close(&t);
}

/* Shapes that differ are an error that names the tensor, not a merge of some kind. */
static void unlike_models_do_not_merge(void **state)
{
    static const char *const lists[] = { "sdxl_tiny_unet_keys.json" };
    struct tiny t;
    struct call other, merged, x;
    berth_err err = { 0 };
    (void)state;
    setup(&t);
    tiny_write(rig_path(&t.r, "diffusion_models/xl.safetensors"), lists, 1, 0);
    assert_ok(rig_run(&t.r, &other, "UNETLoader", "{\"unet_name\": \"xl.safetensors\"}", &err),
              err);
    rig_call(&t.r, &merged, "ModelMergeSimple", "{\"ratio\": 0.5}");
    call_give(&merged, "model1", t.ckpt.out[0].at[0]);
    call_give(&merged, "model2", other.out[0].at[0]);
    assert_ok(merged.c.cls->run(&merged.c, &err), err);
    assert_int_equal(
        tiny_try(&t, &x, "KSampler", merged.out[0].at[0], settings, tiny_empty(1, 4, 8, 8), &err),
        BERTH_EFORMAT);
    assert_non_null(strstr(err.msg, "no merge of such two"));
    call_release(&x);
    call_release(&merged);
    call_release(&other);
    tiny_close(&t);
}

/* What a network has not: said by the node, before anything is sampled. */
static void patches_without_a_place(void **state)
{
    static const char *const refused[] = { "SkipLayerGuidanceDiT", "ScaleROPE" };
    struct tiny t;
    (void)state;
    setup(&t);
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct call x;
        berth_err err = { 0 };
        rig_call(&t.r, &x, refused[i], "{}");
        call_give(&x, "model", t.ckpt.out[0].at[0]);
        assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, refused[i]));
        call_release(&x);
    }
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(checkpoint_comes_back),
        cmocka_unit_test(parts_that_do_not_fit_together),
        cmocka_unit_test(parts_have_their_own_names),
        cmocka_unit_test(merges_are_saved),
        cmocka_unit_test(merges_hear_adapters),
        cmocka_unit_test(clip_minus_itself),
        cmocka_unit_test(unlike_models_do_not_merge),
        cmocka_unit_test(patches_without_a_place),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
