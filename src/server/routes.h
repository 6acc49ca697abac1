/* routes: what the route_*.c share: their declarations, out of routes.def, and small helpers.
 *
 * Later      Work that touches disks runs on the aux thread: later_run() holds the request, calls
 *            work() there and sends what it left in the struct, on the loop. Aux is one thread, so
 *            that work() of two requests never overlaps: settings are read, changed and written
 *            there, and a name that is free stays free until it is taken.
 * Threads    Loop, except work(). */
#ifndef SERVER_ROUTES_H
#define SERVER_ROUTES_H

#include "server/server_impl.h"

#define ROUTE(methods, pattern, flags, handler) void route_##handler(struct http_req *r);
#define ROUTE_SINK(methods, pattern, flags, handler, sink_name)                                    \
    void route_##handler(struct http_req *r);                                                      \
    extern const struct http_sink sink_##sink_name;
#include "server/routes.def"
#undef ROUTE
#undef ROUTE_SINK

#endif
