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

struct seen_name {
    char *name; /* NULL: free */
    size_t folder;
    uint64_t next;  /* 1 + the largest */
    uint64_t epoch; /* of the folder when it was looked through */
    uint64_t used;  /* ticks of the cache: the least goes first */
};

struct seen_folder {
    char *path;              /* NULL: free */
    struct timespec mtime;   /* as our last look or save left it */
    struct timespec settled; /* the mtime of an epoch that nobody can have slipped into; 0: none */
    uint64_t when;           /* mono_ns at which the epoch began */
    uint64_t epoch;          /* another one: the names are looked for again */
    uint64_t used;
};

struct save_cache {
    struct seen_folder folder[SAVE_CACHE_MAX];
    struct seen_name name[SAVE_CACHE_MAX];
    uint64_t tick;
};

struct save_cache *save_cache_new(void)
{
    return calloc(1, sizeof(struct save_cache));
}

void save_cache_free(struct save_cache *c)
{
    for (size_t i = 0; c && i < SAVE_CACHE_MAX; i++) {
        free(c->folder[i].path);
        free(c->name[i].name);
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

static void forget_names(struct save_cache *c, size_t folder)
{
    for (size_t i = 0; i < SAVE_CACHE_MAX; i++)
        if (c->name[i].name && c->name[i].folder == folder) {
            free(c->name[i].name);
            c->name[i] = (struct seen_name) { 0 };
        }
}

/* The folder's entry, a new one if need be; NULL: no memory for it. */
static struct seen_folder *cache_folder(struct save_cache *c, const char *path)
{
    struct seen_folder *oldest = &c->folder[0];
    for (size_t i = 0; i < SAVE_CACHE_MAX; i++) {
        struct seen_folder *f = &c->folder[i];
        if (f->path && strcmp(f->path, path) == 0) {
            f->used = ++c->tick;
            return f;
        }
        oldest = f->used < oldest->used ? f : oldest;
    }
    char *copy = strdup(path);
    if (!copy)
        return NULL;
    forget_names(c, (size_t)(oldest - c->folder));
    free(oldest->path);
    *oldest = (struct seen_folder) { .path = copy, .epoch = ++c->tick, .used = ++c->tick };
    return oldest;
}

static struct seen_name *cache_name(struct save_cache *c, size_t folder, const char *name)
{
    struct seen_name *oldest = &c->name[0];
    for (size_t i = 0; i < SAVE_CACHE_MAX; i++) {
        struct seen_name *x = &c->name[i];
        if (x->name && x->folder == folder && strcmp(x->name, name) == 0) {
            x->used = ++c->tick;
            return x;
        }
        oldest = x->used < oldest->used ? x : oldest;
    }
    char *copy = strdup(name);
    if (!copy)
        return NULL;
    free(oldest->name);
    *oldest = (struct seen_name) { .name = copy, .folder = folder, .used = ++c->tick };
    return oldest; /* epoch 0: not looked for yet */
}

/* A new epoch when somebody else may have been in the folder since the last. */
static void cache_check(struct save_cache *c, struct seen_folder *f, struct timespec mtime,
                        const struct clock *clock)
{
    uint64_t now = clock_mono_ns(clock);
    bool ours = same_time(f->mtime, mtime);
    bool fresh = now - f->when < SAVE_RESCAN_NS || same_time(f->settled, mtime);
    if (ours && fresh)
        return;
    uint64_t wall = clock_wall_ns(clock);
    uint64_t then = (uint64_t)mtime.tv_sec * 1000000000 + (uint64_t)mtime.tv_nsec;
    f->epoch = ++c->tick;
    f->when = now;
    f->mtime = mtime;
    /* Clocks of file systems tick coarsely: what is done within a tick shows no other mtime. */
    f->settled = wall > then && wall - then > SAVE_RESCAN_NS ? mtime : (struct timespec) { 0 };
}

/* ---- counters ---- */

/* The number in "<name>_<digits>_...", 0: none. %batch_num% in name stands for some digits. */
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
    return str_parse_u64(file + 1, strcspn(file + 1, "_"), &v) && v <= COUNTER_MAX ? v : 0;
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
    struct seen_folder *f = cache ? cache_folder(cache, str_c(&p->folder)) : NULL;
    if (!f) /* without memory for the cache it is slower, not worse */
        return look(p, &p->counter, err);
    if (!folder_time(f->path, &mtime)) /* before the look: what comes during it shows later */
        return err_sys(err, BERTH_EIO, errno, "folder '%s'", f->path);
    cache_check(cache, f, mtime, clock);
    struct seen_name *x = cache_name(cache, (size_t)(f - cache->folder), str_c(&p->name));
    if (x && x->epoch == f->epoch) {
        p->counter = x->next;
        return BERTH_OK;
    }
    if (look(p, &p->counter, err))
        return err->code;
    if (x) {
        x->next = p->counter;
        x->epoch = f->epoch;
    }
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
static berth_status below(const char *root, const struct str *prefix, struct str *full,
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
    berth_status s = below(root, prefix, &full, &rel, err);
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
    str_addf(out, "_%05" PRIu64 "_%s", p->counter, ext);
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

/* A file whose content is there before its name is; -1: this file system has no such. */
static int open_nameless(int dir)
{
    return openat(dir, ".", O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666);
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

/* errno. The first name that nobody has, from p->counter on. */
static int place(int dir, int nameless, struct save_path *p, uint64_t batch, const char *ext,
                 const void *data, size_t n, struct str *name)
{
    for (unsigned tries = 0; tries < TRIES_MAX; tries++, p->counter++) {
        berth_err unread = { 0 };
        uint64_t next;
        if (tries == 1 && !look(p, &next, &unread) && next > p->counter)
            p->counter = next; /* somebody was here: look once, then count */
        file_name(p, batch, ext, name);
        if (name->bad)
            return ENOMEM;
        int why = nameless >= 0 ? name_it(dir, nameless, name->p) : ENOENT;
        if (why && why != EEXIST) /* no /proc, no links: some file systems and sandboxes */
            why = write_named(dir, name->p, data, n);
        if (why != EEXIST)
            return why;
    }
    return EEXIST;
}

/* Before and after our own change: only what is ours moves the folder's time in the cache. */
static void cache_saved(struct save_cache *c, const struct save_path *p, struct timespec before)
{
    struct timespec after;
    struct seen_folder *f = c ? cache_folder(c, str_c(&p->folder)) : NULL;
    if (!f || !same_time(f->mtime, before) || !folder_time(f->path, &after))
        return;
    struct seen_name *x = cache_name(c, (size_t)(f - c->folder), str_c(&p->name));
    f->mtime = after;
    if (x && x->epoch == f->epoch)
        x->next = p->counter;
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
    int nameless = open_nameless(dir);
    int why = nameless < 0 ? 0 : write_all(nameless, data, n);
    if (!why)
        why = place(dir, nameless, p, batch, ext, data, n, &name);
    if (nameless >= 0 && close(nameless) && !why)
        why = errno;
    close(dir);
    berth_status s = BERTH_OK;
    if (why == ENOMEM)
        s = err_set(err, BERTH_ENOMEM, "writing '%s/%s'", str_c(&p->folder), str_c(&name));
    else if (why)
        s = err_sys(err, BERTH_EIO, why, "writing '%s/%s', %zu bytes", str_c(&p->folder),
                    name.n ? name.p : str_c(&p->name), n);
    if (!s) {
        p->counter++;
        cache_saved(cache, p, before);
        if (filename) {
            str_clear(filename);
            str_add(filename, name.p, name.n);
            if (filename->bad)
                s = err_set(err, BERTH_ENOMEM, "the name of '%s'", name.p);
        }
    }
    str_release(&name);
    return s;
}
