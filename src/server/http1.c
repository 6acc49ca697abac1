#include "server/http1.h"

#include "base/str.h"
#include "base/sz.h"

#include <strings.h>

enum { LEAD_MAX = 4, EXT_MAX = 16384, METHOD_MAX = 32 };

enum state {
    LINES, /* request line and fields, into buf */
    READY, /* the head was reported, the body's size meets its limit next */
    LENGTH,
    SIZE, /* of a chunk: first digit */
    SIZE_MORE,
    EXT,
    SIZE_LF,
    DATA,
    DATA_CR,
    DATA_LF,
    TRAILER, /* at the start of a line */
    TRAILER_NAME,
    TRAILER_VALUE,
    TRAILER_LF,
    LAST_LF,
    WHOLE,
    BAD,
};

static bool is_token(unsigned char c) /* RFC 9110 tchar */
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           (c && strchr("!#$%&'*+-.^_`|~", c));
}

static bool is_text(unsigned char c) /* of a field's value; the upper half is opaque */
{
    return c == '\t' || (c >= ' ' && c != 0x7f);
}

static char lower(char c)
{
    return c >= 'A' && c <= 'Z' ? (char)(c - 'A' + 'a') : c;
}

static bool same_word(const char *a, size_t n, const char *z) /* any case */
{
    return n == strlen(z) && !strncasecmp(a, z, n);
}

static enum http1_got bad(struct http1 *h, int code, int *status)
{
    h->state = BAD;
    h->bad = code;
    *status = code;
    return HTTP1_BAD;
}

void http1_init(struct http1 *h)
{
    *h = (struct http1) { .method = "", .path = "", .query = "" };
}

void http1_release(struct http1 *h)
{
    free(h->buf);
    http1_init(h);
}

/* ---- the head ---- */

static bool parse_version(struct http1 *h, const char *v, int *status)
{
    bool formed = strlen(v) == 8 && memcmp(v, "HTTP/", 5) == 0 && v[5] >= '0' && v[5] <= '9' &&
                  v[6] == '.' && v[7] >= '0' && v[7] <= '9';
    if (!formed || v[5] == '0') {
        *status = 400;
        return false;
    }
    h->http10 = v[5] == '1' && v[7] == '0';
    *status = 505;
    return v[5] == '1'; /* a later 1.x is spoken to as 1.1 */
}

/* The host and port of an absolute target: between "http://" and the path. */
struct authority {
    const char *p; /* NULL: the target was a path */
    size_t n;
};

static bool parse_target(struct http1 *h, char *t, struct authority *a)
{
    for (const char *c = t; *c; c++)
        if ((unsigned char)*c <= ' ' || *c == 0x7f || *c == '#')
            return false;
    if (strcmp(t, "*") == 0) {
        h->path = t;
        return strcmp(h->method, "OPTIONS") == 0;
    }
    h->path = t;
    if (*t != '/') {
        size_t scheme = strlen("http://");
        if (strlen(t) >= scheme + 1 && same_word(t, scheme + 1, "https://"))
            scheme++;
        else if (strlen(t) < scheme || !same_word(t, scheme, "http://"))
            return false;
        a->p = t + scheme;
        a->n = strcspn(a->p, "/?");
        t += scheme + a->n;
        h->path = *t == '/' ? t : "/";
    }
    char *q = strchr(t, '?');
    if (q) {
        *q = '\0';
        h->query = q + 1;
    }
    return true;
}

static bool parse_request_line(struct http1 *h, char *line, struct authority *a, int *status)
{
    *status = 400;
    char *target = strchr(line, ' ');
    char *version = target ? strchr(target + 1, ' ') : NULL;
    if (!version || target == line)
        return false;
    *target++ = '\0';
    *version++ = '\0';
    for (const char *c = line; *c; c++)
        if (!is_token((unsigned char)*c))
            return false;
    h->method = line;
    if (!parse_version(h, version, status))
        return false;
    *status = 501;
    if (strlen(line) > METHOD_MAX || strcmp(line, "CONNECT") == 0)
        return false;
    *status = 400;
    return parse_target(h, target, a);
}

static bool parse_field(struct http1 *h, char *line, int *status)
{
    char *colon = strchr(line, ':');
    *status = 400;
    if (!colon || colon == line)
        return false; /* a folded line begins with a space, which is no token */
    for (char *c = line; c < colon; c++) {
        if (!is_token((unsigned char)*c))
            return false;
        *c = lower(*c);
    }
    *colon = '\0';
    char *v = colon + 1 + strspn(colon + 1, " \t");
    size_t n = strlen(v);
    while (n && (v[n - 1] == ' ' || v[n - 1] == '\t'))
        v[--n] = '\0';
    for (size_t i = 0; i < n; i++)
        if (!is_text((unsigned char)v[i]))
            return false;
    *status = 431;
    if (h->fields == HTTP1_FIELDS_MAX)
        return false;
    h->field[h->fields++] = (struct http1_field) { line, v };
    return true;
}

/* The one value of a field that may come once. False: it came twice. *v NULL: not there. */
static bool single(const struct http1 *h, const char *name, const char **v)
{
    *v = NULL;
    for (size_t i = 0; i < h->fields; i++)
        if (strcmp(h->field[i].name, name) == 0) {
            if (*v)
                return false;
            *v = h->field[i].value;
        }
    return true;
}

static bool check_host(const struct http1 *h, const struct authority *a)
{
    const char *host;
    if (!single(h, "host", &host) || (!host && !h->http10))
        return false;
    for (const char *c = host; c && *c; c++)
        if ((unsigned char)*c <= ' ' || (unsigned char)*c >= 0x7f || strchr("/?#@,\\\"<>{}^`|", *c))
            return false;
    return !a->p || (a->n && (!host || same_word(a->p, a->n, host)));
}

static int check_framing(struct http1 *h)
{
    const char *length, *coding;
    if (!single(h, "content-length", &length) || !single(h, "transfer-encoding", &coding))
        return 400;
    if (coding) {
        if (length || h->http10)
            return 400;
        if (!same_word(coding, strlen(coding), "chunked"))
            return 501;
        h->chunked = true;
    }
    if (length) {
        if (!*length || strspn(length, "0123456789") != strlen(length))
            return 400;
        for (const char *c = length; *c; c++)
            if (__builtin_mul_overflow(h->length, 10u, &h->length) ||
                __builtin_add_overflow(h->length, (uint64_t)(*c - '0'), &h->length))
                return 413;
        h->has_length = true;
    }
    return 0;
}

/* buf holds whole lines, the last one empty. Returns 0 or the status. */
static int parse_head(struct http1 *h)
{
    struct authority a = { 0 };
    int status = 400;
    char *line = h->buf, *end = h->buf + h->n - 2;
    for (size_t i = 0; line < end; i++) {
        char *lf = memchr(line, '\n', (size_t)(end - line));
        lf[-1] = '\0'; /* the CR in front of it */
        if (!(i ? parse_field(h, line, &status) : parse_request_line(h, line, &a, &status)))
            return status;
        line = lf + 1;
    }
    if (!check_host(h, &a))
        return 400;
    status = check_framing(h);
    if (status)
        return status;
    h->keep_alive =
        h->http10 ? http1_has(h, "connection", "keep-alive") && !http1_has(h, "connection", "close")
                  : !http1_has(h, "connection", "close");
    h->expect_continue =
        !h->http10 && (h->chunked || h->length) && http1_has(h, "expect", "100-continue");
    h->upgrade =
        !h->http10 && http1_has(h, "connection", "upgrade") && http1_has(h, "upgrade", "websocket");
    return 0;
}

static bool grow(struct http1 *h)
{
    size_t cap = h->cap ? h->cap * 2 : 1024;
    char *p = realloc(h->buf, cap);
    if (!p)
        return false;
    h->buf = p;
    h->cap = cap;
    return true;
}

/* Takes lines until the empty one. A byte is judged when it comes, so that how the bytes were cut
 * into pieces never changes the answer. */
static enum http1_got take_lines(struct http1 *h, const char *p, size_t n, size_t *used,
                                 int *status)
{
    while (*used < n) {
        char c = p[*used], before = h->n > h->line ? h->buf[h->n - 1] : '\0';
        if (c == '\0' || (before == '\r') != (c == '\n'))
            return bad(h, 400, status);
        if (h->n == HTTP1_HEAD_MAX || (!h->line && h->n == HTTP1_LINE_MAX))
            return bad(h, h->line ? 431 : 414, status);
        if (h->n == h->cap && !grow(h))
            return bad(h, 503, status);
        h->buf[h->n++] = c;
        ++*used;
        if (c != '\n')
            continue;
        bool empty = h->n - h->line == 2;
        if (!empty) {
            h->line = h->n;
        } else if (h->line) {
            int wrong = parse_head(h);
            if (wrong)
                return bad(h, wrong, status);
            h->state = READY;
            return HTTP1_HEAD;
        } else if (++h->lead > LEAD_MAX) {
            return bad(h, 400, status);
        } else {
            h->n = 0; /* an empty line before the request: some clients end a body with one */
        }
    }
    return HTTP1_MORE;
}

/* ---- the body ---- */

/* One byte between pieces of a chunked body. Returns 0 or the status. */
static int take_framing(struct http1 *h, char c, uint64_t max_body)
{
    bool text = is_text((unsigned char)c), token = is_token((unsigned char)c);
    int digit = str_hex(c);
    switch ((enum state)h->state) {
    case SIZE:
        h->left = 0;
        h->digits = 0;
        if (digit < 0)
            return 400;
        h->state = SIZE_MORE; /* fallthrough */
    case SIZE_MORE:
        if (digit >= 0 && h->digits < 16) { /* 16 digits fit, whatever they are */
            h->left = h->left << 4 | (uint64_t)digit;
            h->digits++;
            return 0;
        }
        h->state = c == ';' ? EXT : SIZE_LF;
        return c == ';' || c == '\r' ? 0 : 400;
    case EXT: /* nobody reads them; together they meet a limit, and no line ends but with CR LF */
        if (c == '\r')
            h->state = SIZE_LF;
        else if (!text || ++h->extra > EXT_MAX)
            return 400;
        return 0;
    case SIZE_LF:
        if (c != '\n')
            return 400;
        if (h->left > max_body - h->body)
            return 413;
        h->state = h->left ? DATA : TRAILER;
        h->extra = h->left ? h->extra : 0;
        return 0;
    case DATA_CR:
        h->state = DATA_LF;
        return c == '\r' ? 0 : 400;
    case DATA_LF:
        h->state = SIZE;
        return c == '\n' ? 0 : 400;
    case TRAILER:
        h->state = c == '\r' ? LAST_LF : TRAILER_NAME;
        break;
    case TRAILER_NAME:
        if (c == ':') {
            h->state = TRAILER_VALUE;
            token = true;
        }
        break;
    case TRAILER_VALUE:
        if (c == '\r')
            h->state = TRAILER_LF;
        return !text && c != '\r' ? 400 : ++h->extra > HTTP1_HEAD_MAX ? 431 : 0;
    case TRAILER_LF:
        h->state = TRAILER;
        return c == '\n' ? 0 : 400;
    case LAST_LF:
        h->state = WHOLE;
        return c == '\n' ? 0 : 400;
    default:
        BUG("http1: no framing in state %d", h->state);
    }
    return !token && h->state != LAST_LF ? 400 : ++h->extra > HTTP1_HEAD_MAX ? 431 : 0;
}

static enum http1_got take_piece(struct http1 *h, const char *p, size_t n, size_t *used,
                                 const char **piece, size_t *piece_n)
{
    size_t take = n - *used;
    if (take > h->left)
        take = (size_t)h->left;
    *piece = p + *used;
    *piece_n = take;
    *used += take;
    h->left -= take;
    h->body += take;
    if (!h->left)
        h->state = h->chunked ? DATA_CR : WHOLE;
    return HTTP1_BODY;
}

enum http1_got http1_feed(struct http1 *h, const char *p, size_t n, uint64_t max_body, size_t *used,
                          const char **piece, size_t *piece_n, int *status)
{
    *used = 0;
    *piece = NULL;
    *piece_n = 0;
    *status = 0;
    if (h->state == LINES)
        return take_lines(h, p, n, used, status);
    if (h->state == READY) {
        if (h->length > max_body)
            return bad(h, 413, status);
        h->left = h->length;
        h->state = h->chunked ? SIZE : h->left ? LENGTH : WHOLE;
        h->extra = 0;
    }
    while (h->state != WHOLE && h->state != BAD) {
        if (*used == n)
            return HTTP1_MORE;
        if (h->state == LENGTH || h->state == DATA)
            return take_piece(h, p, n, used, piece, piece_n);
        int wrong = take_framing(h, p[*used], max_body < h->body ? h->body : max_body);
        if (wrong)
            return bad(h, wrong, status);
        ++*used;
    }
    return h->state == WHOLE ? HTTP1_END : bad(h, h->bad, status);
}

/* ---- fields ---- */

const char *http1_get(const struct http1 *h, const char *name)
{
    for (size_t i = 0; i < h->fields; i++)
        if (same_word(h->field[i].name, strlen(h->field[i].name), name))
            return h->field[i].value;
    return NULL;
}

static bool list_has(const char *v, const char *token)
{
    for (;;) {
        v += strspn(v, " \t,");
        size_t n = strcspn(v, ","), word = n;
        while (word && (v[word - 1] == ' ' || v[word - 1] == '\t'))
            word--;
        if (word && same_word(v, word, token))
            return true;
        if (!v[n])
            return false;
        v += n + 1;
    }
}

bool http1_has(const struct http1 *h, const char *name, const char *token)
{
    for (size_t i = 0; i < h->fields; i++)
        if (same_word(h->field[i].name, strlen(h->field[i].name), name) &&
            list_has(h->field[i].value, token))
            return true;
    return false;
}
