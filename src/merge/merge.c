/* merge: base weights + terms -> stored weights, tile by tile. */
#include "merge/term_impl.h"

#include "base/err.h"
#include "base/mt19937.h"
#include "tensor/convert.h"

#include <inttypes.h>
#include <math.h>

#define TILE_ELEMS MERGE_TILE_ELEMS
#define QUANT_MAX 256           /* elements of the largest block of a quant */
#define CHANCES (1u << 20)      /* draws made at a time: 4 MiB */
#define AMAX_LANES ((size_t)64) /* most tasks of one walk over the tiles that only looks */

bool merge_by_chance(enum dtype t)
{
    return t == DT_F8_E4M3 || t == DT_F8_E5M2;
}

bool merge_widens(enum dtype t, enum dtype patched)
{
    return patched == DT_F32 ? t == DT_F16 || t == DT_BF16
                             : dtype_is_quant(t) || merge_by_chance(t);
}

float merge_fp8_most(enum dtype t)
{
    return t == DT_F8_E5M2 ? 57344 : 448;
}

bool merge_stores(enum dtype t)
{
    return t == DT_F64 || t == DT_F32 || t == DT_F16 || t == DT_BF16 || merge_by_chance(t);
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
    if (!merge_by_chance(m->to))
        return 0;
    if (merge_mixes(m))
        return m->rows * m->cols; /* rows are finished all at once */
    return m->cols > CHANCES || m->rows * m->cols > CHANCES
               ? (m->cols > CHANCES ? m->cols : CHANCES)
               : m->rows * m->cols;
}

/* The same of a base that its file has in another type. */
static void widen_converted(const struct merge *m, uint64_t at, float *dst, size_t n)
{
    uint16_t code[MERGE_TILE_COLS]; /* fp8 or 16 bits each */
    size_t each = dtype_desc(m->stored)->bytes;
    const uint8_t *src = (const uint8_t *)m->src + at * each;
    berth_err none;
    for (size_t now; n; src += now * each, dst += now, n -= now) {
        now = n < MERGE_TILE_COLS ? n : MERGE_TILE_COLS;
        if (convert(m->stored, src, m->from, code, now, &none))
            BUG("%s", none.msg);
        dtype_desc(m->from)->to_f32(code, dst, now);
    }
}

/* n elements of the base from number `at` on; a quant may begin and end inside its blocks. */
static void widen(const struct merge *m, uint64_t at, float *dst, size_t n)
{
    if (m->converted) {
        widen_converted(m, at, dst, n);
        return;
    }
    const struct dtype_desc *d = dtype_desc(m->from);
    const uint8_t *src = m->src;
    size_t skip = (size_t)(at % d->elems);
    src += at / d->elems * d->bytes;
    if (!skip && n % d->elems == 0) {
        d->to_f32(src, dst, n);
        return;
    }
    float block[QUANT_MAX];
    for (; n; src += d->bytes, skip = 0) {
        size_t now = d->elems - skip < n ? d->elems - skip : n;
        d->to_f32(src, block, d->elems);
        memcpy(dst, block + skip, now * sizeof *dst);
        dst += now;
        n -= now;
    }
}

static void narrow(const struct merge *m, uint64_t at, uint64_t first_chance, const float *src,
                   size_t n)
{
    const struct dtype_desc *d = dtype_desc(m->to);
    uint8_t *dst = (uint8_t *)m->dst + at * d->bytes;
    if (merge_by_chance(m->to))
        op_fp8_round(m->to, src, m->chance + (at - first_chance), dst, n);
    else
        d->from_f32(src, dst, n);
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
    size_t n, count = strips(m, t, &n), all = t->rows * t->cols;
    for (size_t i = 0; i < count; i++)
        widen(m, (t->row + i) * m->cols + t->col, t->w + i * n, n);
    if (m->src_scale != 1)
        for (size_t i = 0; i < all; i++)
            t->w[i] *= m->src_scale;
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
    if (m->dst_scale != 1)
        for (size_t k = 0; k < t.rows * t.cols; k++)
            buf[k] /= m->dst_scale;
    size_t n, count = strips(m, &t, &n);
    for (size_t k = 0; k < count; k++)
        narrow(m, (t.row + k) * m->cols + t.col, w->row * m->cols, buf + k * n, n);
}

void merge_run(const struct merge *m, struct tpool *pool)
{
    if (!m->rows || !m->cols)
        return;
    if (!merge_by_chance(m->to)) {
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
