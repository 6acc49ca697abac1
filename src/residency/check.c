/* check: the invariants of residency.h, asserted. Walks every block of every model and every line
 * of every ledger; allocates nothing unless a ledger has more lines than fit on the stack. */
#include "residency/residency_impl.h"

#include <inttypes.h>

#define BROKEN(err, ...) err_set(err, BERTH_EDEVICE, __VA_ARGS__)

static berth_status check_block(const struct res_model *m, size_t i, berth_err *err)
{
    const struct res_block *b = &m->block[i];
    const struct residency *r = m->res;
    const char *name = m->blocks.at[i].name;
    bool has = b->device != RES_NOWHERE;
    uint64_t bytes, span;
    if (has && (b->device >= r->n_devices || b->home >= r->n_devices))
        return BROKEN(err, "(2) block '%.80s' is on device %u of %zu", name, b->device,
                      r->n_devices);
    if (b->home != m->plan.device[i])
        return BROKEN(err, "block '%.80s': home %u, the plan says %u", name, b->home,
                      m->plan.device[i]);
    if (!has && (b->mem.dev || b->host.ptr || b->patch || b->patched != DT_NONE))
        return BROKEN(err, "(2) block '%.80s' is nowhere and has memory", name);
    if (b->scale != 0 && !b->patch)
        return BROKEN(err, "(7) block '%.80s' has a scale of its own, and no patches", name);
    if (has && b->span && !b->mem.dev == !b->host.ptr)
        return BROKEN(err, "(2) block '%.80s' has memory twice, or none", name);
    if (b->mem.dev && (b->mem.dev != res_device(r, b->device) || b->mem.n != b->span))
        return BROKEN(err, "(3) block '%.80s': %zu bytes of %s, span %" PRIu64, name, b->mem.n,
                      b->mem.dev->name, b->span);
    if (b->host.ptr && (b->device != r->host || b->host.n != b->span))
        return BROKEN(err, "(3) block '%.80s': %zu pinned bytes, span %" PRIu64, name, b->host.n,
                      b->span);
    if (!res_block_layout(m, i, b->patched, &bytes, &span) || bytes != b->bytes || span != b->span)
        return BROKEN(err, "block '%.80s': %" PRIu64 " bytes in %" PRIu64 ", not as it is stored",
                      name, b->bytes, b->span);
    if (has && m->state == RES_RESIDENT && !m->patches_changed &&
        b->patch != (m->patches.n ? res_patch_signature(m, i) : 0))
        return BROKEN(err, "(7) block '%.80s' has patches %#" PRIx64, name, b->patch);
    return BERTH_OK;
}

static berth_status check_blocks(const struct res_model *m, berth_err *err)
{
    size_t here = 0;
    for (size_t i = 0; i < m->blocks.n; i++) {
        if (check_block(m, i, err))
            return err->code;
        here += m->block[i].device != RES_NOWHERE;
    }
    bool none = m->state == RES_REGISTERED || m->state == RES_EJECTED;
    if ((none && here) || (m->state == RES_RESIDENT && here != m->blocks.n))
        return BROKEN(err, "(2) %s, and %zu of %zu blocks have memory", res_state_name(m->state),
                      here, m->blocks.n);
    for (size_t d = 0; d < m->res->n_devices; d++) {
        uint64_t bytes = 0;
        for (size_t i = 0; i < m->blocks.n; i++)
            bytes += m->block[i].device == d ? m->block[i].bytes : 0;
        if (bytes != m->bytes_on[d])
            return BROKEN(err, "(3) %" PRIu64 " bytes on %s, the table says %" PRIu64, bytes,
                          res_device(m->res, d)->name, m->bytes_on[d]);
    }
    return BERTH_OK;
}

static berth_status check_model(const struct res_model *m, berth_err *err)
{
    unsigned anchors = 0;
    for (size_t i = 0; i < RES_ANCHOR_COUNT; i++)
        anchors += m->anchor[i];
    if (!res_model_held(m))
        return BROKEN(err, "(4) nobody holds it");
    if (m->uses && m->state != RES_RESIDENT)
        return BROKEN(err, "(5) %u uses, and it is %s", m->uses, res_state_name(m->state));
    if ((m->retention == RES_KEEP) != (m->anchor[RES_ANCHOR_KEEP] != 0) ||
        (m->retention == RES_EJECT && anchors != m->anchor[RES_ANCHOR_MARKED]) ||
        (m->anchor[RES_ANCHOR_MARKED] && (m->retention != RES_EJECT || m->state != RES_RESIDENT)))
        return BROKEN(err, "(6) %s with %u anchors, %u for keep", res_retention_name(m->retention),
                      anchors, m->anchor[RES_ANCHOR_KEEP]);
    for (const struct res_model *o = m->next; o; o = o->next)
        if (o->key.full == m->key.full && strcmp(o->key.text, m->key.text) == 0)
            return BROKEN(err, "(1) %s has the same key", o->owner);
    if (m->next ? m->next->prev != m : m->res->last != m)
        return BROKEN(err, "the list of models is broken behind it");
    return check_blocks(m, err);
}

/* What the ledger of device d should have for m. */
static void asked_for(const struct res_model *m, size_t d, uint64_t *weights, uint64_t *pinned)
{
    *weights = *pinned = 0;
    for (size_t i = 0; i < m->blocks.n; i++)
        if (m->block[i].device == d) {
            *weights += m->block[i].mem.dev ? m->block[i].span : 0;
            *pinned += m->block[i].host.ptr ? m->block[i].span : 0;
        }
}

static const struct dev_ledger_row *row_of(const struct dev_ledger_row *row, size_t n,
                                           const char *owner, enum dev_kind kind)
{
    for (size_t i = 0; i < n; i++)
        if (row[i].kind == kind && strcmp(row[i].owner, owner) == 0)
            return &row[i];
    return NULL;
}

static berth_status check_ledger(const struct residency *r, size_t d,
                                 const struct dev_ledger_row *row, size_t n, berth_err *err)
{
    uint64_t weights = 0, in_ledger = 0;
    const char *dev = res_device(r, d)->name;
    for (const struct res_model *m = r->first; m; m = m->next) {
        uint64_t want[2];
        static const enum dev_kind kind[2] = { DEV_WEIGHTS, DEV_PINNED };
        asked_for(m, d, &want[0], &want[1]);
        for (int k = 0; k < 2; k++) {
            const struct dev_ledger_row *x = row_of(row, n, m->owner, kind[k]);
            if ((x ? x->requested : 0) != want[k])
                return BROKEN(err,
                              "(3) model %.80s on %s: %s %" PRIu64 ", its ledger says %" PRIu64,
                              m->owner, dev, dev_kind_name(kind[k]), want[k], x ? x->requested : 0);
        }
        weights += want[0];
    }
    for (size_t i = 0; i < n; i++)
        in_ledger += row[i].kind == DEV_WEIGHTS ? row[i].requested : 0;
    if (weights != in_ledger)
        return BROKEN(err, "(8) %s: %" PRIu64 " bytes of weights, models have %" PRIu64, dev,
                      in_ledger, weights);
    return BERTH_OK;
}

static berth_status check_device(const struct residency *r, size_t d, berth_err *err)
{
    struct dev_ledger_row few[24], *row = few;
    struct device *dev = res_device(r, d);
    size_t n = dev_ledger(dev, few, ARRAY_LEN(few), NULL);
    if (n > ARRAY_LEN(few)) {
        row = calloc(n, sizeof *row);
        if (!row)
            return err_set(err, BERTH_ENOMEM, "%zu ledger lines of %s", n, dev->name);
        dev_ledger(dev, row, n, NULL);
    }
    berth_status s = check_ledger(r, d, row, n, err);
    if (row != few)
        free(row);
    return s ? s : dev_check(dev, err); /* the ledger's sums against what the device has given */
}

berth_status res_check(struct residency *r, berth_err *err)
{
    size_t models = 0;
    uint64_t pinned = 0;
    for (const struct res_model *m = r->first; m; m = m->next) {
        if (check_model(m, err))
            return err_add(err, "model %.80s", m->owner);
        for (size_t i = 0; i < m->blocks.n; i++)
            pinned += m->block[i].host.n;
        models++;
    }
    if (models != r->models || (!r->first) != (!r->last))
        return BROKEN(err, "%zu models are linked, %zu counted", models, r->models);
    if (pinned != r->pinned)
        return BROKEN(err, "%" PRIu64 " bytes are pinned, %" PRIu64 " counted", pinned, r->pinned);
    for (size_t d = 0; d < r->n_devices; d++)
        if (check_device(r, d, err))
            return err->code;
    return BERTH_OK;
}

#ifdef BERTH_CHECKS
void res_check_now(struct residency *r)
{
    berth_err err;
    if (res_check(r, &err) && err.code != BERTH_ENOMEM)
        BUG("%s", err.msg);
}
#endif
