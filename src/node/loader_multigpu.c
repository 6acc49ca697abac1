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

#define NODE(c)
#define WRAPPER(c, rule, base)                                                                     \
    NODE_CLASS(c, .category = rule##_CATEGORY, .module = "custom_nodes.ComfyUI-MultiGPU",          \
               INS(IN_##base, rule##_INPUTS), BASE_##base, rule##_CHECK);
#include "node/loaders.def"
