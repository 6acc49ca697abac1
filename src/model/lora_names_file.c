/* lora_names_file: every network of a file, by what the file is. */
#include "model/arch.h"
#include "model/lora_names.h"

#include <string.h>

/* Text encoders by where they stand. T5 beside CLIP-L alone is Flux, whose adapters count it as the
 * second or the third. */
static const struct {
    const char *part, *lead, *comfy;
    unsigned te;
} texts[] = {
    { "cond_stage_model.", "transformer.", "clip_l", LORA_TE | LORA_TE1 },
    { "cond_stage_model.", "model.", "clip_h", LORA_TE | LORA_TE1 },
    { "conditioner.embedders.0.", "transformer.", "clip_l", LORA_TE | LORA_TE1 },
    { "conditioner.embedders.1.", "model.", "clip_g", LORA_TE2 },
    { "text_encoders.clip_l.", "transformer.", "clip_l", LORA_TE | LORA_TE1 },
    { "text_encoders.clip_g.", "transformer.", "clip_g", LORA_TE2 },
    { "text_encoders.t5xxl.", "transformer.", "t5xxl", LORA_TE2 | LORA_TE3 },
};

static berth_status add_texts(struct lora_table *t, const struct weights *w, const char *part,
                              berth_err *err)
{
    for (size_t i = 0; i < ARRAY_LEN(texts); i++) {
        char prefix[64];
        if (strcmp(texts[i].part, part) != 0)
            continue;
        snprintf(prefix, sizeof prefix, "%s%s", part, texts[i].lead);
        struct lora_text x = { .prefix = prefix, .comfy = texts[i].comfy, .te = texts[i].te };
        if (lora_names_text(t, w, &x, err))
            return err->code;
    }
    return BERTH_OK;
}

/* A network in a file of its own. */
static berth_status add_alone(struct lora_table *t, const struct weights *w,
                              const struct arch *arch, const char *prefix, berth_err *err)
{
    if (arch == &arch_sd_unet || arch == &arch_flux)
        return lora_names_diffusion(t, w, prefix, err);
    if (arch == &arch_clip)
        return lora_names_text(t, w, &(struct lora_text) { prefix, "clip_l", LORA_TE | LORA_TE1 },
                               err);
    if (arch == &arch_t5)
        return lora_names_text(t, w, &(struct lora_text) { prefix, "t5xxl", LORA_TE2 | LORA_TE3 },
                               err);
    return err_set(err, BERTH_EUNSUPPORTED, "'%s': adapters for %s files are not known",
                   weights_path(w), arch->base.name);
}

berth_status lora_names_file(struct lora_table *t, const struct weights *w, const char *prefix,
                             berth_err *err)
{
    const struct arch *arch = arch_detect(w, prefix);
    if (!arch)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%s': no family we know, so adapters cannot name its tensors",
                       weights_path(w));
    if (!arch->parts)
        return add_alone(t, w, arch, prefix ? prefix : "", err);
    for (size_t i = 0; i < arch->parts; i++) {
        const struct arch_part *part = &arch->part[i];
        if (!arch_has_part(w, NULL, part))
            continue;
        if (strcmp(part->role, "unet") == 0 && lora_names_diffusion(t, w, part->prefix, err))
            return err->code;
        if (strcmp(part->role, "clip") == 0 && add_texts(t, w, part->prefix, err))
            return err->code;
    }
    return BERTH_OK;
}
