#include "device/cpu/meminfo.h"

#include "base/cgroup.h"
#include "base/ktext.h"

#include <errno.h>

#define PATH_MAX_BYTES 1024
#define SPARE_MIN ((uint64_t)64 << 20) /* 1024x1024 from the demo model: 44 MiB beside the budget */
#define RUNS_FROM ((uint64_t)32 << 20) /* file pages that the program itself lives on, generously */

struct names { /* of the files of one version */
    const char *limit, *usage;
    const char *swap_limit, *swap_usage; /* of version 1 memory is in them too */
    const char *reclaimable, *active;    /* keys in memory.stat */
};

static const struct names v2 = { "memory.max",          "memory.current", "memory.swap.max",
                                 "memory.swap.current", "inactive_file",  "active_file" };
static const struct names v1 = { "memory.limit_in_bytes",       "memory.usage_in_bytes",
                                 "memory.memsw.limit_in_bytes", "memory.memsw.usage_in_bytes",
                                 "total_inactive_file",         "total_active_file" };

struct memory {
    struct ktext t; /* whatever is read at the moment */
    uint64_t total, free_bytes;
    uint64_t swap;       /* that this process may still fill */
    bool limited;        /* by a control group, ... */
    uint64_t group_left; /* ... which stops it after so much; UINT64_MAX: not known */
};

static uint64_t minus(uint64_t a, uint64_t b)
{
    return a > b ? a - b : 0;
}

/* No file, or no number in it: no limit of its own. */
static void apply_swap(struct memory *m, const char *dir, enum cgroup_version version,
                       const struct names *f, uint64_t limit, uint64_t usage)
{
    uint64_t most, used = 0;
    if (!ktext_number_in(&m->t, dir, f->swap_limit, &most))
        return;
    (void)!ktext_number_in(&m->t, dir, f->swap_usage, &used);
    uint64_t left =
        version == CGROUP_V2 ? minus(most, used) : minus(minus(most, limit), minus(used, usage));
    m->swap = left < m->swap ? left : m->swap;
}

static void apply_group(void *user, const char *dir, enum cgroup_version version)
{
    struct memory *m = user;
    const struct names *f = version == CGROUP_V2 ? &v2 : &v1;
    uint64_t limit, used = 0, cache = 0, active = 0;
    if (!ktext_number_in(&m->t, dir, f->limit, &limit) || !limit)
        return;
    if (limit < m->total) { /* "no limit" of version 1 is a number near 2^63 */
        m->total = limit;
        m->limited = true;
    }
    if (!ktext_number_in(&m->t, dir, f->usage, &used))
        return;
    apply_swap(m, dir, version, f, limit, used);
    if (ktext_read_in(&m->t, dir, "memory.stat")) {
        (void)!ktext_number_after(&m->t, f->reclaimable, &cache);
        (void)!ktext_number_after(&m->t, f->active, &active);
    }
    uint64_t left = minus(limit, minus(used, cache));
    if (left < m->free_bytes)
        m->free_bytes = left;
    /* Models that were just read, or fetched, are active too, and all of them go before a kill. */
    left = minus(limit, minus(minus(used, cache), minus(active, RUNS_FROM)));
    if (left < m->group_left)
        m->group_left = left;
}

static berth_status read_all(const char *root, struct memory *m, berth_err *err)
{
    char path[PATH_MAX_BYTES];
    int n = snprintf(path, sizeof path, "%s/proc/meminfo", root);
    if (n < 0 || (size_t)n >= sizeof path)
        return err_set(err, BERTH_ELIMIT, "path '%.64s...' is too long", root);
    if (!ktext_read(&m->t, path))
        return err_sys(err, BERTH_EIO, errno, "'%s'", path);
    uint64_t kib_total, kib_free, kib_swap = 0;
    if (!ktext_number_after(&m->t, "MemTotal:", &kib_total) || !kib_total ||
        kib_total > UINT64_MAX / 1024)
        return err_set(err, BERTH_EFORMAT, "'%s' has no MemTotal", path);
    if (!ktext_number_after(&m->t, "MemAvailable:", &kib_free) && /* Linux before 3.14 */
        !ktext_number_after(&m->t, "MemFree:", &kib_free))
        return err_set(err, BERTH_EFORMAT, "'%s' has no MemAvailable", path);
    (void)!ktext_number_after(&m->t, "SwapFree:", &kib_swap);
    m->total = kib_total * 1024;
    m->free_bytes = kib_free < kib_total ? kib_free * 1024 : m->total;
    m->swap = kib_swap < UINT64_MAX / 1024 ? kib_swap * 1024 : 0;
    m->limited = false;
    m->group_left = UINT64_MAX;
    cgroup_each(root, "memory", apply_group, m);
    if (m->free_bytes > m->total)
        m->free_bytes = m->total;
    return BERTH_OK;
}

berth_status meminfo_read(const char *root, uint64_t *total, uint64_t *free_bytes, berth_err *err)
{
    struct memory m;
    if (read_all(root, &m, err))
        return err->code;
    *total = m.total;
    *free_bytes = m.free_bytes;
    return BERTH_OK;
}

uint64_t meminfo_spare(const char *root)
{
    struct memory m;
    berth_err unknown;
    if (read_all(root, &m, &unknown) || !m.limited)
        return 0;
    uint64_t part = m.total / 8 > SPARE_MIN ? m.total / 8 : SPARE_MIN;
    return part < m.total / 2 ? part : m.total / 2;
}

uint64_t meminfo_headroom(const char *root)
{
    struct memory m;
    berth_err unknown;
    if (read_all(root, &m, &unknown) || !m.limited)
        return UINT64_MAX;
    return m.group_left < UINT64_MAX - m.swap ? m.group_left + m.swap : UINT64_MAX;
}

uint64_t meminfo_rss(void)
{
    struct ktext t;
    uint64_t kib;
    bool known = ktext_read(&t, "/proc/self/status") && ktext_number_after(&t, "VmRSS:", &kib);
    return known ? kib * 1024 : 0;
}
