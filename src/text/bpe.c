/* bpe.c: words to ids by merging the pair of lowest rank until there is none (text-encoders.md 4).
 * */
#include "text/bpe_impl.h"
#include "text/clean.h"
#include "text/unicode.h"

#include <string.h>

#define NOBODY UINT32_MAX

struct symbol { /* of a word, in a list */
    int32_t id; /* -1: unknown, -2: merged into its left neighbour */
    uint32_t prev, next;
};
struct candidate { /* a pair that can be merged */
    uint32_t rank, at;
    int32_t left, right, to;
};
struct scratch {       /* of one bpe_encode() */
    struct vec clean;  /* points */
    struct vec symbol; /* struct symbol */
    struct vec heap;   /* struct candidate, lowest rank first, then leftmost */
    struct vec fresh;  /* struct candidate: found while a rank is being merged */
};

size_t bpe_vocab(const struct bpe *t)
{
    return t->vocab;
}

int32_t bpe_start(const struct bpe *t)
{
    return t->start;
}

int32_t bpe_end(const struct bpe *t)
{
    return t->end;
}

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

/* Looks at symbols `at` and its right neighbour; a pair that merges is added to `to`. */
static bool consider(const struct bpe *t, const struct vec *symbols, uint32_t at, struct vec *to)
{
    const struct symbol *s = symbols->p;
    if (at == NOBODY || s[at].next == NOBODY || s[at].id < 0 || s[s[at].next].id < 0)
        return true;
    int32_t right = s[s[at].next].id;
    uint64_t key = (uint64_t)s[at].id << 32 | (uint32_t)right, value;
    if (!map_get(&t->merge, (const char *)&key, sizeof key, &value))
        return true;
    struct candidate *c = vec_add(to);
    if (c)
        *c = (struct candidate) { .rank = (uint32_t)(value >> 32),
                                  .at = at,
                                  .left = s[at].id,
                                  .right = right,
                                  .to = (int32_t)(value & INT32_MAX) };
    return c != NULL;
}

/* All pairs of one rank, left to right; what they become is looked at afterwards, as the reference
 * does. */
static bool merge_rank(const struct bpe *t, struct scratch *k)
{
    struct symbol *s = k->symbol.p;
    uint32_t rank = ((const struct candidate *)k->heap.p)->rank;
    while (k->heap.n > 0 && ((const struct candidate *)k->heap.p)->rank == rank) {
        struct candidate c = heap_pop(&k->heap);
        uint32_t next = s[c.at].next;
        if (s[c.at].id != c.left || next == NOBODY || s[next].id != c.right)
            continue; /* one of them was merged with another meanwhile */
        s[c.at].id = c.to;
        s[c.at].next = s[next].next;
        if (s[next].next != NOBODY)
            s[s[next].next].prev = c.at;
        s[next].id = -2;
        if (!consider(t, &k->symbol, s[c.at].prev, &k->fresh) ||
            !consider(t, &k->symbol, c.at, &k->fresh))
            return false;
    }
    for (size_t i = 0; i < k->fresh.n; i++)
        if (!heap_push(&k->heap, *(struct candidate *)vec_at(&k->fresh, i)))
            return false;
    k->fresh.n = 0;
    return true;
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

static bool add_id(struct vec *out, int32_t id)
{
    int32_t *at = vec_add(out);
    if (at)
        *at = id;
    return at != NULL;
}

static bool encode_word(const struct bpe *t, const uint32_t *c, size_t n, struct scratch *k,
                        struct vec *out)
{
    k->symbol.n = k->heap.n = k->fresh.n = 0;
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        size_t bytes = uc_encode(c[i], utf8);
        for (size_t b = 0; b < bytes; b++) {
            const int32_t *table = i + 1 == n && b + 1 == bytes ? t->byte_end : t->byte;
            if (!add_symbol(&k->symbol, table[(unsigned char)utf8[b]]))
                return false;
        }
    }
    for (uint32_t i = 0; i + 1 < k->symbol.n; i++)
        if (!consider(t, &k->symbol, i, &k->fresh))
            return false;
    for (size_t i = 0; i < k->fresh.n; i++)
        if (!heap_push(&k->heap, *(struct candidate *)vec_at(&k->fresh, i)))
            return false;
    k->fresh.n = 0;
    while (k->heap.n > 0)
        if (!merge_rank(t, k))
            return false;
    const struct symbol *s = k->symbol.p;
    for (uint32_t i = 0; i != NOBODY && i < k->symbol.n; i = s[i].next)
        if (!add_id(out, s[i].id < 0 ? t->end : s[i].id))
            return false;
    return true;
}

static bool encode_plain(const struct bpe *t, const char *s, size_t n, struct scratch *k,
                         struct vec *out)
{
    k->clean.n = 0;
    if (!text_clean(s, n, &k->clean))
        return false;
    const uint32_t *c = k->clean.p;
    size_t at = 0;
    for (struct word w; (w = text_next_word(c, k->clean.n, &at)).kind != WORD_NONE;) {
        bool ok = w.kind == WORD_PLAIN ? encode_word(t, c + w.at, w.n, k, out)
                                       : add_id(out, w.kind == WORD_START ? t->start : t->end);
        if (!ok)
            return false;
    }
    return true;
}

/* Start of the first special token written out in s; n: there is none. */
static size_t find_special(const char *s, size_t n, size_t *len, bool *is_start)
{
    for (const char *p = s; (p = memchr(p, '<', n - (size_t)(p - s))); p++) {
        size_t left = n - (size_t)(p - s);
        const char *const text[] = { WORD_END_TEXT, WORD_START_TEXT };
        for (int i = 0; i < 2; i++) {
            *len = strlen(text[i]);
            *is_start = i == 1;
            if (left >= *len && memcmp(p, text[i], *len) == 0)
                return (size_t)(p - s);
        }
    }
    *len = 0;
    return n;
}

berth_status bpe_encode(const struct bpe *t, const char *text, size_t n, struct vec *out,
                        berth_err *err)
{
    if (n > TEXT_PROMPT_MAX)
        return err_set(err, BERTH_ELIMIT, "text of %zu bytes, more than %u", n, TEXT_PROMPT_MAX);
    struct scratch k = { .clean.elem = sizeof(uint32_t),
                         .symbol.elem = sizeof(struct symbol),
                         .heap.elem = sizeof(struct candidate),
                         .fresh.elem = sizeof(struct candidate) };
    bool ok = true;
    for (size_t i = 0; ok && i < n;) {
        size_t len;
        bool start;
        size_t plain = find_special(text + i, n - i, &len, &start);
        ok = encode_plain(t, text + i, plain, &k, out) &&
             (len == 0 || add_id(out, start ? t->start : t->end));
        i += plain + len;
    }
    vec_release(&k.clean);
    vec_release(&k.symbol);
    vec_release(&k.heap);
    vec_release(&k.fresh);
    return ok ? BERTH_OK : err_set(err, BERTH_ENOMEM, "tokens of %zu bytes of text", n);
}

berth_status text_encode_bpe(const void *tok, const char *text, size_t n, struct vec *out,
                             berth_err *err)
{
    return bpe_encode(tok, text, n, out, err);
}
