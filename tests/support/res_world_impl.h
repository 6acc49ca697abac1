/* res_world_impl: what the files of the world share. */
#ifndef SUPPORT_RES_WORLD_IMPL_H
#define SUPPORT_RES_WORLD_IMPL_H

#include "residency/residency.h"
#include "support/clock_manual.h"
#include "support/null_hooks.h"
#include "support/res_world.h"

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#define KIB ((uint64_t)1 << 10)

/* ---- weight files: small whole numbers, so that every type and every patch is exact ---- */

#define FILES 4
#define FILE_TENSORS_MAX 24
#define BLOCKS_MAX 16

struct tensor_fact {
    char name[40];
    enum dtype dtype;
    struct shape shape;
    uint64_t count, bytes;
    float *base; /* [count] */
};

struct file_fact {
    char path[512];
    struct tensor_fact tensor[FILE_TENSORS_MAX];
    size_t n;
};

struct identity { /* what makes two opens the same but for their plan */
    size_t file;
    const char *part, *options, *name, *dtype;
    const struct block_arch *(*arch)(const struct weights *w, const char *part);
};
extern const struct identity identities[];
/* What a tensor of the file is held as. */
enum dtype held_as(const struct identity *id, const struct tensor_fact *t);
extern const size_t identities_n;

void files_make(void);       /* once per process */
const char *fake_root(void); /* for dev_env */
const struct file_fact *file_fact(size_t file);
void file_touch(size_t file); /* another time stamp: another file, as far as anybody can tell */
/* By full name; NULL: none. */
const struct tensor_fact *tensor_fact(size_t file, const char *name, size_t n);

/* ---- adapters, their effect in closed form ---- */

#define ADAPTERS 4
#define PATCHES_MAX 3
struct patch_list { /* in order; strength 0 and nothing is the same thing */
    struct {
        uint8_t adapter;
        int8_t strength;
    } at[PATCHES_MAX];
    size_t n;
};

struct world_adapter {
    struct res_adapter base;
    unsigned kind;
    unsigned *fail; /* countdown to a failing terms(); 0: none fails */
    unsigned *freed;
};
void adapters_make(struct world_adapter a[ADAPTERS], unsigned *fail, unsigned *freed);
bool adapter_touches(unsigned kind, const char *key, size_t n);
/* Does any patch of the list with a strength touch it? */
bool patches_touch(const struct patch_list *p, const char *key, size_t n);
/* want[count]: base values with the patches on top. */
void patched_values(const struct tensor_fact *t, const struct patch_list *p, float *want);
/* The same effect on this tensor? */
bool patches_same(const struct patch_list *a, const struct patch_list *b, const char *key,
                  size_t n);

/* ---- the naive model ---- */

#define PLAN_TEXT_MAX 96
struct naive_plan {            /* what was asked for */
    char alloc[PLAN_TEXT_MAX]; /* "": auto */
    size_t compute;            /* index in the set */
    enum plan_layout layout;
    uint64_t reserve;
};

struct naive {
    bool exists;
    struct res_model *m; /* valid while it exists */
    uint64_t id;
    size_t identity;
    unsigned generation; /* of its file when it was opened */
    struct naive_plan plan;
    enum res_state state;
    enum res_retention retention;
    unsigned held, cached; /* handles: the program's, the executor cache's */
    unsigned uses;
    unsigned anchor[RES_ANCHOR_COUNT];
    bool used_in_prompt, eject_others;
    struct patch_list patches;             /* as set */
    bool patches_changed;                  /* since the last load */
    struct patch_list applied[BLOCKS_MAX]; /* as merged, block by block; of a RESIDENT one */
    bool unsure[BLOCKS_MAX]; /* a load failed: `patches` may be merged already, with equal values */
    struct res_block_at at[BLOCKS_MAX]; /* where blocks were after the latest operation */
    size_t blocks;
    uint64_t bytes, key; /* as the registry says; they never change but for the key by a new plan */
    uint64_t attached;
};

#define MODELS_MAX 10
#define NOBODY MODELS_MAX
#define SCRATCH_MAX 4

enum { /* what an operation may do to models it is not about */
       MAY_EVICT = 1,
       MAY_EVICT_KEEP = 2, /* only together with MAY_EVICT */
       MAY_MOVE = 4,       /* the target's blocks may be elsewhere afterwards */
       MAY_EJECT_OTHERS = 8,
};

struct world {
    const uint8_t *record; /* of the running operation */
    size_t drawn;
    uint64_t mix;

    struct devset *set;
    size_t devices, host;
    struct clock_manual clock;
    struct residency *r;
    struct world_adapter adapter[ADAPTERS];
    unsigned terms_fail, adapters_freed;
    enum res_unflagged when_unflagged;
    bool auto_cleanup;
    struct tpool *pool;

    struct naive model[MODELS_MAX];
    bool prompt;
    unsigned requested; /* bits: 1 unload_models, 2 free_memory, 4 force */
    uint64_t last_id, last_serial;
    unsigned generation[FILES]; /* how often each file was touched in this sequence */
    struct dev_mem scratch[SCRATCH_MAX];
    struct dev_owner *scratch_owner[SCRATCH_MAX];
    unsigned resets; /* calls of the reset callback, all in all */
    struct {         /* what the registry's counters should say */
        uint64_t loads, attaches, frees;
    } count;

    bool fault; /* the running operation was told to fail somewhere */
    bool roomy; /* it cannot be short of memory anywhere */
    uint64_t hazards;
    char hazard[160];
    struct str *report;
    struct str trace;
    bool failed;
};

/* Records the first failure; always false. */
bool world_fail(struct world *w, const char *file, int line, const char *fmt, ...)
    PRINTF_LIKE(4, 5);
#define CHECK(w, so, ...)                                                                          \
    do {                                                                                           \
        if (!(so))                                                                                 \
            return world_fail(w, __FILE__, __LINE__, __VA_ARGS__);                                 \
    } while (0)

size_t draw(struct world *w, size_t n);                            /* [0, n), n > 0 */
void say(struct world *w, const char *fmt, ...) PRINTF_LIKE(2, 3); /* into the trace */

static inline unsigned naive_handles(const struct naive *n)
{
    return n->held + n->cached;
}
static inline unsigned naive_anchors(const struct naive *n)
{
    unsigned sum = 0;
    for (size_t i = 0; i < RES_ANCHOR_COUNT; i++)
        sum += n->anchor[i];
    return sum;
}
static inline bool naive_owned(const struct naive *n)
{
    bool retained = n->anchor[RES_ANCHOR_KEEP] || n->anchor[RES_ANCHOR_SURVIVED] ||
                    n->anchor[RES_ANCHOR_MARKED];
    return naive_handles(n) || n->uses || (retained && n->state == RES_RESIDENT);
}

/* res_world_naive.c */
/* After an operation about model `target` (NOBODY: none): learns what it was free to do, asserts
 * the rest. */
bool naive_compare(struct world *w, size_t target, unsigned may);
bool naive_contents(struct world *w,
                    struct naive *n); /* every tensor; also learns after failures */
bool plan_is_same(const struct naive_plan *a, const struct naive_plan *b);
void naive_eject(struct naive *n); /* RESIDENT -> EJECTED, when it was */
void naive_gone(struct naive *n);  /* nobody owns it any more: forget it */

/* res_world_ops.c and res_world_free.c: one operation each; false: the world failed */
bool do_open(struct world *w);
bool do_load(struct world *w);
bool do_ref(struct world *w);
bool do_unref(struct world *w);
bool do_use(struct world *w);
bool do_unuse(struct world *w);
bool do_eject(struct world *w);
bool do_retention(struct world *w);
bool do_replan(struct world *w);
bool do_patches(struct world *w);
bool do_scratch(struct world *w);
bool do_touch(struct world *w);
bool do_free(struct world *w);
bool do_prompt(struct world *w);
bool do_request(struct world *w);
bool do_settle(struct world *w);
bool do_cleanup(struct world *w);
void drop_cache(struct world *w); /* the executor's cache is emptied: its handles go */

/* Faults of the running operation: drawn and armed; disarmed afterwards. */
void fault_arm(struct world *w, bool can_cancel);
void fault_off(struct world *w);
/* An error is plausible: one of the codes, with a text; without a fault only of `codes`. */
bool error_ok(struct world *w, const berth_err *err, berth_status s, const berth_status *codes,
              size_t n);

#endif
