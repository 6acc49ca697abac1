/* paths: names from outside turned into files inside, and never anything else.
 *
 * safe.c      A relative name under a root: refused are absolute names, "..", NUL, control
 *             characters, names that are too long, and whatever a symbolic link leads out of the
 *             root (checked on the resolved path; the last part need not exist for writing).
 * names.c     "x.png [input]" annotations; counters of saved files; MIME types by extension.
 * Threads     Any; no state. */
#ifndef PATHS_PATHS_H
#define PATHS_PATHS_H

#include "base/clock.h"
#include "base/err.h"
#include "base/str.h"

#include <stdbool.h>

/* root/rel, resolved and known to lie inside root, which exists. rel: '/' separators, "" is root
 * itself. BERTH_EINVAL: it would leave the root, or is malformed; the message quotes rel.
 * follow: symbolic links inside may lead out of the root (model folders, where people link freely);
 * without it whatever resolves outside is refused. The file itself need not exist; of what exists
 * on the way nothing is a file. */
berth_status path_inside(const char *root, const char *rel, size_t n, bool follow, struct str *out,
                         berth_err *err);
/* mkdir -p of an absolute path, 0777 less the umask. */
berth_status path_make_dirs(const char *path, berth_err *err);
/* Percent-decodes; false when malformed or with a NUL in it. plus: '+' is a space (query strings). */
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

/* ComfyUI's get_save_image_path: %width% .. %second% replaced (local time of `clock`), split into
 * subfolder and name, folder made, counter = 1 + the largest there is. */
struct save_path {
    struct str folder;    /* absolute */
    struct str subfolder; /* "" for the root */
    struct str name;      /* %batch_num% still in it */
    uint64_t counter;
};
berth_status path_save(const char *root, const char *prefix, uint64_t width, uint64_t height,
                       const struct clock *clock, struct save_path *out, berth_err *err);
void save_path_release(struct save_path *p); /* zeroed is fine */

#endif
