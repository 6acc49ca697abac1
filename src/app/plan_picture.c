/* The picture: for each device how much of its memory the model takes, and below it a strip of the
 * model from the first block that runs to the last. Every column is an equal piece of the model's
 * bytes, the higher the more of that piece lies on the device; without UTF-8 in tenths, # for all.
 *
 *     cuda:0  memory  ####################..........................  12.0 GiB, 50 % of 24.0 GiB
 *             order   5556565555565#6555555#55555665#555565565555655
 *     cpu     memory  #######.......................................  10.2 GiB, 16 % of 64.0 GiB
 *             order   5554545555454.4555555.55555445.555545545555455
 *
 * A file that holds several networks gets a strip that says which is where. */
#include "app/plan.h"

#define INDENT 2
#define LABEL 8 /* "memory  " */
#define SAID 32 /* "1023 GiB, 99.9 % of 1023 GiB" behind a bar */
#define BAR_MIN 10
#define PARTS_MAX 26 /* letters */

struct strip {     /* one column after another */
    int width;     /* columns */
    double *share; /* [columns][of]: which part of the column's bytes is whose */
    size_t of;
};

/* owner(user, i): whose block i is, below `of`. False when memory is short. */
static bool strip_make(const struct blocks *b, int width, size_t of,
                       size_t (*owner)(const void *user, size_t block), const void *user,
                       struct strip *s)
{
    *s = (struct strip) { .width = width, .of = of };
    s->share = calloc((size_t)width * (of ? of : 1), sizeof *s->share);
    if (!s->share || !b->bytes)
        return s->share;
    double scale = (double)b->bytes / width; /* bytes per column */
    uint64_t at = 0;
    for (size_t i = 0; i < b->n; i++) {
        double from = (double)at / scale, to = (double)(at + b->at[i].bytes) / scale;
        size_t mine = owner(user, i);
        for (int c = (int)from; c < width && c < to; c++) {
            double x = from > c ? from : c, y = to < c + 1 ? to : c + 1;
            s->share[(size_t)c * of + mine] += y - x;
        }
        at += b->at[i].bytes;
    }
    return true;
}

/* What a column looks like: nothing, a little, ... all. `cell` holds `cells` of them. */
static const char *cell_of(const char *const *cell, size_t cells, double share)
{
    const double none = 0.005, all = 0.995;
    if (share < none || share > all)
        return cell[share < none ? 0 : cells - 1];
    size_t i = (size_t)(share * (double)(cells - 1) + 0.5);
    return cell[i < 1 ? 1 : i > cells - 2 ? cells - 2 : i];
}

static void draw_order(const struct app *a, const struct strip *s, size_t mine, int name)
{
    static const char *const high[] = { "·", "▁", "▂", "▃", "▄", "▅", "▆", "▇", "█" };
    static const char *const tenths[] = { ".", "1", "2", "3", "4", "5", "6", "7", "8", "9", "#" };
    struct str t = { 0 };
    str_addf(&t, "%*s%-*s%s", INDENT + name + 2, "", LABEL, "order",
             term_color(&a->out, (unsigned)mine));
    for (int c = 0; c < s->width; c++) {
        double share = s->share[(size_t)c * s->of + mine];
        str_adds(&t, a->out.utf8 ? cell_of(high, ARRAY_LEN(high), share)
                                 : cell_of(tenths, ARRAY_LEN(tenths), share));
    }
    str_adds(&t, term_style(&a->out, STYLE_RESET));
    puts(str_c(&t));
    str_release(&t);
}

static void draw_memory(const struct app *a, const struct plan *p, size_t i, int name, int width)
{
    const struct plan_device *d = &p->devices.at[i];
    char held[STR_BYTES_MAX], all[STR_BYTES_MAX];
    double share = d->budget ? (double)p->share[i].bytes / (double)d->budget : 0;
    struct str t = { 0 };
    str_addf(&t, "%*s%-*s  %-*s%s", INDENT, "", name, d->name, LABEL, "memory",
             term_color(&a->out, (unsigned)i));
    if (width >= BAR_MIN)
        term_bar(&t, &a->out, share, width);
    str_addf(&t, "%s%s%s, ", term_style(&a->out, STYLE_RESET), width >= BAR_MIN ? "  " : "",
             str_bytes(p->share[i].bytes, held));
    if (share > 0 && share < 0.0005)
        str_adds(&t, "<0.1");
    else
        str_addf(&t, "%.*f", share > 0 && share < 0.0995 ? 1 : 0, share * 100);
    str_addf(&t, " %% of %s", str_bytes(d->budget, all));
    puts(str_c(&t));
    str_release(&t);
}

/* ---- parts ---- */

struct parts { /* those that are in the file; the last stands for blocks of none of them */
    const struct blocks *blocks;
    size_t of[PARTS_MAX];             /* index in place_parts */
    const struct arch *is[PARTS_MAX]; /* what it is */
    uint64_t bytes[PARTS_MAX + 1];
    size_t n;
};

static size_t part_of(const void *user, size_t block)
{
    const struct parts *p = user;
    const struct block *b = &p->blocks->at[block];
    size_t i = 0, part = p->n ? arch_part_of(b->name, b->name_len, NULL) : 0;
    while (i < p->n && p->of[i] != part)
        i++;
    return i;
}

static void parts_find(const struct planned *x, struct parts *p)
{
    *p = (struct parts) { .blocks = x->blocks };
    for (size_t i = 0; x->arch && x->arch->holds_parts && i < PLACE_PARTS && p->n < PARTS_MAX; i++)
        if ((p->is[p->n] = arch_of_part(x->weights, x->prefix, &place_parts[i])))
            p->of[p->n++] = i;
    for (size_t i = 0; i < x->blocks->n; i++)
        p->bytes[part_of(p, i)] += x->blocks->at[i].bytes;
}

/* Each column the letter of the part that has most of it. */
static void draw_parts(const struct parts *p, const struct strip *s, int name)
{
    struct str t = { 0 };
    str_addf(&t, "%*s%-*s", INDENT + name + 2, "", LABEL, "parts");
    for (int c = 0; c < s->width; c++) {
        size_t best = p->n;
        for (size_t i = 0; i < p->n; i++)
            if (s->share[(size_t)c * s->of + i] > s->share[(size_t)c * s->of + best])
                best = i;
        str_addc(&t, best < p->n ? (char)('a' + (char)best) : '.');
    }
    puts(str_c(&t));
    str_clear(&t);
    for (size_t i = 0; i < p->n; i++) {
        char bytes[STR_BYTES_MAX];
        str_addf(&t, "%*s%c %s  %s, %s\n", INDENT + name + 2 + LABEL, "", 'a' + (char)i,
                 place_parts[p->of[i]].prefix, p->is[i]->base.name, str_bytes(p->bytes[i], bytes));
    }
    fputs(str_c(&t), stdout);
    str_release(&t);
}

/* ---- all of it ---- */

static size_t device_of(const void *user, size_t block)
{
    return ((const struct plan *)user)->device[block];
}

void plan_picture(const struct app *a, const struct planned *x)
{
    const struct plan *p = x->plan;
    int name = 0;
    for (size_t i = 0; i < p->devices.n; i++) {
        int n = (int)strlen(p->devices.at[i].name);
        name = n > name ? n : name;
    }
    int width = a->out.width - INDENT - name - 2 - LABEL;
    int bar = width - SAID;
    struct strip order = { 0 }, which = { 0 };
    struct parts parts;
    parts_find(x, &parts);
    bool ok = width > 0 && strip_make(x->blocks, width, p->devices.n, device_of, p, &order) &&
              strip_make(x->blocks, width, parts.n + 1, part_of, &parts, &which);
    for (size_t i = 0; ok && i < p->devices.n; i++) {
        puts("");
        draw_memory(a, p, i, name, bar);
        if (p->share[i].blocks)
            draw_order(a, &order, i, name);
    }
    if (ok)
        puts("");
    if (ok && parts.n > 1)
        draw_parts(&parts, &which, name);
    if (ok)
        printf("%*s%sorder: from the first block that runs to the last%s\n", INDENT, "",
               term_style(&a->out, STYLE_DIM), term_style(&a->out, STYLE_RESET));
    free(order.share);
    free(which.share);
}
