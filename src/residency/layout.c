/* layout: which blocks of a model are the ones that fill a device's quota. */
#include "residency/plan_impl.h"

/* Position of a device in the quotas, or q->n. */
static size_t quota_of(const struct quotas *q, size_t device)
{
    size_t i = 0;
    while (i < q->n && q->at[i].device != device)
        i++;
    return i;
}

static void place(struct layout *l, size_t block, size_t quota)
{
    l->device[block] = (uint8_t)l->q->at[quota].device;
    l->left[quota] -= l->b->at[block].bytes;
}

/* What nobody else takes: quota of the orphans device as long as it has some. */
static void place_rest(struct layout *l, size_t block, size_t orphans)
{
    l->device[block] = (uint8_t)l->q->orphans;
    if (orphans < l->q->n && l->left[orphans] >= l->b->at[block].bytes)
        l->left[orphans] -= l->b->at[block].bytes;
    else
        l->why[block] = PLAN_ORPHAN;
}

/* ---- tail ---- */

void layout_tail(struct layout *l)
{
    for (size_t i = l->b->n; i-- > 0;) {
        if (l->why[i] != PLAN_QUOTA)
            continue;
        size_t k = 0;
        while (k < l->q->n && l->left[k] < l->b->at[i].bytes)
            k++;
        if (k < l->q->n)
            place(l, i, k);
        else
            place_rest(l, i, l->q->n);
    }
}

/* ---- spread ----
 *
 * One rule, used at every fork: of the bytes that came by so far (this block included) a taker with
 * `quota` of `whole` bytes is due seen * quota / whole; it takes the block when it then has at most
 * that. So at every point it has
 *
 *     due - block < has <= due
 *
 * (the left half: it had too little room for the last block it refused, and what is due only grows),
 * and never more than its quota. Two such points are the ends of a window: the bytes between them are
 * the fair share to within one block.
 *
 * The forks: compute against the donors; then, of what the donors get, the first donor against the
 * others, and so on. The device that takes the orphans takes what all others leave, so it comes last
 * and the one it stands against is the taker: with a donor that takes orphans compute is capped, and
 * where compute takes them the donors are capped together. */

struct taker {
    size_t quota;        /* position in the quotas */
    uint64_t due, whole; /* its share: due of every `whole` bytes */
    uint64_t seen, has;
};

static bool takes(struct taker *t, uint64_t bytes)
{
    t->seen += bytes;
    return (unsigned __int128)t->seen * t->due >= (unsigned __int128)(t->has + bytes) * t->whole;
}

struct spread {
    struct taker compute; /* or all donors together */
    struct taker donor[ALLOC_ENTRIES_MAX];
    size_t donors;
    size_t orphans; /* position in the quotas, or q->n */
};

/* Who stands in line for `bytes`, the donors' part of the model. */
static void line_up(struct spread *s, const struct layout *l, uint64_t bytes)
{
    for (size_t i = 0; i < l->q->n; i++) {
        if (l->q->at[i].device == l->q->compute || i == s->orphans)
            continue;
        uint64_t due = l->left[i] < bytes ? l->left[i] : bytes;
        s->donor[s->donors++] = (struct taker) { .quota = i, .due = due, .whole = bytes };
        bytes -= due;
    }
}

/* A donor for the block, or false. */
static bool give_donor(struct spread *s, struct layout *l, size_t block)
{
    uint64_t bytes = l->b->at[block].bytes;
    for (size_t i = 0; i < s->donors; i++) {
        struct taker *t = &s->donor[i];
        if (takes(t, bytes) && l->left[t->quota] >= bytes) {
            t->has += bytes;
            place(l, block, t->quota);
            return true;
        }
    }
    return false;
}

/* The same without the rule: whoever has room. */
static bool give_any_donor(struct spread *s, struct layout *l, size_t block)
{
    for (size_t i = 0; i < s->donors; i++) {
        struct taker *t = &s->donor[i];
        if (l->left[t->quota] >= l->b->at[block].bytes) {
            t->has += l->b->at[block].bytes;
            place(l, block, t->quota);
            return true;
        }
    }
    return false;
}

/* A donor takes the orphans: compute is capped, then the donors before that one. */
static void spread_capped_compute(struct spread *s, struct layout *l, size_t block, size_t compute)
{
    uint64_t bytes = l->b->at[block].bytes;
    if (takes(&s->compute, bytes)) {
        s->compute.has += bytes;
        place(l, block, compute);
    } else if (!give_donor(s, l, block)) {
        place_rest(l, block, s->orphans);
    }
}

/* Compute takes the orphans: the donors are capped, each alone and all together. */
static void spread_capped_donors(struct spread *s, struct layout *l, size_t block)
{
    uint64_t bytes = l->b->at[block].bytes;
    if (takes(&s->compute, bytes) && (give_donor(s, l, block) || give_any_donor(s, l, block)))
        s->compute.has += bytes;
    else
        place_rest(l, block, s->orphans);
}

void layout_spread(struct layout *l)
{
    struct spread s = { 0 };
    size_t compute = quota_of(l->q, l->q->compute);
    bool capped_compute = l->q->orphans != l->q->compute;
    s.orphans = quota_of(l->q, l->q->orphans);
    uint64_t due = 0; /* of the first fork */
    for (size_t i = 0; i < l->q->n; i++)
        if ((i == compute) == capped_compute && __builtin_add_overflow(due, l->left[i], &due))
            due = UINT64_MAX;
    due = due < l->bytes ? due : l->bytes;
    s.compute = (struct taker) { .quota = compute, .due = due, .whole = l->bytes };
    line_up(&s, l, capped_compute ? l->bytes - due : due);
    for (size_t i = 0; i < l->b->n; i++) {
        if (l->why[i] != PLAN_QUOTA)
            continue;
        if (capped_compute)
            spread_capped_compute(&s, l, i, compute);
        else
            spread_capped_donors(&s, l, i);
    }
}
