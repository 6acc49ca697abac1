/* Where it ends: time, sockets, memory, output, and what happens without memory at all. */
#include "support/http_routes.h"
#include "support/oom.h"

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
        rig_post(&g.s, look_at_held, &gone);
        usleep(1000);
    }
    fd = dial(port);
    say(fd, post.p, post.n);
    struct answer a = hear(fd);
    assert_int_equal(a.status, 503);
    answer_release(&a);
    close(fd);
    rig_post(&g.s, let_go, &connected);
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
        rig_post(&g.s, count_conns, &conns);
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

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(times_out, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(too_many_sockets, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(too_much_in_memory, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(too_much_of_the_gone, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(nobody_looks, setup, teardown),
        cmocka_unit_test_setup_teardown(too_much_unread, setup_little_room, teardown),
        cmocka_unit_test_setup_teardown(dripping, setup_hasty, teardown),
        cmocka_unit_test_setup_teardown(requests_survive_oom, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
