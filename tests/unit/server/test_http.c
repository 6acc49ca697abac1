/* Requests and replies on real sockets: the life of a connection, bodies, refusals, slow and rude
 * clients. */
#include "server/routes.h"
#include "support/http_rig.h"
#include "support/oom.h"

#include <sys/resource.h>

/* ---- routes ---- */

static void hello(struct http_req *r)
{
    http_reply_text(r, 200, "hello");
}

static void echo(struct http_req *r)
{
    http_reply(r, 200, "application/octet-stream", str_c(&r->body), r->body.n);
}

static void params(struct http_req *r)
{
    struct str q = { 0 }, text = { 0 };
    for (size_t i = 0; i < r->params; i++)
        str_addf(&text, "[%s]", str_c(&r->param[i]));
    if (http_query(r, "q", &q))
        str_addf(&text, "q=%s", str_c(&q));
    str_release(&q);
    http_reply_take(r, 200, "text/plain", &text);
}

static void json(struct http_req *r)
{
    json_t *v;
    if (http_json(r, "{}", &v))
        http_reply_json(r, 200, v);
}

static void silent(struct http_req *r)
{
    (void)r;
}

static void big(struct http_req *r)
{
    struct str b = { 0 };
    str_pad(&b, 'b', 50u << 20);
    http_reply_take(r, 200, "text/plain", &b);
}

/* Answered from the done() of a lane. */
static void slow_work(struct server *s, void *arg)
{
    (void)s, (void)arg;
}

static void slow_done(struct server *s, void *arg)
{
    struct http_req *r = arg;
    (void)s;
    http_reply_text(r, 200, r->path);
    http_unhold(r);
}

static void later(struct http_req *r)
{
    http_hold(r);
    if (!aux_run(r->server, AUX_FILES, slow_work, slow_done, r))
        http_unhold(r);
}

static void dropped(struct http_req *r)
{
    http_unhold(http_hold(r));
}

static void drop_done(struct server *s, void *arg)
{
    (void)s;
    http_unhold(arg);
}

static void dropped_later(struct http_req *r)
{
    if (!aux_run(r->server, AUX_FILES, slow_work, drop_done, http_hold(r)))
        http_unhold(r);
}

/* Held until the test lets go. */
static _Atomic(struct http_req *) held;

static void hold(struct http_req *r)
{
    atomic_store(&held, http_hold(r));
}

static void let_go(struct server *s, void *arg)
{
    struct http_req *r = atomic_exchange(&held, NULL);
    (void)s;
    *(bool *)arg = r->conn;
    http_reply_text(r, 200, "at last");
    http_unhold(r);
}

static void look_at_held(struct server *s, void *arg)
{
    (void)s;
    atomic_store((atomic_bool *)arg, !atomic_load(&held)->conn);
}

/* A sink that counts, refuses what begins with '!' and everything behind 1 MiB. */
struct counted {
    size_t n;
};
static atomic_int aborted, begun;

static bool count_begin(struct http_req *r)
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

static bool count_write(struct http_req *r, const char *p, size_t n)
{
    struct counted *c = r->sink;
    c->n += n;
    if ((n && *p == '!') || c->n > 1u << 20) {
        http_reply_text(r, 400, "not that");
        return false;
    }
    return true;
}

static void count_abort(struct http_req *r)
{
    atomic_fetch_add(&aborted, 1);
    free(r->sink);
    r->sink = NULL;
}

static void count(struct http_req *r)
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

static void look_work(struct later *l)
{
    atomic_fetch_add(&looks, 1);
    while (!atomic_load(&gate))
        usleep(1000);
    later_text(l, 200, "seen");
}

static void look(struct http_req *r)
{
    struct later *l = calloc(1, sizeof *l);
    assert_non_null(l);
    *l = (struct later) { .lane = AUX_PICTURES, .work = look_work, .release = later_plain };
    later_run(r, l);
}

static void count_conns(struct server *s, void *arg)
{
    atomic_store((atomic_int *)arg, (int)loop_conns(s));
}

static const struct route routes[] = {
    { HTTP_GET, "/hello", ROUTE_DOUBLE, hello, NULL },
    { HTTP_POST, "/echo", ROUTE_BODY, echo, NULL },
    { HTTP_GET | HTTP_DELETE, "/p/{a}", ROUTE_DOUBLE, params, NULL },
    { HTTP_GET, "/p/{a}/to/{b}", 0, params, NULL },
    { HTTP_GET, "/rest/{x:.*}", 0, params, NULL },
    { HTTP_POST, "/json", ROUTE_BODY, json, NULL },
    { HTTP_GET, "/silent", 0, silent, NULL },
    { HTTP_GET, "/big", 0, big, NULL },
    { HTTP_GET, "/later", 0, later, NULL },
    { HTTP_GET | HTTP_POST, "/held", ROUTE_BODY, hold, NULL },
    { HTTP_GET, "/look", 0, look, NULL },
    { HTTP_GET, "/dropped", 0, dropped, NULL },
    { HTTP_GET, "/dropped/later", 0, dropped_later, NULL },
    { HTTP_POST, "/count", ROUTE_STREAM, count, &counting },
    { HTTP_GET, "/{path:.*}", ROUTE_PAGE, route_static, NULL },
};

static struct rig g;
static unsigned port;

static int open_with(const struct server_config *cfg, const struct loop_limits *lim)
{
    rig_open(&g, cfg, routes, ARRAY_LEN(routes), lim);
    port = loop_port(&g.s);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return open_with(&(struct server_config) { 0 }, NULL);
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&g);
    return 0;
}

/* Until the loop has no connection left. */
static void wait_for_none(void)
{
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
}

/* ---- plain requests ---- */

static void replies(void **state)
{
    (void)state;
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
    expect(port, "GET /api/hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
    expect(port, "GET /api/api/hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "404: Not Found");
    expect(port, "GET /nothing HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, "404: Not Found");
    expect(port, "GET /silent HTTP/1.1\r\nHost: localhost\r\n\r\n", 500,
           "500: Internal Server Error");
    expect(port, "GET /dropped HTTP/1.1\r\nHost: localhost\r\n\r\n", 500,
           "500: Internal Server Error");
    expect(port, "GET /dropped/later HTTP/1.1\r\nHost: localhost\r\n\r\n", 500,
           "500: Internal Server Error");
    expect(port, "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "/later");
    expect(port, "OPTIONS /what/ever HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "");
    expect(port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, NULL);
    struct answer a =
        ask(port, "POST /nothing HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}");
    assert_int_equal(a.status, 405);
    assert_string_equal(str_c(&a.body), "405: Method Not Allowed");
    assert_string_equal(field(&a, "Allow"), "GET,HEAD");
    assert_null(field(&a, "Connection"));
    answer_release(&a);
    a = ask(port, "PUT /p/1 HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(a.status, 405);
    assert_string_equal(field(&a, "Allow"), "DELETE,GET,HEAD");
    answer_release(&a);
    a = ask(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_string_equal(field(&a, "Content-Type"), "text/plain; charset=utf-8");
    assert_non_null(field(&a, "Date"));
    assert_null(field(&a, "Access-Control-Allow-Origin"));
    answer_release(&a);
    a = ask(port, "OPTIONS * HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(a.status, 200);
    assert_string_equal(field(&a, "Content-Length"), "0");
    assert_null(field(&a, "Content-Type"));
    answer_release(&a);
}

static void paths_match_raw(void **state)
{
    (void)state;
    expect(port, "GET /p/a%2Fb HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[a/b]");
    expect(port, "GET /p/a%2Fb/to/c%20d?q=1%202+3 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200,
           "[a/b][c d]q=1 2 3");
    expect(port, "GET /api/p/%E2%82%AC HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[\xe2\x82\xac]");
    expect(port, "GET /p/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, NULL);
    expect(port, "GET /p/a/b HTTP/1.1\r\nHost: localhost\r\n\r\n", 404, NULL);
    expect(port, "GET /p/%00 HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, NULL);
    expect(port, "GET /p/%zz HTTP/1.1\r\nHost: localhost\r\n\r\n", 400, NULL);
    expect(port, "GET /rest/a/b//c HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[a/b//c]");
    expect(port, "GET /rest/ HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[]");
    expect(port, "GET /p/x?a=1&q HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[x]q=");
    expect(port, "GET /p/x?qq=1 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[x]");
    /* A '%' that escapes nothing is one. */
    expect(port, "GET /p/x?q=50%.png HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[x]q=50%.png");
    expect(port, "GET /p/x?%q=1&q=%&z=%2 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[x]q=%");
    expect(port, "GET /p/x?q=%zz%41%4 HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[x]q=%zzA%4");
    expect(port, "GET /p/x?q=a%00b HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "[x]");
}

static void keeps_alive_and_pipelines(void **state)
{
    (void)state;
    int fd = dial(port);
    struct str all = { 0 };
    for (int i = 0; i < 200; i++)
        str_addf(&all, "GET /p/%d HTTP/1.1\r\nHost: localhost\r\n\r\n", i);
    say(fd, all.p, all.n);
    str_release(&all);
    for (int i = 0; i < 200; i++) {
        char want[16];
        struct answer a = hear(fd);
        snprintf(want, sizeof want, "[%d]", i);
        assert_string_equal(str_c(&a.body), want);
        answer_release(&a);
    }
    /* Behind a body, a held request and a HEAD, too. */
    says(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc"
             "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\nHEAD /hello HTTP/1.1\r\nHost: "
             "localhost\r\n\r\n"
             "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
    struct answer a = hear(fd), b = hear(fd), c = hear_of(fd, true), d = hear(fd);
    assert_string_equal(str_c(&a.body), "abc");
    assert_string_equal(str_c(&b.body), "/later");
    assert_string_equal(field(&c, "Content-Length"), "5");
    assert_string_equal(str_c(&d.body), "hello");
    assert_string_equal(field(&d, "Connection"), "close");
    assert_true(is_closed(fd));
    close(fd);
    answer_release(&a);
    answer_release(&b);
    answer_release(&c);
    answer_release(&d);
}

static void http10(void **state)
{
    (void)state;
    int fd = dial(port);
    says(fd, "GET /hello HTTP/1.0\r\n\r\n");
    struct answer a = hear(fd);
    assert_int_equal(a.status, 200);
    assert_true(is_closed(fd));
    close(fd);
    answer_release(&a);
}

static void byte_by_byte(void **state)
{
    const char text[] =
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n"
        "3\r\nabc\r\nA;x=y\r\n0123456789\r\n0\r\nTrailer: t\r\n\r\n";
    (void)state;
    int fd = dial(port);
    for (size_t i = 0; i < sizeof text - 1; i++)
        say(fd, text + i, 1);
    struct answer a = hear(fd);
    assert_int_equal(a.status, 200);
    assert_string_equal(str_c(&a.body), "abc0123456789");
    answer_release(&a);
    says(fd, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = hear(fd);
    assert_string_equal(str_c(&a.body), "hello");
    answer_release(&a);
    close(fd);
}

/* ---- bodies ---- */

static void expects_continue(void **state)
{
    (void)state;
    int fd = dial(port);
    says(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: "
             "100-continue\r\n\r\n");
    struct answer a = hear(fd);
    assert_int_equal(a.status, 100);
    answer_release(&a);
    says(fd, "12345");
    a = hear(fd);
    assert_int_equal(a.status, 200);
    assert_string_equal(str_c(&a.body), "12345");
    answer_release(&a);
    /* Not wanted: no 100, the answer at once, and the end. */
    says(fd, "POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nExpect: "
             "100-continue\r\n\r\n");
    a = hear(fd);
    assert_int_equal(a.status, 405);
    assert_string_equal(field(&a, "Connection"), "close");
    assert_true(is_closed(fd));
    answer_release(&a);
    close(fd);
}

static void small_refused_bodies_keep_the_connection(void **state)
{
    (void)state;
    int fd = dial(port);
    for (int i = 0; i < 3; i++) {
        says(fd, "POST /none HTTP/1.1\r\nHost: localhost\r\nContent-Length: 10\r\n\r\n01234");
        struct answer a = hear(fd); /* before the body is whole */
        assert_int_equal(a.status, 405);
        answer_release(&a);
        says(fd, "56789");
    }
    says(fd, "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nbody");
    struct answer a = hear(fd);
    assert_string_equal(str_c(&a.body), "hello");
    answer_release(&a);
    close(fd);
}

/* Routes that want no body get none, however it comes. */
static void bodies_that_nobody_wants(void **state)
{
    static const char *const text[] = {
        "GET /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        ("GET /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
         "chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n"),
        "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}",
    };
    (void)state;
    int fd = dial(port);
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        says(fd, text[i]);
        struct answer a = hear(fd);
        assert_string_equal(str_c(&a.body), "hello");
        answer_release(&a);
    }
    says(fd,
         "DELETE /p/x HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n");
    struct answer a = hear(fd);
    assert_string_equal(str_c(&a.body), "[x]");
    answer_release(&a);
    says(fd, "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nExpect: "
             "100-continue\r\n\r\n");
    a = hear(fd);
    assert_int_equal(a.status, 100);
    answer_release(&a);
    says(fd, "{}");
    a = hear(fd);
    assert_int_equal(a.status, 200);
    answer_release(&a);
    says(fd, "PUT /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: "
             "chunked\r\n\r\n1\r\nx\r\n0\r\n\r\n");
    a = hear(fd);
    assert_int_equal(a.status, 405);
    answer_release(&a);
    /* Too much of it, in one way or the other. */
    struct str junk = { 0 };
    str_pad(&junk, 'j', 100000);
    says(fd,
         "GET /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n");
    say(fd, junk.p, junk.n);
    a = hear(fd);
    assert_int_equal(a.status, 413);
    assert_true(is_closed(fd));
    answer_release(&a);
    close(fd);
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n", 413,
           NULL);
    fd = dial(port);
    says(fd,
         "PUT /hello HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n186a0\r\n");
    a = hear(fd);
    assert_int_equal(a.status, 405); /* at once, and it would have gone on */
    answer_release(&a);
    say(fd, junk.p, junk.n);
    assert_true(is_closed(fd));
    close(fd);
    str_release(&junk);
}

static void too_large_bodies(void **state)
{
    (void)state;
    int fd = dial(port);
    says(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1001\r\n\r\n");
    struct answer a = hear(fd);
    assert_int_equal(a.status, 413);
    assert_string_equal(str_c(&a.body), "Maximum request body size 1000 exceeded");
    answer_release(&a);
    /* It still takes what such a client sends before it listens. */
    struct str junk = { 0 };
    str_pad(&junk, 'j', 20u << 20);
    size_t at = 0;
    while (at < junk.n) {
        ssize_t k = send(fd, junk.p + at, junk.n - at, MSG_NOSIGNAL);
        if (k <= 0)
            fail_msg("gone after %zu bytes", at);
        at += (size_t)k;
    }
    str_release(&junk);
    close(fd);
    fd = dial(port);
    says(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n3e9\r\n");
    a = hear(fd);
    assert_int_equal(a.status, 413);
    assert_true(is_closed(fd));
    answer_release(&a);
    close(fd);
    int before = atomic_load(&begun);
    expect(port, "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4000\r\n\r\n", 413,
           NULL);
    assert_int_equal(atomic_load(&begun), before); /* nothing was made ready for it */
}

static int setup_small(void **state)
{
    (void)state;
    return open_with(&(struct server_config) { .max_upload = 1000 }, NULL);
}

static void streams_to_a_sink(void **state)
{
    (void)state;
    int was = atomic_load(&aborted);
    struct str body = { 0 };
    str_pad(&body, 'x', 1u << 20);
    int fd = dial(port);
    says(fd, "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1048576\r\n\r\n");
    say(fd, body.p, body.n);
    struct answer a = hear(fd);
    assert_int_equal(a.status, 200);
    assert_string_equal(str_c(&a.body), "1048576");
    answer_release(&a);
    assert_int_equal(atomic_load(&aborted), was);
    /* Refused by begin: small, so the connection lives. */
    says(fd, "POST /count?no HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\nabcd");
    a = hear(fd);
    assert_int_equal(a.status, 400);
    assert_string_equal(str_c(&a.body), "not today");
    answer_release(&a);
    assert_int_equal(atomic_load(&aborted), was);
    /* Refused by write. */
    says(fd, "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 4\r\n\r\n!bcd");
    a = hear(fd);
    assert_int_equal(a.status, 400);
    assert_string_equal(str_c(&a.body), "not that");
    answer_release(&a);
    assert_int_equal(atomic_load(&aborted), was + 1);
    /* In the middle of a large one, which ends the connection. */
    says(fd, "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9999999\r\n\r\n");
    say(fd, body.p, body.n);
    say(fd, "y", 1);
    a = hear(fd);
    assert_int_equal(a.status, 400);
    assert_string_equal(field(&a, "Connection"), "close");
    assert_true(is_closed(fd));
    answer_release(&a);
    assert_int_equal(atomic_load(&aborted), was + 2);
    close(fd);
    /* The client leaves. */
    fd = dial(port);
    says(fd, "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
    close(fd);
    for (int i = 0; i < 500 && atomic_load(&aborted) == was + 2; i++)
        wait_for_none();
    assert_int_equal(atomic_load(&aborted), was + 3);
    str_release(&body);
}

static void json_bodies(void **state)
{
    (void)state;
    struct answer a =
        ask(port, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 7\r\n\r\n{\"a\":1}");
    assert_int_equal(a.status, 200);
    assert_string_equal(str_c(&a.body), "{\"a\":1}");
    assert_string_equal(field(&a, "Content-Type"), "application/json; charset=utf-8");
    answer_release(&a);
    expect(port, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n", 200, "{}");
    a = ask(port, "POST /json HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\n{a}");
    assert_int_equal(a.status, 400);
    assert_non_null(strstr(str_c(&a.body), "{\"error\": \"the body is no JSON"));
    answer_release(&a);
}

/* ---- rude clients ---- */

static void half_closed_clients_get_their_reply(void **state)
{
    static const char *const path[] = { "/hello", "/later", "/big" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(path); i++) {
        char text[80];
        int fd = dial(port);
        snprintf(text, sizeof text, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path[i]);
        says(fd, text);
        shutdown(fd, SHUT_WR);
        struct answer a = hear(fd);
        assert_int_equal(a.status, 200);
        assert_true(a.body.n >= 5);
        assert_true(is_closed(fd));
        answer_release(&a);
        close(fd);
    }
}

/* A client that leaves while its reply is awaited is noticed, after the time that one which only
 * closed its half gets. */
static void clients_that_leave_meanwhile(void **state)
{
    static const struct {
        bool all, heard; /* closes both halves; still there when the reply comes */
    } row[] = { { false, true }, { true, false } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        bool was_there = false;
        int fd = dial(port);
        says(fd, "GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
        while (!atomic_load(&held))
            usleep(1000);
        if (row[i].all)
            close(fd);
        else
            shutdown(fd, SHUT_WR);
        for (atomic_bool gone = false; !row[i].heard && !atomic_load(&gone); usleep(10000)) {
            loop_post(&g.s, look_at_held, &gone);
            wait_for_none();
        }
        loop_post(&g.s, let_go, &was_there);
        wait_for_none();
        assert_int_equal(was_there, row[i].heard);
        if (!row[i].all) {
            struct answer a = hear(fd);
            assert_string_equal(str_c(&a.body), "at last");
            answer_release(&a);
            close(fd);
        }
    }
    /* And one that waits keeps waiting. */
    bool was_there = false;
    int fd = dial(port);
    says(fd, "GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!atomic_load(&held))
        usleep(1000);
    usleep(700000); /* longer than the one that left; sweeps are a quarter of a second apart */
    loop_post(&g.s, let_go, &was_there);
    struct answer a = hear(fd);
    assert_string_equal(str_c(&a.body), "at last");
    assert_true(was_there);
    answer_release(&a);
    close(fd);
}

static int setup_watchful(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.look = 50;
    lim.half = 400;
    return open_with(&(struct server_config) { 0 }, &lim);
}

/* A slow reader and a dripping writer, until told to stop. */
static void *keep_moving(void *arg)
{
    void **args = arg;
    int *fd = args[0];
    atomic_bool *over = args[1];
    char buf[4096];
    memset(buf, ' ', sizeof buf);
    while (!atomic_load(over)) {
        (void)!recv(fd[0], buf, sizeof buf, MSG_DONTWAIT);
        (void)!send(fd[1], buf, sizeof buf, MSG_DONTWAIT | MSG_NOSIGNAL);
        usleep(20000);
    }
    return NULL;
}

/* The end comes when it was said to come: for who reads slowly, who drips, who waits. */
static void the_end_has_an_end(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.flush = 700;
    open_with(&(struct server_config) { 0 }, &lim);
    int fd[3];
    pthread_t thread;
    for (int i = 0; i < 3; i++)
        fd[i] = dial(port);
    says(fd[0], "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    says(fd[1], "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 90000000\r\n\r\n");
    says(fd[2], "GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!atomic_load(&held))
        usleep(1000);
    atomic_bool over = false;
    void *args[2] = { fd, &over };
    pthread_create(&thread, NULL, keep_moving, args);
    uint64_t begun_ns = clock_mono_ns(clock_system());
    atomic_store(&g.stop, true);
    loop_wake(&g.s);
    pthread_join(g.thread, NULL);
    loop_stop_listening(&g.s);
    loop_drain(&g.s);
    uint64_t took = clock_mono_ns(clock_system()) - begun_ns;
    atomic_store(&over, true);
    pthread_join(thread, NULL);
    if (took > UINT64_C(8000000000)) /* without an end it would take as long as they like */
        fail_msg("%.1f s", (double)took * 1e-9);
    pthread_create(&g.thread, NULL, rig_main, &g); /* for rig_close() */
    http_unhold(atomic_exchange(&held, NULL));
    rig_close(&g);
    for (int i = 0; i < 3; i++)
        close(fd[i]);
}

static void garbage(void **state)
{
    static const char *const text[] = {
        "\r\n\r\n\r\n\r\n garbage\r\n\r\n",
        "GET / HTTP/9.9\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\n",
        ("GET /hello HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\nTransfer-Encoding: "
         "chunked\r\n\r\n"),
        "\x16\x03\x01\x02\x01\x01\x01\x01\r\n\r\n",
        "GET /hello HTTP/1.1\r\nHost: localhost\r\n folded: y\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        int fd = dial(port);
        says(fd, text[i]);
        struct answer a = hear(fd);
        if (a.status < 400)
            fail_msg("garbage %zu: %d", i, a.status);
        assert_true(is_closed(fd));
        answer_release(&a);
        close(fd);
    }
    struct str line = { 0 };
    str_adds(&line, "GET /");
    str_pad(&line, 'a', 100000);
    int fd = dial(port);
    send(fd, line.p, line.n, MSG_NOSIGNAL);
    struct answer a = hear(fd);
    assert_int_equal(a.status, 414);
    answer_release(&a);
    str_release(&line);
    close(fd);
}

static void resets(void **state)
{
    struct linger now = { 1, 0 };
    (void)state;
    for (int i = 0; i < 50; i++) {
        int fd = dial(port);
        setsockopt(fd, SOL_SOCKET, SO_LINGER, &now, sizeof now);
        if (i % 5 == 0)
            says(fd, "POST /count HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nabc");
        else if (i % 5 == 1)
            says(fd, "GET /later HTTP/1.1\r\nHost: localhost\r\n\r\n");
        else if (i % 5 == 2)
            says(fd, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
        else if (i % 5 == 3)
            says(fd, "GET /he");
        close(fd);
    }
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
}

static void slow_readers_hold_nobody(void **state)
{
    (void)state;
    int slow[4];
    for (int i = 0; i < 4; i++) {
        slow[i] = dial(port);
        says(slow[i], "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    }
    for (int i = 0; i < 50; i++)
        expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
    for (int i = 0; i < 4; i++) {
        struct answer a = hear(slow[i]);
        assert_int_equal(a.body.n, 50u << 20);
        answer_release(&a);
        close(slow[i]);
    }
}

/* ---- limits ---- */

static int setup_hasty(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.head = lim.body = lim.idle = lim.write = lim.linger = 300;
    lim.body_bytes = 100000;
    return open_with(&(struct server_config) { .max_sockets = 8 }, &lim);
}

static void times_out(void **state)
{
    static const char *const text[] = {
        "", /* nothing at all */
        "GET /hel",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\nabc",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(text); i++) {
        int fd = dial(port);
        says(fd, text[i]);
        assert_true(is_closed(fd));
        close(fd);
    }
    int fd = dial(port); /* idle behind a request */
    says(fd, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    struct answer a = hear(fd);
    answer_release(&a);
    assert_true(is_closed(fd));
    close(fd);
    fd = dial(port); /* does not read */
    says(fd, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    usleep(1500000);
    struct str head = { 0 };
    char buf[65536];
    size_t got = 0;
    for (ssize_t k; (k = recv(fd, buf, sizeof buf, 0)) > 0;)
        got += (size_t)k;
    assert_true(got < 50u << 20);
    str_release(&head);
    close(fd);
}

static void too_many_sockets(void **state)
{
    (void)state;
    int fd[12];
    for (int i = 0; i < 12; i++)
        fd[i] = dial(port);
    struct answer a = hear(fd[11]);
    assert_int_equal(a.status, 503);
    answer_release(&a);
    for (int i = 0; i < 12; i++)
        close(fd[i]);
    for (int i = 0; i < 1000; i++) { /* they are let in again */
        a = ask(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
        int status = a.status;
        answer_release(&a);
        if (status == 200)
            return;
    }
    fail_msg("nobody is let in any more");
}

static void too_much_in_memory(void **state)
{
    (void)state;
    struct str body = { 0 };
    str_pad(&body, 'x', 60000);
    int a = dial(port), b = dial(port);
    says(a, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60001\r\n\r\n");
    say(a, body.p, body.n);
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
    says(b, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n");
    say(b, body.p, body.n);
    struct answer x = hear(b);
    assert_int_equal(x.status, 503);
    answer_release(&x);
    says(a, "y");
    x = hear(a);
    assert_int_equal(x.status, 200);
    assert_int_equal(x.body.n, 60001);
    answer_release(&x);
    close(a);
    close(b);
    str_release(&body);
}

static void hang_up(int fd) /* rudely */
{
    setsockopt(fd, SOL_SOCKET, SO_LINGER, &(struct linger) { .l_onoff = 1 }, sizeof(struct linger));
    close(fd);
}

/* Bodies of clients that left count as long as somebody works on them. */
static void too_much_of_the_gone(void **state)
{
    (void)state;
    struct str post = { 0 };
    atomic_bool gone = false;
    bool connected = true;
    str_adds(&post, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n");
    str_pad(&post, 'x', post.n + 60000);
    int fd = dial(port);
    says(fd, "POST /held HTTP/1.1\r\nHost: localhost\r\nContent-Length: 60000\r\n\r\n");
    say(fd, post.p + post.n - 60000, 60000);
    while (!atomic_load(&held))
        usleep(1000);
    hang_up(fd);
    while (!atomic_load(&gone)) {
        loop_post(&g.s, look_at_held, &gone);
        usleep(1000);
    }
    fd = dial(port);
    say(fd, post.p, post.n);
    struct answer a = hear(fd);
    assert_int_equal(a.status, 503);
    answer_release(&a);
    close(fd);
    loop_post(&g.s, let_go, &connected);
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200,
           "hello"); /* posts are done */
    fd = dial(port);
    say(fd, post.p, post.n);
    a = hear(fd);
    assert_int_equal(a.status, 200);
    assert_false(connected);
    answer_release(&a);
    close(fd);
    str_release(&post);
}

/* What only reads is left out when its client is gone, and when the server ends. */
static void nobody_looks(void **state)
{
    static const char text[] = "GET /look HTTP/1.1\r\nHost: localhost\r\n\r\n";
    (void)state;
    int fd[4];
    atomic_int conns = 0;
    atomic_store(&gate, false);
    atomic_store(&looks, 0);
    for (int i = 0; i < 4; i++) {
        fd[i] = dial(port);
        says(fd[i], text);
        while (!atomic_load(&looks))
            usleep(1000);
    }
    usleep(20000); /* they are all in the lane */
    hang_up(fd[1]);
    hang_up(fd[2]);
    while (atomic_load(&conns) != 2) {
        loop_post(&g.s, count_conns, &conns);
        usleep(1000);
    }
    atomic_store(&gate, true);
    for (int i = 0; i < 4; i += 3) {
        struct answer a = hear(fd[i]);
        assert_int_equal(a.status, 200);
        answer_release(&a);
        close(fd[i]);
    }
    assert_int_equal(atomic_load(&looks), 2);
    atomic_store(&g.s.hurry, true);
    expect(port, text, 503, "");
    assert_int_equal(atomic_load(&looks), 2);
}

/* Replies in memory that nobody reads add up; small ones go on. */
static void too_much_unread(void **state)
{
    (void)state;
    int fd[2];
    struct answer a = { 0 };
    for (int i = 0; i < 2; i++) {
        fd[i] = dial(port);
        says(fd[i], "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
        expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
    }
    expect(port, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n", 503,
           "503: too much is being read slowly");
    for (int i = 0; i < 2; i++) {
        a = hear(fd[i]);
        assert_int_equal(a.body.n, 50u << 20);
        answer_release(&a);
        close(fd[i]);
    }
    a = ask(port, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_int_equal(a.status, 200);
    answer_release(&a);
}

static int setup_little_room(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.out_bytes = 120u << 20;
    return open_with(&(struct server_config) { 0 }, &lim);
}

/* A body that drips is no body that moves. */
static void dripping(void **state)
{
    (void)state;
    int fd = dial(port);
    says(fd, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100000\r\n\r\n");
    bool gone = false;
    for (int i = 0; i < 100 && !gone; i++) {
        gone = send(fd, "x", 1, MSG_NOSIGNAL) != 1;
        usleep(20000);
    }
    assert_true(gone);
    close(fd);
}

/* The k-th allocation fails: an answer or a closed connection, and the next client is fine. */
static void requests_survive_oom(void **state)
{
    static const char *const text[] = {
        "GET /hello HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /p/a%20b?q=%20x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "POST /echo HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
        "3\r\n\r\nabc",
        "POST /count HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
        "3\r\n\r\nabc",
        "POST /json HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\nContent-Length: "
        "7\r\n\r\n{\"a\":1}",
        "GET /later HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
        "GET /nothing HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(text); i++)
        for (long k = 0; k < 30; k++) {
            char buf[1024] = { 0 };
            int fd = dial(port);
            oom_once(k);
            says(fd, text[i]);
            ssize_t n = recv(fd, buf, sizeof buf - 1, MSG_WAITALL);
            oom_off();
            if (n > 0 && strncmp(buf, "HTTP/1.1 ", 9))
                fail_msg("request %zu, allocation %ld: '%s'", i, k, buf);
            close(fd);
        }
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
}

/* ---- what the configuration adds ---- */

static void cors(void **state)
{
    (void)state;
    struct answer a =
        ask(port, "GET /nothing HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://e\r\n\r\n");
    assert_int_equal(a.status, 404);
    assert_string_equal(field(&a, "Access-Control-Allow-Origin"), "*");
    assert_string_equal(field(&a, "Access-Control-Allow-Credentials"), "true");
    answer_release(&a);
}

static int setup_cors(void **state)
{
    (void)state;
    return open_with(&(struct server_config) { .cors_origin = "*", .compress = true }, NULL);
}

static void compresses(void **state)
{
    (void)state;
    struct answer a =
        ask(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\nAccept-Encoding: gzip\r\n\r\n");
    assert_string_equal(field(&a, "Content-Encoding"), "gzip");
    assert_true(a.body.n > 2 && !memcmp(a.body.p, "\x1f\x8b", 2));
    answer_release(&a);
    a = ask(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n");
    assert_null(field(&a, "Content-Encoding"));
    assert_string_equal(str_c(&a.body), "hello");
    answer_release(&a);
    a = ask(port, "POST /echo HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\nAccept-Encoding: "
                  "gzip\r\n\r\nab");
    assert_null(field(&a, "Content-Encoding")); /* not of that type */
    answer_release(&a);
}

/* ---- posts ---- */

static atomic_int called;
static int order[4];

static void note(struct server *s, void *arg)
{
    (void)s;
    int k = atomic_load(&called);
    int who = (int)((uintptr_t)arg >> 16), n = (int)((uintptr_t)arg & 0xffff);
    if (order[who] != n)
        fail_msg("thread %d: %d after %d", who, n, order[who]);
    order[who] = n + 1;
    atomic_store(&called, k + 1);
}

static void *poster(void *arg)
{
    for (uintptr_t i = 0; i < 2000; i++)
        loop_post(&g.s, note, (void *)((uintptr_t)arg << 16 | i));
    return NULL;
}

static void posts_keep_their_order(void **state)
{
    (void)state;
    pthread_t t[4];
    memset(order, 0, sizeof order);
    atomic_store(&called, 0);
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, poster, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    while (atomic_load(&called) < 8000)
        sched_yield();
}

/* From other threads, and from the loop itself. */
static void post_more(struct server *s, void *arg)
{
    for (uintptr_t i = 0; i < 500; i++)
        loop_post(s, note, (void *)((uintptr_t)arg << 16 | i));
}

static void posts_without_memory(void **state)
{
    (void)state;
    pthread_t t[2];
    memset(order, 0, sizeof order);
    atomic_store(&called, 0);
    oom_after(2); /* for the threads themselves, at most */
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, poster, (void *)i);
    loop_post(&g.s, post_more, (void *)2);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    while (atomic_load(&called) < 4500)
        sched_yield();
    oom_off();
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(replies, setup, teardown),
        cmocka_unit_test_setup_teardown(paths_match_raw, setup, teardown),
        cmocka_unit_test_setup_teardown(keeps_alive_and_pipelines, setup, teardown),
        cmocka_unit_test_setup_teardown(http10, setup, teardown),
        cmocka_unit_test_setup_teardown(byte_by_byte, setup, teardown),
        cmocka_unit_test_setup_teardown(expects_continue, setup, teardown),
        cmocka_unit_test_setup_teardown(small_refused_bodies_keep_the_connection, setup, teardown),
        cmocka_unit_test_setup_teardown(too_large_bodies, setup_small, teardown),
        cmocka_unit_test_setup_teardown(streams_to_a_sink, setup, teardown),
        cmocka_unit_test_setup_teardown(json_bodies, setup, teardown),
        cmocka_unit_test_setup_teardown(half_closed_clients_get_their_reply, setup, teardown),
        cmocka_unit_test_setup_teardown(clients_that_leave_meanwhile, setup_watchful, teardown),
        cmocka_unit_test(the_end_has_an_end),
        cmocka_unit_test_setup_teardown(bodies_that_nobody_wants, setup, teardown),
        cmocka_unit_test_setup_teardown(garbage, setup, teardown),
        cmocka_unit_test_setup_teardown(resets, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_readers_hold_nobody, setup, teardown),
        cmocka_unit_test_setup_teardown(times_out, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(too_many_sockets, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(too_much_in_memory, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(too_much_of_the_gone, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(nobody_looks, setup, teardown),
        cmocka_unit_test_setup_teardown(too_much_unread, setup_little_room, teardown),
        cmocka_unit_test_setup_teardown(dripping, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(requests_survive_oom, setup, teardown),
        cmocka_unit_test_setup_teardown(cors, setup_cors, teardown),
        cmocka_unit_test_setup_teardown(compresses, setup_cors, teardown),
        cmocka_unit_test_setup_teardown(posts_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(posts_without_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
