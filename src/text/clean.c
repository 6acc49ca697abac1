/* clean.c: what happens to a text before its words are looked up (text-encoders.md 4). */
#include "text/clean.h"

#include "text/unicode.h"

bool text_clean(const char *s, size_t n, struct vec *out)
{
    struct vec raw = { .elem = sizeof(uint32_t) };
    bool ok = uc_decode(s, n, &raw) && uc_nfc(&raw) && uc_lower(raw.p, raw.n, out);
    vec_release(&raw);
    return ok;
}

size_t text_literal(const uint32_t *c, size_t n, const char *z)
{
    size_t i = 0;
    for (; z[i]; i++)
        if (i >= n || c[i] != (uint32_t)(unsigned char)z[i])
            return 0;
    return i;
}

static size_t run_of(const uint32_t *c, size_t n, enum uc_class k)
{
    size_t i = 0;
    while (i < n && uc_class(c[i]) == k)
        i++;
    return i;
}

/* Points of the word that begins at c; the alternatives in this order. */
static size_t word_length(const uint32_t *c, size_t n)
{
    static const char *const whole[] = { "'s", "'t", "'re", "'ve", "'m", "'ll", "'d" };
    for (size_t i = 0, m; i < sizeof whole / sizeof *whole; i++)
        if ((m = text_literal(c, n, whole[i])))
            return m;
    enum uc_class k = uc_class(c[0]);
    return k == UC_NUMBER ? 1 : run_of(c, n, k);
}

struct word text_next_word(const uint32_t *c, size_t n, size_t *at)
{
    *at += run_of(c + *at, n - *at, UC_SPACE);
    struct word w = { .at = *at, .n = *at < n ? word_length(c + *at, n - *at) : 0 };
    *at += w.n;
    return w;
}
