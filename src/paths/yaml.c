/* yaml: a reader of lines; two levels of keys, then a scalar. See yaml.h. */
#include "paths/yaml.h"

#include "base/str.h"

#include <strings.h>

struct line {
    const char *s; /* behind the indentation */
    size_t n;      /* without the line end; spaces at the end are there */
    size_t indent;
    unsigned number;
};

struct yaml {
    const char *file;
    const char *p, *end;
    unsigned number; /* of the line at p */
    unsigned sections;
    struct yaml_doc *out;
    berth_err *err;
};

static berth_status wrong(struct yaml *y, unsigned number, const char *what)
{
    return err_set(y->err, BERTH_EFORMAT, "%s: line %u: %s", y->file, number, what);
}

static berth_status no_memory(struct yaml *y)
{
    return err_set(y->err, BERTH_ENOMEM, "%s: line %u", y->file, y->number);
}

/* ---- lines ---- */

/* The line at p, not taken yet; false: no more. */
static bool peek(const struct yaml *y, struct line *out)
{
    if (y->p == y->end)
        return false;
    const char *nl = memchr(y->p, '\n', (size_t)(y->end - y->p));
    const char *end = nl ? nl : y->end;
    if (end > y->p && end[-1] == '\r')
        end--;
    const char *s = y->p;
    while (s < end && *s == ' ')
        s++;
    *out = (struct line) { s, (size_t)(end - s), (size_t)(s - y->p), y->number };
    return true;
}

static void take(struct yaml *y)
{
    const char *nl = memchr(y->p, '\n', (size_t)(y->end - y->p));
    y->p = nl ? nl + 1 : y->end;
    y->number++;
}

static bool is_space(char c)
{
    return c == ' ' || c == '\t';
}

static size_t skip_space(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && is_space(s[i]))
        i++;
    return i;
}

/* Nothing but spaces, or a comment. */
static bool is_blank(const struct line *l)
{
    size_t i = skip_space(l->s, l->n);
    return i == l->n || l->s[i] == '#';
}

/* The next line that says something, not taken yet. *more false: none. */
static berth_status next_line(struct yaml *y, struct line *out, bool *more)
{
    while ((*more = peek(y, out)) && is_blank(out))
        take(y);
    if (*more && out->s[0] == '\t')
        return wrong(y, out->number, "a tab in the indentation, expected spaces");
    if (*more && out->indent == 0 && str_eq(out->s, out->n, "...")) {
        y->p = y->end; /* the end of the document */
        *more = false;
    }
    return BERTH_OK;
}

/* ---- scalars ---- */

/* What may follow a scalar on its line. */
static bool only_comment(const char *s, size_t n)
{
    size_t i = skip_space(s, n);
    return i == n || (i > 0 && s[i] == '#');
}

static void add_utf8(struct str *out, uint32_t c)
{
    if (c < 0x80) {
        str_addc(out, (char)c);
    } else if (c < 0x800) {
        str_addc(out, (char)(0xc0 | c >> 6));
        str_addc(out, (char)(0x80 | (c & 63)));
    } else if (c < 0x10000) {
        str_addc(out, (char)(0xe0 | c >> 12));
        str_addc(out, (char)(0x80 | (c >> 6 & 63)));
        str_addc(out, (char)(0x80 | (c & 63)));
    } else {
        str_addc(out, (char)(0xf0 | c >> 18));
        str_addc(out, (char)(0x80 | (c >> 12 & 63)));
        str_addc(out, (char)(0x80 | (c >> 6 & 63)));
        str_addc(out, (char)(0x80 | (c & 63)));
    }
}

/* \xNN, \uNNNN, \UNNNNNNNN: `digits` of them at s. false: no such character. */
static bool escape_hex(const char *s, size_t n, size_t digits, struct str *out)
{
    uint32_t c = 0;
    if (n < digits)
        return false;
    for (size_t i = 0; i < digits; i++) {
        char d = s[i];
        int v = d >= '0' && d <= '9'   ? d - '0'
                : d >= 'a' && d <= 'f' ? d - 'a' + 10
                : d >= 'A' && d <= 'F' ? d - 'A' + 10
                                       : -1;
        if (v < 0)
            return false;
        c = c << 4 | (uint32_t)v;
    }
    if (c < 0x20 || c == 0x7f || (c >= 0xd800 && c < 0xe000) || c > 0x10ffff)
        return false;
    add_utf8(out, c);
    return true;
}

/* A quoted scalar at s; *used: bytes, with both quotes. */
static berth_status quoted(struct yaml *y, const struct line *l, const char *s, size_t n,
                           struct str *out, size_t *used)
{
    static const char plain[] = "\\\\\"\"//  t\tn\n"; /* pairs: what is written, what is meant */
    char quote = s[0];
    for (size_t i = 1; i < n; i++) {
        if (s[i] == quote && quote == '\'' && i + 1 < n && s[i + 1] == quote) {
            str_addc(out, s[i++]);
        } else if (s[i] == quote) {
            *used = i + 1;
            return BERTH_OK;
        } else if (s[i] == '\\' && quote == '"' && i + 1 < n) {
            char c = s[++i];
            size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0, k = 0;
            while (!digits && plain[k] && plain[k] != c)
                k += 2;
            if (digits ? !escape_hex(s + i + 1, n - i - 1, digits, out) : !plain[k])
                return wrong(y, l->number, "an escape that is not known in quoted text");
            if (!digits)
                str_addc(out, plain[k + 1]);
            i += digits;
        } else {
            str_addc(out, s[i]);
        }
    }
    return wrong(y, l->number, "quoted text does not end on its line");
}

/* Length of a plain scalar at s: up to a comment, without spaces at the end. */
static berth_status plain(struct yaml *y, const struct line *l, const char *s, size_t n,
                          size_t *len, size_t *used)
{
    if (n && strchr("[]{}&*!|>%@`,?", s[0]))
        return wrong(y, l->number,
                     s[0] == '[' || s[0] == '{' ? "lists and mappings in brackets here are not "
                                                  "supported"
                     : s[0] == '&' || s[0] == '*'
                         ? "anchors and aliases are not supported: write "
                           "it out"
                         : "text that begins with a sign of YAML: quote it");
    if (n && s[0] == '-' && (n == 1 || is_space(s[1])))
        return wrong(y, l->number, "a list; expected text, several paths as a block under '|'");
    size_t i = 0;
    for (; i < n; i++) {
        if (s[i] == '#' && i && is_space(s[i - 1]))
            break;
        if (s[i] == ':' && (i + 1 == n || is_space(s[i + 1])))
            return wrong(y, l->number, "a ':' in the middle of text: quote it, or mind the levels");
    }
    *used = i;
    while (i && is_space(s[i - 1]))
        i--;
    *len = i;
    return BERTH_OK;
}

/* The lines of a block scalar; l: the key's line, s: behind '|' or '>'. */
static berth_status block(struct yaml *y, const struct line *l, bool folded, const char *s,
                          size_t n, struct str *out)
{
    size_t indent = 0, i = 0;
    bool chomp = false;
    for (; i < n && !is_space(s[i]); i++) {
        if (s[i] >= '1' && s[i] <= '9' && !indent)
            indent = l->indent + (size_t)(s[i] - '0');
        else if ((s[i] == '+' || s[i] == '-') && !chomp)
            chomp = true; /* how it ends does not matter to a list of paths */
        else
            return wrong(y, l->number, "an indicator behind '|' or '>' that is not known");
    }
    if (!only_comment(s + i, n - i))
        return wrong(y, l->number, "text behind '|' or '>', expected it on the next lines");
    bool joins = false; /* a folded line before this one */
    for (struct line at; peek(y, &at); take(y)) {
        if (at.n == 0) { /* blank: it keeps what is deeper, and ends a folded paragraph */
            joins = false;
            str_addc(out, '\n');
            continue;
        }
        if (!indent && at.indent > l->indent)
            indent = at.indent;
        if (!indent || at.indent < indent) {
            if (at.indent > l->indent && !is_blank(&at))
                return wrong(y, at.number, "less indented than the block it is in");
            break;
        }
        size_t deeper = at.indent - indent;
        if (joins && !deeper && !is_space(at.s[0]))
            str_addc(out, ' ');
        else if (out->n && out->p[out->n - 1] != '\n')
            str_addc(out, '\n');
        str_add(out, at.s - deeper, at.n + deeper);
        joins = folded && !deeper && !is_space(at.s[0]);
    }
    return BERTH_OK;
}

static bool is_null(const char *s, size_t n)
{
    return n == 0 || str_eq(s, n, "~") || str_eq(s, n, "null") || str_eq(s, n, "Null") ||
           str_eq(s, n, "NULL");
}

/* Deeper lines that go on with plain text. */
static berth_status continued(struct yaml *y, const struct line *l, struct str *out)
{
    for (;;) {
        struct line at;
        bool more;
        size_t len, used;
        if (next_line(y, &at, &more))
            return y->err->code;
        if (!more || at.indent <= l->indent)
            return BERTH_OK;
        if (!out->n && (at.s[0] == '"' || at.s[0] == '\'')) {
            if (quoted(y, &at, at.s, at.n, out, &used))
                return y->err->code;
            if (!only_comment(at.s + used, at.n - used))
                return wrong(y, at.number, "text behind a quote");
            take(y);
            return BERTH_OK;
        }
        if (plain(y, &at, at.s, at.n, &len, &used))
            return y->err->code;
        if (out->n)
            str_addc(out, ' ');
        str_add(out, at.s, len);
        take(y);
        if (used < at.n) /* a comment ends it */
            return BERTH_OK;
    }
}

/* The value behind "key:" on line l, which is taken already. *is: there is one. */
static berth_status scalar(struct yaml *y, const struct line *l, const char *s, size_t n,
                           struct str *out, bool *is)
{
    size_t skip = skip_space(s, n), len, used;
    s += skip;
    n -= skip;
    *is = true;
    if (n && s[0] == '#')
        n = 0;
    if (n && (s[0] == '|' || s[0] == '>'))
        return block(y, l, s[0] == '>', s + 1, n - 1, out);
    if (n && (s[0] == '"' || s[0] == '\'')) {
        if (quoted(y, l, s, n, out, &used))
            return y->err->code;
        return only_comment(s + used, n - used) ? BERTH_OK
                                                : wrong(y, l->number, "text behind a quote");
    }
    if (plain(y, l, s, n, &len, &used))
        return y->err->code;
    str_add(out, s, len);
    if (used == n && continued(y, l, out))
        return y->err->code;
    *is = out->n && !(out->n == len && is_null(s, len));
    return BERTH_OK;
}

/* ---- keys ---- */

/* "key:" at the beginning of a line; *rest: where the value is. */
static berth_status key_of(struct yaml *y, const struct line *l, struct str *key, size_t *rest)
{
    size_t i = 0;
    if (l->s[0] == '"' || l->s[0] == '\'') {
        if (quoted(y, l, l->s, l->n, key, &i))
            return y->err->code;
        i += skip_space(l->s + i, l->n - i);
    } else {
        if (strchr("-?[]{}&*!|>%@`,", l->s[0]))
            return wrong(y, l->number, "expected 'name:'");
        while (i < l->n && !(l->s[i] == ':' && (i + 1 == l->n || is_space(l->s[i + 1]))) &&
               !(l->s[i] == '#' && is_space(l->s[i - 1]))) /* a key begins with no '#' */
            i++;
        size_t len = i;
        while (len && is_space(l->s[len - 1]))
            len--;
        str_add(key, l->s, len);
    }
    if (key->bad)
        return no_memory(y);
    if (i >= l->n || l->s[i] != ':' || !key->n)
        return wrong(y, l->number, "expected 'name:'");
    *rest = i + 1;
    return BERTH_OK;
}

static berth_status add_entry(struct yaml *y, const struct line *l, berth_err *err)
{
    struct str key = { 0 }, value = { 0 };
    size_t rest = 0;
    bool is = false;
    berth_status s = y->out->entry.n < YAML_ENTRIES_MAX
                         ? key_of(y, l, &key, &rest)
                         : err_set(err, BERTH_ELIMIT, "%s: line %u: more than %d entries", y->file,
                                   l->number, YAML_ENTRIES_MAX);
    if (!s) {
        take(y);
        s = scalar(y, l, l->s + rest, l->n - rest, &value, &is);
    }
    struct yaml_entry *e = s ? NULL : vec_add(&y->out->entry);
    if (!s && (!e || key.bad || value.bad))
        s = no_memory(y);
    if (!s) {
        if (is && !value.n) /* "": said, and empty */
            str_adds(&value, "");
        *e = (struct yaml_entry) { y->sections, l->number, str_take(&key),
                                   is ? str_take(&value) : NULL };
    }
    str_release(&key);
    str_release(&value);
    return s;
}

/* The entries below a section's line. */
static berth_status section(struct yaml *y, const struct line *head)
{
    size_t indent = 0;
    for (;;) {
        struct line l;
        bool more;
        if (next_line(y, &l, &more))
            return y->err->code;
        if (!more || l.indent <= head->indent)
            return BERTH_OK;
        if (!indent)
            indent = l.indent;
        if (l.indent != indent)
            return wrong(y, l.number, "indented unlike the entries above it");
        if (add_entry(y, &l, y->err))
            return y->err->code;
    }
}

/* A piece of "{...}" at s: quoted, or plain up to one of `ends`. *used: its bytes, spaces behind it
 * too. */
static berth_status flow_piece(struct yaml *y, const struct line *l, const char *s, size_t n,
                               const char *ends, struct str *out, size_t *used)
{
    size_t i = 0, len;
    if (n && (s[0] == '"' || s[0] == '\'')) {
        if (quoted(y, l, s, n, out, &i))
            return y->err->code;
    } else {
        if (n && strchr("[]{&*!|>%@`?", s[0]))
            return wrong(y, l->number, "a sign of YAML inside of {}: quote it");
        while (i < n && !strchr(ends, s[i]) && !(s[i] == '#' && i && is_space(s[i - 1])))
            i++;
        for (len = i; len && is_space(s[len - 1]);)
            len--;
        str_add(out, s, len);
    }
    *used = i + skip_space(s + i, n - i);
    return out->bad ? no_memory(y) : BERTH_OK;
}

/* One "key: value" of "{...}" at s. */
static berth_status flow_entry(struct yaml *y, const struct line *l, const char *s, size_t n,
                               size_t *used)
{
    struct str key = { 0 }, value = { 0 };
    size_t k = 0, v = 0;
    bool bare = false;
    berth_status st = flow_piece(y, l, s, n, ":,}", &key, &k);
    if (!st && (k >= n || s[k] != ':' || !key.n))
        st = wrong(y, l->number, "expected 'name: text' inside of {}");
    if (!st) {
        k++;
        k += skip_space(s + k, n - k);
        bare = k < n && s[k] != '"' && s[k] != '\'';
        st = flow_piece(y, l, s + k, n - k, ",}", &value, &v);
    }
    if (!st && y->out->entry.n >= YAML_ENTRIES_MAX)
        st = err_set(y->err, BERTH_ELIMIT, "%s: line %u: more than %d entries", y->file, l->number,
                     YAML_ENTRIES_MAX);
    struct yaml_entry *e = st ? NULL : vec_add(&y->out->entry);
    if (!st && !e)
        st = no_memory(y);
    if (!st) {
        bool is = !bare || !is_null(str_c(&value), value.n);
        if (is && !value.n)
            str_adds(&value, "");
        *e = (struct yaml_entry) { y->sections, l->number, str_take(&key),
                                   is ? str_take(&value) : NULL };
    }
    str_release(&key);
    str_release(&value);
    *used = k + v;
    return st;
}

/* "{key: text, ...}" behind a section's name, s behind the brace. */
static berth_status flow_section(struct yaml *y, const struct line *l, const char *s, size_t n)
{
    for (size_t i = skip_space(s, n), used;; i += used) {
        if (i < n && s[i] == '}')
            return only_comment(s + i + 1, n - i - 1) ? BERTH_OK
                                                      : wrong(y, l->number, "text behind '}'");
        if (i >= n)
            return wrong(y, l->number, "'{' does not end on its line");
        if (flow_entry(y, l, s + i, n - i, &used))
            return y->err->code;
        i += used;
        used = 0;
        if (i < n && s[i] == ',')
            used = 1 + skip_space(s + i + 1, n - i - 1);
        else if (i < n && s[i] != '}')
            return wrong(y, l->number, "expected ',' or '}'");
    }
}

static berth_status sections(struct yaml *y)
{
    size_t indent = 0;
    bool first = true;
    for (;; y->sections++, first = false) {
        struct line l;
        bool more;
        size_t rest;
        if (next_line(y, &l, &more))
            return y->err->code;
        if (more && first && l.indent == 0 && str_eq(l.s, l.n, "---")) {
            take(y);
            if (next_line(y, &l, &more))
                return y->err->code;
        }
        if (!more)
            return BERTH_OK;
        indent = first ? l.indent : indent;
        if (l.indent != indent)
            return wrong(y, l.number, "indented unlike the sections above it");
        struct str key = { 0 };
        berth_status s = key_of(y, &l, &key, &rest);
        str_release(&key);
        if (s)
            return s;
        take(y);
        const char *v = l.s + rest;
        size_t n = l.n - rest, skip = skip_space(v, n), len = 0, used = 0;
        bool nothing = skip == n || v[skip] == '#';
        if (!nothing && v[skip] == '{') {
            if (flow_section(y, &l, v + skip + 1, n - skip - 1))
                return y->err->code;
            continue;
        }
        if (!nothing && plain(y, &l, v + skip, n - skip, &len, &used))
            return y->err->code;
        if (!nothing && !is_null(v + skip, len))
            return wrong(y, l.number, "a section with a value, expected entries on the next lines");
        if (nothing && section(y, &l))
            return y->err->code;
    }
}

/* Control characters would end up in paths and messages. */
static berth_status check_text(struct yaml *y)
{
    unsigned line = 1;
    for (const char *p = y->p; p < y->end; p++) {
        line += *p == '\n';
        if (((unsigned char)*p < 0x20 && *p != '\n' && *p != '\r' && *p != '\t') || *p == 0x7f)
            return wrong(y, line, "a control character");
    }
    return str_is_utf8(y->p, (size_t)(y->end - y->p))
               ? BERTH_OK
               : err_set(y->err, BERTH_EFORMAT, "%s: not UTF-8", y->file);
}

berth_status yaml_parse(const char *text, size_t n, const char *file, struct yaml_doc *out,
                        berth_err *err)
{
    out->entry.elem = sizeof(struct yaml_entry);
    if (n > YAML_BYTES_MAX)
        return err_set(err, BERTH_ELIMIT, "%s: %zu bytes, at most %zu", file, n, YAML_BYTES_MAX);
    if (n >= 3 && memcmp(text, "\xef\xbb\xbf", 3) == 0) { /* a mark that Windows editors leave */
        text += 3;
        n -= 3;
    }
    struct yaml y = {
        .file = file, .p = text, .end = text + n, .number = 1, .out = out, .err = err
    };
    return check_text(&y) ? err->code : sections(&y);
}

void yaml_release(struct yaml_doc *d)
{
    for (size_t i = 0; i < d->entry.n; i++) {
        struct yaml_entry *e = vec_at(&d->entry, i);
        free(e->key);
        free(e->value);
    }
    vec_release(&d->entry);
}

bool yaml_bool(const char *s, bool *out)
{
    static const char *const word[2][4] = { { "n", "no", "false", "off" },
                                            { "y", "yes", "true", "on" } };
    for (int v = 0; v < 2; v++)
        for (int i = 0; i < 4; i++)
            if (strcasecmp(s, word[v][i]) == 0) {
                *out = v;
                return true;
            }
    size_t digits = strspn(s, "0123456789"); /* Python takes what is not 0 for true */
    if (!digits || s[digits])
        return false;
    *out = strspn(s, "0") != digits;
    return true;
}
