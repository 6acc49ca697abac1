/* plan: from what people wrote to bytes per device, and from those to a device for every block. */
#include "plan/plan_impl.h"

#include "device/spec.h"

#include <inttypes.h>
#include <stdarg.h>

#define MIB (UINT64_C(1) << 20)
#define GIB (UINT64_C(1) << 30)

struct resolver {
    const struct alloc *a;
    const struct plan_devices *d;
    struct quotas *out;
    uint64_t model, left;             /* left: bytes of the model nobody has yet */
    size_t device[ALLOC_ENTRIES_MAX]; /* of each entry, or of each donor */
    berth_err *err;
};

/* ---- quotas: devices ---- */

size_t plan_device_find(const struct plan_devices *d, const char *name, size_t n)
{
    alloc_trim(&name, &n);
    for (size_t i = 0; i < d->n; i++) {
        size_t k = 0;
        while (k < n && d->at[i].name[k] && alloc_lower(name[k]) == alloc_lower(d->at[i].name[k]))
            k++;
        if (k == n && !d->at[i].name[k])
            return i;
    }
    return d->n;
}

static size_t host_of(const struct plan_devices *d)
{
    size_t i = 0;
    while (i < d->n && !d->at[i].host)
        i++;
    return i;
}

unsigned long alloc_device_number(const char *name)
{
    const char *colon = strchr(name, ':');
    return colon ? strtoul(colon + 1, NULL, 10) : 0;
}

berth_status alloc_legacy_donors(const struct plan_devices *d, const char *compute,
                                 bool use_other_vram, struct str *out, berth_err *err)
{
    size_t order[ALLOC_ENTRIES_MAX], n = 0, host = host_of(d);
    size_t self = plan_device_find(d, compute, strlen(compute));
    for (size_t i = 0; i < d->n && use_other_vram; i++) {
        if (i == self || i == host)
            continue;
        size_t k = n++;
        for (; k &&
               alloc_device_number(d->at[order[k - 1]].name) > alloc_device_number(d->at[i].name);
             k--)
            order[k] = order[k - 1];
        order[k] = i;
    }
    for (size_t i = 0; i < n; i++)
        str_addf(out, "%s,", d->at[order[i]].name);
    str_adds(out, host < d->n ? d->at[host].name : "cpu");
    return out->bad ? err_set(err, BERTH_ENOMEM, "listing donors") : BERTH_OK;
}

/* "cpu, cuda:0, cuda:1", as far as buf goes. */
static const char *list_devices(const struct plan_devices *d, char *buf, size_t cap)
{
    size_t n = 0;
    buf[0] = 0;
    for (size_t i = 0; i < d->n; i++) {
        size_t need = strlen(d->at[i].name) + 2;
        if (n + need + 4 >= cap) {
            snprintf(buf + n, cap - n, ", ...");
            break;
        }
        n += (size_t)snprintf(buf + n, cap - n, "%s%s", i ? ", " : "", d->at[i].name);
    }
    return buf;
}

/* Kinds that come with a number, on whatever machine. */
static bool needs_index(const struct plan_devices *d, const char *name)
{
    static const char *const kind[] = { "cuda", "xpu", "npu", "mlu", "directml", "corex" };
    size_t n = strlen(name);
    for (size_t i = 0; i < ARRAY_LEN(kind); i++)
        if (strcmp(kind[i], name) == 0)
            return true;
    for (size_t i = 0; i < d->n; i++)
        if (strncmp(d->at[i].name, name, n) == 0 && d->at[i].name[n] == ':')
            return true;
    return false;
}

/* Which device `name` is; refused when it is none, or has no memory to give. */
static berth_status find_device(const struct resolver *r, const char *name, struct alloc_spot at,
                                size_t *out)
{
    char list[72];
    *out = plan_device_find(r->d, name, strlen(name));
    if (*out < r->d->n) {
        if (r->d->at[*out].total)
            return BERTH_OK;
        return alloc_fail(r->err, BERTH_EINVAL, at, "device %s reports no memory", name);
    }
    list_devices(r->d, list, sizeof list);
    if (needs_index(r->d, name))
        alloc_fail(r->err, BERTH_EINVAL, at, "device index missing, there are %s", list);
    else
        alloc_fail(r->err, BERTH_EINVAL, at, "unknown device %s, there are %s", name, list);
    return err_on_device(r->err, name, 0);
}

/* The first device that is not the host, else the host. */
static size_t default_compute(const struct plan_devices *d)
{
    size_t i = 0;
    while (i < d->n && d->at[i].host)
        i++;
    return i < d->n ? i : 0;
}

berth_status plan_compute_find(const struct plan_devices *d, const char *name, size_t *out,
                               berth_err *err)
{
    struct resolver r = { .d = d, .err = err };
    *out = 0;
    if (!d->n)
        return err_set(err, BERTH_EINVAL, "a plan needs devices, there are none");
    if (!name || !*name)
        name = d->at[default_compute(d)].name;
    return find_device(&r, name, (struct alloc_spot) { "compute device", 0, name, strlen(name) },
                       out);
}

static berth_status find_compute(struct resolver *r, const char *asked)
{
    if (r->a->compute[0])
        return find_device(r, r->a->compute, alloc_field(r->a, 1), &r->out->compute);
    return plan_compute_find(r->d, asked, &r->out->compute, r->err);
}

/* ---- quotas and notes ---- */

void quotas_note(struct quotas *q, bool warn, const char *fmt, ...)
{
    if (q->notes == QUOTA_NOTES_MAX) {
        q->more += q->more ? 1 : 2; /* the last one makes room for the number */
        snprintf(q->note[q->notes - 1], sizeof q->note[0], "and %zu more", q->more);
        q->warn[q->notes - 1] |= warn;
        return;
    }
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(q->note[q->notes], sizeof q->note[0], fmt, ap);
    va_end(ap);
    q->warn[q->notes++] = warn;
}

/* Adds to a device's quota. Entries are unique per device, so there is always room. */
static void give(struct resolver *r, size_t device, uint64_t bytes)
{
    struct quotas *q = r->out;
    size_t i = 0;
    while (i < q->n && q->at[i].device != device)
        i++;
    if (i == q->n)
        q->at[q->n++] = (struct quota) { .device = device };
    q->at[i].bytes += bytes;
    r->left -= bytes;
}

/* floor(w * m / whole), exactly; w <= whole < 2^126. The schoolbook way, bit by bit of m, because
 * the product may have 190 bits. */
static uint64_t share_of(unsigned __int128 w, uint64_t m, unsigned __int128 whole)
{
    unsigned __int128 rest = 0;
    uint64_t q = 0;
    for (int bit = 63; bit >= 0; bit--) {
        rest = 2 * rest + (m >> bit & 1 ? w : 0);
        q = 2 * q + (uint64_t)(rest / whole);
        rest %= whole;
    }
    return q;
}

static berth_status over_memory(const struct resolver *r, size_t i, uint64_t bytes)
{
    const struct plan_device *d = &r->d->at[r->device[i]];
    char wants[STR_BYTES_MAX], has[STR_BYTES_MAX];
    str_bytes_two(bytes, d->total, wants, has);
    return alloc_fail(r->err, BERTH_EINVAL, alloc_spot_of(r->a, &r->a->entry[i]),
                      "%s exceed device memory, %s has %s", wants, d->name, has);
}

static void note_used_up(const struct resolver *r, const struct alloc_entry *e)
{
    quotas_note(r->out, false, "the model is used up: nothing for entry %u \"%.*s\"", e->number,
                (int)(e->len < 80 ? e->len : 80), r->a->text + e->at);
}

/* The device that takes the rest when the text names none. */
static size_t implicit_rest(const struct resolver *r)
{
    size_t host = host_of(r->d);
    return host < r->d->n ? host : r->out->compute;
}

/* ---- the modes ---- */

static berth_status resolve_bytes(struct resolver *r)
{
    const struct alloc *a = r->a;
    size_t rest = r->d->n;
    for (size_t i = 0; i < a->n; i++) {
        const struct alloc_entry *e = &a->entry[i];
        if (e->bytes > r->d->at[r->device[i]].total)
            return over_memory(r, i, e->bytes);
        if (e->rest)
            rest = r->device[i];
        if (e->bytes && !r->left)
            note_used_up(r, e);
        give(r, r->device[i], e->bytes < r->left ? e->bytes : r->left);
    }
    r->out->orphans = rest < r->d->n ? rest : implicit_rest(r);
    if (rest == r->d->n && r->left)
        quotas_note(r->out, !r->d->at[r->out->orphans].host,
                    "no \"*\" in the text: the remaining %" PRIu64 " bytes (%.2f MiB) go to %s",
                    r->left, (double)r->left / (double)MIB, r->d->at[r->out->orphans].name);
    if (rest < r->d->n || r->left)
        give(r, r->out->orphans, r->left);
    return BERTH_OK;
}

/* Percents of the model when there is a "*", weights otherwise. */
static berth_status resolve_ratio(struct resolver *r)
{
    const struct alloc *a = r->a;
    unsigned __int128 whole = 0, weight[ALLOC_ENTRIES_MAX] = { 0 };
    bool star = false;
    r->out->orphans = r->out->compute;
    for (size_t i = 0; i < a->n; i++) {
        weight[i] = a->entry[i].num.digits * alloc_ten_to(18 - a->entry[i].num.scale);
        whole += weight[i];
        if (a->entry[i].rest) {
            star = true;
            r->out->orphans = r->device[i];
        }
    }
    const unsigned __int128 hundred = 100 * alloc_ten_to(18);
    if (!star && whole != hundred)
        quotas_note(r->out, false, "the shares make %.4g %%: they are scaled to the whole model",
                    (double)whole / (double)alloc_ten_to(18));
    if (star)
        whole = hundred;
    for (size_t i = 0; i < a->n; i++) {
        uint64_t bytes = share_of(weight[i], r->model, whole);
        if (bytes > r->d->at[r->device[i]].total)
            return over_memory(r, i, bytes);
        give(r, r->device[i], bytes);
    }
    if (r->left)
        give(r, r->out->orphans, r->left);
    return BERTH_OK;
}

static berth_status resolve_fraction(struct resolver *r)
{
    const struct alloc *a = r->a;
    for (size_t i = 0; i < a->n; i++) {
        const struct alloc_entry *e = &a->entry[i];
        unsigned __int128 whole = alloc_ten_to(e->num.scale);
        uint64_t bytes = share_of(e->num.digits, r->d->at[r->device[i]].total, whole);
        if (bytes && !r->left)
            note_used_up(r, e);
        give(r, r->device[i], bytes < r->left ? bytes : r->left);
    }
    r->out->orphans = r->left ? implicit_rest(r) : r->out->compute;
    if (r->left) {
        quotas_note(r->out, true,
                    "the fractions hold all but %" PRIu64
                    " bytes (%.2f MiB) of the model: they go to %s",
                    r->left, (double)r->left / (double)MIB, r->d->at[r->out->orphans].name);
        give(r, r->out->orphans, r->left);
    }
    return BERTH_OK;
}

/* The part that stays on compute must fit there, and should leave a tenth of its memory free. */
static berth_status check_kept(struct resolver *r, uint64_t kept)
{
    const struct plan_device *c = &r->d->at[r->out->compute];
    uint64_t good = c->total / 10 * 9;
    char stays[STR_BYTES_MAX], has[STR_BYTES_MAX];
    str_bytes_two(kept, c->total, stays, has);
    if (kept > c->total)
        return alloc_fail(r->err, BERTH_EINVAL, alloc_field(r->a, 2),
                          "%s stay and exceed device memory, %s has %s", stays, c->name, has);
    if (kept > good && !c->host)
        quotas_note(r->out, true,
                    "%.2f GiB stay on %s, of %.2f GiB: %.2f GiB of virtual VRAM are advised",
                    (double)kept / (double)GIB, c->name, (double)c->total / (double)GIB,
                    (double)(r->model - good) / (double)GIB);
    return BERTH_OK;
}

static berth_status resolve_virtual(struct resolver *r)
{
    const struct alloc *a = r->a;
    size_t compute = r->out->compute, donors = 0;
    struct alloc_spot at = alloc_field(a, 3);
    at.part = NULL;
    uint64_t want = a->virtual_bytes < r->model ? a->virtual_bytes : r->model, room = 0;
    for (size_t i = 0; i < a->donors; i++) {
        if (r->device[i] == compute) {
            quotas_note(r->out, true, "donor %s is the compute device: no offload to it",
                        a->donor[i]);
            continue;
        }
        r->device[donors++] = r->device[i];
        if (__builtin_add_overflow(room, r->d->at[r->device[i]].total, &room))
            room = UINT64_MAX;
    }
    char wants[STR_BYTES_MAX], has[STR_BYTES_MAX];
    str_bytes_two(want, room, wants, has);
    if (donors && want > room)
        return alloc_fail(r->err, BERTH_EINVAL, at, "donors can hold only %s of %s", has, wants);
    if (donors && a->virtual_bytes > room)
        quotas_note(r->out, true,
                    "virtual VRAM of %.2f GiB, donors have %.2f GiB: enough for this model",
                    (double)a->virtual_bytes / (double)GIB, (double)room / (double)GIB);
    if (donors && check_kept(r, r->model - want))
        return r->err->code;
    give(r, compute, donors ? r->model - want : r->model);
    for (size_t i = 0; i < donors; i++) {
        uint64_t total = r->d->at[r->device[i]].total;
        give(r, r->device[i], total < r->left ? total : r->left);
    }
    r->out->orphans = donors ? r->device[donors - 1] : compute;
    return BERTH_OK;
}

/* ---- doors ---- */

static berth_status find_devices(struct resolver *r)
{
    const struct alloc *a = r->a;
    for (size_t i = 0; i < a->n; i++)
        if (find_device(r, a->entry[i].device, alloc_spot_of(a, &a->entry[i]), &r->device[i]))
            return r->err->code;
    for (size_t i = 0; i < a->donors; i++) {
        size_t donor;
        if (find_device(r, a->donor[i], alloc_field(a, 3), &donor))
            return r->err->code;
        if (a->mode == ALLOC_VIRTUAL)
            r->device[i] = donor;
    }
    if (a->virtual_bytes && a->mode != ALLOC_VIRTUAL)
        quotas_note(r->out, false, "virtual VRAM is not looked at: the entries decide");
    return BERTH_OK;
}

berth_status alloc_resolve(const struct alloc *a, const struct plan_devices *devices,
                           const char *compute, uint64_t model, struct quotas *out, berth_err *err)
{
    memset(out, 0, sizeof *out);
    struct resolver r = { .a = a, .d = devices, .out = out, .err = err };
    r.model = r.left = model;
    if (!model)
        return err_set(err, BERTH_EINVAL, "allocation '%.60s': the model has no bytes", a->text);
    if (find_compute(&r, compute) || find_devices(&r))
        return err->code;
    out->mode = a->mode;
    switch (a->mode) {
    case ALLOC_BYTES:
        return resolve_bytes(&r);
    case ALLOC_RATIO:
        return resolve_ratio(&r);
    case ALLOC_FRACTION:
        return resolve_fraction(&r);
    case ALLOC_VIRTUAL:
        out->virtual_bytes = a->virtual_bytes;
        return resolve_virtual(&r);
    case ALLOC_COMPUTE_ONLY:
        break;
    }
    out->orphans = out->compute;
    give(&r, out->compute, model);
    return BERTH_OK;
}

void plan_string(const struct plan *p, struct str *out)
{
    const struct quotas *q = &p->quotas;
    const struct plan_devices *d = &p->devices;
    bool any = false, rest = false;
    for (size_t i = 0; i < q->n; i++) {
        const struct plan_device *x = &d->at[q->at[i].device];
        uint64_t bytes = q->at[i].bytes;
        bool star = q->at[i].device == q->orphans;
        if (star && bytes > x->total)
            bytes = x->total; /* no text may ask for more; "*" adds what is missing */
        if (!bytes && !star)
            continue;
        str_addf(out, "%s%s,", any ? ";" : "", x->name);
        if (bytes && bytes % GIB == 0)
            str_addf(out, "%" PRIu64 "gb", bytes / GIB);
        else if (bytes && bytes % MIB == 0)
            str_addf(out, "%" PRIu64 "mb", bytes / MIB);
        else if (bytes)
            str_addf(out, "%" PRIu64 "b", bytes);
        str_adds(out, star ? "*" : "");
        any = true;
        rest |= star;
    }
    if (!rest)
        str_addf(out, "%s%s,*", any ? ";" : "", d->at[q->orphans].name);
    str_addf(out, "#%s", d->at[q->compute].name);
}

/* ---- every block gets its device ---- */

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
    for (size_t i = 0; i < q->n; i++)
        if (q->at[i].device >= d->n || __builtin_add_overflow(sum, q->at[i].bytes, &sum))
            BUG("quotas of other devices");
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

/* Beside the device that has no room for its share, what the others of the plan would hold. */
static void append_others(const struct plan *p, size_t full, berth_err *err)
{
    char want[STR_BYTES_MAX], has[STR_BYTES_MAX];
    for (size_t i = 0; i < p->devices.n; i++)
        if (i != full && p->share[i].held)
            err_append(err, "; %s would hold %s, its budget is %s", p->devices.at[i].name,
                       str_bytes(p->share[i].held, want), str_bytes(p->devices.at[i].budget, has));
}

static berth_status check_budgets(const struct plan *p, berth_err *err)
{
    char want[STR_BYTES_MAX], has[STR_BYTES_MAX], stays[120];
    for (size_t i = 0; i < p->devices.n; i++) {
        const struct plan_device *d = &p->devices.at[i];
        if (p->share[i].held <= d->budget)
            continue;
        err_set(err, BERTH_ELIMIT,
                "%s would hold %s (%" PRIu64 " bytes in %zu blocks), its budget is %s "
                "(%" PRIu64 " bytes)%s",
                d->name, str_bytes(p->share[i].held, want), p->share[i].held, p->share[i].blocks,
                str_bytes(d->budget, has), d->budget, beyond_quota(p, i, stays));
        append_others(p, i, err);
        return err->code;
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
