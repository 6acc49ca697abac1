/* tiny_rig: the tiny models of the golden files behind real nodes, called as the executor calls
 * them.
 *
 *     struct tiny t;
 *     tiny_open(&t, "sample_sd15_tiny");             on the device of where.h
 *     tiny_sd15(&t);                                 checkpoint loaded, prompts encoded
 *     struct call x;
 *     tiny_sample(&t, &x, "KSampler", "{\"steps\": 8, ...}", latent);
 *     assert_true(tiny_off(call_latent(&x, 0), want) <= tiny_limit(&t, "euler/normal/8"));
 *     call_release(&x);
 *     tiny_close(&t);
 *
 * Weights are written from *_keys.json by the rule of the golden README, with what no file says
 * (heads) from the manifest's config. There is no pool: passes as small as these take longer with
 * one. */
#ifndef SUPPORT_TINY_RIG_H
#define SUPPORT_TINY_RIG_H

#include "support/golden.h"
#include "support/json_file.h"
#include "support/loader_rig.h"
#include "support/norm.h"
#include "support/tokenizer.h"
#include "support/where.h"

#include "model/keys.h"
#include "node/compute.h"

#include <math.h>

struct tiny {
    struct rig r;
    struct where at;
    const char *name;       /* of the golden file, without ending */
    json_t *manifest;       /* all of it */
    const json_t *settings; /* of the golden file */
    struct weights *golden;
    const char *tokenizers[1];
    struct call ckpt, positive, negative;
};

/* ---- files ---- */

static inline berth_status tiny_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                     berth_err *err)
{
    const struct weights_spec *s = (const struct weights_spec *)user + i;
    (void)err;
    synth_fill(s->name, strlen(s->name), &s->shape, off / sizeof(float), n / sizeof(float), dst);
    return BERTH_OK;
}

/* One file of the tensors in these key lists, F32, filled so. heads 0: not said. */
static inline void tiny_write_by(const char *path, const char *const *lists, size_t n, int heads,
                                 weights_fill_fn *fill)
{
    struct keys keys[4] = { 0 };
    struct weights_spec *spec = NULL;
    size_t count = 0;
    char text[16];
    berth_err err = { 0 };
    assert_true(n <= ARRAY_LEN(keys));
    for (size_t i = 0; i < n; i++) {
        assert_ok(keys_read(golden_path(lists[i]), &keys[i], &err), err);
        spec = realloc(spec, (count + keys[i].n) * sizeof *spec);
        assert_non_null(spec);
        for (size_t k = 0; k < keys[i].n; k++)
            spec[count++] = (struct weights_spec) { .name = keys[i].at[k].name,
                                                    .dtype = DT_F32,
                                                    .shape = keys[i].at[k].shape };
    }
    snprintf(text, sizeof text, "%d", heads);
    struct weights_meta_spec meta = { "berth.heads", text };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = spec,
                                       .count = count,
                                       .meta = &meta,
                                       .meta_count = heads ? 1 : 0,
                                       .fill = fill,
                                       .user = spec };
    assert_ok(weights_write(&args, &err), err);
    free(spec);
    for (size_t i = 0; i < n; i++)
        keys_release(&keys[i]);
}

static inline void tiny_write(const char *path, const char *const *lists, size_t n, int heads)
{
    tiny_write_by(path, lists, n, heads, tiny_fill);
}

static inline double tiny_number(const json_t *o, const char *key)
{
    const json_t *v = json_object_get(o, key);
    if (!json_is_number(v))
        fail_msg("the manifest has no number '%s'", key);
    return json_number_value(v);
}

static inline const char *tiny_text(const json_t *o, const char *key)
{
    const char *v = json_string_value(json_object_get(o, key));
    if (!v)
        fail_msg("the manifest has no text '%s'", key);
    return v;
}

/* ---- open, close ---- */

static inline void tiny_open(struct tiny *t, const char *golden)
{
    char file[96];
    berth_err err = { 0 };
    *t = (struct tiny) { .at = where_from_env(), .name = golden };
    rig_open(&t->r, t->at.devices);
    /* the golden numbers' noise was drawn on a cpu */
    t->r.env.numbers = (struct node_numbers) {
        .act_unet = t->at.act, .act_vae = t->at.act, .cpu_noise = true, .exact_guidance = true
    };
    t->tokenizers[0] = tokenizer_dir("clip");
    t->r.env.tokenizers = t->tokenizers;
    t->r.env.tokenizers_n = t->tokenizers[0] ? 1 : 0;
    t->r.env.assets = node_assets_new();
    assert_non_null(t->r.env.assets);
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &t->manifest, &err), err);
    t->settings = json_object_get(t->manifest, golden);
    assert_non_null(t->settings);
    snprintf(file, sizeof file, "%s.safetensors", golden);
    assert_ok(weights_open(golden_path(file), NULL, &t->golden, &err), err);
}

/* How far off a whole run may be (tiny_off()) whose result is this tensor of the golden file. */
static inline double tiny_limit(const struct tiny *t, const char *tensor)
{
    return where_limit(&t->at, WHERE_RUN, t->name, tensor);
}

static inline void tiny_close(struct tiny *t)
{
    call_release(&t->positive);
    call_release(&t->negative);
    call_release(&t->ckpt);
    weights_close(t->golden);
    json_decref(t->manifest);
    node_assets_free(t->r.env.assets);
    rig_close(&t->r);
}

#define TINY_SD15 "tiny_sd15.safetensors"

/* models/checkpoints/tiny_sd15.safetensors, once in a program's folder. */
static inline void tiny_sd15_file(struct tiny *t)
{
    static const char *const lists[] = { "sd15_tiny_clip_keys.json", "sd15_tiny_unet_keys.json",
                                         "sd15_tiny_vae_keys.json" };
    const char *path = rig_path(&t->r, "checkpoints/" TINY_SD15);
    const json_t *clip = json_object_get(json_object_get(t->manifest, "clip_l_tiny"), "config");
    FILE *there = fopen(path, "rb");
    if (there)
        fclose(there);
    else
        tiny_write(path, lists, 3, (int)tiny_number(clip, "num_attention_heads"));
}

static inline void tiny_prompt(struct tiny *t, struct call *x, struct value *clip, const char *text)
{
    berth_err err = { 0 };
    rig_call(&t->r, x, "CLIPTextEncode", "{}");
    call_give(x, "clip", clip);
    assert_ok(values_add(&x->in[node_input_index(x->c.cls, "text")],
                         value_string(text, strlen(text)), &err),
              err);
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

/* The checkpoint through `loader` with these inputs (ckpt_name among them), and the prompts of
 * `settings` encoded. */
static inline void tiny_load(struct tiny *t, const char *loader, const char *inputs,
                             const json_t *settings)
{
    berth_err err = { 0 };
    tiny_sd15_file(t);
    assert_ok(rig_run(&t->r, &t->ckpt, loader, inputs, &err), err);
    tiny_prompt(t, &t->positive, t->ckpt.out[1].at[0], tiny_text(settings, "positive"));
    tiny_prompt(t, &t->negative, t->ckpt.out[1].at[0], tiny_text(settings, "negative"));
}

static inline void tiny_sd15(struct tiny *t)
{
    tiny_load(t, "CheckpointLoaderSimple", "{\"ckpt_name\": \"" TINY_SD15 "\"}", t->settings);
}

/* ---- values ---- */

/* A golden tensor; NULL: there is none. */
static inline struct htensor *tiny_tensor(const struct tiny *t, const char *name)
{
    const struct weights_entry *e = weights_find(t->golden, name, strlen(name));
    struct htensor *out;
    berth_err err = { 0 };
    if (!e)
        return NULL;
    assert_int_equal(e->dtype, DT_F32);
    assert_ok(htensor_new(&e->shape, &out, &err), err);
    assert_ok(weights_read(t->golden, e, 0, out->data, (size_t)e->size, &err), err);
    return out;
}

/* Takes both; mask may be NULL. */
static inline struct value *tiny_latent(struct htensor *samples, struct htensor *mask)
{
    struct latent l = { .samples = samples, .noise_mask = mask };
    return value_latent(&l);
}

static inline struct value *tiny_empty(uint64_t n, uint64_t c, uint64_t h, uint64_t w)
{
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(htensor_zeros(&(struct shape) { .ndim = 4, .dim = { n, c, h, w } }, &t, &err), err);
    return tiny_latent(t, NULL);
}

static inline const struct htensor *call_latent(const struct call *x, size_t output)
{
    assert_int_equal(x->out[output].n, 1);
    assert_int_equal(x->out[output].at[0]->kind, V_LATENT);
    return x->out[output].at[0]->latent.samples;
}

/* Largest difference over the largest value of `want`. */
static inline double tiny_off(const struct htensor *got, const struct htensor *want)
{
    double off = 0, top = 0;
    char a[SHAPE_TEXT_MAX], b[SHAPE_TEXT_MAX];
    const struct where at = where_from_env();
    if (!shape_eq(&got->shape, &want->shape))
        fail_msg("shape %s, wanted %s", shape_text(&got->shape, a), shape_text(&want->shape, b));
    if (at.card && at.act != DT_F32) /* as nets.h holds 16 bits */
        return norm_error(got->data, want->data, (size_t)htensor_count(want));
    for (size_t i = 0; i < htensor_count(want); i++) {
        double d = fabs((double)got->data[i] - (double)want->data[i]);
        off = d > off || isnan(d) ? (isnan(d) ? HUGE_VAL : d) : off;
        top = fmax(top, fabs((double)want->data[i]));
    }
    return off / top;
}

/* A sampling node over the rig's model and prompts; inputs as JSON. Takes latent. */
static inline berth_status tiny_try(struct tiny *t, struct call *x, const char *cls,
                                    struct value *model, const char *inputs, struct value *latent,
                                    berth_err *err)
{
    rig_call(&t->r, x, cls, inputs);
    call_give(x, "model", model);
    call_give(x, "positive", t->positive.out[0].at[0]);
    call_give(x, "negative", t->negative.out[0].at[0]);
    call_give(x, "latent_image", latent);
    value_unref(latent);
    return x->c.cls->run(&x->c, err);
}

static inline void tiny_sample(struct tiny *t, struct call *x, const char *cls, const char *inputs,
                               struct value *latent)
{
    berth_err err = { 0 };
    assert_ok(tiny_try(t, x, cls, t->ckpt.out[0].at[0], inputs, latent, &err), err);
}

#endif
