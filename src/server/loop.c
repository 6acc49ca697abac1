/* loop: sockets, timers and posts; see loop.h. */
#include "server/conn.h"

#include <arpa/inet.h>
#include <errno.h>
#include <libwebsockets.h>
#include <netdb.h>
#include <netinet/tcp.h>
#include <pthread.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <unistd.h>

#define LISTEN_BACKLOG 511
#define ACCEPT_BATCH 64 /* per turn, so that others get a turn */
#define FD_RESERVE 64   /* for files, database, devices */
#define SWEEP_US 250000
#define PAUSE_US 100000 /* when file descriptors run out */

struct loop_impl {
    struct loop pub;
    struct server *server;
    struct lws_context *lws;
    struct lws_vhost *vhost;
    struct lws_protocols protocol[2];
    unsigned port;
    size_t listeners;
    struct lws **listener; /* NULL where closed */
    bool tls, paused;
    bool starved;                    /* accepting failed, and has not succeeded since */
    size_t max;                      /* connections */
    struct conn *dirty, *dirty_last; /* with output that has not been tried yet */
    uint64_t date_s;
    char date[32];
    lws_sorted_usec_list_t sweep, resume, tick;
    bool sweeping;
    pthread_mutex_t lock;      /* of the posts */
    struct post *first, *last; /* lock; last only while there is a first */
    size_t posts;              /* lock */
};

static struct loop_impl *impl(const struct server *s)
{
    return (struct loop_impl *)s->loop; /* pub is its first member */
}

/* ---- libwebsockets' log ---- */

static _Thread_local const struct log *lws_log_now;

static void write_lws_log(int level, const char *line)
{
    size_t n = strlen(line);
    (void)level;
    while (n && (line[n - 1] == '\n' || line[n - 1] == '\r'))
        n--;
    log_error(lws_log_now, "lws", "text=\"%.*s\"", (int)(n > 500 ? 500 : n), line);
}

/* ---- posts ---- */

/* Calls the first one; false: there is none. */
static bool post_call(struct loop_impl *l)
{
    pthread_mutex_lock(&l->lock);
    struct post *p = l->first, got = { 0 };
    if (p) {
        got = *p; /* the call may free it */
        l->first = p->next;
        l->posts--;
    }
    pthread_mutex_unlock(&l->lock);
    if (p)
        got.fn(l->server, got.arg);
    return p;
}

/* Calls those that are there now; what they post waits for the next turn. */
static void posts_call(struct loop_impl *l)
{
    pthread_mutex_lock(&l->lock);
    size_t n = l->posts;
    pthread_mutex_unlock(&l->lock);
    while (n-- && post_call(l))
        ;
    pthread_mutex_lock(&l->lock);
    bool more = l->first;
    pthread_mutex_unlock(&l->lock);
    if (more && l->lws)
        lws_cancel_service(l->lws);
}

void loop_post(struct server *s, struct post *p, aux_fn *fn, void *arg)
{
    struct loop_impl *l = impl(s);
    *p = (struct post) { .fn = fn, .arg = arg };
    pthread_mutex_lock(&l->lock);
    bool first = !l->first;
    if (first)
        l->first = p;
    else
        l->last->next = p;
    l->last = p;
    l->posts++;
    pthread_mutex_unlock(&l->lock);
    if (first && l->lws)
        lws_cancel_service(l->lws);
}

/* ---- what connections ask ---- */

void loop_set_limits(struct server *s, const struct loop_limits *l)
{
    s->loop->limits = *l;
    if (!l->body_bytes)
        s->loop->limits.body_bytes = (size_t)(2 * s->cfg.max_upload);
}

const char *loop_date(struct server *s)
{
    struct loop_impl *l = impl(s);
    uint64_t now = clock_wall_ns(s->cfg.clock) / 1000000000;
    if (now == l->date_s && l->date[0])
        return l->date;
    time_t t = (time_t)now;
    struct tm tm;
    if (!gmtime_r(&t, &tm) || !strftime(l->date, sizeof l->date, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        l->date[0] = '\0';
    l->date_s = now;
    return l->date;
}

bool loop_body_take(struct server *s, size_t n)
{
    struct loop_impl *l = impl(s);
    if (n > l->pub.limits.body_bytes || l->pub.body_bytes > l->pub.limits.body_bytes - n)
        return false;
    l->pub.body_bytes += n;
    return true;
}

bool loop_out_room(const struct server *s, size_t n)
{
    const struct loop_impl *l = impl(s);
    return n < LOOP_LARGE || (l->pub.out_bytes <= l->pub.limits.out_bytes &&
                              n <= l->pub.limits.out_bytes - l->pub.out_bytes);
}

/* ---- output ---- */

void conn_dirty(struct conn *c)
{
    struct loop_impl *l = impl(c->server);
    if (c->dirty)
        return;
    c->dirty = true;
    c->dirty_next = NULL;
    if (l->dirty)
        l->dirty_last->dirty_next = c;
    else
        l->dirty = c;
    l->dirty_last = c;
}

/* Most output fits the socket at once, and poll() visits every connection: so write first, and ask
 * for a callback only if there is no room. */
static void flush(struct loop_impl *l)
{
    while (l->dirty) {
        struct conn *c = l->dirty;
        l->dirty = c->dirty_next;
        c->dirty = false;
        if (!lws_partial_buffered(c->wsi) && !conn_writeable(c))
            conn_kill(c);
    }
}

static void forget_dirty(struct loop_impl *l, struct conn *c)
{
    struct conn **at = &l->dirty, *before = NULL;
    if (!c->dirty)
        return;
    while (*at != c) {
        before = *at;
        at = &(*at)->dirty_next;
    }
    *at = c->dirty_next;
    if (l->dirty_last == c)
        l->dirty_last = before;
}

/* ---- deadlines ---- */

static void sweep(lws_sorted_usec_list_t *sul)
{
    struct loop_impl *l = lws_container_of(sul, struct loop_impl, sweep);
    bool more = false;
    l->pub.now = clock_mono_ns(clock_system());
    for (struct conn *c = l->pub.conns, *next; c; c = next) {
        next = c->next;
        if (c->deadline_ns && c->deadline_ns <= l->pub.now)
            conn_expired(c);
        else if (c->ws)
            hub_swept(l->server, c);
        more = more || c->deadline_ns;
    }
    l->sweeping = more;
    if (more)
        lws_sul_schedule(l->lws, 0, &l->sweep, sweep, SWEEP_US);
}

void conn_deadline(struct conn *c, unsigned ms)
{
    struct loop_impl *l = impl(c->server);
    c->deadline_ns = ms ? l->pub.now + ms * UINT64_C(1000000) : 0;
    if (l->pub.end_ns && (!ms || c->deadline_ns > l->pub.end_ns))
        c->deadline_ns = l->pub.end_ns;
    if (c->deadline_ns && !l->sweeping) {
        l->sweeping = true;
        lws_sul_schedule(l->lws, 0, &l->sweep, sweep, SWEEP_US);
    }
}

static void tick(lws_sorted_usec_list_t *sul)
{
    struct loop_impl *l = lws_container_of(sul, struct loop_impl, tick);
    l->pub.now = clock_mono_ns(clock_system());
    meter_tick(l->server);
}

void loop_tick(struct server *s, unsigned ms)
{
    lws_sul_schedule(impl(s)->lws, 0, &impl(s)->tick, tick, ms * (lws_usec_t)1000);
}

/* ---- listening ---- */

static void resume(lws_sorted_usec_list_t *sul)
{
    struct loop_impl *l = lws_container_of(sul, struct loop_impl, resume);
    l->paused = false;
    for (size_t i = 0; i < l->listeners; i++)
        if (l->listener[i])
            lws_rx_flow_control(l->listener[i], 1);
}

/* Nothing can be accepted now: try again in a while. */
static void pause_accepting(struct loop_impl *l, int why)
{
    if (l->paused)
        return;
    l->paused = true;
    if (!l->starved)
        log_warn(&l->server->log, "loop.accept", "sockets=%zu errno=%d what=paused", l->pub.conns_n,
                 why);
    l->starved = true;
    for (size_t i = 0; i < l->listeners; i++)
        if (l->listener[i])
            lws_rx_flow_control(l->listener[i], 0);
    lws_sul_schedule(l->lws, 0, &l->resume, resume, PAUSE_US);
}

static void too_many(struct loop_impl *l, int fd)
{
    static const char text[] = "HTTP/1.1 503 Service Unavailable\r\nContent-Length: 21\r\n"
                               "Content-Type: text/plain; charset=utf-8\r\nRetry-After: 1\r\n"
                               "Connection: close\r\n\r\ntoo many connections\n";
    /* The buffer of a new socket is empty, so this fits; if not, never mind. */
    if (!l->tls && send(fd, text, sizeof text - 1, MSG_NOSIGNAL | MSG_DONTWAIT) > 0)
        shutdown(fd, SHUT_WR);
    close(fd);
}

/* The port of a socket of ours; *loopback: is its address one? */
static unsigned own_port(int fd, bool *loopback)
{
    union {
        struct sockaddr any;
        struct sockaddr_in v4;
        struct sockaddr_in6 v6;
    } a = { 0 };
    socklen_t n = sizeof a;
    bool failed = getsockname(fd, &a.any, &n);
    bool v6 = a.any.sa_family == AF_INET6;
    *loopback =
        failed || /* the safe answer */
        (v6 ? IN6_IS_ADDR_LOOPBACK(&a.v6.sin6_addr) : ntohl(a.v4.sin_addr.s_addr) >> 24 == 127);
    return failed ? 0 : ntohs(v6 ? a.v6.sin6_port : a.v4.sin_port);
}

static void accept_one(struct loop_impl *l, int fd)
{
    if (l->starved)
        log_info(&l->server->log, "loop.accept", "sockets=%zu what=resumed", l->pub.conns_n);
    l->starved = false;
    if (l->pub.conns_n >= l->max) {
        too_many(l, fd);
        return;
    }
    int on = 1, idle = 60;
    bool local;
    own_port(fd, &local);
    setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    lws_sock_file_fd_type d = { .sockfd = fd };
    struct lws *wsi = lws_adopt_descriptor_vhost(
        l->vhost, (lws_adoption_type)(LWS_ADOPT_SOCKET | (l->tls ? LWS_ADOPT_ALLOW_SSL : 0)), d,
        l->protocol[0].name, NULL);
    if (!wsi)
        return; /* it closed fd */
    struct conn *c = conn_new(l->server, wsi, l->tls);
    if (!c) {
        lws_set_timeout(wsi, PENDING_TIMEOUT_USER_REASON_BASE, LWS_TO_KILL_ASYNC);
        return;
    }
    c->local = local;
    c->next = l->pub.conns;
    if (l->pub.conns)
        l->pub.conns->prev = c;
    l->pub.conns = c;
    l->pub.conns_n++;
    lws_set_opaque_user_data(wsi, c);
    conn_deadline(c, l->pub.limits.head);
}

static void accept_some(struct loop_impl *l, int fd)
{
    for (int i = 0; i < ACCEPT_BATCH; i++) {
        int got = accept4(fd, NULL, NULL, SOCK_CLOEXEC | SOCK_NONBLOCK);
        if (got >= 0)
            accept_one(l, got);
        else if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
            pause_accepting(l, errno);
            return;
        } else if (errno != ECONNABORTED && errno != EINTR)
            return; /* EAGAIN: that was all */
    }
}

static int listen_on(const struct addrinfo *ai, berth_err *err, const char *text, unsigned port)
{
    int on = 1;
    int fd = socket(ai->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (fd < 0) {
        err_sys(err, BERTH_EIO, errno, "listening on %s", text);
        return -1;
    }
    setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (ai->ai_family == AF_INET6) /* 0.0.0.0 and :: are two addresses */
        setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &on, sizeof on);
    if (bind(fd, ai->ai_addr, ai->ai_addrlen) || listen(fd, LISTEN_BACKLOG)) {
        err_sys(err, errno == EADDRINUSE ? BERTH_EBUSY : BERTH_EIO, errno,
                "listening on %s port %u", text, port);
        close(fd);
        return -1;
    }
    return fd;
}

/* Addresses only: a name would need DNS, and could mean something else tomorrow. The exception is
 * "localhost", which is 127.0.0.1. */
static berth_status add_listener(struct loop_impl *l, const char *text, berth_err *err)
{
    char service[8];
    const char *node = strcmp(text, "localhost") ? text : "127.0.0.1";
    struct addrinfo *ai = NULL, hint = { .ai_flags = AI_NUMERICHOST | AI_NUMERICSERV | AI_PASSIVE,
                                         .ai_socktype = SOCK_STREAM };
    snprintf(service, sizeof service, "%u", l->port);
    if (getaddrinfo(node, service, &hint, &ai) || !ai)
        return err_set(err, BERTH_EINVAL, "'%.64s' is no address to listen on", text);
    int fd = listen_on(ai, err, text, l->port);
    freeaddrinfo(ai);
    if (fd < 0)
        return err->code;
    bool ignored;
    if (!l->port)
        l->port = own_port(fd, &ignored);
    lws_sock_file_fd_type d = { .filefd = fd };
    struct lws *wsi =
        lws_adopt_descriptor_vhost(l->vhost, LWS_ADOPT_RAW_FILE_DESC, d, l->protocol[0].name, NULL);
    if (!wsi) {
        close(fd);
        return err_set(err, BERTH_ENOMEM, "listening on %s", text);
    }
    l->listener[l->listeners++] = wsi;
    return BERTH_OK;
}

static void listener_gone(struct loop_impl *l, struct lws *wsi)
{
    for (size_t i = 0; i < l->listeners; i++)
        if (l->listener[i] == wsi)
            l->listener[i] = NULL;
}

/* ---- libwebsockets' callbacks ---- */

static void unlink_conn(struct loop_impl *l, struct conn *c)
{
    if (c->prev)
        c->prev->next = c->next;
    else
        l->pub.conns = c->next;
    if (c->next)
        c->next->prev = c->prev;
    l->pub.conns_n--;
    forget_dirty(l, c);
}

/* False: close it. */
static bool handle(struct loop_impl *l, struct lws *wsi, enum lws_callback_reasons why, void *in,
                   size_t n)
{
    struct conn *c;
    switch (why) {
    case LWS_CALLBACK_RAW_RX_FILE:
        accept_some(l, (int)lws_get_socket_fd(wsi));
        return true;
    case LWS_CALLBACK_RAW_CLOSE_FILE:
        listener_gone(l, wsi);
        return true;
    case LWS_CALLBACK_RAW_RX:
        c = lws_get_opaque_user_data(wsi);
        return c && conn_rx(c, in, n);
    case LWS_CALLBACK_RAW_WRITEABLE:
        c = lws_get_opaque_user_data(wsi);
        return c && conn_writeable(c);
    case LWS_CALLBACK_RAW_CLOSE:
        c = lws_get_opaque_user_data(wsi);
        if (c) {
            lws_set_opaque_user_data(wsi, NULL);
            unlink_conn(l, c);
            conn_gone(c);
        }
        return true;
    case LWS_CALLBACK_EVENT_WAIT_CANCELLED:
        posts_call(l);
        return true;
    default:
        return true;
    }
}

static int on_event(struct lws *wsi, enum lws_callback_reasons why, void *user, void *in, size_t n)
{
    struct loop_impl *l = lws_context_user(lws_get_context(wsi));
    (void)user;
    l->pub.now = clock_mono_ns(clock_system());
    bool go_on = handle(l, wsi, why, in, n);
    flush(l);
    return go_on ? 0 : -1;
}

/* ---- life ---- */

/* max_sockets, or fewer if the process may not open as many descriptors. */
static void set_socket_limit(struct loop_impl *l)
{
    struct rlimit r;
    size_t max = l->server->cfg.max_sockets;
    l->max = l->pub.files_max = max;
    if (getrlimit(RLIMIT_NOFILE, &r) || r.rlim_cur == RLIM_INFINITY ||
        r.rlim_cur >= 2 * (rlim_t)max + FD_RESERVE)
        return;
    size_t fit =
        r.rlim_cur > 2 * FD_RESERVE ? (size_t)r.rlim_cur - FD_RESERVE : (size_t)r.rlim_cur / 2;
    size_t most = fit - fit / 4;
    l->max = max < most ? max : most;
    l->pub.files_max = fit - l->max;
    if (l->max < max)
        log_warn(&l->server->log, "loop.sockets",
                 "asked=%zu allowed=%zu files=%zu why=\"limit on open files\"", max, l->max,
                 l->pub.files_max);
}

static berth_status make_context(struct loop_impl *l, berth_err *err)
{
    struct server *s = l->server;
    l->protocol[0] = (struct lws_protocols) { .name = "berth",
                                              .callback = on_event,
                                              .tx_packet_size = LOOP_WRITE_MAX };
    struct lws_context_creation_info info = {
        .port = CONTEXT_PORT_NO_LISTEN_SERVER,
        .protocols = l->protocol,
        .vhost_name = "berth",
        .user = l,
        .gid = -1,
        .uid = -1,
        .options = LWS_SERVER_OPTION_EXPLICIT_VHOSTS,
        /* accepted, listening, and one that libwebsockets keeps for itself */
        .fd_limit_per_thread = (unsigned)(l->max + s->cfg.listens + 8),
        .pt_serv_buf_size = 16384,
        .alpn = "http/1.1",
    };
    if (l->tls) {
        info.options |= LWS_SERVER_OPTION_DO_SSL_GLOBAL_INIT;
        info.ssl_cert_filepath = s->cfg.tls_cert;
        info.ssl_private_key_filepath = s->cfg.tls_key;
    }
    l->lws = lws_create_context(&info);
    if (!l->lws)
        return err_set(err, BERTH_ENOMEM, "libwebsockets did not start");
    l->vhost = lws_create_vhost(l->lws, &info);
    if (!l->vhost)
        return l->tls ? err_set(err, BERTH_EINVAL,
                                "TLS does not take key '%.80s' with certificate '%.80s': both are "
                                "PEM files, and the key is that of the first certificate",
                                s->cfg.tls_key, s->cfg.tls_cert)
                      : err_set(err, BERTH_ENOMEM, "libwebsockets did not start");
    return BERTH_OK;
}

static berth_status make_listeners(struct loop_impl *l, berth_err *err)
{
    static const char *const here[] = { "127.0.0.1" };
    const struct server_config *cfg = &l->server->cfg;
    size_t n = cfg->listens ? cfg->listens : 1;
    const char *const *text = cfg->listens ? cfg->listen : here;
    l->listener = calloc(n, sizeof(struct lws *));
    if (!l->listener)
        return err_set(err, BERTH_ENOMEM, "%zu listening sockets", n);
    for (size_t i = 0; i < n; i++)
        if (add_listener(l, text[i], err))
            return err->code;
    return BERTH_OK;
}

berth_status loop_open(struct server *s, berth_err *err)
{
    struct loop_impl *l = calloc(1, sizeof *l);
    if (!l)
        return err_set(err, BERTH_ENOMEM, "the server's loop");
    s->loop = &l->pub;
    l->server = s;
    l->port = s->cfg.port;
    l->tls = s->cfg.tls_key && s->cfg.tls_cert;
    set_socket_limit(l);
    l->pub.now = clock_mono_ns(clock_system());
    loop_set_limits(s, &(struct loop_limits)LOOP_LIMITS_DEFAULT);
    l->pub.routes = router_table(&l->pub.routes_n);
    l->lock = (pthread_mutex_t)PTHREAD_MUTEX_INITIALIZER;
    l->pub.scratch = malloc(LOOP_WRITE_MAX);
    if (!l->pub.scratch)
        return err_set(err, BERTH_ENOMEM, "the server's loop");
    const struct log *before = lws_log_now;
    lws_log_now = &s->log;
    lws_set_log_level(LLL_ERR, write_lws_log);
    berth_status st = make_context(l, err);
    if (!st)
        st = make_listeners(l, err);
    lws_log_now = before;
    return st;
}

void loop_settle(struct server *s)
{
    while (post_call(impl(s)))
        ;
}

void loop_close(struct server *s)
{
    struct loop_impl *l = impl(s);
    if (!l)
        return;
    const struct log *before = lws_log_now;
    lws_log_now = &s->log;
    if (l->lws) {
        loop_settle(s);
        lws_context_destroy(l->lws); /* conn_gone() of every connection */
        l->lws = NULL;
        loop_settle(s);
    }
    lws_log_now = before;
    free(l->pub.scratch);
    free(l->listener);
    free(l);
    s->loop = NULL;
}

unsigned loop_port(const struct server *s)
{
    return impl(s)->port;
}

void loop_wake(struct server *s)
{
    lws_cancel_service(impl(s)->lws);
}

/* Closes an idle connection now, others once their output is sent. */
static void dismiss(struct conn *c)
{
    if (c->mode == CONN_WS)
        ws_close(c, 1001);
    else if (c->req || c->out)
        c->keep = false;
    else
        conn_kill(c);
    conn_deadline(c, c->server->loop->limits.flush);
}

berth_status loop_run(struct server *s, const atomic_bool *stop, berth_err *err)
{
    struct loop_impl *l = impl(s);
    berth_status st = BERTH_OK;
    const struct log *before = lws_log_now;
    lws_log_now = &s->log;
    while (!atomic_load(stop) && !st)
        if (lws_service(l->lws, 0) < 0)
            st = err_set(err, BERTH_EIO, "libwebsockets stopped");
    lws_log_now = before;
    return st;
}

void loop_stop_listening(struct server *s)
{
    for (size_t i = 0; i < impl(s)->listeners; i++)
        if (impl(s)->listener[i])
            lws_set_timeout(impl(s)->listener[i], PENDING_TIMEOUT_USER_REASON_BASE,
                            LWS_TO_KILL_ASYNC);
}

void loop_drain(struct server *s)
{
    struct loop_impl *l = impl(s);
    const struct log *before = lws_log_now;
    lws_log_now = &s->log;
    l->pub.now = clock_mono_ns(clock_system());
    l->pub.end_ns = l->pub.now + l->pub.limits.flush * UINT64_C(1000000);
    for (struct conn *c = l->pub.conns, *next; c; c = next) {
        next = c->next;
        dismiss(c);
    }
    flush(l);
    /* All have a deadline, and a second to be closed in; loop_close() closes the rest. */
    while (l->pub.conns_n && l->pub.now < l->pub.end_ns + UINT64_C(1000000000) &&
           !atomic_load(&s->hurry) && lws_service(l->lws, 0) >= 0)
        ;
    lws_log_now = before;
}
