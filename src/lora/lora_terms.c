/* lora_terms: what a file says about one tensor -> terms, checked against its shape.
 *
 *   pair   delta = up . down (lora_factors.c); scale = strength * (alpha / r, or 1 without alpha)
 *   loha   delta = (w1_a . w1_b) * (w2_a . w2_b), element by element; scale as of a pair, r of w1.
 *          With t1 and t2 each product is sum over i, j of w_a[i, out] t[i, j, kh, kw] w_b[j, in]
 *   lokr   lora_lokr.c; glora lora_glora.c; oft, boft lora_oft.c
 *          all of these with sizes of rows or columns where the file has them: lora_dora.c
 *   dense  a difference or a value for every element */
#include "lora/lora_impl.h"

#include <inttypes.h>

static berth_status pair(struct lora_job *j, struct res_term *out)
{
    const struct weights_entry *const *e = j->t->part;
    const struct lora_factors f = { e[PAIR_UP], e[PAIR_DOWN], e[PAIR_MID], false };
    out->kind = TERM_LOWRANK;
    return lora_product(j, &f, &out->rank, &out->up, &out->down) ||
                   lora_scale(j, out->rank, &j->scale)
               ? j->err->code
               : BERTH_OK;
}

static berth_status loha(struct lora_job *j, struct res_term *out)
{
    const struct weights_entry *const *e = j->t->part;
    const bool turned = e[HADA_T1] != NULL; /* with kernels, w_a is [r, out] */
    const struct lora_factors one = { e[HADA_W1_A], e[HADA_W1_B], e[HADA_T1], turned };
    const struct lora_factors two = { e[HADA_W2_A], e[HADA_W2_B], e[HADA_T2], turned };
    out->kind = TERM_HADAMARD;
    return lora_product(j, &one, &out->rank, &out->up, &out->down) ||
                   lora_product(j, &two, &out->rank2, &out->up2, &out->down2) ||
                   lora_scale(j, out->rank, &j->scale)
               ? j->err->code
               : BERTH_OK;
}

/* A change that is made of factors. */
static berth_status make_product(struct lora_job *j, struct res_term *out)
{
    static berth_status (*const make[])(struct lora_job *,
                                        struct res_term *) = { [LORA_PAIR] = pair,
                                                               [LORA_LOHA] = loha,
                                                               [LORA_LOKR] = lora_lokr,
                                                               [LORA_GLORA] = lora_glora,
                                                               [LORA_OFT] = lora_oft };
    if (make[j->t->kind](j, out) || (j->t->dora && lora_dora(j, out)))
        return j->err->code;
    out->scale = (float)(j->t->dora ? j->scale : (double)j->strength * j->scale);
    return BERTH_OK;
}

/* A difference or a value for every element. *out stays of no rows where it is ignored. */
static berth_status make_dense(struct lora_job *j, struct res_term *out)
{
    const struct lora_target *t = j->t;
    struct shape want = *j->weight;
    float *values;
    if (want.ndim)
        want.dim[0] = t->of ? t->of : j->rows;
    if (t->transpose && want.ndim == 2) {
        want.dim[0] = j->cols;
        want.dim[1] = j->rows;
    }
    if (!shape_eq(&want, &t->dense->shape)) {
        char got[SHAPE_TEXT_MAX], wanted[SHAPE_TEXT_MAX];
        if (t->kind == LORA_SET)
            return lora_misfit(j, t->dense);
        log_warn(j->l->log, "lora.shape", "shape=\"%s\" wanted=\"%s\" ignored=\"%s\"",
                 shape_text(&t->dense->shape, got), shape_text(&want, wanted), t->dense->name);
        out->rows = 0;
        return BERTH_OK;
    }
    if (lora_load(j, t->dense, &values) || lora_swap_halves(j, values, j->rows, j->cols) ||
        (t->transpose && lora_transpose(j, &values, j->cols, j->rows)))
        return j->err->code;
    out->kind = t->kind == LORA_SET ? TERM_SET : TERM_ADD;
    out->scale = j->strength;
    out->dense = values + t->from * j->cols;
    return BERTH_OK;
}

berth_status lora_terms(const struct res_adapter *a, const char *key, size_t n,
                        const struct shape *shape, float strength, struct arena *tmp,
                        struct vec *out, berth_err *err)
{
    const struct lora *l = (const struct lora *)(const void *)a;
    uint64_t rows, cols, first;
    if (!merge_matrix(shape, &rows, &cols))
        return err_set(err, BERTH_EFORMAT, "'%.*s': its shape does not fit", (int)n, key);
    if (!map_get(&l->first, key, n, &first))
        return BERTH_OK;
    for (size_t i = (size_t)first + 1; i;) {
        const struct lora_target *t = vec_at(&l->target, i - 1);
        struct lora_job j = { .l = l,
                              .t = t,
                              .weight = shape,
                              .row = t->rows ? t->row : 0,
                              .rows = t->rows ? t->rows : rows,
                              .cols = cols,
                              .strength = strength,
                              .tmp = tmp,
                              .err = err };
        if (j.rows > rows || j.row > rows - j.rows)
            return err_set(err, BERTH_EFORMAT,
                           "rows %" PRIu64 " + %" PRIu64 " of a weight with %" PRIu64, j.row,
                           j.rows, rows);
        if (!j.rows || !cols)
            return BERTH_OK;
        if (t->of && (t->transpose || j.rows > t->of || t->from > t->of - j.rows))
            return err_set(err, BERTH_EFORMAT,
                           "a weight of %" PRIu64 " rows for those from %" PRIu64
                           " on of a change of %" PRIu64,
                           j.rows, t->from, t->of);
        j.want_rows = t->of ? t->of : t->transpose ? cols : j.rows;
        j.want_cols = t->transpose ? j.rows : cols;
        struct res_term x = { .row = j.row, .rows = j.rows, .cols = cols };
        if (t->dense ? make_dense(&j, &x) : make_product(&j, &x))
            return err->code;
        if (x.rows && !vec_push(out, &x))
            return err_set(err, BERTH_ENOMEM, "%zu terms", out->n);
        i = t->next;
    }
    return weights_check(l->weights, err);
}
