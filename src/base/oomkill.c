#include "base/oomkill.h"

#include "base/cgroup.h"
#include "base/hash.h"
#include "base/ktext.h"

#include <string.h>
#include <sys/stat.h>

#define POSITIVE (UINT64_MAX >> 1)

struct look {
    struct ktext t; /* whatever is read at the moment */
    struct oomkill *out;
};

/* The first folder that counts is that of the process itself. */
static void look_at_group(void *user, const char *dir, enum cgroup_version version)
{
    struct look *l = user;
    uint64_t n;
    struct stat st;
    const char *name = version == CGROUP_V2 ? "memory.events" : "memory.oom_control";
    if (l->out->group || stat(dir, &st) || !ktext_read_in(&l->t, dir, name) ||
        !ktext_number_after(&l->t, "oom_kill", &n))
        return;
    const uint64_t who[] = { (uint64_t)st.st_dev, (uint64_t)st.st_ino };
    l->out->group = (hash_xxh64(who, sizeof who, hash_fnv1a64(dir, strlen(dir))) & POSITIVE) | 1;
    l->out->in_group = n & POSITIVE;
}

void oomkill_read(const char *root, struct oomkill *out)
{
    struct look l = { .out = out };
    uint64_t n;
    *out = (struct oomkill) { 0 };
    if (!ktext_read_in(&l.t, root, "proc/vmstat") || !ktext_number_after(&l.t, "oom_kill", &n))
        return; /* Linux before 4.13 */
    out->machine = n & POSITIVE;
    if (!ktext_read_in(&l.t, root, "proc/sys/kernel/random/boot_id") || !l.t.n)
        return;
    out->boot = (hash_xxh64(l.t.p, l.t.n, 0) & POSITIVE) | 1;
    cgroup_each(root, "memory", look_at_group, &l);
}

bool oomkill_between(const struct oomkill *then, const struct oomkill *now)
{
    if (!then->boot || then->boot != now->boot || now->machine <= then->machine)
        return false;
    return !then->group || then->group != now->group || now->in_group > then->in_group;
}
