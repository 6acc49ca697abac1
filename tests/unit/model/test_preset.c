/* Built-in shape tables: counts and sizes that the real models are known by. */
#include "support/oom.h"
#include "support/test.h"

#include "base/map.h"
#include "format/weights.h"
#include "model/preset.h"
#include "model/synth.h"

static void load(const char *name, struct keys *k)
{
    berth_err err;
    const struct preset *p = preset_find(name);
    if (!p)
        fail_msg("no preset '%s'", name);
    assert_ok(preset_keys(p, k, &err), err);
}

/* Tensors and parameters under a prefix. */
static uint64_t count_under(const struct keys *k, const char *prefix, uint64_t *params)
{
    uint64_t n = 0;
    *params = 0;
    for (size_t i = 0; i < k->n; i++)
        if (!strncmp(k->at[i].name, prefix, strlen(prefix))) {
            n++;
            *params += k->at[i].count;
        }
    return n;
}

static void check_shape(const struct keys *k, const char *name, const char *want)
{
    char text[SHAPE_TEXT_MAX];
    for (size_t i = 0; i < k->n; i++)
        if (!strcmp(k->at[i].name, name)) {
            assert_string_equal(shape_text(&k->at[i].shape, text), want);
            return;
        }
    fail_msg("no '%s'", name);
}

static void sdxl_is_the_real_size(void **state)
{
    (void)state;
    struct keys k = { 0 };
    uint64_t params;
    load("sdxl", &k);
    assert_int_equal(count_under(&k, "model.diffusion_model.", &params), 1680);
    assert_int_equal(params, 2567463684);
    assert_int_equal(k.n, 1680);
    keys_release(&k);
}

static void sd15_is_the_real_size(void **state)
{
    (void)state;
    struct keys k = { 0 };
    uint64_t params;
    load("sd15", &k);
    assert_int_equal(count_under(&k, "model.diffusion_model.", &params), 686);
    assert_int_equal(params, 859520964);
    assert_int_equal(count_under(&k, "first_stage_model.", &params), 248);
    assert_int_equal(params, 83653863);
    assert_int_equal(count_under(&k, "cond_stage_model.transformer.", &params), 196);
    assert_int_equal(params, 123060480);
    assert_int_equal(k.n, 686 + 248 + 196);
#define U "model.diffusion_model."
    check_shape(&k, U "input_blocks.0.0.weight", "[320, 4, 3, 3]");
    check_shape(&k, U "input_blocks.1.1.transformer_blocks.0.attn2.to_k.weight", "[320, 768]");
    check_shape(&k, U "input_blocks.9.0.op.weight", "[1280, 1280, 3, 3]");
    check_shape(&k, U "output_blocks.2.1.conv.weight", "[1280, 1280, 3, 3]");
    check_shape(&k, U "output_blocks.5.2.conv.bias", "[1280]");
    check_shape(&k, U "output_blocks.8.0.skip_connection.weight", "[640, 960, 1, 1]");
    check_shape(&k, U "output_blocks.11.1.proj_out.weight", "[320, 320, 1, 1]");
#undef U
    check_shape(&k, "first_stage_model.decoder.up.1.block.0.nin_shortcut.weight",
                "[256, 512, 1, 1]");
    check_shape(&k, "cond_stage_model.transformer.text_model.embeddings.token_embedding.weight",
                "[49408, 768]");
    keys_release(&k);
}

static void flux_dev_is_the_real_size(void **state)
{
    (void)state;
    struct keys k = { 0 };
    struct synth s;
    berth_err err;
    load("flux-dev", &k);
    assert_int_equal(k.n, 780);
    assert_int_equal(k.params, UINT64_C(11901408320));
    check_shape(&k, "txt_in.weight", "[3072, 4096]");
    check_shape(&k, "double_blocks.18.img_mod.lin.weight", "[18432, 3072]");
    check_shape(&k, "single_blocks.37.linear1.weight", "[21504, 3072]");
    check_shape(&k, "single_blocks.37.linear2.weight", "[3072, 15360]");
    check_shape(&k, "final_layer.linear.weight", "[64, 3072]");
    assert_ok(synth_init(&s, &k, DT_BF16, weights_writer_find("safetensors"), NULL, NULL, &err),
              err);
    assert_int_equal(s.bytes, UINT64_C(23802816640));
    synth_release(&s);
    keys_release(&k);
}

/* The other files a Flux workflow loads. */
static void flux_has_company_of_the_real_size(void **state)
{
    static const struct {
        const char *preset;
        size_t tensors;
        uint64_t params;
    } list[] = { { "flux-schnell", 776, UINT64_C(11891178560) },
                 { "flux-vae", 244, 83819683 },
                 { "t5xxl", 219, UINT64_C(4762310656) } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(list); i++) {
        struct keys k = { 0 };
        load(list[i].preset, &k);
        assert_int_equal(k.n, list[i].tensors);
        assert_int_equal(k.params, list[i].params);
        keys_release(&k);
    }
}

static void every_preset_is_sound(void **state)
{
    (void)state;
    for (size_t i = 0; i < preset_count(); i++) {
        const struct preset *p = preset_at(i);
        struct keys k = { 0 };
        struct map seen = { 0 };
        uint64_t params = 0;
        assert_true(p->name && p->about);
        assert_ptr_equal(preset_find(p->name), p);
        load(p->name, &k);
        assert_true(k.n > 0);
        for (size_t t = 0; t < k.n; t++) {
            uint64_t count;
            assert_int_equal(strlen(k.at[t].name), k.at[t].name_len);
            assert_true(k.at[t].name_len <= 127); /* what GGUF files take */
            assert_true(shape_count(&k.at[t].shape, &count) && count == k.at[t].count);
            assert_true(count || str_starts(k.at[t].name, k.at[t].name_len, "__")); /* a mark */
            params += count;
            if (map_add(&seen, k.at[t].name, k.at[t].name_len, 0) != MAP_ADDED)
                fail_msg("%s: '%s' twice", p->name, k.at[t].name);
        }
        assert_int_equal(params, k.params);
        /* every sensitive prefix names something */
        for (const char *const *h = p->hiprec; h && *h; h++)
            /* SDXL's, in a list SD1 shares; dev's, in one of schnell */
            if (!strstr(*h, "label_emb") && !strstr(*h, "guidance_in") &&
                !count_under(&k, *h, &params))
                fail_msg("%s: nothing is called '%s...'", p->name, *h);
        map_release(&seen);
        keys_release(&k);
    }
    assert_null(preset_find("sd16"));
    assert_null(preset_find(""));
}

static void survives_exhausted_memory(void **state)
{
    (void)state;
    for (size_t i = 0; i < preset_count(); i++) {
        berth_status st = BERTH_ENOMEM;
        for (long n = 0; st != BERTH_OK; n++) {
            struct keys k = { 0 };
            berth_err err = { 0 };
            oom_after(n);
            st = preset_keys(preset_at(i), &k, &err);
            oom_off();
            assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && !k.at && !k.n && err.msg[0]));
            keys_release(&k);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sd15_is_the_real_size),
        cmocka_unit_test(sdxl_is_the_real_size),
        cmocka_unit_test(flux_dev_is_the_real_size),
        cmocka_unit_test(flux_has_company_of_the_real_size),
        cmocka_unit_test(every_preset_is_sound),
        cmocka_unit_test(survives_exhausted_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
