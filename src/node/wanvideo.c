/* wanvideo.c: the WanVideoWrapper nodes of workflows in the field, with the MultiGPU forms of their
 * loaders. Declared in full, so that those workflows validate; computed when the networks are
 * there. A device label travels along links as MULTIGPUDEVICE, a text. */
#include "node/loader_impl.h"
#include "node/node_impl.h"

#define WRAPPER .category = "WanVideoWrapper", .module = "custom_nodes.ComfyUI-WanVideoWrapper"
#define MULTIGPU .category = "multigpu/WanVideoWrapper", .module = "custom_nodes.ComfyUI-MultiGPU"
#define DEVICE(n, ...)                                                                             \
    {                                                                                              \
        .name = n, .kind = IN_COMBO, .options_fn = loader_devices, .sdef_fn = loader_device,       \
        __VA_ARGS__                                                                                \
    }
#define SPAN(n, def, ...) FLOAT_IN(n, def, 0.0, 1.0, 0.01, __VA_ARGS__)
#define SIZE INT_IN("width", 832, 64, 8096, 8), INT_IN("height", 480, 64, 8096, 8)

/* GGUF files first, as the wrapper lists them. */
static berth_status list_models(const struct node_env *env, struct names *out, berth_err *err)
{
    return folders_list(env->folders, "unet_gguf", out, err)
               ? err->code
               : folders_list(env->folders, "diffusion_models", out, err);
}

NOT_YET(
    WanVideoModelLoaderMultiGPU, MULTIGPU,
    INS({ .name = "model", .kind = IN_COMBO, .options_fn = list_models },
        COMBO_IN("base_precision", CHOICES("fp32", "bf16", "fp16", "fp16_fast"), .sdef = "bf16"),
        COMBO_IN("quantization",
                 CHOICES("disabled", "fp8_e4m3fn", "fp8_e4m3fn_fast", "fp8_e4m3fn_scaled",
                         "fp8_e4m3fn_scaled_fast", "fp8_e5m2", "fp8_e5m2_fast", "fp8_e5m2_scaled",
                         "fp8_e5m2_scaled_fast"),
                 .sdef = "disabled"),
        COMBO_IN("load_device", CHOICES("main_device", "offload_device"), .sdef = "offload_device"),
        DEVICE("compute_device"),
        COMBO_IN("attention_mode",
                 CHOICES("sdpa", "flash_attn_2", "flash_attn_3", "sageattn", "sageattn_3",
                         "radial_sage_attention"),
                 .sdef = "sdpa", .optional = true),
        OPTIONAL("compile_args", "WANCOMPILEARGS"), OPTIONAL("block_swap_args", "BLOCKSWAPARGS"),
        OPTIONAL("lora", "WANVIDLORA"), OPTIONAL("vram_management_args", "VRAM_MANAGEMENTARGS"),
        OPTIONAL("extra_model", "VACEPATH"), OPTIONAL("vace_model", "VACEPATH"),
        OPTIONAL("fantasytalking_model", "FANTASYTALKINGMODEL"),
        OPTIONAL("multitalk_model", "MULTITALKMODEL"),
        OPTIONAL("fantasyportrait_model", "FANTASYPORTRAITMODEL"),
        COMBO_IN("rms_norm_function", CHOICES("default", "pytorch"), .sdef = "default",
                 .optional = true)),
    OUTS({ .type = "WANVIDEOMODEL", .name = "model" },
         { .type = "MULTIGPUDEVICE", .name = "compute_device" }));

NOT_YET(WanVideoSamplerMultiGPU, MULTIGPU,
        INS(SOCKET("model", "WANVIDEOMODEL"), SOCKET("compute_device", "MULTIGPUDEVICE"),
            SOCKET("image_embeds", "WANVIDIMAGE_EMBEDS"), INT_IN("steps", 30, 1, INT32_MAX, 0),
            FLOAT_IN("cfg", 6.0, 0.0, 30.0, 0.01), FLOAT_IN("shift", 5.0, 0.0, 1000.0, 0.01),
            INT_IN("seed", 0, 0, U64_MAX, 0), BOOL_IN("force_offload", true),
            COMBO_IN("scheduler",
                     CHOICES("unipc", "unipc/beta", "dpm++", "dpm++/beta", "dpm++_sde",
                             "dpm++_sde/beta", "euler", "euler/beta", "deis", "lcm", "lcm/beta",
                             "res_multistep", "flowmatch_causvid", "flowmatch_distill",
                             "flowmatch_pusa", "multitalk", "sa_ode_stable"),
                     .sdef = "unipc"),
            INT_IN("riflex_freq_index", 0, 0, 1000, 1),
            OPTIONAL("text_embeds", "WANVIDEOTEXTEMBEDS"), OPTIONAL("samples", "LATENT"),
            SPAN("denoise_strength", 1.0, .optional = true), OPTIONAL("feta_args", "FETAARGS"),
            OPTIONAL("context_options", "WANVIDCONTEXT"), OPTIONAL("cache_args", "CACHEARGS"),
            OPTIONAL("flowedit_args", "FLOWEDITARGS"),
            BOOL_IN("batched_cfg", false, .optional = true), OPTIONAL("slg_args", "SLGARGS"),
            COMBO_IN("rope_function", CHOICES("default", "comfy", "comfy_chunked"), .sdef = "comfy",
                     .optional = true),
            OPTIONAL("loop_args", "LOOPARGS"), OPTIONAL("experimental_args", "EXPERIMENTALARGS"),
            OPTIONAL("sigmas", "SIGMAS"), OPTIONAL("unianimate_poses", "UNIANIMATE_POSE"),
            OPTIONAL("fantasytalking_embeds", "FANTASYTALKING_EMBEDS"),
            OPTIONAL("uni3c_embeds", "UNI3C_EMBEDS"),
            OPTIONAL("multitalk_embeds", "MULTITALK_EMBEDS"),
            OPTIONAL("freeinit_args", "FREEINITARGS"),
            INT_IN("start_step", 0, 0, 10000, 1, .optional = true),
            INT_IN("end_step", -1, -1, 10000, 1, .optional = true),
            BOOL_IN("add_noise_to_samples", false, .optional = true)),
        OUTS({ .type = "LATENT", .name = "samples" },
             { .type = "LATENT", .name = "denoised_samples" }));

NOT_YET(LoadWanVideoT5TextEncoderMultiGPU, MULTIGPU,
        INS(FOLDER_IN("model_name", "text_encoders"),
            COMBO_IN("precision", CHOICES("fp32", "bf16"), .sdef = "bf16"),
            DEVICE("device", .optional = true),
            COMBO_IN("quantization", CHOICES("disabled", "fp8_e4m3fn"), .sdef = "disabled",
                     .optional = true)),
        OUTS({ .type = "WANTEXTENCODER", .name = "wan_t5_model" },
             { .type = "MULTIGPUDEVICE", .name = "load_device" }));

NOT_YET(WanVideoTextEncodeMultiGPU, MULTIGPU,
        INS(TEXT_IN("positive_prompt", NULL, .more = MULTILINE),
            TEXT_IN("negative_prompt", NULL, .more = MULTILINE), OPTIONAL("t5", "WANTEXTENCODER"),
            OPTIONAL("load_device", "MULTIGPUDEVICE"),
            BOOL_IN("force_offload", true, .optional = true),
            OPTIONAL("model_to_offload", "WANVIDEOMODEL"),
            BOOL_IN("use_disk_cache", false, .optional = true)),
        OUTS({ .type = "WANVIDEOTEXTEMBEDS", .name = "text_embeds" }));

NOT_YET(
    WanVideoVAELoaderMultiGPU, MULTIGPU,
    INS(FOLDER_IN("model_name", "vae"), DEVICE("load_device", .optional = true),
        COMBO_IN("precision", CHOICES("fp16", "fp32", "bf16"), .sdef = "bf16", .optional = true),
        OPTIONAL("compile_args", "WANCOMPILEARGS")),
    OUTS({ .type = "WANVAE", .name = "vae" }, { .type = "MULTIGPUDEVICE", .name = "load_device" }));

NOT_YET(WanVideoDecodeMultiGPU, MULTIGPU,
        INS(SOCKET("vae", "WANVAE"), SOCKET("load_device", "MULTIGPUDEVICE"),
            SOCKET("samples", "LATENT"), BOOL_IN("enable_vae_tiling", false),
            INT_IN("tile_x", 272, 40, 2048, 8), INT_IN("tile_y", 272, 40, 2048, 8),
            INT_IN("tile_stride_x", 144, 32, 2040, 8), INT_IN("tile_stride_y", 128, 32, 2040, 8),
            COMBO_IN("normalization", CHOICES("default", "minmax"), .optional = true)),
        OUTS({ .type = "IMAGE", .name = "images" }));

NOT_YET(WanVideoEncodeMultiGPU, MULTIGPU,
        INS(SOCKET("vae", "WANVAE"), SOCKET("load_device", "MULTIGPUDEVICE"),
            SOCKET("image", "IMAGE"), BOOL_IN("enable_vae_tiling", false),
            INT_IN("tile_x", 272, 64, 2048, 1), INT_IN("tile_y", 272, 64, 2048, 1),
            INT_IN("tile_stride_x", 144, 32, 2048, 32), INT_IN("tile_stride_y", 128, 32, 2048, 32),
            FLOAT_IN("noise_aug_strength", 0.0, 0.0, 10.0, 0.001, .optional = true),
            FLOAT_IN("latent_strength", 1.0, 0.0, 10.0, 0.001, .optional = true),
            OPTIONAL("mask", "MASK")),
        OUTS({ .type = "LATENT", .name = "samples" }));

NOT_YET(WanVideoImageToVideoEncodeMultiGPU, MULTIGPU,
        INS(SIZE, INT_IN("num_frames", 81, 1, 10000, 4),
            FLOAT_IN("noise_aug_strength", 0.0, 0.0, 10.0, 0.001),
            FLOAT_IN("start_latent_strength", 1.0, 0.0, 10.0, 0.001),
            FLOAT_IN("end_latent_strength", 1.0, 0.0, 10.0, 0.001), BOOL_IN("force_offload", true),
            OPTIONAL("vae", "WANVAE"), OPTIONAL("load_device", "MULTIGPUDEVICE"),
            OPTIONAL("clip_embeds", "WANVIDIMAGE_CLIPEMBEDS"), OPTIONAL("start_image", "IMAGE"),
            OPTIONAL("end_image", "IMAGE"), OPTIONAL("control_embeds", "WANVIDIMAGE_EMBEDS"),
            BOOL_IN("fun_or_fl2v_model", true, .optional = true), OPTIONAL("temporal_mask", "MASK"),
            OPTIONAL("extra_latents", "LATENT"), BOOL_IN("tiled_vae", false, .optional = true),
            OPTIONAL("add_cond_latents", "ADD_COND_LATENTS")),
        OUTS({ .type = "WANVIDIMAGE_EMBEDS", .name = "image_embeds" }));

NOT_YET(WanVideoBlockSwapMultiGPU, MULTIGPU,
        INS(INT_IN("blocks_to_swap", 20, 0, 48, 1), BOOL_IN("offload_img_emb", false),
            BOOL_IN("offload_txt_emb", false), BOOL_IN("use_non_blocking", false, .optional = true),
            INT_IN("vace_blocks_to_swap", 0, 0, 15, 1, .optional = true),
            INT_IN("prefetch_blocks", 0, 0, 40, 1, .optional = true),
            BOOL_IN("block_swap_debug", false, .optional = true),
            { .name = "swap_device",
              .kind = IN_COMBO,
              .options_fn = loader_devices,
              .sdef = "cpu",
              .optional = true }),
        OUTS({ .type = "BLOCKSWAPARGS", .name = "block_swap_args" }));

NOT_YET(WanVideoSetBlockSwap, .display = "WanVideo Set BlockSwap", WRAPPER,
        INS(SOCKET("model", "WANVIDEOMODEL"), OPTIONAL("block_swap_args", "BLOCKSWAPARGS")),
        OUTS({ .type = "WANVIDEOMODEL", .name = "model" }));

NOT_YET(WanVideoLoraSelect, .display = "WanVideo Lora Select", WRAPPER, .flags = NODE_UNIQUE_ID,
        INS(FOLDER_IN("lora", "loras"), FLOAT_IN("strength", 1.0, -1000.0, 1000.0, 0.0001),
            OPTIONAL("prev_lora", "WANVIDLORA"), OPTIONAL("blocks", "SELECTEDBLOCKS"),
            BOOL_IN("low_mem_load", false, .optional = true),
            BOOL_IN("merge_loras", true, .optional = true)),
        OUTS({ .type = "WANVIDLORA", .name = "lora" }));

NOT_YET(WanVideoSetLoRAs, .display = "WanVideo Set LoRAs", WRAPPER,
        INS(SOCKET("model", "WANVIDEOMODEL"), OPTIONAL("lora", "WANVIDLORA")),
        OUTS({ .type = "WANVIDEOMODEL", .name = "model" }));

NOT_YET(WanVideoTeaCache, .display = "WanVideo TeaCache", WRAPPER,
        INS(FLOAT_IN("rel_l1_thresh", 0.3, 0.0, 1.0, 0.001), INT_IN("start_step", 1, 0, 9999, 1),
            INT_IN("end_step", -1, -1, 9999, 1),
            COMBO_IN("cache_device", CHOICES("main_device", "offload_device"),
                     .sdef = "offload_device"),
            BOOL_IN("use_coefficients", true),
            COMBO_IN("mode", CHOICES("e", "e0"), .sdef = "e", .optional = true)),
        OUTS({ .type = "CACHEARGS", .name = "cache_args" }));

NOT_YET(WanVideoEnhanceAVideo, .display = "WanVideo Enhance-A-Video", WRAPPER,
        INS(FLOAT_IN("weight", 2.0, 0.0, 100.0, 0.01), SPAN("start_percent", 0.0),
            SPAN("end_percent", 1.0)),
        OUTS({ .type = "FETAARGS", .name = "feta_args" }));

NOT_YET(WanVideoEmptyEmbeds, .display = "WanVideo Empty Embeds", WRAPPER,
        INS(SIZE, INT_IN("num_frames", 81, 1, 10000, 4),
            OPTIONAL("control_embeds", "WANVIDIMAGE_EMBEDS"), OPTIONAL("extra_latents", "LATENT")),
        OUTS({ .type = "WANVIDIMAGE_EMBEDS", .name = "image_embeds" }));

NOT_YET(WanVideoControlEmbeds, .display = "WanVideo Control Embeds", WRAPPER,
        INS(SPAN("start_percent", 0.0), SPAN("end_percent", 1.0), SOCKET("latents", "LATENT"),
            OPTIONAL("fun_ref_image", "LATENT")),
        OUTS({ .type = "WANVIDIMAGE_EMBEDS", .name = "image_embeds" }));

NOT_YET(WanVideoTorchCompileSettings, .display = "WanVideo Torch Compile Settings", WRAPPER,
        INS(COMBO_IN("backend", CHOICES("inductor", "cudagraphs"), .sdef = "inductor"),
            BOOL_IN("fullgraph", false),
            COMBO_IN("mode",
                     CHOICES("default", "max-autotune", "max-autotune-no-cudagraphs",
                             "reduce-overhead"),
                     .sdef = "default"),
            BOOL_IN("dynamic", false), INT_IN("dynamo_cache_size_limit", 64, 0, 1024, 1),
            BOOL_IN("compile_transformer_blocks_only", true),
            INT_IN("dynamo_recompile_limit", 128, 0, 1024, 1, .optional = true),
            BOOL_IN("force_parameter_static_shapes", false, .optional = true),
            BOOL_IN("allow_unmerged_lora_compile", false, .optional = true)),
        OUTS({ .type = "WANCOMPILEARGS", .name = "torch_compile_args" }));
