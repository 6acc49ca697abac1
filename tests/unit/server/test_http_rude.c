/* Clients that close half, leave meanwhile, reset, send garbage or read nothing: each costs
 * itself. */
#include "support/http_routes.h"

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
            rig_post(&g.s, look_at_held, &gone);
            wait_for_none();
        }
        rig_post(&g.s, let_go, &was_there);
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
    rig_post(&g.s, let_go, &was_there);
    struct answer a = hear(fd);
    assert_string_equal(str_c(&a.body), "at last");
    assert_true(was_there);
    answer_release(&a);
    close(fd);
}

/* Routes hear of it long before: what such a client waits for need not be begun any more. It still
 * gets a reply if it reads one. */
static void who_hangs_up_is_seen(void **state)
{
    struct loop_limits lim = LOOP_LIMITS_DEFAULT;
    bool was_there = false;
    (void)state;
    lim.look = 50;
    open_with(&(struct server_config) { 0 }, &lim);
    int fd = dial(port);
    says(fd, "GET /held HTTP/1.1\r\nHost: localhost\r\n\r\n");
    while (!atomic_load(&held))
        usleep(1000);
    usleep(400000); /* looked at, and still there */
    assert_false(atomic_load(&atomic_load(&held)->hung_up));
    shutdown(fd, SHUT_WR);
    while (!atomic_load(&atomic_load(&held)->hung_up))
        usleep(1000);
    assert_false(atomic_load(&atomic_load(&held)->left));
    rig_post(&g.s, let_go, &was_there);
    struct answer a = hear(fd);
    assert_string_equal(str_c(&a.body), "at last");
    assert_true(was_there);
    answer_release(&a);
    close(fd);
    teardown(NULL);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(half_closed_clients_get_their_reply, setup, teardown),
        cmocka_unit_test_setup_teardown(clients_that_leave_meanwhile, setup_watchful, teardown),
        cmocka_unit_test(who_hangs_up_is_seen),
        cmocka_unit_test(the_end_has_an_end),
        cmocka_unit_test_setup_teardown(garbage, setup, teardown),
        cmocka_unit_test_setup_teardown(resets, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_readers_hold_nobody, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
