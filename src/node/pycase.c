/* pycase: upper(), lower(), capitalize() and title() of Python's str. */
#include "base/attr.h"
#include "base/utf8.h"
#include "node/py.h"
#include "node/pycase_tables.h"

struct map_of {
    const struct case_run *run;
    size_t runs;
    const struct case_many *many;
    size_t manys;
};
#define MAP(name)                                                                                  \
    {                                                                                              \
        case_##name, ARRAY_LEN(case_##name), case_##name##_many, ARRAY_LEN(case_##name##_many)     \
    }
static const struct map_of upper = MAP(upper), lower = MAP(lower), title = MAP(title);

/* The last row whose first point is at most c, or rows: none. */
#define LAST_AT(row, rows, c, member, at)                                                          \
    do {                                                                                           \
        size_t low_ = 0, high_ = (rows);                                                           \
        while (low_ < high_) {                                                                     \
            size_t mid_ = (low_ + high_) / 2;                                                      \
            if ((row)[mid_].member <= (c))                                                         \
                low_ = mid_ + 1;                                                                   \
            else                                                                                   \
                high_ = mid_;                                                                      \
        }                                                                                          \
        (at) = low_ ? low_ - 1 : (rows);                                                           \
    } while (0)

static void put(uint32_t c, struct str *out)
{
    char bytes[4];
    str_add(out, bytes, utf8_put(c, bytes));
}

static void put_mapped(const struct map_of *m, uint32_t c, struct str *out)
{
    size_t i;
    LAST_AT(m->many, m->manys, c, from, i);
    if (i < m->manys && m->many[i].from == c) {
        for (size_t k = 0; k < 3 && m->many[i].to[k]; k++)
            put(m->many[i].to[k], out);
        return;
    }
    LAST_AT(m->run, m->runs, c, first, i);
    if (i < m->runs) {
        const struct case_run *r = &m->run[i];
        uint32_t past = c - r->first;
        if (past % r->step == 0 && past / r->step < r->count)
            c = (uint32_t)((int64_t)c + r->delta);
    }
    put(c, out);
}

static bool within(const struct case_span *span, size_t n, uint32_t c)
{
    size_t i;
    LAST_AT(span, n, c, first, i);
    return i < n && c <= span[i].last;
}

static bool is_cased(uint32_t c)
{
    return within(case_cased, ARRAY_LEN(case_cased), c);
}

static bool is_ignorable(uint32_t c)
{
    return within(case_ignorable, ARRAY_LEN(case_ignorable), c);
}

#define SIGMA 0x3a3
#define FINAL_SIGMA 0x3c2
#define SMALL_SIGMA 0x3c3

struct walk { /* over a text, lowering what it passes */
    const char *s;
    size_t n, at;
    bool after_cased; /* the last point that is not ignorable is a letter with a case */
};

/* Is the next point that is not ignorable a letter with a case? */
static bool before_cased(const struct walk *w, size_t at)
{
    uint32_t c = 0;
    while (at < w->n) {
        at += utf8_get(w->s + at, w->n - at, &c);
        if (!is_ignorable(c))
            return is_cased(c);
    }
    return false;
}

/* A byte that is no UTF-8 stays as it is. */
static bool step(struct walk *w, uint32_t *c, struct str *out)
{
    size_t len = utf8_step(w->s + w->at, w->n - w->at);
    utf8_get(w->s + w->at, w->n - w->at, c);
    if (!len)
        str_addc(out, w->s[w->at]);
    w->at += len ? len : 1;
    return len;
}

static void put_lower(struct walk *w, uint32_t c, struct str *out)
{
    if (c == SIGMA)
        put(w->after_cased && !before_cased(w, w->at) ? FINAL_SIGMA : SMALL_SIGMA, out);
    else
        put_mapped(&lower, c, out);
}

static void pass(struct walk *w, uint32_t c)
{
    if (!is_ignorable(c))
        w->after_cased = is_cased(c);
}

void py_upper(const char *s, size_t n, struct str *out)
{
    struct walk w = { .s = s, .n = n };
    for (uint32_t c; w.at < n;)
        if (step(&w, &c, out))
            put_mapped(&upper, c, out);
}

void py_lower(const char *s, size_t n, struct str *out)
{
    struct walk w = { .s = s, .n = n };
    for (uint32_t c; w.at < n;)
        if (step(&w, &c, out)) {
            put_lower(&w, c, out);
            pass(&w, c);
        }
}

void py_capitalize(const char *s, size_t n, struct str *out)
{
    struct walk w = { .s = s, .n = n };
    for (uint32_t c; w.at < n;) {
        bool first = w.at == 0;
        if (!step(&w, &c, out))
            continue;
        if (first)
            put_mapped(&title, c, out);
        else
            put_lower(&w, c, out);
        pass(&w, c);
    }
}

void py_title(const char *s, size_t n, struct str *out)
{
    struct walk w = { .s = s, .n = n };
    bool inside = false; /* a word */
    for (uint32_t c; w.at < n;) {
        if (!step(&w, &c, out)) {
            inside = false;
            continue;
        }
        if (inside)
            put_lower(&w, c, out);
        else
            put_mapped(&title, c, out);
        pass(&w, c);
        inside = is_cased(c);
    }
}
