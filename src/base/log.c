#include "base/log.h"

#include "base/json.h"
#include "base/utf8.h"

#include <errno.h>
#include <stdarg.h>
#include <unistd.h>

enum { TEXT_MAX = 2048, PAIRS_MAX = 32 };

static const char *const names[] = { "debug", "info", "warn", "error", "off" };

const char *log_level_name(enum log_level level)
{
    return (size_t)level < ARRAY_LEN(names) ? names[level] : "?";
}

bool log_level_parse(const char *s, size_t n, enum log_level *out)
{
    for (size_t i = 0; i < ARRAY_LEN(names); i++)
        if (str_eq(s, n, names[i])) {
            *out = (enum log_level)i;
            return true;
        }
    return false;
}

void log_event(const struct log *l, enum log_level level, const char *event, const char *fmt, ...)
{
    if (!l || !l->write || level < l->level || level >= LOG_OFF)
        return;
    char text[TEXT_MAX];
    va_list ap;
    va_start(ap, fmt);
    int wanted = vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    if (wanted < 0)
        wanted = snprintf(text, sizeof text, "(text lost)");
    utf8_mark_cut(text, sizeof text, (size_t)wanted);
    l->write(l->user, level, clock_wall_ns(l->clock ? l->clock : clock_system()), event, text);
}

/* ---- the two sinks ---- */

/* RFC 3339 in UTC with milliseconds: 24 bytes. */
static void add_time(struct str *s, uint64_t wall_ns)
{
    time_t sec = (time_t)(wall_ns / 1000000000u);
    struct tm tm = { 0 };
    gmtime_r(&sec, &tm);
    str_addf(s, "%04d-%02d-%02dT%02d:%02d:%02d.%03uZ", tm.tm_year + 1900, tm.tm_mon + 1, tm.tm_mday,
             tm.tm_hour, tm.tm_min, tm.tm_sec, (unsigned)(wall_ns / 1000000u % 1000));
}

/* One write per line, so that lines of two processes do not mix either; stdio alone may split a
 * line longer than its buffer. A stream without descriptor (open_memstream) goes through stdio.
 * If even the log cannot be written, the error is dropped. */
static void write_line(FILE *out, struct str *line)
{
    static const char lost[] = "log: a line was lost, out of memory\n";
    str_addc(line, '\n');
    const char *p = line->bad ? lost : line->p;
    size_t n = line->bad ? sizeof lost - 1 : line->n;
    flockfile(out);
    int fd = fileno(out);
    if (fd < 0)
        fwrite(p, 1, n, out);
    fflush(out);
    while (fd >= 0 && n) {
        ssize_t got = write(fd, p, n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0)
            break;
        p += got;
        n -= (size_t)got;
    }
    funlockfile(out);
}

void log_write_text(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                    const char *text)
{
    static const char *const color[] = { "\033[2m", "", "\033[33m", "\033[31m", "" };
    const struct log_file *f = user;
    struct str line = { 0 };
    const char *on = f->color && level <= LOG_OFF ? color[level] : "";
    add_time(&line, wall_ns);
    str_addf(&line, " %s%-5s%s ", on, log_level_name(level), *on ? "\033[0m" : "");
    size_t from = line.n;
    str_addf(&line, *text ? "%s %s" : "%s%s", event, text);
    if (line.p)
        utf8_sanitize(line.p + from, line.n - from);
    write_line(f->out, &line);
    str_release(&line);
}

/* A piece of text: borrowed, not terminated. */
struct piece {
    const char *s;
    size_t n;
};

/* Length of a key at s (behind it comes '='), 0 when there is none. */
static size_t key_len(const char *s)
{
    size_t n = strspn(s, "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789_.-");
    return s[n] == '=' ? n : 0;
}

/* Reads one pair at s. Returns the bytes used, 0 when s does not start with a whole pair. */
static size_t read_pair(const char *s, struct piece *key, struct piece *value)
{
    size_t n = key_len(s);
    if (n == 0)
        return 0;
    *key = (struct piece) { s, n };
    const char *v = s + n + 1;
    if (*v != '"') {
        *value = (struct piece) { v, strcspn(v, " ") };
        return (size_t)(v + value->n - s);
    }
    /* The closing quote is followed by a space or the end, so a quote inside a word may stay. */
    for (const char *q = v + 1; *q; q++)
        if (*q == '"' && (q[1] == ' ' || q[1] == '\0')) {
            *value = (struct piece) { v + 1, (size_t)(q - v - 1) };
            return (size_t)(q + 1 - s);
        }
    return 0;
}

static bool is_seen(const struct piece *seen, size_t n, struct piece key)
{
    static const char *const reserved[] = { "ts", "level", "event", "msg" };
    for (size_t i = 0; i < ARRAY_LEN(reserved); i++)
        if (str_eq(key.s, key.n, reserved[i]))
            return true;
    for (size_t i = 0; i < n; i++)
        if (seen[i].n == key.n && memcmp(seen[i].s, key.s, key.n) == 0)
            return true;
    return false;
}

void log_write_json(void *user, enum log_level level, uint64_t wall_ns, const char *event,
                    const char *text)
{
    const struct log_file *f = user;
    struct str line = { 0 }, msg = { 0 }, name = { 0 };
    struct jsonout j = { .out = &line };
    struct piece seen[PAIRS_MAX], key, value;
    size_t n = 0;
    add_time(&msg, wall_ns);
    jo_open(&j, NULL, '{');
    jo_text(&j, "ts", str_c(&msg), msg.n);
    jo_str(&j, "level", log_level_name(level));
    jo_str(&j, "event", event);
    str_clear(&msg);
    for (const char *p = text; *p;) {
        size_t used = read_pair(p, &key, &value);
        if (used && n < PAIRS_MAX && !is_seen(seen, n, key)) {
            seen[n++] = key;
            str_clear(&name);
            str_add(&name, key.s, key.n);
            jo_text(&j, str_c(&name), value.s, value.n);
        } else { /* a word, a repeated key, half a quote: kept as it is */
            used = used ? used : strcspn(p, " ");
            if (msg.n && used)
                str_addc(&msg, ' ');
            str_add(&msg, p, used);
        }
        p += used;
        p += strspn(p, " ");
    }
    if (msg.n)
        jo_text(&j, "msg", msg.p, msg.n);
    jo_close(&j, '}');
    line.bad |= msg.bad || name.bad;
    write_line(f->out, &line);
    str_release(&name);
    str_release(&msg);
    str_release(&line);
}
