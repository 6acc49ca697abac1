/* cgroup: the control groups this process lives in, whose limits count instead of the machine's.
 *
 * Names      /proc/self/cgroup has a line for each hierarchy: "0::/user.slice/berth.scope" in
 *            version 2, "4:cpu,cpuacct:/box/a" in version 1, where controllers have mounts of their
 *            own. A machine may have both.
 * Folders    The group's own, then every one above it, for limits hold for all that is below, down
 *            to the mount itself: inside a container that often is the group, while the name is one
 *            of the host and leads nowhere. A name that climbs out of our namespace ("/../x") says
 *            nothing about files we can see; then it is the mount alone.
 * Users      device/cpu/meminfo.h (memory), base/cores.h (cpu) */
#pragma once

enum cgroup_version { CGROUP_V1 = 1, CGROUP_V2 = 2 };

/* dir: a folder that limits this process, borrowed for the call; it need not exist. */
typedef void cgroup_fn(void *user, const char *dir, enum cgroup_version version);

/* Shows fn the folders of a controller ("memory", "cpu"); none when nothing is known.
 *   root   "" on a real machine; tests hand in a folder with its own proc/ and sys/
 * No allocation. Thread: any. */
void cgroup_each(const char *root, const char *controller, cgroup_fn *fn, void *user);
