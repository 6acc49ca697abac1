/* Families: what a file is, the order its blocks run in, and which of them are embeddings. */
#include "support/oom.h"
#include "support/sparse_open.h"

#include "model/control.h"
#include "model/encoder.h"
#include "model/families.h"
#include "model/style.h"
#include "model/upscaler.h"
#include "model/vae.h"
#include "model/vision.h"

/* A file with one small tensor of each of these names. */
static struct weights *open_names(const char *const *name, size_t n)
{
    struct keys k = { 0 };
    for (size_t i = 0; i < n; i++)
        keys_tensor(&k, name[i], 4, 4, 0, 0);
    return sparse_open(&k);
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
        { "sd15-tiny", &family_unet.checkpoint },
        { "sd15", &family_unet.checkpoint },
        { "sdxl-tiny", &family_unet.checkpoint },
        { "sdxl", &family_unet.checkpoint },
        { "clip-g-tiny", &family_unet.checkpoint },
        { "flux-tiny", &family_flux.arch },
        { "flux-dev", &family_flux.arch },
        { "flux-tiny-vae", &vae_kl.arch },
        { "t5-tiny", &encoder_t5.arch },
        { "sd15-inpaint-tiny", &family_unet.checkpoint },
        { "sd2-tiny", &family_unet.checkpoint },
        { "sdxl-base-tiny", &family_unet.checkpoint },
        { "sdxl-refiner-tiny", &family_unet.checkpoint },
        { "sd15-unet-tiny", &family_unet.checkpoint },
        { "clip-l-tiny", &encoder_clip_l.arch },
        { "vae-tiny", &vae_kl.arch },
        { "flux-schnell-tiny", &family_flux.arch },
        { "flux-schnell", &family_flux.arch },
        { "flux-vae", &vae_kl.arch },
        { "esrgan-tiny", &upscaler_rrdb.arch },
        { "esrgan-x4", &upscaler_rrdb.arch },
        { "esrgan-x2", &upscaler_rrdb.arch },
        { "esrgan-compact-tiny", &upscaler_compact.arch },
        { "esrgan-compact-x4", &upscaler_compact.arch },
        { "flux2-tiny", &family_flux2.arch },
        { "flux2-klein-tiny", &family_flux2.arch },
        { "flux2-dev", &family_flux2.arch },
        { "flux2-klein-4b", &family_flux2.arch },
        { "flux2-klein-9b", &family_flux2.arch },
        { "flux2-tiny-vae", &vae_kl.arch },
        { "flux2-small-tiny-vae", &vae_kl.arch },
        { "flux2-vae", &vae_kl.arch },
        { "qwen3-klein-tiny", &encoder_qwen3_4b.arch },
        { "qwen-image-tiny", &family_qwen_image.arch },
        { "qwen-image", &family_qwen_image.arch },
        { "qwen-edit-tiny", &family_qwen_image.arch },
        { "qwen-layered-tiny", &family_qwen_image.arch },
        { "krea2-tiny", &family_krea2.arch },
        { "krea2", &family_krea2.arch },
        { "mochi-tiny", &family_mochi.arch },
        { "mochi", &family_mochi.arch },
        { "mochi-tiny-vae", &vae_mochi.arch },
        { "mochi-vae", &vae_mochi.arch },
        { "hunyuan-video-tiny", &family_hunyuan_video.arch },
        { "hunyuan-video", &family_hunyuan_video.arch },
        { "hunyuan-video-tiny-vae", &vae_hunyuan.arch },
        { "hunyuan-video-vae", &vae_hunyuan.arch },
        { "llama3-tiny", &encoder_llama.arch },
        { "llama3-8b", &encoder_llama.arch },
        { "ltxv-tiny", &family_ltxv.arch },
        { "ltxv-2b", &family_ltxv.arch },
        { "ltxv-13b", &family_ltxv.arch },
        { "ltxv-checkpoint-tiny", &family_ltxv.checkpoint },
        { "ltxv-checkpoint-2b", &family_ltxv.checkpoint },
        { "ltxv-tiny-vae", &vae_ltxv.arch },
        { "ltxv-vae", &vae_ltxv.arch },
        { "ltxv-091-tiny-vae", &vae_ltxv.arch },
        { "ltxv-091-vae", &vae_ltxv.arch },
        { "ltxv-09-tiny-vae", &vae_ltxv.arch },
        { "ltxv-09-vae", &vae_ltxv.arch },
        { "wan-tiny-vae", &vae_wan.arch },
        { "wan-vae", &vae_wan.arch },
        { "wan-rgba-tiny-vae", &vae_wan.arch },
        { "wan22-tiny-vae", &vae_wan.arch },
        { "wan22-vae", &vae_wan.arch },
        { "wan-vace-tiny", &family_wan.arch },
        { "wan-vace-1.3b", &family_wan.arch },
        { "wan-vace-14b", &family_wan.arch },
        { "wan-camera-tiny", &family_wan.arch },
        { "wan22-camera-14b", &family_wan.arch },
        { "wan22-ti2v-tiny", &family_wan.arch },
        { "wan22-ti2v-5b", &family_wan.arch },
        { "t5xxl", &encoder_t5.arch },
        { "wan-tiny", &family_wan.arch },
        { "wan-t2v-1.3b", &family_wan.arch },
        { "wan-t2v-14b", &family_wan.arch },
        { "wan-i2v-tiny", &family_wan.arch },
        { "wan-flf2v-tiny", &family_wan.arch },
        { "wan-i2v-14b", &family_wan.arch },
        { "wan22-i2v-tiny", &family_wan.arch },
        { "wan22-i2v-14b", &family_wan.arch },
        { "umt5-tiny", &encoder_umt5.arch },
        { "umt5-xxl", &encoder_umt5.arch },
        { "qwen3-tiny", &encoder_qwen3_4b.arch },
        { "qwen3-0.6b", &encoder_qwen3_4b.arch },
        { "qwen3-4b", &encoder_qwen3_4b.arch },
        { "qwen3-8b", &encoder_qwen3_4b.arch },
        { "z-image-tiny", &family_zimage.arch },
        { "z-image-turbo", &family_zimage.arch },
        { "z-image-omni-tiny", &family_zimage.arch },
        { "z-image-omni", &family_zimage.arch },
        { "lumina2-tiny", &family_zimage.arch },
        { "lumina2", &family_zimage.arch },
        { "qwen25vl-tiny", &encoder_qwen25_7b.arch },
        { "qwen25vl-7b", &encoder_qwen25_7b.arch },
        { "qwen3vl-tiny", &encoder_qwen3vl_4b.arch },
        { "qwen3vl-krea2-tiny", &encoder_qwen3vl_4b.arch },
        { "qwen3vl-4b", &encoder_qwen3vl_4b.arch },
        { "qwen35-tiny", &encoder_qwen35_2b.arch },
        { "qwen35-2b", &encoder_qwen35_2b.arch },
        { "qwen35-4b", &encoder_qwen35_2b.arch },
        { "qwen35-9b", &encoder_qwen35_2b.arch },
        { "mistral3-tiny", &encoder_mistral3_24b.arch },
        { "mistral3-24b", &encoder_mistral3_24b.arch },
        { "gemma2-tiny", &encoder_gemma2_2b.arch },
        { "gemma2-2b", &encoder_gemma2_2b.arch },
        { "gemma3-4b", &encoder_gemma3_4b.arch },
        { "gemma3-12b", &encoder_gemma3_4b.arch },
        { "sd21-unclip-tiny", &family_unet.checkpoint },
        { "flux-control-tiny", &family_flux.arch },
        { "flux-control-dev", &family_flux.arch },
        { "flux-fill-tiny", &family_flux.arch },
        { "flux-fill-dev", &family_flux.arch },
        { "clip-vision-l-tiny", &vision_clip_vision.arch },
        { "clip-vision-l", &vision_clip_vision.arch },
        { "clip-vision-l-336", &vision_clip_vision.arch },
        { "clip-vision-h-tiny", &vision_clip_vision.arch },
        { "clip-vision-h", &vision_clip_vision.arch },
        { "clip-vision-g", &vision_clip_vision.arch },
        { "siglip-tiny", &vision_clip_vision.arch },
        { "siglip-16-tiny", &vision_clip_vision.arch },
        { "siglip-deep-tiny", &vision_clip_vision.arch },
        { "siglip-384", &vision_clip_vision.arch },
        { "siglip-512", &vision_clip_vision.arch },
        { "flux-redux-tiny", &style_redux.arch },
        { "flux-redux", &style_redux.arch },
        { "flux-uso-tiny", &style_uso.arch },
        { "flux-uso", &style_uso.arch },
        { "controlnet-sd15-tiny", &control_unet.arch },
        { "controlnet-sd15", &control_unet.arch },
        { "controlnet-sdxl-tiny", &control_unet.arch },
        { "controlnet-sdxl", &control_unet.arch },
        { "t2i-adapter-sd15-tiny", &control_adapter.arch },
        { "t2i-adapter-sd15", &control_adapter.arch },
        { "t2i-adapter-sdxl-tiny", &control_adapter.arch },
        { "t2i-adapter-sdxl", &control_adapter.arch },
        { "controlnet-qwen-tiny", &control_qwen_instantx.arch },
        { "controlnet-qwen", &control_qwen_instantx.arch },
        { "controlnet-qwen-inpaint-tiny", &control_qwen_instantx.arch },
        { "controlnet-flux-union-tiny", &control_flux_instantx.arch },
        { "controlnet-flux-union", &control_flux_instantx.arch },
        { "controlnet-flux-xlabs-tiny", &control_flux_xlabs.arch },
        { "controlnet-flux-xlabs", &control_flux_xlabs.arch },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = sparse_open_preset(row[i].preset);
        is(w, NULL, row[i].arch);
        is(w, "", row[i].arch);
        is(w, "elsewhere.", NULL);
        weights_close(w);
    }
}

static void detects_parts_of_a_checkpoint(void **state)
{
    (void)state;
    struct weights *w = sparse_open_preset("sd15-tiny");
    is(w, "model.diffusion_model.", &family_unet.arch);
    is(w, "first_stage_model.", &vae_kl.arch);
    is(w, "cond_stage_model.", &encoder_clip_l.arch);
    is(w, "cond_stage_model.transformer.", &encoder_clip_l.arch);
    is(w, "model.", NULL);
    size_t there = 0;
    for (size_t i = 0; i < PLACE_PARTS; i++)
        there += arch_of_part(w, NULL, &place_parts[i]) != NULL;
    assert_int_equal(there, 3);
    weights_close(w);
    w = sparse_open_preset("clip-g-tiny");
    is(w, "conditioner.embedders.1.", &encoder_clip_l.arch);
    is(w, "conditioner.", &encoder_clip_l.arch);
    weights_close(w);
}

static void detects_other_spellings(void **state)
{
    (void)state;
    static const struct {
        const char *name[5];
        const struct arch *arch;
    } row[] = {
        { { "text_model.encoder.layers.0.layer_norm1.weight" }, &encoder_clip_l.arch },
        { { "transformer.resblocks.0.ln_1.weight" }, &encoder_clip_l.arch },
        { { "conditioner.embedders.0.transformer.text_model.encoder.layers.0.layer_norm1.weight" },
          &family_unet.checkpoint },
        { { "conditioner.embedders.1.model.transformer.resblocks.0.ln_1.weight" },
          &family_unet.checkpoint },
        { { "cond_stage_model.transformer.encoder.layers.0.layer_norm1.weight" },
          &family_unet.checkpoint },
        { { "text_encoders.t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q.weight" },
          &family_unet.checkpoint },
        { { "enc.blk.0.attn_q.weight", "token_embd.weight" }, &encoder_t5.arch },
        { { "model.layers.0.self_attn.q_proj.weight" }, NULL }, /* cannot be computed */
        { { "model.diffusion_model.double_blocks.0.img_attn.norm.key_norm.scale",
            "model.diffusion_model.img_in.weight", "model.diffusion_model.txt_in.weight",
            "model.diffusion_model.time_in.in_layer.weight",
            "model.diffusion_model.vector_in.in_layer.weight" },
          &family_flux.checkpoint },
        { { "transformer_blocks.0.attn.norm_added_k.weight",
            "single_transformer_blocks.0.proj_mlp.weight", "x_embedder.weight",
            "context_embedder.weight", "time_text_embed.text_embedder.linear_1.weight" },
          &family_flux.arch },
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
    struct weights *w = sparse_open_preset("t5-tiny");
    is(w, long_one, NULL);
    weights_close(w);
}

/* Each list is in the order that a pass over the preset comes to its blocks. */
static void traces_the_order(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *part;
        const char *name[27];
    } row[] = {
        { "flux-dev",
          "",
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
        { "sdxl",
          "model.diffusion_model.",
          { "time_embed.0",
            "time_embed.2",
            "label_emb.0.0",
            "input_blocks.0.0",
            "input_blocks.4.0.skip_connection",
            "input_blocks.4.0.in_layers.0",
            "input_blocks.4.0.in_layers.2",
            "input_blocks.4.0.emb_layers.1",
            "input_blocks.4.0.out_layers.0",
            "input_blocks.4.0.out_layers.3",
            "input_blocks.4.1.norm",
            "input_blocks.4.1.proj_in",
            "input_blocks.4.1.transformer_blocks.0.norm1",
            "input_blocks.4.1.transformer_blocks.0.attn1.to_q",
            "input_blocks.4.1.transformer_blocks.0.attn1.to_out.0",
            "input_blocks.4.1.transformer_blocks.0.norm2",
            "input_blocks.4.1.transformer_blocks.0.attn2.to_v",
            "input_blocks.4.1.transformer_blocks.0.norm3",
            "input_blocks.4.1.transformer_blocks.0.ff.net.0.proj",
            "input_blocks.4.1.transformer_blocks.0.ff.net.2",
            "input_blocks.4.1.proj_out",
            "input_blocks.6.0.op",
            "middle_block.1.proj_out",
            "output_blocks.2.0.in_layers.0",
            "output_blocks.2.2.conv",
            "out.2" } },
        { "sd15",
          "first_stage_model.",
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
        { "clip-l-tiny",
          "",
          { "text_model.embeddings.token_embedding", "text_model.embeddings.position_embedding",
            "text_model.encoder.layers.0.layer_norm1",
            "text_model.encoder.layers.0.self_attn.q_proj",
            "text_model.encoder.layers.0.self_attn.k_proj",
            "text_model.encoder.layers.0.self_attn.v_proj",
            "text_model.encoder.layers.0.self_attn.out_proj",
            "text_model.encoder.layers.0.layer_norm2", "text_model.encoder.layers.0.mlp.fc1",
            "text_model.encoder.layers.0.mlp.fc2", "text_model.encoder.layers.2.layer_norm1",
            "text_model.final_layer_norm", "text_projection" } },
        { "sdxl-base-tiny",
          "conditioner.embedders.1.",
          { "model.token_embedding", "model.transformer.resblocks.0.ln_1",
            "model.transformer.resblocks.0.attn", "model.transformer.resblocks.0.attn.out_proj",
            "model.transformer.resblocks.0.ln_2", "model.transformer.resblocks.0.mlp.c_fc",
            "model.transformer.resblocks.0.mlp.c_proj", "model.transformer.resblocks.3.ln_1",
            "model.ln_final" } },
        { "t5-tiny",
          "",
          { "shared", "encoder.block.0.layer.0.SelfAttention.relative_attention_bias",
            "encoder.block.0.layer.0.layer_norm", "encoder.block.0.layer.0.SelfAttention.q",
            "encoder.block.0.layer.0.SelfAttention.k", "encoder.block.0.layer.0.SelfAttention.v",
            "encoder.block.0.layer.0.SelfAttention.o", "encoder.block.0.layer.1.layer_norm",
            "encoder.block.0.layer.1.DenseReluDense.wi_0",
            "encoder.block.0.layer.1.DenseReluDense.wi_1",
            "encoder.block.0.layer.1.DenseReluDense.wo", "encoder.block.2.layer.0.layer_norm",
            "encoder.final_layer_norm" } },
        { "sd15",
          "",
          { "cond_stage_model.transformer.text_model.embeddings.token_embedding",
            "cond_stage_model.transformer.text_model.final_layer_norm",
            "model.diffusion_model.time_embed.0", "model.diffusion_model.out.2",
            "first_stage_model.encoder.conv_in", "first_stage_model.decoder.up.3.block.0.norm1",
            "first_stage_model.decoder.up.0.block.0.norm1" } },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = sparse_open_preset(row[i].preset);
        struct blocks b;
        berth_err err;
        size_t at = 0;
        assert_ok(blocks_from_weights(w, row[i].part, arch_blocks(w, row[i].part), &b, &err), err);
        for (size_t k = 0; k < b.n && row[i].name[at]; k++)
            at += strcmp(b.at[k].name, row[i].name[at]) == 0;
        if (row[i].name[at])
            fail_msg("%s: '%s' is not there, or too early", row[i].preset, row[i].name[at]);
        blocks_release(&b);
        weights_close(w);
    }
}

/* Every tensor of every preset has its turn: passes come to all of them but marks, which are
 * empty. */
static void no_tensor_is_left_out(void **state)
{
    (void)state;
    for (size_t p = 0; p < preset_count(); p++) {
        struct weights *w = sparse_open_preset(preset_at(p)->name);
        const struct arch *arch = arch_detect(w, NULL);
        struct block_trace t = { .use = calloc(weights_count(w), sizeof *t.use) };
        berth_err err;
        assert_non_null(t.use);
        assert_ok(arch->base.trace(&arch->base, w, "", &t, &err), err);
        for (size_t i = 0; i < weights_count(w); i++)
            if (weights_at(w, i)->size && (!t.use[i].when || t.use[i].when > t.turns))
                fail_msg("%s: '%s'", preset_at(p)->name, weights_at(w, i)->name);
        free(t.use);
        weights_close(w);
    }
}

/* A file that a pass cannot be followed through is placed all the same: what the pass came to is
 * first, the rest in the file's order. */
static void a_pass_that_breaks_off(void **state)
{
    (void)state;
    struct keys k = { 0 };
    berth_err err;
    struct blocks b;
    assert_ok(preset_keys(preset_find("flux-tiny"), &k, &err), err);
    for (size_t i = 0; i < k.n; i++)
        if (strcmp(k.at[i].name, "double_blocks.1.txt_attn.proj.weight") == 0)
            k.at[i].name = "double_blocks.1.txt_attn.renamed.weight";
    struct weights *w = sparse_open(&k);
    is(w, NULL, &family_flux.arch);
    assert_ok(blocks_from_weights(w, NULL, arch_blocks(w, NULL), &b, &err), err);
    size_t mlp = 0, single = 0, renamed = 0;
    for (size_t i = 0; i < b.n; i++) {
        mlp = strcmp(b.at[i].name, "double_blocks.1.img_mlp.2") == 0 ? i : mlp;
        renamed = strstr(b.at[i].name, "renamed") ? i : renamed;
        single = strcmp(b.at[i].name, "single_blocks.0.linear1") == 0 ? i : single;
    }
    assert_true(0 < mlp && mlp < renamed && renamed < single && single < b.n);
    blocks_release(&b);
    weights_close(w);
}

static void knows_embeddings(void **state)
{
    (void)state;
    /* what the pass looks up, positions included */
    static const struct {
        const char *preset;
        size_t tables;
    } traced[] = { { "clip-l-tiny", 2 }, { "t5-tiny", 2 }, { "t5xxl", 2 } };
    for (size_t i = 0; i < ARRAY_LEN(traced); i++) {
        struct weights *w = sparse_open_preset(traced[i].preset);
        struct blocks b;
        berth_err err;
        size_t n = 0;
        assert_ok(blocks_from_weights(w, NULL, arch_blocks(w, NULL), &b, &err), err);
        for (size_t k = 0; k < b.n; k++)
            n += b.at[k].embedding;
        assert_int_equal(n, traced[i].tables);
        assert_true(b.at[0].embedding && b.at[0].kind == BLOCK_EMBEDDING);
        blocks_release(&b);
        weights_close(w);
    }
    /* in a checkpoint: those, and no layer of the others */
    struct weights *w = sparse_open_preset("sdxl-base-tiny");
    struct blocks b;
    berth_err err;
    assert_ok(blocks_from_weights(w, NULL, arch_blocks(w, NULL), &b, &err), err);
    size_t looked_up = 0;
    for (size_t i = 0; i < b.n; i++) {
        bool text = str_starts(b.at[i].name, b.at[i].name_len, "conditioner.");
        bool table = str_ends(b.at[i].name, b.at[i].name_len, ".token_embedding") ||
                     str_ends(b.at[i].name, b.at[i].name_len, ".position_embedding");
        assert_int_equal(b.at[i].embedding, text && table);
        looked_up += b.at[i].embedding;
    }
    assert_int_equal(looked_up, 3); /* OpenCLIP's positions share a block with its projection */
    blocks_release(&b);
    weights_close(w);
}

static uint64_t work_of(const struct blocks *b, const char *name)
{
    for (size_t i = 0; i < b->n; i++)
        if (strcmp(b->at[i].name, name) == 0)
            return b->at[i].work;
    fail_msg("no block '%s'", name);
    return 0;
}

/* Microseconds on an H200, 1024x1024 and 512 tokens of text, attention and norms where they
 * count. */
static void knows_where_a_step_of_flux_goes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned us;
    } row[] = {
        { "double_blocks.7.img_mod.lin", 40 },    { "double_blocks.7.txt_mod.lin", 40 },
        { "double_blocks.18.img_attn.qkv", 360 }, { "double_blocks.7.txt_attn.qkv", 50 },
        { "double_blocks.7.img_attn.proj", 560 }, { "double_blocks.7.img_mlp.0", 470 },
        { "double_blocks.7.img_mlp.2", 440 },     { "double_blocks.7.txt_mlp.0", 60 },
        { "double_blocks.7.txt_mlp.2", 60 },      { "single_blocks.0.modulation.lin", 20 },
        { "single_blocks.37.linear1", 860 },      { "single_blocks.37.linear2", 1090 },
    };
    struct weights *w = sparse_open_preset("flux-dev");
    struct blocks b;
    berth_err err;
    double work = 0, us = 0;
    assert_ok(blocks_from_weights(w, NULL, arch_blocks(w, NULL), &b, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        work += (double)work_of(&b, row[i].name);
        us += row[i].us;
    }
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        double got = (double)work_of(&b, row[i].name) / work * us;
        if (got < 0.75 * row[i].us || got > 1.4 * row[i].us)
            fail_msg("'%s': %.0f us, measured %u", row[i].name, got, row[i].us);
    }
    for (size_t i = 0; i < b.n; i++) /* one op takes both norms: its cost is the second's */
        assert_true(b.at[i].work > 0 || strstr(b.at[i].name, "query_norm"));
    blocks_release(&b);
    weights_close(w);
}

/* The same for SDXL's UNet, whose layers are small: a card's libraries are not as good at all of
 * them, so that an estimate may be off by more. */
static void knows_where_a_step_of_a_unet_goes(void **state)
{
    (void)state;
    static const struct {
        const char *name;
        unsigned us;
    } row[] = {
        { "input_blocks.4.0.out_layers.3", 90 },
        { "middle_block.1.transformer_blocks.9.ff.net.0.proj", 45 },
        { "middle_block.1.transformer_blocks.9.ff.net.2", 30 },
        { "input_blocks.4.1.transformer_blocks.0.attn1.to_out.0", 60 },
        { "middle_block.1.transformer_blocks.9.attn1.to_q", 11 },
    };
    struct weights *w = sparse_open_preset("sdxl");
    const char *part = "model.diffusion_model.";
    struct blocks b;
    berth_err err;
    double work = 0, us = 0;
    assert_ok(blocks_from_weights(w, part, arch_blocks(w, part), &b, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        work += (double)work_of(&b, row[i].name);
        us += row[i].us;
    }
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        double got = (double)work_of(&b, row[i].name) / work * us;
        if (got < 0.5 * row[i].us || got > 2 * row[i].us)
            fail_msg("'%s': %.0f us, measured %u", row[i].name, got, row[i].us);
    }
    blocks_release(&b);
    /* networks that run at different times are not to be compared */
    assert_ok(blocks_from_weights(w, NULL, arch_blocks(w, NULL), &b, &err), err);
    for (size_t i = 0; i < b.n; i++)
        assert_int_equal(b.at[i].work, 0);
    blocks_release(&b);
    weights_close(w);
}

/* A trace allocates: without memory there is an error, not another order. */
static void traces_survive_oom(void **state)
{
    static const char *const preset[] = { "flux-tiny", "vae-tiny", "clip-l-tiny" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(preset); i++) {
        struct weights *w = sparse_open_preset(preset[i]);
        berth_status s = BERTH_ENOMEM;
        long tries = 0;
        for (; s; tries++) {
            struct blocks b;
            berth_err err = { 0 };
            const struct block_arch *arch = arch_blocks(w, NULL);
            oom_after(tries);
            s = blocks_from_weights(w, NULL, arch, &b, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0] && !b.n && !b.mem.head));
            blocks_release(&b);
        }
        assert_true(tries > 5);
        weights_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(detects_every_preset),
        cmocka_unit_test(detects_parts_of_a_checkpoint),
        cmocka_unit_test(detects_other_spellings),
        cmocka_unit_test(a_prefix_without_end),
        cmocka_unit_test(traces_the_order),
        cmocka_unit_test(no_tensor_is_left_out),
        cmocka_unit_test(a_pass_that_breaks_off),
        cmocka_unit_test(knows_embeddings),
        cmocka_unit_test(knows_where_a_step_of_flux_goes),
        cmocka_unit_test(knows_where_a_step_of_a_unet_goes),
        cmocka_unit_test(traces_survive_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
