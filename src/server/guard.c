/* guard: who may ask. The origin guard keeps other web pages from using a server on this machine,
 * the token keeps other people out.
 *
 * Origin     Checked unless CORS is on (as is Host). It must match the connection's scheme and the
 *            Host header's name and port, where a missing port means 80 or 443; otherwise 403,
 *            without text. The scheme is https on TLS, and where a proxy says so
 *            (X-Forwarded-Proto, which no page can set). "null" never matches. Compared if the
 *            connection came to a loopback address, Host is loopback, or a cookie let the request
 *            in, because browsers send cookies to every port of a host.
 * Fetch      A GET from a foreign page (a picture, a script) has no Origin, but browsers send
 *            Sec-Fetch-Site. "cross-site" is refused wherever Origin is compared, "same-site"
 *            (another port) if a cookie let it in; following a link is allowed.
 * Host       A request to a loopback address must use a loopback name, or an address we listen on.
 *            Any other name may be one that a foreign page's owner pointed here (DNS rebinding);
 *            then Origin and Host agree, and a GET has no Origin at all. With a token any name is
 *            fine, since the page lacks it: that is how a reverse proxy on this machine works.
 *            Browsers always send Host, so a request without one comes from no page.
 * Loopback   127.0.0.0/8, ::1, localhost and *.localhost. Names are not looked up: that would block
 *            the loop, and the answer may change.
 * Token      Authorization: Bearer, the cookie given to a page load, or ?token= where headers
 *            cannot be set: WebSockets and page loads. A page load with ?token= gets the cookie. */
#include "server/conn.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <strings.h>

#define COOKIE "berth_token"

/* ---- hosts ---- */

struct host {
    const char *name; /* without brackets */
    size_t n;         /* 0: it is none */
    unsigned port;    /* 0: not written */
};

/* 1 to 65535, or 0 for no digits: "host:" equals "host". */
static bool read_port(const char *p, size_t n, unsigned *port)
{
    uint64_t v = 0;
    bool ok = !n || (str_parse_u64(p, n, &v) && v && v <= 65535);
    *port = ok ? (unsigned)v : 0;
    return ok;
}

/* "name", "name:80", "[::1]:80" of n bytes; anything else is no host. */
static struct host split_host(const char *p, size_t n)
{
    struct host h = { .name = p };
    const char *end = p + n, *stop; /* behind the name */
    if (n && *p == '[') {
        h.name = p + 1;
        stop = memchr(p, ']', n);
        if (!stop)
            return h;
    } else {
        stop = memchr(p, ':', n);
        stop = stop ? stop : end;
    }
    size_t len = (size_t)(stop - h.name);
    stop += h.name != p; /* the bracket */
    if (stop == end || (*stop == ':' && read_port(stop + 1, (size_t)(end - stop) - 1, &h.port)))
        h.n = len;
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

/* Does the text begin with http: or https:? 0, or the port of that scheme; *n: where it ends. */
static unsigned scheme_port(const char *p, size_t *n)
{
    *n = strcspn(p, ":");
    return same(p, *n, "http", 4) ? 80 : same(p, *n, "https", 5) ? 443 : 0;
}

static bool same_origin(const struct guard_ask *a, const struct host *h)
{
    size_t n;
    unsigned proxied = a->proto && !strncasecmp(a->proto, "https", 5) ? 443 : 80,
             ours = a->tls ? 443 : proxied, theirs = scheme_port(a->origin, &n);
    if (!theirs || strncmp(a->origin + n, "://", 3))
        return false;
    const char *at = a->origin + n + 3;
    struct host o = split_host(at, strcspn(at, "/?#"));
    /* Old websocket-client says http on encrypted connections too. No page does: one on this port
     * would be ours. */
    bool old = a->tls && !a->cookie && theirs == 80 && o.port;
    return (theirs == ours || old) && o.n && same(h->name, h->n, o.name, o.n) &&
           (h->port ? h->port : ours) == (o.port ? o.port : theirs);
}

static bool listens_as(const struct server_config *cfg, const struct host *h)
{
    for (size_t i = 0; i < cfg->listens; i++)
        if (same(h->name, h->n, cfg->listen[i], strlen(cfg->listen[i])))
            return true;
    return false;
}

/* Does it come from a page of another site, or (any) another page, and not by following a link? */
static bool is_cross_site(const struct guard_ask *a, bool any)
{
    if (!a->site || (a->mode && !strcasecmp(a->mode, "navigate")))
        return false;
    return !strcasecmp(a->site, "cross-site") || (any && !strcasecmp(a->site, "same-site"));
}

bool guard_allows(const struct server_config *cfg, const struct guard_ask *a)
{
    struct host h = split_host(a->host, strlen(a->host));
    bool loopback = guard_loopback(h.name, h.n);
    if (a->local && !loopback && !cfg->token && !listens_as(cfg, &h))
        return false;
    if (!a->local && !loopback && !a->cookie)
        return true;
    return a->origin ? same_origin(a, &h) : !is_cross_site(a, a->cookie);
}

bool guard_origin(struct http_req *r, bool cookie)
{
    struct guard_ask a = { .local = r->conn->local,
                           .tls = r->conn->tls,
                           .cookie = cookie,
                           .host = http1_get(r->h, "host"),
                           .origin = http1_get(r->h, "origin"),
                           .proto = http1_get(r->h, "x-forwarded-proto"),
                           .site = http1_get(r->h, "sec-fetch-site"),
                           .mode = http1_get(r->h, "sec-fetch-mode") };
    if (r->server->cfg.cors_origin || !a.host || guard_allows(&r->server->cfg, &a))
        return true;
    log_warn(&r->server->log, "guard.origin",
             "path=\"%.80s\" host=\"%.80s\" origin=\"%.80s\" site=\"%.20s\" proto=\"%.20s\"",
             r->path, a.host, a.origin ? a.origin : "", a.site ? a.site : "",
             a.tls     ? "https"
             : a.proto ? a.proto
                       : "http");
    http_reply_empty(r, 403);
    return false;
}

/* ---- token ---- */

/* Takes time by the length of what was sent, not by its content. */
static bool equal_secret(const char *want, const char *p, size_t n)
{
    size_t len = strlen(want);
    unsigned differ = n != len;
    for (size_t i = 0; i < n; i++)
        differ |= (unsigned)((unsigned char)p[i] ^ (unsigned char)want[len ? i % len : 0]);
    return !differ && n;
}

static bool has_bearer(const struct http_req *r, const char *want)
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
    if (!want || (route && route->flags & ROUTE_OPEN) || has_bearer(r, want) ||
        in_query(r, route, want))
        return true;
    if (cookie(r, want))
        return guard_origin(r, true);
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
