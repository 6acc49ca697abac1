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
