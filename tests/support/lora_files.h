/* lora_files: a small LoRA of sd15-tiny. */
#ifndef SUPPORT_LORA_FILES_H
#define SUPPORT_LORA_FILES_H

#include "support/models.h"

static inline berth_status lora_fill(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                     berth_err *err)
{
    float *f = dst;
    (void)user, (void)i, (void)err;
    for (size_t k = 0; k < n / sizeof *f; k++)
        f[k] = (float)(int)((off / sizeof *f + k) % 11) / 8 - 0.5f;
    return BERTH_OK;
}

/* A pair for a linear weight of the UNet and one for one of the text encoder, of sd15-tiny. */
static inline void lora_file(const char *path, const struct res_model *unet,
                             const struct res_model *clip)
{
    static const char *const key[2] = {
        "model.diffusion_model.input_blocks.1.1.transformer_blocks.0.attn1.to_q.weight",
        "cond_stage_model.transformer.text_model.encoder.layers.0.self_attn.q_proj.weight",
    };
    static const char *const name[4] = {
        "lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q.lora_up.weight",
        "lora_unet_input_blocks_1_1_transformer_blocks_0_attn1_to_q.lora_down.weight",
        "lora_te_text_model_encoder_layers_0_self_attn_q_proj.lora_up.weight",
        "lora_te_text_model_encoder_layers_0_self_attn_q_proj.lora_down.weight",
    };
    const struct res_model *m[2] = { unet, clip };
    struct weights_spec spec[4];
    berth_err err = { 0 };
    for (size_t i = 0; i < 2; i++) {
        const struct weights_entry *e = weights_find(res_weights(m[i]), key[i], strlen(key[i]));
        assert_non_null(e);
        spec[2 * i] = (struct weights_spec) { name[2 * i], DT_F32, { 2, { e->shape.dim[0], 4 } } };
        spec[2 * i + 1] =
            (struct weights_spec) { name[2 * i + 1], DT_F32, { 2, { 4, e->shape.dim[1] } } };
    }
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = 4, .fill = lora_fill
    };
    assert_ok(weights_write(&args, &err), err);
}

#endif
