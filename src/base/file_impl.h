/* file_impl: what file.c and file_new.c share. */
#ifndef BASE_FILE_IMPL_H
#define BASE_FILE_IMPL_H

#include "base/file.h"

#include <sys/stat.h>

const char *file_kind(mode_t mode); /* "directory", "FIFO", ... for messages */

/* Opens an existing regular file for reading; everything else is an error naming path. */
berth_status file_open_read(const char *path, int *fd, struct stat *st, berth_err *err);

/* Status for a failed open or rename: what is not there differs from what is broken. */
berth_status file_status(int native);

#endif
