/* The Wan transformers: what files they are read from and under which names, what CLIP vision saw,
 * pictures in front, batches, placements, memory. Their numbers are in
 * tests/golden/model/test_wan.c. */
#include "support/diffusion_rig.h"
#include "support/presets.h"

#include "model/encoder.h"
#include "model/wan/presets.h"
#include "model/wan/wan.h"

#define C 16
#define T 3
#define H 8
#define W 6
#define EACH (C * T * H * W)

static const struct wan_config small = {
    .hidden = 128, .ffn = 192, .in = C, .out = C, .context_dim = 32, .depth = 3, .ref = C
};

static void list_keys(struct keys *k, const void *c)
{
    keys_wan(k, c);
}

static const char *const hiprec[] = { "patch_embedding.", "head.", "time_", "text_", NULL };
static const struct diff_spec spec = { .latent = { 5, { 1, C, T, H, W } },
                                       .ref = { { 5, { 1, C, 1, H, W } },
                                                { 5, { 1, C, 1, H, W } },
                                                { 5, { 2, C, 1, H, W } },
                                                { 5, { 1, C, 1, H, W } } },
                                       .tokens = 7,
                                       .keys = list_keys,
                                       .config = &small,
                                       .hiprec = hiprec };

/* ---- config ---- */

static berth_status detect(const struct wan_config *c, const char *root, struct wan_net *f,
                           struct diffusion_info *info, berth_err *err)
{
    struct weights *w = diff_header(&spec, c, root, NULL);
    berth_status s = wan_detect(w, root, f, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        struct wan_config c;
        const char *root, *family;
        bool concat, masked;
    } list[] = {
        { { .hidden = 1536, .ffn = 8960, .in = 16, .out = 16, .context_dim = 4096, .depth = 30 },
          "",
          "Wan",
          false,
          false },
        { { .hidden = 5120, .ffn = 13824, .in = 16, .out = 16, .context_dim = 4096, .depth = 40 },
          "model.diffusion_model.",
          "Wan",
          false,
          false },
        { { .hidden = 5120, .ffn = 13824, .in = 36, .out = 16, .context_dim = 4096, .depth = 40 },
          "",
          "Wan",
          true,
          false },
        { { .hidden = 5120,
            .ffn = 13824,
            .in = 36,
            .out = 16,
            .context_dim = 4096,
            .depth = 40,
            .sees = true },
          "",
          "Wan image to video",
          true,
          true },
        { { .hidden = 128,
            .ffn = 160,
            .in = 48,
            .out = 16,
            .context_dim = 24,
            .depth = 1,
            .sees = true,
            .ref = 16 },
          "diffusion_model.",
          "Wan image to video",
          true,
          false },
        { { .hidden = 256,
            .ffn = 160,
            .in = 36,
            .out = 16,
            .context_dim = 24,
            .depth = 2,
            .sees = true,
            .seen = 514 },
          "",
          "Wan image to video",
          true,
          true },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const struct wan_config *c = &list[i].c;
        struct wan_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(detect(c, list[i].root, &f, &info, &err), err);
        assert_int_equal(f.hidden, c->hidden);
        assert_int_equal(f.heads, c->hidden / 128);
        assert_int_equal(f.mlp, c->ffn);
        assert_int_equal(f.depth, c->depth);
        assert_int_equal(f.ref_channels, c->ref);
        assert_int_equal(f.seen_most, c->seen);
        assert_true(f.axis[0] == 44 && f.axis[1] == 42 && f.axis[2] == 42 && !f.diffusers);
        assert_string_equal(info.family, list[i].family);
        assert_string_equal(info.latent.name, "Wan 2.1");
        assert_int_equal(info.latent.rank, 3);
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_true(info.shift == 8.0 && info.multiplier == 1000.0);
        assert_int_equal(info.act, DT_F16);
        assert_int_equal(info.act_else, DT_BF16);
        assert_int_equal(info.in_channels, c->in);
        assert_int_equal(info.context_dim, c->context_dim);
        assert_ptr_equal(info.text, &text_set_wan);
        assert_int_equal(info.video_concat, list[i].concat);
        assert_int_equal(info.video_masked, list[i].masked);
        assert_int_equal(info.extras >> EXTRA_SEEN & 1, c->sees);
        assert_int_equal(info.refs, c->ref > 0);
    }
}

static void others_are_refused(void **state)
{
    static const struct {
        struct wan_config c;
        const char *said;
    } list[] = {
        { { .hidden = 192, .ffn = 160, .in = 16, .out = 16, .context_dim = 24, .depth = 1 },
          "width 192, which is no whole heads of 128" },
        { { .hidden = 128, .ffn = 160, .in = 16, .out = 8, .context_dim = 24, .depth = 1 },
          "makes latents of 8 channels, not 16" },
        { { .hidden = 128, .ffn = 160, .in = 8, .out = 16, .context_dim = 24, .depth = 1 },
          "64 values of a patch of 8 channels" },
        { { .hidden = 65536 + 128, .ffn = 160, .in = 16, .out = 16, .context_dim = 24, .depth = 1 },
          "at most 65536 are taken" },
        { { .hidden = 128, .ffn = 160, .in = 16, .out = 16, .context_dim = 24, .depth = 257 },
          "257 blocks, at most 256" },
        { { .hidden = 128,
            .ffn = 160,
            .in = 16,
            .out = 16,
            .context_dim = 24,
            .depth = 5,
            .vace = 2 },
          "of 5 blocks with 2 of VACE's" },
        { { .hidden = 128,
            .ffn = 160,
            .in = 36,
            .out = 16,
            .context_dim = 24,
            .depth = 1,
            .sees = true,
            .seen = 1025 },
          "1 to 1024 positions" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct wan_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        berth_status s = detect(&list[i].c, "", &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
    }
}

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

/* Tensors that the config is not read from, in shapes that do not fit the others. */
static void wrong_shapes_are_refused(void **state)
{
    static const struct {
        struct change to;
        const char *said;
    } list[] = {
        { { "blocks.1.modulation", { 3, { 1, 5, 128 } } }, "blocks.1.modulation" },
        { { "head.modulation", { 3, { 1, 3, 128 } } }, "head.modulation" },
        { { "blocks.2.self_attn.norm_q.weight", { 1, { 64 } } }, "blocks.2.self_attn.norm_q" },
        { { "blocks.0.norm3.weight", { 1, { 64 } } }, "blocks.0.norm3" },
        { { "blocks.0.cross_attn.k.weight", { 2, { 128, 64 } } }, "blocks.0.cross_attn." },
        { { "time_projection.1.weight", { 2, { 5 * 128, 128 } } }, "" },
        { { "patch_embedding.weight", { 5, { 128, C, 2, 2, 2 } } }, "patches of 2 x 2 pixels" },
        { { "patch_embedding.weight", { 5, { 128, C, 1, 1, 2 } } }, "patches of 2 x 2 pixels" },
        { { "ref_conv.weight", { 4, { 128, C, 4, 2 } } }, "patches of 2 x 2 pixels" },
    };
    struct keys k = { 0 };
    (void)state;
    keys_wan(&k, &small);
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

/* ---- names ---- */

/* A file of diffusers' names; tensors have the values of ours. */
static bool to_diffusers(const void *user, const struct key *key, char *name, size_t cap,
                         struct shape *s)
{
    const char *weight = strstr(key->name, ".weight"), *bias = strstr(key->name, ".bias");
    const char *end = weight ? weight : bias ? bias : key->name + strlen(key->name);
    char path[128], theirs[128];
    (void)user, (void)s;
    snprintf(path, sizeof path, "%.*s", (int)(end - key->name), key->name);
    if (wan_diffusers_path(path, theirs, sizeof theirs))
        snprintf(name, cap, "%s%s", theirs, end);
    return true;
}

static void diffusers_names_are_known(void **state)
{
    struct wan_config c = small;
    struct keys k = { 0 };
    struct net_rig g;
    struct diffusion *d;
    berth_err err = { 0 };
    (void)state;
    c.in = 36;
    c.sees = true;
    c.seen = 6;
    c.ref = 0;
    keys_wan(&k, &c);
    net_rig_open(&g, "cpu=64m", keys_file_changed(&k, "diffusers", to_diffusers, NULL), NULL, NULL);
    keys_release(&k);
    const struct weights *w = res_weights(g.m);
    assert_non_null(weights_find(w, "scale_shift_table", 17));
    assert_non_null(weights_find(w, "blocks.2.attn2.norm_added_k.weight", 34));
    assert_null(weights_find(w, "blocks.2.norm3.weight", 21));
    struct diffusion_args args = { .res = g.f.r, .m = g.m };
    assert_ok(diffusion_open(&args, &d, &err), err);
    assert_true(diffusion_info(d)->renamed);
    diffusion_close(d);
    net_rig_close(&g);
}

/* ---- passes ---- */

/* What was seen counts, as far as there are positions. Without any the text is looked at twice. */
static void what_was_seen_counts(void **state)
{
    enum { SEEN = 6, POSITIONS = 9 };
    struct wan_config c = small;
    struct diff_rig r;
    struct diffusion_extra seen = { .kind = EXTRA_SEEN, .shape = { 3, { 2, SEEN, 1280 } } };
    berth_err err = { 0 };
    (void)state;
    c.in = 36;
    c.sees = true;
    c.seen = POSITIONS;
    diff_open(&r, &spec, "cpu=256m", diff_file_of(&spec, &c, "sees"), NULL, 2);
    float *x = noise_floats(9, 2 * SEEN * 1280);
    seen.x = x;
    float *none = diff_run(&r);
    r.cond[0].extra = r.cond[1].extra = &seen;
    r.cond[0].extras = r.cond[1].extras = 1;
    const uint64_t before = diffusion_report(r.d).passes;
    float *both = diff_run(&r);
    assert_int_equal(diffusion_report(r.d).passes - before, 1);
    assert_true(rel_error(both, none, 2 * EACH) > 1e-4);
    x[(2 * SEEN - 1) * 1280] += 1; /* of the second item */
    float *other = diff_run(&r);
    assert_memory_equal(other, both, EACH * sizeof *other);
    assert_true(rel_error(other + EACH, both + EACH, EACH) > 1e-6);
    r.cond[0].extras = 0; /* one of them sees nothing: apart */
    float *one = diff_run(&r);
    assert_memory_equal(one, none, EACH * sizeof *one);
    assert_memory_equal(one + EACH, other + EACH, EACH * sizeof *one);
    seen.shape.dim[1] = POSITIONS + 1;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL,
                 "seen as 10 tokens; Wan has positions for 9");
    seen.shape.dim[1] = SEEN;
    seen.shape.dim[2] = 1024;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL,
                 "as CLIP vision H sees them, [1, tokens, 1280], not [1, 6, 1024]");
    free(none), free(both), free(other), free(one), free(x);
    diff_close(&r);
}

/* Videos to follow, subjects and a camera count, the same wherever blocks are. */
static void what_is_brought_along_counts(void **state)
{
    static const struct {
        struct wan_config c;
        struct diffusion_extra extra;
        const char *wrong; /* when a dimension is another */
    } list[] = {
        { { .hidden = 128,
            .ffn = 192,
            .in = C,
            .out = C,
            .context_dim = 32,
            .depth = 4,
            .vace = 2 },
          { .kind = EXTRA_VACE, .shape = { 5, { 1, 96, T, H, W } }, .strength = 0.5f },
          "VACE follows" },
        { { .hidden = 128, .ffn = 192, .in = C, .out = C, .context_dim = 32, .depth = 2 },
          { .kind = EXTRA_SUBJECTS, .shape = { 5, { 2, C, 2, H, W } } },
          "subjects" },
        { { .hidden = 128,
            .ffn = 192,
            .in = C,
            .out = C,
            .context_dim = 32,
            .depth = 2,
            .camera = true },
          { .kind = EXTRA_CAMERA, .shape = { 5, { 1, 24, T, 8 * H, 8 * W } } },
          "a camera" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const char *path = diff_file_of(&spec, &list[i].c, "along");
        struct diffusion_extra extra = list[i].extra;
        float *x = noise_floats(7, diff_values(&extra.shape)), *want = NULL;
        extra.x = x;
        for (int spread = 0; spread < 2; spread++) {
            struct diff_rig r;
            berth_err err = { 0 };
            diff_open(&r, &spec, spread ? "cuda:0@cpu=64m,cpu=64m,null:0=64m" : "cpu=256m", path,
                      spread ? "cuda:0,20%;null:0,50%;cpu,30%#cuda:0" : NULL, 2);
            float *none = diff_run(&r);
            r.cond[0].extra = r.cond[1].extra = &extra;
            r.cond[0].extras = r.cond[1].extras = 1;
            float *got = diff_run(&r);
            assert_true(rel_error(got, none, 2 * EACH) > 1e-4);
            if (want)
                assert_memory_equal(got, want, 2 * EACH * sizeof *got);
            else
                want = got;
            extra.shape.dim[4] -= 4;
            assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, list[i].wrong);
            extra.shape.dim[4] += 4;
            free(none);
            if (got != want)
                free(got);
            diff_close(&r);
        }
        free(want), free(x);
    }
}

static void what_does_not_fit_is_refused(void **state)
{
    struct diff_rig r;
    struct diffusion_extra seen = { .kind = EXTRA_SEEN, .shape = { 3, { 1, 2, 1280 } } };
    berth_err err = { 0 };
    (void)state;
    diff_open(&r, &spec, "cpu=256m", diff_file(&spec, "bad"), NULL, 1);
    seen.x = r.x;
    r.cond[0].extra = &seen;
    r.cond[0].extras = 1;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "Wan takes nothing of");
    r.cond[0].extras = 0;
    diff_refs(&r, 1);
    r.ref[0].shape.dim[3] = H - 2;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "of the video's size");
    diff_refs(&r, 0);
    r.in.shape = (struct shape) { 5, { 1, C, 1 << 12, 1 << 12, 1 << 12 } };
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_ELIMIT, "latents");
    r.in.shape = spec.latent;
    r.cond[0].width--;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL,
                 "Wan wants a text of width 32");
    diff_close(&r);
}

/* ---- what all of these transformers do ---- */

static void items_of_a_batch_are_as_if_alone(void **state)
{
    (void)state;
    diff_items_are_as_if_alone(&spec, diff_file(&spec, "batch"), REF_OWN);
}

static void blocks_stream_in_order(void **state)
{
    struct wan_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.ffn = 1024;
    c.depth = 6;
    diff_streams_in_order(&spec, diff_file_of(&spec, &c, "streamed"), "cpu=16m,null:0=128m");
}

static void thrifty_passes_give_the_same_bits(void **state)
{
    (void)state;
    static const struct shape large = { 5, { 1, C, 1, 64, 64 } };
    const struct diff_spec of = {
        .latent = large, .large = large, .ref = { large, large, large, large }, .tokens = 7
    };
    struct wan_config c = small;
    c.ffn = 1024; /* so that a pass holds most there */
    diff_thrifty_gives_the_same_bits(&of, diff_file_of(&spec, &c, "thrifty"));
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    diff_every_stored_type_computes(&spec, NULL);
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "patch_embedding.weight", "head.modulation",
                                         "blocks.0.self_attn.q.weight", NULL };
    struct wan_config c = small;
    struct keys k = { 0 };
    (void)state;
    c.ref = 0; /* without its weight the model has none */
    keys_wan(&k, &c);
    diff_missing_is_said(&k, marks);
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    struct diff_rig r;
    (void)state;
    diff_open(&r, &spec, "cpu=64m", diff_file(&spec, "oom"), NULL, 2);
    diff_refs(&r, 1);
    diff_no_memory_is_survived(&r);
    diff_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(wrong_shapes_are_refused),
        cmocka_unit_test(diffusers_names_are_known),
        cmocka_unit_test(what_was_seen_counts),
        cmocka_unit_test(what_is_brought_along_counts),
        cmocka_unit_test(what_does_not_fit_is_refused),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(thrifty_passes_give_the_same_bits),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
