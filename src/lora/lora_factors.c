/* lora_factors: tensors of the file as F32, and two of them, or three, as one product.
 *
 *   up [out, r (,1,1)] (turned: [r, out]), down [r, in (,kh,kw)], mid [r, r, kh, kw]; W seen as
 *   [rows, cols]
 *   with mid, down becomes down'[m, i, h, w] = sum over n of mid[m, n, h, w] * down[n, i]
 *   a weight kept the other way round: (up . down)^T = down^T . up^T */
#include "lora/lora_impl.h"

#include "base/sz.h"

#include <inttypes.h>
#include <string.h>

#define RANK_MAX 65536u /* far beyond any in use, small enough that products of two fit anything */

const char *lora_name_text(const struct weights_entry *e, char buf[LORA_NAME_TEXT])
{
    size_t n = e->name_len, head = 48, tail = n - 72;
    if (n < LORA_NAME_TEXT)
        return e->name;
    while (((unsigned char)e->name[head] & 0xc0) == 0x80)
        head--;
    while (((unsigned char)e->name[tail] & 0xc0) == 0x80)
        tail++;
    snprintf(buf, LORA_NAME_TEXT, "%.*s...%s", (int)head, e->name, e->name + tail);
    return buf;
}

berth_status lora_misfit(const struct lora_job *j, const struct weights_entry *e)
{
    char name[LORA_NAME_TEXT], text[SHAPE_TEXT_MAX], weight[SHAPE_TEXT_MAX], rows[64] = "";
    if (j->weight->ndim && j->rows != j->weight->dim[0])
        snprintf(rows, sizeof rows, "rows %" PRIu64 " to %" PRIu64 " of ", j->row,
                 j->row + j->rows - 1);
    return err_set(j->err, BERTH_EFORMAT, "'%s' %s does not fit %sa weight of shape %s",
                   lora_name_text(e, name), shape_text(&e->shape, text), rows,
                   shape_text(j->weight, weight));
}

bool lora_matrix(const struct weights_entry *e, uint64_t *rows, uint64_t *cols)
{
    return merge_matrix(&e->shape, rows, cols) && *rows && *cols;
}

berth_status lora_load(const struct lora_job *j, const struct weights_entry *e, float **out)
{
    const struct dtype_desc *d = dtype_desc(e->dtype);
    char name[LORA_NAME_TEXT];
    uint64_t n;
    size_t count;
    if (!d->to_f32)
        return err_set(j->err, BERTH_EUNSUPPORTED, "'%s' is of type %s", lora_name_text(e, name),
                       d->name);
    if (!shape_count(&e->shape, &n) || !sz_from_u64(n, &count) ||
        !(*out = arena_array(j->tmp, count, sizeof **out)))
        return err_set(j->err, BERTH_ENOMEM, "'%s': %" PRIu64 " values", lora_name_text(e, name),
                       n);
    d->to_f32(weights_data(j->l->weights, e), *out, count);
    return BERTH_OK;
}

berth_status lora_scale(const struct lora_job *j, uint64_t rank, double *out)
{
    const struct weights_entry *alpha = j->t->alpha;
    char name[LORA_NAME_TEXT];
    uint8_t raw[8];
    uint64_t n;
    float f;
    *out = 1;
    if (!alpha)
        return BERTH_OK;
    const struct dtype_desc *d = dtype_desc(alpha->dtype);
    if (!shape_count(&alpha->shape, &n) || n != 1 || alpha->size > sizeof raw || !d->to_f32)
        return err_set(j->err, BERTH_EFORMAT, "'%s' is no single number",
                       lora_name_text(alpha, name));
    if (weights_read(j->l->weights, alpha, 0, raw, (size_t)alpha->size, j->err))
        return j->err->code;
    d->to_f32(raw, &f, 1);
    *out = (double)f / (double)rank;
    return BERTH_OK;
}

berth_status lora_swap_halves(const struct lora_job *j, float *p, uint64_t rows, uint64_t cols)
{
    if (!j->t->swap)
        return BERTH_OK;
    if (rows % 2)
        return err_set(j->err, BERTH_EFORMAT, "%" PRIu64 " rows have no halves to swap", rows);
    uint64_t n = rows / 2 * cols;
    for (uint64_t i = 0; i < n; i++) {
        float x = p[i];
        p[i] = p[n + i];
        p[n + i] = x;
    }
    return BERTH_OK;
}

/* down' of the comment above. */
static berth_status fold_mid(const struct lora_job *j, const struct weights_entry *mid,
                             const struct lora_sizes *of, float **down)
{
    const struct shape *s = &mid->shape;
    const uint64_t rank = of->rank, in = of->cols, kernel = of->kernel;
    char name[LORA_NAME_TEXT];
    float *m, *out;
    size_t n, width;
    if (s->ndim != 4 || s->dim[0] != rank || s->dim[1] != rank)
        return err_set(j->err, BERTH_EFORMAT, "'%s' is no [%" PRIu64 ", %" PRIu64 ", kh, kw]",
                       lora_name_text(mid, name), rank, rank);
    if (lora_load(j, mid, &m))
        return j->err->code;
    if (!sz_mul((size_t)in, (size_t)kernel, &width) || !sz_mul(width, (size_t)rank, &n) ||
        !(out = arena_array(j->tmp, n, sizeof *out)))
        return err_set(j->err, BERTH_ENOMEM, "'%s': %" PRIu64 " x %" PRIu64 " x %" PRIu64 " values",
                       lora_name_text(mid, name), rank, in, kernel);
    for (uint64_t i = 0; i < rank; i++)
        for (uint64_t k = 0; k < rank; k++)
            for (uint64_t c = 0; c < in; c++)
                for (uint64_t x = 0; x < kernel; x++)
                    out[(i * in + c) * kernel + x] +=
                        m[(i * rank + k) * kernel + x] * (*down)[k * in + c];
    *down = out;
    return BERTH_OK;
}

berth_status lora_transpose(const struct lora_job *j, float **p, uint64_t rows, uint64_t cols)
{
    float *out = arena_array(j->tmp, (size_t)(rows * cols), sizeof *out);
    if (!out)
        return err_set(j->err, BERTH_ENOMEM, "%" PRIu64 " x %" PRIu64 " values", rows, cols);
    for (uint64_t r = 0; r < rows; r++)
        for (uint64_t c = 0; c < cols; c++)
            out[c * rows + r] = (*p)[r * cols + c];
    *p = out;
    return BERTH_OK;
}

/* up [rows, rank] . down [rank, cols] -> its transpose, again as up . down. */
static berth_status transpose_pair(const struct lora_job *j, uint64_t rank, float **up,
                                   float **down)
{
    float *was = *up;
    if (lora_transpose(j, &was, j->want_rows, rank) || lora_transpose(j, down, rank, j->want_cols))
        return j->err->code;
    *up = *down;
    *down = was;
    return BERTH_OK;
}

bool lora_sizes(const struct lora_factors *f, struct lora_sizes *out)
{
    const struct shape *mid = f->mid ? &f->mid->shape : NULL;
    uint64_t *rows = f->turned ? &out->up_rank : &out->rows;
    uint64_t *ranks = f->turned ? &out->rows : &out->up_rank;
    out->kernel = 1;
    if (mid && mid->ndim == 4)
        out->kernel = mid->dim[2] * mid->dim[3]; /* elements of a tensor: no overflow */
    return lora_matrix(f->up, rows, ranks) && lora_matrix(f->down, &out->rank, &out->cols) &&
           out->rank <= RANK_MAX;
}

berth_status lora_load_factors(const struct lora_job *j, const struct lora_factors *f,
                               const struct lora_sizes *n, float **up, float **down)
{
    return lora_load(j, f->up, up) || lora_load(j, f->down, down) ||
                   (f->mid && fold_mid(j, f->mid, n, down)) ||
                   (f->turned && lora_transpose(j, up, n->rank, n->rows))
               ? j->err->code
               : BERTH_OK;
}

berth_status lora_product(const struct lora_job *j, const struct lora_factors *f, uint32_t *rank,
                          const float **up_out, const float **down_out)
{
    const struct lora_target *t = j->t;
    const uint64_t cols = j->want_cols;
    struct lora_sizes n;
    float *up, *down;
    if (!lora_sizes(f, &n))
        return lora_misfit(j, f->down);
    if (n.rows != j->want_rows || n.up_rank != n.rank)
        return lora_misfit(j, f->up);
    if (t->widens && n.cols > cols)
        return err_set(j->err, BERTH_EUNSUPPORTED,
                       "a control LoRA: it gives the picture's input %" PRIu64
                       " values a token where the model has %" PRIu64
                       ": only nodes that load adapters into a model can widen it",
                       n.cols, cols);
    if (!n.kernel || n.cols > cols || cols % n.cols || cols / n.cols != n.kernel)
        return lora_misfit(j, f->down);
    if (lora_load_factors(j, f, &n, &up, &down) || lora_swap_halves(j, up, j->want_rows, n.rank) ||
        (t->transpose && transpose_pair(j, n.rank, &up, &down)))
        return j->err->code;
    *rank = (uint32_t)n.rank;
    *up_out = up + t->from * n.rank;
    *down_out = down;
    return BERTH_OK;
}
