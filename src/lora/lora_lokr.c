/* lora_lokr: LoKr, a change that is the Kronecker product of two matrices.
 *
 *   w1 [a, b], or w1_a [a, r] . w1_b [r, b]
 *   w2 [c, d (,kh,kw)], or w2_a [c, r] . w2_b [r, d (*kh*kw)], or, with t2 [r, r, kh, kw],
 *                       sum over i, j of w2_a[i, c] t2[i, j, kh, kw] w2_b[j, d]
 *   delta[i1*c + i2, (j1*d + j2), kh, kw] = w1[i1, j1] * w2[i2, j2, kh, kw]
 *
 * W seen as [rows, cols] needs no special care: a column of w2 is j2 and its place in the kernel.
 * The scale is alpha / r where one of the two is a product (r of w2 if both are), else 1. */
#include "lora/lora_impl.h"

#include "base/sz.h"
#include "op/op.h"

#include <inttypes.h>

struct side { /* w1 or w2; one of `whole` and `f` is there */
    const struct weights_entry *whole;
    struct lora_factors f;
    struct lora_sizes of; /* of f */
    uint64_t rows, cols;
    float *at;
};

/* Sizes, before anything is loaded. */
static berth_status measure(const struct lora_job *j, struct side *s)
{
    char up[LORA_NAME_TEXT], text[2][SHAPE_TEXT_MAX];
    size_t cols;
    if (s->whole) {
        const struct shape *is = &s->whole->shape;
        bool known = is->ndim == 2 || is->ndim == 4;
        return known && lora_matrix(s->whole, &s->rows, &s->cols) ? BERTH_OK
                                                                  : lora_misfit(j, s->whole);
    }
    if (!lora_sizes(&s->f, &s->of) || !sz_mul((size_t)s->of.cols, (size_t)s->of.kernel, &cols))
        return lora_misfit(j, s->f.down);
    if (s->of.up_rank != s->of.rank)
        return err_set(j->err, BERTH_EFORMAT, "'%s' %s cannot be multiplied with the %s beside it",
                       lora_name_text(s->f.up, up), shape_text(&s->f.up->shape, text[0]),
                       shape_text(&s->f.down->shape, text[1]));
    s->rows = s->of.rows;
    s->cols = cols;
    return s->cols ? BERTH_OK : lora_misfit(j, s->f.mid);
}

static berth_status load_side(const struct lora_job *j, struct side *s)
{
    float *up, *down;
    if (s->whole)
        return lora_load(j, s->whole, &s->at);
    if (lora_load_factors(j, &s->f, &s->of, &up, &down))
        return j->err->code;
    if (!(s->at = arena_array(j->tmp, (size_t)(s->rows * s->cols), sizeof *s->at)))
        return err_set(j->err, BERTH_ENOMEM, "%" PRIu64 " x %" PRIu64 " values", s->rows, s->cols);
    size_t rank = (size_t)s->of.rank, cols = (size_t)s->cols;
    op_lowrank_tile(&(struct op_lowrank) { .w = s->at,
                                           .rows = (size_t)s->rows,
                                           .cols = cols,
                                           .ld_w = cols,
                                           .up = up,
                                           .down = down,
                                           .rank = rank,
                                           .ld_up = rank,
                                           .ld_down = cols,
                                           .scale = 1 });
    return BERTH_OK;
}

static berth_status transpose_side(const struct lora_job *j, struct side *s)
{
    uint64_t rows = s->rows;
    if (lora_transpose(j, &s->at, s->rows, s->cols))
        return j->err->code;
    s->rows = s->cols;
    s->cols = rows;
    return BERTH_OK;
}

/* a * b == product, none of which may be 0 */
static bool multiplies_to(uint64_t a, uint64_t b, uint64_t product)
{
    return product % a == 0 && product / a == b;
}

berth_status lora_lokr(struct lora_job *j, struct res_term *out)
{
    const struct lora_target *t = j->t;
    const struct weights_entry *const *e = t->part;
    struct side one = { .whole = e[LOKR_W1], .f = { .up = e[LOKR_W1_A], .down = e[LOKR_W1_B] } };
    struct side two = { .whole = e[LOKR_W2],
                        .f = { .up = e[LOKR_W2_A],
                               .down = e[LOKR_W2_B],
                               .mid = e[LOKR_T2],
                               .turned = e[LOKR_T2] != NULL } };
    const uint64_t rows = j->want_rows;
    char name[LORA_NAME_TEXT], weight[SHAPE_TEXT_MAX];
    if (measure(j, &one) || measure(j, &two))
        return j->err->code;
    if (!multiplies_to(one.rows, two.rows, rows) ||
        !multiplies_to(one.cols, two.cols, j->want_cols))
        return err_set(j->err, BERTH_EFORMAT,
                       "'%s': %" PRIu64 " x %" PRIu64 " times %" PRIu64 " x %" PRIu64
                       " does not make %" PRIu64 " rows of a weight of shape %s",
                       lora_name_text(one.whole ? one.whole : one.f.up, name), one.rows, one.cols,
                       two.rows, two.cols, rows, shape_text(j->weight, weight));
    if (t->swap && rows % 2)
        return err_set(j->err, BERTH_EFORMAT, "%" PRIu64 " rows have no halves to swap", rows);
    const uint64_t rank = !two.whole ? two.of.rank : !one.whole ? one.of.rank : 0;
    j->scale = 1;
    if (load_side(j, &one) || load_side(j, &two) || (rank && lora_scale(j, rank, &j->scale)) ||
        (t->transpose && (transpose_side(j, &one) || transpose_side(j, &two))))
        return j->err->code;
    out->kind = TERM_KRON;
    out->up = one.at;
    out->down = two.at;
    out->left_rows = one.rows;
    out->left_cols = one.cols;
    out->right_rows = two.rows;
    out->right_cols = two.cols;
    out->from = t->from + (t->swap ? rows / 2 : 0);
    return BERTH_OK;
}
