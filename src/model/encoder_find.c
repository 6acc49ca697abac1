/* encoder_find.c: where the text encoders of a file are, and which (text-encoders.md 6). */
#include "model/encoder.h"

#include "base/str.h"

#include <stdio.h>
#include <string.h>

const struct encoder_class *const encoder_list[] = {
#define ENCODER(x) &encoder_##x,
#include "model/encoders.def"
#undef ENCODER
    NULL
};

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
        if ((*e)->arch.detect(w, root) && (!(*e)->pick || (*e)->pick(w, root, place))) {
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
