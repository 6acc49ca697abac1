/* WebSockets on real sockets: handshake, frames, names, recipients, previews, the log. The worker
 * is a stand-in that says what executes, the store is a real one in memory. */
#include "support/oom.h"
#include "support/ws_rig.h"

#include "server/worker_impl.h"

static const struct route routes[] = {
    { HTTP_GET, "/ws", ROUTE_DOUBLE | ROUTE_WS, .handler = route_ws },
    { HTTP_GET, "/{path:.*}", ROUTE_PAGE, .handler = route_static },
};

static struct rig g;
static struct worker worker;
static unsigned port;

static void before(struct rig *r)
{
    berth_err err = { 0 };
    memset(&worker, 0, sizeof worker);
    pthread_mutex_init(&worker.lock, NULL);
    r->s.worker = &worker;
    assert_ok(store_open(&(struct store_config) { .path = ":memory:" }, &r->s.store, &err), err);
}

static int open_with(const struct loop_limits *lim)
{
    rig_open_with(&g, &(struct server_config) { 0 }, routes, ARRAY_LEN(routes), lim, before);
    port = loop_port(&g.s);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return open_with(NULL);
}

static int setup_narrow(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.ws_full = 500000;
    lim.ws_bytes = 2000000;
    return open_with(&lim);
}

static int setup_narrower(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.ws_bytes = 300000;
    return open_with(&lim);
}

/* Behind at once, and closed soon when nothing is read. */
static int setup_hasty(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.ws_behind = 100000;
    lim.ws_full = 200000;
    lim.ws_write = 500;
    return open_with(&lim);
}

static int setup_hasty_reader(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    (void)state;
    lim.ws_behind = 100000;
    return open_with(&lim);
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&g);
    store_close(g.s.store);
    pthread_mutex_destroy(&worker.lock);
    return 0;
}

static void send_text(const char *sid, const char *text)
{
    struct str s = { 0 };
    str_adds(&s, text);
    hub_send(&g.s, sid, &s);
}

/* ---- handshake ---- */

static void handshakes(void **state)
{
    static const char *const bad[] = {
        "GET /ws HTTP/1.1\r\nHost: localhost\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Version: 13\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: short\r\nSec-WebSocket-Version: 13\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 8\r\n\r\n",
        "GET /ws HTTP/1.1\r\nHost: localhost\r\nUpgrade: h2c\r\nConnection: Upgrade\r\n"
        "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        expect(port, bad[i], 400, NULL);
    expect(port,
           "GET /ws HTTP/1.1\r\nHost: 127.0.0.1\r\nOrigin: http://evil.example\r\nUpgrade: "
           "websocket\r\nConnection: Upgrade\r\n"
           "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n",
           403, "");
    int a = ws_named(port, "abc"), b = ws_dial(port, "/api/ws"), c = ws_dial(port, "/ws?clientId=");
    struct frame f = ws_hear(b);
    const char *sid = strstr(str_c(&f.data), "\"sid\": \"");
    assert_non_null(sid);
    assert_int_equal(strspn(sid + 8, "0123456789abcdef"), 32);
    str_release(&f.data);
    ws_expect(c, WS_TEXT, NULL);
    ws_end(a);
    ws_end(b);
    ws_end(c);
}

/* Frames in the same packet as the request. */
static void eager_clients(void **state)
{
    struct str text = { 0 };
    (void)state;
    str_addf(&text, "GET /ws?clientId=e HTTP/1.1\r\n%s", ws_handshake);
    str_add(&text, "\x89\x82\0\0\0\0hi\x88\x80\0\0\0\0", 14);
    int fd = dial(port);
    say(fd, text.p, text.n);
    str_release(&text);
    struct answer a = hear(fd);
    assert_int_equal(a.status, 101);
    answer_release(&a);
    ws_expect(fd, WS_TEXT, STATUS("0", "e"));
    ws_expect(fd, WS_PONG, "hi");
    ws_expect_close(fd, 0);
}

/* ---- frames ---- */

static void frames(void **state)
{
    (void)state;
    int fd = ws_named(port, "f");
    ws_frame(fd, 0x89, "ping", 4);
    ws_expect(fd, WS_PONG, "ping");
    ws_frame(fd, 0x8a, "", 0); /* a pong nobody asked for */
    ws_say(fd, "not JSON");
    ws_frame(fd, 0x82, "\x00\x01", 2); /* binary is ignored */
    /* A message in three pieces with a ping between them; the first JSON one counts. */
    const char text[] = "{\"type\":\"feature_flags\",\"data\":{}}";
    ws_frame(fd, 0x01, text, 5);
    ws_frame(fd, 0x89, "mid", 3);
    ws_frame(fd, 0x00, text + 5, 10);
    ws_frame(fd, 0x80, text + 15, sizeof text - 1 - 15);
    ws_expect(fd, WS_PONG, "mid");
    ws_expect(fd, WS_TEXT,
              "{\"type\": \"feature_flags\", \"data\": {\"supports_preview_metadata\": true, "
              "\"supports_model_type_tags\": true, \"max_upload_size\": 104857600, \"extension\": "
              "{\"manager\": {\"supports_v4\": true}}, \"node_replacements\": true, \"assets\": "
              "false}}");
    ws_say(fd, text); /* not the first: no answer */
    ws_frame(fd, 0x89, "end", 3);
    ws_expect(fd, WS_PONG, "end");
    ws_end(fd);
}

static void broken_frames(void **state)
{
    (void)state;
    int fd = ws_named(port, "x");
    say(fd, "\x81\x02hi", 4); /* not masked */
    ws_expect_close(fd, 1002);
    fd = ws_named(port, "x");
    ws_frame(fd, 0x81, "\xff\xfe", 2);
    ws_expect_close(fd, 1007);
    fd = ws_named(port, "x");
    say(fd, "\x81\xff\0\0\0\0\0\x40\0\x01\1\2\3\4", 14); /* 4 MiB and one byte */
    ws_expect_close(fd, 1009);
    fd = ws_named(port, "x");
    ws_frame(fd, 0x88, "", 0);
    ws_expect_close(fd, 0);
    fd = ws_named(port, "x");
    struct str large = { 0 };
    str_pad(&large, ' ', 4u << 20);
    ws_frame(fd, 0x81, large.p, large.n); /* exactly the limit */
    str_release(&large);
    ws_frame(fd, 0x89, "on", 2);
    ws_expect(fd, WS_PONG, "on");
    ws_end(fd);
    for (int i = 0; i < 20; i++) { /* gone without a word */
        fd = ws_named(port, "x");
        if (i % 2)
            say(fd, "\x81\x85", 2);
        close(fd);
    }
    fd = ws_named(port, "last");
    ws_end(fd);
}

/* ---- names and recipients ---- */

static void recipients(void **state)
{
    (void)state;
    int a = ws_named(port, "a"), b = ws_named(port, "b");
    send_text("a", "to a");
    send_text("nobody", "to nobody");
    send_text(NULL, "to all");
    send_text("b", "to b");
    hub_send_status(&g.s);
    ws_expect(a, WS_TEXT, "to a");
    ws_expect(a, WS_TEXT, "to all");
    ws_expect(b, WS_TEXT, "to all");
    ws_expect(b, WS_TEXT, "to b");
    int both[] = { a, b };
    for (int i = 0; i < 2; i++) {
        ws_expect(both[i], WS_TEXT,
                  "{\"type\": \"status\", \"data\": {\"status\": {\"exec_info\": "
                  "{\"queue_remaining\": 0}}}}");
        ws_end(both[i]);
    }
}

/* A client that takes every binary frame for a picture shall not get a text for one. */
static void texts_only_for_those_who_know_them(void **state)
{
    static const struct {
        const char *flags; /* NULL: says nothing */
        bool knows;
    } client[] = {
        { NULL, false },
        { "{}", false },
        { "{\"supports_preview_metadata\":true}", false },
        { "{\"supports_progress_text_metadata\":1}", false },
        { "{\"supports_progress_text_metadata\":true}", true },
        { "{\"supports_preview_metadata\":true,\"supports_manager_v4_ui\":true}", true },
    };
    int fd[ARRAY_LEN(client)];
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(client); i++) {
        char name[8], text[160];
        snprintf(name, sizeof name, "t%zu", i);
        fd[i] = ws_named(port, name);
        if (!client[i].flags)
            continue;
        snprintf(text, sizeof text, "{\"type\":\"feature_flags\",\"data\":%s}", client[i].flags);
        ws_say(fd[i], text);
        ws_expect(fd[i], WS_TEXT, NULL);
    }
    hub_send_text(&g.s, "12:3", "text", 4);
    send_text(NULL, "behind it");
    for (size_t i = 0; i < ARRAY_LEN(client); i++) {
        if (client[i].knows) {
            struct frame f = ws_hear(fd[i]);
            assert_int_equal(f.op, WS_BINARY);
            assert_int_equal(f.data.n, 16);
            assert_memory_equal(f.data.p,
                                "\0\0\0\3\0\0\0\4"
                                "12:3text",
                                16);
            str_release(&f.data);
        }
        ws_expect(fd[i], WS_TEXT, "behind it");
        ws_end(fd[i]);
    }
}

/* The same name twice: the new socket has it, and keeps it when the old one goes. */
static void same_name(void **state)
{
    (void)state;
    int old = ws_named(port, "n"), new = ws_named(port, "n");
    send_text("n", "one");
    ws_expect(new, WS_TEXT, "one");
    send_text(NULL, "all");
    ws_expect(new, WS_TEXT, "all");
    ws_expect(old, WS_TEXT, "all"); /* and not "one" */
    ws_end(old);
    send_text("n", "two");
    ws_expect(new, WS_TEXT, "two");
    int third = ws_named(port, "n");
    ws_end(new);
    send_text("n", "three");
    ws_expect(third, WS_TEXT, "three");
    ws_end(third);
    send_text("n", "lost");
    int fourth = ws_named(port, "n");
    ws_end(fourth);
}

static void reconnecting_clients_hear_what_executes(void **state)
{
    struct store_job job = { .id = (char *)"p-1", .client_id = (char *)"owner" };
    (void)state;
    pthread_mutex_lock(&worker.lock);
    worker.job = &job;
    snprintf(worker.node, sizeof worker.node, "5");
    snprintf(worker.display_node, sizeof worker.display_node, "4");
    pthread_mutex_unlock(&worker.lock);
    int a = ws_named(port, "owner"), b = ws_named(port, "other");
    ws_expect(a, WS_TEXT,
              "{\"type\": \"executing\", \"data\": "
              "{\"node\":\"5\",\"display_node\":\"4\",\"prompt_id\":\"p-1\"}}");
    send_text("other", "first");
    ws_expect(b, WS_TEXT, "first");
    ws_end(a);
    ws_end(b);
    pthread_mutex_lock(&worker.lock);
    worker.job = NULL;
    pthread_mutex_unlock(&worker.lock);
}

/* ---- previews ---- */

static void send_preview(const char *sid, const char *bytes, bool png)
{
    struct hub_preview p = { .node = "3", .prompt_id = "p", .png = png };
    str_adds(&p.bytes, bytes);
    hub_send_preview(&g.s, sid, &p);
}

static void previews(void **state)
{
    (void)state;
    int plain = ws_named(port, "plain"), rich = ws_named(port, "rich"), odd = ws_named(port, "odd");
    ws_say(rich, "{\"type\":\"feature_flags\",\"data\":{\"supports_preview_metadata\":true}}");
    ws_expect(rich, WS_TEXT, NULL);
    ws_say(odd, "{\"type\":\"feature_flags\",\"data\":{\"supports_preview_metadata\":1}}");
    ws_expect(odd, WS_TEXT, NULL);
    send_preview("plain", "JPG", false);
    send_preview("odd", "PNG", true);
    send_preview("rich", "PNG", true);
    struct frame f = ws_hear(plain);
    assert_int_equal(f.op, WS_BINARY);
    assert_memory_equal(f.data.p, "\0\0\0\1\0\0\0\1JPG", 11);
    str_release(&f.data);
    f = ws_hear(odd);
    assert_memory_equal(f.data.p, "\0\0\0\1\0\0\0\2PNG", 11);
    str_release(&f.data);
    f = ws_hear(rich);
    static const char meta[] =
        "{\"node_id\": \"3\", \"prompt_id\": \"p\", \"display_node_id\": \"3\", "
        "\"parent_node_id\": null, \"real_node_id\": \"3\", \"image_type\": \"image/png\"}";
    assert_int_equal(f.data.n, 8 + sizeof meta - 1 + 3);
    assert_memory_equal(f.data.p, "\0\0\0\4\0\0\0", 7);
    assert_int_equal((uint8_t)f.data.p[7], sizeof meta - 1);
    assert_memory_equal(f.data.p + 8, meta, sizeof meta - 1);
    assert_memory_equal(f.data.p + 8 + sizeof meta - 1, "PNG", 3);
    str_release(&f.data);
    send_preview(NULL, "ALL", false); /* to all: form 1 */
    int all[] = { plain, rich, odd };
    for (int i = 0; i < 3; i++) {
        f = ws_hear(all[i]);
        assert_memory_equal(f.data.p, "\0\0\0\1\0\0\0\1ALL", 11);
        str_release(&f.data);
        ws_end(all[i]);
    }
}

static void send_step(const char *sid)
{
    struct hub_preview p = { .node = "3", .prompt_id = "p" };
    str_adds(&p.bytes, "JPG");
    str_adds(&p.progress, "step");
    hub_send_preview(&g.s, sid, &p);
}

/* Form 4 stands before the progress of its step, form 1 behind it. */
static void previews_and_their_step(void **state)
{
    (void)state;
    int plain = ws_named(port, "plain"), rich = ws_named(port, "rich");
    ws_say(rich, "{\"type\":\"feature_flags\",\"data\":{\"supports_preview_metadata\":true}}");
    ws_expect(rich, WS_TEXT, NULL);
    send_step("plain");
    send_step("rich");
    ws_expect(plain, WS_TEXT, "step");
    ws_expect(plain, WS_BINARY, NULL);
    ws_expect(rich, WS_BINARY, NULL);
    ws_expect(rich, WS_TEXT, "step");
    send_step(NULL);
    int both[] = { plain, rich };
    for (int i = 0; i < 2; i++) {
        ws_expect(both[i], WS_TEXT, "step");
        ws_expect(both[i], WS_BINARY, NULL);
        ws_end(both[i]);
    }
}

/* ---- slow clients ---- */

static void send_pictures(int n)
{
    struct str picture = { 0 };
    str_pad(&picture, 'x', 200000);
    for (int i = 0; i < n; i++) {
        struct hub_preview p = { .node = "3", .prompt_id = "p" };
        str_add(&p.bytes, picture.p, picture.n);
        str_addf(&p.bytes, "%03d", i);
        hub_send_preview(&g.s, "slow", &p);
    }
    str_release(&picture);
}

/* One picture is under way and one waits; there is room for one of them and the message. */
static void messages_before_previews(void **state)
{
    (void)state;
    int slow = ws_named(port, "slow");
    send_pictures(200);
    send_text("slow", "the message");
    for (bool message = false; !message;) {
        struct frame f = ws_hear(slow);
        message = f.op == WS_TEXT;
        if (!message)
            assert_true(f.op == WS_BINARY && strcmp(f.data.p + f.data.n - 3, "199"));
        str_release(&f.data);
    }
    ws_end(slow);
}

/* Who does not read loses previews first, keeps every message, and is closed in the end. */
static void slow_clients(void **state)
{
    (void)state;
    int slow = ws_named(port, "slow"), quick = ws_named(port, "quick");
    send_pictures(400);
    send_text("slow", "the message");
    send_text("quick", "quick");
    ws_expect(quick, WS_TEXT, "quick");
    int seen = 0, last = -1;
    bool message = false;
    while (!message) {
        struct frame f = ws_hear(slow);
        assert_true(f.op == WS_BINARY || f.op == WS_TEXT);
        if (f.op == WS_BINARY) {
            int k = (int)strtol(f.data.p + f.data.n - 3, NULL, 10);
            assert_true(k > last);
            last = k;
            seen++;
        } else {
            assert_string_equal(str_c(&f.data), "the message");
            message = true;
        }
        str_release(&f.data);
    }
    assert_int_equal(last, 399); /* the newest stays */
    assert_true(seen < 400);
    struct str text = { 0 };
    str_pad(&text, 'm', 60000);
    for (int i = 0; i < 400; i++)
        send_text("slow", str_c(&text));
    str_release(&text);
    send_text("quick", "quick");
    ws_expect(quick, WS_TEXT, "quick");
    int got = 0;
    for (char buf[60004]; recv(slow, buf, sizeof buf, MSG_WAITALL) == (ssize_t)sizeof buf;)
        got++;
    assert_true(got < 400);
    close(slow);
    ws_end(quick);
}

static void send_state(const char *sid, uint64_t run, int k)
{
    struct str s = { 0 };
    str_addf(&s, "state %d.%d ", (int)run, k);
    str_pad(&s, '.', 50000);
    hub_send_state(&g.s, sid, run, &s);
}

/* A client that is behind loses states that a later one of the same prompt replaced, and nothing
 * else; one that keeps up gets all of them. */
static void newer_states(void **state)
{
    enum { N = 300 };
    (void)state;
    int slow = ws_named(port, "slow"), quick = ws_named(port, "quick");
    for (int run = 1; run <= 2; run++)
        for (int k = 0; k < N; k++) {
            char text[32];
            send_state(NULL, (uint64_t)run, k);
            snprintf(text, sizeof text, "message %d.%d", run, k);
            send_text(NULL, text);
            for (int i = 0; i < 2; i++) {
                struct frame f = ws_hear(quick);
                assert_int_equal(f.op, WS_TEXT);
                snprintf(text, sizeof text, i ? "message %d.%d" : "state %d.%d ", run, k);
                assert_true(str_starts(str_c(&f.data), f.data.n, text));
                str_release(&f.data);
            }
        }
    int states = 0, messages = 0, last[3] = { 0 };
    while (messages < 2 * N || last[2] < N - 1) {
        struct frame f = ws_hear(slow);
        int run, k;
        assert_int_equal(f.op, WS_TEXT);
        if (sscanf(str_c(&f.data), "state %d.%d", &run, &k) == 2) {
            assert_true(run == 1 || last[1] == N - 1); /* the last of a prompt is never lost */
            last[run] = k;
            states++;
        } else {
            assert_int_equal(sscanf(str_c(&f.data), "message %d.%d", &run, &k), 2);
            assert_int_equal((run - 1) * N + k, messages++);
        }
        str_release(&f.data);
    }
    assert_true(states < 2 * N);
    ws_end(slow);
    ws_end(quick);
}

/* Who takes nothing is closed, however little it is; others hear everything meanwhile, and whoever
 * makes messages does not wait for it. */
static void who_reads_nothing_is_closed(void **state)
{
    (void)state;
    int deaf = ws_named(port, "deaf"), quick = ws_named(port, "quick");
    unsigned patience = 60000;
    struct str text = { 0 };
    str_pad(&text, 'm', 60000);
    for (int i = 0; i < 200; i++) {
        hub_wait(&g.s, "deaf", &patience);
        send_text(NULL, str_c(&text));
        struct frame f = ws_hear(quick);
        assert_int_equal(f.data.n, 60000);
        str_release(&f.data);
    }
    while (hub_count(&g.s) > 1) /* no reading of `deaf`: that would be progress */
        usleep(20000);
    int got = 0;
    for (char buf[60004]; recv(deaf, buf, sizeof buf, MSG_WAITALL) == (ssize_t)sizeof buf;)
        got++;
    assert_true(got < 200);
    close(deaf);
    ws_end(quick);
    str_release(&text);
}

/* hub_wait() holds back whoever makes more than a reading client takes, so that it gets all of it
 * though it may leave but little unread. */
static void *read_slowly(void *arg)
{
    int fd = *(int *)arg;
    for (int i = 0; i < 300; i++) {
        struct frame f = ws_hear(fd);
        if (f.data.n != 60000)
            return (void *)"closed";
        str_release(&f.data);
        usleep(1000);
    }
    return NULL;
}

static void pressure(void **state)
{
    (void)state;
    int fd = ws_named(port, "reader");
    unsigned patience = 60000;
    struct str text = { 0 };
    pthread_t thread;
    void *why;
    str_pad(&text, 'm', 60000);
    pthread_create(&thread, NULL, read_slowly, &fd);
    for (int i = 0; i < 300; i++) {
        hub_wait(&g.s, "reader", &patience);
        send_text("reader", str_c(&text));
    }
    pthread_join(thread, &why);
    assert_null(why);
    str_release(&text);
    ws_end(fd);
}

/* Whose message is for another, or for all, does not wait for a client that has much to read; whose
 * is for that one waits no longer than it may. */
static void waits_for_whom(void **state)
{
    (void)state;
    int slow = ws_named(port, "slow"), quick = ws_named(port, "quick");
    struct str text = { 0 };
    unsigned none = 0, few = 5, many = 1000;
    str_pad(&text, 'm', 60000);
    for (int i = 0; few == 5; i++) { /* until the kernel takes no more */
        assert_true(i < 1000);
        send_text("slow", str_c(&text));
        send_text("quick", "posted");
        ws_expect(quick, WS_TEXT, "posted");
        hub_wait(&g.s, "slow", &few);
    }
    assert_int_equal(few, 0);
    hub_wait(&g.s, "slow", &none);
    assert_int_equal(none, 0);
    hub_wait(&g.s, "quick", &many);
    hub_wait(&g.s, "nobody", &many);
    hub_wait(&g.s, NULL, &many);
    assert_int_equal(many, 1000);
    str_release(&text);
    ws_end(quick);
    close(slow);
}

static void who_listens(void **state)
{
    (void)state;
    assert_false(hub_listens(&g.s, NULL));
    assert_false(hub_listens(&g.s, "a"));
    int a = ws_named(port, "a"), again = ws_named(port, "a");
    assert_true(hub_listens(&g.s, NULL));
    assert_true(hub_listens(&g.s, "a"));
    assert_false(hub_listens(&g.s, "b"));
    ws_end(a);
    assert_true(hub_listens(&g.s, "a"));
    ws_end(again);
    while (hub_listens(&g.s, "a"))
        usleep(1000);
    assert_false(hub_listens(&g.s, NULL));
}

static void broadcast(void **state)
{
    enum { N = 200 };
    int fd[N];
    (void)state;
    for (int i = 0; i < N; i++) {
        char sid[16];
        snprintf(sid, sizeof sid, "c%d", i);
        fd[i] = ws_named(port, sid);
    }
    assert_int_equal(hub_count(&g.s), N);
    for (int k = 0; k < 20; k++) {
        char text[16];
        snprintf(text, sizeof text, "m%d", k);
        send_text(NULL, text);
    }
    for (int i = 0; i < N; i++)
        for (int k = 0; k < 20; k++) {
            char text[16];
            snprintf(text, sizeof text, "m%d", k);
            ws_expect(fd[i], WS_TEXT, text);
        }
    for (int i = 0; i < N / 2; i++)
        close(fd[i]);
    send_text(NULL, "rest");
    for (int i = N / 2; i < N; i++)
        ws_expect(fd[i], WS_TEXT, "rest");
    for (int i = N / 2; i < N; i++)
        close(fd[i]);
}

/* ---- the log ---- */

static void subscribe(struct server *s, void *arg)
{
    hub_subscribe_logs(s, "reader", arg != NULL);
    hub_subscribe_logs(s, "nobody", true);
}

static void logs(void **state)
{
    (void)state;
    int a = ws_named(port, "reader"), b = ws_named(port, "other");
    rig_post(&g.s, subscribe, &g);
    send_text("reader", "sync");
    ws_expect(a, WS_TEXT, "sync");
    log_info(&g.s.log, "test.event", "n=%d", 1);
    struct frame f = ws_hear(a);
    assert_non_null(
        strstr(str_c(&f.data), "{\"type\": \"logs\", \"data\": {\"entries\": [{\"t\": \"20"));
    assert_non_null(
        strstr(str_c(&f.data), "\"m\": \"[info] test.event n=1\\n\"}], \"size\": null}}"));
    str_release(&f.data);
    int again = ws_named(port, "reader"); /* a reconnect keeps the subscription */
    log_info(&g.s.log, "test.event", "n=%d", 2);
    ws_expect(again, WS_TEXT, NULL);
    rig_post(&g.s, subscribe, NULL);
    send_text("reader", "sync");
    ws_expect(again, WS_TEXT, "sync");
    assert_false(hub_logs_wanted(&g.s));
    log_info(&g.s.log, "test.rude", "id=\"%s\"", "x\n2026 error fake=1\x1b[31m\xff");
    struct str rude = { 0 };
    logs_text(&g.s, &rude);
    assert_non_null(strstr(str_c(&rude), " - [info] test.rude id=\"x?2026 error fake=1?[31m?\"\n"));
    str_release(&rude);
    for (int i = 0; i < 400; i++)
        log_info(&g.s.log, "test.many", "i=%d", i);
    struct str text = { 0 }, raw = { 0 };
    logs_text(&g.s, &text);
    logs_json(&g.s, &raw);
    assert_null(strstr(str_c(&text), "i=99\n"));
    assert_non_null(strstr(str_c(&text), " - [info] test.many i=100\n"));
    assert_non_null(strstr(str_c(&text), "i=399\n"));
    json_t *v;
    berth_err err;
    assert_ok(js_parse(raw.p, raw.n, NULL, &v, &err), err);
    assert_int_equal(json_array_size(json_object_get(v, "entries")), 300);
    assert_true(json_is_integer(json_object_get(json_object_get(v, "size"), "cols")));
    json_decref(v);
    str_release(&text);
    str_release(&raw);
    send_text(NULL, "end");
    ws_expect(a, WS_TEXT, "end");
    ws_expect(b, WS_TEXT, "end");
    ws_expect(again, WS_TEXT, "end");
    ws_end(a);
    ws_end(b);
    ws_end(again);
}

static void survives_oom(void **state)
{
    static const char request[] = "GET /ws?clientId=o HTTP/1.1\r\n";
    static const char frames[] = "\x81\x82\0\0\0\0{}\x89\x82\0\0\0\0hi\x88\x80\0\0\0\0";
    (void)state;
    for (long k = 0; k < 60; k++) {
        char buf[1024];
        int fd = dial(port);
        oom_once(k);
        says(fd, request);
        says(fd, ws_handshake);
        send(fd, frames, sizeof frames - 1, MSG_NOSIGNAL);
        while (recv(fd, buf, sizeof buf, 0) > 0)
            ;
        oom_once(k % 8);
        send_text(NULL, "to nobody");
        send_preview("o", "PNG", true);
        oom_off();
        close(fd);
    }
    int fd = ws_named(port, "o");
    ws_end(fd);
}

/* ---- the end ---- */

static void goodbye(void **state)
{
    (void)state;
    setup(NULL);
    int a = ws_named(port, "a"), idle = dial(port);
    teardown(NULL);
    ws_expect_close(a, 1001);
    assert_true(is_closed(idle));
    close(idle);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(handshakes, setup, teardown),
        cmocka_unit_test_setup_teardown(eager_clients, setup, teardown),
        cmocka_unit_test_setup_teardown(frames, setup, teardown),
        cmocka_unit_test_setup_teardown(broken_frames, setup, teardown),
        cmocka_unit_test_setup_teardown(recipients, setup, teardown),
        cmocka_unit_test_setup_teardown(texts_only_for_those_who_know_them, setup, teardown),
        cmocka_unit_test_setup_teardown(same_name, setup, teardown),
        cmocka_unit_test_setup_teardown(reconnecting_clients_hear_what_executes, setup, teardown),
        cmocka_unit_test_setup_teardown(previews, setup, teardown),
        cmocka_unit_test_setup_teardown(messages_before_previews, setup_narrower, teardown),
        cmocka_unit_test_setup_teardown(slow_clients, setup_narrow, teardown),
        cmocka_unit_test_setup_teardown(previews_and_their_step, setup, teardown),
        cmocka_unit_test_setup_teardown(newer_states, setup_hasty_reader, teardown),
        cmocka_unit_test_setup_teardown(who_reads_nothing_is_closed, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(pressure, setup_narrow, teardown),
        cmocka_unit_test_setup_teardown(waits_for_whom, setup_narrow, teardown),
        cmocka_unit_test_setup_teardown(who_listens, setup, teardown),
        cmocka_unit_test_setup_teardown(broadcast, setup, teardown),
        cmocka_unit_test_setup_teardown(logs, setup, teardown),
        cmocka_unit_test_setup_teardown(survives_oom, setup, teardown),
        cmocka_unit_test(goodbye),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
