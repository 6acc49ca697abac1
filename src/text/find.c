/* find.c: where the text encoders of a file are, and which (text-encoders.md 6). */
#include "base/str.h"
#include "text/encoder.h"

#include <stdio.h>
#include <string.h>

/* Roots in checkpoints, L before G, T5 last. */
static const struct place {
    const char *root;
    const char *key; /* of the encoder that stands there, unless its shapes say otherwise */
} places[] = {
    { "cond_stage_model.transformer.", "clip_l" },
    { "cond_stage_model.model.", "clip_h" },
    { "cond_stage_model.model.transformer.", "clip_h" },
    { "conditioner.embedders.0.transformer.", "clip_l" },
    { "conditioner.embedders.0.model.", "clip_g" }, /* the refiner's; of SD2 in newer files */
    { "conditioner.embedders.0.model.transformer.", "clip_g" },
    { "conditioner.embedders.1.model.", "clip_g" },
    { "conditioner.embedders.1.model.transformer.", "clip_g" },
    { "text_encoders.clip_l.transformer.", "clip_l" },
    { "text_encoders.clip_h.transformer.", "clip_h" },
    { "text_encoders.clip_g.transformer.", "clip_g" },
    { "text_encoders.t5xxl.transformer.", "t5xxl" },
};

static const char *key_at(const char *root)
{
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (strcmp(places[i].root, root) == 0)
            return places[i].key;
    return NULL;
}

static void add(const struct weights *w, const char *root, struct text_found *out, size_t *n)
{
    const char *place = key_at(root);
    if (*n == TEXT_ENCODERS_MAX || strlen(root) >= sizeof out->root)
        return;
    for (const struct encoder_class *const *e = encoder_list; *e; e++)
        if ((*e)->detect(w, root, place)) {
            out[*n].is = *e;
            snprintf(out[*n].root, sizeof out->root, "%s", root);
            ++*n;
            return;
        }
}

size_t text_find(const struct weights *w, const char *part,
                 struct text_found out[TEXT_ENCODERS_MAX])
{
    static const char *const lead[] = { "", "transformer.", "model.", "model.transformer." };
    size_t n = 0;
    part = part ? part : "";
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (str_starts(places[i].root, strlen(places[i].root), part))
            add(w, places[i].root, out, &n);
    for (size_t i = 0; n == 0 && i < ARRAY_LEN(lead); i++) { /* alone in its file */
        char root[sizeof out->root];
        int len = snprintf(root, sizeof root, "%s%s", part, lead[i]);
        if (len >= 0 && (size_t)len < sizeof root)
            add(w, root, out, &n);
    }
    return n;
}

/* ---- for encoders ---- */

#define LAYERS_MAX 256

const struct weights_entry *encoder_tensor(const struct weights *w, const char *root,
                                           const char *name)
{
    char full[384];
    int n = snprintf(full, sizeof full, "%s%s", root, name);
    return n > 0 && (size_t)n < sizeof full ? weights_find(w, full, (size_t)n) : NULL;
}

uint64_t encoder_dim(const struct weights_entry *e, int i)
{
    return e && i < e->shape.ndim ? e->shape.dim[i] : 0;
}

uint32_t encoder_layers(const struct weights *w, const char *root, const char *list)
{
    char lead[192];
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
