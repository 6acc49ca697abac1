/* painted: runs of models that see a picture and a mask beside the latent, as golden cases have
 * them: {"picture", "mask", "noise_mask": names of tensors or null, "batch": latents}. The negative
 * prompt is half of the positive one. */
#ifndef SUPPORT_PAINTED_H
#define SUPPORT_PAINTED_H

#include "support/tiny_rig.h"

static inline struct htensor *painted_tensor(const struct tiny *t, const json_t *c, const char *key)
{
    const char *name = json_string_value(json_object_get(c, key));
    return name ? tiny_tensor(t, name) : NULL;
}

static inline struct value *painted_prompt(const struct tiny *t, const json_t *c,
                                           const char *pooled, float by)
{
    struct conditioning *x;
    berth_err err = { 0 };
    struct htensor *text = tiny_tensor(t, "context");
    for (size_t i = 0; i < htensor_count(text); i++)
        text->data[i] *= by;
    assert_ok(conditioning_new(text, tiny_tensor(t, pooled), &x, &err), err);
    x->at[0].concat_latent = painted_tensor(t, c, "picture");
    x->at[0].concat_mask = painted_tensor(t, c, "mask");
    return value_object(&type_conditioning, x);
}

/* As often as the case says. */
static inline struct value *painted_latents(const struct tiny *t, const json_t *c)
{
    struct htensor *one = tiny_tensor(t, "latent"), *all;
    struct shape s = one->shape;
    berth_err err = { 0 };
    s.dim[0] = (uint64_t)tiny_number(c, "batch");
    assert_ok(htensor_new(&s, &all, &err), err);
    for (size_t i = 0; i < (size_t)s.dim[0]; i++)
        memcpy(all->data + i * htensor_count(one), one->data,
               htensor_count(one) * sizeof *one->data);
    htensor_unref(one);
    return tiny_latent(all, painted_tensor(t, c, "noise_mask"));
}

/* How far off a run of this case is; pooled: the tensor with that text. */
static inline double painted_off(struct tiny *t, struct value *model, const json_t *c,
                                 const char *pooled, const char *scheduler, const char *result)
{
    struct call x;
    char inputs[200];
    berth_err err = { 0 };
    struct htensor *want = tiny_tensor(t, result);
    if (!want)
        fail_msg("no '%s'", result);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %d, \"steps\": %d, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"%s\"}",
             (int)tiny_number(t->settings, "seed"), (int)tiny_number(t->settings, "steps"),
             tiny_number(t->settings, "cfg"), scheduler);
    struct value *given[] = { painted_prompt(t, c, pooled, 1.0f),
                              painted_prompt(t, c, pooled, 0.5f), painted_latents(t, c) };
    rig_call(&t->r, &x, "KSampler", inputs);
    call_give(&x, "model", model);
    call_give(&x, "positive", given[0]);
    call_give(&x, "negative", given[1]);
    call_give(&x, "latent_image", given[2]);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    double off = tiny_off(call_latent(&x, 0), want);
    print_message("%s: %.3g off\n", result, off);
    for (size_t i = 0; i < ARRAY_LEN(given); i++)
        value_unref(given[i]);
    call_release(&x);
    htensor_unref(want);
    return off;
}

#endif
