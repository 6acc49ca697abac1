/* Flux through its nodes, on tiny models: every form of its loaders, its prompts and guidance, its
 * noise levels, where its noise is drawn. Numbers are held to ComfyUI's in tests/golden. */
#include "support/loader_rig.h"
#include "support/oom.h"
#include "support/tokenizer.h"

#include "node/compute.h"
#include "text/bpe.h"
#include "text/unigram.h"

#include <math.h>

#define DEVICES "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"

struct scene {
    struct rig r;
    char tokenizers[512];
    const char *folder[1];
    struct call unet, clip, vae;
};

static void models(struct rig *r)
{
    rig_preset(r, "diffusion_models/flux.safetensors", "flux-tiny");
    rig_preset(r, "diffusion_models/schnell.safetensors", "flux-schnell-tiny");
    rig_preset(r, "diffusion_models/flux.gguf", "flux-tiny");
    rig_preset(r, "diffusion_models/sd15.safetensors", "sd15-unet-tiny");
    rig_preset(r, "diffusion_models/sd15.gguf", "sd15-unet-tiny");
    rig_preset(r, "text_encoders/l.safetensors", "clip-l-tiny");
    rig_preset(r, "text_encoders/l.gguf", "clip-l-tiny");
    rig_preset(r, "text_encoders/t5.safetensors", "t5-tiny");
    rig_preset(r, "text_encoders/t5.gguf", "t5-tiny");
    rig_preset(r, "vae/ae.safetensors", "flux-tiny-vae");
}

static void tokenizers(struct scene *s)
{
    berth_err err = { 0 };
    snprintf(s->tokenizers, sizeof s->tokenizers, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(tmp_path("tokenizers/t5"), &err), err);
    assert_true(tiny_tokenizer_write(tmp_path("tokenizers/clip"), false) > 0);
    assert_ok(unigram_write_stand_in(tmp_path("tokenizers/t5"), &err), err);
    s->folder[0] = s->tokenizers;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
}

static int setup(void **state)
{
    static struct scene s;
    berth_err err = { 0 };
    s = (struct scene) { 0 };
    rig_open(&s.r, DEVICES);
    models(&s.r);
    tokenizers(&s);
    assert_ok(rig_run(&s.r, &s.unet, "UNETLoader", "{\"unet_name\": \"flux.safetensors\"}", &err),
              err);
    assert_ok(rig_run(&s.r, &s.clip, "DualCLIPLoader",
                      "{\"clip_name1\": \"t5.safetensors\", \"clip_name2\": \"l.safetensors\", "
                      "\"type\": \"flux\"}",
                      &err),
              err);
    assert_ok(rig_run(&s.r, &s.vae, "VAELoader", "{\"vae_name\": \"ae.safetensors\"}", &err), err);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    call_release(&s->unet);
    call_release(&s->clip);
    call_release(&s->vae);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
    return 0;
}

/* ---- calls ---- */

static void run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static struct value *output(const struct call *x, size_t i)
{
    assert_int_equal(x->out[i].n, 1);
    return x->out[i].at[0];
}

static void encode(struct scene *s, struct call *x, struct value *clip, const char *text)
{
    char inputs[160];
    snprintf(inputs, sizeof inputs, "{\"text\": \"%s\"}", text);
    rig_call(&s->r, x, "CLIPTextEncode", inputs);
    call_give(x, "clip", clip ? clip : output(&s->clip, 0));
    run(x);
}

static struct cond_entry *entry(const struct call *x)
{
    struct conditioning *c = output(x, 0)->object.obj;
    assert_int_equal(c->n, 1);
    return &c->at[0];
}

static bool same(const struct htensor *a, const struct htensor *b)
{
    return shape_eq(&a->shape, &b->shape) &&
           memcmp(a->data, b->data, htensor_count(a) * sizeof(float)) == 0;
}

/* A few steps; the latent is the caller's reference. */
static struct htensor *sample(struct scene *s, struct value *model, struct value *positive,
                              const char *sampler)
{
    char inputs[200];
    struct call x, latent;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &latent, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 1}", &err),
              err);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": 5, \"steps\": 3, \"cfg\": 1, \"sampler_name\": \"%s\", "
             "\"scheduler\": \"simple\"}",
             sampler);
    rig_call(&s->r, &x, "KSampler", inputs);
    call_give(&x, "model", model ? model : output(&s->unet, 0));
    call_give(&x, "positive", positive);
    call_give(&x, "negative", positive);
    call_give(&x, "latent_image", output(&latent, 0));
    run(&x);
    struct htensor *t = htensor_ref(output(&x, 0)->latent.samples);
    for (size_t i = 0; i < htensor_count(t); i++)
        assert_true(isfinite(t->data[i]));
    call_release(&x);
    call_release(&latent);
    return t;
}

/* ---- a picture ---- */

static void a_workflow_gives_a_picture(void **state)
{
    struct scene *s = *state;
    struct call text, guided, guider, noise, how, sigmas, latent, x, picture;
    berth_err err = { 0 };
    encode(s, &text, NULL, "photo of the cat");
    assert_int_equal(dim(entry(&text)->cond, 1), 256); /* T5's shortest */
    assert_int_equal(dim(entry(&text)->cond, 2), 64);
    assert_int_equal(htensor_count(entry(&text)->pooled), 64);
    rig_call(&s->r, &guided, "FluxGuidance", "{\"guidance\": 2.5}");
    call_give(&guided, "conditioning", output(&text, 0));
    run(&guided);
    rig_call(&s->r, &guider, "BasicGuider", "{}");
    call_give(&guider, "model", output(&s->unet, 0));
    call_give(&guider, "conditioning", output(&guided, 0));
    run(&guider);
    rig_call(&s->r, &sigmas, "BasicScheduler",
             "{\"scheduler\": \"simple\", \"steps\": 4, \"denoise\": 1}");
    call_give(&sigmas, "model", output(&s->unet, 0));
    run(&sigmas);
    assert_ok(rig_run(&s->r, &noise, "RandomNoise", "{\"noise_seed\": 9}", &err), err);
    assert_ok(rig_run(&s->r, &how, "KSamplerSelect", "{\"sampler_name\": \"euler\"}", &err), err);
    assert_ok(rig_run(&s->r, &latent, "EmptySD3LatentImage",
                      "{\"width\": 64, \"height\": 48, \"batch_size\": 2}", &err),
              err);
    assert_int_equal(dim(output(&latent, 0)->latent.samples, 1), 16);
    rig_call(&s->r, &x, "SamplerCustomAdvanced", "{}");
    call_give(&x, "noise", output(&noise, 0));
    call_give(&x, "guider", output(&guider, 0));
    call_give(&x, "sampler", output(&how, 0));
    call_give(&x, "sigmas", output(&sigmas, 0));
    call_give(&x, "latent_image", output(&latent, 0));
    run(&x);
    rig_call(&s->r, &picture, "VAEDecode", "{}");
    call_give(&picture, "samples", output(&x, 0));
    call_give(&picture, "vae", output(&s->vae, 0));
    run(&picture);
    const struct htensor *t = output(&picture, 0)->tensor;
    assert_int_equal(t->shape.ndim, 4);
    assert_int_equal(dim(t, 0), 2);
    assert_int_equal(dim(t, 1), 48);
    assert_int_equal(dim(t, 2), 64);
    struct call *const all[] = { &text,   &guided, &guider, &noise,  &how,
                                 &sigmas, &latent, &x,      &picture };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
}

/* ---- loaders ---- */

static bool has(const struct node_class *c, const char *input)
{
    return node_input_index(c, input) != SIZE_MAX;
}

static void add(struct str *to, const char *name, const char *value)
{
    bool number = value[0] >= '0' && value[0] <= '9';
    str_addf(to, "%s\"%s\": %s%s%s", to->n > 1 ? ", " : "", name, number ? "" : "\"", value,
             number ? "" : "\"");
}

/* Inputs of a form: the files, and a placement of those it declares. */
static void form_inputs(const struct node_class *c, const char *ext, const char *unet,
                        struct str *out)
{
    char file[64];
    str_clear(out);
    str_addc(out, '{');
    snprintf(file, sizeof file, "%s.%s", unet, ext);
    if (has(c, "unet_name"))
        add(out, "unet_name", file);
    snprintf(file, sizeof file, "l.%s", ext);
    if (has(c, "clip_name"))
        add(out, "clip_name", file);
    if (has(c, "clip_name1"))
        add(out, "clip_name1", file);
    snprintf(file, sizeof file, "t5.%s", ext);
    if (has(c, "clip_name2"))
        add(out, "clip_name2", file);
    if (has(c, "type"))
        add(out, "type", has(c, "clip_name2") ? "flux" : "stable_diffusion");
    if (has(c, "compute_device"))
        add(out, "compute_device", "cuda:0");
    if (has(c, "device") && strstr(c->name, "MultiGPU"))
        add(out, "device", "cuda:0");
    if (has(c, "virtual_vram_gb"))
        add(out, "virtual_vram_gb", "0.001");
    if (has(c, "donor_device"))
        add(out, "donor_device", "cuda:1");
    str_addc(out, '}');
    assert_false(out->bad);
}

static const struct node_class *base_class(size_t i, const char *const *base, size_t n)
{
    const struct node_class *c = node_at(i);
    for (size_t k = 0; k < n; k++)
        if (strncmp(c->name, base[k], strlen(base[k])) == 0)
            return c;
    return NULL;
}

static const char *ext_of(const struct node_class *c)
{
    return strstr(c->name, "GGUF") ? "gguf" : "safetensors";
}

/* A placed form computes where it was told to, and other bytes lie where it said. */
static void check_place(struct scene *s, const struct node_class *c, const struct call *x)
{
    struct res_model *m = call_model(x, 0)->part[0];
    if (!strstr(c->name, "MultiGPU"))
        return;
    assert_string_equal(res_compute(m)->name, "cuda:0");
    if (has(c, "donor_device"))
        assert_true(rig_bytes_on(&s->r, m, "cuda:1") > 0);
    else if (has(c, "virtual_vram_gb"))
        assert_true(rig_bytes_on(&s->r, m, "cpu") > 0);
    else
        assert_int_equal(rig_bytes_on(&s->r, m, "cuda:0"), res_info(m).bytes);
}

/* Every form that opens a diffusion model, on Flux and on SD1.5: the same picture. */
static void every_form_of_the_model_loaders(void **state)
{
    static const char *const base[] = { "UNETLoader", "UnetLoaderGGUF", "UNetLoaderLP" };
    static const char *const model[] = { "flux", "sd15" };
    struct scene *s = *state;
    struct str inputs = { 0 };
    struct call text;
    size_t forms = 0;
    encode(s, &text, NULL, "the cat");
    for (size_t k = 0; k < ARRAY_LEN(model); k++) {
        struct htensor *want[2] = { NULL, NULL };
        for (size_t i = 0; i < node_count(); i++) {
            const struct node_class *c = base_class(i, base, ARRAY_LEN(base));
            struct call x;
            berth_err err = { 0 };
            if (!c)
                continue;
            bool gguf = strstr(c->name, "GGUF");
            form_inputs(c, ext_of(c), model[k], &inputs);
            assert_ok(rig_run(&s->r, &x, c->name, str_c(&inputs), &err), err);
            check_place(s, c, &x);
            struct htensor *got = sample(s, output(&x, 0), output(&text, 0), "euler");
            if (want[gguf] && !same(got, want[gguf]))
                fail_msg("%s: another picture of %s", c->name, model[k]);
            if (!want[gguf])
                want[gguf] = htensor_ref(got);
            htensor_unref(got);
            call_release(&x);
            forms++;
        }
        htensor_unref(want[0]);
        htensor_unref(want[1]);
    }
    assert_int_equal(forms, 2 * 12);
    call_release(&text);
    str_release(&inputs);
}

/* Every form that opens Flux's two text encoders, and those that open one. */
static void every_form_of_the_text_loaders(void **state)
{
    static const char *const base[] = { "DualCLIPLoader", "CLIPLoader" };
    struct scene *s = *state;
    struct str inputs = { 0 };
    struct call want[2][2] = { 0 };
    size_t forms = 0;
    for (size_t i = 0; i < node_count(); i++) {
        const struct node_class *c = base_class(i, base, ARRAY_LEN(base));
        struct call x, text;
        berth_err err = { 0 };
        if (!c)
            continue;
        bool gguf = strstr(c->name, "GGUF"), dual = has(c, "clip_name2");
        form_inputs(c, ext_of(c), "", &inputs);
        assert_ok(rig_run(&s->r, &x, c->name, str_c(&inputs), &err), err);
        assert_int_equal(call_model(&x, 0)->parts, dual ? 2 : 1);
        check_place(s, c, &x);
        encode(s, &text, output(&x, 0), "photo of the cat");
        assert_int_equal(dim(entry(&text)->cond, 1), dual ? 256 : 77);
        struct call *w = &want[dual][gguf];
        if (w->c.cls && (!same(entry(&text)->cond, entry(w)->cond) ||
                         !same(entry(&text)->pooled, entry(w)->pooled)))
            fail_msg("%s: another conditioning", c->name);
        if (w->c.cls)
            call_release(&text);
        else
            *w = text;
        call_release(&x);
        forms++;
    }
    assert_int_equal(forms, 2 * 7);
    for (size_t i = 0; i < 4; i++)
        call_release(&want[i / 2][i % 2]);
    str_release(&inputs);
}

static void encoders_in_either_order(void **state)
{
    struct scene *s = *state;
    struct call other, a, b;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &other, "DualCLIPLoader",
                      "{\"clip_name1\": \"l.safetensors\", \"clip_name2\": \"t5.safetensors\", "
                      "\"type\": \"flux\"}",
                      &err),
              err);
    encode(s, &a, NULL, "a (red:1.3) dog");
    encode(s, &b, output(&other, 0), "a (red:1.3) dog");
    assert_true(same(entry(&a)->cond, entry(&b)->cond));
    assert_true(same(entry(&a)->pooled, entry(&b)->pooled));
    call_release(&other);
    call_release(&a);
    call_release(&b);
}

/* Tokens of a prompt whose encoder was told so. */
static uint64_t tokens_with(struct scene *s, const char *options)
{
    struct call told, text;
    rig_call(&s->r, &told, "T5TokenizerOptions", options);
    call_give(&told, "clip", output(&s->clip, 0));
    run(&told);
    encode(s, &text, output(&told, 0), "a dog");
    uint64_t n = dim(entry(&text)->cond, 1);
    call_release(&told);
    call_release(&text);
    return n;
}

/* Instead of what the set says: pads are added behind the text, then up to a length. */
static void t5_is_told_how_to_pad(void **state)
{
    struct scene *s = *state;
    uint64_t bare = tokens_with(s, "{\"min_padding\": 0, \"min_length\": 0}");
    assert_in_range(bare, 2, 40);
    assert_int_equal(tokens_with(s, "{\"min_padding\": 3, \"min_length\": 0}"), bare + 3);
    assert_int_equal(tokens_with(s, "{\"min_padding\": 3, \"min_length\": 50}"), 50);
    assert_int_equal(tokens_with(s, "{\"min_padding\": 60, \"min_length\": 50}"), bare + 60);
}

static void what_is_missing_is_named(void **state)
{
    static const struct {
        const char *one, *two, *why;
    } row[] = {
        { "t5", "t5", "type 'flux' wants CLIP-L and T5: CLIP-L is missing, two files are T5" },
        { "l", "l", "type 'flux' wants CLIP-L and T5: T5 is missing, two files are CLIP-L" },
    };
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        char inputs[160];
        snprintf(inputs, sizeof inputs,
                 "{\"clip_name1\": \"%s.safetensors\", \"clip_name2\": \"%s.safetensors\", "
                 "\"type\": \"flux\"}",
                 row[i].one, row[i].two);
        assert_fails(rig_run(&s->r, &x, "DualCLIPLoader", inputs, &err), err, BERTH_EINVAL,
                     row[i].why);
        call_release(&x);
    }
}

/* ---- weight_dtype ---- */

static void load_as(struct scene *s, struct call *x, const char *cls, const char *file,
                    const char *dtype)
{
    char inputs[160];
    berth_err err = { 0 };
    snprintf(inputs, sizeof inputs, "{\"unet_name\": \"%s\", \"weight_dtype\": \"%s\"}", file,
             dtype);
    assert_ok(rig_run(&s->r, x, cls, inputs, &err), err);
}

static struct htensor *picture_of(struct scene *s, const struct call *model)
{
    struct call text;
    encode(s, &text, NULL, "the cat");
    struct htensor *t = sample(s, output(model, 0), output(&text, 0), "euler");
    call_release(&text);
    return t;
}

static struct res_model *loaded(const struct call *x)
{
    return call_model(x, 0)->part[0];
}

/* A quarter of the bytes of an F32 file, and the picture of one that was saved in the type. */
static void a_weight_dtype_is_as_if_saved_so(void **state)
{
    static const struct {
        const char *cls, *preset, *dtype;
        enum dtype saved;
    } row[] = {
        { "UNETLoader", "flux-tiny", "fp8_e4m3fn", DT_F8_E4M3 },
        { "UNETLoader", "flux-tiny", "fp8_e4m3fn_fast", DT_F8_E4M3 },
        { "UNETLoader", "flux-tiny", "fp8_e5m2", DT_F8_E5M2 },
        { "UNETLoaderMultiGPU", "flux-tiny", "fp8_e4m3fn", DT_F8_E4M3 },
        { "UNETLoaderDisTorch2MultiGPU", "flux-tiny", "fp8_e4m3fn", DT_F8_E4M3 },
        { "UNETLoaderDisTorch2MultiGPU", "flux-tiny", "fp8_e5m2", DT_F8_E5M2 },
        { "UNETLoader", "sd15-unet-tiny", "fp8_e4m3fn", DT_F8_E4M3 },
        { "UNETLoaderMultiGPU", "sd15-unet-tiny", "fp8_e5m2", DT_F8_E5M2 },
    };
    struct scene *s = *state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call plain, x, saved;
        preset_write(row[i].preset, DT_F32, rig_path(&s->r, "diffusion_models/f32.safetensors"));
        preset_write(row[i].preset, row[i].saved,
                     rig_path(&s->r, "diffusion_models/saved.safetensors"));
        load_as(s, &plain, row[i].cls, "f32.safetensors", "default");
        load_as(s, &x, row[i].cls, "f32.safetensors", row[i].dtype);
        load_as(s, &saved, "UNETLoader", "saved.safetensors", "default");
        assert_ptr_not_equal(loaded(&plain), loaded(&x));
        assert_int_equal(res_info(loaded(&x)).bytes * 4, res_info(loaded(&plain)).bytes);
        assert_int_equal(res_info(loaded(&x)).resident, res_info(loaded(&saved)).resident);
        assert_int_equal(call_model(&x, 0)->said.fp8, strstr(row[i].dtype, "_fast") != NULL);
        struct htensor *wide = picture_of(s, &plain), *got = picture_of(s, &x),
                       *want = picture_of(s, &saved);
        if (!same(got, want))
            fail_msg("%s of %s: not the picture of such a file", row[i].dtype, row[i].preset);
        assert_false(same(got, wide));
        htensor_unref(wide);
        htensor_unref(got);
        htensor_unref(want);
        call_release(&plain);
        call_release(&x);
        call_release(&saved);
    }
}

static void a_weight_dtype_is_another_model(void **state)
{
    struct scene *s = *state;
    struct call f16, e4, fast, e5, saved, again;
    berth_err err = { 0 };
    preset_write("flux-tiny", DT_F8_E4M3, rig_path(&s->r, "diffusion_models/fp8.safetensors"));
    load_as(s, &f16, "UNETLoader", "flux.safetensors", "default");
    load_as(s, &e4, "UNETLoader", "flux.safetensors", "fp8_e4m3fn");
    load_as(s, &fast, "UNETLoader", "flux.safetensors", "fp8_e4m3fn_fast");
    load_as(s, &e5, "UNETLoader", "flux.safetensors", "fp8_e5m2");
    load_as(s, &saved, "UNETLoader", "fp8.safetensors", "default");
    load_as(s, &again, "UNETLoader", "fp8.safetensors", "fp8_e4m3fn");
    assert_ptr_equal(loaded(&f16), loaded(&s->unet));
    assert_true(loaded(&e4) != loaded(&f16) && loaded(&e5) != loaded(&e4));
    assert_ptr_equal(loaded(&fast), loaded(&e4)); /* it is about products, not about weights */
    assert_ptr_equal(loaded(&again), loaded(&saved));
    assert_int_equal(res_info(loaded(&e4)).resident * 2, res_info(loaded(&f16)).resident);
    assert_ok(res_check(s->r.f.r, &err), err);
    call_release(&f16);
    call_release(&e4);
    call_release(&fast);
    call_release(&e5);
    call_release(&saved);
    call_release(&again);
}

static void quantised_files_have_no_other_weight_dtype(void **state)
{
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    size_t models = res_model_count(s->r.f.r);
    preset_write("flux-tiny", DT_Q8_0, rig_path(&s->r, "diffusion_models/q8.gguf"));
    assert_fails(rig_run(&s->r, &x, "UNETLoader",
                         "{\"unet_name\": \"q8.gguf\", \"weight_dtype\": \"fp8_e4m3fn\"}", &err),
                 err, BERTH_EUNSUPPORTED, "weights of a GGUF file are not converted");
    assert_non_null(strstr(err.msg, "loading 'q8.gguf'"));
    assert_non_null(strstr(err.msg, "leave the type (weight_dtype, --dtype) at its default"));
    assert_int_equal(res_model_count(s->r.f.r), models);
    call_release(&x);
    load_as(s, &x, "UNETLoader", "q8.gguf", "default");
    call_release(&x);
}

/* ---- prompts and guidance ---- */

static void guidance_reaches_the_network(void **state)
{
    struct scene *s = *state;
    struct call text, two, none, low, zero;
    encode(s, &text, NULL, "the dog");
    rig_call(&s->r, &two, "CLIPTextEncodeFlux",
             "{\"clip_l\": \"the dog\", \"t5xxl\": \"the dog\", \"guidance\": 3.5}");
    call_give(&two, "clip", output(&s->clip, 0));
    run(&two);
    assert_true(same(entry(&text)->cond, entry(&two)->cond));
    assert_true(same(entry(&text)->pooled, entry(&two)->pooled));
    assert_int_equal(entry(&text)->guided, 0);
    assert_int_equal(entry(&two)->guided, 1);
    rig_call(&s->r, &low, "FluxGuidance", "{\"guidance\": 1.0}");
    call_give(&low, "conditioning", output(&text, 0));
    run(&low);
    rig_call(&s->r, &none, "FluxDisableGuidance", "{}");
    call_give(&none, "conditioning", output(&low, 0));
    run(&none);
    rig_call(&s->r, &zero, "ConditioningZeroOut", "{}"); /* and guidance stays */
    call_give(&zero, "conditioning", output(&low, 0));
    run(&zero);
    assert_int_equal(entry(&none)->guided, -1);
    assert_int_equal(entry(&zero)->guided, 1);
    assert_true(entry(&zero)->guidance == 1.0);
    assert_true(entry(&low)->guidance == 1.0 && entry(&text)->guided == 0); /* it was a copy */

    struct htensor *own = sample(s, NULL, output(&text, 0), "euler");
    struct htensor *said = sample(s, NULL, output(&two, 0), "euler");
    struct htensor *less = sample(s, NULL, output(&low, 0), "euler");
    struct htensor *off = sample(s, NULL, output(&none, 0), "euler");
    assert_true(same(own, said)); /* 3.5 is the default */
    assert_false(same(own, less));
    assert_false(same(own, off));
    assert_false(same(less, off));
    struct htensor *const all[] = { own, said, less, off };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        htensor_unref(all[i]);
    struct call *const calls[] = { &text, &two, &none, &low, &zero };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        call_release(calls[i]);
}

static void two_prompts_go_to_two_encoders(void **state)
{
    struct scene *s = *state;
    struct call a, b, both, wrong, l;
    berth_err err = { 0 };
    encode(s, &a, NULL, "the dog");
    encode(s, &b, NULL, "the cat");
    rig_call(&s->r, &both, "CLIPTextEncodeFlux",
             "{\"clip_l\": \"the dog\", \"t5xxl\": \"the cat\", \"guidance\": 2}");
    call_give(&both, "clip", output(&s->clip, 0));
    run(&both);
    assert_true(same(entry(&both)->pooled, entry(&a)->pooled)); /* CLIP-L's */
    assert_true(same(entry(&both)->cond, entry(&b)->cond));     /* T5's */
    assert_false(same(entry(&a)->cond, entry(&b)->cond));
    assert_ok(rig_run(&s->r, &l, "CLIPLoader",
                      "{\"clip_name\": \"l.safetensors\", \"type\": \"stable_diffusion\"}", &err),
              err);
    rig_call(&s->r, &wrong, "CLIPTextEncodeFlux",
             "{\"clip_l\": \"the dog\", \"t5xxl\": \"the cat\", \"guidance\": 2}");
    call_give(&wrong, "clip", output(&l, 0));
    assert_fails(wrong.c.cls->run(&wrong.c, &err), err, BERTH_EINVAL,
                 "two prompts are for Flux's text encoders, CLIP-L and T5; this is SD1's");
    struct call *const calls[] = { &a, &b, &both, &wrong, &l };
    for (size_t i = 0; i < ARRAY_LEN(calls); i++)
        call_release(calls[i]);
}

/* ---- noise levels ---- */

static void levels(struct scene *s, struct value *model, float out[5])
{
    struct call x;
    rig_call(&s->r, &x, "BasicScheduler",
             "{\"scheduler\": \"simple\", \"steps\": 4, \"denoise\": 1}");
    call_give(&x, "model", model);
    run(&x);
    assert_int_equal(dim(output(&x, 0)->tensor, 0), 5);
    memcpy(out, output(&x, 0)->tensor->data, 5 * sizeof *out);
    call_release(&x);
}

/* A shift whose noise levels are no numbers is refused where it is made. */
static void shifts_have_an_end(void **state)
{
    struct scene *s = *state;
    struct call x, patched;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &x, "UNETLoader", "{\"unet_name\": \"flux.safetensors\"}", &err), err);
    rig_call(&s->r, &patched, "ModelSamplingFlux",
             "{\"max_shift\": 100, \"base_shift\": 0, \"width\": 1024, \"height\": 1024}");
    call_give(&patched, "model", output(&x, 0));
    assert_fails(patched.c.cls->run(&patched.c, &err), err, BERTH_EINVAL,
                 "max_shift 100 and base_shift 0 make a shift of 100 at 1024 x 1024");
    call_release(&patched);
    call_release(&x);
}

static void noise_levels(void **state)
{
    static const struct {
        const char *cls, *inputs;
        const char *model;
        float want[4]; /* flux.md 7; the others by its formulas */
        float multiplier;
    } row[] = {
        { NULL, NULL, "flux.safetensors", { 1, .90453076f, .75951093f, .51284409f }, 0 },
        { NULL, NULL, "schnell.safetensors", { 1, .75f, .5f, .25f }, 1 },
        { "ModelSamplingFlux",
          "{\"max_shift\": 1.15, \"base_shift\": 0.5, \"width\": 1024, \"height\": 1024}",
          "schnell.safetensors",
          { 1, .90453076f, .75951093f, .51284409f },
          0 },
        { "ModelSamplingFlux",
          "{\"max_shift\": 1.15, \"base_shift\": 0.5, \"width\": 256, \"height\": 256}",
          "flux.safetensors",
          { 1, .83182f, .62246f, .35466f },
          0 },
        { "ModelSamplingSD3", "{\"shift\": 3.0}", "flux.safetensors", { 1, .9f, .75f, .5f }, 1000 },
        { "ModelSamplingAuraFlow",
          "{\"shift\": 3.0}",
          "flux.safetensors",
          { 1, .9f, .75f, .5f },
          1 },
    };
    struct scene *s = *state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct call x, patched = { 0 };
        struct msampling ms;
        char inputs[96];
        float got[5];
        berth_err err = { 0 };
        snprintf(inputs, sizeof inputs, "{\"unet_name\": \"%s\"}", row[i].model);
        assert_ok(rig_run(&s->r, &x, "UNETLoader", inputs, &err), err);
        if (row[i].cls) {
            rig_call(&s->r, &patched, row[i].cls, row[i].inputs);
            call_give(&patched, "model", output(&x, 0));
            run(&patched);
        }
        struct value *model = output(row[i].cls ? &patched : &x, 0);
        levels(s, model, got);
        for (size_t k = 0; k < 4; k++)
            if (fabsf(got[k] - row[i].want[k]) > 2e-5f)
                fail_msg("%s on %s: level %zu is %g", row[i].cls ? row[i].cls : "none",
                         row[i].model, k, (double)got[k]);
        assert_true(got[4] == 0);
        assert_ok(ready_msampling(&model->model, &ms, &err), err);
        assert_float_equal(ms_timestep(&ms, 0.5f),
                           row[i].multiplier > 0 ? 0.5f * row[i].multiplier : 0.5f, 1e-6f);
        ms_release(&ms);
        call_release(&patched);
        call_release(&x);
    }
}

/* ---- where noise is drawn ---- */

/* ComfyUI draws where the model computes; here a device says it is a card by its threads. */
static void noise_of_a_card(void **state)
{
    static const struct {
        const char *sampler;
        bool draws;
    } row[] = { { "euler", false },
                { "euler_ancestral", true },
                { "dpmpp_2m_sde", false }, /* its tree is always the cpu's */
                { "dpmpp_2m_sde_gpu", true } };
    struct scene *s = *state;
    struct call text;
    struct phys *p = res_compute(call_model(&s->unet, 0)->part[0])->phys;
    encode(s, &text, NULL, "the cat");
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        p->threads = 0;
        s->r.env.numbers.cpu_noise = false;
        struct htensor *host = sample(s, NULL, output(&text, 0), row[i].sampler);
        p->threads = 1024;
        struct htensor *card = sample(s, NULL, output(&text, 0), row[i].sampler);
        s->r.env.numbers.cpu_noise = true;
        struct htensor *told = sample(s, NULL, output(&text, 0), row[i].sampler);
        assert_true(same(host, card) == !row[i].draws);
        assert_true(same(host, told));
        htensor_unref(host);
        htensor_unref(card);
        htensor_unref(told);
    }
    p->threads = 0;
    call_release(&text);
}

/* ---- where tokenizers are found ---- */

static berth_status try_encode(struct scene *s, berth_err *err)
{
    struct call x;
    rig_call(&s->r, &x, "CLIPTextEncode", "{\"text\": \"a\"}");
    call_give(&x, "clip", output(&s->clip, 0));
    berth_status st = x.c.cls->run(&x.c, err);
    call_release(&x);
    return st;
}

/* Neither the loader nor the first use brings gigabytes in before it knows. */
static void want_of_one_loads_nothing(struct scene *s)
{
    struct call x;
    berth_err err = { 0 };
    struct res_model *m = call_model(&s->clip, 0)->part[0];
    size_t before = res_model_count(s->r.f.r);
    assert_fails(rig_run(&s->r, &x, "DualCLIPLoaderGGUF",
                         "{\"clip_name1\": \"t5.gguf\", \"clip_name2\": \"l.gguf\", "
                         "\"type\": \"flux\"}",
                         &err),
                 err, BERTH_ENOTFOUND, "no T5 tokenizer");
    call_release(&x);
    assert_int_equal(res_model_count(s->r.f.r), before);
    assert_ok(res_eject(m, &err), err);
    assert_fails(try_encode(s, &err), err, BERTH_ENOTFOUND, "no T5 tokenizer");
    assert_int_equal(res_info(m).resident, 0);
}

static void t5_tokenizers_are_found(void **state)
{
    struct scene *s = *state;
    char clip[600], t5[600], comfy[512];
    berth_err err = { 0 };
    struct node_assets *kept = s->r.env.assets;
    s->r.env.assets = NULL; /* opened again each time */
    snprintf(clip, sizeof clip, "%s/clip", s->tokenizers);
    snprintf(t5, sizeof t5, "%s/t5", s->tokenizers);
    const char *only_clip[] = { clip }, *both[] = { t5, clip }, *other[] = { clip, t5 };
    s->r.env.tokenizers = only_clip;
    assert_fails(try_encode(s, &err), err, BERTH_ENOTFOUND, "no T5 tokenizer");
    for (size_t i = 0; i < 2; i++)
        if (!strstr(err.msg, i ? "/t5xxl" : "text_encoders"))
            fail_msg("'%s' does not say where", err.msg);
    want_of_one_loads_nothing(s);
    s->r.env.tokenizers_n = 2; /* each folder holds one, a tokenizer.json among them */
    s->r.env.tokenizers = both;
    assert_ok(try_encode(s, &err), err);
    s->r.env.tokenizers = other;
    assert_ok(try_encode(s, &err), err);
    /* stand-ins of both in one folder, below the one that is given */
    snprintf(comfy, sizeof comfy, "%s", tmp_path("stand_in"));
    assert_ok(path_make_dirs(tmp_path("stand_in/clip"), &err), err);
    assert_ok(bpe_write_stand_in(tmp_path("stand_in/clip"), &err), err);
    assert_ok(unigram_write_stand_in(tmp_path("stand_in/clip"), &err), err);
    const char *stand_in[] = { comfy };
    s->r.env.tokenizers = stand_in;
    s->r.env.tokenizers_n = 1;
    assert_ok(try_encode(s, &err), err);
    /* ComfyUI's tree */
    snprintf(comfy, sizeof comfy, "%s", tmp_path("comfy"));
    assert_ok(path_make_dirs(tmp_path("comfy/text_encoders/t5_tokenizer"), &err), err);
    assert_true(tiny_tokenizer_write(tmp_path("comfy/sd1_tokenizer"), false) > 0);
    assert_ok(unigram_write_stand_in(tmp_path("comfy/text_encoders/t5_tokenizer"), &err), err);
    const char *tree[] = { comfy };
    s->r.env.tokenizers = tree;
    s->r.env.tokenizers_n = 1;
    assert_ok(try_encode(s, &err), err);
    /* beside the model */
    s->r.env.tokenizers = only_clip;
    char beside[1024];
    snprintf(beside, sizeof beside, "%s", rig_path(&s->r, "text_encoders/tokenizer.json"));
    *strrchr(beside, '/') = '\0';
    assert_ok(unigram_write_stand_in(beside, &err), err);
    assert_ok(try_encode(s, &err), err);
    assert_int_equal(remove(rig_path(&s->r, "text_encoders/tokenizer.json")), 0);
    assert_fails(try_encode(s, &err), err, BERTH_ENOTFOUND, "no T5 tokenizer");
    s->r.env.assets = kept; /* which has both */
    s->r.env.tokenizers = s->folder;
    assert_ok(try_encode(s, &err), err);
}

static void tokenizers_survive_exhaustion(void **state)
{
    struct scene *s = *state;
    struct node_assets *kept = s->r.env.assets;
    const struct weights *w = NULL;
    const struct model_ref *ref = call_model(&s->clip, 0);
    long k = 0;
    for (size_t i = 0; i < ref->parts; i++)
        if (strstr(res_info(ref->part[i]).name, "t5"))
            w = res_weights(ref->part[i]);
    assert_non_null(w);
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
    for (berth_status st = BERTH_ENOMEM; st; k++) {
        struct asset *clip = NULL, *t5 = NULL;
        berth_err err = { 0 };
        oom_after(k);
        st = asset_tokenizer(&s->r.env, &tokenizer_clip, NULL, &clip, &err);
        if (!st)
            st = asset_tokenizer(&s->r.env, &tokenizer_t5, w, &t5, &err);
        oom_off();
        if (st && st != BERTH_ENOMEM)
            fail_msg("allocation %ld: %s", k, err.msg);
        assert_true(!st || err.msg[0]);
        assert_true(!st == (clip && t5));
        asset_unref(clip);
        asset_unref(t5);
    }
    assert_true(k > 5);
    node_assets_free(s->r.env.assets);
    s->r.env.assets = kept;
}

#define T(f) cmocka_unit_test(f)
int main(void)
{
    const struct CMUnitTest tests[] = {
        T(a_workflow_gives_a_picture),
        T(every_form_of_the_model_loaders),
        T(every_form_of_the_text_loaders),
        T(encoders_in_either_order),
        T(t5_is_told_how_to_pad),
        T(what_is_missing_is_named),
        T(a_weight_dtype_is_as_if_saved_so),
        T(a_weight_dtype_is_another_model),
        T(quantised_files_have_no_other_weight_dtype),
        T(guidance_reaches_the_network),
        T(two_prompts_go_to_two_encoders),
        T(noise_levels),
        T(shifts_have_an_end),
        T(noise_of_a_card),
        T(t5_tokenizers_are_found),
        T(tokenizers_survive_exhaustion),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
