/* lora_glora: GLoRA, a change of a weight's inputs and a product beside it.
 *
 *   new  delta = W . a1 [in, r] . a2 [r, in] + b1 [out, r] . b2 [r, in (*kh*kw)]; of a convolution
 *        each place of the kernel by itself
 *   old  delta = W . a2 [cols, r] . a1 [r, cols] + b2 [out, r] . b1 [r, cols], cols = in*kh*kw
 *
 * Shapes tell the two apart. Where they fit both, ComfyUI takes the old one of a square weight as
 * wide as a2 has rows, else the new one. The scale is alpha / r. */
#include "lora/lora_impl.h"

#include <inttypes.h>

struct factor { /* of the file */
    const struct weights_entry *e;
    uint64_t rows, cols;
};

static berth_status unsupported(const struct lora_job *j, const char *why)
{
    const struct weights_entry *e = j->t->part[GLORA_A1];
    char name[LORA_NAME_TEXT], text[SHAPE_TEXT_MAX];
    return err_set(j->err, BERTH_EUNSUPPORTED, "'%s' %s: %s", lora_name_text(e, name),
                   shape_text(&e->shape, text), why);
}

static bool is_old(const struct lora_job *j, const struct factor f[4], bool *known)
{
    const struct factor *a1 = &f[0], *a2 = &f[1], *b1 = &f[2], *b2 = &f[3];
    const uint64_t in = j->weight->ndim > 1 ? j->weight->dim[1] : 0;
    bool old = b2->cols == b1->rows && b1->rows == a1->rows && a1->rows == a2->cols;
    bool is_new = b2->rows == b1->cols && b1->cols == a1->cols && a1->cols == a2->rows;
    *known = old || is_new;
    return old && (!is_new || (a2->rows == j->want_rows && j->want_rows == in));
}

/* Is f [rows, cols]? */
static berth_status want(const struct lora_job *j, const struct factor *f, uint64_t rows,
                         uint64_t cols)
{
    return f->rows == rows && f->cols == cols ? BERTH_OK : lora_misfit(j, f->e);
}

berth_status lora_glora(struct lora_job *j, struct res_term *out)
{
    const struct lora_target *t = j->t;
    struct factor f[4];
    float *v[4];
    bool known;
    for (int i = 0; i < 4; i++) {
        f[i].e = t->part[GLORA_A1 + i];
        if (!lora_matrix(f[i].e, &f[i].rows, &f[i].cols))
            return lora_misfit(j, f[i].e);
    }
    const bool old = is_old(j, f, &known);
    if (!known || j->weight->ndim < 2)
        return lora_misfit(j, f[0].e);
    if (t->transpose || t->swap)
        return unsupported(j, "GLoRA of rows that the model keeps otherwise is not merged");
    /* W . up . down + up2 . down2 */
    const struct factor *up = &f[old], *down = &f[!old], *up2 = &f[2 + old], *down2 = &f[3 - old];
    const uint64_t rank = up->cols, in = old ? j->want_cols : j->weight->dim[1];
    if (want(j, up, in, rank) || want(j, down, rank, in) || want(j, up2, j->want_rows, rank) ||
        want(j, down2, rank, j->want_cols))
        return j->err->code;
    if (j->want_cols > RES_INPUT_COLS || rank > RES_INPUT_RANK)
        return unsupported(j, "GLoRA of more than 32768 columns or of a rank above 8192 is not "
                              "merged");
    for (int i = 0; i < 4; i++)
        if (lora_load(j, f[i].e, &v[i]))
            return j->err->code;
    out->kind = TERM_INPUTS;
    out->rank = out->rank2 = (uint32_t)rank;
    out->kernel = j->want_cols / in;
    out->up = v[old];
    out->down = v[!old];
    out->up2 = v[2 + old] + t->from * rank;
    out->down2 = v[3 - old];
    return lora_scale(j, rank, &j->scale);
}
