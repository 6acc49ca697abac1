/* tiny_runs: runs of a golden file's diffusion model through UNETLoader and KSampler, whose prompts
 * and latents to look at are tensors of the file.
 *
 * A run is <kind>/<sampler>/<scheduler>/<steps>; seed and cfg are the manifest's. */
#ifndef SUPPORT_TINY_RUNS_H
#define SUPPORT_TINY_RUNS_H

#include "support/tiny_rig.h"

/* A node over one MODEL or CONDITIONING in the place of that; inputs as JSON. */
static inline struct value *tiny_through(struct tiny *t, struct value *taken, const char *cls,
                                         const char *input, const char *inputs)
{
    struct call x;
    berth_err err = { 0 };
    rig_call(&t->r, &x, cls, inputs);
    call_give(&x, input, taken);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    struct value *got = value_ref(x.out[0].at[0]);
    value_unref(taken);
    call_release(&x);
    return got;
}

/* A prompt that a tensor is. */
static inline struct value *tiny_given(const struct tiny *t, const char *name)
{
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(conditioning_new(tiny_tensor(t, name), NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

/* The prompt with a latent to look at, in its place. */
static inline struct value *tiny_looking(struct tiny *t, struct value *cond, const char *latent)
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

/* KSampler over a latent, which it takes. */
static inline void tiny_ksample(struct tiny *t, struct value *model, struct value *const cond[2],
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

/* Is the tensor the result of a run? Then its kind and KSampler's inputs. */
static inline bool tiny_run_of(const struct tiny *t, const char *name, char kind[64],
                               char inputs[256])
{
    char sampler[64], scheduler[64];
    int steps;
    if (sscanf(name, "%63[^/]/%63[^/]/%63[^/]/%d", kind, sampler, scheduler, &steps) != 4 ||
        strncmp(kind, "sample", 6) != 0)
        return false;
    snprintf(inputs, 256,
             "{\"seed\": %.0f, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"%.40s\", "
             "\"scheduler\": \"%.40s\"}",
             tiny_number(t->settings, "seed"), steps, tiny_number(t->settings, "cfg"), sampler,
             scheduler);
    return true;
}

/* models/diffusion_models/<model>.safetensors, made from <model>_keys.json and loaded. */
static inline void tiny_unet(struct tiny *t, const char *model, struct call *unet)
{
    char keys[96], path[128], inputs[160];
    const char *const lists[] = { keys };
    berth_err err = { 0 };
    snprintf(keys, sizeof keys, "%s_keys.json", model);
    snprintf(path, sizeof path, "diffusion_models/%s.safetensors", model);
    snprintf(inputs, sizeof inputs, "{\"unet_name\": \"%s.safetensors\"}", model);
    tiny_write(rig_path(&t->r, path), lists, 1, 0);
    assert_ok(rig_run(&t->r, unet, "UNETLoader", inputs, &err), err);
}

#endif
