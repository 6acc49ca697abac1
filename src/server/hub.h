/* hub: WebSocket clients by clientId, and what is sent to them.
 *
 * A new socket with a known sid takes the name over; the old socket stays open without it and hears
 * only what all hear. Closing a socket removes the name only if it is still this socket's.
 * Output of one client is bounded: previews are dropped first (the newest stays), then a client
 * that does not read its messages is closed.
 * Threads    hub_send*: any; the rest loop. Order of messages from one thread is kept. */
#ifndef SERVER_HUB_H
#define SERVER_HUB_H

#include "base/str.h"
#include "server/wsframe.h"

struct server;
struct conn;

/* Text frames; copies nothing but once. sid NULL: all sockets. A sid that nobody has: dropped. */
void hub_send(struct server *s, const char *sid, struct str *taken);
/* {"type":T,"data":D} from a ready data text. */
void hub_send_message(struct server *s, const char *sid, const char *type, const char *data);
/* A preview, both forms: 4 to a client that said supports_preview_metadata, else 1; to all: 1. */
struct hub_preview {
    const char *node, *display_node, *parent_node, *real_node, *prompt_id;
    bool png;
    struct str bytes; /* taken */
};
void hub_send_preview(struct server *s, const char *sid, struct hub_preview *taken);
void hub_send_text(struct server *s, const char *node, const char *p,
                   size_t n); /* binary 3, to all */

/* status to ALL with the store's number; coalesced within one turn of the loop is not allowed: each
 * effective change is one message (comfyui-api.md 2.5). */
void hub_send_status(struct server *s);

/* loop */
void hub_opened(struct server *s, struct conn *c, const char *client_id);     /* after the 101 */
void hub_received(struct server *s, struct conn *c, const char *p, size_t n); /* a text message */
void hub_closed(struct server *s, struct conn *c);
size_t hub_count(const struct server *s);
/* clientId subscribed to `logs` messages or not. */
void hub_subscribe_logs(struct server *s, const char *sid, bool on);
void hub_send_logs(struct server *s, struct str *taken); /* any thread; to subscribers */
bool hub_logs_wanted(const struct server *s);            /* any thread: somebody subscribed */
/* The server's feature flags, for /features and the WebSocket. Appends an object. Any thread. */
void hub_features(const struct server *s, struct str *out);

#endif
