/* Krea 2: the runs of every krea2_<model> of the manifest (support/dit_runs.h), and e2e_krea2_tiny, a
 * picture from two prompts through CLIPLoader, UNETLoader and VAELoader. */
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

static void text_to_picture(void **state)
{
    struct tiny t;
    struct call clip, unet, vae, latent, sampled, decoded;
    const char *tokenizers;
    char inputs[256];
    berth_err err = { 0 };
    (void)state;
    where_or_skip();
    tokenizer_or_skip("qwen25");
    tiny_open(&t, "e2e_krea2_tiny");
    tokenizers = tokenizer_dir("qwen25");
    t.r.env.tokenizers = &tokenizers;
    t.r.env.tokenizers_n = 1;
    load(&t, &clip, "qwen3vl_krea2_tiny_keys.json", "text_encoders", "CLIPLoader",
         "{\"clip_name\": \"krea2.safetensors\", \"type\": \"krea2\"}");
    load(&t, &unet, "krea2_tiny_keys.json", "diffusion_models", "UNETLoader",
         "{\"unet_name\": \"krea2.safetensors\"}");
    load(&t, &vae, "wan21_vae_tiny_keys.json", "vae", "VAELoader",
         "{\"vae_name\": \"krea2.safetensors\"}");
    tiny_prompt(&t, &t.positive, clip.out[0].at[0], tiny_text(t.settings, "positive"));
    tiny_prompt(&t, &t.negative, clip.out[0].at[0], tiny_text(t.settings, "negative"));
    near(&t, cond_of(&t.positive), "context", WHERE_MODULE);
    near(&t, cond_of(&t.negative), "negative", WHERE_MODULE);
    snprintf(inputs, sizeof inputs, "{\"width\": %d, \"height\": %d}",
             (int)tiny_number(t.settings, "width"), (int)tiny_number(t.settings, "height"));
    assert_ok(rig_run(&t.r, &latent, "EmptySD3LatentImage", inputs, &err), err);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %lld, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
             "\"scheduler\": \"%s\"}",
             (long long)tiny_number(t.settings, "seed"), (int)tiny_number(t.settings, "steps"),
             tiny_number(t.settings, "cfg"), tiny_text(t.settings, "sampler"),
             tiny_text(t.settings, "scheduler"));
    assert_ok(tiny_try(&t, &sampled, "KSampler", unet.out[0].at[0], inputs,
                       value_ref(latent.out[0].at[0]), &err),
              err);
    near(&t, call_latent(&sampled, 0), "latent", WHERE_RUN);
    rig_call(&t.r, &decoded, "VAEDecode", "{}");
    call_give(&decoded, "samples", sampled.out[0].at[0]);
    call_give(&decoded, "vae", vae.out[0].at[0]);
    assert_ok(decoded.c.cls->run(&decoded.c, &err), err);
    near(&t, decoded.out[0].at[0]->tensor, "image", WHERE_RUN);
    call_release(&decoded);
    call_release(&sampled);
    call_release(&latent);
    call_release(&vae);
    call_release(&unet);
    call_release(&clip);
    tiny_close(&t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run),
                                        cmocka_unit_test(text_to_picture) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
