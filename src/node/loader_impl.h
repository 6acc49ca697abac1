/* loader_impl: what the nodes that open model files share.
 *
 * Words      base   a loader as ComfyUI or ComfyUI-GGUF has it: its inputs and its run()
 *            rule   what a MultiGPU wrapper adds to a base (nodes.md 7): inputs, and with them a
 *                   placement
 * Placement  is read from the inputs a class declares, whatever its name: [compute_]device,
 *            virtual_vram_gb, donor_device, expert_mode_allocations, use_other_vram, eject_models,
 *            keep_loaded, high_precision_loras, weight_dtype; with a prefix ("unet_", "clip_")
 *            where a node has several. None of them: the automatic plan on the default device. A
 *            device alone: everything there, or an automatic plan around it where it does not fit.
 *            If even that has no room beside models that cannot be pushed out, the cpu computes,
 *            and the node says so. An allocation is met or is an error; it counts for each file by
 *            itself. A plan that somebody set on an open model stays unless an allocation or
 *            another compute device is named.
 * Retention  keep_loaded given: keep or eject; else auto. A node that fails takes it back.
 * Parts      Of a file that holds several networks a loader takes those of its role (arch.h).
 *            Families that cannot be computed (model/family.h), types of text encoders that nobody
 *            can compute and sets without tokenizers are refused before anything is loaded; of a
 *            checkpoint the latter only where its prompt encodes text. What is not known at all is
 *            taken as it is: its blocks have a place all the same.
 * Types      weight_dtype: the weights are converted as they are read, and the model is another one
 *            than the file's own unless it has that type. "default", or no such input: the env's
 *            numbers say, of diffusion models and text encoders whose files have one type.
 * Adapters   LoRA loaders collect them in the model_ref; whoever computes sets them.
 * Files      loader.c placement and opening; loader_core.c bases; loader_multigpu.c wrappers;
 *            loader_look.c files of prompts that are not taken yet; loader_lora.c; loaders.def */
#pragma once

#include "node/node_impl.h"

struct placement {       /* placement_release() */
    struct str alloc;    /* allocation string; "": none */
    const char *compute; /* borrowed from the call; NULL: the default device */
    enum res_retention retention;
    bool eject_others, high_precision;
    bool unloaded; /* opened alone: whoever mixes with it reads its tensors one by one */
    const char *dtype; /* res_open_args.dtype; borrowed from the call, or static */
};
berth_status placement_read(struct node_call *c, const char *prefix, struct placement *out,
                            berth_err *err);
void placement_release(struct placement *p); /* zeroed is fine */
/* The same device and retention, but no allocation: for what a loader brings beside its model. */
struct placement placement_beside(const struct placement *p);

struct opened_part { /* a handle of its own: the output may be gone when it is asked for */
    struct res_model *m;
    enum res_retention was;   /* before the node */
    enum res_retention given; /* by the node; was: none */
    bool loose;               /* before it nothing but handles held it */
};
struct opened { /* one output in the making; opened_release() */
    struct model_ref ref;
    struct opened_part part[VALUE_PARTS];
    size_t parts;
};
/* Opens and loads what `role` has in a file of folder `key`, and adds it to *to. role NULL: the
 * whole file, whatever it is. *found (may be NULL, then it is an error): there is some; where there
 * is none, log and client hear what the file is instead. */
berth_status loader_open(struct node_call *c, const char *key, const char *name, const char *role,
                         const struct placement *p, struct opened *to, bool *found, berth_err *err);
/* Opens and loads one part of a file as a placement says. */
berth_status loader_place(struct node_call *c, const char *path, const char *part, const char *role,
                          const struct placement *p, bool eject_others, struct opened_part *out,
                          berth_err *err);
/* Can what `role` wants of this file be computed? From its header: nothing is loaded for a family
 * that nobody can run. The error is a sentence with `name` and what the file is. */
berth_status loader_look(const struct weights *w, const char *name, const char *role,
                         berth_err *err);
/* Lets go of it; of a node that failed the retention is taken back before. Zeroed is fine. */
void opened_release(struct opened *o, berth_status failed);
/* Gives output i the model; takes it. A model_ref without parts that is none of VAEs without a
 * network: None. */
berth_status loader_give(struct node_call *c, size_t i, struct model_ref *taken, berth_err *err);
/* validate(): an expert string that is a constant is refused before anything is loaded. What needs
 * the model's size or the devices' memory waits until the node runs. */
berth_status loader_validate(const struct node_check *k, berth_err *err);
bool loader_declares(const struct node_call *c, const char *name);

/* Choices. */
node_options_fn loader_devices, loader_vaes, loader_clips_gguf, loader_diffusers;
const char *loader_device(const struct node_env *env); /* DEF of nodes.md: the first but cpu */
extern const char *const list_clip_types[], *const list_dual_types[], *const list_weight_dtypes[],
                                                                          *const list_gguf_dtypes[];

/* run() of bases. */
typedef berth_status loader_run_fn(struct node_call *c, berth_err *err);
loader_run_fn run_checkpoint, run_diffusers, run_unet_gguf, run_clip, run_clip_gguf, run_vae,
    run_advanced, run_file, run_difference;

struct file_of {                    /* node_class.own of run_file(): one file, one output */
    const char *input, *key, *role; /* key and role: as loader_open() */
};
#define FILE_OF(i, k, ...)                                                                         \
    .own = &(const struct file_of)                                                                 \
    {                                                                                              \
        .input = i, .key = k, __VA_ARGS__                                                          \
    }
#define OPENS(...) .run = run_file, FILE_OF(__VA_ARGS__)

/* Outputs and run() of bases. */
#define BASE_UNET OUT(out_model), OPENS("unet_name", "diffusion_models", .role = "unet")
#define BASE_UNET_GGUF                                                                             \
    OUT(out_model), .run = run_unet_gguf, FILE_OF("unet_name", "unet_gguf", .role = "unet")
#define BASE_UNET_GGUF_ADVANCED BASE_UNET_GGUF
#define BASE_VAE OUT(out_vae), .run = run_vae
#define BASE_CLIP OUT(out_clip), .run = run_clip
#define BASE_CLIP_DUAL BASE_CLIP
#define BASE_CLIP_TRIPLE BASE_CLIP
#define BASE_CLIP_QUADRUPLE BASE_CLIP
#define BASE_CLIP_GGUF OUT(out_clip), .run = run_clip_gguf
#define BASE_CLIP_GGUF_DUAL BASE_CLIP_GGUF
#define BASE_CLIP_GGUF_TRIPLE BASE_CLIP_GGUF
#define BASE_CLIP_GGUF_QUADRUPLE BASE_CLIP_GGUF
#define BASE_CLIP_VISION OUT(out_clip_vision), OPENS("clip_name", "clip_vision", .role = "vision")
#define BASE_CONTROL_NET OUT(out_control_net), OPENS("control_net_name", "controlnet")
#define BASE_DIFF_CONTROL_NET                                                                      \
    OUT(out_control_net), .run = run_difference, FILE_OF("control_net_name", "controlnet")
#define BASE_CHECKPOINT OUT(out_checkpoint), .run = run_checkpoint
#define BASE_DIFFUSERS OUT(out_checkpoint), .run = run_diffusers

/* Inputs of bases. */
#define IN_CHECKPOINT FOLDER_IN("ckpt_name", "checkpoints")
#define IN_UNET                                                                                    \
    FOLDER_IN("unet_name", "diffusion_models"), COMBO_IN("weight_dtype", list_weight_dtypes)
#define IN_UNET_GGUF FOLDER_IN("unet_name", "unet_gguf")
#define IN_UNET_GGUF_ADVANCED                                                                      \
    IN_UNET_GGUF, COMBO_IN("dequant_dtype", list_gguf_dtypes),                                     \
        COMBO_IN("patch_dtype", list_gguf_dtypes), BOOL_IN("patch_on_device", false)
#define IN_VAE CHOICE_IN("vae_name", loader_vaes, .files = "vae")
#define IN_CLIP FOLDER_IN("clip_name", "text_encoders"), COMBO_IN("type", list_clip_types)
#define IN_CLIP_NAMES_2                                                                            \
    FOLDER_IN("clip_name1", "text_encoders"), FOLDER_IN("clip_name2", "text_encoders")
#define IN_CLIP_DUAL IN_CLIP_NAMES_2, COMBO_IN("type", list_dual_types)
#define IN_CLIP_TRIPLE IN_CLIP_NAMES_2, FOLDER_IN("clip_name3", "text_encoders")
#define IN_CLIP_QUADRUPLE IN_CLIP_TRIPLE, FOLDER_IN("clip_name4", "text_encoders")
#define GGUF_CLIP_IN(n) CHOICE_IN(n, loader_clips_gguf, .files = "clip_gguf")
#define IN_CLIP_GGUF GGUF_CLIP_IN("clip_name"), COMBO_IN("type", list_clip_types)
#define IN_CLIP_GGUF_DUAL                                                                          \
    GGUF_CLIP_IN("clip_name1"), GGUF_CLIP_IN("clip_name2"), COMBO_IN("type", list_dual_types)
#define IN_CLIP_GGUF_TRIPLE                                                                        \
    GGUF_CLIP_IN("clip_name1"), GGUF_CLIP_IN("clip_name2"), GGUF_CLIP_IN("clip_name3")
#define IN_CLIP_GGUF_QUADRUPLE IN_CLIP_GGUF_TRIPLE, GGUF_CLIP_IN("clip_name4")
#define IN_CLIP_VISION FOLDER_IN("clip_name", "clip_vision")
#define IN_CONTROL_NET FOLDER_IN("control_net_name", "controlnet")
#define IN_DIFF_CONTROL_NET SOCKET("model", "MODEL"), IN_CONTROL_NET
#define IN_DIFFUSERS CHOICE_IN("model_path", loader_diffusers)

#define CHOICE_IN(n, fn, ...)                                                                      \
    {                                                                                              \
        .name = n, .kind = IN_COMBO, .options_fn = fn, __VA_ARGS__                                 \
    }

extern const struct node_output out_model[1], out_clip[1], out_vae[1], out_clip_vision[1],
    out_control_net[1], out_checkpoint[3];
