/* font: text as grey pixels, in one built-in typeface (font.def).
 *
 * Layout     as Pillow's default font without shaping: characters stand beside each other at whole
 *            pixels, without kerning; y of a line is its ascent's top.
 * Numbers    areas of outlines in 256 steps; Pillow's own may differ by a few steps on curves.
 *            Outlines of a stroke by their distance.
 * Threads    Any; no state. */
#pragma once

#include "image/image.h"

#define FONT_SIZE_MAX 4096 /* pixels */
#define FONT_WIDTH_MAX (1 << 30)

int font_ascent(unsigned size);
int font_descent(unsigned size);
/* Pixels to the next character behind `text`, UTF-8; at most FONT_WIDTH_MAX. */
int font_width(const char *text, size_t n, unsigned size);
/* What is drawn of one line, stroke included: left, top, right and bottom around (0, 0). Nothing:
 * zeros. */
void font_box(const char *text, size_t n, unsigned size, unsigned stroke, int box[4]);
/* One line at (x, y) of a grey picture, where the larger value stays. stroke 0: filled; else the
 * outline, that far to both sides. BERTH_ELIMIT: a size over FONT_SIZE_MAX. */
struct font_at {
    int x, y;
    unsigned size, stroke;
};
berth_status font_draw(const char *text, size_t n, const struct font_at *at, struct image *grey,
                       berth_err *err);
