/* embedding.c: the vectors of a textual inversion file (text-encoders.md 2). */
#include "base/str.h"
#include "base/sz.h"
#include "format/weights.h"
#include "tensor/convert.h"
#include "text/tokenizer.h"

#include <stdio.h>
#include <string.h>

#define VECTORS_MAX (75u * TEXT_CHUNKS_MAX) /* more would not fit a prompt */
#define WIDTH_MAX (1u << 16)

/* A vector, or a matrix of them. */
static bool rows_of(const struct weights_entry *e, uint64_t *rows, uint64_t *width)
{
    *rows = e->shape.ndim == 2 ? e->shape.dim[0] : 1;
    *width = e->shape.ndim ? e->shape.dim[e->shape.ndim - 1] : 0;
    return (e->shape.ndim == 1 || e->shape.ndim == 2) && *width > 0 && *width <= WIDTH_MAX &&
           *rows > 0 && *rows <= VECTORS_MAX;
}

/* Is this one meant by `bundle_emb.<name>.<end>`, what adapter files carry along? */
static bool is_bundled(const struct weights_entry *e, const char *end)
{
    return str_starts(e->name, e->name_len, "bundle_emb.") && str_ends(e->name, e->name_len, end);
}

/* Was it in a list, which a pickle may be? Names of what is in there begin with a number. */
static bool is_listed(const struct weights_entry *e)
{
    size_t digits = strspn(e->name, "0123456789");
    return digits && e->name[digits] == '.';
}

/* Which tensors are the vectors: the encoder's own, a bundle, a list, or the first there is. Their
 * rows follow each other. */
struct choice {
    const struct weights_entry *one; /* NULL: all that are bundled under `end` */
    const char *end;                 /* NULL: all that are listed */
};

static bool is_chosen(const struct choice *c, const struct weights_entry *e)
{
    return c->one ? c->one == e : c->end ? is_bundled(e, c->end) : is_listed(e);
}

static bool has_bundled(const struct weights *w, const char *end)
{
    for (size_t i = 0; i < weights_count(w); i++)
        if (is_bundled(weights_at(w, i), end))
            return true;
    return false;
}

/* A textual inversion as it was first written: {"string_to_param": {"*": vectors}}. */
static const struct weights_entry *param_of(const struct weights *w)
{
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if (str_starts(e->name, e->name_len, "string_to_param."))
            return e;
    }
    return NULL;
}

static struct choice choose(const struct weights *w, const char *key, const char *key_end)
{
    struct choice c = { .one = param_of(w) };
    if (!c.one)
        c.one = weights_find(w, key, strlen(key));
    if (c.one)
        return c;
    const char *const end[] = { ".string_to_param.*", key_end };
    for (size_t k = 0; k < 2; k++)
        if (has_bundled(w, end[k]))
            return (struct choice) { .end = end[k] };
    const struct weights_entry *first = weights_first(w);
    if (!first || !is_listed(first))
        c.one = first;
    return c;
}

/* Rows and width of all that is chosen. */
static berth_status measure(const struct weights *w, const struct choice *c, size_t *rows,
                            size_t *width, berth_err *err)
{
    *rows = *width = 0;
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        uint64_t r, n;
        char text[SHAPE_TEXT_MAX];
        if (!is_chosen(c, e))
            continue;
        if (!rows_of(e, &r, &n) || (*rows && n != *width) || r > VECTORS_MAX - *rows ||
            !convert_possible(e->dtype, DT_F32))
            return err_set(err, BERTH_EFORMAT, "'%.80s' is %s %s: not vectors of an embedding",
                           e->name, dtype_name(e->dtype), shape_text(&e->shape, text));
        *rows += (size_t)r;
        *width = (size_t)n;
    }
    return BERTH_OK;
}

static berth_status read_rows(const struct weights *w, const struct choice *c, float *to,
                              size_t width, berth_err *err)
{
    for (size_t i = 0; i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        uint64_t r, n;
        if (!is_chosen(c, e) || !rows_of(e, &r, &n))
            continue;
        if (convert(e->dtype, weights_data(w, e), DT_F32, to, (size_t)r * width, err))
            return err->code;
        to += (size_t)r * width;
    }
    return weights_check(w, err);
}

static berth_status read_vectors(const struct weights *w, const char *key, struct arena *mem,
                                 float **out, size_t *rows, size_t *width, berth_err *err)
{
    char key_end[64];
    snprintf(key_end, sizeof key_end, ".%s", key);
    struct choice c = choose(w, key, key_end);
    if (!weights_count(w))
        return err_set(err, BERTH_EFORMAT, "no tensor in it is an embedding");
    size_t n;
    if (measure(w, &c, rows, width, err))
        return err->code;
    if (!sz_mul(*rows, *width, &n) || !(*out = arena_array(mem, n, sizeof **out)))
        return err_set(err, BERTH_ENOMEM, "%zu vectors of %zu", *rows, *width);
    return read_rows(w, &c, *out, *width, err);
}

berth_status text_embedding_read(const char *path, const char *key, struct arena *mem,
                                 const float **vectors, uint32_t *count, uint32_t *width,
                                 berth_err *err)
{
    struct weights *w = NULL;
    float *to = NULL;
    size_t rows = 0, have = 0;
    if (weights_open(path, NULL, &w, err))
        return err_add(err, "embedding");
    berth_status s = read_vectors(w, key, mem, &to, &rows, &have, err);
    weights_close(w);
    if (s)
        return err_add(err, "embedding '%s'", path);
    *vectors = to;
    *count = (uint32_t)rows;
    *width = (uint32_t)have;
    return BERTH_OK;
}
