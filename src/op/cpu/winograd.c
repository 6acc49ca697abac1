/* winograd: two ways through the same arithmetic.
 *   whole    all filters fit: they are transformed once, then each task transforms a panel of tiles
 *            for itself and multiplies it by all of them, so that tiles never leave its cache
 *   chunks   of tiles by chunks of filters, each transformed by all workers, then multiplied */
#include "op/cpu/winograd.h"

#include "op/cpu/cpu_impl.h"

struct limits {            /* bytes of scratch */
    size_t tiles, filters; /* transformed ones, at a time */
    size_t whole;          /* all filters, when tasks transform their own tiles */
};
static const struct limits usual = { (size_t)24 << 20, (size_t)8 << 20, (size_t)20 << 20 };
static const struct limits thrifty = { (size_t)4 << 20, (size_t)1 << 20, (size_t)2 << 20 };

#define TASK_ROWS 4         /* panels of filters in a task, at most */
#define CHANNELS_STEP 32    /* filters turned at a time: whole blocks of 32 */
#define CHANNELS_STEP_K 256 /* whole blocks of 256 */
#define TASKS_PER_WORKER 6
#define SKEW                                                                                       \
    16 /* floats: points a multiple of 4 KiB apart would push each other out of the cache */
#define TILES_OWN ((size_t)3 << 19) /* a panel of tiles that a second-level cache can hold */
#define PANELS_PER_WORKER 3 /* of tiles: with fewer, workers would be idle in the whole way */

bool winograd_suits(const struct op_conv2d *a)
{
    const uint64_t *w = a->w.shape.dim, *y = a->y.shape.dim;
    return w[2] == 3 && w[3] == 3 && op_or_one(a->stride) == 1 && op_or_one(a->groups) == 1 &&
           w[1] >= 16 && y[2] >= 4 && y[3] >= 4;
}

/* 4x4 tiles, where a picture has enough of them to fill panels; filters take longer then. */
static bool large(const struct op_conv2d *a)
{
    const uint64_t *y = a->y.shape.dim;
    return y[2] >= 16 && y[3] >= 16 && y[2] * y[3] >= 1024;
}

struct run {
    const struct op_env *env;
    const struct op_conv2d *a;
    const struct gemm_level *level;
    const struct wino_kind *kind;
    struct gemm_rows w;
    size_t ic, oc, h, width, out_h, out_w;
    size_t down, across, tiles;           /* tiles of a picture, then of all of them */
    size_t row_panels, tile_panels;       /* of the whole */
    size_t row_step, tile_step, sum_step; /* from point to point */
    size_t row_floats, tile_floats;       /* of one transformed panel */
    size_t row_chunk, tile_chunk;         /* panels at a time */
    bool whole;
    size_t own_floats;                 /* of a worker */
    size_t row_at, rows, tile_at, now; /* the present chunks */
    size_t row_groups;
    float *u, *v, *own;
};

/* Chunks of about equal size. */
static size_t chunk_of(size_t panels, size_t floats, size_t bytes)
{
    size_t fit = bytes / op_mul(floats, sizeof(float));
    return cpu_over(panels, cpu_over(panels, fit ? fit : 1));
}

static void plan(struct run *r, const struct gemm_level *l, const struct op_env *env,
                 const struct op_conv2d *a)
{
    const uint64_t *x = a->x.shape.dim, *w = a->w.shape.dim, *y = a->y.shape.dim;
    const struct dtype_desc *t = dtype_desc(a->w.dtype);
    *r = (struct run) { .env = env,
                        .a = a,
                        .level = l,
                        .kind = &(large(a) ? wino_4x4 : wino_2x2)[l->level],
                        .ic = (size_t)w[1],
                        .oc = (size_t)w[0],
                        .h = (size_t)x[2],
                        .width = (size_t)x[3],
                        .out_h = (size_t)y[2],
                        .out_w = (size_t)y[3] };
    r->w = (struct gemm_rows) { .level = l,
                                .dtype = a->w.dtype,
                                .data = a->w.data,
                                .row_bytes = r->ic * 9 / t->elems * t->bytes };
    r->down = cpu_over(r->out_h, r->kind->side);
    r->across = cpu_over(r->out_w, r->kind->side);
    r->tiles = (size_t)y[0] * r->down * r->across;
    r->row_panels = cpu_over(r->oc, l->mr);
    r->tile_panels = cpu_over(r->tiles, l->nr);
    const struct limits *most = env->thrifty ? &thrifty : &usual;
    r->row_step = cpu_add(op_mul(r->ic, l->mr), SKEW);
    r->tile_step = cpu_add(op_mul(r->ic, l->nr), SKEW);
    r->sum_step = TASK_ROWS * l->mr * l->nr + SKEW;
    r->row_floats = op_mul(r->kind->points, r->row_step);
    r->tile_floats = op_mul(r->kind->points, r->tile_step);
    r->row_chunk = chunk_of(r->row_panels, r->row_floats, most->filters);
    r->tile_chunk = r->tiles ? chunk_of(r->tile_panels, r->tile_floats, most->tiles) : 0;
    size_t workers = cpu_workers(env);
    size_t filters = op_mul(r->row_panels, r->row_floats);
    size_t in_chunks =
        cpu_add(op_mul(r->row_chunk, r->row_floats), op_mul(r->tile_chunk, r->tile_floats));
    bool less = cpu_add(filters, op_mul(workers, r->tile_floats)) <= in_chunks;
    r->whole = (filters <= most->whole / sizeof(float) || (env->thrifty && less)) &&
               r->tile_panels / workers >= PANELS_PER_WORKER &&
               r->tile_floats <= TILES_OWN / sizeof(float);
    if (r->whole) {
        r->row_chunk = r->row_panels;
        r->tile_chunk = 0;
    }
    size_t sums = r->kind->points * r->sum_step;
    size_t turned = (t->elems > CHANNELS_STEP ? CHANNELS_STEP_K : CHANNELS_STEP) * 9 * WINO_LANES;
    r->own_floats = (sums > turned ? sums : turned) + (r->whole ? r->tile_floats : 0);
}

/* U begins where V ends, both at whole vectors; the sums of a worker too. */
static size_t u_floats(const struct run *r)
{
    return cpu_whole(op_mul(r->row_chunk, r->row_floats));
}

size_t winograd_scratch(const struct gemm_level *l, const struct op_env *env,
                        const struct op_conv2d *a)
{
    struct run r;
    plan(&r, l, env, a);
    size_t shared = cpu_add(op_mul(r.tile_chunk, r.tile_floats), u_floats(&r));
    return op_mul(cpu_add(shared, op_mul(cpu_workers(env), r.own_floats)), sizeof(float));
}

static void filters_task(void *user, size_t i, size_t worker)
{
    const struct run *r = user;
    if (op_cancelled(r->env))
        return;
    size_t at = (r->row_at + i) * r->level->mr, rows = cpu_least(r->level->mr, r->oc - at);
    size_t step = dtype_desc(r->w.dtype)->elems > CHANNELS_STEP ? CHANNELS_STEP_K : CHANNELS_STEP;
    float *turned = r->own + worker * r->own_floats;
    struct wino_filters f = {
        .g = turned, .rows = rows, .step = r->row_step, .u = r->u + i * r->row_floats
    };
    for (size_t k = 0; k < r->ic; k += step, f.u += step * rows) {
        f.n = cpu_least(step, r->ic - k);
        gemm_pack_rows(&r->w, at, rows, k * 9, f.n * 9, turned, WINO_LANES, WINO_LANES);
        r->kind->filters(&f);
    }
}

/* The run of tiles from `tile` on that lie side by side in one row of tiles, at most n and 16. */
struct strip {
    size_t picture, top, left, n; /* in tiles */
};
static struct strip strip_at(const struct run *r, size_t tile, size_t n)
{
    size_t in = tile % (r->down * r->across);
    struct strip s = { .picture = tile / (r->down * r->across),
                       .top = in / r->across,
                       .left = in % r->across };
    s.n = cpu_least(cpu_least(n, WINO_LANES), r->across - s.left);
    return s;
}

/* One panel of tiles, `panel` among all. */
static void transform_tiles(const struct run *r, size_t panel, float *v)
{
    size_t nr = r->level->nr, at = panel * nr, n = cpu_least(nr, r->tiles - at);
    for (size_t j = 0; j < n;) {
        struct strip s = strip_at(r, at + j, n - j);
        struct wino_tiles t = { .x = op_f32(&r->a->x) + s.picture * r->ic * r->h * r->width,
                                .h = r->h,
                                .w = r->width,
                                .channels = r->ic,
                                .n = s.n,
                                .top = (ptrdiff_t)(r->kind->side * s.top) - (ptrdiff_t)r->a->top,
                                .left = (ptrdiff_t)(r->kind->side * s.left) - (ptrdiff_t)r->a->left,
                                .v = v + j,
                                .step = r->tile_step,
                                .ld = nr };
        r->kind->tiles(&t);
        j += s.n;
    }
    if (n < nr) /* their sums are not read, but should not be made of rubbish */
        for (size_t p = 0; p < r->kind->points; p++)
            for (size_t k = 0; k < r->ic; k++)
                for (size_t j = n; j < nr; j++)
                    v[p * r->tile_step + k * nr + j] = 0;
}

static void tiles_task(void *user, size_t i, size_t worker)
{
    const struct run *r = user;
    (void)worker;
    if (!op_cancelled(r->env))
        transform_tiles(r, r->tile_at + i, r->v + i * r->tile_floats);
}

/* The sums of some panels of filters (`row` counts in the chunk) and the tiles v. */
static void multiply(const struct run *r, size_t row, size_t panels, const float *v, float *sums)
{
    const struct gemm_level *l = r->level;
    size_t k_block = gemm_k_block(r->ic);
    for (size_t p = 0; p < r->kind->points; p++)
        for (size_t k0 = 0; k0 < r->ic; k0 += k_block)
            for (size_t i = 0; i < panels; i++) {
                size_t rows = cpu_least(l->mr, r->oc - (r->row_at + row + i) * l->mr);
                const float *a = r->u + (row + i) * r->row_floats + p * r->row_step + k0 * rows;
                const float *b = v + p * r->tile_step + k0 * l->nr;
                l->tile[rows](a, b, cpu_least(k_block, r->ic - k0),
                              sums + p * r->sum_step + i * l->mr * l->nr, k0 == 0, NULL);
            }
}

/* Those sums to pixels; `panel` of tiles counts among all. */
static void finish(const struct run *r, size_t row, size_t panels, size_t panel, const float *sums)
{
    const struct gemm_level *l = r->level;
    size_t at = panel * l->nr, n = cpu_least(l->nr, r->tiles - at);
    size_t first = (r->row_at + row) * l->mr, rows = cpu_least(panels * l->mr, r->oc - first);
    size_t plane = r->out_h * r->out_w;
    struct wino_pixels t = {
        .step = r->sum_step, .h = r->out_h, .w = r->out_w, .scale = r->a->scaled ? r->a->scale : 1
    };
    for (size_t j = 0; j < n; j += t.n) {
        struct strip s = strip_at(r, at + j, n - j);
        t.n = s.n;
        t.top = s.top * r->kind->side;
        t.left = s.left * r->kind->side;
        for (size_t i = 0; i < rows; i++) {
            size_t of = (s.picture * r->oc + first + i) * plane;
            t.m = sums + i * l->nr + j;
            t.bias = r->a->bias.data ? op_f32(&r->a->bias)[first + i] : 0;
            t.add = r->a->add.data ? op_f32(&r->a->add) + of : NULL;
            t.y = op_f32(&r->a->y) + of;
            r->kind->pixels(&t);
        }
    }
}

static void product_task(void *user, size_t i, size_t worker)
{
    const struct run *r = user;
    if (op_cancelled(r->env))
        return;
    size_t tile = i / r->row_groups, group = i % r->row_groups;
    size_t each = r->rows / r->row_groups, more = r->rows % r->row_groups;
    size_t row = each * group + cpu_least(group, more), panels = each + (group < more);
    float *sums = r->own + worker * r->own_floats;
    multiply(r, row, panels, r->v + tile * r->tile_floats, sums);
    finish(r, row, panels, r->tile_at + tile, sums);
}

static void whole_task(void *user, size_t i, size_t worker)
{
    const struct run *r = user;
    if (op_cancelled(r->env))
        return;
    float *v = r->own + worker * r->own_floats, *sums = v + r->tile_floats;
    transform_tiles(r, i, v);
    for (size_t row = 0; row < r->row_panels; row += TASK_ROWS) {
        size_t panels = cpu_least(TASK_ROWS, r->row_panels - row);
        multiply(r, row, panels, v, sums);
        finish(r, row, panels, i, sums);
    }
}

static berth_status check_cancel(const struct run *r, berth_err *err)
{
    if (!op_cancelled(r->env))
        return BERTH_OK;
    return err_set(err, BERTH_ECANCELED, "convolution of %zu to %zu channels", r->ic, r->oc);
}

berth_status winograd_run(const struct gemm_level *l, const struct op_env *env,
                          const struct op_conv2d *a, berth_err *err)
{
    struct run r;
    plan(&r, l, env, a);
    r.v = env->scratch;
    r.u = r.v + r.tile_chunk * r.tile_floats;
    r.own = r.u + u_floats(&r);
    size_t workers = cpu_workers(env), want = workers > 1 ? TASKS_PER_WORKER * workers : 1;
    if (r.whole) {
        cpu_for(env, r.row_panels, filters_task, &r);
        cpu_for(env, r.tile_panels, whole_task, &r);
        return check_cancel(&r, err);
    }
    bool once = r.row_chunk >= r.row_panels; /* filters stay from chunk to chunk of tiles */
    berth_status s = BERTH_OK;
    for (; r.tile_at < r.tile_panels && !s; r.tile_at += r.now) {
        r.now = cpu_least(r.tile_chunk, r.tile_panels - r.tile_at);
        cpu_for(env, r.now, tiles_task, &r);
        for (r.row_at = 0; r.row_at < r.row_panels && !s; r.row_at += r.rows) {
            r.rows = cpu_least(r.row_chunk, r.row_panels - r.row_at);
            r.row_groups = cpu_over(r.rows, TASK_ROWS);
            if (r.row_groups * r.now < want)
                r.row_groups = cpu_least(r.rows, cpu_over(want, r.now));
            if (!once || r.tile_at == 0)
                cpu_for(env, r.rows, filters_task, &r);
            cpu_for(env, r.row_groups * r.now, product_task, &r);
            s = check_cancel(&r, err);
        }
    }
    return s;
}
