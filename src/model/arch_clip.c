/* CLIP text encoders, under their HF names and under OpenCLIP's. Checkpoints put one to three words
 * in front of them. */
#include "model/arch.h"

#include "model/lora_names_impl.h"
#include "model/preset.h"
#include "text/clip/clip.h"

berth_status arch_trace_text(const struct arch *arch, const struct weights *w, const char *root,
                             struct block_trace *out, berth_err *err)
{
    (void)arch;
    return text_trace(w, root, out, err);
}

uint64_t arch_clip_width(const struct weights *w, const char *root)
{
    return encoder_dim(
        clip_entry(w, root, clip_style(w, root), "text_model.encoder.layers.0.layer_norm1.weight"),
        0);
}

bool arch_clip_is_bare(const struct weights *w, const char *root)
{
    return clip_style(w, root) == CLIP_OLD;
}

static bool detect(const struct weights *w, const char *root)
{
    return clip_style(w, root) != CLIP_NONE;
}

static const char *const leads[] = { "",
                                     "transformer.",
                                     "model.",
                                     "model.transformer.",
                                     "embedders.0.transformer.", /* "conditioner." alone */
                                     "embedders.0.model.",
                                     "embedders.1.model.",
                                     "embedders.1.model.transformer.",
                                     NULL };

static const struct preset *const presets[] = { &preset_clip_l_tiny, &preset_clip_g_tiny, NULL };

const struct arch arch_clip = {
    .base = { .name = "clip",
              .about = "CLIP text encoder (L, G, H)",
              .trace = arch_trace,
              .aliases = arch_aliases },
    .trace = arch_trace_text,
    .lora = lora_clip,
    .presets = presets,
    .word = "clip_l",
    .te = LORA_TE | LORA_TE1,
    .role = "clip",
    .detect = detect,
    .lead = leads,
};
