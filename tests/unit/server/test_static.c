/* Files over HTTP: conditions, ranges, the frontend's tree, cache headers. */
#include "support/http_rig.h"

#include <sys/resource.h>
#include <sys/stat.h>

static char big_path[4096];

static void some_file(struct http_req *r)
{
    http_reply_file(r, &(struct http_file) { .path = tmp_path("data.bin"),
                                             .disposition = "filename=\"d\r\nX: y\"" });
}

static void big_file(struct http_req *r)
{
    http_reply_file(r, &(struct http_file) { .path = big_path, .type = "video/mp4" });
}

static void no_file(struct http_req *r)
{
    http_reply_file(r, &(struct http_file) { .path = tmp_dir() });
}

static const struct route routes[] = {
    { HTTP_GET, "/data", 0, .handler = some_file },
    { HTTP_GET, "/big", 0, .handler = big_file },
    { HTTP_GET, "/dir", 0, .handler = no_file },
    { HTTP_GET, "/{path:.*}", ROUTE_PAGE, .handler = route_static },
};

static struct rig g;
static unsigned port;

static int setup(void **state)
{
    char root[4096];
    (void)state;
    tmp_write("data.bin", "0123456789", 10);
    tmp_write("secret.txt", "secret", 6);
    snprintf(root, sizeof root, "%s", tmp_path("web"));
    mkdir(root, 0777);
    mkdir(tmp_path("web/assets"), 0777);
    tmp_write("web/index.html", "<title>front</title>", 20);
    tmp_write("web/assets/a.js", "js", 2);
    tmp_write("web/assets/b.png", "png", 3);
    tmp_write("web/a b.txt", "space", 5);
    tmp_write("web/assets/index.de.json", "{}", 2);
    if (symlink(tmp_path("secret.txt"), tmp_path("web/out.txt")) && errno != EEXIST)
        return 1;
    snprintf(big_path, sizeof big_path, "%s", tmp_path("big.bin"));
    FILE *f = fopen(big_path, "w");
    if (!f || ftruncate(fileno(f), 50 << 20))
        return 1;
    fclose(f);
    static char web[4096];
    snprintf(web, sizeof web, "%s", root);
    rig_open(&g, &(struct server_config) { .frontend = web }, routes, ARRAY_LEN(routes), NULL);
    port = loop_port(&g.s);
    return 0;
}

static int setup_bare(void **state)
{
    (void)state;
    rig_open(&g, &(struct server_config) { 0 }, routes, ARRAY_LEN(routes), NULL);
    port = loop_port(&g.s);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&g);
    return 0;
}

static void check(const char *path, const char *lines, int status, const char *body)
{
    struct answer a = ask_for(port, path, lines);
    if (a.status != status || (body && strcmp(str_c(&a.body), body)))
        fail_msg("%s %s: %d '%s', wanted %d '%s'", path, lines, a.status, str_c(&a.body), status,
                 body ? body : "(any)");
    answer_release(&a);
}

static void whole_files(void **state)
{
    (void)state;
    struct answer a = ask_for(port, "/data", "");
    assert_int_equal(a.status, 200);
    assert_string_equal(str_c(&a.body), "0123456789");
    assert_string_equal(field(&a, "Accept-Ranges"), "bytes");
    assert_non_null(field(&a, "Last-Modified"));
    assert_non_null(field(&a, "ETag"));
    assert_string_equal(field(&a, "Content-Type"), "application/octet-stream");
    assert_string_equal(field(&a, "Content-Disposition"), "filename=\"d");
    assert_null(field(&a, "X"));
    answer_release(&a);
    check("/dir", "", 404, NULL);
    int fd = dial(port);
    says(fd, "HEAD /data HTTP/1.1\r\nHost: localhost\r\n\r\nGET /data HTTP/1.1\r\nHost: "
             "localhost\r\n\r\n");
    a = hear_of(fd, true);
    assert_string_equal(field(&a, "Content-Length"), "10");
    answer_release(&a);
    a = hear(fd);
    assert_string_equal(str_c(&a.body), "0123456789");
    answer_release(&a);
    close(fd);
}

static void ranges(void **state)
{
    static const struct {
        const char *range;
        int status;
        const char *body, *content_range;
    } all[] = {
        { "bytes=0-3", 206, "0123", "bytes 0-3/10" },
        { "bytes=7-", 206, "789", "bytes 7-9/10" },
        { "bytes=-2", 206, "89", "bytes 8-9/10" },
        { "bytes=-99", 206, "0123456789", "bytes 0-9/10" },
        { "bytes=9-99999", 206, "9", "bytes 9-9/10" },
        { "bytes=10-", 416, "", "bytes */10" },
        { "bytes=-0", 416, "", "bytes */10" },
        { "bytes=3-2", 200, "0123456789", NULL },
        { "bytes=0-1,4-5", 200, "0123456789", NULL },
        { "bytes=x-", 200, "0123456789", NULL },
        { "bytes=1-2x", 200, "0123456789", NULL },
        { "lines=0-1", 200, "0123456789", NULL },
        { "Bytes=0-3", 206, "0123", "bytes 0-3/10" },
        { "bytes=99999999999999999999-", 416, "", "bytes */10" },
        { "bytes=-99999999999999999999", 206, "0123456789", "bytes 0-9/10" },
        { "bytes=8-99999999999999999999", 206, "89", "bytes 8-9/10" },
        { "bytes=18446744073709551615-18446744073709551615", 416, "", "bytes */10" },
        { "bytes=0-18446744073709551615", 206, "0123456789", "bytes 0-9/10" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char lines[100];
        snprintf(lines, sizeof lines, "Range: %s\r\n", all[i].range);
        struct answer a = ask_for(port, "/data", lines);
        const char *got = field(&a, "Content-Range");
        if (a.status != all[i].status || strcmp(str_c(&a.body), all[i].body) ||
            (got ? !all[i].content_range || strcmp(got, all[i].content_range)
                 : all[i].content_range != NULL))
            fail_msg("%s: %d '%s' %s", all[i].range, a.status, str_c(&a.body), got ? got : "-");
        answer_release(&a);
    }
}

static void conditions(void **state)
{
    char lines[300], etag[64], date[64];
    (void)state;
    struct answer a = ask_for(port, "/data", "");
    snprintf(etag, sizeof etag, "%s", field(&a, "ETag"));
    snprintf(date, sizeof date, "%s", field(&a, "Last-Modified"));
    answer_release(&a);
    static const struct {
        const char *lines; /* E: the tag, D: the date */
        int status;
    } all[] = {
        { "If-None-Match: E\r\n", 304 },
        { "If-None-Match: \"x\", W/E\r\n", 304 },
        { "If-None-Match: *\r\n", 304 },
        { "If-None-Match: \"x\"\r\n", 200 },
        { "If-None-Match: \"x\"\r\nIf-Modified-Since: D\r\n", 200 },
        { "If-Modified-Since: D\r\n", 304 },
        { "If-Modified-Since: Thu, 01 Jan 1970 00:00:00 GMT\r\n", 200 },
        { "If-Modified-Since: yesterday\r\n", 200 },
        { "Range: bytes=0-1\r\nIf-Range: E\r\n", 206 },
        { "Range: bytes=0-1\r\nIf-Range: D\r\n", 206 },
        { "Range: bytes=0-1\r\nIf-Range: \"x\"\r\n", 200 },
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct str text = { 0 };
        for (const char *p = all[i].lines; *p; p++) {
            bool word = (p[1] == '\r' || p[1] == '\0') && (p[-1] == ' ' || p[-1] == '/');
            if (word && *p == 'E')
                str_adds(&text, etag);
            else if (word && *p == 'D')
                str_adds(&text, date);
            else
                str_addc(&text, *p);
        }
        snprintf(lines, sizeof lines, "%s", str_c(&text));
        str_release(&text);
        a = ask_for(port, "/data", lines);
        if (a.status != all[i].status)
            fail_msg("%s: %d, wanted %d", lines, a.status, all[i].status);
        if (a.status == 304) {
            assert_null(field(&a, "Content-Length"));
            assert_string_equal(field(&a, "ETag"), etag);
        }
        answer_release(&a);
    }
}

static void frontend(void **state)
{
    (void)state;
    struct answer a = ask_for(port, "/", "");
    assert_string_equal(str_c(&a.body), "<title>front</title>");
    assert_string_equal(field(&a, "Cache-Control"), "no-store, must-revalidate");
    assert_string_equal(field(&a, "Pragma"), "no-cache");
    assert_string_equal(field(&a, "Expires"), "0");
    assert_non_null(strstr(field(&a, "Content-Type"), "text/html"));
    answer_release(&a);
    check("/api/", "", 200, "<title>front</title>");
    check("/index.html", "", 200, "<title>front</title>");
    check("/a%20b.txt", "", 200, "space");
    check("/assets", "", 403, "403: Forbidden");
    check("/assets/", "", 403, "403: Forbidden");
    check("/none.html", "", 404, "404: Not Found");
    check("/index.html/", "", 404, "404: Not Found");
    check("/assets/a.js/", "", 404, "404: Not Found");
    a = ask_for(port, "/assets/a.js", "");
    assert_non_null(strstr(field(&a, "Content-Type"), "javascript"));
    assert_string_equal(field(&a, "Cache-Control"), "no-store");
    answer_release(&a);
    a = ask_for(port, "/assets/b.png", "");
    assert_string_equal(field(&a, "Cache-Control"), "public, max-age=86400");
    answer_release(&a);
    a = ask_for(port, "/assets/B.PNG", "");
    assert_int_equal(a.status, 404);
    assert_string_equal(field(&a, "Cache-Control"), "public, max-age=3600");
    answer_release(&a);
    a = ask_for(port, "/assets/index.de.json", "");
    assert_string_equal(field(&a, "Cache-Control"), "no-store");
    answer_release(&a);
    a = ask_for(port, "/a%20b.txt", "");
    assert_null(field(&a, "Cache-Control"));
    answer_release(&a);
}

static void nothing_leaves_the_root(void **state)
{
    static const char *const path[] = {
        "/../secret.txt",
        "/%2e%2e/secret.txt",
        "/..%2fsecret.txt",
        "/assets/../../secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "//etc/passwd",
        "/%2fetc/passwd",
        "/out.txt",
        "/..%5csecret.txt",
        "/secret.txt%00.html",
        "/./../secret.txt",
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(path); i++) {
        struct answer a = ask_for(port, path[i], "");
        if (a.status < 400 || strstr(str_c(&a.body), "secret"))
            fail_msg("%s: %d '%s'", path[i], a.status, str_c(&a.body));
        answer_release(&a);
    }
}

static void slow_reader_of_a_file(void **state)
{
    (void)state;
    int slow = dial(port);
    says(slow, "GET /big HTTP/1.1\r\nHost: localhost\r\nRange: bytes=1-\r\n\r\n");
    for (int i = 0; i < 100; i++)
        check("/data", "", 200, "0123456789");
    struct answer a = hear(slow);
    assert_int_equal(a.status, 206);
    assert_int_equal(a.body.n, (50u << 20) - 1);
    answer_release(&a);
    close(slow);
}

/* Descriptors for files have a limit of their own; beyond it 503, and what needs none goes on. */
static void too_many_files(void **state)
{
    enum { N = 24 };
    int fd[N], whole = 0, refused = 0;
    (void)state;
    for (int i = 0; i < N; i++) {
        struct str head = { 0 };
        fd[i] = dial(port);
        says(fd[i], "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
        assert_true(read_head(fd[i], &head));
        whole += str_starts(head.p, head.n, "HTTP/1.1 200 ");
        bool no = str_starts(head.p, head.n, "HTTP/1.1 503 ");
        refused += no;
        if (no) /* nothing of the file's */
            assert_true(!strcasestr(head.p, "\r\nETag: ") && strstr(head.p, "text/plain"));
        str_release(&head);
    }
    assert_int_equal(whole, 16);
    assert_int_equal(refused, N - 16);
    struct answer a = ask_for(port, "/big", "Range: bytes=-1\r\n");
    assert_int_equal(a.status, 503);
    answer_release(&a);
    a = ask_for(port, "/", "");
    assert_int_equal(a.status, 200);
    answer_release(&a);
    for (int i = 0; i < N; i++)
        close(fd[i]);
    do { /* the places come back */
        a = ask_for(port, "/data", "");
        whole = a.status;
        answer_release(&a);
    } while (whole == 503);
    assert_int_equal(whole, 200);
}

/* 128 descriptors: half of them for ourselves, and a quarter of the rest for files. */
static int setup_few_files(void **state)
{
    struct rlimit was, few;
    assert_int_equal(getrlimit(RLIMIT_NOFILE, &was), 0);
    few = was;
    few.rlim_cur = 128;
    assert_int_equal(setrlimit(RLIMIT_NOFILE, &few), 0);
    int failed = setup_bare(state);
    setrlimit(RLIMIT_NOFILE, &was); /* the server goes by what it found */
    return failed;
}

static void file_that_shrinks(void **state)
{
    (void)state;
    int fd = dial(port);
    says(fd, "GET /big HTTP/1.1\r\nHost: localhost\r\n\r\n");
    struct str head = { 0 };
    assert_true(read_head(fd, &head));
    str_release(&head);
    assert_int_equal(truncate(big_path, 1000), 0);
    char buf[65536];
    size_t got = 0;
    for (ssize_t k; (k = recv(fd, buf, sizeof buf, 0)) > 0;)
        got += (size_t)k;
    assert_true(got < 50u << 20); /* closed, not filled up with something else */
    close(fd);
    check("/data", "", 200, "0123456789");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whole_files, setup, teardown),
        cmocka_unit_test_setup_teardown(ranges, setup, teardown),
        cmocka_unit_test_setup_teardown(conditions, setup, teardown),
        cmocka_unit_test_setup_teardown(frontend, setup, teardown),
        cmocka_unit_test_setup_teardown(nothing_leaves_the_root, setup, teardown),
        cmocka_unit_test_setup_teardown(slow_reader_of_a_file, setup, teardown),
        cmocka_unit_test_setup_teardown(too_many_files, setup_few_files, teardown),
        cmocka_unit_test_setup_teardown(file_that_shrinks, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
