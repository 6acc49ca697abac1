/* clean.c: what happens to a text before its words are looked up (text-encoders.md 4). */
#include "text/clean.h"

#include "text/unicode.h"

#include <string.h>

static bool is_cjk(uint32_t c)
{
    static const uint32_t range[][2] = {
        { 0x4e00, 0x9fff },   { 0x3400, 0x4dbf },   { 0x20000, 0x2a6df }, { 0x2a700, 0x2b73f },
        { 0x2b740, 0x2b81f }, { 0x2b820, 0x2ceaf }, { 0xf900, 0xfaff },   { 0x2f800, 0x2fa1f },
    };
    for (size_t i = 0; i < sizeof range / sizeof *range; i++)
        if (c >= range[i][0] && c <= range[i][1])
            return true;
    return false;
}

static bool push(struct vec *v, uint32_t c)
{
    uint32_t *at = vec_add(v);
    if (at)
        *at = c;
    return at != NULL;
}

/* Drops what cannot be seen, parts ideographs; every kind of space becomes a blank. */
static bool visible(const struct vec *in, struct vec *out)
{
    const uint32_t *c = in->p;
    for (size_t i = 0; i < in->n; i++) {
        enum uc_class k = uc_class(c[i]);
        if (c[i] == 0xfffd || k == UC_CONTROL)
            continue;
        bool cjk = is_cjk(c[i]);
        if ((cjk && !push(out, ' ')) || !push(out, k == UC_SPACE ? ' ' : c[i]) ||
            (cjk && !push(out, ' ')))
            return false;
    }
    return true;
}

static bool lower_words(const struct vec *in, struct vec *out)
{
    const uint32_t *c = in->p;
    for (size_t i = 0, end; i < in->n; i = end) {
        while (i < in->n && c[i] == ' ')
            i++;
        for (end = i; end < in->n && c[end] != ' ';)
            end++;
        if (end > i && ((out->n > 0 && !push(out, ' ')) || !uc_lower(c + i, end - i, out)))
            return false;
    }
    return true;
}

bool text_clean(const char *s, size_t n, struct vec *out)
{
    struct vec raw = { .elem = sizeof(uint32_t) }, seen = { .elem = sizeof(uint32_t) };
    bool ok =
        uc_decode(s, n, &raw) && visible(&raw, &seen) && uc_nfc(&seen) && lower_words(&seen, out);
    vec_release(&raw);
    vec_release(&seen);
    return ok;
}

/* Points that z matches at c, without regard to case; 0: none. The text is lower case already; a
 * long s still counts as an s there. */
static size_t literal(const uint32_t *c, size_t n, const char *z)
{
    size_t i = 0;
    for (; z[i]; i++)
        if (i >= n || (c[i] == 0x17f ? 's' : c[i]) != (uint32_t)(unsigned char)z[i])
            return 0;
    return i;
}

static size_t run_of_other(const uint32_t *c, size_t n)
{
    size_t i = 0;
    for (enum uc_class k; i < n; i++)
        if ((k = uc_class(c[i])) == UC_SPACE || k == UC_LETTER || k == UC_NUMBER)
            break;
    return i;
}

/* Points of the word that begins at c; the alternatives in this order. */
static size_t word_length(const uint32_t *c, size_t n)
{
    static const char *const whole[] = { WORD_START_TEXT, WORD_END_TEXT, "'s",  "'t", "'re",
                                         "'ve",           "'m",          "'ll", "'d" };
    for (size_t i = 0, m; i < sizeof whole / sizeof *whole; i++)
        if ((m = literal(c, n, whole[i])))
            return m;
    size_t i = 0;
    while (i < n && uc_class(c[i]) == UC_LETTER)
        i++;
    if (i == 0)
        i = uc_class(c[0]) == UC_NUMBER ? 1 : run_of_other(c, n);
    return i;
}

static bool is_text(const uint32_t *c, size_t n, const char *z)
{
    size_t i = 0;
    while (i < n && z[i] && c[i] == (uint32_t)(unsigned char)z[i])
        i++;
    return i == n && !z[i];
}

struct word text_next_word(const uint32_t *c, size_t n, size_t *at)
{
    while (*at < n && uc_class(c[*at]) == UC_SPACE)
        ++*at;
    if (*at >= n)
        return (struct word) { .kind = WORD_NONE };
    struct word w = { .kind = WORD_PLAIN, .at = *at, .n = word_length(c + *at, n - *at) };
    if (is_text(c + w.at, w.n, WORD_START_TEXT))
        w.kind = WORD_START;
    else if (is_text(c + w.at, w.n, WORD_END_TEXT))
        w.kind = WORD_END;
    *at += w.n;
    return w;
}
