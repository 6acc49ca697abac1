/* client_curl: libcurl, opened when a command first talks to a server.
 *
 * If it were linked, `berth serve` would load it and the 26 libraries it brings, never call it, and
 * take about twice as long to start. Sequence: client_curl_open(), then its functions.
 * Threads  One at a time. */
#pragma once

#include "base/err.h"

#define CURL_DISABLE_TYPECHECK
#include <curl/curl.h>

#define CLIENT_CURL_FUNCTIONS(X)                                                                   \
    X(easy_init)                                                                                   \
    X(easy_cleanup)                                                                                \
    X(easy_setopt)                                                                                 \
    X(easy_perform)                                                                                \
    X(easy_getinfo)                                                                                \
    X(easy_strerror)                                                                               \
    X(easy_send)                                                                                   \
    X(easy_recv)                                                                                   \
    X(slist_append)                                                                                \
    X(slist_free_all)

struct client_curl {
#define X(name) __typeof__(curl_##name) *name;
    CLIENT_CURL_FUNCTIONS(X)
#undef X
};

/* BERTH_EUNSUPPORTED says what is missing. The library stays open. */
berth_status client_curl_open(struct client_curl *out, berth_err *err);
