/* berth.memory on real sockets, out of real ledgers that another thread changes meanwhile. The
 * worker is a stand-in that says whether a prompt runs. */
#include "support/devices.h"
#include "support/json_bytes.h"
#include "support/ws_rig.h"

#include "residency/residency_impl.h"
#include "server/worker_impl.h"

static const struct route routes[] = {
    { HTTP_GET, "/ws", ROUTE_DOUBLE | ROUTE_WS, .handler = route_ws },
};

static struct rig g;
static struct worker worker;
static struct devset *set;
static struct residency *res;
static unsigned port;

static void before(struct rig *r)
{
    berth_err err = { 0 };
    struct dev_env env = { 0 };
    memset(&worker, 0, sizeof worker);
    pthread_mutex_init(&worker.lock, NULL);
    set = open_devices("cpu=64m,null:0=32m", &env);
    assert_ok(residency_new(&(struct res_config) { .devices = set }, &res, &err), err);
    worker.clock = clock_system();
    worker.parts.devices = set;
    worker.parts.res = res;
    r->s.worker = &worker;
    assert_ok(store_open(&(struct store_config) { .path = ":memory:" }, &r->s.store, &err), err);
}

static int setup(void **state)
{
    (void)state;
    rig_open_with(&g, &(struct server_config) { 0 }, routes, ARRAY_LEN(routes), NULL, before);
    port = loop_port(&g.s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&g);
    store_close(g.s.store);
    residency_free(res);
    devset_close(set);
    pthread_mutex_destroy(&worker.lock);
    return 0;
}

/* A client that asked for it. */
static int reader(const char *sid)
{
    int fd = ws_named(port, sid);
    ws_say(fd, "{\"type\":\"feature_flags\",\"data\":{\"berth\":true}}");
    struct frame f = ws_hear(fd);
    assert_non_null(strstr(str_c(&f.data), "\"feature_flags\""));
    str_release(&f.data);
    return fd;
}

/* The data of the next message; owned. */
static json_t *next(int fd)
{
    struct frame f = ws_hear(fd);
    json_t *v = json_loads(str_c(&f.data), 0, NULL);
    assert_non_null(v);
    assert_string_equal(json_string_value(json_object_get(v, "type")), "berth.memory");
    json_t *data = json_incref(json_object_get(v, "data"));
    json_decref(v);
    str_release(&f.data);
    return data;
}

static int64_t used(const json_t *data, size_t device, const char *kind)
{
    const json_t *d = json_array_get(json_object_get(data, "devices"), device);
    return kind ? json_integer_value(json_object_get(json_object_get(d, "by"), kind))
                : json_integer_value(json_object_get(d, "used"));
}

static void message_keeps_its_bytes(void **state)
{
    (void)state;
    int fd = reader("bytes");
    struct frame f = ws_hear(fd);
    expect_bytes(&f.data,
                 "{\"type\":\"berth.memory\",\"data\":{\"time\":0,\"devices\":[{\"name\":\"cpu\","
                 "\"kind\":\"cpu\",\"budget\":0,\"used\":0,\"by\":{\"weights\":0,\"staging\":0,"
                 "\"activations\":0,\"pinned\":0,\"pool-idle\":0}},{\"name\":\"null:0\",\"kind\":"
                 "\"null\",\"budget\":0,\"used\":0,\"by\":{\"weights\":0,\"staging\":0,"
                 "\"activations\":0,\"pinned\":0,\"pool-idle\":0}}],\"stream\":{\"bytes\":0,"
                 "\"seconds\":0.0,\"exposed_seconds\":0.0,\"gb_per_s\":0.0}}}");
    close(fd);
}

/* Reads until that many bytes of activations are on null:0. */
static void until_used(int fd, int64_t n)
{
    for (bool there = false; !there;) {
        json_t *d = next(fd);
        there = used(d, 1, "activations") == n && used(d, 1, NULL) == n;
        json_decref(d);
    }
}

static void follows_the_ledger(void **state)
{
    struct dev_owner *owner;
    struct dev_mem mem;
    berth_err err = { 0 };
    (void)state;
    int fd = reader("a"), other = reader("b");
    json_t *first = next(fd);
    assert_int_equal(used(first, 1, NULL), 0);
    assert_int_equal(json_array_size(json_object_get(first, "devices")), 2);
    assert_true(json_integer_value(json_object_get(first, "time")) > 1600000000000);
    json_decref(first);
    struct device *d = device_named(set, "null:0");
    assert_ok(dev_owner_open(d, "test", DEV_ACTIVATIONS, &owner, &err), err);
    for (int i = 0; i < 3; i++) {
        assert_ok(dev_alloc(d, owner, 1 << 20, &mem, &err), err);
        until_used(fd, 1 << 20);
        until_used(other, 1 << 20);
        dev_free(&mem);
        until_used(fd, 0);
    }
    dev_owner_close(owner);
    close(fd);
    close(other);
}

static void follows_streams(void **state)
{
    (void)state;
    int fd = reader("a");
    json_decref(next(fd));
    atomic_fetch_add(&res->streamed.bytes, 1000000000);
    atomic_fetch_add(&res->streamed.copy_ns, 500000000);
    atomic_fetch_add(&res->streamed.exposed_ns, 250000000);
    double speed = 0;
    for (bool ended = false; !ended;) { /* it comes, and goes back to nothing */
        json_t *d = next(fd), *x = json_object_get(d, "stream");
        double now = json_number_value(json_object_get(x, "gb_per_s"));
        if (now > 0) {
            assert_int_equal(json_integer_value(json_object_get(x, "bytes")), 1000000000);
            assert_true(json_number_value(json_object_get(x, "exposed_seconds")) <= 0.25);
            speed = now;
        }
        ended = speed > 0 && now <= 0;
        json_decref(d);
    }
    close(fd);
}

static void set_job(const struct store_job *job)
{
    pthread_mutex_lock(&worker.lock);
    worker.job = job;
    pthread_mutex_unlock(&worker.lock);
}

/* Nothing changes, and still it is told: a client sees that the server is there. */
static void goes_on_while_a_prompt_runs(void **state)
{
    struct store_job job = { 0 };
    (void)state;
    int fd = reader("a");
    set_job(&job);
    for (int i = 0; i < 4; i++)
        json_decref(next(fd));
    set_job(NULL);
    ws_say(fd, "{}");
    close(fd);
    fd = reader("b"); /* the first one is gone; the next is told at once again */
    json_decref(next(fd));
    close(fd);
}

static void send_numbered(int k)
{
    struct str s = { 0 };
    str_addf(&s, "%06d", k);
    str_pad(&s, '.', 100000);
    hub_send_berth(&g.s, true, &s);
}

static void send_text(const char *text)
{
    struct str s = { 0 };
    str_adds(&s, text);
    hub_send(&g.s, NULL, &s);
}

/* Who is behind gets the newest; who did not ask gets none. */
static void readers_alone_and_the_newest(void **state)
{
    enum { N = 400 };
    int last = -1, seen = 0;
    (void)state;
    int plain = ws_named(port, "plain"), slow = reader("slow");
    json_decref(next(slow));
    for (int i = 0; i < N; i++)
        send_numbered(i);
    send_text("the end");
    ws_expect(plain, WS_TEXT, "the end");
    for (bool end = false; !end;) {
        struct frame f = ws_hear(slow);
        end = !strcmp(str_c(&f.data), "the end");
        if (!end && f.data.p[0] != '{') { /* and not one of its own */
            int k = (int)strtol(f.data.p, NULL, 10);
            assert_true(k > last);
            last = k;
            seen++;
        }
        str_release(&f.data);
    }
    assert_int_equal(last, N - 1);
    assert_true(seen < N);
    close(plain);
    close(slow);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(message_keeps_its_bytes, setup, teardown),
        cmocka_unit_test_setup_teardown(follows_the_ledger, setup, teardown),
        cmocka_unit_test_setup_teardown(follows_streams, setup, teardown),
        cmocka_unit_test_setup_teardown(goes_on_while_a_prompt_runs, setup, teardown),
        cmocka_unit_test_setup_teardown(readers_alone_and_the_newest, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
