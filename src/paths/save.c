/* save: names of saved files. See paths.h: counters are proposals, files are made exclusively. */
#include "paths/paths.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <sys/stat.h>
#include <unistd.h>

#define COUNTER_MAX UINT64_C(1000000000000000) /* larger ones in names are not counters */
#define NAME_TAIL 48                           /* "_<counter>_" and an extension */
#define TRIES_MAX 10000                        /* of names that others already have */

static const char batch_word[] = "%batch_num%";
#define BATCH_WORD (sizeof batch_word - 1)

/* ---- what was seen in folders ---- */

struct seen {                /* a name in a folder */
    char *folder, *name;     /* NULL: free */
    struct timespec mtime;   /* of the folder, as our last look or save left it */
    struct timespec settled; /* the mtime of a look that nobody can have slipped into; 0: none */
    uint64_t when;           /* mono_ns of the look */
    uint64_t next;           /* 1 + the largest; 0: not looked for yet */
    uint64_t used;           /* ticks of the cache: the least goes first */
};

struct save_cache {
    struct seen at[SAVE_CACHE_MAX];
    uint64_t tick;
};

struct save_cache *save_cache_new(void)
{
    return calloc(1, sizeof(struct save_cache));
}

void save_cache_free(struct save_cache *c)
{
    for (size_t i = 0; c && i < SAVE_CACHE_MAX; i++) {
        free(c->at[i].folder);
        free(c->at[i].name);
    }
    free(c);
}

static bool same_time(struct timespec a, struct timespec b)
{
    return a.tv_sec == b.tv_sec && a.tv_nsec == b.tv_nsec;
}

static bool folder_time(const char *folder, struct timespec *out)
{
    struct stat st;
    if (stat(folder, &st))
        return false;
    *out = st.st_mtim;
    return true;
}

static bool is_of(const struct seen *x, const struct save_path *p, bool name_too)
{
    return x->folder && strcmp(x->folder, str_c(&p->folder)) == 0 &&
           (!name_too || strcmp(x->name, str_c(&p->name)) == 0);
}

/* The entry, a new one if need be; NULL: no memory for it. */
static struct seen *cache_get(struct save_cache *c, const struct save_path *p)
{
    struct seen *oldest = &c->at[0];
    for (size_t i = 0; i < SAVE_CACHE_MAX; i++) {
        struct seen *x = &c->at[i];
        if (is_of(x, p, true)) {
            x->used = ++c->tick;
            return x;
        }
        oldest = x->used < oldest->used ? x : oldest;
    }
    char *folder = strdup(str_c(&p->folder)), *name = strdup(str_c(&p->name));
    if (!folder || !name) {
        free(folder);
        free(name);
        return NULL;
    }
    free(oldest->folder);
    free(oldest->name);
    *oldest = (struct seen) { .folder = folder, .name = name, .used = ++c->tick };
    return oldest;
}

/* Nobody else can have been in the folder since the last look. */
static bool still_holds(const struct seen *x, struct timespec mtime, uint64_t now)
{
    return x->next && same_time(x->mtime, mtime) &&
           (now - x->when < SAVE_RESCAN_NS || same_time(x->settled, mtime));
}

/* ---- counters ---- */

/* The number in "<name>_<digits>_..." or "<name>_<digits>.png", 0: none. %batch_num% in name stands
 * for some digits. */
static uint64_t number_in(const char *file, const char *name)
{
    for (; *name; name++, file++) {
        if (strncmp(name, batch_word, BATCH_WORD) == 0) {
            size_t digits = strspn(file, "0123456789");
            if (!digits)
                return 0;
            name += BATCH_WORD - 1;
            file += digits - 1;
        } else if (*file != *name) {
            return 0;
        }
    }
    if (*file != '_')
        return 0;
    uint64_t v = 0;
    return str_parse_u64(file + 1, strcspn(file + 1, "_."), &v) && v <= COUNTER_MAX ? v : 0;
}

static berth_status look(const struct save_path *p, uint64_t *next, berth_err *err)
{
    DIR *d = opendir(str_c(&p->folder));
    if (!d)
        return err_sys(err, BERTH_EIO, errno, "folder '%s'", str_c(&p->folder));
    uint64_t most = 0;
    errno = 0;
    for (struct dirent *e; (e = readdir(d)); errno = 0) {
        uint64_t v = number_in(e->d_name, str_c(&p->name));
        most = v > most ? v : most;
    }
    int why = errno;
    closedir(d);
    if (why)
        return err_sys(err, BERTH_EIO, why, "reading folder '%s'", str_c(&p->folder));
    *next = most + 1;
    return BERTH_OK;
}

static berth_status find_counter(struct save_cache *cache, const struct clock *clock,
                                 struct save_path *p, berth_err *err)
{
    struct timespec mtime;
    struct seen *x = cache ? cache_get(cache, p) : NULL;
    if (!x) /* without memory for the cache it is slower, not worse */
        return look(p, &p->counter, err);
    if (!folder_time(x->folder, &mtime)) /* before the look: what comes during it shows later */
        return err_sys(err, BERTH_EIO, errno, "folder '%s'", x->folder);
    uint64_t now = clock_mono_ns(clock), wall = clock_wall_ns(clock);
    uint64_t then = (uint64_t)mtime.tv_sec * 1000000000 + (uint64_t)mtime.tv_nsec;
    if (!still_holds(x, mtime, now)) {
        if (look(p, &x->next, err))
            return err->code;
        x->when = now;
        x->mtime = mtime;
        /* Clocks of file systems tick coarsely: what is done within a tick shows no other mtime. */
        bool old = wall > then && wall - then > SAVE_RESCAN_NS;
        x->settled = old ? mtime : (struct timespec) { 0 };
    }
    p->counter = x->next;
    return BERTH_OK;
}

/* ---- prefixes ---- */

/* %width% .. %second% replaced. */
static void replace_words(const char *prefix, uint64_t width, uint64_t height,
                          const struct clock *clock, struct str *out)
{
    time_t now = (time_t)(clock_wall_ns(clock) / 1000000000);
    struct tm t = { 0 };
    localtime_r(&now, &t);
    const struct {
        const char *word;
        uint64_t value;
        int width;
    } words[] = {
        { "%width%", width, 1 },
        { "%height%", height, 1 },
        { "%year%", (uint64_t)(t.tm_year + 1900), 1 },
        { "%month%", (uint64_t)(t.tm_mon + 1), 2 },
        { "%day%", (uint64_t)t.tm_mday, 2 },
        { "%hour%", (uint64_t)t.tm_hour, 2 },
        { "%minute%", (uint64_t)t.tm_min, 2 },
        { "%second%", (uint64_t)t.tm_sec, 2 },
    };
    for (const char *p = prefix; *p;) {
        size_t i = 0;
        while (i < ARRAY_LEN(words) && strncmp(p, words[i].word, strlen(words[i].word)) != 0)
            i++;
        if (i == ARRAY_LEN(words)) {
            str_addc(out, *p++);
            continue;
        }
        str_addf(out, "%0*" PRIu64, words[i].width, words[i].value);
        p += strlen(words[i].word);
    }
}

/* The prefix as a path below root, from which no ".." leads out: *rel points into *full. */
static berth_status path_below(const char *root, const struct str *prefix, struct str *full,
                               const char **rel, berth_err *err)
{
    struct str top = { 0 };
    path_join(root, "", 0, &top);
    path_join(root, str_c(prefix), prefix->n, full);
    if (top.bad || full->bad) {
        str_release(&top);
        return err_set(err, BERTH_ENOMEM, "the path of prefix '%.80s'", str_c(prefix));
    }
    size_t n = top.n > 1 ? top.n : 0;
    bool in = strncmp(full->p, top.p, n) == 0 && (full->p[n] == '/' || full->p[n] == '\0');
    str_release(&top);
    if (!in)
        return err_set(err, BERTH_EINVAL,
                       "Saving image outside the output folder is not allowed: prefix '%.80s'",
                       str_c(prefix));
    *rel = full->p + n + (full->p[n] == '/');
    return BERTH_OK;
}

static berth_status split(const char *root, const struct str *prefix, struct save_path *out,
                          berth_err *err)
{
    struct str full = { 0 };
    const char *rel = NULL;
    berth_status s = path_below(root, prefix, &full, &rel, err);
    if (!s) {
        const char *slash = strrchr(rel, '/');
        if (slash)
            str_add(&out->subfolder, rel, (size_t)(slash - rel));
        str_adds(&out->name, slash ? slash + 1 : rel);
        if (out->subfolder.bad || out->name.bad)
            s = err_set(err, BERTH_ENOMEM, "the name of prefix '%.80s'", str_c(prefix));
        else if (out->name.n > PATH_PART_MAX - NAME_TAIL)
            s = err_set(err, BERTH_EINVAL, "prefix '%.80s...': a name of %zu bytes, at most %d",
                        out->name.p, out->name.n, PATH_PART_MAX - NAME_TAIL);
    }
    str_release(&full);
    return s;
}

berth_status path_save(struct save_cache *cache, const char *root, const char *prefix,
                       uint64_t width, uint64_t height, const struct clock *clock,
                       struct save_path *out, berth_err *err)
{
    struct str text = { 0 };
    berth_status s = BERTH_OK;
    *out = (struct save_path) { 0 };
    replace_words(prefix, width, height, clock, &text);
    if (text.bad)
        s = err_set(err, BERTH_ENOMEM, "prefix '%.80s'", prefix);
    if (!s)
        s = split(root, &text, out, err);
    str_release(&text);
    /* The name too goes through the check, for its control characters. */
    if (!s)
        s = path_inside(root, str_c(&out->name), out->name.n, true, &out->folder, err);
    if (!s)
        s = path_inside(root, str_c(&out->subfolder), out->subfolder.n, false, &out->folder, err);
    if (!s)
        s = path_make_dirs(str_c(&out->folder), err);
    if (!s)
        s = find_counter(cache, clock, out, err);
    return s ? err_add(err, "saving under '%.80s'", prefix) : BERTH_OK;
}

void save_path_release(struct save_path *p)
{
    str_release(&p->folder);
    str_release(&p->subfolder);
    str_release(&p->name);
    *p = (struct save_path) { 0 };
}

/* ---- files ---- */

static void file_name(const struct save_path *p, uint64_t batch, const char *ext, struct str *out)
{
    str_clear(out);
    for (const char *s = str_c(&p->name); *s;) {
        if (strncmp(s, batch_word, BATCH_WORD) == 0) {
            str_addf(out, "%" PRIu64, batch);
            s += BATCH_WORD;
        } else {
            str_addc(out, *s++);
        }
    }
    str_addf(out, "_%05" PRIu64 "%s%s", p->counter, p->bare ? "" : "_", ext);
}

/* errno, 0: all of it */
static int write_all(int fd, const char *p, size_t n)
{
    while (n) {
        ssize_t k = write(fd, p, n);
        if (k < 0 && errno == EINTR)
            continue;
        if (k < 0)
            return errno;
        p += k;
        n -= (size_t)k;
    }
    return 0;
}

static int name_it(int dir, int fd, const char *name)
{
    char self[64];
    snprintf(self, sizeof self, "/proc/self/fd/%d", fd);
    return linkat(AT_FDCWD, self, dir, name, AT_SYMLINK_FOLLOW) ? errno : 0;
}

/* For where files must have names: a reader may see a part of it for a moment. */
static int write_named(int dir, const char *name, const void *data, size_t n)
{
    int fd = openat(dir, name, O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0666);
    if (fd < 0)
        return errno;
    int why = write_all(fd, data, n);
    if (close(fd) && !why)
        why = errno;
    if (why)
        unlinkat(dir, name, 0);
    return why;
}

struct whole {        /* what gets a name */
    int fd;           /* its bytes; -1: none, they are data */
    const char *temp; /* the name it has meanwhile; "": none */
    const void *data; /* NULL: all is in fd */
    size_t n;
};

static int give_name(int dir, const struct whole *f, const char *name)
{
    if (f->temp[0])
        return linkat(dir, f->temp, dir, name, 0) ? errno : 0;
    return f->fd >= 0 ? name_it(dir, f->fd, name) : ENOENT;
}

/* errno. The first name that nobody has, from p->counter on. */
static int place(int dir, const struct whole *f, struct save_path *p, uint64_t batch,
                 const char *ext, struct str *name)
{
    for (unsigned tries = 0; tries < TRIES_MAX; tries++, p->counter++) {
        berth_err unread = { 0 };
        uint64_t next;
        if (tries == 1 && !look(p, &next, &unread) && next > p->counter)
            p->counter = next; /* somebody was here: look once, then count */
        file_name(p, batch, ext, name);
        if (name->bad)
            return ENOMEM;
        int why = give_name(dir, f, name->p);
        if (why && why != EEXIST && f->data) /* no /proc, no links: some file systems, sandboxes */
            why = write_named(dir, name->p, f->data, f->n);
        if (why != EEXIST)
            return why;
    }
    return EEXIST;
}

/* Before and after our own change: only what is ours moves the folder's time in the cache. */
static void cache_saved(struct save_cache *c, const struct save_path *p, struct timespec before)
{
    struct timespec after;
    if (!c || !folder_time(str_c(&p->folder), &after))
        return;
    for (size_t i = 0; i < SAVE_CACHE_MAX; i++) {
        struct seen *x = &c->at[i];
        if (!is_of(x, p, false) || !same_time(x->mtime, before))
            continue;
        x->mtime = after;
        if (is_of(x, p, true))
            x->next = p->counter;
    }
}

/* What came of it: `why` is errno. */
static berth_status saved(struct save_cache *cache, struct save_path *p, int why, size_t n,
                          const struct str *name, struct timespec before, struct str *filename,
                          berth_err *err)
{
    if (why == ENOMEM)
        return err_set(err, BERTH_ENOMEM, "writing '%s/%s'", str_c(&p->folder), str_c(name));
    if (why)
        return err_sys(err, BERTH_EIO, why, "writing '%s/%s', %zu bytes", str_c(&p->folder),
                       name->n ? name->p : str_c(&p->name), n);
    p->counter++;
    cache_saved(cache, p, before);
    if (!filename)
        return BERTH_OK;
    str_clear(filename);
    str_add(filename, name->p, name->n);
    return filename->bad ? err_set(err, BERTH_ENOMEM, "the name of '%s'", name->p) : BERTH_OK;
}

berth_status path_save_file(struct save_cache *cache, struct save_path *p, uint64_t batch,
                            const char *ext, const void *data, size_t n, struct str *filename,
                            berth_err *err)
{
    struct timespec before = { 0 };
    struct str name = { 0 };
    int dir = open(str_c(&p->folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (dir < 0)
        return err_sys(err, BERTH_EIO, errno, "folder '%s'", str_c(&p->folder));
    folder_time(str_c(&p->folder), &before);
    /* Its content is there before its name is. -1: this file system has no such files. */
    int nameless = openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
    int why = nameless < 0 ? 0 : write_all(nameless, data, n);
    if (!why)
        why =
            place(dir, &(struct whole) { nameless, "", data ? data : "", n }, p, batch, ext, &name);
    if (nameless >= 0 && close(nameless) && !why)
        why = errno;
    close(dir);
    berth_status s = saved(cache, p, why, n, &name, before, filename, err);
    str_release(&name);
    return s;
}

berth_status path_save_open(struct save_path *p, struct save_stream *out, berth_err *err)
{
    *out = (struct save_stream) { .fd = -1 };
    out->dir = open(str_c(&p->folder), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    if (out->dir < 0)
        return err_sys(err, BERTH_EIO, errno, "folder '%s'", str_c(&p->folder));
    out->fd = openat(out->dir, ".", O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
    for (unsigned i = 0; out->fd < 0 && i < TRIES_MAX; i++) { /* a file system without such files */
        snprintf(out->temp, sizeof out->temp, ".berth-%ld-%u.part", (long)getpid(), i);
        out->fd = openat(out->dir, out->temp, O_CREAT | O_EXCL | O_RDWR | O_CLOEXEC, 0666);
        if (out->fd < 0 && errno != EEXIST)
            break;
    }
    if (out->fd >= 0)
        return BERTH_OK;
    int why = errno;
    close(out->dir);
    *out = (struct save_stream) { .fd = -1, .dir = -1 };
    return err_sys(err, BERTH_EIO, why, "a file in '%s'", str_c(&p->folder));
}

berth_status path_save_close(struct save_cache *cache, struct save_path *p, uint64_t batch,
                             const char *ext, bool keep, struct save_stream *f,
                             struct str *filename, berth_err *err)
{
    struct timespec before = { 0 };
    struct str name = { 0 };
    struct stat st = { 0 };
    berth_status s = BERTH_OK;
    if (f->fd < 0)
        return BERTH_OK;
    if (keep) {
        folder_time(str_c(&p->folder), &before);
        int why = fstat(f->fd, &st) ? errno : 0;
        if (!why)
            why = place(f->dir, &(struct whole) { f->fd, f->temp, NULL, 0 }, p, batch, ext, &name);
        s = saved(cache, p, why, (size_t)st.st_size, &name, before, filename, err);
    }
    if (f->temp[0])
        unlinkat(f->dir, f->temp, 0);
    close(f->fd);
    close(f->dir);
    *f = (struct save_stream) { .fd = -1, .dir = -1 };
    str_release(&name);
    return s;
}
