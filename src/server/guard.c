/* guard: who may ask. The origin guard keeps other web pages from using a server on this machine,
 * the token keeps other people out.
 *
 * Origin     Of requests with an Origin, when CORS is off (as for Host). It must name the same host and port as
 *            Host (host alone when one of them has no port), else 403 and no text. An Origin that
 *            names no host ("null") is another one. Compared when the connection came to a loopback
 *            address, or Host is loopback, or a cookie let the request in: browsers send cookies to
 *            every port of a host.
 * Host       What came to a loopback address must call it so: by a loopback name, or as it was told
 *            to listen. Any other name may be one that a foreign page's owner pointed here (DNS
 *            rebinding); then Origin and Host agree, and a GET has no Origin at all. A token keeps
 *            that page out as well, so with one any name is fine: that is how a reverse proxy on
 *            this machine is used. Browsers always send Host: who sends none is no page.
 * Loopback   127.0.0.0/8, ::1, localhost and *.localhost. Names are not looked up: that would block
 *            the loop, and a name can point here today and elsewhere tomorrow.
 * Token      Authorization: Bearer, the cookie a page load was given, or ?token= for what cannot
 *            set headers: WebSockets and page loads. A page load with ?token= gets the cookie. */
#include "server/conn.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <strings.h>

#define COOKIE "berth_token"

/* ---- hosts ---- */

struct host {
    const char *name; /* without brackets */
    size_t n;
    const char *port; /* digits; "" when there is none */
    size_t port_n;
};

/* "name", "name:80", "[::1]:80" of n bytes. */
static struct host split_host(const char *p, size_t n)
{
    struct host h = { .name = p, .n = n, .port = "" };
    const char *colon = NULL;
    if (n && *p == '[') {
        const char *end = memchr(p, ']', n);
        if (end) {
            h.name = p + 1;
            h.n = (size_t)(end - p) - 1;
            colon = end + 1 < p + n && end[1] == ':' ? end + 1 : NULL;
        }
    } else {
        colon = memchr(p, ':', n);
        if (colon)
            h.n = (size_t)(colon - p);
    }
    if (colon) {
        h.port = colon + 1;
        h.port_n = n - (size_t)(colon + 1 - p);
    }
    return h;
}

bool guard_loopback(const char *host, size_t n)
{
    char text[64];
    struct in_addr v4;
    struct in6_addr v6;
    if (n && host[n - 1] == '.')
        n--;
    if (n >= 9 && !strncasecmp(host + n - 9, "localhost", 9))
        return n == 9 || host[n - 10] == '.';
    if (!n || n >= sizeof text)
        return false;
    memcpy(text, host, n);
    text[n] = '\0';
    if (inet_pton(AF_INET, text, &v4) == 1)
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, text, &v6) != 1)
        return false;
    return IN6_IS_ADDR_LOOPBACK(&v6) || (IN6_IS_ADDR_V4MAPPED(&v6) && v6.s6_addr[12] == 127);
}

static bool same(const char *a, size_t n, const char *b, size_t m)
{
    return n == m && !strncasecmp(a, b, n);
}

/* ---- origin ---- */

static bool same_origin(const struct host *h, const char *origin)
{
    const char *at = strstr(origin, "://");
    at = at ? at + 3 : "";
    struct host o = split_host(at, strcspn(at, "/?#"));
    return same(h->name, h->n, o.name, o.n) &&
           (!h->port_n || !o.port_n || same(h->port, h->port_n, o.port, o.port_n));
}

static bool listens_as(const struct server_config *cfg, const struct host *h)
{
    for (size_t i = 0; i < cfg->listens; i++)
        if (same(h->name, h->n, cfg->listen[i], strlen(cfg->listen[i])))
            return true;
    return false;
}

bool guard_allows(const struct server_config *cfg, bool local, const char *host, const char *origin)
{
    struct host h = split_host(host, strlen(host));
    bool loopback = guard_loopback(h.name, h.n);
    if (local && !loopback && !cfg->token && !listens_as(cfg, &h))
        return false;
    return (!local && !loopback) || !origin || same_origin(&h, origin);
}

static void refuse_origin(struct http_req *r, const char *host, const char *origin)
{
    log_warn(&r->server->log, "guard.origin", "path=\"%.80s\" host=\"%.80s\" origin=\"%.80s\"",
             r->path, host, origin ? origin : "");
    http_reply_empty(r, 403);
}

bool guard_origin(struct http_req *r)
{
    const struct server_config *cfg = &r->server->cfg;
    const char *host = http1_get(r->h, "host"), *origin = http1_get(r->h, "origin");
    if (cfg->cors_origin || !host || guard_allows(cfg, r->conn->local, host, origin))
        return true;
    refuse_origin(r, host, origin);
    return false;
}

/* Of a request that a cookie let in; false: it replied. */
static bool guard_cookie(struct http_req *r)
{
    const char *host = http1_get(r->h, "host"), *origin = http1_get(r->h, "origin");
    if (r->server->cfg.cors_origin || !host || !origin)
        return true;
    struct host h = split_host(host, strlen(host));
    if (same_origin(&h, origin))
        return true;
    refuse_origin(r, host, origin);
    return false;
}

/* ---- token ---- */

/* Time depends on the length of what was sent, not on what it is. */
static bool equal_secret(const char *want, const char *p, size_t n)
{
    size_t len = strlen(want);
    unsigned differ = n != len;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned)((unsigned char)p[i] ^ (unsigned char)want[len ? i % len : 0]);
    return !differ && n;
}

static bool bearer(const struct http_req *r, const char *want)
{
    const char *a = http1_get(r->h, "authorization");
    if (!a || strncasecmp(a, "bearer ", 7))
        return false;
    a += 7;
    a += strspn(a, " ");
    return equal_secret(want, a, strlen(a));
}

static bool cookie(const struct http_req *r, const char *want)
{
    for (size_t i = 0; i < r->h->fields; i++) {
        if (strcmp(r->h->field[i].name, "cookie"))
            continue;
        for (const char *p = r->h->field[i].value; *p;) {
            p += strspn(p, "; ");
            size_t n = strcspn(p, ";"), eq = strcspn(p, "=;");
            struct str value = { 0 };
            bool ok = eq < n && str_eq(p, eq, COOKIE) &&
                      path_unescape(p + eq + 1, n - eq - 1, false, &value) &&
                      equal_secret(want, str_c(&value), value.n);
            str_release(&value);
            if (ok)
                return true;
            p += n;
        }
    }
    return false;
}

static void give_cookie(struct http_req *r)
{
    struct str line = { 0 };
    const char *token = r->server->cfg.token;
    str_adds(&line, COOKIE "=");
    path_escape(token, strlen(token), &line);
    str_adds(&line, "; Path=/; HttpOnly; SameSite=Strict");
    if (r->conn->tls)
        str_adds(&line, "; Secure");
    if (!line.bad)
        http_header(r, "Set-Cookie", str_c(&line));
    str_release(&line);
    http_header(r, "Referrer-Policy", "no-referrer"); /* the token is in the address */
}

static bool in_query(struct http_req *r, const struct route *route, const char *want)
{
    struct str text = { 0 };
    bool page = route && route->flags & ROUTE_PAGE;
    bool ok = route && (page || route->flags & ROUTE_WS) && http_query(r, "token", &text) &&
              equal_secret(want, str_c(&text), text.n);
    str_release(&text);
    if (ok && page)
        give_cookie(r);
    return ok;
}

bool guard_token(struct http_req *r, const struct route *route)
{
    const char *want = r->server->cfg.token;
    if (!want || (route && route->flags & ROUTE_OPEN) || bearer(r, want) ||
        in_query(r, route, want))
        return true;
    if (cookie(r, want))
        return guard_cookie(r);
    http_header(r, "WWW-Authenticate", "Bearer realm=\"berth\"");
    http_reply_text(
        r, 401,
        "401: Unauthorized\n\nThis server wants its token: Authorization: Bearer TOKEN, "
        "or open it with ?token=TOKEN in a browser.");
    return false;
}

/* As loop.c will read it. */
static bool is_address(const char *text)
{
    const struct addrinfo hint = { .ai_flags = AI_NUMERICHOST };
    struct addrinfo *ai = NULL;
    bool is = strcmp(text, "localhost") == 0 || !getaddrinfo(text, NULL, &hint, &ai);
    if (ai)
        freeaddrinfo(ai);
    return is;
}

berth_status guard_config(const struct server_config *cfg, berth_err *err)
{
    if (cfg->token && !*cfg->token)
        return err_set(err, BERTH_EINVAL, "the token is empty");
    if (!cfg->tls_key != !cfg->tls_cert)
        return err_set(err, BERTH_EINVAL, "TLS needs both a key and a certificate");
    if (cfg->cors_origin && strpbrk(cfg->cors_origin, "\r\n"))
        return err_set(err, BERTH_EINVAL, "the CORS origin has a line break in it");
    for (size_t i = 0; i < cfg->listens; i++) {
        if (!is_address(cfg->listen[i]))
            return err_set(err, BERTH_EINVAL,
                           "--listen: '%.64s' is no IP address (127.0.0.1: only this machine gets "
                           "in; 0.0.0.0: others too)",
                           cfg->listen[i]);
        if (!cfg->token && !cfg->insecure &&
            !guard_loopback(cfg->listen[i], strlen(cfg->listen[i])))
            return err_set(err, BERTH_EINVAL,
                           "listening on %.64s lets others in: give a token (--token), or "
                           "--insecure to let everybody use this machine",
                           cfg->listen[i]);
    }
    return BERTH_OK;
}
