/* http_rig: a server's transport in this process, on a thread of its own, with routes of the test;
 * and a client that says on a socket exactly what it is told to. */
#ifndef SUPPORT_HTTP_RIG_H
#define SUPPORT_HTTP_RIG_H

#include "support/test.h"
#include "support/tmp.h"

#include "server/conn.h"
#include "server/web.h"

#include <arpa/inet.h>
#include <errno.h>
#include <poll.h>
#include <pthread.h>
#include <sys/socket.h>
#include <unistd.h>

struct rig {
    struct server s;
    pthread_t thread;
    atomic_bool stop;
    bool running;
};

static inline void *rig_main(void *arg)
{
    struct rig *g = arg;
    berth_err err = { 0 };
    assert_ok(loop_run(&g->s, &g->stop, &err), err);
    return NULL;
}

/* loop_post() of a node from the heap. */
struct rig_post {
    struct post post;
    aux_fn *fn;
    void *arg;
};

static inline void rig_post_call(struct server *s, void *arg)
{
    struct rig_post p = *(struct rig_post *)arg;
    free(arg);
    p.fn(s, p.arg);
}

static inline void rig_post(struct server *s, aux_fn *fn, void *arg)
{
    struct rig_post *p = malloc(sizeof *p);
    assert_non_null(p);
    *p = (struct rig_post) { .fn = fn, .arg = arg };
    loop_post(s, &p->post, rig_post_call, p);
}

/* limits NULL: the usual ones. before NULL: nothing else is made; else it adds parts, which the
 * test unmakes behind rig_close(). */
static inline void rig_open_with(struct rig *g, const struct server_config *cfg,
                                 const struct route *table, size_t n,
                                 const struct loop_limits *limits, void (*before)(struct rig *g))
{
    berth_err err = { 0 };
    memset(g, 0, sizeof *g);
    g->s.cfg = *cfg;
    g->s.cfg.clock = clock_system();
    g->s.cfg.max_sockets = cfg->max_sockets ? cfg->max_sockets : 1024;
    g->s.cfg.max_upload = cfg->max_upload ? cfg->max_upload : 100u << 20;
    assert_ok(logs_open(&g->s, &err), err);
    assert_ok(hub_open(&g->s, &err), err);
    assert_ok(loop_open(&g->s, &err), err);
    assert_ok(aux_open(&g->s, &err), err);
    if (before)
        before(g);
    g->s.loop->routes = table;
    g->s.loop->routes_n = n;
    if (limits)
        loop_set_limits(&g->s, limits);
    assert_int_equal(pthread_create(&g->thread, NULL, rig_main, g), 0);
    g->running = true;
}

static inline void rig_open(struct rig *g, const struct server_config *cfg,
                            const struct route *table, size_t n, const struct loop_limits *limits)
{
    rig_open_with(g, cfg, table, n, limits, NULL);
}

static inline void rig_close(struct rig *g)
{
    atomic_store(&g->stop, true);
    loop_wake(&g->s);
    pthread_join(g->thread, NULL);
    loop_stop_listening(&g->s);
    loop_drain(&g->s);
    aux_close(&g->s);
    loop_settle(&g->s);
    loop_close(&g->s);
    hub_close(&g->s);
    web_close(&g->s);
    logs_close(&g->s);
}

/* ---- a client ---- */

static inline int dial(unsigned port)
{
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)port),
                             .sin_addr = { htonl(INADDR_LOOPBACK) } };
    int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    assert_true(fd >= 0);
    struct timeval patience = { .tv_sec = 20 };
    setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &patience, sizeof patience);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    return fd;
}

static inline void say(int fd, const void *p, size_t n)
{
    for (size_t at = 0; at < n;) {
        ssize_t k = send(fd, (const char *)p + at, n - at, MSG_NOSIGNAL);
        if (k <= 0)
            fail_msg("sent %zu of %zu bytes: %s", at, n, strerror(errno));
        at += (size_t)k;
    }
}

static inline void says(int fd, const char *z)
{
    say(fd, z, strlen(z));
}

struct answer {
    int status; /* 0: the connection ended before a head */
    struct str head, body;
};

static inline void answer_release(struct answer *a)
{
    str_release(&a->head);
    str_release(&a->body);
}

/* One byte at a time for the head: what follows stays in the socket. */
static inline bool read_head(int fd, struct str *head)
{
    char c;
    while (!head->p || !str_ends(head->p, head->n, "\r\n\r\n")) {
        if (recv(fd, &c, 1, 0) != 1)
            return false;
        str_addc(head, c);
    }
    return true;
}

/* Value of a field of the head; NULL: none. Good until the 4th next call. */
static inline const char *field(const struct answer *a, const char *name)
{
    static _Thread_local char text[4][512];
    static _Thread_local unsigned at;
    char want[64];
    snprintf(want, sizeof want, "\r\n%s: ", name);
    const char *p = strcasestr(str_c(&a->head), want);
    if (!p)
        return NULL;
    p += strlen(want);
    char *to = text[at++ % 4];
    snprintf(to, sizeof text[0], "%.*s", (int)strcspn(p, "\r"), p);
    return to;
}

static inline void read_bytes(int fd, size_t n, struct str *out)
{
    char buf[16384];
    while (n) {
        ssize_t k = recv(fd, buf, n < sizeof buf ? n : sizeof buf, 0);
        if (k <= 0)
            fail_msg("%zu bytes of the body are missing: %s", n, k ? strerror(errno) : "closed");
        str_add(out, buf, (size_t)k);
        n -= (size_t)k;
    }
}

/* head: of a HEAD request, which has no body whatever its length. */
static inline struct answer hear_of(int fd, bool head)
{
    struct answer a = { 0 };
    if (!read_head(fd, &a.head))
        return a;
    assert_int_equal(sscanf(a.head.p, "HTTP/1.1 %d ", &a.status), 1);
    const char *n = field(&a, "Content-Length");
    if (n && !head)
        read_bytes(fd, (size_t)strtoull(n, NULL, 10), &a.body);
    return a;
}

static inline struct answer hear(int fd)
{
    return hear_of(fd, false);
}

static inline bool is_closed(int fd) /* waits for the other side */
{
    char c;
    return recv(fd, &c, 1, 0) <= 0;
}

/* Sends text on a new connection and hears one answer. */
static inline struct answer ask(unsigned port, const char *text)
{
    int fd = dial(port);
    says(fd, text);
    struct answer a = hear(fd);
    close(fd);
    return a;
}

/* The answer to a GET of path, with some more lines in its head ("Name: value\r\n"). */
static inline struct answer ask_for(unsigned port, const char *path, const char *lines)
{
    struct str text = { 0 };
    str_addf(&text, "GET %s HTTP/1.1\r\nHost: localhost\r\n%s\r\n", path, lines);
    struct answer a = ask(port, str_c(&text));
    str_release(&text);
    return a;
}

static inline void expect(unsigned port, const char *text, int status, const char *body)
{
    struct answer a = ask(port, text);
    if (a.status != status || (body && strcmp(str_c(&a.body), body)))
        fail_msg("'%.60s': %d '%s', wanted %d '%s'", text, a.status, str_c(&a.body), status,
                 body ? body : "(any)");
    answer_release(&a);
}

#endif
