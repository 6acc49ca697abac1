/* plan: every block gets its device. */
#include "plan/alloc_impl.h"
#include "plan/plan_impl.h"

#include "device/spec.h"

#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

const char *plan_layout_name(enum plan_layout l)
{
    return l == PLAN_TAIL ? "tail" : "spread";
}

bool plan_layout_parse(const char *s, size_t n, enum plan_layout *out)
{
    for (enum plan_layout l = PLAN_SPREAD; l <= PLAN_TAIL; l++)
        if (str_eq(s, n, plan_layout_name(l))) {
            *out = l;
            return true;
        }
    return false;
}

/* Quotas come from alloc_resolve() or plan_auto() for these devices and these blocks. */
static berth_status check_quotas(const struct blocks *b, const struct plan_devices *d,
                                 const struct quotas *q, berth_err *err)
{
    uint64_t sum = 0;
    if (q->compute >= d->n || q->orphans >= d->n || q->n > ALLOC_ENTRIES_MAX)
        BUG("quotas of other devices");
    for (size_t i = 0; i < q->n; i++) {
        if (q->at[i].device >= d->n || __builtin_add_overflow(sum, q->at[i].bytes, &sum))
            BUG("quotas of other devices");
    }
    if (b->bytes >= PLAN_BYTES_MAX)
        return err_set(err, BERTH_ELIMIT,
                       "a model of %" PRIu64 " bytes, plans are for less than 2^60", b->bytes);
    if (sum != b->bytes)
        return err_set(err, BERTH_EINVAL,
                       "the quotas are of %" PRIu64 " bytes, the blocks have %" PRIu64, sum,
                       b->bytes);
    return BERTH_OK;
}

/* Embeddings and tiny blocks go to compute; the rest is left to the layout. */
static void classify(const struct blocks *b, const struct plan *p, struct layout *l)
{
    uint64_t embedding = 0;
    for (size_t i = 0; i < b->n; i++) {
        l->device[i] = (uint8_t)p->quotas.compute;
        if (b->at[i].embedding) {
            l->why[i] = PLAN_EMBEDDING;
            embedding += b->at[i].bytes;
        } else if (!b->at[i].bytes || plan_tiny(b->at[i].bytes, b->bytes)) {
            l->why[i] = PLAN_TINY;
        } else {
            l->why[i] = PLAN_QUOTA;
            l->bytes += b->at[i].bytes;
        }
    }
    for (size_t i = 0; i < l->q->n; i++) {
        l->left[i] = l->q->at[i].bytes;
        if (l->q->at[i].device == l->q->compute)
            l->left[i] -= embedding < l->left[i] ? embedding : l->left[i];
    }
}

static void add_up(const struct blocks *b, struct plan *p)
{
    for (size_t i = 0; i < p->n; i++) {
        struct plan_share *s = &p->share[p->device[i]];
        uint64_t bytes = b->at[i].bytes;
        s->bytes += bytes;
        s->held += plan_held(&b->at[i]);
        s->blocks++;
        s->by_class[p->why[i]] += bytes;
        s->blocks_by_class[p->why[i]]++;
    }
}

/* " (12.4 MiB of it ...)": what no quota speaks of. */
static const char *beyond_quota(const struct plan *p, size_t device, char buf[120])
{
    const struct plan_share *s = &p->share[device];
    uint64_t stays = s->by_class[PLAN_TINY] + s->by_class[PLAN_EMBEDDING];
    char bytes[STR_BYTES_MAX];
    buf[0] = '\0';
    if (stays)
        snprintf(buf, 120, "; %s of it are small blocks and embeddings, which stay with compute",
                 str_bytes(stays, bytes));
    return buf;
}

/* People who gave compute an amount hear of what is beyond it. */
static void note_stays(struct plan *p)
{
    const struct plan_share *s = &p->share[p->quotas.compute];
    uint64_t quota = 0, stays = s->by_class[PLAN_TINY] + s->by_class[PLAN_EMBEDDING];
    char bytes[STR_BYTES_MAX];
    for (size_t i = 0; i < p->quotas.n; i++)
        quota += p->quotas.at[i].device == p->quotas.compute ? p->quotas.at[i].bytes : 0;
    uint64_t beyond = s->bytes > quota ? s->bytes - quota : 0;
    beyond = beyond < stays ? beyond : stays; /* the rest are orphans */
    if (beyond > quota / 100)
        quotas_note(&p->quotas, false,
                    "%s holds %s beyond its amount: embeddings and small blocks stay there",
                    p->devices.at[p->quotas.compute].name, str_bytes(beyond, bytes));
}

static berth_status check_budgets(const struct plan *p, berth_err *err)
{
    char want[STR_BYTES_MAX], has[STR_BYTES_MAX], stays[120];
    for (size_t i = 0; i < p->devices.n; i++) {
        const struct plan_device *d = &p->devices.at[i];
        if (p->share[i].held > d->budget)
            return err_set(err, BERTH_ELIMIT,
                           "%s would hold %s (%" PRIu64 " bytes in %zu blocks), its budget is %s "
                           "(%" PRIu64 " bytes)%s",
                           d->name, str_bytes(p->share[i].held, want), p->share[i].held,
                           p->share[i].blocks, str_bytes(d->budget, has), d->budget,
                           beyond_quota(p, i, stays));
    }
    return BERTH_OK;
}

/* Room for n blocks; both arrays are one piece of memory. */
static berth_status set_size(struct plan *p, size_t n, berth_err *err)
{
    p->n = n;
    p->device = calloc(n ? n : 1, 2);
    if (!p->device)
        return err_set(err, BERTH_ENOMEM, "a plan of %zu blocks", n);
    p->why = p->device + n;
    return BERTH_OK;
}

berth_status plan_make(const struct blocks *b, const struct plan_devices *devices,
                       const struct quotas *q, enum plan_layout layout, struct plan *out,
                       berth_err *err)
{
    memset(out, 0, sizeof *out);
    out->devices = *devices;
    out->quotas = *q;
    out->layout = layout;
    out->bytes = b->bytes;
    if (check_quotas(b, devices, q, err) || set_size(out, b->n, err))
        goto fail;
    struct layout l = { .b = b, .q = &out->quotas, .device = out->device, .why = out->why };
    classify(b, out, &l);
    if (layout == PLAN_TAIL)
        layout_tail(&l);
    else
        layout_spread(&l);
    add_up(b, out);
    note_stays(out);
    if (check_budgets(out, err))
        goto fail;
    return BERTH_OK;
fail:
    plan_release(out);
    return err_add(err, "plan (%s)", plan_layout_name(layout));
}

void plan_release(struct plan *p)
{
    free(p->device);
    memset(p, 0, sizeof *p);
}

berth_status plan_from_args(const struct blocks *b, const struct plan_devices *devices,
                            const struct plan_args *args, struct plan *out, berth_err *err)
{
    memset(out, 0, sizeof *out);
    struct quotas q;
    if (args->alloc && *args->alloc) {
        struct alloc a;
        if (alloc_parse(args->alloc, strlen(args->alloc), &a, err) ||
            alloc_resolve(&a, devices, args->compute, b->bytes, &q, err))
            return err->code;
    } else if (plan_auto(b, devices, args->compute, args->reserve, &q, err)) {
        return err->code;
    }
    q.automatic = args->automatic || !args->alloc || !*args->alloc;
    return plan_make(b, devices, &q, args->layout, out, err);
}

void plan_string(const struct plan *p, struct str *out)
{
    quotas_text(&p->quotas, &p->devices, out);
}

_Static_assert(SPEC_MAX <= ALLOC_ENTRIES_MAX, "every device of a spec can be planned for");

berth_status plan_devices_parse(const char *text, size_t n, struct plan_devices *out,
                                berth_err *err)
{
    struct spec spec;
    out->n = 0;
    if (spec_parse(text, n, true, &spec, err))
        return err->code;
    for (size_t i = 0; i < spec.n; i++) {
        const char *name = spec.entry[i].name.text;
        struct plan_device *d = &out->at[out->n++];
        *d = (struct plan_device) { .total = spec.entry[i].budget,
                                    .budget = spec.entry[i].budget,
                                    .host = strcmp(name, "cpu") == 0 };
        snprintf(d->name, sizeof d->name, "%s", name);
    }
    return BERTH_OK;
}
