/* devset: the devices of one context, opened together and closed together.
 *
 * devset_open() opens every phys a spec refers to once, then the devices on top, in the spec's
 * order. Without a spec: every device the drivers count (cpu, and cards when their driver finds
 * some), each with all of its memory, except for a host budget in the environment; elastic ones
 * (null) only when named. Refused: a device this
 * build or machine does not have (BERTH_EUNSUPPORTED, listing what there is), budgets on one phys
 * that add up to more than it has (BERTH_ELIMIT, with the numbers). The devices of a set share a
 * hub (driver.h): who wants to hear of host memory, and which device pays for it. Threads: open and
 * close on the executor thread; count, at, find from any. */
#pragma once

#include "device/device.h"
#include "device/spec.h"

struct devset;

/* spec: borrowed for the call, NULL for the default. env: copied; what it points at outlives the
 * set. *out: devset_close(). */
berth_status devset_open(const struct spec *spec, const struct dev_env *env, struct devset **out,
                         berth_err *err);
void devset_close(struct devset *set); /* NULL is fine. pre: streams and events are freed */

size_t devset_count(const struct devset *set);
struct device *devset_at(const struct devset *set, size_t i); /* borrowed; BUG beyond the count */
/* The i-th kind of device that could be here and is not: cards without a driver, drivers that were
 * not built. Borrowed from the set; false: there are no more. */
bool devset_absent(const struct devset *set, size_t i, struct dev_absent *out);
/* By name ("cuda:1"; spaces and case as in a spec). BERTH_ENOTFOUND lists the names there are. */
berth_status devset_find(const struct devset *set, const char *name, size_t n, size_t *index,
                         berth_err *err);
