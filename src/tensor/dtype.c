#include "tensor/dtype.h"

#include "base/err.h"
#include "tensor/convert_impl.h"

#include <strings.h>

static const struct dtype_desc *const all[DT_COUNT] = {
#define DTYPE(ID, id) [DT_##ID] = &dtype_##id,
#include "tensor/dtypes.def"
#undef DTYPE
};

const struct dtype_desc *dtype_desc(enum dtype t)
{
    if ((unsigned)t >= DT_COUNT)
        BUG("no dtype %d", (int)t);
    return all[t];
}

const char *dtype_name(enum dtype t)
{
    return (unsigned)t < DT_COUNT ? all[t]->name : "?";
}

enum dtype dtype_by_name(const char *s, size_t n)
{
    for (int t = 0; t < DT_COUNT; t++)
        if (strlen(all[t]->name) == n && strncasecmp(all[t]->name, s, n) == 0)
            return (enum dtype)t;
    return DT_NONE;
}

enum dtype dtype_by_st_name(const char *s, size_t n)
{
    for (int t = 0; t < DT_COUNT; t++) {
        const char *name = all[t]->st_name;
        if (name && strlen(name) == n && memcmp(name, s, n) == 0)
            return (enum dtype)t;
    }
    return DT_NONE;
}

enum dtype dtype_by_ggml_id(uint32_t id)
{
    for (int t = 0; t < DT_COUNT; t++)
        if (all[t]->ggml_id >= 0 && (uint32_t)all[t]->ggml_id == id)
            return (enum dtype)t;
    return DT_NONE;
}

bool dtype_bytes(enum dtype t, uint64_t n, uint64_t *out)
{
    const struct dtype_desc *d = dtype_desc(t);
    return n % d->elems == 0 && !__builtin_mul_overflow(n / d->elems, (uint64_t)d->bytes, out);
}
