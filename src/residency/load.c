/* load: from the file to the blocks' homes.
 *
 * Flow     every block gets its memory (evicting others) -> blocks in host memory: the file is read
 *          straight into them, in pieces on all threads -> blocks elsewhere, device by device:
 *          all threads read pieces into some pinned buffers, those that are full travel meanwhile
 *          -> blocks with patches (patch.c) -> did the file change? -> RESIDENT
 * Journal  load_models_gpu_top_level start; <role>:<8 of the key> pre-load; free_memory pre and post
 *          if others have to leave; post-weights when all is read, post-model when it is patched;
 *          post-load, whatever came of it. A load of a RESIDENT model writes nothing.
 * Pieces   A batch of pieces, or a buffer of them, is read at a time. Between them the executor
 *          thread reports progress and looks at cancel; readers look at it before each piece.
 * Threads  The pool's threads, or the stage's, read into memory that the executor declared
 *          (dev_host_access) and gave them; devices are called by the executor alone.
 * Failure  What was got goes back, nothing is queued any more, the state is the old one.
 * Files    load.c the whole, load_read.c pieces from the file to where they belong */
#include "residency/load_impl.h"

#include <inttypes.h>

/* ---- the whole ---- */

static void snapshot(struct res_model *m, const char *tag)
{
    char who[JOURNAL_NAME_MAX];
    snprintf(who, sizeof who, "%.60s:%08" PRIx64, m->role, m->key >> 32);
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
        uint64_t span = load_wanted_patch(l, i) ? res_patched_span(m, i) : m->block[i].span;
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
        if (load_canceled(l))
            s = load_cancel_err(l, err);
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
    if (load_canceled(l))
        return load_cancel_err(l, err);
    if (m->uses)
        return err_set(err, BERTH_EBUSY, "model %s is in use: its patches cannot change", m->owner);
    if (res_patch_block(x, i, err))
        return res_block_err(m, i, m->block[i].device, err);
    if (m->state == RES_LOADING) {
        l->done += m->blocks.at[i].bytes;
        load_progress(l);
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
        if (m->block[i].patch != load_wanted_patch(l, i))
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
    if (!s && load_canceled(l))
        s = load_cancel_err(l, err);
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
        load_progress(l);
        res_journal_plan(m);
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
    load_progress(l);
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
