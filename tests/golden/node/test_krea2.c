/* Krea 2: the runs of every krea2_<model> of the manifest (support/dit_runs.h), and e2e_krea2_tiny:
 * pictures from two prompts, which may show one, through CLIPLoader, UNETLoader and VAELoader. */
#include "support/dit_runs.h"

static void every_run(void **state)
{
    (void)state;
    where_or_skip();
    dit_runs("krea2_");
}

static void load(struct tiny *t, struct call *x, const char *keys, const char *folder,
                 const char *cls, const char *inputs)
{
    char path[96];
    const char *const lists[] = { keys };
    berth_err err = { 0 };
    snprintf(path, sizeof path, "%s/krea2.safetensors", folder);
    tiny_write(rig_path(&t->r, path), lists, 1, 0);
    assert_ok(rig_run(&t->r, x, cls, inputs, &err), err);
}

static void near(struct tiny *t, const struct htensor *got, const char *name, enum where_what what)
{
    struct htensor *want = tiny_tensor(t, name);
    double off = tiny_off(got, want);
    print_message("%s: %.3g off\n", name, off);
    assert_true(off <= where_limit(&t->at, what, t->name, name));
    htensor_unref(want);
}

static const struct htensor *cond_of(const struct call *x)
{
    const struct conditioning *c = x->out[0].at[0]->object.obj;
    return c->at[0].cond;
}

struct models {
    struct tiny t;
    const char *tokenizers;
    struct call clip, unet, vae, latent;
};

static void models_open(struct models *m)
{
    struct tiny *t = &m->t;
    char inputs[96];
    berth_err err = { 0 };
    tiny_open(t, "e2e_krea2_tiny");
    m->tokenizers = tokenizer_dir("qwen25");
    t->r.env.tokenizers = &m->tokenizers;
    t->r.env.tokenizers_n = 1;
    load(t, &m->clip, "qwen3vl_krea2_tiny_keys.json", "text_encoders", "CLIPLoader",
         "{\"clip_name\": \"krea2.safetensors\", \"type\": \"krea2\"}");
    load(t, &m->unet, "krea2_tiny_keys.json", "diffusion_models", "UNETLoader",
         "{\"unet_name\": \"krea2.safetensors\"}");
    load(t, &m->vae, "wan21_vae_tiny_keys.json", "vae", "VAELoader",
         "{\"vae_name\": \"krea2.safetensors\"}");
    snprintf(inputs, sizeof inputs, "{\"width\": %d, \"height\": %d}",
             (int)tiny_number(t->settings, "width"), (int)tiny_number(t->settings, "height"));
    assert_ok(rig_run(&t->r, &m->latent, "EmptySD3LatentImage", inputs, &err), err);
}

static void models_close(struct models *m)
{
    call_release(&m->latent);
    call_release(&m->vae);
    call_release(&m->unet);
    call_release(&m->clip);
    tiny_close(&m->t);
}

static void sample(struct models *m, struct call *x, int steps)
{
    const json_t *set = m->t.settings;
    char inputs[256];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %lld, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
             "\"scheduler\": \"%s\"}",
             (long long)tiny_number(set, "seed"), steps, tiny_number(set, "cfg"),
             tiny_text(set, "sampler"), tiny_text(set, "scheduler"));
    assert_ok(tiny_try(&m->t, x, "KSampler", m->unet.out[0].at[0], inputs,
                       value_ref(m->latent.out[0].at[0]), &err),
              err);
}

static void text_to_picture(void **state)
{
    struct models m;
    struct call sampled, decoded;
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tokenizer_or_skip("qwen25");
    models_open(&m);
    struct tiny *t = &m.t;
    tiny_prompt(t, &t->positive, m.clip.out[0].at[0], tiny_text(t->settings, "positive"));
    tiny_prompt(t, &t->negative, m.clip.out[0].at[0], tiny_text(t->settings, "negative"));
    near(t, cond_of(&t->positive), "context", WHERE_MODULE);
    near(t, cond_of(&t->negative), "negative", WHERE_MODULE);
    sample(&m, &sampled, (int)tiny_number(t->settings, "steps"));
    near(t, call_latent(&sampled, 0), "latent", WHERE_RUN);
    rig_call(&t->r, &decoded, "VAEDecode", "{}");
    call_give(&decoded, "samples", sampled.out[0].at[0]);
    call_give(&decoded, "vae", m.vae.out[0].at[0]);
    assert_ok(decoded.c.cls->run(&decoded.c, &err), err);
    near(t, decoded.out[0].at[0]->tensor, "image", WHERE_RUN);
    call_release(&decoded);
    call_release(&sampled);
    models_close(&m);
}

/* A prompt that shows `photo`, which the model looks at, too. */
static void edit_prompt(struct models *m, struct call *out, struct value *photo, const char *text)
{
    struct tiny *t = &m->t;
    struct call x;
    berth_err err = { 0 };
    rig_call(&t->r, &x, "TextEncodeQwenImageEditPlus", "{}");
    call_give(&x, "clip", m->clip.out[0].at[0]);
    call_give(&x, "vae", m->vae.out[0].at[0]);
    call_give(&x, "image1", photo);
    assert_ok(values_add(&x.in[node_input_index(x.c.cls, "prompt")],
                         value_string(text, strlen(text)), &err),
              err);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    rig_call(&t->r, out, "FluxKontextMultiReferenceLatentMethod",
             "{\"reference_latents_method\": \"index_timestep_zero\"}");
    call_give(out, "conditioning", x.out[0].at[0]);
    assert_ok(out->c.cls->run(&out->c, &err), err);
    call_release(&x);
}

static void a_picture_to_look_at(void **state)
{
    enum { STEPS = 2 }; /* of krea2.py, too: its latent has thousands of tokens */
    struct models m;
    struct call sampled;
    (void)state;
    where_or_skip();
    tokenizer_or_skip("qwen25");
    models_open(&m);
    struct tiny *t = &m.t;
    struct value *photo = value_tensor(tiny_tensor(t, "photo"));
    edit_prompt(&m, &t->positive, photo, tiny_text(t->settings, "positive"));
    edit_prompt(&m, &t->negative, photo, tiny_text(t->settings, "negative"));
    sample(&m, &sampled, STEPS);
    near(t, call_latent(&sampled, 0), "edit_latent", WHERE_RUN);
    call_release(&sampled);
    value_unref(photo);
    models_close(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run),
                                        cmocka_unit_test(text_to_picture),
                                        cmocka_unit_test(a_picture_to_look_at) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
