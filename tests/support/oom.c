#include "support/oom.h"

#include <errno.h>
#include <limits.h>
#include <stdatomic.h>
#include <stdbool.h>
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

static bool fails(void)
{
    long at = atomic_fetch_add(&seen, 1), lim = atomic_load(&limit);
    bool f = atomic_load(&once) ? at == lim : at >= lim;
    if (f)
        errno = ENOMEM;
    return f;
}

void *__wrap_malloc(size_t n)
{
    return fails() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return fails() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return fails() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return fails() ? NULL : __real_strdup(s);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return fails() ? NULL : __real_aligned_alloc(align, n);
}

int __wrap_posix_memalign(void **out, size_t align, size_t n)
{
    return fails() ? ENOMEM : __real_posix_memalign(out, align, n);
}

void *oom_malloc(size_t n)
{
    return __wrap_malloc(n);
}
