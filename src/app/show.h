/* show: a picture in a terminal, two pixels a character ("▀": the upper one is the colour of the
 * letter, the lower one that of the paper). Needs 24-bit colour and UTF-8 (term.photos). */
#pragma once

#include "app/term.h"
#include "base/err.h"

#define SHOW_COLUMNS_MAX 120
#define SHOW_BYTES_MAX ((size_t)64 << 20) /* of a file */

/* Appends the lines of a picture file (PNG and what else image.h reads; of an animation the first
 * frame), `columns` wide or as wide as the picture is. */
berth_status show_picture(const void *bytes, size_t n, int columns, struct str *out,
                          berth_err *err);
