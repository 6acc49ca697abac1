/* rd: a sticky cursor over untrusted little-endian bytes.
 *
 * After the first read past the end `bad` is set and every further read yields zero, so a parser
 * may read a whole record and look at `bad` once. Lengths are compared, never pointers. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

struct rd {
    const uint8_t *p, *end; /* borrowed */
    bool bad;
};

static inline struct rd rd_init(const void *p, size_t n)
{
    const uint8_t *at = p;
    return (struct rd) { .p = at, .end = n ? at + n : at };
}

static inline size_t rd_left(const struct rd *r)
{
    return r->bad ? 0 : (size_t)(r->end - r->p);
}

/* Borrowed pointer to the next n bytes, or NULL (and bad). */
static inline const uint8_t *rd_take(struct rd *r, size_t n)
{
    if (r->bad || n > (size_t)(r->end - r->p)) {
        r->bad = true;
        return NULL;
    }
    const uint8_t *at = r->p;
    r->p += n;
    return at;
}

static inline uint64_t rd_uint_le(struct rd *r, size_t n)
{
    const uint8_t *b = rd_take(r, n);
    uint64_t v = 0;
    for (size_t i = 0; b && i < n; i++)
        v |= (uint64_t)b[i] << (8 * i);
    return v;
}

static inline uint8_t rd_u8(struct rd *r)
{
    return (uint8_t)rd_uint_le(r, 1);
}
static inline uint16_t rd_u16le(struct rd *r)
{
    return (uint16_t)rd_uint_le(r, 2);
}
static inline uint32_t rd_u32le(struct rd *r)
{
    return (uint32_t)rd_uint_le(r, 4);
}
static inline uint64_t rd_u64le(struct rd *r)
{
    return rd_uint_le(r, 8);
}

static inline float rd_f32le(struct rd *r)
{
    uint32_t u = rd_u32le(r);
    float f;
    memcpy(&f, &u, sizeof f);
    return f;
}

static inline double rd_f64le(struct rd *r)
{
    uint64_t u = rd_u64le(r);
    double f;
    memcpy(&f, &u, sizeof f);
    return f;
}
