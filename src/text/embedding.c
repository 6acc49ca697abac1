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

/* Which tensors are the vectors: the encoder's own, a bundle, or the first there is. Their rows
 * follow each other. */
struct choice {
    const struct weights_entry *one; /* NULL: all that are bundled under `end` */
    const char *end;
};

static bool is_chosen(const struct choice *c, const struct weights_entry *e)
{
    return c->one ? c->one == e : is_bundled(e, c->end);
}

static bool has_bundled(const struct weights *w, const char *end)
{
    for (size_t i = 0; i < weights_count(w); i++)
        if (is_bundled(weights_at(w, i), end))
            return true;
    return false;
}

static struct choice choose(const struct weights *w, const char *key, const char *key_end)
{
    struct choice c = { .one = weights_find(w, key, strlen(key)) };
    if (c.one)
        return c;
    const char *const end[] = { ".string_to_param.*", key_end };
    for (size_t k = 0; k < 2; k++)
        if (has_bundled(w, end[k]))
            return (struct choice) { .end = end[k] };
    if (weights_count(w))
        c.one = weights_at(w, 0);
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
    if (!c.one && !c.end)
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
    if (weights_open(path, NULL, &w, err)) /* refuses pickles, saying what to do */
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
