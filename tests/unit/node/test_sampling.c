/* Sampling nodes over a tiny model: that the ways to say the same give the same, what is told while
 * they run, and how they end when they do not. Numbers are held to ComfyUI's in
 * tests/golden/node. */
#include "support/loader_rig.h"
#include "support/oom.h"

#include "node/compute.h"

#include <math.h>

struct scene {
    struct rig r;
    struct call ckpt;
    struct value *positive, *negative;
};

static struct value *prompt(size_t width, float start)
{
    struct htensor *t;
    struct conditioning *x;
    berth_err err = { 0 };
    assert_ok(htensor_new(&(struct shape) { .ndim = 3, .dim = { 1, 77, width } }, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = start * (float)((int)(i * 37 % 101) - 50) / 50;
    assert_ok(conditioning_new(t, NULL, &x, &err), err);
    return value_object(&type_conditioning, x);
}

static int setup(void **state)
{
    static struct scene s;
    berth_err err = { 0 };
    s = (struct scene) { 0 };
    rig_open(&s.r, "cpu=1g");
    rig_preset(&s.r, "checkpoints/sd15.safetensors", "sd15-tiny");
    assert_ok(rig_run(&s.r, &s.ckpt, "CheckpointLoaderSimple",
                      "{\"ckpt_name\": \"sd15.safetensors\"}", &err),
              err);
    s.positive = prompt(64, 1);
    s.negative = prompt(64, -0.5f);
    *state = &s;
    return 0;
}

static int teardown(void **state)
{
    struct scene *s = *state;
    value_unref(s->positive);
    value_unref(s->negative);
    call_release(&s->ckpt);
    rig_close(&s->r);
    return 0;
}

static struct value *latent_of(struct htensor *taken)
{
    struct latent l = { .samples = taken };
    return value_latent(&l);
}

static struct htensor *filled(size_t n, size_t c, size_t h, size_t w, float scale)
{
    struct htensor *t;
    berth_err err = { 0 };
    assert_ok(htensor_new(&(struct shape) { .ndim = 4, .dim = { n, c, h, w } }, &t, &err), err);
    for (size_t i = 0; i < htensor_count(t); i++)
        t->data[i] = scale * (float)((int)(i * 29 % 97) - 48) / 48;
    return t;
}

static struct value *empty(void)
{
    return latent_of(filled(1, 4, 8, 8, 0));
}

static const struct htensor *samples(const struct call *x, size_t i)
{
    assert_int_equal(x->out[i].n, 1);
    assert_int_equal(x->out[i].at[0]->kind, V_LATENT);
    return x->out[i].at[0]->latent.samples;
}

static void expect_same(const struct htensor *a, const struct htensor *b, double within)
{
    double top = 0, off = 0;
    assert_true(shape_eq(&a->shape, &b->shape));
    for (size_t i = 0; i < htensor_count(a); i++) {
        top = fmax(top, fabs((double)a->data[i]));
        double d = fabs((double)a->data[i] - (double)b->data[i]);
        off = d > off || isnan(d) ? d : off;
    }
    if (!(off <= within * top))
        fail_msg("off by %g of %g", off, top);
}

/* A call with the scene's model and prompts where the class has such inputs. Takes latent; NULL: it
 * has none. */
static void make(struct scene *s, struct call *x, const char *cls, const char *inputs,
                 struct value *latent)
{
    rig_call(&s->r, x, cls, inputs);
    if (node_input_index(x->c.cls, "model") != SIZE_MAX)
        call_give(x, "model", s->ckpt.out[0].at[0]);
    if (node_input_index(x->c.cls, "positive") != SIZE_MAX)
        call_give(x, "positive", s->positive);
    if (node_input_index(x->c.cls, "negative") != SIZE_MAX)
        call_give(x, "negative", s->negative);
    if (latent)
        call_give(x, "latent_image", latent);
    value_unref(latent);
}

static void run(struct call *x)
{
    berth_err err = { 0 };
    assert_ok(x->c.cls->run(&x->c, &err), err);
}

#define EULER                                                                                      \
    "{\"seed\": 5, \"steps\": 4, \"cfg\": 4, \"sampler_name\": \"euler\", \"scheduler\": "         \
    "\"normal\"}"

static void euler(struct scene *s, struct call *x)
{
    make(s, x, "KSampler", EULER, empty());
    run(x);
}

/* ---- what is told ---- */

struct seen {
    size_t steps, pictures;
    double value[8], max;
    uint32_t w, h;
    size_t stop_at; /* sets cancel after so many steps; 0: never */
    atomic_bool cancel;
};

static berth_status look(void *user, const struct node_step *s, berth_err *err)
{
    struct seen *x = user;
    (void)err;
    assert_true(x->steps < 8);
    x->value[x->steps++] = s->value;
    x->max = s->max;
    if (s->picture) {
        x->pictures++;
        x->w = s->picture->w;
        x->h = s->picture->h;
        assert_int_equal(s->picture->channels, 3);
    }
    if (x->steps == x->stop_at)
        atomic_store(&x->cancel, true);
    return BERTH_OK;
}

static void watch(struct call *x, struct seen *seen)
{
    x->host = (struct node_host) { .user = seen, .progress = look, .cancel = &seen->cancel };
}

static void steps_are_told(void **state)
{
    struct scene *s = *state;
    struct call x;
    for (int previews = 0; previews < 2; previews++) {
        struct seen seen = { 0 };
        s->r.env.previews = previews;
        make(s, &x, "KSampler", EULER, latent_of(filled(2, 4, 8, 12, 0)));
        watch(&x, &seen);
        run(&x);
        assert_int_equal(seen.steps, 4);
        for (size_t i = 0; i < 4; i++)
            assert_true(seen.value[i] == (double)(i + 1));
        assert_true(seen.max == 4);
        assert_int_equal(seen.pictures, previews ? 4 : 0);
        assert_true(!previews || (seen.w == 12 && seen.h == 8));
        call_release(&x);
    }
    s->r.env.previews = false;
}

/* ---- how it ends ---- */

static void interrupted_between_steps(void **state)
{
    struct scene *s = *state;
    struct call x, y, z;
    struct seen seen = { .stop_at = 2 };
    berth_err err = { 0 };
    make(s, &x, "KSampler", EULER, empty());
    watch(&x, &seen);
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_ECANCELED);
    assert_int_equal(seen.steps, 2);
    assert_int_equal(x.out[0].n, 0);
    call_release(&x);
    assert_int_equal(res_info(call_model(&s->ckpt, 0)->part[0]).uses, 0);
    euler(s, &y); /* nothing of it is left behind */
    euler(s, &z);
    expect_same(samples(&y, 0), samples(&z, 0), 0);
    call_release(&y);
    call_release(&z);
    fixture_check(&s->r.f);
}

static void nan_is_found(void **state)
{
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    struct value *bad = prompt(64, NAN);
    rig_call(&s->r, &x, "KSampler", EULER);
    struct value *latent = empty();
    call_give(&x, "model", s->ckpt.out[0].at[0]);
    call_give(&x, "positive", bad);
    call_give(&x, "negative", s->negative);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    if (!strstr(err.msg, "NaN") || !strstr(err.msg, "sd15") ||
        !strstr(err.msg, ": step 1 of 4, sigma 14.61: "))
        fail_msg("'%s' does not say what and where", err.msg);
    call_release(&x);
    value_unref(bad);
    assert_int_equal(res_info(call_model(&s->ckpt, 0)->part[0]).uses, 0);
}

static void wrong_things_are_refused(void **state)
{
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    struct value *wide = prompt(96, 1);
    rig_call(&s->r, &x, "KSampler", EULER);
    struct value *latent = empty();
    call_give(&x, "model", s->ckpt.out[0].at[0]);
    call_give(&x, "positive", wide);
    call_give(&x, "negative", wide);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "96"));
    assert_non_null(strstr(err.msg, "64"));
    call_release(&x);
    value_unref(wide);

    make(s, &x, "KSampler", EULER, latent_of(filled(1, 16, 8, 8, 1)));
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    assert_non_null(strstr(err.msg, "16 channels"));
    call_release(&x);

    make(s, &x, "KSampler", "{\"steps\": 0}", empty());
    assert_int_equal(x.c.cls->run(&x.c, &err), BERTH_EINVAL);
    call_release(&x);
}

/* Each allocation of a run fails once: it ends with BERTH_ENOMEM, or gets by without (a preview),
 * and leaves nothing behind. */
static void survives_exhaustion(void **state)
{
    struct scene *s = *state;
    struct call x;
    long failed = 0, total = 0;
    s->r.env.previews = true;
    for (long k = 0; !total; k++) {
        berth_err err = { 0 };
        make(s, &x, "KSampler",
             "{\"seed\": 5, \"steps\": 1, \"cfg\": 4, \"sampler_name\": \"euler_ancestral\"}",
             latent_of(filled(1, 4, 2, 2, 0)));
        oom_once(k);
        berth_status st = x.c.cls->run(&x.c, &err);
        long seen = oom_seen();
        oom_off();
        if (st && (st != BERTH_ENOMEM || !err.msg[0]))
            fail_msg("allocation %ld: %d '%s'", k, (int)st, err.msg);
        assert_int_equal(x.out[0].n, st ? 0 : 1);
        failed += st != BERTH_OK;
        total = st || seen > k ? 0 : seen; /* none failed: all were tried */
        call_release(&x);
        assert_int_equal(res_info(call_model(&s->ckpt, 0)->part[0]).uses, 0);
    }
    s->r.env.previews = false;
    assert_true(failed > 10);
    print_message("%ld allocations, %ld of them end a run\n", total, failed);
    fixture_check(&s->r.f);
}

/* ---- no step at all ---- */

static void nothing_to_do_gives_it_back(void **state)
{
    struct scene *s = *state;
    struct call x;
    struct htensor *t = filled(1, 4, 8, 8, 1);
    make(s, &x, "KSampler", "{\"steps\": 4, \"denoise\": 0}", latent_of(htensor_ref(t)));
    run(&x);
    expect_same(t, samples(&x, 0), 0);
    call_release(&x);
    make(s, &x, "KSamplerAdvanced", "{\"steps\": 4, \"start_at_step\": 4}",
         latent_of(htensor_ref(t)));
    run(&x);
    expect_same(t, samples(&x, 0), 0);
    call_release(&x);
    make(s, &x, "KSampler", "{\"steps\": 4, \"denoise\": 0}", latent_of(filled(1, 16, 8, 8, 0)));
    run(&x); /* an empty latent gets the model's channels */
    assert_int_equal(samples(&x, 0)->shape.dim[1], 4);
    call_release(&x);
    htensor_unref(t);
}

/* ---- one way and another ---- */

static void two_halves_are_a_whole(void **state)
{
    struct scene *s = *state;
    struct call whole, a, b;
    euler(s, &whole);
    make(
        s, &a, "KSamplerAdvanced",
        "{\"noise_seed\": 5, \"steps\": 4, \"cfg\": 4, \"sampler_name\": \"euler\", \"scheduler\": "
        "\"normal\", \"end_at_step\": 2, \"return_with_leftover_noise\": \"enable\"}",
        empty());
    run(&a);
    make(
        s, &b, "KSamplerAdvanced",
        "{\"noise_seed\": 9, \"steps\": 4, \"cfg\": 4, \"sampler_name\": \"euler\", \"scheduler\": "
        "\"normal\", \"start_at_step\": 2, \"add_noise\": \"disable\"}",
        value_ref(a.out[0].at[0]));
    run(&b);
    expect_same(samples(&whole, 0), samples(&b, 0), 1e-4);
    call_release(&whole);
    call_release(&a);
    call_release(&b);
}

/* sampler, sigmas (and guider, noise) from nodes of their own. */
static void custom_sampling_is_ksampler(void **state)
{
    struct scene *s = *state;
    struct call whole, sampler, sigmas, custom, guider, noise, advanced;
    euler(s, &whole);
    make(s, &sampler, "KSamplerSelect", "{\"sampler_name\": \"euler\"}", NULL);
    run(&sampler);
    make(s, &sigmas, "BasicScheduler", "{\"scheduler\": \"normal\", \"steps\": 4}", NULL);
    run(&sigmas);
    make(s, &custom, "SamplerCustom", "{\"noise_seed\": 5, \"cfg\": 4}", empty());
    call_give(&custom, "sampler", sampler.out[0].at[0]);
    call_give(&custom, "sigmas", sigmas.out[0].at[0]);
    run(&custom);
    expect_same(samples(&whole, 0), samples(&custom, 0), 0);
    expect_same(samples(&whole, 0), samples(&custom, 1), 1e-5); /* euler ends at D */

    make(s, &guider, "CFGGuider", "{\"cfg\": 4}", NULL);
    run(&guider);
    make(s, &noise, "RandomNoise", "{\"noise_seed\": 5}", NULL);
    run(&noise);
    make(s, &advanced, "SamplerCustomAdvanced", "{}", empty());
    call_give(&advanced, "noise", noise.out[0].at[0]);
    call_give(&advanced, "guider", guider.out[0].at[0]);
    call_give(&advanced, "sampler", sampler.out[0].at[0]);
    call_give(&advanced, "sigmas", sigmas.out[0].at[0]);
    run(&advanced);
    expect_same(samples(&whole, 0), samples(&advanced, 0), 0);
    assert_true(value_bytes(guider.out[0].at[0]) > 2 * 77 * 64 * sizeof(float));
    struct call *const all[] = { &whole, &sampler, &sigmas, &custom, &guider, &noise, &advanced };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        call_release(all[i]);
}

/* Guiders: no negative is cfg 1; two prompts that are one are cfg. */
static void guiders(void **state)
{
    struct scene *s = *state;
    struct call sampler, sigmas, noise, guider, x, k;
    static const struct {
        const char *cls, *inputs, *ksampler;
    } row[] = {
        { "BasicGuider", "{}",
          "{\"seed\": 5, \"steps\": 4, \"cfg\": 1, \"sampler_name\": \"euler\", \"scheduler\": "
          "\"normal\"}" },
        { "DualCFGGuider", "{\"cfg_conds\": 3, \"cfg_cond2_negative\": 4, \"style\": \"regular\"}",
          EULER },
        { "DualCFGGuider", "{\"cfg_conds\": 3, \"cfg_cond2_negative\": 4, \"style\": \"nested\"}",
          EULER },
    };
    make(s, &sampler, "KSamplerSelect", "{\"sampler_name\": \"euler\"}", NULL);
    run(&sampler);
    make(s, &sigmas, "BasicScheduler", "{\"scheduler\": \"normal\", \"steps\": 4}", NULL);
    run(&sigmas);
    make(s, &noise, "RandomNoise", "{\"noise_seed\": 5}", NULL);
    run(&noise);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        make(s, &guider, row[i].cls, row[i].inputs, NULL);
        if (i) {
            call_give(&guider, "cond1", s->positive);
            call_give(&guider, "cond2", s->positive);
        } else {
            call_give(&guider, "conditioning", s->positive);
        }
        run(&guider);
        make(s, &x, "SamplerCustomAdvanced", "{}", empty());
        call_give(&x, "noise", noise.out[0].at[0]);
        call_give(&x, "guider", guider.out[0].at[0]);
        call_give(&x, "sampler", sampler.out[0].at[0]);
        call_give(&x, "sigmas", sigmas.out[0].at[0]);
        run(&x);
        make(s, &k, "KSampler", row[i].ksampler, empty());
        run(&k);
        expect_same(samples(&k, 0), samples(&x, 0), 1e-5);
        call_release(&guider);
        call_release(&x);
        call_release(&k);
    }
    call_release(&sampler);
    call_release(&sigmas);
    call_release(&noise);
}

/* Item 1 of a batch and a latent that says it was item 1. */
static void batch_index_picks_its_noise(void **state)
{
    struct scene *s = *state;
    struct call two, one;
    make(s, &two, "KSampler", EULER, latent_of(filled(2, 4, 8, 8, 0)));
    run(&two);
    struct latent l = { .samples = filled(1, 4, 8, 8, 0), .batch_index = malloc(sizeof(int64_t)) };
    assert_non_null(l.batch_index);
    l.batch_index[0] = 1;
    make(s, &one, "KSampler", EULER, value_latent(&l));
    run(&one);
    assert_int_equal(one.out[0].at[0]->latent.batch_index[0], 1);
    const struct htensor *a = samples(&two, 0), *b = samples(&one, 0);
    for (size_t i = 0; i < htensor_count(b); i++)
        if (fabsf(a->data[htensor_count(b) + i] - b->data[i]) > 1e-3f)
            fail_msg("[%zu] %g, not %g", i, (double)b->data[i],
                     (double)a->data[htensor_count(b) + i]);
    call_release(&two);
    call_release(&one);
}

/* So many draws as an index asks for are bounded, and end with an interrupt. */
static void batch_index_has_a_limit(void **state)
{
    static const struct {
        int64_t index;
        bool cancel;
        berth_status want;
    } row[] = { { 65536, false, BERTH_OK },
                { 65537, false, BERTH_EINVAL },
                { -1, false, BERTH_EINVAL },
                { 65536, true, BERTH_ECANCELED } };
    struct scene *s = *state;
    struct call x;
    make(s, &x, "KSampler", EULER, empty());
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        int64_t index[] = { 0, row[i].index };
        struct torch_rng rng;
        struct seen seen = { 0 };
        berth_err err = { 0 };
        float out[2];
        atomic_store(&seen.cancel, row[i].cancel);
        watch(&x, &seen);
        torch_seed(&rng, 5);
        berth_status st =
            latent_noise(&x.c, index, &(struct shape) { 4, { 2, 1, 1, 1 } }, &rng, out, &err);
        if (st != row[i].want)
            fail_msg("batch_index %d: %d '%s'", (int)row[i].index, (int)st, err.msg);
        assert_true(row[i].want != BERTH_EINVAL || strstr(err.msg, "0 to 65536"));
    }
    call_release(&x);
}

/* What a link brings may be none of the names: euler and simple, the first of them. */
static void unknown_names_are_the_first(void **state)
{
    static const char *const names[][2] = {
        { "euler", "simple" }, { "gone", "simple" }, { "euler", "gone" }, { "heun", "simple" }
    };
    struct scene *s = *state;
    struct call x[ARRAY_LEN(names)];
    char inputs[160];
    for (size_t i = 0; i < ARRAY_LEN(names); i++) {
        snprintf(inputs, sizeof inputs,
                 "{\"seed\": 5, \"steps\": 3, \"cfg\": 4, \"sampler_name\": \"%s\", "
                 "\"scheduler\": \"%s\"}",
                 names[i][0], names[i][1]);
        make(s, &x[i], "KSampler", inputs, empty());
        run(&x[i]);
    }
    expect_same(samples(&x[0], 0), samples(&x[1], 0), 0);
    expect_same(samples(&x[0], 0), samples(&x[2], 0), 0);
    assert_true(samples(&x[0], 0)->data[0] != samples(&x[3], 0)->data[0]); /* names do count */
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        call_release(&x[i]);
}

/* Fewer masks than latents are taken over and over: 0 1 0 1. */
static void masks_are_repeated_over_the_batch(void **state)
{
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    struct latent l = { .samples = filled(4, 4, 8, 8, 1) };
    struct htensor *was = htensor_ref(l.samples);
    assert_ok(htensor_zeros(&(struct shape) { .ndim = 3, .dim = { 2, 8, 8 } }, &l.noise_mask, &err),
              err);
    for (size_t i = 64; i < 128; i++)
        l.noise_mask->data[i] = 1;
    make(s, &x, "KSampler", EULER, value_latent(&l));
    run(&x);
    for (size_t i = 0; i < 4; i++) {
        float off = 0;
        for (size_t k = i * 256; k < (i + 1) * 256; k++)
            off = fmaxf(off, fabsf(samples(&x, 0)->data[k] - was->data[k]));
        if (i % 2 ? off < 1e-2f : off > 1e-5f)
            fail_msg("item %zu is off by %g", i, (double)off);
    }
    htensor_unref(was);
    call_release(&x);
}

/* Where the noise mask is 0 the latent comes back. */
static void a_mask_keeps_the_rest(void **state)
{
    struct scene *s = *state;
    struct call x;
    berth_err err = { 0 };
    struct latent l = { .samples = filled(1, 4, 8, 8, 1) };
    struct htensor *was = htensor_ref(l.samples);
    assert_ok(
        htensor_zeros(&(struct shape) { .ndim = 3, .dim = { 1, 16, 16 } }, &l.noise_mask, &err),
        err);
    for (size_t i = 0; i < 128; i++) /* the upper half is painted */
        l.noise_mask->data[i] = 1;
    make(s, &x, "KSampler", EULER, value_latent(&l));
    run(&x);
    const struct htensor *t = samples(&x, 0);
    for (size_t i = 0; i < 256; i++) {
        bool below = i / 8 % 8 > 4;
        if (below && fabsf(t->data[i] - was->data[i]) > 1e-5f)
            fail_msg("[%zu] was %g and is %g", i, (double)was->data[i], (double)t->data[i]);
    }
    assert_true(fabsf(t->data[0] - was->data[0]) > 1e-3f);
    assert_non_null(x.out[0].at[0]->latent.noise_mask);
    htensor_unref(was);
    call_release(&x);
}

/* A latent painted under a mask of this value, by a model that is differential or not. */
static struct htensor *painted(struct scene *s, bool differential, const char *sampler, float mask)
{
    struct call said, x;
    char inputs[160];
    berth_err err = { 0 };
    struct latent l = { .samples = filled(1, 4, 8, 8, 1) };
    assert_ok(htensor_new(&(struct shape) { .ndim = 3, .dim = { 1, 8, 8 } }, &l.noise_mask, &err),
              err);
    for (size_t i = 0; i < 64; i++)
        l.noise_mask->data[i] = mask;
    make(s, &said, differential ? "DifferentialDiffusion" : "RescaleCFG",
         differential ? "{}" : "{\"multiplier\": 0}", NULL);
    run(&said);
    snprintf(inputs, sizeof inputs,
             "{\"seed\": 5, \"steps\": 4, \"cfg\": 1, \"sampler_name\": \"%s\", \"scheduler\": "
             "\"normal\"}",
             sampler);
    rig_call(&s->r, &x, "KSampler", inputs);
    struct value *latent = value_latent(&l);
    call_give(&x, "model", said.out[0].at[0]);
    call_give(&x, "positive", s->positive);
    call_give(&x, "negative", s->negative);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    run(&x);
    struct htensor *out = htensor_ref(x.out[0].at[0]->latent.samples);
    call_release(&x);
    call_release(&said);
    return out;
}

static bool equal(const struct htensor *a, const struct htensor *b)
{
    return memcmp(a->data, b->data, htensor_count(a) * sizeof(float)) == 0;
}

/* DifferentialDiffusion: all or nothing of a mask, the more of it the lower the noise; ddim: noise
 * of its own where the mask is not 1, and euler's where it is. */
static void masks_by_noise_level(void **state)
{
    struct scene *s = *state;
    struct htensor *t[] = { painted(s, false, "euler", 1),    painted(s, true, "euler", 1),
                            painted(s, false, "euler", 0.5f), painted(s, true, "euler", 0.5f),
                            painted(s, false, "ddim", 1),     painted(s, false, "ddim", 0.5f) };
    assert_true(equal(t[0], t[1]));
    assert_false(equal(t[2], t[3]));
    assert_true(equal(t[0], t[4]));
    assert_false(equal(t[2], t[5]));
    for (size_t i = 0; i < ARRAY_LEN(t); i++)
        htensor_unref(t[i]);
}

/* ---- said about the model ---- */

static struct htensor *with_model(struct scene *s, const char *cls, const char *inputs)
{
    struct call said, x;
    make(s, &said, cls, inputs, NULL);
    run(&said);
    rig_call(&s->r, &x, "KSampler", EULER);
    struct value *latent = empty();
    call_give(&x, "model", said.out[0].at[0]);
    call_give(&x, "positive", s->positive);
    call_give(&x, "negative", s->negative);
    call_give(&x, "latent_image", latent);
    value_unref(latent);
    run(&x);
    struct htensor *out = htensor_ref(x.out[0].at[0]->latent.samples);
    call_release(&x);
    call_release(&said);
    return out;
}

static void what_is_said_counts(void **state)
{
    static const struct {
        const char *cls, *inputs;
        bool same;
    } row[] = {
        { "ModelSamplingDiscrete", "{\"sampling\": \"eps\"}", true },
        { "ModelSamplingDiscrete", "{\"sampling\": \"v_prediction\"}", false },
        { "ModelSamplingDiscrete", "{\"sampling\": \"lcm\"}", false },
        { "ModelSamplingDiscrete", "{\"sampling\": \"v_prediction\", \"zsnr\": true}", false },
        { "ModelSamplingContinuousEDM", "{\"sampling\": \"v_prediction\"}", false },
        { "ModelSamplingContinuousEDM", "{\"sampling\": \"edm_playground_v2.5\"}", false },
        { "RescaleCFG", "{\"multiplier\": 0}", true },
        { "RescaleCFG", "{\"multiplier\": 0.7}", false },
        { "DifferentialDiffusion", "{}", true }, /* about masks: there is none */
    };
    struct scene *s = *state;
    struct call plain;
    euler(s, &plain);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct htensor *t = with_model(s, row[i].cls, row[i].inputs);
        bool same = true;
        for (size_t k = 0; k < htensor_count(t); k++)
            same &= t->data[k] == samples(&plain, 0)->data[k];
        if (same != row[i].same)
            fail_msg("%s %s: %s", row[i].cls, row[i].inputs, same ? "nothing" : "a change");
        htensor_unref(t);
    }
    call_release(&plain);
}

static void noise_is_added(void **state)
{
    struct scene *s = *state;
    struct call noise, none, sigmas, a, b;
    struct htensor *t = filled(1, 4, 8, 8, 1);
    make(s, &noise, "RandomNoise", "{\"noise_seed\": 3}", NULL);
    run(&noise);
    make(s, &none, "DisableNoise", "{}", NULL);
    run(&none);
    make(s, &sigmas, "ManualSigmas", "{\"sigmas\": \"3, 1\"}", NULL);
    run(&sigmas);
    make(s, &a, "AddNoise", "{}", latent_of(htensor_ref(t)));
    call_give(&a, "noise", none.out[0].at[0]);
    call_give(&a, "sigmas", sigmas.out[0].at[0]);
    run(&a);
    expect_same(t, samples(&a, 0), 1e-6);
    make(s, &b, "AddNoise", "{}", latent_of(htensor_ref(t)));
    call_give(&b, "noise", noise.out[0].at[0]);
    call_give(&b, "sigmas", sigmas.out[0].at[0]);
    run(&b);
    struct torch_rng rng;
    float draw[256];
    torch_seed(&rng, 3);
    torch_randn(&rng, draw, 256);
    for (size_t i = 0; i < 256; i++)
        if (fabsf(samples(&b, 0)->data[i] - (t->data[i] + 2 * draw[i] / 0.18215f)) > 1e-4f)
            fail_msg("[%zu] is %g", i, (double)samples(&b, 0)->data[i]);
    call_release(&noise);
    call_release(&none);
    call_release(&sigmas);
    call_release(&a);
    call_release(&b);
    htensor_unref(t);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(steps_are_told),
        cmocka_unit_test(interrupted_between_steps),
        cmocka_unit_test(nan_is_found),
        cmocka_unit_test(wrong_things_are_refused),
        cmocka_unit_test(survives_exhaustion),
        cmocka_unit_test(nothing_to_do_gives_it_back),
        cmocka_unit_test(two_halves_are_a_whole),
        cmocka_unit_test(custom_sampling_is_ksampler),
        cmocka_unit_test(guiders),
        cmocka_unit_test(batch_index_picks_its_noise),
        cmocka_unit_test(batch_index_has_a_limit),
        cmocka_unit_test(unknown_names_are_the_first),
        cmocka_unit_test(masks_are_repeated_over_the_batch),
        cmocka_unit_test(a_mask_keeps_the_rest),
        cmocka_unit_test(masks_by_noise_level),
        cmocka_unit_test(what_is_said_counts),
        cmocka_unit_test(noise_is_added),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
