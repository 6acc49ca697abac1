/* block: one block's memory: got, booked, copied elsewhere, given back. Nobody leaves for it: a
 * device that is full is an error here, and what to do about that is evict.c's.
 *
 * A copy touches the tensors and never the padding between them, which nobody ever wrote. Each move
 * waits for its copy before the old place is freed: simple, and right whatever fails. Passes over
 * many blocks that must overlap with work are stream/'s. */
#include "residency/residency_impl.h"

#include "base/hash.h"
#include "base/sz.h"
#include "merge/merge.h"

#include <inttypes.h>

/* ---- words of residency.h ---- */

static const char *const retention_names[] = {
    [RES_AUTO] = "auto",
    [RES_KEEP] = "keep",
    [RES_EJECT] = "eject",
};

const char *res_retention_name(enum res_retention x)
{
    return retention_names[x];
}

bool res_retention_parse(const char *text, enum res_retention *out)
{
    for (size_t i = 0; i < ARRAY_LEN(retention_names); i++)
        if (strcmp(text, retention_names[i]) == 0) {
            *out = (enum res_retention)i;
            return true;
        }
    return false;
}

const char *res_state_name(enum res_state s)
{
    static const char *const name[] = {
        [RES_REGISTERED] = "registered",
        [RES_LOADING] = "loading",
        [RES_RESIDENT] = "resident",
        [RES_EJECTED] = "ejected",
    };
    return name[s];
}

const char *res_anchor_text(enum res_anchor a)
{
    static const char *const name[] = {
        [RES_ANCHOR_KEEP] = "marked keep",
        [RES_ANCHOR_SURVIVED] = "survived a free",
        [RES_ANCHOR_MARKED] = "until the next free",
        [RES_ANCHOR_PROMPT] = "until the prompt ends",
    };
    return name[a];
}

/* ---- layout ---- */

/* Codes become values; the scales beside them stay what they are, and nobody reads them. */
static bool widens(const struct res_model *m, const struct weights_entry *e, enum dtype patched)
{
    if (patched == DT_NONE || !e)
        return false;
    if (res_is_coded(e))
        return patched != DT_F32;
    return merge_widens(e->dtype, patched) &&
           (patched == DT_F32 || e->layout || !layout_owner(m->weights, e));
}

static uint64_t stored_bytes(const struct res_model *m, const struct block_tensor *t,
                             enum dtype patched, enum dtype *type)
{
    uint64_t n, bytes;
    *type = t->entry ? t->entry->dtype : DT_NONE;
    if (!widens(m, t->entry, patched))
        return t->bytes;
    *type = patched;
    /* Shapes were checked with the file's own type, so only the wider one can be too much. */
    if (!shape_count(&t->entry->shape, &n) || !dtype_bytes(patched, n, &bytes))
        return UINT64_MAX;
    return bytes;
}

bool res_block_layout(const struct res_model *m, size_t i, enum dtype patched, uint64_t *bytes,
                      uint64_t *span)
{
    const struct block *b = &m->blocks.at[i];
    enum dtype type;
    size_t at = 0, sum = 0;
    for (uint32_t k = 0; k < b->n && patched != DT_NONE; k++) {
        uint64_t n = stored_bytes(m, &m->blocks.tensor[b->first + k], patched, &type);
        size_t size;
        if (!sz_align(at, BLOCK_ALIGN, &at) || !sz_from_u64(n, &size) || !sz_add(at, size, &at) ||
            !sz_add(sum, size, &sum))
            return false;
    }
    *bytes = patched == DT_NONE ? b->bytes : sum;
    *span = patched == DT_NONE ? b->span : at;
    return true;
}

struct res_tensor_at res_tensor_as(const struct res_model *m, size_t i, size_t k,
                                   enum dtype patched)
{
    const struct block *b = &m->blocks.at[i];
    const struct block_tensor *t = &m->blocks.tensor[b->first];
    struct res_tensor_at at = { .off = t[k].off };
    if (k >= b->n)
        BUG("tensor %zu of %" PRIu32 " in block '%s'", k, b->n, b->name);
    if (patched != DT_NONE) {
        at.off = 0;
        for (size_t j = 0; j < k; j++) {
            at.off += stored_bytes(m, &t[j], patched, &at.dtype);
            at.off = (at.off + BLOCK_ALIGN - 1) & ~(uint64_t)(BLOCK_ALIGN - 1);
        }
    }
    at.bytes = stored_bytes(m, &t[k], patched, &at.dtype);
    return at;
}

struct res_tensor_at res_tensor_at(const struct res_model *m, size_t i, size_t k)
{
    return res_tensor_as(m, i, k, m->block[i].patched);
}

berth_status res_block_err(const struct res_model *m, size_t i, size_t device, berth_err *err)
{
    char bytes[STR_BYTES_MAX];
    return err_add(err, "block '%.80s' (%s) of model %.80s on %s", m->blocks.at[i].name,
                   str_bytes(m->block[i].bytes, bytes), m->owner, res_device(m->res, device)->name);
}

/* ---- memory ---- */

/* How much the driver has left, with what pools on the same hardware would give back to it. A
 * card's memory is also taken by its context, by libraries and by other programs. Host memory is
 * not counted this way: the system finds pages when they are written. */
static uint64_t driver_left(const struct residency *r, const struct device *d)
{
    struct dev_info info;
    berth_err err;
    if (dev_can(d, BERTH_CAP_HOST_VISIBLE) || dev_info(d, &info, &err))
        return UINT64_MAX;
    uint64_t left = info.free;
    for (size_t i = 0; i < r->n_devices; i++) {
        const struct device *n = res_device(r, i);
        struct dev_stats s;
        if (n->phys != d->phys)
            continue;
        dev_ledger(n, NULL, 0, &s);
        left += s.idle;
    }
    return left;
}

uint64_t res_left_on(const struct residency *r, size_t device)
{
    const struct device *d = res_device(r, device);
    struct dev_stats s;
    dev_ledger(d, NULL, 0, &s);
    uint64_t taken = s.in_use + (dev_can(d, BERTH_CAP_HOST_VISIBLE) ? s.pinned : 0);
    uint64_t left = d->budget > taken ? d->budget - taken : 0, has = left ? driver_left(r, d) : 0;
    return left < has ? left : has;
}

static berth_status owner_line(struct res_model *m, size_t d, bool pinned, struct dev_owner **out,
                               berth_err *err)
{
    struct dev_owner **line = pinned ? &m->owners[d].pinned : &m->owners[d].weights;
    *out = NULL;
    if (!*line && dev_owner_open(res_device(m->res, d), m->owner, pinned ? DEV_PINNED : DEV_WEIGHTS,
                                 line, err))
        return err->code;
    *out = *line;
    return BERTH_OK;
}

/* Host blocks of a model that computes on a card are pinned while the budget for pins lasts. */
static bool wants_pin(const struct res_model *m, size_t d, uint64_t span)
{
    const struct residency *r = m->res;
    const struct device *compute = res_device(r, m->compute);
    return d == r->host && d != m->compute && dev_can(compute, BERTH_CAP_PINNED) &&
           !dev_can(compute, BERTH_CAP_HOST_VISIBLE) && r->pinned <= r->pin_budget &&
           span <= r->pin_budget - r->pinned;
}

/* Blocks that come from the file together lie behind one another in one pinned allocation of up to
 * this, so that a run of a stream is one copy, or two. A block that leaves alone leaves its place
 * unused until the others go, so it is not much. */
#define PINS_BYTES ((size_t)32 << 20)

/* Room for block i and those behind it that get pinned memory too, if there are any. */
static void pins_open(struct res_model *m, size_t i, struct res_pins *p)
{
    const struct residency *r = m->res;
    struct device *d = res_device(r, m->compute);
    struct dev_owner *line;
    size_t all = 0, n, blocks = 0;
    uint64_t spans = 0; /* no more than a model's: they add up */
    berth_err err;
    res_pins_close(p);
    for (p->end = i; p->end < m->blocks.n; p->end++) {
        uint64_t span = m->block[p->end].span;
        if (m->block[p->end].home != r->host || !span)
            continue;
        spans += span;
        if (!wants_pin(m, r->host, spans) || !sz_from_u64(span, &n) ||
            !sz_align(all, d->phys->align, &all) || !sz_add(all, n, &n) || n > PINS_BYTES)
            break;
        all = n;
        blocks++;
    }
    if (blocks > 1 && !owner_line(m, r->host, true, &line, &err))
        (void)dev_pins_new(d, line, all, &p->pins, &err); /* without: each for itself */
    p->end += p->end == i;
}

void res_pins_close(struct res_pins *p)
{
    dev_pins_close(p->pins);
    p->pins = NULL;
}

bool res_block_pin(struct res_model *m, size_t i, struct res_pins *p, struct res_block *out)
{
    struct res_block *b = &m->block[i];
    if (b->home != m->res->host || !b->span)
        return false;
    if (i >= p->end)
        pins_open(m, i, p);
    if (!p->pins)
        return false;
    *out = *b;
    out->mem = (struct dev_mem) { 0 };
    out->device = b->home;
    dev_pins_part(p->pins, (size_t)b->span, &out->host);
    return true;
}

/* Pinned memory, or nothing: without it the block is slower, not homeless. */
static bool try_pin(struct res_model *m, size_t d, size_t span, struct res_block *out)
{
    struct residency *r = m->res;
    struct dev_owner *line;
    berth_err err;
    if (!owner_line(m, d, true, &line, &err) &&
        !dev_host_alloc(res_device(r, m->compute), line, span, &out->host, &err))
        return true;
    if (!r->pins_refused)
        log_warn(r->log, "res.unpinned", "model=%s bytes=%zu why=\"%s\"", m->owner, span, err.msg);
    r->pins_refused = true;
    return false;
}

static void place_on(const struct res_model *m, size_t i, const struct res_place *at,
                     struct res_block *out)
{
    *out = m->block[i];
    out->mem = (struct dev_mem) { 0 };
    out->host = (struct dev_host) { 0 };
    out->device = (uint8_t)at->device;
    out->span = at->span;
}

berth_status res_block_alloc_unpinned(struct res_model *m, size_t i, const struct res_place *at,
                                      struct res_block *out, berth_err *err)
{
    struct dev_owner *line;
    size_t n;
    place_on(m, i, at, out);
    berth_status s = sz_from_u64(at->span, &n)
                         ? owner_line(m, at->device, false, &line, err)
                         : err_set(err, BERTH_ELIMIT, "%" PRIu64 " bytes", at->span);
    if (!s)
        s = dev_alloc(res_device(m->res, at->device), line, n, &out->mem, err);
    if (!s)
        return BERTH_OK;
    out->device = RES_NOWHERE;
    return res_block_err(m, i, at->device, err);
}

berth_status res_block_alloc(struct res_model *m, size_t i, const struct res_place *at,
                             struct res_block *out, berth_err *err)
{
    size_t n;
    place_on(m, i, at, out);
    if (!at->span || (sz_from_u64(at->span, &n) && wants_pin(m, at->device, at->span) &&
                      try_pin(m, at->device, n, out)))
        return BERTH_OK;
    return res_block_alloc_unpinned(m, i, at, out, err);
}

void res_block_give(struct res_block *got)
{
    dev_free(&got->mem);
    dev_host_free(&got->host);
    got->device = RES_NOWHERE;
}

void res_block_put(struct res_model *m, size_t i, const struct res_block *got)
{
    struct res_block *b = &m->block[i];
    if (b->device != RES_NOWHERE)
        BUG("block '%s' of '%s' has memory already", m->blocks.at[i].name, m->owner);
    uint8_t home = b->home;
    *b = *got;
    b->home = home;
    m->bytes_on[b->device] += b->bytes;
    m->res->pinned += b->host.n;
}

void res_block_drop(struct res_model *m, size_t i)
{
    struct res_block *b = &m->block[i];
    if (b->device == RES_NOWHERE)
        return;
    m->bytes_on[b->device] -= b->bytes;
    m->res->pinned -= b->host.n;
    res_block_give(b);
    b->patched = DT_NONE;
    b->patch = 0;
    b->scale = 0;
    b->bytes = m->blocks.at[i].bytes;
    b->span = m->blocks.at[i].span;
}

void res_drop_all(struct res_model *m)
{
    for (size_t i = 0; i < m->blocks.n; i++)
        res_block_drop(m, i);
}

uint64_t res_block_addr(const struct res_block *b)
{
    return b->host.ptr ? (uintptr_t)b->host.ptr : b->mem.addr;
}

void *res_host_ptr(const struct res_block *b)
{
    if (b->host.ptr)
        return b->host.ptr;
    return b->mem.dev && dev_can(b->mem.dev, BERTH_CAP_HOST_VISIBLE)
               ? (void *)(uintptr_t)b->mem.addr
               : NULL;
}

/* ---- copies ---- */

berth_status res_stream_of(struct residency *r, size_t device, struct dev_stream **out,
                           berth_err *err)
{
    struct dev_stream **s = &r->stream[device];
    *out = NULL;
    if (!*s && dev_stream_new(res_device(r, device), s, err))
        return err->code;
    *out = *s;
    return BERTH_OK;
}

void res_stream_settle(struct residency *r, size_t device)
{
    berth_err err;
    /* Twice: a hiccup of the driver may hit the waiting itself. A device that is lost for good
     * runs nothing any more. */
    if (r->stream[device] && dev_stream_sync(r->stream[device], &err) &&
        dev_stream_sync(r->stream[device], &err))
        log_error(r->log, "res.lost", "dev=%s why=\"%s\"", res_device(r, device)->name, err.msg);
}

struct ends { /* of a copy between two places of one block */
    const struct res_block *from, *to;
    size_t device; /* whose stream */
    struct dev_stream *stream;
};

static berth_status copy_tensor(const struct residency *r, const struct ends *e, uint64_t off,
                                size_t n, berth_err *err)
{
    char *src = res_host_ptr(e->from), *dst = res_host_ptr(e->to);
    if (src && dst) {
        dev_host_access(res_device(r, e->from->device), src + off, n, DEV_READ);
        dev_host_access(res_device(r, e->to->device), dst + off, n, DEV_WRITE);
        memcpy(dst + off, src + off, n);
        return BERTH_OK;
    }
    if (src)
        return dev_copy_h2d(e->stream, e->to->mem.addr + off, src + off, n, err);
    if (dst)
        return dev_copy_d2h(e->stream, dst + off, e->from->mem.addr + off, n, err);
    return dev_copy(e->stream, (struct dev_at) { e->to->mem.dev, e->to->mem.addr + off },
                    (struct dev_at) { e->from->mem.dev, e->from->mem.addr + off }, n, err);
}

/* Copies block i to `to` and waits. */
static berth_status copy_block(struct res_model *m, size_t i, const struct res_block *to,
                               berth_err *err)
{
    struct residency *r = m->res;
    struct ends e = { .from = &m->block[i], .to = to };
    bool host_only = res_host_ptr(e.from) && res_host_ptr(to);
    e.device = res_host_ptr(to) ? e.from->device : to->device;
    if (!host_only && res_stream_of(r, e.device, &e.stream, err))
        return err->code;
    berth_status s = BERTH_OK;
    for (size_t k = 0; !s && k < m->blocks.at[i].n; k++) {
        struct res_tensor_at t = res_tensor_at(m, i, k);
        if (t.bytes)
            s = copy_tensor(r, &e, t.off, (size_t)t.bytes, err);
    }
    if (!host_only && !s)
        s = dev_stream_sync(e.stream, err);
    if (!host_only && s)
        res_stream_settle(r, e.device);
    return s;
}

berth_status res_moving_err(const struct res_model *m, size_t i, berth_err *err)
{
    return err_add(err, "moving from %s", res_device(m->res, m->block[i].device)->name);
}

berth_status res_block_move_to(struct res_model *m, size_t i, struct res_block *to, berth_err *err)
{
    if (to->span && copy_block(m, i, to, err)) {
        size_t d = to->device;
        res_block_give(to);
        res_block_err(m, i, d, err);
        return res_moving_err(m, i, err);
    }
    res_block_drop(m, i);
    res_block_put(m, i, to);
    m->moved += to->bytes;
    m->res->metrics.moved_bytes += to->bytes;
    return BERTH_OK;
}

berth_status res_block_move(struct res_model *m, size_t i, size_t d, berth_err *err)
{
    struct res_block to;
    const struct res_place at = { .device = d, .span = m->block[i].span };
    if (res_block_alloc(m, i, &at, &to, err))
        return res_moving_err(m, i, err);
    return res_block_move_to(m, i, &to, err);
}

/* ---- reading and writing ---- */

berth_status res_block_at(const struct res_model *m, size_t block, struct res_block_at *out,
                          berth_err *err)
{
    *out = (struct res_block_at) { 0 };
    if (m->state != RES_RESIDENT || block >= m->blocks.n)
        return err_set(err, BERTH_EINVAL, "block %zu of %zu of model %s, which is %s", block,
                       m->blocks.n, m->owner, res_state_name(m->state));
    const struct res_block *b = &m->block[block];
    *out = (struct res_block_at) { .dev = res_device(m->res, b->device),
                                   .device = b->device,
                                   .addr = res_block_addr(b),
                                   .base = b->host.ptr ? dev_host_base(&b->host)
                                                       : dev_mem_base(&b->mem),
                                   .pinned = b->host.ptr != NULL,
                                   .bytes = b->bytes,
                                   .span = b->span,
                                   .patched = b->patched };
    return BERTH_OK;
}

uint64_t res_bytes_on(const struct res_model *m, size_t device)
{
    return device < m->res->n_devices ? m->bytes_on[device] : 0;
}

struct res_block_place res_block_place(const struct res_model *m, size_t block)
{
    const struct res_block *b = &m->block[block];
    bool there = b->device != RES_NOWHERE;
    return (struct res_block_place) { .device = there ? b->device : RES_NO_DEVICE,
                                      .home = b->home,
                                      .bytes = there ? b->bytes : m->blocks.at[block].bytes };
}

/* [off, off+n) of the block's memory to dst. */
static berth_status block_read(struct res_model *m, size_t i, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    const struct res_block *b = &m->block[i];
    struct dev_stream *stream;
    const char *src = res_host_ptr(b);
    if (!n)
        return BERTH_OK;
    if (src) {
        dev_host_access(res_device(m->res, b->device), src + off, n, DEV_READ);
        memcpy(dst, src + off, n);
        return BERTH_OK;
    }
    if (res_stream_of(m->res, b->device, &stream, err))
        return res_block_err(m, i, b->device, err);
    berth_status s = dev_copy_d2h(stream, dst, b->mem.addr + off, n, err);
    if (!s)
        s = dev_stream_sync(stream, err);
    if (s)
        res_stream_settle(m->res, b->device);
    dev_host_gone(res_device(m->res, b->device)->phys, dst, n); /* the caller's, from here on */
    return s ? res_block_err(m, i, b->device, err) : BERTH_OK;
}

berth_status res_tensor_read(struct res_model *m, size_t block, size_t tensor, void *dst, size_t n,
                             berth_err *err)
{
    if (m->state != RES_RESIDENT || block >= m->blocks.n || tensor >= m->blocks.at[block].n)
        return err_set(err, BERTH_EINVAL, "tensor %zu of block %zu of model %s, which is %s",
                       tensor, block, m->owner, res_state_name(m->state));
    struct res_tensor_at t = res_tensor_at(m, block, tensor);
    if (n != t.bytes)
        return err_set(err, BERTH_EINVAL,
                       "tensor %zu of block '%.80s' has %" PRIu64 " bytes, not %zu", tensor,
                       m->blocks.at[block].name, t.bytes, n);
    return block_read(m, block, t.off, dst, n, err);
}

enum { SUM_BYTES = 1 << 20 };

berth_status res_checksum(struct res_model *m, uint64_t *out, berth_err *err)
{
    berth_status s = BERTH_OK;
    uint64_t sum = 0;
    *out = 0;
    if (m->state != RES_RESIDENT)
        return err_set(err, BERTH_EINVAL, "model %s is %s: no bytes to sum up", m->owner,
                       res_state_name(m->state));
    void *buf = malloc(SUM_BYTES);
    if (!buf)
        return err_set(err, BERTH_ENOMEM, "%d bytes to sum up model %s", SUM_BYTES, m->owner);
    for (size_t i = 0; !s && i < m->blocks.n; i++)
        for (size_t k = 0; !s && k < m->blocks.at[i].n; k++) {
            struct res_tensor_at t = res_tensor_at(m, i, k);
            for (uint64_t at = 0; !s && at < t.bytes; at += SUM_BYTES) {
                size_t n = t.bytes - at < SUM_BYTES ? (size_t)(t.bytes - at) : SUM_BYTES;
                s = block_read(m, i, t.off + at, buf, n, err);
                if (!s)
                    sum = hash_xxh64(buf, n, sum);
            }
        }
    free(buf);
    if (!s)
        *out = sum;
    return s;
}
