#include "net/slab.h"

#include "base/err.h"
#include "base/sz.h"

enum { FIRST = 64 };

/* Index of the first place at or behind off. */
static size_t lower(const struct slab *s, uint64_t off)
{
    size_t lo = 0, hi = s->n;
    while (lo < hi) {
        size_t mid = lo + (hi - lo) / 2;
        if (s->at[mid].off < off)
            lo = mid + 1;
        else
            hi = mid;
    }
    return lo;
}

static bool grow(struct slab *s)
{
    size_t cap = s->cap ? s->cap * 2 : FIRST, bytes;
    if (s->n < s->cap)
        return true;
    if (!sz_mul(cap, sizeof *s->at, &bytes))
        return false;
    struct slab_place *at = realloc(s->at, bytes);
    if (!at)
        return false;
    s->at = at;
    s->cap = cap;
    return true;
}

enum slab_result slab_take(struct slab *s, uint64_t n, uint64_t *off)
{
    const uint64_t most = s->limit ? s->limit : UINT64_C(1) << 63;
    if (n > most)
        return SLAB_FULL;
    n = ((n ? n : 1) + SLAB_ALIGN - 1) & ~(uint64_t)(SLAB_ALIGN - 1);
    uint64_t at = 0;
    size_t i = 0;
    for (; i < s->n && s->at[i].off - at < n; i++)
        at = s->at[i].off + s->at[i].n;
    if (at > most || n > most - at)
        return SLAB_FULL;
    if (!grow(s))
        return SLAB_NOMEM;
    memmove(&s->at[i + 1], &s->at[i], (s->n - i) * sizeof *s->at);
    s->at[i] = (struct slab_place) { at, n };
    s->n++;
    if (at + n > s->peak)
        s->peak = at + n;
    *off = at;
    return SLAB_OK;
}

bool slab_give(struct slab *s, uint64_t off)
{
    size_t i = lower(s, off);
    if (i == s->n || s->at[i].off != off)
        return false;
    s->n--;
    memmove(&s->at[i], &s->at[i + 1], (s->n - i) * sizeof *s->at);
    return true;
}

void slab_clear(struct slab *s)
{
    s->n = 0;
    s->limit = s->peak = 0;
}

void slab_release(struct slab *s)
{
    free(s->at);
    *s = (struct slab) { 0 };
}
