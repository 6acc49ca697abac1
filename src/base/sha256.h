/* sha256: SHA-256 (FIPS 180-4). For content keys that other programs can compute too; nothing here
 * is secret, so nothing is constant-time. */
#ifndef BASE_SHA256_H
#define BASE_SHA256_H

#include <stddef.h>
#include <stdint.h>

#define SHA256_BYTES 32
#define SHA256_HEX 65 /* with the NUL */

void sha256(const void *p, size_t n, uint8_t out[SHA256_BYTES]);
void sha256_hex(const void *p, size_t n, char out[SHA256_HEX]); /* small letters */

#endif
