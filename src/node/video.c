/* video.c: conditioning of video models. Declared in full; computed when the networks are there. */
#include "node/node_impl.h"

NOT_YET(LTXVConditioning, .category = "conditioning/video_models", V3("lt"),
        INS(PAIR_IN, FLOAT_IN("frame_rate", 25.0, 0.0, 1000.0, 0.01)), OUTS(PAIR_OUT));

NOT_YET(LTXVImgToVideo, .category = "conditioning/video_models", V3("lt"),
        INS(PAIR_IN, SOCKET("vae", "VAE"), SOCKET("image", "IMAGE"), SIZE_IN(768, 512, 64, 32),
            INT_IN("length", 97, 9, MAX_SIDE, 8), BATCH_IN, FLOAT_IN("strength", 1.0, 0.0, 1.0, 0)),
        OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }));

NOT_YET(LTXVPreprocess, .category = "image", V3("lt"),
        INS(SOCKET("image", "IMAGE"), INT_IN("img_compression", 35, 0, 100, 0)),
        OUTS({ .type = "IMAGE", .name = "output_image" }));

NOT_YET(LTXVAddGuide, .category = "conditioning/video_models", V3("lt"),
        INS(PAIR_IN, SOCKET("vae", "VAE"), SOCKET("latent", "LATENT"), SOCKET("image", "IMAGE"),
            INT_IN("frame_idx", 0, -9999, 9999, 0), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),
            OPTIONAL("attention_mask", "MASK"),
            OPTIONAL("iclora_parameters", "IC_LORA_PARAMETERS")),
        OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }));

NOT_YET(LTXVCropGuides, .category = "conditioning/video_models", V3("lt"),
        INS(PAIR_IN, SOCKET("latent", "LATENT")),
        OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }));

NOT_YET(HunyuanImageToVideo, .category = "conditioning/video_models", V3("hunyuan"),
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("vae", "VAE"), SIZE_IN(848, 480, 16, 16),
            INT_IN("length", 53, 1, MAX_SIDE, 4), BATCH_IN,
            COMBO_IN("guidance_type", CHOICES("v1 (concat)", "v2 (replace)", "custom")),
            OPTIONAL("start_image", "IMAGE")),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "LATENT", .name = "latent" }));
