/* draw.c: rectangles and lines of text on a layer that lies over pictures. */
#include "node/draw.h"

#include <ctype.h>
#include <stdlib.h>
#include <string.h>

berth_status layer_init(struct image *layer, size_t w, size_t h, berth_err *err)
{
    *layer = (struct image) { 0 };
    if (w > SIDE_MAX || h > SIDE_MAX)
        return err_set(err, BERTH_EINVAL, "a layer of %zux%zu", w, h);
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

static int width_of(const struct str *s, unsigned size)
{
    return font_width(str_c(s), s->n, size);
}

/* How much of a word goes into a line that has no other: at least a character. */
static size_t cut_word(const char *p, size_t n, unsigned size, int most)
{
    size_t cut = 0;
    uint32_t code;
    while (cut < n) {
        size_t step = utf8_get(p + cut, n - cut, &code);
        if (cut && font_width(p, cut + step, size) > most)
            break;
        cut += step;
    }
    return cut;
}

/* One word more for the line that is made; a full one goes to the list. */
static bool add_word(struct text_lines *l, struct str *line, const char *p, size_t n,
                     const struct wrapping *w)
{
    while (w->cut && font_width(p, n, w->size) > w->width) {
        size_t cut = cut_word(p, n, w->size, w->width);
        if (cut == n)
            break;
        if ((line->n && !add_line(l, str_c(line), line->n)) || !add_line(l, p, cut))
            return false;
        str_clear(line);
        p += cut;
        n -= cut;
    }
    size_t had = line->n;
    str_adds(line, had ? " " : "");
    str_add(line, p, n);
    if (!had || width_of(line, w->size) <= w->width)
        return !line->bad;
    if (line->bad || !add_line(l, str_c(line), had))
        return false;
    str_clear(line);
    str_add(line, p, n);
    return !line->bad;
}

berth_status wrap_text(const char *text, const struct wrapping *w, struct text_lines *out,
                       berth_err *err)
{
    struct str line = { 0 };
    bool ok = true;
    *out = (struct text_lines) { 0 };
    for (const char *p = text; ok;) {
        const char *end = p + strcspn(p, "\n");
        bool empty = true;
        str_clear(&line);
        for (const char *q = p; ok && q < end;) {
            size_t n = 0;
            while (q + n < end && !isspace((unsigned char)q[n]))
                n++;
            if (n)
                ok = add_word(out, &line, q, n, w);
            empty = empty && !n;
            q += n ? n : 1;
        }
        ok = ok && ((!line.n && !empty) || add_line(out, str_c(&line), line.n));
        if (!*end || out->n > TEXT_LINES_MAX)
            break;
        p = end + 1;
    }
    str_release(&line);
    if (ok && out->n <= TEXT_LINES_MAX)
        return BERTH_OK;
    text_lines_release(out);
    return ok ? err_set(err, BERTH_ELIMIT, "a text of more than %d lines", TEXT_LINES_MAX)
              : err_set(err, BERTH_ENOMEM, "lines of a text");
}
