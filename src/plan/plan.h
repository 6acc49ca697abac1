/* plan: block -> device, in exact bytes.
 *
 * Flow     quotas (alloc.h: from a string, from virtual VRAM, or plan_auto()) + blocks (blocks.h)
 *          + a layout -> plan_make() -> struct plan. Nothing is loaded, no device is asked.
 * Classes  embedding  input embeddings stay on compute and use up its quota, as far as it goes
 *          tiny       bytes * 10000 < all bytes: on compute, outside of any quota
 *          the rest is distributed by the layout
 * Layouts  tail    from the last block to the first: the first device, in the order written, whose
 *                  remaining quota holds it. What upstream does, for people who compare
 *          spread  (default) the blocks of every device are interleaved evenly over the execution
 *                  order and the time it takes (block.work; bytes where no architecture knows it),
 *                  so that streaming hides behind layers. Any window of consecutive blocks holds
 *                  its fair share of donor bytes to within one block of equal ones, nearly always
 *                  within the largest of mixed ones; quotas come first (layout.c has the bounds).
 *                  The first block is with compute where that costs nothing of the above
 * Orphans  a block that fits no remaining quota goes to quotas.orphans, without a limit
 * Overflow a device that would hold more than its budget, alignment included, is an error with both
 *          numbers (BERTH_ELIMIT), before anything is loaded
 * Invariants (1) every block has one device   (2) bytes of the devices add up to all bytes
 *          (3) a device that does not take orphans and does not compute holds at most its quota
 *          (4) blocks, quotas, layout -> always the same plan   (5) less than 2^60 bytes
 * Threads  any. Files plan.c quotas, doors and classes; layout.c; plan_auto.c; plan_text.c tables
 *          for people, JSON for programs. */
#pragma once

#include "base/jsonout.h"
#include "plan/alloc.h"
#include "plan/blocks.h"

enum plan_layout { PLAN_SPREAD, PLAN_TAIL };
const char *plan_layout_name(enum plan_layout l);
WARN_UNUSED bool plan_layout_parse(const char *s, size_t n, enum plan_layout *out);

/* Kept free on a compute device for activations when nobody says otherwise: 0.8 GiB + 400 MiB, as
 * ComfyUI, but at most a quarter of the device: a small card is for weights too. Nothing is kept
 * free on the host. */
#define PLAN_RESERVE_DEFAULT UINT64_C(1278423859)
uint64_t plan_reserve_default(uint64_t budget, bool host);

/* Why a block is where it is. */
enum plan_class { PLAN_QUOTA, PLAN_ORPHAN, PLAN_TINY, PLAN_EMBEDDING };

struct plan_share { /* one device's part */
    uint64_t bytes;
    uint64_t held; /* the same with alignment: what budgets are held against */
    size_t blocks;
    uint64_t by_class[4]; /* bytes */
    size_t blocks_by_class[4];
};

struct plan {
    struct plan_devices devices; /* as given */
    struct quotas quotas;        /* as given, with notes about the plan */
    enum plan_layout layout;
    size_t n;                                   /* blocks */
    uint8_t *device;                            /* [n] index in devices */
    uint8_t *why;                               /* [n] enum plan_class */
    struct plan_share share[ALLOC_ENTRIES_MAX]; /* by device */
    uint64_t bytes;
};

/* blocks: borrowed for the call. *out: plan_release(), also after an error. BERTH_EINVAL: quotas
 * for another number of bytes than the blocks have; BERTH_ELIMIT: see Overflow, or 2^60 bytes. */
berth_status plan_make(const struct blocks *b, const struct plan_devices *devices,
                       const struct quotas *q, enum plan_layout layout, struct plan *out,
                       berth_err *err);
void plan_release(struct plan *p); /* zeroed is fine */

/* Devices nobody has, from text as `berth plan --devices` takes it ("cuda:0=24g,cpu=64g"); the one
 * called cpu is the host. */
berth_status plan_devices_parse(const char *text, size_t n, struct plan_devices *out,
                                berth_err *err);

/* Fills the compute device up to budget - reserve (tiny and embedding blocks included), then donors
 * by speed, fastest first; unmeasured ones behind measured ones: of the compute device's kind by
 * number, then others, the host last. The last donor that got a share takes the orphans when it has
 * room for what whole blocks leave open, else one behind it that has. quotas.note says who got
 * what.
 *   compute  NULL: as alloc_resolve()
 *   reserve  UINT64_MAX: the default for that device
 * BERTH_ELIMIT with the numbers: they do not hold the model together. */
berth_status plan_auto(const struct blocks *b, const struct plan_devices *devices,
                       const char *compute, uint64_t reserve, struct quotas *out, berth_err *err);

/* A string, or NULL for auto; the whole way in one call. */
struct plan_args {
    const char *alloc;   /* allocation string; NULL or "": auto */
    const char *compute; /* for strings without a suffix, and for auto; NULL: the default device */
    enum plan_layout layout;
    uint64_t reserve; /* auto; UINT64_MAX: the default */
    bool automatic;   /* alloc is what a loader tries first, not what somebody asked for */
};
berth_status plan_from_args(const struct blocks *b, const struct plan_devices *devices,
                            const struct plan_args *args, struct plan *out, berth_err *err);

/* The tables people know from ComfyUI-MultiGPU, one line per call of `line`, no line ends. */
typedef void plan_line_fn(void *user, const char *line);
void plan_tables(const struct plan *p, const struct blocks *b, plan_line_fn *line, void *user);
/* For programs, the members of an object that is open: total_bytes, converted (the type, or null:
 * as the file has it), compute, devices [{device, bytes, blocks, share}], blocks [{name, bytes,
 * device}] in execution order, string (below), layout, notes [{warning, text}]. A line for each of
 * the rows if j indents. */
void plan_as_json(const struct plan *p, const struct blocks *b, enum dtype converted,
                  struct jsonout *j);
/* The BYTES text that resolves to the same quotas: "cuda:0,1073741824b;cpu,5gb*#cuda:0". Whole
 * gigabytes and megabytes are written as such. */
void plan_string(const struct plan *p, struct str *out);
