/* plan_auto: quotas without a text: the compute device first, then who is near. */
#include "plan/plan_impl.h"

#include <inttypes.h>

struct autoplan {
    const struct blocks *b;
    const struct plan_devices *d;
    struct quotas *out;
    uint64_t reserve;
    size_t donor[ALLOC_ENTRIES_MAX], donors; /* nearest first */
    uint64_t stuck;   /* bytes that are on compute whatever it has: tiny blocks and embeddings */
    uint64_t tiny;    /* of them, outside of any quota */
    uint64_t largest; /* block to place */
    uint64_t padding; /* of all blocks: kept off every device's room, wherever they end */
    bool brimful;     /* donors are filled to the last byte */
};

uint64_t plan_reserve_default(uint64_t budget, bool host)
{
    if (host)
        return 0;
    return budget / 4 < PLAN_RESERVE_DEFAULT ? budget / 4 : PLAN_RESERVE_DEFAULT;
}

static uint64_t room_on(const struct autoplan *p, size_t device)
{
    uint64_t budget = p->d->at[device].budget;
    return budget > p->padding ? budget - p->padding : 0;
}

/* Of a donor: pools round and leave gaps, so that a plan to its last byte may not load. A
 * thirty-second is left open as long as the model finds room all the same. */
static uint64_t donor_room(const struct autoplan *p, size_t device)
{
    uint64_t room = room_on(p, device);
    return p->brimful ? room : room - room / 32;
}

static void measure(struct autoplan *p)
{
    for (size_t i = 0; i < p->b->n; i++) {
        const struct block *k = &p->b->at[i];
        bool tiny = !k->embedding && plan_tiny(k->bytes, p->b->bytes);
        p->tiny += tiny ? k->bytes : 0;
        p->stuck += tiny || k->embedding ? k->bytes : 0;
        p->padding += plan_held(k) - k->bytes;
        if (!tiny && !k->embedding && k->bytes > p->largest)
            p->largest = k->bytes;
    }
}

/* "cuda" of "cuda:1" */
static size_t kind_length(const char *name)
{
    return strcspn(name, ":");
}

static bool same_kind(const char *a, const char *b)
{
    return kind_length(a) == kind_length(b) && memcmp(a, b, kind_length(a)) == 0;
}

/* <0: a is the better donor. Measured speed first; without it relatives of the compute device by
 * number, strangers, the host. */
static int compare(const struct plan_devices *d, size_t compute, size_t a, size_t b)
{
    const struct plan_device *x = &d->at[a], *y = &d->at[b];
    if ((x->speed > 0) != (y->speed > 0))
        return x->speed > 0 ? -1 : 1;
    if (x->speed > 0)
        return x->speed > y->speed ? -1 : x->speed < y->speed;
    if (x->host != y->host)
        return x->host ? 1 : -1;
    bool xk = same_kind(x->name, d->at[compute].name), yk = same_kind(y->name, d->at[compute].name);
    if (xk != yk)
        return xk ? -1 : 1;
    unsigned long xn = alloc_device_number(x->name), yn = alloc_device_number(y->name);
    return xk && xn != yn ? (xn < yn ? -1 : 1) : 0;
}

static void rank_donors(struct autoplan *p)
{
    for (size_t i = 0; i < p->d->n; i++) {
        if (i == p->out->compute || !room_on(p, i))
            continue;
        size_t k = p->donors++;
        for (; k && compare(p->d, p->out->compute, p->donor[k - 1], i) > 0; k--)
            p->donor[k] = p->donor[k - 1];
        p->donor[k] = i;
    }
}

static void give(struct autoplan *p, size_t device, uint64_t bytes)
{
    p->out->at[p->out->n++] = (struct quota) { .device = device, .bytes = bytes };
}

/* Blocks do not fill a quota to the byte: what each device leaves open, less than one block, ends
 * at the orphans device. The last donor that got a share, if it has room for that, or one behind
 * it. */
static void choose_orphans(struct autoplan *p, size_t last)
{
    uint64_t spill, most = 0;
    if (__builtin_mul_overflow(p->largest, (uint64_t)last + 1, &spill))
        spill = UINT64_MAX;
    p->out->orphans = p->donor[last];
    for (size_t i = last; i < p->donors; i++) {
        uint64_t used = i == last ? p->out->at[p->out->n - 1].bytes : 0;
        uint64_t room = donor_room(p, p->donor[i]);
        room -= used < room ? used : room;
        if (room > most) {
            most = room;
            p->out->orphans = p->donor[i];
        }
        if (room >= spill)
            return;
    }
}

#define DONORS_NAMED 4

/* "cuda:1 8.00 GiB, cpu 4.00 GiB": what each of the others has for the model. */
static void list_donors(const struct autoplan *p, struct str *out)
{
    char room[STR_BYTES_MAX];
    for (size_t i = 0; i < p->donors && i < DONORS_NAMED; i++)
        str_addf(out, "%s%s %s", i ? ", " : " ", p->d->at[p->donor[i]].name,
                 str_bytes(donor_room(p, p->donor[i]), room));
    if (p->donors > DONORS_NAMED)
        str_addf(out, " and %zu more", p->donors - DONORS_NAMED);
    str_adds(out, !p->donors ? " nothing" : p->padding ? " after alignment" : "");
}

static berth_status too_big(const struct autoplan *p, berth_err *err)
{
    const struct plan_device *c = &p->d->at[p->out->compute];
    char model[STR_BYTES_MAX], has[STR_BYTES_MAX], kept[STR_BYTES_MAX];
    struct str rest = { 0 };
    list_donors(p, &rest);
    err_set(err, BERTH_ELIMIT,
            "auto plan: the model has %s; %s has %s, of which %s are kept free for activations, "
            "and the other devices have%s: give them more (--devices, --ram-budget), or take a "
            "smaller file or type (weight_dtype fp8_e4m3fn)",
            str_bytes(p->b->bytes, model), c->name, str_bytes(c->budget, has),
            str_bytes(p->reserve, kept), str_c(&rest));
    str_release(&rest);
    return err->code;
}

static uint64_t donors_room(const struct autoplan *p)
{
    uint64_t room = 0;
    for (size_t i = 0; i < p->donors; i++)
        if (__builtin_add_overflow(room, donor_room(p, p->donor[i]), &room))
            room = UINT64_MAX;
    return room;
}

/* `left` bytes of quota to the donors in order; what is tiny needs no room there. */
static berth_status share_out(struct autoplan *p, uint64_t quota, berth_err *err)
{
    uint64_t left = p->b->bytes - quota;
    uint64_t held = p->stuck > quota + p->tiny ? p->stuck : quota + p->tiny;
    uint64_t need = p->b->bytes - held; /* bytes that donors really get */
    p->brimful = need > donors_room(p);
    uint64_t room = donors_room(p);
    if (!p->donors || need > room)
        return too_big(p, err);
    size_t i = 0;
    for (; i + 1 < p->donors && left > donor_room(p, p->donor[i]); i++) {
        give(p, p->donor[i], donor_room(p, p->donor[i]));
        left -= donor_room(p, p->donor[i]);
    }
    give(p, p->donor[i], left); /* tiny bytes may be beyond its budget: they are never put there */
    choose_orphans(p, i);
    return BERTH_OK;
}

static void explain(struct autoplan *p, uint64_t capacity)
{
    struct quotas *q = p->out;
    const struct plan_device *c = &p->d->at[q->compute];
    char a[STR_BYTES_MAX], b[STR_BYTES_MAX], s[STR_BYTES_MAX];
    bool all = q->n == 1;
    quotas_note(q, false, "auto: %s takes %s of %s, %s kept free for activations", c->name,
                all ? "all" : str_bytes(q->at[0].bytes + p->tiny, a), str_bytes(p->b->bytes, b),
                str_bytes(p->reserve, s));
    if (p->stuck > capacity)
        quotas_note(q, true,
                    "auto: %s of embeddings and tiny blocks leave %s less than its reserve",
                    str_bytes(p->stuck, a), c->name);
    for (size_t i = 1; i < q->n; i++) {
        const struct plan_device *d = &p->d->at[q->at[i].device];
        if (d->speed > 0)
            quotas_note(q, false, "auto: %s takes %s, measured %.1f GB/s", d->name,
                        str_bytes(q->at[i].bytes, a), d->speed / 1e9);
        else
            quotas_note(q, false, "auto: %s takes %s, speed not measured", d->name,
                        str_bytes(q->at[i].bytes, a));
    }
}

berth_status plan_auto(const struct blocks *b, const struct plan_devices *devices,
                       const char *compute, uint64_t reserve, struct quotas *out, berth_err *err)
{
    memset(out, 0, sizeof *out);
    struct autoplan p = { .b = b, .d = devices, .out = out };
    if (plan_compute_find(devices, compute, &out->compute, err))
        return err->code;
    const struct plan_device *c = &devices->at[out->compute];
    p.reserve = reserve == UINT64_MAX ? plan_reserve_default(c->budget, c->host) : reserve;
    measure(&p);
    uint64_t room = room_on(&p, out->compute);
    uint64_t capacity = room > p.reserve ? room - p.reserve : 0;
    out->orphans = out->compute;
    if (b->bytes <= capacity) {
        give(&p, out->compute, b->bytes);
    } else {
        rank_donors(&p);
        uint64_t quota = capacity > p.tiny ? capacity - p.tiny : 0;
        give(&p, out->compute, quota);
        if (share_out(&p, quota, err))
            return err->code;
    }
    explain(&p, capacity);
    return BERTH_OK;
}
