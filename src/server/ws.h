/* ws: what a connection is once it has become a WebSocket. Private to server/. Owner: loop. */
#pragma once

#include "server/conn.h"

#define WS_SID_MAX 1024 /* bytes of a clientId; a longer one is not taken */

struct ws {
    struct wsframe frame;
    char *sid;
    struct conn *prev, *next; /* hub's list */
    bool listed;              /* in it */
    bool spoke;               /* its first JSON message was there */
    bool closed;              /* it sent its close frame */
    bool preview_metadata;    /* it said supports_preview_metadata */
    bool texts;               /* it knows binary 3: see hub_send_text() */
    bool logs;                /* it reads the log */
    bool berth;               /* it reads messages of our own */
    bool behind;              /* it reads, and has ws_full to read; hub's lock, as the sid */
};
