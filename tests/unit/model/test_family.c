/* What a file is, in words, and whether it can be computed: by the names of its tensors. */
#include "support/quant_preset.h"
#include "support/sparse_open.h"

#include "model/family.h"

#define NAMES_MAX 4

/* One small tensor of each name. */
static struct weights *open_names(const char *prefix, const char *const name[NAMES_MAX])
{
    struct keys k = { 0 };
    for (size_t i = 0; i < NAMES_MAX && name[i]; i++) {
        char full[160];
        snprintf(full, sizeof full, "%s%s", prefix, name[i]);
        keys_tensor(&k, full, 4, 4, 0, 0);
    }
    return sparse_open(&k);
}

/* Families as they are in the wild: a few of their names, some of which others have too. */
static void families_that_cannot_be_computed(void **state)
{
    static const struct {
        const char *role, *what, *name[NAMES_MAX];
    } row[] = {
        { "unet",
          "a Flux.2 model in diffusers' names",
          { "x_embedder.weight", "transformer_blocks.0.attn.norm_added_k.weight",
            "double_stream_modulation_img.linear.weight", "context_embedder.weight" } },
        { "unet",
          "a Chroma model",
          { "img_in.weight", "double_blocks.0.img_attn.norm.key_norm.scale",
            "distilled_guidance_layer.norms.0.scale" } },
        { "unet",
          "a HunyuanVideo 1.5 video model",
          { "img_in.proj.weight", "vision_in.proj.0.weight", "byt5_in.fc1.weight",
            "txt_in.individual_token_refiner.blocks.0.norm1.weight" } },
        { "unet",
          "an LTX-2 audio and video model",
          { "patchify_proj.weight", "adaln_single.emb.timestep_embedder.linear_1.weight",
            "audio_patchify_proj.weight" } },
        { "unet",
          "a MiniMax H3 audio and video model",
          { "video_patch_proj.weight", "audio_patch_proj.weight", "condition_proj.weight" } },
        { "unet",
          "an SD3 or SD3.5 model",
          { "joint_blocks.0.context_block.attn.qkv.weight", "context_embedder.weight" } },
        { "unet",
          "a Stable Video Diffusion model",
          { "input_blocks.0.0.weight", "time_embed.0.weight", "out.2.weight",
            "input_blocks.1.1.time_stack.0.attn1.to_q.weight" } },
    };
    static const char *const front[][2] = { { "", "" },
                                            { "model.diffusion_model.", "first_stage_model." },
                                            { "model.", "vae." } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (size_t f = 0; f < ARRAY_LEN(front); f++)
            for (int any = 0; any < 2; any++) {
                bool vae = !strcmp(row[i].role, "vae");
                struct weights *w = open_names(front[f][vae], row[i].name);
                struct family_info is = { 0 };
                berth_err err = { 0 };
                assert_ok(family_find(w, any ? NULL : row[i].role, &is, &err), err);
                assert_string_equal(is.what, row[i].what);
                assert_string_equal(is.role, row[i].role);
                assert_false(is.runs);
                assert_string_equal(is.why, "");
                assert_int_equal(family_find(w, vae ? "unet" : "vae", &is, &err), BERTH_ENOTFOUND);
                weights_close(w);
            }
}

static void families_that_can(void **state)
{
    static const struct {
        const char *preset, *role, *what;
    } row[] = {
        { "sd15", "unet", "an SD1.5 checkpoint" },
        { "sd15-unet-tiny", "unet", "an SD1.5 diffusion model" },
        { "sdxl-base-tiny", "unet", "an SDXL checkpoint" },
        { "flux-dev", "unet", "a Flux diffusion model" },
        { "flux2-dev", "unet", "a Flux.2 diffusion model" },
        { "flux2-klein-4b", "unet", "a Flux.2 klein diffusion model" },
        { "clip-l-tiny", "clip", "a CLIP text encoder" },
        { "t5xxl", "clip", "a T5 text encoder" },
        { "flux-vae", "vae", "a VAE of SD's or Flux's kind" },
        { "qwen-image", "unet", "a Qwen-Image diffusion model" },
        { "krea2", "unet", "a Krea 2 diffusion model" },
        { "wan-vae", "vae", "a VAE of Wan's kind" },
        { "mochi", "unet", "a Mochi diffusion model" },
        { "mochi-vae", "vae", "a VAE of Mochi's kind" },
        { "hunyuan-video", "unet", "a HunyuanVideo diffusion model" },
        { "hunyuan-video-vae", "vae", "a VAE of HunyuanVideo's kind" },
        { "ltxv-2b", "unet", "an LTX-Video diffusion model" },
        { "ltxv-vae", "vae", "a VAE of LTX-Video's kind" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = sparse_open_preset(row[i].preset);
        struct family_info is = { 0 };
        berth_err err = { 0 };
        assert_ok(family_find(w, NULL, &is, &err), err);
        assert_string_equal(is.what, row[i].what);
        assert_string_equal(is.role, row[i].role);
        assert_true(is.runs);
        weights_close(w);
    }
}

/* One of a family that can be computed, and why it cannot: 80 channels are those of no model. */
static void a_relative_says_why(void **state)
{
    struct keys k = { 0 };
    struct family_info is = { 0 };
    berth_err err = { 0 };
    (void)state;
    assert_ok(preset_keys(preset_find("flux-tiny"), &k, &err), err);
    for (size_t i = 0; i < k.n; i++)
        if (!strcmp(k.at[i].name, "img_in.weight"))
            k.at[i].shape.dim[1] = 320;
    struct weights *w = sparse_open(&k);
    assert_ok(family_find(w, "unet", &is, &err), err);
    assert_false(is.runs);
    assert_non_null(strstr(is.why, "80 channels in and 16 out"));
    weights_close(w);
}

/* What a network that can be computed is stored as decides, too: of the part that is asked for. */
static void layouts_that_cannot(void **state)
{
    static const struct {
        const char *preset, *layer, *role;
    } row[] = {
        { "flux-tiny", "img_in", "unet" },
        { "qwen3-tiny", "model.layers.0.mlp.up_proj", "clip" },
        { "sd15-tiny", "model.diffusion_model.time_embed.0", "unet" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct quant_layer q = { .layer = row[i].layer,
                                 .dtype = DT_U8,
                                 .marker = "{\"format\": \"hqq\"}" };
        const char *path = tmp_path("layout.safetensors");
        struct family_info is = { 0 };
        struct weights *w;
        berth_err err = { 0 };
        quant_write_preset(path, row[i].preset, &q);
        assert_ok(weights_open(path, NULL, &w, &err), err);
        for (int any = 0; any < 2; any++) {
            assert_ok(family_find(w, any ? NULL : row[i].role, &is, &err), err);
            assert_string_equal(is.role, row[i].role);
            assert_false(is.runs);
            assert_non_null(strstr(is.why, row[i].layer));
            assert_non_null(strstr(is.why, "layout 'hqq', which cannot be computed yet"));
        }
        if (!strcmp(row[i].preset, "sd15-tiny")) { /* its VAE is stored as ever */
            assert_ok(family_find(w, "vae", &is, &err), err);
            assert_true(is.runs);
        }
        weights_close(w);
    }
}

static void others(void **state)
{
    static const struct {
        const char *what, *name[NAMES_MAX];
        bool runs;
    } row[] = {
        { "a LoRA", { "lora_unet_a.lora_up.weight", "lora_unet_a.lora_down.weight" }, true },
        { "an adapter", { "lora_unet_a.oft_blocks" }, true },
        { "a LoRA", { "unet.a.lora_A.default.weight" }, true },
        { "a LoRA", { "unet.a.lora_linear_layer.up.weight" }, true },
        { "an embedding, 4 vectors of 4", { "emb_params" }, true },
        { "an embedding, 4 vectors of 4", { "string_to_param.*" }, true },
        { "an embedding, 4 vectors of 4", { "clip_l", "clip_g" }, true },
        { "a ControlNet", { "control_model.input_hint_block.0.weight" }, false },
    };
    static const char *const unknown[][NAMES_MAX] = { { "some.weight", "other.weight" },
                                                      { "clip_l", "other.weight" } };
    struct family_info is = { 0 };
    berth_err err = { 0 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = open_names("", row[i].name);
        assert_ok(family_find(w, NULL, &is, &err), err);
        assert_string_equal(is.what, row[i].what);
        assert_null(is.role);
        assert_int_equal(is.runs, row[i].runs);
        assert_int_equal(family_find(w, "unet", &is, &err), BERTH_ENOTFOUND);
        weights_close(w);
    }
    for (size_t i = 0; i < ARRAY_LEN(unknown); i++) {
        struct weights *w = open_names("", unknown[i]);
        assert_int_equal(family_find(w, NULL, &is, &err), BERTH_ENOTFOUND);
        weights_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(families_that_cannot_be_computed),
        cmocka_unit_test(families_that_can),
        cmocka_unit_test(a_relative_says_why),
        cmocka_unit_test(layouts_that_cannot),
        cmocka_unit_test(others),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
