/* plan_json: a plan for programs. */
#include "plan/plan_impl.h"

#include "base/json.h"

#include <inttypes.h>

static void add_text(struct str *out, const char *before, const char *s, size_t n)
{
    str_adds(out, before);
    js_write_string(s, n, out);
}

static void add_share(struct str *out, uint64_t part, uint64_t whole)
{
    json_t *v = json_real(whole ? (double)part / (double)whole : 0);
    if (v)
        js_write(v, 0, out);
    out->bad |= !v;
    json_decref(v);
}

static void add_devices(struct str *out, const struct plan *p)
{
    str_adds(out, ",\n  \"devices\": [");
    for (size_t i = 0; i < p->devices.n; i++) {
        const char *name = p->devices.at[i].name;
        add_text(out, i ? ",\n    {\"device\": " : "\n    {\"device\": ", name, strlen(name));
        str_addf(out, ", \"bytes\": %" PRIu64 ", \"blocks\": %zu, \"share\": ", p->share[i].bytes,
                 p->share[i].blocks);
        add_share(out, p->share[i].bytes, p->bytes);
        str_addc(out, '}');
    }
    str_adds(out, p->devices.n ? "\n  ]" : "]");
}

static void add_blocks(struct str *out, const struct plan *p, const struct blocks *b)
{
    str_adds(out, ",\n  \"blocks\": [");
    for (size_t i = 0; i < b->n; i++) {
        const char *device = p->devices.at[p->device[i]].name;
        add_text(out, i ? ",\n    {\"name\": " : "\n    {\"name\": ", b->at[i].name,
                 b->at[i].name_len);
        str_addf(out, ", \"bytes\": %" PRIu64, b->at[i].bytes);
        add_text(out, ", \"device\": ", device, strlen(device));
        str_addc(out, '}');
    }
    str_adds(out, b->n ? "\n  ]" : "]");
}

static void add_notes(struct str *out, const struct quotas *q)
{
    str_adds(out, ",\n  \"notes\": [");
    for (size_t i = 0; i < q->notes; i++) {
        str_addf(out, "%s\n    {\"warning\": %s", i ? "," : "", q->warn[i] ? "true" : "false");
        add_text(out, ", \"text\": ", q->note[i], strlen(q->note[i]));
        str_addc(out, '}');
    }
    str_adds(out, q->notes ? "\n  ]" : "]");
}

void plan_as_json(const struct plan *p, const struct blocks *b, enum dtype converted,
                  struct str *out)
{
    const char *compute = p->devices.at[p->quotas.compute].name;
    struct str text = { 0 };
    plan_string(p, &text);
    str_addf(out, "{\n  \"total_bytes\": %" PRIu64, p->bytes);
    if (converted != DT_NONE)
        add_text(out, ",\n  \"converted\": ", dtype_name(converted), strlen(dtype_name(converted)));
    else
        str_adds(out, ",\n  \"converted\": null");
    add_text(out, ",\n  \"compute\": ", compute, strlen(compute));
    add_devices(out, p);
    add_blocks(out, p, b);
    add_text(out, ",\n  \"string\": ", str_c(&text), text.n);
    str_addf(out, ",\n  \"layout\": \"%s\"", plan_layout_name(p->layout));
    add_notes(out, &p->quotas);
    str_adds(out, "\n}");
    out->bad |= text.bad;
    str_release(&text);
}
