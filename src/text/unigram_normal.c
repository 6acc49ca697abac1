/* unigram_normal.c: text as pieces are looked for in it: rules of the character map, blanks.
 *
 * Hugging Face applies the map's rules to graphemes. For one of fewer than six bytes it takes the
 * shortest rule that the grapheme begins with: "e" with a circumflex and an acute loses the acute,
 * and a kana with its voiced mark (six bytes) is not composed. What has no such rule, or is longer,
 * is looked up character by character. SentencePiece takes the longest rule at each place. Models
 * were made with either, so both are here. */
#include "text/unigram_impl.h"

#include "text/unicode.h"

#include <string.h>

#define GRAPHEME_MAX 6 /* bytes from which on it is looked up by characters */

static berth_status check_size(const struct str *s, berth_err *err)
{
    if (s->bad)
        return err_set(err, BERTH_ENOMEM, "the tokens of a prompt");
    if (s->n > UNIGRAM_NORMAL_MAX)
        return err_set(err, BERTH_ELIMIT, "a prompt whose normal form has more than %u bytes",
                       UNIGRAM_NORMAL_MAX);
    return BERTH_OK;
}

/* ---- graphemes ---- */

/* Joins what follows it (Prepend of UAX #29). */
static bool prepends(uint32_t c)
{
    return (c >= 0x600 && c <= 0x605) || c == 0x6dd || c == 0x70f || c == 0x890 || c == 0x891 ||
           c == 0x8e2 || c == 0xd4e;
}

/* Control, CR and LF of UAX #29. Private use and most of what is not assigned are none of them:
 * marks join such characters. */
static bool parts_graphemes(uint32_t c)
{
    static const struct {
        uint32_t first, last;
    } run[] = {
        { 0, 0x1f },          { 0x7f, 0x9f },       { 0xad, 0xad },       { 0x61c, 0x61c },
        { 0x180e, 0x180e },   { 0x200b, 0x200b },   { 0x200e, 0x200f },   { 0x2028, 0x202e },
        { 0x2060, 0x206f },   { 0xfeff, 0xfeff },   { 0xfff0, 0xfffb },   { 0x13430, 0x1343f },
        { 0x1bca0, 0x1bca3 }, { 0x1d173, 0x1d17a }, { 0xe0000, 0xe001f }, { 0xe0080, 0xe00ff },
        { 0xe01f0, 0xe0fff },
    };
    size_t i = 0;
    while (i < ARRAY_LEN(run) && c > run[i].last)
        i++;
    return i < ARRAY_LEN(run) && c >= run[i].first;
}

/* Bytes of the grapheme at s. Rules for what takes six bytes or more anyway (Hangul, flags,
 * families of emoji) are left out: there only characters count. */
static size_t grapheme(const char *s, size_t n)
{
    size_t len, step;
    uint32_t c = uc_point(s, n, &len);
    if (!len)
        return 1;
    if (c == '\r' && n > 1 && s[1] == '\n')
        return 2;
    while (len < n && !parts_graphemes(c)) {
        uint32_t next = uc_point(s + len, n - len, &step);
        if (!step || parts_graphemes(next) || !(uc_joins(next) || prepends(c)))
            break;
        len += step;
        c = next;
    }
    return len;
}

static void map_part(const struct charsmap *m, const char *s, size_t n, struct str *out)
{
    struct charsmap_hit hit;
    if (charsmap_find(m, s, n, false, &hit))
        str_add(out, hit.to, hit.n);
    else
        str_add(out, s, n);
}

static berth_status map_graphemes(const struct charsmap *m, const char *s, size_t n,
                                  struct str *out, berth_err *err)
{
    for (size_t i = 0, len; i < n; i += len) {
        struct charsmap_hit hit;
        len = grapheme(s + i, n - i);
        if (len < GRAPHEME_MAX && charsmap_find(m, s + i, len, false, &hit)) {
            str_add(out, hit.to, hit.n);
        } else {
            for (size_t k = 0, c; k < len; k += c) {
                uc_point(s + i + k, len - k, &c);
                c = c ? c : 1;
                map_part(m, s + i + k, c, out);
            }
        }
        if (check_size(out, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- steps of a tokenizer.json ---- */

/* White_Space of Unicode, which Rust asks for; str.isspace() has a few controls more. */
static size_t space_at(const char *s, size_t n)
{
    size_t len;
    uint32_t c = uc_point(s, n, &len);
    return len && uc_class(c) == UC_SPACE ? len : 0;
}

void unigram_strip(bool left, bool right, const char **s, size_t *n)
{
    size_t len, end = 0;
    while (left && (len = space_at(*s, *n))) {
        *s += len;
        *n -= len;
    }
    for (size_t i = 0; right && i < *n; i += len) {
        bool space = (len = space_at(*s + i, *n - i)) > 0;
        if (!space) {
            uc_point(*s + i, *n - i, &len);
            len = len ? len : 1;
            end = i + len;
        }
    }
    if (right)
        *n = end;
}

static berth_status replace(const struct step *p, const char *s, size_t n, struct str *out,
                            berth_err *err)
{
    for (size_t i = 0; i < n;) {
        size_t len = 0;
        if (p->kind == STEP_BLANKS)
            while (i + len < n && s[i + len] == ' ')
                len++;
        bool hit = p->kind == STEP_BLANKS
                       ? len >= 2
                       : p->from_n <= n - i && memcmp(s + i, p->from, p->from_n) == 0;
        if (hit)
            str_add(out, p->to, p->to_n);
        else
            str_addc(out, s[i]);
        i += !hit ? 1 : p->kind == STEP_BLANKS ? len : p->from_n;
        if (check_size(out, err))
            return err->code;
    }
    return BERTH_OK;
}

static bool starts_meta(const char *s, size_t n)
{
    return str_starts(s, n, METASPACE);
}

/* Metaspace: blanks become U+2581, one more in front unless there is one. */
static berth_status add_words(const struct unigram *t, const char *s, size_t n, bool first,
                              struct str *out, berth_err *err)
{
    bool prefix = t->prefix == PREFIX_ALWAYS || (t->prefix == PREFIX_FIRST && first);
    for (size_t i = 0, end; i < n; i = end) {
        size_t len = 0;
        end = n;
        if (t->split_blanks) {
            end = i;
            while (end < n && !(len = space_at(s + end, n - end)))
                end++;
        }
        if (end > i && prefix && s[i] != ' ' && !starts_meta(s + i, end - i))
            str_adds(out, METASPACE);
        for (size_t k = i; k < end; k++)
            if (s[k] == ' ')
                str_adds(out, METASPACE);
            else
                str_addc(out, s[k]);
        end += len;
        if (check_size(out, err))
            return err->code;
    }
    return check_size(out, err);
}

static berth_status by_steps(const struct unigram *t, const char *s, size_t n, bool first,
                             struct str *out, berth_err *err)
{
    struct str work[2] = { 0 }; /* s lies in the one written last */
    size_t next = 0;
    berth_status status = BERTH_OK;
    for (size_t i = 0; !status && i < t->steps; i++) {
        const struct step *p = &t->step[i];
        struct str *to = &work[next];
        if (p->kind == STEP_STRIP) {
            unigram_strip(p->left, p->right, &s, &n);
            continue;
        }
        str_clear(to);
        status = p->kind == STEP_CHARSMAP ? map_graphemes(&t->map, s, n, to, err)
                                          : replace(p, s, n, to, err);
        s = str_c(to);
        n = to->n;
        next = !next;
    }
    if (!status)
        status = add_words(t, s, n, first, out, err);
    str_release(&work[0]);
    str_release(&work[1]);
    return status;
}

/* ---- SentencePiece ---- */

/* The next piece of text, normal, and the bytes it stands for. */
static size_t normal_prefix(const struct unigram *t, const char *s, size_t n, const char **to,
                            size_t *to_n)
{
    struct charsmap_hit hit;
    int32_t id;
    size_t len = trie_longest(&t->token, s, n, &id); /* what users defined stays as it is */
    if (!len && charsmap_find(&t->map, s, n, true, &hit)) {
        *to = hit.to;
        *to_n = hit.n;
        return hit.len;
    }
    if (!len)
        uc_point(s, n, &len);
    len = len ? len : 1;
    *to = s;
    *to_n = len;
    return len;
}

static berth_status in_one_pass(const struct unigram *t, const char *s, size_t n, struct str *out,
                                berth_err *err)
{
    const char *blank = t->escape ? METASPACE : " ", *to;
    size_t to_n, begin = out->n, width = strlen(blank);
    bool after_blank = t->squeeze, any = false;
    while (n > 0) {
        size_t len = normal_prefix(t, s, n, &to, &to_n);
        s += len;
        n -= len;
        if (!any && t->squeeze && to_n == 1 && *to == ' ')
            continue; /* in front of everything: without a prefix if nothing else comes */
        if (!any && t->dummy_prefix)
            str_adds(out, blank);
        any = true;
        while (after_blank && to_n && *to == ' ')
            to++, to_n--;
        for (size_t k = 0; k < to_n; k++)
            if (to[k] == ' ')
                str_adds(out, blank);
            else
                str_addc(out, to[k]);
        if (to_n)
            after_blank = t->squeeze && to[to_n - 1] == ' ';
        if (check_size(out, err))
            return err->code;
    }
    while (t->squeeze && out->n - begin >= width &&
           memcmp(out->p + out->n - width, blank, width) == 0)
        out->p[out->n -= width] = 0;
    return check_size(out, err);
}

berth_status unigram_normalize(const struct unigram *t, const char *s, size_t n, bool first,
                               struct str *out, berth_err *err)
{
    return t->sentencepiece ? in_one_pass(t, s, n, out, err) : by_steps(t, s, n, first, out, err);
}
