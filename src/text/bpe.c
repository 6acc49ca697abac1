/* bpe.c: words to ids by merging the pair of lowest rank until there is none (text-encoders.md
 * 4). */
#include "base/utf8.h"
#include "text/bpe_impl.h"
#include "text/clean.h"
#include "text/unicode.h"

#include <string.h>

struct scratch {      /* of one bpe_encode() */
    struct vec clean; /* points */
    struct merge_work merge;
};

static bool encode_word(const struct bpe *t, const uint32_t *c, size_t n, struct scratch *k,
                        struct vec *out)
{
    merge_begin(&k->merge);
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        size_t bytes = utf8_put(c[i], utf8);
        for (size_t b = 0; b < bytes; b++) {
            const int32_t *table = i + 1 == n && b + 1 == bytes ? t->byte_end : t->byte;
            if (!merge_add(&k->merge, table[(unsigned char)utf8[b]], 1, false))
                return false;
        }
    }
    if (!merge_all(&k->merge, pairs_join, &t->pairs))
        return false;
    for (const struct symbol *s = merge_first(&k->merge); s; s = merge_next(&k->merge, s))
        if (!vec_push(out, s->id < 0 ? &t->end : &s->id))
            return false;
    return true;
}

/* Words between two special tokens. */
static bool encode_words(const struct bpe *t, const uint32_t *c, size_t n, struct scratch *k,
                         struct vec *out)
{
    static const size_t cut[] = { 2, sizeof WORD_END_TEXT - 5, 2 };
    size_t at = 0;
    for (struct word w; (w = text_next_word(c, n, &at)).n > 0;) {
        if (!text_literal(c + w.at, n - w.at, WORD_END_TEXT)) {
            if (!encode_word(t, c + w.at, w.n, k, out))
                return false;
            continue;
        }
        /* "<|ENDOFTEXT|>" in lower case is no token, but three words, whatever follows it */
        at = w.at;
        for (size_t i = 0; i < sizeof cut / sizeof *cut; at += cut[i++])
            if (!encode_word(t, c + at, cut[i], k, out))
                return false;
    }
    return true;
}

/* Text without an end token. The start token is looked for in the clean text, so that its letters
 * may be capitals. */
static bool encode_plain(const struct bpe *t, const char *s, size_t n, struct scratch *k,
                         struct vec *out)
{
    k->clean.n = 0;
    if (!text_clean(s, n, &k->clean))
        return false;
    const uint32_t *c = k->clean.p;
    size_t from = 0;
    for (size_t i = 0, len; i < k->clean.n; i++) {
        if (c[i] != '<' || !(len = text_literal(c + i, k->clean.n - i, WORD_START_TEXT)))
            continue;
        if (!encode_words(t, c + from, i - from, k, out) || !vec_push(out, &t->start))
            return false;
        from = i + len;
    }
    return from >= k->clean.n || encode_words(t, c + from, k->clean.n - from, k, out);
}

berth_status bpe_encode(const struct bpe *t, const char *text, size_t n, struct vec *out,
                        berth_err *err)
{
    if (n > TEXT_PROMPT_MAX)
        return err_set(err, BERTH_ELIMIT, "text of %zu bytes, more than %u", n, TEXT_PROMPT_MAX);
    struct scratch k = { .clean.elem = sizeof(uint32_t), .merge = merge_init() };
    const size_t len = strlen(WORD_END_TEXT);
    bool ok = true;
    for (size_t i = 0; ok && i < n;) { /* the end token is looked for as it is written */
        const char *end = memmem(text + i, n - i, WORD_END_TEXT, len);
        size_t plain = end ? (size_t)(end - (text + i)) : n - i;
        ok = encode_plain(t, text + i, plain, &k, out) && (!end || vec_push(out, &t->end));
        i += plain + (end ? len : 0);
    }
    vec_release(&k.clean);
    merge_release(&k.merge);
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "tokens of %zu bytes of text", n);
}
