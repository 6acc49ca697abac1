/* Adapters through the public header, on every kind of part: that they change its weights, and that
 * the same adapter does the same to the same network wherever it stands. And the keys behind
 * that. */
#include "support/presets.h"

#include "base/hash.h"
#include "model/arch.h"
#include "residency/residency_impl.h"

/* ---- adapters made by hand ---- */

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    float *f = dst;
    (void)user, (void)i, (void)err;
    for (size_t k = 0; k < n / sizeof *f; k++)
        f[k] = (float)(int)((off / sizeof *f + k) % 11) / 8 - 0.5f;
    return BERTH_OK;
}

/* One pair of rank 4 for a weight of [rows, cols]. */
static const char *adapter_file(const char *base, uint64_t rows, uint64_t cols)
{
    char up[160], down[160];
    berth_err err = { 0 };
    snprintf(up, sizeof up, "%s.lora_up.weight", base);
    snprintf(down, sizeof down, "%s.lora_down.weight", base);
    const struct weights_spec spec[] = { { up, DT_F32, { 2, { rows, 4 } } },
                                         { down, DT_F32, { 2, { 4, cols } } } };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("adapter.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = fill };
    assert_ok(weights_write(&args, &err), err);
    return args.path;
}

struct subject {
    berth_ctx *ctx;
    berth_model *m;
};

static struct subject subject_open(const char *path, const char *part)
{
    berth_config cfg = { .size = sizeof cfg, .devices = "cpu=256m" };
    berth_model_config model = { .path = path, .part = part };
    struct subject s;
    berth_err err = { 0 };
    assert_ok(berth_ctx_new(&cfg, &s.ctx, &err), err);
    assert_ok(berth_model_open(s.ctx, &model, &s.m, &err), err);
    return s;
}

static void subject_close(struct subject *s)
{
    berth_model_close(s->m);
    berth_ctx_free(s->ctx);
}

/* Bytes derived again, and the weights after it. */
static uint64_t apply(struct subject *s, berth_adapter *a, uint64_t *sum)
{
    const berth_adapter_use use = { a, 1.0f };
    berth_load_result got;
    berth_err err = { 0 };
    assert_ok(berth_model_set_adapters(s->m, &use, a ? 1 : 0, &err), err);
    assert_ok(berth_model_load(s->m, NULL, &got, &err), err);
    assert_ok(berth_model_checksum(s->m, sum, &err), err);
    return got.read;
}

static void every_part_gets_its_adapters(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *part, *base;
        uint64_t rows, cols;
    } row[] = {
        { "sd15-tiny", NULL, "lora_te_text_model_encoder_layers_0_mlp_fc1", 256, 64 },
        { "sd15-tiny", "cond_stage_model.", "lora_te_text_model_encoder_layers_0_mlp_fc1", 256,
          64 },
        { "sd15-tiny", "cond_stage_model.transformer.",
          "lora_te1_text_model_encoder_layers_2_self_attn_q_proj", 64, 64 },
        { "sd15-tiny", "cond_stage_model.", "lora_te1_text_projection", 64, 64 },
        { "sd15-tiny", "model.diffusion_model.", "lora_unet_time_embedding_linear_1", 128, 32 },
        { "clip-g-tiny", NULL, "lora_te2_text_model_encoder_layers_3_mlp_fc2", 64, 256 },
        { "clip-g-tiny", "conditioner.embedders.1.",
          "text_encoder_2.text_model.encoder.layers.0.self_attn.v_proj", 64, 64 },
        { "clip-g-tiny", "conditioner.", "lora_te2_text_projection", 64, 64 },
        { "t5-tiny", NULL, "lora_te3_encoder_block_2_layer_1_DenseReluDense_wo", 64, 160 },
        { "flux-tiny", NULL, "transformer.transformer_blocks.0.attn.to_q", 256, 256 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct subject s = subject_open(preset_file(row[i].preset, DT_F16), row[i].part);
        berth_adapter *a;
        berth_adapter_info info;
        uint64_t base, patched, after;
        berth_err err = { 0 };
        assert_ok(
            berth_adapter_open(s.m, adapter_file(row[i].base, row[i].rows, row[i].cols), &a, &err),
            err);
        berth_adapter_get_info(a, &info);
        apply(&s, NULL, &base);
        uint64_t read = apply(&s, a, &patched);
        if (info.targets != 1 || info.unknown || !read || patched == base)
            fail_msg("%s, part %s: %s has %llu targets, %llu bytes derived again", row[i].preset,
                     row[i].part ? row[i].part : "-", row[i].base, (unsigned long long)info.targets,
                     (unsigned long long)read);
        apply(&s, NULL, &after);
        assert_int_equal(after, base);
        berth_adapter_close(a);
        subject_close(&s);
    }
}

/* ---- the same network elsewhere ---- */

struct copying {
    const struct weights *from;
    const struct weights_entry *const *entry;
};

static berth_status copy_tensor(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                berth_err *err)
{
    const struct copying *c = user;
    return weights_read(c->from, c->entry[i], off, dst, n, err);
}

/* What stands below `root` in a file, as a file of its own, `lead` in front of the names. */
static const char *part_file(const char *from, const char *root, const char *lead)
{
    enum { MOST = 2000 };
    static struct weights_spec spec[MOST];
    static char name[MOST][160];
    static const struct weights_entry *entry[MOST];
    struct weights *w;
    size_t n = 0;
    berth_err err = { 0 };
    assert_ok(weights_open(from, NULL, &w, &err), err);
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (strncmp(e->name, root, strlen(root)) != 0)
            continue;
        assert_true(n < MOST);
        snprintf(name[n], sizeof name[n], "%s%s", lead, e->name + strlen(root));
        spec[n] = (struct weights_spec) { name[n], e->dtype, e->shape };
        entry[n++] = e;
    }
    struct copying c = { w, entry };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("part.safetensors"),
                                       .spec = spec,
                                       .count = n,
                                       .fill = copy_tensor,
                                       .user = &c };
    assert_ok(weights_write(&args, &err), err);
    weights_close(w);
    return args.path;
}

/* fp8, so that the draws of its rounding have to be the same too. */
static void an_adapter_knows_networks_not_files(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *opened, *root, *lead, *base;
        uint64_t rows, cols;
    } row[] = {
        { "sd15-tiny", "model.diffusion_model.", "model.diffusion_model.", "",
          "lora_unet_time_embedding_linear_1", 128, 32 },
        { "sd15-tiny", NULL, "model.diffusion_model.", "", "lora_unet_time_embedding_linear_1", 128,
          32 },
        { "sd15-tiny", NULL, "cond_stage_model.transformer.", "",
          "lora_te_text_model_encoder_layers_0_mlp_fc1", 256, 64 },
        { "sd15-tiny", "cond_stage_model.", "cond_stage_model.transformer.", "transformer.",
          "lora_te_text_model_encoder_layers_0_mlp_fc1", 256, 64 },
        { "sd15-tiny", "cond_stage_model.", "cond_stage_model.transformer.",
          "text_encoders.clip_l.transformer.", "lora_te1_text_projection", 64, 64 },
        { "t5-tiny", NULL, "", "text_encoders.t5xxl.transformer.",
          "lora_te3_encoder_block_1_layer_0_SelfAttention_o", 64, 64 },
        { "clip-g-tiny", "conditioner.", "conditioner.embedders.1.model.transformer.",
          "text_encoders.clip_g.transformer.", "lora_te2_text_model_encoder_layers_1_mlp_fc1", 256,
          64 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        const char *checkpoint = preset_file(row[i].preset, DT_F8_E4M3);
        struct subject first = subject_open(checkpoint, row[i].opened);
        struct subject part = subject_open(checkpoint, row[i].root);
        struct subject alone = subject_open(part_file(checkpoint, row[i].root, row[i].lead), NULL);
        berth_adapter *a;
        uint64_t base, want, got;
        berth_err err = { 0 };
        assert_ok(berth_adapter_open(first.m, adapter_file(row[i].base, row[i].rows, row[i].cols),
                                     &a, &err),
                  err);
        apply(&part, NULL, &base);
        apply(&part, a, &want);
        assert_true(want != base);
        apply(&alone, NULL, &got);
        assert_int_equal(got, base);
        apply(&alone, a, &got);
        assert_int_equal(got, want);
        berth_adapter_close(a);
        subject_close(&first);
        subject_close(&part);
        subject_close(&alone);
    }
}

/* High precision is another model: what the adapter changes of it is wide, and only that. */
static void high_precision_doubles_what_is_patched(void **state)
{
    (void)state;
    struct subject low = subject_open(preset_file("t5-tiny", DT_F8_E4M3), NULL), high = low;
    berth_model_config cfg = { .path = preset_file("t5-tiny", DT_F8_E4M3), .high_precision = 1 };
    berth_model_info info;
    berth_adapter *a;
    uint64_t sum[2];
    berth_err err = { 0 };
    assert_ok(berth_model_open(low.ctx, &cfg, &high.m, &err), err);
    assert_ok(berth_adapter_open(
                  low.m, adapter_file("lora_te2_encoder_block_0_layer_0_SelfAttention_q", 64, 64),
                  &a, &err),
              err);
    apply(&low, a, &sum[0]);
    apply(&high, a, &sum[1]);
    assert_true(sum[0] != sum[1]);
    assert_ok(berth_model_get_info(low.m, &info, &err), err);
    assert_int_equal(info.resident, info.bytes);
    assert_ok(berth_model_get_info(high.m, &info, &err), err);
    assert_int_equal(info.resident, info.bytes + 64 * 64);
    berth_adapter_close(a);
    berth_model_close(high.m);
    subject_close(&low);
}

/* ---- keys and what they seed ---- */

static void keys_are_comfyuis(void **state)
{
    (void)state;
    static const struct {
        const char *preset, *part, *name, *key;
        uint32_t seed; /* CRC-32 of the key, by another implementation */
    } row[] = {
        { "t5-tiny", NULL, "encoder.block.0.layer.0.SelfAttention.q.weight",
          "t5xxl.transformer.encoder.block.0.layer.0.SelfAttention.q.weight", 0x5497e3a4 },
        { "flux-tiny", NULL, "double_blocks.0.img_attn.qkv.weight",
          "diffusion_model.double_blocks.0.img_attn.qkv.weight", 0xaeee8737 },
        { "sd15-tiny", NULL, "model.diffusion_model.out.2.weight", "diffusion_model.out.2.weight",
          0xf046b3de },
        { "sd15-tiny", "model.diffusion_model.", "model.diffusion_model.out.2.weight",
          "diffusion_model.out.2.weight", 0xf046b3de },
        { "sd15-tiny", "cond_stage_model.",
          "cond_stage_model.transformer.text_model.encoder.layers.0.mlp.fc1.weight",
          "clip_l.transformer.text_model.encoder.layers.0.mlp.fc1.weight", 0x5fb7b3a0 },
        { "clip-g-tiny", NULL,
          "conditioner.embedders.1.model.transformer.text_model.encoder.layers.0.mlp.fc1.weight",
          "clip_g.transformer.text_model.encoder.layers.0.mlp.fc1.weight", 0x95a01961 },
        { "sd15-tiny", NULL, "first_stage_model.decoder.conv_in.weight", "decoder.conv_in.weight",
          0xfc4db527 },
        { "flux-tiny-vae", NULL, "decoder.conv_in.weight", "decoder.conv_in.weight", 0xfc4db527 },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w;
        struct res_model m = { 0 }; /* only what names need */
        char key[RES_KEY_MAX];
        berth_err err = { 0 };
        assert_ok(weights_open(preset_file(row[i].preset, DT_F16), NULL, &w, &err), err);
        const struct block_arch *arch = arch_blocks(w, row[i].part);
        assert_true(arch && arch->aliases);
        m.aliases = arch->aliases(w, row[i].part, m.alias, RES_ALIASES);
        const struct weights_entry *e = weights_find(w, row[i].name, strlen(row[i].name));
        assert_non_null(e);
        size_t n = res_tensor_key(&m, e, key);
        assert_string_equal(key, row[i].key);
        assert_int_equal(crc32_of(0, key, n), row[i].seed);
        weights_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_part_gets_its_adapters),
        cmocka_unit_test(an_adapter_knows_networks_not_files),
        cmocka_unit_test(high_precision_doubles_what_is_patched),
        cmocka_unit_test(keys_are_comfyuis),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
