/* file: read-only mappings that survive a shrinking file, and writes that are whole or not there.
 *
 * Mappings   Touching a mapped page beyond the end of a file that was cut short raises SIGBUS. Our
 *            handler (the one it finds is kept, and gets the faults that are not ours) puts zero
 *            pages under the reader and marks the mapping as lost. Readers copy or parse, then ask
 *            file_map_check(), which also compares size and mtime with what was opened. Only loads
 *            are protected, in threads that do not block SIGBUS: a system call given a lost page
 *            fails with EFAULT. The table of mappings is global because signal handlers are.
 * Replacing  file_new_open() writes to a temporary file in the target's folder, one without a name
 *            where the file system has such; commit does fsync, name it, rename, fsync of the
 *            folder. A crash leaves the old file or the new one, never a half (a .berth-*.tmp at
 *            most where files must have names). A symbolic link stays, its target is replaced. The
 *            mode of a replaced file is kept; a new one gets what the umask leaves.
 * Statuses   ENOTFOUND not there, EINVAL not a regular file, EFORMAT zero bytes, ELIMIT too large
 *            or too many, EIO everything the system says, with its errno in `native`.
 * Threads    Any. A mapping may be read by several; closing it while another reads is a mistake.
 * Files      file.c mappings and reading, file_new.c replacing and folders. */
#pragma once

#include "base/err.h"

#define FILE_MAPS_MAX 4096

struct file_id { /* what "the same file" means to the registry */
    uint64_t dev, inode, size, mtime_ns;
};

bool file_id_of(const char *path, struct file_id *out); /* false: there is no such file */

struct file_map { /* read only */
    const uint8_t *data;
    size_t size; /* at least 1 */
    const char *path;
    struct file_id id;
};

/* Maps a regular file read-only. Zero bytes, a directory, a FIFO: an error naming path. */
berth_status file_map_open(const char *path, struct file_map **out, berth_err *err);
void file_map_close(struct file_map *m); /* NULL is fine */
/* BERTH_EIO naming the file and both sizes when it shrank or changed since it was opened. The file,
 * not the name: one that was renamed or replaced stays readable. */
berth_status file_map_check(const struct file_map *m, berth_err *err);
/* Bounds-checked copy out of the mapping, then file_map_check(). */
berth_status file_map_read(const struct file_map *m, uint64_t off, void *dst, size_t n,
                           berth_err *err);

/* Lets the process forget the pages it has read: they no longer count as its memory, and come again
 * when they are read again. What was lost stays lost, and zero. Any thread, also while others
 * read. */
void file_map_drop(const struct file_map *m);

struct file_new; /* a file being written */

/* size_hint: bytes that will be written (checked against free disk space, BERTH_EIO with ENOSPC),
 * 0 if unknown. */
berth_status file_new_open(const char *path, uint64_t size_hint, struct file_new **out,
                           berth_err *err);
/* Appends to what this function wrote before. */
berth_status file_new_write(struct file_new *f, const void *p, size_t n, berth_err *err);
/* Positioned write; any thread, disjoint ranges. */
berth_status file_new_write_at(struct file_new *f, uint64_t off, const void *p, size_t n,
                               berth_err *err);
berth_status file_new_commit(struct file_new *f, berth_err *err); /* closes f in every case */
/* The same, but never replaces: BERTH_EBUSY (EEXIST) when something has the name by now. */
berth_status file_new_commit_new(struct file_new *f, berth_err *err);
/* The same under another path, in any folder. */
berth_status file_new_commit_as(struct file_new *f, const char *path, berth_err *err);
int file_new_fd(const struct file_new *f); /* to read back what was written; borrowed */
void file_new_abort(struct file_new *f);   /* removes the temporary file, closes f; NULL is fine */

/* Open, write, commit: the file at path holds these n bytes, or is what it was. */
berth_status file_write_all(const char *path, const void *p, size_t n, berth_err *err);
/* mkdir -p, 0777 less the umask. EINVAL: it is there and no folder. */
berth_status file_make_dirs(const char *path, berth_err *err);
/* Whole small file into memory (free() it), NUL-terminated behind *n bytes. ELIMIT above max. */
berth_status file_read_all(const char *path, size_t max, char **out, size_t *n, berth_err *err);
