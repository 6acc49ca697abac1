/* unicode: what a tokenizer asks about code points: class, lower case, NFC, graphemes. For text/,
 * and for regular expressions of nodes.
 *
 * Words      point   a code point, uint32_t, never a surrogate
 * Tables     unicode_tables.h, made by tools/unicode_tables.py; the file names the versions of the
 *            tokenizers library and of Unicode they come from.
 * Memory     Vectors hold points (.elem = sizeof(uint32_t)). False: memory is exhausted.
 * Threads    Tables alone: any. */
#pragma once

#include "base/vec.h"

#include <stdint.h>

enum uc_class {
    UC_OTHER,
    UC_SPACE,  /* White_Space */
    UC_LETTER, /* L* */
    UC_NUMBER, /* N* */
};
enum uc_class uc_class(uint32_t c);
bool uc_isspace(uint32_t c); /* str.isspace() of Python: UC_SPACE and U+001C to U+001F */
/* Does c belong to the grapheme in front of it (Extend, SpacingMark, ZWJ of UAX #29)? */
bool uc_joins(uint32_t c);
int uc_decimal(uint32_t c); /* 0 to 9 of a decimal digit of any script; -1: none */

/* Appends the points of UTF-8 text; U+FFFD for each byte that is part of none. */
WARN_UNUSED bool uc_decode(const char *s, size_t n, struct vec *out);
/* One point of well-formed text, utf8_step() > 0; *len gets its bytes. */
uint32_t uc_point(const char *s, size_t n, size_t *len);

/* v becomes its canonical composition (NFC). */
WARN_UNUSED bool uc_nfc(struct vec *v);
/* Appends the lower case of n points, each by itself: no sigma is final; U+0130 becomes two. */
WARN_UNUSED bool uc_lower(const uint32_t *c, size_t n, struct vec *out);
