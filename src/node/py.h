/* py: texts and numbers as Python sees them. Nodes of ComfyUI hand on what Python's str, int, float
 * and re make of their inputs, and validation answers in its words.
 *
 * Words      point   a code point; lengths and places of texts are counted in them
 * Texts      UTF-8, which JSON has seen to; a byte that is not counts as a point of its own
 * Tables     of upper, lower and title case: pycase_tables.h, made by tools/pycase_tables.py
 * Files      pytext.c repr() and str(); pynum.c numbers in texts; pycase.c upper() and its kin;
 *            pyre.c regular expressions
 * Threads    Any. */
#pragma once

#include "base/json.h"
#include "base/str.h"

/* ---- pytext.c: all of these append ---- */

void py_repr(const json_t *v, struct str *out); /* 'a', 3.0, True, None, {'x': [1]} */
void py_str(const json_t *v, struct str *out);  /* the same, except for a text: itself */
bool py_truth(const json_t *v);                 /* bool(v); NULL: false */
const char *py_type(const json_t *v);           /* "NoneType", "dict" */
void py_repr_text(const char *s, size_t n, size_t max, struct str *out); /* first max characters */
void py_repr_f64(double v, struct str *out);

/* ---- pynum.c ---- */

bool py_is_space(uint32_t c); /* str.isspace() of one point */
void py_strip(const char **s, size_t *n, bool left, bool right);
/* Digits at s with single underscores between them, added to `out` without these. How many bytes
 * that were; 0: none. */
size_t py_digits(const char *s, size_t n, struct str *out);

enum py_float { PY_FLOAT, PY_INF, PY_NAN, PY_NO_FLOAT, PY_NO_MEMORY };
/* float(text). PY_INF: infinite, or beyond what a double holds; *out has its sign. */
enum py_float py_parse_float(const char *s, size_t n, double *out);

#define PY_INT_DIGITS_MAX 4300 /* CPython's, since 3.11 */
enum py_int { PY_INT, PY_INT_BIG, PY_INT_LONG, PY_NO_INT, PY_INT_NO_MEMORY };
/* int(text), base 10. PY_INT_BIG: a whole number beyond 127 bits, PY_INT_LONG: beyond
 * PY_INT_DIGITS_MAX digits; plain (may be NULL) gets its digits, without zeros in front, and
 * *minus its sign. */
enum py_int py_parse_int(const char *s, size_t n, __int128 *out, struct str *plain, bool *minus);
void py_add_int(__int128 i, struct str *out); /* decimal */

/* ---- pycase.c: append; whole Unicode, a point may become three ---- */

void py_upper(const char *s, size_t n, struct str *out);
void py_lower(const char *s, size_t n, struct str *out);
void py_capitalize(const char *s, size_t n, struct str *out);
void py_title(const char *s, size_t n, struct str *out);

/* ---- points ---- */

size_t py_len(const char *s, size_t n);
/* Bytes before point i of the text; n: at its end, or beyond. */
size_t py_offset(const char *s, size_t n, size_t i);
/* s[start:end]: negative ones count from the end, what is out of range is cut. */
void py_slice(const char *s, size_t n, int64_t start, int64_t end, struct str *out);
