/* unicode.c: lookups in the tables, normalisation form C, lower case. */
#include "text/unicode.h"

#include "base/utf8.h"
#include "text/unicode_tables.h"

#include <string.h>

/* Hangul syllables are composed by arithmetic: leading, vowel and trailing jamo. */
enum {
    S_BASE = 0xac00,
    L_BASE = 0x1100,
    V_BASE = 0x1161,
    T_BASE = 0x11a7,
    L_COUNT = 19,
    V_COUNT = 21,
    T_COUNT = 28,
    S_COUNT = L_COUNT * V_COUNT * T_COUNT,
};

static uint8_t run_value(const struct uc_run *r, size_t n, uint32_t c)
{
    while (n > 0) {
        size_t mid = n / 2;
        if (c < r[mid].first) {
            n = mid;
        } else if (c - r[mid].first >= r[mid].count) {
            r += mid + 1;
            n -= mid + 1;
        } else {
            return r[mid].value;
        }
    }
    return 0;
}

enum uc_class uc_class(uint32_t c)
{
    return (enum uc_class)run_value(uc_classes, ARRAY_LEN(uc_classes), c);
}

static uint8_t ccc(uint32_t c)
{
    return c < 0x300 ? 0 : run_value(uc_cccs, ARRAY_LEN(uc_cccs), c);
}

bool uc_isspace(uint32_t c)
{
    return (c >= 0x1c && c <= 0x1f) || uc_class(c) == UC_SPACE;
}

bool uc_joins(uint32_t c)
{
    return c >= 0x300 && run_value(uc_joins_runs, ARRAY_LEN(uc_joins_runs), c);
}

int uc_decimal(uint32_t c)
{
    for (size_t i = 0; i < ARRAY_LEN(uc_zeros) && uc_zeros[i] <= c; i++)
        if (c - uc_zeros[i] < 10)
            return (int)(c - uc_zeros[i]);
    return -1;
}

/* ---- UTF-8 ---- */

uint32_t uc_point(const char *s, size_t n, size_t *len)
{
    uint32_t c = 0xfffd;
    *len = utf8_step(s, n);
    if (*len)
        utf8_get(s, n, &c);
    return c;
}

static bool push(struct vec *v, uint32_t c)
{
    return vec_push(v, &c);
}

bool uc_decode(const char *s, size_t n, struct vec *out)
{
    for (size_t i = 0; i < n;) {
        size_t len;
        uint32_t c = uc_point(s + i, n - i, &len);
        if (!push(out, c))
            return false;
        i += len ? len : 1;
    }
    return true;
}

/* ---- normalisation ---- */

/* What c decomposes to, once; b 0: one code point. False: to nothing else. */
static bool decompose_once(uint32_t c, uint32_t *a, uint32_t *b)
{
    size_t lo = 0, hi = ARRAY_LEN(uc_twos), at = 0;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (uc_twos[mid].cp == c) {
            *a = uc_twos[mid].a;
            *b = uc_twos[mid].b;
            return true;
        }
        if (uc_twos[mid].cp < c)
            lo = mid + 1;
        else
            hi = mid;
    }
    for (size_t i = 0; i < ARRAY_LEN(uc_ones_runs) && uc_ones_runs[i].first <= c; i++) {
        if (c - uc_ones_runs[i].first < uc_ones_runs[i].count) {
            *a = uc_ones[at + c - uc_ones_runs[i].first];
            *b = 0;
            return true;
        }
        at += uc_ones_runs[i].count;
    }
    return false;
}

/* The whole canonical decomposition of c, in order. Only the first of two parts decomposes again,
 * and never further than three times (a table of ours, not the text, says so). */
static bool decompose(uint32_t c, struct vec *out)
{
    if (c - S_BASE < S_COUNT) {
        uint32_t s = c - S_BASE, t = s % T_COUNT;
        return push(out, L_BASE + s / (V_COUNT * T_COUNT)) &&
               push(out, V_BASE + s % (V_COUNT * T_COUNT) / T_COUNT) &&
               (t == 0 || push(out, T_BASE + t));
    }
    uint32_t tail[8], b;
    size_t n = 0;
    while (n < ARRAY_LEN(tail) && decompose_once(c, &c, &b))
        if (b)
            tail[n++] = b;
    if (!push(out, c))
        return false;
    while (n > 0)
        if (!push(out, tail[--n]))
            return false;
    return true;
}

/* Marks behind a starter into the order of their classes, equal ones as they stood. A run may be as
 * long as the text: sorted by counting. */
static bool reorder(uint32_t *c, size_t n, struct vec *tmp)
{
    for (size_t i = 0; i < n;) {
        size_t end = i;
        bool sorted = true;
        for (uint8_t before = 0, k; end < n && (k = ccc(c[end])) != 0; before = k, end++)
            sorted = sorted && k >= before;
        if (!sorted) {
            size_t start[257] = { 0 };
            if (!vec_reserve(tmp, end - i))
                return false;
            uint32_t *to = tmp->p;
            for (size_t j = i; j < end; j++)
                start[ccc(c[j]) + 1]++;
            for (size_t k = 1; k < 257; k++)
                start[k] += start[k - 1];
            for (size_t j = i; j < end; j++)
                to[start[ccc(c[j])]++] = c[j];
            memcpy(c + i, to, (end - i) * sizeof *c);
        }
        i = end > i ? end : i + 1;
    }
    return true;
}

/* What a and b compose to; 0: they do not. */
static uint32_t compose(uint32_t a, uint32_t b)
{
    if (a - L_BASE < L_COUNT && b - V_BASE < V_COUNT)
        return S_BASE + ((a - L_BASE) * V_COUNT + (b - V_BASE)) * T_COUNT;
    if (a - S_BASE < S_COUNT && (a - S_BASE) % T_COUNT == 0 && b - T_BASE - 1 < T_COUNT - 1)
        return a + (b - T_BASE);
    size_t lo = 0, hi = ARRAY_LEN(uc_pairs);
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        const struct uc_two *d = &uc_twos[uc_pairs[mid]];
        if (d->a == a && d->b == b)
            return d->cp;
        if (d->a < a || (d->a == a && d->b < b))
            lo = mid + 1;
        else
            hi = mid;
    }
    return 0;
}

/* In place; returns how many are left. A mark composes with the last starter unless something
 * between them has its class or a higher one, or is a starter itself. */
static size_t compose_all(uint32_t *c, size_t n)
{
    size_t to = 0, starter = SIZE_MAX;
    uint8_t last = 0; /* class of what was kept last behind the starter; 0: nothing */
    for (size_t i = 0; i < n; i++) {
        uint8_t k = ccc(c[i]);
        if (starter != SIZE_MAX && (starter + 1 == to || (last != 0 && last < k))) {
            uint32_t both = compose(c[starter], c[i]);
            if (both) {
                c[starter] = both;
                continue;
            }
        }
        if (k == 0)
            starter = to;
        last = k;
        c[to++] = c[i];
    }
    return to;
}

bool uc_nfc(struct vec *v)
{
    const uint32_t *c = v->p;
    size_t i = 0;
    while (i < v->n && c[i] < 0x300) /* Latin-1 and its neighbours are composed already */
        i++;
    if (i == v->n)
        return true;
    struct vec all = { .elem = sizeof(uint32_t) }, tmp = { .elem = sizeof(uint32_t) };
    bool ok = true;
    for (i = 0; ok && i < v->n; i++)
        ok = c[i] < 0xc0 ? push(&all, c[i]) : decompose(c[i], &all);
    ok = ok && reorder(all.p, all.n, &tmp);
    if (ok) {
        all.n = compose_all(all.p, all.n);
        vec_release(v);
        *v = all;
    } else {
        vec_release(&all);
    }
    vec_release(&tmp);
    return ok;
}

/* ---- lower case ---- */

static uint32_t lower(uint32_t c)
{
    size_t lo = 0, hi = ARRAY_LEN(uc_lowers);
    while (lo < hi) { /* the last run that begins at or before c */
        size_t mid = lo + (hi - lo) / 2;
        if (uc_lowers[mid].first <= c)
            lo = mid + 1;
        else
            hi = mid;
    }
    if (lo == 0)
        return c;
    const struct uc_lower *r = &uc_lowers[lo - 1];
    uint32_t off = c - r->first;
    return off % r->step == 0 && off / r->step < r->count ? (uint32_t)((int32_t)c + r->delta) : c;
}

bool uc_lower(const uint32_t *c, size_t n, struct vec *out)
{
    for (size_t i = 0; i < n; i++)
        if (!push(out, c[i] == 0x130 ? 'i' : lower(c[i])) || (c[i] == 0x130 && !push(out, 0x307)))
            return false;
    return true;
}
