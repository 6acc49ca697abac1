/* staged: pageable blocks on their way through the stage.
 *
 * A staged run is handled in chunks of at most one staging buffer. The executor posts a chunk when
 * a buffer is free, a thread of the stage packs its bytes, the executor queues the copies to the
 * slot. A chunk whose slot was given to another run meanwhile is loaded and then thrown away. */
#include "stream/stream_impl.h"

static void fill(void *user, unsigned b, size_t piece)
{
    const struct stream *s = user;
    const struct stage_chunk *k = &s->chunk[b];
    const struct stream_copy *c = &s->cut.copy[k->copy];
    char *to = stage_at(&s->stage, b);
    size_t off = k->off;
    (void)piece; /* a chunk is one */
    for (size_t done = 0, n; done < k->n; done += n, c++, off = 0) {
        n = c->n - off < k->n - done ? c->n - off : k->n - done;
        memcpy(to + done, (const char *)(uintptr_t)c->src + off, n);
    }
}

/* ---- handing out ---- */

/* The staged run that is needed first and has bytes nobody loads yet. */
static struct stream_slot *next_to_load(struct stream *s)
{
    struct stream_slot *best = NULL;
    for (uint32_t i = 0; i < s->slots; i++) {
        struct stream_slot *t = &s->slot[i];
        if (t->run != STREAM_NONE && t->stage_to &&
            (!best || stream_distance(s, t->run) < stream_distance(s, best->run)))
            best = t;
    }
    return best;
}

/* The next chunk of t. The loader's accesses are declared here: what checks the order of accesses
 * knows one host thread, and the hand-over is where ours ends and the loader's begins. */
static struct stage_chunk cut_chunk(struct stream *s, struct stream_slot *t, char *buf)
{
    struct device *d = s->args.compute;
    const struct stream_run *r = &s->cut.run[t->run];
    size_t n = t->stage_to < s->stage.args.bytes ? t->stage_to : s->stage.args.bytes;
    struct stage_chunk k = { .slot = (uint32_t)(t - s->slot),
                             .run = t->run,
                             .serial = t->serial,
                             .copy = r->copy + t->stage_copy,
                             .off = t->stage_off,
                             .n = n };
    t->stage_to -= n;
    dev_host_access(d, buf, n, DEV_WRITE);
    while (n) {
        const struct stream_copy *c = &s->cut.copy[r->copy + t->stage_copy];
        size_t part = c->n - t->stage_off < n ? c->n - t->stage_off : n;
        dev_host_access(d, (const char *)(uintptr_t)c->src + t->stage_off, part, DEV_READ);
        n -= part;
        t->stage_off += part;
        if (t->stage_off == c->n) {
            t->stage_copy++;
            t->stage_off = 0;
        }
    }
    return k;
}

static berth_status post(struct stream *s, berth_err *err)
{
    struct stream_slot *t;
    while ((t = next_to_load(s))) {
        unsigned b;
        if (stage_take(&s->stage, false, &b, err))
            return stream_broke(s, t->run, err);
        if (b == STAGE_NONE)
            break;
        s->chunk[b] = cut_chunk(s, t, stage_at(&s->stage, b));
        stage_post(&s->stage, 1);
    }
    return BERTH_OK;
}

/* ---- queueing copies ---- */

/* Bytes of the chunk that lie behind one another in the slot go as one copy: in the buffer they
 * always do. */
static berth_status copy_chunk(struct stream *s, struct stream_slot *t, const struct stage_chunk *k,
                               const char *buf, berth_err *err)
{
    const struct stream_copy *c = &s->cut.copy[k->copy];
    struct dev_stream *lane = s->lane[t->lane];
    size_t off = k->off;
    for (size_t done = 0, n = 0; done < k->n; done += n) {
        size_t dst = c->dst + off;
        for (n = 0; done + n < k->n && c->dst + off == dst + n; c++, off = 0) {
            size_t left = k->n - done - n, part = c->n - off < left ? c->n - off : left;
            n += part;
            if (part < c->n - off) /* the chunk ends inside this one */
                break;
        }
        if (dev_copy_h2d(lane, s->ring.addr + t->from + dst, buf + done, n, err))
            return err->code;
        s->stats.copies++;
        stream_count(s, n);
        s->stats.staged += n;
        t->copied += n;
    }
    return BERTH_OK;
}

static berth_status send(void *user, unsigned b, berth_err *err)
{
    struct stream *s = user;
    const struct stage_chunk *k = &s->chunk[b];
    struct stream_slot *t = &s->slot[k->slot];
    if (t->run == STREAM_NONE || t->serial != k->serial)
        return BERTH_OK;
    const struct stream_run *r = &s->cut.run[k->run];
    if (stream_slot_open(s, t, r->lane, err) || copy_chunk(s, t, k, stage_at(&s->stage, b), err) ||
        stage_mark(&s->stage, b, s->lane[r->lane], err))
        return stream_broke(s, k->run, err);
    return t->copied == r->bytes ? stream_slot_filled(s, t, err) : BERTH_OK;
}

berth_status staged_pump(struct stream *s, berth_err *err)
{
    if (!s->stage.made)
        return BERTH_OK;
    return stage_pump(&s->stage, err) ? err->code : post(s, err);
}

berth_status staged_finish(struct stream *s, struct stream_slot *t, berth_err *err)
{
    for (;;) {
        unsigned b;
        if (staged_pump(s, err))
            return err->code;
        if (t->ready)
            return BERTH_OK;
        if (s->stage.sent < s->stage.posted)
            stage_wait(&s->stage);
        else if (stage_take(&s->stage, true, &b, err)) /* t has bytes to load, and no buffer */
            return stream_broke(s, t->run, err);
    }
}

/* ---- life ---- */

/* Chunks of one pass: more buffers than that would never be used. */
static uint64_t chunks(const struct stream_cut *c, size_t bytes)
{
    uint64_t n = 0;
    for (uint32_t k = 0; k < c->runs; k++)
        if (c->run[k].staged)
            n += (c->run[k].bytes - 1) / bytes + 1;
    return n;
}

berth_status staged_open(struct stream *s, berth_err *err)
{
    static const struct stage_ops ops = { .fill = fill, .send = send };
    const struct stream_config *cfg = &s->args.cfg;
    if (!s->cut.staged)
        return BERTH_OK;
    if (!s->args.host_owner)
        BUG("stream: pageable blocks and nobody to pay for staging");
    size_t bytes = cfg->stage_bytes < s->cut.staged ? (size_t)cfg->stage_bytes : s->cut.staged;
    uint64_t most = chunks(&s->cut, bytes);
    unsigned bufs = most < cfg->stage_slots ? (unsigned)most : cfg->stage_slots;
    return stage_open(&s->stage,
                      &(struct stage_args) { .dev = s->args.compute,
                                             .owner = s->args.host_owner,
                                             .bytes = bytes,
                                             .bufs = bufs,
                                             .threads = cfg->loaders < bufs ? cfg->loaders : bufs,
                                             .ops = &ops,
                                             .user = s },
                      err);
}
