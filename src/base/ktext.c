#include "base/ktext.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#define PATH_MAX_BYTES 2048

bool ktext_read(struct ktext *t, const char *path)
{
    int fd = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (fd < 0)
        return false;
    t->n = 0;
    ssize_t got = 1;
    while (got && t->n < sizeof t->p) {
        got = read(fd, t->p + t->n, sizeof t->p - t->n);
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            break;
        t->n += (size_t)got;
    }
    int e = errno;
    close(fd);
    errno = e;
    return got >= 0;
}

bool ktext_read_in(struct ktext *t, const char *dir, const char *name)
{
    char path[PATH_MAX_BYTES];
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    if (n < 0 || (size_t)n >= sizeof path) {
        errno = ENAMETOOLONG;
        return false;
    }
    return ktext_read(t, path);
}

bool ktext_line(const struct ktext *t, size_t *at, struct ktext_line *l)
{
    if (*at >= t->n)
        return false;
    const char *s = t->p + *at, *end = memchr(s, '\n', t->n - *at);
    l->s = s;
    l->n = end ? (size_t)(end - s) : t->n - *at;
    *at += l->n + 1;
    return true;
}

bool ktext_number_after(const struct ktext *t, const char *key, uint64_t *out)
{
    struct ktext_line l;
    size_t k = strlen(key);
    for (size_t at = 0; ktext_line(t, &at, &l);) {
        if (l.n <= k || memcmp(l.s, key, k) != 0 || (l.s[k] != ' ' && l.s[k] != '\t'))
            continue;
        const char *s = l.s + k, *end = l.s + l.n;
        while (s < end && (*s == ' ' || *s == '\t'))
            s++;
        const char *digits = s;
        while (s < end && *s >= '0' && *s <= '9')
            s++;
        return str_parse_u64(digits, (size_t)(s - digits), out);
    }
    return false;
}

bool ktext_number_in(struct ktext *t, const char *dir, const char *name, uint64_t *out)
{
    struct ktext_line l;
    size_t at = 0;
    return ktext_read_in(t, dir, name) && ktext_line(t, &at, &l) && str_parse_u64(l.s, l.n, out);
}
