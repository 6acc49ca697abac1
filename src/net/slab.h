/* slab: places in one piece of memory, decided on the host.
 *
 * First fit: the lowest gap that is large enough, always. So the places follow from the sequence of
 * takes and gives alone, and a dry run finds those of the real one. Only what is taken is written
 * down, sorted by place: what lies between are the gaps, and two that meet are one by themselves.
 * A few dozen places are taken at a time; walking them costs less than a lookup in a layer's name.
 * Threads  one owner. Nothing is allocated while there is room in the list, which only grows. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define SLAB_ALIGN 256 /* of places, as of device memory */

struct slab_place {
    uint64_t off, n; /* n: rounded up to SLAB_ALIGN */
};

struct slab {              /* zeroed: empty */
    struct slab_place *at; /* ascending, not overlapping */
    size_t n, cap;
    uint64_t limit; /* bytes there are; 0: as many as are wanted */
    uint64_t peak;  /* highest end since slab_clear() */
};

enum slab_result {
    SLAB_OK,
    SLAB_FULL, /* beyond the limit, or beyond 2^63 */
    SLAB_NOMEM /* the list could not grow */
};

/* n bytes (0 counts as 1) at *off. After a failure nothing changed. */
WARN_UNUSED enum slab_result slab_take(struct slab *s, uint64_t n, uint64_t *off);
/* False: nothing begins there. */
bool slab_give(struct slab *s, uint64_t off);
void slab_clear(struct slab *s); /* nothing taken, peak 0, no limit; the list's memory stays */
void slab_release(struct slab *s);
