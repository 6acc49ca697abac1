/* unigram_merge.c: SentencePiece's BPE: the neighbours whose piece has the best score are merged
 * first; and pieces back to text. */
#include "text/unigram_impl.h"

#include "base/utf8.h"

#include <string.h>

struct word {
    const struct unigram *t;
    const char *s;
};

/* Of the pieces that text may become; -1: none. */
static int32_t piece_of(const struct unigram *t, const char *s, size_t n)
{
    int32_t id = vocab_find(&t->text, s, n);
    return id >= 0 && (t->type[id] == PIECE_NORMAL || t->type[id] == PIECE_USER_DEFINED) ? id : -1;
}

/* Floats in descending order as numbers in ascending order; both zeros are one. */
static uint64_t rank_of(double score)
{
    float f = (float)score + 0.0f;
    uint32_t bits;
    memcpy(&bits, &f, sizeof bits);
    bits = bits >> 31 ? ~bits : bits | UINT32_C(1) << 31;
    return UINT32_MAX - bits;
}

static bool join(const void *user, const struct symbol *l, const struct symbol *r,
                 struct joined *out)
{
    const struct word *w = user;
    out->id = piece_of(w->t, w->s + l->at, l->n + r->n);
    if (out->id < 0)
        return false;
    out->rank = rank_of(w->t->score[out->id]);
    return true;
}

/* Characters, and the pieces that users defined, which stay as they are. */
static bool add_symbols(const struct unigram *t, const char *s, size_t n, struct merge_work *w)
{
    for (size_t i = 0, len; i < n; i += len) {
        int32_t id;
        len = trie_longest(&t->token, s + i, n - i, &id);
        bool fixed = len > 0;
        if (!fixed) {
            len = utf8_step(s + i, n - i);
            len = len ? len : 1;
            id = piece_of(t, s + i, len);
        }
        if (!merge_add(w, id, len, fixed))
            return false;
    }
    return true;
}

bool unigram_merge_word(const struct unigram *t, const char *s, size_t n, struct merge_work *w,
                        struct vec *out)
{
    const struct word word = { .t = t, .s = s };
    merge_begin(w);
    if (!add_symbols(t, s, n, w) || !merge_all(w, join, &word))
        return false;
    for (const struct symbol *p = merge_first(w), *q; p; p = q) {
        uint32_t end = p->at + p->n;
        q = merge_next(w, p);
        if (p->id >= 0) {
            if (!vec_push(out, &p->id))
                return false;
            continue;
        }
        for (; q && q->id < 0; q = merge_next(w, q)) /* neighbours are one */
            end = q->at + q->n;
        if (!unigram_add_unknown(t, s + p->at, end - p->at, out))
            return false;
    }
    return true;
}

/* ---- ids to bytes ---- */

int32_t unigram_find(const void *tok, const char *text)
{
    const struct unigram *t = tok;
    return vocab_find(&t->text, text, strlen(text));
}

bool unigram_bytes(const void *tok, int32_t id, unsigned how, struct str *out)
{
    const struct unigram *t = tok;
    size_t n, before = out->n;
    const char *s = vocab_text(&t->text, id, &n);
    if (!t->merges)
        BUG("a tokenizer that keeps no texts");
    if (!s || (t->type[id] == PIECE_CONTROL && !(how & TEXT_SPECIAL)))
        return false;
    if (t->type[id] == PIECE_UNKNOWN) {
        str_adds(out, " \xe2\x81\x87 ");
        return true;
    }
    int byte = t->type[id] == PIECE_BYTE ? text_byte_piece(s, n) : -1;
    if (byte >= 0) {
        str_addc(out, (char)byte);
        return true;
    }
    bool blank = how & TEXT_FIRST && (t->dummy_prefix || t->squeeze) && str_starts(s, n, METASPACE);
    for (size_t i = blank ? strlen(METASPACE) : 0; i < n;)
        if (str_starts(s + i, n - i, METASPACE)) {
            str_addc(out, ' ');
            i += strlen(METASPACE);
        } else {
            str_addc(out, s[i++]);
        }
    return out->n > before || (blank && !t->squeeze);
}
