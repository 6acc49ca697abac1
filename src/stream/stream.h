/* stream: brings blocks that live elsewhere to the compute device just before their layer runs, in
 * every pass.
 *
 * stream_open() cuts the items into runs and allocates the ring, once. Each pass then calls
 * stream_begin(); for each item in order stream_acquire() (the compute stream waits for the item's
 * run, once a run), launches its work, and stream_release(); at last stream_end(). Nothing is
 * allocated between open and close.
 *
 * Words    item    one block in execution order: read where it lies, or copied from a donor
 *          run     items of one donor that travel together: one place in the ring, one pair of
 *                  events. They are neighbours among that donor's items; items of others may lie
 *                  between them (runs.c says how many)
 *          under way  a run between its first and its last item
 *          ring    device memory that runs pass through, in order and one behind the other, as many
 *                  at a time as its bytes allow, each at a place that is the same in every pass
 *          slot    a run's stay in the ring. filled: its copies are done; drained: the last layer
 *                  that reads it is done
 *          lane    a donor's copy stream: all host memory shares one, every other donor has its own
 *          pass    one forward run over all items, in order, on one compute stream
 * Copies   are queued as soon as the runs before have left room, behind their drained events, so
 *          the host never waits for the compute stream. The order is cyclic: the last releases of a
 *          pass queue the first runs of the next one.
 *          Pinned host memory: an async copy. Pageable host memory: through the stage (stage.h)
 *          where the compute device has pinned memory, else as it is. Another device: dev_copy(),
 *          which waits where the two cannot reach each other's memory.
 * Jumps    A run stays until all of its items have been released, so acquiring a neighbour again
 *          costs nothing. An item whose run is not there (a skipped layer, a jump back) is served
 *          all the same: the ring goes on from that run, with one copy that nothing hides, and
 *          out_of_order counts it.
 * Time     copy_ns and exposed_ns are measured by the device (dev_event_elapsed) and read when they
 *          are there; nobody waits for them. exposed is from when the compute stream came to a
 *          run's first layer until the run was filled: 0 when all copies hide behind layers. Of
 *          many runs a few are timed in each pass and stand for all (time.c). Copies that are done
 *          when they are queued are exposed, all of them. wait_ns is what the host itself waited.
 * Invariants (1) bytes of the ring are written only after the drained events of all who lay there
 *          (2) a layer reads a slot only after its filled event   (3) staging is overwritten only
 *          after the copy that reads it
 *          (4) bytes == acquired + ahead + dropped, always; a pass in order acquires the bytes of
 *          all donor items exactly once and drops nothing   (5) items without donors: nothing is
 *          allocated, no stream, event or thread is made, nothing moves
 *          (6) the ring has at most ring_least bytes, or max(slots, 2u - 1) times those of the
 *          largest run, u being the most that are under way at an item, and never more than all
 *          runs together   (7) u is at most slots - 1 (or one), so that in order each has room in
 *          time: ring.c
 * Failure  A device call that fails ends the pass: what follows is refused until stream_end(),
 *          which waits for everything and leaves the ring empty and ready.
 * Threads  executor; the stage's threads read sources and write staging.
 * Files    stream.c passes, ring.c places in the ring, runs.c cutting, staged.c pageable runs,
 *          stage.c buffers and threads for everything that is staged, time.c marks and their times.
 *          The items of a registered model are residency's (res_stream_open()). */
#pragma once

#include "base/clock.h"
#include "device/device.h"

#include <stdatomic.h>

#define STREAM_RUN_DEFAULT (UINT64_C(16) << 20)
#define STREAM_SLOTS_DEFAULT 3
#define STREAM_SLOTS_MAX 64
#define STREAM_STAGE_DEFAULT 16
#define STREAM_STAGE_MAX 64 /* as STAGE_BUFS_MAX */
/* Of one buffer: all of them together stay in the processor's caches. */
#define STREAM_STAGE_BYTES_DEFAULT (UINT64_C(2) << 20)
#define STREAM_LOADERS_DEFAULT 2
#define STREAM_LOADERS_MAX 16
#define STREAM_LANES_MAX 64

struct stream_piece { /* bytes of an item that are worth copying (padding is not) */
    uint64_t off;
    uint64_t n;
};

/* RESIDENT: the compute device reads it where it is. PINNED, PAGEABLE: host memory, by pointer.
 * DEVICE: memory of `dev`. */
enum stream_source { STREAM_RESIDENT, STREAM_PINNED, STREAM_PAGEABLE, STREAM_DEVICE };

/* What memory of `dev` is to layers that run on `compute`. Resident: memory of compute itself, and
 * any host memory (pinned, or of whichever logical device) when compute is host-visible, because
 * all of it is in one address space: two logical devices on one cpu copy nothing. Two logical
 * devices on one card do copy: such a set is there to run a plan for several cards as they
 * would. */
enum stream_source stream_source_of(const struct device *compute, const struct device *dev,
                                    bool pinned);

struct stream_item {
    enum stream_source source;
    struct device *dev; /* whose memory it is; for messages if it is the host's */
    uint64_t addr;      /* in dev's space; STREAM_PINNED, STREAM_PAGEABLE: a host pointer */
    uint64_t base;      /* of the allocation it lies in: no copy reaches from one into another */
    uint64_t span;      /* bytes it takes in memory, padding included */
    const struct stream_piece *piece; /* ascending, inside the span; borrowed while open */
    uint32_t pieces;
    const char *name; /* for messages; may be NULL */
};

/* What all streams that share it did, as their stats count it. Any thread reads. */
struct stream_total {
    atomic_uint_least64_t bytes, copy_ns, exposed_ns;
};

struct stream_config {  /* zero: defaults */
    uint64_t run_bytes; /* a run takes items up to this; a larger item is a run by itself */
    /* The ring's size, in largest runs: from 2 on copies and layers overlap, and one more for each
     * donor beyond the first keeps their runs long. Default: 3, or with more than two donors one
     * more than there are, unless a block is larger than a run. */
    unsigned slots;
    /* The ring has at least so many bytes, or those of all runs: where bytes and time are apart, as
     * in a UNet, copies go on ahead while layers that have few bytes compute. */
    uint64_t ring_least;
    unsigned stage_slots;       /* staging buffers */
    uint64_t stage_bytes;       /* of one staging buffer */
    unsigned loaders;           /* threads that fill staging */
    const struct clock *clock;  /* NULL: system */
    const struct log *log;      /* NULL: silent */
    struct stream_total *total; /* borrowed while open; NULL: nobody adds up */
};

struct stream_stats {
    uint64_t passes;       /* begun */
    uint64_t runs, copies; /* queued, runs counted when complete */
    uint64_t bytes;        /* copied, or queued to be: acquired + ahead + dropped */
    uint64_t ahead;   /* of them in slots nobody acquired yet: for later in the pass, or the next */
    uint64_t dropped; /* of them given up before anybody acquired them */
    uint64_t staged;  /* of them through staging */
    uint64_t out_of_order; /* acquires whose run had to be fetched out of turn */
    uint64_t timed;        /* of bytes, about: those whose times are in the next two, see Time */
    uint64_t copy_ns; /* copies ran, the time of all lanes added up; of a staged run from its first
                            chunk to its last */
    uint64_t exposed_ns;              /* layers stood waiting for them, see Time */
    uint64_t wait_ns;                 /* the host waited for copies */
    uint64_t pass_ns;                 /* wall time of passes that ended */
    uint64_t ring_bytes, stage_bytes; /* memory it holds */
    uint64_t ring_spare;              /* of ring_bytes: what only ring_least asked for */
    uint64_t donor_bytes;             /* what a pass in order copies */
    unsigned slots;                   /* as configured, at most as many as runs */
};

struct stream;

/* How device memory is got (res_alloc with room making). */
typedef berth_status stream_alloc_fn(void *user, struct device *d, struct dev_owner *o, size_t n,
                                     struct dev_mem *out, berth_err *err);
struct stream_args {
    const char *name; /* whose blocks, for messages; borrowed while open; may be NULL */
    struct device *compute;
    const struct stream_item *item; /* borrowed while open; what they describe does not move */
    size_t n;
    struct dev_owner *owner; /* STAGING line of compute, for the ring; NULL if nothing streams */
    struct dev_owner *host_owner; /* PINNED line, for staging; NULL if nothing is pageable */
    stream_alloc_fn *alloc;       /* NULL: dev_alloc */
    void *alloc_user;
    void (*on_close)(
        void *user); /* last act of stream_close(); not called if open fails; or NULL */
    void *close_user;
    struct stream_config cfg;
};
/* BERTH_EINVAL: pieces outside of their item, a resident item elsewhere; BERTH_ELIMIT: a number of
 * cfg beyond its maximum, spans that do not add up in 64 bits; BERTH_ENODEVMEM: no room for the
 * ring, with its numbers. */
berth_status stream_open(const struct stream_args *args, struct stream **out, berth_err *err);
/* Waits for its copies and for layers that read its slots. NULL is fine. */
void stream_close(struct stream *s);

/* Everything until stream_end() is about work on `compute`, borrowed until stream_end() succeeded
 * or stream_close(); the next pass may use another one. After a failure no pass runs; the next call
 * first waits for what is on its way. */
berth_status stream_begin(struct stream *s, struct dev_stream *compute, berth_err *err);
/* Work queued on the compute stream after this may read item i at *addr, until stream_release().
 * Counted: each acquire has its release. BERTH_EBUSY: beside the runs of items that are acquired
 * there is no room for its own; nothing changed. One item at a time is always served. */
berth_status stream_acquire(struct stream *s, size_t i, uint64_t *addr, berth_err *err);
/* Work queued from now on does not read item i. */
berth_status stream_release(struct stream *s, size_t i, berth_err *err);
/* Ends a pass wherever it is, after a failure or cancel too; items still acquired count as
 * released. post: BERTH_OK: ready for stream_begin(). Else the device would not even be waited for;
 * may be called again. */
berth_status stream_end(struct stream *s, berth_err *err);

/* Is item i read where it lies, while the stream is open? Then its address stays good without an
 * acquire. */
bool stream_resident(const struct stream *s, size_t i);

/* What the device is done with; sync the compute stream before the end of a pass to have all. */
struct stream_stats stream_stats(struct stream *s);
double stream_gbps(const struct stream_stats *x);    /* 10^9 bytes/s of a lane while it copies */
double stream_exposed(const struct stream_stats *x); /* exposed_ns / copy_ns, at most 1 */
