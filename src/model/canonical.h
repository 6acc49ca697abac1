/* canonical: a file's tensors by the names a network asks for, and what translations are made of.
 *
 * While a config is read, tensors are found where net.h (Names) will find them: translated if
 * `names` knows another name, else as they are. */
#pragma once

#include "format/weights.h"
#include "net/net.h"

struct canonical { /* borrowed */
    const struct weights *w;
    const char *root;    /* in front of every name in the file */
    net_names_fn *names; /* NULL: the file has our names */
    const void *user;    /* of names */
};

/* The tensor called so, or NULL. */
const struct weights_entry *canonical_find(const struct canonical *c, const char *fmt, ...)
    PRINTF_LIKE(2, 3);

/* ---- for names ---- */

/* Prints a name; false: it has no room. */
bool name_print(char *to, size_t cap, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* "<list>.<number>." at *s, the number below `most`: *s moves behind it. False: something else. */
bool name_numbered(const char **s, const char *list, unsigned most, unsigned *number);
/* The first row of { ours, theirs } whose side (0 ours, 1 theirs) *s begins with, which moves
 * behind it; NULL: none. A row { NULL } ends the list. */
const char *const *name_pair(const char *const (*list)[2], int side, const char **s);
