/* patch: which adapters touch a block, and a block derived again from its base weights.
 *
 * Flow     res_patch_block() -> memory -> for every tensor: bytes of the file as they are, or terms
 *          of the adapters -> merged on the host -> the block's memory, wherever that is
 *          -> the new memory takes the old one's place.
 * Memory   A RESIDENT block is derived into new memory on the device it is on, and the old one goes
 *          when the new one is complete: whatever fails, the block stays as it was. While a model
 *          is LOADING its memory holds nothing yet and is filled in place.
 * Where    On the host, over the pool: from the file's mapping straight into the home, or into a
 *          buffer of the stage (stream/stage.h) that travels while the next one is filled.
 * Types    Floats stay what they are; but 16-bit ones of a diffusion model that computes on the cpu
 *          become F32, see stays_exact(); fp8 is rounded by chance, seeded by the tensor's key; an
 *          fp8 weight with a scale beside it gets a new scale, and its codes are chosen for the
 *          scale as it is stored; quantised tensors become F16. High precision: fp8 becomes F16 too
 *          (BF16 where a value might be beyond it), and its scale stays. Weights that are converted
 *          as they are read (res_open_args.dtype) are rounded first: what is patched is what the
 *          block has without adapters.
 * Counted  read: bytes of the base, as the block holds it. moved: weights that crossed between host
 *          and devices, base or result; factors are not counted. */
#include "merge/merge.h"
#include "plan/convert.h"
#include "residency/residency_impl.h"

#include "base/hash.h"
#include "base/sz.h"
#include "format/layout.h"
#include "format/places.h"

#include <float.h>
#include <inttypes.h>
#include <math.h>

#define F16_MOST 65504.0
#define BOUNCE ((size_t)8 << 20) /* read from the file at a time */
#define NO_TENSOR UINT32_MAX

/* ---- who touches what ---- */

/* Files of no family we know are taken for diffusion models: what adapters are mostly for. */
static size_t guess_key(const struct res_model *m, const struct weights_entry *e,
                        char out[RES_KEY_MAX])
{
    const char *root = m->part ? m->part : "";
    for (const char *const *lead = place_leads("unet"); *lead; lead++)
        if (str_ends(*lead, strlen(*lead), "diffusion_model.") && /* others may be its own words */
            str_starts(e->name, e->name_len, *lead)) {
            root = *lead;
            break;
        }
    size_t skip = str_starts(e->name, e->name_len, root) ? strlen(root) : 0;
    return (size_t)snprintf(out, RES_KEY_MAX, "diffusion_model.%s", e->name + skip);
}

size_t res_tensor_key(const struct res_model *m, const struct weights_entry *e,
                      char out[RES_KEY_MAX])
{
    size_t n = 0;
    for (size_t i = 0; i < m->aliases && !n; i++)
        if (str_starts(e->name, e->name_len, m->alias[i].root))
            n = (size_t)snprintf(out, RES_KEY_MAX, "%s%s", m->alias[i].known,
                                 e->name + strlen(m->alias[i].root));
    if (!n)
        n = m->aliases ? (size_t)snprintf(out, RES_KEY_MAX, "%s", e->name) : guess_key(m, e, out);
    return n < RES_KEY_MAX ? n : RES_KEY_MAX - 1;
}

static bool patch_on(const struct res_patch *p, const char *key, size_t n)
{
    return p->strength != 0 && p->adapter->ops->touches(p->adapter, key, n);
}

static bool touched(const struct res_model *m, const struct weights_entry *e)
{
    char key[RES_KEY_MAX];
    size_t n = m->patches.n ? res_tensor_key(m, e, key) : 0;
    for (size_t i = 0; n && i < m->patches.n; i++)
        if (patch_on(vec_at(&m->patches, i), key, n))
            return true;
    return false;
}

static const struct weights_entry *entry_of(const struct res_model *m, size_t block, uint32_t k)
{
    return m->blocks.tensor[m->blocks.at[block].first + k].entry;
}

/* Does it touch any tensor of the block? */
static bool patch_on_block(const struct res_model *m, const struct res_patch *p, size_t block)
{
    char key[RES_KEY_MAX];
    for (uint32_t k = 0; k < m->blocks.at[block].n; k++)
        if (patch_on(p, key, res_tensor_key(m, entry_of(m, block, k), key)))
            return true;
    return false;
}

/* ---- what they make of a block ---- */

/* Where the cpu computes ComfyUI holds diffusion models as F32, so it never rounds what it merged
 * to 16 bits; text encoders it holds, and rounds to, F16 everywhere. */
static bool stays_exact(const struct res_model *m, const struct weights_entry *e)
{
    char key[RES_KEY_MAX];
    return dev_can(res_device(m->res, m->compute), BERTH_CAP_HOST_VISIBLE) &&
           merge_widens(e->dtype, DT_F32) &&
           str_starts(key, res_tensor_key(m, e, key), "diffusion_model.");
}

/* What the tensors of a block that widen become when the patch set is merged in; DT_NONE: stay. */
static enum dtype patched_type(const struct res_model *m, size_t block)
{
    enum dtype type = DT_NONE;
    for (uint32_t k = 0; k < m->blocks.at[block].n; k++) {
        const struct weights_entry *e = entry_of(m, block, k);
        if (!touched(m, e))
            continue;
        if (merge_widens(e->dtype, DT_F16))
            return dtype_is_quant(e->dtype) || m->high_precision ? DT_F16 : DT_NONE;
        if (stays_exact(m, e))
            type = DT_F32;
    }
    return type;
}

uint64_t res_patched_span(const struct res_model *m, size_t block)
{
    uint64_t bytes, span;
    return res_block_layout(m, block, patched_type(m, block), &bytes, &span) ? span : UINT64_MAX;
}

static uint64_t signature_add(uint64_t sum, uint64_t what, uint64_t how)
{
    const uint64_t link[3] = { sum, what, how };
    sum = hash_xxh64(link, sizeof link, 0);
    return sum + !sum; /* 0 is kept for "untouched" */
}

uint64_t res_patch_signature(const struct res_model *m, size_t block)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->patches.n; i++) {
        const struct res_patch *p = vec_at(&m->patches, i);
        uint32_t bits;
        if (!patch_on_block(m, p, block))
            continue;
        memcpy(&bits, &p->strength, sizeof bits);
        sum = signature_add(sum, p->adapter->id, bits);
    }
    /* A plan with another compute device may make something else of the same adapters. */
    return sum && patched_type(m, block) == DT_F32 ? signature_add(sum, DT_F32, 0) : sum;
}

/* ---- one block being derived ---- */

struct derive {
    struct res_model *m;
    struct residency *r;
    size_t block;
    struct res_patching *p;
    struct res_block *to;  /* the memory that is filled, booked nowhere yet or of a LOADING model */
    enum dtype patched;    /* what tensors that widen become (merge_widens()); DT_NONE: stay */
    uint32_t scale_tensor; /* scale of an fp8 weight that is merged, or NO_TENSOR */
    float scale;           /* its new value; never 0 once it is chosen */
};

/* ---- terms ---- */

struct job { /* one tensor to merge */
    struct merge merge;
    struct arena tmp; /* factors, draws */
    struct vec terms; /* struct res_term */
    bool rescale;     /* look for the largest value first and choose the scale by it */
    enum dtype scale; /* how that one is stored */
    struct tpool *pool;
};

static void job_release(struct job *j)
{
    arena_release(&j->tmp);
    vec_release(&j->terms);
}

/* rows of `cols` numbers as rows of `wide`, zeros behind them. */
static const float *padded(const float *x, uint64_t rows, uint64_t cols, uint64_t wide,
                           struct arena *mem)
{
    size_t n;
    float *to = sz_mul((size_t)rows, (size_t)wide, &n) ? arena_array(mem, n, sizeof *to) : NULL;
    for (size_t r = 0; to && r < (size_t)rows; r++) {
        memcpy(to + r * wide, x + r * cols, (size_t)cols * sizeof *to);
        memset(to + r * wide + cols, 0, (size_t)(wide - cols) * sizeof *to);
    }
    return to;
}

/* A change of the columns that the file has, for a matrix that was opened wider. */
static berth_status widen_term(struct res_term *t, uint64_t wide, struct arena *mem, berth_err *err)
{
    const bool pair = t->kind == TERM_LOWRANK, dense = t->kind == TERM_ADD;
    if (t->dora.size || !(pair || dense || t->kind == TERM_SCALE))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "of its kind only LoRAs can be merged together with one that makes the "
                       "layer wider");
    if (pair)
        t->down = padded(t->down, t->rank, t->cols, wide, mem);
    if (dense)
        t->dense = padded(t->dense, t->rows, t->cols, wide, mem);
    t->cols = wide;
    return (pair && !t->down) || (dense && !t->dense)
               ? err_set(err, BERTH_ENOMEM, "a change of %" PRIu64 " columns", wide)
               : BERTH_OK;
}

/* The terms of one adapter. Of a matrix that is wider than in its file, an adapter in front of the
 * one that wanted it so may be for the file's columns; behind it, it is left out, as in ComfyUI. */
static berth_status terms_of(const struct derive *d, const struct res_patch *p, const char *key,
                             size_t n, const struct weights_entry *e, bool *widened, struct job *j,
                             berth_err *err)
{
    const struct res_adapter_ops *ops = p->adapter->ops;
    struct shape narrow = e->shape;
    size_t first = j->terms.n;
    berth_status s =
        ops->terms(p->adapter, key, n, &e->shape, p->strength, &j->tmp, &j->terms, err);
    *widened |= !s && j->terms.n > first;
    if (s != BERTH_EFORMAT || !e->copy)
        return s;
    j->terms.n = first;
    if (*widened) {
        log_warn(d->r->log, "res.patch",
                 "model=%s adapter=\"%s\" tensor=%s why=\"it is for fewer columns than an adapter "
                 "before it made of this: left out\"",
                 d->m->owner, p->adapter->name, e->name);
        return BERTH_OK;
    }
    narrow.dim[1] = e->narrow;
    s = ops->terms(p->adapter, key, n, &narrow, p->strength, &j->tmp, &j->terms, err);
    for (size_t k = first; !s && k < j->terms.n; k++)
        s = widen_term(vec_at(&j->terms, k), e->shape.dim[1], &j->tmp, err);
    return s;
}

static berth_status collect_terms(const struct derive *d, const struct weights_entry *e,
                                  struct job *j, berth_err *err)
{
    bool widened = false;
    char key[RES_KEY_MAX];
    size_t n = res_tensor_key(d->m, e, key);
    j->merge.seed = crc32_of(0, key, n); /* ComfyUI's */
    for (size_t i = 0; i < d->m->patches.n; i++) {
        const struct res_patch *p = vec_at(&d->m->patches, i);
        size_t first = j->terms.n;
        if (!patch_on(p, key, n))
            continue;
        berth_status s = terms_of(d, p, key, n, e, &widened, j, err);
        for (size_t k = first; !s && k < j->terms.n; k++)
            if (!(s = term_check(vec_at(&j->terms, k), j->merge.rows, j->merge.cols, err)) &&
                !term_scratch(vec_at(&j->terms, k), &j->tmp))
                s = err_set(err, BERTH_ENOMEM, "norms of %" PRIu64 " x %" PRIu64 " weights",
                            j->merge.rows, j->merge.cols);
        if (s)
            return err_add(err, "adapter %.60s", p->adapter->name);
    }
    return BERTH_OK;
}

/* The scalar beside an fp8 weight that its codes are multiplied by. */
static uint32_t scale_of(const struct derive *d)
{
    for (uint32_t k = 0; k < d->m->blocks.at[d->block].n; k++) {
        const struct weights_entry *e = entry_of(d->m, d->block, k);
        if (is_scale(e->name, e->name_len))
            return k;
    }
    return NO_TENSOR;
}

static berth_status read_scale(const struct derive *d, float *out, berth_err *err)
{
    const struct weights_entry *e = entry_of(d->m, d->block, d->scale_tensor);
    uint8_t raw[8];
    uint64_t n;
    if (!shape_count(&e->shape, &n) || n != 1 || e->size > sizeof raw || !merge_stores(e->dtype))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.80s' is no single number: patching weights with such scales is not "
                       "supported",
                       e->name);
    if (weights_read(d->m->weights, e, 0, raw, (size_t)e->size, err))
        return err->code;
    dtype_desc(e->dtype)->to_f32(raw, out, 1);
    if (!isfinite(*out))
        return err_set(err, BERTH_EFORMAT, "'%.80s' is %f", e->name, (double)*out);
    return BERTH_OK;
}

/* Is this the fp8 weight that the block's scale belongs to? */
static bool is_scaled(const struct derive *d, const struct weights_entry *e)
{
    return d->scale_tensor != NO_TENSOR && merge_by_chance(e->dtype) &&
           str_ends(e->name, e->name_len, ".weight");
}

static berth_status job_init(struct derive *d, const struct weights_entry *e, enum dtype to,
                             struct job *j, berth_err *err)
{
    *j = (struct job) { .merge = { .from = e->dtype, .to = to, .src_scale = 1, .dst_scale = 1 },
                        .terms = { .elem = sizeof(struct res_term) },
                        .pool = d->r->pool };
    struct merge *m = &j->merge;
    if (e->layout && !layout_is_plain(e->layout))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "adapters cannot be merged into weights stored as %s yet",
                       e->layout->kind->format);
    if (!merge_stores(m->to) || !dtype_desc(m->from)->to_f32)
        return err_set(err, BERTH_EUNSUPPORTED, "weights of type %s cannot be patched",
                       dtype_name(m->from));
    if (!merge_matrix(&e->shape, &m->rows, &m->cols))
        return err_set(err, BERTH_EFORMAT, "its shape does not fit");
    if (collect_terms(d, e, j, err))
        return err->code;
    if (is_scaled(d, e)) {
        if (read_scale(d, &m->src_scale, err))
            return err->code;
        j->rescale = true;
        j->scale = entry_of(d->m, d->block, d->scale_tensor)->dtype;
    }
    m->term = j->terms.p;
    m->terms = j->terms.n;
    uint64_t chances = merge_chances(m);
    if (chances && !(m->chance = arena_array(&j->tmp, (size_t)chances, sizeof *m->chance)))
        return err_set(err, BERTH_ENOMEM, "%" PRIu64 " random numbers", chances);
    return BERTH_OK;
}

static float through(enum dtype t, float x)
{
    uint8_t raw[8];
    dtype_desc(t)->from_f32(&x, raw, 1);
    dtype_desc(t)->to_f32(raw, &x, 1);
    return x;
}

/* The scale that spreads values up to amax over all codes of an fp8 type, as type `stored` has it:
 * codes chosen for any other number would all be off by its rounding. Never 0 and never infinite.
 * */
static float choose_scale(float amax, enum dtype fp8, enum dtype stored)
{
    float scale = (amax < FLT_MAX ? amax : FLT_MAX) / merge_fp8_most(fp8);
    if (!(amax > 0))
        return 1;
    while (!isfinite(through(stored, scale)))
        scale /= 2;
    while (through(stored, scale) == 0)
        scale = scale > 0 ? scale * 2 : FLT_MIN;
    return through(stored, scale);
}

static void job_run(struct job *j)
{
    struct merge *m = &j->merge;
    merge_norms(m, j->pool);
    if (j->rescale && merge_by_chance(m->to))
        m->dst_scale = choose_scale(merge_amax(m, j->pool), m->to, j->scale);
    else if (j->rescale)
        m->dst_scale = m->src_scale != 0 ? m->src_scale : 1;
    merge_run(m, j->pool);
}

/* ---- parts of a block on their way to its memory ---- */

/* A merged tensor, or else bytes of the file, or of memory. */
struct part {
    struct job *job;
    const struct weights_entry *entry;
    uint64_t from; /* of the entry */
    const void *raw;
    uint64_t off; /* in the block's memory */
    size_t n;
};

static berth_status make_part(const struct res_patching *x, char *to, berth_err *err)
{
    const struct part *t = x->part;
    if (t->entry)
        return weights_read(x->m->weights, t->entry, t->from, to, t->n, err);
    if (t->raw) {
        memcpy(to, t->raw, t->n);
    } else {
        t->job->merge.dst = to;
        job_run(t->job);
    }
    return BERTH_OK;
}

static void fill_part(void *user, unsigned buf, size_t piece)
{
    struct res_patching *x = user;
    (void)piece; /* there is one */
    x->filled = make_part(x, stage_at(&x->stage, buf), x->err);
}

static berth_status send_part(void *user, unsigned buf, berth_err *err)
{
    struct res_patching *x = user;
    const struct part *t = x->part;
    if (x->filled)
        return x->filled; /* err is set */
    if (dev_copy_h2d(x->stream, x->to->mem.addr + t->off, stage_at(&x->stage, buf), t->n, err) ||
        stage_mark(&x->stage, buf, x->stream, err))
        return err->code;
    x->got->moved += t->raw ? 0 : t->n; /* a scale is no weight */
    return BERTH_OK;
}

/* Waits for the copies that are on their way. */
static berth_status settle(struct res_patching *x, berth_err *err)
{
    berth_status s = x->stream ? dev_stream_sync(x->stream, err) : BERTH_OK;
    if (s)
        res_stream_settle(x->m->res, x->device);
    return s;
}

static void close_stage(struct res_patching *x)
{
    stage_close(&x->stage);
    x->stream = NULL;
}

/* Two buffers, so that one is filled while the other travels; one where the host has no room for
 * more, and others leave the host for that where they must. */
static berth_status open_stage(struct res_patching *x, size_t n, berth_err *err)
{
    static const struct stage_ops ops = { .fill = fill_part, .send = send_part };
    struct residency *r = x->m->res;
    const struct res_need need = { r->host, n, x->m, x->args->evict_keep };
    struct stage_args a = {
        .dev = res_device(r, x->device), .bytes = n, .bufs = 2, .ops = &ops, .user = x
    };
    if (res_stream_of(r, x->device, &x->stream, err) ||
        dev_owner_open(a.dev, "patching", DEV_PINNED, &a.owner, err))
        return err->code;
    berth_status s = stage_open(&x->stage, &a, err);
    for (bool evicted = true; s == BERTH_ENODEVMEM && evicted;
         evicted = s == BERTH_ENODEVMEM && r->host < r->n_devices && res_evict(r, &need)) {
        stage_close(&x->stage);
        a.bufs = 1;
        s = stage_open(&x->stage, &a, err);
    }
    dev_owner_close(a.owner);
    if (s)
        close_stage(x);
    return s;
}

/* Straight into memory that the host sees, else through the stage. */
static berth_status put_part(struct derive *d, const struct part *t, berth_err *err)
{
    struct res_patching *x = d->p;
    struct device *dev = res_device(d->r, d->to->device);
    char *dst = res_host_ptr(d->to);
    unsigned buf;
    x->part = t;
    if (dst) {
        dev_host_access(dev, dst + t->off, t->n, DEV_WRITE);
        return make_part(x, dst + t->off, err);
    }
    if (x->stream && (x->device != d->to->device || x->stage.args.bytes < t->n)) {
        if (settle(x, err))
            return err->code;
        close_stage(x);
    }
    x->device = d->to->device;
    x->to = d->to;
    x->err = err;
    if ((!x->stream && open_stage(x, t->n, err)) || stage_take(&x->stage, true, &buf, err))
        return err->code;
    dev_host_access(dev, stage_at(&x->stage, buf), t->n, DEV_WRITE);
    stage_post(&x->stage, 1);
    return stage_drain(&x->stage, err);
}

static berth_status take_as_is(struct derive *d, const struct weights_entry *e,
                               const struct res_tensor_at *at, berth_err *err)
{
    struct part t = { .entry = e };
    berth_status s = BERTH_OK;
    for (; !s && t.from < at->bytes; t.from += t.n) {
        t.off = at->off + t.from;
        t.n = at->bytes - t.from < BOUNCE ? (size_t)(at->bytes - t.from) : BOUNCE;
        s = put_part(d, &t, err);
    }
    return s;
}

/* The base where the file has it. */
static void take_source(const struct derive *d, const struct weights_entry *e, struct merge *m)
{
    m->src = weights_stored(d->m->weights, e);
    m->stored = e->stored;
    m->converted = e->stored != e->dtype;
}

static berth_status merge_tensor(struct derive *d, const struct weights_entry *e,
                                 const struct res_tensor_at *at, berth_err *err)
{
    struct job j;
    size_t n = 0;
    berth_status s = job_init(d, e, at->dtype, &j, err);
    if (!s && !sz_from_u64(at->bytes, &n))
        s = err_set(err, BERTH_ELIMIT, "%" PRIu64 " bytes", at->bytes);
    take_source(d, e, &j.merge);
    if (!s && n)
        s = put_part(d, &(struct part) { .job = &j, .off = at->off, .n = n }, err);
    if (!s && j.rescale)
        d->scale = j.merge.dst_scale;
    job_release(&j);
    return s;
}

/* ---- the block ---- */

static berth_status write_scale(struct derive *d, berth_err *err)
{
    uint8_t raw[8];
    const struct res_tensor_at at = res_tensor_as(d->m, d->block, d->scale_tensor, d->patched);
    dtype_desc(at.dtype)->from_f32(&d->scale, raw, 1);
    return put_part(d, &(struct part) { .raw = raw, .off = at.off, .n = (size_t)at.bytes }, err);
}

static berth_status fill_tensor(struct derive *d, uint32_t k, berth_err *err)
{
    const struct weights_entry *e = entry_of(d->m, d->block, k);
    const struct res_tensor_at at = res_tensor_as(d->m, d->block, k, d->patched);
    d->p->got->read += e->size;
    if (k == d->scale_tensor)
        return BERTH_OK; /* known when its weight is done */
    return touched(d->m, e) || at.dtype != e->dtype ? merge_tensor(d, e, &at, err)
                                                    : take_as_is(d, e, &at, err);
}

static berth_status fill(struct derive *d, berth_err *err)
{
    for (uint32_t k = 0; k < d->m->blocks.at[d->block].n; k++) {
        if (res_canceled(d->p->args))
            return err_set(err, BERTH_ECANCELED, "stopped while patching");
        if (fill_tensor(d, k, err))
            return err_add(err, "tensor '%.100s'", entry_of(d->m, d->block, k)->name);
    }
    if (d->scale_tensor != NO_TENSOR && write_scale(d, err))
        return err_add(err, "tensor '%.100s'", entry_of(d->m, d->block, d->scale_tensor)->name);
    return weights_check(d->m->weights, err);
}

bool res_scale_at(const struct res_model *m, size_t block, float *out)
{
    *out = m->block[block].scale;
    return *out != 0;
}

/* The largest |value| of the merged tensor; j has the terms and the shape. */
static float largest_of(struct derive *d, const struct weights_entry *e, struct job *j, float scale)
{
    struct merge *m = &j->merge;
    m->from = e->dtype;
    take_source(d, e, m);
    m->src_scale = scale;
    m->term = j->terms.p;
    m->terms = j->terms.n;
    merge_norms(m, d->r->pool);
    return merge_amax(m, d->r->pool);
}

/* No stored value of the merged fp8 tensor is larger than this. */
static berth_status bound_of(struct derive *d, const struct weights_entry *e, double *out,
                             berth_err *err)
{
    struct job j = { .terms = { .elem = sizeof(struct res_term) } };
    float scale = 1;
    berth_status s = BERTH_OK;
    if (!merge_matrix(&e->shape, &j.merge.rows, &j.merge.cols))
        s = err_set(err, BERTH_EFORMAT, "its shape does not fit");
    if (!s)
        s = collect_terms(d, e, &j, err);
    if (!s && is_scaled(d, e))
        s = read_scale(d, &scale, err);
    double most = (double)merge_fp8_most(e->dtype) * fabs((double)scale);
    bool resized = false;
    for (size_t i = 0; !s && i < j.terms.n; i++) {
        const struct res_term *t = vec_at(&j.terms, i);
        resized = resized || t->dora.size || !isfinite(term_bound(t));
        most += term_bound(t);
    }
    if (!s && resized) /* no bound but the weights themselves */
        most = (double)largest_of(d, e, &j, scale);
    job_release(&j);
    *out = scale != 0 ? most / fabs((double)scale) : most;
    return s;
}

/* What the block will be stored as, and whether a scale has to follow its weight. */
static berth_status decide(struct derive *d, berth_err *err)
{
    berth_status s = BERTH_OK;
    d->patched = patched_type(d->m, d->block);
    for (uint32_t k = 0; !s && k < d->m->blocks.at[d->block].n; k++) {
        const struct weights_entry *e = entry_of(d->m, d->block, k);
        double most = 0;
        if (!merge_by_chance(e->dtype) || !touched(d->m, e))
            continue;
        if (str_ends(e->name, e->name_len, ".weight"))
            d->scale_tensor = scale_of(d);
        if (d->patched != DT_NONE && (s = bound_of(d, e, &most, err)))
            err_add(err, "tensor '%.100s'", e->name);
        else if (!(most <= F16_MOST))
            d->patched = DT_BF16; /* as large in memory */
    }
    return s;
}

berth_status res_patch_block(struct res_patching *x, size_t block, berth_err *err)
{
    struct res_model *m = x->m;
    struct derive d = {
        .m = m, .r = m->res, .block = block, .p = x, .patched = DT_NONE, .scale_tensor = NO_TENSOR
    };
    struct res_block *now = &m->block[block], fresh;
    uint64_t bytes, span;
    if (decide(&d, err))
        return err->code;
    if (!res_block_layout(m, block, d.patched, &bytes, &span))
        return err_set(err, BERTH_ELIMIT, "too large as %s", dtype_name(d.patched));
    const struct res_place at = { now->device, span };
    bool loading = m->state == RES_LOADING, in_place = loading && now->patched == d.patched;
    if (!in_place && res_evict_for_block(m, block, &at, x->args->evict_keep, &fresh, err))
        return err->code;
    d.to = in_place ? now : &fresh;
    x->last = block;
    berth_status s = fill(&d, err);
    if (!s && !loading) /* the old memory goes: the new one has to be complete */
        s = settle(x, err);
    if (s) {
        if (x->stream)
            res_stream_settle(m->res, x->device);
        if (!in_place)
            res_block_give(&fresh);
        return s;
    }
    uint64_t patch = res_patch_signature(m, block);
    if (in_place) {
        now->patch = patch;
        now->scale = d.scale;
        return BERTH_OK;
    }
    fresh.bytes = bytes;
    fresh.span = span;
    fresh.patched = d.patched;
    fresh.patch = patch;
    fresh.scale = d.scale;
    res_block_drop(m, block);
    res_block_put(m, block, &fresh);
    return BERTH_OK;
}

berth_status res_patch_end(struct res_patching *x, berth_err *err)
{
    berth_status s = settle(x, err);
    if (s)
        res_block_err(x->m, x->last, x->device, err);
    close_stage(x);
    return s;
}

/* ---- the patch set ---- */

/* Takes `next` in the place of what there was, references and all. */
void res_take_patches(struct res_model *m, const struct vec *next)
{
    for (size_t i = 0; i < m->patches.n; i++)
        res_adapter_unref(((struct res_patch *)vec_at(&m->patches, i))->adapter);
    vec_release(&m->patches);
    m->patches = *next;
    m->patches_changed = true;
}

berth_status res_set_patches(struct res_model *m, const struct res_patch *patch, size_t n,
                             berth_err *err)
{
    struct vec next = { .elem = sizeof(struct res_patch) };
    if (res_model_busy(m))
        return err_set(err, BERTH_EBUSY, "model %s is in use: its patches stay", m->owner);
    if (n && !vec_reserve(&next, n))
        return err_set(err, BERTH_ENOMEM, "%zu patches of model %s", n, m->owner);
    for (size_t i = 0; i < n; i++) {
        *(struct res_patch *)vec_add(&next) = patch[i];
        res_adapter_ref(patch[i].adapter);
    }
    res_take_patches(m, &next);
    res_check_now(m->res);
    return BERTH_OK;
}
