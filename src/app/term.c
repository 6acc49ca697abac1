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
    t.photos = t.color && t.utf8 && is_set(env->colorterm) &&
               (!strcmp(env->colorterm, "truecolor") || !strcmp(env->colorterm, "24bit"));
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

int term_columns(FILE *f)
{
    int fd = fileno(f);
    struct winsize w = { 0 };
    return fd >= 0 && isatty(fd) && !ioctl(fd, TIOCGWINSZ, &w) ? w.ws_col : 0;
}

struct term term_probe(FILE *f)
{
    const struct term_env env = { .no_color = getenv("NO_COLOR"),
                                  .term = getenv("TERM"),
                                  .columns = getenv("COLUMNS"),
                                  .lc_all = getenv("LC_ALL"),
                                  .lc_ctype = getenv("LC_CTYPE"),
                                  .lang = getenv("LANG"),
                                  .colorterm = getenv("COLORTERM") };
    int fd = fileno(f);
    return term_decide(fd >= 0 && isatty(fd), term_columns(f), &env);
}

const char *term_style(const struct term *t, enum style s)
{
    static const char *const code[] = { "\033[0m", "\033[1m", "\033[2m" };
    return t->color ? code[s] : "";
}

const char *term_color(const struct term *t, unsigned i)
{
    static const char *const code[TERM_COLORS] = { "\033[36m", "\033[33m", "\033[35m", "\033[32m",
                                                   "\033[34m", "\033[31m", "\033[96m", "\033[93m",
                                                   "\033[92m", "\033[95m", "\033[94m", "\033[91m",
                                                   "\033[37m", "\033[90m", "\033[97m" };
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

size_t term_width_of(const char *safe)
{
    size_t n = 0;
    for (; *safe; safe++)
        n += ((unsigned char)*safe & 0xc0) != 0x80; /* each character begins once */
    return n;
}

void term_cell(struct str *out, const char *s, size_t n, size_t width)
{
    struct str safe = { 0 };
    term_safe(&safe, s, n, 0);
    if (term_width_of(str_c(&safe)) > width) {
        str_clear(&safe);
        if (width > 3)
            term_safe(&safe, s, n, width - 3);
        else
            str_adds(&safe, "...");
    }
    str_adds(out, str_c(&safe));
    for (size_t used = term_width_of(str_c(&safe)); used < width; used++)
        str_addc(out, ' ');
    str_release(&safe);
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

void term_count(struct str *out, uint64_t n, const char *one)
{
    str_addf(out, "%" PRIu64 " %s%s", n, one, n == 1 ? "" : "s");
}

void term_wrap(struct str *out, const char *text, size_t indent, size_t width)
{
    size_t column = width; /* the first word opens a line */
    for (;;) {
        text += strspn(text, " ");
        size_t n = strcspn(text, " ");
        if (!n)
            return;
        if (column + 1 + n > width) {
            str_addc(out, '\n');
            for (size_t i = 0; i < indent; i++)
                str_addc(out, ' ');
            column = indent;
        } else {
            str_addc(out, ' ');
            column++;
        }
        str_add(out, text, n);
        column += n;
        text += n;
    }
}

/* ---- progress ---- */

#define RECENT_S 5.0 /* the recent past: what was measured so long ago counts half or less */
#define BAR_MIN 8
#define BAR_MAX 60
#define LABEL_MIN 8 /* a label cut shorter says nothing */

void progress_init(struct progress *p, FILE *out, const struct term *t, const struct clock *clock,
                   const char *label)
{
    *p = (struct progress) { .out = out, .term = *t, .clock = clock, .label = label };
    p->start_ns = p->drawn_ns = clock_mono_ns(clock);
}

/* At most this many columns: letters from the scripts with wide ones count two, so that a guess
 * which is wrong leaves room and never wraps. */
static size_t columns_of(uint32_t c)
{
    return c >= 0x1100 ? 2 : 1;
}

/* Appends a printable text, cut to `room` columns; returns the columns it took. */
static size_t add_label(struct str *out, const char *s, size_t room)
{
    size_t n = strlen(s), used = 0, cut = 0, cut_used = 0, at = 0;
    while (at < n) {
        size_t len = utf8_step(s + at, n - at);
        size_t wide = columns_of(len ? code_point(s + at, len) : '?');
        if (used + wide > room)
            break;
        used += wide;
        at += len ? len : 1;
        if (used + 3 <= room) {
            cut = at;
            cut_used = used;
        }
    }
    if (at < n && room < LABEL_MIN)
        return 0;
    str_add(out, s, at < n ? cut : n);
    str_adds(out, at < n ? "..." : "");
    return at < n ? cut_used + 3 : used;
}

/* Old measurements fade by the time that passed since, so that the sums begin as plain averages. */
static double recent_rate(struct progress *p, uint64_t now, uint64_t done)
{
    double dt = (double)(now - p->drawn_ns) * 1e-9, keep = RECENT_S / (RECENT_S + dt);
    p->bytes = p->bytes * keep + (double)(done - p->drawn_done);
    p->seconds = p->seconds * keep + dt;
    return p->seconds > 0 ? p->bytes / p->seconds : 0;
}

static void time_left(char *buf, size_t cap, double seconds)
{
    uint64_t s = seconds < 1e6 ? (uint64_t)(seconds + 0.5) : 1000000;
    if (s < 3600)
        snprintf(buf, cap, "  %" PRIu64 ":%02" PRIu64 " left", s / 60, s % 60);
    else
        snprintf(buf, cap, "  %" PRIu64 ":%02" PRIu64 ":%02" PRIu64 " left", s / 3600, s / 60 % 60,
                 s % 60);
}

enum part { PART_SIZE, PART_RATE, PART_LEFT, PARTS }; /* as they stand in the line */

/* Composes label, bar, percentage and the parts that fit into `room` columns; returns how many
 * columns it took. */
static size_t compose(const struct progress *p, double share, char part[PARTS][48], size_t room,
                      struct str *line)
{
    static const enum part first[] = { PART_LEFT, PART_SIZE, PART_RATE }; /* most wanted first */
    char percent[8];
    struct str label = { 0 };
    size_t used = (size_t)snprintf(percent, sizeof percent, "%3.0f %%", share * 100);
    if (used > room)
        return 0;
    size_t columns = room > used + 1 ? add_label(&label, p->label, room - used - 1) : 0;
    used += columns ? columns + 1 : 0;
    bool with[PARTS] = { false };
    for (size_t i = 0; i < PARTS; i++) {
        size_t n = strlen(part[first[i]]);
        with[first[i]] = used + n <= room;
        used += with[first[i]] ? n : 0;
    }
    str_addf(line, "%s%s", str_c(&label), columns ? " " : "");
    if (room >= used + BAR_MIN + 1) {
        size_t bar = room - used - 1 < BAR_MAX ? room - used - 1 : BAR_MAX;
        str_adds(line, term_color(&p->term, 0));
        term_bar(line, &p->term, share, (int)bar);
        str_addf(line, "%s ", term_style(&p->term, STYLE_RESET));
        used += bar + 1;
    }
    str_adds(line, percent);
    for (size_t i = 0; i < PARTS; i++)
        str_adds(line, with[i] ? part[i] : "");
    line->bad |= label.bad;
    str_release(&label);
    return used;
}

void progress_set(struct progress *p, uint64_t done, uint64_t total)
{
    uint64_t now = clock_mono_ns(p->clock), since = now - p->start_ns;
    if (!p->term.tty || !total || done > total || since < PROGRESS_DELAY_NS ||
        (p->columns && now - p->drawn_ns < PROGRESS_EVERY_NS))
        return;
    double rate = recent_rate(p, now, done);
    char part[PARTS][48] = { "" }, a[STR_BYTES_MAX], b[STR_BYTES_MAX];
    snprintf(part[PART_SIZE], sizeof part[0], "  %s of %s", str_bytes(done, a),
             str_bytes(total, b));
    snprintf(part[PART_RATE], sizeof part[0], "  %s/s", str_bytes((uint64_t)rate, a));
    if (since >= 2 * PROGRESS_DELAY_NS && rate >= 1)
        time_left(part[PART_LEFT], sizeof part[0], (double)(total - done) / rate);
    int asked = term_columns(p->out); /* it may have changed since the last time */
    size_t room = (size_t)(asked > 0 ? asked : p->term.width) - 1;
    struct str line = { 0 };
    str_addc(&line, '\r');
    size_t columns = compose(p, (double)done / (double)total, part, room, &line);
    if (p->term.color)
        str_adds(&line, "\033[K");
    else
        for (size_t i = columns; i < p->columns && i < room; i++)
            str_addc(&line, ' ');
    if (!line.bad) {
        fwrite(line.p, 1, line.n, p->out);
        fflush(p->out);
        p->columns = columns ? columns : 1;
    }
    p->drawn_ns = now;
    p->drawn_done = done;
    str_release(&line);
}

void progress_end(struct progress *p)
{
    if (!p->columns)
        return;
    int asked = term_columns(p->out);
    size_t room = (size_t)(asked > 0 ? asked : p->term.width) - 1;
    if (p->term.color)
        fputs("\r\033[K", p->out);
    else
        fprintf(p->out, "\r%*s\r", (int)(p->columns < room ? p->columns : room), "");
    fflush(p->out);
    p->columns = 0;
}
