/* norms: norms of whole rows or columns of a weight in the midst of being merged, for DoRA.
 *
 * For a term with sizes the tiles are made once more, as far as the terms before it have come, and
 * looked at. That costs a pass over the weight for every such term and no memory but a number for
 * every row or column, where keeping the weight in float32 would take four times its fp8. A task
 * has rows of its own, or columns, and adds squares in order, in double: bits do not depend on
 * threads. */
#include "merge/merge.h"

#include <float.h>
#include <math.h>

#define ELEMS MERGE_TILE_ELEMS
#define LANE_COLS 256 /* columns of a task: whole blocks of every quant */
#define LANE_ROWS 32

struct look {
    const struct merge *m;
    const struct res_term *x;
    size_t before;      /* terms that come before it */
    uint64_t end;       /* of its rows */
    uint64_t tile_cols; /* of a task of rows; of a task of columns all it has */
};

static uint64_t least(uint64_t a, uint64_t b)
{
    return a < b ? a : b;
}

static void add_row(const float *w, size_t n, double *sum)
{
    double all = *sum;
    for (size_t i = 0; i < n; i++)
        all += (double)w[i] * (double)w[i];
    *sum = all;
}

static void add_columns(const float *w, size_t n, double *sum)
{
    for (size_t i = 0; i < n; i++)
        sum[i] += (double)w[i] * (double)w[i];
}

/* Squares of the tile, which lies inside the term's rows. */
static void add_squares(const struct res_term *x, const struct merge_tile *t)
{
    for (size_t r = 0; r < t->rows; r++)
        if (x->dora.columns)
            add_columns(t->w + r * t->cols, t->cols, x->dora.sum + t->col);
        else
            add_row(t->w + r * t->cols, t->cols, x->dora.sum + (t->row + r - x->row));
}

static void look_at(const struct look *l, uint64_t row, uint64_t rows, uint64_t col, uint64_t cols)
{
    float buf[ELEMS];
    struct merge_tile t = {
        .row = row, .col = col, .rows = (size_t)rows, .cols = (size_t)cols, .w = buf
    };
    merge_tile_to(l->m, &t, l->before);
    if (!l->x->dora.before)
        term_change(l->x, &t);
    add_squares(l->x, &t);
}

static void row_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct look *l = user;
    const uint64_t from = l->x->row + i * LANE_ROWS, end = from + least(LANE_ROWS, l->end - from);
    const uint64_t step = ELEMS / l->tile_cols;
    memset(l->x->dora.sum + i * LANE_ROWS, 0, (size_t)(end - from) * sizeof(double));
    for (uint64_t row = from; row < end; row += step)
        for (uint64_t col = 0; col < l->m->cols; col += l->tile_cols)
            look_at(l, row, least(step, end - row), col, least(l->tile_cols, l->m->cols - col));
}

static void column_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct look *l = user;
    const uint64_t step = ELEMS / l->tile_cols;
    uint64_t col = (uint64_t)i * l->tile_cols, cols = least(l->tile_cols, l->m->cols - col);
    memset(l->x->dora.sum + col, 0, (size_t)cols * sizeof(double));
    for (uint64_t row = l->x->row; row < l->end; row += step)
        look_at(l, row, least(step, l->end - row), col, cols);
}

/* Where rows are mixed, every tile has all of them: one task, in the order of the columns, adds to
 * a row or column what the tasks above add, in the same order. */
static void look_at_all(const struct look *l)
{
    float buf[ELEMS];
    const struct merge *m = l->m;
    const struct res_term *x = l->x;
    const uint64_t step = ELEMS / m->rows;
    memset(x->dora.sum, 0, (size_t)(x->dora.columns ? m->cols : x->rows) * sizeof(double));
    for (uint64_t col = 0; col < m->cols; col += step) {
        struct merge_tile t = { .col = col,
                                .rows = (size_t)m->rows,
                                .cols = (size_t)least(step, m->cols - col),
                                .w = buf };
        merge_tile_to(m, &t, l->before);
        if (!x->dora.before)
            term_change(x, &t);
        t.row = x->row;
        t.rows = (size_t)x->rows;
        t.w += x->row * t.cols;
        add_squares(x, &t);
    }
}

static void look_by_tasks(struct look *l, struct tpool *pool)
{
    const struct res_dora *d = &l->x->dora;
    l->tile_cols = d->columns ? LANE_COLS : MERGE_TILE_COLS;
    if (merge_spans(l->m))
        l->tile_cols = l->m->cols; /* whole rows; of columns one task */
    const uint64_t lane = d->columns ? l->tile_cols : LANE_ROWS,
                   all = d->columns ? l->m->cols : l->x->rows;
    tpool_fn *fn = d->columns ? column_task : row_task;
    tpool_for(pool, (size_t)((all + lane - 1) / lane), fn, l);
}

static void set_gain(const struct res_dora *d, uint64_t n)
{
    const uint64_t each = d->columns ? d->kernel : 1;
    for (uint64_t i = 0; i < n; i++) {
        double sum = 0;
        for (uint64_t k = 0; k < each; k++)
            sum += d->sum[i * each + k];
        d->gain[i] = d->size[i] / ((float)sqrt(sum) + FLT_EPSILON);
    }
}

void merge_norms(const struct merge *m, struct tpool *pool)
{
    for (size_t i = 0; i < m->terms; i++) {
        const struct res_term *x = &m->term[i];
        const struct res_dora *d = &x->dora;
        struct look l = { .m = m, .x = x, .before = i, .end = x->row + x->rows };
        if (!d->size || !m->rows || !m->cols)
            continue;
        if (merge_mixes(m))
            look_at_all(&l);
        else
            look_by_tasks(&l, pool);
        set_gain(d, d->columns ? m->cols / d->kernel : x->rows);
    }
}
