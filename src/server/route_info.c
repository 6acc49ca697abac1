/* What the server is: node definitions, the machine, feature flags, extensions of the frontend. */
#include "device/cpu/meminfo.h"
#include "server/routes.h"

#include <stdlib.h>
#include <string.h>

#define COMFYUI_VERSION "0.7.0" /* whose contract this is */

/* ---- node definitions ---- */

/* "name": def. A definition that cannot be made is left out, with a word in the log. */
static bool add_definition(struct server *s, const struct node_class *c, bool first,
                           struct str *out)
{
    json_t *info = NULL;
    berth_err err = { 0 };
    if (node_info(engine_env(s->engine), c, &info, &err)) {
        log_warn(&s->log, "node.info", "class=%s why=%s", c->name, err.msg);
        return false;
    }
    if (!first)
        str_addc(out, ',');
    js_write_string(c->name, strlen(c->name), out);
    str_addc(out, ':');
    js_write(info, 0, out);
    json_decref(info);
    return true;
}

struct definitions { /* their choices are files: folders are read */
    struct later base;
    bool all;
    const struct node_class *only; /* else; NULL: there is no such class */
};

static void definitions_work(struct later *l)
{
    const struct definitions *d = (const struct definitions *)l;
    bool first = true;
    str_addc(&l->body, '{');
    for (size_t i = 0; d->all && i < node_count(); i++)
        if (add_definition(l->server, node_at(i), first, &l->body))
            first = false;
    if (d->only)
        add_definition(l->server, d->only, true, &l->body);
    str_addc(&l->body, '}');
    later_made(l);
}

static void run_definitions(struct http_req *r, bool all, const struct node_class *only)
{
    struct definitions *d = calloc(1, sizeof *d);
    if (!d) {
        http_reply_json(r, 500, NULL);
        return;
    }
    d->base.lane = AUX_LISTS;
    d->base.work = definitions_work;
    d->base.release = later_plain;
    d->all = all;
    d->only = only;
    later_run(r, &d->base);
}

void route_object_info(struct http_req *r)
{
    run_definitions(r, true, NULL);
}

void route_object_info_one(struct http_req *r)
{
    run_definitions(r, false, node_find(str_c(&r->param[0])));
}

/* ---- the machine ---- */

/* --enable-manager in argv would make the frontend look for a Manager that is not here. */
static void add_argv(const struct server *s, struct str *out)
{
    bool first = true;
    for (size_t i = 0; i < s->cfg.argc; i++) {
        const char *a = s->cfg.argv[i];
        if (strncmp(a, "--enable-manager", 16) == 0)
            continue;
        if (!first)
            str_addc(out, ',');
        js_write_string(a, strlen(a), out);
        first = false;
    }
}

void route_system_stats(struct http_req *r)
{
    struct server *s = r->server;
    struct str out = { 0 };
    uint64_t total = 0, unused = 0;
    berth_err err = { 0 };
    if (meminfo_read("", &total, &unused, &err))
        total = unused = 0;
    str_addf(&out,
             "{\"system\":{\"os\":\"linux\",\"ram_total\":%llu,\"ram_free\":%llu,"
             "\"comfyui_version\":\"" COMFYUI_VERSION "\",\"required_frontend_version\":null,"
             "\"installed_templates_version\":null,\"required_templates_version\":null,"
             "\"python_version\":\"none (Berth %s)\",\"pytorch_version\":\"none (Berth %s)\","
             "\"embedded_python\":false,\"argv\":[",
             (unsigned long long)total, (unsigned long long)unused, berth_version(),
             berth_version());
    add_argv(s, &out);
    str_adds(&out, "]},\"devices\":");
    worker_stats_json(s, &out);
    str_addc(&out, '}');
    http_reply_json_text(r, 200, &out);
}

void route_features(struct http_req *r)
{
    struct str out = { 0 };
    hub_features(r->server, &out);
    http_reply_json_text(r, 200, &out);
}

/* ---- the frontend's own ---- */

/* Translations and subgraphs of node packs are not read. */
void route_empty_object(struct http_req *r)
{
    http_reply_json(r, 200, json_object());
}

void route_json_null(struct http_req *r)
{
    http_reply_json(r, 200, json_null());
}

/* ---- logs ---- */

/* One JSON string with all lines. */
void route_logs_text(struct http_req *r)
{
    struct str lines = { 0 }, out = { 0 };
    logs_text(r->server, &lines);
    out.bad = lines.bad;
    js_write_string(str_c(&lines), lines.n, &out);
    str_release(&lines);
    http_reply_json_text(r, 200, &out);
}

void route_logs_raw(struct http_req *r)
{
    struct str out = { 0 };
    logs_json(r->server, &out);
    http_reply_json_text(r, 200, &out);
}

void route_logs_subscribe(struct http_req *r)
{
    json_t *body;
    if (!http_json(r, NULL, &body))
        return;
    const json_t *id = json_object_get(body, "clientId");
    if (id && js_kind(id) == JS_STRING) {
        hub_subscribe_logs(r->server, json_string_value(id),
                           py_truth(json_object_get(body, "enabled")));
        http_reply_empty(r, 200);
    } else {
        http_reply_text(r, 400, "wanted: {\"clientId\": text, \"enabled\": true or false}");
    }
    json_decref(body);
}
