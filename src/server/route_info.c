/* What the server is: node definitions, the machine, feature flags, extensions of the frontend. */
#include "device/cpu/meminfo.h"
#include "server/packs.h"
#include "server/routes.h"

#define COMFYUI_VERSION "0.33.0" /* whose contract this is */

/* ---- node definitions ---- */

/* A definition that cannot be made is left out, with a word in the log. */
static void add_definition(struct server *s, const struct node_class *c, struct jsonout *j)
{
    json_t *info = NULL;
    berth_err err = { 0 };
    if (node_info(engine_env(s->engine), c, &info, &err))
        log_warn(&s->log, "node.info", "class=%s why=%s", c->name, err.msg);
    else
        jo_value(j, c->name, info);
    json_decref(info);
}

/* Of all classes, or of the one that the path names. Choices are files: folders are read. */
void later_object_info(struct later *l)
{
    struct jsonout j = { .out = &l->body };
    const struct node_class *only = l->r->params ? node_find(str_c(&l->r->param[0])) : NULL;
    jo_open(&j, NULL, '{');
    for (size_t i = 0; !l->r->params && i < node_count(); i++)
        add_definition(l->server, node_at(i), &j);
    if (only)
        add_definition(l->server, only, &j);
    jo_close(&j, '}');
}

/* ---- the machine ---- */

void system_stats_json(struct server *s, struct str *out)
{
    struct str version = { 0 };
    struct jsonout j = { .out = out };
    uint64_t total = 0, unused = 0;
    berth_err err = { 0 };
    if (meminfo_read("", &total, &unused, &err))
        total = unused = 0;
    str_addf(&version, "none (Berth %s)", berth_version());
    jo_open(&j, NULL, '{');
    jo_open(&j, "system", '{');
    jo_str(&j, "os", "linux");
    jo_u64(&j, "ram_total", total);
    jo_u64(&j, "ram_free", unused);
    jo_str(&j, "comfyui_version", COMFYUI_VERSION);
    jo_str(&j, "required_frontend_version", NULL);
    packs_versions_json(s, &j);
    jo_str(&j, "python_version", str_c(&version));
    jo_str(&j, "pytorch_version", str_c(&version));
    jo_bool(&j, "embedded_python", false);
    jo_str(&j, "deploy_environment", "berth");
    jo_open(&j, "argv", '[');
    for (size_t i = 0; i < s->cfg.argc; i++) /* it would make the frontend look for a Manager */
        if (strncmp(s->cfg.argv[i], "--enable-manager", 16) != 0)
            jo_str(&j, NULL, s->cfg.argv[i]);
    jo_close(&j, ']');
    jo_close(&j, '}');
    jo_raw(&j, "devices", "", 0); /* its value: */
    worker_stats_json(s, out);
    jo_close(&j, '}');
    str_release(&version);
}

void route_node_replacements(struct http_req *r)
{
    http_reply_json(r, 200, graph_replacements());
}

/* ---- flags ---- */

void features_json(struct server *s, struct str *out)
{
    struct jsonout j = { .out = out, .spaced = true };
    hub_features(s, NULL, &j);
}

void route_manager_preview_method(struct http_req *r)
{
    struct str v = { 0 };
    if (http_query(r, "value", &v))
        http_reply_text(r, 403, "not changed: --preview-method says it when the server starts");
    else
        http_reply_text(r, 200, r->server->cfg.preview_method);
    str_release(&v);
}

/* ---- logs ---- */

/* One JSON string with all lines. */
void logs_json_text(struct server *s, struct str *out)
{
    struct str lines = { 0 };
    logs_text(s, &lines);
    out->bad |= lines.bad;
    js_write_string(str_c(&lines), lines.n, out);
    str_release(&lines);
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
