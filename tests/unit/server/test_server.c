/* The whole server in this process: starting, refusing to start, answering, stopping; and starting
 * without memory. */
#include "support/http_rig.h"
#include "support/oom.h"
#include "support/stores.h"

#include "paths/folders.h"
#include "support/sqlite_store.h"

#include <sys/stat.h>

struct whole {
    berth_ctx *ctx;
    struct folders *folders;
    struct server_config cfg;
    struct server *s;
    atomic_bool stop;
    pthread_t thread;
};

static void whole_make(struct whole *w)
{
    berth_config ctx = { .size = sizeof ctx, .devices = "cpu=64m,null:0=1g" };
    berth_err err = { 0 };
    memset(w, 0, sizeof *w);
    tmp_clear();
    assert_ok(berth_ctx_new(&ctx, &w->ctx, &err), err);
    assert_ok(folders_new(&(struct folders_config) { .base = tmp_dir() }, &w->folders, &err), err);
    w->cfg = (struct server_config) { .ctx = w->ctx,
                                      .folders = w->folders,
                                      .database = strdup(tmp_path("state.db")) };
}

static void whole_unmake(struct whole *w)
{
    server_free(w->s);
    folders_free(w->folders);
    berth_ctx_free(w->ctx);
    free((char *)(uintptr_t)w->cfg.database);
}

static void *run(void *arg)
{
    struct whole *w = arg;
    berth_err err = { 0 };
    assert_ok(server_run(w->s, &w->stop, &err), err);
    return NULL;
}

static void whole_start(struct whole *w)
{
    berth_err err = { 0 };
    assert_ok(server_new(&w->cfg, &w->s, &err), err);
    assert_int_equal(pthread_create(&w->thread, NULL, run, w), 0);
}

static void whole_stop(struct whole *w)
{
    atomic_store(&w->stop, true);
    server_wake(w->s);
    pthread_join(w->thread, NULL);
}

static void answers_and_stops(void **state)
{
    struct whole w;
    (void)state;
    whole_make(&w);
    whole_start(&w);
    unsigned port = server_port(w.s);
    expect(port, "GET /queue HTTP/1.1\r\nHost: localhost\r\n\r\n", 200,
           "{\"queue_running\":[],\"queue_pending\":[]}");
    expect(port, "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, NULL);
    int idle = dial(port), ws = dial(port);
    says(ws, "GET /ws?clientId=a HTTP/1.1\r\nHost: localhost\r\nUpgrade: websocket\r\nConnection: "
             "Upgrade\r\n"
             "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\nSec-WebSocket-Version: 13\r\n\r\n");
    struct answer a = hear(ws);
    assert_int_equal(a.status, 101);
    answer_release(&a);
    whole_stop(&w);
    assert_true(is_closed(idle));
    static char rest[65536]; /* what the worker told of its start may be among it */
    ssize_t n = recv(ws, rest, sizeof rest, MSG_WAITALL);
    assert_true(n > 4 && !memcmp(rest + n - 4, "\x88\x02\x03\xe9", 4)); /* 1001 */
    close(idle);
    close(ws);
    whole_unmake(&w);
}

/* A change of queue or history may wait for the disk; everybody else does not. */
static void changes_wait_alone(void **state)
{
    static const char *const change[] = {
        "/api/jobs/a/cancel",
        "",
        "/history",
        "{\"clear\":true}",
        "/queue",
        "{\"clear\":true,\"delete\":[\"b\"]}",
        "/berth/queue",
        "{\"paused\":true}",
    };
    struct whole w;
    int fd[ARRAY_LEN(change) / 2];
    (void)state;
    whole_make(&w);
    whole_start(&w);
    unsigned port = server_port(w.s);
    berth_err err = { 0 };
    assert_ok(store_pause(w.s->store, true, &err), err);
    add(w.s->store, "a", 1);
    add(w.s->store, "b", 2);
    pthread_mutex_lock(&sqlite_of(w.s->store)->db); /* the disk is busy */
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        char text[200];
        snprintf(text, sizeof text,
                 "POST %s HTTP/1.1\r\nHost: localhost\r\nContent-Length: %zu\r\n\r\n%s",
                 change[2 * i], strlen(change[2 * i + 1]), change[2 * i + 1]);
        fd[i] = dial(port);
        says(fd[i], text);
        expect(port, "GET /berth/health HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, NULL);
    }
    pthread_mutex_unlock(&sqlite_of(w.s->store)->db);
    for (size_t i = 0; i < ARRAY_LEN(fd); i++) {
        struct answer a = hear(fd[i]);
        assert_int_equal(a.status, 200);
        answer_release(&a);
        close(fd[i]);
    }
    assert_int_equal(store_remaining(w.s->store), 0);
    whole_stop(&w);
    whole_unmake(&w);
}

static void stops_before_it_ran(void **state)
{
    struct whole w;
    berth_err err = { 0 };
    (void)state;
    whole_make(&w);
    assert_ok(server_new(&w.cfg, &w.s, &err), err);
    int fd = dial(server_port(w.s)); /* in the backlog */
    whole_unmake(&w);
    close(fd);
}

static void refuses_to_start(void **state)
{
    static const char *const any[] = { "0.0.0.0" }, *const word[] = { "gpu.lan" },
                             *const twice[] = { "127.0.0.1", "127.0.0.1" };
    struct whole w, other;
    berth_err err = { 0 };
    (void)state;
    whole_make(&w);
    w.cfg.listen = any;
    w.cfg.listens = 1;
    assert_fails(server_new(&w.cfg, &w.s, &err), err, BERTH_EINVAL, "--token");
    w.cfg.listen = word;
    w.cfg.token = "12345678";
    assert_fails(server_new(&w.cfg, &w.s, &err), err, BERTH_EINVAL, "'gpu.lan' is no IP address");
    w.cfg.listen = twice;
    w.cfg.listens = 2;
    assert_fails(server_new(&w.cfg, &w.s, &err), err, BERTH_EBUSY, "127.0.0.1 port ");
    w.cfg.listens = 1;
    w.cfg.tls_cert = w.cfg.tls_key = "/nonexistent.pem";
    assert_fails(server_new(&w.cfg, &w.s, &err), err, BERTH_EINVAL, "/nonexistent.pem");
    w.cfg.tls_cert = w.cfg.tls_key = NULL;
    assert_ok(server_new(&w.cfg, &w.s, &err), err);
    other = w;
    other.cfg.port = server_port(w.s);
    assert_fails(server_new(&other.cfg, &other.s, &err), err, BERTH_EBUSY, "127.0.0.1 port");
    other.cfg.port = 0;
    assert_fails(server_new(&other.cfg, &other.s, &err), err, BERTH_EBUSY, "state.db");
    whole_unmake(&w);
}

static void several_addresses_share_a_port(void **state)
{
    static const char *const two[] = { "127.0.0.1", "127.0.0.2" };
    struct whole w;
    (void)state;
    whole_make(&w);
    w.cfg.listen = two;
    w.cfg.listens = 2;
    whole_start(&w);
    expect(server_port(w.s), "GET /prompt HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, NULL);
    struct sockaddr_in a = { .sin_family = AF_INET,
                             .sin_port = htons((uint16_t)server_port(w.s)),
                             .sin_addr = { htonl(INADDR_LOOPBACK + 1) } };
    int fd = socket(AF_INET, SOCK_STREAM, 0);
    assert_int_equal(connect(fd, (struct sockaddr *)&a, sizeof a), 0);
    says(fd, "GET /prompt HTTP/1.1\r\nHost: localhost\r\n\r\n");
    struct answer x = hear(fd);
    assert_int_equal(x.status, 200);
    answer_release(&x);
    close(fd);
    whole_stop(&w);
    whole_unmake(&w);
}

/* A node pack with two names and packages, so that there is something to find. */
static void put_packs(void)
{
    static const char *const folders[] = { "custom_nodes",
                                           "custom_nodes/pack",
                                           "custom_nodes/pack/js",
                                           "site",
                                           "site/comfyui_workflow_templates_a",
                                           "site/comfyui_workflow_templates_a/templates",
                                           "site/comfyui_embedded_docs",
                                           "site/comfyui_embedded_docs/docs" };
    static const char python[] = "WEB_DIRECTORY = 'js'\n",
                      project[] = "[project]\nname = \"other\"\n[tool.comfy]\nweb = \"js\"\n";
    for (size_t i = 0; i < ARRAY_LEN(folders); i++)
        assert_int_equal(mkdir(tmp_path(folders[i]), 0700), 0);
    tmp_write("custom_nodes/pack/__init__.py", python, sizeof python - 1);
    tmp_write("custom_nodes/pack/pyproject.toml", project, sizeof project - 1);
}

static void new_survives_oom(void **state)
{
    struct whole w;
    berth_status st = BERTH_ENOMEM;
    (void)state;
    whole_make(&w);
    put_packs();
    char *site = strdup(tmp_path("site"));
    w.cfg.packages = site;
    for (long k = 0; st != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        st = server_new(&w.cfg, &w.s, &err);
        oom_off();
        if (st && (st != BERTH_ENOMEM || w.s || !err.msg[0]))
            fail_msg("allocation %ld: %s '%s'", k, berth_status_name(st), err.msg);
    }
    whole_unmake(&w);
    free(site);
}

/* Two contexts, two servers, one process. */
static void two_servers(void **state)
{
    struct whole a, b;
    berth_err err = { 0 };
    (void)state;
    whole_make(&a);
    whole_start(&a);
    berth_config ctx = { .size = sizeof ctx, .devices = "cpu=64m" };
    memset(&b, 0, sizeof b);
    assert_ok(berth_ctx_new(&ctx, &b.ctx, &err), err);
    assert_ok(folders_new(&(struct folders_config) { .base = tmp_dir() }, &b.folders, &err), err);
    b.cfg = a.cfg;
    b.cfg.ctx = b.ctx;
    b.cfg.folders = b.folders;
    b.cfg.database = strdup(tmp_path("other.db"));
    whole_start(&b);
    assert_true(server_port(a.s) != server_port(b.s));
    expect(server_port(a.s), "GET /prompt HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, NULL);
    expect(server_port(b.s), "GET /prompt HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, NULL);
    whole_stop(&a);
    expect(server_port(b.s), "GET /prompt HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, NULL);
    whole_stop(&b);
    whole_unmake(&b);
    whole_unmake(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(answers_and_stops),
        cmocka_unit_test(changes_wait_alone),
        cmocka_unit_test(stops_before_it_ran),
        cmocka_unit_test(refuses_to_start),
        cmocka_unit_test(several_addresses_share_a_port),
        cmocka_unit_test(new_survives_oom),
        cmocka_unit_test(two_servers),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
