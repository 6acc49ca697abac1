/* merge.c: a list of symbols and a heap of the pairs that can be merged. */
#include "text/merge.h"

#include <stdlib.h>

#define NOBODY UINT32_MAX

struct candidate { /* a pair that can be merged */
    uint64_t rank;
    uint32_t at, n; /* its left symbol; bytes of both */
    int32_t to;
};

struct merge_work merge_init(void)
{
    return (struct merge_work) { .symbol.elem = sizeof(struct symbol),
                                 .heap.elem = sizeof(struct candidate) };
}

void merge_release(struct merge_work *w)
{
    vec_release(&w->symbol);
    vec_release(&w->heap);
}

void merge_begin(struct merge_work *w)
{
    w->symbol.n = w->heap.n = 0;
}

bool merge_add(struct merge_work *w, int32_t id, size_t bytes, bool fixed)
{
    uint32_t at = (uint32_t)w->symbol.n;
    struct symbol *s = vec_add(&w->symbol);
    if (!s)
        return false;
    *s = (struct symbol) { .id = id,
                           .at = at ? s[-1].at + s[-1].n : 0,
                           .n = (uint32_t)bytes,
                           .prev = at ? at - 1 : NOBODY,
                           .next = NOBODY,
                           .fixed = fixed };
    if (at)
        s[-1].next = at;
    return true;
}

/* ---- a heap: lowest rank first, then leftmost ---- */

static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->rank != b->rank ? a->rank < b->rank : a->at < b->at;
}

static bool heap_push(struct vec *h, struct candidate c)
{
    if (!vec_add(h))
        return false;
    struct candidate *p = h->p;
    size_t i = h->n - 1;
    for (; i > 0 && before(&c, &p[(i - 1) / 2]); i = (i - 1) / 2)
        p[i] = p[(i - 1) / 2];
    p[i] = c;
    return true;
}

static struct candidate heap_pop(struct vec *h)
{
    struct candidate *p = h->p, top = p[0], last = p[h->n - 1];
    vec_pop(h);
    size_t i = 0;
    for (size_t kid; (kid = 2 * i + 1) < h->n; i = kid) {
        if (kid + 1 < h->n && before(&p[kid + 1], &p[kid]))
            kid++;
        if (!before(&p[kid], &last))
            break;
        p[i] = p[kid];
    }
    if (h->n > 0)
        p[i] = last;
    return top;
}

/* ---- merging ---- */

/* Looks at symbol `at` and its right neighbour; a pair that merges becomes a candidate. */
static bool consider(struct merge_work *w, uint32_t at, join_fn *join, const void *user)
{
    const struct symbol *s = w->symbol.p;
    struct joined to;
    if (at == NOBODY || s[at].next == NOBODY)
        return true;
    const struct symbol *l = &s[at], *r = &s[l->next];
    if (l->fixed || r->fixed || !join(user, l, r, &to))
        return true;
    const struct candidate c = { .rank = to.rank, .at = at, .n = l->n + r->n, .to = to.id };
    return heap_push(&w->heap, c);
}

/* Merges the best pair and looks at its new neighbours. */
static bool merge_best(struct merge_work *w, join_fn *join, const void *user)
{
    struct symbol *s = w->symbol.p;
    struct candidate c = heap_pop(&w->heap);
    uint32_t next = s[c.at].next;
    if (s[c.at].n == 0 || next == NOBODY || s[c.at].n + s[next].n != c.n)
        return true; /* one of them was merged with another meanwhile */
    s[c.at].id = c.to;
    s[c.at].n = c.n;
    s[c.at].next = s[next].next;
    if (s[next].next != NOBODY)
        s[s[next].next].prev = c.at;
    s[next].n = 0;
    return consider(w, s[c.at].prev, join, user) && consider(w, c.at, join, user);
}

bool merge_all(struct merge_work *w, join_fn *join, const void *user)
{
    for (uint32_t i = 0; i + 1 < w->symbol.n; i++)
        if (!consider(w, i, join, user))
            return false;
    while (w->heap.n > 0)
        if (!merge_best(w, join, user))
            return false;
    return true;
}

const struct symbol *merge_first(const struct merge_work *w)
{
    return w->symbol.n ? w->symbol.p : NULL;
}

const struct symbol *merge_next(const struct merge_work *w, const struct symbol *s)
{
    return s->next == NOBODY ? NULL : (const struct symbol *)w->symbol.p + s->next;
}

/* ---- pairs ---- */

struct pair_slot {
    uint64_t key; /* left << 32 | right, + 1; 0: empty */
    uint32_t rank;
    int32_t to;
};

static uint64_t key_of(int32_t left, int32_t right)
{
    return ((uint64_t)(uint32_t)left << 32 | (uint32_t)right) + 1;
}

/* The slot of this key, or the empty one where it would go. pre: cap > 0, not full */
static struct pair_slot *slot_of(const struct pairs *p, uint64_t key)
{
    uint64_t h = key * UINT64_C(0x9e3779b97f4a7c15);
    h = (h ^ h >> 32) * UINT64_C(0xd6e8feb86659fd93);
    size_t mask = p->cap - 1, i = (size_t)(h ^ h >> 32) & mask;
    while (p->slot[i].key && p->slot[i].key != key)
        i = (i + 1) & mask;
    return &p->slot[i];
}

static bool grow(struct pairs *p)
{
    struct pairs next = { .cap = p->cap ? 2 * p->cap : 64, .n = p->n };
    next.slot = calloc(next.cap, sizeof *next.slot);
    if (!next.slot)
        return false;
    for (size_t i = 0; i < p->cap; i++)
        if (p->slot[i].key)
            *slot_of(&next, p->slot[i].key) = p->slot[i];
    free(p->slot);
    *p = next;
    return true;
}

bool pairs_set(struct pairs *p, int32_t left, int32_t right, uint32_t rank, int32_t to)
{
    if (4 * p->n >= 3 * p->cap && !grow(p))
        return false;
    struct pair_slot *s = slot_of(p, key_of(left, right));
    p->n += !s->key;
    *s = (struct pair_slot) { .key = key_of(left, right), .rank = rank, .to = to };
    return true;
}

bool pairs_get(const struct pairs *p, int32_t left, int32_t right, struct joined *out)
{
    if (left < 0 || right < 0 || !p->cap)
        return false;
    const struct pair_slot *s = slot_of(p, key_of(left, right));
    *out = (struct joined) { .rank = s->rank, .id = s->to };
    return s->key;
}

bool pairs_join(const void *user, const struct symbol *l, const struct symbol *r,
                struct joined *out)
{
    return pairs_get(user, l->id, r->id, out);
}

void pairs_release(struct pairs *p)
{
    free(p->slot);
    *p = (struct pairs) { 0 };
}
