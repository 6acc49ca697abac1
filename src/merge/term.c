/* term: one term: is it complete, what is it made of, how large can it get, and what does it do to
 * a tile. Norms that it needs are there already (norms.c). */
#include "merge/term_impl.h"

#include <inttypes.h>
#include <math.h>

static bool is_whole(const struct res_term *t)
{
    switch (t->kind) {
    case TERM_LOWRANK:
        return (t->up && t->down) || !t->rank;
    case TERM_HADAMARD:
        return t->up && t->down && t->up2 && t->down2;
    case TERM_KRON:
        return t->up && t->down && t->left_rows && t->right_rows && t->left_cols &&
               t->cols % t->left_cols == 0 && t->cols / t->left_cols == t->right_cols;
    case TERM_MIX:
        return t->up && t->rank && t->rows % t->rank == 0;
    case TERM_BUTTERFLY:
        return t->up && t->rank > 1 && t->rows % t->rank == 0 && t->rank2 && t->rank2 < 32 &&
               t->rows % ((uint64_t)(t->rank / 2) << t->rank2) == 0;
    case TERM_INPUTS:
        return t->up && t->down && t->up2 && t->down2 && t->kernel && t->cols % t->kernel == 0;
    case TERM_SCALE:
        return true;
    case TERM_ADD:
    case TERM_SET:
        break;
    }
    return t->dense != NULL;
}

static bool has_sizes(const struct res_term *t)
{
    const struct res_dora *d = &t->dora;
    return !d->size || (d->kernel && t->cols % d->kernel == 0 && t->kind < TERM_ADD);
}

static uint64_t sizes_of(const struct res_term *t)
{
    return t->dora.columns ? t->cols / t->dora.kernel : t->rows;
}

static bool fits(const struct res_term *t, uint64_t rows, uint64_t cols)
{
    if (t->kind == TERM_MIX || t->kind == TERM_BUTTERFLY)
        return rows <= RES_MIX_ROWS;
    return t->kind != TERM_INPUTS || (cols <= RES_INPUT_COLS && t->rank <= RES_INPUT_RANK);
}

bool term_scratch(struct res_term *t, struct arena *mem)
{
    struct res_dora *d = &t->dora;
    if (!d->size)
        return true;
    d->sum = arena_array(mem, (size_t)(d->columns ? t->cols : t->rows), sizeof *d->sum);
    d->gain = arena_array(mem, (size_t)sizes_of(t), sizeof *d->gain);
    return d->sum && d->gain;
}

berth_status term_check(const struct res_term *t, uint64_t rows, uint64_t cols, berth_err *err)
{
    bool inside = t->rows <= rows && t->row <= rows - t->rows && t->cols == cols;
    if (inside && fits(t, rows, cols) && is_whole(t) && has_sizes(t))
        return BERTH_OK;
    return err_set(err, BERTH_EFORMAT,
                   "rows %" PRIu64 " + %" PRIu64 " of %" PRIu64 " columns do not fit %" PRIu64
                   " x %" PRIu64,
                   t->row, t->rows, t->cols, rows, cols);
}

static double largest(const float *p, uint64_t n)
{
    double most = 0;
    for (uint64_t i = 0; i < n; i++)
        most = fabs((double)p[i]) <= most ? most : fabs((double)p[i]);
    return most;
}

static double product_bound(const struct res_term *t, const float *up, const float *down,
                            uint32_t rank)
{
    return rank * largest(up, t->rows * rank) * largest(down, rank * t->cols);
}

double term_bound(const struct res_term *t)
{
    double scale = fabs((double)t->scale);
    switch (t->kind) {
    case TERM_LOWRANK:
        return scale * product_bound(t, t->up, t->down, t->rank);
    case TERM_HADAMARD:
        return scale * product_bound(t, t->up, t->down, t->rank) *
               product_bound(t, t->up2, t->down2, t->rank2);
    case TERM_KRON:
        return scale * largest(t->up, t->left_rows * t->left_cols) *
               largest(t->down, t->right_rows * t->right_cols);
    case TERM_MIX:
    case TERM_BUTTERFLY:
    case TERM_INPUTS:
    case TERM_SCALE:
        return HUGE_VAL;
    case TERM_SET:
        scale = 1;
        break;
    case TERM_ADD:
        break;
    }
    return scale * largest(t->dense, t->rows * t->cols);
}

/* ---- what it does ---- */

#define PIECE TERM_PIECE

/* The rows of a part from r on, as many as PIECE floats hold. */
static struct part rows_of(const struct part *p, size_t r)
{
    size_t fit = PIECE / p->cols, rows = fit < p->rows - r ? fit : p->rows - r;
    return (struct part) {
        .w = p->w + r * p->cols, .rows = rows, .cols = p->cols, .first = p->first + r, .col = p->col
    };
}

static void add_product(const struct part *p, float *w, const float *up, const float *down,
                        const struct res_term *x, uint32_t rank, float scale)
{
    op_lowrank_tile(&(struct op_lowrank) { .w = w,
                                           .rows = p->rows,
                                           .cols = p->cols,
                                           .ld_w = p->cols,
                                           .up = up + p->first * rank,
                                           .down = down + p->col,
                                           .rank = rank,
                                           .ld_up = rank,
                                           .ld_down = (size_t)x->cols,
                                           .scale = scale });
}

/* A few rows of both products at a time. */
static void add_hadamard(const struct res_term *x, const struct part *all)
{
    float one[PIECE], two[PIECE];
    struct part p = *all;
    for (size_t r = 0; r < all->rows; r += p.rows) {
        p = rows_of(all, r);
        size_t n = p.rows * p.cols;
        memset(one, 0, n * sizeof *one);
        memset(two, 0, n * sizeof *two);
        add_product(&p, one, x->up, x->down, x, x->rank, 1);
        add_product(&p, two, x->up2, x->down2, x, x->rank2, 1);
        for (size_t i = 0; i < n; i++)
            p.w[i] += x->scale * (one[i] * two[i]);
    }
}

static void add_kron(const struct res_term *x, const struct part *p)
{
    const size_t width = (size_t)x->right_cols;
    for (size_t r = 0; r < p->rows; r++) {
        uint64_t i = (x->from + p->first + r) % (x->left_rows * x->right_rows);
        const float *left = x->up + i / x->right_rows * x->left_cols;
        const float *right = x->down + i % x->right_rows * width;
        float *w = p->w + r * p->cols;
        size_t j = p->col / width, at = p->col % width;
        for (size_t left_over = p->cols, n; left_over; left_over -= n, w += n, j++, at = 0) {
            n = width - at < left_over ? width - at : left_over;
            for (size_t c = 0; c < n; c++)
                w[c] += x->scale * (left[j] * right[at + c]);
        }
    }
}

static void add_dense(const struct res_term *x, const struct part *p)
{
    const float *d = x->dense + p->first * x->cols + p->col;
    float *w = p->w;
    for (size_t r = 0; r < p->rows; r++, w += p->cols, d += x->cols)
        for (size_t c = 0; c < p->cols; c++)
            w[c] += x->scale * d[c];
}

static void set_dense(const struct res_term *x, const struct part *p)
{
    for (size_t r = 0; r < p->rows; r++)
        memcpy(p->w + r * p->cols, x->dense + (p->first + r) * x->cols + p->col,
               p->cols * sizeof *p->w);
}

static void change(const struct res_term *x, const struct part *p)
{
    switch (x->kind) {
    case TERM_LOWRANK:
        add_product(p, p->w, x->up, x->down, x, x->rank, x->scale);
        break;
    case TERM_HADAMARD:
        add_hadamard(x, p);
        break;
    case TERM_KRON:
        add_kron(x, p);
        break;
    case TERM_MIX:
    case TERM_BUTTERFLY:
    case TERM_INPUTS:
        BUG("a mixture without what was there");
    case TERM_ADD:
        add_dense(x, p);
        break;
    case TERM_SET:
        set_dense(x, p);
        break;
    case TERM_SCALE:
        for (size_t i = 0; i < p->rows * p->cols; i++)
            p->w[i] *= x->scale;
        break;
    }
}

static void gain_columns(const struct res_dora *d, const struct part *p, float *w)
{
    size_t k = p->col / (size_t)d->kernel, within = p->col % (size_t)d->kernel;
    for (size_t c = 0; c < p->cols; c++) {
        w[c] *= d->gain[k];
        if (++within == d->kernel) {
            within = 0;
            k++;
        }
    }
}

/* p->w is C of adapter.h and becomes W, which was `was`. */
static void resize(const struct res_term *x, const struct part *p, const float *was)
{
    const struct res_dora *d = &x->dora;
    size_t n = p->rows * p->cols;
    for (size_t r = 0; r < p->rows; r++) {
        float *w = p->w + r * p->cols, gain = d->columns ? 1 : d->gain[p->first + r];
        if (d->columns)
            gain_columns(d, p, w);
        else
            for (size_t c = 0; c < p->cols; c++)
                w[c] *= gain;
    }
    if (d->strength != 1)
        for (size_t i = 0; i < n; i++)
            p->w[i] = was[i] + d->strength * (p->w[i] - was[i]);
}

static void change_and_resize(const struct res_term *x, const struct part *all)
{
    float was[PIECE];
    struct part p = *all;
    for (size_t r = 0; r < all->rows; r += p.rows) {
        p = rows_of(all, r);
        memcpy(was, p.w, p.rows * p.cols * sizeof *was);
        change(x, &p);
        resize(x, &p, was);
    }
}

/* All at once: each row, or each column, takes from others. */
static void turn_and_resize(const struct res_term *x, const struct part *p, bool sized)
{
    float was[MERGE_TILE_ELEMS];
    memcpy(was, p->w, p->rows * p->cols * sizeof *was);
    term_turn(x, p, was);
    if (sized)
        resize(x, p, was);
}

/* False: the term is about none of the tile's rows. */
static bool part_of(const struct res_term *x, const struct merge_tile *t, struct part *out)
{
    uint64_t from = x->row > t->row ? x->row : t->row;
    uint64_t to = x->row + x->rows < t->row + t->rows ? x->row + x->rows : t->row + t->rows;
    if (from >= to)
        return false;
    *out = (struct part) { .w = t->w + (from - t->row) * t->cols,
                           .rows = (size_t)(to - from),
                           .cols = t->cols,
                           .first = (size_t)(from - x->row),
                           .col = (size_t)t->col };
    return true;
}

void term_change(const struct res_term *x, const struct merge_tile *t)
{
    struct part p;
    if (!part_of(x, t, &p))
        return;
    if (term_turns(x))
        turn_and_resize(x, &p, false);
    else
        change(x, &p);
}

void term_apply(const struct res_term *x, const struct merge_tile *t)
{
    struct part p;
    if (!part_of(x, t, &p))
        return;
    if (term_turns(x))
        turn_and_resize(x, &p, x->dora.size != NULL);
    else if (x->dora.size)
        change_and_resize(x, &p);
    else
        change(x, &p);
}
