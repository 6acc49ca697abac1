/* stream_impl: what the files of the streaming engine share. */
#pragma once

#include "base/arena.h"
#include "stream/stage.h"
#include "stream/stream.h"

#define STREAM_NONE UINT32_MAX
#define STREAM_PLACES_MAX (2 * STREAM_SLOTS_MAX) /* runs that are in the ring, or have just left */

/* ---- runs.c: what travels together; constant once it is cut ---- */

struct stream_copy {
    uint64_t src;  /* in the donor's space, or a host pointer */
    uint64_t base; /* of the allocation that is in */
    size_t dst;    /* offset in the run */
    size_t n;      /* with padding that travels along ... */
    size_t bytes;  /* ... and without */
};

struct stream_run {
    struct device *dev;    /* the donor */
    bool host;             /* its memory is host memory, by pointer */
    bool staged;           /* goes through staging */
    uint32_t lane;         /* index in cut.lane */
    uint32_t first, last;  /* items; resident ones and those of other runs may lie between them */
    uint32_t items;        /* how many it has */
    uint32_t copy, copies; /* cut.copy[copy .. copy+copies), ascending in the run */
    size_t span;           /* of its items, where they are streamed to */
    size_t room;           /* that in whole lines of the device's alignment */
    size_t home;           /* its place in the ring, in every pass */
    size_t bytes;          /* of its copies */
};

struct stream_place {
    uint32_t run;    /* STREAM_NONE: read where it is */
    uint32_t newest; /* run that began last, up to this item */
    size_t off;      /* in the run */
};

struct stream_cut {
    struct arena mem;
    struct stream_run *run; /* by first item */
    uint32_t runs;
    uint32_t slots;  /* of the ring they are cut for, at most one for each run */
    size_t ring;     /* its bytes: ring.c */
    size_t spare;    /* of them beyond what it needs: cfg.ring_least */
    uint32_t places; /* marks for so many runs, there or gone */
    struct stream_copy *copy;
    struct stream_place *place;               /* by item */
    struct device *lane[STREAM_LANES_MAX];    /* donor; NULL: host memory */
    struct device *lane_on[STREAM_LANES_MAX]; /* whose stream its copies are queued on */
    uint32_t lanes;
    size_t span;    /* largest of a run */
    uint64_t bytes; /* of all runs */
    size_t staged;  /* bytes of the largest staged run; 0: nothing is staged */
};

/* run_bytes > 0; slots: at most STREAM_SLOTS_MAX, 0: as many as it takes. Release with
 * stream_cut_release(), also after an error. post: invariants 6 and 7 of stream.h. */
berth_status stream_cut(const struct stream_args *args, uint64_t run_bytes, uint32_t slots,
                        struct stream_cut *out, berth_err *err);
void stream_cut_release(struct stream_cut *c);

/* ---- time.c: marks of one filling, on the device's clock ---- */

#define STREAM_TIMES 2 /* sets of marks for each run */

struct stream_time {
    struct dev_event *begun, *filled; /* of the lane; NULL: it has no clock of its own */
    struct dev_event *reached;        /* of the compute stream; NULL: the clocks do not compare */
    size_t bytes;
    bool busy;                  /* a slot's, marks may come */
    bool is_filled, is_reached; /* recorded */
};

/* ---- the ring ---- */

struct stream_slot {
    struct dev_event *drained;                  /* of the compute device */
    struct dev_event *filled[STREAM_LANES_MAX]; /* by lane */
    uint32_t run;                               /* STREAM_NONE: free */
    size_t from, to;                            /* of the ring; free: its trace, if from < to */
    uint32_t lane;                              /* that wrote it; STREAM_NONE: nobody */
    uint64_t serial;                            /* of this filling; never used twice */
    struct stream_time *time;                   /* of this filling; NULL: untimed */
    uint32_t left;                              /* items of the run that were not released yet */
    uint32_t held;                              /* acquires without a release */
    size_t copied;                              /* bytes queued */
    bool drain;                                 /* free: its last readers are marked by drained */
    bool open;                                  /* written since filled[lane] was recorded */
    bool ready;                                 /* every copy is queued and filled[lane] recorded */
    bool touched;                               /* acquired since it was filled */
    bool waited;                                /* the compute stream is behind filled */
    uint32_t stage_copy;        /* staged runs: where the next chunk begins, in run->copies */
    size_t stage_off, stage_to; /* and in that copy; bytes not handed to a loader yet */
};

/* ---- staged runs: staged.c ---- */

struct stage_chunk { /* what one staging buffer is filled with */
    uint32_t slot, run;
    uint64_t serial; /* of the slot's filling: a chunk of an older one is thrown away */
    uint32_t copy;   /* begins here ... */
    size_t off;      /* ... at this byte of it */
    size_t n;
};

struct stream { /* owner: executor */
    struct stream_args args;
    struct stream_cut cut;
    const struct clock *clock;
    struct dev_stream *lane[STREAM_LANES_MAX];
    struct dev_mem ring;
    struct stream_slot *slot;
    uint32_t slots;     /* cut.places of them */
    uint32_t live;      /* with a run in it */
    uint32_t *run_slot; /* by run: its slot, or STREAM_NONE */
    uint32_t *held;     /* by item: acquires without a release */
    uint64_t *done;     /* by item: serial of the filling under which it was released */
    struct stream_time (*time)[STREAM_TIMES]; /* by run */
    uint64_t serial;
    uint64_t next; /* run to fetch next, modulo cut.runs; from there on: in the next pass */
    uint32_t at;   /* donor item acquired last; at first: the first one */
    struct dev_stream *compute; /* of the pass; stays set until everything on it is known */
    bool active;                /* between begin and end */
    bool broken;                /* a device call failed: what is queued where is not known */
    uint64_t began;             /* ns */
    struct stage stage;         /* of pageable runs; zeroed: there are none */
    struct stage_chunk chunk[STREAM_STAGE_MAX]; /* the stage's between posted and filled */
    struct stream_stats stats;
};

/* "flux: block 'x' (item 3) from cpu to cuda:0", in front of err. Marks the stream broken. */
berth_status stream_broke(struct stream *s, uint32_t run, berth_err *err);
/* Every copy of it is queued. */
berth_status stream_slot_filled(struct stream *s, struct stream_slot *t, berth_err *err);
/* How soon it is needed: 0 the run acquired last, 1 others under way, then those to come in order,
 * up to the one that ended last. */
uint32_t stream_distance(const struct stream *s, uint32_t run);
/* Began, and has items to come, the current one included. */
bool stream_under_way(const struct stream *s, uint32_t run);

/* ---- ring.c ---- */

berth_status ring_open(struct stream *s, berth_err *err); /* ring_close() after an error too */
void ring_close(struct stream *s);                        /* pre: the lanes are idle */
/* A free slot for the run, if nobody lies in its place. NULL: none. Changes nothing. */
struct stream_slot *ring_place(struct stream *s, uint32_t run);
bool ring_in_home(const struct stream *s, const struct stream_slot *t, uint32_t run); /* is t's? */
/* Would there be one if nothing lay in the ring but what is acquired? */
bool ring_could_place(const struct stream *s, uint32_t run);
/* What ring_place() said. */
berth_status ring_take(struct stream *s, struct stream_slot *t, uint32_t run, berth_err *err);
/* lane may write to the slot's range after this. */
berth_status stream_slot_open(struct stream *s, struct stream_slot *t, uint32_t lane,
                              berth_err *err);
/* A free slot: nobody uses any more what was its range. */
void ring_forget(struct stream_slot *t);

berth_status staged_open(struct stream *s, berth_err *err); /* stage_close() after an error too */
/* Queues what is loaded, hands out what can be loaded. Does not wait. */
berth_status staged_pump(struct stream *s, berth_err *err);
/* Until slot t is ready. pre: its run is the one acquired last. */
berth_status staged_finish(struct stream *s, struct stream_slot *t, berth_err *err);

/* Both add to the stats, and to the total that streams share. */
void stream_count(struct stream *s, uint64_t bytes);
void stream_count_time(struct stream *s, uint64_t timed, uint64_t copy_ns, uint64_t exposed_ns);
berth_status time_open(struct stream *s, berth_err *err); /* time_close() after an error too */
void time_close(struct stream *s);
bool time_compares(const struct stream *s, uint32_t run); /* lane and layers have one clock */
/* In this order: a new filling; its first copy is queued next; the last one was; the compute stream
 * waits for it next (maybe before the first copy); no more marks come. */
void time_get(struct stream *s, struct stream_slot *t);
berth_status time_begin(struct stream *s, struct stream_slot *t, berth_err *err);
berth_status time_filled(struct stream *s, struct stream_slot *t, berth_err *err);
berth_status time_reached(struct stream *s, struct stream_slot *t, berth_err *err);
void time_let_go(struct stream_slot *t);
void time_collect(struct stream *s); /* into the statistics, what is complete */
