/* later_models: nodes about models, guidance and conditionings that are declared and cannot be
 * computed yet. */
#include "node/node_impl.h"

NOT_YET(ImageOnlyCheckpointSave, .category = "model/merging", .module = MOD("video_model"),
        .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
        INS(SOCKET("model", "MODEL"), SOCKET("clip_vision", "CLIP_VISION"), SOCKET("vae", "VAE"),
            TEXT_IN("filename_prefix", "checkpoints/ComfyUI")));
NOT_YET(ConditioningStableAudio, .category = "model/conditioning/stable audio",
        .module = MOD("audio"), .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            FLOAT_IN("seconds_start", 0.0, 0.0, 1000.0, 0.1),
            FLOAT_IN("seconds_total", 47.0, 0.0, 1000.0, 0.1)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" }));
