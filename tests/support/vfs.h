/* vfs: SQLite's files for tests. Syncs do nothing, so that a test takes no longer on a slow disk
 * (what survives a kill does not depend on them), and writes can be made to fail. */
#ifndef SUPPORT_VFS_H
#define SUPPORT_VFS_H

#include "base/attr.h"

#include <limits.h>
#include <sqlite3.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static atomic_long vfs_writes, vfs_fail_from = LONG_MAX, vfs_fail_to = LONG_MAX;
static atomic_long vfs_room = LONG_MAX; /* bytes that a file may have */
/* A disk: bytes that the files of one database, and others' (eaten), may have together. */
static atomic_long vfs_disk = LONG_MAX, vfs_eaten;
/* Writes into the database itself (with a log: somebody moves it), and how long each takes. */
static atomic_long vfs_moves, vfs_move_us;
static char vfs_database[512];
static sqlite3_vfs vfs_ours, *vfs_real;
static struct {
    const sqlite3_io_methods *was;
    sqlite3_io_methods is;
    bool database;
} vfs_methods[4]; /* one for each kind of file that SQLite has */

/* Bytes left on that disk; below 0: others took more than there was. */
static inline long vfs_left(void)
{
    static const char *const ends[] = { "", "-wal", ".reserve" };
    long left = atomic_load(&vfs_disk) - atomic_load(&vfs_eaten);
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char name[600];
        struct stat st;
        snprintf(name, sizeof name, "%s%s", vfs_database, ends[i]);
        left -= stat(name, &st) ? 0 : (long)st.st_size;
    }
    return left;
}

static inline bool vfs_fits(sqlite3_file *f, sqlite3_int64 end)
{
    sqlite3_int64 size = 0;
    if (atomic_load(&vfs_disk) == LONG_MAX || f->pMethods->xFileSize(f, &size) || end <= size)
        return true;
    return end - size <= vfs_left();
}

static inline int vfs_write(sqlite3_file *f, const void *p, int n, sqlite3_int64 at)
{
    long k = atomic_fetch_add(&vfs_writes, 1);
    if (k >= atomic_load(&vfs_fail_from) && k < atomic_load(&vfs_fail_to))
        return SQLITE_FULL;
    if (at + n > atomic_load(&vfs_room) || !vfs_fits(f, at + n))
        return SQLITE_FULL;
    size_t i = 0;
    while (f->pMethods != &vfs_methods[i].is)
        if (++i == ARRAY_LEN(vfs_methods))
            abort();
    if (vfs_methods[i].database) {
        atomic_fetch_add(&vfs_moves, 1);
        if (atomic_load(&vfs_move_us))
            usleep((useconds_t)atomic_load(&vfs_move_us));
    }
    return vfs_methods[i].was->xWrite(f, p, n, at);
}

static inline int vfs_sync(sqlite3_file *f, int flags)
{
    (void)f, (void)flags;
    return SQLITE_OK;
}

static inline int vfs_open(sqlite3_vfs *vfs, const char *name, sqlite3_file *f, int flags, int *out)
{
    (void)vfs;
    int rc = vfs_real->xOpen(vfs_real, name, f, flags, out);
    for (size_t i = 0; !rc && i < ARRAY_LEN(vfs_methods); i++) {
        if (!vfs_methods[i].was) {
            vfs_methods[i].was = f->pMethods;
            vfs_methods[i].is = *f->pMethods;
            vfs_methods[i].is.xWrite = vfs_write;
            vfs_methods[i].is.xSync = vfs_sync;
            vfs_methods[i].database = flags & SQLITE_OPEN_MAIN_DB;
        }
        if (vfs_methods[i].was == f->pMethods) {
            f->pMethods = &vfs_methods[i].is;
            break;
        }
    }
    return rc;
}

/* For every database of this program from now on. A cmocka group setup. */
static inline int vfs_install(void **state)
{
    (void)state;
    vfs_real = sqlite3_vfs_find(NULL);
    vfs_ours = *vfs_real;
    vfs_ours.zName = "tests";
    vfs_ours.xOpen = vfs_open;
    return sqlite3_vfs_register(&vfs_ours, 1);
}

/* `from` writes work, then `count` fail as on a full disk (LONG_MAX: all). */
static inline void vfs_arm(long from, long count)
{
    atomic_store(&vfs_writes, 0);
    atomic_store(&vfs_fail_to, count == LONG_MAX ? LONG_MAX : from + count);
    atomic_store(&vfs_fail_from, from);
}

static inline void vfs_disarm(void)
{
    atomic_store(&vfs_fail_from, LONG_MAX);
}

#endif
