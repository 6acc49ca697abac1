#include "app/plan.h"

static void print_devices(struct jsonout *j, const struct plan *p)
{
    jsonout_open(j, "devices", '[');
    for (size_t i = 0; i < p->devices.n; i++) {
        jsonout_open_flat(j, NULL, '{');
        jsonout_str(j, "device", p->devices.at[i].name);
        jsonout_u64(j, "bytes", p->share[i].bytes);
        jsonout_u64(j, "blocks", p->share[i].blocks);
        jsonout_f64(j, "share", p->bytes ? (double)p->share[i].bytes / (double)p->bytes : 0);
        jsonout_close(j, '}');
    }
    jsonout_close(j, ']');
}

static void print_blocks(struct jsonout *j, const struct plan *p, const struct blocks *b)
{
    jsonout_open(j, "blocks", '[');
    for (size_t i = 0; i < b->n; i++) {
        jsonout_open_flat(j, NULL, '{');
        jsonout_text(j, "name", b->at[i].name, b->at[i].name_len);
        jsonout_u64(j, "bytes", b->at[i].bytes);
        jsonout_str(j, "device", p->devices.at[p->device[i]].name);
        jsonout_close(j, '}');
    }
    jsonout_close(j, ']');
}

static void print_notes(struct jsonout *j, const struct quotas *q)
{
    jsonout_open(j, "notes", '[');
    for (size_t i = 0; i < q->notes; i++) {
        jsonout_open_flat(j, NULL, '{');
        jsonout_bool(j, "warning", q->warn[i]);
        jsonout_str(j, "text", q->note[i]);
        jsonout_close(j, '}');
    }
    jsonout_close(j, ']');
}

int plan_json(struct app *a, const struct planned *x)
{
    const struct plan *p = x->plan;
    struct jsonout j;
    struct str text = { 0 };
    plan_string(p, &text);
    app_json_begin(a, &j);
    jsonout_open(&j, NULL, '{');
    jsonout_u64(&j, "total_bytes", p->bytes);
    jsonout_str(&j, "compute", p->devices.at[p->quotas.compute].name);
    print_devices(&j, p);
    print_blocks(&j, p, x->blocks);
    jsonout_str(&j, "string", str_c(&text));
    jsonout_str(&j, "layout", plan_layout_name(p->layout));
    print_notes(&j, &p->quotas);
    jsonout_close(&j, '}');
    j.nomem |= text.bad;
    str_release(&text);
    return app_json_end(a, &j, APP_OK);
}
