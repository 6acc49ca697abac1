/* load: from the file to the blocks' homes.
 *
 * Flow     every block gets its memory (evicting others) -> blocks in host memory: the file is read
 *          straight into them, in pieces on all threads -> blocks elsewhere, device by device,
 *          through the stage (stream/stage.h): all threads read pieces into some pinned buffers,
 *          those that are full travel meanwhile -> blocks with patches (patch.c) -> did the file
 *          change? -> RESIDENT
 * Journal  load_models_gpu_top_level start; <role>:<8 of the key> pre-load; free_memory pre and
 *          post if others have to leave; post-weights when all is read, post-model when it is
 *          patched; post-load, whatever came of it. A load of a RESIDENT model writes nothing.
 * Pieces   A batch of pieces, or a buffer of them, is read at a time. Between them the executor
 *          thread reports progress and looks at cancel; readers look at it before each piece. All
 *          buffers of the stage together are about as large as the cache of a processor with many
 *          cores, so that most of what is read goes to the device without a trip through memory.
 * Threads  The pool's threads, or the stage's, read into memory that the executor declared
 *          (dev_host_access) and gave them; devices are called by the executor alone.
 * Failure  What was got goes back, nothing is queued any more, the state is the old one. */
#include "residency/residency_impl.h"

#include <inttypes.h>
#include <pthread.h>

#define LOAD_BATCH_PIECES 1024
/* Read straight, for each thread, between two looks at cancel. */
#define BATCH_BYTES ((size_t)8 << 20)
/* At most. Half of it is too little for 16 threads: they sleep and wake more than they read. */
#define STAGE_BYTES ((size_t)32 << 20)
#define STAGE_LEAST ((size_t)64 << 10) /* of a buffer */
#define STAGE_BUFS 4
#define CATEGORY "[MultiGPU DisTorch V2] "

struct loading { /* owner: executor, except under lock */
    struct res_model *m;
    const struct res_load_args *args; /* never NULL */
    uint64_t *want;                   /* [blocks] patch signatures; NULL: none */
    struct res_load_result got;
    uint64_t promoted;    /* bytes that came home: each move counts itself */
    uint64_t done;        /* bytes of blocks that are where they belong */
    uint64_t room_ns;     /* until all blocks had memory */
    struct vec batch;     /* of pieces that are read straight */
    atomic_bool stop;     /* nobody needs further pieces */
    pthread_mutex_t lock; /* of the next two */
    berth_err first;      /* error of any reader; code 0: none */
    size_t first_block;
};

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
    size_t device, most; /* most bytes of a piece */
    size_t block, tensor;
    uint64_t off;
    struct piece coming; /* if more */
    bool more;
};

static uint64_t wanted_patch(const struct loading *l, size_t i)
{
    return l->want ? l->want[i] : 0;
}

static berth_status cancel_err(const struct loading *l, berth_err *err)
{
    return err_set(err, BERTH_ECANCELED,
                   "loading model %.80s: canceled after %" PRIu64 " of %" PRIu64 " bytes",
                   l->m->owner, l->done, l->m->blocks.bytes);
}

static void report_progress(const struct loading *l)
{
    if (l->args->progress)
        l->args->progress(l->args->progress_user, l->done, l->m->blocks.bytes);
}

/* Is the block there, and does it come straight from the file? */
static bool is_read(const struct loading *l, size_t device, size_t block)
{
    return l->m->block[block].device == device && !wanted_patch(l, block);
}

static void advance(const struct loading *l, struct cursor *c)
{
    const struct blocks *b = &l->m->blocks;
    for (; c->block < b->n; c->block++, c->tensor = 0, c->off = 0) {
        if (!is_read(l, c->device, c->block))
            continue;
        for (; c->tensor < b->at[c->block].n; c->tensor++, c->off = 0) {
            const struct block_tensor *t = &b->tensor[b->at[c->block].first + c->tensor];
            uint64_t left = t->bytes - c->off;
            if (!left)
                continue;
            c->coming = (struct piece) { .block = c->block,
                                         .entry = t->entry,
                                         .from = c->off,
                                         .to = t->off + c->off,
                                         .n = left < c->most ? (size_t)left : c->most };
            c->off += c->coming.n;
            return;
        }
    }
    c->more = false;
}

static struct cursor cursor_on(const struct loading *l, size_t device, size_t most)
{
    struct cursor c = { .device = device,
                        .most = most < RES_READ_PIECE ? most : RES_READ_PIECE,
                        .more = true };
    advance(l, &c);
    return c;
}

/* Pieces that come next, as many as fit, for memory from `buf` on; NULL: for where their blocks
 * lie. That memory is the readers' from here on. Thread: executor. */
static berth_status take_pieces(const struct loading *l, struct cursor *c, char *buf, size_t size,
                                struct vec *to, uint64_t *bytes, berth_err *err)
{
    size_t at = 0;
    for (to->n = 0; c->more && c->coming.n <= size - at && to->n < LOAD_BATCH_PIECES;) {
        const struct res_block *b = &l->m->block[c->coming.block];
        struct piece *p = vec_add(to);
        if (!p)
            return err_set(err, BERTH_ENOMEM, "%zu pieces of model %s", to->n, l->m->owner);
        *p = c->coming;
        p->dst = buf ? buf + at : (char *)res_host_ptr(b) + p->to;
        dev_host_access(res_device(l->m->res, b->device), p->dst, p->n, DEV_WRITE);
        at += p->n;
        advance(l, c);
    }
    *bytes = at;
    return BERTH_OK;
}

/* Thread: any. */
static void read_piece(struct loading *l, const struct piece *p)
{
    berth_err err;
    if (atomic_load_explicit(&l->stop, memory_order_relaxed) || res_canceled(l->args))
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
    if (res_canceled(l->args))
        return cancel_err(l, err);
    l->got.read += bytes;
    l->done += bytes;
    return BERTH_OK;
}

/* ---- blocks in host memory ---- */

static void read_nth(void *user, size_t i, size_t worker)
{
    struct loading *l = user;
    (void)worker;
    read_piece(l, vec_at(&l->batch, i));
}

static berth_status load_direct(struct loading *l, size_t device, berth_err *err)
{
    struct cursor c = cursor_on(l, device, RES_READ_PIECE);
    size_t most = tpool_size(l->m->res->pool) * BATCH_BYTES;
    uint64_t bytes;
    l->batch.elem = sizeof(struct piece);
    while (c.more) {
        if (take_pieces(l, &c, NULL, most, &l->batch, &bytes, err))
            return err->code;
        tpool_for(l->m->res->pool, l->batch.n, read_nth, l);
        if (account(l, bytes, err))
            return err->code;
        report_progress(l);
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
};

static void fill(void *user, unsigned b, size_t i)
{
    struct sending *s = user;
    read_piece(s->l, vec_at(&s->buf[b].piece, i));
}

/* A failure of the path itself is reported with a block that is on it. */
static berth_status on_the_way(const struct sending *s, const struct vec *pieces, berth_status st,
                               berth_err *err)
{
    const struct piece *p = pieces->n ? vec_at(pieces, 0) : &s->cursor.coming;
    return st ? res_block_err(s->l->m, p->block, s->device, err) : BERTH_OK;
}

static berth_status post(struct sending *s, berth_err *err)
{
    unsigned b = (unsigned)(s->stage.posted % s->stage.args.bufs);
    struct vec *pieces = &s->buf[b].piece;
    if (on_the_way(s, pieces, stage_take(&s->stage, true, &b, err), err) ||
        take_pieces(s->l, &s->cursor, stage_at(&s->stage, b), s->stage.args.bytes, pieces,
                    &s->buf[b].bytes, err))
        return err->code;
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
    report_progress(s->l);
    return BERTH_OK;
}

static berth_status send_all(struct sending *s, berth_err *err)
{
    struct stage *g = &s->stage;
    s->cursor = cursor_on(s->l, s->device, g->args.bytes);
    while (s->cursor.more) {
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
    struct stage_args a = { .dev = res_device(r, s->device),
                            .threads = res_read_threads(r, bytes),
                            .ops = &ops,
                            .user = s };
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

static berth_status load_staged(struct loading *l, size_t device, berth_err *err)
{
    struct residency *r = l->m->res;
    struct sending s = { .l = l, .device = device, .cursor = cursor_on(l, device, 1) };
    uint64_t bytes = 0;
    for (size_t i = 0; i < l->m->blocks.n; i++)
        bytes += is_read(l, device, i) ? l->m->blocks.at[i].bytes : 0;
    if (!bytes)
        return BERTH_OK;
    for (unsigned k = 0; k < STAGE_BUFS; k++)
        s.buf[k].piece.elem = sizeof(struct piece);
    if (res_stream_of(r, device, &s.stream, err) || open_stage(&s, bytes, err))
        return res_block_err(l->m, s.cursor.coming.block, device, err);
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

/* ---- the whole ---- */

static void snapshot(struct res_model *m, const char *tag)
{
    char who[JOURNAL_NAME_MAX];
    snprintf(who, sizeof who, "%.60s:%08" PRIx64, m->role, m->key.full >> 32);
    journal_snapshot(m->res->journal, who, tag);
}

/* Bytes that the blocks need on device d, patched as they will be; *first is one of them. */
static uint64_t need_on(const struct loading *l, size_t d, size_t *first)
{
    const struct res_model *m = l->m;
    uint64_t need = 0;
    for (size_t i = m->blocks.n; i-- > 0;) {
        if (m->block[i].home != d || !m->block[i].span)
            continue;
        uint64_t span = wanted_patch(l, i) ? res_patched_span(m, i) : m->block[i].span;
        if (__builtin_add_overflow(need, span, &need))
            need = UINT64_MAX;
        *first = i;
    }
    return need;
}

static struct res_need needed(const struct loading *l, size_t d, size_t *first)
{
    return (struct res_need) { d, need_on(l, d, first), l->m, l->args->evict_keep };
}

/* Fails before evicting anything if evicting everything evictable would not be enough. Else others
 * leave once for all blocks that come, so that not every block has to ask for itself. */
static berth_status evict_for_load(struct loading *l, berth_err *err)
{
    struct res_model *m = l->m;
    struct residency *r = m->res;
    size_t first = 0;
    bool narrow = m->eject_others;
    for (size_t d = 0; d < r->n_devices; d++) {
        struct res_need need = needed(l, d, &first);
        if (need.bytes && !res_evict_could(r, &need)) {
            res_evict_failed(r, &need, err);
            return res_block_err(m, first, d, err);
        }
        narrow |= res_left_on(r, d) < need.bytes;
    }
    if (!narrow)
        return BERTH_OK;
    journal_snapshot(r->journal, "free_memory", "pre");
    if (m->eject_others)
        res_evict_others(m);
    for (size_t d = 0; d < r->n_devices; d++) {
        struct res_need need = needed(l, d, &first);
        need.evict_keep = false;
        while (need.bytes && res_left_on(r, d) < need.bytes && res_evict(r, &need))
            ;
    }
    journal_snapshot(r->journal, "free_memory", "post");
    return BERTH_OK;
}

static berth_status get_memory(struct loading *l, berth_err *err)
{
    struct res_model *m = l->m;
    struct res_pins pins = { 0 };
    berth_status s = BERTH_OK;
    for (size_t i = 0; i < m->blocks.n && !s; i++) {
        struct res_block got;
        if (res_canceled(l->args))
            s = cancel_err(l, err);
        else if (!res_block_pin(m, i, &pins, &got))
            s = res_evict_for_block(m, i,
                                    &(struct res_place) { m->block[i].home, m->block[i].span },
                                    l->args->evict_keep, &got, err);
        if (!s)
            res_block_put(m, i, &got);
    }
    res_pins_close(&pins);
    return s;
}

/* A block whose patches are not what they should be. */
static berth_status patch_one(struct loading *l, struct res_patching *x, size_t i, berth_err *err)
{
    struct res_model *m = l->m;
    if (res_canceled(l->args))
        return cancel_err(l, err);
    if (m->uses)
        return err_set(err, BERTH_EBUSY, "model %s is in use: its patches cannot change", m->owner);
    if (res_patch_block(x, i, err))
        return res_block_err(m, i, m->block[i].device, err);
    if (m->state == RES_LOADING) {
        l->done += m->blocks.at[i].bytes;
        report_progress(l);
    }
    return BERTH_OK;
}

/* Of a LOADING model all that have patches. */
static berth_status patch_blocks(struct loading *l, berth_err *err)
{
    struct res_model *m = l->m;
    struct res_patching x = { .m = m, .args = l->args, .got = &l->got };
    berth_status s = BERTH_OK;
    berth_err ignored;
    for (size_t i = 0; !s && i < m->blocks.n; i++)
        if (m->block[i].patch != wanted_patch(l, i))
            s = patch_one(l, &x, i, err);
    return s ? (res_patch_end(&x, &ignored), s) : res_patch_end(&x, err);
}

static berth_status load_all(struct loading *l, berth_err *err)
{
    struct residency *r = l->m->res;
    uint64_t began = res_now(r);
    berth_status s = evict_for_load(l, err);
    if (!s)
        s = get_memory(l, err);
    l->room_ns = res_now(r) - began;
    for (size_t d = 0; !s && d < r->n_devices; d++)
        s = dev_can(res_device(r, d), BERTH_CAP_HOST_VISIBLE) ? load_direct(l, d, err)
                                                              : load_staged(l, d, err);
    if (!s) {
        snapshot(l->m, "post-weights");
        s = patch_blocks(l, err);
    }
    if (!s)
        snapshot(l->m, "post-model");
    if (!s && weights_check(l->m->weights, err))
        s = err_add(err, "loading model %.80s", l->m->owner);
    if (!s && res_canceled(l->args))
        s = cancel_err(l, err);
    return s;
}

/* Blocks that had to leave come home where that pushes nobody out. Not worth an error. */
static void promote(struct loading *l)
{
    struct res_model *m = l->m;
    for (size_t i = 0; i < m->blocks.n && !m->uses; i++) {
        berth_err err;
        struct res_block *b = &m->block[i];
        if (b->device == b->home || res_left_on(m->res, b->home) < b->span)
            continue;
        berth_status s = res_block_move(m, i, b->home, &err);
        if (s && s != BERTH_ENODEVMEM)
            log_warn(m->res->log, "res.promote", "model=%s why=\"%s\"", m->owner, err.msg);
        if (s)
            return;
        l->promoted += b->bytes;
    }
}

static berth_status loading_begin(struct loading *l, berth_err *err)
{
    struct res_model *m = l->m;
    int e = pthread_mutex_init(&l->lock, NULL);
    if (e)
        return err_sys(err, BERTH_ENOMEM, e, "a lock");
    if (!m->patches.n)
        return BERTH_OK;
    l->want = calloc(m->blocks.n ? m->blocks.n : 1, sizeof *l->want);
    for (size_t i = 0; l->want && i < m->blocks.n; i++)
        l->want[i] = res_patch_signature(m, i);
    if (l->want)
        return BERTH_OK;
    pthread_mutex_destroy(&l->lock);
    return err_set(err, BERTH_ENOMEM, "patches of %zu blocks of model %s", m->blocks.n, m->owner);
}

static void loading_end(struct loading *l)
{
    struct res_model *m = l->m;
    m->read += l->got.read;
    m->moved += l->got.moved;
    m->res->metrics.read_bytes += l->got.read;
    m->res->metrics.moved_bytes += l->got.moved;
    l->got.moved += l->promoted;
    free(l->want);
    vec_release(&l->batch);
    pthread_mutex_destroy(&l->lock);
}

/* ---- its placement in the JSON log ---- */

static void add_line(void *user, const char *line)
{
    str_addf(user, "\n%s", line);
}

static void record(const struct res_model *m, const struct str *text)
{
    static const char *const fields[] = { "component", "distorch_2", NULL };
    if (!text->bad)
        journal_record(m->res->journal, JOURNAL_FOCUS, text->p, fields);
}

/* The string is the exact one, which a loader takes; the tables stand behind it. */
static void journal_plan(const struct res_model *m)
{
    const struct plan *p = &m->plan;
    struct str text = { 0 };
    if (p->quotas.mode == ALLOC_VIRTUAL)
        str_addf(&text, CATEGORY "Virtual VRAM of %s: %.2fGB", m->owner,
                 (double)p->quotas.virtual_bytes / 1073741824.0);
    if (text.n)
        record(m, &text);
    str_clear(&text);
    str_addf(&text, CATEGORY "Final Allocation String of %s:\n", m->owner);
    plan_string(p, &text);
    plan_tables(p, &m->blocks, add_line, &text);
    record(m, &text);
    str_clear(&text);
    str_addf(&text, CATEGORY "Total memory of %s: %.2fMB", m->owner,
             (double)m->blocks.bytes / 1048576.0);
    record(m, &text);
    str_release(&text);
}

/* ---- doors ---- */

static berth_status load_absent(struct loading *l, berth_err *err)
{
    struct res_model *m = l->m;
    struct residency *r = m->res;
    enum res_state before = m->state;
    uint64_t began = res_now(r);
    journal_snapshot(r->journal, "load_models_gpu_top_level", "start");
    snapshot(m, "pre-load");
    m->state = RES_LOADING;
    berth_status s = load_all(l, err);
    if (s) {
        res_drop_all(m);
        m->state = before;
        r->metrics.load_failures += s != BERTH_ECANCELED;
    } else {
        m->state = RES_RESIDENT;
        m->patches_changed = false;
        m->eject_others = false; /* that was the first load; another open may ask again */
        m->loads++;
        r->metrics.loads++;
        l->done = m->blocks.bytes;
        report_progress(l);
        journal_plan(m);
    }
    snapshot(m, "post-load");
    log_info(r->log, "res.load",
             "model=%s status=%s bytes=%" PRIu64 " read=%" PRIu64 " moved=%" PRIu64 " ms=%" PRIu64
             " memory_ms=%" PRIu64,
             m->owner, berth_status_name(s), m->blocks.bytes, l->got.read, l->got.moved,
             (res_now(r) - began) / 1000000, l->room_ns / 1000000);
    return s;
}

static berth_status load_resident(struct loading *l, berth_err *err)
{
    struct res_model *m = l->m;
    berth_status s = patch_blocks(l, err);
    if (s)
        return s;
    m->patches_changed = false;
    promote(l);
    l->done = m->blocks.bytes;
    report_progress(l);
    return BERTH_OK;
}

berth_status res_load(struct res_model *m, const struct res_load_args *args,
                      struct res_load_result *result, berth_err *err)
{
    static const struct res_load_args defaults;
    struct loading l = { .m = m, .args = args ? args : &defaults };
    struct residency *r = m->res;
    if (result)
        *result = (struct res_load_result) { 0 };
    if (m->loading)
        return err_set(err, BERTH_EBUSY, "model %s is being loaded", m->owner);
    berth_status s = loading_begin(&l, err);
    if (s)
        return s;
    l.got.was_resident = m->state == RES_RESIDENT;
    m->loading = true;
    s = l.got.was_resident ? load_resident(&l, err) : load_absent(&l, err);
    res_touch(m);
    if (s || l.got.read) /* else two copies of the model would count as this process's memory */
        weights_drop(m->weights);
    loading_end(&l);
    if (result)
        *result = l.got;
    m->loading = false;
    res_model_maybe_gone(m); /* the progress callback may have let go of it */
    res_check_now(r);
    return s;
}
