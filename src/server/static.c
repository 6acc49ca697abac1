/* static: files over HTTP: the frontend's folder (or the dashboard), and files that routes hand
 * out, with ETags, conditions and ranges (RFC 9110 13, 14). Files are opened here and read piece by
 * piece as the client takes them.
 *
 * Ranges     One range is honoured; a request for several gets the whole file, which is allowed.
 *            If-Range: the range counts only if the file is unchanged.
 * Symlinks   Below the frontend's folder none leads out of it (path_inside()). */
#include "server/conn.h"
#include "server/packs.h"
#include "server/web.h"

#include <errno.h>
#include <fcntl.h>
#include <strings.h>
#include <sys/stat.h>
#include <unistd.h>

/* ---- conditions ---- */

struct file_tag {
    char etag[48];
    char modified[32];
    time_t mtime;
    uint64_t size;
};

static void make_tag(const struct stat *st, struct file_tag *t)
{
    uint64_t ns = (uint64_t)st->st_mtim.tv_sec * 1000000000u + (uint64_t)st->st_mtim.tv_nsec;
    struct tm tm;
    t->mtime = st->st_mtim.tv_sec;
    t->size = (uint64_t)st->st_size;
    snprintf(t->etag, sizeof t->etag, "\"%jx-%jx\"", (uintmax_t)ns, (uintmax_t)t->size);
    if (!gmtime_r(&t->mtime, &tm) ||
        !strftime(t->modified, sizeof t->modified, "%a, %d %b %Y %H:%M:%S GMT", &tm))
        t->modified[0] = '\0';
}

static bool parse_date(const char *text, time_t *out)
{
    struct tm tm = { 0 };
    const char *end = strptime(text, "%a, %d %b %Y %H:%M:%S GMT", &tm);
    if (!end || *end)
        return false;
    *out = timegm(&tm);
    return true;
}

bool http_etag_listed(const char *list, const char *etag)
{
    size_t n = strlen(etag);
    for (const char *p = list; *p;) {
        p += strspn(p, " \t,");
        if (*p == '*')
            return true;
        if (!strncmp(p, "W/", 2))
            p += 2;
        if (!strncmp(p, etag, n))
            return true;
        if (*p == '"') {
            p++;
            p += strcspn(p, "\"");
        }
        p += strcspn(p, ",");
    }
    return false;
}

static bool not_modified(const struct http_req *r, const struct file_tag *t)
{
    const char *match = http1_get(r->h, "if-none-match");
    if (match)
        return http_etag_listed(match, t->etag);
    const char *since = http1_get(r->h, "if-modified-since");
    time_t when;
    return since && parse_date(since, &when) && t->mtime <= when;
}

/* ---- ranges ---- */

enum range { RANGE_WHOLE, RANGE_PART, RANGE_NONE };

/* A number beyond 64 bits counts as the largest one: no file is that long. */
static bool digits(const char **p, uint64_t *out)
{
    size_t n = strspn(*p, "0123456789");
    if (n && !str_parse_u64(*p, n, out))
        *out = UINT64_MAX;
    *p += n;
    return n;
}

/* "bytes=a-b", "bytes=a-", "bytes=-k". A malformed one counts as no range. */
static enum range parse_range(const char *text, uint64_t size, uint64_t *from, uint64_t *n)
{
    uint64_t a = 0, b = 0;
    if (strncasecmp(text, "bytes=", 6) || strchr(text, ','))
        return RANGE_WHOLE;
    const char *p = text + 6;
    p += strspn(p, " \t");
    if (*p == '-') {
        p++;
        if (!digits(&p, &b) || *p)
            return RANGE_WHOLE;
        if (!b || !size)
            return RANGE_NONE;
        *n = b < size ? b : size;
        *from = size - *n;
        return RANGE_PART;
    }
    if (!digits(&p, &a) || *p++ != '-')
        return RANGE_WHOLE;
    bool open = !*p;
    if (!open && (!digits(&p, &b) || *p || b < a))
        return RANGE_WHOLE;
    if (a >= size)
        return RANGE_NONE;
    *from = a;
    *n = (open || b >= size ? size - 1 : b) - a + 1;
    return RANGE_PART;
}

static enum range wanted_range(const struct http_req *r, const struct file_tag *t, uint64_t *from,
                               uint64_t *n)
{
    const char *range = http1_get(r->h, "range"), *only = http1_get(r->h, "if-range");
    *from = 0;
    *n = t->size;
    if (!range)
        return RANGE_WHOLE;
    time_t when;
    if (only && strcmp(only, t->etag) && !(parse_date(only, &when) && when == t->mtime))
        return RANGE_WHOLE;
    return parse_range(range, t->size, from, n);
}

/* ---- a file ---- */

static void add_tags(struct http_req *r, const struct file_tag *t)
{
    http_header(r, "ETag", t->etag);
    if (t->modified[0])
        http_header(r, "Last-Modified", t->modified);
    http_header(r, "Accept-Ranges", "bytes");
}

static void reply_open_file(struct http_req *r, int fd, const struct stat *st,
                            const struct http_file *f)
{
    struct file_tag t;
    uint64_t from, n;
    char text[80];
    make_tag(st, &t);
    add_tags(r, &t);
    if (f->disposition)
        http_header(r, "Content-Disposition", f->disposition);
    if (not_modified(r, &t)) {
        close(fd);
        http_reply_empty(r, 304);
        return;
    }
    enum range got = wanted_range(r, &t, &from, &n);
    if (got == RANGE_NONE) {
        close(fd);
        snprintf(text, sizeof text, "bytes */%ju", (uintmax_t)t.size);
        http_header(r, "Content-Range", text);
        http_reply_empty(r, 416);
        return;
    }
    if (got == RANGE_PART) {
        snprintf(text, sizeof text, "bytes %ju-%ju/%ju", (uintmax_t)from, (uintmax_t)(from + n - 1),
                 (uintmax_t)t.size);
        http_header(r, "Content-Range", text);
    }
    http_reply_fd(r, got == RANGE_PART ? 206 : 200, f->type ? f->type : path_mime(f->path), fd,
                  from, n);
}

void http_reply_file(struct http_req *r, const struct http_file *f)
{
    struct stat st;
    /* Non-blocking: opening a FIFO would wait for a writer. */
    int fd = open(f->path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0 || fstat(fd, &st) || !S_ISREG(st.st_mode) || !r->h) {
        bool busy = fd < 0 && (errno == EMFILE || errno == ENFILE);
        if (fd >= 0)
            close(fd);
        http_status(r, busy ? 503 : 404);
        return;
    }
    reply_open_file(r, fd, &st, f);
}

/* ---- the frontend ---- */

void route_static(struct http_req *r)
{
    const char *root = r->server->cfg.frontend;
    bool index = !strcmp(r->path, "/") || !strcmp(r->path, "/api/");
    const char *rel = index ? "index.html" : str_c(&r->param[0]);
    size_t n = strlen(rel);
    struct str path = { 0 };
    struct stat st;
    berth_err err;
    if (!root) {
        if (index)
            web_reply(r, "index.html");
        else if (!packs_reply(r, rel, n))
            http_status(r, 404);
        return;
    }
    if (index) {
        http_header(r, "Cache-Control", "no-store, must-revalidate");
        http_header(r, "Pragma", "no-cache");
        http_header(r, "Expires", "0");
    }
    if (path_inside(root, rel, n, false, &path, &err))
        http_status(r, err.code == BERTH_EINVAL ? 403 : 404);
    else if (!stat(str_c(&path), &st) && S_ISDIR(st.st_mode))
        http_status(r, 403);
    else if (n && rel[n - 1] == '/') /* no folder: no file has that name */
        http_status(r, 404);
    else if (access(str_c(&path), F_OK) && packs_reply(r, rel, n))
        ; /* newer frontends bring neither templates nor documentation of their own */
    else if (str_starts(rel, n, "templates/") && access(str_c(&path), F_OK))
        web_reply(r, rel); /* what a newcomer is offered */
    else
        http_reply_file(r, &(struct http_file) { .path = str_c(&path) });
    str_release(&path);
}
