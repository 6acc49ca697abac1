#include "store/backend.h"

#ifndef STORES_DEF /* a test has a list with a line more */
#define STORES_DEF "store/stores.def"
#endif

#define STORE(x) extern const struct store_ops store_##x;
#include STORES_DEF
#undef STORE

const struct store_ops *const store_backends[] = {
#define STORE(x) &store_##x,
#include STORES_DEF
#undef STORE
    NULL
};
