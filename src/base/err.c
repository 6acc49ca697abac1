#include "base/err.h"

#include "base/str.h"
#include "base/utf8.h"

#include <stdarg.h>

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

/* Bytes [from, to) are a name, unless there are none. */
static void add_name(struct text *t, size_t from, size_t to)
{
    if (t->names < NAMES_MAX && to > from)
        t->name[t->names++] =
            (struct berth_err_name) { (unsigned short)from, (unsigned short)(to - from) };
}

/* Which quotes of the format are around a name: a ' that a conversion follows, and the next one. */
static void mark_names(const char *fmt, char *out, size_t size)
{
    size_t n = strlen(fmt);
    bool open = false;
    if (n >= size)
        BUG("a format of %zu bytes", n);
    memcpy(out, fmt, n + 1);
    for (char *quote = out; (quote = strchr(quote, '\'')); quote++)
        if (open || quote[1] == '%') {
            *quote = '"';
            open = !open;
        }
}

/* Composed twice, with the quotes of names as they are and as others: where the two differ a name
 * begins or ends, whatever is in it. */
PRINTF_LIKE(2, 0)
static void format(struct text *t, const char *fmt, va_list ap)
{
    char other[sizeof t->buf], marked[1024];
    va_list again;
    *t = (struct text) { 0 };
    mark_names(fmt, marked, sizeof marked);
    va_copy(again, ap);
    int n = vsnprintf(t->buf, sizeof t->buf, fmt, ap);
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wformat-nonliteral" /* made of one that was checked */
    vsnprintf(other, sizeof other, marked, again);
#pragma GCC diagnostic pop
    va_end(again);
    if (n < 0)
        BUG("a message that cannot be composed: %s", fmt);
    t->n = (size_t)n;
    size_t from = 0, end = strlen(t->buf);
    for (size_t i = 0; i <= end; i++) {
        if (i < end && t->buf[i] == other[i])
            continue;
        if (from)
            add_name(t, from, i);
        from = from ? 0 : i + 1;
    }
    utf8_sanitize(t->buf, end);
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

PRINTF_LIKE(6, 0)
static void set(berth_err *err, const char *file, int line, berth_status code, int native,
                const char *fmt, va_list ap)
{
    struct text t; /* aside first: an argument may point into err->msg */
    format(&t, fmt, ap);
    err->code = code;
    err->native = native;
    err->file = file;
    err->line = line;
    err->subject = NULL;
    err->device[0] = err->msg[0] = '\0';
    err->number = 0;
    err->names = err->cause = err->subject_at = 0;
    splice(err, 0, 0, &t);
}

berth_status err_set_at(berth_err *err, const char *file, int line, berth_status code, int native,
                        const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    set(err, file, line, code, native, fmt, ap);
    va_end(ap);
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
    va_list ap;
    va_start(ap, fmt);
    set(err, file, line, code, native, fmt, ap);
    va_end(ap);
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

static void add_part(const berth_err *err, size_t at, size_t end, bool folders, struct str *out)
{
    if (folders)
        str_add(out, err->msg + at, end - at);
    else
        add_hidden(err, at, end, out);
}

void err_without_folders(const berth_err *err, struct str *out)
{
    add_hidden(err, 0, strlen(err->msg), out);
}

void err_cause_first(const berth_err *err, bool folders, struct str *out)
{
    size_t n = strlen(err->msg), cause = err->cause < n ? err->cause : 0;
    add_part(err, cause, n, folders, out);
    str_addc(out, '\n');
    if (cause < 3)
        return;
    add_part(err, 0, cause - 2, folders, out);
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

/* The public names of a status live here, at the bottom, because every test prints them. */
static const struct {
    const char *name, *text;
} status[] = {
#define STATUS_ROW(name, text) { #name, text },
    BERTH_STATUS_MAP(STATUS_ROW)
#undef STATUS_ROW
};

const char *berth_status_name(berth_status s)
{
    return (size_t)s < ARRAY_LEN(status) ? status[s].name : "?";
}

const char *berth_status_text(berth_status s)
{
    return (size_t)s < ARRAY_LEN(status) ? status[s].text : "unknown status";
}
