/* unigram.c: text to ids: the pieces whose scores sum up highest (text-encoders.md 5). */
#include "text/unigram_impl.h"

#include "base/utf8.h"
#include "text/unicode.h"

#include <string.h>

struct place { /* behind a byte of a word: the best way to come here */
    double score;
    uint32_t from; /* where the last piece of it begins */
    int32_t id;    /* of that piece; -1: nothing ends here */
};
struct scratch {       /* of one unigram_encode() */
    struct str clean;  /* the text, well-formed */
    struct str normal; /* a part of it between special tokens, normal */
    struct vec place;  /* struct place */
    struct vec back;   /* uint32_t: ends of pieces, last first */
    struct merge_work merge;
};

static berth_status no_memory(size_t n, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "tokens of %zu bytes of text", n);
}

/* ---- the best way through a word ---- */

/* Strictly better only: of two ways the one found first stays. */
static void offer(const struct unigram *t, struct place *to, double score, uint32_t from,
                  int32_t id)
{
    if (to->id >= 0 && score <= to->score)
        return;
    *to = (struct place) { .score = t->sentencepiece ? (double)(float)score : score,
                           .from = from,
                           .id = id };
}

/* place[0..n] of the word; every one that ends a character is reached in the end, by pieces or by
 * the character as something unknown. */
static void find_best(const struct unigram *t, const char *s, size_t n, struct place *place)
{
    for (size_t i = 0; i <= n; i++)
        place[i] = (struct place) { .id = -1 };
    for (size_t i = 0, step; i < n; i += step) {
        struct trie_walk w = { 0 };
        bool single = false;
        step = utf8_step(s + i, n - i);
        step = step ? step : 1;
        while (trie_next(&t->piece, s + i, n - i, &w)) {
            offer(t, &place[i + w.len], place[i].score + t->score[w.id], (uint32_t)i, w.id);
            single = single || w.len == step;
        }
        if (!single)
            offer(t, &place[i + step], place[i].score + t->unknown_score, (uint32_t)i, t->unknown);
    }
}

bool unigram_add_unknown(const struct unigram *t, const char *s, size_t n, struct vec *out)
{
    if (!t->byte_fallback)
        return vec_push(out, &t->unknown);
    for (size_t i = 0; i < n; i++)
        if (!vec_push(out, &t->byte[(uint8_t)s[i]]))
            return false;
    return true;
}

static bool encode_word(const struct unigram *t, const char *s, size_t n, struct scratch *k,
                        struct vec *out)
{
    if (t->merges)
        return unigram_merge_word(t, s, n, &k->merge, out);
    k->back.n = 0;
    if (!vec_reserve(&k->place, n + 1))
        return false;
    struct place *place = k->place.p;
    find_best(t, s, n, place);
    for (uint32_t at = (uint32_t)n; at > 0; at = place[at].from)
        if (!vec_push(&k->back, &at))
            return false;
    for (size_t i = k->back.n; i-- > 0;) {
        uint32_t end = *(uint32_t *)vec_at(&k->back, i), from = place[end].from;
        if (place[end].id != t->unknown) {
            if (!vec_push(out, &place[end].id))
                return false;
            continue;
        }
        while (i > 0 && place[*(uint32_t *)vec_at(&k->back, i - 1)].id == t->unknown)
            end = *(uint32_t *)vec_at(&k->back, --i); /* neighbours are one */
        if (!unigram_add_unknown(t, s + from, end - from, out))
            return false;
    }
    return true;
}

/* ---- public ---- */

/* Text between special tokens. first: at the beginning of all text. */
static berth_status encode_plain(const struct unigram *t, const char *s, size_t n, bool first,
                                 struct scratch *k, struct vec *out, berth_err *err)
{
    str_clear(&k->normal);
    if (unigram_normalize(t, s, n, first, &k->normal, err))
        return err->code;
    const char *p = str_c(&k->normal);
    for (size_t i = 0, end; i < k->normal.n; i = end) {
        for (end = i + 1; end < k->normal.n; end++)
            if (t->split_metaspace && str_starts(p + end, k->normal.n - end, METASPACE))
                break;
        if (!encode_word(t, p + i, end - i, k, out))
            return no_memory(n, err);
    }
    return BERTH_OK;
}

/* Start of the first added token in s, the longest there; n: there is none. */
static size_t find_special(const struct unigram *t, const char *s, size_t n, size_t *len,
                           struct special *out)
{
    *len = 0;
    for (size_t i = 0; !t->sentencepiece && i < n; i++) {
        int32_t at;
        if ((*len = trie_longest(&t->token, s + i, n - i, &at))) {
            *out = *(struct special *)vec_at(&t->special, (size_t)at);
            return i;
        }
    }
    return n;
}

static berth_status encode_clean(const struct unigram *t, const char *s, size_t n,
                                 struct scratch *k, struct vec *out, berth_err *err)
{
    for (size_t i = 0; i < n;) {
        struct special special = { 0 };
        size_t len, plain = find_special(t, s + i, n - i, &len, &special);
        const char *from = s + i;
        size_t keep = plain;
        unigram_strip(false, len && special.lstrip, &from, &keep);
        if (encode_plain(t, from, keep, i == 0, k, out, err))
            return err->code;
        if (len && !vec_push(out, &special.id))
            return no_memory(n, err);
        i += plain + len;
        const char *rest = s + i;
        size_t left = n - i;
        unigram_strip(len && special.rstrip, false, &rest, &left);
        i = n - left;
    }
    return BERTH_OK;
}

berth_status unigram_encode(const struct unigram *t, const char *text, size_t n, struct vec *out,
                            berth_err *err)
{
    if (n > TEXT_PROMPT_MAX)
        return err_set(err, BERTH_ELIMIT, "text of %zu bytes, more than %u", n, TEXT_PROMPT_MAX);
    struct scratch k = { .place.elem = sizeof(struct place),
                         .back.elem = sizeof(uint32_t),
                         .merge = merge_init() };
    for (size_t i = 0, len; i < n; i += len ? len : 1) {
        len = utf8_step(text + i, n - i);
        str_add(&k.clean, len ? text + i : "\xef\xbf\xbd", len ? len : 3);
    }
    berth_status s =
        k.clean.bad ? no_memory(n, err) : encode_clean(t, str_c(&k.clean), k.clean.n, &k, out, err);
    str_release(&k.clean);
    str_release(&k.normal);
    vec_release(&k.place);
    vec_release(&k.back);
    merge_release(&k.merge);
    return s;
}
