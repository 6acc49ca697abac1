/* cores: how many cores' worth of time this process may use.
 *
 * The cores it may run on (affinity, which includes a container's cpuset), cut down to the CPU
 * quotas of its control groups (base/cgroup.h): docker --cpus=2, systemd's CPUQuota=, Kubernetes'
 * limits. A quota hides no core: with a thread on each of 64 the time of two is gone at the start
 * of every period, and all of them stand still for the rest of it, even one that holds a lock.
 *
 * Version 2 (cpu.max) and version 1 (cpu.cfs_quota_us, cpu.cfs_period_us), the group itself and all
 * above it, the tightest counts. Shares and weights say who goes first, not how much: no limit. */
#pragma once

#include <stddef.h>
#include <stdint.h>

/* At least 1. root: "" on a real machine; tests hand in a folder with its own proc/ and sys/ (the
 * affinity is this thread's in any case). Files that are missing or odd set no limit. No
 * allocation, a few small files are read: ask once when starting threads, not for every job.
 * Thread: any. */
size_t cores_usable(const char *root);

/* The quota alone, in whole cores: 1.5 are 2, for a thread less would leave time unused.
 * UINT64_MAX: none. post: at least 1. */
uint64_t cores_quota(const char *root);
