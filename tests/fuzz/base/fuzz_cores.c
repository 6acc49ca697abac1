/* Control group files of any content: every folder shown lies below the mount, and the quota is
 * what a plain reading of one file says. The input is the files' texts, each ended by a NUL. */
#include "base/cgroup.h"
#include "base/cores.h"
#include "base/ktext.h"
#include "support/fakeroot.h"

#include <ctype.h>
#include <errno.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void must(bool so)
{
    if (!so)
        abort();
}

static void look_at_folder(void *user, const char *dir, enum cgroup_version version)
{
    size_t *shown = user, root = strlen(fakeroot());
    const char *mount = version == CGROUP_V2 ? "/sys/fs/cgroup" : "/sys/fs/cgroup/cpu";
    must(version == CGROUP_V1 || version == CGROUP_V2);
    must(strncmp(dir, fakeroot(), root) == 0);
    must(strncmp(dir + root, mount, strlen(mount)) == 0);
    const char *below = dir + root + strlen(mount);
    must((!*below || *below == '/') && !strstr(below, "/.."));
    ++*shown;
}

static bool plain_number(const char **s, uint64_t *out)
{
    char *end;
    if (!isdigit((unsigned char)**s))
        return false;
    errno = 0;
    unsigned long long v = strtoull(*s, &end, 10);
    *s = end;
    *out = v;
    return !errno;
}

/* One file, read with the C library instead. */
static uint64_t plain_quota(const char *s)
{
    uint64_t quota, period;
    if (!plain_number(&s, &quota) || *s++ != ' ' || !plain_number(&s, &period) ||
        (*s && *s != '\n') || !quota || !period)
        return UINT64_MAX;
    return (quota - 1) / period + 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const files[] = { "sys/fs/cgroup/cpu.max", "proc/self/cgroup",
                                         "sys/fs/cgroup/a/cpu.max",
                                         "sys/fs/cgroup/cpu/cpu.cfs_quota_us",
                                         "sys/fs/cgroup/cpu/cpu.cfs_period_us" };
    char first[4096];
    size_t shown = 0;
    if (n >= sizeof first)
        return 0;
    if (!*fakeroot())
        fakeroot_new();
    memcpy(first, data, n);
    first[n] = '\0';
    fakeroot_puts(files[0], first);
    fakeroot_puts(files[1], "0::/\n");
    must(cores_quota(fakeroot()) == plain_quota(first));

    for (size_t i = 0, at = 0; i < sizeof files / sizeof *files; i++) {
        const uint8_t *end = at < n ? memchr(data + at, 0, n - at) : NULL;
        size_t len = end ? (size_t)(end - data) - at : n - at;
        fakeroot_put(files[i], data + at, len); /* what the input does not reach is empty */
        at = end ? at + len + 1 : n;
    }
    cgroup_each(fakeroot(), "cpu", look_at_folder, &shown);
    must(shown <= n * 32);
    must(cores_quota(fakeroot()) >= 1);
    must(cores_usable(fakeroot()) >= 1);
    struct ktext t;
    uint64_t v;
    must(ktext_read_in(&t, fakeroot(), files[1]));
    (void)!ktext_number_after(&t, "0::/", &v);
    return 0;
}
