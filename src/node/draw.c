/* draw.c: rectangles and lines of text on a layer that lies over pictures. */
#include "node/draw.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

berth_status layer_init(struct image *layer, size_t w, size_t h, berth_err *err)
{
    *layer = (struct image) { 0 };
    if (w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a layer of %zux%zu pixels is too large", w, h);
    if (image_init(layer, (uint32_t)w, (uint32_t)h, 4, err))
        return err->code;
    memset(layer->px, 0, w * h * 4);
    return BERTH_OK;
}

void layer_rect(struct image *layer, struct rect r, const uint8_t rgba[4])
{
    r.x0 = r.x0 < 0 ? 0 : r.x0;
    r.y0 = r.y0 < 0 ? 0 : r.y0;
    r.x1 = r.x1 < (long)layer->w ? r.x1 : (long)layer->w - 1;
    r.y1 = r.y1 < (long)layer->h ? r.y1 : (long)layer->h - 1;
    for (long y = r.y0; y <= r.y1; y++)
        for (long x = r.x0; x <= r.x1; x++)
            memcpy(layer->px + ((size_t)y * layer->w + (size_t)x) * 4, rgba, 4);
}

void layer_frame(struct image *layer, struct rect r, int width, const uint8_t rgba[4])
{
    long w = width - 1;
    layer_rect(layer, (struct rect) { r.x0, r.y0, r.x1, r.y0 + w }, rgba);
    layer_rect(layer, (struct rect) { r.x0, r.y1 - w, r.x1, r.y1 }, rgba);
    layer_rect(layer, (struct rect) { r.x0, r.y0, r.x0 + w, r.y1 }, rgba);
    layer_rect(layer, (struct rect) { r.x1 - w, r.y0, r.x1, r.y1 }, rgba);
}

/* ---- text ---- */

static uint8_t blend(uint8_t below, uint8_t above, unsigned by)
{
    return (uint8_t)((below * (255 - by) + above * by + 127) / 255);
}

/* Where nothing was, the colour is that of the text, and only its alpha is soft. */
static void put_ink(uint8_t *p, const uint8_t rgba[4], unsigned cover)
{
    unsigned by = p[3] ? cover : 255;
    if (!cover)
        return;
    for (int k = 0; k < 3; k++)
        p[k] = blend(p[k], rgba[k], by);
    p[3] = blend(p[3], rgba[3], cover);
}

berth_status layer_text(struct image *layer, const char *text, size_t n, struct font_at at,
                        const uint8_t rgba[4], berth_err *err)
{
    int box[4];
    struct image grey = { 0 };
    font_box(text, n, at.size, at.stroke, box);
    struct rect r = { (long)at.x + box[0], (long)at.y + box[1], (long)at.x + box[2],
                      (long)at.y + box[3] };
    r.x0 = r.x0 < 0 ? 0 : r.x0;
    r.y0 = r.y0 < 0 ? 0 : r.y0;
    r.x1 = r.x1 < (long)layer->w ? r.x1 : (long)layer->w;
    r.y1 = r.y1 < (long)layer->h ? r.y1 : (long)layer->h;
    if (r.x0 >= r.x1 || r.y0 >= r.y1)
        return BERTH_OK;
    uint32_t w = (uint32_t)(r.x1 - r.x0), h = (uint32_t)(r.y1 - r.y0);
    if (image_init(&grey, w, h, 1, err))
        return err->code;
    memset(grey.px, 0, (size_t)w * h);
    at.x -= (int)r.x0;
    at.y -= (int)r.y0;
    berth_status s = font_draw(text, n, &at, &grey, err);
    for (size_t i = 0; !s && i < (size_t)w * h; i++)
        put_ink(layer->px + ((r.y0 + (long)(i / w)) * (long)layer->w + r.x0 + (long)(i % w)) * 4,
                rgba, grey.px[i]);
    image_release(&grey);
    return s;
}

/* ---- lines ---- */

void text_lines_release(struct text_lines *l)
{
    for (size_t i = 0; i < l->n; i++)
        str_release(&l->at[i]);
    free(l->at);
    *l = (struct text_lines) { 0 };
}

static bool add_line(struct text_lines *l, const char *p, size_t n)
{
    struct str *at = realloc(l->at, (l->n + 1) * sizeof *at);
    if (!at)
        return false;
    l->at = at;
    at[l->n] = (struct str) { 0 };
    str_add(&at[l->n], p, n);
    return !at[l->n++].bad;
}

/* ---- wrapping ---- */

struct wrapper {
    const struct wrapping *w;
    struct text_lines *lines;
    struct str line; /* the one that is made */
    int width;       /* its own, in pixels */
};

static bool end_line(struct wrapper *x)
{
    bool ok = add_line(x->lines, str_c(&x->line), x->line.n);
    str_clear(&x->line);
    x->width = 0;
    return ok;
}

/* How much of a word goes into a line that has no other: at least a character. *width: of it. */
static size_t cut_word(const char *p, size_t n, const struct wrapping *w, int *width)
{
    size_t cut = 0;
    uint32_t code;
    *width = 0;
    while (cut < n) {
        size_t step = utf8_get(p + cut, n - cut, &code);
        int more = font_width(p + cut, step, w->size);
        if (w->cut && cut && *width + more > w->width)
            break;
        cut += step;
        *width += more;
    }
    return cut;
}

/* One word more for the line that is made; a full one goes to the list. */
static bool add_word(struct wrapper *x, const char *p, size_t n)
{
    int width, space = font_width(" ", 1, x->w->size);
    size_t cut;
    while ((cut = cut_word(p, n, x->w, &width)) < n && x->lines->n <= TEXT_LINES_MAX) {
        if ((x->line.n && !end_line(x)) || !add_line(x->lines, p, cut))
            return false;
        p += cut;
        n -= cut;
    }
    if (x->line.n && x->width + space + width > x->w->width && !end_line(x))
        return false;
    if (x->line.n) {
        str_addc(&x->line, ' ');
        x->width += space;
    }
    str_add(&x->line, p, n);
    x->width += width;
    return !x->line.bad;
}

/* Up to `end`, where a line ends. False: out of memory. */
static bool add_paragraph(struct wrapper *x, const char *p, const char *end)
{
    bool empty = true, ok = true;
    while (ok && p < end && x->lines->n <= TEXT_LINES_MAX) {
        size_t n = 0;
        while (p + n < end && !isspace((unsigned char)p[n]))
            n++;
        if (n)
            ok = add_word(x, p, n);
        empty = empty && !n;
        p += n ? n : 1;
    }
    return ok && ((!x->line.n && !empty) || end_line(x));
}

berth_status wrap_text(struct node_call *c, const char *text, const struct wrapping *w,
                       struct text_lines *out, berth_err *err)
{
    struct wrapper x = { .w = w, .lines = out };
    size_t n = strlen(text);
    berth_status s = BERTH_OK;
    *out = (struct text_lines) { 0 };
    if (n > TEXT_DRAWN_MAX)
        return err_set(err, BERTH_ELIMIT, "the text has %zu bytes; at most %d can be drawn", n,
                       TEXT_DRAWN_MAX);
    for (const char *p = text, *end; !s; p = end + 1) {
        end = p + strcspn(p, "\n");
        s = call_check(c, err);
        if (!s && !add_paragraph(&x, p, end))
            s = err_set(err, BERTH_ENOMEM, "lines of a text");
        if (!s && out->n > TEXT_LINES_MAX)
            s = err_set(err, BERTH_ELIMIT, "the text takes more than %d lines", TEXT_LINES_MAX);
        if (!*end)
            break;
    }
    str_release(&x.line);
    if (s)
        text_lines_release(out);
    return s;
}
