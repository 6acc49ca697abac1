/* berth.h: the whole public face of libberth.
 *
 * Conventions  Functions that can fail return berth_status (0 is fine) and take `berth_err *err`
 *              last. `err` is never NULL and is meaningful only after a failure.
 * Threads      Everything here is safe to call from any thread unless its comment says otherwise.
 * Versions     Until 1.0 structs may grow between minor versions: build against the header that
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

/* Start from { 0 }: every field's zero is its default. Borrowed for berth_ctx_new(), except what
 * log_user points at, which outlives the context. */
typedef struct berth_config {
    /* What to open, e.g. "cpu=16g,null:0=24g,cuda:1@cuda:0=40g": name[@physical][=budget], ...
     * NULL or "": every real device of this machine, each with all of its memory. */
    const char *devices;
    berth_log_fn *log; /* NULL: silent */
    void *log_user;
    berth_log_level log_level; /* events below are dropped */
} berth_config;

/* Opens the devices named in cfg (NULL: all defaults).
 *   out  owned by the caller, berth_ctx_free(); NULL on error
 * BERTH_EINVAL: the device text is malformed; BERTH_EUNSUPPORTED: a device this build or machine
 * does not have, the message lists what is there; BERTH_ELIMIT: budgets beyond the memory. */
BERTH_API berth_status berth_ctx_new(const berth_config *cfg, berth_ctx **out, berth_err *err);
/* NULL is fine. No other call on ctx may be running. */
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

/* One moment of one device. Bytes throughout.
 *   in_use + idle <= budget, and in_use + idle is what the device holds of its physical one. */
typedef struct berth_device_info {
    char name[BERTH_DEVICE_NAME_MAX];     /* "cuda:1": what plans and workflows call it */
    char kind[BERTH_DEVICE_NAME_MAX];     /* "cpu", "null": which driver moves its bytes */
    char physical[BERTH_DEVICE_NAME_MAX]; /* "cuda:0": whose memory it is; often equal to name */
    char caps_text[96];                   /* "host-visible async", the words of caps */
    uint32_t caps;                        /* BERTH_CAP_* bits */
    uint64_t total;                       /* of the physical device */
    uint64_t free;                        /* of the physical device, as its driver says now */
    uint64_t budget;                      /* the most this device may hold */
    uint64_t in_use;                      /* handed out, rounded up to the alignment */
    uint64_t idle;                        /* cached by the pool, ready for reuse */
    uint64_t peak;                        /* highest in_use so far */
    uint64_t pinned;                      /* host memory pinned on its account */
} berth_device_info;

BERTH_API size_t berth_ctx_device_count(const berth_ctx *ctx);
/* index: 0 .. count-1, in the order they were asked for; BERTH_EINVAL beyond. May ask the driver.
 */
BERTH_API berth_status berth_ctx_device_info(berth_ctx *ctx, size_t index, berth_device_info *out,
                                             berth_err *err);
/* BERTH_ENOTFOUND lists the names there are. */
BERTH_API berth_status berth_ctx_device_find(const berth_ctx *ctx, const char *name, size_t *index,
                                             berth_err *err);

#ifdef __cplusplus
}
#endif
#endif
