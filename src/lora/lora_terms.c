/* lora_terms: what a file says about one tensor -> terms, checked against its shape.
 *
 *   pair   delta = up . down (lora_factors.c); scale = strength * (alpha / r, or 1 without alpha)
 *   loha   delta = (w1_a . w1_b) * (w2_a . w2_b), element by element; scale as of a pair, r of w1.
 *          With t1 and t2 each product is sum over i, j of w_a[i, out] t[i, j, kh, kw] w_b[j, in]
 *   lokr   lora_lokr.c
 *          all of these with sizes of rows or columns where the file has them: lora_dora.c
 *   dense  a difference or a value for every element */
#include "lora/lora_impl.h"

#include <inttypes.h>

static berth_status pair(const struct lora *l, const struct lora_target *t,
                         const struct lora_place *p, struct arena *tmp, struct res_term *out,
                         double *scale, berth_err *err)
{
    const struct lora_factors f = { .up = t->up, .down = t->down, .mid = t->mid };
    struct lora_product x;
    if (lora_product(l, t, &f, p, tmp, &x, err) || lora_scale(l, t->alpha, x.rank, scale, err))
        return err->code;
    out->kind = TERM_LOWRANK;
    out->rank = x.rank;
    out->up = x.up;
    out->down = x.down;
    return BERTH_OK;
}

static berth_status loha(const struct lora *l, const struct lora_target *t,
                         const struct lora_place *p, struct arena *tmp, struct res_term *out,
                         double *scale, berth_err *err)
{
    const struct weights_entry *const *e = t->part;
    const bool turned = e[HADA_T1] != NULL; /* with kernels, w_a is [r, out] */
    const struct lora_factors one = { e[HADA_W1_A], e[HADA_W1_B], e[HADA_T1], turned };
    const struct lora_factors two = { e[HADA_W2_A], e[HADA_W2_B], e[HADA_T2], turned };
    struct lora_product x, y;
    if (lora_product(l, t, &one, p, tmp, &x, err) || lora_product(l, t, &two, p, tmp, &y, err) ||
        lora_scale(l, t->alpha, x.rank, scale, err))
        return err->code;
    out->kind = TERM_HADAMARD;
    out->rank = x.rank;
    out->up = x.up;
    out->down = x.down;
    out->rank2 = y.rank;
    out->up2 = y.up;
    out->down2 = y.down;
    return BERTH_OK;
}

static berth_status add_term(struct vec *out, const struct res_term *x, berth_err *err)
{
    return vec_push(out, x) ? BERTH_OK : err_set(err, BERTH_ENOMEM, "%zu terms", out->n);
}

/* A change that is made of factors. */
static berth_status add_product(const struct lora *l, const struct lora_target *t,
                                const struct lora_place *p, float strength, struct arena *tmp,
                                struct vec *out, berth_err *err)
{
    struct res_term x = { .row = p->row, .rows = p->rows, .cols = p->cols };
    double scale;
    if (t->kind == LORA_PAIR   ? pair(l, t, p, tmp, &x, &scale, err)
        : t->kind == LORA_LOHA ? loha(l, t, p, tmp, &x, &scale, err)
        : t->kind == LORA_OFT  ? lora_oft(l, t, p, strength, tmp, &x, &scale, err)
                               : lora_lokr(l, t, p, tmp, &x, &scale, err))
        return err->code;
    if (t->dora && lora_dora(l, t, p, strength, tmp, &x, err))
        return err->code;
    x.scale = (float)(t->dora ? scale : (double)strength * scale);
    return add_term(out, &x, err);
}

static berth_status add_dense(const struct lora *l, const struct lora_target *t,
                              const struct lora_place *p, const struct shape *shape, float strength,
                              struct arena *tmp, struct vec *out, berth_err *err)
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
            return lora_misfit(t->dense, p, err);
        log_warn(l->log, "lora.shape", "shape=\"%s\" wanted=\"%s\" ignored=\"%s\"",
                 shape_text(&t->dense->shape, got), shape_text(&want, wanted), t->dense->name);
        return BERTH_OK;
    }
    if (lora_load(l, t->dense, tmp, &values, err) ||
        lora_swap_halves(values, p->rows, p->cols, t->swap, err) ||
        (t->transpose && lora_transpose(&values, p->cols, p->rows, tmp, err)))
        return err->code;
    return add_term(out,
                    &(struct res_term) { .kind = t->kind == LORA_SET ? TERM_SET : TERM_ADD,
                                         .row = p->row,
                                         .rows = p->rows,
                                         .cols = p->cols,
                                         .scale = strength,
                                         .dense = values + t->from * p->cols },
                    err);
}

berth_status lora_terms(const struct res_adapter *a, const char *key, size_t n,
                        const struct shape *shape, float strength, struct arena *tmp,
                        struct vec *out, berth_err *err)
{
    const struct lora *l = (const struct lora *)(const void *)a;
    struct lora_place all = { .weight = shape };
    uint64_t first;
    if (!merge_matrix(shape, &all.rows, &all.cols))
        return err_set(err, BERTH_EFORMAT, "'%.*s': its shape does not fit", (int)n, key);
    if (!map_get(&l->first, key, n, &first))
        return BERTH_OK;
    for (size_t i = (size_t)first + 1; i;) {
        const struct lora_target *t = vec_at(&l->target, i - 1);
        struct lora_place p = all;
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
        if (t->dense ? add_dense(l, t, &p, shape, strength, tmp, out, err)
                     : add_product(l, t, &p, strength, tmp, out, err))
            return err->code;
        i = t->next;
    }
    return weights_check(l->weights, err);
}
