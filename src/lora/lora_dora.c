/* lora_dora: DoRA, the sizes that a weight's rows or columns have after its change.
 *
 *   dora_scale [out, 1 ...]    a size for each row: row o of C = W + scale * delta becomes
 *                              C[o] * size[o] / |W[o]|, with the norm of W before the change
 *   dora_scale [1, in, 1 ...]  a size for each input: C[:, i] * size[i] / |C[:, i]|
 *
 * As in ComfyUI, the first dimension tells the two apart, and they use norms of different matrices.
 *
 *   lora_magnitude_vector      as PEFT saves it, [out] or [1, out, 1, 1]: row o of C becomes
 *                              C[o] * size[o] / |C[o]|, with the norm after the change
 *
 * The strength moves W that far from its old value to the new one. Sizes belong to the weight's own
 * rows, even where the halves of a change trade places. */
#include "lora/lora_impl.h"

static berth_status peft(const struct lora_job *j, struct res_term *out)
{
    const struct lora_target *t = j->t;
    float *size;
    uint64_t n;
    if (!shape_count(&t->dora->shape, &n) || n != j->want_rows)
        return lora_misfit(j, t->dora);
    if (lora_load(j, t->dora, &size))
        return j->err->code;
    out->dora = (struct res_dora) {
        .size = size + t->from, .columns = t->transpose, .kernel = 1, .strength = j->strength
    };
    return BERTH_OK;
}

berth_status lora_dora(const struct lora_job *j, struct res_term *out)
{
    const struct lora_target *t = j->t;
    const struct shape *s = &t->dora->shape, *w = j->weight;
    if (t->peft)
        return peft(j, out);
    char name[LORA_NAME_TEXT], text[SHAPE_TEXT_MAX];
    uint64_t n, in = t->transpose || w->ndim < 2 ? j->want_cols : w->dim[1];
    float *size;
    if (s->ndim < 2 || w->ndim < 2 || !in || !shape_count(s, &n))
        return lora_misfit(j, t->dora);
    bool by_row = s->dim[0] == j->want_rows;
    if (n != (by_row ? j->want_rows : in) || (!by_row && s->dim[1] != in))
        return lora_misfit(j, t->dora);
    if (t->of && !by_row)
        return err_set(j->err, BERTH_EUNSUPPORTED,
                       "'%s' %s has a size for every input of a weight that is several here, which "
                       "is not merged",
                       lora_name_text(t->dora, name), shape_text(s, text));
    if (lora_load(j, t->dora, &size))
        return j->err->code;
    out->dora = (struct res_dora) { .size = by_row ? size + t->from : size,
                                    .columns = by_row == t->transpose,
                                    .before = by_row,
                                    .kernel = t->transpose ? 1 : j->want_cols / in,
                                    .strength = j->strength };
    return BERTH_OK;
}
