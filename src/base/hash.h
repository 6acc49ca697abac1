/* hash: FNV-1a (names -> synthetic weights, wire-stable), XXH64 (content keys, maps) and CRC-32 as
 * zlib, PNG and Python's zlib.crc32 have it (polynomial 0xEDB88320, reflected). */
#pragma once

#include <stddef.h>
#include <stdint.h>

uint64_t hash_fnv1a64(const void *p, size_t n);
uint64_t hash_xxh64(const void *p, size_t n, uint64_t seed); /* same values as the XXH64 standard */
/* Of the n bytes at p. crc: 0, or the value of what came before. */
uint32_t crc32_of(uint32_t crc, const void *p, size_t n);
