/* jsonout: the one writer of JSON text.
 *
 * A whole value: js_write(). Text made piece by piece, without a tree: jo_open(), members,
 * jo_close(). Commas, line breaks and indentation come by themselves: whether a comma is due shows
 * in the last byte written, so a text may be put together by several writers in turn. `key` is NULL
 * inside arrays and at the top. Strings may hold any bytes: malformed UTF-8 becomes U+FFFD. When
 * memory runs out, out->bad is set. */
#pragma once

#include "base/str.h"

#include <jansson.h>

struct jsonout { /* { .out = &text } is ready, and compact: {"a":1,"b":[2,3]} */
    struct str *out;
    int indent;  /* spaces per level; 0: all on one line */
    int depth;   /* objects and arrays that are open; set it to go on within one */
    int flat;    /* containers at this depth and below stay on one line; 0: none */
    bool spaced; /* on one line, but with a space after ',' and ':' */
    bool python; /* as json.dumps() writes it: ASCII only, floats as repr(), bare NaN */
    bool utf8;   /* with python: and ensure_ascii=False */
};

void jo_open(struct jsonout *j, const char *key, char bracket);      /* '{' or '[' */
void jo_open_flat(struct jsonout *j, const char *key, char bracket); /* all on one line */
void jo_close(struct jsonout *j, char bracket);                      /* '}' or ']' */
void jo_text(struct jsonout *j, const char *key, const char *s, size_t n);
void jo_str(struct jsonout *j, const char *key, const char *z); /* NULL writes null */
void jo_u64(struct jsonout *j, const char *key, uint64_t v);
void jo_i64(struct jsonout *j, const char *key, int64_t v);
/* The fewest digits that read back as v, with ".0" or an exponent so that it stays a double. NaN
 * and infinity, which JSON cannot write, become the strings "NaN", "Infinity", "-Infinity". */
void jo_f64(struct jsonout *j, const char *key, double v);
void jo_bool(struct jsonout *j, const char *key, bool v);
void jo_value(struct jsonout *j, const char *key, const json_t *v); /* NULL writes null */
/* JSON text that is ready. */
void jo_raw(struct jsonout *j, const char *key, const char *text, size_t n);
void jo_fmt(struct jsonout *j, const char *key, const char *fmt, ...) PRINTF_LIKE(3, 4);

/* Appends compact text, or indented by `indent` spaces. out->bad also for a tree deeper than
 * JSTOK_DEPTH_MAX, which our reader would refuse. */
void js_write(const json_t *v, int indent, struct str *out);
void js_write_f64(double v, bool python, struct str *out);      /* as jo_f64() */
void js_write_string(const char *s, size_t n, struct str *out); /* quoted and escaped */
