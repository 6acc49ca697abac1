/* Who is let in: origins, tokens, cookies, and configurations that are refused. */
#include "support/http_rig.h"

static void hello(struct http_req *r)
{
    http_reply_text(r, 200, "hello");
}

static const struct route routes[] = {
    { HTTP_GET | HTTP_POST, "/hello", ROUTE_BODY, .handler = hello },
    { HTTP_GET, "/open", ROUTE_OPEN, .handler = hello },
    { HTTP_GET, "/ws", ROUTE_WS, .handler = hello },
    { HTTP_GET, "/{path:.*}", ROUTE_PAGE, .handler = route_static },
};

static struct rig g;
static unsigned port;

static int open_with(const struct server_config *cfg)
{
    rig_open(&g, cfg, routes, ARRAY_LEN(routes), NULL);
    port = loop_port(&g.s);
    return 0;
}

static int setup(void **state)
{
    (void)state;
    return open_with(&(struct server_config) { 0 });
}

static int setup_token(void **state)
{
    (void)state;
    return open_with(&(struct server_config) { .token = "se cret;1" });
}

static int teardown(void **state)
{
    (void)state;
    rig_close(&g);
    return 0;
}

static struct answer get(const char *method, const char *path, const char *lines)
{
    struct str text = { 0 };
    str_addf(&text, "%s %s HTTP/1.1\r\n%s\r\n", method, path, lines);
    struct answer a = ask(port, str_c(&text));
    str_release(&text);
    return a;
}

static void origins(void **state)
{
    static const struct {
        const char *host, *origin;
        int status;
    } all[] = {
        { "127.0.0.1:8188", NULL, 200 },
        { "127.0.0.1:8188", "http://127.0.0.1:8188", 200 },
        { "127.0.0.1:8188", "http://127.0.0.1:8189", 403 },
        { "127.0.0.1:8188", "http://127.0.0.1", 403 }, /* a page of port 80 */
        { "127.0.0.1:8188", "http://127.0.0.1:", 403 },
        { "127.0.0.1:8188", "https://127.0.0.1", 403 },
        { "127.0.0.1:8188", "https://127.0.0.1:8188", 403 },
        { "127.0.0.1:8188", "ftp://127.0.0.1:8188", 403 },
        { "127.0.0.1:8188", "127.0.0.1:8188", 403 },
        { "127.0.0.1:8188", "http:127.0.0.1:8188", 403 },
        { "127.0.0.1:8188", "HTTP://127.0.0.1:08188", 200 },
        { "127.0.0.1:8188", "http://127.0.0.1:8188x", 403 },
        { "127.0.0.1:8188", "http://127.0.0.1:73724", 403 }, /* 8188 + 65536 */
        { "127.0.0.1:8188", "http://127.0.0.1:0", 403 },
        { "127.0.0.1", "http://127.0.0.1:9", 403 },
        { "127.0.0.1", "http://127.0.0.1", 200 },
        { "127.0.0.1", "http://127.0.0.1:80", 200 },
        { "127.0.0.1:80", "http://127.0.0.1", 200 },
        { "127.0.0.1", "http://127.0.0.1:443", 403 },
        { "127.0.0.1", "https://127.0.0.1", 403 },
        { "127.0.0.1:443", "https://127.0.0.1", 403 }, /* it is not encrypted */
        { "localhost.:8188", "http://localhost.:8188", 200 },
        { "localhost:8188", "http://localhost.:8188", 403 }, /* another origin for browsers too */
        { "127.0.0.1:8188", "http://localhost:8188", 403 },
        { "localhost:8188", "http://LOCALHOST:8188", 200 },
        { "LocalHost:8188", "https://evil.example", 403 },
        { "app.localhost:8188", "http://evil.example:8188", 403 },
        { "127.9.9.9:1", "http://evil.example:1", 403 },
        { "[::1]:8188", "http://[::1]:8188", 200 },
        { "[::1]:8188", "http://[::2]:8188", 403 },
        { "[::1]:8188", "http://[::1]", 403 },
        { "[::1]:80", "http://[::1]", 200 },
        { "[::1]", "http://[::1]:8188", 403 },
        { "[::1]:8188", "http://[::1]8188", 403 },
        { "[::1]:8188", "http://[::1:8188", 403 },
        { "[::1]:8188", "http://::1:8188", 403 },
        { "[::1]", "http://evil.example", 403 },
        { "127.0.0.1:8188", "null", 403 },
        { "127.0.0.1:8188", "http://127.0.0.1:8188.evil.example", 403 },
        { "127.0.0.1:8188", "http://127.0.0.1:8188@evil.example", 403 },
        /* It came to a loopback address, whatever it calls it. */
        { "gpu.lan:8188", "http://evil.example", 403 },
        { "0.0.0.0:8188", "http://evil.example", 403 },
        { "[::]:8188", "http://evil.example", 403 },
        { "lvh.me:8188", "http://evil.example", 403 },
        { "notlocalhost:8188", "http://evil.example", 403 },
        { "", "http://evil.example", 403 },
        { "evil.example:8188", "http://evil.example:8188", 403 }, /* a name that was pointed here */
        { "evil.example:8188", NULL, 403 },                       /* and its GETs say no origin */
        { "gpu.lan", NULL, 403 },
        { "localhost:8188", NULL, 200 },
        { "[::1]:8188", NULL, 200 },
        { "0.0.0.0:8188", "http://0.0.0.0:8188", 403 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char lines[200];
        snprintf(lines, sizeof lines, all[i].origin ? "Host: %s\r\nOrigin: %s\r\n" : "Host: %s\r\n",
                 all[i].host, all[i].origin);
        struct answer a = get("POST", "/hello", lines), b = get("GET", "/nothing", lines);
        if (a.status != all[i].status || (a.status == 403 && (b.status != 403 || a.body.n)))
            fail_msg("host %s origin %s: %d and %d", all[i].host,
                     all[i].origin ? all[i].origin : "-", a.status, b.status);
        answer_release(&a);
        answer_release(&b);
    }
}

/* Beyond loopback, and with a token or an address that was asked for; encrypted, and behind a
 * proxy. */
static void elsewhere(void **state)
{
    static const char *const all[] = { "0.0.0.0", "::" };
    enum { LOCAL = 1, TOKEN = 2, TLS = 4, COOKIE = 8 };
    static const struct {
        unsigned how;
        const char *host, *origin;
        bool allowed;
        const char *proto;
    } row[] = {
        { 0, "gpu.lan:8188", "http://evil.example", true, NULL }, /* a token's business */
        { 0, "10.0.0.1", "http://evil.example", true, NULL },
        { 0, "localhost:8188", "http://evil.example", false, NULL },
        { LOCAL, "0.0.0.0:8188", "http://0.0.0.0:8188", true, NULL },
        { LOCAL, "[::]:8188", "http://[::]:8188", true, NULL },
        { LOCAL, "0.0.0.0:8188", "http://evil.example", false, NULL },
        { LOCAL, "gpu.lan", "http://gpu.lan", false, NULL },
        { LOCAL, "gpu.lan", NULL, false, NULL },
        { LOCAL, "0.0.0.0:8188", NULL, true, NULL },
        { 0, "gpu.lan", NULL, true, NULL },
        { LOCAL | TOKEN, "gpu.lan", NULL, true, NULL },
        { LOCAL | TOKEN, "gpu.lan", "http://gpu.lan", true, NULL }, /* a reverse proxy here */
        { LOCAL | TOKEN, "gpu.lan", "https://gpu.lan", true, "https" },
        { LOCAL | TOKEN, "gpu.lan", "https://gpu.lan", true, "HTTPS, http" },
        { LOCAL | TOKEN, "gpu.lan", "https://gpu.lan:443", true, "https" },
        { LOCAL | TOKEN, "gpu.lan:9443", "https://gpu.lan:9443", true, "https" },
        { LOCAL | TOKEN, "gpu.lan:9443", "https://gpu.lan", false, "https" },
        { LOCAL | TOKEN, "gpu.lan", "http://gpu.lan", false, "https" },
        { LOCAL | TOKEN, "gpu.lan", "https://gpu.lan", false, NULL },
        { LOCAL | TOKEN, "gpu.lan", "https://evil.example", false, "https" },
        { LOCAL | TOKEN, "localhost:1", "http://localhost:2", false, NULL },
        { LOCAL | TLS, "localhost:8188", "https://localhost:8188", true, NULL },
        { LOCAL | TLS, "localhost:8188", "http://localhost:8188", true, NULL }, /* old clients */
        { LOCAL | TLS | TOKEN | COOKIE, "localhost:8188", "http://localhost:8188", false, NULL },
        { LOCAL | TLS, "localhost:8188", "http://localhost:80", false, NULL },
        { LOCAL | TLS, "localhost:8188", "https://localhost", false, NULL },
        { LOCAL | TLS, "localhost", "https://localhost:443", true, NULL },
        { LOCAL | TLS, "localhost:443", "https://localhost", true, NULL },
        { LOCAL | TLS, "localhost", "http://localhost", false, "http" },
        /* Cookies go to every port of a host. */
        { TOKEN | COOKIE, "gpu.lan:8188", "http://gpu.lan", false, NULL },
        { TOKEN | COOKIE, "gpu.lan:8188", "https://gpu.lan", false, NULL },
        { TOKEN | COOKIE, "gpu.lan:8188", "http://gpu.lan:8188", true, NULL },
        { TOKEN | COOKIE | TLS, "gpu.lan:8188", "https://gpu.lan:8188", true, NULL },
        { TOKEN | COOKIE, "gpu.lan:8188", "null", false, NULL },
        { TOKEN | COOKIE, "gpu.lan:8188", NULL, true, NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct server_config cfg = { .listen = all,
                                     .listens = 2,
                                     .token = row[i].how & TOKEN ? "x" : NULL };
        struct guard_ask a = { .local = row[i].how & LOCAL,
                               .tls = row[i].how & TLS,
                               .cookie = row[i].how & COOKIE,
                               .host = row[i].host,
                               .origin = row[i].origin,
                               .proto = row[i].proto };
        if (guard_allows(&cfg, &a) != row[i].allowed)
            fail_msg("row %zu: host %s origin %s", i, row[i].host, row[i].origin);
    }
}

/* What browsers say of requests that have no Origin. */
static void fetches(void **state)
{
    static const struct {
        bool local, cookie;
        const char *site, *mode;
        bool allowed;
    } row[] = {
        { true, false, "same-origin", "cors", true },
        { true, false, "none", "navigate", true },       /* typed */
        { true, false, "cross-site", "navigate", true }, /* a link */
        { true, false, "cross-site", "no-cors", false },
        { true, false, "cross-site", NULL, false },
        { true, false, "same-site", "no-cors", true },
        { false, true, "same-site", "no-cors", false },
        { false, true, "cross-site", "no-cors", false },
        { false, true, "same-site", "navigate", true },
        { false, true, "same-origin", "no-cors", true },
        { false, false, "cross-site", "no-cors", true }, /* a token's business */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct server_config cfg = { .token = "x" };
        struct guard_ask a = { .local = row[i].local,
                               .cookie = row[i].cookie,
                               .host = "gpu.lan:8188",
                               .site = row[i].site,
                               .mode = row[i].mode };
        if (guard_allows(&cfg, &a) != row[i].allowed)
            fail_msg("row %zu: %s", i, row[i].site);
    }
}

static void tokens(void **state)
{
    static const struct {
        const char *path, *lines;
        int status;
    } all[] = {
        { "/hello", "", 401 },
        { "/nothing", "", 401 },
        { "/open", "", 200 },
        { "/hello", "Authorization: Bearer se cret;1\r\n", 200 },
        { "/hello", "Authorization: bearer   se cret;1\r\n", 200 },
        { "/hello", "Authorization: Bearer se cret;2\r\n", 401 },
        { "/hello", "Authorization: Bearer se cret;\r\n", 401 },
        { "/hello", "Authorization: Bearer se cret;1se cret;1\r\n", 401 },
        { "/hello", "Authorization: Bearer \r\n", 401 },
        { "/hello", "Authorization: Basic se cret;1\r\n", 401 },
        { "/hello", "Cookie: a=b; berth_token=se%20cret%3B1\r\n", 200 },
        { "/hello", "Cookie: berth_token=se%20cret%3B1\r\nOrigin: http://gpu.lan\r\n", 200 },
        { "/hello", "Cookie: berth_token=se%20cret%3B1\r\nOrigin: http://evil.lan\r\n", 403 },
        { "/hello", "Cookie: xberth_token=se%20cret%3B1\r\n", 401 },
        { "/hello", "Cookie: berth_token=\r\n", 401 },
        { "/hello?token=se%20cret;1", "", 401 }, /* neither page nor WebSocket */
        { "/ws?token=se+cret%3B1", "", 200 },
        { "/ws?token=wrong", "", 401 },
        { "/?token=se%20cret;1", "", 200 },
        { "/?token=", "", 401 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        char lines[200];
        snprintf(lines, sizeof lines, "Host: gpu.lan\r\n%s", all[i].lines);
        struct answer a = get("GET", all[i].path, lines);
        if (a.status != all[i].status)
            fail_msg("%s %s: %d, wanted %d", all[i].path, all[i].lines, a.status, all[i].status);
        if (a.status == 401)
            assert_string_equal(field(&a, "WWW-Authenticate"), "Bearer realm=\"berth\"");
        answer_release(&a);
    }
    struct answer a = get("GET", "/?token=se%20cret;1", "Host: gpu.lan\r\n");
    assert_string_equal(field(&a, "Set-Cookie"),
                        "berth_token=se%20cret%3B1; Path=/; HttpOnly; SameSite=Strict");
    answer_release(&a);
    a = get("OPTIONS", "/hello", "Host: gpu.lan\r\n");
    assert_int_equal(a.status, 200);
    answer_release(&a);
}

static void loopback(void **state)
{
    static const char *const yes[] = {
        "127.0.0.1", "127.255.0.3", "::1",        "localhost",
        "LOCALHOST", "a.localhost", "localhost.", "::ffff:127.0.0.1"
    };
    static const char *const no[] = { "",
                                      "0.0.0.0",
                                      "::",
                                      "128.0.0.1",
                                      "alocalhost",
                                      "127.1",
                                      "1::1",
                                      "127.0.0.1.evil.example",
                                      "localhost.evil.example" };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(yes); i++)
        if (!guard_loopback(yes[i], strlen(yes[i])))
            fail_msg("%s is loopback", yes[i]);
    for (size_t i = 0; i < ARRAY_LEN(no); i++)
        if (guard_loopback(no[i], strlen(no[i])))
            fail_msg("%s is not loopback", no[i]);
}

static void configurations(void **state)
{
    static const char *const all[] = { "127.0.0.1", "0.0.0.0" }, *const here[] = { "::1" };
    berth_err err;
    (void)state;
    struct server_config cfg = { .listen = all, .listens = 2 };
    assert_fails(guard_config(&cfg, &err), err, BERTH_EINVAL, "0.0.0.0");
    assert_non_null(strstr(err.msg, "--token"));
    cfg.insecure = true;
    assert_ok(guard_config(&cfg, &err), err);
    cfg = (struct server_config) { .listen = all, .listens = 2, .token = "x" };
    assert_ok(guard_config(&cfg, &err), err);
    cfg.token = "";
    assert_fails(guard_config(&cfg, &err), err, BERTH_EINVAL, "empty");
    cfg = (struct server_config) { .listen = here, .listens = 1 };
    assert_ok(guard_config(&cfg, &err), err);
    cfg.tls_key = "k";
    assert_fails(guard_config(&cfg, &err), err, BERTH_EINVAL, "certificate");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(origins, setup, teardown),
        cmocka_unit_test(elsewhere),
        cmocka_unit_test(fetches),
        cmocka_unit_test_setup_teardown(tokens, setup_token, teardown),
        cmocka_unit_test(loopback),
        cmocka_unit_test(configurations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
