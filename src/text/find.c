/* find.c: where the text encoders of a file are, and which (text-encoders.md 6). */
#include "base/str.h"
#include "format/places.h"
#include "text/encoder.h"

#include <stdio.h>
#include <string.h>

/* The key of the encoder that stands at this root of a checkpoint, unless its shapes say otherwise;
 * NULL: no such place. */
static const char *key_at(const char *root)
{
    char at[PLACE_ROOT_MAX];
    for (size_t i = 0; i < place_count(); i++)
        if (place_at(i)->word && strcmp(place_root(place_at(i), at), root) == 0)
            return place_at(i)->word;
    return NULL;
}

bool text_find_at(const struct weights *w, const char *root, struct text_found *out)
{
    const char *place = key_at(root);
    if (strlen(root) >= sizeof out->root)
        return false;
    for (const struct encoder_class *const *e = encoder_list; *e; e++)
        if ((*e)->detect(w, root, place)) {
            out->is = *e;
            snprintf(out->root, sizeof out->root, "%s", root);
            return true;
        }
    return false;
}

static void add(const struct weights *w, const char *root, struct text_found *out, size_t *n)
{
    *n += *n < TEXT_ENCODERS_MAX && text_find_at(w, root, &out[*n]);
}

size_t text_find(const struct weights *w, const char *part,
                 struct text_found out[TEXT_ENCODERS_MAX])
{
    char root[PLACE_ROOT_MAX];
    size_t n = 0;
    part = part ? part : "";
    for (size_t i = 0; i < place_count(); i++)
        if (place_at(i)->word && place_root(place_at(i), root) &&
            str_starts(root, strlen(root), part))
            add(w, root, out, &n);
    const char *const *lead = place_leads("clip");
    for (; n == 0 && *lead; lead++) /* alone in its file */
        if (place_join(part, *lead, root))
            add(w, root, out, &n);
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
