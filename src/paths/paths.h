/* paths: names from outside turned into files inside, and never anything else.
 *
 * safe.c      A relative name under a root: refused are absolute names, "..", NUL, control
 *             characters, malformed UTF-8, names that are too long, and whatever a symbolic link
 *             leads out of the root (checked on the resolved path; the last part need not exist for
 *             writing). A backslash is a character like any other. Escapes (%2e) mean nothing here:
 *             decode first, once. Directories that change between the check and the use are not
 *             guarded against: a program that can rename inside a root needs no name from outside.
 * names.c     "x.png [input]" annotations; escaping; MIME types by extension.
 * save.c      Names of saved files, their counters, and writing them.
 * Threads     Any; no state but struct save_cache, which belongs to one thread. */
#pragma once

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#define PATH_BYTES_MAX 4095 /* of a whole path, and of a relative name */
#define PATH_PART_MAX 255   /* of a part between '/' */

/* root/rel, resolved and known to lie inside root, which exists. rel: '/' separators, "" is root
 * itself; empty parts and "." are skipped. Replaces what is in *out.
 * BERTH_EINVAL: it would leave the root, or is malformed; the message quotes rel.
 * follow: symbolic links inside may lead out of the root (model folders, where people link freely),
 * and the result is root/rel as written; without it whatever resolves outside is refused, a link
 * that leads nowhere too. The file itself need not exist; of what exists on the way nothing is a
 * file. */
berth_status path_inside(const char *root, const char *rel, size_t n, bool follow, struct str *out,
                         berth_err *err);
/* mkdir -p of an absolute path, 0777 less the umask. */
berth_status path_make_dirs(const char *path, berth_err *err);
/* Removes everything inside an absolute folder; links are removed, not followed. The folder
 * stays, and need not be there. */
berth_status path_empty_dir(const char *path, berth_err *err);
/* base/name, or name when that is absolute; without "//", "/./" and "x/..": as text, links
 * unread, and nothing is above "/". base: absolute. Replaces what is in *out; out->bad: out of
 * memory. */
void path_join(const char *base, const char *name, size_t n, struct str *out);
/* Percent-decodes; false when malformed or with a NUL in it. plus: '+' is a space (query
 * strings). */
WARN_UNUSED bool path_unescape(const char *s, size_t n, bool plus, struct str *out);
void path_escape(const char *s, size_t n, struct str *out); /* RFC 3986 unreserved stay */

const char *path_mime(const char *name); /* by extension; "application/octet-stream" */

/* "x.png [output]" -> name "x.png", kind "output". Without annotation kind is NULL. Kinds: output,
 * input, temp. The lengths are in bytes of s. */
struct annotated {
    const char *name;
    size_t n;
    const char *kind; /* static */
};
struct annotated path_annotated(const char *s, size_t n);

/* ---- saving ----
 * ComfyUI's get_save_image_path: %width% .. %second% replaced (local time of `clock`), split into
 * subfolder and name, folder made, counter = 1 + the largest in files <name>_<digits>_* and
 * <name>_<digits>.*.
 *
 * A counter is a proposal. path_save_file() makes the file under a name that nobody has, counting
 * on while somebody does. So two saves that race, in one process or two, end as two files, and
 * nothing is ever overwritten.
 *
 * Looking through a folder of 10,000 pictures takes milliseconds, so a cache remembers the counter
 * and the folder's mtime after our own last save. If the mtime differs, somebody else was there,
 * and the folder is read again. A file that another process adds at the very moment of our save
 * cannot be told from ours; therefore a folder that changed is read again after SAVE_RESCAN_NS.
 * Until then the number may not be the one that ComfyUI would choose, but no file is lost. */
struct save_path {
    struct str folder;    /* absolute */
    struct str subfolder; /* "" for the root */
    struct str name;      /* %batch_num% still in it */
    uint64_t counter;
    bool bare; /* set it for files without "_" behind the counter */
};
#define SAVE_RESCAN_NS UINT64_C(1000000000)

struct save_cache; /* one thread's, at most SAVE_CACHE_MAX names */
#define SAVE_CACHE_MAX 64
struct save_cache *save_cache_new(void);    /* NULL: out of memory */
void save_cache_free(struct save_cache *c); /* NULL is fine */

/* cache: NULL looks every time. root: absolute. prefix: absolute only when it lies in root.
 * *out is empty before; save_path_release() it, also after an error. */
berth_status path_save(struct save_cache *cache, const char *root, const char *prefix,
                       uint64_t width, uint64_t height, const struct clock *clock,
                       struct save_path *out, berth_err *err);
void save_path_release(struct save_path *p); /* zeroed is fine */

/* Writes <name>_<counter:05>_<ext> whole (ext: ".png"; batch replaces %batch_num%), then
 * p->counter is the next one. filename (may be NULL) gets the name without folder. Nothing is left
 * of a write that failed. Not flushed to the disk: a power cut may cost the last pictures, a crash
 * of ours does not. cache: as for path_save(), told of what we wrote. */
berth_status path_save_file(struct save_cache *cache, struct save_path *p, uint64_t batch,
                            const char *ext, const void *data, size_t n, struct str *filename,
                            berth_err *err);

/* The same for a file that is written piece by piece, or by another process: it has no name in the
 * folder before path_save_close(), which gives it one, or with keep false throws it away. Closing
 * twice is fine. */
struct save_stream {
    int dir, fd;   /* fd: to write to, and to read again; -1: closed */
    char temp[64]; /* where files must have names; "": it has none */
};
berth_status path_save_open(struct save_path *p, struct save_stream *out, berth_err *err);
berth_status path_save_close(struct save_cache *cache, struct save_path *p, uint64_t batch,
                             const char *ext, bool keep, struct save_stream *f,
                             struct str *filename, berth_err *err);
