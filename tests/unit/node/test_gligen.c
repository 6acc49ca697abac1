/* GLIGENLoader and GLIGENTextBoxApply over tiny models: boxes of prompts, where a GLIGEN may live,
 * what is refused. Numbers: tests/golden/node/test_gligen.c. */
#include "support/loader_rig.h"
#include "support/nets.h"
#include "support/oom.h"
#include "support/tokenizer.h"

#include "model/gligen.h"
#include "node/compute.h"

#define TEXT 64 /* of the tiny CLIP */

static void linear(struct keys *k, const char *at, const char *name, uint64_t out, uint64_t in,
                   enum keys_bias bias)
{
    size_t mark = keys_enter(k, "%s", at);
    keys_linear(k, name, out, in, bias);
    keys_leave(k, mark);
}

static void fuser(struct keys *k, const char *at, uint64_t c)
{
    static const char *const seen[] = { "attn.to_q", "attn.to_k", "attn.to_v" };
    linear(k, at, "linear", c, 768, KEYS_BIAS);
    for (size_t i = 0; i < ARRAY_LEN(seen); i++)
        linear(k, at, seen[i], c, c, KEYS_NO_BIAS);
    linear(k, at, "attn.to_out.0", c, c, KEYS_BIAS);
    linear(k, at, "ff.net.0.proj", 8 * c, c, KEYS_BIAS);
    linear(k, at, "ff.net.2", c, 4 * c, KEYS_BIAS);
    size_t mark = keys_enter(k, "%s", at);
    keys_norm(k, "norm1", c);
    keys_norm(k, "norm2", c);
    keys_shape(k, "alpha_attn", &(struct shape) { .ndim = 0 });
    keys_shape(k, "alpha_dense", &(struct shape) { .ndim = 0 });
    keys_leave(k, mark);
}

/* A GLIGEN for the UNet of sd15-tiny. */
static const char *gligen_file(const char *name, uint64_t text)
{
    static const char lead[] = "model.diffusion_model.", end[] = ".norm1.weight";
    struct keys unet = { 0 }, k = { 0 };
    berth_err err = { 0 };
    assert_ok(preset_keys(preset_find("sd15-tiny"), &unet, &err), err);
    for (size_t i = 0; i < unet.n; i++) {
        const char *at = unet.at[i].name;
        size_t n = unet.at[i].name_len;
        char block[128];
        if (strncmp(at, lead, strlen(lead)) != 0 || !strstr(at, "transformer_blocks") ||
            strcmp(at + n - strlen(end), end) != 0)
            continue;
        snprintf(block, sizeof block, "%.*s.fuser", (int)(n - strlen(lead) - strlen(end)),
                 at + strlen(lead));
        fuser(&k, block, unet.at[i].shape.dim[0]);
    }
    linear(&k, "position_net.linears", "0", 512, text + 64, KEYS_BIAS);
    linear(&k, "position_net.linears", "2", 512, 512, KEYS_BIAS);
    linear(&k, "position_net.linears", "4", 768, 512, KEYS_BIAS);
    keys_tensor(&k, "position_net.null_positive_feature", text, 0, 0, 0);
    keys_tensor(&k, "position_net.null_position_feature", 64, 0, 0, 0);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, DT_F16, "safetensors", NULL);
    keys_release(&unet);
    keys_release(&k);
    return path;
}

struct scene {
    struct rig r;
    struct call ckpt, prompt;
    const char *folder[1];
    char path[512];
};

static void scene_open(struct scene *s, const char *devices, const char *device)
{
    char inputs[120];
    berth_err err = { 0 };
    *s = (struct scene) { .path = "" };
    rig_open(&s->r, devices);
    rig_preset(&s->r, "checkpoints/sd15.safetensors", "sd15-tiny");
    snprintf(s->path, sizeof s->path, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(s->path, &err), err);
    assert_true(tiny_tokenizer_write(tmp_path("tokenizers/clip"), false) > 0);
    s->folder[0] = s->path;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    s->r.env.assets = node_assets_new();
    assert_non_null(s->r.env.assets);
    snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"sd15.safetensors\", \"device\": \"%s\"}",
             device);
    assert_ok(rig_run(&s->r, &s->ckpt, "CheckpointLoaderSimpleMultiGPU", inputs, &err), err);
    rig_call(&s->r, &s->prompt, "CLIPTextEncode", "{\"text\": \"a photo\"}");
    call_give(&s->prompt, "clip", s->ckpt.out[1].at[0]);
    assert_ok(s->prompt.c.cls->run(&s->prompt.c, &err), err);
}

static void scene_close(struct scene *s)
{
    call_release(&s->prompt);
    call_release(&s->ckpt);
    node_assets_free(s->r.env.assets);
    rig_close(&s->r);
}

/* A GLIGEN where the plan says; one reference. */
static struct value *gligen_at(struct scene *s, const char *path, const char *alloc)
{
    const struct res_open_args args = {
        .path = path, .role = "model", .arch = arch_blocks, .plan = { .alloc = alloc }
    };
    struct model_ref ref = { .parts = 1 };
    berth_err err = { 0 };
    assert_ok(res_open(s->r.f.r, &args, &ref.part[0], NULL, &err), err);
    return value_model(&ref);
}

static berth_status apply(struct scene *s, struct call *x, struct value *to, struct value *gligen,
                          const char *inputs, berth_err *err)
{
    rig_call(&s->r, x, "GLIGENTextBoxApply", inputs);
    call_give(x, "conditioning_to", to);
    call_give(x, "clip", s->ckpt.out[1].at[0]);
    call_give(x, "gligen_textbox_model", gligen);
    return x->c.cls->run(&x->c, err);
}

#define BOX "{\"text\": \"a cat\", \"width\": 39, \"height\": 24, \"x\": 8, \"y\": 23}"

static const struct cond_entry *entry(const struct call *x)
{
    return ((const struct conditioning *)x->out[0].at[0]->object.obj)->at;
}

static void boxes_are_added(void **state)
{
    struct scene s;
    struct call once, twice, text;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "cpu=1g", "cpu");
    struct value *g = gligen_at(&s, gligen_file("boxes", TEXT), "cpu,*#cpu");
    assert_ok(apply(&s, &once, s.prompt.out[0].at[0], g, BOX, &err), err);
    assert_ok(apply(&s, &twice, once.out[0].at[0], g,
                    "{\"text\": \"the\", \"width\": 8, \"height\": 16, \"x\": 0, \"y\": 0}", &err),
              err);
    const struct cond_box *b = entry(&once)->box;
    assert_true(b->h == 3 && b->w == 4 && b->y == 2 && b->x == 1 && !b->before);
    assert_ptr_equal(entry(&once)->gligen, g);
    assert_null(entry(&s.prompt)->box); /* what was given stays as it is */
    assert_int_equal(cond_boxes(entry(&twice)->box), 2);
    assert_true(entry(&twice)->box->h == 2 && entry(&twice)->box->before == b);
    rig_call(&s.r, &text, "CLIPTextEncode", "{\"text\": \"a cat\"}");
    call_give(&text, "clip", s.ckpt.out[1].at[0]);
    assert_ok(text.c.cls->run(&text.c, &err), err);
    const struct htensor *pooled = entry(&text)->pooled;
    assert_int_equal(htensor_count(b->text), TEXT);
    assert_memory_equal(b->text->data, pooled->data, TEXT * sizeof(float));
    value_unref(g);
    struct call *const all[] = { &once, &twice, &text };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
    scene_close(&s);
}

static berth_status sample(struct scene *s, struct call *x, struct value *model,
                           struct value *positive, berth_err *err)
{
    const struct shape shape = { 4, { 2, 4, 8, 6 } };
    struct latent l = { .samples = NULL };
    assert_ok(htensor_zeros(&shape, &l.samples, err), *err);
    struct value *latent = value_latent(&l);
    rig_call(&s->r, x, "KSampler", "{\"steps\": 2, \"cfg\": 4.0, \"seed\": 7}");
    call_give(x, "model", model);
    call_give(x, "positive", positive);
    call_give(x, "negative", s->prompt.out[0].at[0]);
    call_give(x, "latent_image", latent);
    value_unref(latent);
    return x->c.cls->run(&x->c, err);
}

/* Boxes change the picture, and where the GLIGEN lives changes nothing. */
static void the_same_wherever_it_lives(void **state)
{
    static const char *const alloc[] = { "cpu,*#cpu", "null:0,*#cpu", "cpu,30%;null:0,70%#cpu" };
    struct scene s;
    struct call plain, got[ARRAY_LEN(alloc)];
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "cpu=1g,null:0=64m", "cpu");
    const char *path = gligen_file("lives", TEXT);
    assert_ok(sample(&s, &plain, s.ckpt.out[0].at[0], s.prompt.out[0].at[0], &err), err);
    const struct htensor *none = plain.out[0].at[0]->latent.samples;
    const size_t bytes = htensor_count(none) * sizeof(float);
    for (size_t i = 0; i < ARRAY_LEN(alloc); i++) {
        struct call boxed;
        struct value *g = gligen_at(&s, path, alloc[i]);
        assert_ok(apply(&s, &boxed, s.prompt.out[0].at[0], g, BOX, &err), err);
        assert_ok(sample(&s, &got[i], s.ckpt.out[0].at[0], boxed.out[0].at[0], &err), err);
        const float *x = got[i].out[0].at[0]->latent.samples->data;
        assert_memory_not_equal(x, none->data, bytes);
        assert_memory_equal(x, got[0].out[0].at[0]->latent.samples->data, bytes);
        call_release(&boxed);
        value_unref(g);
    }
    for (size_t i = 0; i < ARRAY_LEN(alloc); i++)
        call_release(&got[i]);
    call_release(&plain);
    scene_close(&s);
}

static void wrong_things_are_refused(void **state)
{
    struct scene s;
    struct call x, boxed, many[GLIGEN_BOXES];
    berth_err err = { 0 };
    (void)state;
    scene_open(&s, "cpu=1g,cuda:0@cpu=256m", "cuda:0");
    rig_preset(&s.r, "gligen/vae.safetensors", "vae-tiny");
    assert_int_equal(
        rig_run(&s.r, &x, "GLIGENLoader", "{\"gligen_name\": \"vae.safetensors\"}", &err),
        BERTH_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "no GLIGEN of text boxes"));
    call_release(&x);
    /* of another text encoder */
    struct value *g = gligen_at(&s, gligen_file("wide", 2 * TEXT), "cpu,*#cpu");
    assert_int_equal(apply(&s, &x, s.prompt.out[0].at[0], g, BOX, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "texts of width 128, this CLIP gives 64"));
    call_release(&x);
    value_unref(g);
    /* too many */
    g = gligen_at(&s, gligen_file("wrong", TEXT), "cpu,*#cpu");
    for (size_t i = 0; i < GLIGEN_BOXES; i++)
        assert_ok(apply(&s, &many[i], (i ? many[i - 1] : s.prompt).out[0].at[0], g, BOX, &err),
                  err);
    assert_int_equal(apply(&s, &x, many[GLIGEN_BOXES - 1].out[0].at[0], g, BOX, &err),
                     BERTH_ELIMIT);
    call_release(&x);
    for (size_t i = 0; i < GLIGEN_BOXES; i++)
        call_release(&many[i]);
    /* computes elsewhere than the model */
    assert_ok(apply(&s, &boxed, s.prompt.out[0].at[0], g, BOX, &err), err);
    assert_int_equal(sample(&s, &x, s.ckpt.out[0].at[0], boxed.out[0].at[0], &err),
                     BERTH_EUNSUPPORTED);
    assert_non_null(strstr(err.msg, "computes on cpu and 'sd15' on cuda:0"));
    call_release(&x);
    call_release(&boxed);
    value_unref(g);
    scene_close(&s);
}

static void no_memory_is_survived(void **state)
{
    struct net_rig g;
    struct net *of;
    berth_status s = BERTH_ENOMEM;
    berth_err err = { 0 };
    (void)state;
    net_rig_open(&g, "cpu=64m", gligen_file("oom", TEXT), NULL, NULL);
    const struct net_args a = net_rig_args(&g);
    for (long k = 0; s != BERTH_OK; k++) {
        struct gligen *made = NULL;
        assert_ok(net_open(&a, &of, &err), err);
        oom_after(k);
        s = gligen_open(&a, of, &made, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0] && !made));
        net_close(of);
        gligen_close(made);
    }
    net_rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(boxes_are_added),
        cmocka_unit_test(the_same_wherever_it_lives),
        cmocka_unit_test(wrong_things_are_refused),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
