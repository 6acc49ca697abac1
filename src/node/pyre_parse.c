/* pyre_parse: a regular expression to a tree, as Python's re reads it and with its errors. */
#include "node/py.h"
#include "node/pyre_tree.h"

#include <stdlib.h>
#include <string.h>

/* ---- errors ---- */

/* At byte `at`, which people count in characters. */
struct tree *re_fail_at(struct parser *p, size_t at, const char *what)
{
    size_t place = py_len(p->s, at);
    if (p->failed)
        return NULL;
    p->failed = true;
    if (memchr(p->s, '\n', p->n)) {
        size_t line = 1, column = 1;
        for (size_t i = 0; i < at; i++) {
            column = p->s[i] == '\n' ? 1 : column + ((p->s[i] & 0xc0) != 0x80);
            line += p->s[i] == '\n';
        }
        err_set(p->err, BERTH_EINVAL, "%s at position %zu (line %zu, column %zu)", what, place,
                line, column);
    } else {
        err_set(p->err, BERTH_EINVAL, "%s at position %zu", what, place);
    }
    return NULL;
}

static struct tree *fail(struct parser *p, const char *what)
{
    if (!p->failed)
        err_set(p->err, BERTH_EINVAL, "%s", what);
    p->failed = true;
    return NULL;
}

static struct tree *no_memory(struct parser *p)
{
    if (!p->failed)
        err_set(p->err, BERTH_ENOMEM, "a regular expression");
    p->failed = true;
    return NULL;
}

static struct tree *limit(struct parser *p, const char *what)
{
    if (!p->failed)
        err_set(p->err, BERTH_ELIMIT, "the regular expression %s", what);
    p->failed = true;
    return NULL;
}

static struct tree *unsupported(struct parser *p, const char *what)
{
    if (!p->failed)
        err_set(p->err, BERTH_EUNSUPPORTED, "%s in a regular expression is not supported", what);
    p->failed = true;
    return NULL;
}

static struct tree *new_tree(struct parser *p, enum kind kind)
{
    struct tree *t = arena_alloc(&p->p->mem, sizeof *t);
    if (!t)
        return no_memory(p);
    t->kind = kind;
    t->flags = p->flags;
    return t;
}

/* ---- characters of the pattern ---- */

static void skip_verbose(struct parser *p)
{
    while ((p->flags & PYRE_VERBOSE) && more(p)) {
        if (memchr(" \t\n\r\v\f", look(p), 6)) {
            p->at++;
        } else if (look(p) == '#') {
            while (more(p) && look(p) != '\n')
                p->at++;
        } else {
            return;
        }
    }
}

/* ---- escapes ---- */

/* Exactly `digits` of them; false: said. */
static bool hex(struct parser *p, size_t from, size_t digits, uint32_t *out)
{
    *out = 0;
    size_t i = 0;
    for (; i < digits && more(p) && str_hex(look(p)) >= 0; i++)
        *out = *out * 16 + (uint32_t)str_hex(p->s[p->at++]);
    char text[48];
    snprintf(text, sizeof text, "incomplete escape %.*s", (int)(p->at - from), p->s + from);
    if (i < digits)
        re_fail_at(p, from, text);
    else if (*out > 0x10ffff) {
        snprintf(text, sizeof text, "bad escape %.*s", (int)(p->at - from), p->s + from);
        re_fail_at(p, from, text);
    }
    return !p->failed;
}

bool re_bad_escape(struct parser *p, size_t from)
{
    char text[32];
    snprintf(text, sizeof text, "bad escape %.*s", (int)(p->at - from > 12 ? 12 : p->at - from),
             p->s + from);
    re_fail_at(p, from, text);
    return false;
}

static bool class_escape(char c, struct escape *e)
{
    static const char letters[] = "dDwWsS";
    const char *at = c ? strchr(letters, c) : NULL;
    if (!at)
        return false;
    *e = (struct escape) { .is = E_MEMBER,
                           .member = (enum re_member)(IN_DIGIT + (at - letters) / 2),
                           .inverse = (at - letters) % 2 };
    return true;
}

static bool octal(struct parser *p, size_t from, size_t most, struct escape *e)
{
    e->is = E_CHAR;
    e->c = 0;
    for (size_t i = 0; i < most && is_octal(look(p)); i++)
        e->c = e->c * 8 + (uint32_t)(p->s[p->at++] - '0');
    if (e->c > 0377) {
        char text[64];
        snprintf(text, sizeof text, "octal escape value %.*s outside of range 0-0o377",
                 (int)(p->at - from), p->s + from);
        re_fail_at(p, from, text);
    }
    return !p->failed;
}

/* What both sides of [ ] know. *known: it was one of them. */
static bool common_escape(struct parser *p, size_t from, char c, struct escape *e, bool *known)
{
    static const char name[] = "afnrtv\\", value[] = "\a\f\n\r\t\v\\";
    const char *at = strchr(name, c);
    *known = true;
    e->is = E_CHAR;
    if (c && at) {
        e->c = (uint32_t)value[at - name];
        return true;
    }
    if (c == 'x' || c == 'u' || c == 'U')
        return hex(p, from, c == 'x' ? 2 : c == 'u' ? 4 : 8, &e->c);
    if (c == 'N')
        return unsupported(p, "\\N{...}");
    *known = false;
    return true;
}

/* The digit in front of p->at, behind '\', and what follows: octal, or the number of a group. */
bool re_numbered(struct parser *p, size_t from, struct escape *e)
{
    char c = p->s[p->at - 1];
    if (c == '0')
        return octal(p, from, 2, e);
    if (is_digit(look(p))) {
        char second = look(p), third = p->at + 1 < p->n ? p->s[p->at + 1] : 0;
        if (is_octal(c) && is_octal(second) && is_octal(third)) {
            p->at--;
            return octal(p, from, 3, e);
        }
        p->at++;
    }
    *e = (struct escape) { .is = E_GROUP };
    for (size_t i = from + 1; i < p->at; i++)
        e->c = e->c * 10 + (uint32_t)(p->s[i] - '0');
    return true;
}

/* Behind '\', outside of [ ]. */
static bool escape(struct parser *p, struct escape *e)
{
    static const struct {
        char c;
        enum re_at at;
    } places[] = { { 'A', AT_START }, { 'Z', AT_TEXT_END }, { 'b', AT_WORD }, { 'B', AT_NO_WORD } };
    size_t from = p->at - 1;
    bool known;
    if (!more(p)) {
        re_fail_at(p, from, "bad escape (end of pattern)");
        return false;
    }
    char c = look(p);
    if ((unsigned char)c >= 0x80) {
        *e = (struct escape) { .is = E_CHAR, .c = next_point(p) };
        return true;
    }
    p->at++;
    for (size_t i = 0; i < ARRAY_LEN(places); i++)
        if (places[i].c == c) {
            *e = (struct escape) { .is = E_AT, .c = places[i].at };
            return true;
        }
    if (class_escape(c, e))
        return true;
    if (!common_escape(p, from, c, e, &known) || known)
        return !p->failed;
    if (is_digit(c))
        return re_numbered(p, from, e);
    *e = (struct escape) { .is = E_CHAR, .c = (uint32_t)c };
    return !is_letter(c) || re_bad_escape(p, from);
}

/* Behind '\', within [ ]. */
static bool set_escape(struct parser *p, struct escape *e)
{
    size_t from = p->at - 1;
    bool known;
    if (!more(p)) {
        re_fail_at(p, from, "bad escape (end of pattern)");
        return false;
    }
    char c = look(p);
    if ((unsigned char)c >= 0x80) {
        *e = (struct escape) { .is = E_CHAR, .c = next_point(p) };
        return true;
    }
    if (is_octal(c))
        return octal(p, from, 3, e);
    p->at++;
    if (class_escape(c, e))
        return true;
    if (c == 'b') {
        *e = (struct escape) { .is = E_CHAR, .c = '\b' };
        return true;
    }
    if (!common_escape(p, from, c, e, &known) || known)
        return !p->failed;
    *e = (struct escape) { .is = E_CHAR, .c = (uint32_t)c };
    return !(is_letter(c) || is_digit(c)) || re_bad_escape(p, from);
}

/* ---- sets ---- */

static bool set_member(struct parser *p, struct escape *e)
{
    if (take(p, '\\'))
        return set_escape(p, e);
    *e = (struct escape) { .is = E_CHAR, .c = next_point(p) };
    return true;
}

static bool bad_range(struct parser *p, size_t from)
{
    char text[64];
    size_t n = p->at - from;
    snprintf(text, sizeof text, "bad character range %.*s", (int)(n > 32 ? 32 : n), p->s + from);
    re_fail_at(p, from, text);
    return false;
}

static int by_start(const void *a, const void *b)
{
    const struct re_range *x = a, *y = b;
    return (x->from > y->from) - (x->from < y->from);
}

/* Sorts them and joins those that touch. */
static void merge_ranges(struct re_set *s)
{
    size_t n = 0;
    if (s->n)
        qsort(s->range, s->n, sizeof *s->range, by_start);
    for (size_t i = 0; i < s->n; i++) {
        struct re_range r = s->range[i];
        if (!n || r.from > s->range[n - 1].to + 1)
            s->range[n++] = r;
        else if (r.to > s->range[n - 1].to)
            s->range[n - 1].to = r.to;
    }
    s->n = n;
}

static void add_member(struct re_set *s, const struct escape *e)
{
    (e->inverse ? s->out : s->in)[e->member] = true;
}

static struct tree *set(struct parser *p)
{
    size_t open = p->at - 1;
    struct vec range = { .elem = sizeof(struct re_range) };
    struct re_set *made = arena_alloc(&p->p->mem, sizeof *made);
    bool ok = made, first = true;
    if (!made)
        return no_memory(p);
    made->inverse = take(p, '^');
    while (ok && (first || look(p) != ']')) {
        size_t from = p->at;
        struct escape low = { 0 }, high = { 0 };
        first = false;
        if (!more(p)) {
            re_fail_at(p, open, "unterminated character set");
            break;
        }
        ok = set_member(p, &low);
        struct re_range r = { low.c, low.c };
        if (ok && look(p) == '-' && p->at + 1 < p->n && p->s[p->at + 1] != ']') {
            p->at++;
            ok = set_member(p, &high);
            if (ok && (low.is == E_MEMBER || high.is == E_MEMBER || high.c < low.c))
                ok = bad_range(p, from);
            r.to = ok ? high.c : 0;
        } else if (ok && look(p) == '-' && p->at + 1 >= p->n) {
            p->at = p->n;
            re_fail_at(p, open, "unterminated character set");
            break;
        }
        if (ok && low.is == E_MEMBER)
            add_member(made, &low);
        else if (ok && !vec_push(&range, &r))
            no_memory(p);
        ok = ok && !p->failed;
    }
    p->at += ok && !p->failed;
    made->n = range.n;
    made->range = arena_array(&p->p->mem, range.n ? range.n : 1, sizeof *made->range);
    if (made->range && range.n)
        memcpy(made->range, range.p, range.n * sizeof *made->range);
    vec_release(&range);
    if (!made->range)
        return no_memory(p);
    merge_ranges(made);
    struct tree *t = p->failed ? NULL : new_tree(p, T_SET);
    if (t)
        t->set = made;
    return t;
}

static struct tree *member(struct parser *p, const struct escape *e)
{
    struct re_set *s = arena_alloc(&p->p->mem, sizeof *s);
    struct tree *t = s ? new_tree(p, T_SET) : no_memory(p);
    if (!t)
        return NULL;
    add_member(s, e);
    t->set = s;
    return t;
}

/* ---- groups ---- */

static struct tree *alternatives(struct parser *p);
static struct tree *sequence(struct parser *p);

bool re_find_name(const struct pyre *p, const char *s, size_t n, unsigned *out)
{
    for (size_t i = 0; i < p->name.n; i++) {
        const struct pyre_name *x = vec_at(&p->name, i);
        if (str_eq(s, n, x->name)) {
            *out = x->group;
            return true;
        }
    }
    return false;
}

/* Up to `end`, which is taken. False: said. */
bool re_name_until(struct parser *p, char end, const char *what, const char **name, size_t *n)
{
    size_t from = p->at;
    char text[64];
    while (more(p) && look(p) != end)
        p->at++;
    *name = p->s + from;
    *n = p->at - from;
    if (*n && more(p)) {
        p->at++;
        return true;
    }
    if (*n)
        snprintf(text, sizeof text, "missing %c, unterminated name", end);
    else
        snprintf(text, sizeof text, "missing %s", what);
    re_fail_at(p, from, text);
    return false;
}

bool re_is_identifier(const char *s, size_t n)
{
    bool ok = n && !is_digit(*s);
    for (size_t i = 0; i < n; i++)
        ok =
            ok && (is_letter(s[i]) || is_digit(s[i]) || s[i] == '_' || (unsigned char)s[i] >= 0x80);
    return ok;
}

bool re_bad_name(struct parser *p, const char *name, size_t n)
{
    struct str text = { 0 };
    str_adds(&text, "bad character in group name ");
    py_repr_text(name, n, 100, &text);
    re_fail_at(p, (size_t)(name - p->s), str_c(&text));
    str_release(&text);
    return false;
}

static bool new_group(struct parser *p, const char *name, size_t n, unsigned *out)
{
    unsigned known;
    if (p->p->groups + 1 >= PYRE_GROUPS_MAX)
        return limit(p, "has too many groups");
    *out = ++p->p->groups;
    p->open[*out] = true;
    if (!name)
        return true;
    if (re_find_name(p->p, name, n, &known)) {
        struct str text = { 0 };
        str_adds(&text, "redefinition of group name ");
        py_repr_text(name, n, 100, &text);
        str_addf(&text, " as group %u; was group %u", *out, known);
        re_fail_at(p, (size_t)(name - p->s), str_c(&text));
        str_release(&text);
        return false;
    }
    struct pyre_name x = { arena_strndup(&p->p->mem, name, n), *out };
    return (x.name && vec_push(&p->p->name, &x)) || no_memory(p);
}

/* ')' closes it. */
static bool close_group(struct parser *p, size_t open)
{
    if (take(p, ')'))
        return true;
    re_fail_at(p, open, "missing ), unterminated subpattern");
    return false;
}

static struct tree *wrap(struct parser *p, enum kind kind, struct tree *kid)
{
    struct tree *t = kid ? new_tree(p, kind) : NULL;
    if (t)
        t->kid = kid;
    return t;
}

static struct tree *capture(struct parser *p, size_t open, const char *name, size_t n)
{
    unsigned group = 0, flags = p->flags;
    if (!new_group(p, name, n, &group))
        return NULL;
    struct tree *t = wrap(p, T_GROUP, alternatives(p));
    if (!t || !close_group(p, open))
        return NULL;
    p->flags = flags;
    p->open[group] = false;
    t->c = group;
    return t;
}

static struct tree *backref(struct parser *p, size_t from, uint32_t group)
{
    char text[64];
    if (group == 0 || group > p->p->groups) {
        snprintf(text, sizeof text, "invalid group reference %u", group);
        return re_fail_at(p, from + 1, text);
    }
    if (p->open[group])
        return re_fail_at(p, from, "cannot refer to an open group");
    struct tree *t = new_tree(p, T_BACK);
    if (t)
        t->c = group;
    return t;
}

/* Points a tree matches, the least and the most. */
void re_width(const struct tree *t, uint64_t *low, uint64_t *high)
{
    uint64_t a, b;
    *low = *high = 0;
    switch (t->kind) {
    case T_CHAR:
    case T_ANY:
    case T_SET:
        *low = *high = 1;
        break;
    case T_CAT:
        for (const struct tree *k = t->kid; k; k = k->next) {
            re_width(k, &a, &b);
            *low += a;
            *high += b;
        }
        break;
    case T_ALT:
    case T_COND:
        *low = UINT64_MAX;
        for (const struct tree *k = t->kid; k; k = k->next) {
            re_width(k, &a, &b);
            *low = a < *low ? a : *low;
            *high = b > *high ? b : *high;
        }
        if (t->kind == T_COND && !t->kid->next)
            *low = 0;
        break;
    case T_REPEAT:
        re_width(t->kid, &a, &b);
        *low = a * t->min;
        *high = t->max == MANY ? (b ? MANY : 0) : b * t->max;
        break;
    case T_GROUP:
    case T_ATOMIC:
        re_width(t->kid, low, high);
        break;
    case T_BACK: /* unknown: as re says, from 0 on */
        *high = MANY;
        break;
    case T_EMPTY:
    case T_AT:
    case T_LOOK:
        break;
    }
    *low = *low > MANY ? MANY : *low;
    *high = *high > MANY ? MANY : *high;
}

static struct tree *look_around(struct parser *p, size_t open, bool behind, bool inverse)
{
    unsigned flags = p->flags;
    struct tree *t = wrap(p, T_LOOK, alternatives(p));
    if (!t || !close_group(p, open))
        return NULL;
    p->flags = flags;
    t->behind = behind;
    t->inverse = inverse;
    if (behind) {
        uint64_t low, high;
        re_width(t->kid, &low, &high);
        if (low != high)
            return fail(p, "look-behind requires fixed-width pattern");
        t->c = (uint32_t)low;
    }
    return t;
}

static struct tree *condition(struct parser *p, size_t open)
{
    const char *name;
    size_t n;
    unsigned group = 0;
    if (!re_name_until(p, ')', "group name", &name, &n))
        return NULL;
    bool number = true;
    for (size_t i = 0; i < n; i++)
        number = number && is_digit(name[i]);
    if (number) {
        uint64_t v = 0;
        if (!str_parse_u64(name, n, &v) || v == 0)
            return re_fail_at(p, (size_t)(name - p->s), "bad group number");
        if (v >= PYRE_GROUPS_MAX)
            return re_fail_at(p, (size_t)(name - p->s), "invalid group reference");
        group = (unsigned)v; /* it may come later */
    } else if (!re_is_identifier(name, n)) {
        re_bad_name(p, name, n);
        return NULL;
    } else if (!re_find_name(p->p, name, n, &group)) {
        struct str text = { 0 };
        str_adds(&text, "unknown group name ");
        py_repr_text(name, n, 100, &text);
        re_fail_at(p, (size_t)(name - p->s), str_c(&text));
        str_release(&text);
        return NULL;
    }
    if (!p->cond[group])
        p->cond[group] = (size_t)(name - p->s) + 1;
    if (++p->depth > PYRE_DEPTH_MAX)
        return limit(p, "is nested too deeply");
    struct tree *t = wrap(p, T_COND, sequence(p));
    if (t && take(p, '|'))
        t->kid->next = sequence(p);
    p->depth--;
    if (!t || p->failed)
        return NULL;
    if (look(p) == '|')
        return re_fail_at(p, p->at, "conditional backref with more than two branches");
    t->c = group;
    return close_group(p, open) ? t : NULL;
}

static unsigned flag_of(char c)
{
    return c == 'i'   ? PYRE_IGNORECASE
           : c == 'm' ? PYRE_MULTILINE
           : c == 's' ? PYRE_DOTALL
           : c == 'x' ? PYRE_VERBOSE
           : c == 'a' ? PYRE_ASCII
                      : 0;
}

/* (?i) for all, (?i-s: ) for a group. */
static struct tree *flags(struct parser *p, size_t open)
{
    unsigned add = 0, drop = 0, before = p->flags;
    for (; flag_of(look(p)) || look(p) == 'u'; p->at++)
        add |= flag_of(look(p));
    if (look(p) == 'L')
        return unsupported(p, "the flag L");
    if (take(p, ')')) {
        if (open)
            return re_fail_at(p, open, "global flags not at the start of the expression");
        p->flags |= add;
        return new_tree(p, T_EMPTY);
    }
    if (take(p, '-')) {
        size_t from = p->at;
        for (; flag_of(look(p)) && look(p) != 'a'; p->at++)
            drop |= flag_of(look(p));
        if (p->at == from)
            return re_fail_at(p, p->at, more(p) ? "unknown flag" : "missing flag");
    }
    if (!take(p, ':'))
        return re_fail_at(p, p->at, more(p) ? "unknown flag" : "missing -, : or )");
    p->flags = (p->flags | add) & ~drop;
    struct tree *t = wrap(p, T_GROUP, alternatives(p));
    p->flags = before;
    return t && close_group(p, open) ? t : NULL;
}

/* (?P... */
static struct tree *named(struct parser *p, size_t open)
{
    const char *name;
    size_t n;
    unsigned group;
    if (take(p, '<')) {
        if (!re_name_until(p, '>', "group name", &name, &n))
            return NULL;
        return re_is_identifier(name, n) ? capture(p, open, name, n)
                                         : (re_bad_name(p, name, n), (struct tree *)NULL);
    }
    if (take(p, '=')) {
        if (!re_name_until(p, ')', "group name", &name, &n))
            return NULL;
        if (!re_is_identifier(name, n)) {
            re_bad_name(p, name, n);
            return NULL;
        }
        if (re_find_name(p->p, name, n, &group))
            return backref(p, open, group);
        struct str text = { 0 };
        str_adds(&text, "unknown group name ");
        py_repr_text(name, n, 100, &text);
        re_fail_at(p, (size_t)(name - p->s), str_c(&text));
        str_release(&text);
        return NULL;
    }
    char text[48];
    if (!more(p))
        return re_fail_at(p, p->at, "unexpected end of pattern");
    snprintf(text, sizeof text, "unknown extension ?P%c", look(p));
    return re_fail_at(p, open + 1, text);
}

/* Behind '('. */
static struct tree *group(struct parser *p)
{
    size_t open = p->at - 1;
    unsigned before = p->flags;
    struct tree *t;
    if (!take(p, '?'))
        return capture(p, open, NULL, 0);
    if (!more(p))
        return re_fail_at(p, p->at, "unexpected end of pattern");
    char c = p->s[p->at++];
    switch (c) {
    case 'P':
        return named(p, open);
    case ':':
        t = wrap(p, T_GROUP, alternatives(p));
        p->flags = before;
        return t && close_group(p, open) ? t : NULL;
    case '>':
        t = wrap(p, T_ATOMIC, alternatives(p));
        p->flags = before;
        return t && close_group(p, open) ? t : NULL;
    case '#':
        while (more(p) && look(p) != ')')
            p->at++;
        return take(p, ')') ? new_tree(p, T_EMPTY)
                            : re_fail_at(p, open, "missing ), unterminated comment");
    case '=':
    case '!':
        return look_around(p, open, false, c == '!');
    case '<':
        if (!more(p))
            return re_fail_at(p, p->at, "unexpected end of pattern");
        if (take(p, '='))
            return look_around(p, open, true, false);
        if (take(p, '!'))
            return look_around(p, open, true, true);
        {
            char text[32];
            snprintf(text, sizeof text, "unknown extension ?<%c", look(p));
            return re_fail_at(p, open + 1, text);
        }
    case '(':
        return condition(p, open);
    default:
        p->at--;
        if (flag_of(c) || c == 'u' || c == 'L' || c == '-')
            return flags(p, open);
        {
            char text[32];
            snprintf(text, sizeof text, "unknown extension ?%c", c);
            return re_fail_at(p, open + 1, text);
        }
    }
}

/* ---- sequences ---- */

/* {m,n} behind '{'. False: no such, and p->at is where it was. */
static bool counts(struct parser *p, uint32_t *min, uint32_t *max)
{
    size_t from = p->at;
    uint64_t low = 0, high = MANY;
    const char *a = p->s + p->at;
    size_t an = 0, bn = 0;
    if (look(p) == '}')
        return false;
    while (is_digit(look(p)))
        p->at++, an++;
    const char *b = a;
    bool comma = take(p, ',');
    if (comma) {
        b = p->s + p->at;
        while (is_digit(look(p)))
            p->at++, bn++;
    } else {
        bn = an;
    }
    if (!take(p, '}')) {
        p->at = from;
        return false;
    }
    bool fits = (!an || str_parse_u64(a, an, &low)) && (!bn || str_parse_u64(b, bn, &high));
    if (!fits || low >= MANY || (bn && high >= MANY)) {
        limit(p, "repeats too many times");
        return true;
    }
    if (high < low)
        re_fail_at(p, from - 1, "min repeat greater than max repeat");
    *min = (uint32_t)low;
    *max = (uint32_t)high;
    return true;
}

/* One item without what repeats it; NULL without failure: the sequence ends. */
static struct tree *item(struct parser *p)
{
    size_t from = p->at;
    char c = look(p);
    struct tree *t;
    struct escape e;
    if (c == '|' || c == ')')
        return NULL;
    if (c == '*' || c == '+' || c == '?')
        return re_fail_at(p, from, "nothing to repeat");
    if (c == '{') { /* {2} has nothing in front of it; { is a letter */
        uint32_t a, b;
        p->at++;
        if (counts(p, &a, &b))
            return re_fail_at(p, from, "nothing to repeat");
        p->at = from;
    }
    if (take(p, '('))
        return group(p);
    if (take(p, '['))
        return set(p);
    if (take(p, '.'))
        return new_tree(p, T_ANY);
    if (take(p, '^') || take(p, '$')) {
        t = new_tree(p, T_AT);
        bool lines = p->flags & PYRE_MULTILINE;
        if (t)
            t->c = c == '^' ? (lines ? AT_LINE_START : AT_START) : lines ? AT_LINE_END : AT_END;
        return t;
    }
    e = (struct escape) { .is = E_CHAR };
    if (take(p, '\\')) {
        if (!escape(p, &e))
            return NULL;
    } else {
        e.c = next_point(p);
    }
    if (e.is == E_MEMBER)
        return member(p, &e);
    if (e.is == E_GROUP)
        return backref(p, from, e.c);
    t = new_tree(p, e.is == E_AT ? T_AT : T_CHAR);
    if (t)
        t->c = e.c;
    return t;
}

/* *, +, ?, {m,n} behind an item, and how. */
static struct tree *repeats(struct parser *p, struct tree *of)
{
    for (bool again = false;; again = true) {
        skip_verbose(p);
        size_t from = p->at;
        uint32_t min = 0, max = MANY;
        if (take(p, '*')) {
        } else if (take(p, '+')) {
            min = 1;
        } else if (take(p, '?')) {
            max = 1;
        } else if (take(p, '{')) {
            if (!counts(p, &min, &max)) {
                p->at = from;
                return of;
            }
            if (p->failed)
                return NULL;
        } else {
            return of;
        }
        if (again)
            return re_fail_at(p, from, "multiple repeat");
        if (of->kind == T_AT || of->kind == T_EMPTY)
            return re_fail_at(p, from, "nothing to repeat");
        struct tree *t = wrap(p, T_REPEAT, of);
        if (!t)
            return NULL;
        t->min = min;
        t->max = max;
        t->how = take(p, '?') ? LAZY : take(p, '+') ? POSSESSIVE : GREEDY;
        of = t;
    }
}

/* Whether no instruction would come of it. Such items do not even enter the tree: billions of
 * copies of nothing would take forever. */
static bool is_nothing(const struct tree *t)
{
    switch (t->kind) {
    case T_EMPTY:
        return true;
    case T_CAT:
        return !t->kid;
    case T_GROUP:
        return !t->c && is_nothing(t->kid);
    case T_REPEAT:
        return t->max == 0 || is_nothing(t->kid);
    default:
        return false;
    }
}

static struct tree *sequence(struct parser *p)
{
    struct tree *t = new_tree(p, T_CAT), **end = t ? &t->kid : NULL;
    while (t && !p->failed) {
        skip_verbose(p);
        if (!more(p))
            break;
        struct tree *one = item(p);
        if (!one)
            break;
        one = repeats(p, one);
        if (!one)
            break;
        if (is_nothing(one))
            continue;
        *end = one;
        end = &one->next;
    }
    return p->failed ? NULL : t;
}

static struct tree *alternatives(struct parser *p)
{
    if (++p->depth > PYRE_DEPTH_MAX)
        return limit(p, "is nested too deeply");
    struct tree *first = sequence(p);
    if (first && look(p) == '|') {
        struct tree *all = wrap(p, T_ALT, first), **end = &first->next;
        while (all && take(p, '|')) {
            *end = sequence(p);
            if (!*end)
                return NULL;
            end = &(*end)->next;
        }
        first = all;
    }
    p->depth--;
    return first;
}

/* ---- all together ---- */

berth_status pyre_compile(struct pyre *p, const char *s, size_t n, unsigned flags, berth_err *err)
{
    *p = (struct pyre) { .code.elem = sizeof(struct pyre_code),
                         .name.elem = sizeof(struct pyre_name) };
    struct parser x = { .p = p, .s = s, .n = n, .flags = flags, .err = err };
    if (n > PYRE_MAX)
        return err_set(err, BERTH_ELIMIT, "the regular expression has %zu bytes; the limit is %d",
                       n, PYRE_MAX);
    struct tree *t = alternatives(&x);
    if (t && more(&x))
        t = re_fail_at(&x, x.at, "unbalanced parenthesis");
    for (unsigned i = p->groups + 1; t && i < PYRE_GROUPS_MAX; i++)
        if (x.cond[i]) { /* conditions may name groups that come later */
            char text[64];
            snprintf(text, sizeof text, "invalid group reference %u", i);
            t = re_fail_at(&x, x.cond[i] - 1, text);
        }
    if (!t)
        return err->code;
    return pyre_emit(p, t, err);
}

void pyre_release(struct pyre *p)
{
    arena_release(&p->mem);
    vec_release(&p->code);
    vec_release(&p->name);
    *p = (struct pyre) { 0 };
}
