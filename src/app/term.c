#include "app/term.h"

#include "base/err.h"
#include "base/utf8.h"

#include <inttypes.h>
#include <sys/ioctl.h>
#include <unistd.h>

static bool is_set(const char *s)
{
    return s && *s;
}

/* The first of the three that is set decides, as setlocale() would have it. */
static bool says_utf8(const struct term_env *e)
{
    const char *s = is_set(e->lc_all) ? e->lc_all : is_set(e->lc_ctype) ? e->lc_ctype : e->lang;
    return s && (strcasestr(s, "utf-8") || strcasestr(s, "utf8"));
}

struct term term_decide(bool tty, int columns, const struct term_env *env)
{
    struct term t = { .tty = tty, .utf8 = says_utf8(env), .width = columns };
    bool dumb = is_set(env->term) && !strcmp(env->term, "dumb");
    t.color = tty && !dumb && !is_set(env->no_color);
    uint64_t asked;
    if (t.width <= 0 && env->columns && str_parse_u64(env->columns, strlen(env->columns), &asked))
        t.width = asked < TERM_WIDTH_MAX ? (int)asked : TERM_WIDTH_MAX;
    if (t.width <= 0)
        t.width = 80;
    if (t.width < TERM_WIDTH_MIN)
        t.width = TERM_WIDTH_MIN;
    if (t.width > TERM_WIDTH_MAX)
        t.width = TERM_WIDTH_MAX;
    return t;
}

struct term term_probe(FILE *f)
{
    const struct term_env env = { .no_color = getenv("NO_COLOR"),
                                  .term = getenv("TERM"),
                                  .columns = getenv("COLUMNS"),
                                  .lc_all = getenv("LC_ALL"),
                                  .lc_ctype = getenv("LC_CTYPE"),
                                  .lang = getenv("LANG") };
    int fd = fileno(f);
    bool tty = fd >= 0 && isatty(fd);
    struct winsize w = { 0 };
    if (!tty || ioctl(fd, TIOCGWINSZ, &w))
        w.ws_col = 0;
    return term_decide(tty, w.ws_col, &env);
}

const char *term_style(const struct term *t, enum style s)
{
    static const char *const code[] = { "\033[0m", "\033[1m", "\033[2m" };
    return t->color ? code[s] : "";
}

const char *term_color(const struct term *t, unsigned i)
{
    static const char *const code[TERM_COLORS] = { "\033[36m", "\033[33m", "\033[35m", "\033[32m",
                                                   "\033[34m", "\033[31m", "\033[96m", "\033[93m" };
    return t->color ? code[i % TERM_COLORS] : "";
}

static uint32_t code_point(const char *s, size_t len)
{
    const uint8_t *p = (const uint8_t *)s;
    uint32_t c = len == 1 ? p[0] : p[0] & (0xffu >> (len + 1));
    for (size_t i = 1; i < len; i++)
        c = c << 6 | (p[i] & 0x3f);
    return c;
}

/* Control characters, and what moves text about without being seen. */
static bool is_unsafe(uint32_t c)
{
    return c < 0x20 || (c >= 0x7f && c < 0xa0) || c == 0x061c || (c >= 0x200b && c <= 0x200f) ||
           (c >= 0x2028 && c <= 0x202e) || (c >= 0x2060 && c <= 0x206f) || c == 0xfeff;
}

void term_safe(struct str *out, const char *s, size_t n, size_t max)
{
    size_t used = 0;
    for (size_t at = 0; at < n;) {
        char buf[16];
        size_t len = utf8_step(s + at, n - at), columns;
        uint32_t c = len ? code_point(s + at, len) : (uint8_t)s[at];
        if (len && !is_unsafe(c)) {
            memcpy(buf, s + at, len);
            buf[len] = '\0';
            columns = 1;
        } else {
            int w = c == '\n'         ? snprintf(buf, sizeof buf, "\\n")
                    : len && c > 0xff ? snprintf(buf, sizeof buf, "\\u{%" PRIx32 "}", c)
                                      : snprintf(buf, sizeof buf, "\\x%02" PRIx32, c);
            columns = (size_t)w;
        }
        if (max && used + columns > max) {
            str_adds(out, "...");
            return;
        }
        str_adds(out, buf);
        used += columns;
        at += len ? len : 1;
    }
}

void term_bar(struct str *out, const struct term *t, double share, int width)
{
    static const char *const eighth[] = { "", "▏", "▎", "▍", "▌", "▋", "▊", "▉" };
    share = share < 0 ? 0 : share > 1 ? 1 : share;
    int parts = (int)(share * width * 8 + 0.5), full = parts / 8;
    if (!t->utf8)
        full = (parts + 4) / 8;
    for (int i = 0; i < full; i++)
        str_adds(out, t->utf8 ? "█" : "#");
    int used = full;
    if (t->utf8 && parts % 8) {
        str_adds(out, eighth[parts % 8]);
        used++;
    }
    for (; used < width; used++)
        str_addc(out, t->utf8 ? ' ' : '.');
}

void term_number(struct str *out, uint64_t v)
{
    char digits[24];
    int n = snprintf(digits, sizeof digits, "%" PRIu64, v);
    for (int i = 0; i < n; i++) {
        str_addc(out, digits[i]);
        if (i + 1 < n && (n - 1 - i) % 3 == 0)
            str_addc(out, ',');
    }
}

void term_short_number(struct str *out, uint64_t v)
{
    static const char unit[] = " KMBT"; /* thousand, million, billion, trillion */
    double x = (double)v;
    size_t u = 0;
    while (x >= 999.5 && u + 2 < sizeof unit) {
        x /= 1000;
        u++;
    }
    if (!u)
        str_addf(out, "%" PRIu64, v);
    else
        str_addf(out, "%.*f %c", x < 9.995 ? 2 : x < 99.95 ? 1 : 0, x, unit[u]);
}

void progress_init(struct progress *p, FILE *out, const struct term *t, const struct clock *clock,
                   const char *label)
{
    *p = (struct progress) { .out = out, .term = *t, .clock = clock, .label = label };
    p->start_ns = p->drawn_ns = clock_mono_ns(clock);
}

void progress_set(struct progress *p, uint64_t done, uint64_t total)
{
    uint64_t now = clock_mono_ns(p->clock), since = now - p->start_ns;
    if (!p->term.tty || !total || since < PROGRESS_DELAY_NS ||
        (p->shown && now - p->drawn_ns < PROGRESS_EVERY_NS))
        return;
    double share = (double)done / (double)total, seconds = (double)since * 1e-9;
    double left = done ? seconds / share - seconds : 0;
    char right[96], a[STR_BYTES_MAX], b[STR_BYTES_MAX];
    int n = snprintf(right, sizeof right, " %3.0f %%  %s of %s  %.2f GB/s  %d:%02d left",
                     share * 100, str_bytes(done, a), str_bytes(total, b),
                     (double)done * 1e-9 / seconds, (int)(left / 60), (int)left % 60);
    int bar = p->term.width - 1 - n - (int)strlen(p->label) - 2;
    struct str line = { 0 };
    str_addf(&line, "\r%s ", p->label);
    if (bar >= 8) {
        str_adds(&line, term_color(&p->term, 0));
        term_bar(&line, &p->term, share, bar < 60 ? bar : 60);
        str_adds(&line, term_style(&p->term, STYLE_RESET));
    }
    str_adds(&line, right);
    str_adds(&line, p->term.color ? "\033[K" : "");
    if (!line.bad) {
        fwrite(line.p, 1, line.n, p->out);
        fflush(p->out);
        p->shown = true;
        p->drawn_ns = now;
    }
    str_release(&line);
}

void progress_end(struct progress *p)
{
    if (!p->shown)
        return;
    if (p->term.color)
        fputs("\r\033[K", p->out);
    else
        fputc('\n', p->out);
    fflush(p->out);
    p->shown = false;
}
