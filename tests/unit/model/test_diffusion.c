/* Diffusion models: which family a file is, stored types, placements, batches of all kinds. */
#include "support/nets.h"
#include "support/oom.h"
#include "support/presets.h"

#include "model/diffusion.h"

#define PART "model.diffusion_model."

struct rig {
    struct net_rig g;
    struct diffusion *d;
    const struct diffusion_info *info;
};

static void rig_open(struct rig *r, const char *devices, const char *path, const char *part,
                     const char *alloc)
{
    berth_err err = { 0 };
    net_rig_open(&r->g, devices, path, part, alloc);
    assert_ok(diffusion_open(
                  &(struct diffusion_args) {
                      .res = r->g.f.r, .m = r->g.m, .part = part, .pool = r->g.pool },
                  &r->d, &err),
              err);
    r->info = diffusion_info(r->d);
}

static void rig_close(struct rig *r)
{
    diffusion_close(r->d);
    net_rig_close(&r->g);
}

/* The preset's tensors below `part`, or all of them. */
static void unet_keys(const char *preset, struct keys *k)
{
    berth_err err = { 0 };
    struct keys all = { 0 };
    *k = (struct keys) { 0 };
    assert_ok(preset_keys(preset_find(preset), &all, &err), err);
    for (size_t i = 0; i < all.n; i++)
        if (!strncmp(all.at[i].name, PART, strlen(PART))) {
            const struct shape *s = &all.at[i].shape;
            keys_tensor(k, all.at[i].name, s->dim[0], s->dim[1], s->dim[2], s->dim[3]);
        }
    assert_false(k->bad);
    keys_release(&all);
}

static const char *unet_file(const char *preset, enum dtype dtype, const char *format)
{
    static const char *const hiprec[] = { PART "time_embed.", PART "label_emb.",
                                          PART "input_blocks.0.", PART "out.", NULL };
    struct keys k;
    char name[96];
    unet_keys(preset, &k);
    snprintf(name, sizeof name, "%s-unet-%s", preset, dtype_name(dtype));
    const char *path = keys_file(&k, name, dtype, format, hiprec);
    keys_release(&k);
    return path;
}

/* ---- inputs ---- */

#define H 9
#define W 7
#define N_MAX 4

struct inputs {
    float *x, *pooled, *out, *context[N_MAX];
    float t[N_MAX];
    struct diffusion_cond cond[N_MAX];
    const struct diffusion_cond *list[N_MAX];
    struct diffusion_in in;
    size_t each;
};

/* Latents of another size. */
static void inputs_size(struct inputs *s, const struct rig *r, size_t h, size_t w)
{
    s->each = r->info->latent.channels * h * w;
    free(s->x), free(s->out);
    s->x = noise_floats(1, N_MAX * s->each);
    s->out = calloc(N_MAX * s->each, sizeof *s->out);
    assert_non_null(s->out);
    s->in.shape.dim[2] = h, s->in.shape.dim[3] = w, s->in.x = s->x, s->in.out = s->out;
}

static void inputs_make(struct inputs *s, const struct rig *r, size_t n, const size_t *tokens)
{
    size_t width = (size_t)r->info->context_dim;
    *s = (struct inputs) { .each = r->info->latent.channels * H * W };
    size_t sizes = r->info->adm == ADM_REFINER ? 5 : 6;
    size_t pooled_n = r->info->adm ? (size_t)r->info->adm_channels - sizes * 256 : 0;
    s->x = noise_floats(1, N_MAX * s->each);
    s->pooled = noise_floats(2, pooled_n + 1);
    s->out = calloc(N_MAX * s->each, sizeof *s->out);
    assert_non_null(s->out);
    for (size_t i = 0; i < N_MAX; i++) {
        size_t L = i < n ? tokens[i] : 1;
        s->context[i] = noise_floats(3 + i, L * width);
        s->t[i] = 900.0f - 250.0f * (float)i;
        s->cond[i] = (struct diffusion_cond) { .context = s->context[i],
                                               .tokens = L,
                                               .width = width,
                                               .pooled = r->info->adm ? s->pooled : NULL,
                                               .pooled_n = pooled_n,
                                               .negative = i % 2 };
        s->list[i] = &s->cond[i];
    }
    s->in = (struct diffusion_in) { .shape = { 4, { n, r->info->latent.channels, H, W } },
                                    .x = s->x,
                                    .t = s->t,
                                    .cond = s->list,
                                    .out = s->out };
}

static void inputs_release(struct inputs *s)
{
    for (size_t i = 0; i < N_MAX; i++)
        free(s->context[i]);
    free(s->x), free(s->pooled), free(s->out);
}

/* ---- families ---- */

static void presets_are_their_families(void **state)
{
    static const struct {
        const char *preset, *family, *latent;
        enum diffusion_prediction predicts;
        enum diffusion_adm adm;
        bool inpaint;
    } list[] = {
        { "sd15-tiny", "SD1.5", "SD1", PREDICT_EPS, ADM_NONE, false },
        { "sd15-inpaint-tiny", "SD1.5", "SD1", PREDICT_EPS, ADM_NONE, true },
        { "sdxl-tiny", "SDXL", "SDXL", PREDICT_EPS, ADM_SDXL, false },
        { "sdxl-base-tiny", "SDXL", "SDXL", PREDICT_EPS, ADM_SDXL, false },
        { "sdxl-refiner-tiny", "SDXL refiner", "SDXL", PREDICT_EPS, ADM_REFINER, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct weights *w;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(weights_open(preset_file(list[i].preset, DT_F16), NULL, &w, &err), err);
        for (int whole = 0; whole < 2; whole++) { /* by its part, and in the file as it is */
            assert_ok(diffusion_detect(w, whole ? NULL : PART, &info, &err), err);
            assert_string_equal(info.family, list[i].family);
            assert_string_equal(info.latent.name, list[i].latent);
            assert_int_equal(info.predicts, list[i].predicts);
            assert_int_equal(info.adm, list[i].adm);
            assert_int_equal(info.inpaint, list[i].inpaint);
            assert_int_equal(info.in_channels, list[i].inpaint ? 9 : 4);
            assert_int_equal(info.latent.ratio, 8);
        }
        assert_fails(diffusion_detect(w, "first_stage_model.", &info, &err), err,
                     BERTH_EUNSUPPORTED, "no diffusion model");
        weights_close(w);
    }
}

/* The marks by which files say what they predict, beside the UNet's tensors. */
struct mark {
    const char *preset, *name[2];
    float value; /* of the marks; SD2: spread of the last transformer's biases */
    enum diffusion_prediction predicts;
    bool zsnr;
    double sigma_min, sigma_max;
    const char *latent;
};

struct marked {
    const struct keys *k;
    const struct mark *m;
};

static berth_status fill_marked(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                berth_err *err)
{
    const struct marked *x = user;
    const char *sd2 = "transformer_blocks.0.norm1.bias";
    float *v = dst;
    (void)err;
    if (i >= x->k->n) {
        for (size_t k = 0; k < n / sizeof *v; k++)
            v[k] = x->m->value;
        return BERTH_OK;
    }
    const struct key *key = &x->k->at[i];
    synth_fill(key->name, key->name_len, &key->shape, off / sizeof *v, n / sizeof *v, v);
    if (!x->m->name[0] && strstr(key->name, sd2))
        for (size_t k = 0; k < n / sizeof *v; k++)
            v[k] = (k + off / sizeof *v) % 2 ? x->m->value : -x->m->value;
    return BERTH_OK;
}

static struct weights *marked_file(const struct mark *m)
{
    struct keys k;
    struct weights *w;
    berth_err err = { 0 };
    unet_keys(m->preset, &k);
    struct weights_spec *spec = calloc(k.n + 2, sizeof *spec);
    size_t n = k.n;
    assert_non_null(spec);
    for (size_t i = 0; i < k.n; i++)
        spec[i] = (struct weights_spec) { k.at[i].name, DT_F32, k.at[i].shape };
    for (size_t i = 0; i < 2 && m->name[i]; i++) {
        /* such marks have no elements at all */
        bool empty = !strcmp(m->name[i], "v_pred") || !strcmp(m->name[i], "ztsnr");
        spec[n++] = (struct weights_spec) { m->name[i], DT_F32, { 1, { empty ? 0 : 1 } } };
    }
    struct marked user = { &k, m };
    const char *path = tmp_path("marked.safetensors");
    struct weights_write_args a = { .format = "safetensors",
                                    .path = path,
                                    .spec = spec,
                                    .count = n,
                                    .fill = fill_marked,
                                    .user = &user };
    assert_ok(weights_write(&a, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    free(spec);
    keys_release(&k);
    return w;
}

static void noise_levels_of_files_are_checked(void **state)
{
    static const float list[] = { 0, -1, INFINITY, NAN };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct mark m = { "sdxl-tiny", { "edm_vpred.sigma_max" }, list[i], 0, 0, 0, 0, NULL };
        struct weights *w = marked_file(&m);
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_fails(diffusion_detect(w, PART, &info, &err), err, BERTH_EUNSUPPORTED,
                     "no noise level");
        weights_close(w);
    }
}

static void files_say_what_they_predict(void **state)
{
    static const struct mark list[] = {
        { "sdxl-tiny", { "v_pred" }, 0, PREDICT_V, false, 0, 0, "SDXL" },
        { "sdxl-tiny", { "v_pred", "ztsnr" }, 0, PREDICT_V, true, 0, 0, "SDXL" },
        { "sdxl-tiny", { "ztsnr" }, 0, PREDICT_EPS, false, 0, 0, "SDXL" },
        { "sdxl-tiny",
          { "edm_mean", "edm_std" },
          1,
          PREDICT_EDM,
          false,
          0.002,
          80,
          "SDXL Playground 2.5" },
        { "sdxl-tiny", { "edm_vpred.sigma_max" }, 50, PREDICT_V, false, 0.002, 50, "SDXL" },
        { "sdxl-refiner-tiny", { "v_pred" }, 0, PREDICT_EPS, false, 0, 0, "SDXL" },
        { "sd2-tiny", { NULL }, 0.1f, PREDICT_V, false, 0, 0, "SD1" },
        { "sd2-tiny", { NULL }, 0.08f, PREDICT_EPS, false, 0, 0, "SD1" },
        { "sd15-tiny", { NULL }, 0.1f, PREDICT_EPS, false, 0, 0, "SD1" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct weights *w = marked_file(&list[i]);
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(diffusion_detect(w, PART, &info, &err), err);
        assert_int_equal(info.predicts, list[i].predicts);
        assert_int_equal(info.zsnr, list[i].zsnr);
        assert_true(fabs(info.sigma_min - list[i].sigma_min) < 1e-9);
        assert_true(fabs(info.sigma_max - list[i].sigma_max) < 1e-9);
        assert_int_equal(info.scaled_edit, list[i].sigma_max == 50); /* CosXL */
        assert_string_equal(info.latent.name, list[i].latent);
        weights_close(w);
    }
}

/* 0.0899 is 0.09375 in both types of fp8, on the other side of 0.09. */
static void what_sd2_predicts_is_in_the_file(void **state)
{
    static const struct mark list[] = {
        { "sd2-tiny", { NULL }, 0.0899f, PREDICT_EPS, false, 0, 0, NULL },
        { "sd2-tiny", { NULL }, 0.0905f, PREDICT_V, false, 0, 0, NULL },
    };
    static const enum dtype types[] = { DT_F8_E4M3, DT_F8_E5M2 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct weights *w = marked_file(&list[i]);
        for (size_t k = 0; k < ARRAY_LEN(types); k++) {
            struct diffusion_info info;
            berth_err err = { 0 };
            for (size_t t = 0; t < weights_count(w); t++)
                weights_convert(w, t, types[k]);
            assert_ok(diffusion_detect(w, PART, &info, &err), err);
            assert_int_equal(info.predicts, list[i].predicts);
        }
        weights_close(w);
    }
}

/* ---- stored types ---- */

static berth_status fill_widened(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                 berth_err *err)
{
    const struct weights *w = user;
    const struct weights_entry *e = weights_at(w, i);
    const struct dtype_desc *d = dtype_desc(e->dtype);
    uint64_t from = off / sizeof(float) / d->elems * d->bytes;
    size_t bytes = (n / sizeof(float) + d->elems - 1) / d->elems * d->bytes;
    void *raw = malloc(bytes);
    assert_non_null(raw);
    /* pieces begin at multiples of every block */
    assert_int_equal(off / sizeof(float) % d->elems + n / sizeof(float) % d->elems, 0);
    assert_ok(weights_read(w, e, from, raw, bytes, err), *err);
    d->to_f32(raw, dst, n / sizeof(float));
    free(raw);
    return BERTH_OK;
}

/* The same values in F32. */
static const char *widened_file(const char *path)
{
    struct weights *w;
    berth_err err = { 0 };
    assert_ok(weights_open(path, NULL, &w, &err), err);
    size_t n = weights_count(w);
    struct weights_spec *spec = calloc(n, sizeof *spec);
    assert_non_null(spec);
    for (size_t i = 0; i < n; i++)
        spec[i] = (struct weights_spec) { weights_at(w, i)->name, DT_F32, weights_at(w, i)->shape };
    const char *out = tmp_path("widened.safetensors");
    struct weights_write_args a = { .format = "safetensors",
                                    .path = out,
                                    .spec = spec,
                                    .count = n,
                                    .fill = fill_widened,
                                    .user = w };
    assert_ok(weights_write(&a, &err), err);
    free(spec);
    weights_close(w);
    return out;
}

/* One pass over a file; to be freed. */
static float *pass(const char *path, uint64_t *resident)
{
    const size_t tokens[] = { 5, 5 };
    struct rig r;
    struct inputs s;
    berth_err err = { 0 };
    rig_open(&r, "cpu=256m", path, PART, NULL);
    inputs_make(&s, &r, 2, tokens);
    assert_ok(diffusion_forward(r.d, &s.in, &err), err);
    *resident = res_info(r.g.m).resident;
    float *out = s.out;
    s.out = NULL;
    rig_close(&r);
    inputs_release(&s);
    return out;
}

/* What is stored is what counts: the same as with its values in F32, and near to what was
 * rounded. */
static void every_stored_type_computes(void **state)
{
    static const struct {
        enum dtype dtype;
        const char *format;
        double limit;    /* to the network that was rounded to the type */
        unsigned divide; /* bytes of F32 over bytes of these, rounded down */
    } list[] = {
        { DT_F16, "safetensors", 5e-3, 2 },
        { DT_BF16, "safetensors", 4e-2, 2 },
        { DT_F8_E4M3, "safetensors", 0.5, 4 },
        { DT_Q8_0, "gguf", 6e-2, 3 },
    };
    const size_t n = 2 * 4 * H * W;
    uint64_t f32, bytes, wide;
    (void)state;
    float *exact = pass(unet_file("sd15-tiny", DT_F32, "safetensors"), &f32);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const char *path = unet_file("sd15-tiny", list[i].dtype, list[i].format);
        float *got = pass(path, &bytes), *want = pass(widened_file(path), &wide);
        assert_near(dtype_name(list[i].dtype), got, want, n, 1e-5);
        assert_near("against F32", got, exact, n, list[i].limit);
        assert_true(rel_error(got, exact, n) > 1e-5);
        assert_int_equal(wide, f32);
        assert_int_equal(f32 / bytes, list[i].divide); /* resident as stored */
        free(got), free(want);
    }
    free(exact);
}

/* ---- placements ---- */

static void placements_give_the_same_bits(void **state)
{
    static const char *const three = "cuda:0@cpu=32m,cuda:1@cpu=32m,cpu=64m";
    static const struct {
        const char *devices, *alloc;
    } list[] = {
        { "cpu=256m", NULL },
        { three, "cuda:0,20%;cuda:1,40%;cpu,40%#cuda:0" },
        { three, "cuda:1,10%;cpu,90%#cuda:1" },
        { "cpu=256m,null:0=32m", "null:0,60%;cpu,40%#cpu" },
    };
    const char *path = unet_file("sd15-tiny", DT_F16, "safetensors");
    const size_t tokens[] = { 5, 10 };
    float *first = NULL;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct rig r;
        struct inputs s;
        berth_err err = { 0 };
        rig_open(&r, list[i].devices, path, PART, list[i].alloc);
        inputs_make(&s, &r, 2, tokens);
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        struct net_report rep = diffusion_report(r.d);
        assert_int_equal(rep.peak, rep.predicted);
        if (first) {
            assert_memory_equal(first, s.out, 2 * s.each * sizeof *first);
        } else {
            first = s.out;
            s.out = NULL;
        }
        rig_close(&r);
        inputs_release(&s);
    }
    free(first);
}

/* Blocks are taken in the order in which streams fetch them. */
static void blocks_come_in_order(void **state)
{
    static const char *const preset[] = { "sd15-tiny", "sd2-tiny", "sdxl-tiny",
                                          "sdxl-refiner-tiny" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(preset); i++) {
        struct rig r;
        struct inputs s;
        berth_err err = { 0 };
        rig_open(&r, "cpu=512m", unet_file(preset[i], DT_F16, "safetensors"), PART, NULL);
        inputs_make(&s, &r, 1, (const size_t[]) { 5 });
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        if (diffusion_report(r.d).backward)
            fail_msg("%s: %d blocks before the one taken before them", preset[i],
                     (int)diffusion_report(r.d).backward);
        rig_close(&r);
        inputs_release(&s);
    }
}

/* ---- batches ---- */

/* Each latent alone, repeated to `tokens`. */
static void alone(struct rig *r, struct inputs *s, const size_t *tokens, float *out)
{
    berth_err err = { 0 };
    size_t width = (size_t)r->info->context_dim;
    for (size_t i = 0; i < s->in.shape.dim[0]; i++) {
        float *context = malloc(tokens[i] * width * sizeof *context);
        struct diffusion_cond c = s->cond[i];
        const struct diffusion_cond *list[] = { &c };
        assert_non_null(context);
        for (size_t k = 0; k < tokens[i] * width; k++)
            context[k] = c.context[k % (c.tokens * width)];
        c.context = context;
        c.tokens = tokens[i];
        struct diffusion_in in = s->in;
        in.shape.dim[0] = 1;
        in.x += i * s->each;
        in.t += i;
        in.cond = list;
        in.out = out + i * s->each;
        if (in.concat)
            in.concat += i * (size_t)(r->info->in_channels - r->info->latent.channels) * H * W;
        assert_ok(diffusion_forward(r->d, &in, &err), err);
        free(context);
    }
}

static void prompts_of_different_length(void **state)
{
    static const struct {
        size_t n, tokens[N_MAX], used[N_MAX], passes;
    } list[] = {
        { 3, { 6, 6, 6 }, { 6, 6, 6 }, 1 },
        { 2, { 4, 8 }, { 8, 8 }, 1 },
        { 3, { 6, 4, 12 }, { 12, 12, 12 }, 1 },
        { 2, { 3, 15 }, { 3, 15 }, 2 },               /* 5 times is too often */
        { 2, { 5, 7 }, { 5, 7 }, 2 },                 /* 7 times, too */
        { 4, { 3, 15, 3, 30 }, { 3, 30, 3, 30 }, 2 }, /* two batches of two */
    };
    struct rig r;
    (void)state;
    rig_open(&r, "cpu=256m", unet_file("sd15-tiny", DT_F32, "safetensors"), PART, NULL);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct inputs s;
        berth_err err = { 0 };
        inputs_make(&s, &r, list[i].n, list[i].tokens);
        float *want = calloc(N_MAX * s.each, sizeof *want);
        uint64_t before = diffusion_report(r.d).passes;
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        assert_int_equal(diffusion_report(r.d).passes - before, list[i].passes);
        alone(&r, &s, list[i].used, want);
        assert_memory_equal(want, s.out, list[i].n * s.each * sizeof *want);
        /* repeating does not change what attention gives, but for rounding */
        alone(&r, &s, list[i].tokens, want);
        assert_near("repeated prompts", s.out, want, list[i].n * s.each, 1e-5);
        free(want);
        inputs_release(&s);
    }
    rig_close(&r);
}

static void batches_without_room_are_split(void **state)
{
    const size_t tokens[] = { 5, 5, 5, 5 };
    const char *path = unet_file("sd15-tiny", DT_F32, "safetensors");
    struct rig r;
    struct inputs s;
    uint64_t one, four;
    char devices[64];
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", path, PART, NULL);
    inputs_make(&s, &r, 4, tokens);
    inputs_size(&s, &r, 48, 40); /* larger than what kernels take beside */
    assert_ok(diffusion_predict(r.d, &s.in, &four, &err), err);
    s.in.shape.dim[0] = 1;
    assert_ok(diffusion_predict(r.d, &s.in, &one, &err), err);
    s.in.shape.dim[0] = 4;
    assert_ok(diffusion_forward(r.d, &s.in, &err), err);
    assert_int_equal(diffusion_report(r.d).peak, four);
    assert_true(four > one + one / 2);
    float *want = s.out;
    s.out = NULL;
    snprintf(devices, sizeof devices, "cpu=%llu",
             (unsigned long long)(res_info(r.g.m).bytes * 33 / 32 + one + (four - one) / 4));
    rig_close(&r);
    inputs_release(&s);

    rig_open(&r, devices, path, PART, NULL);
    inputs_make(&s, &r, 4, tokens);
    inputs_size(&s, &r, 48, 40); /* larger than what kernels take beside */
    assert_ok(diffusion_forward(r.d, &s.in, &err), err);
    assert_memory_equal(want, s.out, 4 * s.each * sizeof *want);
    uint64_t passes = diffusion_report(r.d).passes;
    assert_true(passes > 1);
    assert_ok(diffusion_forward(r.d, &s.in, &err), err); /* it does not try again */
    assert_int_equal(diffusion_report(r.d).passes, 2 * passes);
    rig_close(&r);
    inputs_release(&s);
    free(want);
}

static void inpainting_models_get_their_channels(void **state)
{
    const size_t tokens[] = { 5, 5 };
    const float grey[] = { 1, 0.8223f, -0.6876f, 0.6364f, 0.1380f };
    struct rig r;
    struct inputs s;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", unet_file("sd15-inpaint-tiny", DT_F32, "safetensors"), PART, NULL);
    assert_true(r.info->inpaint && r.info->in_channels == 9);
    inputs_make(&s, &r, 2, tokens);
    float *without = calloc(2 * s.each, sizeof *without), *concat = noise_floats(8, 2 * 5 * H * W),
          *same = calloc(2 * s.each, sizeof *same);
    assert_true(without && same);
    s.in.out = without;
    assert_ok(diffusion_forward(r.d, &s.in, &err), err);
    s.in.concat = concat;
    s.in.out = s.out;
    assert_ok(diffusion_forward(r.d, &s.in, &err), err);
    assert_true(rel_error(s.out, without, 2 * s.each) > 1e-2);
    alone(&r, &s, tokens, same); /* each has its own */
    assert_memory_equal(same, s.out, 2 * s.each * sizeof *same);
    for (size_t i = 0; i < 2 * 5 * H * W; i++)
        concat[i] = grey[i / (H * W) % 5];
    assert_ok(diffusion_forward(r.d, &s.in, &err), err);
    assert_memory_equal(without, s.out, 2 * s.each * sizeof *without);
    free(without), free(concat), free(same);
    inputs_release(&s);
    rig_close(&r);
}

/* What the vector says must matter, and defaults must be what they are said to be. */
static void refiner_and_sizes(void **state)
{
    const size_t tokens[] = { 5 };
    static const char *const presets[] = { "sdxl-tiny", "sdxl-refiner-tiny" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(presets); i++) {
        struct rig r;
        struct inputs s;
        berth_err err = { 0 };
        rig_open(&r, "cpu=256m", unet_file(presets[i], DT_F32, "safetensors"), PART, NULL);
        bool refiner = r.info->adm == ADM_REFINER;
        inputs_make(&s, &r, 1, tokens);
        float *base = calloc(s.each, sizeof *base);
        assert_non_null(base);
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        memcpy(base, s.out, s.each * sizeof *base);
        s.cond[0].size = (struct diffusion_size) { .said = true, .width = 8 * W, .height = 8 * H };
        s.cond[0].size.target_width = 8 * W, s.cond[0].size.target_height = 8 * H;
        s.cond[0].size.aesthetic = 6, s.cond[0].size.scored = true;
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        assert_memory_equal(base, s.out, s.each * sizeof *base);
        s.cond[0].size = (struct diffusion_size) { .said = true, .width = 8 * H, .height = 8 * W };
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        assert_true(rel_error(s.out, base, s.each) > 1e-3);
        s.cond[0].size = (struct diffusion_size) { .said = true }; /* 0 is a size, too */
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        assert_true(rel_error(s.out, base, s.each) > 1e-3);
        s.cond[0].size = (struct diffusion_size) { .scored = true }; /* and a score */
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        assert_int_equal(memcmp(base, s.out, s.each * sizeof *base) != 0, refiner);
        s.cond[0].size = (struct diffusion_size) { 0 };
        s.cond[0].negative = true; /* only the refiner knows */
        assert_ok(diffusion_forward(r.d, &s.in, &err), err);
        assert_int_equal(memcmp(base, s.out, s.each * sizeof *base) != 0, refiner);
        s.cond[0].pooled_n++;
        assert_fails(diffusion_forward(r.d, &s.in, &err), err, BERTH_EINVAL, "pooled");
        s.cond[0].width--;
        assert_fails(diffusion_forward(r.d, &s.in, &err), err, BERTH_EINVAL, "width");
        free(base);
        inputs_release(&s);
        rig_close(&r);
    }
}

static void values_that_are_not_finite_end_it(void **state)
{
    const size_t tokens[] = { 5 };
    struct rig r;
    struct inputs s;
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, "cpu=256m", unet_file("sd15-tiny", DT_F32, "safetensors"), PART, NULL);
    inputs_make(&s, &r, 1, tokens);
    s.x[5] = NAN;
    assert_fails(diffusion_forward(r.d, &s.in, &err), err, BERTH_EINVAL, "UNet");
    inputs_release(&s);
    rig_close(&r);
}

static void no_memory_is_survived(void **state)
{
    const size_t tokens[] = { 4, 8 };
    struct rig r;
    struct inputs s;
    (void)state;
    rig_open(&r, "cpu=256m", unet_file("sdxl-tiny", DT_F32, "safetensors"), PART, NULL);
    inputs_make(&s, &r, 2, tokens);
    struct diffusion_args a = { .res = r.g.f.r, .m = r.g.m, .part = PART };
    berth_status st = BERTH_ENOMEM;
    /* opening: each allocation; the pass: the first ones, which are its own */
    for (long k = 0; st != BERTH_OK && k < 200; k++) {
        struct diffusion *d = NULL;
        berth_err err = { 0 };
        oom_after(k);
        st = diffusion_open(&a, &d, &err);
        oom_off();
        assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && !d && err.msg[0]));
        diffusion_close(d);
    }
    assert_int_equal(st, BERTH_OK);
    for (long k = 0; k < 8; k++) {
        berth_err err = { 0 };
        oom_after(k);
        st = diffusion_forward(r.d, &s.in, &err);
        oom_off();
        assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && err.msg[0]));
    }
    inputs_release(&s);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(presets_are_their_families),
        cmocka_unit_test(files_say_what_they_predict),
        cmocka_unit_test(what_sd2_predicts_is_in_the_file),
        cmocka_unit_test(noise_levels_of_files_are_checked),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(placements_give_the_same_bits),
        cmocka_unit_test(blocks_come_in_order),
        cmocka_unit_test(prompts_of_different_length),
        cmocka_unit_test(batches_without_room_are_split),
        cmocka_unit_test(inpainting_models_get_their_channels),
        cmocka_unit_test(refiner_and_sizes),
        cmocka_unit_test(values_that_are_not_finite_end_it),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
