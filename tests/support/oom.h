/* oom: makes host allocations fail on purpose. Works on every object linked into the test program
 * (linker option --wrap, see tests/CMakeLists.txt), not inside shared libraries. */
#ifndef SUPPORT_OOM_H
#define SUPPORT_OOM_H

#include <stddef.h>

void oom_after(long k); /* k allocations succeed, every later one fails until oom_off() */
void oom_once(long k);  /* k allocations succeed, the next one fails, the rest succeed */
void oom_off(void);
long oom_seen(void); /* allocations counted since the last oom_after/oom_once */

void oom_largest(size_t bytes); /* larger ones fail; SIZE_MAX: none does */
/* Memory that nobody has written holds this byte, that of realloc() excepted; -1: what it held. */
void oom_fill(int byte);

/* What our objects call after wrapping: hand these to libraries with allocator hooks. */
void *oom_malloc(size_t n);

#endif
