/* patch_send: parts of patched blocks on their way to memory. Two buffers, so that one is filled
 * while the other travels; bytes of the file are read by several threads. */
#include "residency/patch_impl.h"

static berth_status make_part(struct res_patching *x, const struct part *t, void *to,
                              berth_err *err)
{
    if (t->entry)
        return weights_read(x->m->weights, t->entry, t->from, to, t->n, err);
    if (t->make)
        return t->make(t->of, to, err);
    memcpy(to, t->raw, t->n);
    return BERTH_OK;
}

/* What is not of the file is there already. */
static void fill_part(void *user, unsigned buf, size_t piece)
{
    struct res_patching *x = user;
    const struct part *t = x->part;
    if (!t->entry)
        return;
    const size_t from = piece * RES_READ_PIECE, left = t->n - from;
    x->filled[piece] =
        weights_read(x->m->weights, t->entry, t->from + from, stage_at(&x->stage, buf) + from,
                     left < RES_READ_PIECE ? left : RES_READ_PIECE, &x->why[piece]);
}

static berth_status send_part(void *user, unsigned buf, berth_err *err)
{
    struct res_patching *x = user;
    const struct part *t = x->part;
    for (size_t i = 0; t->entry && i * RES_READ_PIECE < t->n; i++)
        if (x->filled[i]) {
            *err = x->why[i];
            return err->code;
        }
    const uint64_t addr = t->addr ? t->addr : x->to->mem.addr + t->off;
    if (dev_copy_h2d(x->stream, addr, stage_at(&x->stage, buf), t->n, err) ||
        stage_mark(&x->stage, buf, x->stream, err))
        return err->code;
    x->got->moved += t->weight ? t->n : 0;
    return BERTH_OK;
}

berth_status patch_settle(struct res_patching *x, berth_err *err)
{
    berth_status s = x->stream ? dev_stream_sync(x->stream, err) : BERTH_OK;
    if (s)
        res_stream_settle(x->m->res, x->device);
    return s;
}

/* pre: settled */
static void close_stage(struct res_patching *x)
{
    stage_close(&x->stage);
    x->stream = NULL;
}

/* What patch_card.c has of a device. */
static void leave_device(struct res_patching *x)
{
    dev_free(&x->scratch);
    x->card = CARD_UNKNOWN;
}

/* One buffer where the host has no room for more, and others leave the host for that where they
 * must. */
static berth_status open_stage(struct res_patching *x, size_t n, berth_err *err)
{
    static const struct stage_ops ops = { .fill = fill_part, .send = send_part };
    struct residency *r = x->m->res;
    const struct res_need need = { r->host, n, x->m, x->args->evict_keep };
    struct stage_args a = { .dev = res_device(r, x->device),
                            .bytes = n,
                            .bufs = 2,
                            .threads = res_read_threads(r, n < PATCH_BOUNCE ? n : PATCH_BOUNCE),
                            .ops = &ops,
                            .user = x };
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

berth_status patch_stage(struct res_patching *x, size_t device, size_t n, berth_err *err)
{
    if (x->stream && x->device == device && x->stage.args.bytes >= n)
        return BERTH_OK;
    if (x->stream && patch_settle(x, err))
        return err->code;
    close_stage(x);
    if (x->device != device)
        leave_device(x);
    x->device = device;
    return open_stage(x, n, err);
}

berth_status patch_put(struct res_patching *x, const struct res_block *to, const struct part *t,
                       berth_err *err)
{
    char *host = t->addr ? NULL : res_host_ptr(to);
    unsigned buf;
    if (host) {
        dev_host_access(res_device(x->m->res, to->device), host + t->off, t->n, DEV_WRITE);
        return make_part(x, t, host + t->off, err);
    }
    if (patch_stage(x, to->device, t->n, err) || stage_take(&x->stage, true, &buf, err))
        return err->code;
    x->to = to;
    x->part = t;
    dev_host_access(res_device(x->m->res, to->device), stage_at(&x->stage, buf), t->n, DEV_WRITE);
    if (!t->entry && make_part(x, t, stage_at(&x->stage, buf), err))
        return err->code;
    stage_post(&x->stage, t->entry ? (t->n + RES_READ_PIECE - 1) / RES_READ_PIECE : 1);
    return stage_drain(&x->stage, err);
}

berth_status patch_put_entry(struct res_patching *x, const struct res_block *to,
                             const struct weights_entry *e, uint64_t from, uint64_t n,
                             const struct part *where, berth_err *err)
{
    struct part t = *where;
    berth_status s = BERTH_OK;
    t.entry = e;
    t.weight = true;
    for (uint64_t at = 0; !s && at < n; at += t.n) {
        t.from = from + at;
        t.off = where->off + at;
        t.addr = where->addr ? where->addr + at : 0;
        t.n = n - at < PATCH_BOUNCE ? (size_t)(n - at) : PATCH_BOUNCE;
        s = patch_put(x, to, &t, err);
    }
    return s;
}

berth_status res_patch_end(struct res_patching *x, berth_err *err)
{
    berth_status s = patch_settle(x, err);
    if (s)
        res_block_err(x->m, x->last, x->device, err);
    leave_device(x);
    close_stage(x);
    return s;
}
