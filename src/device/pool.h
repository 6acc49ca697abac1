/* pool: ranges out of segments, for one device. For device/ alone; knows no owners.
 *
 * Words       segment  what the driver gave; never split between devices
 *             range    a piece of a segment, busy or idle; its tags live in host memory
 *             class    small (<= 1 MiB), medium (<= 16 MiB), large: each has its own segments, so
 *                      that a small long-lived range does not hold a large segment back from trim
 *             bin      idle ranges of one class and similar size: 32 bins per power of two
 *             granule  phys->granularity bytes of a segment, counted from its start
 *             discarded  a granule whose memory went back to the driver; its addresses stay.
 *                      Only what was not discarded is held, and counts in `idle` and in the budget
 * Finding     First the bin of the size itself (a look at a few), then by bitmap the next fuller
 *             bin, however many ranges there are. A range that is larger than needed is split; one
 *             given back merges with idle neighbours. A large range is reused only if at most an
 *             eighth of it is left over, so that a large segment is nearly always wholly in use or
 *             wholly idle.
 * Segments    2 MiB for small, 32 MiB for medium, the size itself for large ranges; less when the
 *             budget does not allow more. Under pressure idle segments go back first, then any idle
 *             range of any class will do, and in the end idle granules of all segments go.
 * Trim        Wholly idle segments go back, and of the others every whole idle granule, or whatever
 *             the driver gives back whole (discardable()). A discarded granule is restored, and
 *             counted against the budget again, before a byte of it is handed out; that can fail
 *             as a new segment can.
 * Invariants  ranges tile their segment; no two idle neighbours; an idle range is in exactly the
 *             bin of its size; a discarded granule lies inside one idle range; held + reserved <=
 *             budget; counters equal the sums. pool_check().
 * Threads     one owner, the device's. */
#pragma once

#include "device/device.h"

struct pool_segment;

struct pool_range {
    struct pool_range *prev, *next; /* neighbours in the segment, by address */
    struct pool_range *bin_prev, *bin_next;
    struct pool_segment *segment;
    uint64_t addr;
    size_t n; /* multiple of the alignment */
    bool busy;
    /* busy only, for mem.c: */
    size_t requested;
    struct dev_owner *owner;
    struct dev_event *event;    /* retired on this one */
    struct pool_range *waiting; /* next in the queue of retired ranges */
};

/* phys: borrowed. stress: the first try for each new segment fails (tests). */
berth_status pool_new(struct phys *phys, uint64_t budget, bool stress, struct pool **out,
                      berth_err *err);
void pool_free(struct pool *p); /* NULL is fine; every segment goes back, busy or not */

/* A busy range of n (> 0) bytes, rounded up. BERTH_ENODEVMEM: budget or driver; the text says
 * which. BERTH_ENOMEM: no host memory for the tags. Nothing is taken on failure. */
berth_status pool_take(struct pool *p, size_t n, struct pool_range **out, berth_err *err);
void pool_give(struct pool *p, struct pool_range *r);

struct dev_trimmed pool_trim(struct pool *p);
/* dev_trim_leaves(). pre: every busy range has its owner. */
uint64_t pool_trim_leaves(const struct pool *p, dev_goes_fn *goes, void *user);
/* Takes `bytes` out of the budget for memory that is not the pool's (replaces the last value),
 * giving idle bytes up if need be. False, and nothing changes: they do not fit. */
WARN_UNUSED bool pool_reserve(struct pool *p, uint64_t bytes);

const struct dev_stats *pool_stats(const struct pool *p); /* borrowed; pinned, retired are 0 */
size_t pool_largest_idle(const struct pool *p); /* held bytes of the idle range with the most */
berth_status pool_check(const struct pool *p, berth_err *err);

/* Where the segment begins that the driver gave it in. */
uint64_t pool_segment_of(const struct pool_range *r);

/* Busy ranges, in no particular order: start with NULL, NULL at the end. */
struct pool_range *pool_next_busy(const struct pool *p, const struct pool_range *after);
