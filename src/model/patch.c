/* patch.c: the doors: each walks the batch's patches. */
#include "model/patch.h"

#include "model/families.h"

#include <stdlib.h>

/* Without patches there is no list either, and nothing may be added to NULL. */
#define EACH(p, b)                                                                                 \
    for (const struct net_patch *p = (b)->patches.at,                                              \
                                *end_ = (b)->patches.n ? p + (b)->patches.n : p;                   \
         p != end_; p++)

bool patch_wants_pairs(const struct net_patches *patches)
{
    for (size_t i = 0; i < patches->n; i++)
        if (patches->at[i].is->pairs)
            return true;
    return false;
}

bool patch_keeps_refs(const struct net_patches *patches)
{
    for (size_t i = 0; i < patches->n; i++)
        if (patches->at[i].is->keeps_refs)
            return true;
    return false;
}

struct act patch_kept(struct net_run *r, const struct family_batch *b, const struct patch_at *at,
                      struct act h, bool after, bool *own)
{
    EACH(p, b)
    {
        struct act y;
        if (!(after ? p->is->after_kept : p->is->kept) ||
            !(after ? p->is->after_kept : p->is->kept)(r, p, at, b, h, &y))
            continue;
        if (*own)
            net_drop(r, &h);
        h = y;
        *own = true;
    }
    return h;
}

void patch_output(struct net_run *r, const struct family_batch *b, const struct patch_at *at,
                  struct act *h, bool *own, struct act *skip)
{
    EACH(p, b)
    {
        struct act new_h = *h, new_skip = *skip;
        if (!p->is->output || !p->is->output(r, p, at, *h, *skip, &new_h, &new_skip))
            continue;
        if (new_skip.addr != skip->addr)
            net_drop(r, skip);
        *skip = new_skip;
        if (new_h.addr == h->addr)
            continue;
        if (*own)
            net_drop(r, h);
        *h = new_h;
        *own = true;
    }
}

void patch_attends(struct net_run *r, const struct family_batch *b, struct patch_attn *a)
{
    EACH(p, b)
    if (p->is->attends)
        p->is->attends(r, p, b, a);
}

struct act patch_gives(struct net_run *r, const struct family_batch *b, struct patch_attn *a,
                       struct act o)
{
    EACH(p, b)
    if (p->is->gives)
        o = p->is->gives(r, b, a, o);
    return o;
}

void patch_run_release(struct patch_run *p)
{
    free(p->row);
    *p = (struct patch_run) { 0 };
}

bool patch_is_blind(const struct family_batch *b, const struct patch_at *at)
{
    EACH(p, b)
    if (p->is->blind && p->is->blind(p, at))
        return true;
    return false;
}

void patch_sees(struct net_run *r, const struct family_batch *b, const struct patch_at *at,
                struct act q, struct act k, uint64_t heads)
{
    EACH(p, b)
    if (p->is->seen)
        p->is->seen(r, p, at, b, q, k, heads);
}

bool patch_wants_attended(const struct family_batch *b, bool joint)
{
    EACH(p, b)
    if (joint ? p->is->attended_joint : p->is->attended)
        return true;
    return false;
}

struct act patch_attended(struct net_run *r, const struct family_batch *b, struct act o, bool joint)
{
    EACH(p, b)
    {
        net_host_fn *fn = joint ? p->is->attended_joint : p->is->attended;
        if (!fn)
            continue;
        struct act y = net_host(r, o, &o.shape, fn, b);
        net_drop(r, &o);
        o = y;
        break; /* it walks the others of its kind itself */
    }
    return o;
}

bool patch_leaves_out(const struct family_batch *b, enum patch_part part, uint32_t block)
{
    const struct patch_at at = { .part = part, .block = block };
    EACH(p, b)
    if (p->is->leaves_out && p->is->leaves_out(p, &at))
        return true;
    return false;
}

bool patch_moves(const struct family_batch *b, struct patch_positions *out)
{
    bool any = false;
    EACH(p, b)
    if (p->is->positions) { /* the last one counts */
        p->is->positions(p, out);
        any = true;
    }
    return any;
}
