/* model_stream: the blocks of a registered model as items of a stream.
 *
 * The items say where every block lies now and which of its bytes are tensors, patched layouts
 * included. A use keeps the model there while the stream is open, so both stay true. */
#include "residency/residency_impl.h"
#include "stream/stream.h"

struct model_stream { /* what a stream of a model holds besides the ring; its on_close frees it */
    struct arena mem; /* items and pieces */
    struct res_model *model; /* in use; NULL: not yet */
    struct dev_owner *ring, *staging;
    struct stream_item *item;
};

static void release(void *user)
{
    struct model_stream *x = user;
    dev_owner_close(x->ring);
    dev_owner_close(x->staging);
    arena_release(&x->mem);
    if (x->model)
        res_use_end(x->model); /* may be its end */
    free(x);
}

static berth_status make_item(const struct res_model *m, size_t i, struct stream_piece *piece,
                              struct stream_item *out, berth_err *err)
{
    struct device *compute = res_device(m->res, m->compute);
    struct res_block_at at;
    if (res_block_at(m, i, &at, err))
        return err->code;
    for (uint32_t k = 0; k < m->blocks.at[i].n; k++) {
        struct res_tensor_at t = res_tensor_at(m, i, k);
        piece[k] = (struct stream_piece) { t.off, t.bytes };
    }
    *out = (struct stream_item) { .source = stream_source_of(compute, at.dev, at.pinned),
                                  .dev = at.dev,
                                  .addr = at.addr,
                                  .base = at.base,
                                  .span = at.span,
                                  .piece = piece,
                                  .pieces = m->blocks.at[i].n,
                                  .name = m->blocks.at[i].name };
    return BERTH_OK;
}

static berth_status make_items(const struct res_model *m, struct model_stream *x, berth_err *err)
{
    struct stream_piece *piece = arena_array(&x->mem, m->blocks.tensors, sizeof *piece);
    x->item = arena_array(&x->mem, m->blocks.n, sizeof *x->item);
    if (!piece || !x->item)
        return err_set(err, BERTH_ENOMEM, "%zu blocks of %zu tensors", m->blocks.n,
                       m->blocks.tensors);
    for (size_t i = 0; i < m->blocks.n; i++)
        if (make_item(m, i, piece + m->blocks.at[i].first, &x->item[i], err))
            return err->code;
    return BERTH_OK;
}

/* Lines of their own: what the ledger has under the model's name is its weights, exactly. */
static berth_status open_owners(const struct res_model *m, struct model_stream *x, berth_err *err)
{
    static const char of[] = "stream of ";
    struct device *d = res_device(m->res, m->compute);
    char name[DEV_OWNER_MAX];
    snprintf(name, sizeof name, "%s%.*s", of, (int)(sizeof name - sizeof of), m->owner);
    if (dev_owner_open(d, name, DEV_STAGING, &x->ring, err))
        return err->code;
    return dev_owner_open(d, name, DEV_PINNED, &x->staging, err);
}

static berth_status alloc_ring(void *user, struct device *d, struct dev_owner *o, size_t n,
                               struct dev_mem *out, berth_err *err)
{
    struct res_model *m = user;
    return res_alloc(m->res, &(struct res_alloc_args) { d, o, n, .for_model = m }, out, err);
}

/* An eighth of what is left where the model computes, and no more than helps: 192 MiB are what
 * SD1.5 and SDXL gain from. Nobody is evicted for it, and a pass that is short of memory closes the
 * stream before others go (net/run.c). Where there is little the ring has what it needs. */
#define RING_MOST (UINT64_C(384) << 20)
#define RING_WORTH (3 * STREAM_RUN_DEFAULT)

static uint64_t ring_of(const struct res_model *m)
{
    uint64_t least = res_left_on(m->res, m->compute) / 8;
    return least < RING_WORTH ? 0 : least < RING_MOST ? least : RING_MOST;
}

/* Half of the cores fill staging, as far as that helps: they are idle while a card computes. */
static unsigned loaders_of(const struct residency *r)
{
    const size_t most = 8;
    size_t half = tpool_size(r->pool) / 2;
    return (unsigned)(half < STREAM_LOADERS_DEFAULT ? STREAM_LOADERS_DEFAULT
                      : half < most                 ? half
                                                    : most);
}

berth_status res_stream_open(struct res_model *m, const struct stream_config *cfg,
                             struct stream **out, berth_err *err)
{
    *out = NULL;
    struct model_stream *x = calloc(1, sizeof *x);
    if (!x)
        return err_set(err, BERTH_ENOMEM, "a stream of model %s", m->owner);
    berth_status s = res_use_begin(m, err);
    if (!s) {
        x->model = m;
        s = make_items(m, x, err) ? err->code : open_owners(m, x, err);
    }
    struct stream_args args = { .name = m->owner,
                                .compute = res_device(m->res, m->compute),
                                .item = x->item,
                                .n = m->blocks.n,
                                .owner = x->ring,
                                .host_owner = x->staging,
                                .alloc = alloc_ring,
                                .alloc_user = m,
                                .on_close = release,
                                .close_user = x,
                                .cfg = cfg ? *cfg : (struct stream_config) { 0 } };
    args.cfg.clock = args.cfg.clock ? args.cfg.clock : m->res->clock;
    args.cfg.log = args.cfg.log ? args.cfg.log : m->res->log;
    args.cfg.total = &m->res->streamed;
    args.cfg.loaders = args.cfg.loaders ? args.cfg.loaders : loaders_of(m->res);
    if (!args.cfg.slots && !args.cfg.ring_least)
        args.cfg.ring_least = ring_of(m);
    if (!s)
        s = stream_open(&args, out, err);
    if (s)
        release(x);
    return s;
}

struct res_streamed res_streamed(struct residency *r)
{
    struct stream_total *t = &r->streamed;
    return (struct res_streamed) {
        .bytes = atomic_load_explicit(&t->bytes, memory_order_relaxed),
        .copy_ns = atomic_load_explicit(&t->copy_ns, memory_order_relaxed),
        .exposed_ns = atomic_load_explicit(&t->exposed_ns, memory_order_relaxed),
    };
}
