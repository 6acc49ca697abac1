/* lora_dora: DoRA, sizes of rows or columns that a weight has after its change.
 *
 *   dora_scale [out, 1 ...]  a size for each row: of C = W + scale * delta, row o becomes
 *                            C[o] * size[o] / |W[o]|, with the norm of W as it was before
 *   dora_scale [1, in, 1 ...]  a size for each input: C[:, i] * size[i] / |C[:, i]|
 *
 * Which of the two ComfyUI tells by the first dimension, and so do we; that the norms are of two
 * different matrices is ComfyUI's, too. The strength is how far W goes from what it was to that. The
 * sizes are of the weight's own rows, also where a change's halves trade places. */
#include "lora/lora_impl.h"

#include "base/sz.h"

berth_status lora_dora(const struct lora *l, const struct lora_target *t,
                       const struct lora_place *p, float strength, struct arena *tmp,
                       struct res_term *out, berth_err *err)
{
    const struct shape *s = &t->dora->shape, *w = p->weight;
    const uint64_t rows = lora_want_rows(t, p), cols = lora_want_cols(t, p);
    char name[LORA_NAME_TEXT], text[SHAPE_TEXT_MAX];
    uint64_t n, in = t->transpose || w->ndim < 2 ? cols : w->dim[1];
    float *size;
    if (s->ndim < 2 || w->ndim < 2 || !in || !shape_count(s, &n))
        return lora_misfit(t->dora, p, err);
    bool by_row = s->dim[0] == rows;
    if (n != (by_row ? rows : in) || (!by_row && s->dim[1] != in))
        return lora_misfit(t->dora, p, err);
    if (t->of && !by_row)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%s' %s has a size for every input of a weight that is several here, which "
                       "is not merged",
                       lora_name_text(t->dora, name), shape_text(s, text));
    if (lora_load(l, t->dora, tmp, &size, err))
        return err->code;
    out->dora = (struct res_dora) { .size = by_row ? size + t->from : size,
                                    .columns = by_row == t->transpose,
                                    .before = by_row,
                                    .kernel = t->transpose ? 1 : cols / in,
                                    .strength = strength };
    return BERTH_OK;
}
