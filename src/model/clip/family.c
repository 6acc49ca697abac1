/* family.c: CLIP-L, CLIP-G and CLIP-H as encoders. They differ in size, in their activation and
 * in what they pad prompts with. */
#include "model/clip/clip.h"
#include "model/clip/presets.h"

#include "model/lora_names.h"

static bool clip_at(const struct weights *w, const char *root)
{
    return clip_style(w, root) != CLIP_NONE;
}

static const char *key_lead(const struct weights *w, const char *root)
{
    return clip_style(w, root) == CLIP_OLD ? "text_model." : "";
}

/* The letter in the metadata; 0: none. */
static char letter_in_metadata(const struct weights *w)
{
    const struct weights_meta *m = weights_meta_find(w, "berth.clip");
    return m && m->kind == META_STRING && m->str_len == 1 && strchr("lgh", *m->str) ? *m->str : 0;
}

/* Which it is: 'l', 'g' or 'h'. */
static char which(const struct weights *w, const char *root, const char *place)
{
    enum clip_style style = clip_style(w, root);
    uint32_t layers = arch_layers(w, root, clip_list(style));
    if (layers > 22)
        return layers > 30 ? 'g' : 'h';
    if (place)
        return strcmp(place, "clip_g") == 0 ? 'g' : strcmp(place, "clip_h") == 0 ? 'h' : 'l';
    char letter = letter_in_metadata(w);
    if (letter)
        return letter;
    return style == CLIP_OPENCLIP ? 'g' : 'l'; /* a small one, alone in its file */
}

static bool is_l(const struct weights *w, const char *root, const char *place)
{
    return which(w, root, place) == 'l';
}

static bool is_g(const struct weights *w, const char *root, const char *place)
{
    return which(w, root, place) == 'g';
}

static bool is_h(const struct weights *w, const char *root, const char *place)
{
    return which(w, root, place) == 'h';
}

static berth_status configure_l(const struct weights *w, const char *root, void *config,
                                berth_err *err)
{
    struct clip_net *c = config;
    berth_status s = clip_configure(w, root, c, err);
    if (!s)
        c->quick_gelu = true;
    return s;
}

static struct encoder_size size(const void *config)
{
    const struct clip_net *c = config;
    return (struct encoder_size) { .width = c->width,
                                   .vocab = c->vocab,
                                   .tokens = c->positions,
                                   .layers = c->layers,
                                   .chunks = 8,
                                   .pooled = true };
}

static void rules(const void *config, struct chunk_rules *rules)
{
    rules->max_length = (uint32_t)((const struct clip_net *)config)->positions;
    rules->pad_to_max = true;
}

static void rules_l(const void *config, struct chunk_rules *to)
{
    rules(config, to);
    to->pad = to->end;
}

#define CLIP(x, ...)                                                                               \
    const struct encoder_class encoder_clip_##x = { .key = "clip_" #x,                             \
                                                    .family = "CLIP",                              \
                                                    .what = "a CLIP text encoder",                 \
                                                    .tokenizer = &tokenizer_clip,                  \
                                                    .config_bytes = sizeof(struct clip_net),       \
                                                    .pick = is_##x,                                \
                                                    .key_lead = key_lead,                          \
                                                    .size = size,                                  \
                                                    .names = clip_names,                           \
                                                    .lookup = clip_positions,                      \
                                                    .forward = clip_forward,                       \
                                                    __VA_ARGS__ }
#define ARCH                                                                                       \
    ENCODER_ARCH("clip", "CLIP text encoder (L, G, H)"), .detect = clip_at, .lora = clip_lora
#define FIRST .te = LORA_TE | LORA_TE1, .te_beside = LORA_TE | LORA_TE1
CLIP(l, .arch = { ARCH, .presets = clip_presets }, .name = "CLIP-L", FIRST,
     .configure = configure_l, .rules = rules_l);
CLIP(g, .arch = { ARCH }, .name = "CLIP-G", .te = LORA_TE | LORA_TE2, .te_beside = LORA_TE2,
     .configure = clip_configure, .rules = rules);
CLIP(h, .arch = { ARCH }, .name = "CLIP-H", FIRST, .configure = clip_configure, .rules = rules);
