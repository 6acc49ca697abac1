/* later_models: nodes about models, guidance and conditionings that are declared and cannot be
 * computed yet. */
#include "node/node_impl.h"

NOT_YET(ConditioningSetAreaPercentageVideo,
        .display = "Conditioning (Set Area with Percentage for Video)",
        .category = "model/conditioning/transform", .module = MOD("video_model"),
        INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("width", 1.0, 0, 1.0, 0.01),
            FLOAT_IN("height", 1.0, 0, 1.0, 0.01), FLOAT_IN("temporal", 1.0, 0, 1.0, 0.01),
            FLOAT_IN("x", 0, 0, 1.0, 0.01), FLOAT_IN("y", 0, 0, 1.0, 0.01),
            FLOAT_IN("z", 0, 0, 1.0, 0.01), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
        OUT_OF("CONDITIONING"));
NOT_YET(HypernetworkLoader, .display = "Load Hypernetwork", .category = "model/loaders",
        .module = MOD("hypernetwork"), .flags = NODE_V3,
        INS(SOCKET("model", "MODEL"), FOLDER_IN("hypernetwork_name", "hypernetworks"),
            FLOAT_IN("strength", 1.0, -10.0, 10.0, 0.01)),
        OUT_OF("MODEL"));
NOT_YET(LoraSave, .display = "Extract and Save Lora", .category = "experimental",
        .module = MOD("lora_extract"),
        .flags = NODE_V3 | NODE_OUTPUT | NODE_EXPERIMENTAL | NODE_PROMPT | NODE_EXTRA_PNGINFO,
        INS(TEXT_IN("filename_prefix", "loras/ComfyUI_extracted_lora",
                    .more = "\"multiline\":false"),
            INT_IN("rank", 8, 1, 4096, 1, .more = ADVANCED),
            COMBO_IN("lora_type", CHOICES("standard", "full_diff"), .more = ADVANCED),
            BOOL_IN("bias_diff", true, .more = ADVANCED),
            SOCKET("model_diff", "MODEL", .optional = true),
            SOCKET("text_encoder_diff", "CLIP", .optional = true)));
NOT_YET(ImageOnlyCheckpointSave, .category = "model/merging", .module = MOD("video_model"),
        .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
        INS(SOCKET("model", "MODEL"), SOCKET("clip_vision", "CLIP_VISION"), SOCKET("vae", "VAE"),
            TEXT_IN("filename_prefix", "checkpoints/ComfyUI")));
NOT_YET(ModelSamplingStableCascade, .category = "model/patch/stable cascade",
        .module = MOD("model_advanced"),
        INS(SOCKET("model", "MODEL"), FLOAT_IN("shift", 2.0, 0.0, 100.0, 0.01)), OUT_OF("MODEL"));
NOT_YET(GLIGENLoader, .display = "Load GLIGEN Model", .category = "model/loaders",
        .module = "nodes", INS(FOLDER_IN("gligen_name", "gligen")), OUT_OF("GLIGEN"));
NOT_YET(GLIGENTextBoxApply, .display = "Apply GLIGEN Text Box",
        .category = "model/conditioning/gligen", .module = "nodes",
        INS(SOCKET("conditioning_to", "CONDITIONING"), SOCKET("clip", "CLIP"),
            SOCKET("gligen_textbox_model", "GLIGEN"),
            TEXT_IN("text", "", .no_default = true, .more = PROMPT_TEXT),
            INT_IN("width", 64, 8, MAX_SIDE, 8), INT_IN("height", 64, 8, MAX_SIDE, 8),
            INT_IN("x", 0, 0, MAX_SIDE, 8), INT_IN("y", 0, 0, MAX_SIDE, 8)),
        OUT_OF("CONDITIONING"));
NOT_YET(PhotoMakerLoader, .display = "Load PhotoMaker Model", .category = "model/loaders",
        .module = MOD("photomaker"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
        INS(FOLDER_IN("photomaker_model_name", "photomaker")), OUT_OF("PHOTOMAKER"));
NOT_YET(PhotoMakerEncode, .display = "PhotoMaker Encode",
        .category = "model/conditioning/photomaker", .module = MOD("photomaker"),
        .flags = NODE_V3 | NODE_EXPERIMENTAL,
        INS(SOCKET("photomaker", "PHOTOMAKER"), SOCKET("image", "IMAGE"), SOCKET("clip", "CLIP"),
            TEXT_IN("text", "photograph of photomaker", .more = PROMPT_TEXT)),
        OUT_OF("CONDITIONING"));
NOT_YET(ConditioningStableAudio, .category = "model/conditioning/stable audio",
        .module = MOD("audio"), .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            FLOAT_IN("seconds_start", 0.0, 0.0, 1000.0, 0.1),
            FLOAT_IN("seconds_total", 47.0, 0.0, 1000.0, 0.1)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" }));
NOT_YET(T5TokenizerOptions, .display = "T5 Tokenizer Options", .category = "model/conditioning",
        .module = MOD("cond"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
        INS(SOCKET("clip", "CLIP"), INT_IN("min_padding", 0, 0, 10000, 1),
            INT_IN("min_length", 0, 0, 10000, 1)),
        OUT_OF("CLIP"));
NOT_YET(UNetTemporalAttentionMultiply, .category = "experimental/attention_experiments",
        .module = MOD("attention_multiply"), .flags = NODE_V3 | NODE_EXPERIMENTAL,
        INS(SOCKET("model", "MODEL"),
            FLOAT_IN("self_structural", 1.0, 0.0, 10.0, 0.01, .more = ADVANCED),
            FLOAT_IN("self_temporal", 1.0, 0.0, 10.0, 0.01, .more = ADVANCED),
            FLOAT_IN("cross_structural", 1.0, 0.0, 10.0, 0.01, .more = ADVANCED),
            FLOAT_IN("cross_temporal", 1.0, 0.0, 10.0, 0.01, .more = ADVANCED)),
        OUT_OF("MODEL"));
