/* split.c: the alternatives of the regular expressions, one after the other. */
#include "text/split.h"

#include "base/attr.h"
#include "base/str.h"
#include "text/unicode.h"

#include <string.h>

#define CONTRACTIONS "'s|'t|'re|'ve|'m|'ll|'d"
#define LETTERS "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+"
#define REST "| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"

const struct split_rule split_gpt2 = { .number_blank = true };
const struct split_rule split_qwen2 = {
    .any_case = true, .any_lead = true, .numbers = 1, .line_ends = true
};
const struct split_rule split_llama3 = {
    .any_case = true, .any_lead = true, .numbers = 3, .line_ends = true
};

static const struct {
    const char *regex;
    const struct split_rule *rule;
} known[] = {
    { CONTRACTIONS "| ?\\p{L}+| ?\\p{N}+| ?[^\\s\\p{L}\\p{N}]+|\\s+(?!\\S)|\\s+", &split_gpt2 },
    { "(?i:" CONTRACTIONS ")" LETTERS "|\\p{N}" REST, &split_qwen2 },
    /* Qwen 3.5's, as ComfyUI's class cuts words all the same */
    { "(?i:" CONTRACTIONS ")|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}"
      "| ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+",
      &split_qwen2 },
    { "(?i:" CONTRACTIONS ")" LETTERS "|\\p{N}{1,3}" REST, &split_llama3 },
};

const struct split_rule *split_of_regex(const char *regex, size_t n)
{
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (str_eq(regex, n, known[i].regex))
            return known[i].rule;
    return NULL;
}

struct at { /* a character of the text; beyond its end: no bytes, UC_OTHER and not `there` */
    uint32_t c;
    size_t len;
    enum uc_class is;
    bool there;
};

static struct at look(const char *s, size_t n, size_t i)
{
    struct at a = { 0 };
    if (i >= n)
        return a;
    a.there = true;
    a.c = (unsigned char)s[i];
    a.len = 1;
    if (a.c >= 0x80) {
        a.c = uc_point(s + i, n - i, &a.len);
        a.len = a.len ? a.len : 1;
    }
    a.is = uc_class(a.c);
    return a;
}

static bool ends_line(const struct at *a)
{
    return a->c == '\r' || a->c == '\n';
}

/* Bytes of the run of this class from i on, of at most `most` characters; 0: any number. */
static size_t run_of(const char *s, size_t n, size_t i, enum uc_class k, unsigned most)
{
    size_t from = i;
    for (unsigned count = 0; !most || count < most; count++) {
        struct at a = look(s, n, i);
        if (!a.there || a.is != k)
            break;
        i += a.len;
    }
    return i - from;
}

/* U+017F, the long s, folds to s. */
static uint32_t fold(const struct at *a, bool any_case)
{
    if (!any_case)
        return a->c;
    return a->c >= 'A' && a->c <= 'Z' ? a->c + 32 : a->c == 0x17f ? 's' : a->c;
}

static size_t contraction(const struct split_rule *r, const char *s, size_t n)
{
    static const char two[][2] = { { 'r', 'e' }, { 'v', 'e' }, { 'l', 'l' } };
    if (s[0] != '\'')
        return 0;
    struct at a = look(s, n, 1), b = look(s, n, 1 + a.len);
    uint32_t x = fold(&a, r->any_case), y = fold(&b, r->any_case);
    if (a.there && (x == 's' || x == 't' || x == 'm' || x == 'd'))
        return 1 + a.len;
    for (size_t i = 0; b.there && i < ARRAY_LEN(two); i++)
        if (x == (uint32_t)two[i][0] && y == (uint32_t)two[i][1])
            return 1 + a.len + b.len;
    return 0;
}

static size_t letters(const struct split_rule *r, const char *s, size_t n, const struct at *a)
{
    bool lead = r->any_lead
                    ? a->is != UC_LETTER && a->is != UC_NUMBER && a->c != '\r' && a->c != '\n'
                    : a->c == ' ';
    size_t skip = lead ? a->len : 0, run = run_of(s, n, skip, UC_LETTER, 0);
    return run ? skip + run : 0;
}

static size_t numbers(const struct split_rule *r, const char *s, size_t n, const struct at *a)
{
    size_t skip = r->number_blank && a->c == ' ', run = run_of(s, n, skip, UC_NUMBER, r->numbers);
    return run ? skip + run : 0;
}

static size_t rest(const struct split_rule *r, const char *s, size_t n, const struct at *a)
{
    size_t skip = a->c == ' ', run = run_of(s, n, skip, UC_OTHER, 0);
    if (!run)
        return 0;
    size_t end = skip + run;
    while (r->line_ends && end < n && (s[end] == '\r' || s[end] == '\n'))
        end++;
    return end;
}

/* White space up to its last line end, where these count; else all but its last character, which
 * the next word may take; all of it at the end of the text. */
static size_t spaces(const struct split_rule *r, const char *s, size_t n)
{
    size_t end = 0, line = 0, last = 0;
    for (struct at a; (a = look(s, n, end)).there && a.is == UC_SPACE;) {
        last = end;
        end += a.len;
        if (ends_line(&a))
            line = end;
    }
    if (r->line_ends && line)
        return line;
    return end == n || last == 0 ? end : last;
}

size_t split_word(const struct split_rule *r, const char *s, size_t n)
{
    if (r->whole || n == 0)
        return n;
    struct at a = look(s, n, 0);
    size_t len = contraction(r, s, n);
    if (!len)
        len = letters(r, s, n, &a);
    if (!len)
        len = numbers(r, s, n, &a);
    if (!len)
        len = rest(r, s, n, &a);
    return len ? len : spaces(r, s, n);
}
