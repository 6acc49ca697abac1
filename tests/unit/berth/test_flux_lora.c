/* Adapters of Flux, Flux.2, Z-Image, Qwen-Image and Krea 2 under every name they go by: merged
 * weights against a plain computation, rows of q, k, v and of the mlp among them, and the same bits
 * wherever the blocks live. */
#include "support/models.h"
#include "support/presets.h"

#include "lora/lora.h"
#include "model/arch.h"
#include "model/lora_names.h"
#include "residency/residency_impl.h"

#include <math.h>

#define RANK 3
#define ALPHA 1.5f
#define STRENGTH 0.75f
#define D 256u /* of flux-tiny */

/* name: of the adapter; key: the tensor of the file it is for; rows 0: all. */
struct row {
    const char *name, *tensor;
    uint64_t row, rows;
    bool swap;
};

/* One list for each way of naming: lists of names that mean different rows. */
#define KOHYA(x) "lora_unet_" x
#define BFL(x) "diffusion_model." x
#define DIFFUSERS(x) "transformer." x
#define ONE_TRAINER(x) "lora_transformer_" x
#define LYCORIS(x) "lycoris_" x

static const struct row kohya[] = {
    { KOHYA("double_blocks_0_img_attn_qkv"), "double_blocks.0.img_attn.qkv.weight", 0, 0, false },
    { KOHYA("double_blocks_1_txt_mlp_2"), "double_blocks.1.txt_mlp.2.weight", 0, 0, false },
    { KOHYA("single_blocks_2_linear1"), "single_blocks.2.linear1.weight", 0, 0, false },
    { KOHYA("single_blocks_0_modulation_lin"), "single_blocks.0.modulation.lin.weight", 0, 0,
      false },
    { KOHYA("final_layer_adaLN_modulation_1"), "final_layer.adaLN_modulation.1.weight", 0, 0,
      false },
    { KOHYA("guidance_in_in_layer"), "guidance_in.in_layer.weight", 0, 0, false },
};
static const struct row bfl[] = {
    { BFL("double_blocks.0.img_mod.lin"), "double_blocks.0.img_mod.lin.weight", 0, 0, false },
    { BFL("single_blocks.1.linear2"), "single_blocks.1.linear2.weight", 0, 0, false },
    { BFL("single_blocks.1.linear1_qkv"), "single_blocks.1.linear1.weight", 0, 3 * D, false },
    { BFL("img_in"), "img_in.weight", 0, 0, false },
};
static const struct row diffusers[] = {
    { DIFFUSERS("transformer_blocks.0.attn.to_q"), "double_blocks.0.img_attn.qkv.weight", 0, D,
      false },
    { DIFFUSERS("transformer_blocks.0.attn.to_k"), "double_blocks.0.img_attn.qkv.weight", D, D,
      false },
    { DIFFUSERS("transformer_blocks.0.attn.to_v"), "double_blocks.0.img_attn.qkv.weight", 2 * D, D,
      false },
    { DIFFUSERS("transformer_blocks.1.attn.add_k_proj"), "double_blocks.1.txt_attn.qkv.weight", D,
      D, false },
    { DIFFUSERS("transformer_blocks.0.attn.to_out.0"), "double_blocks.0.img_attn.proj.weight", 0, 0,
      false },
    { DIFFUSERS("transformer_blocks.0.attn.to_add_out"), "double_blocks.0.txt_attn.proj.weight", 0,
      0, false },
    { DIFFUSERS("transformer_blocks.1.ff.net.0.proj"), "double_blocks.1.img_mlp.0.weight", 0, 0,
      false },
    { DIFFUSERS("transformer_blocks.1.norm1_context.linear"), "double_blocks.1.txt_mod.lin.weight",
      0, 0, false },
    { DIFFUSERS("single_transformer_blocks.0.attn.to_v"), "single_blocks.0.linear1.weight", 2 * D,
      D, false },
    { DIFFUSERS("single_transformer_blocks.0.proj_mlp"), "single_blocks.0.linear1.weight", 3 * D,
      4 * D, false },
    { DIFFUSERS("single_transformer_blocks.2.proj_out"), "single_blocks.2.linear2.weight", 0, 0,
      false },
    { DIFFUSERS("norm_out.linear"), "final_layer.adaLN_modulation.1.weight", 0, 0, true },
    { DIFFUSERS("time_text_embed.text_embedder.linear_1"), "vector_in.in_layer.weight", 0, 0,
      false },
};
static const struct row one_trainer[] = {
    { ONE_TRAINER("transformer_blocks_0_attn_add_v_proj"), "double_blocks.0.txt_attn.qkv.weight",
      2 * D, D, false },
    { ONE_TRAINER("single_transformer_blocks_1_attn_to_k"), "single_blocks.1.linear1.weight", D, D,
      false },
    { ONE_TRAINER("x_embedder"), "img_in.weight", 0, 0, false },
};
static const struct row lycoris[] = {
    { LYCORIS("transformer_blocks_1_ff_context_net_2"), "double_blocks.1.txt_mlp.2.weight", 0, 0,
      false },
    { LYCORIS("single_transformer_blocks_2_attn_to_q"), "single_blocks.2.linear1.weight", 0, D,
      false },
    { LYCORIS("proj_out"), "final_layer.linear.weight", 0, 0, false },
};
/* Of Flux.2, as wide as flux-tiny. */
static const struct row flux2_kohya[] = {
    { KOHYA("double_stream_modulation_img_lin"), "double_stream_modulation_img.lin.weight", 0, 0,
      false },
    { KOHYA("single_blocks_1_linear1"), "single_blocks.1.linear1.weight", 0, 0, false },
    { KOHYA("double_blocks_0_txt_mlp_0"), "double_blocks.0.txt_mlp.0.weight", 0, 0, false },
};
static const struct row flux2_bfl[] = {
    { BFL("double_blocks.1.img_attn.qkv"), "double_blocks.1.img_attn.qkv.weight", 0, 0, false },
    { BFL("single_blocks.0.linear1_qkv"), "single_blocks.0.linear1.weight", 0, 3 * D, false },
};
static const struct row flux2_diffusers[] = {
    { DIFFUSERS("transformer_blocks.0.attn.to_k"), "double_blocks.0.img_attn.qkv.weight", D, D,
      false },
    { DIFFUSERS("transformer_blocks.0.ff.linear_in"), "double_blocks.0.img_mlp.0.weight", 0, 0,
      false },
    { DIFFUSERS("transformer_blocks.1.ff_context.linear_out"), "double_blocks.1.txt_mlp.2.weight",
      0, 0, false },
    { DIFFUSERS("single_transformer_blocks.1.attn.to_qkv_mlp_proj"),
      "single_blocks.1.linear1.weight", 0, 0, false },
    { DIFFUSERS("norm_out.linear"), "final_layer.adaLN_modulation.1.weight", 0, 0, true },
};
static const struct row flux2_bare[] = {
    { "transformer_blocks.1.attn.add_v_proj", "double_blocks.1.txt_attn.qkv.weight", 2 * D, D,
      false },
    { "single_transformer_blocks.0.attn.to_out", "single_blocks.0.linear2.weight", 0, 0, false },
    { "x_embedder", "img_in.weight", 0, 0, false },
};
static const struct row flux2_flat[] = {
    { LYCORIS("transformer_blocks_0_ff_linear_out"), "double_blocks.0.img_mlp.2.weight", 0, 0,
      false },
    { ONE_TRAINER("single_transformer_blocks_0_attn_to_q"), "single_blocks.0.linear1.weight", 0, D,
      false },
    { ONE_TRAINER("transformer_blocks_1_attn_to_add_out"), "double_blocks.1.txt_attn.proj.weight",
      0, 0, false },
};
/* Z-Image's are as wide as flux-tiny. */
static const struct row zimage_kohya[] = {
    { KOHYA("layers_1_attention_qkv"), "layers.1.attention.qkv.weight", 0, 0, false },
    { KOHYA("noise_refiner_0_feed_forward_w1"), "noise_refiner.0.feed_forward.w1.weight", 0, 0,
      false },
    { KOHYA("layers_0_adaLN_modulation_0"), "layers.0.adaLN_modulation.0.weight", 0, 0, false },
};
static const struct row zimage_own[] = {
    { BFL("context_refiner.1.attention.out"), "context_refiner.1.attention.out.weight", 0, 0,
      false },
    { BFL("layers.0.attention.to_k"), "layers.0.attention.qkv.weight", D, D, false },
    { BFL("cap_embedder.1"), "cap_embedder.1.weight", 0, 0, false },
};
static const struct row zimage_diffusers[] = {
    { DIFFUSERS("layers.0.attention.to_q"), "layers.0.attention.qkv.weight", 0, D, false },
    { DIFFUSERS("layers.0.attention.to_v"), "layers.0.attention.qkv.weight", 2 * D, D, false },
    { DIFFUSERS("layers.1.attention.to_out.0"), "layers.1.attention.out.weight", 0, 0, false },
    { DIFFUSERS("all_final_layer.2-1.linear"), "final_layer.linear.weight", 0, 0, false },
    { "layers.1.feed_forward.w3", "layers.1.feed_forward.w3.weight", 0, 0, false },
};
static const struct row zimage_lycoris[] = {
    { LYCORIS("noise_refiner_1_attention_to_k"), "noise_refiner.1.attention.qkv.weight", D, D,
      false },
    { LYCORIS("layers_0_feed_forward_w2"), "layers.0.feed_forward.w2.weight", 0, 0, false },
};
#define BLOCK(n) "transformer_blocks." n
static const struct row qwen_own[] = {
    { BFL(BLOCK("0.attn.to_q")), BLOCK("0.attn.to_q.weight"), 0, 0, false },
    { BFL(BLOCK("1.txt_mlp.net.0.proj")), BLOCK("1.txt_mlp.net.0.proj.weight"), 0, 0, false },
    { BFL("txt_in"), "txt_in.weight", 0, 0, false },
};
static const struct row qwen_bare[] = {
    { BLOCK("0.attn.to_add_out"), BLOCK("0.attn.to_add_out.weight"), 0, 0, false },
    { BLOCK("1.img_mod.1"), BLOCK("1.img_mod.1.weight"), 0, 0, false },
};
static const struct row qwen_diffusers[] = {
    { DIFFUSERS(BLOCK("0.attn.to_out.0")), BLOCK("0.attn.to_out.0.weight"), 0, 0, false },
    { DIFFUSERS(BLOCK("1.attn.add_k_proj")), BLOCK("1.attn.add_k_proj.weight"), 0, 0, false },
    { DIFFUSERS("norm_out.linear"), "norm_out.linear.weight", 0, 0, false },
};
static const struct row qwen_flat[] = {
    { KOHYA("transformer_blocks_0_img_mlp_net_2"), BLOCK("0.img_mlp.net.2.weight"), 0, 0, false },
    { LYCORIS("transformer_blocks_1_attn_to_v"), BLOCK("1.attn.to_v.weight"), 0, 0, false },
    { KOHYA("proj_out"), "proj_out.weight", 0, 0, false },
};
static const struct row krea2_own[] = {
    { BFL("blocks.0.attn.wq"), "blocks.0.attn.wq.weight", 0, 0, false },
    { KOHYA("blocks_1_mlp_down"), "blocks.1.mlp.down.weight", 0, 0, false },
    { KOHYA("txtfusion_refiner_blocks_0_attn_wo"), "txtfusion.refiner_blocks.0.attn.wo.weight", 0,
      0, false },
};
static const struct row krea2_diffusers[] = {
    { DIFFUSERS(BLOCK("0.attn.to_k")), "blocks.0.attn.wk.weight", 0, 0, false },
    { DIFFUSERS(BLOCK("1.attn.to_out.0")), "blocks.1.attn.wo.weight", 0, 0, false },
    { BFL(BLOCK("1.attn.to_gate")), "blocks.1.attn.gate.weight", 0, 0, false },
    { BFL("time_mod_proj"), "tproj.1.weight", 0, 0, false },
    { BLOCK("0.ff.gate"), "blocks.0.mlp.gate.weight", 0, 0, false },
    { LYCORIS("text_fusion_layerwise_blocks_1_attn_to_v"),
      "txtfusion.layerwise_blocks.1.attn.wv.weight", 0, 0, false },
    { LYCORIS("final_layer_linear"), "last.linear.weight", 0, 0, false },
};
static const struct row t5[] = {
    { "lora_te2_encoder_block_0_layer_0_SelfAttention_q",
      "encoder.block.0.layer.0.SelfAttention.q.weight", 0, 0, false },
    { "lora_te3_encoder_block_1_layer_1_DenseReluDense_wo",
      "encoder.block.1.layer.1.DenseReluDense.wo.weight", 0, 0, false },
    { "text_encoders.t5xxl.transformer.encoder.block.2.layer.1.DenseReluDense.wi_1",
      "encoder.block.2.layer.1.DenseReluDense.wi_1.weight", 0, 0, false },
};
#define LAYER(n) "text_model.encoder.layers." n
static const struct row clip_l[] = {
    { "lora_te1_text_model_encoder_layers_0_mlp_fc1", LAYER("0.mlp.fc1.weight"), 0, 0, false },
    { "lora_te_text_model_encoder_layers_1_self_attn_v_proj", LAYER("1.self_attn.v_proj.weight"), 0,
      0, false },
    { "text_encoder.text_model.encoder.layers.2.self_attn.out_proj",
      LAYER("2.self_attn.out_proj.weight"), 0, 0, false },
    { "text_encoders.clip_l.transformer.text_model.encoder.layers.0.self_attn.q_proj",
      LAYER("0.self_attn.q_proj.weight"), 0, 0, false },
};

#define LIST(preset, x)                                                                            \
    {                                                                                              \
        preset, x, ARRAY_LEN(x)                                                                    \
    }
static const struct list {
    const char *preset;
    const struct row *row;
    size_t n;
} lists[] = {
    LIST("flux-tiny", kohya),
    LIST("flux-tiny", bfl),
    LIST("flux-tiny", diffusers),
    LIST("flux-tiny", one_trainer),
    LIST("flux-tiny", lycoris),
    LIST("flux2-tiny", flux2_kohya),
    LIST("flux2-tiny", flux2_bfl),
    LIST("flux2-tiny", flux2_diffusers),
    LIST("flux2-tiny", flux2_bare),
    LIST("flux2-tiny", flux2_flat),
    LIST("t5-tiny", t5),
    LIST("clip-l-tiny", clip_l),
    LIST("z-image-tiny", zimage_kohya),
    LIST("z-image-tiny", zimage_own),
    LIST("z-image-tiny", zimage_diffusers),
    LIST("z-image-tiny", zimage_lycoris),
    LIST("qwen-image-tiny", qwen_own),
    LIST("qwen-image-tiny", qwen_bare),
    LIST("qwen-image-tiny", qwen_diffusers),
    LIST("qwen-image-tiny", qwen_flat),
    LIST("krea2-tiny", krea2_own),
    LIST("krea2-tiny", krea2_diffusers),
};

/* ---- a file of adapters ---- */

static float factor(uint64_t seed, uint64_t i)
{
    uint64_t z = (seed + 1) * UINT64_C(0x9e3779b97f4a7c15) + i * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ z >> 29) * UINT64_C(0x94d049bb133111eb);
    return (float)(int64_t)(z >> 40) / (float)(1 << 23) - 1;
}

/* Tensors come in threes: up, down, alpha of row i. */
static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    float *f = dst;
    (void)user, (void)err;
    for (size_t k = 0; k < n / sizeof *f; k++)
        f[k] = i % 3 == 2 ? ALPHA : factor(i, off / sizeof *f + k);
    return BERTH_OK;
}

static struct res_adapter *open_lora(const struct list *l, const struct weights *base)
{
    struct weights_spec *spec = calloc(3 * l->n, sizeof *spec);
    struct lora_table table = { 0 };
    struct res_adapter *a;
    berth_err err = { 0 };
    char(*name)[200] = calloc(3 * l->n, sizeof *name);
    assert_non_null(spec);
    assert_non_null(name);
    for (size_t i = 0; i < l->n; i++) {
        const char *t = l->row[i].tensor;
        const struct weights_entry *e = weights_find(base, t, strlen(t));
        if (!e)
            fail_msg("%s has no '%s'", l->preset, t);
        uint64_t rows = l->row[i].rows ? l->row[i].rows : e->shape.dim[0];
        snprintf(name[3 * i], sizeof *name, "%s.lora_up.weight", l->row[i].name);
        snprintf(name[3 * i + 1], sizeof *name, "%s.lora_down.weight", l->row[i].name);
        snprintf(name[3 * i + 2], sizeof *name, "%s.alpha", l->row[i].name);
        spec[3 * i] = (struct weights_spec) { name[3 * i], DT_F32, { 2, { rows, RANK } } };
        spec[3 * i + 1] =
            (struct weights_spec) { name[3 * i + 1], DT_F32, { 2, { RANK, e->shape.dim[1] } } };
        spec[3 * i + 2] = (struct weights_spec) { name[3 * i + 2], DT_F32, { 0 } };
    }
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("adapter.safetensors"),
                                       .spec = spec,
                                       .count = 3 * l->n,
                                       .fill = fill };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(lora_names_file(&table, base, NULL, &err), err);
    struct lora_names names = lora_table_names(&table);
    assert_ok(lora_open(args.path, &names, NULL, &a, &err), err);
    assert_int_equal(lora_info(a).unknown, 0);
    assert_int_equal(lora_info(a).targets, l->n);
    lora_table_release(&table);
    free(name);
    free(spec);
    return a;
}

/* ---- what it must come to ---- */

/* W + strength * alpha / rank * up . down for all rows of the list that mean this tensor, in
 * double. */
static double *merged(const struct list *l, const struct weights *base,
                      const struct weights_entry *e)
{
    uint64_t rows = e->shape.dim[0], cols = e->shape.dim[1];
    double *w = calloc((size_t)(rows * cols), sizeof *w);
    assert_non_null(w);
    const uint8_t *from = weights_data(base, e);
    for (uint64_t k = 0; k < rows * cols; k++) {
        float x;
        memcpy(&x, from + k * sizeof x, sizeof x);
        w[k] = (double)x;
    }
    for (size_t i = 0; i < l->n; i++) {
        if (strcmp(l->row[i].tensor, e->name) != 0)
            continue;
        uint64_t n = l->row[i].rows ? l->row[i].rows : rows;
        for (uint64_t y = 0; y < n; y++) {
            uint64_t to = l->row[i].row + (l->row[i].swap ? (y + n / 2) % n : y);
            for (uint64_t x = 0; x < cols; x++)
                for (uint64_t r = 0; r < RANK; r++)
                    w[to * cols + x] += (double)STRENGTH * (double)ALPHA / RANK *
                                        (double)factor(3 * i, y * RANK + r) *
                                        (double)factor(3 * i + 1, r * cols + x);
        }
    }
    return w;
}

static void check_tensor(struct res_model *m, const struct weights_entry *e, const double *want)
{
    const struct blocks *b = res_blocks(m);
    berth_err err = { 0 };
    float *got = NULL;
    for (size_t i = 0; i < b->n; i++)
        for (size_t k = 0; k < b->at[i].n; k++)
            if (b->tensor[b->at[i].first + k].entry == e ||
                strcmp(b->tensor[b->at[i].first + k].entry->name, e->name) == 0) {
                got = malloc((size_t)e->size);
                assert_non_null(got);
                assert_ok(res_tensor_read(m, i, k, got, (size_t)e->size, &err), err);
            }
    assert_non_null(got);
    for (uint64_t k = 0; k < e->size / sizeof *got; k++)
        if (fabs((double)got[k] - want[k]) > 2e-6 * (1 + fabs(want[k])))
            fail_msg("'%s': [%llu] is %g, not %g", e->name, (unsigned long long)k, (double)got[k],
                     want[k]);
    free(got);
}

static void merged_as_computed_by_hand(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(lists); k++) {
        const struct list *l = &lists[k];
        struct weights *base;
        struct fixture f;
        struct res_model *m;
        berth_err err = { 0 };
        char path[512];
        snprintf(path, sizeof path, "%s", preset_file(l->preset, DT_F32));
        assert_ok(weights_open(path, NULL, &base, &err), err);
        struct res_adapter *a = open_lora(l, base);
        const struct res_patch patch = { .adapter = a, .strength = STRENGTH };
        struct res_open_args args = { .path = path, .arch = arch_blocks, .plan.alloc = "#cpu" };
        fixture_open(&f, "cpu=512m", NULL);
        assert_ok(res_open(f.r, &args, &m, NULL, &err), err);
        assert_ok(res_set_patches(m, &patch, 1, &err), err);
        model_load(m);
        for (size_t i = 0; i < l->n; i++) {
            const char *t = l->row[i].tensor;
            const struct weights_entry *e = weights_find(base, t, strlen(t));
            double *want = merged(l, base, e);
            check_tensor(m, e, want);
            free(want);
        }
        res_unref(m);
        res_adapter_unref(a);
        fixture_close(&f);
        weights_close(base);
    }
}

static void the_same_bits_wherever_blocks_live(void **state)
{
    static const struct {
        const char *devices, *alloc;
    } place[] = {
        { "cpu=512m", "#cpu" },
        { "cpu=512m,null:0=256m", "#null:0" },
        { "cpu=512m,null:0=256m,null:1=256m", "null:0,40%;null:1,20%;cpu,40%#null:0" },
        { "cpu=512m,null:0=256m", "cpu,30%;null:0,70%#cpu" },
    };
    static const struct {
        enum dtype file;
        const char *dtype; /* that it is converted to */
    } type[] = { { DT_F32, NULL }, { DT_BF16, NULL }, { DT_F8_E4M3, NULL }, { DT_F32, "F8_E4M3" } };
    uint64_t fp8[2] = { 0 };
    const struct list *l = &lists[2]; /* diffusers': with rows and halves */
    (void)state;
    for (size_t t = 0; t < ARRAY_LEN(type); t++) {
        uint64_t first[2] = { 0 }, plain = 0; /* where the cpu computes, and cards */
        char path[512];
        struct weights *base;
        berth_err err = { 0 };
        snprintf(path, sizeof path, "%s", preset_file(l->preset, type[t].file));
        assert_ok(weights_open(path, NULL, &base, &err), err);
        struct res_adapter *a = open_lora(l, base);
        const struct res_patch patch = { .adapter = a, .strength = STRENGTH };
        for (size_t i = 0; i < ARRAY_LEN(place); i++) {
            struct fixture f;
            struct res_model *m;
            uint64_t sum, without;
            struct res_open_args args = { .path = path,
                                          .arch = arch_blocks,
                                          .dtype = type[t].dtype,
                                          .plan.alloc = place[i].alloc };
            fixture_open(&f, place[i].devices, NULL);
            assert_ok(res_open(f.r, &args, &m, NULL, &err), err);
            model_load(m);
            assert_ok(res_checksum(m, &without, &err), err);
            assert_ok(res_set_patches(m, &patch, 1, &err), err);
            model_load(m);
            assert_ok(res_checksum(m, &sum, &err), err);
            bool card = strstr(place[i].alloc, "#null") != NULL;
            first[card] = first[card] ? first[card] : sum;
            plain = i ? plain : without;
            assert_true(sum == first[card] && without == plain && sum != plain);
            res_unref(m);
            fixture_close(&f);
        }
        assert_int_equal(first[0] != first[1], type[t].file == DT_BF16);
        if (type[t].file == DT_F8_E4M3)
            fp8[0] = first[0], fp8[1] = plain;
        else if (type[t].dtype) /* as the file that was saved so, with the adapter and without it */
            assert_true(first[0] == fp8[0] && plain == fp8[1]);
        res_adapter_unref(a);
        weights_close(base);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(merged_as_computed_by_hand),
        cmocka_unit_test(the_same_bits_wherever_blocks_live),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
