/* Names of tensors in adapter files, for the networks of the presets. */
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "base/map.h"
#include "model/lora_names.h"
#include "model/preset.h"
#include "model/synth.h"

static struct weights *open_preset(const char *name)
{
    struct keys keys = { 0 };
    struct synth synth;
    struct weights *w;
    berth_err err = { 0 };
    char file[64];
    snprintf(file, sizeof file, "%s.safetensors", name);
    const char *path = tmp_path(file);
    assert_ok(preset_keys(preset_find(name), &keys, &err), err);
    assert_ok(
        synth_init(&synth, &keys, DT_F8_E4M3, weights_writer_find("safetensors"), NULL, NULL, &err),
        err);
    struct weights_write_args args = { .format = "safetensors",
                                       .path = path,
                                       .spec = synth.spec,
                                       .count = keys.n,
                                       .fill = synth_weights_fill,
                                       .user = &synth };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    synth_release(&synth);
    keys_release(&keys);
    return w;
}

struct want {
    const char *base, *key;
    uint64_t row, rows;
    bool swap;
};

static void expect(const struct lora_table *t, const struct want *want, size_t n)
{
    const struct lora_names names = lora_table_names(t);
    for (size_t i = 0; i < n; i++) {
        const struct lora_name *got = NULL;
        for (size_t k = 0; k < names.n; k++)
            if (!strcmp(names.at[k].base, want[i].base))
                got = &names.at[k];
        if (!got || strcmp(got->key, want[i].key) != 0 || got->row != want[i].row ||
            got->rows != want[i].rows || got->swap != want[i].swap)
            fail_msg("%s: '%s' rows %llu + %llu", want[i].base, got ? got->key : "unknown",
                     got ? (unsigned long long)got->row : 0,
                     got ? (unsigned long long)got->rows : 0);
    }
}

/* No name means two things, and every weight of the network has one. */
static void expect_sound(const struct lora_table *t, const struct weights *w, const char *prefix)
{
    const struct lora_names names = lora_table_names(t);
    struct map bases = { 0 }, keys = { 0 };
    for (size_t i = 0; i < names.n; i++) {
        const struct lora_name *n = &names.at[i];
        uint64_t at;
        if (map_get(&bases, n->base, strlen(n->base), &at))
            fail_msg("%s: '%s' and '%s'", n->base, n->key, names.at[at].key);
        assert_true(map_add(&bases, n->base, strlen(n->base), i) == MAP_ADDED);
        assert_true(map_add(&keys, n->key, strlen(n->key), i) != MAP_NOMEM);
        const struct weights_entry *e = weights_find(w, n->key, strlen(n->key));
        assert_true(e && n->row + n->rows <= e->shape.dim[0]);
    }
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (!strncmp(e->name, prefix, strlen(prefix)) && strstr(e->name, ".weight") &&
            !map_get(&keys, e->name, e->name_len, NULL))
            fail_msg("'%s' has no name", e->name);
    }
    map_release(&bases);
    map_release(&keys);
}

#define SD "model.diffusion_model."

static void sd15_unet_and_clip(void **state)
{
    (void)state;
    static const struct want want[] = {
        { "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn2_to_k",
          SD "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight", 0, 0, false },
        { "lora_unet_input_blocks_4_1_transformer_blocks_0_attn2_to_k",
          SD "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight", 0, 0, false },
        { "diffusion_model.input_blocks.4.1.transformer_blocks.0.attn2.to_k",
          SD "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight", 0, 0, false },
        { "diffusion_model.out.2.bias", SD "out.2.bias", 0, 0, false },
        { "lycoris_mid_block_attentions_0_proj_in", SD "middle_block.1.proj_in.weight", 0, 0,
          false },
        { "lora_unet_mid_block_resnets_1_conv2", SD "middle_block.2.out_layers.3.weight", 0, 0,
          false },
        { "lora_unet_mid_block_resnets_0_norm1", SD "middle_block.0.in_layers.0.weight", 0, 0,
          false },
        { "lora_unet_up_blocks_0_upsamplers_0_conv", SD "output_blocks.2.1.conv.weight", 0, 0,
          false },
        { "lora_unet_up_blocks_1_upsamplers_0_conv", SD "output_blocks.5.2.conv.weight", 0, 0,
          false },
        { "lora_unet_up_blocks_3_resnets_2_conv_shortcut",
          SD "output_blocks.11.0.skip_connection.weight", 0, 0, false },
        { "lora_unet_down_blocks_2_downsamplers_0_conv", SD "input_blocks.9.0.op.weight", 0, 0,
          false },
        { "lora_unet_conv_in", SD "input_blocks.0.0.weight", 0, 0, false },
        { "lora_unet_conv_norm_out", SD "out.0.weight", 0, 0, false },
        { "lora_unet_time_embedding_linear_1", SD "time_embed.0.weight", 0, 0, false },
        { "down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_q",
          SD "input_blocks.1.1.transformer_blocks.0.attn1.to_q.weight", 0, 0, false },
        { "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_out",
          SD "input_blocks.1.1.transformer_blocks.0.attn1.to_out.0.weight", 0, 0, false },
        { "lora_te_text_model_encoder_layers_1_mlp_fc1",
          "cond_stage_model.transformer.text_model.encoder.layers.1.mlp.fc1.weight", 0, 0, false },
        { "lora_te1_text_model_encoder_layers_0_self_attn_q_proj",
          "cond_stage_model.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight", 0, 0,
          false },
        { "text_encoder.text_model.encoder.layers.2.self_attn.out_proj",
          "cond_stage_model.transformer.text_model.encoder.layers.2.self_attn.out_proj.weight", 0,
          0, false },
        { "text_encoders.clip_l.transformer.text_model.final_layer_norm",
          "cond_stage_model.transformer.text_model.final_layer_norm.weight", 0, 0, false },
        { "lora_te1_text_projection", "cond_stage_model.transformer.text_projection.weight", 0, 0,
          false },
    };
    const struct lora_text clip = { .prefix = "cond_stage_model.transformer.",
                                    .comfy = "clip_l",
                                    .te = LORA_TE | LORA_TE1 };
    struct weights *w = open_preset("sd15-tiny");
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    assert_ok(lora_names_diffusion(&t, w, SD, &err), err);
    expect_sound(&t, w, SD);
    assert_ok(lora_names_text(&t, w, &clip, &err), err);
    expect_sound(&t, w, "cond_stage_model.");
    expect(&t, want, ARRAY_LEN(want));
    lora_table_release(&t);
    weights_close(w);
}

static void sdxl_unet(void **state)
{
    (void)state;
    static const struct want want[] = {
        { "lora_unet_add_embedding_linear_2", SD "label_emb.0.2.weight", 0, 0, false },
        { "lora_unet_down_blocks_2_attentions_1_transformer_blocks_2_ff_net_0_proj",
          SD "input_blocks.8.1.transformer_blocks.2.ff.net.0.proj.weight", 0, 0, false },
        { "lora_unet_up_blocks_1_upsamplers_0_conv", SD "output_blocks.5.2.conv.weight", 0, 0,
          false },
    };
    struct weights *w = open_preset("sdxl-tiny");
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    assert_ok(lora_names_diffusion(&t, w, SD, &err), err);
    expect(&t, want, ARRAY_LEN(want));
    expect_sound(&t, w, SD);
    lora_table_release(&t);
    weights_close(w);
}

static void flux_rows(void **state)
{
    (void)state;
    enum { D = 256 };
    static const struct want want[] = {
        { "lora_unet_double_blocks_0_img_attn_qkv", "double_blocks.0.img_attn.qkv.weight", 0, 0,
          false },
        { "diffusion_model.single_blocks.1.linear1", "single_blocks.1.linear1.weight", 0, 0,
          false },
        { "diffusion_model.single_blocks.0.norm.key_norm.scale",
          "single_blocks.0.norm.key_norm.scale", 0, 0, false },
        { "transformer.transformer_blocks.1.attn.to_k", "double_blocks.1.img_attn.qkv.weight", D, D,
          false },
        { "lycoris_transformer_blocks_0_attn_add_v_proj", "double_blocks.0.txt_attn.qkv.weight",
          2 * D, D, false },
        { "lora_transformer_single_transformer_blocks_2_proj_mlp", "single_blocks.2.linear1.weight",
          3 * D, 4 * D, false },
        { "transformer.single_transformer_blocks.0.attn.to_q", "single_blocks.0.linear1.weight", 0,
          D, false },
        { "transformer.norm_out.linear", "final_layer.adaLN_modulation.1.weight", 0, 0, true },
        { "transformer.proj_out", "final_layer.linear.weight", 0, 0, false },
        { "transformer.transformer_blocks.0.ff_context.net.2", "double_blocks.0.txt_mlp.2.weight",
          0, 0, false },
        { "transformer.transformer_blocks.0.attn.norm_added_q",
          "double_blocks.0.txt_attn.norm.query_norm.scale", 0, 0, false },
        { "transformer.time_text_embed.guidance_embedder.linear_2", "guidance_in.out_layer.weight",
          0, 0, false },
        { "diffusion_model.single_blocks.1.linear1_qkv", "single_blocks.1.linear1.weight", 0, 3 * D,
          false },
    };
    struct weights *w = open_preset("flux-tiny");
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    assert_ok(lora_names_diffusion(&t, w, "", &err), err);
    expect(&t, want, ARRAY_LEN(want));
    expect_sound(&t, w, "");
    lora_table_release(&t);
    weights_close(w);
}

static void clip_g_and_t5(void **state)
{
    (void)state;
#define G "conditioner.embedders.1.model.transformer."
    static const struct want g[] = {
        { "lora_te2_text_model_encoder_layers_3_mlp_fc2",
          G "text_model.encoder.layers.3.mlp.fc2.weight", 0, 0, false },
        { "text_encoder_2.text_model.encoder.layers.0.self_attn.v_proj",
          G "text_model.encoder.layers.0.self_attn.v_proj.weight", 0, 0, false },
        { "lora_te2_text_projection", G "text_projection.weight", 0, 0, false },
    };
    static const struct want t5[] = {
        { "lora_te2_encoder_block_0_layer_0_SelfAttention_q",
          "encoder.block.0.layer.0.SelfAttention.q.weight", 0, 0, false },
        { "lora_te3_encoder_block_2_layer_1_DenseReluDense_wo",
          "encoder.block.2.layer.1.DenseReluDense.wo.weight", 0, 0, false },
        { "text_encoders.t5xxl.transformer.shared", "shared.weight", 0, 0, false },
    };
    struct weights *w = open_preset("clip-g-tiny");
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    assert_ok(lora_names_text(&t, w, &(struct lora_text) { G, "clip_g", LORA_TE2 }, &err), err);
    expect(&t, g, ARRAY_LEN(g));
    expect_sound(&t, w, G);
    lora_table_release(&t);
    weights_close(w);
    w = open_preset("t5-tiny");
    assert_ok(
        lora_names_text(&t, w, &(struct lora_text) { "", "t5xxl", LORA_TE2 | LORA_TE3 }, &err),
        err);
    expect(&t, t5, ARRAY_LEN(t5));
    expect_sound(&t, w, "");
    lora_table_release(&t);
    weights_close(w);
}

/* OpenCLIP keeps q, k and v in one tensor. */
static berth_status zeros(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

static void open_clip_rows(void **state)
{
    (void)state;
    static const struct weights_spec spec[] = {
        { "m.transformer.resblocks.0.attn.in_proj_weight", DT_F32, { 2, { 12, 4 } } },
        { "m.transformer.resblocks.0.attn.out_proj.weight", DT_F32, { 2, { 4, 4 } } },
        { "m.transformer.resblocks.0.mlp.c_fc.weight", DT_F32, { 2, { 16, 4 } } },
        { "m.transformer.resblocks.0.mlp.c_proj.weight", DT_F32, { 2, { 4, 16 } } },
    };
    static const struct want want[] = {
        { "lora_te2_text_model_encoder_layers_0_self_attn_k_proj",
          "m.transformer.resblocks.0.attn.in_proj_weight", 4, 4, false },
        { "lora_te2_text_model_encoder_layers_0_mlp_fc1",
          "m.transformer.resblocks.0.mlp.c_fc.weight", 0, 0, false },
    };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("open.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = zeros };
    struct weights *w;
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(args.path, NULL, &w, &err), err);
    assert_ok(lora_names_text(&t, w, &(struct lora_text) { "m.", "clip_g", LORA_TE2 }, &err), err);
    expect(&t, want, ARRAY_LEN(want));
    lora_table_release(&t);
    weights_close(w);
}

static void survives_oom(void **state)
{
    (void)state;
    struct weights *w = open_preset("flux-tiny");
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    for (; s != BERTH_OK; k++) {
        struct lora_table t = { 0 };
        berth_err err = { 0 };
        oom_after(k);
        s = lora_names_diffusion(&t, w, "", &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        lora_table_release(&t);
    }
    assert_true(k > 4);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sd15_unet_and_clip), cmocka_unit_test(sdxl_unet),
        cmocka_unit_test(flux_rows),          cmocka_unit_test(clip_g_and_t5),
        cmocka_unit_test(open_clip_rows),     cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
