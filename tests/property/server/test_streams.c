/* How a stream is cut into pieces never changes what it says: random requests and frames, right and
 * slightly wrong, whole against cut at random. */
#include "support/rng.h"
#include "support/seed.h"

#include "support/streams.h"

enum { ROUNDS = 4000 };

static size_t random_cut(void *user)
{
    struct rng *r = user;
    return 1 + rng_below(r, rng_below(r, 4) ? 4 : 200);
}

static void add_one(struct str *s, struct rng *r, const char *const *all, size_t n)
{
    str_adds(s, all[rng_below(r, n)]);
}
#define ADD_ONE(s, r, all) add_one(s, r, all, ARRAY_LEN(all))

static void random_request(struct str *s, struct rng *r)
{
    static const char *const methods[] = { "GET", "POST", "HEAD", "OPTIONS", "X-Y" };
    static const char *const targets[] = { "/", "/a?b=c", "*", "http://h/x", "/%2f%00", "?", "" };
    static const char *const versions[] = { "HTTP/1.1", "HTTP/1.1", "HTTP/1.1",
                                            "HTTP/1.0", "HTTP/2.0", "HTTP/1" };
    static const char *const fields[] = { "Connection: close\r\n",
                                          "Connection: Upgrade, x\r\n",
                                          "Upgrade: websocket\r\n",
                                          "Expect: 100-continue\r\n",
                                          "Content-Length: 5\r\n",
                                          "Content-Length: 4097\r\n",
                                          "X: y\r\n",
                                          " folded\r\n",
                                          "X :y\r\n",
                                          "X:\ty\x80 \r\n" };
    static const char *const chunks[] = { "5\r\nabcde\r\n",       "1;x\r\n.\r\n", "0\r\n",
                                          "0a\r\n0123456789\r\n", "fff\r\n",      "x" };
    ADD_ONE(s, r, methods);
    str_addc(s, ' ');
    ADD_ONE(s, r, targets);
    str_addc(s, ' ');
    ADD_ONE(s, r, versions);
    str_adds(s, "\r\nHost: h\r\n");
    bool chunked = !rng_below(r, 3);
    if (chunked)
        str_adds(s, "Transfer-Encoding: chunked\r\n");
    for (size_t i = rng_below(r, 3); i > 0; i--)
        ADD_ONE(s, r, fields);
    str_adds(s, "\r\n");
    if (!chunked) {
        str_adds(s, rng_below(r, 2) ? "12345" : "");
        return;
    }
    for (size_t i = rng_below(r, 4); i > 0; i--)
        ADD_ONE(s, r, chunks);
    str_adds(s, "0\r\n");
    if (!rng_below(r, 3))
        str_adds(s, "Trailer: x\r\n");
    str_adds(s, "\r\n");
}

static void random_frame(struct str *s, struct rng *r)
{
    static const uint8_t firsts[] = { 0x81, 0x82, 0x01, 0x02, 0x00, 0x80, 0x89, 0x8a, 0x88, 0x83 };
    size_t n = rng_below(r, 3) ? rng_below(r, 20) : rng_below(r, 1000);
    str_addc(s, (char)firsts[rng_below(r, rng_below(r, 3) ? 2 : ARRAY_LEN(firsts))]);
    str_addc(s, (char)(0x80 | (n > 125 ? 126 : n)));
    if (n > 125)
        str_addc(s, (char)(n >> 8)), str_addc(s, (char)n);
    for (size_t i = 0; i < n + 4; i++)
        str_addc(s, (char)(i < 4 ? 0x20 : rng_below(r, 300) ? 'a' : 0xff));
}

static void spoil(struct str *s, struct rng *r)
{
    if (s->n && !rng_below(r, 3))
        s->p[rng_below(r, s->n)] = (char)rng_u64(r);
}

static void requests(void **state)
{
    (void)state;
    struct rng r = { running = rng_seed() };
    for (int k = 0; k < ROUNDS; k++) {
        struct str s = { 0 }, whole = { 0 }, cut = { 0 };
        for (size_t i = 1 + rng_below(&r, 3); i > 0; i--)
            random_request(&s, &r);
        spoil(&s, &r);
        stream_http1(s.p, s.n, NULL, NULL, &whole);
        stream_http1(s.p, s.n, random_cut, &r, &cut);
        assert_string_equal(str_c(&cut), str_c(&whole));
        str_release(&s);
        str_release(&whole);
        str_release(&cut);
    }
    running = 0;
}

static void frames(void **state)
{
    (void)state;
    struct rng r = { running = rng_seed() };
    for (int k = 0; k < ROUNDS; k++) {
        struct str s = { 0 }, copy = { 0 }, whole = { 0 }, cut = { 0 };
        for (size_t i = 1 + rng_below(&r, 4); i > 0; i--)
            random_frame(&s, &r);
        spoil(&s, &r);
        str_add(&copy, s.p, s.n);
        stream_ws(copy.p, copy.n, false, NULL, NULL, &whole);
        stream_ws(s.p, s.n, false, random_cut, &r, &cut);
        assert_int_equal(cut.n, whole.n);
        assert_memory_equal(str_c(&cut), str_c(&whole), whole.n);
        str_release(&s);
        str_release(&copy);
        str_release(&whole);
        str_release(&cut);
    }
    running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(requests, say_seed),
        cmocka_unit_test_teardown(frames, say_seed),
    };
    signal(SIGABRT, say_seed_and_die);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
