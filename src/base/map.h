/* map: byte-string key -> uint64_t value, open addressing. Keys are borrowed and outlive the map.
 * A zeroed struct is an empty map; set `seed` first when keys come from outside and many. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct map_slot;

struct map {
    struct map_slot *slot;
    size_t n, cap; /* cap is a power of two or 0 */
    uint64_t seed;
};

enum map_put_result { MAP_NOMEM, MAP_ADDED, MAP_EXISTS };

/* Room for n keys without further allocation. */
WARN_UNUSED bool map_reserve(struct map *m, size_t n);
/* Adds key -> value. When the key is there already nothing changes and MAP_EXISTS is returned. */
WARN_UNUSED enum map_put_result map_add(struct map *m, const char *key, size_t len, uint64_t value);
/* These three: false when the key is not there. value of map_get may be NULL. */
bool map_get(const struct map *m, const char *key, size_t len, uint64_t *value);
bool map_set(struct map *m, const char *key, size_t len, uint64_t value);
bool map_del(struct map *m, const char *key, size_t len);
/* Iteration in unspecified order: start with *it = 0; false at the end. No add or del meanwhile. */
bool map_next(const struct map *m, size_t *it, const char **key, size_t *len, uint64_t *value);
void map_release(struct map *m);
