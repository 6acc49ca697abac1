#include "device/cpu/meminfo.h"

#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <unistd.h>

#define FILE_MAX_BYTES 16384 /* these files are a few KiB; what lies beyond is not looked at */
#define PATH_MAX_BYTES 1024
#define PATH_LEVELS 32

struct text {
    char p[FILE_MAX_BYTES];
    size_t n;
};

/* One line of a text, without its newline. */
struct line {
    const char *s;
    size_t n;
};

static bool text_read(const char *path, struct text *t)
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

static bool next_line(const struct text *t, size_t *at, struct line *l)
{
    if (*at >= t->n)
        return false;
    const char *s = t->p + *at, *end = memchr(s, '\n', t->n - *at);
    l->s = s;
    l->n = end ? (size_t)(end - s) : t->n - *at;
    *at += l->n + 1;
    return true;
}

/* The number behind a key: "MemTotal:       24684100 kB", "inactive_file 4096". */
static bool number_after(const struct text *t, const char *key, uint64_t *out)
{
    struct line l;
    size_t k = strlen(key);
    for (size_t at = 0; next_line(t, &at, &l);) {
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

/* A file that is one number. "max" and anything else that is not a number: false, no limit. */
static bool number_file(const char *dir, const char *name, struct text *t, uint64_t *out)
{
    char path[2 * PATH_MAX_BYTES];
    struct line l;
    size_t at = 0;
    int n = snprintf(path, sizeof path, "%s/%s", dir, name);
    return n > 0 && (size_t)n < sizeof path && text_read(path, t) && next_line(t, &at, &l) &&
           str_parse_u64(l.s, l.n, out);
}

struct hierarchy {
    const char *mount; /* below root */
    const char *limit, *usage;
    const char *reclaimable; /* key in memory.stat */
};

static const struct hierarchy v2 = { "/sys/fs/cgroup", "memory.max", "memory.current",
                                     "inactive_file" };
static const struct hierarchy v1 = { "/sys/fs/cgroup/memory", "memory.limit_in_bytes",
                                     "memory.usage_in_bytes", "total_inactive_file" };

static void apply_group(const char *dir, const struct hierarchy *h, struct text *t, uint64_t *total,
                        uint64_t *free_bytes)
{
    uint64_t limit, used = 0, cache = 0;
    if (!number_file(dir, h->limit, t, &limit) || !limit)
        return;
    if (limit < *total) /* "no limit" of version 1 is a number near 2^63 */
        *total = limit;
    char stat[2 * PATH_MAX_BYTES];
    int n = snprintf(stat, sizeof stat, "%s/memory.stat", dir);
    if (!number_file(dir, h->usage, t, &used))
        return;
    if (n > 0 && (size_t)n < sizeof stat && text_read(stat, t))
        (void)!number_after(t, h->reclaimable, &cache);
    used = used > cache ? used - cache : 0;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < *free_bytes)
        *free_bytes = left;
}

/* The group named in /proc/self/cgroup and all above it, down to the mount itself, which inside a
 * container often is the group. */
static void apply_hierarchy(const char *root, const struct hierarchy *h, const char *group,
                            size_t group_n, struct text *t, uint64_t *total, uint64_t *free_bytes)
{
    char dir[PATH_MAX_BYTES];
    int base = snprintf(dir, sizeof dir, "%s%s", root, h->mount);
    if (base <= 0 || (size_t)base >= sizeof dir)
        return;
    size_t n = (size_t)base;
    /* A path out of our namespace ("/../x") says nothing about files we can see. */
    bool climbs = memmem(group, group_n, "/..", 3) != NULL;
    if (!climbs && group_n < sizeof dir - n) {
        memcpy(dir + n, group, group_n);
        n += group_n;
    }
    for (int level = 0; level < PATH_LEVELS; level++) {
        dir[n] = '\0';
        apply_group(dir, h, t, total, free_bytes);
        if (n <= (size_t)base)
            break;
        while (n > (size_t)base && dir[n - 1] != '/')
            n--;
        if (n > (size_t)base)
            n--;
    }
}

/* Lines of /proc/self/cgroup are id:controllers:path. */
static bool group_path(const struct line *l, const struct hierarchy **h, const char **path,
                       size_t *n)
{
    const char *end = l->s + l->n;
    const char *c1 = memchr(l->s, ':', l->n);
    const char *c2 = c1 ? memchr(c1 + 1, ':', (size_t)(end - c1 - 1)) : NULL;
    if (!c2 || c2 + 1 == end || c2[1] != '/')
        return false;
    *path = c2 + 1;
    *n = (size_t)(end - *path);
    const char *names = c1 + 1;
    if (names == c2) {
        *h = &v2;
        return true;
    }
    *h = &v1;
    while (names < c2) {
        const char *comma = memchr(names, ',', (size_t)(c2 - names));
        const char *stop = comma ? comma : c2;
        if (str_eq(names, (size_t)(stop - names), "memory"))
            return true;
        names = stop + 1;
    }
    return false;
}

berth_status meminfo_read(const char *root, uint64_t *total, uint64_t *free_bytes, berth_err *err)
{
    char path[PATH_MAX_BYTES];
    struct text t, group;
    int n = snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, BERTH_ELIMIT, "path '%.64s...' is too long", root);
    if (!text_read(path, &t))
        return err_sys(err, BERTH_EIO, errno, "'%s'", path);
    uint64_t kib_total, kib_free;
    if (!number_after(&t, "MemTotal:", &kib_total) || !kib_total || kib_total > UINT64_MAX / 1024)
        return err_set(err, BERTH_EFORMAT, "'%s' has no MemTotal", path);
    if (!number_after(&t, "MemAvailable:", &kib_free) && /* Linux before 3.14 */
        !number_after(&t, "MemFree:", &kib_free))
        return err_set(err, BERTH_EFORMAT, "'%s' has no MemAvailable", path);
    *total = kib_total * 1024;
    *free_bytes = kib_free < kib_total ? kib_free * 1024 : *total;

    n = snprintf(path, sizeof path, "%s/proc/self/cgroup", root);
    if (n > 0 && (size_t)n < sizeof path && text_read(path, &group)) {
        struct line l;
        for (size_t at = 0; next_line(&group, &at, &l);) {
            const struct hierarchy *h;
            const char *at_path;
            size_t path_n;
            if (group_path(&l, &h, &at_path, &path_n))
                apply_hierarchy(root, h, at_path, path_n, &t, total, free_bytes);
        }
    }
    if (*free_bytes > *total)
        *free_bytes = *total;
    return BERTH_OK;
}

uint64_t meminfo_rss(void)
{
    char text[128]; /* "size resident shared ...", in pages */
    int fd = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    if (fd >= 0)
        close(fd);
    text[n > 0 ? n : 0] = '\0';
    const char *second = strchr(text, ' ');
    uint64_t pages;
    if (!second || !str_parse_u64(second + 1, strcspn(second + 1, " "), &pages))
        return 0;
    return pages * (uint64_t)sysconf(_SC_PAGESIZE);
}
