#include "app/client.h"

#include <errno.h>
#include <netdb.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t)64 << 20)
#define HOST_MAX 256
#define RETRY_EVERY_US 100000
#define CANNOT_RUN "node_cannot_run" /* type of an error */

struct target {
    char host[HOST_MAX], port[8];
    const char *prefix; /* in the URL; "" or "/x" */
    size_t prefix_n;
};

/* How much of an address counts. People paste the dashboard's, which ends in /berth; behind a proxy
 * that hands out /x it is /x/berth. */
static size_t base_length(const char *url)
{
    static const char dashboard[] = "/berth";
    const char *scheme = strstr(url, "://");
    size_t host = scheme ? (size_t)(scheme - url) + 3 : 0;
    size_t path = host + strcspn(url + host, "/?#"), n = path + strcspn(url + path, "?#");
    while (n > path && url[n - 1] == '/')
        n--;
    if (n - path >= sizeof dashboard - 1 && str_ends(url, n, dashboard))
        n -= sizeof dashboard - 1;
    while (n > path && url[n - 1] == '/')
        n--;
    return n;
}

static berth_status bad_url(const char *url, berth_err *err)
{
    return err_set(err, BERTH_EINVAL, "'%.200s' is no address like http://127.0.0.1:8188", url);
}

static berth_status read_url(const char *url, struct target *t, berth_err *err)
{
    if (!strncmp(url, "https://", 8))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "'%.200s': only http here; ask through a tunnel or with curl", url);
    const char *at = strncmp(url, "http://", 7) ? url : url + 7;
    bool v6 = *at == '[';
    const char *end = v6 ? strchr(at, ']') : at + strcspn(at, ":/?#");
    at += v6;
    if (!end || end == at || (size_t)(end - at) >= HOST_MAX)
        return bad_url(url, err);
    memcpy(t->host, at, (size_t)(end - at));
    t->host[end - at] = '\0';
    end += v6;
    size_t n = *end == ':' ? strcspn(end + 1, "/?#") : 0;
    uint64_t port = 8188;
    if (*end == ':' && (!str_parse_u64(end + 1, n, &port) || !port || port > 65535))
        return bad_url(url, err);
    snprintf(t->port, sizeof t->port, "%u", (unsigned)port);
    t->prefix = *end == ':' ? end + 1 + n : end;
    const char *last = url + base_length(url);
    t->prefix_n = last > t->prefix ? (size_t)(last - t->prefix) : 0;
    return BERTH_OK;
}

static berth_status dial_once(const struct target *t, unsigned seconds, int *out, berth_err *err)
{
    const struct addrinfo hints = { .ai_socktype = SOCK_STREAM, .ai_flags = AI_NUMERICSERV };
    const struct timeval limit = { .tv_sec = (time_t)seconds };
    struct addrinfo *all;
    int rc = getaddrinfo(t->host, t->port, &hints, &all), fd = -1, why = 0;
    if (rc)
        return err_set(err, BERTH_EIO, "%s: %s", t->host, gai_strerror(rc));
    for (struct addrinfo *x = all; x && fd < 0; x = x->ai_next) {
        fd = socket(x->ai_family, x->ai_socktype | SOCK_CLOEXEC, x->ai_protocol);
        if (fd < 0)
            continue;
        (void)setsockopt(fd, SOL_SOCKET, SO_RCVTIMEO, &limit, sizeof limit);
        (void)setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
        if (connect(fd, x->ai_addr, x->ai_addrlen)) {
            why = errno;
            close(fd);
            fd = -1;
        }
    }
    freeaddrinfo(all);
    if (fd < 0)
        return err_sys(err, BERTH_EIO, why,
                       "no server answers at %s port %s (`berth serve` starts one; --server URL if "
                       "it is elsewhere)",
                       t->host, t->port);
    *out = fd;
    return BERTH_OK;
}

static bool nobody_yet(const berth_err *err)
{
    return err->native == ECONNREFUSED || err->native == ENETUNREACH || err->native == EHOSTUNREACH;
}

/* `berth serve &` and the next line of a script: the server may not listen yet. */
static berth_status dial(struct client *c, const struct target *t, unsigned seconds, int *out,
                         berth_err *err)
{
    uint64_t start = clock_mono_ns(clock_system());
    bool waited = false;
    berth_status s;
    while ((s = dial_once(t, seconds, out, err)) && !c->met && nobody_yet(err) &&
           !signals_caught() &&
           clock_mono_ns(clock_system()) - start < CLIENT_PATIENCE_S * UINT64_C(1000000000)) {
        if (!waited && !c->quiet)
            fprintf(stderr, "waiting for a server at %s port %s\n", t->host, t->port);
        waited = true;
        usleep(RETRY_EVERY_US);
    }
    if (s && waited)
        err_add(err, "waited %d seconds", CLIENT_PATIENCE_S);
    c->met |= !s;
    return s;
}

berth_status client_send_all(int fd, const char *p, size_t n, berth_err *err)
{
    for (size_t at = 0; at < n;) {
        ssize_t sent = send(fd, p + at, n - at, MSG_NOSIGNAL);
        if (sent < 0 && errno == EINTR)
            continue;
        if (sent <= 0)
            return err_sys(err, BERTH_EIO, errno, "sending the request");
        at += (size_t)sent;
    }
    return BERTH_OK;
}

static berth_status receive(int fd, unsigned seconds, struct str *got, berth_err *err)
{
    char buf[16384], most[STR_BYTES_MAX];
    for (;;) {
        ssize_t n = recv(fd, buf, sizeof buf, 0);
        if (n < 0 && errno == EINTR)
            continue;
        if (n < 0 && errno == EAGAIN) /* SO_RCVTIMEO */
            return err_set(err, BERTH_EIO,
                           "no answer within %u seconds: is it a berth server? (--server URL)",
                           seconds);
        if (n < 0)
            return err_sys(err, BERTH_EIO, errno, "waiting for the answer");
        if (n == 0)
            return got->bad ? err_set(err, BERTH_ENOMEM, "the answer") : BERTH_OK;
        if (got->n + (size_t)n > ANSWER_MAX)
            return err_set(err, BERTH_ELIMIT, "the answer is larger than %s",
                           str_bytes(ANSWER_MAX, most));
        str_add(got, buf, (size_t)n);
    }
}

static void add_safe(struct str *out, const char *text)
{
    term_safe(out, text, strlen(text), 0);
}

/* "message: details" of an error of the API, but of one whose details say it all these alone. */
static void add_error(const json_t *e, const char *class_type, struct str *out)
{
    const char *type = json_string_value(json_object_get(e, "type"));
    const char *message = json_string_value(json_object_get(e, "message"));
    const char *details = json_string_value(json_object_get(e, "details"));
    size_t n = class_type ? strlen(class_type) : 0;
    if (type && !strcmp(type, CANNOT_RUN) && details && *details) {
        bool named = n && !strncmp(details, class_type, n) && details[n] == ' ';
        add_safe(out, details + (named ? n + 1 : 0)); /* its class stands before it */
        return;
    }
    add_safe(out, message ? message : "?");
    if (details && *details) {
        str_adds(out, ": ");
        add_safe(out, details);
    }
}

/* stops: those that would stop the prompt even if all else were right, or the others. */
static void add_nodes(json_t *nodes, bool stops, const char *between, struct str *out)
{
    const char *id;
    json_t *node, *e;
    size_t i;
    json_object_foreach(nodes, id, node) json_array_foreach(json_object_get(node, "errors"), i, e)
    {
        const char *cls = json_string_value(json_object_get(node, "class_type"));
        const char *type = json_string_value(json_object_get(e, "type"));
        if ((type && !strcmp(type, CANNOT_RUN)) != stops)
            continue;
        str_addf(out, "%snode ", between);
        add_safe(out, id);
        str_adds(out, " (");
        add_safe(out, cls ? cls : "?");
        str_adds(out, "): ");
        add_error(e, cls, out);
    }
}

void client_errors(const json_t *answer, const char *between, struct str *out)
{
    const json_t *e = json_object_get(answer, "error");
    json_t *nodes = json_object_get(answer, "node_errors");
    const char *message = json_string_value(json_object_get(e, "message"));
    if (json_is_string(e))
        add_safe(out, json_string_value(e));
    else if (e && message && json_object_size(nodes)) /* its details are those of nodes */
        add_safe(out, message);
    else if (e)
        add_error(e, NULL, out);
    add_nodes(nodes, true, between, out); /* first: who mends the others does it for nothing */
    add_nodes(nodes, false, between, out);
}

static berth_status refused(const struct client *c, int status, const char *body, size_t n,
                            berth_err *err)
{
    json_t *v = NULL;
    berth_err ignore;
    struct str text = { 0 };
    if (!js_parse(body, n, NULL, &v, &ignore))
        client_errors(v, "; ", &text);
    const char *said = text.n ? str_c(&text) : NULL;
    berth_status s = status == 401   ? BERTH_EINVAL
                     : status == 404 ? BERTH_ENOTFOUND
                     : status == 409 ? BERTH_EBUSY
                                     : BERTH_EIO;
    if (said)
        err_set(err, s, "%s", said);
    else
        err_set(err, s, "the server answers %d%s", status,
                status == 401 ? ": it wants its token (--token, $BERTH_TOKEN), and this is not it"
                              : "");
    str_release(&text);
    if (c->refusal) {
        json_decref(*c->refusal);
        *c->refusal = json_incref(v);
    }
    json_decref(v);
    return s;
}

/* *body: in got; 200 alone is an answer. */
static berth_status find_body(const struct client *c, const struct str *got, const char **out,
                              size_t *n, berth_err *err)
{
    const char *text = str_c(got), *body = strstr(text, "\r\n\r\n");
    if (strncmp(text, "HTTP/1.", 7) != 0 || got->n < 12 || !body)
        return err_set(err, BERTH_EFORMAT, "what answers there is no HTTP server");
    *out = body + 4;
    *n = got->n - (size_t)(*out - text);
    int status = (int)strtol(text + 9, NULL, 10);
    return status == 200 ? BERTH_OK : refused(c, status, *out, *n, err);
}

static const char *address(const struct client *c)
{
    const char *env = getenv("BERTH_URL");
    return c->url ? c->url : env && *env ? env : "http://127.0.0.1:8188";
}

berth_status client_send(struct client *c, const struct client_ask *ask, int *fd, berth_err *err)
{
    const char *token = c->token ? c->token : getenv("BERTH_TOKEN");
    struct target t;
    struct str text = { 0 };
    *fd = -1;
    berth_status s = read_url(address(c), &t, err);
    if (!s && token && strpbrk(token, "\r\n"))
        s = err_set(err, BERTH_EINVAL, "a token is one line");
    if (!s) {
        str_addf(&text, "%s %.*s%s HTTP/1.%d\r\nHost: %s:%s\r\n", ask->body ? "POST" : "GET",
                 (int)t.prefix_n, t.prefix, ask->path, ask->upgrade ? 1 : 0, t.host, t.port);
        if (token && *token)
            str_addf(&text, "Authorization: Bearer %s\r\n", token);
        if (ask->body)
            str_addf(&text, "Content-Type: application/json\r\nContent-Length: %zu\r\n",
                     strlen(ask->body));
        str_addf(&text, "%s\r\n%s", ask->upgrade ? ask->upgrade : "", ask->body ? ask->body : "");
        s = text.bad ? err_set(err, BERTH_ENOMEM, "the request")
                     : dial(c, &t, ask->seconds, fd, err);
    }
    if (!s)
        s = client_send_all(*fd, text.p, text.n, err);
    if (s && *fd >= 0) {
        close(*fd);
        *fd = -1;
    }
    str_release(&text);
    return s;
}

/* *got: the whole answer, of which *out, *n are the body. */
static berth_status ask_for(struct client *c, const struct client_ask *ask, struct str *got,
                            const char **out, size_t *n, berth_err *err)
{
    int fd;
    berth_status s = client_send(c, ask, &fd, err);
    if (!s)
        s = receive(fd, ask->seconds, got, err);
    if (!s)
        s = find_body(c, got, out, n, err);
    if (fd >= 0)
        close(fd);
    return s;
}

berth_status client_json(struct client *c, const char *path, const char *body, unsigned seconds,
                         json_t **out, berth_err *err)
{
    const struct client_ask ask = { .path = path, .body = body, .seconds = seconds };
    struct str got = { 0 };
    const char *text = NULL;
    size_t n = 0;
    *out = NULL;
    berth_status s = ask_for(c, &ask, &got, &text, &n, err);
    if (!s)
        s = js_parse(n ? text : "null", n ? n : 4, NULL, out, err);
    if (s)
        err_add(err, "%.*s%s", (int)base_length(address(c)), address(c), path);
    str_release(&got);
    return s;
}

berth_status client_bytes(struct client *c, const char *path, unsigned seconds, struct str *out,
                          berth_err *err)
{
    const struct client_ask ask = { .path = path, .seconds = seconds };
    struct str got = { 0 };
    const char *bytes = NULL;
    size_t n = 0;
    berth_status s = ask_for(c, &ask, &got, &bytes, &n, err);
    if (!s) {
        str_add(out, bytes, n);
        s = out->bad ? err_set(err, BERTH_ENOMEM, "the answer") : BERTH_OK;
    }
    if (s)
        err_add(err, "%.*s%s", (int)base_length(address(c)), address(c), path);
    str_release(&got);
    return s;
}

static void add_escaped(struct str *out, const char *text)
{
    static const char plain[] =
        "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789-._~/";
    for (; *text; text++)
        if (strchr(plain, *text))
            str_addc(out, *text);
        else
            str_addf(out, "%%%02X", (unsigned)(uint8_t)*text);
}

void client_view_path(const char *name, const char *subfolder, const char *type, struct str *out)
{
    str_adds(out, "/view?filename=");
    add_escaped(out, name);
    if (subfolder && *subfolder) {
        str_adds(out, "&subfolder=");
        add_escaped(out, subfolder);
    }
    str_adds(out, "&type=");
    add_escaped(out, type);
}

void client_view_url(const struct client *c, const char *name, const char *subfolder,
                     const char *type, struct str *out)
{
    const char *url = address(c);
    str_addf(out, "%s%.*s", strstr(url, "://") ? "" : "http://", (int)base_length(url), url);
    client_view_path(name, subfolder, type, out);
}
