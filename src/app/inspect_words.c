/* inspect_words: how a tensor is stored, in words. */
#include "app/inspect.h"

#include "format/layout.h"

static const char *part_words(const struct weights_entry *e, const struct weights_layout *l)
{
    return e == l->book     ? "the book of its weight's codes"
           : e == l->pre    ? "what inputs of its layer are multiplied by"
           : e == l->rows   ? "the scale of its weight"
           : e == l->all    ? "the scale of all scales of its weight"
           : e == l->blocks ? "scales of its weight's blocks"
                            : "how its weight is stored";
}

static void plain_words(const struct weights_entry *e, char *buf, size_t n)
{
    const struct dtype_desc *d = dtype_desc(e->dtype);
    const unsigned bits = 8u * d->bytes / d->elems;
    if (d->elems > 1)
        snprintf(buf, n, "blocks of %u numbers in %u bytes", d->elems, d->bytes);
    else if (e->dtype == DT_BOOL)
        snprintf(buf, n, "yes and no");
    else
        snprintf(buf, n, "%u-bit %s", bits, d->is_float ? "floats" : "integers");
}

const char *inspect_words(const struct weights *w, const struct weights_entry *e,
                          char buf[INSPECT_WORDS_MAX])
{
    const struct weights_entry *owner = layout_owner(w, e);
    _Static_assert(INSPECT_WORDS_MAX >= LAYOUT_WORDS_MAX, "words of a layout have room");
    if (e->layout)
        return layout_words(e->layout, buf);
    if (owner)
        snprintf(buf, INSPECT_WORDS_MAX, "%s", part_words(e, owner->layout));
    else
        plain_words(e, buf, INSPECT_WORDS_MAX);
    return buf;
}
