#include "format/places.h"

#include "base/err.h"

const struct place_part place_parts[PLACE_PARTS] = {
#define PART(id, prefix_, role_) [PLACE_PART_##id] = { .prefix = prefix_, .role = role_ },
#define PLACE(part, lead, word, ask)
#include "format/places.def"
#undef PART
#undef PLACE
};

static const struct net_place places[] = {
#define PART(id, prefix, role)
#define PLACE(part_, lead_, word_, ask_)                                                           \
    { .part = PLACE_PART_##part_, .lead = lead_, .word = word_, .ask = ask_ },
#include "format/places.def"
#undef PART
#undef PLACE
};

size_t place_count(void)
{
    return ARRAY_LEN(places);
}

const struct net_place *place_at(size_t i)
{
    if (i >= ARRAY_LEN(places))
        BUG("place %zu of %zu", i, ARRAY_LEN(places));
    return &places[i];
}

const char *place_root(const struct net_place *p, char root[PLACE_ROOT_MAX])
{
    return place_join(place_parts[p->part].prefix, p->lead, root);
}

const char *place_join(const char *part, const char *lead, char root[PLACE_ROOT_MAX])
{
    int n = snprintf(root, PLACE_ROOT_MAX, "%s%s", part, lead);
    return n >= 0 && n < PLACE_ROOT_MAX ? root : NULL;
}

const char *const *place_leads(const char *role)
{
    static const char *const unet[] = { "",
                                        "model.diffusion_model.",
                                        "diffusion_model.",
                                        "model.model.",
                                        "model.",
                                        "net.",
                                        "transformer.",
                                        NULL };
    static const char *const vae[] = { "", "first_stage_model.", "vae.", NULL };
    static const char *const clip[] = { "",
                                        "transformer.",
                                        "model.",
                                        "model.transformer.",
                                        "embedders.0.transformer.", /* behind "conditioner." */
                                        "embedders.0.model.",
                                        "embedders.1.model.",
                                        "embedders.1.model.transformer.",
                                        NULL };
    /* Where programs that train upscalers put theirs; pickles are read without (pickle.c). */
    static const char *const upscale[] = { "",      "params_ema.", "params.", "module.",
                                           "netG.", "model.",      NULL };
    static const char *const other[] = { "", "control_model.", NULL };
    return !role || strcmp(role, "control") == 0 ? other
           : strcmp(role, "unet") == 0           ? unet
           : strcmp(role, "vae") == 0            ? vae
           : strcmp(role, "upscale") == 0        ? upscale
                                                 : clip;
}
