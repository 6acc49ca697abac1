/* crc32: CRC-32 as zlib, PNG and Python's zlib.crc32 have it (polynomial 0xEDB88320, reflected). */
#ifndef BASE_CRC32_H
#define BASE_CRC32_H

#include <stddef.h>
#include <stdint.h>

/* Of the n bytes at p. crc: 0, or the value of what came before. */
uint32_t crc32_of(uint32_t crc, const void *p, size_t n);

#endif
