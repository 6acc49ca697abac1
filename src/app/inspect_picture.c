/* The picture: a strip as wide as the terminal, every column an equal piece of the file, coloured
 * by the part of the model (upper rows) and by dtype (lower row) that owns most of it.
 *
 *     0                                                              65.6 MiB
 *     aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbccccccccccc   parts
 *     AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA   dtypes
 *
 * Parts are the leading name parts ("double_blocks"), taken deeper while there is only one. */
#include "app/inspect.h"

#include "base/map.h"

#include <inttypes.h>

#define CLASSES INSPECT_CLASSES /* the last one gathers the rest when there are more */
#define PICTURE_SHARDS 8
#define DEPTH_MAX 6 /* name parts looked at */

struct group { /* tensors drawn in one colour */
    const char *name;
    size_t len; /* of the part of a tensor's name that is the group's */
    uint64_t bytes;
    unsigned class;
};

struct grouping {
    struct group *at;
    size_t n;
    unsigned *of;              /* of[i]: class of tensor i */
    struct group top[CLASSES]; /* what the legend says, largest first */
    unsigned classes;
};

/* Length of the first `depth` dotted parts, without the dot behind. */
static size_t prefix_len(const char *s, size_t n, int depth)
{
    for (size_t i = 0; i < n; i++)
        if (s[i] == '.' && --depth == 0)
            return i;
    return n;
}

static int by_bytes(const void *a, const void *b)
{
    const struct group *x = *(const struct group *const *)a, *y = *(const struct group *const *)b;
    if (x->bytes != y->bytes)
        return x->bytes < y->bytes ? 1 : -1;
    return x < y ? -1 : 1; /* first seen first */
}

static void grouping_release(struct grouping *g)
{
    free(g->at);
    free(g->of);
    *g = (struct grouping) { 0 };
}

/* Sorts tensors into groups by name prefix; false when memory is short. of[] holds group numbers
 * until classes are given out. */
static bool group_by_prefix(const struct weights *w, int depth, struct grouping *g)
{
    /* names come from outside: without a seed they could be made to collide */
    struct map seen = { .seed = (uint64_t)(uintptr_t)w * UINT64_C(0x9e3779b97f4a7c15) };
    bool ok = true;
    g->n = 0;
    for (size_t i = 0; ok && i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        size_t len = prefix_len(e->name, e->name_len, depth);
        uint64_t at;
        if (!map_get(&seen, e->name, len, &at)) {
            at = g->n++;
            g->at[at] = (struct group) { .name = e->name, .len = len };
            ok = map_add(&seen, e->name, len, at) == MAP_ADDED;
        }
        g->at[at].bytes += e->size;
        g->of[i] = (unsigned)at;
    }
    map_release(&seen);
    return ok;
}

/* How much of a and b is the same, in whole dotted parts. */
static size_t common_parts(const char *a, size_t n, const char *b, size_t m)
{
    size_t same = 0, dot = 0;
    for (; same < n && same < m && a[same] == b[same]; same++)
        if (a[same] == '.')
            dot = same;
    bool whole = (same == n || a[same] == '.') && (same == m || b[same] == '.');
    return whole ? same : dot;
}

/* A group may share more leading parts than its prefix: "model" is "model.diffusion_model". Starts
 * from the first tensor without its own last part and keeps what all the others have too. */
static void widen_names(const struct weights *w, struct grouping *g)
{
    for (size_t k = 0; k < g->n; k++) {
        const char *last = strrchr(g->at[k].name, '.');
        size_t parent = last ? (size_t)(last - g->at[k].name) : 0;
        if (parent > g->at[k].len)
            g->at[k].len = parent;
    }
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        struct group *p = &g->at[g->of[i]];
        p->len = common_parts(p->name, p->len, e->name, e->name_len);
    }
}

/* The largest groups get a class of their own, the rest share the last one. */
static bool give_classes(const struct weights *w, struct grouping *g)
{
    const struct group **order = calloc(g->n ? g->n : 1, sizeof(const struct group *));
    if (!order)
        return false;
    for (size_t k = 0; k < g->n; k++)
        order[k] = &g->at[k];
    qsort(order, g->n, sizeof(const struct group *), by_bytes);
    for (size_t k = 0; k < g->n; k++) {
        struct group *p = &g->at[order[k] - g->at];
        p->class = (unsigned)(k < CLASSES ? k : CLASSES - 1);
        if (k < CLASSES)
            g->top[k] = *p;
        else if (k == CLASSES)
            g->top[CLASSES - 1] = (struct group) { .name = "other",
                                                   .len = 5,
                                                   .bytes = g->top[CLASSES - 1].bytes + p->bytes };
        else
            g->top[CLASSES - 1].bytes += p->bytes;
    }
    g->classes = (unsigned)(g->n < CLASSES ? g->n : CLASSES);
    for (size_t i = 0; i < weights_count(w); i++)
        g->of[i] = g->at[g->of[i]].class;
    free(order);
    return true;
}

static bool grouping_new(const struct weights *w, size_t groups, struct grouping *g)
{
    size_t count = weights_count(w);
    *g = (struct grouping) { .at = calloc(groups ? groups : 1, sizeof *g->at),
                             .of = calloc(count ? count : 1, sizeof *g->of) };
    return g->at && g->of;
}

static bool group_parts(const struct weights *w, struct grouping *g)
{
    if (!grouping_new(w, weights_count(w), g))
        return false;
    for (int depth = 1; depth <= DEPTH_MAX; depth++) {
        if (!group_by_prefix(w, depth, g))
            return false;
        if (g->n != 1)
            break;
    }
    widen_names(w, g);
    return give_classes(w, g);
}

static bool group_dtypes(const struct weights *w, const struct summary *s, struct grouping *g)
{
    if (!grouping_new(w, DT_COUNT, g))
        return false;
    unsigned number[DT_COUNT] = { 0 };
    for (int t = 0; t < DT_COUNT; t++)
        if (s->by_dtype[t].tensors) {
            const char *name = dtype_name((enum dtype)t);
            number[t] = (unsigned)g->n;
            g->at[g->n++] =
                (struct group) { .name = name, .len = strlen(name), .bytes = s->by_dtype[t].bytes };
        }
    for (size_t i = 0; i < weights_count(w); i++)
        g->of[i] = number[weights_at(w, i)->dtype];
    return give_classes(w, g);
}

/* Which class owns most of each column; CLASSES: header, padding. */
static bool columns(const struct weights *w, uint32_t shard, const unsigned *of, int width,
                    unsigned *out)
{
    double(*share)[CLASSES] = calloc((size_t)width, sizeof *share);
    if (!share)
        return false;
    double scale = (double)weights_shard(w, shard)->size / width; /* bytes per column */
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (e->shard != shard || !e->size)
            continue;
        double from = (double)e->off / scale, to = (double)(e->off + e->size) / scale;
        for (int c = (int)from; c < width && c < to; c++) {
            double a = from > c ? from : c, b = to < c + 1 ? to : c + 1;
            share[c][of[i]] += b - a;
        }
    }
    for (int c = 0; c < width; c++) {
        double best = 0, sum = 0; /* of one column */
        out[c] = CLASSES;
        for (unsigned k = 0; k < CLASSES; k++) {
            sum += share[c][k];
            if (share[c][k] > best) {
                best = share[c][k];
                out[c] = k;
            }
        }
        if (sum < 0.5)
            out[c] = CLASSES; /* mostly nothing */
    }
    free(share);
    return true;
}

struct look { /* with colour a class is a colour, without it is a letter */
    const char *block;
    char letter;
    unsigned color; /* of the first class */
};
static const struct look part_look = { "█", 'a', 0 };
static const struct look type_look = { "▀", 'A', INSPECT_TYPE_COLOR };

static void draw_row(const struct app *a, const unsigned *cell, int width, const struct look *look)
{
    struct str t = { 0 };
    str_adds(&t, "    ");
    for (int c = 0; c < width; c++) {
        bool same = c && cell[c] == cell[c - 1];
        if (cell[c] == CLASSES) {
            str_adds(&t, same ? "" : term_style(&a->out, STYLE_RESET));
            str_adds(&t, a->out.utf8 ? "·" : ".");
        } else if (a->out.color) {
            str_adds(&t, same ? "" : term_color(&a->out, look->color + cell[c]));
            str_adds(&t, a->out.utf8 ? look->block : "#");
        } else {
            str_addc(&t, (char)(look->letter + (char)cell[c]));
        }
    }
    str_adds(&t, term_style(&a->out, STYLE_RESET));
    puts(str_c(&t));
    str_release(&t);
}

/* The end of a long name tells more than its beginning. */
static void legend_name(struct str *out, const char *name, size_t len)
{
    const char *end = name + len, *dot;
    const size_t max = 40;
    while ((size_t)(end - name) > max && (dot = memchr(name, '.', (size_t)(end - name))))
        name = dot + 1;
    str_adds(out, name == end - len ? "" : "...");
    term_safe(out, name, (size_t)(end - name), max);
}

static void draw_legend(const struct app *a, const struct grouping *g, const struct look *look)
{
    int column = 0;
    struct str line = { 0 };
    for (unsigned k = 0; k < g->classes; k++) {
        char size[STR_BYTES_MAX];
        struct str text = { 0 };
        legend_name(&text, g->top[k].name, g->top[k].len);
        str_addf(&text, " %s", str_bytes(g->top[k].bytes, size));
        int n = (int)text.n + 5;
        if (!k || column + n > a->out.width - 4) {
            str_adds(&line, k ? "\n    " : "    ");
            column = 0;
        } else {
            str_adds(&line, "   ");
        }
        if (a->out.color)
            str_addf(&line, "%s%s%s %s", term_color(&a->out, look->color + k),
                     a->out.utf8 ? look->block : "#", term_style(&a->out, STYLE_RESET),
                     str_c(&text));
        else
            str_addf(&line, "%c %s", look->letter + (char)k, str_c(&text));
        column += n;
        str_release(&text);
    }
    puts(str_c(&line));
    str_release(&line);
}

static bool draw_shard(const struct app *a, const struct weights *w, uint32_t shard,
                       const struct grouping *parts, const struct grouping *dtypes)
{
    int width = a->out.width - 6;
    unsigned *cell = calloc((size_t)width, sizeof *cell);
    if (!cell)
        return false;
    char size[STR_BYTES_MAX];
    str_bytes(weights_shard(w, shard)->size, size);
    if (weights_shards(w) > 1)
        printf("    file %" PRIu32 "\n", shard);
    printf("    0%*s\n", width - 1, size);
    bool ok = columns(w, shard, parts->of, width, cell);
    if (ok) {
        draw_row(a, cell, width, &part_look);
        if (a->out.color)
            draw_row(a, cell, width, &part_look);
        ok = columns(w, shard, dtypes->of, width, cell);
    }
    if (ok)
        draw_row(a, cell, width, &type_look);
    free(cell);
    return ok;
}

void inspect_picture(const struct app *a, const struct weights *w, const struct summary *s)
{
    struct grouping parts = { 0 }, dtypes = { 0 };
    if (weights_count(w) && group_parts(w, &parts) && group_dtypes(w, s, &dtypes)) {
        printf("\n  %slayout%s\n", term_style(&a->out, STYLE_BOLD),
               term_style(&a->out, STYLE_RESET));
        size_t shards = weights_shards(w);
        for (uint32_t i = 0; i < shards && i < PICTURE_SHARDS; i++)
            if (!draw_shard(a, w, i, &parts, &dtypes))
                break;
        if (shards > PICTURE_SHARDS) {
            struct str more = { 0 };
            term_count(&more, shards - PICTURE_SHARDS, "more file");
            printf("    ... and %s\n", str_c(&more));
            str_release(&more);
        }
        draw_legend(a, &parts, &part_look);
        draw_legend(a, &dtypes, &type_look);
    }
    grouping_release(&parts);
    grouping_release(&dtypes);
}
