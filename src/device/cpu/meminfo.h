/* meminfo: how much memory this process may count on.
 *
 * The machine's RAM from /proc/meminfo, cut down to the limits of the control groups the process
 * lives in (base/cgroup.h): inside a container those count, not the machine. Version 2 (memory.max)
 * and version 1 (memory.limit_in_bytes) hierarchies, the group itself and every group above it.
 * Page cache that the kernel would drop first (inactive_file) counts as free, as MemAvailable
 * does. */
#pragma once

#include "base/err.h"

/* root: "" on a real machine; tests hand in a folder with its own proc/ and sys/. No allocation.
 * Any thread. BERTH_EIO when meminfo cannot be read, BERTH_EFORMAT when it is not what we know;
 * control group files that are missing or odd set no limit. post: *free <= *total, *total > 0. */
berth_status meminfo_read(const char *root, uint64_t *total, uint64_t *free, berth_err *err);

/* How much of a control group's limit weights and activations should leave to everything else: the
 * process itself, pictures between nodes, decoders and encoders, the file cache. 0: no limit. */
uint64_t meminfo_spare(const char *root);
/* How much this process may still take before a control group's limit stops it: with swap, and with
 * file pages that the kernel would drop first. It says nothing of what the machine has free at the
 * moment, which changes. UINT64_MAX: no limit, or it is not known. */
uint64_t meminfo_headroom(const char *root);

uint64_t meminfo_rss(void); /* resident bytes of this process; 0: not known */
