/* vocab.c: open addressing over one block of texts. */
#include "text/vocab.h"

#include "base/hash.h"

#include <stdlib.h>
#include <string.h>

struct entry {
    uint32_t at;
    uint32_t n; /* bytes + 1; 0: no text has this id */
};

static const struct entry *entry_at(const struct vocab *v, size_t id)
{
    return id < v->entry.n ? (const struct entry *)v->entry.p + id : NULL;
}

const char *vocab_text(const struct vocab *v, int32_t id, size_t *n)
{
    const struct entry *e = id < 0 ? NULL : entry_at(v, (size_t)id);
    *n = 0;
    if (!e || !e->n)
        return NULL;
    *n = e->n - 1;
    return *n ? (const char *)v->bytes.p + e->at : "";
}

size_t vocab_ids(const struct vocab *v)
{
    return v->entry.n;
}

/* The slot of this text, or the empty one where it would go. pre: cap > 0, not full */
static uint32_t *slot_of(const struct vocab *v, const char *text, size_t n)
{
    size_t mask = v->cap - 1, have;
    for (size_t i = (size_t)hash_xxh64(text, n, 0) & mask;; i = (i + 1) & mask) {
        if (!v->slot[i])
            return &v->slot[i];
        const char *other = vocab_text(v, (int32_t)(v->slot[i] - 1), &have);
        if (have == n && memcmp(other, text, n) == 0)
            return &v->slot[i];
    }
}

int32_t vocab_find(const struct vocab *v, const char *text, size_t n)
{
    return v->cap ? (int32_t)*slot_of(v, text, n) - 1 : -1;
}

/* Twice as many slots, at most half of them in use. */
static bool grow(struct vocab *v)
{
    struct vocab next = *v;
    next.cap = v->cap ? 2 * v->cap : 64;
    next.slot = calloc(next.cap, sizeof *next.slot);
    if (!next.slot)
        return false;
    for (size_t i = 0, n; i < v->cap; i++)
        if (v->slot[i]) {
            const char *text = vocab_text(v, (int32_t)(v->slot[i] - 1), &n);
            *slot_of(&next, text, n) = v->slot[i];
        }
    free(v->slot);
    *v = next;
    return true;
}

static bool has_room(struct vocab *v, size_t id)
{
    while (v->entry.n <= id)
        if (!vec_add(&v->entry))
            return false;
    return true;
}

enum vocab_result vocab_add(struct vocab *v, const char *text, size_t n, uint64_t id)
{
    v->bytes.elem = 1;
    v->entry.elem = sizeof(struct entry);
    if (id >= VOCAB_IDS_MAX || n > VOCAB_BYTES_MAX - v->bytes.n)
        return VOCAB_FULL;
    const struct entry *old = entry_at(v, (size_t)id);
    if (vocab_find(v, text, n) >= 0)
        return VOCAB_TEXT_TWICE;
    if (old && old->n)
        return VOCAB_ID_TWICE;
    size_t total = v->bytes.n + n, want = v->bytes.cap;
    while (want < total) /* by doubling: vec_reserve() takes what it is told */
        want = want ? 2 * want : 4096;
    if ((2 * v->n >= v->cap && !grow(v)) || !has_room(v, (size_t)id) ||
        !vec_reserve(&v->bytes, want))
        return VOCAB_NOMEM;
    uint32_t *slot = slot_of(v, text, n);
    if (n)
        memcpy((char *)v->bytes.p + v->bytes.n, text, n);
    ((struct entry *)v->entry.p)[id] =
        (struct entry) { .at = (uint32_t)v->bytes.n, .n = (uint32_t)n + 1 };
    v->bytes.n += n;
    v->n++;
    *slot = (uint32_t)id + 1;
    return VOCAB_OK;
}

void vocab_release(struct vocab *v)
{
    vec_release(&v->bytes);
    vec_release(&v->entry);
    free(v->slot);
    *v = (struct vocab) { 0 };
}
