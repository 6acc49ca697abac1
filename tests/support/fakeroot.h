/* fakeroot: made-up /proc and /sys files below a temporary folder, for code that takes a root. */
#ifndef SUPPORT_FAKEROOT_H
#define SUPPORT_FAKEROOT_H

#include <stddef.h>

const char *fakeroot_new(void); /* an empty root, which the calls below mean from now on */
const char *fakeroot(void);
void fakeroot_put(const char *path, const void *p, size_t n); /* with the folders it lies in */
void fakeroot_puts(const char *path, const char *text);

#endif
