/* bpe.c: words to ids by merging the pair of lowest rank until there is none (text-encoders.md 4).
 * */
#include "base/utf8.h"
#include "text/bpe_impl.h"
#include "text/clean.h"
#include "text/unicode.h"

#include <string.h>

#define NOBODY UINT32_MAX
#define GONE (-2)

struct symbol { /* of a word, in a list */
    int32_t id; /* -1: unknown, GONE: merged into its left neighbour */
    uint32_t prev, next;
};
struct candidate { /* a pair that can be merged */
    uint32_t rank, at;
    int32_t to;
};
struct scratch {       /* of one bpe_encode() */
    struct vec clean;  /* points */
    struct vec symbol; /* struct symbol */
    struct vec heap;   /* struct candidate, lowest rank first, then leftmost */
};

/* ---- a heap ---- */

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static bool heap_push(struct vec *h, struct candidate c)
{
    if (!vec_add(h))
        return false;
    struct candidate *p = h->p;
    size_t i = h->n - 1;
    for (; i > 0 && before(&c, &p[(i - 1) / 2]); i = (i - 1) / 2)
        p[i] = p[(i - 1) / 2];
    p[i] = c;
    return true;
}

static struct candidate heap_pop(struct vec *h)
{
    struct candidate *p = h->p, top = p[0], last = p[h->n - 1];
    vec_pop(h);
    size_t i = 0;
    for (size_t kid; (kid = 2 * i + 1) < h->n; i = kid) {
        if (kid + 1 < h->n && before(&p[kid + 1], &p[kid]))
            kid++;
        if (!before(&p[kid], &last))
            break;
        p[i] = p[kid];
    }
    if (h->n > 0)
        p[i] = last;
    return top;
}

/* ---- merging ---- */

/* What two symbols become, -1: nothing. rank may be NULL. */
static int32_t merged(const struct bpe *t, int32_t left, int32_t right, uint32_t *rank)
{
    uint64_t key = (uint64_t)left << 32 | (uint32_t)right, value;
    if (left < 0 || right < 0 || !map_get(&t->merge, (const char *)&key, sizeof key, &value))
        return -1;
    if (rank)
        *rank = (uint32_t)(value >> 32);
    return (int32_t)(value & INT32_MAX);
}

/* Looks at symbol `at` and its right neighbour; a pair that merges becomes a candidate. */
static bool consider(const struct bpe *t, struct scratch *k, uint32_t at)
{
    const struct symbol *s = k->symbol.p;
    struct candidate c = { .at = at };
    if (at == NOBODY || s[at].next == NOBODY)
        return true;
    c.to = merged(t, s[at].id, s[s[at].next].id, &c.rank);
    return c.to < 0 || heap_push(&k->heap, c);
}

/* Merges the pair of lowest rank, of several the leftmost, and looks at its new neighbours. */
static bool merge_first(const struct bpe *t, struct scratch *k)
{
    struct symbol *s = k->symbol.p;
    struct candidate c = heap_pop(&k->heap);
    uint32_t next = s[c.at].next;
    if (next == NOBODY || merged(t, s[c.at].id, s[next].id, NULL) != c.to)
        return true; /* one of them was merged with another meanwhile */
    s[c.at].id = c.to;
    s[c.at].next = s[next].next;
    if (s[next].next != NOBODY)
        s[s[next].next].prev = c.at;
    s[next].id = GONE;
    return consider(t, k, s[c.at].prev) && consider(t, k, c.at);
}

static bool add_symbol(struct vec *symbols, int32_t id)
{
    uint32_t at = (uint32_t)symbols->n;
    struct symbol *s = vec_add(symbols);
    if (!s)
        return false;
    *s = (struct symbol) { .id = id, .prev = at ? at - 1 : NOBODY, .next = NOBODY };
    if (at)
        s[-1].next = at;
    return true;
}

static bool encode_word(const struct bpe *t, const uint32_t *c, size_t n, struct scratch *k,
                        struct vec *out)
{
    k->symbol.n = k->heap.n = 0;
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        size_t bytes = utf8_put(c[i], utf8);
        for (size_t b = 0; b < bytes; b++) {
            const int32_t *table = i + 1 == n && b + 1 == bytes ? t->byte_end : t->byte;
            if (!add_symbol(&k->symbol, table[(unsigned char)utf8[b]]))
                return false;
        }
    }
    for (uint32_t i = 0; i + 1 < k->symbol.n; i++)
        if (!consider(t, k, i))
            return false;
    while (k->heap.n > 0)
        if (!merge_first(t, k))
            return false;
    const struct symbol *s = k->symbol.p;
    for (uint32_t i = 0; i != NOBODY && i < k->symbol.n; i = s[i].next)
        if (!vec_push(out, s[i].id < 0 ? &t->end : &s[i].id))
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
    struct scratch k = { .clean.elem = sizeof(uint32_t),
                         .symbol.elem = sizeof(struct symbol),
                         .heap.elem = sizeof(struct candidate) };
    const size_t len = strlen(WORD_END_TEXT);
    bool ok = true;
    for (size_t i = 0; ok && i < n;) { /* the end token is looked for as it is written */
        const char *end = memmem(text + i, n - i, WORD_END_TEXT, len);
        size_t plain = end ? (size_t)(end - (text + i)) : n - i;
        ok = encode_plain(t, text + i, plain, &k, out) && (!end || vec_push(out, &t->end));
        i += plain + (end ? len : 0);
    }
    vec_release(&k.clean);
    vec_release(&k.symbol);
    vec_release(&k.heap);
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "tokens of %zu bytes of text", n);
}
