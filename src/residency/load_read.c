/* load_read: reads a file in pieces, on whichever thread has time, to where its blocks lie:
 * straight into host memory, or through the stage (stream/stage.h) to a device whose memory the
 * host cannot reach.
 *
 * A buffer of the stage holds pieces, and any thread may read each of them. All buffers together
 * are about as large as the cache of a processor with many cores, so that most of what is read
 * goes from the cache to the device without a trip through memory. */
#include "residency/load_impl.h"

#include "stream/stage.h"

#include <inttypes.h>

#define LOAD_PIECE ((size_t)256 << 10) /* one read: 0.1 ms, so that threads end together */
#define LOAD_BATCH_PIECES 1024
/* Read straight, for each thread, between two looks at cancel. */
#define BATCH_BYTES ((size_t)8 << 20)
/* At most. Half of it is too little for 16 threads: they sleep and wake more than they read. */
#define STAGE_BYTES ((size_t)32 << 20)
#define STAGE_LEAST ((size_t)64 << 10) /* of a buffer */
#define STAGE_BUFS 4

/* ---- pieces ---- */

struct piece { /* a part of a tensor on its way */
    size_t block;
    const struct weights_entry *entry;
    uint64_t from; /* first byte in the tensor */
    uint64_t to;   /* in the block's memory */
    char *dst;     /* where the reader puts it */
    size_t n;
};

struct cursor { /* over the tensors of the blocks on one device that come straight from the file */
    size_t device;
    size_t block, tensor;
    uint64_t off;
};
uint64_t load_wanted_patch(const struct loading *l, size_t i)
{
    return l->want ? l->want[i] : 0;
}

bool load_canceled(const struct loading *l)
{
    return l->args->cancel && atomic_load_explicit(l->args->cancel, memory_order_relaxed);
}

berth_status load_cancel_err(const struct loading *l, berth_err *err)
{
    return err_set(err, BERTH_ECANCELED,
                   "loading model %.80s: canceled after %" PRIu64 " of %" PRIu64 " bytes",
                   l->m->owner, l->done, l->m->blocks.bytes);
}

void load_progress(const struct loading *l)
{
    if (l->args->progress)
        l->args->progress(l->args->progress_user, l->done, l->m->blocks.bytes);
}

/* Is the cursor's block elsewhere, or does it not come straight from the file? */
static bool is_skipped(const struct loading *l, const struct cursor *c)
{
    return l->m->block[c->block].device != c->device || load_wanted_patch(l, c->block) != 0;
}

/* At most `most` bytes, or LOAD_PIECE. False: all were given out. */
static bool next_piece(const struct loading *l, struct cursor *c, size_t most, struct piece *out)
{
    const struct blocks *b = &l->m->blocks;
    for (; c->block < b->n; c->block++, c->tensor = 0, c->off = 0) {
        if (is_skipped(l, c))
            continue;
        for (; c->tensor < b->at[c->block].n; c->tensor++, c->off = 0) {
            const struct block_tensor *t = &b->tensor[b->at[c->block].first + c->tensor];
            uint64_t left = t->bytes - c->off;
            if (!left)
                continue;
            most = most < LOAD_PIECE ? most : LOAD_PIECE;
            *out = (struct piece) { .block = c->block,
                                    .entry = t->entry,
                                    .from = c->off,
                                    .to = t->off + c->off,
                                    .n = left < most ? (size_t)left : most };
            c->off += out->n;
            return true;
        }
    }
    return false;
}

/* Thread: any. */
static void read_piece(struct loading *l, const struct piece *p)
{
    berth_err err;
    if (atomic_load_explicit(&l->stop, memory_order_relaxed) || load_canceled(l))
        return;
    if (!weights_read(l->m->weights, p->entry, p->from, p->dst, p->n, &err))
        return;
    pthread_mutex_lock(&l->lock);
    if (!l->first.code) {
        l->first = err;
        l->first_block = p->block;
    }
    pthread_mutex_unlock(&l->lock);
    atomic_store_explicit(&l->stop, true, memory_order_relaxed);
}

/* The pieces' memory is the readers' from here on. Their bytes. Thread: executor. */
static uint64_t hand_out(const struct loading *l, const struct vec *pieces)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < pieces->n; i++) {
        const struct piece *p = vec_at(pieces, i);
        dev_host_access(res_device(l->m->res, l->m->block[p->block].device), p->dst, p->n,
                        DEV_WRITE);
        sum += p->n;
    }
    return sum;
}

/* Counts pieces of `bytes` that were read; fails with the first error of a reader, or canceled. */
static berth_status account(struct loading *l, uint64_t bytes, berth_err *err)
{
    pthread_mutex_lock(&l->lock);
    berth_err first = l->first;
    pthread_mutex_unlock(&l->lock);
    if (first.code) {
        *err = first;
        return res_block_err(l->m, l->first_block, l->m->block[l->first_block].device, err);
    }
    if (load_canceled(l))
        return load_cancel_err(l, err);
    l->got.read += bytes;
    l->done += bytes;
    return BERTH_OK;
}

/* NULL: err is set. */
static struct piece *add_piece(const struct loading *l, struct vec *to, berth_err *err)
{
    struct piece *p = vec_add(to);
    if (!p)
        err_set(err, BERTH_ENOMEM, "%zu pieces of model %s", to->n, l->m->owner);
    return p;
}

/* ---- blocks in host memory ---- */

static void read_nth(void *user, size_t i, size_t worker)
{
    struct loading *l = user;
    (void)worker;
    read_piece(l, vec_at(&l->batch, i));
}

/* Reads every piece of the batch to its dst. */
static berth_status read_batch(struct loading *l, berth_err *err)
{
    struct tpool *pool = l->m->res->pool;
    uint64_t bytes = hand_out(l, &l->batch);
    if (pool)
        tpool_for(pool, l->batch.n, read_nth, l);
    else
        for (size_t i = 0; i < l->batch.n; i++)
            read_nth(l, i, 0);
    return account(l, bytes, err);
}

berth_status load_direct(struct loading *l, size_t device, berth_err *err)
{
    struct residency *r = l->m->res;
    struct cursor c = { .device = device };
    size_t most = (r->pool ? tpool_size(r->pool) : 1) * BATCH_BYTES;
    struct piece next;
    l->batch.elem = sizeof next;
    bool more = next_piece(l, &c, LOAD_PIECE, &next);
    while (more) {
        size_t sum = 0;
        for (l->batch.n = 0; more && sum < most && l->batch.n < LOAD_BATCH_PIECES;) {
            struct piece *p = add_piece(l, &l->batch, err);
            if (!p)
                return err->code;
            *p = next;
            p->dst = (char *)res_host_ptr(&l->m->block[p->block]) + p->to;
            sum += p->n;
            more = next_piece(l, &c, LOAD_PIECE, &next);
        }
        if (read_batch(l, err))
            return err->code;
        load_progress(l);
    }
    return BERTH_OK;
}

/* ---- blocks elsewhere ---- */

struct sending { /* owner: executor; pieces of a posted buffer are constant */
    struct loading *l;
    size_t device;
    struct dev_stream *stream;
    struct stage stage;
    struct {
        struct vec piece; /* struct piece */
        uint64_t bytes;
    } buf[STAGE_BUFS];
    struct cursor cursor;
    struct piece coming; /* for the next buffer, if more */
    bool more;
};

static void fill(void *user, unsigned b, size_t i)
{
    struct sending *s = user;
    read_piece(s->l, vec_at(&s->buf[b].piece, i));
}

/* A failure of the way itself is told with a block that is on it. */
static berth_status on_the_way(const struct sending *s, const struct vec *pieces, berth_status st,
                               berth_err *err)
{
    const struct piece *p = pieces->n ? vec_at(pieces, 0) : &s->coming;
    return st ? res_block_err(s->l->m, p->block, s->device, err) : BERTH_OK;
}

/* The pieces that come next, as many as fit. */
static berth_status post(struct sending *s, berth_err *err)
{
    unsigned b = (unsigned)(s->stage.posted % s->stage.args.bufs);
    struct vec *pieces = &s->buf[b].piece;
    size_t at = 0, size = s->stage.args.bytes;
    if (on_the_way(s, pieces, stage_take(&s->stage, true, &b, err), err))
        return err->code;
    for (pieces->n = 0; s->more && s->coming.n <= size - at && pieces->n < LOAD_BATCH_PIECES;) {
        struct piece *p = add_piece(s->l, pieces, err);
        if (!p)
            return err->code;
        *p = s->coming;
        p->dst = stage_at(&s->stage, b) + at;
        at += p->n;
        s->more = next_piece(s->l, &s->cursor, size, &s->coming);
    }
    if (!pieces->n)
        BUG("a piece of %zu bytes for a buffer of %zu", s->coming.n, size);
    s->buf[b].bytes = hand_out(s->l, pieces);
    stage_post(&s->stage, pieces->n);
    return BERTH_OK;
}

/* Pieces that follow one another in a block and in the buffer travel together. */
static berth_status copy_pieces(struct sending *s, const struct vec *pieces, berth_err *err)
{
    struct loading *l = s->l;
    for (size_t i = 0, end; i < pieces->n; i = end) {
        const struct piece *p = vec_at(pieces, i), *q;
        size_t n = p->n;
        for (end = i + 1; end < pieces->n; end++, n += q->n) {
            q = vec_at(pieces, end);
            if (q->block != p->block || q->to != p->to + n)
                break;
        }
        const struct res_block *b = &l->m->block[p->block];
        if (dev_copy_h2d(s->stream, b->mem.addr + p->to, p->dst, n, err))
            return res_block_err(l->m, p->block, b->device, err);
        l->got.moved += n;
    }
    return BERTH_OK;
}

static berth_status send(void *user, unsigned b, berth_err *err)
{
    struct sending *s = user;
    const struct vec *pieces = &s->buf[b].piece;
    if (account(s->l, s->buf[b].bytes, err) || copy_pieces(s, pieces, err) ||
        on_the_way(s, pieces, stage_mark(&s->stage, b, s->stream, err), err))
        return err->code;
    load_progress(s->l);
    return BERTH_OK;
}

static berth_status send_all(struct sending *s, berth_err *err)
{
    struct stage *g = &s->stage;
    s->cursor = (struct cursor) { .device = s->device };
    s->more = next_piece(s->l, &s->cursor, g->args.bytes, &s->coming);
    while (s->more) {
        if (stage_pump(g, err))
            return err->code;
        if (g->posted - g->sent == g->args.bufs)
            stage_wait(g);
        else if (post(s, err))
            return err->code;
    }
    if (stage_drain(g, err))
        return err->code;
    unsigned last = (unsigned)((g->sent + g->args.bufs - 1) % g->args.bufs);
    return on_the_way(s, &s->buf[last].piece, dev_stream_sync(s->stream, err), err);
}

/* ---- its memory ---- */

/* As many threads as the pool has beside the executor, and no more than there are pieces. */
static unsigned threads_for(const struct residency *r, uint64_t bytes)
{
    size_t n = r->pool ? tpool_size(r->pool) - 1 : 0;
    n = n < bytes / LOAD_PIECE ? n : (size_t)(bytes / LOAD_PIECE);
    return n < STAGE_THREADS_MAX ? (unsigned)n : STAGE_THREADS_MAX;
}

static berth_status open_with(struct sending *s, struct stage_args *a, size_t n, berth_err *err)
{
    size_t bufs = n / STAGE_LEAST;
    a->bufs = bufs < 1 ? 1 : bufs < STAGE_BUFS ? (unsigned)bufs : STAGE_BUFS;
    a->bytes = n / a->bufs;
    berth_status st = stage_open(&s->stage, a, err);
    if (st)
        stage_close(&s->stage);
    return st;
}

/* As large as makes sense and as the host's budget allows. */
static berth_status open_stage(struct sending *s, uint64_t bytes, berth_err *err)
{
    static const struct stage_ops ops = { .fill = fill, .send = send };
    struct residency *r = s->l->m->res;
    struct stage_args a = {
        .dev = res_device(r, s->device), .threads = threads_for(r, bytes), .ops = &ops, .user = s
    };
    size_t n = bytes < STAGE_BYTES ? (size_t)bytes : STAGE_BYTES;
    if (dev_owner_open(a.dev, "loading", DEV_PINNED, &a.owner, err))
        return err->code;
    berth_status st = open_with(s, &a, n, err);
    while (st == BERTH_ENODEVMEM && n > STAGE_LEAST) {
        n = n / 2 > STAGE_LEAST ? n / 2 : STAGE_LEAST;
        st = open_with(s, &a, n, err);
    }
    const struct res_need need = { r->host, n, s->l->m, false };
    while (st == BERTH_ENODEVMEM && r->host < r->n_devices && res_evict(r, &need))
        st = open_with(s, &a, n, err);
    dev_owner_close(a.owner);
    return st ? err_add(err, "staging %zu bytes for %s", n, a.dev->name) : BERTH_OK;
}

berth_status load_staged(struct loading *l, size_t device, berth_err *err)
{
    struct residency *r = l->m->res;
    struct cursor c = { .device = device };
    struct piece p;
    uint64_t bytes = 0;
    struct sending s = { .l = l, .device = device };
    for (; c.block < l->m->blocks.n; c.block++)
        bytes += is_skipped(l, &c) ? 0 : l->m->blocks.at[c.block].bytes;
    c = (struct cursor) { .device = device };
    if (!bytes || !next_piece(l, &c, 1, &p))
        return BERTH_OK;
    for (unsigned k = 0; k < STAGE_BUFS; k++)
        s.buf[k].piece.elem = sizeof(struct piece);
    if (res_stream_of(r, device, &s.stream, err) || open_stage(&s, bytes, err))
        return res_block_err(l->m, p.block, device, err);
    berth_status st = send_all(&s, err);
    if (st) {
        atomic_store_explicit(&l->stop, true, memory_order_relaxed);
        res_stream_settle(r, device);
    }
    stage_close(&s.stage);
    for (unsigned k = 0; k < STAGE_BUFS; k++)
        vec_release(&s.buf[k].piece);
    return st;
}
