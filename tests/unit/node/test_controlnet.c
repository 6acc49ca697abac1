/* Control nets through their nodes, on tiny models: every form of the loaders, differences to a
 * model, what is refused. Numbers are held to ComfyUI's in tests/golden. */
#include "support/loader_rig.h"
#include "support/nets.h"
#include "support/oom.h"

#include "model/preset.h"
#include "model/synth.h"
#include "node/compute.h"
#include "tensor/convert.h"

#include <math.h>

#define DEVICES "cuda:0@cpu=256m,cuda:1@cpu=256m,cpu=1g"
#define WIDTH 64 /* of sd15-tiny's text */

struct scene {
    struct rig r;
    struct call unet;
    struct value *prompt, *image;
};

static struct value *some_prompt(size_t tokens)
{
    const struct shape s = { 3, { 1, tokens, WIDTH } };
    struct htensor *t;
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(htensor_new(&s, &t, &err), err);
    for (size_t i = 0; i < tokens * WIDTH; i++)
        t->data[i] = (float)((i * 7919 + tokens) % 1000) / 500.0f - 1.0f;
    assert_ok(conditioning_new(t, NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

static struct value *some_image(size_t n, size_t h, size_t w, size_t channels)
{
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(htensor_new(&(struct shape) { 4, { n, h, w, channels } }, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = (float)(i * 31 % 97) / 97.0f;
    return value_tensor(t);
}

static void scene_open(struct scene *s)
{
    berth_err err = { 0 };
    rig_open(&s->r, DEVICES);
    rig_preset(&s->r, "diffusion_models/sd15.safetensors", "sd15-unet-tiny");
    rig_preset(&s->r, "controlnet/net.safetensors", "controlnet-sd15-tiny");
    assert_ok(rig_run(&s->r, &s->unet, "UNETLoader", "{\"unet_name\": \"sd15.safetensors\"}", &err),
              err);
    s->prompt = some_prompt(7);
    s->image = some_image(1, 40, 72, 3);
}

static void scene_close(struct scene *s)
{
    value_unref(s->prompt);
    value_unref(s->image);
    call_release(&s->unet);
    rig_close(&s->r);
}

/* A run of two steps with this net on both prompts. x: of KSampler. */
static berth_status sample(struct scene *s, struct value *net, struct value *image,
                           const char *strength, struct call *x, berth_err *err)
{
    struct call apply;
    struct htensor *t;
    char inputs[96];
    snprintf(inputs, sizeof inputs,
             "{\"strength\": %s, \"start_percent\": 0.0, \"end_percent\": 1.0}", strength);
    rig_call(&s->r, &apply, "ControlNetApplyAdvanced", inputs);
    call_give(&apply, "positive", s->prompt);
    call_give(&apply, "negative", s->prompt);
    call_give(&apply, "control_net", net);
    call_give(&apply, "image", image);
    berth_status st = apply.c.cls->run(&apply.c, err);
    rig_call(&s->r, x, "KSampler",
             "{\"seed\": 3, \"steps\": 2, \"cfg\": 4, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"normal\"}");
    if (!st) {
        assert_ok(htensor_zeros(&(struct shape) { 4, { 1, 4, 6, 9 } }, &t, err), *err);
        struct value *latent = value_latent(&(struct latent) { .samples = t });
        call_give(x, "model", s->unet.out[0].at[0]);
        call_give(x, "positive", apply.out[0].at[0]);
        call_give(x, "negative", apply.out[1].at[0]);
        call_give(x, "latent_image", latent);
        value_unref(latent);
        st = x->c.cls->run(&x->c, err);
    }
    call_release(&apply);
    return st;
}

/* The two nodes of such a run, ready to be called. */
struct prepared {
    struct call apply, sample;
    struct value *latent;
};

static void prepare(struct scene *s, struct value *net, struct prepared *p)
{
    struct htensor *t;
    berth_err err = { 0 };
    rig_call(&s->r, &p->apply, "ControlNetApplyAdvanced",
             "{\"strength\": 0.9, \"start_percent\": 0.0, \"end_percent\": 1.0}");
    call_give(&p->apply, "positive", s->prompt);
    call_give(&p->apply, "negative", s->prompt);
    call_give(&p->apply, "control_net", net);
    call_give(&p->apply, "image", s->image);
    assert_ok(p->apply.c.cls->run(&p->apply.c, &err), err);
    rig_call(&s->r, &p->sample, "KSampler",
             "{\"seed\": 3, \"steps\": 1, \"cfg\": 4, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"normal\"}");
    assert_ok(htensor_zeros(&(struct shape) { 4, { 1, 4, 2, 2 } }, &t, &err), err);
    p->latent = value_latent(&(struct latent) { .samples = t });
    call_give(&p->sample, "model", s->unet.out[0].at[0]);
    call_give(&p->sample, "positive", p->apply.out[0].at[0]);
    call_give(&p->sample, "negative", p->apply.out[1].at[0]);
    call_give(&p->sample, "latent_image", p->latent);
}

static berth_status run_prepared(struct prepared *p, berth_err *err)
{
    return p->sample.c.cls->run(&p->sample.c, err);
}

static void release_prepared(struct prepared *p)
{
    call_release(&p->sample);
    call_release(&p->apply);
    value_unref(p->latent);
}

static const struct htensor *latent_of(const struct call *x)
{
    return x->out[0].at[0]->latent.samples;
}

static double apart(const struct htensor *a, const struct htensor *b)
{
    double off = 0;
    assert_true(shape_eq(&a->shape, &b->shape));
    for (size_t i = 0; i < htensor_count(a); i++)
        off = fmax(off, fabs((double)a->data[i] - (double)b->data[i]));
    return off;
}

static void every_loader_gives_the_same_bits(void **state)
{
    static const struct {
        const char *loader, *inputs;
    } row[] = {
        { "ControlNetLoader", "{\"control_net_name\": \"net.safetensors\"}" },
        { "ControlNetLoaderMultiGPU",
          "{\"control_net_name\": \"net.safetensors\", \"device\": \"cuda:1\"}" },
        { "ControlNetLoaderMultiGPU",
          "{\"control_net_name\": \"net.safetensors\", \"device\": \"cpu\"}" },
        { "ControlNetLoaderDisTorch2MultiGPU",
          "{\"control_net_name\": \"net.safetensors\", \"compute_device\": \"cuda:0\", "
          "\"virtual_vram_gb\": 0.001, \"donor_device\": \"cpu\", "
          "\"expert_mode_allocations\": \"\", \"eject_models\": false}" },
        { "ControlNetLoaderDisTorch2MultiGPU",
          "{\"control_net_name\": \"net.safetensors\", \"compute_device\": \"cuda:0\", "
          "\"virtual_vram_gb\": 0.0, \"donor_device\": \"cpu\", "
          "\"expert_mode_allocations\": \"cuda:0,30%;cuda:1,30%;cpu,*\", "
          "\"eject_models\": false}" },
    };
    struct scene s;
    struct call first, x, net, none;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        assert_ok(rig_run(&s.r, &net, row[i].loader, row[i].inputs, &err), err);
        assert_ok(sample(&s, net.out[0].at[0], s.image, "0.9", i ? &x : &first, &err), err);
        if (i) {
            assert_memory_equal(latent_of(&x)->data, latent_of(&first)->data,
                                htensor_count(latent_of(&x)) * sizeof(float));
            call_release(&x);
        } else {
            assert_ok(sample(&s, net.out[0].at[0], s.image, "0.0", &none, &err), err);
            assert_true(apart(latent_of(&none), latent_of(&first)) > 1e-2);
            call_release(&none);
        }
        call_release(&net);
    }
    call_release(&first);
    scene_close(&s);
}

/* ---- differences ---- */

#define FRONT "control_model."
#define BASE "model.diffusion_model."

struct difference {
    const struct weights_spec *spec;
    const struct weights *base;
    bool added; /* with the model's added again, as it will be: rounded where that is */
};

/* What the tensor of the plain file has more than the model's. */
static berth_status fill_difference(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                    berth_err *err)
{
    const struct difference *d = user;
    const struct weights_spec *s = &d->spec[i];
    float *to = dst;
    char name[256];
    (void)err;
    synth_fill(s->name, strlen(s->name), &s->shape, off / sizeof(float), n / sizeof(float), to);
    if (strncmp(s->name, FRONT, strlen(FRONT)) != 0)
        return BERTH_OK;
    snprintf(name, sizeof name, BASE "%s", s->name + strlen(FRONT));
    const struct weights_entry *e = weights_find(d->base, name, strlen(name));
    if (!e)
        return BERTH_OK;
    const size_t each = dtype_desc(e->dtype)->bytes, count = n / sizeof(float);
    float *less = calloc(count, sizeof *less);
    uint8_t *raw = calloc(count, each);
    assert_true(less && raw);
    assert_ok(weights_read(d->base, e, off / sizeof(float) * each, raw, count * each, err), *err);
    assert_ok(convert(e->dtype, raw, DT_F32, less, count, err), *err);
    free(raw);
    for (size_t k = 0; k < n / sizeof(float); k++)
        to[k] = d->added ? to[k] - less[k] + less[k] : to[k] - less[k];
    free(less);
    return BERTH_OK;
}

static void write_difference(struct scene *s, const char *file, bool added)
{
    struct keys k = { 0 };
    berth_err err = { 0 };
    struct difference d;
    assert_ok(preset_keys(preset_find("controlnet-sd15-tiny"), &k, &err), err);
    struct weights_spec *spec = calloc(k.n + 1, sizeof *spec);
    assert_non_null(spec);
    for (size_t i = 0; i < k.n; i++)
        spec[i] = (struct weights_spec) { k.at[i].name, DT_F32, k.at[i].shape };
    spec[k.n] = (struct weights_spec) { "difference", DT_F32, { 1, { 1 } } };
    d.spec = spec;
    d.added = added;
    d.base = res_weights(s->unet.out[0].at[0]->model.part[0]);
    struct weights_write_args args = { .format = "safetensors",
                                       .path = rig_path(&s->r, file),
                                       .spec = spec,
                                       .count = k.n + 1,
                                       .fill = fill_difference,
                                       .user = &d };
    assert_ok(weights_write(&args, &err), err);
    free(spec);
    keys_release(&k);
}

static void a_difference_is_added_to_the_model(void **state)
{
    static const char *const loader[] = { "DiffControlNetLoader", "ControlNetLoader" };
    struct scene s;
    struct call plain, net, x;
    double off[2];
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    write_difference(&s, "controlnet/diff.safetensors", false);
    write_difference(&s, "controlnet/whole.safetensors", true);
    assert_ok(rig_run(&s.r, &net, "ControlNetLoader",
                      "{\"control_net_name\": \"whole.safetensors\"}", &err),
              err);
    assert_ok(sample(&s, net.out[0].at[0], s.image, "1.0", &plain, &err), err);
    call_release(&net);
    for (size_t i = 0; i < 2; i++) {
        rig_call(&s.r, &net, loader[i], "{\"control_net_name\": \"diff.safetensors\"}");
        if (i == 0)
            call_give(&net, "model", s.unet.out[0].at[0]);
        assert_ok(net.c.cls->run(&net.c, &err), err);
        assert_ok(sample(&s, net.out[0].at[0], s.image, "1.0", &x, &err), err);
        off[i] = apart(latent_of(&x), latent_of(&plain));
        call_release(&x);
        call_release(&net);
    }
    assert_true(off[0] == 0);
    assert_true(off[1] > 1e-2); /* on its own it is another one */
    call_release(&plain);
    scene_close(&s);
}

/* Any allocation of a steered run may fail: it ends, says so, and holds nothing. */
static void runs_survive_exhausted_memory(void **state)
{
    struct scene s;
    struct call net;
    long total = 0, failed = 0;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    assert_ok(rig_run(&s.r, &net, "ControlNetLoader", "{\"control_net_name\": \"net.safetensors\"}",
                      &err),
              err);
    for (long k = 0; !total; k++) {
        berth_err said = { 0 };
        struct prepared p;
        prepare(&s, net.out[0].at[0], &p);
        oom_once(k);
        berth_status st = run_prepared(&p, &said);
        long seen = oom_seen();
        oom_off();
        if (st && (st != BERTH_ENOMEM || !said.msg[0]))
            fail_msg("allocation %ld: %d '%s'", k, (int)st, said.msg);
        failed += st != BERTH_OK;
        total = st || seen > k ? 0 : seen; /* none failed: all were tried */
        release_prepared(&p);
        assert_int_equal(res_info(s.unet.out[0].at[0]->model.part[0]).uses, 0);
        assert_int_equal(res_info(net.out[0].at[0]->model.part[0]).uses, 0);
    }
    assert_true(failed > 20);
    print_message("%ld allocations, %ld of them end a run\n", total, failed);
    call_release(&net);
    scene_close(&s);
}

/* ---- what is refused ---- */

static void has(const berth_err *err, const char *text)
{
    if (!strstr(err->msg, text))
        fail_msg("'%s' does not say '%s'", err->msg, text);
}

static void another_family_is_refused(void **state)
{
    struct scene s;
    struct call net, x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    rig_preset(&s.r, "controlnet/xl.safetensors", "controlnet-sdxl-tiny");
    assert_ok(
        rig_run(&s.r, &net, "ControlNetLoader", "{\"control_net_name\": \"xl.safetensors\"}", &err),
        err);
    assert_int_equal(sample(&s, net.out[0].at[0], s.image, "1.0", &x, &err), BERTH_EINVAL);
    has(&err, "xl.safetensors");
    has(&err, "SD1.5");
    has(&err, "width 64 on, texts of width 128");
    has(&err, "width 32 on");
    call_release(&x);
    call_release(&net);
    scene_close(&s);
}

static void odd_pictures_are_refused(void **state)
{
    struct scene s;
    struct call net, x;
    struct value *grey = some_image(1, 8, 8, 1);
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    assert_ok(rig_run(&s.r, &net, "ControlNetLoader", "{\"control_net_name\": \"net.safetensors\"}",
                      &err),
              err);
    assert_int_equal(sample(&s, net.out[0].at[0], grey, "1.0", &x, &err), BERTH_EINVAL);
    has(&err, "a picture of 1 channels");
    call_release(&x);
    assert_int_equal(sample(&s, s.unet.out[0].at[0], s.image, "1.0", &x, &err), BERTH_EUNSUPPORTED);
    has(&err, "holds no control net");
    call_release(&x);
    value_unref(grey);
    call_release(&net);
    scene_close(&s);
}

/* Kinds that nobody computes are refused with their prompt: nothing is loaded for it. */
static void other_kinds_are_refused_before_anything_is_loaded(void **state)
{
    static const struct {
        const char *tensor, *says;
    } row[] = {
        { "lora_controlnet", "a control LoRA" },
        { "pos_embed_input.proj.weight", "a ControlNet for SD3" },
        { "after_proj_list.18.bias", "a ControlNet for Hunyuan-DiT" },
        { "something.else", "no control net of a kind that is known" },
    };
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=1g");
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct keys k = { 0 };
        char name[64], inputs[96];
        const char *input = NULL;
        berth_err err = { 0 };
        keys_tensor(&k, row[i].tensor, 4, 4, 0, 0);
        snprintf(name, sizeof name, "controlnet/%zu.safetensors", i);
        struct weights_spec spec = { k.at[0].name, DT_F32, k.at[0].shape };
        struct difference none = { .spec = &spec };
        struct weights_write_args args = { .format = "safetensors",
                                           .path = rig_path(&r, name),
                                           .spec = &spec,
                                           .count = 1,
                                           .fill = fill_difference,
                                           .user = &none };
        assert_ok(weights_write(&args, &err), err);
        snprintf(inputs, sizeof inputs, "{\"control_net_name\": \"%zu.safetensors\"}", i);
        json_t *given = json_loads(inputs, 0, NULL);
        struct node_check check = {
            .env = &r.env, .cls = node_find("ControlNetLoader"), .id = "1", .inputs = given
        };
        assert_int_equal(node_look(&check, &input, &err), BERTH_EUNSUPPORTED);
        has(&err, row[i].says);
        assert_string_equal(input, "control_net_name");
        json_decref(given);
        keys_release(&k);
    }
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_loader_gives_the_same_bits),
        cmocka_unit_test(a_difference_is_added_to_the_model),
        cmocka_unit_test(runs_survive_exhausted_memory),
        cmocka_unit_test(another_family_is_refused),
        cmocka_unit_test(odd_pictures_are_refused),
        cmocka_unit_test(other_kinds_are_refused_before_anything_is_loaded),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
