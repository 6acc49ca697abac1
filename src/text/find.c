/* find.c: where the text encoders of a file are, and which (text-encoders.md 6). */
#include "base/str.h"
#include "text/clip_impl.h"
#include "text/t5_impl.h"

#include <stdio.h>
#include <string.h>

/* Roots in checkpoints, L before G, T5 last. A place that two kinds share has none of its own:
 * layers tell, else this. */
static const struct place {
    const char *root;
    enum text_kind kind;
} places[] = {
    { "cond_stage_model.transformer.", TEXT_CLIP_L },
    { "cond_stage_model.model.", TEXT_CLIP_H },
    { "cond_stage_model.model.transformer.", TEXT_CLIP_H },
    { "conditioner.embedders.0.transformer.", TEXT_CLIP_L },
    { "conditioner.embedders.0.model.", TEXT_CLIP_G }, /* the refiner's; of SD2 in newer files */
    { "conditioner.embedders.0.model.transformer.", TEXT_CLIP_G },
    { "conditioner.embedders.1.model.", TEXT_CLIP_G },
    { "conditioner.embedders.1.model.transformer.", TEXT_CLIP_G },
    { "text_encoders.clip_l.transformer.", TEXT_CLIP_L },
    { "text_encoders.clip_h.transformer.", TEXT_CLIP_H },
    { "text_encoders.clip_g.transformer.", TEXT_CLIP_G },
    { "text_encoders.t5xxl.transformer.", TEXT_T5 },
};

static const struct place *place_of(const char *root)
{
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (strcmp(places[i].root, root) == 0)
            return &places[i];
    return NULL;
}

/* Any tensor of a layer makes it one, also behind a gap: whoever computes it says what is
 * missing. */
uint32_t clip_layers(const struct weights *w, const char *root, enum clip_style style)
{
    char lead[192];
    uint32_t most = 0;
    int n = snprintf(lead, sizeof lead, "%s%s.", root, clip_list(style));
    if (n < 0 || (size_t)n >= sizeof lead)
        return 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        const char *s = e->name + n, *dot;
        uint64_t number;
        if (str_starts(e->name, e->name_len, lead) && (dot = strchr(s, '.')) &&
            str_parse_u64(s, (size_t)(dot - s), &number) && number < CLIP_LAYERS_MAX &&
            number >= most)
            most = (uint32_t)number + 1;
    }
    return most;
}

static bool kind_from_metadata(const struct weights *w, enum text_kind *out)
{
    const struct weights_meta *m = weights_meta_find(w, "berth.clip");
    const char *at = m && m->kind == META_STRING && m->str_len == 1 ? strchr("lgh", *m->str) : NULL;
    if (!at || !*at)
        return false;
    *out = *at == 'l' ? TEXT_CLIP_L : *at == 'g' ? TEXT_CLIP_G : TEXT_CLIP_H;
    return true;
}

enum text_kind clip_kind(const struct weights *w, const char *root, enum clip_style style)
{
    const struct place *place = place_of(root);
    uint32_t layers = clip_layers(w, root, style);
    enum text_kind kind;
    if (layers > 30)
        return TEXT_CLIP_G;
    if (layers > 22)
        return TEXT_CLIP_H;
    if (place)
        return place->kind;
    if (kind_from_metadata(w, &kind))
        return kind;
    return style == CLIP_OPENCLIP ? TEXT_CLIP_G : TEXT_CLIP_L; /* a small one, alone in its file */
}

/* What is there: T5's blocks, or CLIP's layers. */
static bool look(const struct weights *w, const char *root, enum text_kind *kind)
{
    bool gguf;
    enum clip_style style = clip_style(w, root);
    if (style != CLIP_NONE)
        *kind = clip_kind(w, root, style);
    else if (t5_there(w, root, &gguf))
        *kind = TEXT_T5;
    else
        return false;
    return true;
}

static void add(const struct weights *w, const char *root, struct text_found *out, size_t *n)
{
    if (*n == TEXT_ENCODERS_MAX || strlen(root) >= sizeof out->root ||
        !look(w, root, &out[*n].kind))
        return;
    snprintf(out[*n].root, sizeof out->root, "%s", root);
    ++*n;
}

size_t text_find(const struct weights *w, const char *part,
                 struct text_found out[TEXT_ENCODERS_MAX])
{
    static const char *const lead[] = { "", "transformer.", "model.", "model.transformer." };
    size_t n = 0;
    part = part ? part : "";
    for (size_t i = 0; i < sizeof places / sizeof *places; i++)
        if (str_starts(places[i].root, strlen(places[i].root), part))
            add(w, places[i].root, out, &n);
    for (size_t i = 0; n == 0 && i < sizeof lead / sizeof *lead; i++) { /* alone in its file */
        char root[sizeof out->root];
        int len = snprintf(root, sizeof root, "%s%s", part, lead[i]);
        if (len >= 0 && (size_t)len < sizeof root)
            add(w, root, out, &n);
    }
    return n;
}
