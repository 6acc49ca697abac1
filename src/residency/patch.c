/* patch: which adapters touch a block, and a block derived again from its base weights.
 *
 * Flow     res_patch_block() -> memory -> for every tensor: bytes of the file as they are, or terms
 *          of the adapters -> merged -> the block's memory, wherever that is -> the new memory
 *          takes the old one's place.
 * Memory   A RESIDENT block is derived into new memory on the device it is on, and the old one goes
 *          when the new one is complete: whatever fails, the block stays as it was. While a model
 *          is LOADING its memory holds nothing yet and is filled in place.
 * Where    On the device that the block lies on, where it can (patch_card.c). Else on the host,
 *          over the pool: from the file's mapping straight into the home, or into a buffer of the
 *          stage (stream/stage.h) that travels while the next one is filled. The bits are the same.
 * Types    Floats stay what they are; but 16-bit ones of a diffusion model that computes on the cpu
 *          become F32, see stays_exact(); fp8 is rounded by chance, seeded by the tensor's key; an
 *          fp8 weight with a scale beside it gets a new scale, and its codes are chosen for the
 *          scale as it is stored; quantised tensors become F16, GGUF's as those in layouts of
 *          codes.
 *          High precision: fp8 becomes F16 too (BF16 where a value might be beyond it), and its
 *          scale stays. Weights that are converted as they are read (res_open_args.dtype) are
 *          rounded first: what is patched is what the block has without adapters.
 * Counted  read: bytes of the base, as the block holds it. moved: weights that crossed between host
 *          and devices, base or result; factors are not counted.
 * Files    patch.c what is merged; patch_card.c merging on a device; patch_send.c bytes on their
 *          way to the block; patch_impl.h. */
#include "plan/convert.h"
#include "residency/patch_impl.h"

#include "base/hash.h"
#include "base/sz.h"
#include "format/places.h"

#include <inttypes.h>
#include <math.h>

#define F16_MOST 65504.0
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

/* On the cpu ComfyUI holds diffusion models as F32, so it never rounds merged weights to 16 bits.
 * Text encoders it holds as F16, and rounds to that, everywhere. */
static bool stays_exact(const struct res_model *m, const struct weights_entry *e)
{
    char key[RES_KEY_MAX];
    return dev_can(res_device(m->res, m->compute), BERTH_CAP_HOST_VISIBLE) &&
           merge_widens(e->dtype, DT_F32) &&
           str_starts(key, res_tensor_key(m, e, key), "diffusion_model.");
}

/* The type that widening tensors of a block get when the patch set is merged; DT_NONE: theirs. */
static enum dtype patched_type(const struct res_model *m, size_t block)
{
    enum dtype type = DT_NONE;
    for (uint32_t k = 0; k < m->blocks.at[block].n; k++) {
        const struct weights_entry *e = entry_of(m, block, k);
        if (!touched(m, e))
            continue;
        if (res_is_coded(e))
            return DT_F16;
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

/* The terms of one adapter. A matrix may be wider than in its file because an adapter wants it so.
 * Adapters before that one may be for the file's columns; those after it are left out, as in
 * ComfyUI. */
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
        if (s || merge_take(&j->merge, &j->terms, first, &j->tmp, err))
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

/* The base where the file has it. */
static struct merge_plain base_of(const struct derive *d, const struct weights_entry *e)
{
    struct merge_plain p = merge_numbers(e->dtype, weights_stored(d->m->weights, e));
    p.stored = e->stored;
    return p;
}

/* The forms of both sides: here a stored layout is told apart. A scale beside fp8 is chosen anew;
 * where the codes become F16 it stays as it is. */
static berth_status set_forms(struct derive *d, const struct weights_entry *e, enum dtype to,
                              struct job *j, berth_err *err)
{
    struct merge *m = &j->merge;
    if (!merge_stores(to) || !dtype_desc(e->dtype)->to_f32)
        return err_set(err, BERTH_EUNSUPPORTED, "weights of type %s cannot be patched",
                       dtype_name(e->dtype));
    j->from = base_of(d, e);
    j->to = merge_numbers(to, NULL);
    m->from = &merge_plain;
    m->to = merge_form_of(to);
    m->base = &j->from;
    m->result = &j->to;
    if (res_is_coded(e)) {
        m->from = &merge_coded;
        m->base = &j->codes;
        return layout_mapped(d->m->weights, e, &j->codes, err);
    }
    if (is_scaled(d, e)) {
        if (read_scale(d, &j->from.scale, err))
            return err->code;
        j->to.scale = j->from.scale != 0 ? j->from.scale : 1;
        j->to.scale_type = entry_of(d->m, d->block, d->scale_tensor)->dtype;
        if (m->to->chance)
            m->to = &merge_fp8_scaled;
    }
    return BERTH_OK;
}

/* j stays where it is. */
static berth_status job_init(struct derive *d, const struct weights_entry *e, enum dtype to,
                             struct job *j, berth_err *err)
{
    struct merge *m = &j->merge;
    *j = (struct job) { .terms = { .elem = sizeof(struct res_term) }, .pool = d->r->pool };
    if (!merge_matrix(&e->shape, &m->rows, &m->cols))
        return err_set(err, BERTH_EFORMAT, "its shape does not fit");
    if (set_forms(d, e, to, j, err) || collect_terms(d, e, j, err))
        return err->code;
    uint64_t chances = merge_chances(m);
    if (chances && !(m->chance = arena_array(&j->tmp, (size_t)chances, sizeof *m->chance)))
        return err_set(err, BERTH_ENOMEM, "%" PRIu64 " random numbers", chances);
    return BERTH_OK;
}

static void job_run(struct job *j)
{
    merge_norms(&j->merge, j->pool);
    merge_look(&j->merge, j->pool);
    merge_run(&j->merge, j->pool);
}

static berth_status take_as_is(struct derive *d, const struct weights_entry *e,
                               const struct res_tensor_at *at, berth_err *err)
{
    return patch_put_entry(d->p, d->to, e, 0, at->bytes, &(struct part) { .off = at->off }, err);
}

static berth_status make_merged(void *of, void *to, berth_err *err)
{
    struct job *j = of;
    (void)err;
    j->to.data = to;
    job_run(j);
    return BERTH_OK;
}

static berth_status merge_tensor(struct derive *d, const struct weights_entry *e,
                                 const struct res_tensor_at *at, berth_err *err)
{
    struct job j;
    bool done = false;
    struct part t = { .make = make_merged, .of = &j, .off = at->off, .weight = true };
    berth_status s = job_init(d, e, at->dtype, &j, err);
    if (!s && !sz_from_u64(at->bytes, &t.n))
        s = err_set(err, BERTH_ELIMIT, "%" PRIu64 " bytes", at->bytes);
    if (!s && t.n)
        s = patch_on_card(d->p, d->to, e, at, &j, &done, err);
    if (!s && t.n && !done)
        s = patch_put(d->p, d->to, &t, err);
    if (!s && is_scaled(d, e))
        d->scale = j.to.scale;
    job_release(&j);
    return s;
}

/* ---- the block ---- */

static berth_status write_scale(struct derive *d, berth_err *err)
{
    uint8_t raw[8];
    const struct res_tensor_at at = res_tensor_as(d->m, d->block, d->scale_tensor, d->patched);
    dtype_desc(at.dtype)->from_f32(&d->scale, raw, 1);
    return patch_put(d->p, d->to,
                     &(struct part) { .raw = raw, .off = at.off, .n = (size_t)at.bytes }, err);
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
    j->from = base_of(d, e);
    j->from.scale = scale;
    m->from = &merge_plain;
    m->base = &j->from;
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

/* Chooses the type the block is stored in, and whether a scale has to follow its weight. */
static berth_status decide(struct derive *d, berth_err *err)
{
    berth_status s = BERTH_OK;
    d->patched = patched_type(d->m, d->block);
    for (uint32_t k = 0; !s && k < d->m->blocks.at[d->block].n; k++) {
        const struct weights_entry *e = entry_of(d->m, d->block, k);
        double most = 0;
        if (!merge_by_chance(e->dtype) || res_is_coded(e) || !touched(d->m, e))
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
        s = patch_settle(x, err);
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
