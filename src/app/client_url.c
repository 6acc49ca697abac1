/* client_url: what --server may say. */
#include "app/client.h"

#include <arpa/inet.h>
#include <strings.h>

/* Length of a path without slashes and the dashboard's name at its end. */
static size_t prefix_length(const char *path)
{
    static const char dashboard[] = "/berth";
    size_t n = strcspn(path, "?#");
    while (n && path[n - 1] == '/')
        n--;
    if (str_ends(path, n, dashboard))
        n -= sizeof dashboard - 1;
    while (n && path[n - 1] == '/')
        n--;
    return n;
}

/* localhost, x.localhost, 127.0.0.0/8, ::1 */
static bool is_local(const char *host)
{
    struct in_addr v4;
    struct in6_addr v6;
    size_t n = strlen(host), m = sizeof "localhost" - 1;
    n -= n && host[n - 1] == '.'; /* a full name, as resolvers have it */
    if (inet_aton(host, &v4))     /* "127.1", too */
        return ntohl(v4.s_addr) >> 24 == 127;
    if (inet_pton(AF_INET6, host, &v6) == 1)
        return IN6_IS_ADDR_LOOPBACK(&v6);
    return n >= m && strncasecmp(host + n - m, "localhost", m) == 0 &&
           (n == m || host[n - m - 1] == '.');
}

berth_status client_url_read(const char *url, const char *path, struct client_url *out,
                             berth_err *err)
{
    bool https = strncasecmp(url, "https://", 8) == 0;
    const char *at = url + (https ? 8 : strncasecmp(url, "http://", 7) == 0 ? 7 : 0);
    bool v6 = *at == '[';
    const char *end = v6 ? strchr(at, ']') : at + strcspn(at, ":/?#");
    at += v6;
    size_t n = end ? (size_t)(end - at) : 0, digits = 0;
    uint64_t port = https ? 443 : 8188;
    if (end) {
        end += v6;
        digits = *end == ':' ? strcspn(end + 1, "/?#") : 0;
    }
    if (!n || n >= sizeof out->host || strpbrk(url, "@ \t\r\n") || strcspn(end, ":/?#") ||
        (*end == ':' && (!str_parse_u64(end + 1, digits, &port) || !port || port > 65535)))
        return err_set(err, BERTH_EINVAL, "'%.200s' is no address like http://127.0.0.1:8188", url);
    memcpy(out->host, at, n);
    out->host[n] = '\0';
    snprintf(out->port, sizeof out->port, "%u", (unsigned)port);
    const char *prefix = *end == ':' ? end + 1 + digits : end;
    int prefix_n = (int)prefix_length(prefix);
    out->local = is_local(out->host);
    str_addf(&out->base, "http%s://%s%s%s:%s%.*s", https ? "s" : "", v6 ? "[" : "", out->host,
             v6 ? "]" : "", out->port, prefix_n, prefix);
    str_addf(&out->path, "%.*s%s", prefix_n, prefix, path);
    return out->base.bad || out->path.bad ? err_set(err, BERTH_ENOMEM, "the address") : BERTH_OK;
}

void client_url_release(struct client_url *u)
{
    str_release(&u->base);
    str_release(&u->path);
    *u = (struct client_url) { 0 };
}
