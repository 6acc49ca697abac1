/* The Flux.2 transformer: what files it is read from, prompts that are too short, pictures to look
 * at and what is kept of them, batches, placements, memory. Its numbers are in
 * tests/golden/model/test_flux2.c. */
#include "support/diffusion_rig.h"
#include "support/presets.h"
#include "support/sparse.h"

#include "model/encoder.h"
#include "model/families.h"
#include "model/flux2/flux2.h"
#include "model/flux2/presets.h"

#define H 5
#define W 4
#define C 128
#define LARGE 48
#define TOKENS 7
#define LEAST 512 /* tokens of a prompt, zeros in front included */

static const struct flux2_config small = { .channels = C,
                                           .hidden = 64,
                                           .head_dim = 32,
                                           .context_dim = 24,
                                           .depth = 2,
                                           .depth_single = 2,
                                           .guidance = true };

static const struct diff_spec spec = { .latent = { 4, { 1, C, H, W } },
                                       .large = { 4, { 1, C, LARGE, LARGE } },
                                       .ref = { { 4, { 1, C, 3, 4 } },
                                                { 4, { 1, C, 2, 6 } },
                                                { 4, { 2, C, 4, 2 } },
                                                { 4, { 1, C, 7, 3 } } },
                                       .tokens = TOKENS,
                                       .method = REF_INDEX_TIMESTEP_ZERO };
#define EACH (C * H * W)

static const char *file_of(const struct flux2_config *c, const char *name, enum dtype dtype,
                           const char *format)
{
    static const char *const hiprec[] = { "img_in.", "txt_in.", "time_in.", "final_layer.", NULL };
    struct keys k = { 0 };
    keys_flux2(&k, c);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, format, hiprec);
    keys_release(&k);
    return path;
}

/* ---- config ---- */

static berth_status detect(const struct flux2_config *c, struct flux2_net *f,
                           struct diffusion_info *info, berth_err *err)
{
    const char *path = tmp_path("config.safetensors");
    struct keys k = { 0 };
    struct weights *w;
    keys_flux2(&k, c);
    assert_false(k.bad);
    assert_ok(sparse_keys(path, &k, DT_F16, err), *err);
    keys_release(&k);
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status s = flux2_detect(w, "", f, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        struct flux2_config c;
        uint32_t axis;
        const char *name;
        const struct text_set *text;
    } list[] = {
        { { C, 6144, 128, 15360, 8, 48, true, false }, 32, "Flux.2", &text_set_flux2 },
        { { C, 3072, 128, 7680, 5, 20, false, false }, 32, "Flux.2 klein", &text_set_klein_4b },
        { { C, 4096, 128, 12288, 8, 24, false, false }, 32, "Flux.2 klein", &text_set_klein_8b },
        { { C, 64, 32, 24, 1, 3, true, true }, 8, "Flux.2", &text_set_flux2 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const struct flux2_config *c = &list[i].c;
        struct flux2_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(detect(c, &f, &info, &err), err);
        assert_int_equal(f.heads, c->hidden / c->head_dim);
        assert_int_equal(f.mlp, 3 * c->hidden);
        assert_int_equal(f.axis, list[i].axis);
        assert_int_equal(f.depth, c->depth);
        assert_int_equal(f.depth_single, c->depth_single);
        assert_int_equal(f.guidance, c->guidance);
        assert_int_equal(f.scale_names, c->scale_names);
        assert_string_equal(info.family, list[i].name);
        assert_ptr_equal(info.text, list[i].text);
        assert_string_equal(info.latent.name, "Flux.2");
        assert_int_equal(info.latent.ratio, 16);
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_int_equal(info.act, DT_BF16);
        assert_int_equal(info.act_else, DT_F32); /* F16 has not the range */
        assert_int_equal(info.context_dim, c->context_dim);
        assert_int_equal(info.guidance, c->guidance);
        assert_true(info.shift == 2.02 && info.multiplier == 0.0 && info.refs);
    }
}

static void others_are_refused(void **state)
{
    static const struct {
        struct flux2_config c;
        const char *said;
    } list[] = {
        { { C, 60, 12, 24, 1, 1, false, false }, "heads of 12" },
        { { C, 64, 48, 24, 1, 1, false, false }, "heads of 48" },
        { { 64, 64, 32, 24, 1, 1, false, false }, "64 channels in and 64 out" },
        { { C, 32, 32, 24, 257, 1, false, false }, "at most 256 are taken" },
        { { C, 32, 32, 24, 1, 257, false, false }, "at most 256 are taken" },
        { { C, 64, 32, (1 << 20) + 1, 1, 1, false, false }, "at most 1048576" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct flux2_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        berth_status s = detect(&list[i].c, &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
    }
}

/* Norms are called "weight" in some files and "scale" in others: the same network. */
static bool to_scale(const void *user, const struct key *key, char *name, size_t cap,
                     struct shape *s)
{
    const char *end = strstr(key->name, "_norm.weight");
    (void)user, (void)s;
    if (end)
        snprintf(name, cap, "%.*s_norm.scale", (int)(end - key->name), key->name);
    return true;
}

static void both_spellings_of_norms(void **state)
{
    struct keys k = { 0 };
    (void)state;
    keys_flux2(&k, &small);
    char a[512], b[512];
    snprintf(a, sizeof a, "%s", file_of(&small, "weight", DT_F32, "safetensors"));
    snprintf(b, sizeof b, "%s", keys_file_changed(&k, "scale", to_scale, NULL));
    keys_release(&k);
    float *x = diff_run_file(&spec, "cpu=256m", a, NULL, 1, 1);
    float *y = diff_run_file(&spec, "cpu=256m", b, NULL, 1, 1);
    assert_memory_equal(x, y, EACH * sizeof *x);
    free(x), free(y);
}

/* ---- passes ---- */

static void items_of_a_batch_are_as_if_alone(void **state)
{
    const char *path = file_of(&small, "batch", DT_F32, "safetensors");
    (void)state;
    diff_items_are_as_if_alone(&spec, path, REF_INDEX_TIMESTEP_ZERO);
    diff_items_are_as_if_alone(&spec, path, REF_UXO);
}

/* A prompt has zeros in front of it until it is long enough, whatever its length; those of other
 * lengths are in one pass with it, and what is said to be padding counts as text. */
static void short_prompts_have_zeros_in_front(void **state)
{
    static const bool hidden[TOKENS] = { [1] = true };
    struct diff_rig r;
    (void)state;
    diff_open(&r, &spec, "cpu=256m", file_of(&small, "short", DT_F32, "safetensors"), NULL, 1);
    float *want = diff_run(&r);
    const size_t width = r.cond[0].width;
    float *whole = calloc(LEAST * width, sizeof *whole);
    assert_non_null(whole);
    memcpy(whole + (LEAST - TOKENS) * width, r.context[0], TOKENS * width * sizeof *whole);
    r.cond[0].context = whole;
    r.cond[0].tokens = LEAST;
    float *got = diff_run(&r);
    assert_memory_equal(want, got, EACH * sizeof *want);
    free(got);
    r.cond[0].context = whole + width; /* one less in front: it is the same */
    r.cond[0].tokens = LEAST - 1;
    got = diff_run(&r);
    assert_memory_equal(want, got, EACH * sizeof *want);
    free(got);
    memset(whole, 0, LEAST * width * sizeof *whole); /* they stand behind the text: it is not */
    memcpy(whole, r.context[0], TOKENS * width * sizeof *whole);
    r.cond[0].context = whole;
    r.cond[0].tokens = LEAST;
    got = diff_run(&r);
    assert_true(rel_error(got, want, EACH) > 1e-4);
    free(got);

    r.cond[0].context = r.context[0];
    r.cond[0].tokens = TOKENS;
    r.cond[0].hidden = hidden;
    r.cond[1].tokens = TOKENS - 2;
    r.in.shape.dim[0] = 2;
    uint64_t before = diffusion_report(r.d).passes;
    got = diff_run(&r);
    assert_int_equal(diffusion_report(r.d).passes - before, 1);
    assert_memory_equal(want, got, EACH * sizeof *want);
    free(got), free(want), free(whole);
    diff_close(&r);
}

/* Where they are placed counts; what is not said is the index, ten apart. */
static void pictures_to_look_at(void **state)
{
    static const enum diffusion_ref_method method[] = { REF_OFFSET, REF_INDEX,
                                                        REF_INDEX_TIMESTEP_ZERO, REF_UXO };
    struct diff_rig r;
    float *got[ARRAY_LEN(method)];
    (void)state;
    diff_open(&r, &spec, "cpu=256m", file_of(&small, "refs", DT_F32, "safetensors"), NULL, 1);
    float *none = diff_run(&r);
    r.cond[0].refs = 4;
    float *own = diff_run(&r);
    for (size_t i = 0; i < ARRAY_LEN(method); i++) {
        r.cond[0].ref_method = method[i];
        got[i] = diff_run(&r);
        assert_true(rel_error(got[i], none, EACH) > 1e-4);
        assert_int_equal(!memcmp(got[i], own, EACH * sizeof *own), method[i] == REF_INDEX);
        for (size_t k = 0; k < i; k++)
            assert_true(rel_error(got[i], got[k], EACH) > 1e-5);
    }
    free(none), free(own);
    for (size_t i = 0; i < ARRAY_LEN(method); i++)
        free(got[i]);
    diff_close(&r);
}

static void bad_pictures_are_refused(void **state)
{
    struct diff_rig r;
    struct diffusion_ref many[FLUX2_REFS_MAX + 1];
    berth_err err = { 0 };
    (void)state;
    diff_open(&r, &spec, "cpu=256m", file_of(&small, "bad", DT_F32, "safetensors"), NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = r.ref[0];
    r.cond[0].ref = many;
    r.cond[0].refs = ARRAY_LEN(many);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "more than 64");
    r.cond[0].refs = 1;
    many[0].shape = (struct shape) { 4, { 1, C / 2, 6, 7 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "cannot look at a latent");
    many[0].shape = (struct shape) { 4, { 1, C, 1 << 20, 1 << 20 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "to look at");
    diff_close(&r);
}

/* ---- what is kept of pictures ---- */

static const struct net_patch keep = { .is = &patch_keep_refs };

static void keep_refs(struct diff_rig *r)
{
    r->in.patches = (struct net_patches) { .at = &keep, .n = 1 };
}

/* The first pass computes all, as free of noise; at the same level the next one gives the same from
 * what was kept, in less memory. Later levels see what the first one saw. */
static void refs_are_kept_from_the_first_pass_on(void **state)
{
    const char *path = file_of(&small, "kept", DT_F32, "safetensors");
    struct diff_rig r;
    (void)state;
    for (size_t n = 1; n <= 3; n += 2) {
        diff_open(&r, &spec, "cpu=256m", path, NULL, n);
        diff_refs(&r, 3);
        for (size_t k = 0; k < DIFF_MAX; k++)
            r.cond[k].ref_method = REF_INDEX_TIMESTEP_ZERO;
        float *want = diff_run(&r);
        for (size_t k = 0; k < DIFF_MAX; k++)
            r.cond[k].ref_method = REF_OWN; /* with the patch: the same */
        keep_refs(&r);
        float *first = diff_run(&r);
        uint64_t most = diffusion_report(r.d).peak;
        float *again = diff_run(&r);
        assert_true(diffusion_report(r.d).peak < most);
        assert_memory_equal(want, first, n * EACH * sizeof *want);
        assert_near("kept", again, want, n * EACH, 1e-5);
        for (size_t k = 0; k < DIFF_MAX; k++)
            r.t[k] -= 0.25f;
        float *later = diff_run(&r);
        r.in.patches.n = 0;
        for (size_t k = 0; k < DIFF_MAX; k++)
            r.cond[k].ref_method = REF_INDEX_TIMESTEP_ZERO;
        float *exact = diff_run(&r);
        double off = rel_error(later, exact, n * EACH);
        assert_true(off > 1e-6 && off < 0.5); /* the picture was noisier when they looked at it */
        free(want), free(first), free(again), free(later), free(exact);
        diff_close(&r);
    }
}

/* Prompts that look at pictures of other sizes have what is kept to themselves. Those that cannot
 * be in one pass for another reason share it, as in ComfyUI. */
static void what_is_kept_goes_by_place(void **state)
{
    struct diff_rig r;
    (void)state;
    for (int guided = 0; guided < 2; guided++) {
        diff_open(&r, &spec, "cpu=256m", file_of(&small, "whose", DT_F32, "safetensors"), NULL, 3);
        diff_refs(&r, 2);
        r.cond[2].refs = guided ? 2 : 1;
        r.cond[2].guided = guided ? -1 : 0; /* apart */
        for (size_t k = 0; k < DIFF_MAX; k++)
            r.cond[k].ref_method = REF_INDEX_TIMESTEP_ZERO;
        float *exact = diff_run(&r);
        keep_refs(&r);
        free(diff_run(&r));
        float *kept = diff_run(&r);
        const size_t last = 2 * EACH; /* which comes first */
        assert_memory_equal(exact + last, kept + last, EACH * sizeof *exact);
        assert_memory_equal(exact, kept, EACH * sizeof *exact);
        assert_int_equal(!memcmp(exact + EACH, kept + EACH, EACH * sizeof *exact), !guided);
        free(exact), free(kept);
        diff_close(&r);
    }
}

/* ---- placements, memory ---- */

static void blocks_stream_in_order(void **state)
{
    struct flux2_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.head_dim = 128;
    diff_streams_in_order(&spec, file_of(&c, "streamed", DT_F32, "safetensors"),
                          "cpu=40m,null:0=128m");
}

static void kept_refs_have_the_same_bits_everywhere(void **state)
{
    static const char *const place[][2] = { { "cpu=256m", NULL },
                                            { "cuda:0@cpu=16m,cpu=64m,null:0=16m",
                                              "cuda:0,20%;null:0,50%;cpu,30%#cuda:0" } };
    const char *path = file_of(&small, "kept_spread", DT_F32, "safetensors");
    float *got[ARRAY_LEN(place)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(place); i++) {
        struct diff_rig r;
        diff_open(&r, &spec, place[i][0], path, place[i][1], 2);
        diff_refs(&r, 2);
        keep_refs(&r);
        free(diff_run(&r));
        got[i] = diff_run(&r);
        diff_close(&r);
    }
    assert_memory_equal(got[0], got[1], 2 * EACH * sizeof **got);
    free(got[0]), free(got[1]);
}

static void thrifty_passes_give_the_same_bits(void **state)
{
    (void)state;
    diff_thrifty_gives_the_same_bits(&spec, file_of(&small, "thrifty", DT_F32, "safetensors"));
}

static const char *typed_file(enum dtype dtype, const char *format)
{
    return file_of(&small, dtype_name(dtype), dtype, format);
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    diff_every_stored_type_computes(&spec, typed_file);
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "img_in.weight", "double_stream_modulation_img.lin.weight",
                                         "double_blocks.0.img_attn.norm.key_norm.weight", NULL };
    struct keys k = { 0 };
    (void)state;
    keys_flux2(&k, &small);
    diff_missing_is_said(&k, marks);
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    struct diff_rig r;
    (void)state;
    diff_open(&r, &spec, "cpu=64m", file_of(&small, "oom", DT_F32, "safetensors"), NULL, 2);
    diff_refs(&r, 1);
    keep_refs(&r);
    for (size_t k = 0; k < DIFF_MAX; k++)
        r.cond[k].ref_method = REF_INDEX_TIMESTEP_ZERO;
    diff_no_memory_is_survived(&r);
    diff_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(both_spellings_of_norms),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(short_prompts_have_zeros_in_front),
        cmocka_unit_test(pictures_to_look_at),
        cmocka_unit_test(bad_pictures_are_refused),
        cmocka_unit_test(refs_are_kept_from_the_first_pass_on),
        cmocka_unit_test(what_is_kept_goes_by_place),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(kept_refs_have_the_same_bits_everywhere),
        cmocka_unit_test(thrifty_passes_give_the_same_bits),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
