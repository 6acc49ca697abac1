/* third_party.c: nodes of other packs that workflows in the field use: VideoHelperSuite, Florence2.
 * Declared, so that those workflows validate; computed when codecs and networks are there. */
#include "node/loader_impl.h"
#include "node/node_impl.h"

#define VHS "\xf0\x9f\x8e\xa5\xf0\x9f\x85\xa5\xf0\x9f\x85\x97\xf0\x9f\x85\xa2" /* its badge */
#define VHS_MODULE "custom_nodes.ComfyUI-VideoHelperSuite"

/* What a format wants beside these arrives as undeclared inputs: pix_fmt, crf, save_metadata, ... */
NOT_YET(VHS_VideoCombine, .display = "Video Combine " VHS, .category = "Video Helper Suite " VHS,
         .module = VHS_MODULE,
         .flags = NODE_OUTPUT | NODE_PROMPT | NODE_EXTRA_PNGINFO | NODE_UNIQUE_ID | NODE_ANY_INPUT,
         INS(SOCKET("images", "IMAGE,LATENT"),
             FLOAT_IN("frame_rate", 8.0, 0.0, 0.0, 1.0, .no_range = true, .more = "\"min\":1"),
             INT_IN("loop_count", 0, 0, 100, 1), TEXT_IN("filename_prefix", "AnimateDiff"),
             COMBO_IN("format", CHOICES("image/gif", "image/webp", "video/16bit-png",
                                        "video/8bit-png", "video/av1-webm", "video/ffmpeg-gif",
                                        "video/ffv1-mkv", "video/h264-mp4", "video/h265-mp4",
                                        "video/nvenc_av1-mp4", "video/nvenc_h264-mp4",
                                        "video/nvenc_hevc-mp4", "video/ProRes", "video/webm")),
             BOOL_IN("pingpong", false), BOOL_IN("save_output", true), OPTIONAL("audio", "AUDIO"),
             OPTIONAL("meta_batch", "VHS_BatchManager"), OPTIONAL("vae", "VAE")),
         OUTS({ .type = "VHS_FILENAMES", .name = "Filenames" }));

NOT_YET(VHS_LoadVideo, .display = "Load Video (Upload) " VHS,
         .category = "Video Helper Suite " VHS, .module = VHS_MODULE, .flags = NODE_UNIQUE_ID,
         INS({ .name = "video",
               .kind = IN_COMBO,
               .options_fn = input_videos,
               .more = "\"video_upload\":true" },
             FLOAT_IN("force_rate", 0.0, 0.0, 60.0, 1.0), INT_IN("custom_width", 0, 0, MAX_SIDE, 0),
             INT_IN("custom_height", 0, 0, MAX_SIDE, 0),
             INT_IN("frame_load_cap", 0, 0, INT32_MAX, 1),
             INT_IN("skip_first_frames", 0, 0, INT32_MAX, 1),
             INT_IN("select_every_nth", 1, 1, INT32_MAX, 1),
             OPTIONAL("meta_batch", "VHS_BatchManager"), OPTIONAL("vae", "VAE"),
             COMBO_IN("format",
                      CHOICES("None", "AnimateDiff", "Mochi", "LTXV", "Hunyuan", "Cosmos", "Wan"),
                      .optional = true)),
         OUTS({ .type = "IMAGE" }, { .type = "INT", .name = "frame_count" },
              { .type = "AUDIO", .name = "audio" },
              { .type = "VHS_VIDEOINFO", .name = "video_info" }),
         .validate = input_validate, .validates = "video");

#define DEVICE(n, ...)                                                                             \
    {                                                                                              \
        .name = n, .kind = IN_COMBO, .options_fn = loader_devices, .optional = true, __VA_ARGS__   \
    }

NOT_YET(DownloadAndLoadFlorence2ModelMultiGPU, .category = "multigpu",
        .module = "custom_nodes.ComfyUI-MultiGPU",
        INS(COMBO_IN("model",
                     CHOICES("microsoft/Florence-2-base", "microsoft/Florence-2-base-ft",
                             "microsoft/Florence-2-large", "microsoft/Florence-2-large-ft",
                             "HuggingFaceM4/Florence-2-DocVQA", "thwri/CogFlorence-2.1-Large",
                             "thwri/CogFlorence-2.2-Large", "gokaygokay/Florence-2-SD3-Captioner",
                             "gokaygokay/Florence-2-Flux-Large",
                             "MiaoshouAI/Florence-2-base-PromptGen-v1.5",
                             "MiaoshouAI/Florence-2-large-PromptGen-v1.5",
                             "MiaoshouAI/Florence-2-base-PromptGen-v2.0",
                             "MiaoshouAI/Florence-2-large-PromptGen-v2.0",
                             "PJMixers-Images/Florence-2-base-Castollux-v0.5"),
                     .sdef = "microsoft/Florence-2-base"),
            COMBO_IN("precision", CHOICES("fp16", "bf16", "fp32"), .sdef = "fp16"),
            COMBO_IN("attention", CHOICES("flash_attention_2", "sdpa", "eager"), .sdef = "sdpa"),
            OPTIONAL("lora", "PEFTLORA"),
            BOOL_IN("convert_to_safetensors", false, .optional = true),
            DEVICE("device", .sdef_fn = loader_device), DEVICE("offload_device", .sdef = "cpu")),
        OUTS({ .type = "FL2MODEL", .name = "florence2_model" }));

NOT_YET(Florence2Run, .category = "Florence2", .module = "custom_nodes.ComfyUI-Florence2",
        INS(SOCKET("image", "IMAGE"), SOCKET("florence2_model", "FL2MODEL"),
            TEXT_IN("text_input", NULL, .more = MULTILINE),
            COMBO_IN("task", CHOICES("region_caption", "dense_region_caption", "region_proposal",
                                     "caption", "detailed_caption", "more_detailed_caption",
                                     "caption_to_phrase_grounding",
                                     "referring_expression_segmentation", "ocr", "ocr_with_region",
                                     "docvqa", "prompt_gen_tags", "prompt_gen_mixed_caption",
                                     "prompt_gen_analyze", "prompt_gen_mixed_caption_plus")),
            BOOL_IN("fill_mask", true), BOOL_IN("keep_model_loaded", false, .optional = true),
            INT_IN("max_new_tokens", 1024, 1, 4096, 0, .optional = true),
            INT_IN("num_beams", 3, 1, 64, 0, .optional = true),
            BOOL_IN("do_sample", true, .optional = true),
            TEXT_IN("output_mask_select", NULL, .optional = true),
            INT_IN("seed", 1, 1, U64_MAX, 0, .optional = true)),
        OUTS({ .type = "IMAGE", .name = "image" }, { .type = "MASK", .name = "mask" },
             { .type = "STRING", .name = "caption" }, { .type = "JSON", .name = "data" }));
