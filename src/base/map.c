/* Linear probing. Deleting shifts the followers of a slot back instead of leaving a tombstone, so a
 * lookup always ends at the first empty slot. Kept at most three quarters full. */
#include "base/map.h"

#include "base/hash.h"
#include "base/sz.h"

#include <stdlib.h>
#include <string.h>

struct map_slot {
    const char *key; /* borrowed */
    size_t len;
    uint64_t hash; /* USED set; 0: the slot is empty */
    uint64_t value;
};

#define USED (UINT64_C(1) << 63)

static uint64_t hash_of(const struct map *m, const char *key, size_t len)
{
    return hash_xxh64(key, len, m->seed) | USED;
}

/* Index of the key's slot, or of the empty one where it would go. cap > 0 and not full. */
static size_t probe(const struct map *m, const char *key, size_t len, uint64_t hash)
{
    size_t mask = m->cap - 1;
    for (size_t i = (size_t)hash & mask;; i = (i + 1) & mask) {
        const struct map_slot *s = &m->slot[i];
        if (!s->hash ||
            (s->hash == hash && s->len == len && (len == 0 || memcmp(s->key, key, len) == 0)))
            return i;
    }
}

bool map_reserve(struct map *m, size_t n)
{
    size_t cap = m->cap ? m->cap : 16, bytes;
    while (cap - cap / 4 < n)
        if (!sz_mul(cap, 2, &cap))
            return false;
    if (cap == m->cap)
        return true;
    if (!sz_mul(cap, sizeof *m->slot, &bytes))
        return false;
    struct map_slot *slot = calloc(1, bytes);
    if (!slot)
        return false;
    for (size_t i = 0; i < m->cap; i++) {
        if (!m->slot[i].hash)
            continue;
        size_t at = (size_t)m->slot[i].hash & (cap - 1);
        while (slot[at].hash)
            at = (at + 1) & (cap - 1);
        slot[at] = m->slot[i];
    }
    free(m->slot);
    m->slot = slot;
    m->cap = cap;
    return true;
}

enum map_put_result map_add(struct map *m, const char *key, size_t len, uint64_t value)
{
    uint64_t hash = hash_of(m, key, len);
    if (m->cap && m->slot[probe(m, key, len, hash)].hash)
        return MAP_EXISTS;
    if (!map_reserve(m, m->n + 1))
        return MAP_NOMEM;
    m->slot[probe(m, key, len, hash)] =
        (struct map_slot) { .key = key, .len = len, .hash = hash, .value = value };
    m->n++;
    return MAP_ADDED;
}

static struct map_slot *find(const struct map *m, const char *key, size_t len)
{
    if (!m->n)
        return NULL;
    struct map_slot *s = &m->slot[probe(m, key, len, hash_of(m, key, len))];
    return s->hash ? s : NULL;
}

bool map_get(const struct map *m, const char *key, size_t len, uint64_t *value)
{
    const struct map_slot *s = find(m, key, len);
    if (s && value)
        *value = s->value;
    return s;
}

bool map_set(struct map *m, const char *key, size_t len, uint64_t value)
{
    struct map_slot *s = find(m, key, len);
    if (s)
        s->value = value;
    return s;
}

bool map_del(struct map *m, const char *key, size_t len)
{
    struct map_slot *s = find(m, key, len);
    if (!s)
        return false;
    size_t mask = m->cap - 1, hole = (size_t)(s - m->slot);
    for (size_t i = (hole + 1) & mask; m->slot[i].hash; i = (i + 1) & mask) {
        /* A follower may fill the hole unless its home lies behind the hole, cyclically. */
        size_t home = (size_t)m->slot[i].hash & mask;
        if (((i - home) & mask) >= ((i - hole) & mask)) {
            m->slot[hole] = m->slot[i];
            hole = i;
        }
    }
    m->slot[hole] = (struct map_slot) { 0 };
    m->n--;
    return true;
}

bool map_next(const struct map *m, size_t *it, const char **key, size_t *len, uint64_t *value)
{
    for (; *it < m->cap; ++*it) {
        const struct map_slot *s = &m->slot[*it];
        if (!s->hash)
            continue;
        *key = s->key;
        *len = s->len;
        *value = s->value;
        ++*it;
        return true;
    }
    return false;
}

void map_release(struct map *m)
{
    free(m->slot);
    *m = (struct map) { .seed = m->seed };
}
