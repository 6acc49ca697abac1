/* sqlite_store: what lies behind a store that SQLite keeps, for tests that look inside. */
#ifndef SUPPORT_SQLITE_STORE_H
#define SUPPORT_SQLITE_STORE_H

#include "store/sqlite/sqlite_impl.h"
#include "store/store_impl.h"

static inline struct sqlite *sqlite_of(struct store *s)
{
    return (struct sqlite *)s->b;
}

#endif
