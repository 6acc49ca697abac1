/* Which set of text encoders a loader's files make: as ComfyUI 0.33.0 decides
 * (load_text_encoder_state_dicts), by the files first, by the type where it tells sets apart. */
#include "support/test.h"

#include "model/encoder.h"

struct row {
    const struct encoder_class *file[3]; /* NULL ends them */
    const char *type;
    const char *set;  /* its name; NULL: refused ... */
    const char *says; /* ... with these words */
    berth_status want;
};

#define NOT_YET(t) NULL, "text encoders of type '" t "' cannot be computed yet", BERTH_EUNSUPPORTED

static const struct row rows[] = {
    /* the type says nothing about these files */
    { { &encoder_qwen3_4b }, "wan", "Z-Image", "", BERTH_OK },
    { { &encoder_qwen3_4b }, "lumina2", "Z-Image", "", BERTH_OK },
    { { &encoder_qwen3_4b }, "stable_diffusion", "Z-Image", "", BERTH_OK },
    { { &encoder_qwen25_7b }, "sd3", "Qwen-Image", "", BERTH_OK },
    { { &encoder_qwen25_3b }, "mochi", "OmniGen2", "", BERTH_OK },
    { { &encoder_gemma2_2b }, "hidream", "Lumina 2", "", BERTH_OK },
    { { &encoder_gemma3_4b }, "wan", "Gemma 3", "", BERTH_OK },
    { { &encoder_mistral3_24b }, "qwen_image", "Flux.2", "", BERTH_OK },
    { { &encoder_ministral3_3b }, "minimax", "Ernie", "", BERTH_OK },
    { { &encoder_qwen3_8b }, "wan", "Flux.2 klein", "", BERTH_OK },
    { { &encoder_qwen3vl_4b }, "boogu", "Qwen3-VL", "", BERTH_OK },
    { { &encoder_qwen3vl_8b }, "krea2", "Qwen3-VL", "", BERTH_OK },
    { { &encoder_qwen35_4b }, "stable_diffusion", "Qwen3.5", "", BERTH_OK },
    { { &encoder_qwen35_9b }, "qwen_image", "Qwen3.5", "", BERTH_OK },
    { { &encoder_clip_l }, "wan", "SD1", "", BERTH_OK },
    { { &encoder_clip_l }, "stable_cascade", "SD1", "", BERTH_OK },
    { { &encoder_clip_h }, "sd3", "SD2", "", BERTH_OK },
    { { &encoder_clip_g }, "flux2", "SDXL refiner", "", BERTH_OK },
    /* it chooses between sets of the same files */
    { { &encoder_qwen3_4b }, "flux2", "Flux.2 klein", "", BERTH_OK },
    { { &encoder_qwen3vl_4b }, "krea2", "Krea 2", "", BERTH_OK },
    { { &encoder_qwen3vl_4b }, "stable_diffusion", "Qwen3-VL", "", BERTH_OK },
    { { &encoder_clip_l, &encoder_clip_g }, "sdxl", "SDXL", "", BERTH_OK },
    { { &encoder_t5, &encoder_clip_l }, "flux", "Flux", "", BERTH_OK },
    { { &encoder_t5 }, "ltxv", "LTX-Video", "", BERTH_OK },
    { { &encoder_llama, &encoder_clip_l }, "hunyuan_video", "HunyuanVideo", "", BERTH_OK },
    { { &encoder_t5 }, "mochi", "Mochi", "", BERTH_OK },
    /* and may choose one that is not there */
    { { &encoder_clip_l }, "sd3", NOT_YET("sd3") },
    { { &encoder_clip_l }, "hidream", NOT_YET("hidream") },
    { { &encoder_clip_g }, "stable_cascade", NOT_YET("stable_cascade") },
    { { &encoder_qwen25_7b }, "hunyuan_image", NOT_YET("hunyuan_image") },
    { { &encoder_qwen25_7b }, "longcat_image", NOT_YET("longcat_image") },
    { { &encoder_gemma2_2b }, "pixeldit", NOT_YET("pixeldit") },
    { { &encoder_qwen3_8b }, "ideogram4", NOT_YET("ideogram4") },
    { { &encoder_qwen3vl_8b }, "boogu", NOT_YET("boogu") },
    { { &encoder_qwen3vl_4b }, "mage", NOT_YET("mage") },
    { { &encoder_t5 }, "wan", NULL, "umT5 is missing", BERTH_EINVAL },
    { { &encoder_umt5 }, "wan", "Wan", "", BERTH_OK },
    { { &encoder_umt5 }, "mochi", NULL, "T5 is missing", BERTH_EINVAL },
    { { &encoder_t5 }, "stable_diffusion", "Mochi", "", BERTH_OK },
    { { &encoder_clip_l, &encoder_t5 }, "sdxl", NULL, "CLIP-G is missing", BERTH_EINVAL },
    { { &encoder_clip_l, &encoder_clip_l },
      "flux",
      NULL,
      "T5 is missing, two files are CLIP-L",
      BERTH_EINVAL },
    { { &encoder_clip_l, &encoder_clip_l }, "sd3", NOT_YET("sd3") },
};

static void as_comfyui_decides(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(rows); i++) {
        const struct row *r = &rows[i];
        struct text_found found[ARRAY_LEN(r->file)] = { 0 };
        const struct text_set *set = NULL;
        berth_err err = { 0 };
        size_t n = 0;
        for (; r->file[n]; n++)
            found[n].is = r->file[n];
        assert_fails(text_set_find(found, n, r->type, &set, &err), err, r->want, r->says);
        if (r->set)
            assert_string_equal(set->name, r->set);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(as_comfyui_decides) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
