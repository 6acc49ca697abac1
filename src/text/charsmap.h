/* charsmap: SentencePiece's precompiled rules for making text normal (nmt_nfkc and others). For
 * text/ alone.
 *
 * Layout     u32 bytes of the trie | the trie, u32 units (a double array as Darts makes it) | the
 *            texts that replace, each ended by a NUL. Little-endian. A unit is
 *                31      9       8       7..0
 *                leaf?   shift?  has leaf label      offset = bits 10..31, << 8 where shift is set
 *            and that of a leaf the place of its text in the low 31 bits.
 * Trust      Comes out of files: every step and every place is held against the sizes, a key has
 *            KEY_MAX bytes and a text TEXT_MAX at most, so that no map makes a lookup long.
 * Threads    Immutable: any. */
#pragma once

#include "base/err.h"

#include <stdbool.h>

#define CHARSMAP_BYTES_MAX (16u << 20)

struct charsmap { /* a zeroed one has no rules */
    uint32_t *unit;
    size_t units;
    char *text; /* NUL behind its end */
    size_t text_n;
};
/* bytes: borrowed for the call. n 0: no rules. */
berth_status charsmap_init(struct charsmap *m, const void *bytes, size_t n, berth_err *err);
void charsmap_release(struct charsmap *m);

struct charsmap_hit {
    size_t len;     /* bytes of the key */
    const char *to; /* what replaces it; of the map */
    size_t n;
};
/* The shortest, or longest, key that s begins with. False: there is none. */
bool charsmap_find(const struct charsmap *m, const char *s, size_t n, bool longest,
                   struct charsmap_hit *out);
