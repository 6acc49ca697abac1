/* conditioning.c: what tells a model what to paint: text, pictures, control. Declared in full;
 * computed when the networks are there. */
#include "node/node_impl.h"

NOT_YET(CLIPTextEncode, .display = "CLIP Text Encode (Prompt)", .category = "conditioning",
        .module = "nodes",
        INS(TEXT_IN("text", NULL, .no_default = true, .more = PROMPT_TEXT), SOCKET("clip", "CLIP")),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(CLIPSetLastLayer, .display = "CLIP Set Last Layer", .category = "conditioning",
        .module = "nodes",
        INS(SOCKET("clip", "CLIP"), INT_IN("stop_at_clip_layer", -1, -24, -1, 1)),
        OUTS({ .type = "CLIP" }));

NOT_YET(CLIPTextEncodeSDXL, .category = "advanced/conditioning", .module = MOD("clip_sdxl"),
        .flags = NODE_V3,
        INS(SOCKET("clip", "CLIP"), INT_IN("width", 1024, 0, MAX_SIDE, 0),
            INT_IN("height", 1024, 0, MAX_SIDE, 0), INT_IN("crop_w", 0, 0, MAX_SIDE, 0),
            INT_IN("crop_h", 0, 0, MAX_SIDE, 0), INT_IN("target_width", 1024, 0, MAX_SIDE, 0),
            INT_IN("target_height", 1024, 0, MAX_SIDE, 0),
            TEXT_IN("text_g", NULL, .no_default = true, .more = PROMPT_TEXT),
            TEXT_IN("text_l", NULL, .no_default = true, .more = PROMPT_TEXT)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(CLIPTextEncodeSDXLRefiner, .category = "advanced/conditioning", .module = MOD("clip_sdxl"),
        .flags = NODE_V3,
        INS(FLOAT_IN("ascore", 6.0, 0.0, 1000.0, 0.01), INT_IN("width", 1024, 0, MAX_SIDE, 0),
            INT_IN("height", 1024, 0, MAX_SIDE, 0),
            TEXT_IN("text", NULL, .no_default = true, .more = PROMPT_TEXT), SOCKET("clip", "CLIP")),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(CLIPTextEncodeSD3, .category = "advanced/conditioning", .module = MOD("sd3"),
        .flags = NODE_V3,
        INS(SOCKET("clip", "CLIP"),
            TEXT_IN("clip_l", NULL, .no_default = true, .more = PROMPT_TEXT),
            TEXT_IN("clip_g", NULL, .no_default = true, .more = PROMPT_TEXT),
            TEXT_IN("t5xxl", NULL, .no_default = true, .more = PROMPT_TEXT),
            COMBO_IN("empty_padding", CHOICES("none", "empty_prompt"))),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(CLIPTextEncodeFlux, .category = "advanced/conditioning/flux", .module = MOD("flux"),
        .flags = NODE_V3,
        INS(SOCKET("clip", "CLIP"),
            TEXT_IN("clip_l", NULL, .no_default = true, .more = PROMPT_TEXT),
            TEXT_IN("t5xxl", NULL, .no_default = true, .more = PROMPT_TEXT),
            FLOAT_IN("guidance", 3.5, 0.0, 100.0, 0.1)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(TextEncodeQwenImageEdit, .category = "advanced/conditioning", .module = MOD("qwen"),
        .flags = NODE_V3,
        INS(SOCKET("clip", "CLIP"),
            TEXT_IN("prompt", NULL, .no_default = true, .more = PROMPT_TEXT),
            SOCKET("vae", "VAE", .optional = true), SOCKET("image", "IMAGE", .optional = true)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(TextEncodeQwenImageEditPlus, .category = "advanced/conditioning", .module = MOD("qwen"),
        .flags = NODE_V3,
        INS(SOCKET("clip", "CLIP"),
            TEXT_IN("prompt", NULL, .no_default = true, .more = PROMPT_TEXT),
            SOCKET("vae", "VAE", .optional = true), SOCKET("image1", "IMAGE", .optional = true),
            SOCKET("image2", "IMAGE", .optional = true),
            SOCKET("image3", "IMAGE", .optional = true)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(FluxGuidance, .category = "advanced/conditioning/flux", .module = MOD("flux"),
        .flags = NODE_V3,
        INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("guidance", 3.5, 0.0, 100.0, 0.1)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(FluxDisableGuidance, .category = "advanced/conditioning/flux", .module = MOD("flux"),
        .flags = NODE_V3, INS(SOCKET("conditioning", "CONDITIONING")),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningCombine, .display = "Conditioning (Combine)", .category = "conditioning",
        .module = "nodes",
        INS(SOCKET("conditioning_1", "CONDITIONING"), SOCKET("conditioning_2", "CONDITIONING")),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningAverage, .category = "conditioning", .module = "nodes",
        INS(SOCKET("conditioning_to", "CONDITIONING"), SOCKET("conditioning_from", "CONDITIONING"),
            FLOAT_IN("conditioning_to_strength", 1.0, 0.0, 1.0, 0.01)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningConcat, .display = "Conditioning (Concat)", .category = "conditioning",
        .module = "nodes",
        INS(SOCKET("conditioning_to", "CONDITIONING"), SOCKET("conditioning_from", "CONDITIONING")),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningSetArea, .display = "Conditioning (Set Area)", .category = "conditioning",
        .module = "nodes",
        INS(SOCKET("conditioning", "CONDITIONING"), INT_IN("width", 64, 64, MAX_SIDE, 8),
            INT_IN("height", 64, 64, MAX_SIDE, 8), INT_IN("x", 0, 0, MAX_SIDE, 8),
            INT_IN("y", 0, 0, MAX_SIDE, 8), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningSetAreaPercentage, .display = "Conditioning (Set Area with Percentage)",
        .category = "conditioning", .module = "nodes",
        INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("width", 1.0, 0, 1.0, 0.01),
            FLOAT_IN("height", 1.0, 0, 1.0, 0.01), FLOAT_IN("x", 0, 0, 1.0, 0.01),
            FLOAT_IN("y", 0, 0, 1.0, 0.01), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningSetMask, .display = "Conditioning (Set Mask)", .category = "conditioning",
        .module = "nodes",
        INS(SOCKET("conditioning", "CONDITIONING"), SOCKET("mask", "MASK"),
            FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),
            COMBO_IN("set_cond_area", CHOICES("default", "mask bounds"))),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningSetTimestepRange, .category = "advanced/conditioning", .module = "nodes",
        INS(SOCKET("conditioning", "CONDITIONING"), FLOAT_IN("start", 0.0, 0.0, 1.0, 0.001),
            FLOAT_IN("end", 1.0, 0.0, 1.0, 0.001)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ConditioningZeroOut, .category = "advanced/conditioning", .module = "nodes",
        INS(SOCKET("conditioning", "CONDITIONING")), OUTS({ .type = "CONDITIONING" }));

NOT_YET(ReferenceLatent, .category = "advanced/conditioning/edit_models",
        .module = MOD("edit_model"), .flags = NODE_V3,
        INS(SOCKET("conditioning", "CONDITIONING"), SOCKET("latent", "LATENT", .optional = true)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(CLIPVisionEncode, .display = "CLIP Vision Encode", .category = "conditioning",
        .module = "nodes",
        INS(SOCKET("clip_vision", "CLIP_VISION"), SOCKET("image", "IMAGE"),
            COMBO_IN("crop", CHOICES("center", "none"))),
        OUTS({ .type = "CLIP_VISION_OUTPUT" }));

NOT_YET(unCLIPConditioning, .category = "conditioning", .module = "nodes",
        INS(SOCKET("conditioning", "CONDITIONING"),
            SOCKET("clip_vision_output", "CLIP_VISION_OUTPUT"),
            FLOAT_IN("strength", 1.0, -10.0, 10.0, 0.01),
            FLOAT_IN("noise_augmentation", 0.0, 0.0, 1.0, 0.01)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(StyleModelApply, .display = "Apply Style Model", .category = "conditioning/style_model",
        .module = "nodes",
        INS(SOCKET("conditioning", "CONDITIONING"), SOCKET("style_model", "STYLE_MODEL"),
            SOCKET("clip_vision_output", "CLIP_VISION_OUTPUT"),
            FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.001),
            COMBO_IN("strength_type", CHOICES("multiply", "attn_bias"))),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ControlNetApply, .display = "Apply ControlNet (OLD)", .category = "conditioning/controlnet",
        .module = "nodes", .flags = NODE_DEPRECATED,
        INS(SOCKET("conditioning", "CONDITIONING"), SOCKET("control_net", "CONTROL_NET"),
            SOCKET("image", "IMAGE"), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01)),
        OUTS({ .type = "CONDITIONING" }));

NOT_YET(ControlNetApplyAdvanced, .display = "Apply ControlNet",
        .category = "conditioning/controlnet", .module = "nodes",
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("control_net", "CONTROL_NET"), SOCKET("image", "IMAGE"),
            FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),
            FLOAT_IN("start_percent", 0.0, 0.0, 1.0, 0.001),
            FLOAT_IN("end_percent", 1.0, 0.0, 1.0, 0.001), SOCKET("vae", "VAE", .optional = true)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" }));

NOT_YET(ControlNetApplySD3, .display = "Apply Controlnet with VAE",
        .category = "conditioning/controlnet", .module = MOD("sd3"),
        .flags = NODE_V3 | NODE_DEPRECATED,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("control_net", "CONTROL_NET"), SOCKET("vae", "VAE"), SOCKET("image", "IMAGE"),
            FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),
            FLOAT_IN("start_percent", 0.0, 0.0, 1.0, 0.001),
            FLOAT_IN("end_percent", 1.0, 0.0, 1.0, 0.001)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" }));

NOT_YET(SetUnionControlNetType, .category = "conditioning/controlnet", .module = MOD("controlnet"),
        .flags = NODE_V3,
        INS(SOCKET("control_net", "CONTROL_NET"),
            COMBO_IN("type", CHOICES("auto", "openpose", "depth", "hed/pidi/scribble/ted",
                                     "canny/lineart/anime_lineart/mlsd", "normal", "segment",
                                     "tile", "repaint"))),
        OUTS({ .type = "CONTROL_NET" }));

NOT_YET(ControlNetInpaintingAliMamaApply, .category = "conditioning/controlnet",
        .module = MOD("controlnet"), .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("control_net", "CONTROL_NET"), SOCKET("vae", "VAE"), SOCKET("image", "IMAGE"),
            SOCKET("mask", "MASK"), FLOAT_IN("strength", 1.0, 0.0, 10.0, 0.01),
            FLOAT_IN("start_percent", 0.0, 0.0, 1.0, 0.001),
            FLOAT_IN("end_percent", 1.0, 0.0, 1.0, 0.001)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" }));

NOT_YET(QwenImageDiffsynthControlnet, .category = "advanced/loaders/qwen",
        .module = MOD("model_patch"), .flags = NODE_EXPERIMENTAL,
        INS(SOCKET("model", "MODEL"), SOCKET("model_patch", "MODEL_PATCH"), SOCKET("vae", "VAE"),
            SOCKET("image", "IMAGE"), FLOAT_IN("strength", 1.0, -10.0, 10.0, 0.01),
            SOCKET("mask", "MASK", .optional = true)),
        OUTS({ .type = "MODEL" }));

NOT_YET(InpaintModelConditioning, .category = "conditioning/inpaint", .module = "nodes",
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("vae", "VAE"), SOCKET("pixels", "IMAGE"), SOCKET("mask", "MASK"),
            BOOL_IN("noise_mask", true)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" },
             { .type = "LATENT", .name = "latent" }));
