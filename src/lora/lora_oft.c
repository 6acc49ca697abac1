/* lora_oft: OFT and BOFT, rows of a weight turned against each other, block by block.
 *
 *   oft_blocks [k, n, n], k * n = rows;  Q = blocks - blocks^T, shortened to the length alpha where
 *   that is above 0 and all blocks together are longer
 *   R = (I + Q)(I - Q)^-1, which is orthogonal;  delta of block b = (R - I)^T W of its rows
 *
 * (R - I)^T = 2 ((I + Q)^-1 - I), so one inverse is all there is to compute. I + Q has no pivot
 * below 1, whatever Q is: nothing has to be exchanged, and halves are inverted one after the
 * other.
 *
 * As in ComfyUI's merge, the strength counts twice and `rescale` not at all.
 *
 * BOFT: oft_blocks [m, k, n, n], m stages one after the other, each of k blocks over rows in
 * another order (TERM_BUTTERFLY of merge/adapter.h): a block's rows become
 * (I + strength * (R - I)) W; then rows times `rescale`, where it is there. The strength counts
 * once more for all of it. A file without alpha is not shortened; ComfyUI leaves such a weight
 * alone, with an error. */
#include "lora/lora_impl.h"

#include "op/op.h"

#include <inttypes.h>
#include <math.h>
#include <string.h>

enum { SMALL = 64, BLOCK_MOST = 4096 };

/* a [n, n] in place, rows ld apart: in double, by elimination. */
static void invert_small(float *a, size_t n, size_t ld)
{
    double m[SMALL][SMALL];
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            m[i][j] = (double)a[i * ld + j];
    for (size_t p = 0; p < n; p++) {
        double by = 1 / m[p][p];
        m[p][p] = 1;
        for (size_t j = 0; j < n; j++)
            m[p][j] *= by;
        for (size_t i = 0; i < n; i++) {
            double f = m[i][p];
            if (i == p)
                continue;
            m[i][p] = 0;
            for (size_t j = 0; j < n; j++)
                m[i][j] -= f * m[p][j];
        }
    }
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < n; j++)
            a[i * ld + j] = (float)m[i][j];
}

struct matrix {
    float *at;
    size_t ld;
};

/* w = (set: 0, else w) + scale * a [rows, inner] . b [inner, cols] */
static void multiply(struct matrix w, struct matrix a, struct matrix b, size_t rows, size_t inner,
                     size_t cols, float scale, bool set)
{
    for (size_t i = 0; set && i < rows; i++)
        memset(w.at + i * w.ld, 0, cols * sizeof *w.at);
    op_lowrank_tile(&(struct op_lowrank) { .w = w.at,
                                           .rows = rows,
                                           .cols = cols,
                                           .ld_w = w.ld,
                                           .up = a.at,
                                           .down = b.at,
                                           .rank = inner,
                                           .ld_up = a.ld,
                                           .ld_down = b.ld,
                                           .scale = scale });
}

/* The same of any size by way of its quarters: A, then D - C A^-1 B. tmp: n * n floats. */
static void invert(struct matrix m, size_t n, float *tmp)
{
    if (n <= SMALL) {
        invert_small(m.at, n, m.ld);
        return;
    }
    const size_t p = n / 2, q = n - p;
    struct matrix a = m, b = { m.at + p, m.ld }, c = { m.at + p * m.ld, m.ld },
                  d = { m.at + p * m.ld + p, m.ld }, x = { tmp, q }, y = { tmp + p * q, p };
    float *rest = tmp + 2 * p * q;
    invert(a, p, rest);
    multiply(x, a, b, p, p, q, 1, true);
    multiply(y, c, a, q, p, p, 1, true);
    multiply(d, c, x, q, p, q, -1, false);
    invert(d, q, rest);
    multiply(b, x, d, p, q, q, -1, true);
    multiply(c, d, y, q, q, p, -1, true);
    multiply(a, b, y, p, q, p, -1, false);
}

/* The factor that makes Q no longer than `most`. */
static double shortening(const float *q, size_t count, double most)
{
    double sum = 0;
    for (size_t i = 0; i < count; i++)
        sum += (double)q[i] * (double)q[i];
    double length = sqrt(sum) + 1e-8;
    return most > 0 && length > most ? most / length : 1;
}

static void skew(float *block, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        block[i * n + i] -= block[i * n + i]; /* 0, and NaN where it is none */
        for (size_t j = 0; j < i; j++) {
            float v = block[i * n + j] - block[j * n + i];
            block[i * n + j] = v;
            block[j * n + i] = -v;
        }
    }
}

/* Q -> 2 ((I + by * Q)^-1 - I) */
static void rotate(float *block, size_t n, double by, float *tmp)
{
    for (size_t i = 0; i < n * n; i++)
        block[i] = (float)(by * (double)block[i]);
    for (size_t i = 0; i < n; i++)
        block[i * n + i] += 1;
    invert((struct matrix) { block, n }, n, tmp);
    for (size_t i = 0; i < n; i++)
        block[i * n + i] -= 1;
    for (size_t i = 0; i < n * n; i++)
        block[i] *= 2;
}

/* (R - I)^T -> I + strength * (R - I) */
static void soften(float *block, size_t n, double strength)
{
    for (size_t i = 0; i < n; i++)
        for (size_t j = 0; j < i; j++) {
            float v = block[i * n + j];
            block[i * n + j] = block[j * n + i];
            block[j * n + i] = v;
        }
    for (size_t i = 0; i < n * n; i++)
        block[i] = (float)(strength * (double)block[i]);
    for (size_t i = 0; i < n; i++)
        block[i * n + i] += 1;
}

static berth_status unsupported(const struct lora_job *j, const char *why)
{
    const struct weights_entry *e = j->t->part[OFT_BLOCKS];
    char name[LORA_NAME_TEXT], text[SHAPE_TEXT_MAX];
    return err_set(j->err, BERTH_EUNSUPPORTED, "'%s' %s: %s", lora_name_text(e, name),
                   shape_text(&e->shape, text), why);
}

/* Do the blocks fit the rows, and those the model keeps of them? */
static berth_status check(const struct lora_job *j)
{
    const struct lora_target *t = j->t;
    const struct weights_entry *e = t->part[OFT_BLOCKS];
    const bool boft = e->shape.ndim == 4;
    const uint64_t *d = e->shape.dim + boft, rows = j->want_rows;
    if ((!boft && e->shape.ndim != 3) || !d[1] || d[1] != d[2] || rows % d[1] ||
        rows / d[1] != d[0])
        return lora_misfit(j, e);
    if (d[1] > BLOCK_MOST)
        return unsupported(j, "blocks of more than 4096 are not merged");
    if (j->weight->ndim && j->weight->dim[0] > RES_MIX_ROWS)
        return unsupported(j, "OFT of a weight of more than 32768 rows is not merged");
    if (t->transpose || t->swap || t->from % d[1] || j->rows % d[1] || (boft && t->of))
        return unsupported(j, "OFT of rows that the model keeps otherwise is not merged");
    /* The last stage exchanges rows (d / 2) << (stages - 1) apart. */
    const uint64_t stages = boft ? e->shape.dim[0] : 0;
    return !boft || (stages && stages < 32 && d[1] > 1 && rows % (d[1] / 2 << stages) == 0)
               ? BERTH_OK
               : lora_misfit(j, e);
}

/* Of BOFT: what rows are multiplied by at the end; NULL: nothing. */
static berth_status load_rescale(const struct lora_job *j, const float **out)
{
    const struct weights_entry *e = j->t->part[OFT_RESCALE];
    float *by = NULL;
    uint64_t n;
    if (e && (!shape_count(&e->shape, &n) || n != j->want_rows || e->shape.dim[0] != n))
        return lora_misfit(j, e);
    if (e && lora_load(j, e, &by))
        return j->err->code;
    *out = by;
    return BERTH_OK;
}

berth_status lora_oft(struct lora_job *j, struct res_term *out)
{
    const struct lora_target *t = j->t;
    const struct weights_entry *e = t->part[OFT_BLOCKS];
    double most = 0;
    float *blocks, *work;
    if (check(j) || lora_load(j, e, &blocks) || (t->alpha && lora_scale(j, 1, &most)))
        return j->err->code;
    const bool boft = e->shape.ndim == 4;
    const size_t n = (size_t)e->shape.dim[1 + boft],
                 count = (size_t)(e->shape.dim[0] * (boft ? e->shape.dim[1] : 1));
    if (!(work = arena_array(j->tmp, n * n, sizeof *work)))
        return err_set(j->err, BERTH_ENOMEM, "a block of %zu", n);
    for (size_t i = 0; i < count; i++)
        skew(blocks + i * n * n, n);
    const double by = shortening(blocks, count * n * n, most);
    for (size_t i = 0; i < count; i++)
        rotate(blocks + i * n * n, n, by, work);
    out->kind = boft ? TERM_BUTTERFLY : TERM_MIX;
    out->rank = (uint32_t)n;
    out->up = blocks + t->from * n;
    if (boft) {
        for (size_t i = 0; i < count; i++)
            soften(blocks + i * n * n, n, (double)j->strength);
        out->rank2 = (uint32_t)e->shape.dim[0];
        j->scale = t->dora ? most : 1;
        return load_rescale(j, &out->down);
    }
    j->scale = t->dora ? most * (double)j->strength : (double)j->strength;
    return BERTH_OK;
}
