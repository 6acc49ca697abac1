/* hub: WebSocket clients by clientId, and what is sent to them.
 *
 * Names      A new socket with a known clientId takes the name over; the old one stays open and
 *            hears only what goes to all. Closing a socket frees the name if it still has it.
 * Slow       What a client leaves unread is bounded (see loop.h), and no client delays another. A
 *            newer preview or berth.memory replaces one that waits; so does a newer progress_state
 *            once a client is behind. A client that takes nothing for a while, or falls far behind,
 *            is closed. Everything else arrives, in order.
 * Pressure   Call hub_wait() before each message sent in bulk. It waits, for a bounded time, while
 *            the loop or the addressed client is behind. It does not wait for a client that took
 *            nothing for a second, nor for anybody before a message to all.
 * Threads    hub_send*, hub_wait, hub_listens, hub_*_wanted, hub_features: any; the rest: loop.
 *            Messages from one thread stay in order. */
#pragma once

#include "base/jsonout.h"
#include "server/wsframe.h"

struct server;
struct conn;

/* A text frame. sid NULL: all sockets; an unknown one: dropped. */
void hub_send(struct server *s, const char *sid, struct str *taken);
/* A message that supersedes earlier ones of the same run. */
void hub_send_state(struct server *s, const char *sid, uint64_t run, struct str *taken);
/* Waits a little while much is unsent, and subtracts the time from *left_ms; at 0 it no longer
 * waits. sid: the recipient; NULL: all. Not on the loop, and without locks. */
void hub_wait(struct server *s, const char *sid, unsigned *left_ms);
/* Does sid (NULL: anybody) have a socket now? */
bool hub_listens(struct server *s, const char *sid);
/* A preview and the `progress` of its step. A client with supports_preview_metadata gets form 4,
 * then progress; others, and messages to all, get progress, then form 1. */
struct hub_preview {
    const char *node, *display_node, *parent_node, *real_node, *prompt_id;
    bool png;                   /* a result (SaveImageWebsocket): never dropped */
    struct str bytes, progress; /* taken; no progress: only the picture */
};
void hub_send_preview(struct server *s, const char *sid, struct hub_preview *taken);
/* Binary 3, a text shown under a node, to clients that know it: those that say
 * supports_progress_text_metadata, and older ComfyUI frontends, which say supports_manager_v4_ui.
 * ComfyUI sends it to all, but simple clients take every binary frame for a picture, and we send
 * texts whenever a model is loaded. */
void hub_send_text(struct server *s, const char *node, const char *p, size_t n);

/* status to ALL with the store's number: one message for each effective change (comfyui-api.md
 * 2.5). */
void hub_send_status(struct server *s);

/* loop */
void hub_opened(struct server *s, struct conn *c, const char *client_id);     /* after the 101 */
void hub_received(struct server *s, struct conn *c, const char *p, size_t n); /* a text message */
void hub_closed(struct server *s, struct conn *c);
void hub_moved(struct server *s, struct conn *c); /* bytes of its output left */
void hub_swept(struct server *s, struct conn *c); /* now and then, while it has output */
size_t hub_count(const struct server *s);
/* clientId subscribed to `logs` messages or not. */
void hub_subscribe_logs(struct server *s, const char *sid, bool on);
void hub_send_logs(struct server *s, struct str *taken); /* to subscribers */
bool hub_logs_wanted(const struct server *s);            /* somebody subscribed */
/* To clients whose feature flags have "berth": true; ComfyUI's frontend complains about unknown
 * messages. memory: a newer one replaces one that waits. */
void hub_send_berth(struct server *s, bool memory, struct str *taken);
bool hub_berth_wanted(const struct server *s); /* there is one */
/* features.c: the server's feature flags, for /features and the WebSocket: an object. */
void hub_features(const struct server *s, const char *key, struct jsonout *j);
