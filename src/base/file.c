#include "base/file.h"

#include "base/file_impl.h"
#include "base/str.h"
#include "base/sz.h"

#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

/* ---- the SIGBUS table ---- */

/* One mapping the handler knows. FREE -> CLAIMED (slot_take) -> page address (slot_take, last) ->
 * FREE (slot_drop, before munmap). The handler looks only at slots with a page address. */
struct slot {
    atomic_uintptr_t start;
    atomic_size_t len; /* whole pages */
    atomic_bool lost;  /* sticky until the slot is dropped */
};
enum { SLOT_FREE = 0, SLOT_CLAIMED = 1 }; /* no page starts at either */

static struct slot slots[FILE_MAPS_MAX];
static atomic_size_t slots_high; /* slots at and above were never used */
static atomic_size_t page_bytes; /* sysconf() is not for signal handlers */

/* Whom our handler stands in front of. A program may set its own handler after ours; the next
 * file_map_open() then steps in front of that one. The handler reads only the newest record, and
 * several more must be made before it is written over. */
static struct sigaction before_us[8];
static atomic_size_t installs; /* the newest record is before_us[(installs - 1) % 8] */
static pthread_mutex_t install_lock = PTHREAD_MUTEX_INITIALIZER;

/* Puts zero pages from the faulting one to the end of the mapping. To the end, and not just one:
 * what follows a page that lies beyond the end of the file lies beyond it too, and 24 GB should not
 * cost six million faults. The raw system call, since a sanitizer's wrapper of mmap() is not made
 * for signal handlers. */
static bool map_zeros(struct slot *s, uintptr_t start, size_t len, uintptr_t addr)
{
    uintptr_t page = addr & ~(uintptr_t)(atomic_load(&page_bytes) - 1);
    atomic_store(&s->lost, true); /* before anyone can read a zero */
    long got = syscall(SYS_mmap, page, start + len - page, PROT_READ,
                       MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE | MAP_FIXED, -1, (off_t)0);
    return (uintptr_t)got == page;
}

static bool fault_is_ours(uintptr_t addr)
{
    size_t high = atomic_load(&slots_high);
    for (size_t i = 0; i < high; i++) {
        struct slot *s = &slots[i];
        uintptr_t start = atomic_load(&s->start);
        size_t len = atomic_load(&s->len);
        /* start again: the slot may have changed hands between the two loads */
        if (start > SLOT_CLAIMED && addr >= start && addr - start < len &&
            atomic_load(&s->start) == start)
            return map_zeros(s, start, len, addr);
    }
    return false;
}

static void die_of(int sig, bool sent)
{
    struct sigaction dfl = { .sa_handler = SIG_DFL };
    sigaction(sig, &dfl, NULL);
    if (sent)
        raise(sig); /* a fault happens again on return, a sent signal does not */
}

/* Hands the signal to the handler that was installed before ours. One that was set after ours may
 * call ours, which is now in front of it again: the same siginfo further down the stack ends that
 * circle. */
static void pass_on(int sig, siginfo_t *info, void *ucontext, bool sent)
{
    static _Atomic(siginfo_t *) last_info;
    static atomic_uintptr_t last_frame;
    const struct sigaction *prev = &before_us[(atomic_load(&installs) - 1) % ARRAY_LEN(before_us)];
    uintptr_t frame = (uintptr_t)__builtin_frame_address(0);
    bool circle = atomic_exchange(&last_info, info) == info && frame < atomic_load(&last_frame);
    atomic_store(&last_frame, frame);
    if (circle)
        die_of(sig, sent);
    else if (prev->sa_flags & SA_SIGINFO)
        prev->sa_sigaction(sig, info, ucontext);
    else if (prev->sa_handler != SIG_DFL && prev->sa_handler != SIG_IGN)
        prev->sa_handler(sig);
    else if (prev->sa_handler == SIG_DFL || !sent) /* a fault cannot be ignored */
        die_of(sig, sent);
}

/* Only system calls and atomics in here: any thread may be interrupted anywhere. */
static void on_sigbus(int sig, siginfo_t *info, void *ucontext)
{
    int saved = errno;
    bool sent = info->si_code <= 0; /* by kill() and friends: si_addr means nothing */
    if (sent || !fault_is_ours((uintptr_t)info->si_addr))
        pass_on(sig, info, ucontext, sent);
    errno = saved;
}

static void install(void)
{
    struct sigaction now,
        ours = { .sa_sigaction = on_sigbus, .sa_flags = SA_SIGINFO | SA_ONSTACK | SA_RESTART };
    pthread_mutex_lock(&install_lock);
    if (!atomic_load(&page_bytes)) {
        long page = sysconf(_SC_PAGESIZE);
        if (page < 2 || !sz_is_pow2((size_t)page))
            BUG("page size %ld", page);
        atomic_store(&page_bytes, (size_t)page);
    }
    sigaction(SIGBUS, NULL, &now);
    if (!(now.sa_flags & SA_SIGINFO) || now.sa_sigaction != on_sigbus) {
        size_t n = atomic_load(&installs);
        before_us[n % ARRAY_LEN(before_us)] = now; /* known before our handler can run */
        atomic_store(&installs, n + 1);
        sigemptyset(&ours.sa_mask);
        sigaction(SIGBUS, &ours, NULL);
    }
    pthread_mutex_unlock(&install_lock);
}

static struct slot *slot_take(const void *data, size_t len)
{
    for (size_t i = 0; i < FILE_MAPS_MAX; i++) {
        struct slot *s = &slots[i];
        uintptr_t want = SLOT_FREE;
        if (!atomic_compare_exchange_strong(&s->start, &want, SLOT_CLAIMED))
            continue;
        size_t high = atomic_load(&slots_high);
        while (high < i + 1 && !atomic_compare_exchange_weak(&slots_high, &high, i + 1))
            ;
        atomic_store(&s->lost, false);
        atomic_store(&s->len, len);
        atomic_store(&s->start, (uintptr_t)data);
        return s;
    }
    return NULL;
}

static void slot_drop(struct slot *s)
{
    atomic_store(&s->len, 0);
    atomic_store(&s->start, SLOT_FREE);
}

/* ---- opening ---- */

const char *file_kind(mode_t mode)
{
    return S_ISDIR(mode)    ? "directory"
           : S_ISFIFO(mode) ? "FIFO"
           : S_ISSOCK(mode) ? "socket"
           : S_ISCHR(mode)  ? "character device"
           : S_ISBLK(mode)  ? "block device"
                            : "special file";
}

berth_status file_status(int native)
{
    return native == ENOENT || native == ENOTDIR ? BERTH_ENOTFOUND
           : native == ENOMEM                    ? BERTH_ENOMEM
                                                 : BERTH_EIO;
}

berth_status file_open_read(const char *path, int *fd, struct stat *st, berth_err *err)
{
    /* O_NONBLOCK: opening a FIFO nobody writes to must not hang; regular files do not care */
    *fd = open(path, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);
    if (*fd < 0 && errno == ENXIO)
        return err_sys(err, BERTH_EINVAL, ENXIO, "'%s' is not a regular file", path);
    if (*fd < 0)
        return err_sys(err, file_status(errno), errno, "cannot open '%s'", path);
    berth_status s = BERTH_OK;
    if (fstat(*fd, st))
        s = err_sys(err, BERTH_EIO, errno, "cannot stat '%s'", path);
    else if (!S_ISREG(st->st_mode))
        s = err_set(err, BERTH_EINVAL, "'%s' is a %s, not a regular file", path,
                    file_kind(st->st_mode));
    if (s) {
        close(*fd);
        *fd = -1;
    }
    return s;
}

/* ---- mappings ---- */

struct mapping {
    struct file_map map; /* what callers see; first */
    int fd;     /* kept for file_map_check(): the file itself, whatever its name points to later */
    size_t len; /* size in whole pages */
    struct slot *slot;
};

static const struct mapping *mapping_of(const struct file_map *m)
{
    return (const struct mapping *)m;
}

static struct file_id id_of(const struct stat *st)
{
    return (struct file_id) {
        .dev = (uint64_t)st->st_dev,
        .inode = (uint64_t)st->st_ino,
        .size = (uint64_t)st->st_size,
        .mtime_ns =
            (uint64_t)st->st_mtim.tv_sec * UINT64_C(1000000000) + (uint64_t)st->st_mtim.tv_nsec,
    };
}

bool file_id_of(const char *path, struct file_id *out)
{
    struct stat st;
    if (stat(path, &st))
        return false;
    *out = id_of(&st);
    return true;
}

static berth_status map_fd(struct mapping *m, const struct stat *st, berth_err *err)
{
    struct file_map *f = &m->map;
    f->id = id_of(st);
    if (f->id.size == 0)
        return err_set(err, BERTH_EFORMAT, "'%s' is empty (0 bytes)", f->path);
    if (!sz_from_u64(f->id.size, &f->size) || !sz_align(f->size, atomic_load(&page_bytes), &m->len))
        return err_set(err, BERTH_ELIMIT, "'%s': %" PRIu64 " bytes do not fit the address space",
                       f->path, f->id.size);
    void *p = mmap(NULL, f->size, PROT_READ, MAP_SHARED, m->fd, 0);
    if (p == MAP_FAILED)
        return err_sys(err, errno == ENOMEM ? BERTH_ENOMEM : BERTH_EIO, errno,
                       "cannot map '%s' (%" PRIu64 " bytes)", f->path, f->id.size);
    f->data = p;
    m->slot = slot_take(p, m->len);
    if (!m->slot)
        return err_set(err, BERTH_ELIMIT, "cannot map '%s': %d files are mapped already", f->path,
                       FILE_MAPS_MAX);
    return BERTH_OK;
}

berth_status file_map_open(const char *path, struct file_map **out, berth_err *err)
{
    *out = NULL;
    install();
    struct mapping *m = calloc(1, sizeof *m);
    if (!m || !(m->map.path = strdup(path))) {
        free(m);
        return err_set(err, BERTH_ENOMEM, "cannot open '%s'", path);
    }
    struct stat st = { 0 };
    m->fd = -1;
    berth_status s = file_open_read(path, &m->fd, &st, err);
    if (!s)
        s = map_fd(m, &st, err);
    if (s)
        file_map_close(&m->map);
    else
        *out = &m->map;
    return s;
}

void file_map_close(struct file_map *map)
{
    struct mapping *m = (struct mapping *)map;
    if (!m)
        return;
    if (m->slot)
        slot_drop(m->slot); /* first: the address may belong to someone else after munmap */
    if (map->data)
        munmap((void *)(uintptr_t)map->data, m->len);
    if (m->fd >= 0)
        close(m->fd);
    free((char *)(uintptr_t)map->path);
    free(m);
}

berth_status file_map_check(const struct file_map *m, berth_err *err)
{
    struct stat st;
    if (fstat(mapping_of(m)->fd, &st))
        return err_sys(err, BERTH_EIO, errno, "cannot stat '%s'", m->path);
    struct file_id now = id_of(&st);
    if (now.size != m->id.size)
        return err_set(err, BERTH_EIO,
                       "'%s' %s while it was open: %" PRIu64 " bytes then, %" PRIu64 " now",
                       m->path, now.size < m->id.size ? "shrank" : "grew", m->id.size, now.size);
    if (atomic_load(&mapping_of(m)->slot->lost))
        return err_set(
            err, BERTH_EIO,
            "part of '%s' could not be read: a disk error, or the file was cut short for "
            "a while (%" PRIu64 " bytes then, %" PRIu64 " now)",
            m->path, m->id.size, now.size);
    if (now.mtime_ns != m->id.mtime_ns)
        return err_set(err, BERTH_EIO,
                       "'%s' was written to while it was open (%" PRIu64 " bytes then and now)",
                       m->path, m->id.size);
    return BERTH_OK;
}

/* From here on a read costs less than the page faults of a copy, which many threads take turns
 * at. */
#define READ_LEAST ((size_t)64 << 10)

static berth_status read_large(const struct file_map *m, uint64_t off, void *dst, size_t n,
                               berth_err *err)
{
    for (size_t done = 0; done < n;) {
        ssize_t got = pread(mapping_of(m)->fd, (char *)dst + done, n - done, (off_t)(off + done));
        if (got < 0 && errno == EINTR)
            continue;
        if (got < 0)
            return err_sys(err, BERTH_EIO, errno, "reading '%s' at offset %" PRIu64, m->path,
                           off + done);
        if (!got) /* it was cut short; mostly the check says more */
            return file_map_check(m, err) ? err->code
                                          : err_set(err, BERTH_EIO, "'%s' ends at offset %" PRIu64,
                                                    m->path, off + done);
        done += (size_t)got;
    }
    return BERTH_OK;
}

berth_status file_map_read(const struct file_map *m, uint64_t off, void *dst, size_t n,
                           berth_err *err)
{
    if (off > m->size || n > m->size - off)
        return err_set(err, BERTH_EINVAL,
                       "'%s': %zu bytes at offset %" PRIu64 " lie outside its %zu bytes", m->path,
                       n, off, m->size);
    berth_status s = n < READ_LEAST ? BERTH_OK : read_large(m, off, dst, n, err);
    if (n < READ_LEAST && n)
        memcpy(dst, m->data + off, n);
    return s ? s : file_map_check(m, err);
}

void file_map_drop(const struct file_map *m)
{
    /* Clean pages of a shared mapping stay in the system's cache; the zero pages that map_zeros()
     * put there are made anew. A refusal (locked memory) costs memory, nothing else. */
    (void)madvise((void *)(uintptr_t)m->data, mapping_of(m)->len, MADV_DONTNEED);
}

/* ---- small files ---- */

/* Reads to the end, a little beyond max bytes at most. The size from stat is a hint only: files in
 * /proc have none, others grow. */
static berth_status slurp(int fd, const char *path, size_t hint, size_t max, struct str *out,
                          berth_err *err)
{
    for (ssize_t got = 1; got && out->n <= max;) {
        size_t from = out->n, room = hint > from ? hint - from + 1 : 4096; /* + 1: finds the end */
        str_pad(out, '\0', from + room);
        if (out->bad)
            return err_set(err, BERTH_ENOMEM, "reading '%s' (%zu bytes so far)", path, from);
        got = read(fd, out->p + from, room);
        if (got < 0 && errno != EINTR)
            return err_sys(err, BERTH_EIO, errno, "cannot read '%s'", path);
        out->n = from + (got > 0 ? (size_t)got : 0);
    }
    out->p[out->n] = '\0';
    return out->n <= max ? BERTH_OK
                         : err_set(err, BERTH_ELIMIT, "'%s' is larger than %zu bytes", path, max);
}

berth_status file_read_all(const char *path, size_t max, char **out, size_t *n, berth_err *err)
{
    int fd;
    struct stat st = { 0 };
    struct str text = { 0 };
    *out = NULL;
    *n = 0;
    berth_status s = file_open_read(path, &fd, &st, err);
    if (s)
        return s;
    if ((uint64_t)st.st_size > max)
        s = err_set(err, BERTH_ELIMIT, "'%s' has %" PRIu64 " bytes, at most %zu are read", path,
                    (uint64_t)st.st_size, max);
    else
        s = slurp(fd, path, (size_t)st.st_size, max, &text, err);
    close(fd);
    if (s) {
        str_release(&text);
        return s;
    }
    *n = text.n;
    *out = str_take(&text);
    return BERTH_OK;
}
