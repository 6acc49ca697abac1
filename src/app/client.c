/* client: one request, one connection; what libcurl says in our words. */
#include "app/client.h"

#include <errno.h>
#include <unistd.h>

#define ANSWER_MAX ((size_t)64 << 20)
#define RETRY_EVERY_US 100000
#define CANNOT_RUN "node_cannot_run" /* type of an error */

static const char *address(const struct client *c)
{
    const char *env = getenv("BERTH_URL");
    return c->url ? c->url : env && *env ? env : "http://127.0.0.1:8188";
}

/* ---- connections ---- */

/* The first that is set and not empty. */
static const char *first_of(const char *given, const char *env, const char *other)
{
    const char *e = env ? getenv(env) : NULL, *o = other ? getenv(other) : NULL;
    return given ? given : e && *e ? e : o && *o ? o : NULL;
}

static void set_text(struct client_call *call, CURLoption option, const char *text)
{
    (void)call->lib.easy_setopt(call->curl, option, text);
}

static void set_long(struct client_call *call, CURLoption option, long v)
{
    (void)call->lib.easy_setopt(call->curl, option, v);
}

berth_status client_call_open(struct client *c, const char *path, unsigned seconds,
                              struct client_call *call, berth_err *err)
{
    const char *trusted = first_of(c->cacert, "CURL_CA_BUNDLE", "SSL_CERT_FILE");
    call->token = first_of(c->token, "BERTH_TOKEN", NULL);
    if (call->token && strpbrk(call->token, "\r\n"))
        return err_set(err, BERTH_EINVAL, "a token is one line");
    if (client_url_read(address(c), path, &call->url, err) || client_curl_open(&call->lib, err))
        return err->code;
    call->curl = call->lib.easy_init();
    if (!call->curl)
        return err_set(err, BERTH_ENOMEM, "a connection");
    struct str url = { 0 };
    str_addf(&url, "%s%s", str_c(&call->url.base), path);
    set_text(call, CURLOPT_URL, str_c(&url)); /* copied */
    bool bad = url.bad;
    str_release(&url);
    (void)call->lib.easy_setopt(call->curl, CURLOPT_ERRORBUFFER, call->said);
    set_long(call, CURLOPT_NOSIGNAL, 1);
    set_long(call, CURLOPT_HTTP_VERSION, CURL_HTTP_VERSION_1_1);
    set_long(call, CURLOPT_CONNECTTIMEOUT, (long)seconds);
    set_long(call, CURLOPT_LOW_SPEED_LIMIT, 1); /* silent for so long */
    set_long(call, CURLOPT_LOW_SPEED_TIME, (long)seconds);
    if (trusted)
        set_text(call, CURLOPT_CAINFO, trusted);
    if (c->proxy || call->url.local)
        set_text(call, CURLOPT_PROXY, c->proxy ? c->proxy : "");
    if (c->proxy)
        set_text(call, CURLOPT_NOPROXY, ""); /* asked for: whatever $no_proxy says */
    return bad ? err_set(err, BERTH_ENOMEM, "a connection") : BERTH_OK;
}

void client_call_close(struct client_call *call)
{
    if (call->curl)
        call->lib.easy_cleanup(call->curl);
    client_url_release(&call->url);
    *call = (struct client_call) { 0 };
}

static berth_status failed(const struct client *c, struct client_call *call, CURLcode code,
                           unsigned seconds, berth_err *err)
{
    const char *said = call->said[0] ? call->said : call->lib.easy_strerror(code);
    const char *host = call->url.host, *port = call->url.port;
    char most[STR_BYTES_MAX];
    long native = 0;
    (void)call->lib.easy_getinfo(call->curl, CURLINFO_OS_ERRNO, &native);
    switch (code) {
    case CURLE_OUT_OF_MEMORY:
        return err_set(err, BERTH_ENOMEM, "the request");
    case CURLE_COULDNT_CONNECT:
        if (native)
            return err_sys(err, BERTH_EIO, (int)native,
                           "no server answers at %s port %s (`berth serve` starts one; --server "
                           "URL if it is elsewhere)",
                           host, port);
        return err_set(err, BERTH_EIO, "no server answers at %s port %s: %s", host, port, said);
    case CURLE_OPERATION_TIMEDOUT:
        return err_set(err, BERTH_EIO,
                       "no answer within %u seconds: is it a berth server? (--server URL)",
                       seconds);
    case CURLE_PEER_FAILED_VERIFICATION:
    case CURLE_SSL_CACERT_BADFILE:
        return err_set(err, BERTH_EIO, "%s (--cacert FILE trusts a certificate of your own)", said);
    case CURLE_UNSUPPORTED_PROTOCOL:
    case CURLE_WEIRD_SERVER_REPLY:
    case CURLE_GOT_NOTHING:
        return err_set(err, BERTH_EFORMAT, "what answers there is no HTTP server: %s", said);
    case CURLE_WRITE_ERROR:
        return err_set(err, BERTH_ELIMIT, "the answer is larger than %s",
                       str_bytes(ANSWER_MAX, most));
    case CURLE_COULDNT_RESOLVE_PROXY:
        return err_set(err, BERTH_EIO, "%s (%s)", said,
                       c->proxy ? "--proxy" : "$http_proxy, $https_proxy");
    default:
        return err_set(err, BERTH_EIO, "%s", said);
    }
}

static bool nobody_yet(const berth_err *err)
{
    return err->native == ECONNREFUSED || err->native == ENETUNREACH || err->native == EHOSTUNREACH;
}

/* `berth serve &` and the next line of a script: the server may not listen yet. */
berth_status client_call_perform(struct client *c, struct client_call *call, unsigned seconds,
                                 berth_err *err)
{
    uint64_t start = clock_mono_ns(clock_system());
    bool waited = false;
    for (;;) {
        CURLcode code = call->lib.easy_perform(call->curl);
        c->met |= !code;
        if (!code)
            return BERTH_OK;
        *err = (berth_err) { 0 };
        failed(c, call, code, seconds, err);
        if (c->met || !nobody_yet(err) || signals_caught() ||
            clock_mono_ns(clock_system()) - start >= CLIENT_PATIENCE_S * UINT64_C(1000000000))
            break;
        if (!waited && !c->quiet)
            fprintf(stderr, "waiting for a server at %s port %s\n", call->url.host, call->url.port);
        waited = true;
        usleep(RETRY_EVERY_US);
    }
    if (waited)
        err_add(err, "waited %d seconds", CLIENT_PATIENCE_S);
    return err->code;
}

/* ---- errors of the API ---- */

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

static berth_status refused(const struct client *c, long status, const char *moved,
                            const struct str *body, berth_err *err)
{
    json_t *v = NULL;
    berth_err ignore;
    struct str text = { 0 };
    if (!js_parse(str_c(body), body->n, NULL, &v, &ignore))
        client_errors(v, "; ", &text);
    const char *said = text.n ? str_c(&text) : NULL;
    berth_status s = status == 401   ? BERTH_EINVAL
                     : status == 404 ? BERTH_ENOTFOUND
                     : status == 409 ? BERTH_EBUSY
                                     : BERTH_EIO;
    if (said)
        err_set(err, s, "%s", said);
    else
        err_set(err, s, "the server answers %ld%s%s", status,
                status == 401 ? ": it wants its token (--token, $BERTH_TOKEN), and this is not it"
                : moved       ? ": ask at "
                              : "",
                moved && status != 401 ? moved : "");
    str_release(&text);
    if (c->refusal) {
        json_decref(*c->refusal);
        *c->refusal = json_incref(v);
    }
    json_decref(v);
    return s;
}

/* ---- requests ---- */

/* More than an answer may have is refused: what is returned then differs from n. */
static size_t receive(char *p, size_t one, size_t n, void *user)
{
    struct str *out = user;
    bool fits = out->n + one * n <= ANSWER_MAX;
    if (fits)
        str_add(out, p, one * n);
    return fits ? one * n : 0;
}

static berth_status set_headers(struct client_call *call, bool post, struct curl_slist **list,
                                berth_err *err)
{
    struct str bearer = { 0 };
    str_addf(&bearer, "Authorization: Bearer %s", call->token ? call->token : "");
    const char *const line[] = { "Connection: close",
                                 post ? "Content-Type: application/json" : NULL,
                                 call->token ? str_c(&bearer) : NULL };
    bool bad = bearer.bad;
    for (size_t i = 0; i < ARRAY_LEN(line); i++) {
        struct curl_slist *more = line[i] ? call->lib.slist_append(*list, line[i]) : *list;
        bad |= line[i] && !more;
        *list = more ? more : *list;
    }
    str_release(&bearer);
    (void)call->lib.easy_setopt(call->curl, CURLOPT_HTTPHEADER, *list);
    return bad ? err_set(err, BERTH_ENOMEM, "the request") : BERTH_OK;
}

static berth_status ask_open(struct client *c, struct client_call *call, const char *body,
                             unsigned seconds, struct str *out, berth_err *err)
{
    struct curl_slist *headers = NULL;
    long status = 0;
    const char *moved = NULL;
    if (body) {
        (void)call->lib.easy_setopt(call->curl, CURLOPT_POSTFIELDSIZE_LARGE,
                                    (curl_off_t)strlen(body));
        set_text(call, CURLOPT_POSTFIELDS, body);
    }
    (void)call->lib.easy_setopt(call->curl, CURLOPT_WRITEFUNCTION, receive);
    (void)call->lib.easy_setopt(call->curl, CURLOPT_WRITEDATA, out);
    berth_status s = set_headers(call, body, &headers, err);
    if (!s)
        s = client_call_perform(c, call, seconds, err);
    if (!s && out->bad)
        s = err_set(err, BERTH_ENOMEM, "the answer");
    (void)call->lib.easy_getinfo(call->curl, CURLINFO_RESPONSE_CODE, &status);
    (void)call->lib.easy_getinfo(call->curl, CURLINFO_REDIRECT_URL, &moved);
    if (!s && status != 200)
        s = refused(c, status, moved, out, err);
    call->lib.slist_free_all(headers);
    return s;
}

/* The body of an answer goes to *out, which is empty. */
static berth_status ask(struct client *c, const char *path, const char *body, unsigned seconds,
                        struct str *out, berth_err *err)
{
    struct client_call call = { 0 };
    berth_status s = client_call_open(c, path, seconds, &call, err);
    if (!s)
        s = ask_open(c, &call, body, seconds, out, err);
    if (s && call.url.base.n)
        err_add(err, "%s%s", str_c(&call.url.base), path);
    client_call_close(&call);
    return s;
}

berth_status client_json(struct client *c, const char *path, const char *body, unsigned seconds,
                         json_t **out, berth_err *err)
{
    struct str got = { 0 };
    *out = NULL;
    berth_status s = ask(c, path, body, seconds, &got, err);
    if (!s && js_parse(got.n ? got.p : "null", got.n ? got.n : 4, NULL, out, err))
        s = err_add(err, "%s: the answer of %s", address(c), path);
    str_release(&got);
    return s;
}

const char *client_text(const json_t *o, const char *key)
{
    const char *s = json_string_value(json_object_get(o, key));
    return s ? s : "?";
}

uint64_t client_u64(const json_t *o, const char *key)
{
    uint64_t v = 0;
    (void)js_get_u64(json_object_get(o, key), &v);
    return v;
}

void client_print(const json_t *v)
{
    struct str s = { 0 };
    js_write(v, 2, &s);
    puts(str_c(&s));
    str_release(&s);
}

berth_status client_bytes(struct client *c, const char *path, unsigned seconds, struct str *out,
                          berth_err *err)
{
    struct str got = { 0 };
    berth_status s = ask(c, path, NULL, seconds, &got, err);
    if (!s)
        str_add(out, str_c(&got), got.n);
    if (!s && out->bad)
        s = err_set(err, BERTH_ENOMEM, "%s%s: the answer", address(c), path);
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
    struct client_url u = { 0 };
    berth_err unread; /* the server answered there */
    (void)client_url_read(address(c), "", &u, &unread);
    str_adds(out, str_c(&u.base));
    client_view_path(name, subfolder, type, out);
    client_url_release(&u);
}
