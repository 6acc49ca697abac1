/* gemm: chunks of fixed panels, packed by all workers; then tasks, each a rectangle of C. */
#include "op/cpu/gemm.h"

#include "op/cpu/cpu_impl.h"

#define CHUNK_BYTES ((size_t)8 << 20) /* of fixed panels: a good part of a last-level cache */
#define CHUNK_THRIFTY ((size_t)1 << 20)
#define WIDEN 256          /* elements widened at a time; a multiple of every block */
#define TASKS_PER_WORKER 6 /* so that the last ones to finish do not wait long */

/* A task's panels, at most. Fixed rows (convolutions): many rows against few columns, which are
 * dear to gather; the other way round both are middling. Sums take 100 to 115 KB, moving panels up
 * to 172. */
struct extent {
    size_t rows, cols;
};
static struct extent task_max(bool fixed_rows)
{
    return fixed_rows ? (struct extent) { 28, 2 } : (struct extent) { 4, 16 };
}

/* Blocks of about equal size, none of them small. */
size_t gemm_k_block(size_t k)
{
    size_t n = cpu_over(k, GEMM_K_MAX);
    return n ? (cpu_over(k, n) + 7) & ~(size_t)7 : 0;
}

struct run {
    const struct op_env *env;
    const struct gemm *g;
    size_t row_panels, col_panels;   /* of the whole */
    size_t fixed_panels, fixed_unit; /* panels of the fixed side; elements across one */
    size_t fixed_floats;             /* of one such panel, the whole of k */
    size_t chunk;                    /* fixed panels at a time */
    size_t k_block;
    struct extent task;            /* panels */
    size_t at, now;                /* the present chunk */
    size_t groups_row, groups_col; /* tasks of the chunk, down and across */
    float *fixed, *own;            /* own: of worker 0 */
    size_t moving_floats, own_floats;
};

static void plan(struct run *r, const struct op_env *env, const struct gemm *g)
{
    const struct gemm_level *l = g->level;
    *r = (struct run) { .env = env, .g = g };
    r->row_panels = cpu_over(g->m, l->mr);
    r->col_panels = cpu_over(g->n, l->nr);
    r->k_block = gemm_k_block(g->k);
    r->fixed_panels = g->fixed_rows ? r->row_panels : r->col_panels;
    r->fixed_unit = g->fixed_rows ? l->mr : l->nr;
    r->fixed_floats = cpu_whole(op_mul(g->k, r->fixed_unit));
    size_t fit =
        (env->thrifty ? CHUNK_THRIFTY : CHUNK_BYTES) / op_mul(r->fixed_floats, sizeof(float));
    r->chunk = cpu_over(r->fixed_panels, cpu_over(r->fixed_panels, fit ? fit : 1));
    struct extent most = task_max(g->fixed_rows);
    size_t moving_unit = g->fixed_rows ? l->nr : l->mr;
    r->moving_floats = cpu_whole(cpu_least(r->k_block, g->k) * moving_unit);
    size_t moving_most = g->fixed_rows ? most.cols : most.rows;
    r->own_floats =
        moving_most * r->moving_floats + most.rows * most.cols * cpu_whole(l->mr * l->nr);
}

size_t gemm_scratch(const struct op_env *env, const struct gemm *g)
{
    if (!g->m || !g->n || !g->k || !g->batch)
        return 0;
    struct run r;
    plan(&r, env, g);
    size_t fixed = op_mul(r.chunk, r.fixed_floats), own = op_mul(cpu_workers(env), r.own_floats);
    return op_mul(cpu_add(fixed, own), sizeof(float));
}

static void pack_fixed(void *user, size_t i, size_t worker)
{
    (void)worker;
    const struct run *r = user;
    const struct gemm *g = r->g;
    if (op_cancelled(r->env))
        return;
    size_t at = (r->at + i) * r->fixed_unit, all = g->fixed_rows ? g->m : g->n;
    (g->fixed_rows ? g->pack_a : g->pack_b)(g->user, 0, at, cpu_least(r->fixed_unit, all - at), 0,
                                            g->k, r->fixed + i * r->fixed_floats);
}

struct rect { /* of panels, and which of the batch */
    size_t row, rows, col, cols, batch;
};

static void pack_moving(const struct run *r, const struct rect *t, size_t k0, size_t kn, float *own)
{
    const struct gemm *g = r->g;
    size_t mr = g->level->mr, nr = g->level->nr;
    if (g->fixed_rows)
        for (size_t j = 0; j < t->cols; j++) {
            size_t col = (t->col + j) * nr;
            g->pack_b(g->user, t->batch, col, cpu_least(nr, g->n - col), k0, kn,
                      own + j * r->moving_floats);
        }
    else
        for (size_t i = 0; i < t->rows; i++) {
            size_t row = (t->row + i) * mr;
            g->pack_a(g->user, t->batch, row, cpu_least(mr, g->m - row), k0, kn,
                      own + i * r->moving_floats);
        }
}

static struct gemm_finish finish_at(const struct gemm *g, size_t batch, size_t row, size_t col)
{
    struct gemm_finish f = { .cols = cpu_least(g->level->nr, g->n - col),
                             .c = g->c + batch * g->step_c + row * g->ld_c + col,
                             .ld_c = g->ld_c,
                             .ld_add = g->ld_add,
                             .scale = g->scale };
    if (g->bias && g->bias_rows)
        f.of_row = g->bias + row;
    else if (g->bias)
        f.of_col = g->bias + col;
    if (g->add)
        f.add = g->add + batch * g->step_add + row * g->ld_add + col;
    return f;
}

/* The lines a tile will be written to, asked for while its sums are made. */
static void expect(const struct gemm_finish *f, size_t rows)
{
    for (size_t i = 0; i < rows; i++) {
        __builtin_prefetch(f->c + i * f->ld_c, 1);
        __builtin_prefetch(f->c + i * f->ld_c + f->cols - 1, 1);
    }
}

static void compute(const struct run *r, const struct rect *t, float *own)
{
    const struct gemm *g = r->g;
    const struct gemm_level *l = g->level;
    struct extent most = task_max(g->fixed_rows);
    size_t tile = cpu_whole(l->mr * l->nr);
    float *sums = own + (g->fixed_rows ? most.cols : most.rows) * r->moving_floats;
    for (size_t k0 = 0; k0 < g->k; k0 += r->k_block) {
        size_t kn = cpu_least(r->k_block, g->k - k0);
        pack_moving(r, t, k0, kn, own);
        for (size_t j = 0; j < t->cols; j++)
            for (size_t i = 0; i < t->rows; i++) {
                size_t rows = cpu_least(l->mr, g->m - (t->row + i) * l->mr);
                size_t fixed = (g->fixed_rows ? t->row + i : t->col + j) - r->at;
                const float *f = r->fixed + fixed * r->fixed_floats;
                const float *a = g->fixed_rows ? f + k0 * rows : own + i * r->moving_floats;
                const float *b = g->fixed_rows ? own + j * r->moving_floats : f + k0 * l->nr;
                float *sum = sums + (i * most.cols + j) * tile;
                if (k0 + kn < g->k) {
                    l->tile[rows](a, b, kn, sum, k0 == 0, NULL);
                    continue;
                }
                struct gemm_finish out =
                    finish_at(g, t->batch, (t->row + i) * l->mr, (t->col + j) * l->nr);
                expect(&out, rows);
                l->tile[rows](a, b, kn, sum, k0 == 0, &out);
            }
    }
}

/* The function behind the product, over a task's rectangle of the result, still in a cache. */
static void pass_on(const struct gemm *g, const struct rect *t)
{
    size_t mr = g->level->mr, nr = g->level->nr;
    size_t row = t->row * mr, rows = cpu_least(t->rows * mr, g->m - row);
    size_t col = t->col * nr, cols = cpu_least(t->cols * nr, g->n - col);
    for (size_t i = row; i < row + rows; i++) {
        float *c = g->c + t->batch * g->step_c + i * g->ld_c + col;
        g->after(c, c, cols);
    }
}

/* Piece i of n equal ones of `all`: where it begins. */
static size_t share(size_t all, size_t n, size_t i)
{
    return all / n * i + cpu_least(i, all % n);
}

static void task(void *user, size_t i, size_t worker)
{
    const struct run *r = user;
    const struct gemm *g = r->g;
    if (op_cancelled(r->env))
        return;
    size_t gc = i % r->groups_col, gr = i / r->groups_col % r->groups_row;
    size_t rows = g->fixed_rows ? r->now : r->row_panels;
    size_t cols = g->fixed_rows ? r->col_panels : r->now;
    struct rect t = { .row = share(rows, r->groups_row, gr),
                      .col = share(cols, r->groups_col, gc),
                      .batch = i / r->groups_col / r->groups_row };
    t.rows = share(rows, r->groups_row, gr + 1) - t.row;
    t.cols = share(cols, r->groups_col, gc + 1) - t.col;
    *(g->fixed_rows ? &t.row : &t.col) += r->at;
    compute(r, &t, r->own + worker * r->own_floats);
    if (g->after)
        pass_on(g, &t);
}

/* How many tasks: as large as they may be, smaller while workers would be idle. */
static void divide(struct run *r)
{
    const struct gemm *g = r->g;
    struct extent most = task_max(g->fixed_rows);
    size_t rows = g->fixed_rows ? r->now : r->row_panels;
    size_t cols = g->fixed_rows ? r->col_panels : r->now;
    r->groups_row = cpu_over(rows, most.rows);
    r->groups_col = cpu_over(cols, most.cols);
    size_t want = cpu_workers(r->env) > 1 ? TASKS_PER_WORKER * cpu_workers(r->env) : 1;
    while (r->groups_row * r->groups_col * g->batch < want) {
        /* the longer side, so that little is packed twice */
        size_t down = rows / r->groups_row, across = cols / r->groups_col;
        if (down <= 1 && across <= 1)
            break;
        if (down > 1 && (down > across || across <= 1))
            r->groups_row = cpu_least(rows, r->groups_row * 2);
        else
            r->groups_col = cpu_least(cols, r->groups_col * 2);
    }
}

berth_status gemm_run(const struct op_env *env, const struct gemm *g, berth_err *err)
{
    if (!g->m || !g->n || !g->k || !g->batch)
        return BERTH_OK;
    struct run r;
    plan(&r, env, g);
    r.fixed = env->scratch;
    r.own = r.fixed + r.chunk * r.fixed_floats;
    for (r.at = 0; r.at < r.fixed_panels; r.at += r.now) {
        r.now = cpu_least(r.chunk, r.fixed_panels - r.at);
        divide(&r);
        cpu_for(env, r.now, pack_fixed, &r);
        cpu_for(env, r.groups_row * r.groups_col * g->batch, task, &r);
        if (op_cancelled(env))
            return err_set(err, BERTH_ECANCELED, "product of %zu x %zu x %zu", g->m, g->n, g->k);
    }
    return BERTH_OK;
}

void gemm_pack_rows(const struct gemm_rows *w, size_t row, size_t rows, size_t at, size_t n,
                    float *dst, size_t ld_dst, size_t pad)
{
    const struct dtype_desc *t = dtype_desc(w->dtype);
    gemm_transpose_fn *transpose = w->level->transpose;
    const uint8_t *src = w->data + row * w->row_bytes + at / t->elems * t->bytes;
    bool direct = w->dtype == DT_F32 && (uintptr_t)src % sizeof(float) == 0 &&
                  w->row_bytes % sizeof(float) == 0;
    if (direct) {
        const float *f = (const float *)(const void *)src;
        size_t ld = w->row_bytes / sizeof(float);
        for (size_t i = 0; i < pad; i += 16)
            transpose(f + cpu_least(i, rows) * ld, ld, cpu_least(16, rows - cpu_least(i, rows)), n,
                      dst + i, ld_dst, cpu_least(16, pad - i));
        return;
    }
    _Alignas(64) float wide[16][WIDEN];
    for (size_t k = 0; k < n; k += WIDEN) {
        size_t now = cpu_least(WIDEN, n - k);
        for (size_t i = 0; i < pad; i += 16) {
            size_t live = cpu_least(16, rows - cpu_least(i, rows));
            for (size_t j = 0; j < live; j++)
                t->to_f32(src + (i + j) * w->row_bytes + k / t->elems * t->bytes, wide[j], now);
            transpose(wide[0], WIDEN, live, now, dst + k * ld_dst + i, ld_dst,
                      cpu_least(16, pad - i));
        }
    }
}
