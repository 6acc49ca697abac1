/* Requests and replies on real sockets: what a well-behaved client sees. */
#include "support/http_routes.h"

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
        cmocka_unit_test_setup_teardown(bodies_that_nobody_wants, setup, teardown),
        cmocka_unit_test_setup_teardown(cors, setup_cors, teardown),
        cmocka_unit_test_setup_teardown(compresses, setup_cors, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
