/* load_stage: blocks on their way to a device whose memory the host does not see, through the stage
 * (stream/stage.h).
 *
 * A buffer holds pieces, each of which any thread reads. All buffers together are about as large as
 * the caches of the processors that have many cores: most of what is read goes there and on to the
 * device, and not by way of memory. */
#include "residency/load_impl.h"

#include "stream/stage.h"

/* At most. Half of it is too little for 16 threads: they sleep and wake more than they read. */
#define STAGE_BYTES ((size_t)32 << 20)
#define STAGE_LEAST ((size_t)64 << 10) /* of a buffer */
#define STAGE_BUFS 4

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
    load_read(s->l, vec_at(&s->buf[b].piece, i));
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
        struct piece *p = load_add(s->l, pieces, err);
        if (!p)
            return err->code;
        *p = s->coming;
        p->dst = stage_at(&s->stage, b) + at;
        at += p->n;
        s->more = load_next(s->l, &s->cursor, size, &s->coming);
    }
    if (!pieces->n)
        BUG("a piece of %zu bytes for a buffer of %zu", s->coming.n, size);
    s->buf[b].bytes = load_hand_out(s->l, pieces);
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
    if (load_account(s->l, s->buf[b].bytes, err) || copy_pieces(s, pieces, err) ||
        on_the_way(s, pieces, stage_mark(&s->stage, b, s->stream, err), err))
        return err->code;
    load_progress(s->l);
    return BERTH_OK;
}

static berth_status send_all(struct sending *s, berth_err *err)
{
    struct stage *g = &s->stage;
    s->cursor = (struct cursor) { .device = s->device };
    s->more = load_next(s->l, &s->cursor, g->args.bytes, &s->coming);
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
        bytes += load_skips(l, &c) ? 0 : l->m->blocks.at[c.block].bytes;
    c = (struct cursor) { .device = device };
    if (!bytes || !load_next(l, &c, 1, &p))
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
