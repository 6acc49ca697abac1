/* video.c: conditioning of video models, and video files. Declared in full; computed when the networks
 * and the codecs are there. */
#include "node/node_impl.h"

berth_status node_no_video(struct node_call *c, berth_err *err)
{
    return node_not_yet(c, err);
}

NO_VIDEO(LTXVPreprocess, .category = "image", V3("lt"),
         INS(SOCKET("image", "IMAGE"), INT_IN("img_compression", 35, 0, 100, 0)),
         OUTS({ .type = "IMAGE", .name = "output_image" }));

NOT_YET(WanImageToVideo, .category = "conditioning/video_models", V3("wan"),
        INS(PAIR_IN, SOCKET("vae", "VAE"), SIZE_IN(832, 480, 16, 16),
            INT_IN("length", 81, 1, MAX_SIDE, 4), BATCH_IN,
            OPTIONAL("clip_vision_output", "CLIP_VISION_OUTPUT"), OPTIONAL("start_image", "IMAGE")),
        OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }));

NOT_YET(WanFirstLastFrameToVideo, .category = "conditioning/video_models", V3("wan"),
        INS(PAIR_IN, SOCKET("vae", "VAE"), SIZE_IN(832, 480, 16, 16),
            INT_IN("length", 81, 1, MAX_SIDE, 4), BATCH_IN,
            OPTIONAL("clip_vision_start_image", "CLIP_VISION_OUTPUT"),
            OPTIONAL("clip_vision_end_image", "CLIP_VISION_OUTPUT"),
            OPTIONAL("start_image", "IMAGE"), OPTIONAL("end_image", "IMAGE")),
        OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" }));

NOT_YET(WanVaceToVideo, .category = "conditioning/video_models", V3("wan"),
        INS(PAIR_IN, SOCKET("vae", "VAE"), SIZE_IN(832, 480, 16, 16),
            INT_IN("length", 81, 1, MAX_SIDE, 4), BATCH_IN,
            FLOAT_IN("strength", 1.0, 0.0, 1000.0, 0.01), OPTIONAL("control_video", "IMAGE"),
            OPTIONAL("control_masks", "MASK"), OPTIONAL("reference_image", "IMAGE")),
        OUTS(PAIR_OUT, { .type = "LATENT", .name = "latent" },
             { .type = "INT", .name = "trim_latent" }));

NOT_YET(Wan22ImageToVideoLatent, .category = "conditioning/inpaint", V3("wan"),
        INS(SOCKET("vae", "VAE"), SIZE_IN(1280, 704, 32, 32), INT_IN("length", 49, 1, MAX_SIDE, 4),
            BATCH_IN, OPTIONAL("start_image", "IMAGE")),
        OUT_OF("LATENT"));

NOT_YET(HunyuanImageToVideo, .category = "conditioning/video_models", V3("hunyuan"),
        INS(SOCKET("positive", "CONDITIONING"), SOCKET("vae", "VAE"), SIZE_IN(848, 480, 16, 16),
            INT_IN("length", 53, 1, MAX_SIDE, 4), BATCH_IN,
            COMBO_IN("guidance_type", CHOICES("v1 (concat)", "v2 (replace)", "custom")),
            OPTIONAL("start_image", "IMAGE")),
        OUTS({ .type = "CONDITIONING", .name = "positive" },
             { .type = "LATENT", .name = "latent" }));

NO_VIDEO(CreateVideo, .display = "Create Video", .category = "image/video", V3("video"),
         INS(SOCKET("images", "IMAGE"), FLOAT_IN("fps", 30.0, 1.0, 120.0, 1.0),
             OPTIONAL("audio", "AUDIO"),
             INT_IN("bit_depth", 8, 8, 10, 2, .optional = true, .more = "\"display\":\"number\"")),
         OUT_OF("VIDEO"));

/* What containers and codecs may be chosen, and what an encoder is told. */
#define RE_ENCODE(crf, most)                                                                       \
    DYNCOMBO_IN(                                                                                   \
        "encoding",                                                                                \
        WITH(CHOICE0("auto"),                                                                      \
             CHOICE("re-encode", FLOAT_IN("crf", crf, 0.0, most, 1.0),                             \
                    COMBO_IN("color_space", CHOICES("auto", "sRGB", "HDR", "HDR PQ"),              \
                             .sdef = "auto", .more = "\"display_name\":\"color space\""))),        \
        .optional = true, .more = "\"display_name\":\"encoding mode\"")
#define H264 CHOICE("h264", RE_ENCODE(23.0, 51.0))
#define AV1 CHOICE("av1", RE_ENCODE(30.0, 63.0))
#define CODEC_IN(...) DYNCOMBO_IN("codec", WITH(CHOICE0("auto"), __VA_ARGS__))

NO_VIDEO(SaveVideo, .display = "Save Video", .category = "image/video", .module = MOD("video"),
         .flags = NODE_V3 | NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO,
         INS(SOCKET("video", "VIDEO"), TEXT_IN("filename_prefix", "video/ComfyUI"),
             DYNCOMBO_IN("format",
                         WITH(CHOICE("auto", CODEC_IN(H264, AV1)),
                              CHOICE("mp4", CODEC_IN(H264, AV1)),
                              CHOICE("mkv", CODEC_IN(H264, AV1)), CHOICE("webm", CODEC_IN(AV1)))),
             /* where prompts had it before */
             DYNCOMBO_IN("codec", WITH(CHOICE0("auto"), H264, AV1), .optional = true,
                         .more = "\"hidden\":true")),
         OUTS({ .type = "VIDEO", .name = "video" }));

static berth_status video_validate(const struct node_check *k, berth_err *err)
{
    return input_there(k, "video", err);
}

NO_VIDEO(LoadVideo, .display = "Load Video", .category = "image/video", V3("video"),
         INS(COMBO_IN("file", NULL, .options_fn = input_videos, .more = "\"video_upload\":true")),
         OUT_OF("VIDEO"), .validate = video_validate, .validates = "file");

NO_VIDEO(GetVideoComponents, .display = "Get Video Components", .category = "image/video",
         V3("video"), INS(SOCKET("video", "VIDEO")),
         OUTS({ .type = "IMAGE", .name = "images" }, { .type = "AUDIO", .name = "audio" },
              { .type = "FLOAT", .name = "fps" }, { .type = "INT", .name = "bit_depth" },
              { .type = "COMBO", .name = "color_space" }));

NO_VIDEO(SaveWEBM, .category = "image/video", .module = MOD("video"),
         .flags = NODE_V3 | NODE_OUTPUT | NODE_EXPERIMENTAL | NODE_PROMPT | NODE_EXTRA_PNGINFO,
         INS(SOCKET("images", "IMAGE"), TEXT_IN("filename_prefix", "ComfyUI"),
             COMBO_IN("codec", CHOICES("vp9", "av1")), FLOAT_IN("fps", 24.0, 0.01, 1000.0, 0.01),
             FLOAT_IN("crf", 32.0, 0, 63.0, 1)),
         OUTS({ .type = "IMAGE", .name = "images" }));
