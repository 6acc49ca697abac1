/* load_stage: blocks on their way to a device whose memory the host does not see.
 *
 * Staging is a few buffers, used in turn; buffer k of all that were filled so far is k % n. The
 * executor posts a buffer with the pieces that it shall have; readers take posted pieces, the
 * oldest buffer's first; a buffer whose pieces are all read is sent, in order, and posted again when its
 * copies are done. Nobody waits for the slowest reader of a buffer: the others are busy with the
 * next one. An executor that has nothing to send reads too, so it also works alone, but only pieces
 * of the buffer that goes next: when all of those are taken it waits, to send it at once.
 *
 *     sent <= posted <= sent + n
 *
 * All buffers together are about as large as the caches of the processors that have many cores: most of
 * what is read goes there and on to the device, and not by way of memory. */
#include "residency/load_impl.h"

/* At most. Half of it is too little for 16 threads: they sleep and wake more than they read. */
#define STAGE_BYTES ((size_t)32 << 20)
#define STAGE_LEAST ((size_t)64 << 10) /* of a buffer */
#define STAGE_BUFS 4

struct stage_buf {
    char *ptr;
    struct dev_event *copied; /* nothing reads the buffer any more */
    struct vec piece;         /* struct piece; constant while it is posted and not sent */
    uint64_t bytes;
    /* under lock */
    size_t next; /* first that nobody took */
    size_t left; /* that are not read yet */
};

struct stage { /* owner: executor, except under lock */
    struct loading *l;
    size_t device;
    struct dev_stream *stream;
    struct dev_owner *owner;
    struct dev_host mem;
    size_t size; /* of a buffer */
    unsigned n;
    struct stage_buf buf[STAGE_BUFS];
    struct cursor cursor;
    struct piece coming; /* for the next buffer, if more */
    bool more;
    pthread_t executor;
    berth_status status;
    berth_err *err;
    pthread_mutex_t lock;
    pthread_cond_t work, done;
    /* under lock; written by the executor only, which may read them without */
    uint64_t posted, sent;
    bool over;
};

/* ---- readers ---- */

/* Lock held; released while it reads. False: every piece of the buffer is taken. */
static bool read_one_of(struct stage *s, struct stage_buf *b)
{
    if (b->next == b->piece.n)
        return false;
    const struct piece *p = vec_at(&b->piece, b->next++);
    pthread_mutex_unlock(&s->lock);
    load_read(s->l, p);
    pthread_mutex_lock(&s->lock);
    if (--b->left == 0)
        pthread_cond_signal(&s->done);
    return true;
}

/* Likewise. False: every piece that is posted is taken. */
static bool read_one(struct stage *s)
{
    for (uint64_t k = s->sent; k < s->posted; k++)
        if (read_one_of(s, &s->buf[k % s->n]))
            return true;
    return false;
}

static void read_on(struct stage *s)
{
    pthread_mutex_lock(&s->lock);
    while (!s->over)
        if (!read_one(s))
            pthread_cond_wait(&s->work, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

/* ---- the executor ---- */

/* A failure of the way itself is told with a block that is on it. */
static berth_status on_the_way(const struct stage *s, const struct stage_buf *b, berth_status st,
                               berth_err *err)
{
    const struct piece *p = b->piece.n ? vec_at(&b->piece, 0) : &s->coming;
    return st ? res_block_err(s->l->m, p->block, s->device, err) : BERTH_OK;
}

static berth_status post(struct stage *s, berth_err *err)
{
    struct stage_buf *b = &s->buf[s->posted % s->n];
    size_t at = 0;
    if (on_the_way(s, b, dev_event_sync(b->copied, err), err)) /* of its turn before */
        return err->code;
    for (b->piece.n = 0;
         s->more && s->coming.n <= s->size - at && b->piece.n < LOAD_BATCH_PIECES;) {
        struct piece *p = load_add(s->l, &b->piece, err);
        if (!p)
            return err->code;
        *p = s->coming;
        p->dst = b->ptr + at;
        at += p->n;
        s->more = load_next(s->l, &s->cursor, s->size, &s->coming);
    }
    if (!b->piece.n)
        BUG("a piece of %zu bytes for a buffer of %zu", s->coming.n, s->size);
    b->bytes = load_hand_out(s->l, &b->piece);
    pthread_mutex_lock(&s->lock);
    b->next = 0;
    b->left = b->piece.n;
    s->posted++;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
    return BERTH_OK;
}

/* Pieces that follow one another in a block and in the buffer travel together. */
static berth_status copy_pieces(struct stage *s, const struct stage_buf *from, berth_err *err)
{
    struct loading *l = s->l;
    for (size_t i = 0, end; i < from->piece.n; i = end) {
        const struct piece *p = vec_at(&from->piece, i), *q;
        size_t n = p->n;
        for (end = i + 1; end < from->piece.n; end++, n += q->n) {
            q = vec_at(&from->piece, end);
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

static berth_status send(struct stage *s, struct stage_buf *b, berth_err *err)
{
    if (load_account(s->l, b->bytes, err) || copy_pieces(s, b, err) ||
        on_the_way(s, b, dev_event_record(b->copied, s->stream, err), err))
        return err->code;
    pthread_mutex_lock(&s->lock);
    s->sent++;
    pthread_mutex_unlock(&s->lock);
    load_progress(s->l);
    return BERTH_OK;
}

static bool is_read(struct stage *s, const struct stage_buf *b)
{
    pthread_mutex_lock(&s->lock);
    bool yes = b->left == 0;
    pthread_mutex_unlock(&s->lock);
    return yes;
}

/* A piece of the buffer, or until all are read. */
static void help(struct stage *s, struct stage_buf *b)
{
    pthread_mutex_lock(&s->lock);
    if (b->left && !read_one_of(s, b))
        while (b->left)
            pthread_cond_wait(&s->done, &s->lock);
    pthread_mutex_unlock(&s->lock);
}

static berth_status fill_and_send(struct stage *s, berth_err *err)
{
    struct stage_buf *last = &s->buf[0];
    while (s->more || s->sent < s->posted) {
        struct stage_buf *oldest = s->sent < s->posted ? &s->buf[s->sent % s->n] : NULL;
        if (oldest && is_read(s, oldest)) {
            last = oldest;
            if (send(s, oldest, err))
                return err->code;
        } else if (s->more && s->posted - s->sent < s->n) {
            if (post(s, err))
                return err->code;
        } else {
            help(s, oldest);
        }
    }
    return on_the_way(s, last, dev_stream_sync(s->stream, err), err);
}

/* Each thread of the pool gets one: the executor sends, the others read until it is over, so none
 * takes the executor's. */
static void stage_task(void *user, size_t i, size_t worker)
{
    struct stage *s = user;
    (void)i, (void)worker;
    if (!pthread_equal(pthread_self(), s->executor)) {
        read_on(s);
        return;
    }
    if (s->over) /* it got them all */
        return;
    s->status = fill_and_send(s, s->err);
    if (s->status)
        atomic_store_explicit(&s->l->stop, true, memory_order_relaxed);
    pthread_mutex_lock(&s->lock);
    s->over = true;
    pthread_cond_broadcast(&s->work);
    pthread_mutex_unlock(&s->lock);
}

static berth_status run_stage(struct stage *s, berth_err *err)
{
    struct tpool *pool = s->l->m->res->pool;
    s->cursor = (struct cursor) { .device = s->device };
    s->more = load_next(s->l, &s->cursor, s->size, &s->coming);
    s->executor = pthread_self();
    s->err = err;
    pthread_mutex_init(&s->lock, NULL); /* these three cannot fail with default attributes */
    pthread_cond_init(&s->work, NULL);
    pthread_cond_init(&s->done, NULL);
    if (pool)
        tpool_for(pool, tpool_size(pool), stage_task, s);
    else
        stage_task(s, 0, 0);
    pthread_cond_destroy(&s->done);
    pthread_cond_destroy(&s->work);
    pthread_mutex_destroy(&s->lock);
    return s->status;
}

/* ---- its memory ---- */

static void stage_close(struct stage *s)
{
    for (unsigned k = 0; k < STAGE_BUFS; k++) {
        dev_event_free(s->buf[k].copied);
        vec_release(&s->buf[k].piece);
    }
    dev_host_free(&s->mem);
    dev_owner_close(s->owner);
}

/* As large as makes sense and as the host's budget allows. */
static berth_status stage_alloc(struct residency *r, struct device *d, struct stage *s, size_t n,
                                berth_err *err)
{
    berth_status st = dev_host_alloc(d, s->owner, n, &s->mem, err);
    while (st == BERTH_ENODEVMEM && n > STAGE_LEAST) {
        n = n / 2 > STAGE_LEAST ? n / 2 : STAGE_LEAST;
        st = dev_host_alloc(d, s->owner, n, &s->mem, err);
    }
    const struct res_need need = { r->host, n, s->l->m, false };
    while (st == BERTH_ENODEVMEM && r->host < r->n_devices && res_evict(r, &need))
        st = dev_host_alloc(d, s->owner, n, &s->mem, err);
    size_t bufs = n / STAGE_LEAST;
    s->n = bufs < 1 ? 1 : bufs < STAGE_BUFS ? (unsigned)bufs : STAGE_BUFS;
    s->size = n / s->n;
    return st;
}

static berth_status stage_open(struct residency *r, uint64_t bytes, struct stage *s, berth_err *err)
{
    struct device *d = res_device(r, s->device);
    size_t want = bytes < STAGE_BYTES ? (size_t)bytes : STAGE_BYTES;
    berth_status st = dev_owner_open(d, "loading", DEV_PINNED, &s->owner, err);
    if (!st)
        st = stage_alloc(r, d, s, want, err);
    for (unsigned k = 0; !st && k < s->n; k++) {
        s->buf[k] = (struct stage_buf) { .ptr = (char *)s->mem.ptr + k * s->size,
                                         .piece.elem = sizeof(struct piece) };
        st = dev_event_new(d, &s->buf[k].copied, err);
    }
    return st ? err_add(err, "staging %zu bytes for %s", s->size * s->n, d->name) : BERTH_OK;
}

berth_status load_staged(struct loading *l, size_t device, berth_err *err)
{
    struct residency *r = l->m->res;
    struct cursor c = { .device = device };
    struct piece p;
    uint64_t bytes = 0;
    struct stage s = { .l = l, .device = device };
    for (; c.block < l->m->blocks.n; c.block++)
        bytes += load_skips(l, &c) ? 0 : l->m->blocks.at[c.block].bytes;
    c = (struct cursor) { .device = device };
    if (!bytes || !load_next(l, &c, 1, &p))
        return BERTH_OK;
    berth_status st = res_stream_of(r, device, &s.stream, err);
    if (!st)
        st = stage_open(r, bytes, &s, err);
    if (st) {
        stage_close(&s);
        return res_block_err(l->m, p.block, device, err);
    }
    st = run_stage(&s, err);
    if (st)
        res_stream_settle(r, device);
    stage_close(&s);
    return st;
}
