/* web: the dashboard's files; see web.h. */
#include "server/web.h"

#include "base/sha256.h"
#include "server/conn.h"
#include "server/gzip.h"
#include "server/routes.h"

#define TAG_HEX 32 /* digits of a file's SHA-256 in its ETag */

struct web_entry { /* filled when a file is asked for the first time */
    char tag[TAG_HEX + 1];
    struct str packed; /* empty: not yet, or there was no memory for it */
};

struct web {
    size_t n;
    struct web_entry at[]; /* one for each of web_files */
};

static bool have_web(struct server *s)
{
    size_t n = 0;
    if (s->web)
        return true;
    while (web_files[n].name)
        n++;
    s->web = calloc(1, sizeof *s->web + n * sizeof s->web->at[0]);
    if (s->web)
        s->web->n = n;
    return s->web;
}

void web_close(struct server *s)
{
    for (size_t i = 0; s->web && i < s->web->n; i++)
        str_release(&s->web->at[i].packed);
    free(s->web);
    s->web = NULL;
}

static void set_tag(const struct web_file *f, struct web_entry *m)
{
    char hex[SHA256_HEX];
    sha256_hex(f->begin, (size_t)(f->end - f->begin), hex);
    memcpy(m->tag, hex, TAG_HEX);
}

/* Packs the file. False: it would not get smaller. */
static bool have_packed(const struct web_file *f, struct web_entry *m)
{
    size_t n = (size_t)(f->end - f->begin);
    berth_err err;
    if (!m->packed.n && (gzip_pack(f->begin, n, &m->packed, &err) || !m->packed.n))
        str_release(&m->packed); /* try again another time */
    return m->packed.n && m->packed.n < n;
}

/* Policies apply to documents only; sent with every script they would double some of them. */
static bool is_document(const char *mime)
{
    return strcmp(mime, "text/html") == 0 || strcmp(mime, "image/svg+xml") == 0;
}

static void add_headers(struct http_req *r, const char *mime, const char *etag)
{
    http_header(r, "ETag", etag);
    http_header(r, "Cache-Control", "no-cache");
    http_header(r, "Vary", "Accept-Encoding");
    if (is_document(mime))
        http_header(r, "Content-Security-Policy",
                    "default-src 'self'; img-src 'self' blob: data:; style-src 'self'; connect-src "
                    "'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
                    "frame-ancestors 'none'");
    r->as_is = true;
}

static void reply_file(struct http_req *r, const struct web_file *f, struct web_entry *m)
{
    char etag[TAG_HEX + 8];
    if (!m->tag[0])
        set_tag(f, m);
    bool packed = gzip_accepted(http1_get(r->h, "accept-encoding")) && have_packed(f, m);
    snprintf(etag, sizeof etag, "\"%s%s\"", m->tag, packed ? "-gz" : "");
    const char *mime = path_mime(f->name);
    add_headers(r, mime, etag);
    const char *match = http1_get(r->h, "if-none-match");
    if (match && http_etag_listed(match, etag)) {
        http_reply_empty(r, 304);
        return;
    }
    char type[80];
    bool text = str_starts(mime, strlen(mime), "text/");
    snprintf(type, sizeof type, "%s%s", mime, text ? "; charset=utf-8" : "");
    if (packed) {
        http_header(r, "Content-Encoding", "gzip");
        http_reply(r, 200, type, m->packed.p, m->packed.n);
    } else {
        http_reply(r, 200, type, f->begin, (size_t)(f->end - f->begin));
    }
}

void web_reply(struct http_req *r, const char *name)
{
    size_t i = 0;
    while (web_files[i].name && strcmp(web_files[i].name, name) != 0)
        i++;
    if (!web_files[i].name || !r->h)
        http_status(r, 404);
    else if (!have_web(r->server))
        http_status(r, 503);
    else
        reply_file(r, &web_files[i], &r->server->web->at[i]);
}

void route_web(struct http_req *r)
{
    web_reply(r, r->params ? str_c(&r->param[0]) : "index.html");
}
