/* The Mochi transformer: what files it is read from, hidden text, batches, placements, memory. Its
 * numbers are in tests/golden/model/test_mochi.c. */
#include "support/diffusion_rig.h"

#include "model/encoder.h"
#include "model/mochi/mochi.h"
#include "model/mochi/presets.h"

#define T 2
#define H 4
#define W 6
#define C 12
#define EACH (C * T * H * W)
#define TOKENS 7

static const struct mochi_config small = { .channels = C,
                                           .hidden = 64,
                                           .text_hidden = 32,
                                           .context_dim = 24,
                                           .heads = 2,
                                           .mlp = 128,
                                           .text_mlp = 64,
                                           .depth = 3 };
static void list_keys(struct keys *k, const void *c)
{
    keys_mochi(k, c);
}

static const char *const hiprec[] = { "pos_frequencies", NULL };
static const struct diff_spec spec = { .latent = { 5, { 1, C, T, H, W } },
                                       .large = { 5, { 1, C, 4, 32, 32 } },
                                       .no_refs = true,
                                       .tokens = TOKENS,
                                       .keys = list_keys,
                                       .config = &small,
                                       .hiprec = hiprec };

/* ---- config ---- */

static berth_status detect(const struct mochi_config *c, const char *root, struct mochi_net *f,
                           struct diffusion_info *info, berth_err *err)
{
    struct weights *w = diff_header(&spec, c, root, NULL);
    berth_status s = mochi_detect(w, root, f, err);
    if (!s)
        s = diffusion_detect(w, NULL, info, err);
    weights_close(w);
    return s;
}

static void config_is_read_from_shapes(void **state)
{
    static const struct {
        struct mochi_config c;
        const char *root;
    } list[] = { { { C, 3072, 1536, 4096, 24, 8192, 4096, 48 }, "" },
                 { { C, 3072, 1536, 4096, 24, 8192, 4096, 48 }, "model.diffusion_model." },
                 { { C, 64, 32, 24, 2, 128, 64, 1 }, "diffusion_model." } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        const struct mochi_config *c = &list[i].c;
        struct mochi_net f;
        struct diffusion_info info;
        berth_err err = { 0 };
        assert_ok(detect(c, list[i].root, &f, &info, &err), err);
        assert_int_equal(f.hidden, c->hidden);
        assert_int_equal(f.text_hidden, c->text_hidden);
        assert_int_equal(f.heads, c->heads);
        assert_int_equal(f.depth, c->depth);
        assert_int_equal(f.mlp, c->mlp);
        assert_int_equal(f.text_mlp, c->depth > 1 ? c->text_mlp : 0);
        assert_string_equal(info.family, "Mochi");
        assert_string_equal(info.latent.name, "Mochi");
        assert_int_equal(info.predicts, PREDICT_FLOW);
        assert_int_equal(info.context_dim, c->context_dim);
        assert_ptr_equal(info.text, &text_set_mochi);
        assert_true(info.shift == 6 && info.multiplier == 1 && !info.refs && !info.guidance);
        mochi_release(&f);
    }
}

static void others_are_refused(void **state)
{
    static const struct {
        struct mochi_config c;
        const char *said;
    } list[] = {
        { { 16, 64, 32, 24, 2, 128, 64, 1 }, "latents have 16 channels, not 12" },
        { { C, 64, 32, 25, 2, 128, 64, 1 }, "text of width 25" },
        { { C, 64, 32, 24, 2, 128, 64, 257 }, "257 blocks" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct mochi_net f = { 0 };
        struct diffusion_info info;
        berth_err err = { 0 };
        berth_status s = detect(&list[i].c, "", &f, &info, &err);
        if (s == BERTH_OK || !strstr(err.msg, list[i].said))
            fail_msg("'%s' is not in '%s'", list[i].said, s ? err.msg : "it is fine");
        mochi_release(&f);
    }
}

/* ---- passes ---- */

/* Hidden text counts for nothing, whatever it is. */
static void hidden_text_is_left_out(void **state)
{
    bool hidden[TOKENS] = { [TOKENS - 2] = true, [TOKENS - 1] = true };
    struct diff_rig r;
    berth_err err = { 0 };
    (void)state;
    diff_open(&r, &spec, "cpu=256m", diff_file(&spec, "hidden"), NULL, 1);
    float *all = diff_run(&r);
    r.cond[0].hidden = hidden;
    float *some = diff_run(&r);
    assert_true(rel_error(some, all, EACH) > 1e-6);
    r.context[0][(TOKENS - 1) * small.context_dim] += 5;
    float *same = diff_run(&r);
    assert_memory_equal(same, some, EACH * sizeof *same);
    memset(hidden, 1, sizeof hidden);
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "nothing is to be seen");
    r.cond[0].hidden = NULL;
    r.in.shape.dim[3] = 3;
    assert_fails(diffusion_forward(r.d, &r.in, &err), err, BERTH_EINVAL, "sides are even");
    free(all), free(some), free(same);
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
    struct mochi_config c = small;
    (void)state;
    c.hidden = 256; /* so that more than a ring is streamed */
    c.mlp = 512;
    c.depth = 5;
    diff_streams_in_order(&spec, diff_file_of(&spec, &c, "streamed"), "cpu=16m,null:0=128m");
}

static void every_stored_type_computes(void **state)
{
    (void)state;
    diff_every_stored_type_computes(&spec, NULL);
}

static void what_is_missing_is_said(void **state)
{
    static const char *const marks[] = { "t5_yproj.weight", "pos_frequencies",
                                         "x_embedder.proj.weight", NULL };
    struct keys k = { 0 };
    (void)state;
    keys_mochi(&k, &small);
    diff_missing_is_said(&k, marks);
    keys_release(&k);
}

static void no_memory_is_survived(void **state)
{
    (void)state;
    diff_no_memory_is_survived_with_hidden(&spec);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(config_is_read_from_shapes),
        cmocka_unit_test(others_are_refused),
        cmocka_unit_test(hidden_text_is_left_out),
        cmocka_unit_test(items_of_a_batch_are_as_if_alone),
        cmocka_unit_test(blocks_stream_in_order),
        cmocka_unit_test(every_stored_type_computes),
        cmocka_unit_test(what_is_missing_is_said),
        cmocka_unit_test(no_memory_is_survived),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
