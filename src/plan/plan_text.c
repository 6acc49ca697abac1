/* plan_text: a plan as the tables people know from ComfyUI-MultiGPU, and as JSON. */
#include "plan/plan_impl.h"

#include <stdarg.h>

#define MIB 1048576.0
#define GIB 1073741824.0

struct printer {
    plan_line_fn *line;
    void *user;
};

static void say(struct printer *o, const char *fmt, ...) PRINTF_LIKE(2, 3);
static void say(struct printer *o, const char *fmt, ...)
{
    char text[256];
    va_list ap;
    va_start(ap, fmt);
    vsnprintf(text, sizeof text, fmt, ap);
    va_end(ap);
    o->line(o->user, text);
}

static void rule(struct printer *o, char c, int width)
{
    char text[64];
    int n = 0;
    while (n < width)
        text[n++] = c;
    text[n] = 0;
    o->line(o->user, text);
}

static double share(uint64_t part, uint64_t whole)
{
    return whole ? (double)part / (double)whole : 0;
}

static uint64_t quota_of(const struct plan *p, size_t device)
{
    uint64_t bytes = 0;
    for (size_t i = 0; i < p->quotas.n; i++)
        bytes += p->quotas.at[i].device == device ? p->quotas.at[i].bytes : 0;
    return bytes;
}

/* Devices in the order of the tables: as listed, the host last. *it starts at 0; false at the
 * end. */
static bool next_device(const struct plan *p, size_t *it, size_t *out)
{
    size_t n = p->devices.n;
    for (; *it < 2 * n; ++*it) {
        size_t i = *it < n ? *it : *it - n;
        if (p->devices.at[i].host == (*it >= n)) {
            *out = i;
            ++*it;
            return true;
        }
    }
    return false;
}

/* ---- virtual VRAM ---- */

static void virtual_row(struct printer *o, const char *object, const char *role, double original,
                        double total, double virt)
{
    say(o, "%-8s %-6s %13.2f %10.2f %+10.2f", object, role, original / GIB, total / GIB,
        virt / GIB);
}

static void virtual_table(struct printer *o, const struct plan *p)
{
    double v = (double)p->quotas.virtual_bytes, model = (double)p->bytes;
    const struct plan_device *c = &p->devices.at[p->quotas.compute];
    rule(o, '=', 51);
    say(o, "          Virtual VRAM of the plan");
    rule(o, '=', 51);
    say(o, "%-8s %-6s %13s %10s %10s", "Object", "Role", "Original GiB", "Total GiB", "Virt GiB");
    rule(o, '-', 51);
    virtual_row(o, c->name, "recip", (double)c->total, (double)c->total + v, v);
    for (size_t i = 0; i < p->quotas.n; i++) {
        const struct plan_device *d = &p->devices.at[p->quotas.at[i].device];
        double gives = (double)p->quotas.at[i].bytes;
        if (p->quotas.at[i].device != p->quotas.compute)
            virtual_row(o, d->name, "donor", (double)d->total, (double)d->total - gives, -gives);
    }
    rule(o, '-', 51);
    virtual_row(o, "model", "model", model, model > v ? model - v : 0, -v);
}

/* ---- the others ---- */

/* Fractions of every device's memory, for the eye: plans themselves are exact. */
static void fraction_line(struct printer *o, const struct plan *p)
{
    char text[ALLOC_ENTRIES_MAX * (DEV_NAME_MAX + 10)];
    size_t n = 0, i, it = 0;
    text[0] = 0;
    while (next_device(p, &it, &i)) {
        double f = share(quota_of(p, i), p->devices.at[i].total);
        n += (size_t)snprintf(text + n, sizeof text - n, "%s%s,%.4f", n ? ";" : "",
                              p->devices.at[i].name, f);
    }
    o->line(o->user, text);
}

static void device_table(struct printer *o, const struct plan *p)
{
    rule(o, '=', 50);
    say(o, "            Device allocations");
    rule(o, '=', 50);
    say(o, "%-8s%9s%9s%11s%10s", "Device", "VRAM GiB", "Dev %", "Model GiB", "Dist %");
    rule(o, '-', 50);
    size_t i, it = 0;
    while (next_device(p, &it, &i)) {
        const struct plan_device *d = &p->devices.at[i];
        uint64_t q = quota_of(p, i);
        say(o, "%-8s%9.2f%8.1f%%%11.2f%9.1f%%", d->name, (double)d->total / GIB,
            100 * share(q, d->total), (double)q / GIB, 100 * share(q, p->bytes));
    }
}

static void row(struct printer *o, const char *what, size_t layers, uint64_t bytes, uint64_t all)
{
    say(o, "%-18.18s%7zu%14.2f%9.1f%%", what, layers, (double)bytes / MIB, 100 * share(bytes, all));
}

static void type_table(struct printer *o, const struct blocks *b)
{
    size_t layers[BLOCK_KIND_COUNT] = { 0 };
    uint64_t bytes[BLOCK_KIND_COUNT] = { 0 };
    for (size_t i = 0; i < b->n; i++) {
        layers[b->at[i].kind]++;
        bytes[b->at[i].kind] += b->at[i].bytes;
    }
    rule(o, '-', 50);
    say(o, "            Layer types");
    rule(o, '-', 50);
    say(o, "%-18s%7s%14s%10s", "Layer Type", "Layers", "Memory (MiB)", "% Total");
    rule(o, '-', 50);
    for (enum block_kind k = 0; k < BLOCK_KIND_COUNT; k++)
        if (layers[k])
            row(o, block_kind_name(k), layers[k], bytes[k], b->bytes);
}

static void final_table(struct printer *o, const struct plan *p)
{
    char small[DEV_NAME_MAX + 16];
    const struct plan_share *c = &p->share[p->quotas.compute];
    rule(o, '-', 50);
    say(o, "            Final assignments");
    rule(o, '-', 50);
    say(o, "%-18s%7s%14s%10s", "Device", "Layers", "Memory (MiB)", "% Total");
    rule(o, '-', 50);
    snprintf(small, sizeof small, "%s (<0.01%%)", p->devices.at[p->quotas.compute].name);
    if (c->blocks_by_class[PLAN_TINY])
        row(o, small, c->blocks_by_class[PLAN_TINY], c->by_class[PLAN_TINY], p->bytes);
    size_t i, it = 0;
    while (next_device(p, &it, &i)) {
        const struct plan_share *s = &p->share[i];
        size_t layers = s->blocks - s->blocks_by_class[PLAN_TINY];
        if (layers || quota_of(p, i))
            row(o, p->devices.at[i].name, layers, s->bytes - s->by_class[PLAN_TINY], p->bytes);
    }
    rule(o, '-', 50);
}

void plan_tables(const struct plan *p, const struct blocks *b, plan_line_fn *line, void *user)
{
    struct printer o = { line, user };
    const struct plan_share *orphans = &p->share[p->quotas.orphans];
    if (p->quotas.mode == ALLOC_VIRTUAL)
        virtual_table(&o, p);
    say(&o, "Fractions of each device (rounded; the exact string comes last)");
    fraction_line(&o, p);
    device_table(&o, p);
    type_table(&o, b);
    final_table(&o, p);
    if (orphans->blocks_by_class[PLAN_ORPHAN])
        say(&o, "fit no amount that was left: %zu block%s, %.2f MiB -> %s",
            orphans->blocks_by_class[PLAN_ORPHAN],
            orphans->blocks_by_class[PLAN_ORPHAN] == 1 ? "" : "s",
            (double)orphans->by_class[PLAN_ORPHAN] / MIB, p->devices.at[p->quotas.orphans].name);
}

/* ---- for programs ---- */

static void add_devices(struct jsonout *j, const struct plan *p)
{
    jo_open(j, "devices", '[');
    for (size_t i = 0; i < p->devices.n; i++) {
        jo_open_flat(j, NULL, '{');
        jo_str(j, "device", p->devices.at[i].name);
        jo_u64(j, "bytes", p->share[i].bytes);
        jo_u64(j, "blocks", p->share[i].blocks);
        jo_f64(j, "share", p->bytes ? (double)p->share[i].bytes / (double)p->bytes : 0);
        jo_close(j, '}');
    }
    jo_close(j, ']');
}

static void add_blocks(struct jsonout *j, const struct plan *p, const struct blocks *b)
{
    jo_open(j, "blocks", '[');
    for (size_t i = 0; i < b->n; i++) {
        jo_open_flat(j, NULL, '{');
        jo_text(j, "name", b->at[i].name, b->at[i].name_len);
        jo_u64(j, "bytes", b->at[i].bytes);
        jo_str(j, "device", p->devices.at[p->device[i]].name);
        jo_close(j, '}');
    }
    jo_close(j, ']');
}

static void add_notes(struct jsonout *j, const struct quotas *q)
{
    jo_open(j, "notes", '[');
    for (size_t i = 0; i < q->notes; i++) {
        jo_open_flat(j, NULL, '{');
        jo_bool(j, "warning", q->warn[i]);
        jo_str(j, "text", q->note[i]);
        jo_close(j, '}');
    }
    jo_close(j, ']');
}

void plan_as_json(const struct plan *p, const struct blocks *b, enum dtype converted,
                  struct jsonout *j)
{
    struct str text = { 0 };
    plan_string(p, &text);
    jo_u64(j, "total_bytes", p->bytes);
    jo_str(j, "converted", converted != DT_NONE ? dtype_name(converted) : NULL);
    jo_str(j, "compute", p->devices.at[p->quotas.compute].name);
    add_devices(j, p);
    add_blocks(j, p, b);
    jo_str(j, "string", str_c(&text));
    jo_str(j, "layout", plan_layout_name(p->layout));
    add_notes(j, &p->quotas);
    j->out->bad |= text.bad;
    str_release(&text);
}
