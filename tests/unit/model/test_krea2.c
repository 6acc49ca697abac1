/* The Krea 2 transformer: what files it is read from, pictures to look at, hidden text, batches,
 * placements, memory. Its numbers are in tests/golden/model/test_krea2.c. */
#include "support/dit_passes.h"
#include "support/sparse.h"

#include "model/encoder.h"
#include "model/krea2/krea2.h"
#include "model/krea2/presets.h"

static const struct krea2_config small = { .channels = DIT_C,
                                           .hidden = 64,
                                           .heads = 4,
                                           .kv_heads = 2,
                                           .text_dim = 32,
                                           .text_heads = 2,
                                           .taps = 3,
                                           .depth = 3 };

static const char *file_of(const struct krea2_config *c, const char *name, enum dtype dtype,
                           const char *format)
{
    static const char *const hiprec[] = { "first.", "last.",   "tmlp.",
                                          "tproj.", "txtmlp.", "txtfusion.projector.",
                                          NULL };
    struct keys k = { 0 };
    keys_krea2(&k, c);
    assert_false(k.bad);
    const char *path = keys_file(&k, name, dtype, format, hiprec);
    keys_release(&k);
    return path;
}

/* ---- config ---- */

struct change { /* of one tensor's shape */
    const char *name;
    struct shape shape;
};

static bool reshape(const void *user, const struct key *key, char *name, size_t cap,
                    struct shape *s)
{
    const struct change *to = user;
    (void)name, (void)cap;
    if (!strcmp(key->name, to->name))
        *s = to->shape;
    return true;
}

static berth_status detect(const struct krea2_config *c, const char *root, struct krea2_net *f,
                           struct diffusion_info *info, berth_err *err)
{
    const char *path = tmp_path("config.safetensors");
    struct keys k = { 0 };
    struct weights *w;
    size_t mark = *root ? keys_enter(&k, "%.*s", (int)strlen(root) - 1, root) : 0;
    keys_krea2(&k, c);
    if (*root)
        keys_leave(&k, mark);
    assert_false(k.bad);
    assert_ok(sparse_keys(path, &k, DT_F16, err), *err);
    keys_release(&k);
    assert_ok(weights_open(path, NULL, &w, err), *err);
    berth_status s = krea2_detect(w, root, f, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        struct krea2_config c;
        const char *root;
        uint32_t axis[TOKENS_AXES];
    } list[] = {
        { { DIT_C, 6144, 48, 12, 2560, 20, 12, 28 }, "", { 32, 48, 48 } },
        { { DIT_C, 6144, 48, 12, 2560, 20, 12, 28 }, "model.diffusion_model.", { 32, 48, 48 } },
        { { DIT_C, 256, 4, 2, 64, 2, 3, 2 }, "", { 16, 24, 24 } },
        { { DIT_C, 96, 3, 1, 40, 20, 5, 1 }, "diffusion_model.", { 8, 12, 12 } },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const struct krea2_config *c = &list[i].c;
        struct krea2_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(detect(c, list[i].root, &f, &info, &err), err);
        assert_int_equal(f.heads.q, c->heads);
        assert_int_equal(f.heads.kv, c->kv_heads);
        assert_int_equal(f.heads.wide, c->hidden / c->heads);
        assert_int_equal(f.text_heads.q, c->text_heads);
        assert_int_equal(f.text_heads.kv, c->text_heads);
        assert_int_equal(f.taps, c->taps);
        assert_int_equal(f.depth, c->depth);
        assert_int_equal(f.layerwise, 2);
        assert_int_equal(f.refiners, 2);
        for (size_t a = 0; a < TOKENS_AXES; a++)
            assert_int_equal(f.axis[a], list[i].axis[a]);
        assert_string_equal(info.family, "Krea 2");
        assert_string_equal(info.latent.name, "Wan 2.1");
        assert_int_equal(info.latent.rank, 3);
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_int_equal(info.act, DT_BF16);
        assert_int_equal(info.act_else, DT_F16);
        assert_int_equal(info.context_dim, c->taps * c->text_dim);
        assert_ptr_equal(info.text, &text_set_krea2);
        assert_true(info.shift == 1.15 && info.multiplier == 0.0 && info.refs && !info.renamed);
    }
}

static void others_are_refused(void **state)
{
    static const struct {
        struct krea2_config c;
        const char *said;
    } list[] = {
        { { DIT_C, 64, 8, 2, 32, 2, 3, 1 }, "heads of 8 and 16 rows of keys for a width of 64" },
        { { DIT_C, 96, 3, 2, 32, 2, 3, 1 }, "'blocks.0': heads of 32 and 64 rows" },
        { { DIT_C, 65536 + 32, 1, 1, 32, 2, 3, 1 }, "at most 65536" },
        { { 8, 64, 2, 1, 32, 2, 3, 1 }, "8 channels in and 8 out" },
        { { DIT_C, 32, 1, 1, 32, 2, 3, 257 }, "at most 256 are taken" },
        { { DIT_C, 32, 1, 1, 32, 2, 257, 1 }, "257 taps, at most 256" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct krea2_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        berth_status s = detect(&list[i].c, "", &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
    }
}

/* Tensors that the config is not read from, in shapes that do not fit the others. */
static void wrong_shapes_are_refused(void **state)
{
    static const struct {
        struct change to;
        const char *said;
    } list[] = {
        { { "blocks.1.mod.lin", { 1, { 5 * 64 } } }, "blocks.1.mod.lin" },
        { { "last.modulation.lin", { 2, { 3, 64 } } }, "last.modulation.lin" },
        { { "blocks.2.prenorm.scale", { 1, { 32 } } }, "blocks.2.prenorm" },
        { { "blocks.0.attn.gate.weight", { 2, { 32, 64 } } }, "blocks.0." },
        { { "txtfusion.projector.weight", { 2, { 2, 3 } } }, "" },
        { { "tproj.1.weight", { 2, { 5 * 64, 64 } } }, "" },
    };
    struct keys k = { 0 };
    (void)state;
    keys_krea2(&k, &small);
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct net_rig g;
        struct diffusion *d;
        berth_err err = { 0 };
        net_rig_open(&g, "cpu=64m", keys_file_changed(&k, "wrong", reshape, &list[i].to), NULL,
                     NULL);
        struct diffusion_args args = { .res = g.f.r, .m = g.m };
        berth_status s = diffusion_open(&args, &d, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("%s: '%s' is not in '%s'", list[i].to.name, list[i].said,
                     s ? err.msg : "it runs");
        diffusion_close(d);
        net_rig_close(&g);
    }
    keys_release(&k);
}

/* ---- passes ---- */

/* They count only if a node says how; whatever it says they stand in layers of their own. */
static void pictures_to_look_at(void **state)
{
    static const enum diffusion_ref_method method[] = { REF_INDEX, REF_OFFSET, REF_NEGATIVE_INDEX,
                                                        REF_UXO };
    struct diff_rig r;
    (void)state;
    dit_open(&r, "cpu=256m", file_of(&small, "refs", DT_F32, "safetensors"), NULL, 1);
    float *none = diff_run(&r);
    r.cond[0].refs = 3;
    float *own = diff_run(&r);
    assert_memory_equal(own, none, DIT_EACH * sizeof *own);
    r.cond[0].ref_method = REF_INDEX_TIMESTEP_ZERO;
    float *zero = diff_run(&r), *index = NULL;
    for (size_t i = 0; i < ARRAY_LEN(method); i++) {
        r.cond[0].ref_method = method[i];
        float *got = diff_run(&r);
        assert_true(rel_error(got, none, DIT_EACH) > 1e-4);
        assert_true(rel_error(got, zero, DIT_EACH) > 1e-5);
        if (index)
            assert_memory_equal(got, index, DIT_EACH * sizeof *got);
        else
            index = got;
        if (index != got)
            free(got);
    }
    struct diffusion_ref first = r.ref[0]; /* in which layer each stands counts */
    r.ref[0] = r.ref[1];
    r.ref[1] = first;
    float *other = diff_run(&r);
    assert_true(rel_error(other, index, DIT_EACH) > 1e-5);
    free(none), free(own), free(zero), free(index), free(other);
    diff_close(&r);
}

static void bad_pictures_are_refused(void **state)
{
    struct diff_rig r;
    struct diffusion_ref many[KREA2_REFS_MAX + 1];
    berth_err err = { 0 };
    (void)state;
    dit_open(&r, "cpu=256m", file_of(&small, "bad", DT_F32, "safetensors"), NULL, 1);
    for (size_t i = 0; i < ARRAY_LEN(many); i++)
        many[i] = r.ref[0];
    r.cond[0].ref = many;
    r.cond[0].refs = ARRAY_LEN(many);
    r.cond[0].ref_method = REF_INDEX;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "more than 64");
    r.cond[0].refs = 1;
    many[0] = r.ref[3]; /* three frames */
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EUNSUPPORTED,
                 "a latent to look at [1, 16, 3, 5, 8] has 3 frames");
    many[0].shape = (struct shape) { 5, { 1, DIT_C, 1, 1 << 20, 1 << 20 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "to look at");
    r.cond[0].refs = 0;
    r.in.shape = (struct shape) { 5, { 1, DIT_C, 2, 4, 6 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EUNSUPPORTED,
                 "Krea 2 knows single pictures: a latent [1, 16, 2, 4, 6] has 2 frames");
    r.in.shape = (struct shape) { 5, { 1, DIT_C, 1, 4, 6 } };
    r.cond[0].width--;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL,
                 "Krea 2 wants a text of width 96");
    diff_close(&r);
}

/* The model knows no masks, and all tokens of text stand at one place. */
static void hidden_text_is_seen(void **state)
{
    static const bool hidden[DIT_TOKENS] = { [1] = true };
    struct diff_rig r;
    (void)state;
    dit_open(&r, "cpu=256m", file_of(&small, "hidden", DT_F32, "safetensors"), NULL, 1);
    float *want = diff_run(&r);
    r.cond[0].hidden = hidden;
    float *got = diff_run(&r);
    assert_memory_equal(got, want, DIT_EACH * sizeof *got);
    /* other words, or another order of taps, are another text */
    r.cond[0].hidden = NULL;
    r.context[0][0] += 0.5f;
    float *other = diff_run(&r);
    assert_true(rel_error(other, want, DIT_EACH) > 1e-5);
    free(want), free(got), free(other);
    diff_close(&r);
}

/* ---- what all of these transformers do ---- */

static const char *typed_file(enum dtype dtype, const char *format)
{
    return file_of(&small, dtype_name(dtype), dtype, format);
}

static void items_of_a_batch_are_as_if_alone(void **state)
{
    (void)state;
    diff_items_are_as_if_alone(dit_spec(REF_OWN), file_of(&small, "batch", DT_F32, "safetensors"),
                               REF_INDEX_TIMESTEP_ZERO);
}

static void blocks_stream_in_order(void **state)
{
    struct krea2_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.depth = 6;
    diff_streams_in_order(dit_spec(REF_INDEX_TIMESTEP_ZERO),
                          file_of(&c, "streamed", DT_F32, "safetensors"), "cpu=16m,null:0=128m");
}

static void thrifty_passes_give_the_same_bits(void **state)
{
    (void)state;
    diff_thrifty_gives_the_same_bits(dit_spec(REF_OWN),
                                     file_of(&small, "thrifty", DT_F32, "safetensors"));
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    diff_every_stored_type_computes(dit_spec(REF_INDEX), typed_file);
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "txtfusion.projector.weight", "first.weight", NULL };
    struct keys k = { 0 };
    (void)state;
    keys_krea2(&k, &small);
    diff_missing_is_said(&k, marks);
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    dit_no_memory_is_survived(file_of(&small, "oom", DT_F32, "safetensors"),
                              REF_INDEX_TIMESTEP_ZERO);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(pictures_to_look_at),
        cmocka_unit_test(bad_pictures_are_refused),
        cmocka_unit_test(hidden_text_is_seen),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(thrifty_passes_give_the_same_bits),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
