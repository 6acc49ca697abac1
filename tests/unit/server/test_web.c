/* The dashboard's files: names, types, conditions, packing, what a page may do. */
#include "support/http_rig.h"

#include "server/routes.h"

#include <zlib.h>

static const struct route routes[] = {
    { HTTP_GET, "/berth", ROUTE_PAGE, .handler = route_web },
    { HTTP_GET, "/berth/web/{file:.*}", 0, .handler = route_web },
    { HTTP_GET, "/{path:.*}", ROUTE_PAGE, .handler = route_static },
};

static struct rig g;
static unsigned port;

static int setup(void **state)
{
    (void)state;
    rig_open(&g, &(struct server_config) { 0 }, routes, ARRAY_LEN(routes), NULL);
    port = loop_port(&g.s);
    return 0;
}

static int setup_token(void **state)
{
    (void)state;
    rig_open(&g, &(struct server_config) { .token = "a-long-token" }, routes, ARRAY_LEN(routes),
             NULL);
    port = loop_port(&g.s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&g);
    return 0;
}

static void check_bytes(const struct web_file *f, const struct str *body)
{
    size_t n = (size_t)(f->end - f->begin);
    assert_int_equal(body->n, n);
    assert_memory_equal(str_c(body), f->begin, n);
}

static void every_file(void **state)
{
    bool page = false;
    (void)state;
    for (const struct web_file *f = web_files; f->name; f++) {
        struct str path = { 0 };
        str_addf(&path, "/berth/web/%s", f->name);
        struct answer a = ask_for(port, str_c(&path), "");
        assert_int_equal(a.status, 200);
        check_bytes(f, &a.body);
        assert_string_equal(field(&a, "Cache-Control"), "no-cache");
        assert_string_equal(field(&a, "X-Content-Type-Options"), "nosniff");
        const char *policy = field(&a, "Content-Security-Policy");
        bool document = str_ends(f->name, strlen(f->name), ".html") ||
                        str_ends(f->name, strlen(f->name), ".svg");
        assert_int_equal(policy != NULL, document);
        if (document)
            assert_non_null(strstr(policy, "default-src 'self'"));
        if (document)
            assert_null(strstr(policy, "unsafe"));
        assert_null(field(&a, "Content-Encoding"));
        /* A browser runs no module of another type, and octet-stream is what nobody knew. */
        assert_null(strstr(field(&a, "Content-Type"), "octet-stream"));
        if (str_ends(f->name, strlen(f->name), ".js"))
            assert_string_equal(field(&a, "Content-Type"), "text/javascript; charset=utf-8");
        page |= !strcmp(f->name, "index.html");
        answer_release(&a);
        str_release(&path);
    }
    assert_true(page);
}

static const struct web_file *file_named(const char *name)
{
    const struct web_file *f = web_files;
    while (strcmp(f->name, name) != 0)
        f++;
    return f;
}

static void the_page(void **state)
{
    static const char *const path[] = { "/berth", "/", "/berth/web/index.html", "/berth?x=1" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(path); i++) {
        struct answer a = ask_for(port, path[i], "");
        assert_int_equal(a.status, 200);
        assert_string_equal(field(&a, "Content-Type"), "text/html; charset=utf-8");
        check_bytes(file_named("index.html"), &a.body);
        answer_release(&a);
    }
}

static void nothing_else(void **state)
{
    static const char *const path[] = {
        "/berth/web/",
        "/berth/web/none.js",
        "/berth/web/index.html/",
        "/berth/web/../web.h",
        "/berth/web//index.html",
        "/berth/web/INDEX.html",
        "/berth/web/index.html%00",
        "/index.html",
        "/berth/web/%2e%2e/index.html",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(path); i++) {
        struct answer a = ask_for(port, path[i], "");
        if (a.status != 404 && a.status != 400)
            fail_msg("%s: %d", path[i], a.status);
        assert_null(field(&a, "ETag"));
        answer_release(&a);
    }
}

static void conditions(void **state)
{
    char tag[80], lines[200];
    (void)state;
    struct answer a = ask_for(port, "/berth", "");
    snprintf(tag, sizeof tag, "%s", field(&a, "ETag"));
    answer_release(&a);
    snprintf(lines, sizeof lines, "If-None-Match: \"x\", %s\r\n", tag);
    a = ask_for(port, "/berth", lines);
    assert_int_equal(a.status, 304);
    assert_string_equal(field(&a, "ETag"), tag);
    assert_int_equal(a.body.n, 0);
    answer_release(&a);
    a = ask_for(port, "/berth", "If-None-Match: \"x\"\r\n");
    assert_int_equal(a.status, 200);
    answer_release(&a);
    /* The packed form is another one: who has it plain and asks for it packed gets it. */
    snprintf(lines, sizeof lines, "If-None-Match: %s\r\nAccept-Encoding: gzip\r\n", tag);
    a = ask_for(port, "/berth", lines);
    assert_int_equal(a.status, 200);
    assert_string_not_equal(field(&a, "ETag"), tag);
    answer_release(&a);
    int fd = dial(port);
    says(fd, "HEAD /berth HTTP/1.1\r\nHost: localhost\r\n\r\n");
    a = hear_of(fd, true);
    assert_int_equal(a.status, 200);
    assert_string_equal(field(&a, "ETag"), tag);
    assert_int_equal(a.body.n, 0);
    answer_release(&a);
    close(fd);
}

static void packed(void **state)
{
    (void)state;
    const struct web_file *f = file_named("index.html");
    size_t n = (size_t)(f->end - f->begin);
    for (int twice = 0; twice < 2; twice++) { /* the second is the one that was kept */
        struct answer a = ask_for(port, "/berth", "Accept-Encoding: deflate, gzip\r\n");
        assert_string_equal(field(&a, "Content-Encoding"), "gzip");
        assert_string_equal(field(&a, "Vary"), "Accept-Encoding");
        assert_true(a.body.n < n);
        unsigned char *out = malloc(n + 1);
        z_stream z = { .next_in = (unsigned char *)a.body.p,
                       .avail_in = (unsigned)a.body.n,
                       .next_out = out,
                       .avail_out = (unsigned)n + 1 };
        assert_int_equal(inflateInit2(&z, 31), Z_OK);
        assert_int_equal(inflate(&z, Z_FINISH), Z_STREAM_END);
        assert_int_equal(z.total_out, n);
        assert_memory_equal(out, f->begin, n);
        inflateEnd(&z);
        free(out);
        answer_release(&a);
    }
}

/* As of the frontend: a page is opened with the token in its address, and gets the cookie that lets
 * the rest in. */
static void token(void **state)
{
    (void)state;
    struct answer a = ask_for(port, "/berth", "");
    assert_int_equal(a.status, 401);
    answer_release(&a);
    a = ask_for(port, "/berth/web/index.html?token=a-long-token", "");
    assert_int_equal(a.status, 401);
    answer_release(&a);
    a = ask_for(port, "/berth?token=a-long-token", "");
    assert_int_equal(a.status, 200);
    assert_non_null(strstr(field(&a, "Set-Cookie"), "HttpOnly"));
    answer_release(&a);
    a = ask_for(port, "/berth/web/index.html", "Cookie: berth_token=a-long-token\r\n");
    assert_int_equal(a.status, 200);
    answer_release(&a);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(every_file, setup, teardown),
        cmocka_unit_test_setup_teardown(the_page, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_else, setup, teardown),
        cmocka_unit_test_setup_teardown(conditions, setup, teardown),
        cmocka_unit_test_setup_teardown(packed, setup, teardown),
        cmocka_unit_test_setup_teardown(token, setup_token, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
