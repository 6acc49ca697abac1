/* sha256: SHA-256 (FIPS 180-4). For content keys that other programs can compute too; nothing here
 * is secret, so nothing is constant-time. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#define SHA256_HEX 65 /* with the NUL */

struct sha256 { /* of a text that comes in pieces */
    uint32_t h[8];
    uint64_t bytes;
    uint8_t part[64]; /* the last bytes % 64 of it */
};
void sha256_init(struct sha256 *s);
void sha256_add(struct sha256 *s, const void *p, size_t n);
void sha256_end(struct sha256 *s, char out[SHA256_HEX]); /* small letters; s is used up */

void sha256_hex(const void *p, size_t n, char out[SHA256_HEX]); /* all at once */
