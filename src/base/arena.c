#include "base/arena.h"

#include "base/sz.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__SANITIZE_ADDRESS__)
#define ARENA_ASAN 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer)
#define ARENA_ASAN 1
#endif
#endif
#ifdef ARENA_ASAN /* bytes of a chunk that were not handed out are out of bounds */
#include <sanitizer/asan_interface.h>
#define HIDE(p, n) __asan_poison_memory_region(p, n)
#define SHOW(p, n) __asan_unpoison_memory_region(p, n)
#else
#define HIDE(p, n) ((void)0)
#define SHOW(p, n) ((void)0)
#endif

enum { ALIGN = 16, CHUNK_MIN = 4096, CHUNK_MAX = 1 << 20 };

/* Chunks form a list, the one being filled first. Its bytes follow the header. */
struct arena_chunk {
    struct arena_chunk *next;
    size_t used, size; /* of data; both multiples of ALIGN */
    _Alignas(ALIGN) unsigned char data[];
};

static struct arena_chunk *chunk_new(struct arena *a, size_t size)
{
    size_t bytes;
    if (!sz_add(size, sizeof(struct arena_chunk), &bytes))
        return NULL;
    struct arena_chunk *c = calloc(1, bytes); /* zeroed; 16-byte aligned on our targets */
    if (!c)
        return NULL;
    c->size = size;
    a->total += bytes;
    HIDE(c->data, size);
    return c;
}

/* Chunks double with the arena, so that n allocations cost O(log n) calls and waste stays within
 * what is used. A request larger than the next chunk gets one of its own behind the head, so that
 * the rest of the head is not lost. */
static struct arena_chunk *chunk_for(struct arena *a, size_t need)
{
    struct arena_chunk *head = a->head;
    if (head && head->size - head->used >= need)
        return head;
    size_t size = a->total < CHUNK_MIN ? CHUNK_MIN : a->total > CHUNK_MAX ? CHUNK_MAX : a->total;
    size &= ~(size_t)(ALIGN - 1);
    bool own = need > size / 2;
    struct arena_chunk *c = chunk_new(a, own ? need : size);
    if (!c)
        return NULL;
    if (own && head) {
        c->next = head->next;
        head->next = c;
    } else {
        c->next = head;
        a->head = c;
    }
    return c;
}

void *arena_alloc(struct arena *a, size_t n)
{
    size_t need;
    if (!sz_align(n ? n : 1, ALIGN, &need))
        return NULL;
    struct arena_chunk *c = chunk_for(a, need);
    if (!c)
        return NULL;
    void *p = c->data + c->used;
    c->used += need;
    a->used += need;
    SHOW(p, n);
    return p;
}

void *arena_array(struct arena *a, size_t count, size_t elem)
{
    size_t n;
    return sz_mul(count, elem, &n) ? arena_alloc(a, n) : NULL;
}

char *arena_strndup(struct arena *a, const char *s, size_t n)
{
    size_t bytes;
    char *p = sz_add(n, 1, &bytes) ? arena_alloc(a, bytes) : NULL;
    if (p && n)
        memcpy(p, s, n); /* the NUL is there: memory comes zeroed */
    return p;
}

char *arena_printf(struct arena *a, const char *fmt, ...)
{
    va_list ap, again;
    va_start(ap, fmt);
    va_copy(again, ap);
    int n = vsnprintf(NULL, 0, fmt, ap);
    char *p = n < 0 ? NULL : arena_alloc(a, (size_t)n + 1);
    if (p)
        vsnprintf(p, (size_t)n + 1, fmt, again);
    va_end(again);
    va_end(ap);
    return p;
}

void arena_release(struct arena *a)
{
    for (struct arena_chunk *c = a->head, *next; c; c = next) {
        next = c->next;
        SHOW(c->data, c->size);
        free(c);
    }
    *a = (struct arena) { 0 };
}
