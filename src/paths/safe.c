/* safe: a relative name under a root; nothing else comes out. */
#include "base/file.h"
#include "paths/paths.h"

#include <errno.h>
#include <ftw.h>
#include <limits.h>
#include <sys/stat.h>

#define QUOTE 80 /* bytes of a name in a message */

static berth_status refuse(berth_err *err, const char *rel, size_t n, const char *why)
{
    return err_set(err, BERTH_EINVAL, "'%.*s%s' %s", (int)(n < QUOTE ? n : QUOTE), rel,
                   n < QUOTE ? "" : "...", why);
}

static const char *text_fault(const char *s, size_t n)
{
    if (n > PATH_BYTES_MAX)
        return "is too long";
    if (memchr(s, '\0', n))
        return "has a NUL in it";
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)s[i] < 0x20 || s[i] == 0x7f)
            return "has a control character in it";
    return str_is_utf8(s, n) ? NULL : "is not UTF-8";
}

/* The next part of a name at *at, without empty ones and "."; 0: no more. */
static size_t next_part(const char *s, size_t n, size_t *at, const char **part)
{
    for (;;) {
        while (*at < n && s[*at] == '/')
            (*at)++;
        size_t from = *at;
        while (*at < n && s[*at] != '/')
            (*at)++;
        if (!str_eq(s + from, *at - from, ".")) {
            *part = s + from;
            return *at - from;
        }
    }
}

/* Why a name is refused before any file is looked at; NULL: fine. */
static const char *name_fault(const char *s, size_t n)
{
    const char *why = n ? text_fault(s, n) : NULL;
    if (why)
        return why;
    if (n && s[0] == '/')
        return "is absolute";
    const char *part;
    for (size_t at = 0, len; (len = next_part(s, n, &at, &part));) {
        if (str_eq(part, len, ".."))
            return "has '..' in it";
        if (len > PATH_PART_MAX)
            return "has a part that is too long";
    }
    return NULL;
}

static void set(struct str *s, const char *z)
{
    str_clear(s);
    str_adds(s, z);
}

static bool is_inside(const char *root, const char *path)
{
    size_t n = strlen(root);
    if (n == 1) /* "/" */
        return true;
    return strncmp(root, path, n) == 0 && (path[n] == '\0' || path[n] == '/');
}

/* One part further. *gone: it is not there, nor is anything behind it. */
static berth_status step(const char *root, const char *rel, size_t n, bool last, bool follow,
                         struct str *out, bool *gone, berth_err *err)
{
    struct stat st;
    if (out->bad)
        return err_set(err, BERTH_ENOMEM, "the path of a name of %zu bytes", n);
    if (lstat(out->p, &st)) {
        if (errno != ENOENT)
            return errno == ENAMETOOLONG || errno == ENOTDIR
                       ? refuse(err, rel, n, strerror(errno))
                       : err_sys(err, BERTH_EIO, errno, "'%s'", out->p);
        *gone = true;
        return BERTH_OK;
    }
    if (S_ISLNK(st.st_mode) && !follow) {
        char real[PATH_MAX];
        if (!realpath(out->p, real))
            return refuse(err, rel, n, "is behind a link that leads nowhere");
        if (!is_inside(root, real))
            return refuse(err, rel, n, "is behind a link that leads out of its folder");
        set(out, real);
    }
    if (last)
        return BERTH_OK;
    if (stat(str_c(out), &st) || !S_ISDIR(st.st_mode))
        return refuse(err, rel, n, "goes through something that is not a folder");
    return BERTH_OK;
}

berth_status path_inside(const char *root, const char *rel, size_t n, bool follow, struct str *out,
                         berth_err *err)
{
    const char *why = name_fault(rel, n);
    char real[PATH_MAX];
    str_clear(out);
    if (why)
        return refuse(err, rel, n, why);
    if (!realpath(root, real))
        return err_sys(err, errno == ENOENT ? BERTH_ENOTFOUND : BERTH_EIO, errno, "folder '%s'",
                       root);
    set(out, follow && root[0] == '/' ? root : real);
    bool gone = false;
    size_t at = 0;
    const char *part, *next = NULL;
    size_t len = next_part(rel, n, &at, &part), next_len;
    for (; len; len = next_len, part = next) {
        next_len = next_part(rel, n, &at, &next);
        if (out->n && out->p[out->n - 1] != '/')
            str_addc(out, '/');
        str_add(out, part, len);
        if (!gone && step(real, rel, n, next_len == 0, follow, out, &gone, err))
            return err->code;
    }
    if (out->bad)
        return err_set(err, BERTH_ENOMEM, "the path of a name of %zu bytes", n);
    if (out->n > PATH_BYTES_MAX)
        return refuse(err, rel, n, "is too long");
    return BERTH_OK;
}

berth_status path_make_dirs(const char *path, berth_err *err)
{
    if (path[0] != '/' || strlen(path) >= PATH_MAX)
        return err_set(err, BERTH_EINVAL,
                       "folder '%.80s': not an absolute path of fewer than %d bytes", path,
                       PATH_MAX);
    return file_make_dirs(path, err);
}

void path_join(const char *base, const char *name, size_t n, struct str *out)
{
    const char *piece[2] = { base, name };
    size_t bytes[2] = { strlen(base), n };
    str_clear(out);
    str_addc(out, '/');
    for (int k = n && name[0] == '/' ? 1 : 0; k < 2; k++) {
        const char *part;
        for (size_t at = 0, len; (len = next_part(piece[k], bytes[k], &at, &part)) && !out->bad;) {
            if (!str_eq(part, len, "..")) {
                if (out->n > 1)
                    str_addc(out, '/');
                str_add(out, part, len);
                continue;
            }
            while (out->n > 1 && out->p[out->n - 1] != '/')
                out->n--;
            if (out->n > 1) /* the '/' in front of it, except for the root's own */
                out->n--;
            out->p[out->n] = '\0';
        }
    }
}

#define EMPTY_DIRS 16 /* descriptors nftw() may hold */

static int remove_below(const char *path, const struct stat *st, int kind, struct FTW *at)
{
    (void)st;
    (void)kind;
    if (at->level > 0) /* the folder itself stays */
        (void)remove(path);
    return 0;
}

berth_status path_empty_dir(const char *path, berth_err *err)
{
    if (nftw(path, remove_below, EMPTY_DIRS, FTW_DEPTH | FTW_PHYS) && errno != ENOENT)
        return err_sys(err, BERTH_EIO, errno, "emptying '%s'", path);
    return BERTH_OK;
}
