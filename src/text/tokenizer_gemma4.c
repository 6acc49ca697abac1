/* tokenizer_gemma4.c: Gemma 4, as a tokenizer: its files bring a tokenizer.json of pairs of
 * characters. What it writes has turns and channels in it, which are not for people. */
#include "text/carried.h"
#include "text/lmbpe.h"
#include "text/unicode.h"

#include <string.h>

#define CHANNEL "<|channel>"
#define CHANNEL_END "<channel|>"
#define THOUGHT CHANNEL "thought\n"

static const struct lmbpe_kind kind = {
    .name = "Gemma 4",
    .must = (const char *const[]) { "<bos>", "<eos>", "<pad>", NULL },
    .start = "<bos>",
    .pad = "<pad>",
};

static berth_status open_path(const char *path, void **out, berth_err *err)
{
    struct lmbpe *t;
    berth_status s = lmbpe_open(path, &kind, &t, err);
    *out = t;
    return s;
}

static berth_status carried(const struct weights *w, void **out, berth_err *err)
{
    struct carried own;
    struct lmbpe *t;
    *out = NULL;
    if (carried_find(w, "tokenizer_json", &own, err))
        return err->code;
    berth_status s = lmbpe_from_json(own.bytes, own.n, own.what, &kind, &t, err);
    *out = t;
    return s;
}

/* ---- what people see ---- */

/* The first `what` in s; NULL: none. */
static const char *next(const char *s, size_t n, const char *what)
{
    return n ? memmem(s, n, what, strlen(what)) : NULL;
}

/* "<|channel>thought\n...<channel|>" becomes "<think>\n...</think>"; one that is not closed stays
 * open, and so do those in another. */
static void mark_thoughts(const char *s, size_t n, struct str *out)
{
    const char *end = NULL, *stop = s + n;
    bool closes = true; /* there may be an end behind s */
    for (const char *hit; (hit = next(s, (size_t)(stop - s), THOUGHT));) {
        if (end && end < hit) { /* of the thought before */
            str_add(out, s, (size_t)(end - s));
            str_adds(out, "</think>");
            s = end + strlen(CHANNEL_END);
            end = NULL;
            continue;
        }
        str_add(out, s, (size_t)(hit - s));
        str_adds(out, "<think>\n");
        s = hit + strlen(THOUGHT);
        if (!end && closes)
            closes = (end = next(s, (size_t)(stop - s), CHANNEL_END));
    }
    if (end) {
        str_add(out, s, (size_t)(end - s));
        str_adds(out, "</think>");
        s = end + strlen(CHANNEL_END);
    }
    str_add(out, s, (size_t)(stop - s));
}

/* Bytes of the mark at s: a turn's or channel's beginning with its name and line end, or its end.
 * 0: there is none. */
static size_t mark_at(const char *s, size_t n)
{
    static const char *const end[] = { CHANNEL_END, "<turn|>" };
    static const char *const begin[] = { CHANNEL, "<|turn>" };
    for (size_t i = 0; i < ARRAY_LEN(end); i++)
        if (str_starts(s, n, end[i]))
            return strlen(end[i]);
    for (size_t i = 0; i < ARRAY_LEN(begin); i++) {
        size_t at = strlen(begin[i]), len;
        if (!str_starts(s, n, begin[i]))
            continue;
        for (uint32_t c; at < n; at += len) {
            c = uc_point(s + at, n - at, &len);
            if (!len || (c != '_' && uc_class(c) != UC_LETTER && uc_class(c) != UC_NUMBER))
                break;
        }
        return at + (at < n && s[at] == '\n');
    }
    return 0;
}

static size_t space_at(const char *s, size_t n)
{
    size_t len;
    uint32_t c = uc_point(s, n, &len);
    return len && uc_isspace(c) ? len : 0;
}

/* As str.strip() of Python. */
static void add_stripped(const char *s, size_t n, struct str *out)
{
    size_t end = 0;
    for (size_t len; (len = space_at(s, n)); n -= len)
        s += len;
    for (size_t i = 0, len; i < n; i += len) {
        bool space = (len = space_at(s + i, n - i)) > 0;
        len = len ? len : 1;
        end = space ? end : i + len;
    }
    str_add(out, s, end);
}

static void tidy(const char *text, size_t n, struct str *out)
{
    static const char eos[] = "<eos>";
    struct str marked = { 0 }, plain = { 0 }, whole = { 0 };
    mark_thoughts(text, n, &marked);
    const char *s = str_c(&marked);
    for (size_t i = 0, len; i < marked.n; i += len ? len : 1) {
        len = s[i] == '<' ? mark_at(s + i, marked.n - i) : 0;
        if (!len)
            str_addc(&plain, s[i]);
    }
    s = str_c(&plain);
    const char *stop = s + plain.n;
    for (const char *hit; (hit = next(s, (size_t)(stop - s), eos)); s = hit + strlen(eos))
        str_add(&whole, s, (size_t)(hit - s));
    str_add(&whole, s, (size_t)(stop - s));
    add_stripped(str_c(&whole), whole.n, out);
    out->bad |= marked.bad | plain.bad | whole.bad;
    str_release(&marked);
    str_release(&plain);
    str_release(&whole);
}

const struct tokenizer tokenizer_gemma4 = {
    .name = "Gemma 4",
    .files = "tokenizer.json",
    .folders = (const char *const[]) { "/gemma4", "/tokenizer", "", NULL },
    .own = 1,
    .beside = true,
    .any_of = (const char *const[][2]) { { "tokenizer.json" }, { NULL } },
    .open = open_path,
    .carried = carried,
    .keep_carried = true,
    LMBPE_CALLS,
    .each_byte = true,
    .tidy = tidy,
};
