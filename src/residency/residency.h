/* residency: which block of which model lives where, which models make room for others, and what a
 * free leaves. The words are those of docs/architecture.md.
 *
 * States     res_open()      nothing -> REGISTERED: file indexed, plan made, no bytes
 *            res_load()      REGISTERED, EJECTED -> LOADING -> RESIDENT; when it fails or is
 *                            canceled, back to where it came from, with no bytes left
 *            res_eject(), res_free(), evicting    RESIDENT -> EJECTED: no bytes, still known;
 *                            handles stay valid and res_load() brings it back
 *            nobody holds it any more, see (4)       any -> gone, its memory is free
 *
 * Invariants (1) at most one model has a given key
 *            (2) REGISTERED, EJECTED: no block has memory. RESIDENT: every block has memory, once
 *            (3) per model and device: the bytes of its blocks there == its table of bytes; their
 *                spans == what the device's ledger has for it (weights + pinned, as requested)
 *            (4) a model lives exactly as long as it has a handle or a use, is inside res_load(),
 *                or has bytes and an anchor: what anchors retain is bytes. An anchored model that
 *                is evicted and held by nothing else is gone at once
 *            (5) uses > 0: RESIDENT, and its addresses do not change
 *            (6) keep: has an anchor RES_ANCHOR_KEEP, with bytes or without. eject: has no
 *                anchor but RES_ANCHOR_MARKED, which is for those that have bytes
 *            (7) RESIDENT: a block's patch signature is that of the model's patch set, 0 for base
 *                weights; between a change of the set and the next load it may be the old one, and
 *                the model cannot be used
 *            (8) every byte a device's ledger calls weights belongs to a model of the registry
 *            res_check() asserts them, and what dev_check() says of every device; builds with
 *            BERTH_CHECKS call it after each operation.
 *
 * Retention  The table of res_free() below. A retained model is found again by key and re-attached:
 *            zero bytes read, zero bytes moved. One of the same weights under another plan that
 *            nobody holds (anchored only) is adopted: only blocks whose device differs move. A file
 *            that was replaced is another model, and takes over the mark of the one before.
 * Room       res_alloc() is the one door: try; evict from the device that is short (evict.c), step
 *            by step, and try again; say in numbers what stood in the way.
 * Patches    Base weights are never lost: they are in the file, which stays mapped. A block whose
 *            patches change is derived again from there (patch.c). A patch set belongs to those who
 *            hold handles: an open that finds none empties it.
 * Threads    Everything belongs to the executor thread, except where a comment says "any thread".
 *            Reading and converting is spread over the pool that was handed in.
 * Files      each calls only those before it (arch.cycles): block.c one block's memory, words;
 *            evict.c who holds a model, who leaves; patch.c adapters merged into blocks; load.c
 *            file -> devices; speed.c of links; registry.c the models there are, keys, plans;
 *            model_stream.c streams over a model's blocks; free.c the free flow, memory pressure;
 *            request.c what waits for the end of a prompt, receipts as texts; check.c. Below:
 *            plan/, stream/, merge/, journal/ */
#pragma once

#include "base/tpool.h"
#include "device/devset.h"
#include "merge/adapter.h"
#include "plan/plan.h"

#include <stdatomic.h>

struct residency;
struct res_model;
struct journal;

/* ---- the registry ---- */

/* What happens when a free finds no model marked eject. */
enum res_unflagged { RES_UNFLAGGED_KEEP, RES_UNFLAGGED_UNLOAD };

/* Drops every cached node output, and with it their handles. Called from res_free(), must not call
 * back into it. NULL: there is no executor. */
typedef void res_reset_fn(void *user);

struct res_config {            /* zero: the default of every field */
    struct devset *devices;    /* borrowed, outlives the registry; required */
    struct tpool *pool;        /* borrowed; NULL: this thread only */
    const struct log *log;     /* borrowed; NULL: silent */
    const struct clock *clock; /* borrowed; NULL: system */
    uint64_t pin_budget; /* bytes of pinned host memory for weights; 0: a quarter of the host's
                               budget, RES_NO_PINS: none */
    uint64_t reserve;    /* for activations on compute devices; 0: PLAN_RESERVE_DEFAULT */
    enum res_unflagged when_unflagged;
    bool no_auto_cleanup;       /* do not eject `eject` models after the prompt that used them */
    double pressure_percent;    /* RAM in use above which the executor is reset; 0: 85 */
    double pressure_hysteresis; /* points; 0: 5 */
    res_reset_fn *reset;
    void *reset_user;
    const struct journal_config *journal; /* copied; NULL: defaults */
};
#define RES_NO_PINS UINT64_MAX

berth_status residency_new(const struct res_config *cfg, struct residency **out, berth_err *err);
/* NULL is fine. pre: no handles, no uses. Anchored models are ejected. */
void residency_free(struct residency *r);
struct journal *res_journal(struct residency *r); /* borrowed */
void res_set_reset(struct residency *r, res_reset_fn *fn, void *user);

/* The devices as plans see them. measure: time a copy from each to `compute` (once; remembered).
 * Budgets are what devices may hold at all; the registry's own automatic plans take off what cannot
 * be evicted. */
berth_status res_plan_devices(struct residency *r, const char *compute, bool measure,
                              struct plan_devices *out, berth_err *err);

/* ---- models ---- */

enum res_retention { RES_AUTO, RES_KEEP, RES_EJECT };
const char *res_retention_name(enum res_retention x);
WARN_UNUSED bool res_retention_parse(const char *text, enum res_retention *out);

enum res_state { RES_REGISTERED, RES_LOADING, RES_RESIDENT, RES_EJECTED };
const char *res_state_name(enum res_state s);

/* Reasons of anchors: a model has each at most once. */
enum res_anchor {
    RES_ANCHOR_KEEP,     /* its loader, or somebody since, said keep */
    RES_ANCHOR_SURVIVED, /* auto, and others were marked to go */
    RES_ANCHOR_MARKED,   /* eject; only an anchor held it, or a free passed it by */
    RES_ANCHOR_PROMPT,   /* res_linger() */
    RES_ANCHOR_COUNT
};
const char *res_anchor_text(enum res_anchor a);

struct res_open_args {
    const char *path;
    const char *part;    /* prefix of the tensors that belong to it; NULL: all */
    const char *name;    /* for people; NULL: the file's name without folder and ending */
    const char *role;    /* "unet", "clip", "vae": in journal lines; NULL: "model" */
    const char *options; /* whatever else makes two models differ; NULL: "" */
    /* A word of res_convert_type(): weights are converted to it as they are read (convert.h says
     * which), planned and booked so. NULL, or where it changes nothing: as the file has them. */
    const char *dtype;
    /* A matrix that is opened with more columns than its file has, of zeros (weights_widen()), by
     * its name there; another model than one without it. NULL: none. */
    const char *wide;
    uint64_t wide_cols;
    /* fp8 weights that adapters change are kept as F16 (BF16 where values might be beyond it)
     * instead of being rounded to fp8 again: twice the bytes. Another model than one without it. */
    bool high_precision;
    /* What the file is; a table that stays. NULL, or its answer is: not known. */
    const struct block_arch *(*arch)(const struct weights *w, const char *part);
    struct plan_args plan;
    /* A model of these weights whose plan was set by hand is taken as it is, if it computes on
     * plan.compute (NULL: anywhere). Without this that mark ends. */
    bool plan_may_stay;
    enum res_retention retention;
    /* Loader input `eject_models`: before the first load after an open that says so, every other
     * model that is not keep leaves the compute device: eject models altogether, auto ones to their
     * donors or the host if those have room. */
    bool eject_others;
};
/* A handle on the model: an existing one when the key is known (its retention becomes args', unless
 * that is RES_AUTO), else a new one in REGISTERED. *attached (may be NULL): it was RESIDENT.
 * The file is indexed, its data is not read. Adopting a model moves blocks, as res_replan() does,
 * with the same errors. */
berth_status res_open(struct residency *r, const struct res_open_args *args, struct res_model **out,
                      bool *attached, berth_err *err);
/* The same file, opened as m was, computing where m does, with one matrix wider. *out is a handle,
 * as of res_open(); nothing is loaded. */
berth_status res_open_wider(struct res_model *m, const char *tensor, uint64_t cols,
                            struct res_model **out, berth_err *err);
void res_ref(struct res_model *m);
void res_unref(struct res_model *m); /* NULL is fine; the last owner's leaving frees everything */

typedef void res_progress_fn(void *user, uint64_t done, uint64_t total); /* bytes */
struct res_load_args {                                                   /* zero: defaults */
    res_progress_fn *progress;                                           /* executor thread */
    void *progress_user;
    const atomic_bool *cancel; /* any thread sets it; looked at between pieces */
    bool evict_keep;           /* if nothing else helps, keep models may go too */
};
struct res_load_result {
    uint64_t read;  /* bytes that came from the file, as they are held */
    uint64_t moved; /* bytes copied between devices, or between host and device */
    bool was_resident;
};
/* Brings every block to its home, patched as m's patch set says. Of a RESIDENT model only blocks
 * whose patches changed are derived again, and demoted blocks come home where that evicts nobody.
 * args, result may be NULL; after an error the result says what was done.
 * Fails before evicting anything if evicting everything evictable would not be enough.
 * After an error, which names the block, the device and the bytes, the model is in the state it was
 * in; blocks of a RESIDENT one that have their new patches keep them. The progress callback may
 * give back the last handle: then the model goes when the load ends.
 * BERTH_ECANCELED, BERTH_ENODEVMEM, BERTH_EIO (the file changed), BERTH_EDEVICE; BERTH_EBUSY: it is
 * being loaded, or its patches changed and it is in use. */
berth_status res_load(struct res_model *m, const struct res_load_args *args,
                      struct res_load_result *result, berth_err *err);

/* Between these no block of m moves. _begin: pre RESIDENT, and its patch set is what the last load
 * merged (BERTH_EINVAL else: a model that is patched half must not compute). */
berth_status res_use_begin(struct res_model *m, berth_err *err);
void res_use_end(struct res_model *m);

/* A resident block's bytes. dev: where. BERTH_EINVAL: not resident. */
struct res_block_at {
    struct device *dev;
    size_t device; /* index in the set */
    uint64_t addr; /* in dev's space; of pinned host memory the pointer */
    uint64_t base; /* of the allocation it lies in, see dev_mem_base() */
    bool pinned;   /* host memory of dev_host_alloc(): *copies touch it, addr is a host pointer */
    uint64_t bytes, span;
    enum dtype patched; /* DT_NONE: the file's types; else that of all its patched tensors */
};
berth_status res_block_at(const struct res_model *m, size_t block, struct res_block_at *out,
                          berth_err *err);
/* Where tensor k of block i lies in the block's memory, stored as it is now. With DT_NONE in
 * `patched` as blocks.h says; else every tensor of the block that widens is of that type, touched
 * or not, and all lie behind one another, each aligned to BLOCK_ALIGN. */
struct res_tensor_at {
    uint64_t off, bytes;
    enum dtype dtype;
};
struct res_tensor_at res_tensor_at(const struct res_model *m, size_t block, size_t tensor);
/* The scale of the codes of the block's weight, where a merge chose another. False: the file's. */
bool res_scale_at(const struct res_model *m, size_t block, float *out);
/* Host copy of a tensor's bytes as they are now, patched or not; for tests and checksums. */
berth_status res_tensor_read(struct res_model *m, size_t block, size_t tensor, void *dst, size_t n,
                             berth_err *err);
/* Over the bytes of all tensors in block order, as they are stored now and wherever they are: XXH64
 * of each piece of at most 1 MiB of a tensor, seeded with the sum so far. */
berth_status res_checksum(struct res_model *m, uint64_t *out, berth_err *err);

/* BERTH_EBUSY: in use. A model that only anchors held is gone with its bytes. */
berth_status res_eject(struct res_model *m, berth_err *err);
/* keep: anchors it. eject: drops its anchors; a model that they alone held, longer than for a
 * prompt, stays until a free takes it (RES_ANCHOR_MARKED), because marking is not freeing.
 * auto: an anchor for keep or eject stays as RES_ANCHOR_SURVIVED. */
void res_set_retention(struct res_model *m, enum res_retention x);
/* RES_ANCHOR_PROMPT, until res_prompt_done(): for a cached output that goes before the prompt is
 * done, so that a loader of this prompt can adopt the weights for another plan instead of reading
 * the file again. Evicted first, whole. Nothing happens unless a prompt runs and it is an auto
 * model with bytes. */
void res_linger(struct res_model *m);
/* A new plan: moves only blocks whose device changes. BERTH_EBUSY: in use, or another model has the
 * key that this one would get. Fails before a block moves if evicting everything evictable would
 * not be enough. After a later failure the old plan stands, and res_load() goes on from where the
 * blocks are. Blocks with patches that the new compute device wants in another type
 * (merge/adapter.h) get it with the next load. */
berth_status res_replan(struct res_model *m, const struct plan_args *plan,
                        struct res_load_result *result, berth_err *err);
/* The plan m has now is a person's: opens with plan_may_stay leave it, until one without it, or for
 * another compute device, takes m. The default plan is nobody's: it ends such a mark. */
void res_plan_by_hand(struct res_model *m);
struct res_look {     /* at a plan that nobody applies */
    struct plan plan; /* plan_release(), also after an error */
    uint64_t moves;   /* bytes that would change places */
    /* Blocks' bytes by set index, as res_bytes_on() would say; without memory as in the file. */
    uint64_t after[ALLOC_ENTRIES_MAX];
};
/* What res_replan() would do now; nothing moves, also while m is in use. While a prompt runs links
 * are not measured, and a note of the plan says so. Errors as res_replan()'s before its first block
 * moves. */
berth_status res_replan_look(struct res_model *m, const struct plan_args *plan,
                             struct res_look *out, berth_err *err);
/* The patch set. Nothing moves until the next res_load(). Takes references on the adapters.
 * BERTH_EBUSY: in use. */
berth_status res_set_patches(struct res_model *m, const struct res_patch *patch, size_t n,
                             berth_err *err);

/* What adapters and ComfyUI call a tensor of m; returns its length. */
#define RES_KEY_MAX (1024 + BLOCK_ALIAS_MAX) /* names of tensors have at most 1024 bytes */
size_t res_tensor_key(const struct res_model *m, const struct weights_entry *e,
                      char out[RES_KEY_MAX]);

/* ---- looking ---- */

struct res_model_info {
    uint64_t id;                           /* never used twice in a registry */
    const char *name, *role, *path, *part; /* borrowed until the model goes */
    enum dtype converted;                  /* to this type; DT_NONE: as the file has it */
    const char *wide;                      /* res_open_args.wide; borrowed likewise; NULL: none */
    uint64_t wide_cols;
    uint64_t key; /* hash of the key */
    enum res_state state;
    enum res_retention retention;
    bool plan_by_hand; /* res_plan_by_hand() */
    unsigned handles, uses, anchors, anchor[RES_ANCHOR_COUNT];
    size_t blocks, patches, demoted;       /* demoted: blocks away from home */
    uint64_t bytes;                        /* of the model */
    uint64_t resident;                     /* bytes in memory, on all devices */
    uint64_t last_use;                     /* clock_mono_ns */
    uint64_t loads, read, moved, attached; /* so far: loads, bytes, bytes, times re-attached */
};
struct res_model_info res_info(const struct res_model *m);
uint64_t res_bytes_on(const struct res_model *m, size_t device); /* blocks' bytes, by set index */
/* Where a block is and should be, whatever the model's state. */
struct res_block_place {
    size_t device, home; /* indices in the set; device RES_NO_DEVICE: it has no memory */
    uint64_t bytes;
};
#define RES_NO_DEVICE SIZE_MAX
struct res_block_place res_block_place(const struct res_model *m, size_t block);
const struct weights *res_weights(const struct res_model *m); /* borrowed; the open file */
const struct blocks *res_blocks(const struct res_model *m);   /* borrowed */
const struct plan *res_plan(const struct res_model *m);       /* borrowed until res_replan() */
struct device *res_compute(const struct res_model *m); /* borrowed; the plan's compute device */
struct devset *res_devices(const struct residency *r); /* borrowed: those of the config */
size_t res_model_count(const struct residency *r);
struct res_model *res_model_at(const struct residency *r, size_t i); /* borrowed; oldest first */
struct res_model *res_model_by_id(const struct residency *r, uint64_t id); /* NULL: none */

struct res_metrics { /* counters since residency_new() */
    uint64_t loads, load_failures, attaches, ejects, frees, demotions, demoted_bytes, moved_bytes,
        read_bytes, resets, pressure_resets, retention_violations;
};
struct res_metrics res_metrics(const struct residency *r);

struct res_streamed { /* by all models since residency_new() */
    uint64_t bytes, copy_ns, exposed_ns;
};
struct res_streamed res_streamed(struct residency *r); /* any thread, while layers run too */

/* BERTH_EDEVICE naming the broken invariant and the model. */
berth_status res_check(struct residency *r, berth_err *err);

/* ---- memory for everybody else ---- */

struct res_alloc_args {
    struct device *dev;
    struct dev_owner *owner;
    size_t bytes;
    const struct res_model *for_model; /* is not evicted for it; may be NULL */
};
/* dev_alloc() that evicts others where it must: for activations, staging and weights alike. evict.c
 * says who goes, in which order. */
berth_status res_alloc(struct residency *r, const struct res_alloc_args *args, struct dev_mem *out,
                       berth_err *err);
/* The last resort before BERTH_ENODEVMEM, for whoever computes with m and found no room: m's own
 * blocks leave its compute device for its donors or the host, the last in execution order first,
 * until `wanted` bytes are free there. One block at a time, so ask again, where so many are free
 * already and were not enough, and where others have to leave for it. They come home with a later
 * res_load(). Keep models, too: nothing is lost. Returns the bytes that left; 0 while m is in use,
 * and when evicting everything evictable would not be enough. */
uint64_t res_evict_own(struct res_model *m, uint64_t wanted);

/* ---- free ----
 * unload_models, or free_memory which implies it:
 *   some resident model is eject   exactly those go; keep and auto stay, anchored
 *   none is                        auto models lose their anchors and go, on every device; keep
 *                                  models are not touched (RES_UNFLAGGED_UNLOAD: they go too)
 *   force                          everything goes
 *   automatic (after a prompt)     the eject models go; if there is none nothing happens to models,
 *                                  not even to their anchors (with free_memory they get them)
 *   models named                   those go, except keep ones (kept, and the receipt says so)
 * With selectors the table is about the selected models; all others stay. A model in use stays, and
 * the receipt says so. force and naming a model imply unload_models; with no flag at all memory is
 * trimmed and models are left alone. auto models that stay get RES_ANCHOR_SURVIVED and eject ones
 * RES_ANCHOR_MARKED, so that the reset takes no model that was not selected; except for those in
 * use that were to go: the use holds them. A dry run says of every model what the free does. What
 * went loses RES_ANCHOR_SURVIVED; with a handle it stays known, EJECTED. So do models a row means
 * that have no bytes any more.
 * Steps   1 unload  2 executor reset (free_memory)  3 models nobody owns any more
 *         4 trim every pool on every device, host pages to the OS  5 receipt
 *         Snapshots general pre-unload, post-unload, post-reset, post-soft-empty, always all four;
 *         pre-empty:<dev> and post-empty:<dev> around each device's trim; executor_reset
 *         pre-trigger (<reason>) and post-trigger (<reason>) around the reset callback. After each
 *         step every retained model is checked to be alive at its old addresses. One that is not:
 *         an ERROR line naming model, step and address, a counter, an entry in the receipt; one
 *         that is gone has verdict failed, "gone in step <s>". */

/* Tiers: which kinds of memory a free may touch. A model's blocks in pinned memory belong to
 * WEIGHTS. STAGING, ACTIVATIONS and PINNED are given back by whoever has them and select nothing of
 * their own: alone, neither models nor pools are touched. */
enum {
    RES_TIER_WEIGHTS = 1 << DEV_WEIGHTS,
    RES_TIER_STAGING = 1 << DEV_STAGING,
    RES_TIER_ACTIVATIONS = 1 << DEV_ACTIVATIONS,
    RES_TIER_PINNED = 1 << DEV_PINNED,
    RES_TIER_IDLE = 1 << DEV_POOL_IDLE,
    RES_TIER_ALL = (1 << DEV_KIND_COUNT) - 1,
};

struct res_free_args {
    bool unload_models, free_memory, force, automatic;
    bool dry_run; /* the receipt says what would happen; nothing does, no snapshot, serial 0 */
    /* With dry_run: what would happen to the models that are there when the running prompt has
     * ended, which is when requested frees act. Its uses and loads are over then, nothing
     * lingers. */
    bool after_prompt;
    bool wait; /* wait for memory that queued work still reads, so that it is counted as freed */
    const char *const *models; /* ids ("7"), names, or both ("flux#7"); 0 of them: all */
    size_t models_n;
    const char *const *devices; /* only models with bytes there, and only these are trimmed */
    size_t devices_n;
    unsigned tiers; /* RES_TIER_*; 0: all. Without WEIGHTS no model goes, without IDLE no trim */
    const char *reason; /* for the log and the receipt; NULL: "free" */
};

enum res_verdict { RES_EJECTED_BY_FREE, RES_KEPT, RES_BUSY, RES_FAILED };
const char *res_verdict_name(enum res_verdict v); /* "ejected", "kept", "busy", "failed" */
struct res_receipt_model {
    uint64_t id;
    const char *name, *role;
    enum dtype converted; /* to this type; DT_NONE: as the file has it */
    enum res_retention retention;
    enum res_verdict verdict;
    const char *why;      /* "marked eject", "marked keep", "auto: others were marked", ... */
    uint64_t bytes;       /* freed, or still resident */
    uint64_t read, moved; /* bytes during this free; 0 of a kept one */
};
struct res_receipt_device {
    const char *name;
    uint64_t before[DEV_KIND_COUNT], after[DEV_KIND_COUNT]; /* bytes by tier */
    uint64_t released; /* no longer held: back at the driver or OS */
};
struct res_receipt_violation {
    const struct res_receipt_model *of; /* its line of this receipt */
    const char *step, *block;
    uint64_t was, is; /* addresses */
    bool gone;        /* it has no bytes any more: is 0, and the address was its first block's */
};
struct res_receipt {
    struct arena mem; /* everything below */
    uint64_t serial;  /* 1.. */
    const char *reason;
    bool unload_models, free_memory, force, automatic, dry_run;
    unsigned tiers; /* those that were selected */
    struct res_receipt_model *model;
    size_t models;
    struct res_receipt_device *device;
    size_t devices;
    struct res_receipt_violation *violation;
    size_t violations;
    uint64_t rss_before, rss_after; /* of the process; 0: not known */
    uint64_t ns;                    /* how long it took */
};
/* out (may be NULL): res_receipt_release(), also after an error. A failure to unload one model is
 * an entry in the receipt, the rest goes on. BERTH_ENOMEM comes before anything was changed.
 * BERTH_ENOTFOUND: a selector that names nothing, and what there is; BERTH_EBUSY: called from
 * inside the reset callback. */
berth_status res_free(struct residency *r, const struct res_free_args *args,
                      struct res_receipt *out, berth_err *err);
void res_receipt_release(struct res_receipt *x);                     /* zeroed is fine */
void res_receipt_json(const struct res_receipt *x, struct str *out); /* one object, one line */
void res_receipt_text(const struct res_receipt *x, struct str *out); /* for people */

/* Both flags, as ComfyUI-Manager's button. No prompt runs: at once. One runs: with force right
 * after it, else not at all, and the summary ends with "skipped: a prompt runs". force is about the
 * prompt alone, it is not the free's: keep models stay. From inside the reset callback: requested.
 * summary (may be NULL) gets one line: reason, resident models before -> after, cpu delta in MB.
 * Snapshots full_cleanup start:<reason> and, unless skipped, requested:<reason>. */
berth_status res_force_full_cleanup(struct residency *r, const char *reason, bool force,
                                    struct str *summary, berth_err *err);

/* ---- prompts, and the one queue of what waits for their end ---- */

/* Any thread: a free for the end of the running prompt, or for the next res_settle(). These are
 * flags: several in a row add up to one free. It comes behind requests that were posted before it
 * and in front of those posted after it. Its receipt is that of res_prompt_end() or
 * res_settle(). */
void res_request_free(struct residency *r, bool unload_models, bool free_memory, bool force);

/* Any thread: anything else that must not happen under running nodes, in the order of requests: a
 * free with selectors, a new plan. Embed it; it is the queue's until run(). */
struct res_request {
    struct res_request *next; /* the queue's, */
    unsigned asked_before;    /* and so are these: flags of a free that comes before it */
    /* Executor thread, exactly once; then it is the caller's again. canceled: only answer. */
    void (*run)(struct res_request *q, bool canceled);
    bool quick;     /* leaves a running prompt alone: runs during one, too */
    uint64_t model; /* runs after earlier requests about this model; 0: about none */
};
void res_request(struct residency *r, struct res_request *q);

bool res_has_requests(const struct residency *r);
/* Runs those that wait, up to the first behind a free; while a prompt runs only the quick ones. */
void res_run_requests(struct residency *r);
void res_cancel_requests(struct residency *r); /* all of them; flags are forgotten */

void res_prompt_begin(struct residency *r);
/* The last node has run, and nobody has been told yet. Requests from here on wait until the
 * prompt's own cleanup is done. Call it if you free between the last node and res_prompt_end(),
 * which else does it: a model that lingers for the prompt would count as one that stayed. */
void res_prompt_done(struct residency *r);
/* Ends the prompt and settles: requests in order, up to the first free that flags ask for; that
 * free, else the automatic cleanup when an eject model was used; then, if that did not reset the
 * executor, the pressure check and the reset it asks for. Requests behind the free wait for the
 * next res_settle(): ask res_has_requests(). out (may be NULL): the receipt of the last free of
 * these, zeroed when there was none. Flags whose free failed stay. BERTH_EBUSY: called from inside
 * the reset callback. */
berth_status res_prompt_end(struct residency *r, struct res_receipt *out, berth_err *err);
/* The same between prompts, without the automatic cleanup; nothing while one runs. */
berth_status res_settle(struct residency *r, struct res_receipt *out, berth_err *err);

/* ---- pressure ---- */
enum res_pressure { RES_PRESSURE_LOW, RES_PRESSURE_BAND, RES_PRESSURE_RESET };
/* Looks at the host's memory (cgroup limits count where they are lower), through `cpu` or, in a set
 * without it, any host-visible device; with none usage is 0. Above the threshold: within the
 * hysteresis of the last reset's usage a snapshot (RES_PRESSURE_BAND), else a reset is requested
 * (RES_PRESSURE_RESET), and the receipt's reason is "pressure". Re-arms below threshold -
 * hysteresis and after a reset that brought usage below the threshold. percent (may be NULL):
 * usage. */
berth_status res_pressure_check(struct residency *r, enum res_pressure *out, double *percent,
                                berth_err *err);

/* ---- streaming (stream/stream.h) ---- */

struct stream;
struct stream_config;
/* A stream over the model's blocks, items in execution order (item i is block i), to the device
 * that computes. It holds a use: until stream_close() no block moves and the model cannot go. The
 * ring is got with res_alloc(), staging is booked on the host; both as "stream of <model>". A model
 * whose blocks all lie where it computes: a stream that holds and moves nothing.
 *   cfg  NULL: defaults; clock and log default to the registry's
 * BERTH_EINVAL: not resident; else as stream_open(). */
berth_status res_stream_open(struct res_model *m, const struct stream_config *cfg,
                             struct stream **out, berth_err *err);
