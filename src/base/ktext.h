/* ktext: the small texts in which the kernel tells something, files below /proc and /sys.
 *
 * Fixed storage, so that asking needs no memory: a few KiB are usual, what lies beyond KTEXT_MAX is
 * not looked at. Threads: any, each with its own text. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define KTEXT_MAX 16384

struct ktext { /* a value, large for a stack: one or two of them in a call, not more */
    char p[KTEXT_MAX];
    size_t n;
};

struct ktext_line { /* points into the text, without its newline */
    const char *s;
    size_t n;
};

/* Never waits, also where a FIFO has the name. False: errno says why, the text is not to be
 * used. */
WARN_UNUSED bool ktext_read(struct ktext *t, const char *path);
WARN_UNUSED bool ktext_read_in(struct ktext *t, const char *dir, const char *name);

/* The line at *at, which moves on to the next; start with 0. False: there is none. */
WARN_UNUSED bool ktext_line(const struct ktext *t, size_t *at, struct ktext_line *l);

/* The number behind a key: "MemTotal:       24684100 kB", "inactive_file 4096". */
WARN_UNUSED bool ktext_number_after(const struct ktext *t, const char *key, uint64_t *out);
/* A file whose first line is one number. "max", "-1" and anything else that is none: false. t:
 * overwritten. */
WARN_UNUSED bool ktext_number_in(struct ktext *t, const char *dir, const char *name, uint64_t *out);
