/* jstok: a strict pull reader for JSON text (RFC 8259): no tree, no allocation.
 *
 * Used directly where a tree would be a waste (a 100,000-tensor safetensors header) and by
 * base/json.c to build one. Strict: UTF-8 validated, no trailing commas, no comments, no NaN, one
 * value and then only white space. Errors are sticky: after the first one every call returns
 * JSTOK_ERROR; jstok_fail() turns it into a berth_err with line, column and byte offset. */
#pragma once

#include "base/err.h"

#define JSTOK_DEPTH_MAX 512 /* compile-time ceiling of `max_depth` */

enum jstok_type {
    JSTOK_ERROR,
    JSTOK_END, /* after the one top-level value */
    JSTOK_NULL,
    JSTOK_TRUE,
    JSTOK_FALSE,
    JSTOK_INT,    /* no fraction, no exponent, of any length: see jstok_i64, jstok_u64 */
    JSTOK_REAL,   /* with fraction or exponent */
    JSTOK_STRING, /* raw text between the quotes in s, n; has_escape tells whether to decode */
    JSTOK_KEY,    /* an object key; the ':' is consumed */
    JSTOK_ARRAY,
    JSTOK_ARRAY_END,
    JSTOK_OBJECT,
    JSTOK_OBJECT_END,
};

struct jstok {
    /* the current token; s points into the text */
    const char *s;
    size_t n;
    bool has_escape;
    bool loose; /* may be set: jstok_decode() makes U+FFFD of a lone surrogate */
    /* private */
    const char *text;
    size_t len, at, tok; /* of the text; of what is unread; of the current token, or a bad byte */
    unsigned depth, max_depth;
    unsigned expect;
    bool too_deep;    /* the error is the depth limit */
    const char *what; /* first error; NULL if none */
    uint8_t in_object[JSTOK_DEPTH_MAX / 8];
};

/* text: borrowed while t is used, may be NULL when len is 0. */
void jstok_init(struct jstok *t, const char *text, size_t len, unsigned max_depth);
enum jstok_type jstok_next(struct jstok *t);
/* Skips the value that comes next: after a KEY, or in an array. False (and sticky) on an error,
 * also when there is none. */
bool jstok_skip(struct jstok *t);

/* Of the current JSTOK_INT; false when out of range. "-0" is 0. */
bool jstok_i64(const struct jstok *t, int64_t *out);
bool jstok_u64(const struct jstok *t, uint64_t *out);
/* Of the current INT or REAL; false when it overflows to infinity. Locale-independent. */
bool jstok_f64(const struct jstok *t, double *out);
/* Decodes the current STRING or KEY into buf (needs at most t->n bytes; no NUL is added). False on
 * a lone surrogate, unless it is loose. *nul tells whether the text contains U+0000; may be
 * NULL. */
bool jstok_decode(const struct jstok *t, char *buf, size_t *n, bool *nul);

/* Fills err (BERTH_EFORMAT): the reader's own error, or `what`, about the current token, if it has
 * none. "line 3, column 7, byte 41: expected ',' or '}' near 'abc'". */
berth_status jstok_fail(const struct jstok *t, const char *what, berth_err *err);
