/* A family that the program does not have, added by a folder and a line (tests/families):
 * everything that asks descriptors knows it. Loaders tell its files, prompts are sampled through
 * ordinary nodes, its text encoder and its VAE are
 * its own, adapters find its tensors, plans follow its pass. */
#include "support/loader_rig.h"

#include "model/encoder.h"
#include "model/families.h"
#include "model/family.h"
#include "model/lora_names.h"
#include "model/synth.h"
#include "model/vae.h"
#include "node/compute.h"

#include <math.h>

struct scene {
    struct rig r;
    struct call ckpt, prompt;
    const char *folder[1];
    char path[512];
};

static void run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

static void scene_open_of(struct scene *s, const char *preset)
{
    berth_err err = { 0 };
    *s = (struct scene) { 0 };
    rig_open(&s->r, "cpu=256m");
    snprintf(s->path, sizeof s->path, "%s", tmp_path("tokenizers"));
    assert_ok(path_make_dirs(s->path, &err), err);
    assert_ok(path_make_dirs(tmp_path("tokenizers/toy"), &err), err);
    tmp_write("tokenizers/toy/toy.txt", "1\n", 2);
    s->folder[0] = s->path;
    s->r.env.tokenizers = s->folder;
    s->r.env.tokenizers_n = 1;
    char file[64], inputs[96];
    snprintf(file, sizeof file, "checkpoints/%s.safetensors", preset);
    snprintf(inputs, sizeof inputs, "{\"ckpt_name\": \"%s.safetensors\"}", preset);
    rig_preset(&s->r, file, preset);
    assert_ok(rig_run(&s->r, &s->ckpt, "CheckpointLoaderSimple", inputs, &err), err);
    rig_call(&s->r, &s->prompt, "CLIPTextEncode", "{\"text\": \"cat\"}");
    call_give(&s->prompt, "clip", s->ckpt.out[1].at[0]);
    run(&s->prompt);
}

static void scene_open(struct scene *s)
{
    scene_open_of(s, "toy-checkpoint");
}

static void scene_close(struct scene *s)
{
    call_release(&s->prompt);
    call_release(&s->ckpt);
    rig_close(&s->r);
}

/* Two steps from an empty latent of 8 x 6; a reference. */
static struct htensor *sample(struct scene *s, struct value *model)
{
    struct call x, empty;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &empty, "EmptyLatentImage", "{\"width\": 64, \"height\": 48}", &err),
              err);
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 1, \"steps\": 2, \"cfg\": 3, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    call_give(&x, "model", model);
    call_give(&x, "positive", s->prompt.out[0].at[0]);
    call_give(&x, "negative", s->prompt.out[0].at[0]);
    call_give(&x, "latent_image", empty.out[0].at[0]);
    run(&x);
    struct htensor *out = htensor_ref(x.out[0].at[0]->latent.samples);
    call_release(&x);
    call_release(&empty);
    return out;
}

static void samples_and_decodes(void **state)
{
    struct scene s;
    struct call x, y;
    (void)state;
    scene_open(&s);
    struct htensor *z = sample(&s, s.ckpt.out[0].at[0]);
    assert_true(shape_eq(&z->shape, &(struct shape) { 4, { 1, 8, 6, 8 } }));
    bool moved = false;
    for (size_t i = 0; i < htensor_count(z); i++) {
        assert_true(isfinite(z->data[i]));
        moved |= z->data[i] != 0;
    }
    assert_true(moved);
    struct latent l = { .samples = z };
    struct value *v = value_latent(&l);
    rig_call(&s.r, &x, "VAEDecode", "{}");
    call_give(&x, "vae", s.ckpt.out[2].at[0]);
    call_give(&x, "samples", v);
    run(&x);
    const struct htensor *picture = x.out[0].at[0]->tensor; /* 4 pixels for one of the latent */
    assert_true(shape_eq(&picture->shape, &(struct shape) { 4, { 1, 24, 32, 3 } }));
    rig_call(&s.r, &y, "VAEEncode", "{}");
    call_give(&y, "vae", s.ckpt.out[2].at[0]);
    call_give(&y, "pixels", x.out[0].at[0]);
    run(&y);
    assert_true(shape_eq(&y.out[0].at[0]->latent.samples->shape, &z->shape));
    value_unref(v);
    call_release(&x);
    call_release(&y);
    scene_close(&s);
}

/* ---- video ---- */

struct seen {
    size_t pictures;
    uint32_t w, h;
};

static berth_status see(void *user, const struct node_step *s, berth_err *err)
{
    struct seen *x = user;
    (void)err;
    if (s->picture) {
        x->pictures++;
        x->w = s->picture->w;
        x->h = s->picture->h;
    }
    return BERTH_OK;
}

/* Two steps over three latent frames of 8 x 6. mask: [n, 6, 8]; NULL: none. A reference. */
static struct htensor *sample_film(struct scene *s, struct htensor *mask, struct seen *seen)
{
    struct call x, empty;
    berth_err err = { 0 };
    assert_ok(rig_run(&s->r, &empty, "EmptyHunyuanLatentVideo",
                      "{\"width\": 64, \"height\": 48, \"length\": 9}", &err),
              err);
    struct latent *l = &empty.out[0].at[0]->latent;
    l->noise_mask = mask ? htensor_ref(mask) : NULL;
    s->r.env.previews = true;
    rig_call(&s->r, &x, "KSampler",
             "{\"seed\": 1, \"steps\": 2, \"cfg\": 3, \"sampler_name\": \"euler\", "
             "\"scheduler\": \"simple\"}");
    x.host = (struct node_host) { .user = seen, .progress = see };
    call_give(&x, "model", s->ckpt.out[0].at[0]);
    call_give(&x, "positive", s->prompt.out[0].at[0]);
    call_give(&x, "negative", s->prompt.out[0].at[0]);
    call_give(&x, "latent_image", empty.out[0].at[0]);
    run(&x);
    struct htensor *out = htensor_ref(x.out[0].at[0]->latent.samples);
    call_release(&x);
    call_release(&empty);
    return out;
}

/* A format of three dimensions needs nothing but to say so. */
static void samples_previews_and_decodes_video(void **state)
{
    struct scene s;
    struct call x;
    struct seen seen = { 0 };
    (void)state;
    scene_open_of(&s, "film-checkpoint");
    struct htensor *z = sample_film(&s, NULL, &seen);
    assert_true(shape_eq(&z->shape, &(struct shape) { 5, { 1, 4, 3, 6, 8 } }));
    assert_true(seen.pictures == 2 && seen.w == 8 && seen.h == 6);
    for (size_t i = 0; i < htensor_count(z); i++)
        assert_true(isfinite(z->data[i]) && z->data[i] != 0);
    struct latent l = { .samples = z };
    struct value *v = value_latent(&l);
    for (int tiled = 0; tiled < 2; tiled++) {
        rig_call(&s.r, &x, tiled ? "VAEDecodeTiled" : "VAEDecode",
                 tiled ? "{\"tile_size\": 64, \"overlap\": 0}" : "{}");
        call_give(&x, "vae", s.ckpt.out[2].at[0]);
        call_give(&x, "samples", v);
        run(&x);
        const struct htensor *frame = x.out[0].at[0]->tensor; /* 1 + 2 * 2 of them */
        assert_true(shape_eq(&frame->shape, &(struct shape) { 4, { 5, 24, 32, 3 } }));
        const size_t n = 24 * 32 * 3;
        assert_memory_equal(frame->data + n, frame->data + 2 * n, n * sizeof(float));
        assert_memory_not_equal(frame->data, frame->data + n, n * sizeof(float));
        assert_memory_not_equal(frame->data + 2 * n, frame->data + 3 * n, n * sizeof(float));
        call_release(&x);
    }
    value_unref(v);
    scene_close(&s);
}

/* The film treats each frame by itself, so that windows over its frames give what the whole
 * does. */
static void windows_over_frames(void **state)
{
    static const char *const how[] = {
        "{\"dim\": 2, \"context_length\": 2, \"context_overlap\": 1}",
        "{\"dim\": 2, \"context_length\": 2, \"context_overlap\": 1, \"fuse_method\": "
        "\"relative\", "
        "\"context_schedule\": \"looped_uniform\", \"closed_loop\": true}",
        "{\"dim\": 2, \"context_length\": 1, \"context_overlap\": 0, \"fuse_method\": \"flat\", "
        "\"context_schedule\": \"batched\", \"causal_window_fix\": false}",
    };
    struct scene s;
    struct seen seen = { 0 };
    (void)state;
    scene_open_of(&s, "film-checkpoint");
    struct htensor *whole = sample_film(&s, NULL, &seen);
    struct value *model = s.ckpt.out[0].at[0];
    for (size_t i = 0; i < ARRAY_LEN(how); i++) {
        struct call x;
        rig_call(&s.r, &x, "ContextWindowsManual", how[i]);
        call_give(&x, "model", model);
        run(&x);
        s.ckpt.out[0].at[0] = x.out[0].at[0];
        struct htensor *z = sample_film(&s, NULL, &seen);
        s.ckpt.out[0].at[0] = model;
        for (size_t k = 0; k < htensor_count(z); k++)
            assert_float_equal(z->data[k], whole->data[k], 1e-4f);
        htensor_unref(z);
        call_release(&x);
    }
    htensor_unref(whole);
    scene_close(&s);
}

/* The latent of pictures [n, h, w, 3]; a reference. */
static struct htensor *encode(struct scene *s, const char *node, struct htensor *pictures)
{
    struct call x;
    struct value *v = value_tensor(htensor_ref(pictures));
    rig_call(&s->r, &x, node, strstr(node, "Tiled") ? "{\"tile_size\": 64, \"overlap\": 0}" : "{}");
    call_give(&x, "vae", s->ckpt.out[2].at[0]);
    call_give(&x, "pixels", v);
    run(&x);
    struct htensor *z = htensor_ref(x.out[0].at[0]->latent.samples);
    value_unref(v);
    call_release(&x);
    return z;
}

/* Pictures are the frames of one video: this VAE sees frame 0, 1, 3 of five, as if each were alone;
 * a sixth fills no latent frame. Odd sides are cut. */
static void encodes_video(void **state)
{
    enum { H = 26, W = 35, HW = 6 * 8 };
    static const size_t seen[] = { 0, 1, 3 };
    struct scene s;
    berth_err err = { 0 };
    (void)state;
    scene_open_of(&s, "film-checkpoint");
    for (uint64_t frames = 5; frames <= 6; frames++) {
        struct htensor *film, *one;
        assert_ok(htensor_new(&(struct shape) { 4, { frames, H, W, 3 } }, &film, &err), err);
        assert_ok(htensor_new(&(struct shape) { 4, { 1, H, W, 3 } }, &one, &err), err);
        for (size_t i = 0; i < htensor_count(film); i++)
            film->data[i] = (float)(i * 7919 % 1009) / 1009;
        struct htensor *z = encode(&s, "VAEEncode", film), *t = encode(&s, "VAEEncodeTiled", film);
        assert_true(shape_eq(&z->shape, &(struct shape) { 5, { 1, 4, 3, 6, 8 } }));
        for (size_t i = 0; i < htensor_count(z); i++) /* the mean of three passes */
            assert_true(fabsf(z->data[i] - t->data[i]) < 1e-5f);
        for (size_t k = 0; k < ARRAY_LEN(seen); k++) {
            memcpy(one->data, film->data + seen[k] * H * W * 3, (size_t)H * W * 3 * sizeof(float));
            struct htensor *alone = encode(&s, "VAEEncode", one);
            assert_true(shape_eq(&alone->shape, &(struct shape) { 5, { 1, 4, 1, 6, 8 } }));
            for (size_t c = 0; c < 4; c++)
                assert_memory_equal(z->data + (c * 3 + k) * HW, alone->data + c * HW,
                                    HW * sizeof(float));
            htensor_unref(alone);
        }
        htensor_unref(film), htensor_unref(one), htensor_unref(z), htensor_unref(t);
    }
    scene_close(&s);
}

/* One mask is every frame's; three are one for each; two are spread over the time. */
static void paints_frames_by_their_masks(void **state)
{
    struct scene s;
    struct seen seen = { 0 };
    berth_err err = { 0 };
    (void)state;
    scene_open_of(&s, "film-checkpoint");
    struct htensor *whole = sample_film(&s, NULL, &seen);
    for (uint64_t n = 1; n <= 3; n++) {
        struct htensor *mask;
        assert_ok(htensor_zeros(&(struct shape) { 4, { n, 1, 6, 8 } }, &mask, &err), err);
        for (size_t i = 0; i < 48; i++) /* the last mask has it painted, the others keep it empty */
            mask->data[(n - 1) * 48 + i] = 1;
        struct htensor *z = sample_film(&s, mask, &seen);
        for (size_t i = 0; i < htensor_count(z); i++) {
            size_t frame = i / 48 % 3;
            bool painted = n == 1 || frame == 2, kept = !painted && (n == 3 || frame == 0);
            assert_true(!painted || z->data[i] != 0);
            assert_true(!kept || z->data[i] == 0);
            assert_true(n > 1 || z->data[i] == whole->data[i]);
        }
        htensor_unref(z);
        htensor_unref(mask);
    }
    htensor_unref(whole);
    scene_close(&s);
}

/* ---- several latents at once ---- */

static struct htensor *noise_tensor(uint64_t seed, struct shape s)
{
    struct htensor *t;
    struct torch_rng rng;
    berth_err err = { 0 };
    assert_ok(htensor_new(&s, &t, &err), err);
    torch_seed(&rng, seed);
    torch_randn(&rng, t->data, htensor_count(t));
    return t;
}

/* Three steps of KSamplerAdvanced over *taken; a latent to be released. */
static struct latent sample_latents(struct scene *s, struct latent *taken, const char *inputs,
                                    struct seen *seen)
{
    struct call x;
    char all[256];
    struct value *v = value_latent(taken);
    s->r.env.previews = true;
    snprintf(all, sizeof all,
             "{\"noise_seed\": 5, \"steps\": 3, \"cfg\": 3, \"scheduler\": \"simple\", %s}",
             inputs);
    rig_call(&s->r, &x, "KSamplerAdvanced", all);
    x.host = (struct node_host) { .user = seen, .progress = see };
    call_give(&x, "model", s->ckpt.out[0].at[0]);
    call_give(&x, "positive", s->prompt.out[0].at[0]);
    call_give(&x, "negative", s->prompt.out[0].at[0]);
    call_give(&x, "latent_image", v);
    run(&x);
    struct latent *l = &x.out[0].at[0]->latent, out = { .samples = htensor_ref(l->samples) };
    if (l->more[0].samples)
        out.more[0].samples = htensor_ref(l->more[0].samples);
    value_unref(v);
    call_release(&x);
    return out;
}

static void same_values(const struct htensor *a, const struct htensor *b)
{
    assert_int_equal(htensor_count(a), htensor_count(b));
    assert_memory_equal(a->data, b->data, htensor_count(a) * sizeof(float));
}

/* As the model has them: sound is scaled, a video is not. */
static struct htensor *scaled_sound(const struct htensor *t, bool in)
{
    struct htensor *out;
    berth_err err = { 0 };
    assert_ok(htensor_new(&t->shape, &out, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        out->data[i] = in ? (t->data[i] - 0.5f) * 2 : t->data[i] / 2 + 0.5f;
    if (in) /* a video of one frame */
        out->shape =
            (struct shape) { 5, { t->shape.dim[0], 4, 1, t->shape.dim[2], t->shape.dim[3] } };
    return out;
}

/* The film treats its video and its sound each by itself: sampled together they are what each is
 * alone, batches and masks included. */
static void samples_sound_with_video(void **state)
{
    static const char in[] = "\"sampler_name\": \"dpmpp_2m\", \"add_noise\": \"disable\"";
    const struct shape vs = { 5, { 2, 4, 3, 6, 8 } }, ss = { 4, { 2, 4, 5, 8 } };
    struct scene s;
    struct seen seen = { 0 };
    (void)state;
    scene_open_of(&s, "film-checkpoint");
    for (int masked = 0; masked < 3; masked++) {
        struct htensor *video = noise_tensor(1, vs), *sound = noise_tensor(2, ss);
        struct htensor *as_video = scaled_sound(sound, true);
        struct htensor *mask = masked ? noise_tensor(3, (struct shape) { 3, { 1, 5, 8 } }) : NULL;
        for (size_t i = 0; mask && i < htensor_count(mask); i++)
            mask->data[i] = mask->data[i] > 0;
        struct latent both = { .samples = htensor_ref(video),
                               .more = { { .samples = htensor_ref(sound) } } };
        if (masked) /* the video's, then the sound's; what has none is painted everywhere */
            *(masked == 1 ? &both.noise_mask : &both.more[0].noise_mask) = htensor_ref(mask);
        struct latent one = { .samples = video }, two = { .samples = as_video };
        if (masked)
            *(masked == 1 ? &one.noise_mask : &two.noise_mask) = mask;
        struct latent z = sample_latents(&s, &both, in, &seen);
        assert_true(seen.w == 8 && seen.h == 6 && seen.pictures == 3); /* of the video */
        struct latent a = sample_latents(&s, &one, in, &seen);
        struct latent b = sample_latents(&s, &two, in, &seen);
        seen = (struct seen) { 0 };
        assert_true(shape_eq(&z.samples->shape, &vs));
        assert_true(shape_eq(&z.more[0].samples->shape, &ss));
        same_values(z.samples, a.samples);
        struct htensor *alone = scaled_sound(b.samples, false);
        same_values(z.more[0].samples, alone);
        latent_release(&z), latent_release(&a), latent_release(&b);
        htensor_unref(sound), htensor_unref(alone);
    }
    scene_close(&s);
}

/* One generator, one draw for each latent: the sound goes on where the video ended. A single noise
 * level of a half gives the noise itself. */
static void noise_of_several_latents(void **state)
{
    const struct shape vs = { 5, { 2, 4, 1, 3, 3 } }, ss = { 4, { 2, 4, 5, 8 } };
    struct scene s;
    struct call x, select;
    struct latent both = { 0 };
    struct torch_rng rng;
    berth_err err = { 0 };
    struct htensor *level;
    float noise[72 + 320];
    (void)state;
    scene_open_of(&s, "film-checkpoint");
    torch_seed(&rng, 5);
    torch_randn(&rng, noise, 72);
    torch_randn(&rng, noise + 72, 320);
    assert_ok(htensor_zeros(&vs, &both.samples, &err), err);
    assert_ok(htensor_zeros(&ss, &both.more[0].samples, &err), err);
    assert_ok(htensor_zeros(&(struct shape) { 1, { 1 } }, &level, &err), err);
    level->data[0] = 0.5f;
    struct value *latents = value_latent(&both), *sigmas = value_tensor(level);
    assert_ok(rig_run(&s.r, &select, "KSamplerSelect", "{\"sampler_name\": \"euler\"}", &err), err);
    rig_call(&s.r, &x, "SamplerCustom", "{\"add_noise\": true, \"noise_seed\": 5, \"cfg\": 1}");
    call_give(&x, "model", s.ckpt.out[0].at[0]);
    call_give(&x, "positive", s.prompt.out[0].at[0]);
    call_give(&x, "negative", s.prompt.out[0].at[0]);
    call_give(&x, "sampler", select.out[0].at[0]);
    call_give(&x, "sigmas", sigmas);
    call_give(&x, "latent_image", latents);
    run(&x);
    for (int i = 0; i < 2; i++) {
        const struct latent *l = &x.out[i].at[0]->latent;
        assert_memory_equal(l->samples->data, noise, 72 * sizeof *noise);
        for (size_t k = 0; k < 320; k++)
            assert_true(l->more[0].samples->data[k] == noise[72 + k] / 2 + 0.5f);
    }
    value_unref(latents), value_unref(sigmas);
    call_release(&select), call_release(&x);
    scene_close(&s);
}

/* VAEs decode the first; nodes that know nothing of several say so. */
static void nodes_take_the_latent_they_can(void **state)
{
    const struct shape vs = { 5, { 1, 4, 3, 6, 8 } }, ss = { 4, { 1, 4, 5, 8 } };
    struct scene s;
    struct call x;
    struct latent both = { .samples = noise_tensor(1, vs), .more = { { noise_tensor(2, ss) } } };
    struct latent one = { .samples = htensor_ref(both.samples) };
    struct value *v[] = { value_latent(&both), value_latent(&one) };
    struct htensor *picture[2];
    berth_err err = { 0 };
    (void)state;
    scene_open_of(&s, "film-checkpoint");
    for (int i = 0; i < 2; i++) {
        rig_call(&s.r, &x, "VAEDecode", "{}");
        call_give(&x, "vae", s.ckpt.out[2].at[0]);
        call_give(&x, "samples", v[i]);
        run(&x);
        picture[i] = htensor_ref(x.out[0].at[0]->tensor);
        call_release(&x);
    }
    same_values(picture[0], picture[1]);
    htensor_unref(picture[0]), htensor_unref(picture[1]);
    static const char *const node[][3] = {
        { "LatentFlip", "samples", "{\"flip_method\": \"x-axis: vertically\"}" },
        { "RepeatLatentBatch", "samples", "{\"amount\": 1}" },
        { "RebatchLatents", "latents", "{\"batch_size\": 1}" },
    };
    for (size_t i = 0; i < ARRAY_LEN(node); i++) {
        rig_call(&s.r, &x, node[i][0], node[i][2]);
        call_give(&x, node[i][1], v[0]);
        assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "several latents");
        call_release(&x);
    }
    value_unref(v[0]), value_unref(v[1]);
    scene_close(&s);
}

/* A latent that is another VAE's is refused in this one's words. */
static void says_whose_latents_it_takes(void **state)
{
    struct scene s;
    struct call x, empty;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    assert_ok(rig_run(&s.r, &empty, "EmptyLatentImage", "{\"width\": 64, \"height\": 64}", &err),
              err);
    rig_call(&s.r, &x, "VAEDecode", "{}");
    call_give(&x, "vae", s.ckpt.out[2].at[0]);
    call_give(&x, "samples", empty.out[0].at[0]);
    assert_fails(x.c.cls->run(&x.c, &err), err, BERTH_EINVAL, "the toy kind");
    call_release(&x);
    call_release(&empty);
    scene_close(&s);
}

static berth_status ones(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    for (size_t k = 0; k < n / sizeof(float); k++)
        ((float *)dst)[k] = 0.25f;
    return BERTH_OK;
}

/* The network in a file of its own, under its other names. */
static void other_names_are_the_same_network(void **state)
{
    struct keys k = { 0 };
    struct weights_spec spec[16];
    struct family_info f;
    struct weights *w;
    struct blocks b;
    berth_err err = { 0 };
    (void)state;
    assert_ok(preset_keys(preset_find("toy-tiny"), &k, &err), err);
    assert_true(k.n <= ARRAY_LEN(spec));
    for (size_t i = 0; i < k.n; i++) {
        const char *name = k.at[i].name;
        if (strncmp(name, "toy_in.", 7) == 0)
            name = name[7] == 'w' ? "entry.weight" : "entry.bias";
        spec[i] = (struct weights_spec) { name, DT_F32, k.at[i].shape };
    }
    const char *path = tmp_path("entry.safetensors");
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = k.n, .fill = ones
    };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    assert_ok(family_find(w, "unet", &f, &err), err);
    assert_string_equal(f.name, "toy");
    assert_true(f.runs);
    assert_ok(blocks_from_weights(w, NULL, arch_blocks(w, NULL), &b, &err), err);
    assert_string_equal(b.at[0].name, "entry");
    blocks_release(&b);
    weights_close(w);
    keys_release(&k);
}

/* Plans go by what the pass does, in whatever order the file is. */
static void its_pass_is_traced(void **state)
{
    static const char *const order[] = { "toy_in",     "toy_time",      "toy_text.q", "toy_text.k",
                                         "toy_text.v", "toy_text.proj", "toy_out" };
    struct rig r;
    struct weights *w;
    struct blocks b;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=64m");
    rig_preset(&r, "checkpoints/toy.safetensors", "toy-checkpoint");
    assert_ok(weights_open(rig_path(&r, "checkpoints/toy.safetensors"), NULL, &w, &err), err);
    const char *part = "model.diffusion_model.";
    assert_ptr_equal(arch_detect(w, NULL), &family_toy.checkpoint);
    assert_ptr_equal(arch_detect(w, part), &family_toy.arch);
    assert_ptr_equal(arch_detect(w, "first_stage_model."), &vae_toy.arch);
    assert_ptr_equal(arch_detect(w, "cond_stage_model."), &encoder_toy.arch);
    assert_ok(blocks_from_weights(w, part, arch_blocks(w, part), &b, &err), err);
    assert_int_equal(b.n, ARRAY_LEN(order));
    for (size_t i = 0; i < b.n; i++) {
        assert_string_equal(b.at[i].name, order[i]);
        assert_true(b.at[i].work > 0);
    }
    blocks_release(&b);
    weights_close(w);
    rig_close(&r);
}

/* An adapter in the family's own spelling changes what is sampled. */
static void adapters_find_its_tensors(void **state)
{
    static const struct weights_spec spec[] = {
        { "toy.toy_text.proj.lora_up.weight", DT_F32, { 2, { 16, 2 } } },
        { "toy.toy_text.proj.lora_down.weight", DT_F32, { 2, { 2, 16 } } },
    };
    struct scene s;
    struct call x;
    berth_err err = { 0 };
    (void)state;
    scene_open(&s);
    struct weights_write_args args = { .format = "safetensors",
                                       .path = rig_path(&s.r, "loras/toy.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = ones };
    assert_ok(weights_write(&args, &err), err);
    rig_call(&s.r, &x, "LoraLoaderModelOnly",
             "{\"lora_name\": \"toy.safetensors\", \"strength_model\": 1}");
    call_give(&x, "model", s.ckpt.out[0].at[0]);
    run(&x);
    struct htensor *a = sample(&s, s.ckpt.out[0].at[0]), *b = sample(&s, x.out[0].at[0]);
    struct htensor *again = sample(&s, s.ckpt.out[0].at[0]);
    size_t bytes = htensor_count(a) * sizeof(float);
    assert_true(memcmp(a->data, b->data, bytes) != 0);
    assert_memory_equal(a->data, again->data, bytes);
    htensor_unref(a);
    htensor_unref(b);
    htensor_unref(again);
    call_release(&x);
    scene_close(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(samples_and_decodes),
        cmocka_unit_test(samples_previews_and_decodes_video),
        cmocka_unit_test(windows_over_frames),
        cmocka_unit_test(encodes_video),
        cmocka_unit_test(paints_frames_by_their_masks),
        cmocka_unit_test(samples_sound_with_video),
        cmocka_unit_test(noise_of_several_latents),
        cmocka_unit_test(nodes_take_the_latent_they_can),
        cmocka_unit_test(says_whose_latents_it_takes),
        cmocka_unit_test(other_names_are_the_same_network),
        cmocka_unit_test(its_pass_is_traced),
        cmocka_unit_test(adapters_find_its_tensors),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
