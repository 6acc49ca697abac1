#include "support/oom.h"
#include "support/test.h"

#include "base/str.h"
#include "server/http1.h"

#define HOST "Host: a\r\n"
#define MAX_BODY 1000

/* What became of a stream of requests, as text: "GET /x?q [body] " each, or the status at the
 * end. */
static void tell(const char *p, size_t n, size_t step, struct str *out)
{
    struct http1 h;
    http1_init(&h);
    for (size_t at = 0, end = 0; at < n || end < n;) {
        end = end + step < n ? end + step : n;
        for (;;) {
            size_t used, piece_n;
            const char *piece;
            int status;
            enum http1_got got =
                http1_feed(&h, p + at, end - at, MAX_BODY, &used, &piece, &piece_n, &status);
            assert_true(used <= end - at);
            at += used;
            if (got == HTTP1_MORE) {
                assert_int_equal(at, end);
                break;
            }
            if (got == HTTP1_HEAD)
                str_addf(out, "%s %s%s%s [", h.method, h.path, *h.query ? "?" : "", h.query);
            else if (got == HTTP1_BODY)
                str_add(out, piece, piece_n);
            else if (got == HTTP1_END)
                str_adds(out, "] "), http1_release(&h);
            if (got == HTTP1_BAD) {
                str_addf(out, "%d", status);
                assert_int_equal(http1_feed(&h, "x", 1, 0, &used, &piece, &piece_n, &status),
                                 HTTP1_BAD);
                assert_int_equal(used, 0);
                at = end = n;
                break;
            }
        }
    }
    http1_release(&h);
}

static void becomes_n(const char *stream, size_t n, const char *want, int line)
{
    static const size_t steps[] = { SIZE_MAX / 2, 1, 2, 3, 7, 64 };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct str got = { 0 };
        tell(stream, n, steps[i], &got);
        if (strcmp(str_c(&got), want) != 0)
            fail_msg("line %d, %zu bytes at a time: '%s', wanted '%s'", line, steps[i], str_c(&got),
                     want);
        str_release(&got);
    }
}
#define becomes(stream, want) becomes_n(stream, strlen(stream), want, __LINE__)

static void plain(void **state)
{
    (void)state;
    becomes("GET / HTTP/1.1\r\n" HOST "\r\n", "GET / [] ");
    becomes("GET /a%2Fb?x=1?y HTTP/1.1\r\n" HOST "\r\n", "GET /a%2Fb?x=1?y [] ");
    becomes("GET /? HTTP/1.1\r\n" HOST "\r\n", "GET / [] ");
    becomes("GET /\xc3\xbc HTTP/1.1\r\n" HOST "\r\n", "GET /\xc3\xbc [] ");
    becomes("OPTIONS * HTTP/1.1\r\n" HOST "\r\n", "OPTIONS * [] ");
    becomes("GET / HTTP/1.0\r\n\r\n", "GET / [] ");
    becomes("GET / HTTP/1.9\r\n" HOST "\r\n", "GET / [] ");
    becomes("get!x / HTTP/1.1\r\n" HOST "\r\n", "get!x / [] ");
    becomes("POST /p HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nabc", "POST /p [abc] ");
    becomes("POST /p HTTP/1.1\r\n" HOST "Content-Length: 0\r\n\r\n", "POST /p [] ");
    becomes("POST /p HTTP/1.1\r\n" HOST "Content-Length: 0003\r\n\r\nabc", "POST /p [abc] ");
    becomes("POST /p HTTP/1.1\r\n" HOST "Content-Length: 3\r\n\r\nab", "POST /p [ab");
    becomes("\r\n\r\nGET / HTTP/1.1\r\n" HOST "\r\n", "GET / [] ");
    becomes("GET / HTT", "");
}

static void absolute_targets(void **state)
{
    (void)state;
    becomes("GET http://a/x?y HTTP/1.1\r\n" HOST "\r\n", "GET /x?y [] ");
    becomes("GET HTTPS://A/x HTTP/1.1\r\n" HOST "\r\n", "GET /x [] ");
    becomes("GET http://a HTTP/1.1\r\n" HOST "\r\n", "GET / [] ");
    becomes("GET http://a?y HTTP/1.1\r\n" HOST "\r\n", "GET /?y [] ");
    becomes("GET http://b/x HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET http:///x HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET ftp://a/x HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET a/x HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET http HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET * HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("CONNECT a:80 HTTP/1.1\r\n" HOST "\r\n", "501");
}

static void pipelines(void **state)
{
    (void)state;
    becomes("GET /1 HTTP/1.1\r\n" HOST "\r\nGET /2 HTTP/1.1\r\n" HOST "\r\n",
            "GET /1 [] GET /2 [] ");
    becomes("POST /1 HTTP/1.1\r\n" HOST "Content-Length: 2\r\n\r\nabGET /2 HTTP/1.1\r\n" HOST
            "\r\n",
            "POST /1 [ab] GET /2 [] ");
    becomes("POST /1 HTTP/1.1\r\n" HOST "Transfer-Encoding: chunked\r\n\r\n"
            "2\r\nab\r\n0\r\n\r\n\r\nGET /2 HTTP/1.1\r\n" HOST "\r\nGARBAGE\r\n\r\n",
            "POST /1 [ab] GET /2 [] 400");
}

#define CHUNKED "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: Chunked\r\n\r\n"

static void chunked_bodies(void **state)
{
    (void)state;
    becomes(CHUNKED "0\r\n\r\n", "POST / [] ");
    becomes(CHUNKED "3\r\nabc\r\n0\r\n\r\n", "POST / [abc] ");
    becomes(CHUNKED "3\r\nabc\r\n00A\r\n0123456789\r\n000\r\n\r\n", "POST / [abc0123456789] ");
    becomes(CHUNKED "3;a=b;c=\"d\t e\"\r\nabc\r\n0;last\r\n\r\n", "POST / [abc] ");
    becomes(CHUNKED "1\r\na\r\n0\r\nSum: 1 2\r\nX:\r\n\r\n", "POST / [a] ");
    becomes(CHUNKED "\r\n", "POST / [400");
    becomes(CHUNKED "g\r\n", "POST / [400");
    becomes(CHUNKED "-1\r\n", "POST / [400");
    becomes(CHUNKED "0x1\r\n", "POST / [400");
    becomes(CHUNKED "1 \r\na\r\n", "POST / [400");
    becomes(CHUNKED " 1\r\na\r\n", "POST / [400");
    becomes(CHUNKED ";a\r\n", "POST / [400");
    becomes(CHUNKED "1\na\r\n", "POST / [400");
    becomes(CHUNKED "1\rXa\r\n", "POST / [400");
    becomes(CHUNKED "1;a\nb\r\na\r\n", "POST / [400"); /* a line end for some is text for others */
    becomes(CHUNKED "1;a\rb\r\na\r\n", "POST / [400");
    becomes(CHUNKED "1\r\nab\r\n", "POST / [a400");
    becomes(CHUNKED "1\r\na\n\r0\r\n", "POST / [a400");
    becomes(CHUNKED "1\r\na\r0\r\n", "POST / [a400");
    becomes(CHUNKED "0000000000000001\r\na\r\n0\r\n\r\n", "POST / [a] ");
    becomes(CHUNKED "00000000000000001\r\na\r\n", "POST / [400");
    becomes(CHUNKED "ffffffffffffffff\r\n", "POST / [413");
    becomes(CHUNKED "3e8\r\n", "POST / [");
    becomes(CHUNKED "3e9\r\n", "POST / [413");
    becomes(CHUNKED "1\r\na\r\n3e8\r\n", "POST / [a413");
    becomes(CHUNKED "0\r\n folded: 1\r\n\r\n", "POST / [400");
    becomes(CHUNKED "0\r\n: 1\r\n\r\n", "POST / [400");
    becomes(CHUNKED "0\r\nno colon\r\n\r\n", "POST / [400");
    becomes(CHUNKED "0\r\na:b\n\r\n", "POST / [400");
    becomes(CHUNKED "0\r\na:b\rc\r\n\r\n", "POST / [400");
    becomes(CHUNKED "0\r\n\rx", "POST / [400");
    becomes(CHUNKED "0\r\na:\x01\r\n\r\n", "POST / [400");
}

/* Ways to make two parsers see two different requests. */
static void smuggling(void **state)
{
    (void)state;
    static const char *const fields[] = {
        "Content-Length: 3\r\nContent-Length: 4\r\n",
        "Content-Length: 3\r\nContent-Length: 3\r\n",
        "Content-Length: 3, 3\r\n",
        "Content-Length: 3 3\r\n",
        "Content-Length: +3\r\n",
        "Content-Length: -3\r\n",
        "Content-Length: 0x3\r\n",
        "Content-Length: 3;\r\n",
        "Content-Length: \"3\"\r\n",
        "Content-Length:\r\n",
        "Content-Length : 3\r\n",
        "Content-Length\t: 3\r\n",
        " Content-Length: 3\r\n",
        "X: y\r\n Content-Length: 3\r\n",
        "X: y\r\n\tz\r\n",
        "Content-Length\r\n",
        ": 3\r\n",
        "Content\x0b-Length: 3\r\n",
        "Content-Length: 3\nX: y\r\n",
        "Content-Length: 3\rX: y\r\n",
        "Content-Length: 3\r\r\n",
        "X: \x01\r\n",
        "X: \x7f\r\n",
        "X: \x0b\r\n",
        "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nContent-Length: 3\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
        "Transfer-Encoding : chunked\r\n",
        "Transfer-Encoding: \013chunked\r\n",
        "Transfer_Encoding: chunked\r\nTransfer-Encoding:\r\n chunked\r\n",
        "Host: b\r\n",
        "Host: a\r\n",
        "(x): y\r\n",
        "X\xc3\xbc: y\r\n",
    };
    static const char *const codings[] = { "identity",      "gzip, chunked",
                                           "chunked, gzip", "chunked, chunked",
                                           "xchunked",      "chunked;q=1",
                                           "chunked,",      "" };
    struct str s = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(fields); i++) {
        str_clear(&s);
        str_addf(&s, "POST / HTTP/1.1\r\n" HOST "%s\r\n", fields[i]);
        becomes_n(s.p, s.n, "400", (int)i);
    }
    for (size_t i = 0; i < ARRAY_LEN(codings); i++) {
        str_clear(&s);
        str_addf(&s, "POST / HTTP/1.1\r\n" HOST "Transfer-Encoding: %s\r\n\r\n", codings[i]);
        becomes_n(s.p, s.n, "501", (int)i);
    }
    str_release(&s);
    becomes_n("GET / HTTP/1.1\r\nHost: a\0b\r\n\r\n", 29, "400", __LINE__);
    becomes_n("GET /\0 HTTP/1.1\r\nHost: a\r\n\r\n", 29, "400", __LINE__);
    becomes("POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n", "400");
    becomes("GET / HTTP/1.1\r\n\r\n", "400"); /* no Host */
    becomes("GET / HTTP/1.1\r\nHost: a b\r\n\r\n", "400");
    becomes("GET / HTTP/1.1\r\nHost: a/b\r\n\r\n", "400");
    becomes("GET / HTTP/1.1\r\nHost: u@a\r\n\r\n", "400");
    becomes("GET / HTTP/1.1\r\nHost: a, b\r\n\r\n", "400");
    becomes("GET / HTTP/1.1\r\nHost: [::1]:8188\r\n\r\n", "GET / [] ");
}

static void request_lines(void **state)
{
    (void)state;
    becomes("GET /\r\n\r\n", "400");
    becomes("GET  / HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET /  HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET / HTTP/1.1 \r\n" HOST "\r\n", "400");
    becomes(" GET / HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET\t/ HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET /\t HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET /#a HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("G(T / HTTP/1.1\r\n" HOST "\r\n", "400");
    becomes("GET / http/1.1\r\n" HOST "\r\n", "400");
    becomes("GET / HTTP/1.11\r\n" HOST "\r\n", "400");
    becomes("GET / HTTP/0.9\r\n" HOST "\r\n", "400");
    becomes("GET / HTTP/1.\r\n" HOST "\r\n", "400");
    becomes("GET / HTTP/2.0\r\n" HOST "\r\n", "505");
    becomes("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "505");
    becomes("GET / HTTP/1.1\n" HOST "\r\n", "400");
    becomes("ABCDEFGHIJKLMNOPQRSTUVWXYZABCDEFGHIJK / HTTP/1.1\r\n" HOST "\r\n", "501");
    becomes("\r\n\r\n\r\n\r\n\r\n", "400");
    becomes("\n", "400");
    becomes("\x16\x03\x01\x02", ""); /* TLS on a plain port: nothing said yet, */
    becomes("\x16\x03\x01\x02 / HTTP/1.1\r\n\r\n", "400");
}

static void fill(struct str *s, const char *before, char c, size_t n, const char *after)
{
    str_clear(s);
    str_adds(s, before);
    str_pad(s, c, s->n + n);
    str_adds(s, after);
}

static void limits(void **state)
{
    (void)state;
    struct str s = { 0 };
    size_t line = strlen("GET / HTTP/1.1\r\n"), rest = line + strlen(HOST) + strlen("X:\r\n\r\n");
    fill(&s, "GET /", 'a', HTTP1_LINE_MAX - line, " HTTP/1.1\r\n" HOST "\r\n");
    struct str got = { 0 };
    tell(s.p, s.n, s.n, &got);
    assert_true(str_ends(got.p, got.n, "a [] "));
    str_release(&got);
    fill(&s, "GET /", 'a', HTTP1_LINE_MAX - line + 1, " HTTP/1.1\r\n" HOST "\r\n");
    becomes_n(s.p, s.n, "414", __LINE__);
    fill(&s, "GET / HTTP/1.1\r\n" HOST "X:", 'a', HTTP1_HEAD_MAX - rest, "\r\n\r\n");
    becomes_n(s.p, s.n, "GET / [] ", __LINE__);
    fill(&s, "GET / HTTP/1.1\r\n" HOST "X:", 'a', HTTP1_HEAD_MAX - rest + 1, "\r\n\r\n");
    becomes_n(s.p, s.n, "431", __LINE__);
    for (size_t extra = 0; extra < 2; extra++) {
        fill(&s, "GET / HTTP/1.1\r\n" HOST, 'a', 0, "");
        for (size_t i = 1; i < HTTP1_FIELDS_MAX + extra; i++)
            str_adds(&s, "a:b\r\n");
        str_adds(&s, "\r\n");
        becomes_n(s.p, s.n, extra ? "431" : "GET / [] ", __LINE__);
    }
    fill(&s, CHUNKED "1;", 'x', 16384, "\r\na\r\n0\r\n\r\n");
    becomes_n(s.p, s.n, "POST / [a] ", __LINE__);
    fill(&s, CHUNKED "1;", 'x', 16384, "\r\na\r\n1;y\r\n");
    becomes_n(s.p, s.n, "POST / [a400", __LINE__);
    fill(&s, CHUNKED "0\r\nX:", 'x', HTTP1_HEAD_MAX, "\r\n\r\n");
    becomes_n(s.p, s.n, "POST / [431", __LINE__);
    becomes("POST / HTTP/1.1\r\n" HOST "Content-Length: 1001\r\n\r\n", "POST / [413");
    becomes("POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551615\r\n\r\n",
            "POST / [413");
    becomes("POST / HTTP/1.1\r\n" HOST "Content-Length: 18446744073709551616\r\n\r\n", "413");
    str_release(&s);
}

static void head_of(struct http1 *h, const char *text)
{
    size_t used, piece_n;
    const char *piece;
    int status;
    http1_init(h);
    assert_int_equal(http1_feed(h, text, strlen(text), MAX_BODY, &used, &piece, &piece_n, &status),
                     HTTP1_HEAD);
}

static void fields_and_flags(void **state)
{
    (void)state;
    struct http1 h;
    head_of(&h, "GET / HTTP/1.1\r\nHOST: a\r\nX-Y:  \t two words \t \r\nEmpty:\r\nx-y: z\r\n"
                "Connection: keep-alive, Upgrade\r\nconnection: foo\r\nUpgrade: WebSocket\r\n\r\n");
    assert_string_equal(h.field[0].name, "host");
    assert_string_equal(http1_get(&h, "X-y"), "two words");
    assert_string_equal(http1_get(&h, "empty"), "");
    assert_null(http1_get(&h, "x"));
    assert_true(http1_has(&h, "connection", "FOO") && http1_has(&h, "Connection", "upgrade"));
    assert_false(http1_has(&h, "connection", "up") || http1_has(&h, "connection", ""));
    assert_true(h.keep_alive && h.upgrade && !h.expect_continue && !h.has_length && !h.http10);
    http1_release(&h);
    head_of(&h, "GET / HTTP/1.1\r\n" HOST "Connection: ,close ,\r\nExpect: 100-continue\r\n\r\n");
    assert_true(!h.keep_alive && !h.upgrade && !h.expect_continue); /* no body to wait for */
    http1_release(&h);
    head_of(&h, "PUT / HTTP/1.1\r\n" HOST "Expect: 100-Continue\r\nContent-Length: 5\r\n\r\n");
    assert_true(h.keep_alive && h.expect_continue && h.has_length && h.length == 5);
    http1_release(&h);
    head_of(&h, "PUT / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 5\r\n\r\n");
    assert_true(!h.keep_alive && !h.expect_continue && h.http10);
    http1_release(&h);
    head_of(&h, "GET / HTTP/1.0\r\nConnection: Keep-Alive\r\nUpgrade: websocket\r\n\r\n");
    assert_true(h.keep_alive && !h.upgrade);
    http1_release(&h);
}

/* Known without a byte more: the end, and a body that is too large for its route. */
static void without_bytes(void **state)
{
    (void)state;
    struct http1 h;
    size_t used, piece_n;
    const char *piece;
    int status;
    head_of(&h, "GET / HTTP/1.1\r\n" HOST "\r\n");
    for (int i = 0; i < 2; i++)
        assert_int_equal(http1_feed(&h, "GET", 3, 0, &used, &piece, &piece_n, &status), HTTP1_END);
    assert_int_equal(used, 0);
    http1_release(&h);
    head_of(&h, "PUT / HTTP/1.1\r\n" HOST "Content-Length: 5\r\n\r\n");
    assert_int_equal(http1_feed(&h, NULL, 0, 4, &used, &piece, &piece_n, &status), HTTP1_BAD);
    assert_int_equal(status, 413);
    http1_release(&h);
}

static void out_of_memory(void **state)
{
    (void)state;
    struct str s = { 0 };
    fill(&s, "GET /", 'a', 5000, " HTTP/1.1\r\n" HOST "\r\n");
    enum http1_got got = HTTP1_BAD;
    for (long k = 0; got != HTTP1_HEAD; k++) {
        struct http1 h;
        size_t used, piece_n;
        const char *piece;
        int status;
        http1_init(&h);
        oom_after(k);
        got = http1_feed(&h, s.p, s.n, 0, &used, &piece, &piece_n, &status);
        oom_off();
        assert_true(got == HTTP1_HEAD || (got == HTTP1_BAD && status == 503));
        http1_release(&h);
    }
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(plain),         cmocka_unit_test(absolute_targets),
        cmocka_unit_test(pipelines),     cmocka_unit_test(chunked_bodies),
        cmocka_unit_test(smuggling),     cmocka_unit_test(request_lines),
        cmocka_unit_test(limits),        cmocka_unit_test(fields_and_flags),
        cmocka_unit_test(without_bytes), cmocka_unit_test(out_of_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
