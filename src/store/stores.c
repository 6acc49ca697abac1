#include "store/backend.h"

const struct store_ops *const store_backends[] = {
#define STORE(x) &store_##x,
#include STORES_DEF
#undef STORE
    NULL
};
