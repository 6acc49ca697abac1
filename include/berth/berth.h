/* berth.h: the whole public face of libberth.
 *
 * Conventions  Functions that can fail return berth_status (0 is fine) and take `berth_err *err`
 *              last. `err` is never NULL and is meaningful only after a failure.
 * Threads      Everything here is safe to call from any thread unless its comment says otherwise.
 * Versions     Structs that begin with their size may grow: fields that a program built with an
 *              older header does not know are taken as zero, and one that sets fields which the
 *              library does not know gets BERTH_EUNSUPPORTED. berth_err keeps its size. Until 1.0
 *              the other structs may grow between minor versions: build against the header that
 *              came with the library. */
#ifndef BERTH_BERTH_H
#define BERTH_BERTH_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define BERTH_API __attribute__((visibility("default")))

/* What programs branch on. One list gives the enum, the names and the texts. */
#define BERTH_STATUS_MAP(X)                                                                        \
    X(OK, "fine")                                                                                  \
    X(ENOMEM, "out of host memory")                                                                \
    X(ENODEVMEM, "out of device memory")                                                           \
    X(EINVAL, "invalid argument")                                                                  \
    X(EFORMAT, "malformed data")                                                                   \
    X(ELIMIT, "over a limit")                                                                      \
    X(EIO, "input/output error")                                                                   \
    X(ENOTFOUND, "not found")                                                                      \
    X(EUNSUPPORTED, "not supported")                                                               \
    X(EDEVICE, "device error")                                                                     \
    X(ECANCELED, "canceled")                                                                       \
    X(EBUSY, "busy")

typedef enum berth_status {
#define BERTH_STATUS_ENUM(name, text) BERTH_##name,
    BERTH_STATUS_MAP(BERTH_STATUS_ENUM)
#undef BERTH_STATUS_ENUM
} berth_status;

/* Fixed size, so that running out of memory can be reported too. */
typedef struct berth_err {
    berth_status code;
    int native;       /* errno, CUresult, SQLite code; 0 if none */
    const char *file; /* where it was first noticed */
    int line;
    char msg[512]; /* what people read, outermost context first */
    /* The same for programs, which need not take msg apart. */
    const char *subject;      /* the input or option that was wrong: "devices"; NULL: not said */
    char device[32];          /* "cuda:0"; "": none */
    uint64_t number;          /* of that: bytes that were wanted */
    unsigned short names;     /* how many of name[] are set */
    struct berth_err_name {   /* what msg quotes, as '...': files, tensors, nodes */
        unsigned short at, n; /* bytes msg[at] to msg[at + n] */
    } name[16];
    unsigned short cause;      /* msg + cause: what was noticed first, without contexts */
    unsigned short subject_at; /* msg + subject_at: where subject stands, if it is in msg */
    char reserved[114];        /* for what comes later: the size of an error stays the same */
} berth_err;

BERTH_API const char *berth_version(void);               /* "0.1.0" */
BERTH_API const char *berth_status_name(berth_status s); /* "ENOMEM"; "?" when unknown */
BERTH_API const char *berth_status_text(berth_status s); /* "out of host memory" */

/* Log ----------------------------------------------------------------------------------------- */

typedef enum berth_log_level {
    BERTH_LOG_DEBUG,
    BERTH_LOG_INFO,
    BERTH_LOG_WARN,
    BERTH_LOG_ERROR,
    BERTH_LOG_OFF,
} berth_log_level;

/* One finished event: a dotted name ("dev.open") and its key=value text, both borrowed for the
 * call. wall_ns counts from 1970-01-01 UTC. Called from any thread, maybe several at once. */
typedef void berth_log_fn(void *user, berth_log_level level, uint64_t wall_ns, const char *event,
                          const char *text);

/* Context -------------------------------------------------------------------------------------
 * Everything hangs off a context; two of them in one process do not know each other. */

typedef struct berth_ctx berth_ctx;

/* Snapshots and violations as JSON lines, in ComfyUI-MultiGPU's format. */
typedef struct berth_json_log {
    const char *path;   /* NULL: none. Opened, and its folders made, with the first record */
    const char *level;  /* CRITICAL, ERROR, WARNING, FOCUS, INFO, DEBUG or a number; else FOCUS */
    int append;         /* else an existing file is emptied */
    const char *fields; /* a JSON object merged into every record; NULL, or not one: none */
    /* The running workflow's or prompt's id, asked per record on its thread; may return NULL. */
    const char *(*id)(void *user, int workflow);
    void *user;
} berth_json_log;

/* Every field's zero is its default. Borrowed for berth_ctx_new(), except what log_user and
 * json_log.user point at, which outlives the context. */
typedef struct berth_config { /* { .size = sizeof(berth_config) } */
    size_t size;
    /* What to open, e.g. "cpu=16g,null:0=24g,cuda:1@cuda:0=40g": name[@physical][=budget], ...
     * NULL or "": every real device of this machine, each with all of its memory. */
    const char *devices;
    berth_log_fn *log; /* NULL: silent */
    void *log_user;
    berth_log_level log_level; /* events below are dropped */
    /* Threads that read and convert weights; 0: one per core this process may use (a container's
     * CPU quota counts). */
    uint32_t threads;
    /* The most host memory the context may hold: the budget of `cpu` when `devices` names none for
     * it; 0: all of it. With `devices` given, say cpu=16g there (BERTH_EINVAL if both do). */
    uint64_t ram_budget;
    /* Which NVIDIA cards are seen, by the driver's numbers: "1", or "2,0"; the first is cuda:0.
     * "2,*": card 2, then the others. NULL: all. BERTH_EUNSUPPORTED: one of them is not there. */
    const char *cuda_cards;
    const char *cuda_library; /* of the NVIDIA driver; NULL: "libcuda.so.1" */
    /* The most pinned host memory for weights, which copies at the full speed of the link; blocks
     * in RAM beyond it are copied through pinned staging. 0: a quarter of the host's budget. */
    uint64_t pin_budget;
#define BERTH_NO_PINS UINT64_MAX
    uint64_t reserve; /* kept free for activations by automatic plans; 0: about 1.2 GiB */
    /* A free that finds no model marked eject: 0, keep models stay; 1, they go too. */
    int unload_when_unflagged;
    int keep_ejectable;      /* no automatic free of eject models after the prompt that used them */
    double pressure_percent; /* host memory in use that asks for an executor reset; 0: 85 */
    /* The executor's reset, called by frees with free_memory: drop cached results and close the
     * handles they hold; berth_model_close() may be called from here. NULL: there is none. */
    void (*reset)(void *user);
    void *reset_user;
    int log_snapshots; /* memory snapshots go to the log too, as lines people's tools read */
    berth_json_log json_log;
} berth_config;

/* Opens the devices named in cfg (NULL: all defaults).
 *   out  owned by the caller, berth_ctx_free(); NULL on error
 * BERTH_EINVAL: the device text is malformed, or size is not set; BERTH_EUNSUPPORTED: a device this
 * build or machine does not have, the message lists what is there; BERTH_ELIMIT: budgets beyond the
 * memory. */
BERTH_API berth_status berth_ctx_new(const berth_config *cfg, berth_ctx **out, berth_err *err);
/* NULL is fine. pre: no other call on ctx runs, every model handle is closed. Kept models go. */
BERTH_API void berth_ctx_free(berth_ctx *ctx);

/* Devices ------------------------------------------------------------------------------------- */

/* What a device can do; bit and word come from one list. */
#define BERTH_CAP_MAP(X)                                                                           \
    X(HOST_VISIBLE, 0, "host-visible") /* its memory is host memory: the CPU may touch it */       \
    X(ASYNC, 1, "async")               /* streams run by themselves */                             \
    X(PINNED, 2, "pinned")             /* hands out pinned host memory */                          \
    X(PEER, 3, "peer")                 /* may copy straight to another device of its kind */       \
    X(LAUNCH, 4, "launch")             /* runs host functions in stream order */

enum {
#define BERTH_CAP_ENUM(name, bit, text) BERTH_CAP_##name = 1 << (bit),
    BERTH_CAP_MAP(BERTH_CAP_ENUM)
#undef BERTH_CAP_ENUM
};

#define BERTH_DEVICE_NAME_MAX 24
#define BERTH_DEVICE_MODEL_MAX 96

/* One moment of one device. Bytes throughout.
 *   in_use + idle + pinned <= budget (pinned: of host memory), and together they are what the
 *   device holds of its physical one: weights in RAM of a model that computes on a card are
 *   pinned. */
typedef struct berth_device_info {
    char name[BERTH_DEVICE_NAME_MAX];     /* "cuda:1": what plans and workflows call it */
    char kind[BERTH_DEVICE_NAME_MAX];     /* "cpu", "null": which driver moves its bytes */
    char physical[BERTH_DEVICE_NAME_MAX]; /* "cuda:0": whose memory it is; often equal to name */
    char model[BERTH_DEVICE_MODEL_MAX];   /* of the physical device: "NVIDIA H200"; "": unknown */
    char caps_text[96];                   /* "host-visible async", the words of caps */
    uint32_t caps;                        /* BERTH_CAP_* bits */
    uint64_t total;                       /* of the physical device */
    uint64_t free;                        /* of the physical device, as its driver says now */
    uint64_t budget;                      /* the most this device may hold */
    uint64_t in_use;                      /* handed out, rounded up to the alignment */
    uint64_t idle;                        /* cached by the pool, ready for reuse */
    uint64_t peak;                        /* highest in_use so far */
    uint64_t pinned; /* host memory for copies on its account; counts against the budget, too */
} berth_device_info;

BERTH_API size_t berth_ctx_device_count(const berth_ctx *ctx);
/* index: 0 .. count-1, in the order they were asked for; BERTH_EINVAL beyond. May ask the
 * driver. */
BERTH_API berth_status berth_ctx_device_info(berth_ctx *ctx, size_t index, berth_device_info *out,
                                             berth_err *err);
/* BERTH_ENOTFOUND lists the names there are. */
BERTH_API berth_status berth_ctx_device_find(const berth_ctx *ctx, const char *name, size_t *index,
                                             berth_err *err);
/* The index-th kind of device that could be here and is not: "cuda", and why, for people. Texts are
 * borrowed from ctx. 0: there are no more. */
BERTH_API int berth_ctx_absent(const berth_ctx *ctx, size_t index, const char **kind,
                               const char **why);

/* Plans ---------------------------------------------------------------------------------------
 * Which block of a model goes where, in exact bytes. Making one reads the file's index only. */

typedef enum berth_retention { BERTH_AUTO, BERTH_KEEP, BERTH_EJECT } berth_retention;

typedef enum berth_layout {
    BERTH_SPREAD, /* each device's blocks interleaved over the execution order */
    BERTH_TAIL,   /* filled from the last block to the first, as ComfyUI-MultiGPU does */
} berth_layout;

/* What a model is. Start from { .path = ... }; everything is borrowed for the call. */
typedef struct berth_model_config {
    const char *path;
    const char *part; /* prefix of its tensors, "model.diffusion_model."; NULL: the whole file */
    const char *name; /* for people; NULL: the file's name */
    const char *role; /* "unet", "clip", "vae": how snapshots call it; NULL: "model" */
    /* "cuda:0,2.5gb;cuda:1,3.0g;cpu,*", "#cuda:0;4.0;cpu" ...; NULL or "": automatic */
    const char *alloc;
    const char *compute; /* where it computes if alloc does not say; NULL: the first accelerator */
    berth_layout layout;
    berth_retention retention;
    int eject_others; /* others leave the compute device before its first load */
    /* What adapters change of fp8 weights is kept as F16 or BF16 instead of being rounded to fp8
     * again: exact, but those blocks take twice the memory. */
    int high_precision;
    /* "F8_E4M3" or "F8_E5M2" (or "fp8_e4m3fn", "fp8_e5m2", as ComfyUI calls them): the weights are
     * converted to it as they are read, one byte each, and planned and booked so. "F16": F32 ones
     * are, others stay. Another model than the same file as it is. NULL or "": as the file has
     * them. BERTH_EINVAL: an unknown word; BERTH_EUNSUPPORTED: a GGUF file, whatever its types. */
    const char *dtype;
} berth_model_config;

typedef struct berth_plan berth_plan; /* constant once made; any thread */

/* hypothetical: devices to plan for, e.g. "cuda:0=24g,cpu=64g", ctx may then be NULL; NULL: ctx's.
 *   out  berth_plan_free()
 * BERTH_EINVAL names the entry of the string that is wrong for these devices, as ComfyUI's users
 * know the input: "expert_mode_allocations: ..."; BERTH_ELIMIT: does not fit, in numbers. */
BERTH_API berth_status berth_plan_make(berth_ctx *ctx, const berth_model_config *cfg,
                                       const char *hypothetical, berth_plan **out, berth_err *err);
BERTH_API void berth_plan_free(berth_plan *p); /* NULL is fine */

typedef struct berth_plan_device {
    const char *device; /* borrowed from the plan, as all texts here */
    uint64_t bytes, blocks;
    double share; /* of the model's bytes */
} berth_plan_device;
typedef struct berth_plan_block { /* in execution order */
    const char *name;
    uint64_t bytes;
    const char *device;
} berth_plan_block;

BERTH_API uint64_t berth_plan_bytes(const berth_plan *p);
BERTH_API const char *berth_plan_compute(const berth_plan *p);
BERTH_API const char *berth_plan_string(const berth_plan *p); /* gives the same plan again */
BERTH_API size_t berth_plan_device_count(const berth_plan *p);
BERTH_API size_t berth_plan_block_count(const berth_plan *p);
/* BERTH_EINVAL beyond the count. */
BERTH_API berth_status berth_plan_device_at(const berth_plan *p, size_t index,
                                            berth_plan_device *out, berth_err *err);
BERTH_API berth_status berth_plan_block_at(const berth_plan *p, size_t index, berth_plan_block *out,
                                           berth_err *err);

/* Models --------------------------------------------------------------------------------------
 * A berth_model is a handle. The model behind it is shared by all handles that were opened with the
 * same file, part and plan, and outlives them while it is anchored: kept models are, and models
 * that survived a free. Opening it again then reads and moves nothing. Calls on one context wait
 * for each other, so a question about a model waits for a load that runs; from inside a callback
 * they fail with BERTH_EBUSY, except berth_model_close(), berth_model_cancel() and
 * berth_request_free(). */

typedef struct berth_model berth_model;

/* Indexes the file and plans; loads nothing. A known model is attached to, and its
 * retention becomes cfg's unless that is BERTH_AUTO; if nobody held it, its adapters are none until
 * set again. One that nobody holds, of the same file but with another plan, is taken over and its
 * blocks move to the new plan; that can fail for want of room.
 *   out  berth_model_close() */
BERTH_API berth_status berth_model_open(berth_ctx *ctx, const berth_model_config *cfg,
                                        berth_model **out, berth_err *err);
/* NULL is fine. Frees the model's memory if nobody else holds it. pre: no other call on m runs. */
BERTH_API void berth_model_close(berth_model *m);

typedef void berth_progress_fn(void *user, uint64_t done, uint64_t total); /* bytes */
typedef struct berth_load_config {                                         /* { 0 }: defaults */
    berth_progress_fn *progress; /* called on the loading thread */
    void *progress_user;
    int evict_keep; /* when nothing else makes room, kept models may go */
} berth_load_config;
typedef struct berth_load_result {
    uint64_t read, moved; /* bytes from the file; bytes copied between memories */
    uint64_t demoted;     /* blocks that are resident but not where the plan wants them: no room */
    int was_resident;
} berth_load_result;
/* Brings every block to its device, adapters merged. A resident model: 0 read, 0 moved, but blocks
 * that had to leave for others come home as far as there is room now. cfg and result may be NULL. A
 * failure leaves the model as it was and names block, device and bytes. */
BERTH_API berth_status berth_model_load(berth_model *m, const berth_load_config *cfg,
                                        berth_load_result *result, berth_err *err);
/* A load through m that runs, or waits for its turn, ends with BERTH_ECANCELED; without one nothing
 * happens. Any thread, callbacks too. */
BERTH_API void berth_model_cancel(berth_model *m);

/* Between these two no block of m moves. pre: resident, adapters merged (BERTH_EINVAL). */
BERTH_API berth_status berth_model_use_begin(berth_model *m, berth_err *err);
BERTH_API void berth_model_use_end(berth_model *m);

/* Its memory goes, on every device; the next load reads it again. BERTH_EBUSY: in use. */
BERTH_API berth_status berth_model_eject(berth_model *m, berth_err *err);
BERTH_API berth_status berth_model_set_retention(berth_model *m, berth_retention retention,
                                                 berth_err *err);
/* Moves only the blocks whose device changes. alloc, compute: as in berth_model_config. From
 * here on the model is found by the new plan. After a failure the old plan stands; blocks that
 * moved already count as demoted, and the next load brings them home. BERTH_EBUSY: another model
 * has that plan. With adapters, and from the cpu to a card or back, it has to be loaded before it
 * is used: blocks of 16-bit types that they touch are F32 for the cpu. */
BERTH_API berth_status berth_model_replan(berth_model *m, const char *alloc, const char *compute,
                                          berth_layout layout, berth_load_result *result,
                                          berth_err *err);

#define BERTH_MODEL_NAME_MAX 128
#define BERTH_MODEL_ANCHORS_MAX 160
typedef struct berth_model_info {
    uint64_t id;  /* never used twice in a context */
    uint64_t key; /* of file and plan; snapshots name a model by its first eight hex digits */
    char name[BERTH_MODEL_NAME_MAX];
    char state[16];     /* "registered", "loading", "resident", "ejected" */
    char retention[16]; /* "auto", "keep", "eject" */
    char anchors
        [BERTH_MODEL_ANCHORS_MAX]; /* why it stays without handles: "marked keep x1"; or "" */
    uint64_t handles, blocks, demoted, adapters;
    uint64_t bytes, resident;              /* of the model; in memory now, on all devices */
    uint64_t loads, read, moved, attached; /* so far; attached: re-used without loading, times */
} berth_model_info;
BERTH_API berth_status berth_model_get_info(berth_model *m, berth_model_info *out, berth_err *err);
/* All models the context knows, those without a handle too. index: 0 .. count-1, oldest first. */
BERTH_API size_t berth_ctx_model_count(berth_ctx *ctx); /* 0 from inside a callback */
BERTH_API berth_status berth_ctx_model_info(berth_ctx *ctx, size_t index, berth_model_info *out,
                                            berth_err *err);

/* Retention of a model by its id: kept ones may have no handle. eject: it goes with the next free,
 * or before that as an auto one would: with its last handle, or when room is needed.
 * BERTH_ENOTFOUND: no such model. */
BERTH_API berth_status berth_ctx_set_retention(berth_ctx *ctx, uint64_t id,
                                               berth_retention retention, berth_err *err);

typedef struct berth_block_info {
    const char *name;                   /* borrowed until the model goes */
    char device[BERTH_DEVICE_NAME_MAX]; /* where it is; "" nowhere */
    char home[BERTH_DEVICE_NAME_MAX];   /* where the plan wants it */
    uint64_t bytes, address;
} berth_block_info;
/* index: 0 .. info.blocks-1, in execution order. */
BERTH_API berth_status berth_model_block(berth_model *m, size_t index, berth_block_info *out,
                                         berth_err *err);
/* XXH64 over the weights as they are in memory. pre: resident. */
BERTH_API berth_status berth_model_checksum(berth_model *m, uint64_t *out, berth_err *err);

/* Adapters (LoRA) ------------------------------------------------------------------------------
 * Merged into the weights by the next load, in the order given; only the blocks they touch are
 * derived again. */

typedef struct berth_adapter berth_adapter;
/* For m and for every model of the same network, in whatever file: opened on a checkpoint it
 * fits its UNet, the UNet in a file of its own, and its text encoders as far as the checkpoint has
 * them. What it knows nothing of it leaves as it is. Keys that match nothing are warned about in
 * the log. */
BERTH_API berth_status berth_adapter_open(berth_model *m, const char *path, berth_adapter **out,
                                          berth_err *err);
typedef struct berth_adapter_info {
    uint64_t targets; /* weights of the model it changes */
    uint64_t tensors; /* in its file */
    uint64_t unknown; /* of these, match nothing: for another part or another model */
} berth_adapter_info;
BERTH_API void berth_adapter_get_info(const berth_adapter *a, berth_adapter_info *out);
BERTH_API void berth_adapter_close(berth_adapter *a); /* NULL is fine; models keep what they use */
typedef struct berth_adapter_use {
    berth_adapter *adapter;
    float strength;
} berth_adapter_use;
/* Of the model, whichever handle sets them: all its handles share one set of weights.
 * use may be NULL when count is 0: none. BERTH_EINVAL: a strength that is no finite number. */
BERTH_API berth_status berth_model_set_adapters(berth_model *m, const berth_adapter_use *use,
                                                size_t count, berth_err *err);

/* Free ----------------------------------------------------------------------------------------
 *   some resident model is eject   exactly those go; all others stay at their addresses
 *   none is                        auto models go, on every device; keep models are not touched
 *   force                          everything goes
 * models, devices and tiers narrow that down: what they leave out stays, marked or not. A dry run
 * says of every model what the free does.
 * Then idle memory goes back to drivers and OS, on every device. berth_free() acts at once,
 * whatever runs; models in use stay. berth_request_free() is for the end of the running prompt. */

typedef struct berth_free_config {  /* { .unload_models = 1 } is the common one */
    int unload_models, free_memory; /* free_memory implies unload_models and resets the executor */
    int force, dry_run;
    int wait;                  /* for memory that queued work still reads */
    const char *const *models; /* names or ids; none: all */
    size_t model_count;
    const char *const *devices; /* none: all */
    size_t device_count;
    const char *tiers;  /* "weights,pool-idle"; NULL: all */
    const char *reason; /* for log and receipt */
} berth_free_config;

typedef struct berth_receipt berth_receipt; /* constant; any thread */
/* receipt (may be NULL): berth_receipt_free(). */
BERTH_API berth_status berth_free(berth_ctx *ctx, const berth_free_config *cfg,
                                  berth_receipt **receipt, berth_err *err);
BERTH_API const char *berth_receipt_text(const berth_receipt *r);  /* a table for people */
BERTH_API const char *berth_receipt_json(const berth_receipt *r);  /* one object on one line */
BERTH_API size_t berth_receipt_ejected(const berth_receipt *r);    /* models that went */
BERTH_API size_t berth_receipt_violations(const berth_receipt *r); /* kept ones that moved: 0 */
BERTH_API void berth_receipt_free(berth_receipt *r);               /* NULL is fine */

/* ComfyUI-Manager's "Free model and node cache": both flags. While a prompt runs it acts right
 * after it with force, and not at all without; force is about the prompt, kept models stay.
 *   summary  one line, berth_text_free(); may be NULL */
BERTH_API berth_status berth_force_full_cleanup(berth_ctx *ctx, const char *reason, int force,
                                                char **summary, berth_err *err);

/* Prompts: frees act between them. Requests are remembered by any thread at any time, callbacks
 * included, and acted on by the end of the prompt or by berth_settle(). */
BERTH_API void berth_request_free(berth_ctx *ctx, int unload_models, int free_memory, int force);
BERTH_API berth_status berth_prompt_begin(berth_ctx *ctx, berth_err *err); /* they do not nest */
/* A requested free, else the automatic one when an eject model was used in this prompt; then the
 * pressure of host memory. receipt (may be NULL): of the last free that ran; NULL if none did. */
BERTH_API berth_status berth_prompt_end(berth_ctx *ctx, berth_receipt **receipt, berth_err *err);
BERTH_API berth_status berth_settle(berth_ctx *ctx, berth_receipt **receipt, berth_err *err);

typedef struct berth_metrics { /* since the context was made */
    uint64_t loads, load_failures, attaches, ejects, frees, resets, pressure_resets;
    uint64_t demoted_blocks, demoted_bytes, moved_bytes, read_bytes;
    uint64_t retention_violations; /* kept models that did not stay: 0 */
} berth_metrics;
BERTH_API berth_status berth_ctx_metrics(berth_ctx *ctx, berth_metrics *out, berth_err *err);

/* Workflows -----------------------------------------------------------------------------------
 * An engine runs workflows in ComfyUI's API format over a context: its devices, budgets and models.
 *
 *     berth_engine_new() -> berth_run() as often as you like -> berth_engine_free()
 *
 * Results of nodes are kept between runs: a second run computes only what changed. A build with
 * BERTH_SERVER=OFF has none of these functions. */

typedef struct berth_engine berth_engine;

typedef struct berth_engine_config { /* { .size = sizeof(berth_engine_config), .base = ... } */
    size_t size;
    /* Root of models/ (checkpoints/, loras/, vae/ ... below it), input/, output/, temp/ and user/.
     * Required; a ComfyUI folder will do. Missing folders are created, except models/. */
    const char *base;
    const char *output, *input, *temp, *user; /* instead of those below base; NULL: those */
    const char *checkpoints;                  /* one more folder of checkpoints; NULL: none */
    const char *const *model_paths;           /* further folders: extra_model_paths.yaml files */
    size_t model_path_count;
    /* Folders to look for tokenizers in, before base/tokenizers. Models may bring their own. */
    const char *const *tokenizers;
    size_t tokenizer_count;
    int no_metadata;      /* saved files do not carry their workflow */
    int unload_after_run; /* models go with every run, except those marked keep */
    /* For a context of the engine's own: as in berth_config. */
    const char *devices;
    uint64_t ram_budget, pin_budget, reserve;
    uint32_t threads;
    berth_log_level log_level;
    berth_log_fn *log;
    void *log_user;
    /* An installed berth, which reads and writes files of video and sound for this program, one
     * process for each: "/usr/bin/berth". NULL: nodes that need one fail, and say so. */
    const char *media_helper;
} berth_engine_config;

/* ctx: where to run, one engine per context at a time (BERTH_EBUSY); it outlives the engine. NULL:
 * the engine makes one of its own, with the devices and budgets of cfg. While there is an engine, a
 * free with free_memory drops its cached results, then calls berth_config.reset.
 *   out  berth_engine_free() */
BERTH_API berth_status berth_engine_new(berth_ctx *ctx, const berth_engine_config *cfg,
                                        berth_engine **out, berth_err *err);
/* NULL is fine. pre: no run is in progress. */
BERTH_API void berth_engine_free(berth_engine *e);
BERTH_API berth_ctx *berth_engine_ctx(const berth_engine *e); /* its context; borrowed */

/* Stops a run that was given it. berth_flag_set(): any thread, callbacks and signal handlers. */
typedef struct berth_flag berth_flag;
BERTH_API berth_flag *berth_flag_new(void); /* not set; NULL: out of memory */
BERTH_API void berth_flag_set(berth_flag *f);
BERTH_API void berth_flag_free(berth_flag *f); /* NULL is fine */

/* What happens during a run. Arguments are borrowed for the call. Events arrive on the thread that
 * called berth_run(). */
typedef struct berth_node {
    size_t size;
    const char *id;         /* its key in the workflow: "5" */
    const char *class_type; /* "KSampler"; "" where the workflow names none */
} berth_node;

typedef struct berth_picture { /* 8 bits a channel, rows from the top without gaps */
    size_t size;
    uint32_t width, height, channels; /* 1, 3 or 4 channels */
    int is_output;                    /* a node's picture for the caller (SaveImageWebsocket), not
                                         a look at a sampling step */
    const uint8_t *pixels;
} berth_picture;

typedef struct berth_run_error {
    size_t size;
    berth_status code;
    const char *node;       /* its id; NULL: the error is not about a node */
    const char *class_type; /* of the node; NULL: unknown */
    const char *type;       /* "torch.OutOfMemoryError", "value_not_in_list": ComfyUI's name */
    const char *message;    /* for people */
    const char *json;       /* everything: ComfyUI's execution_error, or the validation error */
} berth_run_error;

typedef struct berth_events { /* { .size = sizeof(berth_events) }; NULL functions are skipped */
    size_t size;
    void *user;
    /* Nodes whose results are still cached and that will not run. */
    void (*cached)(void *user, const char *const *ids, size_t count);
    void (*node_begins)(void *user, const berth_node *node);
    void (*progress)(void *user, const berth_node *node, double value, double max);
    void (*preview)(void *user, const berth_node *node, const berth_picture *picture);
    void (*text)(void *user, const berth_node *node, const char *text, size_t bytes);
    /* The node's output as JSON: {"images": [{"filename","subfolder","type"}, ...]}, or null. */
    void (*executed)(void *user, const berth_node *node, const char *output);
    void (*node_ends)(void *user, const berth_node *node); /* not when it fails */
    /* Called for every error of a refused workflow, once for a failed run, never for a canceled
     * one. */
    void (*error)(void *user, const berth_run_error *error);
} berth_events;

typedef struct berth_run_config { /* { .size = sizeof(berth_run_config), .prompt = ... } */
    size_t size;
    /* JSON: what ComfyUI's Workflow > Export (API) writes, or {"prompt": that, "extra_data":..}. */
    const char *prompt;
    size_t prompt_bytes;        /* 0: it ends with a NUL */
    const char *id;             /* prompt_id in the JSON texts; NULL: "run" */
    const berth_events *events; /* NULL: none */
    const berth_flag *cancel;   /* ends the run with BERTH_ECANCELED once set; may be NULL */
    int previews;               /* events.preview gets a picture of every sampling step */
    int partial; /* run the valid outputs even if others are refused, as ComfyUI's server does;
                    0: run nothing then */
} berth_run_config;

typedef struct berth_result berth_result; /* constant; any thread */

/* Validates the workflow, runs it, then performs any free that was requested meanwhile. Holds the
 * context throughout: calls from other threads wait, calls from inside an event fail with
 * BERTH_EBUSY, except those documented as safe in callbacks (berth_request_free() and a few more).
 *   out  the outcome, also after a failure: berth_result_free(). NULL if the workflow could not be
 *        parsed. Pass NULL if you do not need it
 * BERTH_EINVAL: the workflow was refused; BERTH_ECANCELED: `cancel` was set; else the status of
 * the node that failed. err->msg names the node: "node 5 (KSampler): ...". BERTH_EBUSY: called
 * between berth_prompt_begin() and berth_prompt_end(). */
BERTH_API berth_status berth_run(berth_engine *e, const berth_run_config *cfg, berth_result **out,
                                 berth_err *err);
BERTH_API void berth_result_free(berth_result *r); /* NULL is fine */

/* Borrowed from the result, JSON: {node: what it shows}; ComfyUI's status of a history entry;
 * {node: {"errors": [...]}} of those that were refused. "{}" when there are none. */
BERTH_API const char *berth_result_outputs(const berth_result *r);
BERTH_API const char *berth_result_status(const berth_result *r);
BERTH_API const char *berth_result_node_errors(const berth_result *r);

typedef struct berth_output_file { /* borrowed from the result */
    size_t size;                   /* set by the caller */
    const char *node;              /* id of the node that wrote it */
    const char *path;              /* absolute */
    const char *kind;              /* "output", "temp" */
} berth_output_file;
BERTH_API size_t berth_result_file_count(const berth_result *r);
/* BERTH_EINVAL beyond the count. */
BERTH_API berth_status berth_result_file(const berth_result *r, size_t index,
                                         berth_output_file *out, berth_err *err);
/* Of the frees at the end of the run, in order; NULL beyond the count. Borrowed from the result. */
BERTH_API size_t berth_result_receipt_count(const berth_result *r);
BERTH_API const berth_receipt *berth_result_receipt(const berth_result *r, size_t index);
BERTH_API size_t berth_result_executed(const berth_result *r); /* nodes that ran */
BERTH_API size_t berth_result_cached(const berth_result *r);   /* nodes that did not need to */

/* Snapshots ------------------------------------------------------------------------------------
 * Used memory per device over time; every load and free adds some. */

/* From inside a callback nothing happens: the call that runs it takes its own. */
BERTH_API void berth_snapshot(berth_ctx *ctx, const char *identifier, const char *tag);
/* Texts are owned by the caller, berth_text_free(). Lines give used memory in GiB: of the physical
 * device, whoever uses it. */
BERTH_API berth_status berth_snapshot_summary(berth_ctx *ctx, char **out, berth_err *err);
/* JSON array of the snapshots after sequence number `after` (0: all that are kept). */
BERTH_API berth_status berth_snapshot_json(berth_ctx *ctx, uint64_t after, char **out,
                                           berth_err *err);
BERTH_API void berth_text_free(char *text); /* NULL is fine */

#ifdef __cplusplus
}
#endif
#endif
