/* video.c: conditioning of video models, and video files. Declared in full; computed when the networks
 * and the codecs are there. */
#include "node/node_impl.h"

berth_status node_no_video(struct node_call *c, berth_err *err)
{
    return node_not_yet(c, err);
}

NOT_YET(LTXVConditioning, .category = "conditioning/video_models", .module = MOD("lt"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            FLOAT_IN("frame_rate", 25.0, 0.0, 1000.0, 0.01)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" }));

NOT_YET(LTXVImgToVideo, .category = "conditioning/video_models", .module = MOD("lt"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("vae", "VAE"), SOCKET("image", "IMAGE"), INT_IN("width", 768, 64, MAX_SIDE, 32),
            INT_IN("height", 512, 64, MAX_SIDE, 32), INT_IN("length", 97, 9, MAX_SIDE, 8),
            INT_IN("batch_size", 1, 1, 4096, 0), FLOAT_IN("strength", 1.0, 0.0, 1.0, 0)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" },
             { .type = "LATENT", .name = "latent" }));

NO_VIDEO(LTXVPreprocess, .category = "image", .module = MOD("lt"), .flags = NODE_V3,
         INS(SOCKET("image", "IMAGE"), INT_IN("img_compression", 35, 0, 100, 0)),
         OUTS({ .type = "IMAGE", .name = "output_image" }));

NOT_YET(LTXVAddGuide, .category = "conditioning/video_models", .module = MOD("lt"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("vae", "VAE"), SOCKET("latent", "LATENT"), SOCKET("image", "IMAGE"),
            INT_IN("frame_idx", 0, -9999, 9999, 0), FLOAT_IN("strength", 1.0, 0.0, 1.0, 0.01)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" },
             { .type = "LATENT", .name = "latent" }));

NOT_YET(LTXVCropGuides, .category = "conditioning/video_models", .module = MOD("lt"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("latent", "LATENT")),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" },
             { .type = "LATENT", .name = "latent" }));

NOT_YET(WanImageToVideo, .category = "conditioning/video_models", .module = MOD("wan"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("vae", "VAE"), INT_IN("width", 832, 16, MAX_SIDE, 16),
            INT_IN("height", 480, 16, MAX_SIDE, 16), INT_IN("length", 81, 1, MAX_SIDE, 4),
            INT_IN("batch_size", 1, 1, 4096, 0),
            SOCKET("clip_vision_output", "CLIP_VISION_OUTPUT", .optional = true),
            SOCKET("start_image", "IMAGE", .optional = true)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" },
             { .type = "LATENT", .name = "latent" }));

NOT_YET(WanFirstLastFrameToVideo, .category = "conditioning/video_models", .module = MOD("wan"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("vae", "VAE"), INT_IN("width", 832, 16, MAX_SIDE, 16),
            INT_IN("height", 480, 16, MAX_SIDE, 16), INT_IN("length", 81, 1, MAX_SIDE, 4),
            INT_IN("batch_size", 1, 1, 4096, 0),
            SOCKET("clip_vision_start_image", "CLIP_VISION_OUTPUT", .optional = true),
            SOCKET("clip_vision_end_image", "CLIP_VISION_OUTPUT", .optional = true),
            SOCKET("start_image", "IMAGE", .optional = true),
            SOCKET("end_image", "IMAGE", .optional = true)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" },
             { .type = "LATENT", .name = "latent" }));

NOT_YET(WanVaceToVideo, .category = "conditioning/video_models", .module = MOD("wan"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("negative", "CONDITIONING"),
            SOCKET("vae", "VAE"), INT_IN("width", 832, 16, MAX_SIDE, 16),
            INT_IN("height", 480, 16, MAX_SIDE, 16), INT_IN("length", 81, 1, MAX_SIDE, 4),
            INT_IN("batch_size", 1, 1, 4096, 0), FLOAT_IN("strength", 1.0, 0.0, 1000.0, 0.01),
            SOCKET("control_video", "IMAGE", .optional = true),
            SOCKET("control_masks", "MASK", .optional = true),
            SOCKET("reference_image", "IMAGE", .optional = true)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "CONDITIONING", .name = "negative" }, { .type = "LATENT", .name = "latent" },
             { .type = "INT", .name = "trim_latent" }));

NOT_YET(Wan22ImageToVideoLatent, .category = "conditioning/inpaint", .module = MOD("wan"),
        .flags = NODE_V3,
        INS(SOCKET("vae", "VAE"), INT_IN("width", 1280, 32, MAX_SIDE, 32),
            INT_IN("height", 704, 32, MAX_SIDE, 32), INT_IN("length", 49, 1, MAX_SIDE, 4),
            INT_IN("batch_size", 1, 1, 4096, 0), SOCKET("start_image", "IMAGE", .optional = true)),
        OUTS({ .type = "LATENT" }));

NOT_YET(HunyuanImageToVideo, .category = "conditioning/video_models", .module = MOD("hunyuan"),
        .flags = NODE_V3,
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("vae", "VAE"),
            INT_IN("width", 848, 16, MAX_SIDE, 16), INT_IN("height", 480, 16, MAX_SIDE, 16),
            INT_IN("length", 53, 1, MAX_SIDE, 4), INT_IN("batch_size", 1, 1, 4096, 0),
            COMBO_IN("guidance_type", CHOICES("v1 (concat)", "v2 (replace)", "custom")),
            SOCKET("start_image", "IMAGE", .optional = true)),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "LATENT", .name = "latent" }));

NO_VIDEO(CreateVideo, .display = "Create Video", .category = "image/video", .module = MOD("video"),
         .flags = NODE_V3,
         INS(SOCKET("images", "IMAGE"), FLOAT_IN("fps", 30.0, 1.0, 120.0, 1.0),
             SOCKET("audio", "AUDIO", .optional = true)),
         OUTS({ .type = "VIDEO" }));

NO_VIDEO(SaveVideo, .display = "Save Video", .category = "image/video", .module = MOD("video"),
         .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
         INS(SOCKET("video", "VIDEO"), TEXT_IN("filename_prefix", "video/ComfyUI"),
             COMBO_IN("format", CHOICES("auto", "mp4"), .sdef = "auto"),
             COMBO_IN("codec", CHOICES("auto", "h264"), .sdef = "auto")));

static berth_status video_validate(const struct node_check *k, berth_err *err)
{
    return input_validate(k, "file", "video", err);
}

NO_VIDEO(LoadVideo, .display = "Load Video", .category = "image/video", .module = MOD("video"),
         .flags = NODE_V3,
         INS(COMBO_IN("file", NULL, .options_fn = input_videos, .more = "\"video_upload\":true")),
         OUTS({ .type = "VIDEO" }), .validate = video_validate, .validates = "file");

NO_VIDEO(GetVideoComponents, .display = "Get Video Components", .category = "image/video",
         .module = MOD("video"), .flags = NODE_V3, INS(SOCKET("video", "VIDEO")),
         OUTS({ .type = "IMAGE", .name = "images" }, { .type = "AUDIO", .name = "audio" },
              { .type = "FLOAT", .name = "fps" }));

NO_VIDEO(SaveWEBM, .category = "image/video", .module = MOD("video"),
         .flags = NODE_V3 | NODE_OUTPUT | NODE_EXPERIMENTAL | NODE_PROMPT | NODE_EXTRA_PNGINFO,
         INS(SOCKET("images", "IMAGE"), TEXT_IN("filename_prefix", "ComfyUI"),
             COMBO_IN("codec", CHOICES("vp9", "av1")), FLOAT_IN("fps", 24.0, 0.01, 1000.0, 0.01),
             FLOAT_IN("crf", 32.0, 0, 63.0, 1)));
