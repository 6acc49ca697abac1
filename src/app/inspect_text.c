#include "app/inspect.h"

#include <inttypes.h>

#define LAYOUT_LINES 12 /* of different layouts in a file */
#define META_ITEMS 16   /* of an array; the line is cut at the terminal's edge anyway */
#define META_LINES 40   /* of metadata */
#define FILE_LINES 40   /* of shards, unless every tensor is listed too */

static void heading(const struct app *a, const char *text)
{
    printf("\n  %s%s%s\n", term_style(&a->out, STYLE_BOLD), text, term_style(&a->out, STYLE_RESET));
}

static void add_family(struct str *t, const struct family_info *f)
{
    str_addf(t, "\n  family      %s", f->name ? f->what : "not known");
    if (f->name && !f->runs)
        str_addf(t, "; Berth cannot compute it%s%s", f->why[0] ? ": " : " yet", f->why);
}

static void print_facts(const struct app *a, const struct weights *w, const struct summary *s)
{
    char size[STR_BYTES_MAX], data[STR_BYTES_MAX];
    struct str t = { 0 };
    str_adds(&t, term_style(&a->out, STYLE_BOLD));
    term_safe(&t, weights_path(w), strlen(weights_path(w)), 0);
    str_addf(&t, "%s\n  format      %s", term_style(&a->out, STYLE_RESET), weights_format(w));
    if (weights_shards(w) > 1)
        str_addf(&t, ", %zu files", weights_shards(w));
    add_family(&t, &s->family);
    str_addf(&t, "\n  size        %s (", str_bytes(s->file_bytes, size));
    term_number(&t, s->file_bytes);
    str_addf(&t, " bytes), %s of it tensors\n  tensors     ", str_bytes(s->all.bytes, data));
    term_number(&t, s->all.tensors);
    str_adds(&t, "\n  parameters  ");
    term_number(&t, s->all.params);
    if (s->all.params >= 1000) {
        str_adds(&t, " (");
        term_short_number(&t, s->all.params);
        str_addc(&t, ')');
    }
    puts(str_c(&t));
    str_release(&t);
}

/* The numbers that the list of tensors and the picture use. */
static void print_shards(const struct app *a, const struct weights *w, bool all)
{
    size_t n = weights_shards(w), shown = all || n < FILE_LINES ? n : FILE_LINES;
    if (n < 2)
        return;
    heading(a, "files");
    for (size_t i = 0; i < shown; i++) {
        const char *path = weights_shard(w, i)->path, *slash = strrchr(path, '/');
        char size[STR_BYTES_MAX];
        struct str name = { 0 };
        path = slash ? slash + 1 : path;
        term_safe(&name, path, strlen(path), 0);
        printf("    %4zu  %10s  %s\n", i, str_bytes(weights_shard(w, i)->size, size), str_c(&name));
        str_release(&name);
    }
    if (shown < n)
        printf("    ... and %zu more; --tensors has them all\n", n - shown);
}

/* Largest first, as in the picture, so that a type has one colour in both. */
static unsigned color_of(const struct summary *s, int dtype)
{
    unsigned rank = 0;
    for (int t = 0; t < DT_COUNT; t++)
        if (s->by_dtype[t].tensors)
            rank += s->by_dtype[t].bytes > s->by_dtype[dtype].bytes ||
                    (s->by_dtype[t].bytes == s->by_dtype[dtype].bytes && t < dtype);
    return INSPECT_TYPE_COLOR + (rank < INSPECT_CLASSES ? rank : INSPECT_CLASSES - 1);
}

static void print_dtypes(const struct app *a, const struct summary *s)
{
    printf("\n  %s%-8s %8s %18s %11s%s\n", term_style(&a->out, STYLE_BOLD), "dtype", "tensors",
           "parameters", "bytes", term_style(&a->out, STYLE_RESET));
    int bar = a->out.width - 62 < 8 ? 0 : a->out.width - 62 > 40 ? 40 : a->out.width - 62;
    for (int t = 0; t < DT_COUNT; t++) {
        const struct tally *c = &s->by_dtype[t];
        if (!c->tensors)
            continue;
        double share = s->all.bytes ? (double)c->bytes / (double)s->all.bytes : 0;
        char size[STR_BYTES_MAX];
        struct str params = { 0 }, picture = { 0 };
        term_number(&params, c->params);
        if (bar) {
            term_bar(&picture, &a->out, share, bar);
            str_addc(&picture, ' ');
        }
        printf("  %-8s %8" PRIu64 " %18s %11s  %s%s%s%5.1f %%\n", dtype_name((enum dtype)t),
               c->tensors, str_c(&params), str_bytes(c->bytes, size),
               term_color(&a->out, color_of(s, t)), str_c(&picture),
               term_style(&a->out, STYLE_RESET), share * 100);
        str_release(&params);
        str_release(&picture);
    }
}

/* Strings as they are, everything else as JSON would write it. */
static void meta_text(struct str *t, const struct weights_meta *m, size_t width)
{
    if (m->kind == META_STRING) {
        term_safe(t, m->str, m->str_len, width);
        return;
    }
    struct str text = { 0 };
    struct jsonout j = { .out = &text, .spaced = true };
    if (m->kind == META_ARRAY)
        str_addf(&text, "%" PRIu64 " x %s ", m->count, inspect_meta_type(m->elem_type));
    inspect_meta(&j, NULL, m, META_ITEMS);
    if (!text.bad)
        term_safe(t, str_c(&text), text.n, width);
    str_release(&text);
}

/* Shapes that GGUF could not store as they are: one key per tensor, and the reader has applied them
 * already. A line each would bury everything else. */
static bool is_orig_shape(const struct weights_meta *m)
{
    return m->kind == META_ARRAY && str_starts(m->key, m->key_len, "comfy.gguf.orig_shape.");
}

static void print_meta(const struct weights_meta *m, size_t longest, size_t room)
{
    struct str t = { 0 };
    str_adds(&t, "    ");
    term_safe(&t, m->key, m->key_len, 0);
    if (t.n < longest + 4)
        str_pad(&t, ' ', longest + 4);
    str_adds(&t, "  ");
    meta_text(&t, m, room);
    puts(str_c(&t));
    str_release(&t);
}

static void print_metadata(const struct app *a, const struct weights *w)
{
    size_t count = weights_meta_count(w), longest = 0, shapes = 0, shown = 0;
    if (!count)
        return;
    heading(a, "metadata");
    for (size_t i = 0; i < count; i++) {
        const struct weights_meta *m = weights_meta_at(w, i);
        if (is_orig_shape(m))
            shapes++;
        else if (m->key_len > longest)
            longest = m->key_len;
    }
    longest = longest > 40 ? 40 : longest;
    size_t room = (size_t)a->out.width > longest + 30 ? (size_t)a->out.width - longest - 10 : 20;
    for (size_t i = 0; i < count && shown < META_LINES; i++)
        if (!is_orig_shape(weights_meta_at(w, i))) {
            print_meta(weights_meta_at(w, i), longest, room);
            shown++;
        }
    if (shapes)
        printf("    comfy.gguf.orig_shape.*  %zu shape%s, applied already\n", shapes,
               shapes == 1 ? "" : "s");
    if (count - shapes > shown)
        printf("    ... and %zu more; --json has them all\n", count - shapes - shown);
}

static void print_largest(const struct app *a, const struct summary *s)
{
    if (!s->tops)
        return;
    heading(a, "largest tensors");
    for (size_t i = 0; i < s->tops; i++) {
        const struct weights_entry *e = s->top[i];
        char size[STR_BYTES_MAX], shape[SHAPE_TEXT_MAX];
        struct str name = { 0 };
        term_safe(&name, e->name, e->name_len, 0);
        printf("    %10s  %-7s  %-18s  %s\n", str_bytes(e->size, size), dtype_name(e->dtype),
               shape_text(&e->shape, shape), str_c(&name));
        str_release(&name);
    }
}

/* Layouts of quantised weights, each with the number of tensors in it. */
static void print_layouts(const struct app *a, const struct weights *w)
{
    struct {
        char words[INSPECT_WORDS_MAX];
        uint64_t tensors, bytes;
    } seen[LAYOUT_LINES] = { 0 };
    size_t n = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        char words[INSPECT_WORDS_MAX];
        size_t k = 0;
        if (!e->layout)
            continue;
        inspect_words(w, e, words);
        while (k < n && strcmp(seen[k].words, words) != 0)
            k++;
        if (k == LAYOUT_LINES)
            continue;
        if (k == n)
            memcpy(seen[n++].words, words, sizeof words);
        seen[k].tensors++;
        seen[k].bytes += e->size;
    }
    if (n)
        heading(a, "quantised weights");
    for (size_t k = 0; k < n; k++) {
        char size[STR_BYTES_MAX];
        printf("    %8" PRIu64 " %11s  %s\n", seen[k].tensors, str_bytes(seen[k].bytes, size),
               seen[k].words);
    }
}

static void print_tensors(const struct app *a, const struct weights *w)
{
    bool sharded = weights_shards(w) > 1;
    heading(a, "tensors in file order");
    printf("    %s%14s %14s  %-7s  %-18s  %s\n", sharded ? "file  " : "", "offset", "bytes",
           "dtype", "shape", "name");
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        char shape[SHAPE_TEXT_MAX], words[INSPECT_WORDS_MAX];
        struct str name = { 0 };
        term_safe(&name, e->name, e->name_len, 0);
        if (sharded)
            printf("    %4" PRIu32 "  ", e->shard);
        printf("%s%14" PRIu64 " %14" PRIu64 "  %-7s  %-18s  %s: %s\n", sharded ? "" : "    ",
               e->off, e->size, dtype_name(e->dtype), shape_text(&e->shape, shape), str_c(&name),
               inspect_words(w, e, words));
        str_release(&name);
    }
}

void inspect_text(const struct app *a, const struct weights *w, const struct summary *s,
                  bool tensors)
{
    print_facts(a, w, s);
    print_shards(a, w, tensors);
    print_dtypes(a, s);
    print_layouts(a, w);
    print_metadata(a, w);
    print_largest(a, s);
    if (tensors)
        print_tensors(a, w);
}
