/* ComfyUI-Manager's own page, if somebody serves its scripts: answers that keep it quiet. Nothing is
 * installed from here and nothing is stored; installing is refused in the way it understands. The
 * two buttons that free memory go to /free like everybody's. */
#include "server/routes.h"

static void text(struct http_req *r, const char *value)
{
    struct str v = { 0 };
    if (http_query(r, "value", &v)) /* to be changed: there is nothing here that it is about */
        http_reply_empty(r, 200);
    else
        http_reply_text(r, 200, value);
    str_release(&v);
}

static void fixed(struct http_req *r, const char *json)
{
    struct str out = { 0 };
    str_adds(&out, json);
    http_reply_json_text(r, 200, &out);
}

void route_manager_version(struct http_req *r)
{
    http_reply_text(r, 200, "V3.31.9");
}

void route_manager_share_option(struct http_req *r)
{
    text(r, "none");
}

void route_manager_db_mode(struct http_req *r)
{
    text(r, "cache");
}

void route_manager_preview_method(struct http_req *r)
{
    const char *m = r->server->cfg.preview_method;
    struct str v = { 0 };
    if (http_query(r, "value", &v))
        http_reply_text(r, 403, "not changed: --preview-method says it when the server starts");
    else
        http_reply_text(r, 200, m ? m : "none");
    str_release(&v);
}

void route_manager_policy_component(struct http_req *r)
{
    text(r, "workflow");
}

void route_manager_policy_update(struct http_req *r)
{
    text(r, "stable-comfyui");
}

void route_manager_channels(struct http_req *r)
{
    fixed(r, "{\"selected\":\"default\",\"list\":[\"default::https://raw.githubusercontent.com/"
             "ltdrdata/ComfyUI-Manager/main\"]}");
}

void route_manager_notice(struct http_req *r)
{
    static const char html[] =
        "<p>This server is Berth. It has no Python and installs nothing.</p>";
    http_reply(r, 200, "text/html; charset=utf-8", html, sizeof html - 1);
}

/* Of an installation that is out of date, or was moved: there is none. */
void route_manager_alerts(struct http_req *r)
{
    fixed(r, "[]");
}

void route_manager_queue_status(struct http_req *r)
{
    fixed(r,
          "{\"total_count\":0,\"done_count\":0,\"in_progress_count\":0,\"is_processing\":false}");
}

/* reset, start, update_all, update_comfyui: done, as there is nothing to do */
void route_manager_queue(struct http_req *r)
{
    http_reply_empty(r, 200);
}

void route_manager_refused(struct http_req *r)
{
    http_reply_empty(r, 403);
}

void route_manager_packs(struct http_req *r)
{
    fixed(r, "{\"channel\":\"default\",\"node_packs\":{}}");
}

void route_manager_models(struct http_req *r)
{
    fixed(r, "{\"models\":[]}");
}

void route_manager_snapshots(struct http_req *r)
{
    fixed(r, "{\"items\":[]}");
}

void route_manager_versions(struct http_req *r)
{
    fixed(r, "{\"versions\":[],\"current\":\"\"}");
}
