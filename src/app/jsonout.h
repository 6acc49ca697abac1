/* jsonout: JSON text straight to a stream, for output that may be long.
 *
 * Commas, newlines and indentation come by themselves. `key` is NULL inside arrays and at the top.
 * Strings from outside may hold any bytes: malformed UTF-8 becomes U+FFFD. Doubles that JSON cannot
 * write become the strings "NaN", "Infinity", "-Infinity". */
#ifndef APP_JSONOUT_H
#define APP_JSONOUT_H

#include "base/str.h"

#include <stdio.h>

#define JSONOUT_DEPTH 16 /* deepest value we print; more is our own mistake */

struct jsonout { /* { .out = f } is ready */
    FILE *out;
    int depth;
    int flat;                 /* values at this depth and below stay on one line; 0: none */
    bool some[JSONOUT_DEPTH]; /* has the value at this depth anything in it yet? */
    struct str text;          /* scratch */
    bool nomem;               /* scratch could not grow: what was printed is not whole */
};

void jsonout_open(struct jsonout *j, const char *key, char bracket);      /* '{' or '[' */
void jsonout_open_flat(struct jsonout *j, const char *key, char bracket); /* all on one line */
void jsonout_close(struct jsonout *j, char bracket);                      /* '}' or ']' */
void jsonout_text(struct jsonout *j, const char *key, const char *s, size_t n);
void jsonout_str(struct jsonout *j, const char *key, const char *z); /* NULL prints null */
void jsonout_u64(struct jsonout *j, const char *key, uint64_t v);
void jsonout_i64(struct jsonout *j, const char *key, int64_t v);
void jsonout_f64(struct jsonout *j, const char *key, double v);
void jsonout_bool(struct jsonout *j, const char *key, bool v);
/* Final newline; frees the scratch. False when something is missing for want of memory. */
WARN_UNUSED bool jsonout_end(struct jsonout *j);

#endif
