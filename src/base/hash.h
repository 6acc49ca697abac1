/* hash: FNV-1a (names -> synthetic weights, wire-stable) and XXH64 (content keys, maps). */
#ifndef BASE_HASH_H
#define BASE_HASH_H

#include <stddef.h>
#include <stdint.h>

uint64_t hash_fnv1a64(const void *p, size_t n);
uint64_t hash_xxh64(const void *p, size_t n, uint64_t seed); /* same values as the XXH64 standard */

#endif
