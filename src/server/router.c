/* router: which route a path belongs to. Paths are matched as they were sent: "%2F" is no slash,
 * so /userdata/workflows%2Fa.json has one segment behind /userdata. */
#include "server/conn.h"
#include "server/routes.h"

static const struct route table[] = {
#define ADD(methods, pattern, flags, fn, ...)                                                      \
    { methods, pattern, flags, .handler = fn, __VA_ARGS__ },
#define ROUTE(methods, pattern, flags, handler) ADD(methods, pattern, flags, route_##handler)
#define ROUTE_SINK(methods, pattern, flags, handler, sink_name)                                    \
    ADD(methods, pattern, flags, route_##handler, .sink = &sink_##sink_name)
#define ROUTE_JSON(methods, pattern, flags, fill_name)                                             \
    ADD(methods, pattern, flags, http_reply_filled, .fill = fill_name)
#define ROUTE_LATER(methods, pattern, flags, lane, name)                                           \
    ADD(methods, pattern, flags, route_later, .work = &(struct route_work) { lane, later_##name })
#define ROUTE_FIXED(methods, pattern, status, type, text)                                          \
    ADD(methods, pattern, ROUTE_DOUBLE | ((methods)&HTTP_POST ? ROUTE_BODY : 0), http_reply_fixed, \
        .answer = &(struct http_answer) { status, type, text })
    ADD(HTTP_GET, "/ws", ROUTE_DOUBLE | ROUTE_WS, route_ws)
#include "server/routes.def"
        ADD(HTTP_GET, "/{path:.*}", ROUTE_PAGE, route_static) /* last: it takes everything */
};

const struct route *router_table(size_t *n)
{
    *n = ARRAY_LEN(table);
    return table;
}

static const struct { /* sorted by name */
    const char *name;
    enum http_method method;
} methods[] = { { "DELETE", HTTP_DELETE },   { "GET", HTTP_GET },     { "HEAD", HTTP_HEAD },
                { "OPTIONS", HTTP_OPTIONS }, { "PATCH", HTTP_PATCH }, { "POST", HTTP_POST },
                { "PUT", HTTP_PUT } };

enum http_method router_method(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (!strcmp(name, methods[i].name))
            return methods[i].method;
    return HTTP_OTHER;
}

void router_methods(unsigned allow, struct str *out)
{
    allow |= allow & HTTP_GET ? HTTP_HEAD : 0;
    for (size_t i = 0; i < ARRAY_LEN(methods); i++)
        if (allow & methods[i].method)
            str_addf(out, "%s%s", out->n ? "," : "", methods[i].name);
}

struct slice {
    const char *p;
    size_t n;
};

/* params of the pattern in path; false: another path. */
static bool match(const char *pattern, const char *path, struct slice *param, size_t *params)
{
    *params = 0;
    while (*pattern) {
        if (*pattern != '{') {
            if (*pattern++ != *path++)
                return false;
            continue;
        }
        const char *end = strchr(pattern, '}');
        if (!end || *params == HTTP_PARAMS_MAX)
            BUG("route pattern '%s'", pattern);
        bool rest = str_ends(pattern, (size_t)(end - pattern), ":.*");
        size_t n = rest ? strlen(path) : strcspn(path, "/");
        if (!n && !rest)
            return false;
        param[(*params)++] = (struct slice) { path, n };
        path += n;
        pattern = end + 1;
    }
    return !*path;
}

static bool match_either(const struct route *r, const char *path, struct slice *param,
                         size_t *params)
{
    if (match(r->pattern, path, param, params))
        return true;
    return r->flags & ROUTE_DOUBLE && str_starts(path, strlen(path), "/api/") &&
           match(r->pattern, path + 4, param, params);
}

enum route_found router_find(const struct route *all, size_t n, struct http_req *r,
                             const struct route **out, unsigned *allow)
{
    struct slice param[HTTP_PARAMS_MAX];
    size_t params;
    *out = NULL;
    *allow = 0;
    for (size_t i = 0; i < n; i++) {
        if (!match_either(&all[i], r->path, param, &params))
            continue;
        *allow |= all[i].methods;
        if (!(all[i].methods & r->method))
            continue;
        *out = &all[i];
        r->params = params;
        for (size_t k = 0; k < params; k++)
            if (!path_unescape(param[k].p, param[k].n, false, &r->param[k]))
                return ROUTE_MALFORMED;
        return ROUTE_FOUND;
    }
    return *allow ? ROUTE_NOT_ALLOWED : ROUTE_NOT_THERE;
}
