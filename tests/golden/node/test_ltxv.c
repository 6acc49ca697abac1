/* LTX-Video: ltxv_run, videos from two prompts, one of which begins with a picture, through an
 * all-in-one checkpoint with its config in the metadata, CLIPLoader and the family's nodes; and the
 * runs of every ltxv_<model> of the manifest, whose prompts are tensors. */
#include "support/dit_runs.h"
#include "support/made_file.h"

static const json_t *config_of(const struct tiny *t, const char *name)
{
    return json_object_get(json_object_get(t->manifest, name), "config");
}

static void near(struct tiny *t, const struct htensor *got, const char *name, enum where_what what)
{
    struct htensor *want = tiny_tensor(t, name);
    double off = tiny_off(got, want);
    print_message("%s: %.3g off\n", name, off);
    assert_true(off <= where_limit(&t->at, what, t->name, name));
    htensor_unref(want);
}

static const struct conditioning *cond_of(const struct call *x, size_t output)
{
    return x->out[output].at[0]->object.obj;
}

/* ---- runs whose prompts are tensors ---- */

/* A prompt with what of it is padding. */
static struct value *masked(struct tiny *t, const char *name)
{
    struct value *v = tiny_given(t, name);
    struct cond_entry *e = ((struct conditioning *)v->object.obj)->at;
    const struct weights_entry *w = weights_find(t->golden, "attention_mask", 14);
    const struct shape s = { 2, { 1, dim(e->cond, 1) } };
    int64_t *mask = calloc((size_t)s.dim[1], sizeof *mask);
    berth_err err = { 0 };
    assert_true(mask && w);
    assert_ok(weights_read(t->golden, w, 0, mask, (size_t)w->size, &err), err);
    assert_ok(htensor_new(&s, &e->shown, &err), err);
    for (size_t i = 0; i < s.dim[1]; i++)
        e->shown->data[i] = (float)mask[i];
    e->cond->shape.dim[0] = 1; /* the first of them */
    free(mask);
    return v;
}

static size_t runs_of(const char *model)
{
    struct tiny t;
    struct call unet, x;
    char keys[96], path[128], inputs[256], kind[64];
    size_t runs = 0;
    berth_err err = { 0 };
    tiny_open(&t, model);
    char *config = made_config(config_of(&t, model), NULL);
    snprintf(keys, sizeof keys, "%s_keys.json", model);
    snprintf(path, sizeof path, "diffusion_models/%s.safetensors", model);
    made_file(rig_path(&t.r, path), &(struct made_part) { keys, "" }, 1,
              &(struct weights_meta_spec) { "config", config }, 1);
    free(config);
    snprintf(inputs, sizeof inputs, "{\"unet_name\": \"%s.safetensors\"}", model);
    assert_ok(rig_run(&t.r, &unet, "UNETLoader", inputs, &err), err);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (!tiny_run_of(&t, name, kind, inputs))
            continue;
        struct value *cond[2] = { masked(&t, "context"), masked(&t, "negative") };
        struct htensor *want = tiny_tensor(&t, name);
        tiny_ksample(&t, unet.out[0].at[0], cond, inputs, dit_empty(&want->shape, false), &x);
        near(&t, call_latent(&x, 0), name, WHERE_RUN);
        call_release(&x);
        htensor_unref(want);
        value_unref(cond[0]);
        value_unref(cond[1]);
        runs++;
    }
    call_release(&unet);
    tiny_close(&t);
    return runs;
}

static void every_run(void **state)
{
    json_t *manifest, *about;
    const char *name;
    size_t runs = 0;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about)
    {
        if (!strncmp(name, "ltxv_", 5) && strcmp(name, "ltxv_run") != 0)
            runs += runs_of(name);
    }
    assert_true(runs > 0);
    json_decref(manifest);
}

/* ---- from texts to a video ---- */

struct models {
    struct tiny t;
    const char *tokenizers;
    struct call ckpt, clip, pair;
};

static void models_open(struct models *m)
{
    struct tiny *t = &m->t;
    char model[96], vae[96], inputs[128];
    berth_err err = { 0 };
    tiny_open(t, "ltxv_run");
    m->tokenizers = tokenizer_dir("t5");
    t->r.env.tokenizers = &m->tokenizers;
    t->r.env.tokenizers_n = 1;
    snprintf(model, sizeof model, "%s_keys.json", tiny_text(t->settings, "model"));
    snprintf(vae, sizeof vae, "%s_keys.json", tiny_text(t->settings, "vae"));
    char *config = made_config(config_of(t, tiny_text(t->settings, "model")),
                               config_of(t, tiny_text(t->settings, "vae")));
    const struct made_part part[] = { { model, "model.diffusion_model." }, { vae, "vae." } };
    made_file(rig_path(&t->r, "checkpoints/ltxv.safetensors"), part, 2,
              &(struct weights_meta_spec) { "config", config }, 1);
    free(config);
    made_file(rig_path(&t->r, "text_encoders/t5.safetensors"),
              &(struct made_part) { "ltxv_run_t5_keys.json", "" }, 1, NULL, 0);
    assert_ok(rig_run(&t->r, &m->ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"ltxv.safetensors\"}", &err),
              err);
    assert_ok(rig_run(&t->r, &m->clip, "CLIPLoader",
                      "{\"clip_name\": \"t5.safetensors\", \"type\": \"ltxv\"}", &err),
              err);
    tiny_prompt(t, &t->positive, m->clip.out[0].at[0], tiny_text(t->settings, "positive"));
    tiny_prompt(t, &t->negative, m->clip.out[0].at[0], tiny_text(t->settings, "negative"));
    snprintf(inputs, sizeof inputs, "{\"frame_rate\": %g}", tiny_number(t->settings, "frame_rate"));
    rig_call(&t->r, &m->pair, "LTXVConditioning", inputs);
    call_give(&m->pair, "positive", t->positive.out[0].at[0]);
    call_give(&m->pair, "negative", t->negative.out[0].at[0]);
    assert_ok(m->pair.c.cls->run(&m->pair.c, &err), err);
}

static void models_close(struct models *m)
{
    call_release(&m->pair);
    call_release(&m->clip);
    call_release(&m->ckpt);
    tiny_close(&m->t);
}

static void sample(struct models *m, struct call *x, struct value *taken_latent)
{
    const json_t *set = m->t.settings;
    struct value *cond[2] = { m->pair.out[0].at[0], m->pair.out[1].at[0] };
    char inputs[256];
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %lld, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
             "\"scheduler\": \"%s\"}",
             (long long)tiny_number(set, "seed"), (int)tiny_number(set, "steps"),
             tiny_number(set, "cfg"), tiny_text(set, "sampler"), tiny_text(set, "scheduler"));
    tiny_ksample(&m->t, m->ckpt.out[0].at[0], cond, inputs, taken_latent, x);
}

static void text_to_video(void **state)
{
    struct models m;
    struct call latent, sampled, decoded;
    char inputs[128];
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tokenizer_or_skip("t5");
    models_open(&m);
    struct tiny *t = &m.t;
    near(t, cond_of(&m.pair, 0)->at[0].cond, "context", WHERE_MODULE);
    near(t, cond_of(&m.pair, 1)->at[0].cond, "negative", WHERE_MODULE);
    snprintf(inputs, sizeof inputs, "{\"width\": %d, \"height\": %d, \"length\": %d}",
             (int)tiny_number(t->settings, "width"), (int)tiny_number(t->settings, "height"),
             (int)tiny_number(t->settings, "length"));
    assert_ok(rig_run(&t->r, &latent, "EmptyLTXVLatentVideo", inputs, &err), err);
    sample(&m, &sampled, value_ref(latent.out[0].at[0]));
    near(t, call_latent(&sampled, 0), "latent", WHERE_RUN);
    rig_call(&t->r, &decoded, "VAEDecode", "{}");
    call_give(&decoded, "samples", sampled.out[0].at[0]);
    call_give(&decoded, "vae", m.ckpt.out[2].at[0]);
    assert_ok(decoded.c.cls->run(&decoded.c, &err), err);
    struct htensor *frames = htensor_ref(decoded.out[0].at[0]->tensor);
    struct htensor *want = tiny_tensor(t, "video"); /* [1, frames, h, w, 3] */
    assert_int_equal(htensor_count(frames), htensor_count(want));
    frames->shape = want->shape;
    htensor_unref(want);
    near(t, frames, "video", WHERE_RUN);
    htensor_unref(frames);
    call_release(&decoded);
    call_release(&sampled);
    call_release(&latent);
    models_close(&m);
}

static void picture_to_video(void **state)
{
    struct models m;
    struct call image, sampled;
    char inputs[160];
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tokenizer_or_skip("t5");
    models_open(&m);
    struct tiny *t = &m.t;
    struct value *photo = value_tensor(tiny_tensor(t, "photo"));
    snprintf(inputs, sizeof inputs,
             "{\"width\": %d, \"height\": %d, \"length\": %d, \"strength\": %g}",
             (int)tiny_number(t->settings, "width"), (int)tiny_number(t->settings, "height"),
             (int)tiny_number(t->settings, "length"), tiny_number(t->settings, "strength"));
    rig_call(&t->r, &image, "LTXVImgToVideo", inputs);
    call_give(&image, "positive", m.pair.out[0].at[0]);
    call_give(&image, "negative", m.pair.out[1].at[0]);
    call_give(&image, "vae", m.ckpt.out[2].at[0]);
    call_give(&image, "image", photo);
    assert_ok(image.c.cls->run(&image.c, &err), err);
    sample(&m, &sampled, value_ref(image.out[2].at[0]));
    near(t, call_latent(&sampled, 0), "from_picture", WHERE_RUN);
    call_release(&sampled);
    call_release(&image);
    value_unref(photo);
    models_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run),
                                        cmocka_unit_test(text_to_video),
                                        cmocka_unit_test(picture_to_video) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
