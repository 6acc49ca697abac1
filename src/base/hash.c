#include "base/hash.h"

#include <endian.h>
#include <string.h>

uint64_t hash_fnv1a64(const void *p, size_t n)
{
    const uint8_t *b = p;
    uint64_t h = UINT64_C(0xcbf29ce484222325);
    for (size_t i = 0; i < n; i++)
        h = (h ^ b[i]) * UINT64_C(0x100000001b3);
    return h;
}

/* XXH64 as its specification puts it: four lanes over 32-byte stripes, merged, then the tail. */
#define P1 UINT64_C(0x9e3779b185ebca87)
#define P2 UINT64_C(0xc2b2ae3d27d4eb4f)
#define P3 UINT64_C(0x165667b19e3779f9)
#define P4 UINT64_C(0x85ebca77c2b2ae63)
#define P5 UINT64_C(0x27d4eb2f165667c5)

static uint64_t rotl(uint64_t x, unsigned r)
{
    return x << r | x >> (64 - r);
}

static uint64_t load64(const uint8_t *b)
{
    uint64_t v;
    memcpy(&v, b, sizeof v);
    return le64toh(v);
}

static uint64_t load32(const uint8_t *b)
{
    uint32_t v;
    memcpy(&v, b, sizeof v);
    return le32toh(v);
}

static uint64_t lane(uint64_t acc, uint64_t v)
{
    return rotl(acc + v * P2, 31) * P1;
}

static uint64_t stripes(const uint8_t **at, size_t *left, uint64_t seed)
{
    uint64_t a[4] = { seed + P1 + P2, seed + P2, seed, seed - P1 };
    const uint8_t *b = *at;
    size_t n = *left;
    for (; n >= 32; n -= 32, b += 32)
        for (size_t i = 0; i < 4; i++)
            a[i] = lane(a[i], load64(b + 8 * i));
    *at = b;
    *left = n;
    uint64_t h = rotl(a[0], 1) + rotl(a[1], 7) + rotl(a[2], 12) + rotl(a[3], 18);
    for (unsigned i = 0; i < 4; i++)
        h = (h ^ lane(0, a[i])) * P1 + P4;
    return h;
}

uint64_t hash_xxh64(const void *p, size_t n, uint64_t seed)
{
    const uint8_t *b = p;
    size_t left = n;
    uint64_t h = n >= 32 ? stripes(&b, &left, seed) : seed + P5;
    h += n;
    for (; left >= 8; left -= 8, b += 8)
        h = rotl(h ^ lane(0, load64(b)), 27) * P1 + P4;
    if (left >= 4) {
        h = rotl(h ^ load32(b) * P1, 23) * P2 + P3;
        b += 4;
        left -= 4;
    }
    for (; left; left--, b++)
        h = rotl(h ^ *b * P5, 11) * P1;
    h = (h ^ h >> 33) * P2;
    h = (h ^ h >> 29) * P3;
    return h ^ h >> 32;
}

uint32_t crc32_of(uint32_t crc, const void *p, size_t n)
{
    const uint8_t *b = p;
    crc = ~crc;
    for (size_t i = 0; i < n; i++) {
        crc ^= b[i];
        for (int k = 0; k < 8; k++)
            crc = crc >> 1 ^ (0xEDB88320u & -(crc & 1));
    }
    return ~crc;
}
