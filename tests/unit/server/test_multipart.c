#include "support/oom.h"
#include "support/test.h"

#include "server/multipart.h"

/* What a body was made of, as text: "[name|filename]data" per part; "-" for what is not there.
 * Data arrives in pieces that depend on how the body was cut, so only their sum counts. */
struct heard {
    struct str text;
    size_t parts;
    int stop_part, stop_data; /* return false at this call; 0: never */
};

static bool on_part(void *user, const char *name, const char *filename)
{
    struct heard *h = user;
    str_addf(&h->text, "[%s|%s]", name, filename ? filename : "-");
    h->parts++;
    return h->stop_part == 0 || --h->stop_part > 0;
}

static bool on_data(void *user, const char *p, size_t n)
{
    struct heard *h = user;
    assert_true(n > 0);
    str_add(&h->text, p, n);
    return h->stop_data == 0 || --h->stop_data > 0;
}

#define TYPE "multipart/form-data; boundary=XyZ"

static struct multipart *open_as(const char *type, struct heard *h)
{
    struct multipart_events ev = { h, on_part, on_data };
    struct multipart *m = NULL;
    berth_err err = { 0 };
    assert_ok(multipart_new(type, &ev, &m, &err), err);
    return m;
}

/* The whole body at once. */
static berth_status read_body(const char *type, const char *body, size_t n, struct heard *h,
                              bool *done, berth_err *err)
{
    struct multipart *m = open_as(type, h);
    berth_status st = multipart_feed(m, body, n, err);
    *done = multipart_done(m);
    multipart_free(m);
    return st;
}

static void reads_as(const char *type, const char *body, const char *want)
{
    struct heard h = { 0 };
    berth_err err = { 0 };
    bool done;
    assert_ok(read_body(type, body, strlen(body), &h, &done, &err), err);
    assert_true(done);
    assert_string_equal(str_c(&h.text), want);
    str_release(&h.text);
}

#define PART(head) "--XyZ\r\n" head "\r\n\r\n"
#define NAMED(name) PART("Content-Disposition: form-data; name=\"" name "\"")
#define END "\r\n--XyZ--\r\n"

static void whole_bodies(void **state)
{
    (void)state;
    reads_as(TYPE, NAMED("a") "one" END, "[a|-]one");
    reads_as(TYPE, NAMED("a") "one\r\n" NAMED("b") "two" END, "[a|-]one[b|-]two");
    reads_as(TYPE, NAMED("a") END, "[a|-]");
    reads_as(TYPE, "--XyZ--", "");
    reads_as(TYPE, "before\r\nit\r\n" NAMED("a") "x" END "behind --XyZ it", "[a|-]x");
    reads_as(TYPE,
             PART("content-DISPOSITION:form-data;name=image;filename=\"x y.png\"\r\n"
                  "Content-Type: image/png") "\x01\x02" END,
             "[image|x y.png]\x01\x02");
    reads_as(TYPE, PART("Content-Disposition: form-data; name=\"f\"; filename=\"\"") END, "[f|]");
    reads_as(TYPE, "--XyZ \t\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx" END, "[a|-]x");
    reads_as("Multipart/Form-Data ; charset=utf-8; Boundary=\"XyZ\"", NAMED("a") "x" END, "[a|-]x");
}

static void data_that_looks_like_a_boundary(void **state)
{
    (void)state;
    reads_as(TYPE, NAMED("a") "\r\n--Xy\r\n--XyQ\r\r\n\r\n-\r\n--" END,
             "[a|-]\r\n--Xy\r\n--XyQ\r\r\n\r\n-\r\n--");
    reads_as(TYPE, NAMED("a") "--XyZ" END, "[a|-]--XyZ"); /* not at the beginning of a line */
    reads_as(TYPE, NAMED("a") "\n--XyZ" END, "[a|-]\n--XyZ");
    reads_as(TYPE, NAMED("a") "\r\r\r\n--Xy\r" END, "[a|-]\r\r\r\n--Xy\r");
    reads_as("multipart/form-data; boundary=-", /* only dashes */
             "---\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\n-\r\n--\r\n-----",
             "[a|-]-\r\n--");
    reads_as("multipart/form-data; boundary=\"a b:'()+_,./=?\"",
             "--a b:'()+_,./=?\r\nContent-Disposition: form-data; name=\"a\"\r\n\r\nx\r\n--a "
             "b:'()+_,./=?--",
             "[a|-]x");
}

static void names(void **state)
{
    (void)state;
#define FILE_HEAD(rest) PART("Content-Disposition: form-data; name=\"i\"; " rest)
    reads_as(TYPE, FILE_HEAD("filename=\"a\\\"b.png\"") END, "[i|a\"b.png]");
    reads_as(TYPE, FILE_HEAD("filename=\"a%22b%20c.png\"") END, "[i|a\"b%20c.png]");
    reads_as(TYPE, FILE_HEAD("filename=\"C:\\dir\\x.png\"") END, "[i|C:\\dir\\x.png]");
    reads_as(TYPE, FILE_HEAD("filename=\"a;b=c.png\"") END, "[i|a;b=c.png]");
    reads_as(TYPE, FILE_HEAD("filename=\"\xc3\xa4.png\"") END, "[i|\xc3\xa4.png]");
    reads_as(TYPE, FILE_HEAD("filename*=UTF-8''%c3%A4%20x.png") END, "[i|\xc3\xa4 x.png]");
    reads_as(TYPE, FILE_HEAD("filename=\"old.png\"; filename*=utf-8'de'new.png") END,
             "[i|new.png]");
    reads_as(TYPE, FILE_HEAD("filename*=utf-8''new.png; filename=\"old.png\"") END, "[i|new.png]");
}

static void boundaries_that_are_none(void **state)
{
    (void)state;
    static const char *const bad[] = {
        "",
        "text/plain",
        "multipart/form-data",
        "multipart/form-data; boundary=",
        "multipart/form-dataX; boundary=a",
        "multipart/mixed; boundary=a",
        "multipart/form-data; boundary=\"a",
        "multipart/form-data; boundary=\"a \"",
        "multipart/form-data; boundary=\"a\xc3\xa4\"",
        "multipart/form-data; boundary=a b",
        ("multipart/form-data; boundary="
         "12345678901234567890123456789012345678901234567890123456789012345678901"),
    };
    struct heard h = { 0 };
    struct multipart_events ev = { &h, on_part, on_data };
    struct multipart *m = (void *)1;
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(multipart_new(bad[i], &ev, &m, &err), BERTH_EFORMAT);
        assert_null(m);
    }
    assert_int_equal(multipart_new(NULL, &ev, &m, &err), BERTH_EFORMAT);
    assert_ok(
        multipart_new("multipart/form-data; boundary="
                      "1234567890123456789012345678901234567890123456789012345678901234567890",
                      &ev, &m, &err),
        err);
    multipart_free(m);
}

static void refuses(const char *body, size_t n, berth_status want, const char *text)
{
    struct heard h = { 0 };
    berth_err err = { 0 };
    bool done;
    assert_fails(read_body(TYPE, body, n, &h, &done, &err), err, want, text);
    assert_false(done);
    str_release(&h.text);
}

static void broken_bodies(void **state)
{
    (void)state;
#define REFUSES(body, text) refuses(body, sizeof body - 1, BERTH_EFORMAT, text)
    REFUSES("--XyZx\r\n", "followed by");
    REFUSES("--XyZ-x", "followed by");
    REFUSES("--XyZ\rx", "followed by");
    REFUSES("--XyZ\n", "followed by");
    REFUSES(PART("nothing here"), "without a name");
    REFUSES(PART(": x"), "without a name");
    REFUSES("--XyZ\r\n\r\n", "without a name");
    REFUSES(PART("Content-Type: text/plain"), "without a name");
    REFUSES(PART("Content-Disposition: form-data"), "without a name");
    REFUSES(PART("Content-Disposition: attachment; name=\"a\""), "Disposition");
    REFUSES(PART("Content-Disposition: form-data; name=\"a"), "Disposition");
    REFUSES(PART("Content-Disposition: form-data; name=\"a\"x"), "Disposition");
    REFUSES(PART("Content-Disposition: form-data; name=\"a\"; filename*=latin1''x"), "Disposition");
    REFUSES(PART("Content-Disposition: form-data; name=\"a\"; filename*=utf-8''%00"),
            "Disposition");
    REFUSES(PART("Content-Disposition: form-data; name=\"a\"; filename*=utf-8''%f"), "Disposition");
    REFUSES(PART("Content-Disposition: form-data; name=\"\xff\""), "UTF-8");
    REFUSES(PART("Content-Disposition: form-data; name=\"a\"; filename*=utf-8''%ff"), "UTF-8");
    REFUSES("--XyZ\r\nContent-Disposition: form-data; name=\"a\0\"\r\n\r\n", "stray byte");
    REFUSES("--XyZ\r\na: b\n", "stray byte");
    REFUSES("--XyZ\r\na: \rb\r\n", "stray byte");
    REFUSES(NAMED("a") "x\r\n--XyZ\r\n\r\n", "without a name");
    REFUSES(PART("Content-Disposition: form-data; name=\"a\"\r\nContent-Transfer-Encoding: base64"),
            "base64");
}

static void cut_short(void **state)
{
    (void)state;
    static const char whole[] = NAMED("a") "x" END;
    for (size_t n = 0; n + 4 < sizeof whole - 1; n++) { /* "--" decides, the last CRLF does not */
        struct heard h = { 0 };
        berth_err err = { 0 };
        bool done;
        assert_ok(read_body(TYPE, whole, n, &h, &done, &err), err);
        assert_false(done && n < sizeof whole - 3);
        str_release(&h.text);
    }
}

static void limits(void **state)
{
    (void)state;
    struct str s = { 0 };
    str_adds(&s, "--XyZ\r\nA: ");
    str_pad(&s, 'x', 7 + 8192);
    str_adds(&s, "\r\n\r\n");
    refuses(s.p, s.n, BERTH_ELIMIT, "8192");
    str_clear(&s);
    for (int i = 0; i < 64; i++)
        str_adds(&s, NAMED("a") "x\r\n");
    struct heard h = { 0 };
    berth_err err = { 0 };
    struct multipart *m = open_as(TYPE, &h);
    assert_ok(multipart_feed(m, s.p, s.n, &err), err);
    assert_int_equal(h.parts, 64);
    assert_fails(multipart_feed(m, NAMED("a"), sizeof NAMED("a") - 1, &err), err, BERTH_ELIMIT,
                 "64 parts");
    /* what failed stays failed */
    assert_int_equal(multipart_feed(m, "x", 1, &err), BERTH_ELIMIT);
    multipart_free(m);
    str_release(&h.text);
    str_release(&s);
}

static void a_listener_may_stop(void **state)
{
    (void)state;
    struct heard at_part = { .stop_part = 2 }, at_data = { .stop_data = 1 };
    static const char body[] = NAMED("a") "one\r\n" NAMED("b") "two" END;
    berth_err err = { 0 };
    bool done;
    assert_int_equal(read_body(TYPE, body, sizeof body - 1, &at_part, &done, &err),
                     BERTH_ECANCELED);
    assert_string_equal(str_c(&at_part.text), "[a|-]one[b|-]");
    assert_int_equal(read_body(TYPE, body, sizeof body - 1, &at_data, &done, &err),
                     BERTH_ECANCELED);
    assert_int_equal(at_data.parts, 1);
    str_release(&at_part.text);
    str_release(&at_data.text);
}

static const char nasty[] = "pre\r\n--Xy\r\n" NAMED(
    "a") "\r\n--Xy\r\n--XyQ\r\r\n\r\n-\r\n--\r"
         "\r\n" PART("Content-Disposition: form-data; name=\"i\"; filename=\"a\\\"b%22.png\"; "
                     "filename*=utf-8''n%c3%a4\r\nContent-Type: image/png") "\x89PNG\r\n\x1a\n--"
                                                                            "XyZ\r\n--XyZ \r\n"
                                                                            "Content-Disposition: "
                                                                            "form-data; "
                                                                            "name=\"z\"\r\n\r\n" END
                                                                            "epilogue\r\n--XyZ\r\n";

/* However it is cut, the same is heard. */
static void cut_anywhere(void **state)
{
    (void)state;
    struct heard want = { 0 };
    berth_err err = { 0 };
    bool done;
    size_t n = sizeof nasty - 1;
    assert_ok(read_body(TYPE, nasty, n, &want, &done, &err), err);
    assert_true(done && want.parts == 3);
    for (size_t a = 0; a <= n; a++)
        for (size_t b = a; b <= n; b += 1 + (a & 3)) {
            struct heard h = { 0 };
            struct multipart *m = open_as(TYPE, &h);
            assert_ok(multipart_feed(m, nasty, a, &err), err);
            assert_ok(multipart_feed(m, nasty + a, b - a, &err), err);
            assert_ok(multipart_feed(m, nasty + b, n - b, &err), err);
            assert_true(multipart_done(m));
            assert_int_equal(h.text.n, want.text.n);
            assert_memory_equal(h.text.p, want.text.p, want.text.n);
            multipart_free(m);
            str_release(&h.text);
        }
    struct heard single = { 0 };
    struct multipart *m = open_as(TYPE, &single);
    for (size_t i = 0; i < n; i++)
        assert_ok(multipart_feed(m, nasty + i, 1, &err), err);
    assert_int_equal(single.text.n, want.text.n);
    assert_memory_equal(single.text.p, want.text.p, want.text.n);
    multipart_free(m);
    str_release(&single.text);
    str_release(&want.text);
}

static void survives_exhaustion(void **state)
{
    (void)state;
    berth_status st = BERTH_ENOMEM;
    for (int k = 0; st != BERTH_OK && k < 200; k++) {
        struct multipart_events ev = { 0 };
        struct heard h = { 0 };
        struct multipart *m = NULL;
        berth_err err = { 0 };
        ev = (struct multipart_events) { &h, on_part, on_data };
        oom_after(k);
        st = multipart_new(TYPE, &ev, &m, &err);
        if (!st)
            st = multipart_feed(m, nasty, sizeof nasty - 1, &err);
        oom_off();
        assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && err.msg[0]));
        multipart_free(m);
        str_release(&h.text);
    }
    assert_int_equal(st, BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(whole_bodies),  cmocka_unit_test(data_that_looks_like_a_boundary),
        cmocka_unit_test(names),         cmocka_unit_test(boundaries_that_are_none),
        cmocka_unit_test(broken_bodies), cmocka_unit_test(cut_short),
        cmocka_unit_test(limits),        cmocka_unit_test(a_listener_may_stop),
        cmocka_unit_test(cut_anywhere),  cmocka_unit_test(survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
