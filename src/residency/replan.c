/* replan: a model gets another plan, and its blocks move there. */
#include "residency/residency_impl.h"

#include <inttypes.h>

/* A block that is on device d and has to leave it waits on the host until there is room where it
 * belongs. False: there is no such block, or no room for it. */
static bool step_aside(struct res_model *m, const uint8_t *home, size_t d)
{
    const struct residency *r = m->res;
    berth_err err;
    if (r->host == r->n_devices || r->host == d)
        return false;
    for (size_t i = 0; i < m->blocks.n; i++)
        if (m->block[i].device == d && home[i] != d && m->block[i].span)
            return res_left_on(r, r->host) >= m->block[i].span &&
                   !res_block_move(m, i, r->host, &err);
    return false;
}

/* Two rounds of moves that fit by themselves, since every block that leaves makes room for one that
 * comes; then what is left: blocks that wait for each other's places, or for somebody else's. */
static berth_status move_to(struct res_model *m, const uint8_t *home, berth_err *err)
{
    enum { QUIET_ROUNDS = 2 };
    for (int round = 0; round <= QUIET_ROUNDS; round++)
        for (size_t i = 0; i < m->blocks.n; i++) {
            bool last = round == QUIET_ROUNDS;
            if (m->block[i].device == home[i] ||
                (!last && res_left_on(m->res, home[i]) < m->block[i].span))
                continue;
            berth_status s = res_block_move(m, i, home[i], err);
            while (last && s == BERTH_ENODEVMEM && step_aside(m, home, home[i]))
                s = res_block_move(m, i, home[i], err);
            if (last && s == BERTH_ENODEVMEM)
                s = res_evict_for_move(m, i, home[i], err);
            if (s && (last || s != BERTH_ENODEVMEM))
                return s;
        }
    /* Those that stepped aside after their turn. */
    for (size_t i = 0; i < m->blocks.n; i++)
        if (m->block[i].device != home[i] && res_evict_for_move(m, i, home[i], err))
            return err->code;
    return BERTH_OK;
}

/* Fails before a block moves if evicting everything evictable would not be enough. */
static berth_status could_move(const struct res_model *m, const uint8_t *home, berth_err *err)
{
    const struct residency *r = m->res;
    for (size_t d = 0; d < r->n_devices; d++) {
        uint64_t come = 0, leave = 0;
        size_t first = 0;
        for (size_t i = m->blocks.n; i-- > 0;) {
            if (m->block[i].device == home[i])
                continue;
            come += home[i] == d ? m->block[i].span : 0;
            leave += m->block[i].device == d ? m->block[i].span : 0;
            first = home[i] == d ? i : first;
        }
        leave += leave / 8; /* a pool's ranges may be so much larger */
        const struct res_need need = { d, come > leave ? come - leave : 0, m, false };
        if (need.bytes && !res_evict_could(r, &need)) {
            res_evict_failed(r, &need, err);
            return res_block_err(m, first, d, err);
        }
    }
    return BERTH_OK;
}

struct next { /* what a model gets with its new plan; all of it before the first block moves */
    struct plan plan;
    struct res_key key;
};

static void next_release(struct next *x)
{
    plan_release(&x->plan);
    free(x->key.text);
    *x = (struct next) { 0 };
}

static berth_status next_make(struct res_model *m, const struct plan_args *args, bool measure,
                              struct next *x, berth_err *err)
{
    struct residency *r = m->res;
    if (res_key_make(r, m->weights, m->part, m->options, m->high_precision, args, &x->key, err) ||
        res_make_plan(r, &m->blocks, args, measure, &x->plan, err))
        return err->code;
    for (const struct res_model *o = r->first; o; o = o->next)
        if (o != m && res_key_is(o, &x->key, false))
            return err_set(err, BERTH_EBUSY, "model %s has that plan already", o->owner);
    return BERTH_OK;
}

/* Swaps, so that releasing x releases what m had. */
static void next_take(struct res_model *m, struct next *x)
{
    struct next old = { .plan = m->plan, .key.text = m->key_text };
    m->plan = x->plan;
    m->key_text = x->key.text;
    m->base_len = x->key.base_len;
    m->base_key = x->key.base;
    m->key = x->key.full;
    m->compute = m->plan.quotas.compute;
    for (size_t i = 0; i < m->blocks.n; i++) {
        m->block[i].home = m->plan.device[i];
        /* What adapters make of a block depends on who computes: the next load derives it again. */
        if (m->state == RES_RESIDENT && m->patches.n)
            m->patches_changed |= m->block[i].patch != res_patch_signature(m, i);
    }
    *x = old;
}

berth_status res_replan(struct res_model *m, const struct plan_args *plan,
                        struct res_load_result *result, berth_err *err)
{
    struct next next = { 0 };
    uint64_t moved = m->moved;
    if (result)
        *result = (struct res_load_result) { .was_resident = m->state == RES_RESIDENT };
    if (res_model_busy(m))
        return err_set(err, BERTH_EBUSY, "model %s is in use: its plan stays", m->owner);
    berth_status s = next_make(m, plan, true, &next, err);
    if (!s && m->state == RES_RESIDENT)
        s = could_move(m, next.plan.device, err);
    if (!s && m->state == RES_RESIDENT)
        s = move_to(m, next.plan.device, err);
    if (!s)
        next_take(m, &next);
    next_release(&next);
    if (result)
        result->moved = m->moved - moved;
    log_info(m->res->log, "res.replan", "model=%s moved=%" PRIu64 " status=%s", m->owner,
             m->moved - moved, berth_status_name(s));
    res_check_now(m->res);
    return s ? err_add(err, "planning model %.80s again", m->owner) : BERTH_OK;
}

berth_status res_replan_look(struct res_model *m, const struct plan_args *plan,
                             struct res_look *out, berth_err *err)
{
    struct next next = { 0 };
    *out = (struct res_look) { 0 };
    berth_status s = next_make(m, plan, !m->res->prompt_running, &next, err);
    if (!s && m->state == RES_RESIDENT)
        s = could_move(m, next.plan.device, err);
    for (size_t i = 0; !s && i < m->blocks.n; i++) {
        const struct res_block *b = &m->block[i];
        bool there = b->device != RES_NOWHERE;
        out->after[next.plan.device[i]] += there ? b->bytes : m->blocks.at[i].bytes;
        out->moves += there && b->device != next.plan.device[i] ? b->bytes : 0;
    }
    out->plan = next.plan;
    next.plan = (struct plan) { 0 };
    next_release(&next);
    return s ? err_add(err, "planning model %.80s", m->owner) : BERTH_OK;
}
