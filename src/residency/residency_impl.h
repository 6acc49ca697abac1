/* residency_impl: what the files of residency/ share. */
#pragma once

#include "base/vec.h"
#include "format/layout.h"
#include "journal/journal.h"
#include "residency/residency.h"
#include "stream/stage.h"
#include "stream/stream.h"

#include <pthread.h>

#define RES_NOWHERE UINT8_MAX
#define RES_ALIASES 16 /* networks in a file */

struct res_block {        /* one block's memory; device RES_NOWHERE: none */
    struct dev_mem mem;   /* set, or ... */
    struct dev_host host; /* ... this: pinned host memory of the set's host device */
    uint8_t device;       /* where it is, index in the set */
    uint8_t home;         /* where the plan wants it, index in the set */
    enum dtype patched;   /* type its patched tensors are stored in; DT_NONE: as in the file */
    uint64_t bytes, span; /* now: those of the block, or more when patched into a wider type */
    uint64_t patch;       /* signature of what is merged in; 0: base weights */
    float scale;          /* of its weight, chosen when that was merged; 0: as in the file */
};

struct res_key {         /* what makes two opens the same model: its base key with a plan */
    char *text;          /* owned, free() */
    size_t base_len;     /* the base key is this much of it */
    uint64_t base, full; /* hashes */
};

struct res_owners { /* one model's lines in one device's ledger; opened when first needed */
    struct dev_owner *weights, *pinned;
};

struct res_model {
    struct residency *res;
    struct res_model *prev, *next; /* registry order, oldest first */
    uint64_t id;
    char *name, *role, *path, *part, *options;
    char *wide; /* as of res_open_args; NULL: none */
    uint64_t wide_cols;
    char owner[DEV_OWNER_MAX]; /* "<name>#<id>": its name in ledgers */
    struct weights *weights;   /* owned; stays open: base weights are read again from here */
    const struct block_arch *arch;
    const struct block_arch *(*find_arch)(const struct weights *w, const char *part);
    struct block_alias alias[RES_ALIASES]; /* what its tensors are called elsewhere */
    size_t aliases;
    struct blocks blocks;
    struct plan plan;
    bool plan_by_hand; /* res_plan_by_hand() */
    size_t compute;    /* index in the set */
    struct res_key key;
    enum res_state state;
    enum res_retention retention;
    unsigned handles, uses, anchor[RES_ANCHOR_COUNT];
    bool eject_others, used_in_prompt;
    bool loading;              /* inside res_load(): it stays, whoever lets go of it meanwhile */
    bool patches_changed;      /* the patch set is another one since the last load */
    struct res_block *block;   /* [blocks.n] */
    uint64_t *bytes_on;        /* [devices of the set] */
    struct res_owners *owners; /* [devices of the set] */
    struct vec patches;        /* struct res_patch, referenced */
    bool high_precision;       /* patched fp8 is kept wide */
    enum dtype asked;          /* res_open_args.dtype; a file that has the type is not converted */
    uint64_t last_use, loads, read, moved, attached;
};

/* What plain requests add up to. Pressure wants free_memory, under a bit of its own: the receipt
 * says who asked. */
enum res_asked {
    RES_ASKED_UNLOAD = 1,
    RES_ASKED_FREE = 2,
    RES_ASKED_FORCE = 4,
    RES_ASKED_PRESSURE = 8
};

struct residency {
    struct res_config cfg;
    struct devset *devices;
    size_t n_devices;
    size_t host; /* index of the host device in the set, or n_devices */
    const struct log *log;
    const struct clock *clock;
    struct tpool *pool;
    struct res_model *first, *last;
    size_t models;
    uint64_t next_id, frees;
    uint64_t pinned, pin_budget; /* bytes of weights in pinned host memory, as asked for */
    bool pins_refused;           /* said so in the log */
    double *speed;               /* [n*n] measured bytes/s from i to j; 0: not yet */
    struct journal *journal;
    struct res_metrics metrics;
    bool prompt_running, prompt_done, in_free;
    pthread_mutex_t posting;     /* of the next three */
    struct res_request *posted;  /* by any thread; the newest first */
    unsigned posted_flags;       /* asked for since the newest; bits of enum res_asked */
    atomic_bool has_posted;      /* any of the two; read without the lock */
    struct res_request *waiting; /* collected from there; the oldest first */
    unsigned asked;
    double pressure_last;         /* usage at the last reset; 0: armed */
    struct dev_stream **stream;   /* [n] for copies of load, move and patch; made when needed */
    struct stream_total streamed; /* by the streams of its models; any thread reads */
};

static inline struct device *res_device(const struct residency *r, size_t device) /* borrowed */
{
    return devset_at(r->devices, device);
}
static inline uint64_t res_now(const struct residency *r)
{
    return clock_mono_ns(r->clock);
}
static inline void res_touch(struct res_model *m) /* it was used now */
{
    m->last_use = res_now(m->res);
}
static inline bool res_canceled(const struct res_load_args *args) /* any thread */
{
    return args->cancel && atomic_load_explicit(args->cancel, memory_order_relaxed);
}
/* Nobody may move, eject or patch it now. */
static inline bool res_model_busy(const struct res_model *m)
{
    return m->uses || m->loading;
}

/* Each file calls only those whose section comes before its own (arch.cycles), and res_check_now(),
 * which looks at everything. */

/* ---- block.c: one block's memory. A full device is BERTH_ENODEVMEM: nobody leaves for it ---- */

struct res_place { /* where a block shall have memory */
    size_t device;
    uint64_t span;
};
/* Memory for block i, recorded in nothing yet; pinned for host blocks of models that compute
 * elsewhere, within the pin budget. _unpinned: never. */
berth_status res_block_alloc(struct res_model *m, size_t i, const struct res_place *at,
                             struct res_block *out, berth_err *err);
berth_status res_block_alloc_unpinned(struct res_model *m, size_t i, const struct res_place *at,
                                      struct res_block *out, berth_err *err);
/* For blocks that come one after the other, in order: their homes are not moved meanwhile. Block i
 * in pinned memory that it shares with those around it. False: it needs memory of its own. Begin
 * with zeroes; *p is to be closed. */
struct res_pins {
    struct dev_pins *pins; /* NULL: blocks before `end` get none together */
    size_t end;
};
bool res_block_pin(struct res_model *m, size_t i, struct res_pins *p, struct res_block *out);
void res_pins_close(struct res_pins *p);
void res_block_give(struct res_block *got);         /* frees what was got; empties it */
void res_block_drop(struct res_model *m, size_t i); /* frees its memory, books it out */
/* Books `got` in as block i's memory (which has none). Takes its device, mem, host, bytes, span,
 * patched, patch and scale; the home stays. */
void res_block_put(struct res_model *m, size_t i, const struct res_block *got);
void res_drop_all(struct res_model *m); /* every block's memory; state is the caller's to set */
/* Copies it to device d and frees the old place. */
berth_status res_block_move(struct res_model *m, size_t i, size_t d, berth_err *err);
/* Likewise, to memory that was got; takes it, also when it fails. */
berth_status res_block_move_to(struct res_model *m, size_t i, struct res_block *to, berth_err *err);
void *res_host_ptr(const struct res_block *b);      /* NULL: not host memory */
uint64_t res_block_addr(const struct res_block *b); /* 0: no memory, or a block of 0 bytes */
/* bytes and span of block i when it is stored as `patched` says. False: beyond 64 bits. */
WARN_UNUSED bool res_block_layout(const struct res_model *m, size_t i, enum dtype patched,
                                  uint64_t *bytes, uint64_t *span);
/* res_tensor_at() of a block that is stored as `patched` says. */
struct res_tensor_at res_tensor_as(const struct res_model *m, size_t block, size_t tensor,
                                   enum dtype patched);
berth_status res_stream_of(struct residency *r, size_t device, struct dev_stream **out,
                           berth_err *err);
/* After a failure: nothing queued on the device's stream touches memory any more. */
void res_stream_settle(struct residency *r, size_t device);
/* Bytes of the device's budget that nobody holds; idle ones count as free. On a card no more than
 * its driver has, or would have without idle ones: budgets know nothing of other programs. */
uint64_t res_left_on(const struct residency *r, size_t device);
/* Puts "block 'x' (64.0 KiB) of model y on dev" in front of err. */
berth_status res_block_err(const struct res_model *m, size_t i, size_t device, berth_err *err);
/* Puts "moving from dev" in front of err. */
berth_status res_moving_err(const struct res_model *m, size_t i, berth_err *err);

/* ---- evict.c: who holds a model, and who leaves a device that is short ---- */

void res_model_free(struct res_model *m); /* of one that has no memory and is in no list */
void res_model_gone(struct res_model *m); /* pre: no handles, no uses; anchors do not matter */
unsigned res_anchors(const struct res_model *m); /* of all reasons */
/* (4) of residency.h: somebody holds it. */
bool res_model_held(const struct res_model *m);
/* Gone unless it is held. True: m is no more. */
bool res_model_maybe_gone(struct res_model *m);
/* Nothing but the running prompt holds it: res_linger(). */
bool res_only_lingers(const struct res_model *m);
void res_linger_end(struct residency *r); /* ends that for all models */

struct res_need { /* bytes that somebody needs on a device */
    size_t device;
    uint64_t bytes;
    const struct res_model *for_model; /* is not evicted for it; may be NULL */
    bool evict_keep;                   /* if nothing else helps, keep models may go too */
};
/* The next step towards it; false: there is none.
 *     while (s == BERTH_ENODEVMEM && res_evict(...))
 *         s = try again; */
bool res_evict(struct residency *r, const struct res_need *need);
/* Would evicting everything evictable be enough? Never false when it would. */
bool res_evict_could(const struct residency *r, const struct res_need *need);
/* The message of an allocation that failed for good, in place of what the device said. */
berth_status res_evict_failed(const struct residency *r, const struct res_need *need,
                              berth_err *err);
/* res_block_alloc() and res_block_move() that evict others where they must. */
berth_status res_evict_for_block(struct res_model *m, size_t i, const struct res_place *at,
                                 bool evict_keep, struct res_block *out, berth_err *err);
berth_status res_evict_for_move(struct res_model *m, size_t i, size_t d, berth_err *err);
/* Residency.md 4.4: every other model's bytes leave m's compute device, and none are sent there
 * while others leave for m's load. Keep models and models in use stay. */
void res_evict_others(struct res_model *m);

/* ---- patch.c: adapters merged into blocks ---- */

uint64_t res_patch_signature(const struct res_model *m, size_t block); /* 0: untouched */
/* Blocks being derived one after the other. Those of a LOADING model travel while the next ones are
 * merged: they are complete when res_patch_end() says so. */
/* Is its weight codes, with more beside them than a scale that products multiply by? */
static inline bool res_is_coded(const struct weights_entry *e)
{
    return e->layout && !layout_is_plain(e->layout);
}

#define RES_READ_PIECE ((size_t)256 << 10) /* one read: 0.1 ms, so that threads end together */
#define RES_READ_PIECES 32                 /* most of a part that patches send */
/* Threads that read so much beside the executor: as many as the pool has, and no more than there
 * are pieces. */
static inline unsigned res_read_threads(const struct residency *r, uint64_t bytes)
{
    size_t n = tpool_size(r->pool) - 1;
    n = n < bytes / RES_READ_PIECE ? n : (size_t)(bytes / RES_READ_PIECE);
    return n < STAGE_THREADS_MAX ? (unsigned)n : STAGE_THREADS_MAX;
}

struct res_patching {
    struct res_model *m;
    const struct res_load_args *args;
    struct res_load_result *got; /* adds to it */
    /* Zeroed at first. patch_send.c */
    struct stage stage;        /* open if stream is set */
    struct dev_stream *stream; /* of the device it goes to */
    size_t device, last;       /* last block */
    const struct res_block *to;
    const struct part *part;
    berth_status filled[RES_READ_PIECES]; /* of a part, by its pieces */
    berth_err why[RES_READ_PIECES];
    /* patch_card.c */
    struct dev_mem scratch;
    enum { CARD_UNKNOWN, CARD_MERGES, CARD_CANNOT } card; /* of `device` */
};
berth_status res_patch_block(struct res_patching *x, size_t block, berth_err *err);
/* Waits for all of it, also after a failure. (patch_send.c) */
berth_status res_patch_end(struct res_patching *x, berth_err *err);
/* Memory the block takes with the patch set merged in; UINT64_MAX: beyond all bounds. */
uint64_t res_patched_span(const struct res_model *m, size_t block);
/* Takes `next` in place of m's patch set, references and all. */
void res_take_patches(struct res_model *m, const struct vec *next);

/* ---- speed.c ---- */

size_t res_default_compute(const struct residency *r); /* the first that is not the host, else 0 */

/* ---- free.c, check.c ---- */

uint64_t res_kinds_sum(const uint64_t bytes[DEV_KIND_COUNT]);

/* A device whose numbers are RAM's; NULL: none is. */
const struct device *res_ram(const struct residency *r);

#ifdef BERTH_CHECKS
void res_check_now(struct residency *r); /* BUG() on a broken invariant */
#else
static inline void res_check_now(struct residency *r)
{
    (void)r;
}
#endif
