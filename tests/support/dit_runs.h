/* dit_runs: whole runs of the golden files of transformers over latents of pictures, through
 * UNETLoader and KSampler:
 *
 *     sample/<sampler>/<scheduler>/<steps>               prompts are `context` and `negative`
 *     sample_ref/<sampler>/<scheduler>/<steps>           both look at `ref`, by ReferenceLatent
 *     sample_ref_<method>/<sampler>/<scheduler>/<steps>  by this method, said by its node
 *     sample_kv/<sampler>/<scheduler>/<steps>            as sample_ref, behind FluxKVCache
 *     sample_nag/<sampler>/<scheduler>/<steps>           with NAGuidance (4, 0.4, 1.8), against
 *                                                        `negative_as_long`
 *
 * Seed and cfg are the manifest's. A run of one frame is also done with the latent of a picture,
 * [n, 16, h, w], as EmptySD3LatentImage gives it: the same. */
#ifndef SUPPORT_DIT_RUNS_H
#define SUPPORT_DIT_RUNS_H

#include "support/tiny_runs.h"

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

/* How pictures are looked at, by the name of its runs; NULL: none are. */
static inline const char *dit_looks(const char *kind)
{
    static const char look[] = "sample_ref";
    if (!strcmp(kind, "sample_kv"))
        return "";
    return strncmp(kind, look, strlen(look)) == 0 ? kind + strlen(look) : NULL;
}

/* The model with what a run's name asks for; the caller's reference. */
static inline struct value *dit_patched(struct tiny *t, struct value *model, const char *kind)
{
    value_ref(model);
    if (!strcmp(kind, "sample_kv"))
        return tiny_through(t, model, "FluxKVCache", "model", "{}");
    if (!strcmp(kind, "sample_nag"))
        return tiny_through(t, model, "NAGuidance", "model",
                            "{\"nag_scale\": 4.0, \"nag_alpha\": 0.4, \"nag_tau\": 1.8}");
    return model;
}

static inline struct value *dit_looking(struct tiny *t, struct value *cond, const char *looks)
{
    char inputs[96];
    if (!looks)
        return cond;
    cond = tiny_looking(t, cond, "ref");
    if (looks[0] != '_')
        return cond;
    snprintf(inputs, sizeof inputs, "{\"reference_latents_method\": \"%s\"}", looks + 1);
    return tiny_through(t, cond, "FluxKontextMultiReferenceLatentMethod", "conditioning", inputs);
}

/* kind: what a run's name begins with. */
static inline double dit_run_one(struct tiny *t, struct value *model, const char *name,
                                 const char *kind, const char *inputs)
{
    const bool nag = !strcmp(kind, "sample_nag");
    struct value *cond[2] = { tiny_given(t, "context"),
                              tiny_given(t, nag ? "negative_as_long" : "negative") };
    struct value *with = dit_patched(t, model, kind);
    struct htensor *want = tiny_tensor(t, name);
    struct call x, y;
    for (size_t i = 0; i < 2; i++)
        cond[i] = dit_looking(t, cond[i], dit_looks(kind));
    tiny_ksample(t, with, cond, inputs, dit_empty(&want->shape, false), &x);
    tiny_ksample(t, with, cond, inputs, dit_empty(&want->shape, want->shape.dim[2] == 1), &y);
    const struct htensor *a = call_latent(&x, 0), *b = call_latent(&y, 0);
    assert_true(shape_eq(&a->shape, &b->shape));
    assert_memory_equal(a->data, b->data, htensor_count(a) * sizeof *a->data);
    double off = tiny_off(a, want);
    call_release(&x);
    call_release(&y);
    htensor_unref(want);
    value_unref(with);
    value_unref(cond[0]);
    value_unref(cond[1]);
    return off;
}

/* All runs of a model; how many. */
static inline size_t dit_runs_of(const char *model)
{
    struct tiny t;
    struct call unet;
    char kind[64], inputs[256];
    size_t runs = 0, looked = 0, wrong = 0;
    tiny_open(&t, model);
    tiny_unet(&t, model, &unet);
    for (size_t i = 0; i < weights_count(t.golden); i++) {
        const char *name = weights_at(t.golden, i)->name;
        if (!tiny_run_of(&t, name, kind, inputs))
            continue;
        assert_true(dit_looks(kind) || !strcmp(kind, "sample") || !strcmp(kind, "sample_nag"));
        double off = dit_run_one(&t, unet.out[0].at[0], name, kind, inputs);
        print_message("%s %s: %.3g off\n", model, name, off);
        wrong += !(off <= tiny_limit(&t, name));
        looked += dit_looks(kind) != NULL;
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
