/* load_pieces: the file cut into pieces, read by whoever has time. For load.c and load_stage.c. */
#include "residency/load_impl.h"

#include <inttypes.h>

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

bool load_skips(const struct loading *l, const struct cursor *c)
{
    return l->m->block[c->block].device != c->device || load_wanted_patch(l, c->block) != 0;
}

bool load_next(const struct loading *l, struct cursor *c, size_t most, struct piece *out)
{
    const struct blocks *b = &l->m->blocks;
    for (; c->block < b->n; c->block++, c->tensor = 0, c->off = 0) {
        if (load_skips(l, c))
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

void load_read(struct loading *l, const struct piece *p)
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

uint64_t load_hand_out(const struct loading *l, const struct vec *pieces)
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

berth_status load_account(struct loading *l, uint64_t bytes, berth_err *err)
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

struct piece *load_add(const struct loading *l, struct vec *to, berth_err *err)
{
    struct piece *p = vec_add(to);
    if (!p)
        err_set(err, BERTH_ENOMEM, "%zu pieces of model %s", to->n, l->m->owner);
    return p;
}
