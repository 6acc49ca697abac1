/* image_quantize.c: ImageQuantize: few colours, chosen as Pillow does it (median cut), and pixels
 * mapped to them, with or without dithering.
 *
 * Colours are split into boxes: always the box with most pixels, at its median, along the axis that
 * is longest to the eye. A palette entry is the mean of a box. A pixel takes the entry that is
 * nearest to the corner of its cell of 4 x 4 x 4 colours. */
#include "node/node_impl.h"

#include <inttypes.h>
#include <limits.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define COLORS_MAX 256
#define ENTRIES_MAX 65536 /* more colours than these are looked at more coarsely */

struct entry { /* pixels of one colour */
    uint8_t c[3];
    uint32_t n, sum[3]; /* of their full values */
};

struct box {
    size_t from, to; /* of the entries, which splits reorder */
    uint64_t pixels;
    size_t left, right; /* boxes; 0: a leaf */
};

struct cut {
    struct entry *entry, *spare;
    size_t entries;
    struct box box[2 * COLORS_MAX];
    size_t boxes;
    size_t heap[COLORS_MAX + 2], heaped; /* from 1 on; the box with most pixels is on top */
};

/* ---- entries ---- */

static int by_value(const void *a, const void *b)
{
    uint32_t x = *(const uint32_t *)a, y = *(const uint32_t *)b;
    return x < y ? -1 : x > y;
}

static uint32_t coarse(uint32_t rgb, unsigned shift)
{
    uint32_t mask = 0xffu & (0xffu << shift);
    return rgb & (mask << 16 | mask << 8 | mask);
}

/* How many colours there are in sorted values; a lower resolution keeps no order. */
static size_t count_colors(const uint32_t *rgb, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += !i || rgb[i] != rgb[i - 1];
    return count;
}

static void add_entries(struct cut *k, const uint64_t *keyed, size_t n)
{
    for (size_t i = 0; i < n; i++) { /* the coarse colour above, the full one below */
        uint32_t key = (uint32_t)(keyed[i] >> 32), rgb = (uint32_t)keyed[i];
        if (!i || key != (uint32_t)(keyed[i - 1] >> 32))
            k->entry[k->entries++] =
                (struct entry) { .c = { (uint8_t)(key >> 16), (uint8_t)(key >> 8), (uint8_t)key } };
        struct entry *e = &k->entry[k->entries - 1];
        e->n++;
        for (int a = 0; a < 3; a++)
            e->sum[a] += (rgb >> (16 - 8 * a)) & 0xff;
    }
}

static int by_key(const void *a, const void *b)
{
    uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
    return x < y ? -1 : x > y;
}

/* All colours of px [n], at a resolution that leaves at most ENTRIES_MAX. */
static berth_status collect(struct cut *k, const uint8_t *px, size_t n, berth_err *err)
{
    uint32_t *rgb = malloc(n * sizeof *rgb);
    uint64_t *keyed = malloc(n * sizeof *keyed);
    unsigned shift = 0;
    berth_status s =
        rgb && keyed ? BERTH_OK : err_set(err, BERTH_ENOMEM, "colours of %zu pixels", n);
    for (; !s; shift++) {
        for (size_t i = 0; i < n; i++)
            rgb[i] =
                coarse((uint32_t)(px[3 * i] << 16 | px[3 * i + 1] << 8 | px[3 * i + 2]), shift);
        qsort(rgb, n, sizeof *rgb, by_value);
        if (count_colors(rgb, n) <= ENTRIES_MAX)
            break;
    }
    for (size_t i = 0; !s && i < n; i++) {
        uint32_t full = (uint32_t)(px[3 * i] << 16 | px[3 * i + 1] << 8 | px[3 * i + 2]);
        keyed[i] = (uint64_t)coarse(full, shift) << 32 | full;
    }
    if (!s) {
        size_t most = count_colors(rgb, n);
        qsort(keyed, n, sizeof *keyed, by_key);
        k->entry = calloc(most, sizeof *k->entry);
        k->spare = calloc(most, sizeof *k->spare);
        s = k->entry && k->spare ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu colours", most);
    }
    if (!s)
        add_entries(k, keyed, n);
    for (size_t i = 0; i < k->entries; i++)
        for (int a = 0; a < 3; a++)
            k->entry[i].c[a] = (uint8_t)(k->entry[i].c[a] >> shift);
    free(rgb);
    free(keyed);
    return s;
}

/* ---- the heap: which of equals is on top follows from how it is kept ---- */

static uint64_t pixels_at(const struct cut *k, size_t place)
{
    return k->box[k->heap[place]].pixels;
}

static void heap_add(struct cut *k, size_t box)
{
    size_t at = ++k->heaped;
    for (; at > 1 && k->box[box].pixels > pixels_at(k, at / 2); at /= 2)
        k->heap[at] = k->heap[at / 2];
    k->heap[at] = box;
}

static bool heap_take(struct cut *k, size_t *out)
{
    if (!k->heaped)
        return false;
    *out = k->heap[1];
    size_t last = k->heap[k->heaped--], at = 1;
    for (size_t child; at * 2 <= k->heaped; at = child) {
        child = at * 2;
        if (child < k->heaped && pixels_at(k, child) < pixels_at(k, child + 1))
            child++;
        if (k->box[last].pixels > pixels_at(k, child))
            break;
        k->heap[at] = k->heap[child];
    }
    k->heap[at] = last;
    return true;
}

/* ---- boxes ---- */

/* The axis that is longest to the eye; -1: all of its entries are one colour. */
static int longest_axis(const struct cut *k, const struct box *b)
{
    static const int weight[3] = { 77, 150, 29 };
    int best = 0, axis = -1;
    for (int a = 0; a < 3; a++) {
        int lo = 255, hi = 0;
        for (size_t i = b->from; i < b->to; i++) {
            lo = k->entry[i].c[a] < lo ? k->entry[i].c[a] : lo;
            hi = k->entry[i].c[a] > hi ? k->entry[i].c[a] : hi;
        }
        if ((hi - lo) * weight[a] > best) {
            best = (hi - lo) * weight[a];
            axis = a;
        }
    }
    return axis;
}

/* The least value that goes left, where the large ones are: both sides get something. */
static int median(const struct cut *k, const struct box *b, int axis)
{
    uint64_t count[256] = { 0 }, left = 0;
    int at = 255, least = 255;
    for (size_t i = b->from; i < b->to; i++) {
        count[k->entry[i].c[axis]] += k->entry[i].n;
        least = k->entry[i].c[axis] < least ? k->entry[i].c[axis] : least;
    }
    for (; at > least; at--) {
        left += count[at];
        if (left * 2 > b->pixels)
            break;
    }
    return at > least ? at : least + 1;
}

static void split(struct cut *k, size_t box, int axis)
{
    struct box *b = &k->box[box];
    int at = median(k, b, axis);
    size_t left = b->from, right = 0;
    uint64_t pixels = 0;
    for (size_t i = b->from; i < b->to; i++)
        if (k->entry[i].c[axis] >= at) {
            pixels += k->entry[i].n;
            k->entry[left++] = k->entry[i];
        } else {
            k->spare[right++] = k->entry[i];
        }
    memcpy(k->entry + left, k->spare, right * sizeof *k->entry);
    b->left = k->boxes++;
    b->right = k->boxes++;
    k->box[b->left] = (struct box) { .from = b->from, .to = left, .pixels = pixels };
    k->box[b->right] = (struct box) { .from = left, .to = b->to, .pixels = b->pixels - pixels };
}

static void median_cut(struct cut *k, size_t pixels, size_t colors)
{
    k->box[k->boxes++] = (struct box) { .to = k->entries, .pixels = pixels };
    heap_add(k, 0);
    while (--colors) {
        size_t box;
        int axis = -1;
        do
            if (!heap_take(k, &box))
                return;
        while ((axis = longest_axis(k, &k->box[box])) < 0);
        split(k, box, axis);
        heap_add(k, k->box[box].left);
        heap_add(k, k->box[box].right);
    }
}

/* ---- the palette ---- */

struct palette {
    uint8_t c[COLORS_MAX][3];
    size_t n;
    int16_t *near; /* of each cell of 64 x 64 x 64; -1: not looked for yet */
};

/* Leaves from the left. The tree is at most COLORS_MAX deep. */
static void add_leaves(const struct cut *k, size_t box, struct palette *p)
{
    const struct box *b = &k->box[box];
    if (b->left) {
        add_leaves(k, b->left, p);
        add_leaves(k, b->right, p);
        return;
    }
    for (int a = 0; a < 3; a++) {
        uint64_t sum = 0, n = 0;
        for (size_t i = b->from; i < b->to; i++) {
            sum += k->entry[i].sum[a];
            n += k->entry[i].n;
        }
        p->c[p->n][a] = (uint8_t)(0.5 + (double)sum / (double)n);
    }
    p->n++;
}

static size_t nearest(struct palette *p, const int c[3])
{
    size_t cell = (size_t)(c[0] >> 2) << 12 | (size_t)(c[1] >> 2) << 6 | (size_t)(c[2] >> 2);
    int best = INT_MAX;
    if (p->near[cell] >= 0)
        return (size_t)p->near[cell];
    for (size_t i = 0; i < p->n; i++) {
        int d = 0;
        for (int a = 0; a < 3; a++)
            d += ((c[a] & ~3) - p->c[i][a]) * ((c[a] & ~3) - p->c[i][a]);
        if (d < best) {
            best = d;
            p->near[cell] = (int16_t)i;
        }
    }
    return (size_t)p->near[cell];
}

/* ---- pixels ---- */

static void map_plain(struct palette *p, const uint8_t *px, size_t n, float *out)
{
    for (size_t i = 0; i < n; i++) {
        size_t at = nearest(p, (int[3]) { px[3 * i], px[3 * i + 1], px[3 * i + 2] });
        for (size_t a = 0; a < 3; a++)
            out[3 * i + a] = (float)p->c[at][a] / 255.0f;
    }
}

static int clip8(int v)
{
    return v < 0 ? 0 : v > 255 ? 255 : v;
}

/* Floyd-Steinberg in sixteenths. below [w + 1][3]: what the row above leaves for each pixel. */
static void map_diffused(struct palette *p, const uint8_t *px, size_t h, size_t w, int (*below)[3],
                         float *out)
{
    for (size_t y = 0; y < h; y++) {
        int next[3] = { 0 }, low[3] = { 0 }, lower[3] = { 0 };
        for (size_t x = 0; x < w; x++, px += 3, out += 3) {
            int c[3];
            for (int a = 0; a < 3; a++)
                c[a] = clip8(px[a] + (next[a] + below[x + 1][a]) / 16);
            size_t at = nearest(p, c);
            for (int a = 0; a < 3; a++) {
                int e = c[a] - p->c[at][a];
                out[a] = (float)p->c[at][a] / 255.0f;
                below[x][a] = 3 * e + low[a];
                low[a] = 5 * e + lower[a];
                lower[a] = e;
                next[a] = 7 * e;
            }
        }
        below[w][0] = low[2]; /* sic: what Pillow writes there */
        below[w][1] = lower[2];
        below[w][2] = lower[2];
    }
}

/* A place of the matrix of side 2^n, whose values lie around 0. */
static float bayer_at(unsigned n, size_t y, size_t x)
{
    static const float corner[2][2] = { { -1.5f, 0.5f }, { 1.5f, -0.5f } };
    if (!n)
        return 0.0f;
    size_t half = (size_t)1 << (n - 1);
    float q = (float)((size_t)1 << (2 * n));
    return (q * bayer_at(n - 1, y % half, x % half) + corner[y / half][x / half]) / q;
}

static void add_bayer(const struct palette *p, unsigned n, size_t h, size_t w, uint8_t *px)
{
    float spread = (float)(512.0 / (double)p->n), m[16][16];
    size_t side = (size_t)1 << n;
    for (size_t i = 0; i < side * side; i++)
        m[i / side][i % side] = spread * bayer_at(n, i / side, i % side) + 0.5f;
    for (size_t i = 0; i < h * w * 3; i++) {
        float v = (float)px[i] + m[i / 3 / w % side][i / 3 % w % side];
        px[i] = (uint8_t)(v > 0.0f ? (v < 255.0f ? v : 255.0f) : 0.0f);
    }
}

/* ---- the node ---- */

static berth_status make_palette(const struct image *im, size_t colors, struct palette *p,
                                 berth_err *err)
{
    struct cut *k = calloc(1, sizeof *k);
    size_t n = (size_t)im->w * im->h;
    p->near = malloc(((size_t)1 << 18) * sizeof *p->near);
    berth_status s =
        k && p->near ? BERTH_OK : err_set(err, BERTH_ENOMEM, "a palette of %zu", colors);
    if (!s)
        s = collect(k, im->px, n, err);
    if (!s) {
        median_cut(k, n, colors);
        add_leaves(k, 0, p);
        memset(p->near, 0xff, ((size_t)1 << 18) * sizeof *p->near);
    }
    if (k) {
        free(k->entry);
        free(k->spare);
    }
    free(k);
    return s;
}

static berth_status map_pixels(struct palette *p, struct image *im, const char *dither, float *out,
                               berth_err *err)
{
    if (*dither == 'b') {
        unsigned n = 0;
        for (unsigned long order = strtoul(dither + strcspn(dither, "0123456789"), NULL, 10);
             order > 1 && n < 4; order /= 2)
            n++;
        add_bayer(p, n, im->h, im->w, im->px);
    }
    if (*dither != 'f') {
        map_plain(p, im->px, (size_t)im->w * im->h, out);
        return BERTH_OK;
    }
    int(*below)[3] = calloc((size_t)im->w + 1, sizeof *below);
    if (!below)
        return err_set(err, BERTH_ENOMEM, "dithering %u pixels", im->w);
    map_diffused(p, im->px, im->h, im->w, below, out);
    free(below);
    return BERTH_OK;
}

static berth_status quantize_run(struct node_call *c, berth_err *err)
{
    struct htensor *t, *o;
    uint64_t colors;
    const char *dither;
    berth_status s = BERTH_OK;
    if (in_image(c, "image", &t, err) || in_u64(c, "colors", &colors, err) ||
        in_text(c, "dither", &dither, err))
        return err->code;
    if (!colors || colors > COLORS_MAX)
        return err_set(err, BERTH_EINVAL, "%" PRIu64 " colours, not 1 to %d", colors, COLORS_MAX);
    if (dim(t, 3) != 3)
        return err_set(err, BERTH_EINVAL, "a picture of %zu channels is not RGB", dim(t, 3));
    if (htensor_new(&t->shape, &o, err))
        return err->code;
    size_t one = dim(t, 1) * dim(t, 2) * 3;
    for (size_t i = 0; !s && i < dim(t, 0); i++) {
        struct image im = { 0 };
        struct palette p = { .n = 0 };
        s = call_check(c, err);
        if (!s)
            s = image_8bit(t, i, &im, err);
        if (!s)
            s = make_palette(&im, (size_t)colors, &p, err);
        if (!s)
            s = map_pixels(&p, &im, dither, o->data + i * one, err);
        free(p.near);
        image_release(&im);
    }
    return give_tensor(c, s, o, err);
}

NODE_CLASS(ImageQuantize, .display = "Quantize Image", .category = "image/filters",
           V3("post_processing"),
           INS(SOCKET("image", "IMAGE"), INT_IN("colors", 256, 1, 256, 1),
               COMBO_IN("dither", CHOICES("none", "floyd-steinberg", "bayer-2", "bayer-4",
                                          "bayer-8", "bayer-16"))),
           OUT(out_image), .run = quantize_run);
