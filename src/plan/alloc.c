/* alloc: reading allocation strings. */
#include "plan/plan_impl.h"

#include <inttypes.h>
#include <stdarg.h>

#define SHOWN_MAX 56        /* bytes of an entry that a message repeats */
#define SCALE_MAX 18        /* digits behind the point */
#define PERCENT_MAX 1000000 /* as weights, percents may pass 100 */
#define GIB (UINT64_C(1) << 30)

/* What an amount is measured in. "*" goes with bytes and percents. */
enum family { STAR, BYTES, PERCENT, FRACTION };

struct view { /* borrowed */
    const char *s;
    size_t n;
};

struct reader {
    struct alloc *out;
    enum family family[ALLOC_ENTRIES_MAX]; /* by entry */
    berth_err *err;
};

/* ---- text ---- */

berth_status alloc_fail(berth_err *err, berth_status code, struct alloc_spot at, const char *fmt,
                        ...)
{
    char what[160];
    size_t used = 0;
    if (at.part)
        used = (size_t)snprintf(what, sizeof what, "%s: ", at.part);
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(what + used, sizeof what - used, fmt, ap);
    va_end(ap);
    if (!at.number)
        return err_set(err, code, "%s", what);
    bool cut = at.n > SHOWN_MAX;
    err_set(err, code, "expert_mode_allocations: %s (entry %zu: \"%.*s%s\")", what, at.number,
            (int)(cut ? SHOWN_MAX : at.n), at.text, cut ? "..." : "");
    return err_about(err, "expert_mode_allocations");
}

static bool is_blank(char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}

char alloc_lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

void alloc_trim(const char **s, size_t *n)
{
    while (*n && is_blank((*s)[0]))
        ++*s, --*n;
    while (*n && is_blank((*s)[*n - 1]))
        --*n;
}

static struct view trimmed(const char *s, size_t n)
{
    alloc_trim(&s, &n);
    return (struct view) { s, n };
}

/* The part before the first `c`; *rest becomes what lies behind it. False: there is no c, and all
 * of it was taken. */
static bool split(struct view *rest, char c, struct view *part)
{
    const char *at = rest->n ? memchr(rest->s, c, rest->n) : NULL;
    size_t n = at ? (size_t)(at - rest->s) : rest->n;
    *part = trimmed(rest->s, n);
    rest->s += at ? n + 1 : n;
    rest->n -= at ? n + 1 : n;
    return at;
}

static size_t count(struct view v, char c)
{
    size_t k = 0;
    for (size_t i = 0; i < v.n; i++)
        k += v.s[i] == c;
    return k;
}

struct alloc_spot alloc_spot_of(const struct alloc *a, const struct alloc_entry *e)
{
    return (struct alloc_spot) { NULL, e->number, a->text + e->at, e->len };
}

struct alloc_spot alloc_field(const struct alloc *a, size_t number)
{
    struct view rest = { strchr(a->text, '#'), 0 }, part = { "", 0 };
    if (rest.s) {
        rest.s++;
        rest.n = strlen(rest.s);
        for (size_t i = 0; i < number && split(&rest, ';', &part); i++)
            ;
    }
    static const char *const name[] = { "compute device", "gigabytes", "donor" };
    return (struct alloc_spot) { number <= ARRAY_LEN(name) ? name[number - 1] : NULL, number,
                                 part.s, part.n };
}

/* ---- numbers ---- */

/* Length of digits [ "." [digits] ] at the start of v; 0: there is none. */
static size_t number_length(struct view v)
{
    size_t n = 0;
    while (n < v.n && is_digit(v.s[n]))
        n++;
    if (!n || n == v.n || v.s[n] != '.')
        return n;
    for (n++; n < v.n && is_digit(v.s[n]);)
        n++;
    return n;
}

/* False: more digits than struct alloc_num holds. v is a number as above. */
static bool number_value(struct view v, struct alloc_num *out)
{
    const char *dot = memchr(v.s, '.', v.n);
    while (dot && (v.s[v.n - 1] == '0' || v.s[v.n - 1] == '.')) { /* zeros say nothing there */
        bool end = v.s[--v.n] == '.';
        if (end)
            dot = NULL;
    }
    *out = (struct alloc_num) { 0 };
    if (dot)
        out->scale = (unsigned)(v.n - (size_t)(dot - v.s) - 1);
    if (out->scale > SCALE_MAX)
        return false;
    for (size_t i = 0; i < v.n; i++)
        if (v.s + i != dot &&
            (__builtin_mul_overflow(out->digits, 10, &out->digits) ||
             __builtin_add_overflow(out->digits, (unsigned)(v.s[i] - '0'), &out->digits)))
            return false;
    return true;
}

unsigned __int128 alloc_ten_to(unsigned scale)
{
    unsigned __int128 p = 1;
    while (scale--)
        p *= 10;
    return p;
}

static bool more_than(struct alloc_num x, uint64_t limit)
{
    return x.digits > limit * alloc_ten_to(x.scale);
}

/* ---- one amount ---- */

static berth_status bad_amount(struct reader *r, const struct alloc_entry *e, struct view v)
{
    struct alloc_spot at = alloc_spot_of(r->out, e);
    if (v.n && v.s[0] == '-')
        return alloc_fail(r->err, BERTH_EINVAL, at, "amount must be >= 0");
    if (v.n && v.s[0] == '.')
        return alloc_fail(r->err, BERTH_EINVAL, at, "bad number, write 0%.*s",
                          (int)(v.n < 16 ? v.n : 16), v.s);
    return alloc_fail(r->err, BERTH_EINVAL, at, "bad number, write 4gb, 50%%, 0.5 or *");
}

/* Bytes: `number` with the text of a unit behind it, blanks between them already gone. */
static berth_status read_bytes(struct reader *r, struct alloc_entry *e, struct view number,
                               struct view unit)
{
    struct alloc_spot at = alloc_spot_of(r->out, e);
    char text[64], probe[16] = "1";
    uint64_t one;
    size_t shown = unit.n < sizeof probe - 2 ? unit.n : sizeof probe - 2;
    memcpy(probe + 1, unit.s, shown);
    if (shown < unit.n || !str_parse_bytes(probe, shown + 1, &one))
        return alloc_fail(r->err, BERTH_EINVAL, at, "unknown unit \"%s\", not b, kb, mb, gb or %%",
                          probe + 1);
    if (number.s[number.n - 1] == '.')
        number.n--; /* "4.gb" */
    if (number.n + unit.n >= sizeof text)
        return alloc_fail(r->err, BERTH_EINVAL, at, "too many digits");
    memcpy(text, number.s, number.n);
    memcpy(text + number.n, unit.s, unit.n);
    if (!str_parse_bytes(text, number.n + unit.n, &e->bytes))
        return alloc_fail(r->err, BERTH_EINVAL, at, "more than 2^64 bytes");
    return BERTH_OK;
}

static berth_status read_number(struct reader *r, struct alloc_entry *e, enum family f,
                                struct view number)
{
    if (!number_value(number, &e->num))
        return alloc_fail(r->err, BERTH_EINVAL, alloc_spot_of(r->out, e), "too many digits");
    if (f == PERCENT && more_than(e->num, PERCENT_MAX))
        return alloc_fail(r->err, BERTH_EINVAL, alloc_spot_of(r->out, e), "more than %d %%",
                          PERCENT_MAX);
    return BERTH_OK;
}

static berth_status read_amount(struct reader *r, struct alloc_entry *e, struct view v,
                                enum family *family)
{
    struct alloc_spot at = alloc_spot_of(r->out, e);
    if (!v.n)
        return alloc_fail(r->err, BERTH_EINVAL, at, "amount missing");
    if (v.n == 1 && v.s[0] == '*') {
        e->rest = true;
        *family = STAR;
        return BERTH_OK;
    }
    struct view number = { v.s, number_length(v) };
    struct view unit = trimmed(v.s + number.n, v.n - number.n);
    if (!number.n)
        return bad_amount(r, e, v);
    if (unit.n && unit.s[unit.n - 1] == '*') {
        e->rest = true;
        unit = trimmed(unit.s, unit.n - 1);
    }
    for (size_t i = 0; i < unit.n; i++) /* 4.5.6g, 1e3m, 4 5g */
        if (is_digit(unit.s[i]) || unit.s[i] == '.' || unit.s[i] == ',')
            return bad_amount(r, e, v);
    bool percent = unit.n == 1 && unit.s[0] == '%';
    *family = percent ? PERCENT : unit.n ? BYTES : FRACTION;
    if (*family == BYTES)
        return read_bytes(r, e, number, unit);
    if (e->rest)
        return alloc_fail(r->err, BERTH_EINVAL, at, "\"*\" behind a number needs a byte unit");
    return read_number(r, e, *family, number);
}

/* ---- entries ---- */

/* "4,5gb" is a number written with a comma, "0.5,0.3" one field too many, "50%,cpu,50%" two entries
 * in one. */
static berth_status two_commas(struct reader *r, const struct alloc_entry *e, struct view amount)
{
    struct alloc_spot at = alloc_spot_of(r->out, e);
    struct view rest = amount, field;
    split(&rest, ',', &field);
    char first = rest.n ? alloc_lower(trimmed(rest.s, rest.n).s[0]) : '0';
    if (first >= 'a' && first <= 'z')
        return alloc_fail(r->err, BERTH_EINVAL, at, "\";\" goes between entries, not \",\"");
    if (!is_digit(amount.s[amount.n - 1]) && amount.s[amount.n - 1] != ',')
        return alloc_fail(r->err, BERTH_EINVAL, at, "bad number, the decimal sign is \".\"");
    return alloc_fail(r->err, BERTH_EINVAL, at, "too many \",\"");
}

static berth_status read_name(struct reader *r, struct alloc_spot at, struct view name,
                              char out[DEV_NAME_MAX])
{
    if (!name.n)
        return alloc_fail(r->err, BERTH_EINVAL, at, "device missing");
    if (name.n >= DEV_NAME_MAX) {
        alloc_fail(r->err, BERTH_EINVAL, at, "unknown device");
        return err_on_device(r->err, "?", 0); /* too long to be any */
    }
    for (size_t i = 0; i < name.n; i++)
        out[i] = alloc_lower(name.s[i]);
    out[name.n] = 0;
    return BERTH_OK;
}

static berth_status read_entry(struct reader *r, struct view text)
{
    struct alloc *a = r->out;
    struct alloc_spot at = { NULL, a->n + 1, text.s, text.n };
    if (a->n == ALLOC_ENTRIES_MAX)
        return alloc_fail(r->err, BERTH_ELIMIT, at, "more than %d entries", ALLOC_ENTRIES_MAX);
    struct alloc_entry *e = &a->entry[a->n];
    e->number = (unsigned)at.number;
    e->at = (uint32_t)(text.s - a->text);
    e->len = (uint32_t)text.n;

    struct view name, amount = text;
    if (!split(&amount, ',', &name))
        return alloc_fail(r->err, BERTH_EINVAL, at, "missing \",\" between device and amount");
    amount = trimmed(amount.s, amount.n);
    if (read_name(r, at, name, e->device))
        return r->err->code;
    if (count(amount, ','))
        return two_commas(r, e, amount);
    if (read_amount(r, e, amount, &r->family[a->n]))
        return r->err->code;
    a->n++;
    return BERTH_OK;
}

static berth_status read_entries(struct reader *r, struct view expert)
{
    struct view rest = expert, part;
    for (bool more = true; more;) {
        more = split(&rest, ';', &part);
        if (part.n && read_entry(r, part))
            return r->err->code;
    }
    return BERTH_OK;
}

/* The mode follows from the amounts alone, and all of them are of one family. */
static berth_status find_mode(struct reader *r)
{
    struct alloc *a = r->out;
    static const char *const unit[] = { "", "bytes", "%", "a fraction" };
    enum family f = STAR;
    size_t star = 0, first = 0; /* entry that f is of */
    for (size_t i = 0; i < a->n; i++) {
        struct alloc_spot at = alloc_spot_of(a, &a->entry[i]);
        if (a->entry[i].rest && star++)
            return alloc_fail(r->err, BERTH_EINVAL, at, "more than one \"*\"");
        if (r->family[i] == STAR)
            continue;
        if (f != STAR && r->family[i] != f)
            return alloc_fail(r->err, BERTH_EINVAL, at, "mixed units, %s in entry %u and %s here",
                              unit[f], a->entry[first].number, unit[r->family[i]]);
        first = f == STAR ? i : first;
        f = r->family[i];
    }
    for (size_t i = 0; i < a->n && f == FRACTION; i++) {
        struct alloc_spot at = alloc_spot_of(a, &a->entry[i]);
        if (a->entry[i].rest)
            return alloc_fail(r->err, BERTH_EINVAL, at, "\"*\" needs byte or %% amounts");
        if (more_than(a->entry[i].num, 1))
            return alloc_fail(r->err, BERTH_EINVAL, at,
                              "fraction must be between 0 and 1 (bytes need a unit)");
    }
    a->mode = f == PERCENT ? ALLOC_RATIO : f == FRACTION ? ALLOC_FRACTION : ALLOC_BYTES;
    return BERTH_OK;
}

static bool bare_star(const struct alloc_entry *e)
{
    return e->rest && !e->bytes;
}

/* A device may come twice in one case: bytes, and a bare "*" that makes them a minimum. */
static berth_status merge_twice(struct reader *r)
{
    struct alloc *a = r->out;
    for (size_t i = 0; i < a->n; i++) {
        for (size_t k = 0; k < i; k++) {
            struct alloc_entry *x = &a->entry[k], *y = &a->entry[i];
            if (strcmp(x->device, y->device) != 0)
                continue;
            struct alloc_spot at = alloc_spot_of(a, y);
            if (a->mode != ALLOC_BYTES || bare_star(x) == bare_star(y))
                return alloc_fail(r->err, BERTH_EINVAL, at, "device listed twice");
            x->bytes += y->bytes; /* one of them is 0 */
            x->rest = true;
            memmove(y, y + 1, (--a->n - i) * sizeof *y);
            i--;
            break;
        }
    }
    return BERTH_OK;
}

/* Weights need a sum; with a "*" they are percents of the model and end at 100. */
static berth_status check_ratios(struct reader *r)
{
    const struct alloc *a = r->out;
    unsigned __int128 sum = 0; /* of percent * 10^18: 64 entries of 10^6 % are far from 2^128 */
    bool star = false;
    for (size_t i = 0; i < a->n; i++)
        star |= a->entry[i].rest;
    for (size_t i = 0; i < a->n; i++) {
        struct alloc_spot at = alloc_spot_of(a, &a->entry[i]);
        struct alloc_num x = a->entry[i].num;
        sum += x.digits * alloc_ten_to(SCALE_MAX - x.scale);
        if (star && sum > 100 * alloc_ten_to(SCALE_MAX))
            return alloc_fail(r->err, BERTH_EINVAL, at, "more than 100 %% beside a \"*\"");
    }
    struct alloc_spot at = alloc_spot_of(a, &a->entry[0]);
    if (!star && !sum)
        return alloc_fail(r->err, BERTH_EINVAL, at, "ratios add up to 0");
    return BERTH_OK;
}

/* ---- the suffix ---- */

static berth_status read_gigabytes(struct view v, struct alloc_spot at, uint64_t *bytes,
                                   berth_err *err)
{
    struct alloc_num x;
    bool minus = v.n && v.s[0] == '-';
    if (minus)
        v = trimmed(v.s + 1, v.n - 1);
    if (!v.n)
        return alloc_fail(err, BERTH_EINVAL, at, "amount missing");
    if (number_length(v) != v.n)
        return alloc_fail(err, BERTH_EINVAL, at, "bad number, write gigabytes as 4 or 0.5");
    if (!number_value(v, &x))
        return alloc_fail(err, BERTH_EINVAL, at, "too many digits");
    if ((minus && x.digits) || more_than(x, ALLOC_GIB_MAX))
        return alloc_fail(err, BERTH_EINVAL, at, "virtual VRAM out of range 0..%d", ALLOC_GIB_MAX);
    *bytes = (uint64_t)((unsigned __int128)x.digits * GIB / alloc_ten_to(x.scale));
    return BERTH_OK;
}

static berth_status read_donors(struct reader *r, struct view list)
{
    struct alloc *a = r->out;
    struct alloc_spot name = alloc_field(a, 3), at = name;
    at.part = NULL; /* the messages say it */
    for (bool more = true; more;) {
        struct view part;
        more = split(&list, ',', &part);
        if (!part.n)
            return alloc_fail(r->err, BERTH_EINVAL, at, "donor device missing");
        if (a->donors == ALLOC_ENTRIES_MAX)
            return alloc_fail(r->err, BERTH_ELIMIT, at, "more than %d donors", ALLOC_ENTRIES_MAX);
        if (read_name(r, name, part, a->donor[a->donors]))
            return r->err->code;
        for (size_t i = 0; i < a->donors; i++)
            if (strcmp(a->donor[i], a->donor[a->donors]) == 0)
                return alloc_fail(r->err, BERTH_EINVAL, at, "donor listed twice, %s", a->donor[i]);
        a->donors++;
    }
    return BERTH_OK;
}

static berth_status read_suffix(struct reader *r, struct view suffix)
{
    struct alloc *a = r->out;
    struct view field[4] = { 0 }, rest = suffix;
    size_t n = 0;
    for (bool more = true; more && n < ARRAY_LEN(field);)
        more = split(&rest, ';', &field[n++]);
    struct alloc_spot last = alloc_field(a, n);
    if (n > 3)
        return alloc_fail(r->err, BERTH_EINVAL, last, "too many \";\" fields");
    struct alloc_spot at = alloc_field(a, 1);
    /* A device nobody chose reaches us as nothing, or as Python's word for it. */
    if (field[0].n && read_name(r, at, field[0], a->compute))
        return r->err->code;
    if (strcmp(a->compute, "none") == 0)
        a->compute[0] = 0;
    at = alloc_field(a, 2);
    if (n > 1 && read_gigabytes(field[1], at, &a->virtual_bytes, r->err))
        return r->err->code;
    if (n == 2 && !a->n) {
        last.part = NULL;
        return alloc_fail(r->err, BERTH_EINVAL, last, "donor device missing");
    }
    if (n > 2 && read_donors(r, field[2]))
        return r->err->code;
    if (!a->n)
        a->mode = n > 1 ? ALLOC_VIRTUAL : ALLOC_COMPUTE_ONLY;
    return BERTH_OK;
}

/* ---- doors ---- */

static berth_status read_all(struct reader *r, size_t n)
{
    struct alloc *a = r->out;
    struct view rest = { a->text, n }, expert;
    bool hash = split(&rest, '#', &expert);
    struct view suffix = trimmed(rest.s, rest.n);
    struct alloc_spot at = { NULL, 1, suffix.s, suffix.n };
    if (hash && count(suffix, '#'))
        return alloc_fail(r->err, BERTH_EINVAL, at, "more than one \"#\"");
    if (read_entries(r, expert))
        return r->err->code;
    at = (struct alloc_spot) { NULL, 1, a->text, n };
    if (!a->n && (expert.n || !suffix.n))
        return alloc_fail(r->err, BERTH_EINVAL, at, "no device entries");
    if (a->n && (find_mode(r) || merge_twice(r)))
        return r->err->code;
    if (a->n && a->mode == ALLOC_RATIO && check_ratios(r))
        return r->err->code;
    return hash && suffix.n ? read_suffix(r, suffix) : BERTH_OK;
}

berth_status alloc_parse(const char *text, size_t n, struct alloc *out, berth_err *err)
{
    memset(out, 0, sizeof *out);
    struct alloc_spot at = { NULL, 1, text, n };
    if (n >= ALLOC_TEXT_MAX)
        return alloc_fail(err, BERTH_ELIMIT, at, "%zu bytes of text, at most %d", n,
                          ALLOC_TEXT_MAX - 1);
    if (n)
        memcpy(out->text, text, n);
    if (strlen(out->text) != n)
        return alloc_fail(err, BERTH_EINVAL, at, "a NUL in the text");
    struct reader r = { .out = out, .err = err };
    return read_all(&r, n);
}

berth_status alloc_compose(const char *device, const char *gib, const char *donors,
                           const char *expert, struct str *out, berth_err *err)
{
    struct view v = trimmed(gib ? gib : "", gib ? strlen(gib) : 0);
    struct alloc_spot at = { "gigabytes", 2, v.s, v.n };
    uint64_t bytes = 0;
    if (v.n && read_gigabytes(v, at, &bytes, err))
        return err->code;
    device = device ? device : "";
    expert = expert ? expert : "";
    if (*expert && strspn(expert, "; \t\r\n") == strlen(expert)) {
        at = (struct alloc_spot) { NULL, 1, expert, strlen(expert) };
        return alloc_fail(err, BERTH_EINVAL, at, "no device entries");
    }
    if (bytes)
        str_addf(out, "%s#%s;%.*s;%s", expert, device, (int)v.n, v.s, donors ? donors : "");
    else if (*expert)
        str_addf(out, "%s#%s", expert, device);
    return out->bad ? err_set(err, BERTH_ENOMEM, "composing an allocation string") : BERTH_OK;
}

void alloc_canonical(const struct alloc *a, struct str *out)
{
    for (size_t i = 0; i < a->n; i++) {
        const struct alloc_entry *e = &a->entry[i];
        str_addf(out, "%s%s,", i ? ";" : "", e->device);
        if (e->rest && !e->bytes)
            str_addc(out, '*');
        else if (a->mode == ALLOC_BYTES)
            str_addf(out, "%" PRIu64 "b%s", e->bytes, e->rest ? "*" : "");
        else
            str_addf(out, "%" PRIu64 "e-%u", e->num.digits, e->num.scale);
        if (a->mode == ALLOC_RATIO && !e->rest)
            str_addc(out, '%');
    }
    if (a->mode == ALLOC_VIRTUAL)
        str_addf(out, "#%" PRIu64, a->virtual_bytes);
    for (size_t i = 0; i < a->donors; i++)
        str_addf(out, "%c%s", i ? ',' : ';', a->donor[i]);
}
