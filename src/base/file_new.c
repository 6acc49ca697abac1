#include "base/file_impl.h"
#include "base/str.h"
#include "base/sz.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/statvfs.h>
#include <unistd.h>

struct file_new {
    char *path; /* as given, for messages */
    char *name; /* last component of the file that will be replaced, inside dir */
    char tmp[48];
    int dir, fd; /* -1: not open */
    bool made;   /* tmp is there and ours to remove; false: the file has no name yet */
    bool replaces;
    mode_t mode; /* of the replaced file */
    uint64_t at; /* where file_new_write() continues; owner: the appending thread */
};

/* Follows symbolic links to their end, so that the link stays and its target is replaced. The last
 * component need not exist. A chain of more than 40 links is a loop, as in the kernel. */
static berth_status resolve_links(const char *path, struct str *out, berth_err *err)
{
    char link[4096];
    str_adds(out, path);
    for (int hop = 0; hop < 40; hop++) {
        ssize_t n = out->bad ? -1 : readlink(out->p, link, sizeof link);
        if (out->bad)
            return err_set(err, BERTH_ENOMEM, "cannot write '%s'", path);
        if (n < 0)
            return BERTH_OK; /* no link, or not there: open and rename will say more */
        if ((size_t)n == sizeof link)
            return err_set(err, BERTH_ELIMIT, "'%s' links to a path that is too long", path);
        const char *slash = strrchr(out->p, '/');
        size_t keep = link[0] == '/' || !slash ? 0 : (size_t)(slash - out->p) + 1;
        out->n = keep; /* relative to the folder the link is in */
        str_add(out, link, (size_t)n);
    }
    return err_set(err, BERTH_EINVAL, "'%s': too many symbolic links", path);
}

/* Splits `target` and opens its folder. */
static berth_status open_folder(struct file_new *f, const char *target, berth_err *err)
{
    const char *slash = strrchr(target, '/');
    const char *name = slash ? slash + 1 : target;
    if (!*name)
        return err_set(err, BERTH_EINVAL, "'%s' does not name a file", f->path);
    struct str folder = { 0 };
    if (!slash)
        str_adds(&folder, ".");
    else
        str_add(&folder, target, slash == target ? 1 : (size_t)(slash - target));
    f->name = strdup(name);
    berth_status s = BERTH_OK;
    if (!f->name || folder.bad) {
        s = err_set(err, BERTH_ENOMEM, "cannot write '%s'", f->path);
    } else {
        f->dir = open(folder.p, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
        if (f->dir < 0)
            s = err_sys(err, file_status(errno), errno, "cannot write '%s': folder '%s'", f->path,
                        folder.p);
    }
    str_release(&folder);
    return s;
}

/* What is there now, if anything: only a regular file may be replaced. */
static berth_status look_at_target(struct file_new *f, berth_err *err)
{
    struct stat st;
    if (fstatat(f->dir, f->name, &st, AT_SYMLINK_NOFOLLOW))
        return errno == ENOENT ? BERTH_OK
                               : err_sys(err, BERTH_EIO, errno, "cannot write '%s'", f->path);
    if (!S_ISREG(st.st_mode))
        return err_set(err, BERTH_EINVAL, "cannot write '%s': it is a %s", f->path,
                       file_kind(st.st_mode));
    f->replaces = true;
    f->mode = st.st_mode & 0777;
    return BERTH_OK;
}

/* The old file stays until the rename, so the new one needs all of its own space. */
static berth_status check_space(const struct file_new *f, uint64_t need, berth_err *err)
{
    struct statvfs v;
    uint64_t left;
    if (need == 0 || fstatvfs(f->dir, &v) || v.f_blocks == 0) /* 0: a file system without numbers */
        return BERTH_OK;
    if (__builtin_mul_overflow((uint64_t)v.f_bavail, (uint64_t)v.f_frsize, &left) || need <= left)
        return BERTH_OK;
    char a[STR_BYTES_MAX], b[STR_BYTES_MAX];
    return err_set_at(err, __FILE__, __LINE__, BERTH_EIO, ENOSPC,
                      "cannot write '%s': needs %s, %s free on its file system", f->path,
                      str_bytes(need, a), str_bytes(left, b));
}

/* Tries `make` under names of our own until one is free. The target's name with a suffix could be
 * too long; the number only makes a clash rare. */
static bool under_free_name(struct file_new *f, bool (*make)(struct file_new *))
{
    for (unsigned i = 0; i < 1000; i++) {
        struct timespec t = { 0 };
        clock_gettime(CLOCK_MONOTONIC, &t);
        snprintf(f->tmp, sizeof f->tmp, ".berth-%lx-%lx-%x.tmp", (unsigned long)getpid(),
                 (unsigned long)t.tv_nsec, i);
        if (make(f)) {
            f->made = true;
            return true;
        }
        if (errno != EEXIST && errno != EINTR)
            break;
    }
    return false;
}

/* A replacement is private until commit, a new file has the mode the umask gives it from the start:
 * neither is ever more open than in the end. */
static mode_t first_mode(const struct file_new *f)
{
    return f->replaces ? 0600 : 0666;
}

static bool make_named(struct file_new *f)
{
    int flags = O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC | O_NOFOLLOW;
    f->fd = openat(f->dir, f->tmp, flags, first_mode(f));
    return f->fd >= 0;
}

static void fd_path(const struct file_new *f, char path[32])
{
    snprintf(path, 32, "/proc/self/fd/%d", f->fd);
}

static bool link_unnamed(struct file_new *f)
{
    char path[32];
    fd_path(f, path);
    return linkat(AT_FDCWD, path, f->dir, f->tmp, AT_SYMLINK_FOLLOW) == 0;
}

/* Preferably a file without a name: a process that is killed then leaves nothing behind. It
 * gets one at commit by way of /proc, so that must be there now. */
static berth_status make_tmp(struct file_new *f, bool named, berth_err *err)
{
    char path[32];
    if (!named)
        f->fd = openat(f->dir, ".", O_RDWR | O_TMPFILE | O_CLOEXEC, first_mode(f));
    if (f->fd >= 0) {
        fd_path(f, path);
        if (access(path, F_OK) == 0)
            return BERTH_OK;
        close(f->fd);
        f->fd = -1;
    }
    if (under_free_name(f, make_named)) /* not every file system has the other kind */
        return BERTH_OK;
    return err_sys(err, file_status(errno), errno,
                   "cannot write '%s': temporary file in its folder", f->path);
}

berth_status file_new_open(const char *path, uint64_t size_hint, struct file_new **out,
                           berth_err *err)
{
    return file_new_open_as(path, size_hint, false, out, err);
}

berth_status file_new_open_as(const char *path, uint64_t size_hint, bool named,
                              struct file_new **out, berth_err *err)
{
    *out = NULL;
    struct str target = { 0 };
    struct file_new *f = calloc(1, sizeof *f);
    berth_status s;
    if (!f || !(f->path = strdup(path))) {
        free(f);
        return err_set(err, BERTH_ENOMEM, "cannot write '%s'", path);
    }
    f->dir = f->fd = -1;
    if ((s = resolve_links(path, &target, err)) || (s = open_folder(f, target.p, err)) ||
        (s = look_at_target(f, err)) || (s = check_space(f, size_hint, err)) ||
        (s = make_tmp(f, named, err)))
        file_new_abort(f);
    else
        *out = f;
    str_release(&target);
    return s;
}

berth_status file_new_write_at(struct file_new *f, uint64_t off, const void *p, size_t n,
                               berth_err *err)
{
    const char *b = p;
    uint64_t end;
    if (__builtin_add_overflow(off, (uint64_t)n, &end) || end > INT64_MAX)
        return err_set(err, BERTH_EINVAL, "'%s': %zu bytes at offset %" PRIu64, f->path, n, off);
    while (n) {
        size_t step = n < (1u << 30) ? n : 1u << 30; /* the kernel writes at most 2 GiB at once */
        ssize_t got = pwrite(f->fd, b, step, (off_t)off);
        if (got < 0 && errno == EINTR)
            continue;
        if (got <= 0) {
            int e = got ? errno : EIO;
            return err_sys(err, BERTH_EIO, e, "writing '%s' at byte %" PRIu64, f->path, off);
        }
        b += got;
        n -= (size_t)got;
        off += (uint64_t)got;
    }
    return BERTH_OK;
}

berth_status file_new_write(struct file_new *f, const void *p, size_t n, berth_err *err)
{
    berth_status s = file_new_write_at(f, f->at, p, n, err);
    if (s == BERTH_OK)
        f->at += n;
    return s;
}

static berth_status step_failed(const struct file_new *f, const char *step, int e, berth_err *err)
{
    return err_sys(err, BERTH_EIO, e, "finishing '%s': %s", f->path, step);
}

/* From its temporary name to its own, if that is free. errno after false. */
static bool take_free_name(struct file_new *f)
{
    if (!renameat2(f->dir, f->tmp, f->dir, f->name, RENAME_NOREPLACE)) {
        f->made = false;
        return true;
    }
    if (errno != EINVAL && errno != ENOSYS) /* not every file system knows that flag */
        return false;
    return !linkat(f->dir, f->tmp, f->dir, f->name, 0); /* abort removes the other name */
}

static berth_status take_name(struct file_new *f, bool only_new, berth_err *err)
{
    if (only_new && take_free_name(f))
        return BERTH_OK;
    if (only_new && errno == EEXIST)
        return err_sys(err, BERTH_EBUSY, EEXIST, "'%s' is there already", f->path);
    if (only_new || renameat(f->dir, f->tmp, f->dir, f->name))
        return step_failed(f, "renaming the temporary file", errno, err);
    f->made = false;
    return BERTH_OK;
}

static berth_status commit(struct file_new *f, bool only_new, berth_err *err)
{
    /* EPERM: a file system without modes, FAT for one */
    if (f->replaces && fchmod(f->fd, f->mode) && errno != EPERM)
        return step_failed(f, "setting its mode", errno, err);
    if (fsync(f->fd))
        return step_failed(f, "writing to disk", errno, err);
    if (!f->made && !under_free_name(f, link_unnamed))
        return step_failed(f, "naming the temporary file", errno, err);
    int fd = f->fd;
    f->fd = -1;
    if (close(fd) && errno != EINTR) /* NFS reports late write errors here */
        return step_failed(f, "closing", errno, err);
    if (take_name(f, only_new, err))
        return err->code;
    if (fsync(f->dir) && errno != EINVAL && errno != ENOTSUP) /* some cannot sync a folder */
        return step_failed(f, "it is in place, but writing its folder to disk failed", errno, err);
    return BERTH_OK;
}

berth_status file_new_commit(struct file_new *f, berth_err *err)
{
    berth_status s = commit(f, false, err);
    file_new_abort(f); /* after a rename there is nothing left to remove */
    return s;
}

berth_status file_new_commit_new(struct file_new *f, berth_err *err)
{
    berth_status s = commit(f, true, err);
    file_new_abort(f);
    return s;
}

int file_new_fd(const struct file_new *f)
{
    return f->fd;
}

static void swap_fds(struct file_new *a, struct file_new *b)
{
    int fd = a->fd;
    a->fd = b->fd;
    b->fd = fd;
}

/* The bytes of f become those of `to`: the file itself if it can get a name in the other folder,
 * else a copy. */
static berth_status hand_over(struct file_new *f, struct file_new *to, berth_err *err)
{
    char buf[32768];
    swap_fds(f, to);
    if (!f->made && !to->made && under_free_name(to, link_unnamed))
        return BERTH_OK;
    swap_fds(f, to); /* another file system, for one */
    for (uint64_t at = 0; at < f->at;) {
        ssize_t n = pread(f->fd, buf, sizeof buf, (off_t)at);
        if (n <= 0)
            return err_sys(err, BERTH_EIO, n ? errno : EIO, "reading '%s' back", f->path);
        if (file_new_write(to, buf, (size_t)n, err))
            return err->code;
        at += (uint64_t)n;
    }
    return BERTH_OK;
}

berth_status file_new_commit_as(struct file_new *f, const char *path, berth_err *err)
{
    struct file_new *to = NULL;
    berth_status s = file_new_open(path, 0, &to, err);
    s = s ? s : hand_over(f, to, err);
    s = s ? s : commit(to, false, err);
    file_new_abort(to);
    file_new_abort(f);
    return s;
}

berth_status file_write_all(const char *path, const void *p, size_t n, berth_err *err)
{
    struct file_new *f = NULL;
    berth_status s = file_new_open(path, n, &f, err);
    if (s)
        return s;
    if (!(s = file_new_write(f, p, n, err)))
        return file_new_commit(f, err);
    file_new_abort(f);
    return s;
}

void file_new_abort(struct file_new *f)
{
    if (!f)
        return;
    if (f->fd >= 0)
        close(f->fd);
    if (f->made)
        unlinkat(f->dir, f->tmp, 0);
    if (f->dir >= 0)
        close(f->dir);
    free(f->name);
    free(f->path);
    free(f);
}

berth_status file_make_dirs(const char *path, berth_err *err)
{
    size_t n = strlen(path);
    char *buf = strdup(path);
    struct stat st;
    if (!buf)
        return err_set(err, BERTH_ENOMEM, "making folder '%s'", path);
    for (size_t i = 1; i <= n; i++) {
        if (buf[i] != '/' && buf[i] != '\0')
            continue;
        char was = buf[i];
        buf[i] = '\0';
        if (mkdir(buf, 0777) && errno != EEXIST) {
            int why = errno; /* a read-only or automounted parent says EROFS though it is there */
            if (stat(buf, &st) || !S_ISDIR(st.st_mode)) {
                err_sys(err, BERTH_EIO, why, "making folder '%s'", buf);
                free(buf);
                return err->code;
            }
        }
        buf[i] = was;
    }
    free(buf);
    if (stat(path, &st))
        return err_sys(err, BERTH_EIO, errno, "folder '%s'", path);
    return S_ISDIR(st.st_mode) ? BERTH_OK
                               : err_set(err, BERTH_EINVAL, "'%s' is not a folder", path);
}
