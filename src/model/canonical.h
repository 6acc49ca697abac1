/* canonical: a file's tensors by the names a network asks for, while its config is read. They are
 * found where net.h (Names) will find them: translated if `names` knows another name, else as they
 * are. */
#ifndef MODEL_CANONICAL_H
#define MODEL_CANONICAL_H

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

#endif
