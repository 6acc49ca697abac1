/* expr_parse: Python's grammar of expressions, by recursive descent. What the evaluator has not
 * (lists, tuples, ...) becomes a node that says so when it is evaluated, as in the reference. */
#include "base/utf8.h"
#include "node/expr_impl.h"
#include "node/py.h"

#include <string.h>

struct parser {
    struct expr *x;
    const char *at, *end;
    unsigned depth;   /* of calls */
    unsigned bracket; /* open ones: line ends are space inside */
    berth_err *err;
};

typedef const struct expr_tree tree;

/* ---- errors: all return NULL ---- */

static tree *syntax(struct parser *p)
{
    expr_raise(p->x, "SyntaxError", p->err, "invalid syntax (<unknown>, line 1)");
    return NULL;
}

static tree *unsupported(struct parser *p, const char *what)
{
    err_set(p->err, BERTH_EUNSUPPORTED, "Math Expression '%.*s': %s are not supported",
            EXPR_SHOWN(p->x), what);
    return NULL;
}

static tree *too_deep(struct parser *p)
{
    err_set(p->err, BERTH_ELIMIT,
            "Math Expression: nested more than %d brackets or %d operators deep", EXPR_NEST_MAX,
            EXPR_DEPTH_MAX);
    return NULL;
}

/* ---- nodes ---- */

static struct expr_tree *new_node(struct parser *p, enum expr_op op, size_t args)
{
    struct expr_tree *t = arena_alloc(&p->x->mem, sizeof *t);
    if (t && args)
        t->arg = arena_array(&p->x->mem, args, sizeof(tree *));
    if (!t || (args && !t->arg)) {
        expr_no_memory(p->err);
        return NULL;
    }
    t->op = op;
    t->args = args;
    t->depth = 1;
    return t;
}

/* Arguments that are there count for the depth. NULL: one of them is missing, or too deep. */
static tree *finish(struct parser *p, struct expr_tree *t)
{
    for (size_t i = 0; i < t->args; i++)
        if (t->arg[i] && t->arg[i]->depth >= t->depth)
            t->depth = t->arg[i]->depth + 1;
    return t->depth > EXPR_DEPTH_MAX ? too_deep(p) : t;
}

static tree *node2(struct parser *p, enum expr_op op, tree *a, tree *b)
{
    struct expr_tree *t = a && b ? new_node(p, op, 2) : NULL;
    if (!t)
        return NULL;
    t->arg[0] = a;
    t->arg[1] = b;
    return finish(p, t);
}

static tree *node1(struct parser *p, enum expr_op op, tree *a)
{
    struct expr_tree *t = a ? new_node(p, op, 1) : NULL;
    if (!t)
        return NULL;
    t->arg[0] = a;
    return finish(p, t);
}

static tree *constant(struct parser *p, struct ev v)
{
    struct expr_tree *t = new_node(p, OP_VALUE, 0);
    if (t)
        t->value = v;
    return t;
}

static tree *feature(struct parser *p, const char *name)
{
    struct expr_tree *t = new_node(p, OP_FEATURE, 0);
    if (t)
        t->text = name;
    return t;
}

/* ---- tokens ---- */

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

static bool is_name(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_' || is_digit(c) ||
           (unsigned char)c >= 0x80;
}

static void skip_space(struct parser *p)
{
    while (p->at < p->end) {
        char c = *p->at;
        if (c == '#') {
            while (p->at < p->end && *p->at != '\n')
                p->at++;
        } else if (c == ' ' || c == '\t' || c == '\f' || (p->bracket && (c == '\n' || c == '\r'))) {
            p->at++;
        } else {
            return;
        }
    }
}

static char peek(struct parser *p)
{
    skip_space(p);
    return p->at < p->end ? *p->at : 0;
}

static bool take(struct parser *p, const char *op)
{
    size_t n = strlen(op);
    skip_space(p);
    if ((size_t)(p->end - p->at) < n || memcmp(p->at, op, n) != 0)
        return false;
    p->at += n;
    return true;
}

static bool take_word(struct parser *p, const char *word)
{
    const char *back = p->at;
    if (take(p, word) && (p->at == p->end || !is_name(*p->at)))
        return true;
    p->at = back;
    return false;
}

/* An operator that is not the beginning of a longer one. */
static bool take_only(struct parser *p, const char *op, const char *not_before)
{
    const char *back = p->at;
    if (take(p, op) && (p->at == p->end || !strchr(not_before, *p->at)))
        return true;
    p->at = back;
    return false;
}

/* ---- numbers ---- */

static tree *based(struct parser *p, int base)
{
    __int128 v = 0;
    bool some = false;
    p->at += 2;
    for (; p->at < p->end; p->at++) {
        if (*p->at == '_' && p->at + 1 < p->end && str_hex(p->at[1]) >= 0)
            continue;
        int d = str_hex(*p->at);
        if (d < 0 || d >= base)
            break;
        if (__builtin_mul_overflow(v, base, &v) || __builtin_add_overflow(v, d, &v)) {
            expr_too_big(p->err);
            return NULL;
        }
        some = true;
    }
    if (!some || (p->at < p->end && is_name(*p->at)))
        return syntax(p);
    return constant(p, (struct ev) { .kind = EV_INT, .i = v });
}

/* Where the number at p->at ends: digits [. digits] [e[+-]digits]. */
static const char *number_end(const struct parser *p, bool *is_float)
{
    const char *s = p->at;
    *is_float = false;
#define DIGITS                                                                                     \
    while (s < p->end && (is_digit(*s) || *s == '_'))                                              \
    s++
    DIGITS;
    if (s < p->end && *s == '.') {
        *is_float = true;
        s++;
        DIGITS;
    }
    const char *e = s;
    if (s < p->end && (*s == 'e' || *s == 'E')) {
        s++;
        if (s < p->end && (*s == '+' || *s == '-'))
            s++;
        if (s < p->end && is_digit(*s)) {
            *is_float = true;
            DIGITS;
            return s;
        }
    }
#undef DIGITS
    return e;
}

static tree *number(struct parser *p)
{
    char next = p->at + 1 < p->end ? (char)(p->at[1] | 0x20) : 0;
    if (*p->at == '0' && (next == 'x' || next == 'o' || next == 'b'))
        return based(p, next == 'x' ? 16 : next == 'o' ? 8 : 2);
    bool is_float, minus;
    const char *from = p->at, *end = number_end(p, &is_float);
    size_t n = (size_t)(end - from);
    struct ev v = { .kind = is_float ? EV_FLOAT : EV_INT };
    p->at = end;
    if (end < p->end && (*end == 'j' || *end == 'J'))
        return unsupported(p, "complex numbers");
    if (is_float) {
        enum py_float got = py_parse_float(from, n, &v.f);
        if (got == PY_NO_MEMORY) {
            expr_no_memory(p->err);
            return NULL;
        }
        return got == PY_FLOAT || got == PY_INF ? constant(p, v) : syntax(p);
    }
    bool zeros = strspn(from, "0_") >= n;
    if (*from == '0' && n > 1 && !zeros)
        return syntax(p); /* 012 */
    switch (py_parse_int(from, n, &v.i, NULL, &minus)) {
    case PY_INT:
        return constant(p, v);
    case PY_INT_NO_MEMORY:
        expr_no_memory(p->err);
        return NULL;
    case PY_NO_INT:
        return syntax(p);
    default:
        expr_too_big(p->err);
        return NULL;
    }
}

/* ---- texts ---- */

/* The character of an escape behind '\'; p->at moves past it. False: not one that is read here. */
static bool escape(struct parser *p, struct str *out)
{
    static const char from[] = "\\'\"abfnrtv", to[] = "\\'\"\a\b\f\n\r\t\v";
    char c = *p->at++, bytes[4];
    const char *at = strchr(from, c);
    size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : c == 'U' ? 8 : 0;
    uint32_t point = 0;
    if (c && at) {
        str_addc(out, to[at - from]);
        return true;
    }
    if (!digits)
        return false;
    for (; digits; digits--, p->at++) {
        if (p->at == p->end || str_hex(*p->at) < 0)
            return false;
        point = point * 16 + (uint32_t)str_hex(*p->at);
    }
    if (point > 0x10ffff || (point >= 0xd800 && point < 0xe000))
        return false;
    str_add(out, bytes, utf8_put(point, bytes));
    return true;
}

static tree *text(struct parser *p)
{
    char quote = *p->at++;
    struct str out = { 0 };
    bool closed = false, ok = true;
    if (p->end - p->at >= 2 && p->at[0] == quote && p->at[1] == quote)
        return unsupported(p, "texts in three quotes");
    while (p->at < p->end && !closed && ok) {
        char c = *p->at++;
        if (c == quote)
            closed = true;
        else if (c == '\n')
            ok = false;
        else if (c == '\\')
            ok = p->at < p->end && escape(p, &out);
        else
            str_addc(&out, c);
    }
    char *copy = arena_strndup(&p->x->mem, str_c(&out), out.n);
    struct ev v = { .kind = EV_TEXT, .s = { copy, out.n } };
    ok = ok && closed;
    if (!out.bad && copy && ok) {
        str_release(&out);
        return constant(p, v);
    }
    bool no_memory = out.bad || !copy;
    str_release(&out);
    if (!no_memory)
        return syntax(p);
    expr_no_memory(p->err);
    return NULL;
}

/* ---- primaries ---- */

static tree *expression(struct parser *p);

#define ARGS_MAX 256

/* Expressions up to `close`, which is taken. False: an error. */
static bool arguments(struct parser *p, char close, tree **arg, size_t *n)
{
    char closing[2] = { close, 0 };
    *n = 0;
    while (!take(p, closing)) {
        if (*n == ARGS_MAX) {
            unsupported(p, "more than 256 arguments");
            return false;
        }
        if (peek(p) == '*') {
            unsupported(p, "starred arguments");
            return false;
        }
        tree *t = expression(p);
        if (!t)
            return false;
        if (take_only(p, "=", "=")) {
            unsupported(p, "keyword arguments");
            return false;
        }
        if (take_word(p, "for")) {
            unsupported(p, "comprehensions");
            return false;
        }
        arg[(*n)++] = t;
        if (!take(p, ",") && peek(p) != close) {
            syntax(p);
            return false;
        }
    }
    return true;
}

static tree *call(struct parser *p, tree *of)
{
    tree *arg[ARGS_MAX];
    size_t n;
    p->bracket++;
    bool ok = arguments(p, ')', arg, &n);
    p->bracket--;
    if (!ok)
        return NULL;
    if (of->op != OP_NAME)
        return unsupported(p, "calls of anything but functions");
    struct expr_tree *t = new_node(p, OP_CALL, n);
    if (!t)
        return NULL;
    t->text = of->text;
    if (n)
        memcpy(t->arg, arg, n * sizeof *arg);
    return finish(p, t);
}

static tree *subscript(struct parser *p, tree *of)
{
    tree *part[3] = { NULL };
    size_t colons = 0;
    p->bracket++;
    for (;;) {
        char c = peek(p);
        if (c == ']')
            break;
        if (c == ':') {
            p->at++;
            if (++colons > 2)
                return syntax(p);
            continue;
        }
        if (part[colons])
            return c == ',' ? unsupported(p, "tuples as indices") : syntax(p);
        part[colons] = expression(p);
        if (!part[colons])
            return NULL;
    }
    p->at++;
    p->bracket--;
    if (!colons)
        return part[0] ? node2(p, OP_INDEX, of, part[0]) : syntax(p);
    struct expr_tree *t = new_node(p, OP_SLICE, 4);
    if (!t)
        return NULL;
    t->arg[0] = of;
    memcpy(t->arg + 1, part, sizeof part);
    return finish(p, t);
}

/* ( ... ): the expression inside, or a tuple. */
static tree *group(struct parser *p)
{
    p->bracket++;
    if (take(p, ")")) {
        p->bracket--;
        return feature(p, "Tuple");
    }
    tree *t = expression(p);
    if (!t)
        return NULL;
    if (take_word(p, "for"))
        return unsupported(p, "comprehensions");
    bool tuple = take(p, ",");
    if (tuple) {
        tree *arg[ARGS_MAX];
        size_t n;
        if (!arguments(p, ')', arg, &n))
            return NULL;
        t = feature(p, "Tuple");
    } else if (!take(p, ")")) {
        return syntax(p);
    }
    p->bracket--;
    return t;
}

static tree *list(struct parser *p)
{
    tree *arg[ARGS_MAX];
    size_t n;
    p->bracket++;
    bool ok = arguments(p, ']', arg, &n);
    p->bracket--;
    return ok ? feature(p, "List") : NULL;
}

static tree *braces(struct parser *p)
{
    bool dict = false, first = true;
    p->bracket++;
    while (!take(p, "}")) {
        if (!expression(p))
            return NULL;
        if (take(p, ":")) {
            dict = true;
            if (!expression(p))
                return NULL;
        }
        first = false;
        if (take_word(p, "for"))
            return unsupported(p, "comprehensions");
        if (!take(p, ",") && peek(p) != '}')
            return syntax(p);
    }
    p->bracket--;
    return feature(p, dict || first ? "Dict" : "Set");
}

static const char *const keywords[] = {
    "and",    "as",    "assert", "async", "await",  "break",    "class", "continue",
    "def",    "del",   "elif",   "else",  "except", "finally",  "for",   "from",
    "global", "if",    "import", "in",    "is",     "nonlocal", "not",   "or",
    "pass",   "raise", "return", "try",   "while",  "with",     "yield"
};

static tree *name(struct parser *p)
{
    const char *from = p->at;
    while (p->at < p->end && is_name(*p->at))
        p->at++;
    size_t n = (size_t)(p->at - from);
    if (p->at < p->end && (*p->at == '"' || *p->at == '\'') && n <= 2)
        return unsupported(p, "texts with a prefix");
    if (str_eq(from, n, "True") || str_eq(from, n, "False"))
        return constant(p, (struct ev) { .kind = EV_BOOL, .b = n == 4 });
    if (str_eq(from, n, "None"))
        return constant(p, (struct ev) { .kind = EV_NONE });
    if (str_eq(from, n, "lambda"))
        return unsupported(p, "lambdas");
    for (size_t i = 0; i < ARRAY_LEN(keywords); i++)
        if (str_eq(from, n, keywords[i]))
            return syntax(p);
    struct expr_tree *t = new_node(p, OP_NAME, 0);
    char *copy = t ? arena_strndup(&p->x->mem, from, n) : NULL;
    if (!copy) {
        expr_no_memory(p->err);
        return NULL;
    }
    t->text = copy;
    return t;
}

static tree *atom(struct parser *p)
{
    char c = peek(p);
    if (is_digit(c) || (c == '.' && p->at + 1 < p->end && is_digit(p->at[1])))
        return number(p);
    if (c == '"' || c == '\'')
        return text(p);
    if (take(p, "("))
        return group(p);
    if (take(p, "["))
        return list(p);
    if (take(p, "{"))
        return braces(p);
    return c && is_name(c) ? name(p) : syntax(p);
}

static tree *primary(struct parser *p)
{
    tree *t = atom(p);
    while (t) {
        if (take(p, "("))
            t = call(p, t);
        else if (take(p, "["))
            t = subscript(p, t);
        else if (peek(p) == '.')
            return unsupported(p, "attributes");
        else
            break;
    }
    return t;
}

/* ---- operators, the closest first ---- */

static tree *unary(struct parser *p);

static tree *power(struct parser *p)
{
    tree *t = primary(p);
    if (!t || !take_only(p, "**", "="))
        return t;
    if (++p->depth > EXPR_NEST_MAX)
        return too_deep(p);
    t = node2(p, OP_POW, t, unary(p));
    p->depth--;
    return t;
}

static tree *unary(struct parser *p)
{
    char c = peek(p);
    enum expr_op op = c == '-' ? OP_NEG : c == '+' ? OP_POS : OP_INVERT;
    if (c != '-' && c != '+' && c != '~')
        return power(p);
    if (++p->depth > EXPR_NEST_MAX)
        return too_deep(p);
    p->at++;
    tree *t = node1(p, op, unary(p));
    p->depth--;
    return t;
}

struct level { /* left-associative operators of the same strength; longer ones first */
    struct {
        const char *text, *not_before;
        enum expr_op op;
    } is[4];
};
static const struct level levels[] = {
    { { { "|", "=", OP_BITOR } } },
    { { { "^", "=", OP_BITXOR } } },
    { { { "&", "=", OP_BITAND } } },
    { { { "<<", "=", OP_LSHIFT }, { ">>", "=", OP_RSHIFT } } },
    { { { "+", "=", OP_ADD }, { "-", "=", OP_SUB } } },
    { { { "//", "=", OP_FLOORDIV },
        { "*", "*=", OP_MUL },
        { "/", "/=", OP_DIV },
        { "%", "=", OP_MOD } } },
};

static tree *binary(struct parser *p, size_t level)
{
    if (level == ARRAY_LEN(levels))
        return unary(p);
    tree *t = binary(p, level + 1);
    while (t) {
        size_t i = 0;
        while (i < 4 && levels[level].is[i].text &&
               !take_only(p, levels[level].is[i].text, levels[level].is[i].not_before))
            i++;
        if (i == 4 || !levels[level].is[i].text)
            break;
        t = node2(p, levels[level].is[i].op, t, binary(p, level + 1));
    }
    return t;
}

static bool take_comparison(struct parser *p, enum expr_op *op)
{
    static const struct {
        const char *text;
        enum expr_op op;
    } is[] = { { "<=", OP_LE }, { ">=", OP_GE }, { "==", OP_EQ },
               { "!=", OP_NE }, { "<", OP_LT },  { ">", OP_GT } };
    for (size_t i = 0; i < ARRAY_LEN(is); i++)
        if (take(p, is[i].text)) {
            *op = is[i].op;
            return true;
        }
    const char *back = p->at;
    bool negated = take_word(p, "not");
    if (take_word(p, "in")) {
        *op = negated ? OP_NOT_IN : OP_IN;
        return true;
    }
    if (!negated && take_word(p, "is")) {
        *op = take_word(p, "not") ? OP_IS_NOT : OP_IS;
        return true;
    }
    p->at = back;
    return false;
}

#define CHAIN_MAX 64 /* comparisons in a row */

static tree *comparison(struct parser *p)
{
    tree *part[CHAIN_MAX + 1];
    enum expr_op op[CHAIN_MAX];
    size_t n = 0;
    part[0] = binary(p, 0);
    while (part[n] && n < CHAIN_MAX && take_comparison(p, &op[n])) {
        n++;
        part[n] = binary(p, 0);
    }
    if (!part[n])
        return NULL;
    if (n == CHAIN_MAX)
        return unsupported(p, "more than 63 comparisons in a row");
    if (!n)
        return part[0];
    struct expr_tree *t = new_node(p, OP_COMPARE, n + 1);
    if (t)
        t->compare = arena_array(&p->x->mem, n, sizeof *op);
    if (!t || !t->compare) {
        expr_no_memory(p->err);
        return NULL;
    }
    memcpy(t->arg, part, (n + 1) * sizeof *part);
    memcpy(t->compare, op, n * sizeof *op);
    return finish(p, t);
}

static tree *inversion(struct parser *p)
{
    if (!take_word(p, "not"))
        return comparison(p);
    if (++p->depth > EXPR_NEST_MAX)
        return too_deep(p);
    tree *t = node1(p, OP_NOT, inversion(p));
    p->depth--;
    return t;
}

static tree *conjunction(struct parser *p)
{
    tree *t = inversion(p);
    while (t && take_word(p, "and"))
        t = node2(p, OP_AND, t, inversion(p));
    return t;
}

static tree *disjunction(struct parser *p)
{
    tree *t = conjunction(p);
    while (t && take_word(p, "or"))
        t = node2(p, OP_OR, t, conjunction(p));
    return t;
}

static tree *expression(struct parser *p)
{
    if (++p->depth > EXPR_NEST_MAX)
        return too_deep(p);
    tree *t = disjunction(p);
    if (t && take_word(p, "if")) {
        struct expr_tree *c = new_node(p, OP_IF, 3);
        if (!c)
            return NULL;
        c->arg[1] = t;
        c->arg[0] = disjunction(p);
        if (c->arg[0] && !take_word(p, "else"))
            return syntax(p);
        c->arg[2] = c->arg[0] ? expression(p) : NULL;
        t = c->arg[2] ? finish(p, c) : NULL;
    }
    p->depth--;
    return t;
}

berth_status expr_parse(struct expr *x, berth_err *err)
{
    const char *s = x->text;
    size_t n = x->n;
    if (n > EXPR_MAX)
        return err_set(err, BERTH_ELIMIT, "Math Expression: it has %zu bytes; the limit is %d", n,
                       EXPR_MAX);
    py_strip(&s, &n, true, true);
    struct parser p = { .x = x, .at = s, .end = s + n, .err = err };
    tree *t = expression(&p);
    if (!t)
        return err->code;
    char next = peek(&p);
    if (next == ',')
        t = feature(&p, "Tuple");
    else if (next == '\n' || next == '\r' || next == ';' || next == '=')
        t = unsupported(&p, "assignments, and more than one expression,");
    else if (next || p.at < p.end)
        t = syntax(&p);
    if (!t)
        return err->code;
    x->root = t;
    return BERTH_OK;
}

void expr_release(struct expr *x)
{
    arena_release(&x->mem);
}
