/* alloc_impl: what alloc.c, alloc_resolve.c and plan_auto.c share. */
#ifndef PLAN_ALLOC_IMPL_H
#define PLAN_ALLOC_IMPL_H

#include "plan/alloc.h"

/* Where in the text a mistake is: entries before the "#", or those behind it. Borrowed text. */
struct alloc_spot {
    const char *part; /* what is meant there, as in "compute device"; NULL: nothing to say */
    size_t number;    /* 1..; 0: the mistake is in no text, a caller gave it */
    const char *text;
    size_t n;
};

/* `expert_mode_allocations: <part>: <what> (entry N: "<text>")`, long texts cut; `<part>: <what>`
 * for what is in no text. Returns the code. */
berth_status alloc_fail(berth_err *err, berth_status code, const struct alloc_spot *at,
                        const char *fmt, ...) PRINTF_LIKE(4, 5);

/* The entry of the suffix with that number, counted behind "#": 1 compute, 2 gigabytes, 3 donors.
 * */
struct alloc_spot alloc_field(const struct alloc *a, size_t number);

/* Shrinks (*s, *n) to what lies between the blanks around it. */
void alloc_trim(const char **s, size_t *n);
char alloc_lower(char c); /* ASCII, in every locale */

unsigned long alloc_device_number(const char *name); /* N of "cuda:N"; 0 without one */
/* The device a caller named, or without a name the default one: the first that is not the host. */
berth_status plan_compute_find(const struct plan_devices *d, const char *name, size_t *out,
                               berth_err *err);

#endif
