#include "image/font.h"

#include "base/utf8.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* ---- the table ---- */

struct glyph {
    uint32_t code;
    int advance;
    const char *path;
};

static const struct glyph glyphs[] = {
#define FONT(u, a, d)
#define GLYPH(c, w, p) { c, w, p },
#include "image/font.def"
#undef FONT
#undef GLYPH
};

enum {
#define FONT(u, a, d) UNITS = u, ASCENT = a, DESCENT = d
#define GLYPH(c, w, p)
#include "image/font.def"
#undef FONT
#undef GLYPH
};

#define GLYPHS (sizeof glyphs / sizeof *glyphs)

static const struct glyph *find(uint32_t code)
{
    size_t lo = 0, hi = GLYPHS;
    while (lo < hi) {
        size_t mid = (lo + hi) / 2;
        if (glyphs[mid].code == code)
            return &glyphs[mid];
        if (glyphs[mid].code < code)
            lo = mid + 1;
        else
            hi = mid;
    }
    return &glyphs[0];
}

static const struct glyph *next_glyph(const char **p, const char *end)
{
    uint32_t code;
    *p += utf8_get(*p, (size_t)(end - *p), &code);
    return find(code);
}

/* ---- sizes ---- */

/* Units to 1/64 pixels, as FreeType rounds them. */
static long scaled(long v, unsigned size)
{
    int64_t scale = (((int64_t)size * 64 << 16) + UNITS / 2) / UNITS;
    int64_t x = (v < 0 ? -v : v) * scale + 0x8000;
    return (long)(v < 0 ? -(x >> 16) : x >> 16);
}

static int to_pixels_up(long v) /* of 1/64 */
{
    return (int)((v + 63) >> 6);
}

int font_ascent(unsigned size)
{
    return to_pixels_up(scaled(ASCENT, size));
}

int font_descent(unsigned size)
{
    return to_pixels_up(scaled(DESCENT, size));
}

static int advance(const struct glyph *g, unsigned size)
{
    return (int)((scaled(g->advance, size) + 32) >> 6);
}

int font_width(const char *text, size_t n, unsigned size)
{
    int w = 0;
    for (const char *p = text, *end = text + n; p < end && w < FONT_WIDTH_MAX;)
        w += advance(next_glyph(&p, end), size);
    return w < FONT_WIDTH_MAX ? w : FONT_WIDTH_MAX;
}

/* ---- outlines ---- */

struct point {
    double x, y; /* pixels, y downwards from the baseline */
    bool on;
};

typedef void line_fn(void *user, struct point a, struct point b);

#define CURVE_LINES 16
#define POINTS_MAX 256 /* of a contour */

static struct point middle(struct point a, struct point b)
{
    return (struct point) { (a.x + b.x) / 2, (a.y + b.y) / 2, true };
}

static void curve(struct point a, struct point c, struct point b, line_fn *line, void *user)
{
    struct point from = a;
    for (int i = 1; i <= CURVE_LINES; i++) {
        double t = (double)i / CURVE_LINES, u = 1 - t;
        struct point to = { u * u * a.x + 2 * u * t * c.x + t * t * b.x,
                            u * u * a.y + 2 * u * t * c.y + t * t * b.y, true };
        line(user, from, to);
        from = to;
    }
}

/* One contour; two control points in a row have a point of the curve between them. */
static void contour(const struct point *p, size_t n, line_fn *line, void *user)
{
    if (!n)
        return;
    struct point start = p[0].on ? p[0] : p[n - 1].on ? p[n - 1] : middle(p[0], p[n - 1]);
    struct point at = start, control = { 0 };
    bool curved = false;
    for (size_t i = p[0].on ? 1 : 0; i <= n; i++) {
        struct point q = i < n ? p[i] : start;
        if (!q.on && curved) {
            struct point between = middle(control, q);
            curve(at, control, between, line, user);
            at = between;
        }
        if (q.on && curved)
            curve(at, control, q, line, user);
        else if (q.on)
            line(user, at, q);
        at = q.on ? q : at;
        control = q;
        curved = !q.on;
    }
}

static void outline(const struct glyph *g, unsigned size, line_fn *line, void *user)
{
    struct point p[POINTS_MAX];
    size_t n = 0;
    for (const char *s = g->path; *s;) {
        if (*s == 'z') {
            contour(p, n, line, user);
            n = 0;
            s++;
            continue;
        }
        char *end;
        long x = strtol(s, &end, 10), y = strtol(end, &end, 10);
        if (n < POINTS_MAX)
            p[n++] = (struct point) { (double)scaled(x, size) / 64, -(double)scaled(y, size) / 64,
                                      *end != '*' };
        s = end + 1;
    }
}

/* ---- areas ---- */

struct raster {
    double *area; /* [h][w + 1]: how much each pixel changes what is behind it */
    size_t w, h;
    double x0, y0; /* of its corner */
};

/* A line's part within one row of pixels, from (x, y) to (x1, y1), both relative to the corner. */
static void row_part(struct raster *r, size_t row, double x, double x1, double dy)
{
    double lo = x < x1 ? x : x1, hi = x < x1 ? x1 : x;
    size_t first = (size_t)lo, last = (size_t)hi;
    double *a = r->area + row * (r->w + 1);
    for (size_t i = first; i <= last && i <= r->w; i++) {
        double from = lo > (double)i ? lo : (double)i;
        double to = hi < (double)(i + 1) ? hi : (double)(i + 1);
        double share = hi > lo ? (to - from) / (hi - lo) * dy : dy;
        double covered = share * ((double)(i + 1) - (from + to) / 2);
        a[i] += covered;
        if (i < r->w)
            a[i + 1] += share - covered;
    }
}

static void add_line(void *user, struct point a, struct point b)
{
    struct raster *r = user;
    double sign = a.y < b.y ? 1 : -1;
    struct point top = a.y < b.y ? a : b, low = a.y < b.y ? b : a;
    if (top.y == low.y)
        return;
    double slope = (low.x - top.x) / (low.y - top.y);
    for (size_t row = (size_t)(top.y - r->y0); row < r->h && (double)row < low.y - r->y0; row++) {
        double y = (double)row + r->y0, y1 = y + 1;
        y = y > top.y ? y : top.y;
        y1 = y1 < low.y ? y1 : low.y;
        row_part(r, row, top.x + (y - top.y) * slope - r->x0, top.x + (y1 - top.y) * slope - r->x0,
                 sign * (y1 - y));
    }
}

/* ---- boxes ---- */

struct extent {
    double x0, y0, x1, y1;
    bool any;
};

static void grow(void *user, struct point a, struct point b)
{
    struct extent *e = user;
    struct point p[2] = { a, b };
    for (int i = 0; i < 2; i++) {
        e->x0 = !e->any || p[i].x < e->x0 ? p[i].x : e->x0;
        e->x1 = !e->any || p[i].x > e->x1 ? p[i].x : e->x1;
        e->y0 = !e->any || p[i].y < e->y0 ? p[i].y : e->y0;
        e->y1 = !e->any || p[i].y > e->y1 ? p[i].y : e->y1;
        e->any = true;
    }
}

/* In whole pixels, with its stroke; false: it has no outline. */
static bool glyph_box(const struct glyph *g, unsigned size, unsigned stroke, int box[4])
{
    struct extent e = { 0 };
    outline(g, size, grow, &e);
    box[0] = (int)floor(e.x0) - (int)stroke;
    box[1] = (int)floor(e.y0) - (int)stroke;
    box[2] = (int)ceil(e.x1) + (int)stroke;
    box[3] = (int)ceil(e.y1) + (int)stroke;
    return e.any;
}

void font_box(const char *text, size_t n, unsigned size, unsigned stroke, int box[4])
{
    int x = 0, b[4];
    bool any = false;
    memset(box, 0, 4 * sizeof *box);
    for (const char *p = text, *end = text + n; p < end && x < FONT_WIDTH_MAX;) {
        const struct glyph *g = next_glyph(&p, end);
        if (glyph_box(g, size, stroke, b)) {
            int at[4] = { b[0] + x, b[1] + font_ascent(size), b[2] + x, b[3] + font_ascent(size) };
            for (int k = 0; k < 4; k++)
                box[k] = !any || (k < 2 ? at[k] < box[k] : at[k] > box[k]) ? at[k] : box[k];
            any = true;
        }
        x += advance(g, size);
    }
}

/* ---- drawing ---- */

static void put(struct image *im, long x, long y, double cover)
{
    if (x < 0 || y < 0 || x >= (long)im->w || y >= (long)im->h)
        return;
    uint8_t *p = &im->px[(size_t)y * im->w + (size_t)x];
    int v = (int)(fabs(cover) * 256);
    v = v < 255 ? v : 255;
    *p = v > *p ? (uint8_t)v : *p;
}

static berth_status fill(const struct glyph *g, unsigned size, const int box[4], int x, int y,
                         struct image *im, berth_err *err)
{
    struct raster r = {
        .w = (size_t)(box[2] - box[0]), .h = (size_t)(box[3] - box[1]), .x0 = box[0], .y0 = box[1]
    };
    r.area = calloc((r.w + 1) * r.h, sizeof *r.area);
    if (!r.area)
        return err_set(err, BERTH_ENOMEM, "a character of %zu x %zu pixels", r.w, r.h);
    outline(g, size, add_line, &r);
    for (size_t row = 0; row < r.h; row++) {
        double sum = 0;
        for (size_t i = 0; i < r.w; i++) {
            sum += r.area[row * (r.w + 1) + i];
            put(im, (long)x + box[0] + (long)i, (long)y + box[1] + (long)row, sum);
        }
    }
    free(r.area);
    return BERTH_OK;
}

struct near { /* the square of the distance of each pixel's middle to an outline */
    double *d;
    size_t w, h;
    double x0, y0, reach;
};

static void add_distance(void *user, struct point a, struct point b)
{
    struct near *n = user;
    double dx = b.x - a.x, dy = b.y - a.y, length = dx * dx + dy * dy;
    double lo = (a.y < b.y ? a.y : b.y) - n->reach - n->y0;
    double hi = (a.y < b.y ? b.y : a.y) + n->reach - n->y0;
    double left = (a.x < b.x ? a.x : b.x) - n->reach - n->x0;
    double right = (a.x < b.x ? b.x : a.x) + n->reach - n->x0;
    for (size_t y = lo > 0 ? (size_t)lo : 0; y < n->h && (double)y <= hi; y++)
        for (size_t x = left > 0 ? (size_t)left : 0; x < n->w && (double)x <= right; x++) {
            double px = n->x0 + (double)x + 0.5, py = n->y0 + (double)y + 0.5;
            double t = length > 0 ? ((px - a.x) * dx + (py - a.y) * dy) / length : 0;
            t = t < 0 ? 0 : t > 1 ? 1 : t;
            double ex = px - a.x - t * dx, ey = py - a.y - t * dy, d = ex * ex + ey * ey;
            double *at = &n->d[y * n->w + x];
            *at = d < *at ? d : *at;
        }
}

static berth_status stroke(const struct glyph *g, const struct font_at *at, const int box[4], int x,
                           int y, struct image *im, berth_err *err)
{
    struct near n = { .w = (size_t)(box[2] - box[0]),
                      .h = (size_t)(box[3] - box[1]),
                      .x0 = box[0],
                      .y0 = box[1],
                      .reach = at->stroke + 1.0 };
    n.d = malloc(n.w * n.h * sizeof *n.d);
    if (!n.d)
        return err_set(err, BERTH_ENOMEM, "a character of %zu x %zu pixels", n.w, n.h);
    for (size_t i = 0; i < n.w * n.h; i++)
        n.d[i] = INFINITY;
    outline(g, at->size, add_distance, &n);
    for (size_t i = 0; i < n.w * n.h; i++) {
        double cover = at->stroke + 0.5 - sqrt(n.d[i]);
        put(im, (long)x + box[0] + (long)(i % n.w), (long)y + box[1] + (long)(i / n.w),
            cover < 0   ? 0
            : cover > 1 ? 1
                        : cover);
    }
    free(n.d);
    return BERTH_OK;
}

berth_status font_draw(const char *text, size_t n, const struct font_at *at, struct image *grey,
                       berth_err *err)
{
    int x = at->x, y = at->y + font_ascent(at->size), box[4];
    berth_status s = BERTH_OK;
    if (!at->size || at->size > FONT_SIZE_MAX || at->stroke > FONT_SIZE_MAX)
        return err_set(err, BERTH_ELIMIT, "the font size is %u pixels; it has to be 1 to %d",
                       at->size, FONT_SIZE_MAX);
    for (const char *p = text, *end = text + n; !s && p < end && x < (int)grey->w;) {
        const struct glyph *g = next_glyph(&p, end);
        if (glyph_box(g, at->size, at->stroke, box) && x + box[2] > 0)
            s = at->stroke ? stroke(g, at, box, x, y, grey, err)
                           : fill(g, at->size, box, x, y, grey, err);
        x += advance(g, at->size);
    }
    return s;
}
