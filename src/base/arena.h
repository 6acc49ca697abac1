/* arena: memory for things that die together.
 *
 * A zeroed struct is an empty arena. Memory comes zeroed and 16-byte aligned. Not thread-safe:
 * one arena, one owner. */
#pragma once

#include "base/attr.h"

#include <stddef.h>

struct arena_chunk;

struct arena {
    struct arena_chunk *head;
    size_t used;  /* bytes handed out, padding included */
    size_t total; /* bytes taken from malloc */
};

/* All return NULL when memory is exhausted or the size does not fit. */
WARN_UNUSED void *arena_alloc(struct arena *a, size_t n);
WARN_UNUSED void *arena_array(struct arena *a, size_t count, size_t elem);
WARN_UNUSED char *arena_strndup(struct arena *a, const char *s, size_t n); /* adds the NUL */
WARN_UNUSED char *arena_printf(struct arena *a, const char *fmt, ...) PRINTF_LIKE(2, 3);

void arena_release(struct arena *a); /* frees everything; the arena is empty and usable again */
