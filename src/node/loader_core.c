/* loader_core: loaders as ComfyUI and ComfyUI-GGUF have them. */
#include "node/loader_impl.h"

#include "model/arch.h"
#include "model/preset.h"
#include "model/upscaler.h"
#include "node/compute.h"
#include "node/weight_mix.h"
#include "plan/quant.h"

#include <unistd.h>

/* ---- choices ---- */

const char *const list_clip_types[] = {
    "stable_diffusion",
    "stable_cascade",
    "sd3",
    "stable_audio",
    "mochi",
    "ltxv",
    "pixart",
    "cosmos",
    "lumina2",
    "wan",
    "hidream",
    "chroma",
    "ace",
    "omnigen2",
    "qwen_image",
    "hunyuan_image",
    "flux2",
    "ovis",
    "longcat_image",
    "cogvideox",
    "lens",
    "pixeldit",
    "ideogram4",
    "boogu",
    "krea2",
    "joyimage",
    "mage",
    "minimax",
    NULL,
};
const char *const list_dual_types[] = { "sdxl",
                                        "sd3",
                                        "flux",
                                        "hunyuan_video",
                                        "hidream",
                                        "hunyuan_image",
                                        "hunyuan_video_15",
                                        "kandinsky5",
                                        "kandinsky5_image",
                                        "ltxv",
                                        "newbie",
                                        "ace",
                                        NULL };
const char *const list_weight_dtypes[] = {
    "default", "fp8_e4m3fn", "fp8_e4m3fn_fast", "fp8_e5m2", NULL,
};
const char *const list_gguf_dtypes[] = {
    "default", "target", "float32", "float16", "bfloat16", NULL,
};

const struct node_output out_model[1] = { { .type = "MODEL" } };
const struct node_output out_clip[1] = { { .type = "CLIP" } };
const struct node_output out_vae[1] = { { .type = "VAE" } };
const struct node_output out_clip_vision[1] = { { .type = "CLIP_VISION" } };
const struct node_output out_control_net[1] = { { .type = "CONTROL_NET" } };
const struct node_output out_checkpoint[3] = { { .type = "MODEL" },
                                               { .type = "CLIP" },
                                               { .type = "VAE" } };

static berth_status add(struct names *out, const char *s, berth_err *err)
{
    return names_add(out, s, strlen(s)) ? BERTH_OK : err_set(err, BERTH_ENOMEM, "choices");
}

berth_status loader_devices(const struct node_env *env, struct names *out, berth_err *err)
{
    for (size_t i = 0; i < env->devices_n; i++)
        if (add(out, env->devices[i], err))
            return err->code;
    return BERTH_OK;
}

const char *loader_device(const struct node_env *env)
{
    for (size_t i = 0; i < env->devices_n; i++)
        if (strcmp(env->devices[i], "cpu") != 0)
            return env->devices[i];
    return "cpu";
}

berth_status loader_clips_gguf(const struct node_env *env, struct names *out, berth_err *err)
{
    if (folders_list(env->folders, "text_encoders", out, err) ||
        folders_list(env->folders, "clip_gguf", out, err))
        return err->code;
    names_sort(out);
    return BERTH_OK;
}

/* Small VAEs of videos, files of their own in vae_approx. */
static bool is_video_tae(const char *name)
{
    static const char *const tae[] = { "taehv", "lighttaew2_2", "lighttaew2_1", "lighttaehy1_5" };
    for (size_t i = 0; i < ARRAY_LEN(tae); i++)
        if (strncmp(name, tae[i], strlen(tae[i])) == 0)
            return true;
    return false;
}

/* And of pictures, an encoder and a decoder each: <name>_encoder.*, <name>_decoder.* */
static const char *const taes[] = { "taesd", "taesdxl", "taesd3", "taef1" };

/* The file <tae>_<half>.<anything> among the names; NULL: none. */
static const char *find_half(const struct names *approx, const char *tae, const char *half)
{
    char start[32];
    int n = snprintf(start, sizeof start, "%s_%s.", tae, half);
    for (size_t i = 0; i < approx->n; i++)
        if (strncmp(approx->at[i], start, (size_t)n) == 0)
            return approx->at[i];
    return NULL;
}

berth_status loader_vaes(const struct node_env *env, struct names *out, berth_err *err)
{
    struct names approx = { 0 };
    berth_status s = folders_list(env->folders, "vae", out, err);
    if (!s)
        s = folders_list(env->folders, "vae_approx", &approx, err);
    for (size_t i = 0; !s && i < approx.n; i++)
        if (is_video_tae(approx.at[i]))
            s = add(out, approx.at[i], err);
    for (size_t i = 0; !s && i < ARRAY_LEN(taes); i++)
        if (find_half(&approx, taes[i], "encoder") && find_half(&approx, taes[i], "decoder"))
            s = add(out, taes[i], err);
    if (!s)
        s = add(out, "pixel_space", err);
    names_release(&approx);
    return s;
}

/* Folders with a model_index.json, right below those of the key. */
berth_status loader_diffusers(const struct node_env *env, struct names *out, berth_err *err)
{
    return folders_with(env->folders, "diffusers", "model_index.json", out, err);
}

/* ---- text encoders, before they are loaded ---- */

static const char *const clip_input[] = { "clip_name", "clip_name1", "clip_name2", "clip_name3",
                                          "clip_name4" };

/* What is in the files of a loader, asked before gigabytes are loaded. */
struct clip_files { /* clip_files_release() */
    struct text_found found[TEXT_ENCODERS_MAX];
    const struct weights *in[TEXT_ENCODERS_MAX]; /* the file that has it */
    size_t n;
    struct weights *file[ARRAY_LEN(clip_input)];
    size_t files;
    bool others; /* there is one of a kind we do not know: not for us to say */
};

static void clip_files_release(struct clip_files *f)
{
    for (size_t i = 0; i < f->files; i++)
        weights_close(f->file[i]);
    *f = (struct clip_files) { 0 };
}

static berth_status look_into(struct node_call *c, const char *key, const char *name,
                              struct clip_files *f, berth_err *err)
{
    struct str path = { 0 };
    struct weights *w = NULL;
    struct text_found found[TEXT_ENCODERS_MAX];
    berth_status s = folders_resolve(c->env->folders, key, name, &path, err);
    if (!s)
        s = weights_open(path.p, NULL, &w, err);
    size_t n = s ? 0 : text_find(w, NULL, found);
    f->others |= !n || f->n + n > TEXT_ENCODERS_MAX;
    for (size_t i = 0; !f->others && i < n; i++) {
        f->found[f->n] = found[i];
        f->in[f->n++] = w;
    }
    if (w)
        f->file[f->files++] = w; /* each input is looked into once */
    str_release(&path);
    return s;
}

/* Those of folders stay open in the env, if it keeps any. */
static berth_status look_for_tokenizers(const struct node_env *env, const struct clip_files *f,
                                        berth_err *err)
{
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < f->n; i++) {
        struct asset *tokenizer;
        s = asset_tokenizer(env, f->found[i].is->tokenizer, f->in[i], &tokenizer, err);
        asset_unref(tokenizer);
        if (s) {
            const char *path = weights_path(f->in[i]), *base = strrchr(path, '/');
            err_add(err, "'%.100s'", base ? base + 1 : path);
        }
    }
    return s;
}

static berth_status check_storage(const struct clip_files *f, const char *name, berth_err *err)
{
    for (size_t i = 0; i < f->n; i++)
        if (quant_check(f->in[i], f->found[i].root, err))
            return err_add(err, "'%.100s'", name);
    return BERTH_OK;
}

/* A loader that gives more than CLIP fails for want of tokenizers, or because text encoders are
 * stored in a layout that cannot be computed, only where prompts will be encoded with output `out`.
 * Workflows that take only its MODEL and VAE need none. What is wrong with the file itself is
 * reported when it is loaded. */
static berth_status check_prompts(struct node_call *c, size_t out, const char *key,
                                  const char *name, berth_err *err)
{
    const struct node_host *h = c->host;
    struct clip_files f = { 0 };
    berth_err unread;
    if (!h || !h->leads_to || !h->leads_to(h->user, out, "CONDITIONING"))
        return BERTH_OK;
    berth_status s = BERTH_OK;
    if (!look_into(c, key, name, &f, &unread) && !f.others &&
        (check_storage(&f, name, err) || look_for_tokenizers(c->env, &f, err)))
        s = err->code;
    clip_files_release(&f);
    return s;
}

/* ---- what several do ---- */

typedef berth_status loader_change_fn(struct node_call *c, struct model_ref *m, berth_err *err);
/* One file, and what `change` does to it (NULL: nothing). */
static berth_status open_file(struct node_call *c, loader_change_fn *change, berth_err *err)
{
    const struct file_of *f = c->cls->own;
    struct placement p;
    struct opened m = { 0 };
    const char *name;
    if (in_text(c, f->input, &name, err) || placement_read(c, "", &p, err))
        return err->code;
    berth_status s = loader_open(c, f->key, name, f->role, &p, &m, NULL, err);
    m.ref.said.fp8 = p.dtype && strcmp(p.dtype, "fp8_e4m3fn_fast") == 0;
    if (!s && change)
        s = change(c, &m.ref, err);
    if (!s)
        s = loader_give(c, 0, &m.ref, err);
    opened_release(&m, s);
    placement_release(&p);
    return s;
}

berth_status run_file(struct node_call *c, berth_err *err)
{
    return open_file(c, NULL, err);
}

/* ControlNets that are stored as differences: to each of their tensors the model's is added, with
 * its adapters, when it is used. */
static berth_status add_model(struct node_call *c, struct model_ref *to, berth_err *err)
{
    static const char mark[] = "difference", first[] = "control_model.zero_convs.0.0.weight";
    const struct weights *w = res_weights(to->part[0]);
    const struct model_ref *model;
    struct res_adapter *a;
    if (in_model(c, "model", &model, err))
        return err->code;
    if (!weights_find(w, mark, sizeof mark - 1) || !weights_find(w, first, sizeof first - 1))
        return BERTH_OK;
    const struct mix_args mix = { .kind = MIX_ADD, .other = model, .name = "difference" };
    if (weight_mix_new(&mix, &a, err))
        return err->code;
    berth_status s = model_ref_patch(to, a, 1.0, err);
    res_adapter_unref(a);
    return s;
}

berth_status run_difference(struct node_call *c, berth_err *err)
{
    return open_file(c, add_model, err);
}

/* ---- diffusion models ---- */

/* The word that files of a diffusion model here have for themselves. */
static bool is_our_word(const char *word)
{
    for (size_t i = 0; i < arch_count(); i++) {
        const struct preset *p = arch_at(i)->presets;
        bool model = arch_at(i)->role && strcmp(arch_at(i)->role, "unet") == 0;
        for (; model && p && p->name; p++)
            if (p->arch && strcmp(p->arch, word) == 0)
                return true;
    }
    return false;
}

/* A GGUF file says what it is for; what ComfyUI-GGUF refuses as a diffusion model is refused, but
 * for families that it does not know and others wrote files of. Without a word, or with those of
 * other tools, its tensors tell. */
static berth_status check_gguf(struct node_call *c, const char *name, berth_err *err)
{
    static const char *const fine[] = { "flux",    "sd1",        "sdxl", "sd3",   "aura",
                                        "hidream", "cosmos",     "ltxv", "hyvid", "wan",
                                        "lumina2", "qwen_image", "pig",  "cow" };
    struct str path = { 0 };
    struct weights *w = NULL;
    berth_status s = folders_resolve(c->env->folders, "unet_gguf", name, &path, err);
    if (!s)
        s = weights_open(path.p, NULL, &w, err);
    const struct weights_meta *arch = s ? NULL : weights_meta_find(w, "general.architecture");
    bool ok = !arch || (arch->kind == META_STRING && is_our_word(arch->str));
    for (size_t i = 0; !ok && i < ARRAY_LEN(fine); i++)
        ok = arch->kind == META_STRING && strcmp(arch->str, fine[i]) == 0;
    if (!s && !ok)
        s = err_set(err, BERTH_EINVAL,
                    "'%.100s' is no diffusion model: general.architecture is %.40s", name,
                    arch->kind == META_STRING ? arch->str : "no text");
    weights_close(w);
    str_release(&path);
    return s;
}

berth_status run_unet_gguf(struct node_call *c, berth_err *err)
{
    const char *name;
    return in_text(c, "unet_name", &name, err) || check_gguf(c, name, err) ? err->code
                                                                           : run_file(c, err);
}

NODE_CLASS(UNETLoader, .display = "Load Diffusion Model", .category = "advanced/loaders",
           .module = "nodes",
           .description = "Opens a diffusion model and brings it to its devices.", INS(IN_UNET),
           BASE_UNET);

NODE_CLASS(UnetLoaderGGUF, .display = "Unet Loader (GGUF)", .category = "bootleg",
           .module = "custom_nodes.ComfyUI-GGUF", INS(IN_UNET_GGUF), BASE_UNET_GGUF);

NODE_CLASS(UnetLoaderGGUFAdvanced, .display = "Unet Loader (GGUF/Advanced)", .category = "bootleg",
           .module = "custom_nodes.ComfyUI-GGUF", INS(IN_UNET_GGUF_ADVANCED), BASE_UNET_GGUF);

NODE_CLASS(UNetLoaderLP, .category = "loaders", .module = "custom_nodes.ComfyUI-MultiGPU",
           INS(FOLDER_IN("unet_name", "diffusion_models")), BASE_UNET);

/* ---- checkpoints ---- */

/* MODEL, CLIP and VAE of one file, each in its place; and CLIP_VISION, where the class has it. */
static berth_status open_checkpoint(struct node_call *c, const struct placement *place,
                                    berth_err *err)
{
    static const char *const role[4] = { "unet", "clip", "vae", "vision" };
    const size_t outs = c->cls->outs;
    struct opened m[4] = { 0 };
    const char *name;
    berth_status s = in_text(c, "ckpt_name", &name, err);
    if (!s)
        s = check_prompts(c, 1, "checkpoints", name, err);
    for (size_t i = 0; !s && i < outs; i++) {
        bool there = true;
        s = loader_open(c, "checkpoints", name, role[i], &place[i], &m[i], i ? &there : NULL, err);
    }
    for (size_t i = 0; !s && i < outs; i++)
        s = loader_give(c, i, &m[i].ref, err);
    for (size_t i = 0; i < outs; i++)
        opened_release(&m[i], s);
    return s;
}

berth_status run_checkpoint(struct node_call *c, berth_err *err)
{
    struct placement p;
    if (placement_read(c, "", &p, err))
        return err->code;
    const struct placement place[4] = { p, placement_beside(&p), placement_beside(&p),
                                        placement_beside(&p) };
    berth_status s = open_checkpoint(c, place, err);
    placement_release(&p);
    return s;
}

static const struct node_input checkpoint_in[] = { IN_CHECKPOINT };
NODE_CLASS(CheckpointLoaderSimple, .display = "Load Checkpoint", .category = "loaders",
           .module = "nodes",
           .description = "Opens a checkpoint: diffusion model, text encoders and VAE of one file.",
           IN(checkpoint_in), OUT(out_checkpoint), .run = run_checkpoint);

NODE_CLASS(CheckpointLoader, .display = "Load Checkpoint With Config (DEPRECATED)",
           .category = "advanced/loaders", .module = "nodes", .flags = NODE_DEPRECATED,
           INS(FOLDER_IN("config_name", "configs"), IN_CHECKPOINT), OUT(out_checkpoint),
           .run = run_checkpoint);

NODE_CLASS(unCLIPCheckpointLoader, .category = "loaders", .module = "nodes", IN(checkpoint_in),
           OUTS({ .type = "MODEL" }, { .type = "CLIP" }, { .type = "VAE" },
                { .type = "CLIP_VISION" }),
           .run = run_checkpoint);

NODE_CLASS(ImageOnlyCheckpointLoader, .display = "Image Only Checkpoint Loader (img2vid model)",
           .category = "loaders/video_models", .module = "comfy_extras.nodes_video_model",
           IN(checkpoint_in),
           OUTS({ .type = "MODEL" }, { .type = "CLIP_VISION" }, { .type = "VAE" }),
           .run = node_not_yet);

/* ---- folders of diffusers: a network in each of their folders ---- */

/* The file of a folder's network, under the names ComfyUI looks for; *name is empty: there is
 * none. */
static berth_status find_network(struct node_call *c, const char *folder, const char *network,
                                 bool text, struct str *name, berth_err *err)
{
    static const char *const stem[2] = { "diffusion_pytorch_model", "model" };
    static const char *const end[] = { ".fp16.safetensors", ".safetensors" };
    for (size_t i = 0; i < ARRAY_LEN(end); i++) {
        struct str path = { 0 };
        str_clear(name);
        str_addf(name, "%s/%s/%s%s", folder, network, stem[text], end[i]);
        if (name->bad)
            return err_set(err, BERTH_ENOMEM, "the name of a network");
        berth_status s = folders_resolve(c->env->folders, "diffusers", name->p, &path, err);
        str_release(&path);
        if (s != BERTH_ENOTFOUND)
            return s;
    }
    str_clear(name);
    return BERTH_OK;
}

berth_status run_diffusers(struct node_call *c, berth_err *err)
{
    static const struct {
        const char *network, *role;
        size_t out;
        bool optional;
    } has[] = { { "unet", "unet", 0, false },
                { "text_encoder", "clip", 1, false },
                { "text_encoder_2", "clip", 1, true },
                { "vae", "vae", 2, false } };
    struct opened m[3] = { 0 };
    struct placement p[2];
    struct str name = { 0 };
    const char *folder;
    berth_status s = in_text(c, "model_path", &folder, err);
    if (!s)
        s = placement_read(c, "", &p[0], err);
    if (s)
        return s;
    p[1] = placement_beside(&p[0]);
    for (size_t i = 0; !s && i < ARRAY_LEN(has); i++) {
        const char *role = has[i].role;
        s = find_network(c, folder, has[i].network, has[i].out == 1, &name, err);
        if (!s && name.n && has[i].out == 1)
            s = check_prompts(c, 1, "diffusers", name.p, err);
        if (!s && name.n)
            s = loader_open(c, "diffusers", name.p, role, &p[i > 0], &m[has[i].out], NULL, err);
        else if (!s && !has[i].optional)
            s = err_set(err, BERTH_ENOTFOUND, "'%.100s' has no %s/*.safetensors", folder,
                        has[i].network);
    }
    for (size_t i = 0; !s && i < 3; i++)
        s = loader_give(c, i, &m[i].ref, err);
    for (int i = 0; i < 3; i++)
        opened_release(&m[i], s);
    str_release(&name);
    placement_release(&p[0]);
    return s;
}

NODE_CLASS(DiffusersLoader, .category = "advanced/loaders/deprecated", .module = "nodes",
           .flags = NODE_DEPRECATED, INS(IN_DIFFUSERS), OUT(out_checkpoint), .run = run_diffusers);

/* Stand-alone nodes of ComfyUI-MultiGPU: their inputs name the parts. */
berth_status run_advanced(struct node_call *c, berth_err *err)
{
    static const char *const prefix[3] = { "unet_", "clip_", "vae_" };
    struct placement p[3] = { 0 };
    berth_status s = BERTH_OK;
    for (int i = 0; !s && i < 3; i++) {
        s = placement_read(c, prefix[i], &p[i], err);
        if (i) /* it is the model that wants the device for itself */
            p[i].eject_others = false;
    }
    if (!s)
        s = open_checkpoint(c, p, err);
    for (int i = 0; i < 3; i++)
        placement_release(&p[i]);
    return s;
}

#define DEVICE_IN(n, ...) CHOICE_IN(n, loader_devices, .sdef_fn = loader_device, __VA_ARGS__)
#define CPU_IN(n) CHOICE_IN(n, loader_devices, .sdef = "cpu")

NODE_CLASS(CheckpointLoaderAdvancedMultiGPU, .category = "multigpu",
           .module = "custom_nodes.ComfyUI-MultiGPU",
           INS(IN_CHECKPOINT, DEVICE_IN("unet_device"), DEVICE_IN("clip_device"),
               DEVICE_IN("vae_device")),
           OUT(out_checkpoint), .run = run_advanced);

NODE_CLASS(CheckpointLoaderAdvancedDisTorch2MultiGPU, .category = "multigpu/distorch_2",
           .module = "custom_nodes.ComfyUI-MultiGPU",
           INS(IN_CHECKPOINT, DEVICE_IN("unet_compute_device"),
               FLOAT_IN("unet_virtual_vram_gb", 4.0, 0.0, 128.0, 0.1), CPU_IN("unet_donor_device"),
               CPU_IN("clip_compute_device"),
               FLOAT_IN("clip_virtual_vram_gb", 2.0, 0.0, 128.0, 0.1), CPU_IN("clip_donor_device"),
               DEVICE_IN("vae_device"),
               TEXT_IN("unet_expert_mode_allocations", "", .optional = true),
               TEXT_IN("clip_expert_mode_allocations", "", .optional = true),
               BOOL_IN("high_precision_loras", true, .optional = true),
               BOOL_IN("eject_models", true, .optional = true),
               BOOL_IN("keep_loaded", true, .optional = true)),
           OUT(out_checkpoint), .run = run_advanced, .validate = loader_validate);

static berth_status run_selector(struct node_call *c, berth_err *err)
{
    const char *device;
    return in_text(c, "device", &device, err)
               ? err->code
               : out_value(c, 0, value_string(device, strlen(device)), err);
}

NODE_CLASS(DeviceSelectorMultiGPU, .category = "multigpu",
           .module = "custom_nodes.ComfyUI-MultiGPU", INS(CHOICE_IN("device", loader_devices)),
           OUTS({ .type = "MULTIGPUDEVICE", .name = "device" }), .run = run_selector);

/* ---- text encoders ---- */

/* Do these files make what `type` wants, and are there tokenizers for it? Files that make no set
 * are placed all the same; encoding with them fails, and says so. */
static berth_status check_type(struct node_call *c, const char *key, const char *type,
                               berth_err *err)
{
    struct clip_files f = { 0 };
    const struct text_set *unread;
    berth_status s = BERTH_OK;
    for (size_t i = 0; !s && i < ARRAY_LEN(clip_input); i++) {
        const char *name;
        if (!loader_declares(c, clip_input[i]))
            continue;
        s = in_text(c, clip_input[i], &name, err);
        if (!s)
            s = look_into(c, key, name, &f, err);
    }
    if (!s && f.others)
        s = text_type_check(type, err);
    else if (!s && !text_set_find(f.found, f.n, type, &unread, err))
        s = look_for_tokenizers(c->env, &f, err);
    else if (!s && (err->code == BERTH_EINVAL || text_type_check(type, err)))
        s = err->code;
    clip_files_release(&f);
    return s;
}

/* One to four files under the names the class has for them. */
static berth_status open_clips(struct node_call *c, const char *key, const struct placement *p,
                               struct opened *m, berth_err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(clip_input); i++) {
        const char *name;
        if (!loader_declares(c, clip_input[i]))
            continue;
        if (in_text(c, clip_input[i], &name, err) ||
            loader_open(c, key, name, "clip", p, m, NULL, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status run_clips(struct node_call *c, const char *key, berth_err *err)
{
    struct placement p;
    struct opened m = { 0 };
    const char *type = loader_declares(c, "clip_name4") ? "hidream" : "sd3"; /* without the input */
    if (placement_read(c, "", &p, err))
        return err->code;
    berth_status s = loader_declares(c, "type") ? in_text(c, "type", &type, err) : BERTH_OK;
    if (!s && (check_type(c, key, type, err) || open_clips(c, key, &p, &m, err)))
        s = err->code;
    if (!s && !(m.ref.clip_type = strdup(type)))
        s = err_set(err, BERTH_ENOMEM, "a text encoder of type %s", type);
    if (!s)
        s = loader_give(c, 0, &m.ref, err);
    opened_release(&m, s);
    placement_release(&p);
    return s;
}

berth_status run_clip(struct node_call *c, berth_err *err)
{
    return run_clips(c, "text_encoders", err);
}

berth_status run_clip_gguf(struct node_call *c, berth_err *err)
{
    return run_clips(c, "clip_gguf", err); /* which has the directories of text_encoders too */
}

#define CLIP_DEVICE_IN                                                                             \
    COMBO_IN("device", CHOICES("default", "cpu"), .optional = true, .more = "\"advanced\":true")

NODE_CLASS(CLIPLoader, .display = "Load CLIP", .category = "advanced/loaders", .module = "nodes",
           .description = "Opens a text encoder; what it is follows from its tensors.",
           INS(IN_CLIP, CLIP_DEVICE_IN), OUT(out_clip), .run = run_clip);

NODE_CLASS(DualCLIPLoader, .category = "advanced/loaders", .module = "nodes",
           INS(IN_CLIP_DUAL, CLIP_DEVICE_IN), OUT(out_clip), .run = run_clip);

NODE_CLASS(TripleCLIPLoader, .category = "advanced/loaders", .module = "comfy_extras.nodes_sd3",
           .flags = NODE_V3, INS(IN_CLIP_TRIPLE), OUT(out_clip), .run = run_clip);

NODE_CLASS(QuadrupleCLIPLoader, .category = "advanced/loaders",
           .module = "comfy_extras.nodes_hidream", .flags = NODE_V3, INS(IN_CLIP_QUADRUPLE),
           OUT(out_clip), .run = run_clip);

NODE_CLASS(CLIPLoaderGGUF, .display = "CLIPLoader (GGUF)", .category = "bootleg",
           .module = "custom_nodes.ComfyUI-GGUF", INS(IN_CLIP_GGUF), OUT(out_clip),
           .run = run_clip_gguf);

NODE_CLASS(DualCLIPLoaderGGUF, .display = "DualCLIPLoader (GGUF)", .category = "bootleg",
           .module = "custom_nodes.ComfyUI-GGUF", INS(IN_CLIP_GGUF_DUAL), OUT(out_clip),
           .run = run_clip_gguf);

NODE_CLASS(TripleCLIPLoaderGGUF, .display = "TripleCLIPLoader (GGUF)", .category = "bootleg",
           .module = "custom_nodes.ComfyUI-GGUF", INS(IN_CLIP_GGUF_TRIPLE), OUT(out_clip),
           .run = run_clip_gguf);

NODE_CLASS(QuadrupleCLIPLoaderGGUF, .display = "QuadrupleCLIPLoader (GGUF)", .category = "bootleg",
           .module = "custom_nodes.ComfyUI-GGUF", INS(IN_CLIP_GGUF_QUADRUPLE), OUT(out_clip),
           .run = run_clip_gguf);

/* ---- VAEs ---- */

/* taesd and its kin: encoder and decoder, two files. */
static berth_status open_tae(struct node_call *c, const char *tae, const struct placement *p,
                             struct opened *m, berth_err *err)
{
    static const char *const half[] = { "encoder", "decoder" };
    struct names approx = { 0 };
    berth_status s = folders_list(c->env->folders, "vae_approx", &approx, err);
    for (size_t i = 0; !s && i < 2; i++) {
        const char *file = find_half(&approx, tae, half[i]);
        s = file ? loader_open(c, "vae_approx", file, NULL, p, m, NULL, err)
                 : err_set(err, BERTH_ENOTFOUND, "vae_approx has no %s_%s", tae, half[i]);
    }
    m->ref.said.no_network = true;
    names_release(&approx);
    return s;
}

static bool is_tae(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(taes); i++)
        if (strcmp(name, taes[i]) == 0)
            return true;
    return false;
}

berth_status run_vae(struct node_call *c, berth_err *err)
{
    struct placement p;
    struct opened m = { 0 };
    const char *name;
    berth_status s =
        in_text(c, "vae_name", &name, err) || placement_read(c, "", &p, err) ? err->code : BERTH_OK;
    if (s)
        return s;
    if (strcmp(name, "pixel_space") == 0)
        m.ref.said.no_network = true;
    else if (is_tae(name))
        s = open_tae(c, name, &p, &m, err);
    else
        s = loader_open(c, is_video_tae(name) ? "vae_approx" : "vae", name, "vae", &p, &m, NULL,
                        err);
    if (!s)
        s = loader_give(c, 0, &m.ref, err);
    opened_release(&m, s);
    placement_release(&p);
    return s;
}

NODE_CLASS(VAELoader, .display = "Load VAE", .category = "loaders", .module = "nodes", INS(IN_VAE),
           OUT(out_vae), .run = run_vae);

/* ---- the rest: files that are taken as they are ---- */

NODE_CLASS(CLIPVisionLoader, .display = "Load CLIP Vision", .category = "loaders",
           .module = "nodes", INS(IN_CLIP_VISION), BASE_CLIP_VISION);

NODE_CLASS(ControlNetLoader, .display = "Load ControlNet Model", .category = "loaders",
           .module = "nodes", INS(IN_CONTROL_NET), BASE_CONTROL_NET);

NODE_CLASS(DiffControlNetLoader, .display = "Load ControlNet Model (diff)", .category = "loaders",
           .module = "nodes", INS(IN_DIFF_CONTROL_NET), BASE_DIFF_CONTROL_NET);

NODE_CLASS(StyleModelLoader, .display = "Load Style Model", .category = "loaders",
           .module = "nodes", INS(FOLDER_IN("style_model_name", "style_models")),
           OUT_OF("STYLE_MODEL"), OPENS("style_model_name", "style_models", .role = "style"));

NODE_CLASS(UpscaleModelLoader, .display = "Load Upscale Model", .category = "loaders",
           .module = "comfy_extras.nodes_upscale_model", .flags = NODE_V3,
           INS(FOLDER_IN("model_name", "upscale_models")), OUT_OF("UPSCALE_MODEL"),
           OPENS("model_name", "upscale_models", .role = UPSCALER_ROLE));

NODE_CLASS(ModelPatchLoader, .category = "advanced/loaders",
           .module = "comfy_extras.nodes_model_patch", .flags = NODE_EXPERIMENTAL,
           INS(FOLDER_IN("name", "model_patches")), OUT_OF("MODEL_PATCH"),
           OPENS("name", "model_patches"));
