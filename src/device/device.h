/* device: something with memory, and the one door to every byte of it.
 *
 * devset_open() opens the devices of a spec, dev_owner_open() a line of a device's ledger.
 * dev_alloc() gets memory for that line and dev_copy_h2d() fills it, on a stream. dev_free() gives
 * it back; dev_retire() does so once an event has passed, which dev_poll() finds out. dev_trim()
 * returns idle bytes to the driver.
 *
 * Words       device    what plans and workflows name: a budget, a pool and a ledger over the
 *                       memory of one phys. `cuda:1@cuda:0` is a logical device: the name cuda:1,
 *                       the memory of the card cuda:0. Most sit on the phys of their own name
 *             phys      the hardware behind it (driver.h), shared by its logical devices
 *             segment   a range that the driver gave; range: a piece of one, handed out or idle
 *             owner     a name and a kind, one line of the ledger: "flux-dev" weights
 *             retired   given up by its owner while a stream may still read it; still in use
 *             held      in use + idle: what this device has of its phys right now
 *             discarded memory of an idle range that went back to the driver or OS; not held
 * Invariants  (1) held <= budget, always; host-visible devices also count pinned bytes in it. Host
 *                 memory for copies is booked once, on the host's device if the set has one
 *             (2) the bytes of all owners == the pool's in-use bytes, after every call
 *             (3) an address handed out is a multiple of phys->align and overlaps no other
 *             (4) retired memory goes back to the pool only after its event
 *             (5) dev_trim() leaves 0 idle bytes on a device that can discard, except for less than
 *                 one granule (or piece, see discardable) at each end of an idle range; with
 *                 nothing in use it leaves 0 bytes held on any device
 *             dev_check() asserts them; builds with BERTH_CHECKS call it after each change while
 *             there are few ranges, and now and then beyond
 * Threads     A device, its streams and its events belong to the executor thread. Any thread may
 *             call dev_info() and dev_ledger(), and may read the fields marked constant.
 * Files       driver.h the contract with hardware, <x>/<x>.c its implementations, devices.def;
 *             pool.c segments and ranges; mem.c the ledger and the memory doors below; device.c
 *             streams, events, copies, the defaults of optional driver slots, who hears of host
 *             memory; spec.c the --devices text, devset.c opens what it describes */
#pragma once

#include "base/str.h"
#include "device/driver.h"

/* What memory is for. One list gives the enum and the words of reports. */
#define DEV_KIND_MAP(X)                                                                            \
    X(WEIGHTS, "weights")                                                                          \
    X(STAGING, "staging")         /* slots of transfers, in the device's own memory */             \
    X(ACTIVATIONS, "activations") /* everything a step computes */                                 \
    X(PINNED, "pinned")           /* host memory: dev_host_alloc() only */                         \
    X(POOL_IDLE, "pool-idle")     /* nobody's: a line of reports, never of an owner */

enum dev_kind {
#define DEV_KIND_ENUM(name, text) DEV_##name,
    DEV_KIND_MAP(DEV_KIND_ENUM)
#undef DEV_KIND_ENUM
        DEV_KIND_COUNT
};
const char *dev_kind_name(enum dev_kind kind);

#define DEV_OWNER_MAX 256 /* bytes of an owner's name, NUL included */

struct pool;
struct pool_range;
struct ledger;
struct dev_owner;

struct device {              /* owner: executor thread */
    char name[DEV_NAME_MAX]; /* constant */
    struct phys *phys;       /* constant; borrowed from the set */
    uint64_t budget;         /* constant */
    const struct log *log;   /* constant; may be NULL */
    struct pool *pool;
    struct ledger *ledger; /* has its own lock */
    struct pool_range *retired, **retired_end;
};

static inline bool dev_can(const struct device *d, uint32_t caps) /* all of these BERTH_CAP_* */
{
    return (d->phys->caps & caps) == caps;
}

/* ---- memory ---- */

/* A range that was handed out. A plain value: whoever has it owns the range, and dev_free() or
 * dev_retire() empties it. { 0 } is none. */
struct dev_mem {
    struct device *dev;
    uint64_t addr;
    size_t n; /* as asked for */
    struct pool_range *range;
};

/* The line (name, kind) of d's ledger; opening it twice gives the same one, closed twice.
 *   name  borrowed for the call, under DEV_OWNER_MAX bytes (BERTH_ELIMIT)
 *   out   dev_owner_close(); bytes it still has stay in the ledger under its name */
berth_status dev_owner_open(struct device *d, const char *name, enum dev_kind kind,
                            struct dev_owner **out, berth_err *err);
void dev_owner_close(struct dev_owner *o); /* NULL is fine */

/* n bytes for an owner of d, contents unspecified: from an idle range, else from a new segment, if
 * need be after idle memory has gone back; as a last resort it waits for retired memory.
 * BERTH_ENODEVMEM says: wanted, in use by kind and how much of it is retired, idle, largest idle
 * range, pinned, what is left of the budget, free at the driver. BERTH_EINVAL: n is 0. */
berth_status dev_alloc(struct device *d, struct dev_owner *o, size_t n, struct dev_mem *out,
                       berth_err *err);
/* Where the driver's own allocation begins that m is part of. Drivers refuse a copy that goes from
 * one allocation into the next, even if the two touch. */
uint64_t dev_mem_base(const struct dev_mem *m);
/* pre: no queued work touches it. An empty one is fine. */
void dev_free(struct dev_mem *m);
/* Gives m up; it is freed by the first dev_poll() after e completed. e may be freed before that;
 * recording it again delays. Takes m; cannot fail. */
void dev_retire(struct dev_mem *m, struct dev_event *e);
/* Frees retired memory whose event completed; *freed (may be NULL) counts the bytes. On an error of
 * the device the rest stays retired. */
berth_status dev_poll(struct device *d, uint64_t *freed, berth_err *err);
/* Waits for all of it. */
berth_status dev_drain(struct device *d, uint64_t *freed, berth_err *err);

struct dev_trimmed {
    uint64_t released;  /* bytes of wholly idle segments, back at the driver or OS */
    uint64_t discarded; /* bytes of idle ranges in other segments, back there too */
    uint64_t idle;      /* idle bytes still held, see invariant 5 */
};
struct dev_trimmed dev_trim(struct device *d);
/* Predicts how much dev_trim() would leave idle if all memory of the owners that `goes` names were
 * free. Retired memory counts as its owner's; changes nothing. Thread: the device's. */
typedef bool dev_goes_fn(void *user, const char *owner, enum dev_kind kind);
uint64_t dev_trim_leaves(const struct device *d, dev_goes_fn *goes, void *user);

/* Host memory for copies to and from d's phys, page-aligned, pinned where BERTH_CAP_PINNED. It
 * counts in the ledger and against the budget of o's own device if that is host-visible, else of
 * the set's host device (`cpu`, or the first host-visible one), on a line of the same name. In a
 * set without one it counts in the ledger of o's device and against no budget. Waits for retired
 * memory and fails with BERTH_ENODEVMEM as dev_alloc() does; BERTH_ENOMEM: the system has none.
 *   o  of kind DEV_PINNED, of any device */
struct dev_host {
    struct phys *phys;
    void *ptr;
    size_t n;                /* as asked for */
    size_t held;             /* rounded up to pages, what the ledger counts */
    struct dev_owner *owner; /* the line that has it, opened once more */
    struct dev_pins *pins;   /* it is a part of these; NULL: an allocation by itself */
};
berth_status dev_host_alloc(struct device *d, struct dev_owner *o, size_t n, struct dev_host *out,
                            berth_err *err);
void dev_host_free(struct dev_host *h); /* pre: no queued copy touches it. An empty one is fine */
uint64_t dev_host_base(const struct dev_host *h); /* as dev_mem_base() */

/* One allocation for several that travel together: its parts lie one behind the other, aligned as
 * d's memory is, and one copy may span them. A part is a dev_host like any other; the ledger has
 * each as it was asked for, and the whole as held until the last one is freed.
 *   n  of all parts, with what alignment leaves between them */
berth_status dev_pins_new(struct device *d, struct dev_owner *o, size_t n, struct dev_pins **out,
                          berth_err *err);
void dev_pins_part(struct dev_pins *p, size_t n, struct dev_host *out); /* pre: it has room */
void dev_pins_close(struct dev_pins *p); /* no more parts; NULL is fine */
/* Both tell the devices of the set that check such things (null) about host memory which queued
 * copies may touch: accesses through plain pointers, and memory that is not ours (a mapped file, a
 * malloc). All else is announced by device/.
 *   dev_host_access  the host reads or writes these bytes now
 *   dev_host_gone    they are about to be unmapped or freed; pre: no queued copy touches them */
void dev_host_access(struct device *d, const void *ptr, size_t n, unsigned how);
void dev_host_gone(struct phys *p, const void *ptr, size_t n);

/* ---- reports: any thread ---- */

struct dev_stats {
    uint64_t in_use;    /* handed out, rounded; retired included */
    uint64_t requested; /* the same as it was asked for */
    uint64_t idle;      /* cached and held */
    uint64_t discarded; /* addresses without memory, ready to be backed again: not held */
    uint64_t retired, pinned;
    uint64_t peak, peak_held; /* highest in_use, highest in_use + idle */
    uint64_t segments, ranges;
    uint64_t allocs, frees, hits; /* hits: allocs served by what was held */
    uint64_t driver_allocs, driver_frees, driver_refusals;
};

struct dev_info {
    uint64_t total, free; /* of the phys */
    uint64_t budget;
    struct dev_stats stats;
};
berth_status dev_info(const struct device *d, struct dev_info *out, berth_err *err);

/* "cuda:0 is full: needs 168 MiB, 83.1 MiB of 96.0 MiB are left": how every message about a want of
 * memory begins; err->device and err->number say it to programs. */
#define DEV_FULL_MAX (DEV_NAME_MAX + 3 * STR_BYTES_MAX + 48)
const char *dev_full(const struct device *d, uint64_t wanted, uint64_t left,
                     char buf[DEV_FULL_MAX]);

struct dev_ledger_row {
    char owner[DEV_OWNER_MAX]; /* "" for DEV_POOL_IDLE */
    enum dev_kind kind;
    uint64_t bytes;     /* rounded: these add up to what is held, plus pinned */
    uint64_t requested; /* as asked for */
    uint64_t count;     /* ranges */
};
/* Every line with bytes, and pool-idle if there is any; fills at most cap rows, returns how many
 * there are. `sum` (may be NULL) is the stats of the same moment. */
size_t dev_ledger(const struct device *d, struct dev_ledger_row *row, size_t cap,
                  struct dev_stats *sum);
/* Rounded bytes of all lines by kind, pool-idle too. */
void dev_by_kind(const struct device *d, uint64_t bytes[DEV_KIND_COUNT]);

/* BERTH_EDEVICE naming the broken invariant. Walks everything. Executor thread. */
berth_status dev_check(const struct device *d, berth_err *err);

/* ---- streams, events, copies ----
 * As the slots of the same name in driver.h. A device without BERTH_CAP_ASYNC does everything
 * before it returns. Streams and events belong to the phys: logical devices on it may share
 * them. */

berth_status dev_stream_new(struct device *d, struct dev_stream **out, berth_err *err);
void dev_stream_free(struct dev_stream *s); /* NULL is fine; waits for its work */
berth_status dev_stream_sync(struct dev_stream *s, berth_err *err);
/* Two devices of different drivers do not know each other's events: the host then waits. */
berth_status dev_stream_wait(struct dev_stream *s, struct dev_event *e, berth_err *err);

/* Kernels that are queued on a stream in the same way again and again can be recorded once and
 * queued as a whole: dev_record_begin(), kernels, dev_record_end(); slots of driver.h. The hook is
 * called first by every door here that queues something on s or waits for it, so that whoever
 * records, or keeps recorded work back, ends or queues it before that. NULL: none. */
void dev_stream_hook(struct dev_stream *s, berth_status (*hook)(void *user, berth_err *err),
                     void *user);
bool dev_can_record(const struct dev_stream *s);
berth_status dev_record_begin(struct dev_stream *s, berth_err *err);
berth_status dev_record_end(struct dev_stream *s, struct dev_graph **out, berth_err *err);
berth_status dev_graph_launch(struct dev_graph *g, struct dev_stream *s, berth_err *err);
void dev_graph_free(struct dev_graph *g); /* NULL is fine; its last launch is done */

berth_status dev_event_new(struct device *d, struct dev_event **out, berth_err *err);
void dev_event_free(struct dev_event *e); /* NULL is fine */
berth_status dev_event_record(struct dev_event *e, struct dev_stream *s, berth_err *err);
berth_status dev_event_query(struct dev_event *e, bool *done, berth_err *err);
berth_status dev_event_sync(struct dev_event *e, berth_err *err);
berth_status dev_event_elapsed(struct dev_event *from, struct dev_event *to, bool *done,
                               int64_t *ns, berth_err *err);

/* Zero bytes: nothing happens. */
berth_status dev_copy_h2d(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                          berth_err *err);
berth_status dev_copy_d2h(struct dev_stream *s, void *dst, uint64_t src, size_t n, berth_err *err);

struct dev_at { /* an address and whose it is */
    struct device *dev;
    uint64_t addr;
};
/* Between any two devices, ordered on s, a stream of either phys. The way follows from the ends:
 *   same phys                         d2d
 *   one end host-visible              h2d or d2h, on a stream of the other end
 *   same driver, can_peer             copy_peer
 *   anything else                     through host memory; s is waited for, before and after
 * The last takes up to 8 MiB, as dev_host_alloc() for "staged copy" of the receiving device, or of
 * the other one if only that has pinned memory. If it fails and s cannot be waited for either, the
 * buffer stays allocated and booked, logged as dev.kept: the device may still write to it.
 * pre: the ranges do not overlap. */
berth_status dev_copy(struct dev_stream *s, struct dev_at dst, struct dev_at src, size_t n,
                      berth_err *err);
bool dev_can_peer(const struct device *to, const struct device *from); /* true on the same phys */

berth_status dev_launch(struct dev_stream *s, dev_fn *fn, void *user,
                        const struct dev_access *access, size_t n, berth_err *err);

/* ---- lifetime: devset.c and tests ---- */

struct dev_config {
    const char *name;
    struct phys *phys; /* borrowed, outlives the device */
    uint64_t budget;
    const struct log *log; /* borrowed, may be NULL */
    bool stress;
};
berth_status dev_open(const struct dev_config *cfg, struct device **out, berth_err *err);
/* NULL is fine. Waits for retired memory. Memory still in use is a leak: logged by owner, freed. */
void dev_close(struct device *d);
