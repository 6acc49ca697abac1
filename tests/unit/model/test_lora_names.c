/* Names of tensors in adapter files, for the networks of the presets. */
#include "support/oom.h"
#include "support/presets.h"

#include "base/map.h"
#include "model/arch.h"
#include "model/lora_names.h"

static struct weights *open_preset(const char *name)
{
    struct weights *w;
    berth_err err = { 0 };
    assert_ok(weights_open(preset_file(name, DT_F8_E4M3), NULL, &w, &err), err);
    return w;
}

struct want {
    const char *base, *key;
    uint64_t row, rows;
    bool swap, transpose;
    uint64_t from, of;
};

static void expect(const struct lora_table *t, const struct want *want, size_t n)
{
    const struct lora_names names = lora_table_names(t);
    for (size_t i = 0; i < n; i++) {
        const struct lora_name *got = NULL;
        for (size_t k = 0; k < names.n; k++)
            if (!strcmp(names.at[k].base, want[i].base) &&
                (!want[i].of || !strcmp(names.at[k].key, want[i].key))) /* one of several */
                got = &names.at[k];
        if (!got || strcmp(got->key, want[i].key) != 0 || got->row != want[i].row ||
            got->rows != want[i].rows || got->swap != want[i].swap ||
            got->transpose != want[i].transpose || got->from != want[i].from ||
            got->of != want[i].of)
            fail_msg("%s: '%s' rows %llu + %llu", want[i].base, got ? got->key : "unknown",
                     got ? (unsigned long long)got->row : 0,
                     got ? (unsigned long long)got->rows : 0);
    }
}

/* No name means two things, and every weight of the network has one. */
static void expect_sound(const struct lora_table *t, const struct weights *w,
                         const struct block_alias *alias)
{
    const struct lora_names names = lora_table_names(t);
    struct map bases = { 0 }, keys = { 0 };
    size_t root = strlen(alias->root), known = strlen(alias->known);
    for (size_t i = 0; i < names.n; i++) {
        const struct lora_name *n = &names.at[i];
        char name[300];
        uint64_t at;
        if (map_get(&bases, n->base, strlen(n->base), &at))
            fail_msg("%s: '%s' and '%s'", n->base, n->key, names.at[at].key);
        assert_true(map_add(&bases, n->base, strlen(n->base), i) == MAP_ADDED);
        assert_true(map_add(&keys, n->key, strlen(n->key), i) != MAP_NOMEM);
        if (strncmp(n->key, alias->known, known) != 0)
            continue;
        snprintf(name, sizeof name, "%.100s%.199s", alias->root, n->key + known);
        const struct weights_entry *e = weights_find(w, name, strlen(name));
        assert_true(e && n->row + n->rows <= e->shape.dim[0]);
    }
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        char key[300];
        snprintf(key, sizeof key, "%.100s%.199s", alias->known,
                 e->name_len > root ? e->name + root : "");
        if (!strncmp(e->name, alias->root, root) && strstr(e->name, ".weight") &&
            !map_get(&keys, key, strlen(key), NULL))
            fail_msg("'%s' has no name", e->name);
    }
    map_release(&bases);
    map_release(&keys);
}

/* The names of a part of a preset; the file must hold exactly these networks there. */
struct net {
    const char *root, *known;
    unsigned te;
};
static void check_part(const char *preset, const char *part, const struct net *net, size_t nets,
                       const struct want *want, size_t n)
{
    struct weights *w = open_preset(preset);
    struct arch_net got[ARCH_NETS_MAX];
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    assert_int_equal(arch_nets(w, part, got), nets);
    assert_ok(lora_names_file(&t, w, part, &err), err);
    for (size_t i = 0; i < nets; i++) {
        assert_string_equal(got[i].alias.root, net[i].root);
        assert_string_equal(got[i].alias.known, net[i].known);
        assert_int_equal(got[i].te, net[i].te);
        if (got[i].family->lora)
            expect_sound(&t, w, &got[i].alias);
    }
    expect(&t, want, n);
    lora_table_release(&t);
    weights_close(w);
}

#define SD "diffusion_model."
#define CHECKPOINT "model.diffusion_model."
#define CLIP_L "cond_stage_model.transformer."

static const struct net sd15[] = {
    { CLIP_L, "clip_l.transformer.", LORA_TE | LORA_TE1 },
    { CHECKPOINT, SD, 0 },
    { "first_stage_model.", "", 0 },
};

static void sd15_unet_and_clip(void **state)
{
    (void)state;
    static const struct want want[] = {
        { .base = "lora_unet_down_blocks_1_attentions_0_transformer_blocks_0_attn2_to_k",
          .key = SD "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight" },
        { .base = "lora_unet_input_blocks_4_1_transformer_blocks_0_attn2_to_k",
          .key = SD "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight" },
        { .base = "diffusion_model.input_blocks.4.1.transformer_blocks.0.attn2.to_k",
          .key = SD "input_blocks.4.1.transformer_blocks.0.attn2.to_k.weight" },
        { .base = "diffusion_model.out.2.bias", .key = SD "out.2.bias" },
        { .base = "lycoris_mid_block_attentions_0_proj_in",
          .key = SD "middle_block.1.proj_in.weight" },
        { .base = "lora_unet_mid_block_resnets_1_conv2",
          .key = SD "middle_block.2.out_layers.3.weight" },
        { .base = "lora_unet_mid_block_resnets_0_norm1",
          .key = SD "middle_block.0.in_layers.0.weight" },
        { .base = "lora_unet_up_blocks_0_upsamplers_0_conv",
          .key = SD "output_blocks.2.1.conv.weight" },
        { .base = "lora_unet_up_blocks_1_upsamplers_0_conv",
          .key = SD "output_blocks.5.2.conv.weight" },
        { .base = "lora_unet_up_blocks_3_resnets_2_conv_shortcut",
          .key = SD "output_blocks.11.0.skip_connection.weight" },
        { .base = "lora_unet_down_blocks_2_downsamplers_0_conv",
          .key = SD "input_blocks.9.0.op.weight" },
        { .base = "lora_unet_conv_in", .key = SD "input_blocks.0.0.weight" },
        { .base = "lora_unet_conv_norm_out", .key = SD "out.0.weight" },
        { .base = "lora_unet_time_embedding_linear_1", .key = SD "time_embed.0.weight" },
        { .base = "down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_q",
          .key = SD "input_blocks.1.1.transformer_blocks.0.attn1.to_q.weight" },
        { .base = "unet.down_blocks.0.attentions.0.transformer_blocks.0.attn1.processor.to_out",
          .key = SD "input_blocks.1.1.transformer_blocks.0.attn1.to_out.0.weight" },
        { .base = "lora_te_text_model_encoder_layers_1_mlp_fc1",
          .key = "clip_l.transformer.text_model.encoder.layers.1.mlp.fc1.weight" },
        { .base = "lora_te1_text_model_encoder_layers_0_self_attn_q_proj",
          .key = "clip_l.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight" },
        { .base = "text_encoder.text_model.encoder.layers.2.self_attn.out_proj",
          .key = "clip_l.transformer.text_model.encoder.layers.2.self_attn.out_proj.weight" },
        { .base = "text_encoders.clip_l.transformer.text_model.final_layer_norm",
          .key = "clip_l.transformer.text_model.final_layer_norm.weight" },
        { .base = "lora_te1_text_projection", .key = "clip_l.transformer.text_projection.weight" },
    };
    check_part("sd15-tiny", NULL, sd15, 3, want, ARRAY_LEN(want));
    /* The same names by part, however much of the prefix the part is. */
    const size_t clip = 16; /* from here on they are the text encoder's */
    assert_true(strstr(want[clip].base, "lora_te_") && strstr(want[clip - 1].base, "unet."));
    check_part("sd15-tiny", CHECKPOINT, &sd15[1], 1, want, clip);
    static const char *const parts[] = { "cond_stage_model.", CLIP_L, CLIP_L "text_model." };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        check_part("sd15-tiny", parts[i], &sd15[0], 1, want + clip, ARRAY_LEN(want) - clip);
}

static void sdxl_unet(void **state)
{
    (void)state;
    static const struct want want[] = {
        { .base = "lora_unet_add_embedding_linear_2", .key = SD "label_emb.0.2.weight" },
        { .base = "lora_unet_down_blocks_2_attentions_1_transformer_blocks_2_ff_net_0_proj",
          .key = SD "input_blocks.8.1.transformer_blocks.2.ff.net.0.proj.weight" },
        { .base = "lora_unet_up_blocks_1_upsamplers_0_conv",
          .key = SD "output_blocks.5.2.conv.weight" },
    };
    check_part("sdxl-tiny", NULL, &sd15[1], 1, want, ARRAY_LEN(want));
}

static void flux_rows(void **state)
{
    (void)state;
    enum { D = 256 };
    static const struct want want[] = {
        { .base = "lora_unet_double_blocks_0_img_attn_qkv",
          .key = SD "double_blocks.0.img_attn.qkv.weight" },
        { .base = "diffusion_model.single_blocks.1.linear1",
          .key = SD "single_blocks.1.linear1.weight" },
        { .base = "diffusion_model.single_blocks.0.norm.key_norm.scale",
          .key = SD "single_blocks.0.norm.key_norm.scale" },
        { .base = "transformer.transformer_blocks.1.attn.to_k",
          .key = SD "double_blocks.1.img_attn.qkv.weight",
          .row = D,
          .rows = D },
        { .base = "lycoris_transformer_blocks_0_attn_add_v_proj",
          .key = SD "double_blocks.0.txt_attn.qkv.weight",
          .row = 2 * D,
          .rows = D },
        { .base = "lora_transformer_single_transformer_blocks_2_proj_mlp",
          .key = SD "single_blocks.2.linear1.weight",
          .row = 3 * D,
          .rows = 4 * D },
        { .base = "transformer.single_transformer_blocks.0.attn.to_q",
          .key = SD "single_blocks.0.linear1.weight",
          .row = 0,
          .rows = D },
        { .base = "transformer.norm_out.linear",
          .key = SD "final_layer.adaLN_modulation.1.weight",
          .swap = true },
        { .base = "transformer.proj_out", .key = SD "final_layer.linear.weight" },
        { .base = "transformer.transformer_blocks.0.ff_context.net.2",
          .key = SD "double_blocks.0.txt_mlp.2.weight" },
        { .base = "transformer.transformer_blocks.0.attn.norm_added_q",
          .key = SD "double_blocks.0.txt_attn.norm.query_norm.scale" },
        { .base = "transformer.time_text_embed.guidance_embedder.linear_2",
          .key = SD "guidance_in.out_layer.weight" },
        { .base = "diffusion_model.single_blocks.1.linear1_qkv",
          .key = SD "single_blocks.1.linear1.weight",
          .row = 0,
          .rows = 3 * D },
    };
    static const struct net net = { "", SD, 0 };
    check_part("flux-tiny", NULL, &net, 1, want, ARRAY_LEN(want));
}

/* Z-Image by diffusers' names with every lead, and by its own; Lumina2 has fewer rows of keys. */
static void zimage_rows_of_qkv(void **state)
{
    (void)state;
    enum { D = 256, HEADS = 192, KEYS = 96 };
    static const struct want want[] = {
        { .base = "lora_unet_layers_0_attention_qkv", .key = SD "layers.0.attention.qkv.weight" },
        { .base = "diffusion_model.noise_refiner.1.attention.out",
          .key = SD "noise_refiner.1.attention.out.weight" },
        { .base = "diffusion_model.layers.1.attention.to_k",
          .key = SD "layers.1.attention.qkv.weight",
          .row = D,
          .rows = D },
        { .base = "transformer.context_refiner.0.attention.to_v",
          .key = SD "context_refiner.0.attention.qkv.weight",
          .row = 2 * D,
          .rows = D },
        { .base = "lycoris_layers_0_attention_to_q",
          .key = SD "layers.0.attention.qkv.weight",
          .rows = D },
        { .base = "layers.0.attention.to_out.0", .key = SD "layers.0.attention.out.weight" },
        { .base = "lycoris_layers_1_attention_to_out_0",
          .key = SD "layers.1.attention.out.weight" },
        { .base = "transformer.layers.0.attention.norm_q",
          .key = SD "layers.0.attention.q_norm.weight" },
        { .base = "transformer.layers.1.feed_forward.w2",
          .key = SD "layers.1.feed_forward.w2.weight" },
        { .base = "layers.0.adaLN_modulation.0", .key = SD "layers.0.adaLN_modulation.0.weight" },
        { .base = "diffusion_model.all_final_layer.2-1.linear",
          .key = SD "final_layer.linear.weight" },
        { .base = "transformer.all_x_embedder.2-1", .key = SD "x_embedder.weight" },
        { .base = "lycoris_cap_embedder_1", .key = SD "cap_embedder.1.weight" },
        { .base = "diffusion_model.cap_pad_token", .key = SD "cap_pad_token" },
    };
    static const struct want lumina[] = {
        { .base = "transformer.layers.0.attention.to_k",
          .key = SD "layers.0.attention.qkv.weight",
          .row = HEADS,
          .rows = KEYS },
        { .base = "transformer.layers.0.attention.to_v",
          .key = SD "layers.0.attention.qkv.weight",
          .row = HEADS + KEYS,
          .rows = KEYS },
        { .base = "lora_unet_layers_0_adaLN_modulation_1",
          .key = SD "layers.0.adaLN_modulation.1.weight" },
    };
    static const struct net net = { "", SD, 0 };
    check_part("z-image-tiny", NULL, &net, 1, want, ARRAY_LEN(want));
    check_part("lumina2-tiny", NULL, &net, 1, lumina, ARRAY_LEN(lumina));
}

/* Krea 2 by its own paths, dotted and flat, and by diffusers' names with every lead; what has no
 * ".weight" by its own name alone. */
static void krea2_names_of_diffusers(void **state)
{
    (void)state;
    static const struct want want[] = {
        { .base = "lora_unet_blocks_0_attn_wq", .key = SD "blocks.0.attn.wq.weight" },
        { .base = "diffusion_model.blocks.1.mlp.down", .key = SD "blocks.1.mlp.down.weight" },
        { .base = "diffusion_model.blocks.1.mod.lin", .key = SD "blocks.1.mod.lin" },
        { .base = "diffusion_model.last.norm.scale", .key = SD "last.norm.scale" },
        { .base = "diffusion_model.transformer_blocks.1.attn.to_k",
          .key = SD "blocks.1.attn.wk.weight" },
        { .base = "transformer.transformer_blocks.0.attn.to_gate",
          .key = SD "blocks.0.attn.gate.weight" },
        { .base = "transformer_blocks.0.attn.to_out.0", .key = SD "blocks.0.attn.wo.weight" },
        { .base = "transformer.transformer_blocks.0.attn.to_out",
          .key = SD "blocks.0.attn.wo.weight" },
        { .base = "lycoris_transformer_blocks_1_ff_up", .key = SD "blocks.1.mlp.up.weight" },
        { .base = "transformer.text_fusion.layerwise_blocks.1.attn.to_v",
          .key = SD "txtfusion.layerwise_blocks.1.attn.wv.weight" },
        { .base = "lycoris_text_fusion_refiner_blocks_0_ff_gate",
          .key = SD "txtfusion.refiner_blocks.0.mlp.gate.weight" },
        { .base = "transformer.img_in", .key = SD "first.weight" },
        { .base = "time_embed.linear_1", .key = SD "tmlp.0.weight" },
        { .base = "transformer.time_embed.linear_2", .key = SD "tmlp.2.weight" },
        { .base = "diffusion_model.time_mod_proj", .key = SD "tproj.1.weight" },
        { .base = "lycoris_txt_in_linear_1", .key = SD "txtmlp.1.weight" },
        { .base = "transformer.txt_in.linear_2", .key = SD "txtmlp.3.weight" },
        { .base = "transformer.text_fusion.projector", .key = SD "txtfusion.projector.weight" },
        { .base = "transformer.final_layer.linear", .key = SD "last.linear.weight" },
    };
    static const struct net net = { "", SD, 0 };
    check_part("krea2-tiny", NULL, &net, 1, want, ARRAY_LEN(want));
}

/* Wan by its own paths, dotted and flat, as Wan-Fun's trainers have them, and by diffusers' names;
 * what has no ".weight" by its whole name. */
static void wan_names(void **state)
{
    (void)state;
    static const struct want want[] = {
        { .base = "lora_unet_blocks_0_self_attn_q", .key = SD "blocks.0.self_attn.q.weight" },
        { .base = "lora_unet__blocks_0_cross_attn_k", .key = SD "blocks.0.cross_attn.k.weight" },
        { .base = "diffusion_model.blocks.1.ffn.2", .key = SD "blocks.1.ffn.2.weight" },
        { .base = "diffusion_model.blocks.1.modulation", .key = SD "blocks.1.modulation" },
        { .base = "diffusion_model.head.head", .key = SD "head.head.weight" },
        { .base = "blocks.0.cross_attn.v_img", .key = SD "blocks.0.cross_attn.v_img.weight" },
        { .base = "transformer.blocks.1.self_attn.o", .key = SD "blocks.1.self_attn.o.weight" },
        { .base = "lycoris_blocks_1_ffn_0", .key = SD "blocks.1.ffn.0.weight" },
        { .base = "transformer.blocks.0.attn1.to_out.0", .key = SD "blocks.0.self_attn.o.weight" },
        { .base = "transformer.blocks.0.attn2.add_k_proj",
          .key = SD "blocks.0.cross_attn.k_img.weight" },
        { .base = "diffusion_model.blocks.1.ffn.net.0.proj", .key = SD "blocks.1.ffn.0.weight" },
        { .base = "lycoris_blocks_1_attn2_to_q", .key = SD "blocks.1.cross_attn.q.weight" },
        { .base = "transformer.condition_embedder.time_proj",
          .key = SD "time_projection.1.weight" },
        { .base = "transformer.proj_out", .key = SD "head.head.weight" },
    };
    static const struct want text[] = {
        { .base = "text_encoders.umt5xxl.transformer.shared",
          .key = "umt5xxl.transformer.shared.weight" },
    };
    static const struct net net = { "", SD, 0 }, umt5 = { "", "umt5xxl.transformer.", 0 };
    check_part("wan-i2v-tiny", NULL, &net, 1, want, ARRAY_LEN(want));
    check_part("umt5-tiny", NULL, &umt5, 1, text, ARRAY_LEN(text));
}

static void clip_g_and_t5(void **state)
{
    (void)state;
#define G "clip_g.transformer."
    static const struct want g[] = {
        { .base = "lora_te2_text_model_encoder_layers_3_mlp_fc2",
          .key = G "text_model.encoder.layers.3.mlp.fc2.weight" },
        { .base = "text_encoder_2.text_model.encoder.layers.0.self_attn.v_proj",
          .key = G "text_model.encoder.layers.0.self_attn.v_proj.weight" },
        { .base = "lora_te2_text_projection", .key = G "text_projection.weight" },
    };
    static const struct want t5[] = {
        { .base = "lora_te2_encoder_block_0_layer_0_SelfAttention_q",
          .key = "t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q.weight" },
        { .base = "lora_te3_encoder_block_2_layer_1_DenseReluDense_wo",
          .key = "t5xxl.transformer.encoder.block.2.layer.1.DenseReluDense.wo.weight" },
        { .base = "text_encoders.t5xxl.transformer.shared",
          .key = "t5xxl.transformer.shared.weight" },
    };
    static const struct net nets[] = {
        { "conditioner.embedders.1.model.transformer.", G, LORA_TE2 },
        { "", "t5xxl.transformer.", LORA_TE2 | LORA_TE3 },
    };
    static const char *const parts[] = { NULL, "conditioner.", "conditioner.embedders.1.",
                                         "conditioner.embedders.1.model." };
    for (size_t i = 0; i < ARRAY_LEN(parts); i++)
        check_part("clip-g-tiny", parts[i], &nets[0], 1, g, ARRAY_LEN(g));
    check_part("t5-tiny", NULL, &nets[1], 1, t5, ARRAY_LEN(t5));
}

static berth_status zeros(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

/* A CLIP of so many layers, of which the first has something, HF names or OpenCLIP's, behind
 * `lead`. */
static struct weights *open_clip(const char *lead, bool open, unsigned layers, uint64_t width)
{
    static const char *const hf[] = { "layer_norm1.weight", "mlp.fc1.weight",
                                      "self_attn.k_proj.weight" };
    static const char *const oc[] = { "ln_1.weight", "mlp.c_fc.weight", "attn.in_proj_weight" };
    const char *list = open ? "transformer.resblocks" : "encoder.layers";
    char name[5][128];
    struct weights_spec spec[5];
    struct weights *w;
    berth_err err = { 0 };
    for (size_t i = 0; i < 3; i++) {
        snprintf(name[i], sizeof name[i], "%s%s.0.%s", lead, list, open ? oc[i] : hf[i]);
        spec[i] = (struct weights_spec) { name[i], DT_F8_E4M3, { 2, { 3 * width, 4 } } };
    }
    spec[0].shape = (struct shape) { 1, { width } };
    snprintf(name[3], sizeof name[3], "%stext_projection%s", lead, open ? "" : ".weight");
    spec[3] = (struct weights_spec) { name[3], DT_F8_E4M3, { 2, { 4, 4 } } };
    snprintf(name[4], sizeof name[4], "%s%s.%u.end", lead, list, layers - 1);
    spec[4] = (struct weights_spec) { name[4], DT_F8_E4M3, { 1, { 1 } } };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("clip.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = zeros };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(args.path, NULL, &w, &err), err);
    return w;
}

/* Which CLIP it is: told by the number of its layers, else by its place in a
 * checkpoint: the rule that chooses what computes it. */
static void clips_by_layers_and_place(void **state)
{
    (void)state;
    enum { L = LORA_TE | LORA_TE1, G_ALONE = LORA_TE | LORA_TE2 };
    static const struct {
        const char *lead;
        bool open;
        unsigned layers;
        const char *root, *known;
        unsigned te;
    } row[] = {
        { "text_model.", false, 12, "", "clip_l.transformer.", L },
        { "text_model.", false, 24, "", "clip_h.transformer.", L },
        { "text_model.", false, 32, "", "clip_g.transformer.", G_ALONE },
        { "text_model.", false, 1, "", "clip_l.transformer.", L },
        { "transformer.text_model.", false, 32, "transformer.", "clip_g.transformer.", G_ALONE },
        { "", true, 32, "", "clip_g.transformer.", G_ALONE },
        { "model.", true, 24, "model.", "clip_h.transformer.", L },
        { "", false, 12, "", "clip_l.transformer.text_model.", L }, /* of the first days */
        { "cond_stage_model.transformer.", false, 12, "cond_stage_model.transformer.",
          "clip_l.transformer.text_model.", L },
        { "cond_stage_model.model.", true, 24, "cond_stage_model.model.", "clip_h.transformer.",
          L },
        { "conditioner.embedders.0.model.", true, 32, "conditioner.embedders.0.model.",
          "clip_g.transformer.", G_ALONE },
        { "conditioner.embedders.0.model.", true, 2, "conditioner.embedders.0.model.",
          "clip_g.transformer.", G_ALONE },
        { "conditioner.embedders.0.transformer.text_model.", false, 12,
          "conditioner.embedders.0.transformer.", "clip_l.transformer.", L },
        { "conditioner.embedders.1.model.", true, 32, "conditioner.embedders.1.model.",
          "clip_g.transformer.", LORA_TE2 },
        { "text_encoders.clip_l.transformer.text_model.", false, 12,
          "text_encoders.clip_l.transformer.", "clip_l.transformer.", L },
        { "text_encoders.clip_g.transformer.text_model.", false, 32,
          "text_encoders.clip_g.transformer.", "clip_g.transformer.", LORA_TE2 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = open_clip(row[i].lead, row[i].open, row[i].layers, 4);
        struct arch_net net[ARCH_NETS_MAX];
        if (arch_nets(w, NULL, net) != 1 || strcmp(net[0].alias.root, row[i].root) != 0 ||
            strcmp(net[0].alias.known, row[i].known) != 0 || net[0].te != row[i].te)
            fail_msg("row %zu: '%s' as '%s', te %u", i, net[0].alias.root, net[0].alias.known,
                     net[0].te);
        weights_close(w);
    }
}

/* OpenCLIP keeps q, k and v in one tensor, and the projection the other way round. */
static void open_clip_rows(void **state)
{
    (void)state;
    static const struct want open[] = {
        { .base = "lora_te2_text_model_encoder_layers_0_self_attn_k_proj",
          .key = "clip_g.transformer.transformer.resblocks.0.attn.in_proj_weight",
          .row = 1280,
          .rows = 1280 },
        { .base = "lora_te_text_model_encoder_layers_0_mlp_fc1",
          .key = "clip_g.transformer.transformer.resblocks.0.mlp.c_fc.weight" },
        { .base = "lora_te2_text_projection",
          .key = "clip_g.transformer.text_projection",
          .transpose = true },
    };
    static const struct want bare[] = {
        { .base = "lora_te_text_model_encoder_layers_0_mlp_fc1",
          .key = "clip_l.transformer.text_model.encoder.layers.0.mlp.fc1.weight" },
        { .base = "text_encoders.clip_l.transformer.text_model.encoder.layers.0.mlp.fc1",
          .key = "clip_l.transformer.text_model.encoder.layers.0.mlp.fc1.weight" },
    };
    for (int i = 0; i < 2; i++) {
        struct weights *w = open_clip("", i == 0, 2, i == 0 ? 1280 : 768);
        struct lora_table t = { 0 };
        berth_err err = { 0 };
        assert_ok(lora_names_file(&t, w, NULL, &err), err);
        if (i == 0)
            expect(&t, open, ARRAY_LEN(open));
        else
            expect(&t, bare, ARRAY_LEN(bare));
        lora_table_release(&t);
        weights_close(w);
    }
}

/* A small file of matrices with these names; the table of its adapters' names against `want`. */
static void check_names(const char *const *name, size_t names, const struct want *want, size_t n)
{
    struct weights_spec spec[16];
    struct weights *w;
    struct lora_table t = { 0 };
    berth_err err = { 0 };
    assert_true(names <= ARRAY_LEN(spec));
    for (size_t i = 0; i < names; i++)
        spec[i] = (struct weights_spec) { name[i], DT_F16, { 2, { 4, 4 } } };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("named.safetensors"),
                                       .spec = spec,
                                       .count = names,
                                       .fill = zeros };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(args.path, NULL, &w, &err), err);
    assert_ok(lora_names_file(&t, w, NULL, &err), err);
    expect(&t, want, n);
    lora_table_release(&t);
    weights_close(w);
}

/* Adapters go by HF's names, whatever the file is called in: llama.cpp's T5. */
static void t5_of_llama_cpp(void **state)
{
    (void)state;
    static const char *const name[] = {
        "token_embd.weight",           "enc.blk.0.attn_q.weight",    "enc.blk.0.attn_k.weight",
        "enc.blk.0.attn_v.weight",     "enc.blk.0.attn_o.weight",    "enc.blk.0.attn_norm.weight",
        "enc.blk.0.attn_rel_b.weight", "enc.blk.12.ffn_gate.weight", "enc.blk.12.ffn_up.weight",
        "enc.blk.12.ffn_down.weight",  "enc.blk.12.ffn_norm.weight", "enc.output_norm.weight",
    };
#define T5 "t5xxl.transformer."
    static const struct want want[] = {
        { .base = "text_encoders." T5 "shared", .key = T5 "token_embd.weight" },
        { .base = "lora_te2_encoder_block_0_layer_0_SelfAttention_q",
          .key = T5 "enc.blk.0.attn_q.weight" },
        { .base = "lora_te3_encoder_block_0_layer_0_SelfAttention_k",
          .key = T5 "enc.blk.0.attn_k.weight" },
        { .base = "text_encoders." T5 "encoder.block.0.layer.0.SelfAttention.v",
          .key = T5 "enc.blk.0.attn_v.weight" },
        { .base = "lora_te2_encoder_block_0_layer_0_SelfAttention_o",
          .key = T5 "enc.blk.0.attn_o.weight" },
        { .base = "lora_te2_encoder_block_12_layer_1_DenseReluDense_wi_0",
          .key = T5 "enc.blk.12.ffn_gate.weight" },
        { .base = "lora_te2_encoder_block_12_layer_1_DenseReluDense_wi_1",
          .key = T5 "enc.blk.12.ffn_up.weight" },
        { .base = "lora_te2_encoder_block_12_layer_1_DenseReluDense_wo",
          .key = T5 "enc.blk.12.ffn_down.weight" },
        { .base = "lora_te2_encoder_final_layer_norm", .key = T5 "enc.output_norm.weight" },
    };
    check_names(name, ARRAY_LEN(name), want, ARRAY_LEN(want));
}

/* A Flux in diffusers' names has nothing stacked: theirs are the tensors', and of what the others
 * stack each takes its rows (D is 4). */
static void flux_of_diffusers(void **state)
{
    (void)state;
    static const char *const name[] = {
        "x_embedder.weight",
        "context_embedder.weight",
        "time_text_embed.text_embedder.linear_1.weight",
        "transformer_blocks.0.attn.norm_added_k.weight",
        "transformer_blocks.0.attn.to_q.weight",
        "transformer_blocks.0.attn.add_q_proj.weight",
        "single_transformer_blocks.0.proj_mlp.weight",
        "single_transformer_blocks.0.attn.to_v.weight",
        "norm_out.linear.weight",
        "x_embedder.bias",
        "transformer_blocks.0.attn.to_q.bias",
        "single_transformer_blocks.0.proj_mlp.bias",
        "norm_out.linear.bias",
    };
    static const struct want want[] = {
        { .base = "transformer.transformer_blocks.0.attn.to_q",
          .key = SD "transformer_blocks.0.attn.to_q.weight" },
        { .base = "lycoris_transformer_blocks_0_attn_add_q_proj",
          .key = SD "transformer_blocks.0.attn.add_q_proj.weight" },
        { .base = "lora_transformer_single_transformer_blocks_0_proj_mlp",
          .key = SD "single_transformer_blocks.0.proj_mlp.weight" },
        { .base = "transformer.norm_out.linear", .key = SD "norm_out.linear.weight" },
        { .base = "lora_unet_double_blocks_0_img_attn_qkv",
          .key = SD "transformer_blocks.0.attn.to_q.weight",
          .of = 12 },
        { .base = "diffusion_model.double_blocks.0.txt_attn.qkv",
          .key = SD "transformer_blocks.0.attn.add_q_proj.weight",
          .of = 12 },
        { .base = "lora_unet_single_blocks_0_linear1",
          .key = SD "single_transformer_blocks.0.proj_mlp.weight",
          .from = 12,
          .of = 28 },
        { .base = "lora_unet_single_blocks_0_linear1",
          .key = SD "single_transformer_blocks.0.attn.to_v.weight",
          .from = 8,
          .of = 28 },
        { .base = "diffusion_model.single_blocks.0.linear1_qkv",
          .key = SD "single_transformer_blocks.0.attn.to_v.weight",
          .from = 8,
          .of = 12 },
        { .base = "lora_unet_final_layer_adaLN_modulation_1",
          .key = SD "norm_out.linear.weight",
          .swap = true },
        { .base = "diffusion_model.double_blocks.0.txt_attn.norm.key_norm.scale",
          .key = SD "transformer_blocks.0.attn.norm_added_k.weight" },
        { .base = "lora_unet_img_in", .key = SD "x_embedder.weight" },
        { .base = "diffusion_model.img_in.bias", .key = SD "x_embedder.bias" },
        { .base = "diffusion_model.double_blocks.0.img_attn.qkv.bias",
          .key = SD "transformer_blocks.0.attn.to_q.bias",
          .of = 12 },
        { .base = "diffusion_model.single_blocks.0.linear1.bias",
          .key = SD "single_transformer_blocks.0.proj_mlp.bias",
          .from = 12,
          .of = 28 },
        { .base = "diffusion_model.final_layer.adaLN_modulation.1.bias",
          .key = SD "norm_out.linear.bias",
          .swap = true },
    };
    check_names(name, ARRAY_LEN(name), want, ARRAY_LEN(want));
}

static void families_without_adapters_are_refused(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *part, *says;
    } row[] = {
        { "flux-tiny-vae", NULL, "vae" },
        { "sd15-tiny", "first_stage_model.", "vae" },
        { "sd15-tiny", "elsewhere.", "no family" },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = open_preset(row[i].preset);
        struct lora_table t = { 0 };
        berth_err err = { 0 };
        assert_int_equal(lora_names_file(&t, w, row[i].part, &err), BERTH_EUNSUPPORTED);
        assert_non_null(strstr(err.msg, row[i].says));
        lora_table_release(&t);
        weights_close(w);
    }
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
        s = lora_names_file(&t, w, NULL, &err);
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
        cmocka_unit_test(sd15_unet_and_clip),
        cmocka_unit_test(sdxl_unet),
        cmocka_unit_test(flux_rows),
        cmocka_unit_test(zimage_rows_of_qkv),
        cmocka_unit_test(krea2_names_of_diffusers),
        cmocka_unit_test(wan_names),
        cmocka_unit_test(clip_g_and_t5),
        cmocka_unit_test(open_clip_rows),
        cmocka_unit_test(t5_of_llama_cpp),
        cmocka_unit_test(flux_of_diffusers),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(clips_by_layers_and_place),
        cmocka_unit_test(families_without_adapters_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
