/* loop: the one thread that owns sockets. Private to server/.
 *
 * Words      post     a call that another thread wants made on the loop
 *            sweep    the pass over connections with a deadline, at most four times a second
 * Flow       listening sockets are ours (raw files to libwebsockets); accept() -> conn_new() ->
 *            adopted as a raw socket, with TLS if configured -> conn_rx(), conn_writeable(),
 *            conn_gone()
 * Timeouts   One timer for all: a connection has a deadline, or 0 for none (an idle WebSocket), so
 *            two thousand of them cost nothing. libwebsockets keeps timers in a sorted list.
 * Full       Beyond max_sockets a client gets a 503 and is closed. Files that clients read and
 *            write have their own limit, also with a 503. Of the process's descriptors some are
 *            reserved for its own work, at least a quarter for these files, the rest for sockets.
 *            If descriptors run out all the same, accepting pauses for a while.
 * End        loop_drain() gives all connections one common deadline; whoever still reads or sends
 *            then is cut off. server_hurry() ends it at once.
 * Posts      A list under a lock, of nodes that are part of what is posted: posting cannot fail.
 *            Posts are called in order.
 * Log        libwebsockets has one log function per process, without an argument. A thread-local
 *            says where to log while a thread is inside the library. Only errors get through, as
 *            the event "lws".
 * Threads    Loop, except where noted. */
#pragma once

#include "server/server_impl.h"

struct conn;

struct loop_limits {   /* milliseconds */
    unsigned head;     /* from the first byte of a request to the end of its head */
    unsigned body;     /* without LOOP_BODY_STEP bytes of the body, or its end */
    unsigned idle;     /* between requests */
    unsigned write;    /* without room for our output */
    unsigned ws_write; /* the same on a WebSocket */
    unsigned linger;   /* for the client to notice that we closed */
    unsigned look;     /* between looks at a client that waits for its reply */
    unsigned half;     /* for that reply, when the client sends no more */
    unsigned flush;    /* at the end of the server, for all output that is still there */
    size_t ws_behind;  /* unread bytes of a WebSocket from which on only the newest state waits */
    size_t ws_full;    /* ... and from here on, whoever makes messages waits for the client */
    size_t ws_bytes;   /* ... at which it is closed */
    size_t body_bytes; /* of request bodies in memory, all connections together */
    size_t out_bytes;  /* of replies in memory, all together, before large ones are refused */
};
#define LOOP_LIMITS_DEFAULT                                                                        \
    {                                                                                              \
        .head = 15000, .body = 30000, .idle = 75000, .write = 60000, .ws_write = 30000,            \
        .linger = 5000, .look = 1000, .half = 60000, .flush = 2000, .ws_behind = 1u << 20,         \
        .ws_full = 8u << 20, .ws_bytes = 64u << 20, .body_bytes = 0, .out_bytes = 512u << 20       \
    }

#define LOOP_WRITE_MAX 65536 /* bytes of one write */
#define LOOP_BODY_STEP 1024
#define LOOP_LARGE (1u << 20) /* bytes of a reply that counts as large */

struct loop { /* what connections see and count; owner: loop. loop.c has more behind it */
    struct loop_limits limits;
    const struct route *routes; /* of routes.def, or a test's */
    size_t routes_n;
    struct conn *conns; /* all of them */
    size_t conns_n;
    uint64_t now;            /* monotonic ns; the same within one call */
    uint64_t end_ns;         /* of loop_drain(), when everything ends; 0: not yet */
    size_t body_bytes;       /* of request bodies in memory */
    size_t out_bytes;        /* of replies that wait in memory: slow readers add up */
    size_t files, files_max; /* that are being read or written for clients */
    uint8_t *scratch;        /* LOOP_WRITE_MAX bytes, for one write */
};

/* Before loop_run(): other limits, for tests. body_bytes 0: twice max_upload. */
void loop_set_limits(struct server *s, const struct loop_limits *l);
void loop_tick(struct server *s, unsigned ms); /* meter_tick(), once, in so many ms */
const char *loop_date(struct server *s);       /* for Date: */
/* Memory for bodies; false: too much is held already. */
WARN_UNUSED bool loop_body_take(struct server *s, size_t n);
bool loop_out_room(const struct server *s, size_t n); /* for a reply of n bytes */
