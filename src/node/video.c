/* video.c: conditioning of video models. Declared in full; computed when the networks are there. */
#include "node/node_impl.h"

NOT_YET(LTXVPreprocess, .category = "image", V3("lt"),
        INS(SOCKET("image", "IMAGE"), INT_IN("img_compression", 35, 0, 100, 0)),
        OUTS({ .type = "IMAGE", .name = "output_image" }));

NOT_YET(HunyuanImageToVideo, .category = "conditioning/video_models", V3("hunyuan"),
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("vae", "VAE"), SIZE_IN(848, 480, 16, 16),
            INT_IN("length", 53, 1, MAX_SIDE, 4), BATCH_IN,
            COMBO_IN("guidance_type", CHOICES("v1 (concat)", "v2 (replace)", "custom")),
            OPTIONAL("start_image", "IMAGE")),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "LATENT", .name = "latent" }));
