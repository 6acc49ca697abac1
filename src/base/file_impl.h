/* file_impl: what file.c and file_new.c share. */
#pragma once

#include "base/file.h"

#include <sys/stat.h>

const char *file_kind(mode_t mode); /* "directory", "FIFO", ... for messages */

/* Opens an existing regular file for reading; everything else is an error naming path. */
berth_status file_open_read(const char *path, int *fd, struct stat *st, berth_err *err);

/* Status for a failed open or rename: what is not there differs from what is broken. */
berth_status file_status(int native);

/* file_new_open() with the choice it makes by itself: `named` gives the temporary file a name from
 * the start, as on file systems without unnamed ones. Tests take both ways. */
berth_status file_new_open_as(const char *path, uint64_t size_hint, bool named,
                              struct file_new **out, berth_err *err);
