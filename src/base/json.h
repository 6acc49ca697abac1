/* json: JSON values, json_t of jansson, read with limits and with three kinds of number.
 *
 * json_t is vocabulary everywhere; only this module turns text into it, and base/jsonout back.
 * jansson has one integer type, int64; seeds go to 2^64-1. An integer above INT64_MAX is therefore
 * carried as a tagged string that starts with a NUL byte. Text from outside can never produce one,
 * because strings with U+0000 are refused when reading. Ask js_kind(), not json_typeof().
 * Object key order is kept; duplicate keys are refused, and so are integers outside -2^63 .. 2^64-1
 * (a rounded seed is worse than an error) and numbers too large for a double, unless the limits are
 * loose. "-0" is 0.
 * Threads     Any; a json_t belongs to one thread at a time, as jansson counts without atomics. */
#pragma once

#include "base/err.h"
#include "base/jsonout.h"

#include <jansson.h>

enum js_kind { JS_NULL, JS_BOOL, JS_I64, JS_U64, JS_F64, JS_STRING, JS_ARRAY, JS_OBJECT };

struct js_limits {
    size_t max_bytes;   /* of the text */
    unsigned max_depth; /* at most JSTOK_DEPTH_MAX */
    size_t max_values;  /* of all kinds together */
    /* Takes what JSON allows and we cannot hold, as near as can be: an integer beyond 64 bits is a
     * double, a number beyond doubles the largest of them, half a surrogate pair U+FFFD. For bodies
     * whose senders (Python, browsers) know no such limits; what it means is judged later. */
    bool loose;
};
extern const struct js_limits js_limits_default; /* 64 MiB, depth 64, 4 million values, strict */
extern const struct js_limits js_limits_loose;   /* the same, loose */

/* lim NULL: the defaults. *out is owned (json_decref). BERTH_EFORMAT says line, column and byte;
 * BERTH_ELIMIT is one of the limits. */
berth_status js_parse(const char *text, size_t n, const struct js_limits *lim, json_t **out,
                      berth_err *err);

enum js_kind js_kind(const json_t *v); /* JS_U64 only for values above INT64_MAX */
json_t *js_u64(uint64_t v);            /* new value: plain integer when it fits int64 */
/* Exact conversions; false when v is not an integer of that range, or NULL. */
bool js_get_i64(const json_t *v, int64_t *out);
bool js_get_u64(const json_t *v, uint64_t *out);
bool js_get_f64(const json_t *v, double *out); /* any number */
