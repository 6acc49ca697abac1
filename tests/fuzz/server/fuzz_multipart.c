/* A body read in one piece and in pieces says the same: status, parts, bytes. The first line of the
 * input is the content type, the first byte behind it how the rest is cut. */
#include "server/multipart.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void require(int ok)
{
    if (!ok)
        abort();
}

struct heard {
    struct str text;
    size_t parts;
};

static bool on_part(void *user, const char *name, const char *filename)
{
    struct heard *h = user;
    h->parts++;
    require(str_is_utf8(name, strlen(name)));
    require(!filename || str_is_utf8(filename, strlen(filename)));
    str_addf(&h->text, "[%s|%s]", name, filename ? filename : "-");
    return true;
}

static bool on_data(void *user, const char *p, size_t n)
{
    struct heard *h = user;
    require(h->parts && n > 0);
    str_add(&h->text, p, n);
    return true;
}

/* step 0: at once. */
static berth_status read_body(const char *type, const char *p, size_t n, size_t step,
                              struct heard *h, bool *done)
{
    struct multipart_events ev = { h, on_part, on_data };
    struct multipart *m = NULL;
    berth_err err = { 0 };
    *done = false;
    berth_status st = multipart_new(type, &ev, &m, &err);
    for (size_t at = 0; !st && at < n;) {
        size_t k = step && step < n - at ? step : n - at;
        st = multipart_feed(m, p + at, k, &err);
        at += k;
    }
    require(!st || (err.code == st && err.msg[0]));
    if (!st)
        *done = multipart_done(m);
    multipart_free(m);
    return st;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const uint8_t *lf = n ? memchr(data, '\n', n) : NULL;
    size_t line = lf ? (size_t)(lf - data) : n;
    char type[256] = "";
    if (line >= sizeof type)
        return 0;
    if (line)
        memcpy(type, data, line);
    const char *body = lf ? (const char *)lf + 1 : "";
    size_t body_n = lf ? n - line - 1 : 0;
    size_t step = body_n ? (size_t)(uint8_t)body[0] % 67 + 1 : 1;
    struct heard whole = { 0 }, pieces = { 0 };
    bool done_a, done_b;
    berth_status a = read_body(type, body, body_n, 0, &whole, &done_a);
    berth_status b = read_body(type, body, body_n, step, &pieces, &done_b);
    require(a == b && done_a == done_b);
    require(whole.text.n == pieces.text.n &&
            (!whole.text.n || !memcmp(whole.text.p, pieces.text.p, whole.text.n)));
    str_release(&whole.text);
    str_release(&pieces.text);
    return 0;
}
