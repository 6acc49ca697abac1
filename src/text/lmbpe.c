/* lmbpe.c: text to ids, and ids to bytes. */
#include "text/lmbpe_impl.h"

#include "base/utf8.h"
#include "text/bpe_impl.h"
#include "text/unicode.h"

#include <string.h>

static berth_status no_memory(size_t n, berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "tokens of %zu bytes of text", n);
}

/* ---- normal text ---- */

static void add_well_formed(const char *s, size_t n, struct str *out)
{
    size_t from = 0;
    for (size_t i = 0, len; i < n; i += len ? len : 1) {
        len = utf8_step(s + i, n - i);
        if (len)
            continue;
        str_add(out, s + from, i - from);
        str_adds(out, "\xef\xbf\xbd");
        from = i + 1;
    }
    str_add(out, s + from, n - from);
}

/* Below U+0300 all text is composed already; 0xcc is the first byte of U+0300. */
static bool may_compose(const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if ((uint8_t)s[i] >= 0xcc)
            return true;
    return false;
}

static bool add_composed(const char *s, size_t n, struct str *out)
{
    struct vec points = { .elem = sizeof(uint32_t) };
    bool ok = uc_decode(s, n, &points) && uc_nfc(&points);
    const uint32_t *c = points.p;
    for (size_t i = 0; ok && i < points.n; i++) {
        char utf8[4];
        str_add(out, utf8, utf8_put(c[i], utf8));
    }
    vec_release(&points);
    return ok;
}

/* Stops where the limit is passed: what comes behind does not matter any more. */
static void replace(const struct bpe_step *p, const char *s, size_t n, struct str *out)
{
    size_t from = 0, len = strlen(p->pattern);
    while (n - from >= len && out->n <= LMBPE_NORMAL_MAX) {
        const char *hit = memmem(s + from, n - from, p->pattern, len);
        if (!hit)
            break;
        str_add(out, s + from, (size_t)(hit - (s + from)));
        str_adds(out, p->to);
        from = (size_t)(hit - s) + len;
    }
    str_add(out, s + from, n - from);
}

/* *text becomes what a step makes of it. */
static void take_step(const struct bpe_step *p, struct str *text)
{
    struct str next = { 0 };
    if (p->pattern) {
        replace(p, str_c(text), text->n, &next);
    } else if (text->n) {
        str_adds(&next, p->to);
        str_add(&next, str_c(text), text->n);
    }
    next.bad |= text->bad;
    str_release(text);
    *text = next;
}

berth_status lmbpe_normalize(const struct lmbpe *t, const char *s, size_t n, struct str *out,
                             berth_err *err)
{
    struct str text = { 0 };
    bool ok = true;
    if (t->nfc && may_compose(s, n))
        ok = add_composed(s, n, &text);
    else
        add_well_formed(s, n, &text);
    for (size_t i = 0; i < t->steps && text.n <= LMBPE_NORMAL_MAX; i++)
        take_step(&t->step[i], &text);
    bool large = text.n > LMBPE_NORMAL_MAX - out->n;
    if (!large)
        str_add(out, str_c(&text), text.n);
    ok = ok && !text.bad && !out->bad;
    str_release(&text);
    if (!ok)
        return no_memory(n, err);
    return large ? err_set(err, BERTH_ELIMIT, "a prompt whose normal form has more than %u bytes",
                           LMBPE_NORMAL_MAX)
                 : BERTH_OK;
}

/* ---- words ---- */

struct scratch {       /* of one lmbpe_encode() */
    struct str normal; /* all of it that was, one part behind the other */
    struct merge_work merge;
};
struct word {
    const struct lmbpe *t;
    const char *s;
};

/* Ranks as the list of all splits of all tokens would have them: by the token's id, then by those
 * of its halves. Ids have 20 bits. */
static bool join_text(const void *user, const struct symbol *l, const struct symbol *r,
                      struct joined *out)
{
    const struct word *w = user;
    out->id = vocab_find(&w->t->vocab, w->s + l->at, l->n + r->n);
    out->rank =
        (uint64_t)(uint32_t)out->id << 40 | (uint64_t)(uint32_t)l->id << 20 | (uint32_t)r->id;
    return out->id >= 0;
}

static bool add_character(const struct lmbpe *t, const char *s, size_t n, struct merge_work *w)
{
    int32_t id = vocab_find(&t->vocab, s, n);
    if (id >= 0 || !t->byte_fallback)
        return merge_add(w, id, n, false);
    for (size_t i = 0; i < n; i++)
        if (!merge_add(w, t->byte[(uint8_t)s[i]], 1, false))
            return false;
    return true;
}

static bool add_symbols(const struct lmbpe *t, const char *s, size_t n, struct merge_work *w)
{
    if (t->symbols != SYMBOL_CHARACTERS) {
        for (size_t i = 0; i < n; i++)
            if (!merge_add(w, t->byte[(uint8_t)s[i]], 1, false))
                return false;
        return true;
    }
    for (size_t i = 0, len; i < n; i += len) {
        len = utf8_step(s + i, n - i);
        len = len ? len : 1;
        if (!add_character(t, s + i, len, w))
            return false;
    }
    return true;
}

static bool encode_word(const struct lmbpe *t, const char *s, size_t n, struct scratch *k,
                        struct vec *out)
{
    const struct word word = { .t = t, .s = s };
    bool after_unknown = false;
    merge_begin(&k->merge);
    if (!add_symbols(t, s, n, &k->merge) ||
        !(t->by_text ? merge_all(&k->merge, join_text, &word)
                     : merge_all(&k->merge, pairs_join, &t->pairs)))
        return false;
    for (const struct symbol *p = merge_first(&k->merge); p; p = merge_next(&k->merge, p)) {
        bool unknown = p->id < 0, again = unknown && after_unknown && t->fuse_unknown;
        after_unknown = unknown;
        if (!again && !vec_push(out, unknown ? &t->unknown : &p->id))
            return false;
    }
    return true;
}

static bool encode_words(const struct lmbpe *t, const char *s, size_t n, struct scratch *k,
                         struct vec *out)
{
    for (size_t i = 0, len; i < n; i += len) {
        len = split_word(&t->split, s + i, n - i);
        if (!encode_word(t, s + i, len, k, out))
            return false;
    }
    return true;
}

/* ---- between added tokens ---- */

static berth_status encode_plain(const struct lmbpe *t, const char *s, size_t n, struct scratch *k,
                                 struct vec *out, berth_err *err)
{
    struct added_hit hit;
    size_t from = 0, begin = k->normal.n;
    if (lmbpe_normalize(t, s, n, &k->normal, err))
        return err->code;
    s = str_c(&k->normal) + begin;
    size_t len = k->normal.n - begin;
    for (; added_find(&t->normal, s, len, from, &hit); from = hit.to)
        if (!encode_words(t, s + from, hit.from - from, k, out) || !vec_push(out, &hit.id))
            return no_memory(n, err);
    return encode_words(t, s + from, len - from, k, out) ? BERTH_OK : no_memory(n, err);
}

berth_status lmbpe_encode(const void *tok, const char *text, size_t n, struct vec *out,
                          berth_err *err)
{
    const struct lmbpe *t = tok;
    if (n > TEXT_PROMPT_MAX)
        return err_set(err, BERTH_ELIMIT, "text of %zu bytes, more than %u", n, TEXT_PROMPT_MAX);
    struct scratch k = { .merge = merge_init() };
    struct added_hit hit;
    size_t from = 0;
    berth_status s = BERTH_OK;
    for (; !s && added_find(&t->raw, text, n, from, &hit); from = hit.to) {
        s = encode_plain(t, text + from, hit.from - from, &k, out, err);
        if (!s && !vec_push(out, &hit.id))
            s = no_memory(n, err);
    }
    if (!s)
        s = encode_plain(t, text + from, n - from, &k, out, err);
    str_release(&k.normal);
    merge_release(&k.merge);
    return s;
}

/* ---- ids to bytes ---- */

/* Characters that stand for bytes. One that does not stays what it is. */
static void add_bytes(const struct lmbpe *t, const char *s, size_t n, struct str *out)
{
    for (size_t i = 0, len; i < n; i += len) {
        uint32_t c = uc_point(s + i, n - i, &len);
        len = len ? len : 1;
        if (c >= 0x100 && c < 0x100 + LMBPE_HIGH)
            str_addc(out, (char)t->high[c - 0x100]);
        else if (c < 0x100 && bpe_byte_is_printable(c))
            str_addc(out, (char)c);
        else
            str_add(out, s + i, len);
    }
}

static void add_characters(const char *s, size_t n, struct str *out)
{
    for (size_t i = 0; i < n;)
        if (str_starts(s + i, n - i, METASPACE)) {
            str_addc(out, ' ');
            i += strlen(METASPACE);
        } else {
            str_addc(out, s[i++]);
        }
}

/* Of a vocabulary of characters. The blank that was put in front of the text is left out. */
static void add_piece(const struct lmbpe *t, const char *s, size_t n, bool first, struct str *out)
{
    int byte = t->byte_fallback ? text_byte_piece(s, n) : -1;
    if (byte >= 0) {
        str_addc(out, (char)byte);
        return;
    }
    size_t skip = first && t->blank_in_front && str_starts(s, n, METASPACE) ? strlen(METASPACE) : 0;
    add_characters(s + skip, n - skip, out);
}

bool lmbpe_bytes(const void *tok, int32_t id, unsigned how, struct str *out)
{
    const struct lmbpe *t = tok;
    size_t n;
    const char *s = vocab_text(&t->extra, id, &n);
    if (s) {
        bool shown = !t->special[id] || how & TEXT_SPECIAL;
        str_add(out, s, shown ? n : 0);
        return shown;
    }
    s = vocab_text(&t->vocab, id, &n);
    if (!s)
        return false;
    if (t->symbols == SYMBOL_BYTES)
        add_bytes(t, s, n, out);
    else if (t->symbols == SYMBOL_RAW)
        str_add(out, s, n);
    else
        add_piece(t, s, n, how & TEXT_FIRST, out);
    return true;
}

int32_t lmbpe_find(const void *tok, const char *text)
{
    const struct lmbpe *t = tok;
    int32_t id = vocab_find(&t->extra, text, strlen(text));
    return id >= 0 ? id : vocab_find(&t->vocab, text, strlen(text));
}

struct token_ids lmbpe_ids(const void *tok)
{
    const struct lmbpe *t = tok;
    return (struct token_ids) { .start = t->start, .end = -1, .pad = t->pad };
}
