/* loader_multigpu: the wrappers of ComfyUI-MultiGPU: a base's inputs, a rule's, and the base's
 * run(). What the rule's inputs mean is read in loader.c from the names alone. */
#include "node/loader_impl.h"

#define DEVICE_IN(n) CHOICE_IN(n, loader_devices, .sdef_fn = loader_device, .optional = true)
#define VIRTUAL_IN(most) FLOAT_IN("virtual_vram_gb", 4.0, 0.0, most, 0.1, .optional = true)
#define DONOR_IN CHOICE_IN("donor_device", loader_devices, .sdef = "cpu", .optional = true)
#define EXPERT_IN TEXT_IN("expert_mode_allocations", "", .optional = true)
#define EJECT_IN(def) BOOL_IN("eject_models", def, .optional = true)
/* Ours, last: what ComfyUI-MultiGPU 2.5.0 had and the free flow is about. */
#define KEEP_IN BOOL_IN("keep_loaded", true, .optional = true)

/* Rules: category, inputs, and who looks at them before the prompt runs. */
#define EXPERT_CHECK .validate = loader_validate, .validates = "expert_mode_allocations"
#define MG_CHECK .validate = NULL
#define D2_CHECK EXPERT_CHECK
#define D2TE_CHECK EXPERT_CHECK
#define D1_CHECK EXPERT_CHECK
#define D1TE_CHECK EXPERT_CHECK
#define MG_CATEGORY "multigpu"
#define MG_INPUTS DEVICE_IN("device")
#define D2_CATEGORY "multigpu/distorch_2"
#define D2_INPUTS                                                                                  \
    DEVICE_IN("compute_device"), VIRTUAL_IN(128.0), DONOR_IN, EXPERT_IN, EJECT_IN(true), KEEP_IN
#define D2TE_CATEGORY "multigpu/distorch_2"
#define D2TE_INPUTS                                                                                \
    DEVICE_IN("device"), VIRTUAL_IN(128.0), DONOR_IN, EXPERT_IN, EJECT_IN(false), KEEP_IN
#define D1_CATEGORY "multigpu/legacy"
#define D1_INPUTS                                                                                  \
    DEVICE_IN("device"), VIRTUAL_IN(24.0), BOOL_IN("use_other_vram", false, .optional = true),     \
        EXPERT_IN
#define D1TE_CATEGORY "multigpu"
#define D1TE_INPUTS D1_INPUTS

#define WRAP(cls, rule, inputs, outputs, run_)                                                     \
    static const struct node_input cls##_in[] = { inputs, rule##_INPUTS };                         \
    NODE_CLASS(cls, .category = rule##_CATEGORY, .module = "custom_nodes.ComfyUI-MultiGPU",        \
               IN(cls##_in), OUT(outputs), .run = run_, rule##_CHECK)
/* IN_x is a list: it must arrive in WRAP() as one argument. */
#define LIST(...) __VA_ARGS__

WRAP(UNETLoaderMultiGPU, MG, LIST(IN_UNET), out_model, run_unet);
WRAP(UNETLoaderDisTorch2MultiGPU, D2, LIST(IN_UNET), out_model, run_unet);
WRAP(UnetLoaderGGUFMultiGPU, MG, LIST(IN_UNET_GGUF), out_model, run_unet_gguf);
WRAP(UnetLoaderGGUFDisTorch2MultiGPU, D2, LIST(IN_UNET_GGUF), out_model, run_unet_gguf);
WRAP(UnetLoaderGGUFDisTorchMultiGPU, D1, LIST(IN_UNET_GGUF), out_model, run_unet_gguf);
WRAP(UnetLoaderGGUFAdvancedMultiGPU, MG, LIST(IN_UNET_GGUF_ADVANCED), out_model, run_unet_gguf);
WRAP(UnetLoaderGGUFAdvancedDisTorch2MultiGPU, D2, LIST(IN_UNET_GGUF_ADVANCED), out_model,
     run_unet_gguf);
WRAP(UnetLoaderGGUFAdvancedDisTorchMultiGPU, D1, LIST(IN_UNET_GGUF_ADVANCED), out_model,
     run_unet_gguf);

WRAP(VAELoaderMultiGPU, MG, LIST(IN_VAE), out_vae, run_vae);
WRAP(VAELoaderDisTorch2MultiGPU, D2, LIST(IN_VAE), out_vae, run_vae);

WRAP(CLIPLoaderMultiGPU, MG, LIST(IN_CLIP), out_clip, run_clip);
WRAP(CLIPLoaderDisTorch2MultiGPU, D2TE, LIST(IN_CLIP), out_clip, run_clip);
WRAP(DualCLIPLoaderMultiGPU, MG, LIST(IN_CLIP_DUAL), out_clip, run_clip);
WRAP(DualCLIPLoaderDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_DUAL), out_clip, run_clip);
WRAP(TripleCLIPLoaderMultiGPU, MG, LIST(IN_CLIP_TRIPLE), out_clip, run_clip);
WRAP(TripleCLIPLoaderDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_TRIPLE), out_clip, run_clip);
WRAP(QuadrupleCLIPLoaderMultiGPU, MG, LIST(IN_CLIP_QUADRUPLE), out_clip, run_clip);
WRAP(QuadrupleCLIPLoaderDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_QUADRUPLE), out_clip, run_clip);

WRAP(CLIPLoaderGGUFMultiGPU, MG, LIST(IN_CLIP_GGUF), out_clip, run_clip_gguf);
WRAP(CLIPLoaderGGUFDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_GGUF), out_clip, run_clip_gguf);
WRAP(CLIPLoaderGGUFDisTorchMultiGPU, D1TE, LIST(IN_CLIP_GGUF), out_clip, run_clip_gguf);
WRAP(DualCLIPLoaderGGUFMultiGPU, MG, LIST(IN_CLIP_GGUF_DUAL), out_clip, run_clip_gguf);
WRAP(DualCLIPLoaderGGUFDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_GGUF_DUAL), out_clip, run_clip_gguf);
WRAP(DualCLIPLoaderGGUFDisTorchMultiGPU, D1TE, LIST(IN_CLIP_GGUF_DUAL), out_clip, run_clip_gguf);
WRAP(TripleCLIPLoaderGGUFMultiGPU, MG, LIST(IN_CLIP_GGUF_TRIPLE), out_clip, run_clip_gguf);
WRAP(TripleCLIPLoaderGGUFDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_GGUF_TRIPLE), out_clip,
     run_clip_gguf);
WRAP(TripleCLIPLoaderGGUFDisTorchMultiGPU, D1TE, LIST(IN_CLIP_GGUF_TRIPLE), out_clip,
     run_clip_gguf);
WRAP(QuadrupleCLIPLoaderGGUFMultiGPU, MG, LIST(IN_CLIP_GGUF_QUADRUPLE), out_clip, run_clip_gguf);
WRAP(QuadrupleCLIPLoaderGGUFDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_GGUF_QUADRUPLE), out_clip,
     run_clip_gguf);
WRAP(QuadrupleCLIPLoaderGGUFDisTorchMultiGPU, D1TE, LIST(IN_CLIP_GGUF_QUADRUPLE), out_clip,
     run_clip_gguf);

WRAP(CLIPVisionLoaderMultiGPU, MG, LIST(IN_CLIP_VISION), out_clip_vision, run_clip_vision);
WRAP(CLIPVisionLoaderDisTorch2MultiGPU, D2TE, LIST(IN_CLIP_VISION), out_clip_vision,
     run_clip_vision);

WRAP(CheckpointLoaderSimpleMultiGPU, MG, LIST(IN_CHECKPOINT), out_checkpoint, run_checkpoint);
WRAP(CheckpointLoaderSimpleDisTorch2MultiGPU, D2, LIST(IN_CHECKPOINT), out_checkpoint,
     run_checkpoint);
WRAP(DiffusersLoaderMultiGPU, MG, LIST(IN_DIFFUSERS), out_checkpoint, run_diffusers);
WRAP(DiffusersLoaderDisTorch2MultiGPU, D2, LIST(IN_DIFFUSERS), out_checkpoint, run_diffusers);

WRAP(ControlNetLoaderMultiGPU, MG, LIST(IN_CONTROL_NET), out_control_net, run_control_net);
WRAP(ControlNetLoaderDisTorch2MultiGPU, D2, LIST(IN_CONTROL_NET), out_control_net, run_control_net);
WRAP(DiffControlNetLoaderMultiGPU, MG, LIST(IN_DIFF_CONTROL_NET), out_control_net, run_control_net);
WRAP(DiffControlNetLoaderDisTorch2MultiGPU, D2, LIST(IN_DIFF_CONTROL_NET), out_control_net,
     run_control_net);
