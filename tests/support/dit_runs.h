/* dit_runs: whole runs of the golden files of transformers over latents of pictures, through
 * UNETLoader and KSampler:
 *
 *     sample/<sampler>/<scheduler>/<steps>               prompts are `context` and `negative`
 *     sample_ref/<sampler>/<scheduler>/<steps>           both look at `ref`, by ReferenceLatent
 *     sample_ref_<method>/<sampler>/<scheduler>/<steps>  by this method, said by its node
 *     sample_nag/<sampler>/<scheduler>/<steps>           with NAGuidance (4, 0.4, 1.8), against
 *                                                        `negative_as_long`
 *
 * Seed and cfg are the manifest's. A run of one frame is also done with the latent of a picture,
 * [n, 16, h, w], as EmptySD3LatentImage gives it: the same. */
#ifndef SUPPORT_DIT_RUNS_H
#define SUPPORT_DIT_RUNS_H

#include "support/tiny_rig.h"

static inline struct value *dit_prompt(const struct tiny *t, const char *name)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(t, name), NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

/* The prompt with a latent to look at, in its place. */
static inline struct value *dit_looking(struct tiny *t, struct value *cond, const char *latent)
{
    struct call x;
    berth_err err = { 0 };
    struct value *l = tiny_latent(tiny_tensor(t, latent), NULL);
    rig_call(&t->r, &x, "ReferenceLatent", "{}");
    call_give(&x, "conditioning", cond);
    call_give(&x, "latent", l);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *got = value_ref(x.out[0].at[0]);
    value_unref(cond);
    value_unref(l);
    call_release(&x);
    return got;
}

/* It is looked at by this method, in the prompt's place. */
static inline struct value *dit_placed(struct tiny *t, struct value *cond, const char *method)
{
    struct call x;
    char inputs[96];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"reference_latents_method\": \"%s\"}", method);
    rig_call(&t->r, &x, "FluxKontextMultiReferenceLatentMethod", inputs);
    call_give(&x, "conditioning", cond);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *got = value_ref(x.out[0].at[0]);
    value_unref(cond);
    call_release(&x);
    return got;
}

static inline struct value *dit_empty(const struct shape *like, bool picture)
{
    struct shape s = *like;
    struct htensor *z;
    berth_err err = { 0 };
    if (picture)
        s = (struct shape) { 4, { s.dim[0], s.dim[1], s.dim[3], s.dim[4] } };
    assert_ok(htensor_zeros(&s, &z, &err), err);
    return tiny_latent(z, NULL);
}

static inline void dit_sample(struct tiny *t, struct value *model, struct value *const cond[2],
                              const char *inputs, struct value *latent, struct call *x)
{
    berth_err err = { 0 };
    rig_call(&t->r, x, "KSampler", inputs);
    call_give(x, "model", model);
    call_give(x, "positive", cond[0]);
    call_give(x, "negative", cond[1]);
    call_give(x, "latent_image", latent);
    value_unref(latent);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static inline void dit_nag(struct tiny *t, struct call *x, struct value *model)
{
    berth_err err = { 0 };
    rig_call(&t->r, x, "NAGuidance", "{\"nag_scale\": 4.0, \"nag_alpha\": 0.4, \"nag_tau\": 1.8}");
    call_give(x, "model", model);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

/* kind: what a run's name begins with. */
static inline double dit_run_one(struct tiny *t, struct value *model, const char *name,
                                 const char *kind, const char *inputs)
{
    static const char look[] = "sample_ref", how[] = "sample_ref_";
    const bool nag = !strcmp(kind, "sample_nag");
    struct value *cond[2] = { dit_prompt(t, "context"),
                              dit_prompt(t, nag ? "negative_as_long" : "negative") };
    struct htensor *want = tiny_tensor(t, name);
    struct call x, y, patched = { 0 };
    if (nag) {
        dit_nag(t, &patched, model);
        model = patched.out[0].at[0];
    }
    for (size_t i = 0; !strncmp(kind, look, strlen(look)) && i < 2; i++) {
        cond[i] = dit_looking(t, cond[i], "ref");
        if (!strncmp(kind, how, strlen(how)))
            cond[i] = dit_placed(t, cond[i], kind + strlen(how));
    }
    dit_sample(t, model, cond, inputs, dit_empty(&want->shape, false), &x);
    dit_sample(t, model, cond, inputs, dit_empty(&want->shape, want->shape.dim[2] == 1), &y);
    const struct htensor *a = call_latent(&x, 0), *b = call_latent(&y, 0);
    assert_true(shape_eq(&a->shape, &b->shape));
    assert_memory_equal(a->data, b->data, htensor_count(a) * sizeof *a->data);
    double off = tiny_off(a, want);
    call_release(&x);
    call_release(&y);
    if (nag)
        call_release(&patched);
    htensor_unref(want);
    value_unref(cond[0]);
    value_unref(cond[1]);
    return off;
}

/* All runs of a model; how many. */
static inline size_t dit_runs_of(const char *model)
{
    char keys[96];
    const char *const lists[] = { keys };
    struct tiny t;
    struct call unet;
    char kind[64], sampler[64], scheduler[64], inputs[256];
    int steps;
    size_t runs = 0, looked = 0, wrong = 0;
    berth_err err = { 0 };
    snprintf(keys, sizeof keys, "%s_keys.json", model);
    tiny_open(&t, model);
    tiny_write(rig_path(&t.r, "diffusion_models/tiny_dit.safetensors"), lists, 1, 0);
    assert_ok(rig_run(&t.r, &unet, "UNETLoader", "{\"unet_name\": \"tiny_dit.safetensors\"}", &err),
              err);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (sscanf(name, "%63[^/]/%63[^/]/%63[^/]/%d", kind, sampler, scheduler, &steps) != 4)
            continue;
        bool refs = !strncmp(kind, "sample_ref", 10);
        assert_true(refs || !strcmp(kind, "sample") || !strcmp(kind, "sample_nag"));
        snprintf(inputs, sizeof inputs,
                 "{\"seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%s\", "
                 "\"scheduler\": \"%s\"}",
                 (int)tiny_number(t.settings, "seed"), steps, tiny_number(t.settings, "cfg"),
                 sampler, scheduler);
        double off = dit_run_one(&t, unet.out[0].at[0], name, kind, inputs);
        print_message("%s %s: %.3g off\n", model, name, off);
        wrong += !(off <= tiny_limit(&t, name));
        looked += refs;
        runs++;
    }
    assert_true(runs > looked && looked > 0);
    assert_int_equal(wrong, 0);
    call_release(&unet);
    tiny_close(&t);
    return runs;
}

/* Every run of every <model> of the manifest that begins so. */
static inline void dit_runs(const char *begins)
{
    json_t *manifest, *about;
    const char *name;
    size_t runs = 0;
    berth_err err = { 0 };
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_object_foreach(manifest, name, about) runs +=
        strncmp(name, begins, strlen(begins)) == 0 ? dit_runs_of(name) : 0;
    assert_true(runs > 0);
    json_decref(manifest);
}

#endif
