/* http: requests as routes see them, and replies; see http.h. */
#include "server/conn.h"
#include "server/gzip.h"

#include <errno.h>
#include <strings.h>
#include <unistd.h>

#define JSON_NOW_MAX (1u << 20)   /* bytes of a body parsed on the loop */
#define GZIP_NOW_MAX (256u << 10) /* bytes packed on the loop; more would hold others up */
#define GZIP_OWN_MIN 1400         /* bytes: fewer are one packet anyway */
#define GZIP_MAX (64u << 20)      /* and elsewhere: about a second */

/* ---- words ---- */

static const char *reason(int status)
{
    static const struct {
        int status;
        const char *text;
    } all[] = {
        { 100, "Continue" },
        { 101, "Switching Protocols" },
        { 200, "OK" },
        { 201, "Created" },
        { 204, "No Content" },
        { 206, "Partial Content" },
        { 304, "Not Modified" },
        { 400, "Bad Request" },
        { 401, "Unauthorized" },
        { 403, "Forbidden" },
        { 404, "Not Found" },
        { 405, "Method Not Allowed" },
        { 408, "Request Timeout" },
        { 409, "Conflict" },
        { 413, "Request Entity Too Large" },
        { 414, "URI Too Long" },
        { 415, "Unsupported Media Type" },
        { 416, "Range Not Satisfiable" },
        { 429, "Too Many Requests" },
        { 431, "Request Header Fields Too Large" },
        { 500, "Internal Server Error" },
        { 501, "Not Implemented" },
        { 503, "Service Unavailable" },
        { 505, "HTTP Version Not Supported" },
        { 507, "Insufficient Storage" },
    };
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (all[i].status == status)
            return all[i].text;
    return "Unknown";
}

/* EUNSUPPORTED is the client's mistake: it named a device, format or option this build lacks. */
int err_http_status(const berth_err *err)
{
    switch (err->code) {
    case BERTH_EINVAL:
    case BERTH_EFORMAT:
    case BERTH_EUNSUPPORTED:
        return 400;
    case BERTH_ENOTFOUND:
        return 404;
    case BERTH_EBUSY:
    case BERTH_ENODEVMEM:
        return 409;
    case BERTH_ELIMIT:
        return 413;
    case BERTH_ENOMEM:
    case BERTH_ECANCELED:
        return 503;
    case BERTH_EIO:
        return err->native == ENOSPC || err->native == EDQUOT ? 507 : 503;
    default:
        return 500;
    }
}

void err_http_json(const berth_err *err, struct str *out)
{
    struct str text = { 0 };
    err_without_folders(err, &text);
    struct jsonout j = { .out = out, .spaced = true };
    jo_open(&j, NULL, '{');
    jo_text(&j, "error", str_c(&text), text.n);
    jo_close(&j, '}');
    str_release(&text);
}

/* ---- requests ---- */

void http_begin(struct http_req *r, struct conn *c, bool ok)
{
    const struct http1 *h = ok ? c->h1 : NULL;
    r->server = c->server;
    r->server->http_requests++;
    r->conn = c;
    r->refs = 1;
    r->h = h;
    r->path = h ? h->path : "";
    r->query = h ? h->query : "";
    r->method = h ? router_method(h->method) : HTTP_OTHER;
    r->user = "default";
    if (r->method == HTTP_HEAD) {
        r->head = true;
        r->method = HTTP_GET;
    }
    if (h && c->server->cfg.multi_user) {
        const char *user = http1_get(h, "comfy-user");
        r->user = user && *user && strncmp(user, "__", 2) && !strpbrk(user, "/\\") ? user : NULL;
    }
}

void http_req_unref(struct http_req *r)
{
    if (--r->refs)
        return;
    for (size_t i = 0; i < HTTP_PARAMS_MAX; i++)
        str_release(&r->param[i]);
    str_release(&r->body);
    r->server->loop->body_bytes -= r->body_held; /* a lane may have used the text until now */
    str_release(&r->extra);
    if (r->own) {
        http1_release(r->own);
        free(r->own);
    }
    free(r);
}

struct http_req *http_hold(struct http_req *r)
{
    r->refs++;
    return r;
}

void http_unhold(struct http_req *r)
{
    /* The connection's own reference is the one that is left. */
    if (r->conn && !r->replied && r->refs == 2)
        http_status(r, 500);
    http_req_unref(r);
}

/* As in ComfyUI, a '%' without two digits is kept: "50%.png" is a file name. False: a NUL, or no
 * memory. */
static bool query_unescape(const char *s, size_t n, struct str *out)
{
    while (n) {
        size_t k = s[0] != '%' ? 1 : n < 3 ? 0 : 3;
        if (k && path_unescape(s, k, true, out)) {
            s += k;
            n -= k;
        } else if (k == 3 && !strncmp(s, "%00", 3)) {
            return false;
        } else {
            str_addc(out, *s++);
            n--;
        }
        if (out->bad)
            return false;
    }
    return true;
}

bool http_query(const struct http_req *r, const char *name, struct str *out)
{
    bool found = false;
    struct str key = { 0 };
    for (const char *p = r->query; *p && !found;) {
        size_t n = strcspn(p, "&"), eq = strcspn(p, "=&");
        str_clear(&key);
        if (query_unescape(p, eq, &key) && !strcmp(str_c(&key), name)) {
            str_clear(out);
            found = query_unescape(eq < n ? p + eq + 1 : p + n, eq < n ? n - eq - 1 : 0, out);
        }
        p += n + (p[n] == '&');
    }
    str_release(&key);
    return found;
}

berth_status http_body_json(const struct str *body, const char *empty, json_t **out, berth_err *err)
{
    const char *text = str_c(body);
    size_t n = body->n;
    *out = NULL;
    if (!n && empty) {
        text = empty;
        n = strlen(empty);
    }
    if (js_parse(text, n, &js_limits_loose, out, err))
        return err_add(err, "the body is no JSON for us");
    return BERTH_OK;
}

bool http_json(struct http_req *r, const char *empty, json_t **out)
{
    berth_err err = { 0 };
    *out = NULL;
    if (r->body.n > JSON_NOW_MAX) {
        err_set(&err, BERTH_ELIMIT, "the body has %zu bytes, at most %u here", r->body.n,
                JSON_NOW_MAX);
        http_reply_err(r, 0, &err);
        return false;
    }
    if (!http_body_json(&r->body, empty, out, &err))
        return true;
    http_reply_err(r, err.code == BERTH_ENOMEM ? 503 : 400, &err);
    return false;
}

/* ---- heads ---- */

void http_header(struct http_req *r, const char *name, const char *value)
{
    str_adds(&r->extra, name);
    str_adds(&r->extra, ": ");
    str_add(&r->extra, value, strcspn(value, "\r\n"));
    str_adds(&r->extra, "\r\n");
    r->cache_set = r->cache_set || !strcasecmp(name, "cache-control");
}

bool http_ends_with(const char *s, size_t n, const char *const *ends)
{
    for (; *ends; ends++) {
        size_t k = strlen(*ends);
        if (n >= k && !strncasecmp(s + n - k, *ends, k))
            return true;
    }
    return false;
}

/* By the path of the request, as ComfyUI's middleware does it; NULL: none. */
static const char *cache_control(const char *path, int status)
{
    static const char *const image[] = { ".jpg", ".jpeg", ".png",  ".ppm",  ".bmp",
                                         ".pgm", ".tif",  ".tiff", ".webp", NULL };
    size_t n = strlen(path);
    const char *last = strrchr(path, '/');
    last = last ? last + 1 : path;
    if (str_ends(path, n, ".js") || str_ends(path, n, ".css") ||
        (str_starts(last, strlen(last), "index") && str_ends(path, n, ".json")))
        return "no-store";
    if (!http_ends_with(path, n, image))
        return NULL;
    if (status == 404)
        return "public, max-age=3600";
    return status >= 200 && status <= 206 ? "public, max-age=86400" : NULL;
}

static void add_cors(const struct http_req *r, struct str *out)
{
    const char *origin = r->server->cfg.cors_origin;
    if (!origin)
        return;
    str_addf(out, "Access-Control-Allow-Origin: %s\r\n", origin);
    str_adds(out, "Access-Control-Allow-Methods: POST, GET, DELETE, PUT, OPTIONS, PATCH\r\n"
                  "Access-Control-Allow-Headers: Content-Type, Authorization\r\n"
                  "Access-Control-Allow-Credentials: true\r\n");
}

/* Everything in front of the body. type NULL: none. */
static void add_head(struct http_req *r, int status, const char *type, uint64_t n, struct str *out)
{
    struct conn *c = r->conn;
    c->keep = conn_can_keep(c);
    str_addf(out, "HTTP/1.1 %d %s\r\n", status, reason(status));
    if (type)
        str_addf(out, "Content-Type: %s\r\n", type);
    if (status != 204 && status != 304 && status >= 200)
        str_addf(out, "Content-Length: %ju\r\n", (uintmax_t)n);
    str_add(out, str_c(&r->extra), r->extra.n);
    add_cors(r, out);
    const char *cache = r->cache_set ? NULL : cache_control(r->path, status);
    if (cache)
        str_addf(out, "Cache-Control: %s\r\n", cache);
    if (status < 400) /* what somebody uploaded must never become a page */
        str_adds(out, "X-Content-Type-Options: nosniff\r\n");
    str_addf(out, "Date: %s\r\n", loop_date(r->server));
    if (status == 503) /* all of these are temporary */
        str_adds(out, "Retry-After: 1\r\n");
    if (status != 101 && !c->keep)
        str_adds(out, "Connection: close\r\n");
    else if (r->h && r->h->http10)
        str_adds(out, "Connection: keep-alive\r\n");
    str_adds(out, "\r\n");
}

/* False: the client has left, or there was a reply already. */
static bool may_reply(struct http_req *r)
{
    if (r->replied)
        log_error(&r->server->log, "http.twice", "path=\"%.100s\" what=\"second reply dropped\"",
                  r->path);
    bool go = r->conn && !r->replied && !r->conn->dead;
    r->replied = true;
    return go;
}

static bool packable(const char *type, const struct str *body)
{
    return type && body->n && !body->bad &&
           (str_starts(type, strlen(type), "application/json") ||
            str_starts(type, strlen(type), "text/plain"));
}

/* From how many bytes on is text packed for clients that accept it? ComfyUI's routes do as ComfyUI
 * does: all or none. Berth's own, which the dashboard polls, wherever it saves packets. */
static size_t gzip_worth(const struct http_req *r)
{
    const char *path = r->path ? r->path : "";
    if (!r->h || r->server->cfg.compress)
        return r->h ? 1 : SIZE_MAX;
    path += str_starts(path, strlen(path), "/api/") ? strlen("/api") : 0;
    return str_starts(path, strlen(path), "/berth/") ? GZIP_OWN_MIN : SIZE_MAX;
}

size_t http_gzip_from(const struct http_req *r)
{
    size_t worth = gzip_worth(r);
    bool takes = worth < SIZE_MAX && gzip_accepted(http1_get(r->h, "accept-encoding"));
    return takes ? worth : SIZE_MAX;
}

bool http_pack(const char *type, struct str *body)
{
    struct str packed = { 0 };
    berth_err err;
    if (!packable(type, body) || body->n > GZIP_MAX || gzip_pack(body->p, body->n, &packed, &err)) {
        str_release(&packed); /* send it unpacked */
        return false;
    }
    str_release(body);
    *body = packed;
    return true;
}

/* Packs the body where that was asked for. */
static void pack(struct http_req *r, const char *type, struct str *body)
{
    if (r->as_is || !packable(type, body) || (!r->packed && body->n < gzip_worth(r)))
        return;
    http_header(r, "Vary", "Accept-Encoding");
    if (r->packed ||
        (body->n <= GZIP_NOW_MAX && body->n >= http_gzip_from(r) && http_pack(type, body)))
        http_header(r, "Content-Encoding", "gzip");
}

/* ---- answers ---- */

void http_reply_take(struct http_req *r, int status, const char *type, struct str *taken)
{
    struct str head = { 0 };
    if (!may_reply(r)) {
        str_release(taken);
        return;
    }
    struct conn *c = r->conn;
    bool room = loop_out_room(r->server, taken->n);
    if (taken->bad || r->extra.bad || !room) {
        str_release(taken);
        str_release(&r->extra);
        r->packed = false;
        status = 503;
        type = "text/plain; charset=utf-8";
        str_adds(taken, room ? "503: out of memory" : "503: too much is being read slowly");
    }
    pack(r, type, taken);
    add_head(r, status, type, taken->n, &head);
    conn_send_str(c, &head);
    if (r->head || !taken->n)
        str_release(taken);
    else
        conn_send_str(c, taken);
    conn_dirty(c);
}

void http_reply_fd(struct http_req *r, int status, const char *type, int fd, uint64_t from,
                   uint64_t n)
{
    struct str head = { 0 };
    if (r->conn && !r->replied && r->server->loop->files >= r->server->loop->files_max) {
        close(fd);
        str_release(&r->extra); /* they described the file */
        r->cache_set = false;
        http_reply_text(r, 503, "503: too many files are being read");
        return;
    }
    if (!may_reply(r)) {
        close(fd);
        return;
    }
    struct conn *c = r->conn;
    add_head(r, status, type, n, &head);
    conn_send_str(c, &head);
    if (r->head || !n)
        close(fd);
    else
        conn_send_file(c, fd, from, n);
    conn_dirty(c);
}

void http_reply(struct http_req *r, int status, const char *type, const char *body, size_t n)
{
    struct str copy = { 0 };
    str_add(&copy, body, n);
    http_reply_take(r, status, type, &copy);
}

void http_reply_empty(struct http_req *r, int status)
{
    http_reply(r, status, NULL, "", 0);
}

void http_reply_text(struct http_req *r, int status, const char *text)
{
    http_reply(r, status, "text/plain; charset=utf-8", text, strlen(text));
}

void http_reply_json_text(struct http_req *r, int status, struct str *taken)
{
    http_reply_take(r, status, "application/json; charset=utf-8", taken);
}

void http_add_json(json_t *taken, struct str *out)
{
    if (taken)
        js_write(taken, 0, out);
    else
        out->bad = true;
    json_decref(taken);
}

void http_reply_json(struct http_req *r, int status, json_t *taken)
{
    struct str text = { 0 };
    http_add_json(taken, &text);
    http_reply_json_text(r, status, &text);
}

void http_reply_err(struct http_req *r, int status, const berth_err *err)
{
    struct str text = { 0 };
    err_http_json(err, &text);
    http_reply_json_text(r, status ? status : err_http_status(err), &text);
}

void http_reply_fixed(struct http_req *r)
{
    const struct http_answer *a = r->conn->route->answer;
    struct str value = { 0 };
    if (!a->text || http_query(r, "value", &value))
        http_reply_empty(r, a->status);
    else
        http_reply(r, a->status, a->type, a->text, strlen(a->text));
    str_release(&value);
}

void http_reply_filled(struct http_req *r)
{
    struct str text = { 0 };
    r->conn->route->fill(r->server, &text);
    http_reply_json_text(r, 200, &text);
}

void http_status(struct http_req *r, int status)
{
    char text[64];
    snprintf(text, sizeof text, "%d: %s", status, reason(status));
    http_reply_text(r, status, text);
}

void http_not_allowed(struct http_req *r, unsigned allow)
{
    struct str list = { 0 };
    router_methods(allow, &list);
    http_header(r, "Allow", str_c(&list));
    str_release(&list);
    http_status(r, 405);
}
