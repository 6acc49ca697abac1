#include "support/oom.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__real_aligned_alloc(size_t align, size_t n);
int __real_posix_memalign(void **out, size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void *__wrap_aligned_alloc(size_t align, size_t n);
int __wrap_posix_memalign(void **out, size_t align, size_t n);

static atomic_long limit = LONG_MAX; /* allocations with a number at or above this fail */
static atomic_long seen;
static atomic_bool once;
static atomic_size_t largest = SIZE_MAX;
static atomic_int fill = -1;

void oom_after(long k)
{
    atomic_store(&seen, 0);
    atomic_store(&once, false);
    atomic_store(&limit, k);
}

void oom_once(long k)
{
    atomic_store(&seen, 0);
    atomic_store(&once, true);
    atomic_store(&limit, k);
}

void oom_off(void)
{
    atomic_store(&limit, LONG_MAX);
}

long oom_seen(void)
{
    return atomic_load(&seen);
}

void oom_largest(size_t bytes)
{
    atomic_store(&largest, bytes);
}

void oom_fill(int byte)
{
    atomic_store(&fill, byte);
}

static bool fails(size_t n)
{
    long at = atomic_fetch_add(&seen, 1), lim = atomic_load(&limit);
    bool f = (atomic_load(&once) ? at == lim : at >= lim) || n > atomic_load(&largest);
    if (f)
        errno = ENOMEM;
    return f;
}

static void *fresh(void *p, size_t n)
{
    int byte = atomic_load(&fill);
    return p && byte >= 0 ? memset(p, byte, n) : p;
}

void *__wrap_malloc(size_t n)
{
    return fails(n) ? NULL : fresh(__real_malloc(n), n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails(size && n > SIZE_MAX / size ? SIZE_MAX : n * size) ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails(n) ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails(strlen(s)) ? NULL : __real_strdup(s);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails(n) ? NULL : fresh(__real_aligned_alloc(align, n), n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    int rc = fails(n) ? ENOMEM : __real_posix_memalign(out, align, n);
    if (!rc)
        fresh(*out, n);
    return rc;
}

void *oom_malloc(size_t n)
{
    return __wrap_malloc(n);
}
