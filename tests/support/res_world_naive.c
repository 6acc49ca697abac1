/* Comparing the registry with the naive model. */
#include "support/res_world_impl.h"

#include <stdlib.h>

bool plan_is_same(const struct naive_plan *a, const struct naive_plan *b)
{
    return strcmp(a->alloc, b->alloc) == 0 && a->compute == b->compute && a->layout == b->layout &&
           (a->alloc[0] || a->reserve == b->reserve); /* a string says itself what stays free */
}

void naive_eject(struct naive *n)
{
    if (n->state == RES_RESIDENT) {
        n->state = RES_EJECTED;
        n->anchor[RES_ANCHOR_MARKED] = 0;
    }
}

void naive_gone(struct naive *n)
{
    if (n->exists && !naive_owned(n))
        *n = (struct naive) { 0 };
}

/* ---- contents ---- */

#define TENSOR_BYTES_MAX (128 * KIB)

/* An fp8 result comes from stochastic rounding in half precision: of an exact value now and then
 * the next one, and beyond 16 not every whole number is one. Everything else is exact. */
static bool value_ok(enum dtype t, bool patched, float got, float want)
{
    float off = got - want, size = want < 0 ? -want : want;
    float step = size >= 15 ? 2 : size >= 7 ? 1 : 0.5f;
    if (t == DT_F8_E4M3 && patched)
        return off <= step && off >= -step;
    return got == want;
}

static bool tensor_is(struct world *w, struct naive *n, size_t block, size_t i,
                      const struct patch_list *p, bool *same)
{
    static uint8_t raw[TENSOR_BYTES_MAX];
    static float got[TENSOR_BYTES_MAX / 2], want[TENSOR_BYTES_MAX / 2];
    const struct blocks *all = res_blocks(n->m);
    const struct block_tensor *bt = &all->tensor[all->at[block].first + i];
    const struct weights_entry *e = bt->entry;
    const struct tensor_fact *t = tensor_fact(identities[n->identity].file, e->name, e->name_len);
    berth_err err = { 0 };
    CHECK(w, t, "a tensor the file does not have: %s", e->name);
    enum dtype held = held_as(&identities[n->identity], t);
    uint64_t bytes;
    CHECK(w, dtype_bytes(held, t->count, &bytes) && bytes == bt->bytes && e->dtype == held,
          "%s is held as %s, not as %s", e->name, dtype_name(e->dtype), dtype_name(held));
    bool patched = patches_touch(p, t->name, strlen(t->name));
    struct res_block_at at;
    CHECK(w, !res_block_at(n->m, block, &at, &err), "block_at: %s", err.msg);
    bool wide = at.patched == DT_F32 && (held == DT_F16 || held == DT_BF16);
    enum dtype now = wide ? DT_F32 : patched && dtype_is_quant(t->dtype) ? DT_F16 : held;
    CHECK(w, dtype_bytes(now, t->count, &bytes) && bytes <= sizeof raw, "size of %s", t->name);
    *same = false;
    /* Its size tells whether a quantised one is patched: then it cannot be the other. */
    if (dtype_is_quant(t->dtype) && (at.patched == DT_F16) != patched)
        return true;
    CHECK(w, !res_tensor_read(n->m, block, i, raw, (size_t)bytes, &err), "read %s of %s: %s",
          t->name, identities[n->identity].name, err.msg);
    if (now == DT_I32) { /* "position", a scalar */
        int32_t v;
        memcpy(&v, raw, sizeof v);
        *same = v == (int32_t)t->base[0];
        return true;
    }
    dtype_desc(now)->to_f32(raw, got, (size_t)t->count);
    patched_values(t, p, want);
    for (uint64_t k = 0; k < t->count; k++)
        if (!value_ok(now, patched, got[k], want[k]))
            return true;
    *same = true;
    return true;
}

static bool block_is(struct world *w, struct naive *n, size_t block, const struct patch_list *p,
                     bool *same)
{
    const struct blocks *all = res_blocks(n->m);
    *same = true;
    for (size_t i = 0; i < all->at[block].n && *same; i++)
        if (!tensor_is(w, n, block, i, p, same))
            return false;
    return true;
}

/* After a load that failed half way a block has the patches of before or those it was to get. */
static bool block_contents(struct world *w, struct naive *n, size_t block)
{
    bool same;
    if (!block_is(w, n, block, &n->applied[block], &same))
        return false;
    if (same)
        return true;
    if (w->fault || n->unsure[block]) {
        if (!block_is(w, n, block, &n->patches, &same))
            return false;
        if (same) {
            n->applied[block] = n->patches;
            return true;
        }
    }
    CHECK(w, false, "%s#%" PRIu64 ": contents of block %zu (%s) are wrong",
          identities[n->identity].name, n->id, block, res_blocks(n->m)->at[block].name);
}

bool naive_contents(struct world *w, struct naive *n)
{
    for (size_t b = 0; n->state == RES_RESIDENT && b < n->blocks; b++)
        if (!block_contents(w, n, b))
            return false;
    return true;
}

/* ---- one model ---- */

static const char *label(const struct naive *n, char buf[48])
{
    snprintf(buf, 48, "%s#%" PRIu64 "(%s,%s)", identities[n->identity].name, n->id,
             res_retention_name(n->retention), res_state_name(n->state));
    return buf;
}

/* It went to make room, or because somebody wanted the device for himself. */
static bool may_have_gone(const struct world *w, size_t i, size_t target, unsigned may)
{
    const struct naive *n = &w->model[i];
    return n->state == RES_RESIDENT && may & (MAY_EVICT | MAY_EJECT_OTHERS) && i != target &&
           !n->uses && (n->retention != RES_KEEP || may & MAY_EVICT_KEEP) &&
           (!w->roomy || may & MAY_EJECT_OTHERS);
}

static bool compare_counts(struct world *w, const struct naive *n, const struct res_model_info *x)
{
    char buf[48];
    label(n, buf);
    CHECK(w, x->id == n->id, "%s: id %" PRIu64, buf, x->id);
    CHECK(w, x->retention == n->retention, "%s: retention is %s", buf,
          res_retention_name(x->retention));
    CHECK(w, x->handles == naive_handles(n), "%s: %u handles, should have %u", buf, x->handles,
          naive_handles(n));
    CHECK(w, x->uses == n->uses, "%s: %u uses, should have %u", buf, x->uses, n->uses);
    unsigned sum = 0;
    for (size_t a = 0; a < RES_ANCHOR_COUNT; a++) {
        CHECK(w, x->anchor[a] == n->anchor[a], "%s: anchor '%s' %u, should be %u", buf,
              res_anchor_text((enum res_anchor)a), x->anchor[a], n->anchor[a]);
        sum += x->anchor[a];
    }
    CHECK(w, x->anchors == sum, "%s: %u anchors, by reason %u", buf, x->anchors, sum);
    CHECK(w, x->bytes == n->bytes && x->blocks == n->blocks, "%s: %" PRIu64 " bytes, %zu blocks",
          buf, x->bytes, x->blocks);
    CHECK(w, x->attached == n->attached, "%s: attached %" PRIu64 ", should be %" PRIu64, buf,
          x->attached, n->attached);
    return true;
}

static bool same_place(const struct res_block_at *a, const struct res_block_at *b)
{
    return a->dev == b->dev && a->device == b->device && a->addr == b->addr &&
           a->pinned == b->pinned && a->bytes == b->bytes && a->span == b->span &&
           a->patched == b->patched;
}

/* Where its blocks are; per device sums; how many are away from home. */
static bool compare_places(struct world *w, size_t i, size_t target, unsigned may,
                           const struct res_model_info *x)
{
    struct naive *n = &w->model[i];
    const struct plan *plan = res_plan(n->m);
    uint64_t on[SPEC_MAX] = { 0 }, sum = 0;
    size_t away = 0, moved = 0;
    char buf[48];
    label(n, buf);
    for (size_t b = 0; b < n->blocks; b++) {
        struct res_block_at at;
        berth_err err = { 0 };
        CHECK(w, !res_block_at(n->m, b, &at, &err), "%s block %zu: %s", buf, b, err.msg);
        CHECK(w, at.device < w->devices && at.dev == devset_at(w->set, at.device),
              "%s block %zu: device %zu", buf, b, at.device);
        on[at.device] += at.bytes;
        sum += at.bytes;
        const char *home = plan->devices.at[plan->device[b]].name;
        away += strcmp(home, at.dev->name) != 0;
        if (!same_place(&at, &n->at[b])) {
            moved++;
            /* Sent away by one who wants a device for himself, a block may even come back: the
             * place it was sent to was short next. */
            bool room = (may & MAY_EVICT && !w->roomy && at.device != n->at[b].device) ||
                        may & MAY_EJECT_OTHERS;
            bool demoted = i != target && room && n->retention == RES_AUTO && !n->uses;
            CHECK(w, (i == target && may & MAY_MOVE) || demoted,
                  "%s block %zu moved from %s %#" PRIx64 " to %s %#" PRIx64, buf, b,
                  n->at[b].dev ? n->at[b].dev->name : "nowhere", n->at[b].addr, at.dev->name,
                  at.addr);
        }
        n->at[b] = at;
    }
    CHECK(w, x->resident == sum, "%s: %" PRIu64 " bytes resident, its blocks have %" PRIu64, buf,
          x->resident, sum);
    CHECK(w, x->demoted == away, "%s: %zu blocks demoted, counted %zu", buf, x->demoted, away);
    for (size_t d = 0; d < w->devices; d++)
        CHECK(w, res_bytes_on(n->m, d) == on[d], "%s: bytes on device %zu", buf, d);
    return true;
}

static bool compare_absent(struct world *w, struct naive *n, const struct res_model_info *x)
{
    char buf[48];
    struct res_block_at at;
    berth_err err = { 0 };
    label(n, buf);
    CHECK(w, x->resident == 0, "%s: %" PRIu64 " bytes resident", buf, x->resident);
    for (size_t d = 0; d < w->devices; d++)
        CHECK(w, res_bytes_on(n->m, d) == 0, "%s: bytes on device %zu", buf, d);
    CHECK(w, res_block_at(n->m, 0, &at, &err) == BERTH_EINVAL, "%s: has a block", buf);
    memset(n->at, 0, sizeof n->at);
    return true;
}

static bool compare_model(struct world *w, size_t i, size_t target, unsigned may)
{
    struct naive *n = &w->model[i];
    struct res_model *m = res_model_by_id(w->r, n->id);
    char buf[48];
    label(n, buf);
    if (!m && may_have_gone(w, i, target, may)) {
        naive_eject(n);
        naive_gone(n);
        CHECK(w, !n->exists, "%s was evicted and is gone, but somebody holds it", buf);
        return true;
    }
    CHECK(w, m, "%s is gone, %u handles and %u anchors should hold it", buf, naive_handles(n),
          naive_anchors(n));
    CHECK(w, m == n->m, "%s is another one", buf);
    struct res_model_info x = res_info(m);
    if (x.state != n->state && may_have_gone(w, i, target, may)) {
        CHECK(w, x.state == RES_EJECTED, "%s: evicted, but %s", buf, res_state_name(x.state));
        naive_eject(n);
        CHECK(w, naive_owned(n), "%s: evicted, and nobody holds it", buf);
    }
    CHECK(w, x.state == n->state, "%s: is %s", buf, res_state_name(x.state));
    if (!compare_counts(w, n, &x))
        return false;
    if (n->state != RES_RESIDENT)
        return compare_absent(w, n, &x);
    if (!compare_places(w, i, target, may, &x))
        return false;
    /* Contents cost most: everything of the one it was about, a block of the others. */
    if (i == target && (may & MAY_MOVE || w->fault))
        return naive_contents(w, n);
    return block_contents(w, n, draw(w, n->blocks));
}

/* ---- all of it ---- */

/* The devices' ledgers against the blocks: weights and pinned bytes belong to models, as asked
 * for. */
static bool compare_ledgers(struct world *w)
{
    for (size_t d = 0; d < w->devices; d++) {
        struct device *dev = devset_at(w->set, d);
        struct dev_ledger_row row[64];
        struct dev_stats s;
        uint64_t weights = 0, pinned = 0, want_weights = 0, want_pinned = 0;
        size_t rows = dev_ledger(dev, row, ARRAY_LEN(row), &s);
        CHECK(w, rows <= ARRAY_LEN(row), "%zu rows in a ledger", rows);
        for (size_t k = 0; k < rows; k++) {
            weights += row[k].kind == DEV_WEIGHTS ? row[k].requested : 0;
            if (row[k].kind == DEV_PINNED && strchr(row[k].owner, '#'))
                pinned += row[k].requested;
        }
        for (size_t i = 0; i < MODELS_MAX; i++)
            for (size_t b = 0; w->model[i].exists && b < w->model[i].blocks; b++) {
                const struct res_block_at *at = &w->model[i].at[b];
                if (at->dev == dev)
                    *(at->pinned ? &want_pinned : &want_weights) += at->span;
            }
        CHECK(w, weights == want_weights && pinned == want_pinned,
              "%s: ledger has %" PRIu64 " weights, %" PRIu64 " pinned; blocks have %" PRIu64
              " and %" PRIu64,
              dev->name, weights, pinned, want_weights, want_pinned);
        CHECK(w, s.in_use + s.idle + s.pinned <= dev->budget, "%s: over its budget", dev->name);
    }
    return true;
}

/* Bytes of n on device d that have been there since `before`. */
static bool stayed_on(const struct naive *n, const struct naive *before, size_t d)
{
    for (size_t b = 0; n->exists && n->state == RES_RESIDENT && b < n->blocks; b++)
        if (n->at[b].bytes && n->at[b].device == d && same_place(&n->at[b], &before->at[b]))
            return true;
    return false;
}

/* eject models go before auto ones; then those that the running prompt used, in the same order;
 * then keep ones. */
static int rank_of(const struct world *w, const struct naive *n)
{
    int in_prompt = w->prompt && n->used_in_prompt;
    if (n->retention == RES_KEEP)
        return 4 + in_prompt;
    return 2 * in_prompt + (n->retention == RES_AUTO);
}

/* Of one that went, on some device it was on, nobody who should have gone first is left. */
static bool went_in_order(struct world *w, const struct naive *before, size_t i, size_t target)
{
    for (size_t d = 0; d < w->devices; d++) {
        bool was_on = false, first = false;
        for (size_t b = 0; b < before[i].blocks; b++)
            was_on = was_on || (before[i].at[b].bytes && before[i].at[b].device == d);
        for (size_t k = 0; was_on && k < MODELS_MAX; k++)
            first = first || (k != target && !before[k].uses &&
                              rank_of(w, &before[k]) < rank_of(w, &before[i]) &&
                              stayed_on(&w->model[k], &before[k], d));
        if (was_on && !first)
            return true;
    }
    char buf[48];
    CHECK(w, false, "%s went, others should have gone first", label(&before[i], buf));
}

bool naive_compare(struct world *w, size_t target, unsigned may)
{
    static struct naive before[MODELS_MAX];
    berth_err err = { 0 };
    size_t count = 0;
    memcpy(before, w->model, sizeof before);
    CHECK(w, !res_check(w->r, &err), "res_check: %s", err.msg);
    for (size_t i = 0; i < MODELS_MAX; i++) {
        if (!w->model[i].exists)
            continue;
        if (!compare_model(w, i, target, may))
            return false;
        count += w->model[i].exists;
    }
    for (size_t i = 0; may & MAY_EVICT && !(may & MAY_EJECT_OTHERS) && i < MODELS_MAX; i++)
        if (i != target && before[i].exists && before[i].state == RES_RESIDENT &&
            w->model[i].state != RES_RESIDENT && !went_in_order(w, before, i, target))
            return false;
    CHECK(w, res_model_count(w->r) == count, "%zu models, should be %zu", res_model_count(w->r),
          count);
    uint64_t last = 0;
    for (size_t i = 0; i < count; i++) {
        uint64_t id = res_info(res_model_at(w->r, i)).id;
        CHECK(w, id > last, "ids out of order: %" PRIu64 " behind %" PRIu64, id, last);
        last = id;
    }
    CHECK(w, w->hazards == 0, "hazard: %s", w->hazard);
    struct res_metrics x = res_metrics(w->r);
    CHECK(w,
          x.loads == w->count.loads && x.attaches == w->count.attaches &&
              x.frees == w->count.frees && x.resets == w->resets,
          "counted %" PRIu64 " loads, %" PRIu64 " attaches, %" PRIu64 " frees, %" PRIu64 " resets",
          x.loads, x.attaches, x.frees, x.resets);
    return compare_ledgers(w);
}
