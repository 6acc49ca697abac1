#include "support/oom.h"
#include "support/test.h"

#include "server/wsframe.h"

/* A client's frame: masked, any first byte, any length form (0: the shortest). */
static void frame_as(struct str *s, unsigned b0, const char *p, size_t n, int wide)
{
    static const char mask[4] = { 0x11, 0x00, (char)0xfe, 0x7a };
    if (!wide)
        wide = n <= 125 ? 1 : n <= 0xffff ? 2 : 8;
    str_addc(s, (char)b0);
    str_addc(s, (char)(0x80 | (wide == 1 ? n : wide == 2 ? 126 : 127)));
    for (int i = wide - 1; wide > 1 && i >= 0; i--)
        str_addc(s, (char)((uint64_t)n >> 8 * i));
    str_add(s, mask, 4);
    for (size_t i = 0; i < n; i++)
        str_addc(s, (char)(p[i] ^ mask[i % 4]));
}

static void frame(struct str *s, unsigned b0, const char *text)
{
    frame_as(s, b0, text, strlen(text), 0);
}

/* "1:text 9:ping " ..., or the close code at the end. s is left as it was. */
static void tell(const struct str *s, size_t step, struct str *out)
{
    struct wsframe w = { .max_message = 70000 };
    char *copy = malloc(s->n + 1);
    assert_non_null(copy);
    memcpy(copy, s->p, s->n);
    for (size_t at = 0, end = 0; end < s->n;) {
        end = end + step < s->n ? end + step : s->n;
        enum ws_got got = WS_GOT_MESSAGE;
        while (got != WS_GOT_MORE && got != WS_GOT_BAD) {
            size_t used, n;
            enum ws_op op;
            const char *data;
            unsigned code;
            got = wsframe_feed(&w, copy + at, end - at, &used, &op, &data, &n, &code);
            at += used;
            if (got == WS_GOT_BAD)
                str_addf(out, "%u", code);
            else if (got != WS_GOT_MORE)
                str_addf(out, "%d:%.*s%s ", (int)op, n > 99 ? 3 : (int)n, data, n > 99 ? ".." : "");
        }
        if (got == WS_GOT_BAD)
            break;
        assert_int_equal(at, end);
    }
    free(copy);
    wsframe_release(&w);
}

static void becomes_at(struct str *s, const char *want, int line)
{
    static const size_t steps[] = { SIZE_MAX / 2, 1, 2, 3, 1000 };
    for (size_t i = 0; i < ARRAY_LEN(steps); i++) {
        struct str got = { 0 };
        tell(s, steps[i], &got);
        if (strcmp(str_c(&got), want) != 0)
            fail_msg("line %d, %zu bytes at a time: '%s', wanted '%s'", line, steps[i], str_c(&got),
                     want);
        str_release(&got);
    }
    str_clear(s);
}
#define becomes(s, want) becomes_at(s, want, __LINE__)

enum { FIN = 0x80 };

static void messages(void **state)
{
    (void)state;
    struct str s = { 0 };
    frame(&s, FIN | WS_TEXT, "hello");
    frame(&s, FIN | WS_BINARY, "");
    frame(&s, FIN | WS_TEXT, "\xc3\xbc");
    becomes(&s, "1:hello 2: 1:\xc3\xbc ");
    frame(&s, WS_TEXT, "a\xc3"); /* a character cut in two by fragments */
    frame(&s, FIN | WS_PING, "p");
    frame(&s, WS_CONT, "");
    frame(&s, FIN | WS_PONG, "");
    frame(&s, FIN | WS_CONT,
          "\xbc"
          "b");
    frame(&s, FIN | WS_TEXT, "c");
    becomes(&s, "9:p 10: 1:a\xc3\xbc"
                "b 1:c ");
    static char big[70001];
    memset(big, 'x', sizeof big);
    frame_as(&s, FIN | WS_TEXT, big, 126, 0);
    frame_as(&s, FIN | WS_TEXT, big, 65535, 0);
    frame_as(&s, FIN | WS_TEXT, big, 65536, 0);
    frame_as(&s, FIN | WS_TEXT, big, 70000, 0);
    becomes(&s, "1:xxx.. 1:xxx.. 1:xxx.. 1:xxx.. ");
    frame_as(&s, FIN | WS_TEXT, big, 70001, 0);
    becomes(&s, "1009");
    frame_as(&s, WS_TEXT, big, 60000, 0);
    frame_as(&s, FIN | WS_CONT, big, 10001, 0);
    becomes(&s, "1009");
    str_add(&s,
            "\x81\xff\x7f\xff\xff\xff\xff\xff\xff\xff"
            "mask",
            14); /* announces 2^63-1 */
    becomes(&s, "1009");
    str_release(&s);
}

static void against_the_protocol(void **state)
{
    (void)state;
    static const unsigned firsts[] = {
        FIN | 3,  FIN | 7,       FIN | 11, FIN | 15, 0xc0 | WS_TEXT, 0xa0 | WS_TEXT,
        0x90 | 1, FIN | WS_CONT, WS_CONT,  WS_PING,  WS_CLOSE,       WS_PONG,
    };
    struct str s = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(firsts); i++) {
        frame(&s, firsts[i], "x");
        becomes(&s, "1002");
    }
    frame(&s, WS_TEXT, "a");
    frame(&s, FIN | WS_TEXT, "b");
    becomes(&s, "1002");
    frame_as(&s, FIN | WS_PING, "x", 1, 2); /* a control frame in a long form */
    becomes(&s, "1002");
    frame_as(&s, FIN | WS_TEXT, "x", 1, 2); /* longer than it must be */
    becomes(&s, "1002");
    frame_as(&s, FIN | WS_TEXT, "x", 1, 8);
    becomes(&s, "1002");
    str_add(&s,
            "\x81\xff\xff\xff\xff\xff\xff\xff\xff\xff"
            "mask",
            14);
    becomes(&s, "1002");
    str_add(&s, "\x81\x01x", 3); /* not masked */
    becomes(&s, "1002");
    frame(&s, FIN | WS_TEXT, "\xff");
    becomes(&s, "1007");
    frame(&s, FIN | WS_TEXT, "a\xed\xa0\x80");
    becomes(&s, "1007");
    frame(&s, FIN | WS_BINARY, "\xff");
    becomes(&s, "2:\xff ");
    str_release(&s);
}

static void closing(void **state)
{
    (void)state;
    static const struct {
        unsigned code, answer;
    } codes[] = { { 1000, 0 }, { 1003, 0 },    { 1004, 1002 }, { 1005, 1002 }, { 1006, 1002 },
                  { 1007, 0 }, { 1014, 0 },    { 1015, 1002 }, { 2999, 1002 }, { 3000, 0 },
                  { 4999, 0 }, { 5000, 1002 }, { 999, 1002 },  { 0, 1002 } };
    struct str s = { 0 };
    frame(&s, FIN | WS_CLOSE, "");
    becomes(&s, "8: ");
    frame(&s, FIN | WS_CLOSE, "x");
    becomes(&s, "1002");
    for (size_t i = 0; i < ARRAY_LEN(codes); i++) {
        char p[5] = { (char)(codes[i].code >> 8), (char)codes[i].code, 'b', 'y', 'e' };
        char want[16];
        if (codes[i].answer)
            snprintf(want, sizeof want, "%u", codes[i].answer);
        else
            snprintf(want, sizeof want, "8:%.5s ", p);
        frame_as(&s, FIN | WS_CLOSE, p, sizeof p, 0);
        becomes(&s, want);
    }
    frame_as(&s, FIN | WS_CLOSE, "\x03\xe8\xff", 3, 0);
    becomes(&s, "1007");
    str_release(&s);
}

static void heads(void **state)
{
    (void)state;
    uint8_t h[10];
    assert_int_equal(wsframe_head(WS_TEXT, 125, h), 2);
    assert_memory_equal(h, "\x81\x7d", 2);
    assert_int_equal(wsframe_head(WS_BINARY, 126, h), 4);
    assert_memory_equal(h, "\x82\x7e\x00\x7e", 4);
    assert_int_equal(wsframe_head(WS_BINARY, 65535, h), 4);
    assert_memory_equal(h, "\x82\x7e\xff\xff", 4);
    assert_int_equal(wsframe_head(WS_PONG, UINT64_C(0x10203), h), 10);
    assert_memory_equal(h, "\x8a\x7f\0\0\0\0\0\x01\x02\x03", 10);
}

static void accepts(void **state)
{
    (void)state;
    char out[29];
    assert_true(wsframe_accept("dGhlIHNhbXBsZSBub25jZQ==", out)); /* RFC 6455, 1.3 */
    assert_string_equal(out, "s3pPLMBiTxaQ9kYGzzhZRbK+xOo=");
    assert_true(wsframe_accept("x3JJHMbDL1EzLkh9GBhXDw==", out));
    assert_string_equal(out, "HSmrc0sMlYUkAGmm5OPpG2HaGWk=");
    static const char *const wrong[] = { "",
                                         "x",
                                         "dGhlIHNhbXBsZSBub25jZQ",
                                         "dGhlIHNhbXBsZSBub25jZQ=",
                                         "dGhlIHNhbXBsZSBub25jZQ===",
                                         "dGhlIHNhbXBsZSBub25jZQQ=",
                                         "dGhlIHNhbXBsZSBub25jZ-==",
                                         "====================== ==" };
    for (size_t i = 0; i < ARRAY_LEN(wrong); i++)
        assert_false(wsframe_accept(wrong[i], out));
}

static void out_of_memory(void **state)
{
    (void)state;
    enum ws_got got = WS_GOT_BAD;
    for (long k = 0; got != WS_GOT_MESSAGE; k++) {
        struct wsframe w = { 0 };
        struct str s = { 0 };
        size_t used, n;
        enum ws_op op;
        const char *data;
        unsigned code;
        frame(&s, FIN | WS_PING, "ping");
        frame_as(&s, FIN | WS_TEXT, "0123456789", 10, 0);
        oom_after(k);
        got = wsframe_feed(&w, s.p, s.n, &used, &op, &data, &n, &code);
        if (got == WS_GOT_CONTROL)
            got = wsframe_feed(&w, s.p + used, s.n - used, &used, &op, &data, &n, &code);
        oom_off();
        assert_true(got == WS_GOT_MESSAGE || (got == WS_GOT_BAD && code == 1011));
        wsframe_release(&w);
        str_release(&s);
    }
}

/* A large message gives its memory back with the next call. */
static void memory_is_given_back(void **state)
{
    (void)state;
    static char big[65536];
    struct wsframe w = { 0 };
    struct str s = { 0 };
    size_t used, n;
    enum ws_op op;
    const char *data;
    unsigned code;
    frame_as(&s, FIN | WS_BINARY, big, sizeof big, 0);
    assert_int_equal(wsframe_feed(&w, s.p, s.n, &used, &op, &data, &n, &code), WS_GOT_MESSAGE);
    assert_int_equal(n, sizeof big);
    assert_int_equal(wsframe_feed(&w, NULL, 0, &used, &op, &data, &n, &code), WS_GOT_MORE);
    assert_null(w.message.p);
    str_release(&s);
    wsframe_release(&w);
}

/* What wsframe_head() writes is what a client reads; masked frames are none a server sends. */
static void on_the_clients_side(void **state)
{
    (void)state;
    static char big[70000];
    memset(big, 'x', sizeof big);
    const size_t lens[] = { 0, 5, 125, 126, 65535, 65536, sizeof big };
    for (size_t step = 1; step <= 70010; step = step * 3 + 4) {
        struct wsframe w = { .client = true, .max_message = sizeof big };
        for (size_t i = 0; i < ARRAY_LEN(lens); i++) {
            uint8_t head[10];
            struct str s = { 0 };
            size_t used, n = 0, at = 0;
            enum ws_op op = WS_CONT;
            const char *data = NULL;
            unsigned code;
            enum ws_got got = WS_GOT_MORE;
            str_add(&s, (const char *)head, wsframe_head(WS_TEXT, lens[i], head));
            str_add(&s, big, lens[i]);
            while (got == WS_GOT_MORE && at < s.n) {
                size_t piece = s.n - at < step ? s.n - at : step;
                got = wsframe_feed(&w, s.p + at, piece, &used, &op, &data, &n, &code);
                at += used;
            }
            assert_int_equal(got, WS_GOT_MESSAGE);
            assert_int_equal(op, WS_TEXT);
            assert_int_equal(n, lens[i]);
            assert_int_equal(at, s.n);
            assert_memory_equal(data, big, n);
            str_release(&s);
        }
        wsframe_release(&w);
        assert_true(w.client);
    }
    struct str s = { 0 };
    struct wsframe w = { .client = true };
    size_t used, n;
    enum ws_op op;
    const char *data;
    unsigned code;
    frame(&s, FIN | WS_TEXT, "hello");
    assert_int_equal(wsframe_feed(&w, s.p, s.n, &used, &op, &data, &n, &code), WS_GOT_BAD);
    assert_int_equal(code, 1002);
    wsframe_release(&w);
    str_release(&s);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(messages),
        cmocka_unit_test(against_the_protocol),
        cmocka_unit_test(closing),
        cmocka_unit_test(heads),
        cmocka_unit_test(accepts),
        cmocka_unit_test(out_of_memory),
        cmocka_unit_test(memory_is_given_back),
        cmocka_unit_test(on_the_clients_side),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
