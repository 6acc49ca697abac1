/* route_todo: handlers that are not there yet. */
#include "server/routes.h"

void route_logs_text(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_logs_raw(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_logs_subscribe(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_upload_image(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_upload_mask(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_users_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_users_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_settings_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_settings_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_setting_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_setting_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_list(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_tree(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_get(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_post(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_delete(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

void route_userdata_move(struct http_req *r)
{
    http_reply_text(r, 501, "not there yet");
}

const struct http_sink sink_upload = { 0 };

const struct http_sink sink_userdata = { 0 };
