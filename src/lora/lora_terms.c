/* lora_terms: the factors of one tensor, checked against its shape and converted to F32.
 *
 *   up [out, r (,1,1)], down [r, in (,kh,kw)], mid [r, r, kh, kw]; W seen as [rows, cols]
 *   delta = up . down, scale = strength * (alpha / r, or 1 without alpha)
 *   with mid, down becomes down'[m, i, h, w] = sum over n of mid[m, n, h, w] * down[n, i]
 *   a weight kept the other way round: delta^T = down^T . up^T */
#include "lora/lora_impl.h"

#include "base/sz.h"

#include <inttypes.h>
#include <string.h>

#define RANK_MAX 65536u /* far beyond any in use, small enough that products of two fit anything */

struct place { /* the rows of the tensor that a target means */
    uint64_t row, rows, cols;
    const struct shape *weight; /* all of it */
};

/* Names end with what tells them apart and begin with what says where they are: a long one loses its
 * middle. */
#define NAME_TEXT 128
static const char *name_text(const struct weights_entry *e, char buf[NAME_TEXT])
{
    size_t n = e->name_len, head = 48, tail = n - 72;
    if (n < NAME_TEXT)
        return e->name;
    while (((unsigned char)e->name[head] & 0xc0) == 0x80)
        head--;
    while (((unsigned char)e->name[tail] & 0xc0) == 0x80)
        tail++;
    snprintf(buf, NAME_TEXT, "%.*s...%s", (int)head, e->name, e->name + tail);
    return buf;
}

static berth_status misfit(const struct weights_entry *e, const struct place *p, berth_err *err)
{
    char name[NAME_TEXT], text[SHAPE_TEXT_MAX], weight[SHAPE_TEXT_MAX], rows[64] = "";
    if (p->weight->ndim && p->rows != p->weight->dim[0])
        snprintf(rows, sizeof rows, "rows %" PRIu64 " to %" PRIu64 " of ", p->row,
                 p->row + p->rows - 1);
    return err_set(err, BERTH_EFORMAT, "'%s' %s does not fit %sa weight of shape %s",
                   name_text(e, name), shape_text(&e->shape, text), rows,
                   shape_text(p->weight, weight));
}

/* The entry as a matrix. False: it has no elements, or too many. */
static bool matrix(const struct weights_entry *e, uint64_t *rows, uint64_t *cols)
{
    return merge_matrix(&e->shape, rows, cols) && *rows && *cols;
}

static berth_status load(const struct lora *l, const struct weights_entry *e, struct arena *tmp,
                         float **out, berth_err *err)
{
    const struct dtype_desc *d = dtype_desc(e->dtype);
    char name[NAME_TEXT];
    uint64_t n;
    size_t count;
    if (!d->to_f32)
        return err_set(err, BERTH_EUNSUPPORTED, "'%s' is of type %s", name_text(e, name), d->name);
    if (!shape_count(&e->shape, &n) || !sz_from_u64(n, &count) ||
        !(*out = arena_array(tmp, count, sizeof **out)))
        return err_set(err, BERTH_ENOMEM, "'%s': %" PRIu64 " values", name_text(e, name), n);
    d->to_f32(weights_data(l->weights, e), *out, count);
    return BERTH_OK;
}

static berth_status load_alpha(const struct lora *l, const struct weights_entry *e, double *out,
                               berth_err *err)
{
    const struct dtype_desc *d = dtype_desc(e->dtype);
    char name[NAME_TEXT];
    uint8_t raw[8];
    uint64_t n;
    float f;
    if (!shape_count(&e->shape, &n) || n != 1 || e->size > sizeof raw || !d->to_f32)
        return err_set(err, BERTH_EFORMAT, "'%s' is no single number", name_text(e, name));
    if (weights_read(l->weights, e, 0, raw, (size_t)e->size, err))
        return err->code;
    d->to_f32(raw, &f, 1);
    *out = (double)f;
    return BERTH_OK;
}

/* n floats for terms; the halves of their rows trade places when `swap`. */
static berth_status swap_halves(float *p, uint64_t rows, uint64_t cols, bool swap, berth_err *err)
{
    if (!swap)
        return BERTH_OK;
    if (rows % 2)
        return err_set(err, BERTH_EFORMAT, "%" PRIu64 " rows have no halves to swap", rows);
    uint64_t n = rows / 2 * cols;
    for (uint64_t i = 0; i < n; i++) {
        float x = p[i];
        p[i] = p[n + i];
        p[n + i] = x;
    }
    return BERTH_OK;
}

/* down' of the comment above; *cols grows by the kernel. */
static berth_status fold_mid(const struct lora *l, const struct lora_target *t, uint64_t rank,
                             float **down, uint64_t *cols, struct arena *tmp, berth_err *err)
{
    const struct shape *s = &t->mid->shape;
    char name[NAME_TEXT];
    float *mid, *out;
    uint64_t kernel = s->ndim == 4 ? s->dim[2] * s->dim[3] : 0, in = *cols;
    size_t n, width;
    if (s->ndim != 4 || s->dim[0] != rank || s->dim[1] != rank)
        return err_set(err, BERTH_EFORMAT, "'%s' is no [%" PRIu64 ", %" PRIu64 ", kh, kw]",
                       name_text(t->mid, name), rank, rank);
    if (load(l, t->mid, tmp, &mid, err))
        return err->code;
    if (!sz_mul((size_t)in, (size_t)kernel, &width) || !sz_mul(width, (size_t)rank, &n) ||
        !(out = arena_array(tmp, n, sizeof *out)))
        return err_set(err, BERTH_ENOMEM, "'%s': %" PRIu64 " x %" PRIu64 " x %" PRIu64 " values",
                       name_text(t->mid, name), rank, in, kernel);
    for (uint64_t m = 0; m < rank; m++)
        for (uint64_t k = 0; k < rank; k++)
            for (uint64_t i = 0; i < in; i++)
                for (uint64_t x = 0; x < kernel; x++)
                    out[(m * in + i) * kernel + x] +=
                        mid[(m * rank + k) * kernel + x] * (*down)[k * in + i];
    *down = out;
    *cols = width;
    return BERTH_OK;
}

/* *p [rows, cols] -> [cols, rows], in new memory. */
static berth_status transpose(float **p, uint64_t rows, uint64_t cols, struct arena *tmp,
                              berth_err *err)
{
    float *out = arena_array(tmp, (size_t)(rows * cols), sizeof *out);
    if (!out)
        return err_set(err, BERTH_ENOMEM, "%" PRIu64 " x %" PRIu64 " values", rows, cols);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            out[c * rows + r] = (*p)[r * cols + c];
    *p = out;
    return BERTH_OK;
}

/* up . down -> its transpose, again as up . down. */
static berth_status transpose_pair(float **up, uint64_t rows, uint64_t rank, float **down,
                                   uint64_t cols, struct arena *tmp, berth_err *err)
{
    float *was = *up;
    if (transpose(&was, rows, rank, tmp, err) || transpose(down, rank, cols, tmp, err))
        return err->code;
    *up = *down;
    *down = was;
    return BERTH_OK;
}

static berth_status pair(const struct lora *l, const struct lora_target *t, const struct place *p,
                         float strength, struct arena *tmp, struct vec *out, berth_err *err)
{
    uint64_t rows, up_rank, rank, cols, kernel = 1;
    const uint64_t want_rows = t->of ? t->of : t->transpose ? p->cols : p->rows;
    const uint64_t want_cols = t->transpose ? p->rows : p->cols;
    float *up, *down;
    double alpha = 0;
    if (!matrix(t->up, &rows, &up_rank) || !matrix(t->down, &rank, &cols) || rank > RANK_MAX)
        return misfit(t->down, p, err);
    if (t->mid && t->mid->shape.ndim == 4)
        kernel =
            t->mid->shape.dim[2] * t->mid->shape.dim[3]; /* elements of a tensor: no overflow */
    if (rows != want_rows || up_rank != rank)
        return misfit(t->up, p, err);
    if (t->widens && cols > want_cols)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a control LoRA: it gives the picture's input %" PRIu64
                       " values a token where the model has %" PRIu64
                       ", which cannot be computed yet",
                       cols, want_cols);
    if (!kernel || cols > want_cols || want_cols % cols || want_cols / cols != kernel)
        return misfit(t->down, p, err);
    if (load(l, t->up, tmp, &up, err) || load(l, t->down, tmp, &down, err) ||
        (t->mid && fold_mid(l, t, rank, &down, &cols, tmp, err)) ||
        (t->alpha && load_alpha(l, t->alpha, &alpha, err)) ||
        swap_halves(up, rows, rank, t->swap, err) ||
        (t->transpose && transpose_pair(&up, rows, rank, &down, cols, tmp, err)))
        return err->code;
    up += t->from * rank;
    struct res_term *x = vec_add(out);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "%zu terms", out->n);
    *x = (struct res_term) { .kind = TERM_LOWRANK,
                             .row = p->row,
                             .rows = p->rows,
                             .cols = p->cols,
                             .rank = (uint32_t)rank,
                             .scale = (float)((double)strength *
                                              (t->alpha ? alpha / (double)rank : 1.0)),
                             .up = up,
                             .down = down };
    return BERTH_OK;
}

static berth_status dense(const struct lora *l, const struct lora_target *t, const struct place *p,
                          const struct shape *shape, float strength, struct arena *tmp,
                          struct vec *out, berth_err *err)
{
    struct shape want = *shape;
    float *values;
    if (want.ndim)
        want.dim[0] = t->of ? t->of : p->rows;
    if (t->transpose && want.ndim == 2) {
        want.dim[0] = p->cols;
        want.dim[1] = p->rows;
    }
    if (!shape_eq(&want, &t->dense->shape)) {
        char got[SHAPE_TEXT_MAX], wanted[SHAPE_TEXT_MAX];
        if (t->kind == LORA_SET)
            return misfit(t->dense, p, err);
        log_warn(l->log, "lora.shape", "shape=\"%s\" wanted=\"%s\" ignored=\"%s\"",
                 shape_text(&t->dense->shape, got), shape_text(&want, wanted), t->dense->name);
        return BERTH_OK;
    }
    if (load(l, t->dense, tmp, &values, err) ||
        swap_halves(values, p->rows, p->cols, t->swap, err) ||
        (t->transpose && transpose(&values, p->cols, p->rows, tmp, err)))
        return err->code;
    struct res_term *x = vec_add(out);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "%zu terms", out->n);
    *x = (struct res_term) { .kind = t->kind == LORA_SET ? TERM_SET : TERM_ADD,
                             .row = p->row,
                             .rows = p->rows,
                             .cols = p->cols,
                             .scale = strength,
                             .dense = values + t->from * p->cols };
    return BERTH_OK;
}

berth_status lora_terms(const struct res_adapter *a, const char *key, size_t n,
                        const struct shape *shape, float strength, struct arena *tmp,
                        struct vec *out, berth_err *err)
{
    const struct lora *l = (const struct lora *)(const void *)a;
    struct place all = { .weight = shape };
    uint64_t first;
    if (!merge_matrix(shape, &all.rows, &all.cols))
        return err_set(err, BERTH_EFORMAT, "'%.*s': its shape does not fit", (int)n, key);
    if (!map_get(&l->first, key, n, &first))
        return BERTH_OK;
    for (size_t i = (size_t)first + 1; i;) {
        const struct lora_target *t = vec_at(&l->target, i - 1);
        struct place p = all;
        if (t->rows) {
            p.row = t->row;
            p.rows = t->rows;
            if (p.rows > all.rows || p.row > all.rows - p.rows)
                return err_set(err, BERTH_EFORMAT,
                               "rows %" PRIu64 " + %" PRIu64 " of a weight with %" PRIu64, p.row,
                               p.rows, all.rows);
        }
        if (!p.rows || !p.cols)
            return BERTH_OK;
        if (t->of && (t->transpose || p.rows > t->of || t->from > t->of - p.rows))
            return err_set(err, BERTH_EFORMAT,
                           "a weight of %" PRIu64 " rows for those from %" PRIu64
                           " on of a change of %" PRIu64,
                           p.rows, t->from, t->of);
        if (t->kind == LORA_PAIR ? pair(l, t, &p, strength, tmp, out, err)
                                 : dense(l, t, &p, shape, strength, tmp, out, err))
            return err->code;
        i = t->next;
    }
    return weights_check(l->weights, err);
}
