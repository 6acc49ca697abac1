/* vec: a growable array of equally sized elements. { .elem = sizeof(T) } is an empty one. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>

struct vec {
    void *p; /* n elements of elem bytes; moves when it grows */
    size_t n, cap, elem;
};

WARN_UNUSED void *vec_add(struct vec *v);                   /* a new zeroed element, or NULL */
WARN_UNUSED bool vec_push(struct vec *v, const void *elem); /* copies it in; false: no memory */
WARN_UNUSED bool vec_reserve(struct vec *v, size_t total);  /* room for `total` elements */
void *vec_at(const struct vec *v, size_t i); /* borrowed until the next growth; i < n or BUG() */
void vec_pop(struct vec *v);                 /* drops the last element */
void vec_release(struct vec *v);             /* empty again, elem kept */
