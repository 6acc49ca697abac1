/* err: composes messages conversion by conversion, so that it knows which bytes are whose. */
#include "base/err.h"

#include "base/str.h"
#include "base/utf8.h"

#include <limits.h>
#include <stdarg.h>
#include <stddef.h>

#define NAMES_MAX ARRAY_LEN(((berth_err *)0)->name)

struct text { /* a message that grows */
    char buf[sizeof((berth_err *)0)->msg];
    size_t n; /* of the whole; what lies beyond buf is lost */
    struct berth_err_name name[NAMES_MAX];
    unsigned names;
};

static void put(struct text *t, const char *p, size_t n)
{
    size_t room = t->n < sizeof t->buf - 1 ? sizeof t->buf - 1 - t->n : 0;
    memcpy(t->buf + sizeof t->buf - 1 - room, p, n < room ? n : room);
    t->n += n;
    t->buf[t->n < sizeof t->buf ? t->n : sizeof t->buf - 1] = '\0';
}

/* Bytes [from, to) are a name, unless there are none. One that is cut off counts as far as it is
 * there. */
static void add_name(struct text *t, size_t from, size_t to)
{
    if (t->names < NAMES_MAX && to > from && from < sizeof t->buf - 1)
        t->name[t->names++] = (struct berth_err_name) {
            (unsigned short)from,
            (unsigned short)((to < sizeof t->buf ? to : sizeof t->buf - 1) - from)
        };
}

/* One conversion: "%-8.3llu". */
struct spec {
    char flags[8];
    int width, precision; /* -1: none */
    char length, type;    /* length: 'L' for ll, 'H' for hh */
};

static const char *read_spec(const char *p, va_list *ap, struct spec *out)
{
    size_t n = 0;
    *out = (struct spec) { .width = -1, .precision = -1 };
    for (; *p && strchr("-+ #0", *p); p++)
        if (n + 1 < sizeof out->flags)
            out->flags[n++] = *p;
    for (int *number = &out->width;; number = &out->precision) {
        if (*p == '*') {
            *number = va_arg(*ap, int);
            p++;
        }
        for (; *p >= '0' && *p <= '9'; p++)
            *number = (*number < 0 ? 0 : *number) * 10 + (*p - '0');
        if (number == &out->precision || *p != '.')
            break;
        out->precision = 0;
        p++;
    }
    if (*p && strchr("hlzjt", *p)) {
        out->length = *p++;
        if ((*p == 'l' && out->length == 'l') || (*p == 'h' && out->length == 'h')) {
            out->length = *p == 'l' ? 'L' : 'H';
            p++;
        }
    }
    out->type = *p;
    return *p ? p + 1 : p;
}

static intmax_t read_signed(const struct spec *s, va_list *ap)
{
    switch (s->length) {
    case 'l':
        return va_arg(*ap, long);
    case 'L':
        return va_arg(*ap, long long);
    case 'z':
    case 't':
        return va_arg(*ap, ptrdiff_t);
    case 'j':
        return va_arg(*ap, intmax_t);
    default:
        return va_arg(*ap, int);
    }
}

static uintmax_t read_unsigned(const struct spec *s, va_list *ap)
{
    switch (s->length) {
    case 'l':
        return va_arg(*ap, unsigned long);
    case 'L':
        return va_arg(*ap, unsigned long long);
    case 'z':
    case 't':
        return va_arg(*ap, size_t);
    case 'j':
        return va_arg(*ap, uintmax_t);
    default:
        return va_arg(*ap, unsigned);
    }
}

/* quoted: the name that it is a part of is known. Else it may have been composed before, of names
 * that are paths: "looked in '/a', '/b'". */
static void put_string(struct text *t, const struct spec *s, const char *p, bool quoted)
{
    if (!p)
        p = "(null)";
    size_t n = s->precision >= 0 ? strnlen(p, (size_t)s->precision) : strlen(p);
    size_t width = s->width > 0 ? (size_t)s->width : 0;
    bool left = strchr(s->flags, '-');
    for (size_t i = n; !left && i < width; i++)
        put(t, " ", 1);
    for (size_t i = 0; !quoted && i + 1 < n; i++)
        if (p[i] == '\'' && p[i + 1] == '/') {
            const char *end = memchr(p + i + 1, '\'', n - i - 1);
            size_t to = end ? (size_t)(end - p) : n;
            add_name(t, t->n + i + 1, t->n + to);
            i = to;
        }
    put(t, p, n);
    for (size_t i = n; left && i < width; i++)
        put(t, " ", 1);
}

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* made of one that was checked */
static void put_number(struct text *t, const struct spec *s, va_list *ap)
{
    char one[48], out[400], width[16] = "", precision[16] = "";
    if (s->width >= 0)
        snprintf(width, sizeof width, "%d", s->width);
    if (s->precision >= 0)
        snprintf(precision, sizeof precision, ".%d", s->precision);
    bool whole = strchr("diuxXo", s->type);
    snprintf(one, sizeof one, "%%%s%s%s%s%c", s->flags, width, precision, whole ? "j" : "",
             s->type);
    int n = strchr("di", s->type)       ? snprintf(out, sizeof out, one, read_signed(s, ap))
            : whole                     ? snprintf(out, sizeof out, one, read_unsigned(s, ap))
            : strchr("fFeEgG", s->type) ? snprintf(out, sizeof out, one, va_arg(*ap, double))
            : s->type == 'c'            ? snprintf(out, sizeof out, one, va_arg(*ap, int))
            : s->type == 'p'            ? snprintf(out, sizeof out, one, va_arg(*ap, void *))
                                        : -1;
    if (n < 0)
        BUG("conversion '%s' in a message", one);
    put(t, out, (size_t)n < sizeof out ? (size_t)n : sizeof out - 1);
}
#pragma GCC diagnostic pop

/* A name begins after a ' that a conversion follows and ends before the next ' of the format.
 * Puts the literal text p[0..n). from: where the open name began, SIZE_MAX if none is open; returns
 * the same for what follows the text. */
static size_t put_literal(struct text *t, const char *p, size_t n, size_t from)
{
    const char *close = from < SIZE_MAX ? memchr(p, '\'', n) : NULL;
    if (close)
        add_name(t, from, t->n + (size_t)(close - p));
    put(t, p, n);
    if (from < SIZE_MAX && !close)
        return from;
    return n && p[n - 1] == '\'' && close != p + n - 1 ? t->n : SIZE_MAX;
}

PRINTF_LIKE(2, 0)
static void format(struct text *t, const char *fmt, va_list ap)
{
    va_list args;
    size_t name = SIZE_MAX;
    va_copy(args, ap);
    *t = (struct text) { 0 };
    for (const char *p = fmt; *p;) {
        size_t n = strcspn(p, "%");
        struct spec s;
        name = put_literal(t, p, n, name);
        p += n;
        if (!*p)
            break;
        p = read_spec(p + 1, &args, &s);
        if (s.type == '%')
            put(t, "%", 1);
        else if (s.type == 's')
            put_string(t, &s, va_arg(args, const char *), name < SIZE_MAX);
        else
            put_number(t, &s, &args);
    }
    va_end(args);
    utf8_sanitize(t->buf, strlen(t->buf));
}

static void fill(berth_err *err, const char *file, int line, berth_status code, int native)
{
    err->code = code;
    err->native = native;
    err->file = file;
    err->line = line;
    err->subject = NULL;
    err->device[0] = '\0';
    err->number = 0;
    err->names = err->cause = err->subject_at = 0;
}

static unsigned short moved(unsigned short at, size_t from, size_t cut, size_t n)
{
    size_t to = at < from + cut ? at : at - cut + n;
    return (unsigned short)(to < sizeof((berth_err *)0)->msg ? to
                                                             : sizeof((berth_err *)0)->msg - 1);
}

/* Puts t in place of the `cut` bytes of the message from `at` on. What no longer fits is cut at a
 * whole character and marked; of names that lie there what is left counts. */
static void splice(berth_err *err, size_t at, size_t cut, const struct text *t)
{
    size_t len = strlen(err->msg), in = t->n < sizeof t->buf ? t->n : sizeof t->buf - 1;
    char old[sizeof err->msg];
    struct text out = { 0 };
    memcpy(old, err->msg, len + 1);
    put(&out, old, at);
    put(&out, t->buf, in);
    out.n += t->n - in; /* it was too long by itself */
    put(&out, old + at + cut, len - at - cut);
    memcpy(err->msg, out.buf, sizeof err->msg);
    len = utf8_mark_cut(err->msg, sizeof err->msg, out.n);
    unsigned kept = 0;
    struct berth_err_name name[2 * NAMES_MAX];
    for (unsigned i = 0; i < t->names; i++)
        name[kept++] =
            (struct berth_err_name) { (unsigned short)(t->name[i].at + at), t->name[i].n };
    for (unsigned i = 0; i < err->names; i++)
        if (err->name[i].at + err->name[i].n <= at || err->name[i].at >= at + cut)
            name[kept++] =
                (struct berth_err_name) { moved(err->name[i].at, at, cut, t->n), err->name[i].n };
    err->names = 0;
    for (unsigned i = 0; i < kept && err->names < NAMES_MAX; i++)
        if (name[i].n && name[i].at < len) {
            size_t left = len - name[i].at;
            err->name[err->names] = name[i];
            err->name[err->names++].n = (unsigned short)(name[i].n < left ? name[i].n : left);
        }
}

berth_status err_set_at(berth_err *err, const char *file, int line, berth_status code, int native,
                        const char *fmt, ...)
{
    struct text t; /* aside first: an argument may point into err->msg */
    va_list ap;
    va_start(ap, fmt);
    format(&t, fmt, ap);
    va_end(ap);
    fill(err, file, line, code, native);
    err->msg[0] = '\0';
    splice(err, 0, 0, &t);
    return code;
}

berth_status err_add(berth_err *err, const char *fmt, ...)
{
    struct text t;
    va_list ap;
    va_start(ap, fmt);
    format(&t, fmt, ap);
    va_end(ap);
    put(&t, ": ", 2);
    splice(err, 0, 0, &t);
    err->cause = moved(err->cause, 0, 0, t.n);
    err->subject_at = moved(err->subject_at, 0, 0, t.n);
    return err->code;
}

berth_status err_append(berth_err *err, const char *fmt, ...)
{
    struct text t;
    va_list ap;
    va_start(ap, fmt);
    format(&t, fmt, ap);
    va_end(ap);
    splice(err, strlen(err->msg), 0, &t);
    return err->code;
}

berth_status err_sys_at(berth_err *err, const char *file, int line, berth_status code, int native,
                        const char *fmt, ...)
{
    char buf[128];
    struct text t;
    va_list ap;
    va_start(ap, fmt);
    format(&t, fmt, ap);
    va_end(ap);
    fill(err, file, line, code, native);
    err->msg[0] = '\0';
    splice(err, 0, 0, &t);
    return err_append(err, ": %s", strerror_r(native, buf, sizeof buf));
}

berth_status err_about(berth_err *err, const char *subject)
{
    err->subject = subject;
    err->subject_at = 0;
    return err->code;
}

berth_status err_on_device(berth_err *err, const char *device, uint64_t number)
{
    snprintf(err->device, sizeof err->device, "%s", device);
    err->number = number;
    return err->code;
}

void err_rename_subject(berth_err *err, const char *name)
{
    size_t n = err->subject ? strlen(err->subject) : 0;
    struct text t = { 0 };
    if (!n || strncmp(err->msg + err->subject_at, err->subject, n) != 0)
        return; /* it was cut off */
    put(&t, name, strlen(name));
    splice(err, err->subject_at, n, &t);
    err->cause = moved(err->cause, err->subject_at, n, t.n);
    err->subject = NULL;
}

bool err_names(const berth_err *err, const char *name)
{
    for (unsigned i = 0; i < err->names; i++)
        if (str_eq(err->msg + err->name[i].at, err->name[i].n, name))
            return true;
    return false;
}

/* p[0..n), with quoted absolute paths without their folders: what more names than an error keeps,
 * or a message that was composed before, leave between those that are known. */
static void add_unnamed(const char *p, size_t n, struct str *out)
{
    size_t from = 0;
    for (size_t i = 0; i + 1 < n; i++) {
        if (p[i] != '\'' || p[i + 1] != '/')
            continue;
        const char *close = memchr(p + i + 1, '\'', n - i - 1);
        size_t end = close ? (size_t)(close - p) : n, base = i + 1;
        for (size_t k = base; k < end; k++)
            base = p[k] == '/' ? k + 1 : base;
        str_add(out, p + from, i + 1 - from);
        from = base;
        i = end;
    }
    str_add(out, p + from, n - from);
}

/* The name that begins first at or behind `at`; NULL: none. */
static const struct berth_err_name *next_name(const berth_err *err, size_t at)
{
    const struct berth_err_name *best = NULL;
    for (unsigned i = 0; i < err->names; i++)
        if (err->name[i].at >= at && (!best || err->name[i].at < best->at))
            best = &err->name[i];
    return best;
}

/* msg[at] to msg[end]; names that are absolute paths without their folders. */
static void add_hidden(const berth_err *err, size_t at, size_t end, struct str *out)
{
    const struct berth_err_name *x;
    while ((x = next_name(err, at)) && (size_t)x->at + x->n <= end) {
        size_t base = 0;
        for (size_t i = 0; err->msg[x->at] == '/' && i < x->n; i++)
            base = err->msg[x->at + i] == '/' ? i + 1 : base;
        add_unnamed(err->msg + at, x->at - at, out);
        str_add(out, err->msg + x->at + base, x->n - base);
        at = (size_t)x->at + x->n;
        if (at < end && err->msg[at] == '\'') /* closes it, and opens nothing */
            str_addc(out, err->msg[at++]);
    }
    add_unnamed(err->msg + at, end - at, out);
}

void err_without_folders(const berth_err *err, struct str *out)
{
    add_hidden(err, 0, strlen(err->msg), out);
}

void err_cause_first(const berth_err *err, bool folders, struct str *out)
{
    size_t n = strlen(err->msg), cause = err->cause < n ? err->cause : 0;
    if (folders)
        str_add(out, err->msg + cause, n - cause);
    else
        add_hidden(err, cause, n, out);
    str_addc(out, '\n');
    if (cause < 3)
        return;
    if (folders)
        str_add(out, err->msg, cause - 2);
    else
        add_hidden(err, 0, cause - 2, out);
    str_addc(out, '\n');
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(msg, sizeof msg, fmt, ap);
    va_end(ap);
    utf8_sanitize(msg, strlen(msg));
    fprintf(stderr, "BUG at %s:%d: %s\n", file, line, msg);
    abort();
}
