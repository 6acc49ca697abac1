/* patch_card: tensors merged on the device where their block lies.
 *
 * Base bytes travel as the file has them, and factors beside them; the device widens a band of rows
 * to float32, adds every product, and rounds. All of it is queued on the stream of the copies, so
 * one tensor is merged while the next is read. The arithmetic is the host's to the bit
 * (op_add_product()), so where a tensor is merged is nobody's business: what cannot be merged here
 * is merged on the host.
 *
 * Here     plain numbers and quants that become F32, F16 or BF16, with any number of low-rank
 *          products; on devices with kernels for it, and on those that run functions of the host
 *          in stream order (null), which then take the same road
 * Host     other kinds of terms; fp8, whose draws come one after the other; conversions while
 *          reading; a device without room for a band and the factors
 * Scratch  a band in float32, the factors, and, where the type changes, the band as stored. Bands
 *          are small enough to stay in a card's cache. */
#include "residency/patch_impl.h"

#include "base/sz.h"
#include "op/op.h"
#include "op/ops.h"

#define BAND ((size_t)16 << 20) /* bytes of a band in float32, but at least a row */
#define ALIGN ((size_t)256)

struct card {
    struct res_patching *x;
    const struct res_block *to;
    const struct job *j;
    enum dtype from, kept;
    size_t rows, cols, band; /* band: rows of one */
    size_t row_bytes;        /* as stored */
    uint64_t wide, raw;      /* scratch: the band in float32, and as stored */
    uint64_t factors;        /* scratch: those of all terms, each at a multiple of ALIGN */
    uint64_t result;         /* of the tensor, on the device */
};

static const struct res_term *term_of(const struct card *c, size_t i)
{
    return &c->j->merge.term[i];
}

static size_t aligned(size_t n)
{
    return (n + ALIGN - 1) / ALIGN * ALIGN;
}

static size_t up_bytes(const struct res_term *t)
{
    return (size_t)t->rows * t->rank * sizeof(float);
}

static size_t down_bytes(const struct res_term *t)
{
    return t->rank * (size_t)t->cols * sizeof(float);
}

/* ---- can it? ---- */

static bool has_kernels(const struct device *d)
{
    const struct op_backend *b = op_backend_for(d);
    return b && b->add_product;
}

/* Kernels are there, or the device runs ours. Asked once for each device. */
static bool device_can(struct res_patching *x, const struct device *d)
{
    berth_err why = { 0 };
    if (x->card == CARD_UNKNOWN && has_kernels(d)) {
        const struct op_env env = { .backend = op_backend_for(d), .stream = x->stream };
        x->card = op_open(&env, &why) ? CARD_CANNOT : CARD_MERGES;
        if (x->card == CARD_CANNOT)
            log_warn(x->m->res->log, "res.patch", "model=%s device=%s where=host why=\"%s\"",
                     x->m->owner, d->name, why.msg);
    }
    if (x->card == CARD_UNKNOWN)
        x->card = dev_can(d, BERTH_CAP_LAUNCH) ? CARD_MERGES : CARD_CANNOT;
    return x->card == CARD_MERGES;
}

static bool type_can(const struct device *d, enum dtype from, enum dtype kept)
{
    const uint64_t acts = has_kernels(d) ? op_acts(d) : OP_TYPE(DT_F16) | OP_TYPE(DT_BF16);
    return dtype_desc(from)->to_f32 && (kept == DT_F32 || (acts & OP_TYPE(kept)));
}

static bool terms_can(const struct merge *m, bool kernels)
{
    for (size_t i = 0; i < m->terms; i++)
        if (m->term[i].kind != TERM_LOWRANK || m->term[i].dora.size || !m->term[i].rank)
            return false;
    return m->terms && (kernels || 2 + 2 * m->terms <= DEV_LAUNCH_ACCESS_MAX);
}

static bool can(struct res_patching *x, const struct res_block *to, const struct job *j)
{
    const struct device *d = res_device(x->m->res, to->device);
    const struct merge_plain *from = &j->from, *kept = &j->to;
    const uint32_t elems = dtype_desc(from->type)->elems;
    return !res_host_ptr(to) && j->merge.from == &merge_plain && j->merge.to == &merge_plain &&
           from->stored == from->type && from->scale == 1 && kept->scale == 1 &&
           j->merge.cols % elems == 0 && type_can(d, from->type, kept->type) &&
           terms_can(&j->merge, has_kernels(d));
}

/* ---- scratch ---- */

/* *need: bytes; false: too many. */
static bool lay_out(struct card *c, size_t *need)
{
    const struct merge *m = &c->j->merge;
    uint64_t row;
    size_t at = 0, n;
    if (!sz_from_u64(m->rows, &c->rows) || !sz_from_u64(m->cols, &c->cols) ||
        !dtype_bytes(c->from, m->cols, &row) || !sz_from_u64(row, &c->row_bytes) ||
        !sz_mul(c->cols, sizeof(float), &n))
        return false;
    c->band = BAND / n ? BAND / n : 1;
    c->band = c->band < c->rows ? c->band : c->rows;
    at = aligned(c->band * n);
    c->raw = at;
    if (c->from != c->kept)
        at += aligned(c->band * c->row_bytes);
    c->factors = at;
    for (size_t i = 0; i < m->terms; i++)
        if (!sz_add(at, aligned(up_bytes(term_of(c, i))) + aligned(down_bytes(term_of(c, i))), &at))
            return false;
    *need = at;
    return true;
}

/* BERTH_ENODEVMEM: the device has no room. */
static berth_status want_scratch(struct res_patching *x, size_t device, size_t need, berth_err *err)
{
    struct device *d = res_device(x->m->res, device);
    struct dev_owner *o;
    if (x->scratch.n >= need)
        return BERTH_OK;
    if (patch_settle(x, err))
        return err->code;
    dev_free(&x->scratch);
    if (dev_owner_open(d, "patching", DEV_STAGING, &o, err))
        return err->code;
    berth_status s = dev_alloc(d, o, need, &x->scratch, err);
    dev_owner_close(o);
    return s;
}

/* Where factors of term i lie. */
static uint64_t up_at(const struct card *c, size_t i)
{
    uint64_t at = c->factors;
    for (size_t k = 0; k < i; k++)
        at += aligned(up_bytes(term_of(c, k))) + aligned(down_bytes(term_of(c, k)));
    return at;
}

static uint64_t down_at(const struct card *c, size_t i)
{
    return up_at(c, i) + aligned(up_bytes(term_of(c, i)));
}

static berth_status put_floats(struct card *c, const float *from, size_t bytes, uint64_t to,
                               berth_err *err)
{
    berth_status s = BERTH_OK;
    for (size_t at = 0, n; !s && at < bytes; at += n) {
        n = bytes - at < PATCH_BOUNCE ? bytes - at : PATCH_BOUNCE;
        s = patch_put(c->x, c->to,
                      &(struct part) { .raw = (const char *)from + at, .addr = to + at, .n = n },
                      err);
    }
    return s;
}

static berth_status put_factors(struct card *c, berth_err *err)
{
    for (size_t i = 0; i < c->j->merge.terms; i++) {
        const struct res_term *t = term_of(c, i);
        if (put_floats(c, t->up, up_bytes(t), up_at(c, i), err) ||
            put_floats(c, t->down, down_bytes(t), down_at(c, i), err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- a band ---- */

struct band { /* rows [row, row + rows) of the tensor */
    size_t row, rows;
    uint64_t base, result;
};

/* The rows of term t that are the band's: those of the term from *first on, of the band from
 * *at. */
static size_t rows_of(const struct res_term *t, const struct band *b, size_t *first, size_t *at)
{
    const uint64_t from = t->row > b->row ? t->row : b->row,
                   end = t->row + t->rows < b->row + b->rows ? t->row + t->rows : b->row + b->rows;
    *first = from < end ? (size_t)(from - t->row) : 0;
    *at = from < end ? (size_t)(from - b->row) : 0;
    return from < end ? (size_t)(end - from) : 0;
}

static berth_status matrix(enum dtype type, size_t rows, size_t cols, uint64_t at, struct view *out,
                           berth_err *err)
{
    const struct shape s = { 2, { rows, cols } };
    uint64_t bytes;
    if (!dtype_bytes(type, (uint64_t)rows * cols, &bytes))
        return err_set(err, BERTH_ELIMIT, "%zu x %zu weights", rows, cols);
    return view_init(type, &s, (void *)(uintptr_t)at, (size_t)bytes, out, err);
}

static berth_status copy(const struct op_env *env, const struct card *c, const struct band *b,
                         enum dtype from, uint64_t x, enum dtype to, uint64_t y, berth_err *err)
{
    struct op_copy a;
    return matrix(from, b->rows, c->cols, x, &a.x, err) ||
                   matrix(to, b->rows, c->cols, y, &a.y, err) || op_copy(env, &a, err)
               ? err->code
               : BERTH_OK;
}

static berth_status by_kernels(const struct card *c, const struct band *b, berth_err *err)
{
    const struct op_env env = { .backend = op_backend_for(res_device(c->x->m->res, c->to->device)),
                                .stream = c->x->stream,
                                .log = c->x->m->res->log };
    const bool wide = c->kept == DT_F32 && c->from == DT_F32; /* where it lies */
    const uint64_t w = wide ? b->result : c->wide;
    if (!wide && copy(&env, c, b, c->from, b->base, DT_F32, w, err))
        return err->code;
    for (size_t i = 0; i < c->j->merge.terms; i++) {
        const struct res_term *t = term_of(c, i);
        struct op_add_product a = { .scale = t->scale };
        size_t first, at, n = rows_of(t, b, &first, &at);
        if (n && (matrix(DT_F32, n, c->cols, w + at * c->cols * sizeof(float), &a.w, err) ||
                  matrix(DT_F32, n, t->rank, up_at(c, i) + first * t->rank * sizeof(float), &a.up,
                         err) ||
                  matrix(DT_F32, t->rank, c->cols, down_at(c, i), &a.down, err) ||
                  op_add_product(&env, &a, err)))
            return err->code;
    }
    return wide ? BERTH_OK : copy(&env, c, b, DT_F32, w, c->kept, b->result, err);
}

/* A band for a device that runs functions of the host: all that it needs, by value. */
struct launched {
    enum dtype from, kept;
    struct band b;
    size_t cols, terms;
    struct res_term term[DEV_LAUNCH_ACCESS_MAX / 2];
    float row[]; /* cols */
};

/* ptr: base, result, then up and down of each term. */
static void run_launched(void *user, void *const *ptr)
{
    struct launched *l = user;
    const struct dtype_desc *from = dtype_desc(l->from), *kept = dtype_desc(l->kept);
    for (size_t r = 0; r < l->b.rows; r++) {
        const struct band one = { .row = l->b.row + r, .rows = 1 };
        from->to_f32((const char *)ptr[0] + r * (l->cols / from->elems * from->bytes), l->row,
                     l->cols);
        for (size_t i = 0; i < l->terms; i++) {
            const struct res_term *t = &l->term[i];
            size_t first, at;
            if (rows_of(t, &one, &first, &at))
                op_lowrank_tile(
                    &(struct op_lowrank) { .w = l->row,
                                           .rows = 1,
                                           .cols = l->cols,
                                           .ld_w = l->cols,
                                           .up = (const float *)ptr[2 + 2 * i] + first * t->rank,
                                           .down = ptr[3 + 2 * i],
                                           .rank = t->rank,
                                           .ld_up = t->rank,
                                           .ld_down = l->cols,
                                           .scale = t->scale });
        }
        kept->from_f32(l->row, (char *)ptr[1] + r * l->cols * kept->bytes, l->cols);
    }
    free(l);
}

static berth_status by_launch(const struct card *c, const struct band *b, berth_err *err)
{
    const struct merge *m = &c->j->merge;
    struct dev_access access[DEV_LAUNCH_ACCESS_MAX];
    struct launched *l = malloc(sizeof *l + c->cols * sizeof *l->row);
    if (!l)
        return err_set(err, BERTH_ENOMEM, "a row of %zu weights", c->cols);
    *l = (struct launched) {
        .from = c->from, .kept = c->kept, .b = *b, .cols = c->cols, .terms = m->terms
    };
    memcpy(l->term, m->term, m->terms * sizeof *l->term);
    const bool in_place = b->base == b->result;
    access[0] = (struct dev_access) { b->base, b->rows * c->row_bytes,
                                      in_place ? DEV_READ | DEV_WRITE : DEV_READ };
    access[1] = (struct dev_access) { b->result, b->rows * c->cols * dtype_desc(c->kept)->bytes,
                                      DEV_WRITE };
    for (size_t i = 0; i < m->terms; i++) {
        access[2 + 2 * i] = (struct dev_access) { up_at(c, i), up_bytes(term_of(c, i)), DEV_READ };
        access[3 + 2 * i] =
            (struct dev_access) { down_at(c, i), down_bytes(term_of(c, i)), DEV_READ };
    }
    if (dev_launch(c->x->stream, run_launched, l, access, 2 + 2 * m->terms, err)) {
        free(l);
        return err->code;
    }
    return BERTH_OK;
}

static berth_status merge_band(const struct card *c, const struct band *b, berth_err *err)
{
    return has_kernels(res_device(c->x->m->res, c->to->device)) ? by_kernels(c, b, err)
                                                                : by_launch(c, b, err);
}

/* ---- the tensor ---- */

/* The base lies where the result will. */
static berth_status in_place(struct card *c, const struct weights_entry *e, uint64_t off,
                             berth_err *err)
{
    berth_status s =
        patch_put_entry(c->x, c->to, e, 0, e->size, &(struct part) { .off = off }, err);
    for (size_t row = 0; !s && row < c->rows; row += c->band) {
        const uint64_t at = c->result + (uint64_t)row * c->row_bytes;
        const size_t left = c->rows - row;
        s = merge_band(c, &(struct band) { row, left < c->band ? left : c->band, at, at }, err);
    }
    return s;
}

/* Band by band, through a place of its own. */
static berth_status into_another_type(struct card *c, const struct weights_entry *e, berth_err *err)
{
    const size_t kept = c->cols * dtype_desc(c->kept)->bytes;
    berth_status s = BERTH_OK;
    for (size_t row = 0; !s && row < c->rows; row += c->band) {
        const size_t left = c->rows - row, n = left < c->band ? left : c->band;
        s = patch_put_entry(c->x, c->to, e, (uint64_t)row * c->row_bytes, n * c->row_bytes,
                            &(struct part) { .addr = c->raw }, err);
        if (!s)
            s = merge_band(c, &(struct band) { row, n, c->raw, c->result + (uint64_t)row * kept },
                           err);
    }
    return s;
}

berth_status patch_on_card(struct res_patching *x, const struct res_block *to,
                           const struct weights_entry *e, const struct res_tensor_at *at,
                           const struct job *j, bool *done, berth_err *err)
{
    struct card c = { .x = x, .to = to, .j = j, .from = j->from.type, .kept = j->to.type };
    size_t need;
    *done = false;
    if (!can(x, to, j) || !lay_out(&c, &need))
        return BERTH_OK;
    if (patch_stage(x, to->device, e->size < PATCH_BOUNCE ? (size_t)e->size : PATCH_BOUNCE, err))
        return err->code;
    if (!device_can(x, res_device(x->m->res, to->device)))
        return BERTH_OK;
    berth_status s = want_scratch(x, to->device, need, err);
    if (s == BERTH_ENODEVMEM) {
        log_info(x->m->res->log, "res.patch", "model=%s tensor=%s where=host why=\"%s\"",
                 x->m->owner, e->name, err->msg);
        *err = (berth_err) { 0 };
        return BERTH_OK;
    }
    c.wide = x->scratch.addr;
    c.raw += x->scratch.addr;
    c.factors += x->scratch.addr;
    c.result = to->mem.addr + at->off;
    *done = true;
    if (!s)
        s = put_factors(&c, err);
    if (!s)
        s = c.from == c.kept ? in_place(&c, e, at->off, err) : into_another_type(&c, e, err);
    return s;
}
