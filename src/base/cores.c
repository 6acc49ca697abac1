#include "base/cores.h"

#include "base/cgroup.h"
#include "base/ktext.h"
#include "base/str.h"

#include <sched.h>
#include <string.h>
#include <unistd.h>

struct tightest {
    struct ktext t; /* whatever is read at the moment */
    uint64_t cores;
};

/* Microseconds of CPU time in each period: "200000 100000", or "max 100000". */
static bool quota_v2(struct ktext *t, const char *dir, uint64_t *quota, uint64_t *period)
{
    struct ktext_line l;
    size_t at = 0;
    if (!ktext_read_in(t, dir, "cpu.max") || !ktext_line(t, &at, &l))
        return false;
    const char *space = memchr(l.s, ' ', l.n);
    size_t n = space ? (size_t)(space - l.s) : l.n;
    return space && str_parse_u64(l.s, n, quota) && str_parse_u64(space + 1, l.n - n - 1, period);
}

static bool quota_v1(struct ktext *t, const char *dir, uint64_t *quota, uint64_t *period)
{
    return ktext_number_in(t, dir, "cpu.cfs_quota_us", quota) && /* -1, no number: no limit */
           ktext_number_in(t, dir, "cpu.cfs_period_us", period);
}

static void apply_group(void *user, const char *dir, enum cgroup_version version)
{
    struct tightest *x = user;
    uint64_t quota, period;
    bool limited = version == CGROUP_V2 ? quota_v2(&x->t, dir, &quota, &period)
                                        : quota_v1(&x->t, dir, &quota, &period);
    if (!limited || !quota || !period) /* the kernel takes no zero */
        return;
    uint64_t whole = quota / period + (quota % period != 0);
    if (whole < x->cores)
        x->cores = whole;
}

uint64_t cores_quota(const char *root)
{
    struct tightest x;
    x.cores = UINT64_MAX;
    cgroup_each(root, "cpu", apply_group, &x);
    return x.cores;
}

static size_t affinity(void)
{
    cpu_set_t set;
    if (sched_getaffinity(0, sizeof set, &set) == 0 && CPU_COUNT(&set) > 0)
        return (size_t)CPU_COUNT(&set);
    long n = sysconf(_SC_NPROCESSORS_ONLN); /* more cores than a cpu_set_t holds */
    return n > 0 ? (size_t)n : 1;
}

size_t cores_usable(const char *root)
{
    size_t may = affinity();
    uint64_t quota = cores_quota(root);
    return quota < may ? (size_t)quota : may;
}
