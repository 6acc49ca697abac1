#include "model/family.h"

#include "base/str.h"
#include "model/arch.h"
#include "model/diffusion.h"
#include "model/encoder.h"
#include "model/gligen.h"
#include "model/style.h"
#include "model/upscaler.h"
#include "model/vae.h"
#include "model/vision.h"
#include "plan/quant.h"

#include <inttypes.h>

#define HAS_MAX 3

/* Families that cannot be computed: all tensors of `has` are there behind one root. The first that
 * fits counts, so relatives stand before those they come from. */
static const struct row {
    const char *name, *what, *role;
    const char *has[HAS_MAX];
} rows[] = {
#define ROW(role_, name_, what_, ...)                                                              \
    {                                                                                              \
        .name = name_, .what = what_, .role = role_, .has = { __VA_ARGS__ }                        \
    }
#define UNET(...) ROW("unet", __VA_ARGS__)
#define TEXT(...) ROW("clip", __VA_ARGS__)
#define SIGHT(...) ROW("vision", __VA_ARGS__)
#define LOOK(...) ROW("style", __VA_ARGS__)
#define UPSCALE(...) ROW(UPSCALER_ROLE, __VA_ARGS__)
#define OTHER(...) ROW(NULL, __VA_ARGS__)
    UNET("Flux.2", "a Flux.2 model in diffusers' names",
         "double_stream_modulation_img.linear.weight"),
    UNET("Chroma", "a Chroma model", "distilled_guidance_layer.norms.0.scale"),
    UNET("Chroma", "a Chroma model", "distilled_guidance_layer.0.norms.0.scale"),
    UNET("Ovis-Image", "an Ovis-Image model", "double_blocks.0.img_mlp.gate_proj.weight",
         "txt_norm.scale"),
    UNET("HunyuanVideo 1.5", "a HunyuanVideo 1.5 video model",
         "txt_in.individual_token_refiner.blocks.0.norm1.weight", "vision_in.proj.0.weight"),
    UNET("LTX-2", "an LTX-2 audio and video model", "audio_patchify_proj.weight",
         "patchify_proj.weight", "adaln_single.emb.timestep_embedder.linear_1.weight"),
    UNET("MiniMax H3", "a MiniMax H3 audio and video model", "video_patch_proj.weight",
         "audio_patch_proj.weight", "condition_proj.weight"),
    UNET("SD3", "an SD3 or SD3.5 model", "joint_blocks.0.context_block.attn.qkv.weight",
         "context_embedder.weight"),
    UNET("AuraFlow", "an AuraFlow model", "double_layers.0.attn.w1q.weight"),
    UNET("Stable Cascade", "a Stable Cascade model", "clf.1.weight", "clip_txt_mapper.weight"),
    UNET("Stable Cascade", "a Stable Cascade model", "clf.1.weight", "clip_mapper.weight"),
    UNET("Stable Audio", "a Stable Audio model", "transformer.rotary_pos_emb.inv_freq",
         "to_cond_embed.0.weight"),
    UNET("Hunyuan-DiT", "a Hunyuan-DiT model", "mlp_t5.0.weight"),
    UNET("PixArt", "a PixArt model", "t_block.1.weight", "y_embedder.y_embedding"),
    UNET("HiDream", "a HiDream model", "caption_projection.0.linear.weight"),
    UNET("Cosmos", "a Cosmos video model", "blocks.block0.blocks.0.block.attn.to_q.0.weight"),
    UNET("Cosmos", "a Cosmos Predict2 model", "x_embedder.proj.1.weight"),
    UNET("ACE-Step", "an ACE-Step music model", "genre_embedder.weight"),
    UNET("OmniGen2", "an OmniGen2 model", "time_caption_embed.timestep_embedder.linear_1.bias"),
    UNET("SVD", "a Stable Video Diffusion model",
         "input_blocks.1.1.time_stack.0.attn1.to_q.weight"),
    TEXT("Gemma 4", "a Gemma 4 text encoder", "model.layers.0.layer_scalar"),
    TEXT("Qwen3.5", "a Qwen3.5 text encoder", "model.language_model.layers.0.linear_attn.A_log"),
    TEXT("GPT-OSS", "a GPT-OSS text encoder", "layers.0.self_attn.sinks"),
    SIGHT("DINOv2", "a DINOv2 encoder of pictures", "encoder.layer.0.layer_scale2.lambda1"),
    SIGHT("DINOv3", "a DINOv3 encoder of pictures", "layer.0.attention.o_proj.bias"),
    LOOK("T2I-Adapter", "a style model of T2I-Adapter's", "style_embedding"),
    UPSCALE("HAT", "a HAT upscale model", "layers.0.residual_group.overlap_attn.mlp.fc1.weight"),
    UPSCALE("Swin2SR", "a Swin2SR upscale model", "layers.0.residual_group.blocks.0.norm1.weight",
            "patch_embed.proj.weight", "conv_first.weight"),
    UPSCALE("SwinIR", "a SwinIR upscale model", "layers.0.residual_group.blocks.0.norm1.weight",
            "layers.0.residual_group.blocks.0.attn.relative_position_index"),
    UPSCALE("ATD", "an ATD upscale model", "layers.0.residual_group.td", "conv_first.weight"),
    UPSCALE("RGT", "an RGT upscale model", "before_RG.1.weight", "layers.0.blocks.0.gamma"),
    UPSCALE("DAT", "a DAT upscale model", "before_RG.1.weight", "layers.0.blocks.0.norm1.weight"),
    UPSCALE("DRCT", "a DRCT upscale model", "layers.0.swin1.norm1.weight", "conv_first.weight"),
    UPSCALE("SPAN", "a SPAN upscale model", "block_1.c1_r.sk.weight", "conv_cat.weight"),
    UPSCALE("OmniSR", "an OmniSR upscale model",
            "residual_layer.0.residual_layer.0.layer.0.fn.0.weight"),
    UPSCALE("PLKSR", "a PLKSR upscale model", "feats.0.weight", "feats.1.refine.weight"),
    UPSCALE("SAFMN", "a SAFMN upscale model", "feats.0.safm.mfr.0.weight"),
    UPSCALE("MoSR", "a MoSR upscale model", "gblocks.0.weight", "gblocks.1.fc1.weight"),
    UPSCALE("Real-CUGAN", "a Real-CUGAN upscale model", "unet1.conv1.conv.0.weight",
            "unet2.conv1.conv.0.weight"),
    UPSCALE("SCUNet", "a SCUNet restoration model", "m_head.0.weight", "m_tail.0.weight"),
    UPSCALE("GFPGAN", "a GFPGAN model for faces", "stylegan_decoder.style_mlp.1.weight"),
    OTHER("ControlNet", "a ControlNet", "input_hint_block.0.weight"),
    OTHER("ControlNet", "a ControlNet", "controlnet_cond_embedding.conv_in.weight"),
};

static bool fits(const struct weights *w, const struct row *r)
{
    for (const char *const *root = place_leads(r->role); *root; root++) {
        size_t k = 0;
        while (k < HAS_MAX && r->has[k] && arch_find(w, *root, r->has[k]))
            k++;
        if (k == HAS_MAX || !r->has[k])
            return true;
    }
    return false;
}

static bool wants(const char *asked, const char *role)
{
    return !asked || (role && strcmp(asked, role) == 0);
}

static bool is_text_encoder(const struct weights *w)
{
    const struct encoder_class *const *e = encoder_list;
    while (*e && !arch_is(&(*e)->arch, w, "", NULL))
        e++;
    return *e;
}

/* Language models look alike: those that are known go before the rows of the others. */
static bool find_row(const struct weights *w, const char *role, struct family_info *out)
{
    bool text = is_text_encoder(w);
    for (size_t i = 0; i < ARRAY_LEN(rows); i++)
        if (wants(role, rows[i].role) && !(text && wants("clip", rows[i].role)) &&
            fits(w, &rows[i])) {
            *out = (struct family_info) { .name = rows[i].name, .role = rows[i].role };
            snprintf(out->what, sizeof out->what, "%s", rows[i].what);
            return true;
        }
    return false;
}

static const char *article(const char *name)
{
    return strncmp(name, "SD", 2) == 0 || strncmp(name, "LTX", 3) == 0 ? "an" : "a";
}

/* Is there more than the diffusion model? */
static bool is_checkpoint(const struct weights *w, const struct arch *arch)
{
    for (size_t i = 0; arch && arch->holds_parts && i < PLACE_PARTS; i++)
        if (strcmp(place_parts[i].role, "unet") != 0 && arch_of_part(w, "", &place_parts[i]))
            return true;
    return false;
}

static berth_status find_diffusion(const struct weights *w, const struct arch *arch,
                                   struct family_info *out, berth_err *err)
{
    struct diffusion_info d;
    berth_status s = diffusion_look(w, NULL, &d, err);
    if (s == BERTH_ENOTFOUND || s == BERTH_ENOMEM)
        return s;
    const char *name = s ? "diffusion model" : d.family;
    *out = (struct family_info) { .name = name, .role = "unet", .runs = !s };
    if (s) {
        snprintf(out->what, sizeof out->what, "a diffusion model");
        snprintf(out->why, sizeof out->why, "%.199s", err->msg);
    } else {
        snprintf(out->what, sizeof out->what, "%s %s %s", article(name), name,
                 is_checkpoint(w, arch) ? "checkpoint" : "diffusion model");
    }
    return BERTH_OK;
}

static bool find_vae(const struct weights *w, struct family_info *out)
{
    struct vae_net v;
    berth_err err = { 0 };
    char root[ARCH_ROOT_MAX];
    berth_status s = vae_find(w, NULL, root, &v, &err);
    if (!v.family->arch.detect(w, root))
        return false;
    *out = (struct family_info) { .name = v.family->name, .role = "vae", .runs = !s };
    snprintf(out->what, sizeof out->what, "%s", v.family->what);
    snprintf(out->why, sizeof out->why, "%.199s", s ? err.msg : "");
    return true;
}

static bool find_upscaler(const struct weights *w, struct family_info *out)
{
    struct upscaler_net u;
    berth_err err = { 0 };
    char root[ARCH_ROOT_MAX];
    berth_status s = upscaler_find(w, NULL, root, &u, &err);
    if (s == BERTH_ENOTFOUND)
        return false;
    *out = (struct family_info) { .name = u.family->name, .role = UPSCALER_ROLE, .runs = !s };
    snprintf(out->what, sizeof out->what, "%s", u.family->what);
    snprintf(out->why, sizeof out->why, "%.199s", s ? err.msg : "");
    return true;
}

static bool find_text(const struct weights *w, struct family_info *out)
{
    for (const struct encoder_class *const *e = encoder_list; *e; e++) {
        if (!arch_is(&(*e)->arch, w, "", NULL))
            continue;
        *out = (struct family_info) { .name = (*e)->family, .role = "clip", .runs = true };
        snprintf(out->what, sizeof out->what, "%s", (*e)->what);
        return true;
    }
    return false;
}

static bool find_vision(const struct weights *w, struct family_info *out)
{
    const char *part = NULL;
    const struct vision_class *is = vision_at(w, NULL);
    struct vision_net v;
    berth_err err = { 0 };
    for (size_t i = 0; !is && i < PLACE_PARTS; i++)
        if (strcmp(place_parts[i].role, "vision") == 0)
            is = vision_at(w, part = place_parts[i].prefix);
    if (!is)
        return false;
    berth_status s = vision_find(w, part, &v, &err);
    *out = (struct family_info) { .name = is->name, .role = "vision", .runs = !s };
    snprintf(out->what, sizeof out->what, "%s", is->what);
    snprintf(out->why, sizeof out->why, "%.199s", s ? err.msg : "");
    return true;
}

static bool find_style(const struct weights *w, struct family_info *out)
{
    const struct style_class *is = style_at(w, NULL);
    if (!is)
        return false;
    *out = (struct family_info) { .name = is->name, .role = "style", .runs = true };
    snprintf(out->what, sizeof out->what, "%s", is->what);
    return true;
}

static bool any_ends(const struct weights *w, const char *const *end, size_t n)
{
    for (size_t i = 0; i < weights_count(w); i++)
        for (size_t k = 0; k < n; k++)
            if (str_ends(weights_at(w, i)->name, weights_at(w, i)->name_len, end[k]))
                return true;
    return false;
}

/* Factors of an adapter, by the words their names end in (lora.md 4); NULL: it is none. */
static const char *adapter(const struct weights *w)
{
    static const char *const lora[] = { ".lora_up.weight",
                                        ".lora_down.weight",
                                        ".lora_A.weight",
                                        ".lora_B.weight",
                                        ".lora_A.default.weight",
                                        ".lora_linear_layer.up.weight",
                                        "_lora.up.weight",
                                        "_lora.down.weight",
                                        ".hada_w1_a",
                                        ".lokr_w1",
                                        ".lokr_w1_a" };
    static const char *const more[] = { ".oft_blocks", ".diff", ".diff_b" };
    return any_ends(w, lora, ARRAY_LEN(lora))   ? "a LoRA"
           : any_ends(w, more, ARRAY_LEN(more)) ? "an adapter"
                                                : NULL;
}

/* What `embedding:name` takes: nothing but vectors, under the names that trainers give them. Others
 * work as well, but could be anything. */
static bool find_embedding(const struct weights *w, struct family_info *out)
{
    static const char *const known[] = { "emb_params", "clip_l", "clip_g", "string_to_param." };
    const struct weights_entry *one = NULL;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        size_t k = 0;
        if (str_starts(e->name, e->name_len, "string_to_token.")) /* a number beside them */
            continue;
        while (k < ARRAY_LEN(known) && !str_starts(e->name, e->name_len, known[k]))
            k++;
        if (k == ARRAY_LEN(known) || e->shape.ndim != 2)
            return false;
        one = one ? one : e;
    }
    if (!one)
        return false;
    uint64_t n = one->shape.dim[0], width = one->shape.dim[1];
    const char *of = width == 768 ? " of CLIP-L" : width == 1280 ? " of CLIP-G" : "";
    *out = (struct family_info) { .name = "embedding", .runs = true };
    snprintf(out->what, sizeof out->what, "an embedding%s, %" PRIu64 " vector%s of %" PRIu64, of, n,
             n == 1 ? "" : "s", width);
    return true;
}

static bool find_gligen(const struct weights *w, struct family_info *out)
{
    berth_err unsaid;
    if (gligen_check(w, NULL, &unsaid))
        return false;
    *out = (struct family_info) { .name = "GLIGEN", .runs = true };
    snprintf(out->what, sizeof out->what, "a GLIGEN: boxes with texts, for SD1 models");
    return true;
}

static bool find_other(const struct weights *w, const struct arch *arch, struct family_info *out)
{
    const char *what = adapter(w);
    if (!what && (find_embedding(w, out) || find_gligen(w, out)))
        return true;
    if (!what && !(arch && arch->holds_parts))
        return false;
    *out = (struct family_info) { .name = what ? "LoRA" : "parts of a checkpoint", .runs = true };
    snprintf(out->what, sizeof out->what, "%s",
             what ? what : "text encoders or a VAE under the names of a checkpoint");
    return true;
}

static bool find_control(const struct weights *w, const struct arch *arch, struct family_info *out)
{
    struct control_info c;
    berth_err err = { 0 };
    if (!arch || !arch->role || strcmp(arch->role, "control") != 0)
        return false;
    berth_status s = diffusion_control_info(w, NULL, &c, &err);
    *out = (struct family_info) { .name = s ? "control net" : c.what, .runs = !s };
    snprintf(out->what, sizeof out->what, "%s", arch->base.about);
    snprintf(out->why, sizeof out->why, "%.199s", s ? err.msg : "");
    return true;
}

/* Finds what the file has, whatever its weights are stored as. */
static berth_status find(const struct weights *w, const struct arch *arch, const char *role,
                         struct family_info *out, berth_err *err)
{
    berth_status s = BERTH_ENOTFOUND;
    if ((wants(role, "control") && find_control(w, arch, out)) || find_row(w, role, out))
        return BERTH_OK;
    if (wants(role, "unet") && (s = find_diffusion(w, arch, out, err)) != BERTH_ENOTFOUND)
        return s;
    if ((wants(role, "vae") && find_vae(w, out)) || (wants(role, "clip") && find_text(w, out)) ||
        (wants(role, "vision") && find_vision(w, out)) ||
        (wants(role, "style") && find_style(w, out)) ||
        (wants(role, UPSCALER_ROLE) && find_upscaler(w, out)) ||
        (!role && find_other(w, arch, out)))
        return BERTH_OK;
    return err_set(err, BERTH_ENOTFOUND, "a family that is not known");
}

/* Can the weights be computed as they are stored? Of a file that holds several networks those of
 * the role alone: what nobody asks for may be stored in any way. */
static berth_status check_storage(const struct weights *w, const struct arch *arch,
                                  const char *role, struct family_info *out)
{
    const char *part = role && arch && arch->holds_parts ? arch_part_with(w, arch, role) : NULL;
    berth_err why = { 0 };
    berth_status s = quant_check(w, part, &why);
    if (s && s != BERTH_ENOMEM) {
        out->runs = false;
        snprintf(out->why, sizeof out->why, "%.199s", why.msg);
        s = BERTH_OK;
    }
    return s;
}

berth_status family_find(const struct weights *w, const char *role, struct family_info *out,
                         berth_err *err)
{
    const struct arch *arch = arch_detect(w, NULL);
    berth_status s = find(w, arch, role, out, err);
    if (!s && out->runs && check_storage(w, arch, role, out))
        return err_set(err, BERTH_ENOMEM, "looking at how weights are stored");
    return s;
}
