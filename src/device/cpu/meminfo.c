#include "device/cpu/meminfo.h"

#include "base/cgroup.h"
#include "base/ktext.h"
#include "base/str.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#define PATH_MAX_BYTES 1024

struct names { /* of the files of one version */
    const char *limit, *usage;
    const char *reclaimable; /* key in memory.stat */
};

static const struct names v2 = { "memory.max", "memory.current", "inactive_file" };
static const struct names v1 = { "memory.limit_in_bytes", "memory.usage_in_bytes",
                                 "total_inactive_file" };

struct memory {
    struct ktext t; /* whatever is read at the moment */
    uint64_t total, free_bytes;
};

static void apply_group(void *user, const char *dir, enum cgroup_version version)
{
    struct memory *m = user;
    const struct names *f = version == CGROUP_V2 ? &v2 : &v1;
    uint64_t limit, used = 0, cache = 0;
    if (!ktext_number_in(&m->t, dir, f->limit, &limit) || !limit)
        return;
    if (limit < m->total) /* "no limit" of version 1 is a number near 2^63 */
        m->total = limit;
    if (!ktext_number_in(&m->t, dir, f->usage, &used))
        return;
    if (ktext_read_in(&m->t, dir, "memory.stat"))
        (void)!ktext_number_after(&m->t, f->reclaimable, &cache);
    used = used > cache ? used - cache : 0;
    uint64_t left = limit > used ? limit - used : 0;
    if (left < m->free_bytes)
        m->free_bytes = left;
}

berth_status meminfo_read(const char *root, uint64_t *total, uint64_t *free_bytes, berth_err *err)
{
    char path[PATH_MAX_BYTES];
    struct memory m;
    int n = snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, BERTH_ELIMIT, "path '%.64s...' is too long", root);
    if (!ktext_read(&m.t, path))
        return err_sys(err, BERTH_EIO, errno, "'%s'", path);
    uint64_t kib_total, kib_free;
    if (!ktext_number_after(&m.t, "MemTotal:", &kib_total) || !kib_total ||
        kib_total > UINT64_MAX / 1024)
        return err_set(err, BERTH_EFORMAT, "'%s' has no MemTotal", path);
    if (!ktext_number_after(&m.t, "MemAvailable:", &kib_free) && /* Linux before 3.14 */
        !ktext_number_after(&m.t, "MemFree:", &kib_free))
        return err_set(err, BERTH_EFORMAT, "'%s' has no MemAvailable", path);
    m.total = kib_total * 1024;
    m.free_bytes = kib_free < kib_total ? kib_free * 1024 : m.total;
    cgroup_each(root, "memory", apply_group, &m);
    *total = m.total;
    *free_bytes = m.free_bytes < m.total ? m.free_bytes : m.total;
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
