#include "support/tmp.h"

#include <errno.h>
#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static char dir[256];
static pid_t owner; /* a forked child must not remove its parent's folder */

static void give_up(const char *what)
{
    fprintf(stderr, "tests/support/tmp: %s: %s\n", what, strerror(errno));
    abort();
}

static int remove_one(const char *path, const struct stat *st, int flag, struct FTW *ftw)
{
    (void)st, (void)flag, (void)ftw;
    return remove(path);
}

int tmp_clear(void)
{
    int rc = dir[0] ? nftw(dir, remove_one, 16, FTW_DEPTH | FTW_PHYS) : 0;
    dir[0] = '\0';
    return rc;
}

static void remove_all(void)
{
    if (getpid() == owner)
        tmp_clear();
}

const char *tmp_dir(void)
{
    if (dir[0])
        return dir;
    const char *base = getenv("TMPDIR");
    snprintf(dir, sizeof dir, "%s/berth-test-XXXXXX", base && base[0] ? base : "/tmp");
    if (!mkdtemp(dir))
        give_up(dir);
    if (owner != getpid())
        atexit(remove_all);
    owner = getpid();
    return dir;
}

const char *tmp_path(const char *name)
{
    static char ring[16][512];
    static unsigned at;
    char *p = ring[at++ % 16];
    snprintf(p, sizeof ring[0], "%s/%s", tmp_dir(), name);
    return p;
}

const char *tmp_write(const char *name, const void *p, size_t n)
{
    const char *path = tmp_path(name);
    FILE *f = fopen(path, "wb");
    if (!f || fwrite(p, 1, n, f) != n || fclose(f))
        give_up(path);
    return path;
}
