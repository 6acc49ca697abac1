/* plan_json: a plan for programs. */
#include "plan/plan_impl.h"

#include "base/json.h"

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
