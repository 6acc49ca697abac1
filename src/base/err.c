#include "base/err.h"

#include "base/utf8.h"

#include <stdarg.h>

/* Formats into a message buffer: always terminated, valid UTF-8, free of control characters, and
 * marked with "..." where it had to be cut. */
PRINTF_LIKE(3, 0)
static size_t format(char *buf, size_t cap, const char *fmt, va_list ap)
{
    int wanted = vsnprintf(buf, cap, fmt, ap);
    if (wanted < 0) /* a broken multibyte conversion in fmt: say at least where */
        wanted = snprintf(buf, cap, "(message lost: '%s')", fmt);
    utf8_sanitize(buf, strlen(buf));
    return utf8_mark_cut(buf, cap, (size_t)wanted);
}

/* dst = a + b, cut and marked when it does not fit. dst overlaps neither. */
static void join(char *dst, size_t cap, const char *a, const char *b)
{
    size_t na = strlen(a), nb = strlen(b);
    size_t n = na < cap ? na : cap - 1;
    memcpy(dst, a, n);
    size_t room = cap - 1 - n;
    memcpy(dst + n, b, nb < room ? nb : room);
    dst[n + (nb < room ? nb : room)] = '\0';
    utf8_mark_cut(dst, cap, na + nb);
}

static void fill(berth_err *err, const char *file, int line, berth_status code, int native)
{
    err->code = code;
    err->native = native;
    err->file = file;
    err->line = line;
}

berth_status err_set_at(berth_err *err, const char *file, int line, berth_status code, int native,
                        const char *fmt, ...)
{
    char msg[sizeof err->msg]; /* aside first: an argument may point into err->msg */
    va_list ap;
    va_start(ap, fmt);
    size_t n = format(msg, sizeof msg, fmt, ap);
    va_end(ap);
    fill(err, file, line, code, native);
    memcpy(err->msg, msg, n + 1);
    return code;
}

berth_status err_add(berth_err *err, const char *fmt, ...)
{
    char head[sizeof err->msg], tail[sizeof err->msg];
    va_list ap;
    va_start(ap, fmt);
    size_t n = format(head, sizeof head - 2, fmt, ap);
    va_end(ap);
    memcpy(head + n, ": ", 3);
    memcpy(tail, err->msg, sizeof tail);
    tail[sizeof tail - 1] = '\0';
    join(err->msg, sizeof err->msg, head, tail);
    return err->code;
}

berth_status err_sys_at(berth_err *err, const char *file, int line, berth_status code, int native,
                        const char *fmt, ...)
{
    char msg[sizeof err->msg], buf[128], why[160];
    va_list ap;
    va_start(ap, fmt);
    format(msg, sizeof msg, fmt, ap);
    va_end(ap);
    snprintf(why, sizeof why, ": %s", strerror_r(native, buf, sizeof buf));
    fill(err, file, line, code, native);
    join(err->msg, sizeof err->msg, msg, why);
    return code;
}

void bug_at(const char *file, int line, const char *fmt, ...)
{
    char msg[512];
    va_list ap;
    va_start(ap, fmt);
    format(msg, sizeof msg, fmt, ap);
    va_end(ap);
    fprintf(stderr, "BUG at %s:%d: %s\n", file, line, msg);
    abort();
}
