/* tmp: one temporary folder per test program, removed with everything in it at exit. */
#ifndef SUPPORT_TMP_H
#define SUPPORT_TMP_H

#include <stddef.h>

const char *tmp_dir(void);              /* made on the first call */
const char *tmp_path(const char *name); /* "<dir>/<name>"; good until the 16th next call */
const char *tmp_write(const char *name, const void *p,
                      size_t n); /* writes the file, returns tmp_path(name) */

int tmp_clear(void); /* removes the folder; the next call makes a new one. 0: fine */

#endif
