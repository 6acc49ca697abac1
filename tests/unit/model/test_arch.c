/* Families: what a file is, the order its blocks run in, and which of them are embeddings. */
#include "support/sparse.h"
#include "support/test.h"
#include "support/tmp.h"

#include "model/arch.h"

static struct weights *open_keys(struct keys *k)
{
    struct weights *w;
    berth_err err;
    assert_false(k->bad);
    const char *path = tmp_path("arch.safetensors");
    assert_ok(sparse_keys(path, k, DT_F16, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    keys_release(k);
    return w;
}

static struct weights *open_preset(const char *name)
{
    struct keys k = { 0 };
    berth_err err;
    assert_ok(preset_keys(preset_find(name), &k, &err), err);
    return open_keys(&k);
}

/* A file with one small tensor of each of these names. */
static struct weights *open_names(const char *const *name, size_t n)
{
    struct keys k = { 0 };
    for (size_t i = 0; i < n; i++)
        keys_tensor(&k, name[i], 4, 4, 0, 0);
    return open_keys(&k);
}

static void is(const struct weights *w, const char *prefix, const struct arch *want)
{
    const struct arch *got = arch_detect(w, prefix);
    if (got != want)
        fail_msg("'%s': %s, wanted %s", prefix ? prefix : "", got ? got->base.name : "nothing",
                 want ? want->base.name : "nothing");
}

static void detects_every_preset(void **state)
{
    (void)state;
    static const struct {
        const char *preset;
        const struct arch *arch;
    } row[] = {
        { "sd15-tiny", &arch_sd_checkpoint },
        { "sd15", &arch_sd_checkpoint },
        { "sdxl-tiny", &arch_sd_checkpoint },
        { "sdxl", &arch_sd_checkpoint },
        { "clip-g-tiny", &arch_sd_checkpoint },
        { "flux-tiny", &arch_flux },
        { "flux-dev", &arch_flux },
        { "flux-tiny-vae", &arch_vae },
        { "t5-tiny", &arch_t5 },
        { "sd15-inpaint-tiny", &arch_sd_checkpoint },
        { "sd2-tiny", &arch_sd_checkpoint },
        { "sdxl-base-tiny", &arch_sd_checkpoint },
        { "sdxl-refiner-tiny", &arch_sd_checkpoint },
        { "sd15-unet-tiny", &arch_sd_checkpoint },
        { "clip-l-tiny", &arch_clip },
        { "vae-tiny", &arch_vae },
        { "flux-schnell-tiny", &arch_flux },
        { "flux-schnell", &arch_flux },
        { "flux-vae", &arch_vae },
        { "t5xxl", &arch_t5 },
    };
    assert_int_equal(ARRAY_LEN(row), preset_count());
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = open_preset(row[i].preset);
        is(w, NULL, row[i].arch);
        is(w, "", row[i].arch);
        is(w, "elsewhere.", NULL);
        weights_close(w);
    }
}

static void detects_parts_of_a_checkpoint(void **state)
{
    (void)state;
    struct weights *w = open_preset("sd15-tiny");
    is(w, "model.diffusion_model.", &arch_sd_unet);
    is(w, "first_stage_model.", &arch_vae);
    is(w, "cond_stage_model.", &arch_clip);
    is(w, "cond_stage_model.transformer.", &arch_clip);
    is(w, "model.", NULL);
    size_t there = 0;
    for (size_t i = 0; i < arch_sd_checkpoint.parts; i++)
        there += arch_has_part(w, NULL, &arch_sd_checkpoint.part[i]);
    assert_int_equal(there, 3);
    weights_close(w);
    w = open_preset("clip-g-tiny");
    is(w, "conditioner.embedders.1.", &arch_clip);
    is(w, "conditioner.", &arch_clip);
    weights_close(w);
}

static void detects_other_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *name[5];
        const struct arch *arch;
    } row[] = {
        { { "text_model.encoder.layers.0.layer_norm1.weight" }, &arch_clip },
        { { "transformer.resblocks.0.ln_1.weight" }, &arch_clip },
        { { "conditioner.embedders.0.transformer.text_model.encoder.layers.0.layer_norm1.weight" },
          &arch_sd_checkpoint },
        { { "conditioner.embedders.1.model.transformer.resblocks.0.ln_1.weight" },
          &arch_sd_checkpoint },
        { { "cond_stage_model.transformer.encoder.layers.0.layer_norm1.weight" },
          &arch_sd_checkpoint },
        { { "text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q.weight" },
          &arch_sd_checkpoint },
        { { "enc.blk.0.attn_q.weight", "token_embd.weight" }, &arch_t5 },
        { { "blk.0.attn_q.weight", "token_embd.weight" }, &arch_llama },
        { { "model.layers.0.self_attn.q_proj.weight" }, &arch_llama },
        { { "model.diffusion_model.double_blocks.0.img_attn.norm.key_norm.scale",
            "model.diffusion_model.img_in.weight", "model.diffusion_model.txt_in.weight",
            "model.diffusion_model.time_in.in_layer.weight",
            "model.diffusion_model.vector_in.in_layer.weight" },
          &arch_flux_checkpoint },
        { { "transformer_blocks.0.attn.norm_added_k.weight",
            "single_transformer_blocks.0.proj_mlp.weight", "x_embedder.weight",
            "context_embedder.weight", "time_text_embed.text_embedder.linear_1.weight" },
          &arch_flux },
        /* Flux-like without Flux's inputs; a ControlNet; a LoRA */
        { { "double_blocks.0.img_attn.norm.key_norm.scale", "img_in.weight",
            "distilled_guidance_layer.norms.0.scale" },
          NULL },
        { { "input_blocks.0.0.weight", "time_embed.0.weight", "zero_convs.0.0.weight" }, NULL },
        { { "lora_unet_input_blocks_1_1_proj_in.lora_up.weight" }, NULL },
        { { "x" }, NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        size_t n = 0;
        while (n < ARRAY_LEN(row[i].name) && row[i].name[n])
            n++;
        struct weights *w = open_names(row[i].name, n);
        is(w, NULL, row[i].arch);
        weights_close(w);
    }
}

/* A prefix longer than any name is no prefix of one. */
static void a_prefix_without_end(void **state)
{
    (void)state;
    char long_one[4096];
    memset(long_one, 'a', sizeof long_one - 1);
    long_one[sizeof long_one - 1] = '\0';
    struct weights *w = open_preset("t5-tiny");
    is(w, long_one, NULL);
    weights_close(w);
}

/* Each list is in the order its blocks run. */
static void knows_the_order(void **state)
{
    (void)state;
    static const struct {
        const struct arch *arch;
        const char *name[26];
    } row[] = {
        { &arch_flux,
          { "img_in",
            "time_in.in_layer",
            "time_in.out_layer",
            "guidance_in.in_layer",
            "vector_in.in_layer",
            "txt_in",
            "double_blocks.0.img_mod.lin",
            "double_blocks.0.txt_mod.lin",
            "double_blocks.0.img_attn.qkv",
            "double_blocks.0.img_attn.norm.query_norm",
            "double_blocks.0.img_attn.norm.key_norm",
            "double_blocks.0.txt_attn.qkv",
            "double_blocks.0.txt_attn.norm.key_norm",
            "double_blocks.0.img_attn.proj",
            "double_blocks.0.img_mlp.0",
            "double_blocks.0.img_mlp.2",
            "double_blocks.0.txt_attn.proj",
            "double_blocks.0.txt_mlp.0",
            "double_blocks.2.img_mod.lin",
            "double_blocks.10.img_mod.lin",
            "single_blocks.9.modulation.lin",
            "single_blocks.9.linear1",
            "single_blocks.9.linear2",
            "single_blocks.10.linear1",
            "final_layer.adaLN_modulation.1",
            "final_layer.linear" } },
        { &arch_sd_unet,
          { "time_embed.0",
            "time_embed.2",
            "label_emb.0.0",
            "input_blocks.0.0",
            "input_blocks.1.0.skip_connection",
            "input_blocks.1.0.in_layers.0",
            "input_blocks.1.0.in_layers.2",
            "input_blocks.1.0.emb_layers.1",
            "input_blocks.1.0.out_layers.0",
            "input_blocks.1.0.out_layers.3",
            "input_blocks.1.1.norm",
            "input_blocks.1.1.proj_in",
            "input_blocks.1.1.transformer_blocks.0.norm1",
            "input_blocks.1.1.transformer_blocks.0.attn1.to_q",
            "input_blocks.1.1.transformer_blocks.0.attn1.to_out.0",
            "input_blocks.1.1.transformer_blocks.0.norm2",
            "input_blocks.1.1.transformer_blocks.0.attn2.to_v",
            "input_blocks.1.1.transformer_blocks.0.norm3",
            "input_blocks.1.1.transformer_blocks.0.ff.net.0.proj",
            "input_blocks.1.1.transformer_blocks.0.ff.net.2",
            "input_blocks.1.1.proj_out",
            "input_blocks.10.0.op",
            "middle_block.1.proj_out",
            "output_blocks.2.0.in_layers.0",
            "output_blocks.2.1.conv",
            "out.2" } },
        { &arch_vae,
          { "encoder.conv_in",
            "encoder.down.0.block.0.norm1",
            "encoder.down.0.block.0.conv2",
            "encoder.down.0.downsample.conv",
            "encoder.down.1.block.0.nin_shortcut",
            "encoder.mid.block_1.norm1",
            "encoder.mid.attn_1.norm",
            "encoder.mid.attn_1.q",
            "encoder.mid.attn_1.proj_out",
            "encoder.mid.block_2.norm1",
            "encoder.norm_out",
            "encoder.conv_out",
            "quant_conv",
            "post_quant_conv",
            "decoder.conv_in",
            "decoder.mid.block_1.norm1",
            "decoder.up.3.block.0.norm1",
            "decoder.up.3.block.2.conv2",
            "decoder.up.3.upsample.conv",
            "decoder.up.2.block.0.norm1",
            "decoder.up.0.block.0.norm1",
            "decoder.norm_out",
            "decoder.conv_out" } },
        { &arch_clip,
          { "text_model.embeddings.token_embedding", "text_model.embeddings.position_embedding",
            "text_model.encoder.layers.0.layer_norm1",
            "text_model.encoder.layers.0.self_attn.q_proj",
            "text_model.encoder.layers.0.self_attn.k_proj",
            "text_model.encoder.layers.0.self_attn.v_proj",
            "text_model.encoder.layers.0.self_attn.out_proj",
            "text_model.encoder.layers.0.layer_norm2", "text_model.encoder.layers.0.mlp.fc1",
            "text_model.encoder.layers.0.mlp.fc2", "text_model.encoder.layers.11.layer_norm1",
            "text_model.final_layer_norm", "text_projection" } },
        { &arch_clip,
          { "", "token_embedding", "positional_embedding", "transformer.resblocks.0.ln_1",
            "transformer.resblocks.0.attn", "transformer.resblocks.0.attn.out_proj",
            "transformer.resblocks.0.ln_2", "transformer.resblocks.0.mlp.c_fc",
            "transformer.resblocks.0.mlp.c_proj", "transformer.resblocks.31.ln_1", "ln_final",
            "text_projection", "logit_scale" } },
        { &arch_t5,
          { "shared", "encoder.block.0.layer.0.layer_norm",
            "encoder.block.0.layer.0.SelfAttention.q", "encoder.block.0.layer.0.SelfAttention.k",
            "encoder.block.0.layer.0.SelfAttention.v",
            "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            "encoder.block.0.layer.0.SelfAttention.o", "encoder.block.0.layer.1.layer_norm",
            "encoder.block.0.layer.1.DenseReluDense.wi_0",
            "encoder.block.0.layer.1.DenseReluDense.wi_1",
            "encoder.block.0.layer.1.DenseReluDense.wo", "encoder.block.10.layer.0.layer_norm",
            "encoder.final_layer_norm" } },
        { &arch_t5,
          { "token_embd", "enc.blk.0.attn_norm", "enc.blk.0.attn_q", "enc.blk.0.attn_k",
            "enc.blk.0.attn_v", "enc.blk.0.attn_rel_b", "enc.blk.0.attn_o", "enc.blk.0.ffn_norm",
            "enc.blk.0.ffn_gate", "enc.blk.0.ffn_up", "enc.blk.0.ffn_down", "enc.blk.2.attn_q",
            "enc.blk.10.attn_q", "enc.output_norm" } },
        { &arch_llama,
          { "model.embed_tokens", "model.layers.0.input_layernorm",
            "model.layers.0.self_attn.q_proj", "model.layers.0.self_attn.o_proj",
            "model.layers.0.post_attention_layernorm", "model.layers.0.mlp.gate_proj",
            "model.layers.0.mlp.up_proj", "model.layers.0.mlp.down_proj",
            "model.layers.10.input_layernorm", "model.norm", "lm_head" } },
        { &arch_llama,
          { "token_embd", "blk.0.attn_norm", "blk.0.attn_q", "blk.0.attn_output", "blk.0.ffn_norm",
            "blk.0.ffn_gate", "blk.0.ffn_down", "blk.9.attn_q", "blk.10.attn_q", "output_norm",
            "output" } },
        { &arch_sd_checkpoint,
          { "cond_stage_model.transformer.text_model.embeddings.token_embedding",
            "cond_stage_model.transformer.text_projection",
            "conditioner.embedders.0.transformer.text_model.final_layer_norm",
            "conditioner.embedders.1.model", "conditioner.embedders.1.model.token_embedding",
            "conditioner.embedders.1.model.ln_final", "model.diffusion_model",
            "model.diffusion_model.time_embed.0", "model.diffusion_model.out.2",
            "first_stage_model.encoder.conv_in", "first_stage_model.decoder.up.3.block.0.norm1",
            "first_stage_model.decoder.up.0.block.0.norm1", "model_ema" } },
        { &arch_flux_checkpoint,
          { "text_encoders.clip_l.transformer.text_projection",
            "text_encoders.t5xxl.transformer.shared", "model.diffusion_model.img_in",
            "model.diffusion_model.double_blocks.2.img_mod.lin",
            "model.diffusion_model.double_blocks.10.img_mod.lin", "vae.decoder.conv_in" } },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (size_t a = 0; a < ARRAY_LEN(row[i].name) && row[i].name[a]; a++)
            for (size_t b = 0; b < ARRAY_LEN(row[i].name) && row[i].name[b]; b++) {
                const char *x = row[i].name[a], *y = row[i].name[b];
                int got = row[i].arch->base.order(x, strlen(x), y, strlen(y));
                if ((got > 0) - (got < 0) != (a > b) - (a < b))
                    fail_msg("%s: '%s' and '%s': %d", row[i].arch->base.name, x, y, got);
            }
}

/* Every word of every preset is listed: no two blocks of them are equal. */
static void no_word_is_missing(void **state)
{
    (void)state;
    for (size_t p = 0; p < preset_count(); p++) {
        struct weights *w = open_preset(preset_at(p)->name);
        const struct arch *arch = arch_detect(w, NULL);
        struct blocks b;
        berth_err err;
        assert_ok(blocks_from_weights(w, NULL, &arch->base, &b, &err), err);
        for (size_t i = 0; i + 1 < b.n; i++)
            if (arch->base.order(b.at[i].name, b.at[i].name_len, b.at[i + 1].name,
                                 b.at[i + 1].name_len) >= 0)
                fail_msg("%s: '%s' and '%s'", preset_at(p)->name, b.at[i].name, b.at[i + 1].name);
        blocks_release(&b);
        weights_close(w);
    }
}

static void what_is_not_listed_is_equal(void **state)
{
    (void)state;
    static const struct {
        const char *a, *b;
        int want;
    } row[] = {
        { "zebra.1", "aardvark.7", 0 },
        { "double_blocks.0.new_thing.3", "double_blocks.0.other", 0 },
        { "double_blocks.0.new_thing", "double_blocks.0.img_mod.lin", 1 },
        { "double_blocks.0.new_thing", "double_blocks.1.img_mod.lin", -1 },
        { "zebra", "final_layer.linear", 1 },
        { "double_blocks.007", "double_blocks.7", 0 },
        { "double_blocks.99999999999999999999999", "double_blocks.99999999999999999999998", 0 },
        { "double_blocks.99999999999999999999999", "double_blocks.5", 1 },
        { "double_blocks", "double_blocks.0", -1 },
        { "double_blocksx.0", "double_blocks.0", 1 }, /* no word: part of one */
        { "img_attn", "img_attn.qkv", 1 },            /* alone it is not listed */
        { "..", "...", 0 },
        { "", "img_in", -1 },
        { "", "", 0 },
        { "double_blocks.", "double_blocks", 0 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        int got = arch_flux.base.order(row[i].a, strlen(row[i].a), row[i].b, strlen(row[i].b));
        int back = arch_flux.base.order(row[i].b, strlen(row[i].b), row[i].a, strlen(row[i].a));
        if (got != row[i].want || back != -row[i].want)
            fail_msg("'%s' and '%s': %d and %d", row[i].a, row[i].b, got, back);
    }
}

static void knows_embeddings_by_role(void **state)
{
    (void)state;
    static const struct {
        const struct arch *arch;
        const char *name;
        bool want;
    } row[] = {
        { &arch_clip, "text_model.embeddings.token_embedding", true },
        { &arch_clip, "text_model.embeddings.position_embedding", true },
        { &arch_clip, "transformer.text_model.embeddings.token_embedding", true },
        { &arch_clip, "token_embedding", true },
        { &arch_clip, "positional_embedding", true },
        { &arch_clip, "my_token_embedding", false },
        { &arch_clip, "text_model.embeddings", false },
        { &arch_clip, "text_projection", false },
        { &arch_clip, "vision_model.embeddings.patch_embedding", false },
        { &arch_clip, "vision_model.embeddings.position_embedding", false },
        { &arch_clip, "", false },
        { &arch_t5, "shared", true },
        { &arch_t5, "encoder.embed_tokens", true },
        { &arch_t5, "token_embd", true },
        { &arch_t5, "transformer.shared", true },
        { &arch_t5, "encoder.block.0.layer.0.SelfAttention.relative_attention_bias", false },
        { &arch_t5, "encoder.block.0.layer.0.layer_norm", false },
        { &arch_llama, "model.embed_tokens", true },
        { &arch_llama, "token_embd", true },
        { &arch_llama, "visual.patch_embed.proj", false },
        { &arch_llama, "lm_head", false },
        { &arch_sd_checkpoint, "cond_stage_model.transformer.text_model.embeddings.token_embedding",
          true },
        { &arch_sd_checkpoint, "conditioner.embedders.1.model.token_embedding", true },
        { &arch_sd_checkpoint, "conditioner.embedders.1.model", false },
        { &arch_sd_checkpoint, "model.diffusion_model.time_embed.0", false },
        { &arch_sd_checkpoint, "model.diffusion_model.token_embedding", false },
        { &arch_sd_checkpoint, "first_stage_model.encoder.conv_in", false },
        { &arch_sd_checkpoint, "token_embedding", false },
        { &arch_flux_checkpoint, "text_encoders.t5xxl.transformer.shared", true },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (row[i].arch->base.embedding(row[i].name, strlen(row[i].name)) != row[i].want)
            fail_msg("%s: '%s'", row[i].arch->base.name, row[i].name);
    assert_null(arch_flux.base.embedding);
    assert_null(arch_sd_unet.base.embedding);
    assert_null(arch_vae.base.embedding);
}

/* Microseconds on an H200, 1024x1024 and 512 tokens of text, attention and norms where they count. */
static void knows_where_a_step_of_flux_goes(void **state)
{
    (void)state;
    static const struct {
        const char *bfl, *diffusers;
        unsigned units, us; /* of 3072 x 3072 weights */
    } row[] = {
        { "double_blocks.7.img_mod.lin", "transformer_blocks.7.norm1.linear", 6, 40 },
        { "double_blocks.7.txt_mod.lin", "transformer_blocks.7.norm1_context.linear", 6, 40 },
        { "double_blocks.18.img_attn.qkv", "transformer_blocks.18.attn.to_q", 3, 360 },
        { "double_blocks.7.txt_attn.qkv", "transformer_blocks.7.attn.add_k_proj", 3, 50 },
        { "double_blocks.7.img_attn.proj", "transformer_blocks.7.attn.to_out.0", 1, 560 },
        { "double_blocks.7.img_mlp.0", "transformer_blocks.7.ff.net.0.proj", 4, 470 },
        { "double_blocks.7.img_mlp.2", "transformer_blocks.7.ff.net.2", 4, 440 },
        { "double_blocks.7.txt_mlp.0", "transformer_blocks.7.ff_context.net.0.proj", 4, 60 },
        { "double_blocks.7.txt_mlp.2", "transformer_blocks.7.ff_context.net.2", 4, 60 },
        { "single_blocks.0.modulation.lin", "single_transformer_blocks.0.norm.linear", 3, 20 },
        { "single_blocks.37.linear1", "single_transformer_blocks.37.proj_mlp", 7, 860 },
        { "single_blocks.37.linear2", "single_transformer_blocks.37.proj_out", 5, 1090 },
    };
    double work = 0, us = 0;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        uint64_t one = arch_flux.base.work(row[i].bfl, strlen(row[i].bfl), row[i].units);
        if (one != arch_flux.base.work(row[i].diffusers, strlen(row[i].diffusers), row[i].units))
            fail_msg("'%s' and '%s'", row[i].bfl, row[i].diffusers);
        work += (double)one;
        us += row[i].us;
    }
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        uint64_t one = arch_flux.base.work(row[i].bfl, strlen(row[i].bfl), row[i].units);
        double got = (double)one / work * us;
        if (got < 0.75 * row[i].us || got > 1.34 * row[i].us)
            fail_msg("'%s': %.0f us, measured %u", row[i].bfl, got, row[i].us);
    }
    static const char *const other[] = { "",
                                         "img_in",
                                         "final_layer.linear",
                                         "proj_out",
                                         "double_blocks.",
                                         "double_blocks.3",
                                         "single_blocks.3.linear1x",
                                         "single_blocks.linear1",
                                         "double_blocks.3.img_attn" };
    for (size_t i = 0; i < ARRAY_LEN(other); i++) /* none of them multiplies many rows */
        assert_int_equal(arch_flux.base.work(other[i], strlen(other[i]), 1),
                         arch_flux.base.work(row[0].bfl, strlen(row[0].bfl), 1));
    assert_true(arch_flux.base.work("img_in", 6, UINT64_MAX / 2) == UINT64_MAX);
}

/* The same for UNets, where what counts is the kind of a layer and not its weights. */
static void knows_where_a_step_of_a_unet_goes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned us;
    } row[] = {
        { "input_blocks.1.0.in_layers.2", 110 },
        { "output_blocks.11.0.in_layers.2", 110 },
        { "output_blocks.8.2.conv", 120 },
        { "output_blocks.2.1.conv", 120 },
        { "input_blocks.3.0.op", 55 },
        { "middle_block.1.transformer_blocks.0.attn1.to_out.0", 40 },
        { "middle_block.1.transformer_blocks.9.ff.net.0.proj", 45 },
        { "middle_block.1.transformer_blocks.9.norm2", 5 },
        { "time_embed.2", 5 },
        { "norm", 5 },
        { "", 5 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        for (uint64_t weights = 1; weights < 100; weights += 98)
            assert_int_equal(arch_sd_unet.base.work(row[i].name, strlen(row[i].name), weights),
                             row[i].us);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(detects_every_preset),
        cmocka_unit_test(detects_parts_of_a_checkpoint),
        cmocka_unit_test(detects_other_spellings),
        cmocka_unit_test(a_prefix_without_end),
        cmocka_unit_test(knows_the_order),
        cmocka_unit_test(no_word_is_missing),
        cmocka_unit_test(what_is_not_listed_is_equal),
        cmocka_unit_test(knows_embeddings_by_role),
        cmocka_unit_test(knows_where_a_step_of_flux_goes),
        cmocka_unit_test(knows_where_a_step_of_a_unet_goes),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
