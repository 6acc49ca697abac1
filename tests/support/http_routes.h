/* http_routes: routes that do one thing each, on the transport of http_rig.h, for tests of
 * requests, limits and rude clients. One rig per program: `g`, at `port`. */
#ifndef SUPPORT_HTTP_ROUTES_H
#define SUPPORT_HTTP_ROUTES_H

#include "server/routes.h"
#include "support/http_rig.h"

static inline void hello(struct http_req *r)
{
    http_reply_text(r, 200, "hello");
}

static inline void echo(struct http_req *r)
{
    http_reply(r, 200, "application/octet-stream", str_c(&r->body), r->body.n);
}

static inline void params(struct http_req *r)
{
    struct str q = { 0 }, text = { 0 };
    for (size_t i = 0; i < r->params; i++)
        str_addf(&text, "[%s]", str_c(&r->param[i]));
    if (http_query(r, "q", &q))
        str_addf(&text, "q=%s", str_c(&q));
    str_release(&q);
    http_reply_take(r, 200, "text/plain", &text);
}

static inline void json(struct http_req *r)
{
    json_t *v;
    if (http_json(r, "{}", &v))
        http_reply_json(r, 200, v);
}

static inline void silent(struct http_req *r)
{
    (void)r;
}

static inline void big(struct http_req *r)
{
    struct str b = { 0 };
    str_pad(&b, 'b', 50u << 20);
    http_reply_take(r, 200, "text/plain", &b);
}

/* Answered from the done() of a lane. */
static inline void slow_work(struct server *s, void *arg)
{
    (void)s, (void)arg;
}

static inline void slow_done(struct server *s, void *arg)
{
    struct http_req *r = arg;
    (void)s;
    http_reply_text(r, 200, r->path);
    http_unhold(r);
}

static inline void later(struct http_req *r)
{
    http_hold(r);
    if (!aux_run(r->server, AUX_FILES, slow_work, slow_done, r))
        http_unhold(r);
}

static inline void dropped(struct http_req *r)
{
    http_unhold(http_hold(r));
}

static inline void drop_done(struct server *s, void *arg)
{
    (void)s;
    http_unhold(arg);
}

static inline void dropped_later(struct http_req *r)
{
    if (!aux_run(r->server, AUX_FILES, slow_work, drop_done, http_hold(r)))
        http_unhold(r);
}

/* Held until the test lets go. */
static _Atomic(struct http_req *) held;

static inline void hold(struct http_req *r)
{
    atomic_store(&held, http_hold(r));
}

static inline void let_go(struct server *s, void *arg)
{
    struct http_req *r = atomic_exchange(&held, NULL);
    (void)s;
    *(bool *)arg = r->conn;
    http_reply_text(r, 200, "at last");
    http_unhold(r);
}

static inline void look_at_held(struct server *s, void *arg)
{
    (void)s;
    atomic_store((atomic_bool *)arg, !atomic_load(&held)->conn);
}

/* A sink that counts, refuses what begins with '!' and everything behind 1 MiB. */
struct counted {
    size_t n;
};
static atomic_int aborted, begun;

static inline bool count_begin(struct http_req *r)
{
    if (strstr(r->query, "no")) {
        http_reply_text(r, 400, "not today");
        return false;
    }
    atomic_fetch_add(&begun, 1);
    r->sink = calloc(1, sizeof(struct counted));
    if (!r->sink)
        http_reply_text(r, 503, "no memory");
    return r->sink;
}

static inline bool count_write(struct http_req *r, const char *p, size_t n)
{
    struct counted *c = r->sink;
    c->n += n;
    if ((n && *p == '!') || c->n > 1u << 20) {
        http_reply_text(r, 400, "not that");
        return false;
    }
    return true;
}

static inline void count_abort(struct http_req *r)
{
    atomic_fetch_add(&aborted, 1);
    free(r->sink);
    r->sink = NULL;
}

static inline void count(struct http_req *r)
{
    struct counted *c = r->sink;
    char text[32];
    snprintf(text, sizeof text, "%zu", c->n);
    free(c);
    r->sink = NULL;
    http_reply_text(r, 200, text);
}

static const struct http_sink counting = { count_begin, count_write, count_abort };

/* Something to look at, computed one after the other, once the gate is open. */
static atomic_int looks;
static atomic_bool gate;

static inline void look_work(struct later *l)
{
    atomic_fetch_add(&looks, 1);
    while (!atomic_load(&gate))
        usleep(1000);
    later_text(l, 200, "seen");
}

static inline void look(struct http_req *r)
{
    later_start(r, AUX_PICTURES, look_work);
}

static inline void count_conns(struct server *s, void *arg)
{
    atomic_store((atomic_int *)arg, (int)s->loop->conns_n);
}

static const struct route routes[] = {
    { HTTP_GET, "/hello", ROUTE_DOUBLE, .handler = hello },
    { HTTP_POST, "/echo", ROUTE_BODY, .handler = echo },
    { HTTP_GET | HTTP_DELETE, "/p/{a}", ROUTE_DOUBLE, .handler = params },
    { HTTP_GET, "/p/{a}/to/{b}", 0, .handler = params },
    { HTTP_GET, "/rest/{x:.*}", 0, .handler = params },
    { HTTP_POST, "/json", ROUTE_BODY, .handler = json },
    { HTTP_GET, "/silent", 0, .handler = silent },
    { HTTP_GET, "/big", 0, .handler = big },
    { HTTP_GET, "/later", 0, .handler = later },
    { HTTP_GET | HTTP_POST, "/held", ROUTE_BODY, .handler = hold },
    { HTTP_GET, "/look", 0, .handler = look },
    { HTTP_GET, "/dropped", 0, .handler = dropped },
    { HTTP_GET, "/dropped/later", 0, .handler = dropped_later },
    { HTTP_POST, "/count", ROUTE_STREAM, .handler = count, .sink = &counting },
    { HTTP_GET, "/{path:.*}", ROUTE_PAGE, .handler = route_static },
};

static struct rig g;
static unsigned port;

static inline int open_with(const struct server_config *cfg, const struct loop_limits *lim)
{
    rig_open(&g, cfg, routes, ARRAY_LEN(routes), lim);
    port = loop_port(&g.s);
    return 0;
}

static inline int setup(void **state)
{
    (void)state;
    return open_with(&(struct server_config) { 0 }, NULL);
}

static inline int teardown(void **state)
{
    (void)state;
    rig_close(&g);
    return 0;
}

/* Until the loop has no connection left. */
static inline void wait_for_none(void)
{
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
}

#endif
