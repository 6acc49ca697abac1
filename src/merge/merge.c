/* merge: base weights + terms -> stored weights, tile by tile. */
#include "merge/term_impl.h"

#include "base/err.h"
#include "base/mt19937.h"

#include <inttypes.h>
#include <math.h>

#define TILE_ELEMS MERGE_TILE_ELEMS
#define CHANCES (1u << 20)      /* draws made at a time: 4 MiB */
#define AMAX_LANES ((size_t)64) /* most tasks of one walk over the tiles that only looks */

bool merge_widens(enum dtype t, enum dtype patched)
{
    return patched == DT_F32 ? t == DT_F16 || t == DT_BF16
                             : dtype_is_quant(t) || merge_by_chance(t);
}

bool merge_mixes(const struct merge *m)
{
    for (size_t i = 0; i < m->terms; i++)
        if (term_mixes_rows(&m->term[i]))
            return true;
    return false;
}

bool merge_spans(const struct merge *m)
{
    if (m->to && m->to->rows)
        return true;
    for (size_t i = 0; i < m->terms; i++)
        if (m->term[i].kind == TERM_INPUTS)
            return true;
    return false;
}

berth_status merge_take(struct merge *m, struct vec *terms, size_t first, struct arena *mem,
                        berth_err *err)
{
    m->term = terms->p;
    m->terms = terms->n;
    for (size_t i = first; i < terms->n; i++) {
        if (term_check(vec_at(terms, i), m->rows, m->cols, err))
            return err->code;
        if (!term_scratch(vec_at(terms, i), mem))
            return err_set(err, BERTH_ENOMEM, "norms of %" PRIu64 " x %" PRIu64 " weights", m->rows,
                           m->cols);
    }
    const bool rows = m->to && m->to->rows;
    if (rows && (merge_mixes(m) || m->cols > TILE_ELEMS))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "adapters that mix rows (OFT, BOFT) and rows of more than %d weights are "
                       "not merged into weights stored as %s",
                       TILE_ELEMS, m->to->name);
    return merge_mixes(m) && merge_spans(m)
               ? err_set(err, BERTH_EUNSUPPORTED,
                         "one adapter mixes the weight's rows (OFT, BOFT) and another its columns "
                         "(GLoRA): they cannot be merged together")
               : BERTH_OK;
}

bool merge_matrix(const struct shape *s, uint64_t *rows, uint64_t *cols)
{
    struct shape row = { .ndim = s->ndim ? s->ndim - 1 : 0 };
    *rows = s->ndim ? s->dim[0] : 1;
    if (row.ndim)
        memcpy(row.dim, s->dim + 1, (size_t)row.ndim * sizeof *row.dim);
    return shape_count(&row, cols);
}

uint64_t merge_chances(const struct merge *m)
{
    if (!m->to->chance)
        return 0;
    if (merge_mixes(m))
        return m->rows * m->cols; /* rows are finished all at once */
    return m->cols > CHANCES || m->rows * m->cols > CHANCES
               ? (m->cols > CHANCES ? m->cols : CHANCES)
               : m->rows * m->cols;
}

/* Calls of a tile's rows: all at once where they lie behind one another. */
static size_t strips(const struct merge *m, const struct merge_tile *t, size_t *n)
{
    bool whole = t->cols == m->cols;
    *n = whole ? t->rows * t->cols : t->cols;
    return whole ? 1 : t->rows;
}

void merge_tile_to(const struct merge *m, const struct merge_tile *t, size_t terms)
{
    size_t n, count = strips(m, t, &n);
    for (size_t i = 0; i < count; i++)
        m->from->widen(m->base, (t->row + i) * m->cols + t->col, t->w + i * n, n);
    for (size_t i = 0; i < terms; i++)
        term_apply(&m->term[i], t);
}

struct walk { /* over the tiles of rows [row, row + rows) */
    const struct merge *m;
    uint64_t row, rows;
    size_t tile_rows, tile_cols, across;
    float *amax; /* not NULL: only look, [lanes] */
    size_t lanes;
};

static struct walk walk_of(const struct merge *m, uint64_t row, uint64_t rows)
{
    struct walk w = { .m = m, .row = row, .rows = rows };
    size_t most = merge_mixes(m)   ? TILE_ELEMS / (size_t)rows
                  : merge_spans(m) ? TILE_ELEMS
                                   : MERGE_TILE_COLS;
    w.tile_cols = m->cols < most ? (size_t)m->cols : most;
    w.tile_rows = TILE_ELEMS / w.tile_cols;
    w.across = (size_t)((m->cols + w.tile_cols - 1) / w.tile_cols);
    return w;
}

static size_t walk_tiles(const struct walk *w)
{
    return (size_t)((w->rows + w->tile_rows - 1) / w->tile_rows) * w->across;
}

static struct merge_tile tile_at(const struct walk *w, size_t i, float *buf)
{
    uint64_t row = i / w->across * w->tile_rows, col = i % w->across * w->tile_cols;
    uint64_t below = w->rows - row, right = w->m->cols - col;
    return (struct merge_tile) { .row = w->row + row,
                                 .col = col,
                                 .rows = below < w->tile_rows ? (size_t)below : w->tile_rows,
                                 .cols = right < w->tile_cols ? (size_t)right : w->tile_cols,
                                 .w = buf };
}

static void merge_task(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct walk *w = user;
    const struct merge *m = w->m;
    float buf[TILE_ELEMS];
    struct merge_tile t = tile_at(w, i, buf);
    merge_tile_to(m, &t, m->terms);
    size_t n, count = strips(m, &t, &n);
    for (size_t k = 0; k < count; k++) {
        uint64_t at = (t.row + k) * m->cols + t.col;
        const uint32_t *chance = m->to->chance ? m->chance + (at - w->row * m->cols) : NULL;
        m->to->store(m->result, at, buf + k * n, n, chance);
    }
}

void merge_run(const struct merge *m, struct tpool *pool)
{
    if (!m->rows || !m->cols)
        return;
    if (!m->to->chance) {
        struct walk w = walk_of(m, 0, m->rows);
        tpool_for(pool, walk_tiles(&w), merge_task, &w);
        return;
    }
    struct mt19937 g;
    mt19937_init(&g, m->seed);
    uint64_t step = merge_chances(m) / m->cols;
    for (uint64_t row = 0; row < m->rows; row += step) {
        uint64_t rows = m->rows - row < step ? m->rows - row : step;
        struct walk w = walk_of(m, row, rows);
        mt19937_fill(&g, m->chance, (size_t)(rows * m->cols));
        tpool_for(pool, walk_tiles(&w), merge_task, &w);
    }
}

void merge_look(const struct merge *m, struct tpool *pool)
{
    if (m->to->look)
        m->to->look(m->result, merge_amax(m, pool));
}

/* Lane i looks at every lanes-th tile: a maximum does not care about order. */
static void amax_task(void *user, size_t lane, size_t worker)
{
    (void)worker;
    const struct walk *w = user;
    float buf[TILE_ELEMS], most = 0;
    size_t tiles = walk_tiles(w);
    for (size_t i = lane; i < tiles; i += w->lanes) {
        struct merge_tile t = tile_at(w, i, buf);
        merge_tile_to(w->m, &t, w->m->terms);
        for (size_t k = 0; k < t.rows * t.cols; k++)
            most = fabsf(buf[k]) > most ? fabsf(buf[k]) : most;
    }
    w->amax[lane] = most;
}

float merge_amax(const struct merge *m, struct tpool *pool)
{
    float amax[AMAX_LANES], most = 0;
    if (!m->rows || !m->cols)
        return 0;
    struct walk w = walk_of(m, 0, m->rows);
    size_t tiles = walk_tiles(&w);
    w.amax = amax;
    w.lanes = tiles < AMAX_LANES ? tiles : AMAX_LANES;
    tpool_for(pool, w.lanes, amax_task, &w);
    for (size_t i = 0; i < w.lanes; i++)
        most = amax[i] > most ? amax[i] : most;
    return most;
}
