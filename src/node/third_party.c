/* third_party.c: nodes of other packs that workflows in the field use: Florence2. Declared, so that
 * those workflows validate; computed when the networks are there. */
#include "node/loader_impl.h"
#include "node/node_impl.h"

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
