#include "server/routes.h"

#include "base/file.h"
#include "server/conn.h"

#include <errno.h>
#include <strings.h>
#include <sys/random.h>
#include <unistd.h>

/* ---- later ---- */

void later_free(struct later *l)
{
    if (l->release)
        l->release(l);
    str_release(&l->body);
    free(l->disposition);
    json_decref(l->json);
    free(l);
}

void later_abort(struct http_req *r)
{
    struct later *l = r->sink;
    r->sink = NULL;
    if (l)
        later_free(l);
}

static void later_work(struct server *s, void *arg)
{
    struct later *l = arg;
    bool reads = l->lane != AUX_FILES;
    if (reads && (atomic_load(&l->r->left) || atomic_load(&s->hurry))) {
        l->status = 503; /* nobody hears it, or has the time */
        return;
    }
    l->work(l);
    if (l->failed)
        later_err(l, 0, &l->err);
    if (!l->type && l->body.n)
        l->type = "application/json; charset=utf-8";
    l->packed = l->body.n >= l->gzip_from && http_pack(l->type, &l->body);
}

static void later_done(struct server *s, void *arg)
{
    struct later *l = arg;
    struct http_req *r = l->r;
    (void)s;
    if (l->disposition && !l->failed)
        http_header(r, "Content-Disposition", l->disposition);
    r->packed = l->packed;
    if (l->type || l->body.bad)
        http_reply_take(r, l->status, l->type, &l->body);
    else
        http_reply_empty(r, l->status);
    if (l->after)
        l->after(l);
    later_free(l);
    http_unhold(r);
}

static void later_compute(struct server *s, void *arg)
{
    struct later *l = arg;
    (void)s;
    l->compute(l);
}

static void later_refuse(struct later *l)
{
    struct http_req *r = l->r;
    http_reply_text(r, 503, "too much is waiting, try again");
    later_free(l);
    http_unhold(r);
}

static void later_computed(struct server *s, void *arg)
{
    struct later *l = arg;
    if (!aux_run(s, l->lane, later_work, later_done, l))
        later_refuse(l);
}

void *later_new(struct http_req *r, size_t size, enum aux_lane lane, later_fn *work)
{
    struct later *l = calloc(1, size);
    if (l)
        *l = (struct later) {
            .server = r->server, .r = r, .lane = lane, .work = work, .status = 200
        };
    else
        http_reply_json(r, 500, NULL);
    return l;
}

void *later_new_json(struct http_req *r, size_t size, enum aux_lane lane, later_fn *work,
                     json_t *taken)
{
    struct later *l = later_new(r, size, lane, work);
    if (l)
        l->json = taken;
    else
        json_decref(taken);
    return l;
}

void later_run(struct later *l)
{
    l->gzip_from = http_gzip_from(http_hold(l->r));
    if (!l->compute)
        later_computed(l->server, l);
    else if (!aux_run(l->server, AUX_PICTURES, later_compute, later_computed, l))
        later_refuse(l);
}

void later_start(struct http_req *r, enum aux_lane lane, later_fn *work)
{
    struct later *l = later_new(r, sizeof *l, lane, work);
    if (l)
        later_run(l);
}

void route_later(struct http_req *r)
{
    const struct route_work *w = r->conn->route->work;
    later_start(r, w->lane, w->work);
}

void later_text(struct later *l, int status, const char *text)
{
    l->status = status;
    l->type = "text/plain; charset=utf-8";
    str_clear(&l->body);
    str_adds(&l->body, text);
}

void later_json(struct later *l, int status, json_t *taken)
{
    l->status = status;
    str_clear(&l->body);
    http_add_json(taken, &l->body);
}

void later_err(struct later *l, int status, const berth_err *err)
{
    later_text(l, status ? status : err_http_status(err), "");
    err_without_folders(err, &l->body);
}

void later_err_json(struct later *l, int status, const berth_err *err)
{
    str_clear(&l->body);
    l->status = status ? status : err_http_status(err);
    err_http_json(err, &l->body);
}

void reply_wrong(struct http_req *r, const char *text)
{
    http_reply_json(r, 400, json_pack("{s:s}", "error", text));
}

void reply_trouble(struct http_req *r, const berth_err *err)
{
    struct str text = { 0 };
    err_without_folders(err, &text);
    http_reply_take(r, err_http_status(err), "text/plain; charset=utf-8", &text);
}

/* ---- values ---- */

bool py_int(const char *s, size_t n, int64_t *out)
{
    while (n && (s[0] == ' ' || (s[0] >= '\t' && s[0] <= '\r')))
        s++, n--;
    while (n && (s[n - 1] == ' ' || (s[n - 1] >= '\t' && s[n - 1] <= '\r')))
        n--;
    bool neg = n && s[0] == '-';
    if (n && (s[0] == '-' || s[0] == '+'))
        s++, n--;
    if (n == 0)
        return false;
    int64_t v = 0;
    for (size_t i = 0; i < n; i++) {
        if (s[i] < '0' || s[i] > '9')
            return false;
        int digit = neg ? '0' - s[i] : s[i] - '0';
        if (__builtin_mul_overflow(v, (int64_t)10, &v) || __builtin_add_overflow(v, digit, &v))
            v = neg ? INT64_MIN / 10 : INT64_MAX / 10; /* stays at the edge, digit by digit */
    }
    *out = v;
    return true;
}

bool query_int(const struct http_req *r, const char *name, bool *given, int64_t *out)
{
    struct str v = { 0 };
    *given = http_query(r, name, &v);
    bool ok = !*given || py_int(str_c(&v), v.n, out);
    str_release(&v);
    return ok;
}

bool query_is(const struct http_req *r, const char *name, const char *word)
{
    struct str v = { 0 };
    bool yes = http_query(r, name, &v) && strcmp(str_c(&v), word) == 0;
    str_release(&v);
    return yes;
}

bool query_true(const struct http_req *r, const char *name)
{
    struct str v = { 0 };
    bool yes = http_query(r, name, &v) && strcasecmp(str_c(&v), "true") == 0;
    str_release(&v);
    return yes;
}

void uuid4_text(char out[UUID_TEXT])
{
    uint8_t b[16];
    for (size_t at = 0; at < sizeof b;) {
        ssize_t got = getrandom(b + at, sizeof b - at, 0);
        if (got < 0 && errno != EINTR)
            BUG("getrandom: %s", strerror(errno)); /* every Linux since 3.17 has it */
        at += got > 0 ? (size_t)got : 0;
    }
    b[6] = (uint8_t)((b[6] & 0x0f) | 0x40);
    b[8] = (uint8_t)((b[8] & 0x3f) | 0x80);
    static const char hex[] = "0123456789abcdef";
    size_t n = 0;
    for (size_t i = 0; i < sizeof b; i++) {
        if (i == 4 || i == 6 || i == 8 || i == 10)
            out[n++] = '-';
        out[n++] = hex[b[i] >> 4];
        out[n++] = hex[b[i] & 15];
    }
    out[n] = '\0';
}

bool is_uuid(const json_t *v)
{
    static const char shape[] = "xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx";
    if (!json_is_string(v) || json_string_length(v) != sizeof shape - 1)
        return false;
    const char *s = json_string_value(v);
    for (size_t i = 0; i < sizeof shape - 1; i++)
        if (shape[i] == '-' ? s[i] != '-' : !s[i] || !strchr("0123456789abcdef", s[i]))
            return false;
    return true;
}

bool json_ids(const json_t *v, const char ***out, size_t *n)
{
    size_t count = json_array_size(v);
    *n = 0;
    *out = calloc(count ? count : 1, sizeof **out);
    if (!*out)
        return false;
    for (size_t i = 0; i < count; i++)
        if (js_kind(json_array_get(v, i)) == JS_STRING)
            (*out)[(*n)++] = json_string_value(json_array_get(v, i));
    return true;
}

bool rel_normalise(const char *s, size_t n, struct str *out)
{
    size_t start = out->n;
    if (n && s[0] == '/')
        return false;
    for (size_t at = 0; at < n;) {
        size_t end = at;
        while (end < n && s[end] != '/')
            end++;
        size_t len = end - at;
        if (len == 2 && s[at] == '.' && s[at + 1] == '.') {
            if (out->n == start)
                return false;
            while (out->n > start && out->p[out->n - 1] != '/')
                out->n--;
            if (out->n > start)
                out->n--; /* the slash */
            out->p[out->n] = '\0';
        } else if (len && !(len == 1 && s[at] == '.')) {
            if (out->n > start)
                str_addc(out, '/');
            str_add(out, s + at, len);
        }
        at = end + 1;
    }
    return !out->bad;
}

const char *path_base(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

size_t path_depth(const char *rel)
{
    size_t n = *rel != '\0';
    for (; *rel; rel++)
        n += *rel == '/';
    return n;
}

void disposition_text(const char *name, struct str *out)
{
    str_adds(out, "filename=\"");
    for (; *name; name++) {
        if ((unsigned char)*name < 0x20 || *name == 0x7f)
            continue;
        if (*name == '"' || *name == '\\')
            str_addc(out, '\\');
        str_addc(out, *name);
    }
    str_addc(out, '"');
}

const char *folder_of_type(const struct server *s, const char *type)
{
    static const char *const known[] = { "output", "input", "temp" };
    for (size_t i = 0; i < ARRAY_LEN(known); i++)
        if (strcmp(type, known[i]) == 0)
            return folders_by_kind(s->cfg.folders, type);
    return NULL;
}

int file_ref_find(const struct server *s, const struct file_ref *f, struct str *path)
{
    struct annotated a = path_annotated(f->name, strlen(f->name));
    const char *type = a.kind ? a.kind : f->type ? f->type : "output";
    const char *root = folder_of_type(s, type);
    struct str rel = { 0 };
    berth_err err = { 0 };
    int status = 403;
    if (a.n == 0 || a.name[0] == '/' || memmem(a.name, a.n, "..", 2) || !root)
        return 400;
    const char *slash = f->base ? memrchr(a.name, '/', a.n) : NULL;
    size_t skip = slash ? (size_t)(slash - a.name) + 1 : 0;
    if (rel_normalise(f->subfolder, strlen(f->subfolder), &rel)) {
        str_addf(&rel, "%s%.*s", rel.n ? "/" : "", (int)(a.n - skip), a.name + skip);
        if (rel.bad)
            status = 500;
        else if (path_inside(root, rel.p, rel.n, false, path, &err))
            status = err.code == BERTH_EINVAL ? 403 : err_http_status(&err);
        else
            status = 0;
    }
    str_release(&rel);
    return status;
}

static bool runs_in_browsers(const char *type, size_t n)
{
    static const char *const run[] = {
        "text/html",       "text/html-sandboxed",    "application/xhtml+xml",
        "text/javascript", "application/javascript", "application/x-javascript",
        "text/css",        "application/ecmascript", "message/rfc822",
    };
    for (size_t i = 0; i < ARRAY_LEN(run); i++)
        if (str_eq(type, n, run[i]))
            return true;
    return str_ends(type, n, "+xml") || str_ends(type, n, "/xml");
}

const char *harmless_type(struct http_req *r, const char *name, bool *bytes)
{
    const char *type = path_mime(name), *dest = http1_get(r->h, "sec-fetch-dest");
    size_t n = strcspn(type, ";");
    *bytes = runs_in_browsers(type, n);
    if (!*bytes)
        return type;
    http_header(r, "Vary", "Sec-Fetch-Dest");
    http_header(r, "Cache-Control",
                "no-store"); /* not to be shown later to who may not see it so */
    if (!str_eq(type, n, "image/svg+xml") || !dest || strcmp(dest, "image"))
        return "application/octet-stream";
    *bytes = false;
    http_header(r, "Content-Security-Policy", "sandbox");
    return type;
}

berth_status picture_read(const char *path, struct image_file *out, berth_err *err)
{
    struct file_map *m = NULL;
    berth_status st = file_map_open(path, &m, err);
    if (!st)
        st = image_decode(m->data, m->size, NULL, out, err);
    if (!st)
        st = file_map_check(m, err);
    file_map_close(m);
    return st;
}
