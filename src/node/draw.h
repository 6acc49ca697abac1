/* draw: rectangles and lines of text on a layer (RGBA, nothing at first) that lies over pictures.
 * Text is in the built-in typeface (image/font.h).
 * Threads    Executor. */
#pragma once

#include "base/utf8.h"
#include "image/font.h"
#include "node/node_impl.h"

berth_status layer_init(struct image *layer, size_t w, size_t h, berth_err *err);
struct rect { /* its last column and row are part of it; what lies outside is not drawn */
    long x0, y0, x1, y1;
};
void layer_rect(struct image *layer, struct rect r, const uint8_t rgba[4]);
void layer_frame(struct image *layer, struct rect r, int width, const uint8_t rgba[4]);
berth_status layer_text(struct image *layer, const char *text, size_t n, struct font_at at,
                        const uint8_t rgba[4], berth_err *err);

/* bounding_boxes.c: input "bboxes" in all its forms as a list of {"x", "y", "width", "height",
 * "metadata"?}, empty where nothing comes. w, h: the canvas, for boxes in thousandths of it; 0:
 * such are refused. json_decref() it, also after an error. */
berth_status in_boxes(struct node_call *c, size_t w, size_t h, json_t **out, berth_err *err);

#define TEXT_LINES_MAX 4096
#define TEXT_DRAWN_MAX 65536 /* bytes */
struct text_lines {
    struct str *at;
    size_t n;
};
struct wrapping {
    unsigned size;
    int width; /* pixels */
    bool cut;  /* words that are longer are cut */
};
/* Words of a text in lines; a line without words stays empty. text_lines_release() it.
 * BERTH_ELIMIT: more than TEXT_DRAWN_MAX bytes or TEXT_LINES_MAX lines. */
berth_status wrap_text(struct node_call *c, const char *text, const struct wrapping *w,
                       struct text_lines *out, berth_err *err);
void text_lines_release(struct text_lines *l);
