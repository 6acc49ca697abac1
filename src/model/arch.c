/* Detection, and traces of whole files. */
#include "model/arch.h"

#include "base/str.h"
#include "model/control.h"
#include "model/encoder.h"
#include "model/families.h"
#include "model/style.h"
#include "model/upscaler.h"
#include "model/vae.h"
#include "model/vision.h"

/* Single networks, then the files that hold several. */
static const struct arch *const all[] = {
#define FAMILY(x) &family_##x.arch,
#include "model/families.def"
#undef FAMILY
#define ENCODER(x) &encoder_##x.arch,
#include "model/encoders.def"
#undef ENCODER
#define UPSCALER(x) &upscaler_##x.arch,
#include "model/upscalers.def"
#undef UPSCALER
#define VAE(x) &vae_##x.arch,
#include "model/vaes.def"
#undef VAE
#define VISION(x) &vision_##x.arch,
#include "model/visions.def"
#undef VISION
#define STYLE(x) &style_##x.arch,
#include "model/styles.def"
#undef STYLE
#define CONTROL(x) &control_##x.arch,
#include "model/controls.def"
#undef CONTROL
#define FAMILY(x) &family_##x.checkpoint,
#include "model/families.def"
#undef FAMILY
};

size_t arch_count(void)
{
    return ARRAY_LEN(all);
}

const struct arch *arch_at(size_t i)
{
    if (i >= ARRAY_LEN(all))
        BUG("architecture %zu of %zu", i, ARRAY_LEN(all));
    return all[i];
}

bool arch_is(const struct arch *arch, const struct weights *w, const char *prefix,
             char root[ARCH_ROOT_MAX])
{
    static const char *const none[] = { "", NULL };
    char buf[ARCH_ROOT_MAX];
    const bool led = !strcmp(arch->role, "clip") || !strcmp(arch->role, "control") ||
                     !strcmp(arch->role, UPSCALER_ROLE);
    for (const char *const *lead = led ? place_leads(arch->role) : none; *lead; lead++) {
        int n = snprintf(buf, sizeof buf, "%s%s", prefix, *lead);
        if (n < 0 || (size_t)n >= sizeof buf || !arch->detect(w, buf))
            continue;
        if (root)
            memcpy(root, buf, (size_t)n + 1);
        return true;
    }
    return false;
}

/* A name longer than this is in no file: readers have a limit of 1024. */
#define NAME_MAX_BYTES 1100
#define LAYERS_MAX 10000 /* numbers beyond are no layers' */

const struct weights_entry *arch_find(const struct weights *w, const char *root, const char *name)
{
    char full[NAME_MAX_BYTES];
    int n = snprintf(full, sizeof full, "%s%s", root, name);
    return n > 0 && (size_t)n < sizeof full ? weights_find(w, full, (size_t)n) : NULL;
}

uint64_t arch_dim(const struct weights_entry *e, int i)
{
    return e && i < e->shape.ndim ? e->shape.dim[i] : 0;
}

uint32_t arch_layers(const struct weights *w, const char *root, const char *list)
{
    char lead[NAME_MAX_BYTES];
    uint32_t most = 0;
    int n = snprintf(lead, sizeof lead, "%s%s.", root, list);
    if (n < 0 || (size_t)n >= sizeof lead)
        return 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        const char *s = e->name + n, *dot;
        uint64_t number;
        if (str_starts(e->name, e->name_len, lead) && (dot = strchr(s, '.')) &&
            str_parse_u64(s, (size_t)(dot - s), &number) && number < LAYERS_MAX && number >= most)
            most = (uint32_t)number + 1;
    }
    return most;
}

/* ---- files that hold several networks ---- */

const struct arch *arch_of_part(const struct weights *w, const char *prefix,
                                const struct place_part *part)
{
    char full[PLACE_ROOT_MAX];
    if (!place_join(prefix ? prefix : "", part->prefix, full))
        return NULL;
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->role && strcmp(all[i]->role, part->role) == 0 && arch_is(all[i], w, full, NULL))
            return all[i];
    return NULL;
}

/* A checkpoint is called after its diffusion model, and one without after the UNet's: the text
 * encoders and VAEs that people keep so are mostly those. */
static const struct arch *checkpoint(const struct weights *w, const char *prefix)
{
    static const struct family *const families[] = {
#define FAMILY(x) &family_##x,
#include "model/families.def"
#undef FAMILY
    };
    bool any = false;
    for (size_t i = 0; i < PLACE_PARTS; i++) {
        const struct arch *of = arch_of_part(w, prefix, &place_parts[i]);
        for (size_t k = 0; of && k < ARRAY_LEN(families); k++)
            if (of == &families[k]->arch)
                return &families[k]->checkpoint;
        any |= of != NULL;
    }
    return any ? &family_unet.checkpoint : NULL;
}

size_t arch_part_of(const char *block, size_t n, size_t *rest)
{
    size_t i = 0, at = 0;
    for (; i < PLACE_PARTS; i++) {
        size_t len = strlen(place_parts[i].prefix);
        at = n < len ? n : len; /* the prefix, or all of it but the dot */
        if (at + 1 >= len && memcmp(block, place_parts[i].prefix, at) == 0)
            break;
    }
    if (rest)
        *rest = i < PLACE_PARTS ? at : 0;
    return i;
}

const char *arch_part_with(const struct weights *w, const struct arch *arch, const char *role)
{
    for (size_t i = 0; arch && arch->holds_parts && i < PLACE_PARTS; i++)
        if (strcmp(place_parts[i].role, role) == 0 && arch_of_part(w, "", &place_parts[i]))
            return place_parts[i].prefix;
    return NULL;
}

const struct arch *arch_detect(const struct weights *w, const char *prefix)
{
    prefix = prefix ? prefix : "";
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i]->detect && arch_is(all[i], w, prefix, NULL))
            return all[i];
    return checkpoint(w, prefix);
}

const struct block_arch *arch_blocks(const struct weights *w, const char *prefix)
{
    const struct arch *a = arch_detect(w, prefix);
    return a ? &a->base : NULL;
}

/* ---- traces ---- */

static berth_status trace_one(const struct arch *arch, const struct weights *w, const char *prefix,
                              struct block_trace *out, berth_err *err)
{
    char root[ARCH_ROOT_MAX];
    if (!arch_is(arch, w, prefix, root))
        return BERTH_OK;
    return arch->trace(arch, w, root, out, err) == BERTH_ENOMEM ? err->code : BERTH_OK;
}

berth_status arch_trace(const struct block_arch *base, const struct weights *w, const char *part,
                        struct block_trace *out, berth_err *err)
{
    const struct arch *arch = (const struct arch *)base; /* its first member */
    if (!arch->holds_parts)
        return trace_one(arch, w, part, out, err);
    for (size_t i = 0; i < PLACE_PARTS; i++) {
        char prefix[PLACE_ROOT_MAX];
        const struct arch *of = arch_of_part(w, part, &place_parts[i]);
        if (of && place_join(part, place_parts[i].prefix, prefix) &&
            trace_one(of, w, prefix, out, err))
            return err->code;
    }
    for (size_t i = 0; i < weights_count(w); i++)
        out->use[i].work = 0; /* of networks that run at different times: not to be compared */
    return BERTH_OK;
}
