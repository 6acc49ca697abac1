/* Runs with control nets on their prompts, over tiny models: the manifest's controlnet.runs, each
 * with the nodes that it names and the result run/<name> of controlnet.safetensors.
 *   by    [{net, image, strength, start, end, type?, old?, vae?, mask?}], the first node first; old
 *         is ControlNetApply, mask ControlNetInpaintingAliMamaApply, else it is
 *         ControlNetApplyAdvanced; behind SetUnionControlNetType with a type
 *   patch {image, strength, mask?}: QwenImageDiffsynthControlnet with DiffSynth's for inpainting
 *   area  [h, w, y, x] in pixels of a second prompt, half of the positive, of strength 0.7
 *   told  control nets get another text; mean: the net's file is called ..._shuffle */
#include "support/tiny_rig.h"

struct runs {
    struct tiny t;
    struct call base[8], net[24], vae[2];
    char base_name[8][64], net_name[24][96], vae_name[2][64];
    size_t bases, nets, vaes;
};

/* A file of this key list through its loader, once. */
static struct value *load(struct runs *s, const char *list, const char *folder, const char *file,
                          const char *loader, const char *input, struct call *x)
{
    char path[160], inputs[160];
    const char *const lists[] = { list };
    berth_err err = { 0 };
    snprintf(path, sizeof path, "%s/%s", folder, file);
    tiny_write(rig_path(&s->t.r, path), lists, 1, 0);
    snprintf(inputs, sizeof inputs, "{\"%s\": \"%s\"}", input, file);
    assert_ok(rig_run(&s->t.r, x, loader, inputs, &err), err);
    return x->out[0].at[0];
}

static struct value *base_of(struct runs *s, const char *name)
{
    char list[96], file[96];
    for (size_t i = 0; i < s->bases; i++)
        if (!strcmp(s->base_name[i], name))
            return s->base[i].out[0].at[0];
    assert_true(s->bases < ARRAY_LEN(s->base));
    snprintf(s->base_name[s->bases], sizeof s->base_name[0], "%s", name);
    snprintf(list, sizeof list, "controlnet_base_%s_keys.json", name);
    snprintf(file, sizeof file, "%s.safetensors", name);
    return load(s, list, "diffusion_models", file, "UNETLoader", "unet_name", &s->base[s->bases++]);
}

static struct value *net_of(struct runs *s, const char *name, bool mean)
{
    char list[96], file[96];
    snprintf(file, sizeof file, "%s%s.safetensors", name, mean ? "_shuffle" : "");
    for (size_t i = 0; i < s->nets; i++)
        if (!strcmp(s->net_name[i], file))
            return s->net[i].out[0].at[0];
    assert_true(s->nets < ARRAY_LEN(s->net));
    snprintf(s->net_name[s->nets], sizeof s->net_name[0], "%s", file);
    snprintf(list, sizeof list, "controlnet_%s_keys.json", name);
    return load(s, list, "controlnet", file, "ControlNetLoader", "control_net_name",
                &s->net[s->nets++]);
}

static struct value *vae_of(struct runs *s, const char *base)
{
    char list[96], file[96];
    for (size_t i = 0; i < s->vaes; i++)
        if (!strcmp(s->vae_name[i], base))
            return s->vae[i].out[0].at[0];
    assert_true(s->vaes < ARRAY_LEN(s->vae));
    snprintf(s->vae_name[s->vaes], sizeof s->vae_name[0], "%s", base);
    snprintf(list, sizeof list, "controlnet_vae_%s_keys.json", base);
    snprintf(file, sizeof file, "%s.safetensors", base);
    return load(s, list, "vae", file, "VAELoader", "vae_name", &s->vae[s->vaes++]);
}

static struct conditioning *prompt(struct runs *s, const char *base, const char *kind)
{
    char name[96], pooled[96];
    struct conditioning *x;
    berth_err err = { 0 };
    snprintf(name, sizeof name, "%s/%s", base, kind);
    snprintf(pooled, sizeof pooled, "%s/%s_pooled", base, kind);
    assert_ok(conditioning_new(tiny_tensor(&s->t, name), tiny_tensor(&s->t, pooled), &x, &err),
              err);
    return x;
}

/* The positive with a second one that has an area. */
static struct conditioning *with_area(struct runs *s, const char *base, const json_t *area,
                                      struct conditioning *first)
{
    struct conditioning *second = prompt(s, base, "positive"), *out;
    struct cond_entry *e = &second->at[0];
    berth_err err = { 0 };
    for (size_t i = 0; i < htensor_count(e->cond); i++)
        e->cond->data[i] *= 0.5f;
    e->area_kind = AREA_PIXELS;
    for (size_t i = 0; i < 4; i++)
        e->area[i] = json_number_value(json_array_get(area, i));
    e->strength = 0.7;
    assert_ok(conditioning_join(first, second, &out, &err), err);
    conditioning_free(first);
    conditioning_free(second);
    return out;
}

static double number(const json_t *o, const char *key, double otherwise)
{
    const json_t *v = json_object_get(o, key);
    return v ? json_number_value(v) : otherwise;
}

/* One node: prompts [positive, negative] as it leaves them. */
static void steer_by(struct runs *s, const char *base, const json_t *by, bool mean,
                     struct value *prompts[2])
{
    const char *type = json_string_value(json_object_get(by, "type"));
    const bool old = json_is_true(json_object_get(by, "old"));
    struct value *net = value_ref(net_of(s, tiny_text(by, "net"), mean));
    char image[64], inputs[160];
    struct call x;
    berth_err err = { 0 };
    if (type) {
        snprintf(inputs, sizeof inputs, "{\"type\": \"%s\"}", type);
        rig_call(&s->t.r, &x, "SetUnionControlNetType", inputs);
        call_give(&x, "control_net", net);
        assert_ok(x.c.cls->run(&x.c, &err), err);
        value_unref(net);
        net = value_ref(x.out[0].at[0]);
        call_release(&x);
    }
    snprintf(image, sizeof image, "image/%s", tiny_text(by, "image"));
    struct value *picture = value_tensor(tiny_tensor(&s->t, image));
    snprintf(inputs, sizeof inputs,
             "{\"strength\": %g, \"start_percent\": %g, \"end_percent\": %g}",
             tiny_number(by, "strength"), tiny_number(by, "start"), tiny_number(by, "end"));
    if (old)
        snprintf(inputs, sizeof inputs, "{\"strength\": %g}", tiny_number(by, "strength"));
    const bool masked = json_is_true(json_object_get(by, "mask"));
    rig_call(&s->t.r, &x,
             old      ? "ControlNetApply"
             : masked ? "ControlNetInpaintingAliMamaApply"
                      : "ControlNetApplyAdvanced",
             inputs);
    if (masked) {
        struct value *mask = value_tensor(tiny_tensor(&s->t, "mask"));
        call_give(&x, "mask", mask);
        value_unref(mask);
    }
    if (json_is_true(json_object_get(by, "vae")))
        call_give(&x, "vae", vae_of(s, base));
    call_give(&x, old ? "conditioning" : "positive", prompts[0]);
    if (!old)
        call_give(&x, "negative", prompts[1]);
    call_give(&x, "control_net", net);
    call_give(&x, "image", picture);
    value_unref(picture);
    value_unref(net);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    for (size_t i = 0; i < (old ? 1 : 2); i++) {
        value_unref(prompts[i]);
        prompts[i] = value_ref(x.out[i].at[0]);
    }
    call_release(&x);
}

/* The model of a run; where it has a patch (DiffSynth's), with that. */
static struct value *model_of(struct runs *s, const char *base, const json_t *patch)
{
    struct value *model = base_of(s, base);
    struct call net, x;
    char image[64], inputs[64];
    berth_err err = { 0 };
    if (!patch)
        return value_ref(model);
    struct value *by = load(s, "controlnet_diffsynth_keys.json", "model_patches",
                            "diffsynth.safetensors", "ModelPatchLoader", "name", &net);
    snprintf(image, sizeof image, "image/%s", tiny_text(patch, "image"));
    struct value *picture = value_tensor(tiny_tensor(&s->t, image));
    snprintf(inputs, sizeof inputs, "{\"strength\": %g}", tiny_number(patch, "strength"));
    rig_call(&s->t.r, &x, "QwenImageDiffsynthControlnet", inputs);
    call_give(&x, "model", model);
    call_give(&x, "model_patch", by);
    call_give(&x, "vae", vae_of(s, base));
    call_give(&x, "image", picture);
    value_unref(picture);
    if (json_is_true(json_object_get(patch, "mask"))) {
        struct value *mask = value_tensor(tiny_tensor(&s->t, "mask"));
        call_give(&x, "mask", mask);
        value_unref(mask);
    }
    assert_ok(x.c.cls->run(&x.c, &err), err);
    model = value_ref(x.out[0].at[0]);
    call_release(&x);
    call_release(&net);
    return model;
}

static void tell(struct runs *s, struct conditioning *x)
{
    x->at[0].control_text = tiny_tensor(&s->t, "told");
    assert_non_null(x->at[0].control_text);
}

static double run_one(struct runs *s, const char *name, const json_t *run, bool steered)
{
    const char *base = tiny_text(run, "base");
    const json_t *by = json_object_get(run, "by"), *area = json_object_get(run, "area");
    struct conditioning *positive = prompt(s, base, "positive"),
                        *negative = prompt(s, base, "negative");
    char full[96], inputs[200];
    struct call x;
    berth_err err = { 0 };
    if (area)
        positive = with_area(s, base, area, positive);
    if (json_is_true(json_object_get(run, "told"))) {
        tell(s, positive);
        tell(s, negative);
    }
    struct value *prompts[2] = { value_object(&type_conditioning, positive),
                                 value_object(&type_conditioning, negative) };
    for (size_t i = 0; steered && i < json_array_size(by); i++)
        steer_by(s, base, json_array_get(by, i), json_is_true(json_object_get(run, "mean")),
                 prompts);
    snprintf(full, sizeof full, "run/%s", name);
    struct htensor *want = tiny_tensor(&s->t, full);
    assert_non_null(want);
    struct htensor *zeros;
    assert_int_equal(dim(want, 0), (int)number(run, "batch", 1));
    assert_ok(htensor_zeros(&want->shape, &zeros, &err), err);
    struct value *latent = tiny_latent(zeros, NULL);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": %.0f, \"steps\": %.0f, \"cfg\": %g, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"normal\"}",
             tiny_number(s->t.settings, "seed"), tiny_number(s->t.settings, "steps"),
             tiny_number(run, "cfg"));
    rig_call(&s->t.r, &x, "KSampler", inputs);
    struct value *model = model_of(s, base, steered ? json_object_get(run, "patch") : NULL);
    call_give(&x, "model", model);
    value_unref(model);
    call_give(&x, "positive", prompts[0]);
    call_give(&x, "negative", prompts[1]);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    assert_ok(x.c.cls->run(&x.c, &err), err);
    double off = tiny_off(call_latent(&x, 0), want);
    call_release(&x);
    htensor_unref(want);
    value_unref(prompts[0]);
    value_unref(prompts[1]);
    return off;
}

static void every_run(void **state)
{
    struct runs s = { .bases = 0 };
    size_t runs = 0, wrong = 0;
    const char *name;
    json_t *run;
    (void)state;
    where_or_skip();
    tiny_open(&s.t, "controlnet");
    json_object_foreach(json_object_get(s.t.settings, "runs"), name, run)
    {
        double off = run_one(&s, name, run, true), without = run_one(&s, name, run, false);
        print_message("%s: %.3g off, without them %.3g\n", name, off, without);
        wrong += !(off <= tiny_limit(&s.t, name)) || !(without > 1e-2);
        runs++;
    }
    assert_true(runs > 0);
    assert_int_equal(wrong, 0);
    for (size_t i = 0; i < s.bases; i++)
        call_release(&s.base[i]);
    for (size_t i = 0; i < s.nets; i++)
        call_release(&s.net[i]);
    for (size_t i = 0; i < s.vaes; i++)
        call_release(&s.vae[i]);
    tiny_close(&s.t);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_run) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
