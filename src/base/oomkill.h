/* oomkill: has the kernel's out-of-memory killer ended this program when it ran last?
 *
 * A process that is killed cannot report it. But the kernel counts kills: for the machine in
 * /proc/vmstat, control groups included, and for the group a process was in (memory.events in
 * version 2, memory.oom_control in version 1). Counters that are written down before work begins
 * and compared after a restart show it. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

struct oomkill {      /* at a moment; below 2^63 each */
    uint64_t boot;    /* which boot of the machine counted; 0: not known, and nothing else is */
    uint64_t machine; /* processes that were killed since then */
    uint64_t group;   /* which control group the process is in; 0: not known */
    uint64_t in_group;
};

/* root: "" on a real machine; tests hand in a folder with its own proc/ and sys/. No allocation.
 * Thread: any. */
void oomkill_read(const char *root, struct oomkill *out);

/* Was a process that ran at `then` and was ended before `now` killed for its memory? Its group's
 * own counter decides where it is the same group. Where that is a new one, as in a container that
 * was started again, a kill anywhere on the machine counts: it may have been another's. False where
 * nothing is known, or the machine was started again. */
bool oomkill_between(const struct oomkill *then, const struct oomkill *now);
