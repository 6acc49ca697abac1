/* pyformat: str.format() of Python for the values of workflows: {a}, {a!r}, {a:.2f}, {a[0]},
 * {a:{b}}, {{ and }}. What is left out of the language: attributes ({a.real}), and "n" types, which
 * follow a locale. */
#include "node/pyformat.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- what stands behind the colon ---- */

struct field_spec { /* [[fill]align][sign][z][#][0][width][grouping][.precision][type] */
    char fill[4];
    size_t fill_n;
    char align; /* '<' '>' '=' '^', 0: by kind */
    char sign;  /* '+' '-' ' ', 0: '-' */
    bool alternate, zero;
    char group; /* ',' '_', 0: none */
    size_t width;
    int precision; /* -1: none */
    char type;     /* 0: none */
};

#define WIDTH_MAX 4096 /* of a field, and digits behind a point */

static bool is_align(char c)
{
    return c == '<' || c == '>' || c == '=' || c == '^';
}

/* Digits at *p. False: too many of them. */
static bool number(const char **p, const char *end, size_t *out)
{
    *out = 0;
    while (*p < end && **p >= '0' && **p <= '9') {
        *out = *out * 10 + (size_t)(*(*p)++ - '0');
        if (*out > WIDTH_MAX)
            return false;
    }
    return true;
}

static berth_status too_wide(berth_err *err)
{
    return err_set(err, BERTH_ELIMIT, "a format field is wider than %d characters", WIDTH_MAX);
}

static berth_status parse_spec(struct text t, const char *type_name, struct field_spec *out,
                               berth_err *err)
{
    const char *p = t.p, *end = t.p + t.n;
    *out = (struct field_spec) { .fill = " ", .fill_n = 1, .precision = -1 };
    size_t len = utf8_step(p, t.n);
    if (len && p + len < end && is_align(p[len])) {
        memcpy(out->fill, p, len);
        out->fill_n = len;
        out->align = p[len];
        p += len + 1;
    } else if (p < end && is_align(*p)) {
        out->align = *p++;
    }
    if (p < end && (*p == '+' || *p == '-' || *p == ' '))
        out->sign = *p++;
    if (p < end && *p == '#') {
        out->alternate = true;
        p++;
    }
    if (p < end && *p == '0') {
        out->zero = true;
        if (!out->align) {
            out->align = '=';
            out->fill[0] = '0';
        }
        p++;
    }
    if (!number(&p, end, &out->width))
        return too_wide(err);
    if (p < end && (*p == ',' || *p == '_'))
        out->group = *p++;
    if (p < end && *p == '.') {
        size_t digits;
        const char *from = ++p;
        if (!number(&p, end, &digits))
            return too_wide(err);
        if (p == from)
            return err_set(err, BERTH_EINVAL, "Format specifier missing precision");
        out->precision = (int)digits;
    }
    if (end - p > 1)
        return err_set(err, BERTH_EINVAL, "Invalid format specifier '%.*s' for object of type '%s'",
                       t.n > 200 ? 200 : (int)t.n, t.p, type_name);
    out->type = p < end ? *p : 0;
    return BERTH_OK;
}

static berth_status unknown_type(char type, const char *type_name, berth_err *err)
{
    return err_set(err, BERTH_EINVAL, "Unknown format code '%c' for object of type '%s'", type,
                   type_name);
}

/* ---- padding ---- */

static void pad(const struct field_spec *s, size_t n, struct str *out)
{
    while (n--)
        str_add(out, s->fill, s->fill_n);
}

/* `sign` and `digits` to the width; usual: where the kind stands. */
static void put_padded(const struct field_spec *s, char usual, const char *sign, const char *digits,
                       size_t n, struct str *out)
{
    char align = s->align ? s->align : usual;
    size_t have = strlen(sign) + py_len(digits, n), more = s->width > have ? s->width - have : 0;
    size_t left = align == '>' ? more : align == '^' ? more / 2 : 0;
    pad(s, left, out);
    str_adds(out, sign);
    if (align == '=')
        pad(s, more, out);
    str_add(out, digits, n);
    if (align != '=')
        pad(s, more - left, out);
}

/* Digits with separators; `whole` of them in front of the point. With zeros as fill the separators
 * go on into them, as Python has it. */
static void put_grouped(const struct field_spec *s, const char *digits, size_t n, size_t whole,
                        size_t every, size_t sign_n, struct str *out)
{
    size_t zeros = 0;
    if (s->fill[0] == '0' && s->align == '=') /* as many as the width takes, separators too */
        while (whole + zeros + (whole + zeros - 1) / every + (n - whole) + sign_n < s->width)
            zeros++;
    for (size_t i = 0; i < whole + zeros; i++) {
        if (i && (whole + zeros - i) % every == 0)
            str_addc(out, s->group);
        str_addc(out, i < zeros ? '0' : digits[i - zeros]);
    }
    str_add(out, digits + whole, n - whole);
}

static const char *sign_of(const struct field_spec *s, bool minus)
{
    return minus ? "-" : s->sign == '+' ? "+" : s->sign == ' ' ? " " : "";
}

/* ---- numbers ---- */

static void put_number(const struct field_spec *s, bool minus, const char *prefix,
                       const char *digits, size_t n, size_t whole, size_t every, struct str *out)
{
    struct str grouped = { 0 };
    char sign[8];
    snprintf(sign, sizeof sign, "%s%s", sign_of(s, minus), prefix);
    if (s->group) {
        put_grouped(s, digits, n, whole, every, strlen(sign), &grouped);
        digits = str_c(&grouped);
        n = grouped.n;
    }
    put_padded(s, '>', sign, digits, n, out);
    out->bad = out->bad || grouped.bad;
    str_release(&grouped);
}

#define FLOAT_TEXT 1100   /* 309 digits, a point, and */
#define PRECISION_MAX 700 /* digits behind it */

static void print_float(char *text, char type, bool alternate, int precision, double x)
{
#define PRINT(t)                                                                                   \
    alternate ? snprintf(text, FLOAT_TEXT, "%#.*" t, precision, x)                                 \
              : snprintf(text, FLOAT_TEXT, "%.*" t, precision, x)
    switch (type) {
    case 'e':
        PRINT("e");
        break;
    case 'E':
        PRINT("E");
        break;
    case 'g':
        PRINT("g");
        break;
    case 'G':
        PRINT("G");
        break;
    default:
        PRINT("f");
    }
#undef PRINT
}

/* Zeros at the end of a fraction go, except for `least` digits. `text` ends there, or goes on with
 * an exponent. */
static void drop_zeros(char *text, size_t least)
{
    char *point = strchr(text, '.'), *end = point;
    if (!point)
        return;
    end += 1 + strspn(point + 1, "0123456789");
    char *to = end;
    while (to - point - 1 > (ptrdiff_t)least && to[-1] == '0')
        to--;
    if (to == point + 1)
        to--;
    memmove(to, end, strlen(end) + 1);
}

/* Without a type, but with a precision: as 'g', but a point stays, and exponents begin earlier. */
static void print_general(char *text, int precision, double x)
{
    int digits = precision ? precision : 1;
    print_float(text, 'e', false, digits - 1, x);
    const char *e = strchr(text, 'e');
    long exponent = e ? strtol(e + 1, NULL, 10) : 0;
    if (exponent < -4 || exponent >= digits - 1) {
        drop_zeros(text, 0);
        return;
    }
    print_float(text, 'f', false, digits - 1 - (int)exponent, x);
    drop_zeros(text, 1);
}

static berth_status put_float(const struct field_spec *s, double v, const char *type_name,
                              struct str *out, berth_err *err)
{
    char type = s->type, text[FLOAT_TEXT];
    bool minus = signbit(v) && !isnan(v), percent = type == '%';
    double x = fabs(v) * (percent ? 100 : 1);
    int precision = s->precision < 0 ? 6 : s->precision;
    struct str digits = { 0 };
    if (type && !strchr("eEfFgG%", type))
        return unknown_type(type, type_name, err);
    if (precision > PRECISION_MAX)
        return too_wide(err);
    if (!isfinite(x)) {
        bool big = type == 'F' || type == 'E' || type == 'G';
        str_adds(&digits, isnan(x) ? (big ? "NAN" : "nan") : (big ? "INF" : "inf"));
    } else if (!type && s->precision < 0) {
        py_repr_f64(x, &digits);
    } else {
        if (type)
            print_float(text, type, s->alternate, precision, x);
        else
            print_general(text, precision, x);
        str_adds(&digits, text);
    }
    size_t whole = strspn(str_c(&digits), "0123456789");
    if (percent)
        str_addc(&digits, '%');
    put_number(s, minus, "", str_c(&digits), digits.n, whole ? whole : digits.n, 3, out);
    out->bad = out->bad || digits.bad;
    str_release(&digits);
    return BERTH_OK;
}

static berth_status put_int(struct node_call *c, const struct field_spec *s, node_int v,
                            const char *type_name, struct str *out, berth_err *err)
{
    char type = s->type ? s->type : 'd';
    if (strchr("eEfFgG%", type))
        return put_float(s, (double)v, type_name, out, err);
    if (s->precision >= 0)
        return err_set(err, BERTH_EINVAL, "Precision not allowed in integer format specifier");
    if (type == 'c') {
        char point[4];
        if (v < 0 || v > 0x10ffff)
            return raise_as(c, "OverflowError", err, "%%c arg not in range(0x110000)");
        put_padded(s, '<', "", point, utf8_put((uint32_t)v, point), out);
        return BERTH_OK;
    }
    if (!strchr("bdoxX", type))
        return unknown_type(type, type_name, err);
    if (s->group == ',' && type != 'd')
        return err_set(err, BERTH_EINVAL, "Cannot specify ',' with '%c'.", type);
    unsigned base = type == 'b' ? 2 : type == 'o' ? 8 : type == 'd' ? 10 : 16;
    const char *set = type == 'X' ? "0123456789ABCDEF" : "0123456789abcdef";
    unsigned __int128 u = v < 0 ? -(unsigned __int128)v : (unsigned __int128)v;
    char text[130];
    size_t at = sizeof text;
    do
        text[--at] = set[(unsigned)(u % base)];
    while (u /= base);
    const char *prefix = !s->alternate || type == 'd' ? ""
                         : type == 'b'                ? "0b"
                         : type == 'o'                ? "0o"
                         : type == 'x'                ? "0x"
                                                      : "0X";
    put_number(s, v < 0, prefix, text + at, sizeof text - at, sizeof text - at, type == 'd' ? 3 : 4,
               out);
    return BERTH_OK;
}

static berth_status put_text(struct field_spec *s, struct text t, const char *type_name,
                             struct str *out, berth_err *err)
{
    if (s->type && s->type != 's')
        return unknown_type(s->type, type_name, err);
    if (s->sign)
        return err_set(err, BERTH_EINVAL,
                       s->sign == ' ' ? "Space not allowed in string format specifier"
                                      : "Sign not allowed in string format specifier");
    if (s->alternate)
        return err_set(err, BERTH_EINVAL,
                       "Alternate form (#) not allowed in string format specifier");
    if (s->group)
        return err_set(err, BERTH_EINVAL, "Cannot specify '%c' with 's'.", s->group);
    if (s->align == '=' && !s->zero)
        return err_set(err, BERTH_EINVAL, "'=' alignment not allowed in string format specifier");
    if (s->align == '=')
        s->align = '<';
    if (s->precision >= 0)
        t.n = py_offset(t.p, t.n, (size_t)s->precision);
    put_padded(s, '<', "", t.p, t.n, out);
    return BERTH_OK;
}

static berth_status put_value(struct node_call *c, const struct value *v, struct text spec_text,
                              struct str *out, berth_err *err)
{
    const char *type_name = value_type_name(v);
    struct field_spec s;
    if (!spec_text.n) {
        value_text(v, out);
        return BERTH_OK;
    }
    bool simple = v->kind == V_INT || v->kind == V_UINT || v->kind == V_BOOL ||
                  v->kind == V_FLOAT || v->kind == V_STRING;
    if (!simple)
        return raise_as(c, "TypeError", err, "unsupported format string passed to %s.__format__",
                        type_name);
    if (parse_spec(spec_text, type_name, &s, err))
        return err->code;
    switch (v->kind) {
    case V_INT:
        return put_int(c, &s, v->i, type_name, out, err);
    case V_UINT:
        return put_int(c, &s, (node_int)v->u, type_name, out, err);
    case V_BOOL: /* with a format it is a number */
        return put_int(c, &s, v->b, type_name, out, err);
    case V_FLOAT:
        return put_float(&s, v->f, type_name, out, err);
    default:
        return put_text(&s, (struct text) { v->s.p, v->s.n }, type_name, out, err);
    }
}

/* ---- fields ---- */

static berth_status format(struct node_call *c, struct text t, const char *group, int depth,
                           struct str *out, berth_err *err);

/* {name[index][index]}: the value, as a new reference. */
static berth_status look_up(struct node_call *c, const char *group, struct text name,
                            struct value **out, berth_err *err)
{
    size_t first = 0, at = 0;
    const char *member;
    const struct values *v;
    *out = NULL;
    while (first < name.n && name.p[first] != '[' && name.p[first] != '.')
        first++;
    if (!first || strspn(name.p, "0123456789") >= first)
        return raise_as(c, "IndexError", err,
                        "Replacement index %.*s out of range for positional args tuple",
                        first ? (int)(first > 20 ? 20 : first) : 1, first ? name.p : "0");
    while (!*out && (v = in_member(c, group, &at, &member)))
        if (str_eq(name.p, first, member))
            *out = value_ref(v->at[0]);
    if (!*out)
        return raise_as(c, "KeyError", err, "'%.*s'", first > 200 ? 200 : (int)first, name.p);
    while (first < name.n) {
        const char *close = memchr(name.p + first, ']', name.n - first);
        if (name.p[first] == '.')
            return err_set(err, BERTH_EUNSUPPORTED,
                           "attributes in a format string are not supported");
        if (!close)
            return err_set(err, BERTH_EINVAL, "expected '}' before end of string");
        const char *key = name.p + first + 1;
        size_t n = (size_t)(close - key);
        uint64_t i = UINT64_MAX;
        bool digits = str_parse_u64(key, n, &i);
        const struct value *from = *out;
        json_t *j = NULL;
        struct str one = { 0 };
        if (from->kind == V_JSON && json_is_array(from->json) && digits)
            j = json_array_get(from->json, i);
        else if (from->kind == V_JSON && json_is_object(from->json) && n < 256) {
            char text[256];
            memcpy(text, key, n);
            text[n] = 0;
            j = json_object_get(from->json, text);
        } else if (from->kind == V_STRING && digits && i < from->s.n) {
            py_slice(from->s.p, from->s.n, (int64_t)i, (int64_t)i + 1, &one);
        } else if (from->kind != V_JSON && from->kind != V_STRING) {
            return raise_as(c, "TypeError", err, "'%s' object is not subscriptable",
                            value_type_name(from));
        }
        struct value *next = one.n ? value_string(one.p, one.n) : j ? value_from_json(j) : NULL;
        bool missing = !one.n && !j;
        str_release(&one);
        if (missing && from->kind == V_JSON && json_is_object(from->json))
            return raise_as(c, "KeyError", err, digits ? "%.*s" : "'%.*s'", n > 200 ? 200 : (int)n,
                            key);
        if (missing)
            return raise_as(c, digits ? "IndexError" : "TypeError", err, "%s",
                            digits ? from->kind == V_STRING ? "string index out of range"
                                                            : "list index out of range"
                            : from->kind == V_STRING ? "string indices must be integers, not 'str'"
                                                     : "list indices must be integers or slices, "
                                                       "not str");
        if (!next)
            return err_set(err, BERTH_ENOMEM, "formatting a text");
        value_unref(*out);
        *out = next;
        first = (size_t)(close + 1 - name.p);
        if (first < name.n && name.p[first] != '[' && name.p[first] != '.')
            return err_set(err, BERTH_EINVAL,
                           "Only '.' or '[' may follow ']' in format field specifier");
    }
    return BERTH_OK;
}

/* v!r, v!s, v!a as a text. */
static berth_status convert(char how, struct value **v, berth_err *err)
{
    struct str text = { 0 };
    if (how != 'r' && how != 's' && how != 'a')
        return err_set(err, BERTH_EINVAL, "Unknown conversion specifier %c", how);
    if (how != 's' && (*v)->kind == V_STRING)
        py_repr_text((*v)->s.p, (*v)->s.n, SIZE_MAX, &text);
    else
        value_text(*v, &text);
    struct value *made = text.bad ? NULL : value_string(str_c(&text), text.n);
    str_release(&text);
    if (!made)
        return err_set(err, BERTH_ENOMEM, "formatting a text");
    value_unref(*v);
    *v = made;
    return BERTH_OK;
}

/* What stands between { and }. */
static berth_status put_field(struct node_call *c, struct text f, const char *group, int depth,
                              struct str *out, berth_err *err)
{
    size_t end = 0;
    int brackets = 0;
    while (end < f.n && (brackets || (f.p[end] != ':' && f.p[end] != '!'))) {
        brackets += (f.p[end] == '[') - (f.p[end] == ']' && brackets);
        end++;
    }
    struct value *v = NULL;
    struct str spec = { 0 };
    size_t at = end;
    berth_status s = look_up(c, group, (struct text) { f.p, end }, &v, err);
    if (!s && at < f.n && f.p[at] == '!') {
        if (at + 1 >= f.n)
            s = err_set(err, BERTH_EINVAL, "end of string while looking for conversion specifier");
        else if (at + 2 < f.n && f.p[at + 2] != ':')
            s = err_set(err, BERTH_EINVAL, "expected ':' after conversion specifier");
        else
            s = convert(f.p[at + 1], &v, err);
        at += 2;
    }
    if (!s && at < f.n)
        s = format(c, (struct text) { f.p + at + 1, f.n - at - 1 }, group, depth + 1, &spec, err);
    if (!s)
        s = put_value(c, v, (struct text) { str_c(&spec), spec.n }, out, err);
    value_unref(v);
    out->bad = out->bad || spec.bad;
    str_release(&spec);
    return s;
}

/* The field that begins behind a '{' at p; its length, SIZE_MAX: it does not end. */
static size_t field_length(const char *p, size_t n)
{
    int depth = 1;
    for (size_t i = 0; i < n; i++) {
        depth += (p[i] == '{') - (p[i] == '}');
        if (!depth)
            return i;
    }
    return SIZE_MAX;
}

static berth_status format(struct node_call *c, struct text t, const char *group, int depth,
                           struct str *out, berth_err *err)
{
    berth_status s =
        depth > 2 ? err_set(err, BERTH_EINVAL, "Max string recursion exceeded") : BERTH_OK;
    for (size_t i = 0; i < t.n && !s && !out->bad; i++) {
        char ch = t.p[i];
        bool twice = i + 1 < t.n && t.p[i + 1] == ch;
        if (ch != '{' && ch != '}') {
            str_addc(out, ch);
        } else if (twice && depth == 1) {
            str_addc(out, ch);
            i++;
        } else if (ch == '}') {
            s = err_set(err, BERTH_EINVAL, "Single '}' encountered in format string");
        } else {
            size_t n = field_length(t.p + i + 1, t.n - i - 1);
            if (n == SIZE_MAX)
                s = err_set(err, BERTH_EINVAL,
                            i + 1 == t.n ? "Single '{' encountered in format string"
                                         : "expected '}' before end of string");
            else
                s = put_field(c, (struct text) { t.p + i + 1, n }, group, depth, out, err);
            i += n + 1;
        }
        if (!s)
            s = text_fits(c, out->n, err);
    }
    return s;
}

berth_status py_format(struct node_call *c, struct text t, const char *group, struct str *out,
                       berth_err *err)
{
    berth_status s = format(c, t, group, 1, out, err);
    return !s && out->bad ? err_set(err, BERTH_ENOMEM, "formatting a text") : s;
}
