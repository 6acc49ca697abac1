/* stream: blocks of donors reach the compute device just before their layer runs, every pass.
 *
 * Words    item    one block in execution order: resident on the compute device, or on a donor
 *          run     neighbouring donor items that travel together: one slot, one pair of events
 *          slot    a piece of device memory of the ring; filled: its copy is done; drained: the last
 *                  layer that reads it is done
 *          pass    one forward run over all items, in order
 *          exposed time the compute stream had nothing to do but wait for a copy
 * Flow     stream_open() cuts the items into runs and allocates the ring, once. Per pass:
 *          stream_begin(), then for each item in order stream_acquire() (the compute stream waits
 *          for filled) ... launches ... stream_release() (the last of a run records drained), then
 *          stream_end(). Copies of later runs are issued as soon as their slot is drained, in
 *          execution order; the next pass's first runs are issued at the end of this one.
 *          Nothing is allocated between open and close.
 * Ways     donor is host memory from dev_host_alloc() (pinned): async copy on the copy stream
 *          donor is pageable host memory: through a pinned staging ring, filled by a loader thread
 *          donor is another device: dev_copy() on the copy stream
 * Runs     consecutive donor items of one donor, until `run_bytes`; an item larger than that is a
 *          run of its own. Pieces that are neighbours in source and slot become one copy.
 * Invariants (1) a slot is written only after its drained event   (2) a layer reads a slot only after
 *          its filled event   (3) staging is overwritten only after the copy that reads it
 *          (4) bytes copied per pass == bytes of all donor items   (5) a model without donor items
 *          on this stream moves nothing and allocates nothing
 * Threads  executor, except the loader thread inside.
 * Files    stream.c the ring, stream_runs.c cutting, stream_stage.c staging and its thread. */
#ifndef RESIDENCY_STREAM_H
#define RESIDENCY_STREAM_H

#include "base/clock.h"
#include "device/device.h"

struct stream_piece { /* bytes of an item that are worth copying (padding is not) */
    uint64_t off;
    uint64_t n;
};

enum stream_source { STREAM_RESIDENT, STREAM_PINNED, STREAM_PAGEABLE, STREAM_DEVICE };

struct stream_item {
    enum stream_source source;
    struct device *dev; /* whose memory it is; the compute device for STREAM_RESIDENT */
    uint64_t addr;      /* in dev's space; STREAM_PINNED, STREAM_PAGEABLE: a host pointer */
    uint64_t span;
    const struct stream_piece *piece; /* ascending, inside the span; borrowed while open */
    uint32_t pieces;
};

struct stream_config {         /* zero: defaults */
    uint64_t run_bytes;        /* 0: 16 MiB */
    unsigned slots;            /* 0: 3; at least 1 */
    unsigned stage_slots;      /* 0: 2 */
    uint64_t stage_bytes;      /* of one staging buffer; 0: run_bytes */
    const struct clock *clock; /* NULL: system */
    const struct log *log;
};

struct stream_stats {
    uint64_t passes, runs, copies;    /* runs and copies of all passes */
    uint64_t bytes;                   /* copied in all passes */
    uint64_t staged;                  /* of them through staging */
    uint64_t out_of_order;            /* acquires that were not the next item */
    uint64_t wait_ns;                 /* the host waited for a slot or staging */
    uint64_t pass_ns;                 /* wall time of passes */
    uint64_t ring_bytes, stage_bytes; /* memory it holds */
};

struct stream;

/* items: borrowed while open (what they describe must not move: the model is in use).
 * alloc: how device memory is got (res_alloc with room making); NULL: dev_alloc. owner: STAGING line
 * of the compute device; host_owner: PINNED line. */
typedef berth_status stream_alloc_fn(void *user, struct device *d, struct dev_owner *o, size_t n,
                                     struct dev_mem *out, berth_err *err);
struct stream_args {
    struct device *compute;
    const struct stream_item *item;
    size_t n;
    struct dev_owner *owner, *host_owner;
    stream_alloc_fn *alloc;
    void *alloc_user;
    struct stream_config cfg;
};
berth_status stream_open(const struct stream_args *args, struct stream **out, berth_err *err);
/* Waits for its copies. NULL is fine. */
void stream_close(struct stream *s);

berth_status stream_begin(struct stream *s, berth_err *err);
/* Work queued on `compute` after this may read item i at *addr, until stream_release(). Items are
 * meant to come in order; another one (a skipped layer, a jump) is served all the same, with a copy
 * that nothing hides, and counted. */
berth_status stream_acquire(struct stream *s, size_t i, struct dev_stream *compute, uint64_t *addr,
                            berth_err *err);
berth_status stream_release(struct stream *s, size_t i, struct dev_stream *compute, berth_err *err);
/* After a failure or cancel too: leaves the stream ready for stream_begin(). */
berth_status stream_end(struct stream *s, struct dev_stream *compute, berth_err *err);
struct stream_stats stream_stats(const struct stream *s);

#endif
