/* driver: the contract between device/ and one kind of hardware, device/<x>/<x>.c.
 *
 * Adding a device is that file, exporting `const struct dev_driver driver_x`, and one line in
 * devices.def. Nobody but device/ calls these slots; everybody else uses the doors in device.h.
 *
 * Words      phys      one physical device, opened once per set however many logical ones share it
 *            address   uint64_t in the device's own address space, 0 is none. Address arithmetic is
 *                      allowed (addr + k is byte k); following it as a host pointer is not, unless
 *                      BERTH_CAP_HOST_VISIBLE. A driver without flat addresses (OpenCL) hands out
 *                      ranges of an invented space and translates, as null does.
 *            library   what the devices of one driver share within a set (the opened libcuda, the
 *                      null engine); never a global
 * Contract   Pre- and post-conditions stand at each slot. Common to all: pointers are never NULL
 *            unless said; `err` is filled exactly on failure; a failed call changes nothing and may
 *            be repeated; *out is NULL (addresses: 0) after a failure. Sizes are > 0.
 *            Failures: BERTH_ENODEVMEM no device memory (with wanted and free bytes in the text),
 *            BERTH_ENOMEM no host memory, BERTH_EDEVICE the device or its driver refused (native
 *            code in err->native), BERTH_EUNSUPPORTED cannot be done here at all.
 * Optional   Slots marked (optional) may be NULL; the default that device/ then uses is said there.
 * Threads    The thread that opened the set (the executor) calls everything, except `info`, which
 *            any thread may call at any time between open and close. */
#pragma once

#include "base/err.h"
#include "base/log.h"

#define DEV_NAME_MAX BERTH_DEVICE_NAME_MAX
#define DEV_MODEL_MAX BERTH_DEVICE_MODEL_MAX
#define DEV_INDEX_MAX 255 /* N of a name like cuda:N */
#define DEV_ALIGN_MIN 256 /* every driver aligns at least to this */

#define DEV_DRIVERS_MAX 16

struct phys;
struct device;
struct dev_driver;
struct null_config; /* device/null/null.h */

/* What drivers may know of the outside; tests hand in another. Borrowed for as long as the set. */
struct dev_env {
    const struct log *log;          /* NULL: silent */
    const char *root;               /* put before /proc and /sys; NULL: "" */
    const struct null_config *null; /* NULL: defaults */
    bool stress;                    /* every first try for new device memory fails (tests) */
    uint64_t host_budget; /* of the host's own device (cpu) when the spec gives it no number; 0: all
                             that is left of its memory */
    /* The last two are looked at by devset_open() only. */
    const char *cuda_library; /* NULL: "libcuda.so.1" */
    /* Which cards are seen, by the driver's numbers: "1" or "2,0"; the first is cuda:0. A '*' at
     * the end stands for all the others. A number that is not there is refused
     * (BERTH_EUNSUPPORTED). NULL: all. */
    const char *cuda_cards;
};

/* What the devices of one set know of each other. Filled while the set opens, constant then. */
struct dev_hub {
    struct { /* drivers of opened devices that want to hear of host memory */
        const struct dev_driver *driver;
        void *library;
    } watcher[DEV_DRIVERS_MAX];
    size_t watchers;
    struct device *host; /* pays for host memory of devices that have none; NULL: nobody does */
};

/* A driver's own struct starts with one of these, filled by its open(). */
struct phys {
    const struct dev_driver *driver;
    char name[DEV_NAME_MAX];   /* "cuda:0" */
    char model[DEV_MODEL_MAX]; /* "NVIDIA H200"; "": nothing to say */
    uint32_t caps;             /* BERTH_CAP_* */
    size_t align;              /* power of two, >= DEV_ALIGN_MIN */
    size_t granularity; /* power of two, >= align: what the driver takes from the hardware and gives
                           back. Smaller allocations waste memory; discard works in these */
    uint64_t noted;     /* op/'s: which things it has logged about this device already */
    const struct dev_hub *hub;  /* of its set, which sets it; NULL outside of one */
    struct dev_stream *streams; /* that nobody freed yet; device/ keeps both lists */
    struct dev_event *events;
    /* Threads it runs at once, all multiprocessors together: what PyTorch's random numbers on a
     * card depend on (sample/rng.h). 0: none of that kind; the driver cuda must set it. */
    uint32_t threads;
};

/* Work in one stream runs in the order it was queued; two streams are ordered by events only. */
struct dev_stream {
    struct phys *phys;
    struct dev_stream *prev, *next; /* of the same phys */
    /* Called before anything but a backend's kernels is queued on it (dev_stream_hook()). */
    berth_status (*hook)(void *user, berth_err *err);
    void *hook_user;
};

/* Work that was recorded, to be queued again and again. */
struct dev_graph {
    struct phys *phys;
};

/* A mark in a stream. Completes when everything queued on the stream before the latest record is
 * done. One that was never recorded counts as complete. The rest is for device/ alone: an event
 * freed while memory retired on it waits lives until that memory is free. */
struct dev_event {
    struct phys *phys;
    struct dev_event *prev, *next; /* of the same phys */
    uint64_t recorded;             /* host time in ns, of drivers without event_elapsed */
    unsigned retiring;
    bool orphan;
};

enum { DEV_READ = 1, DEV_WRITE = 2 };

/* What becomes of host memory: handed out; back in a pool, mapped but nobody's; back at the OS. */
enum dev_host_mark { DEV_HOST_LIVE, DEV_HOST_IDLE, DEV_HOST_GONE };

struct dev_access { /* what a launched function or the host touches */
    uint64_t addr;
    size_t n;
    unsigned how; /* DEV_READ | DEV_WRITE */
};

/* ptr[i] is where the bytes of the i-th declared access can be touched, for this call only; of an
 * access of 0 bytes it may be NULL. */
typedef void dev_fn(void *user, void *const *ptr);

struct dev_driver {
    const char *name; /* "cuda": its devices are cuda:0, cuda:1 ..., or just "cpu" if !indexed */
    bool indexed;
    bool elastic; /* has no memory of its own size: opens with as much as the spec asks for */

    /* (optional, both or none) What all devices of this driver share in one set. Default: NULL. */
    berth_status (*library_open)(const struct dev_env *env, void **out, berth_err *err);
    void (*library_close)(void *library); /* after the last device of the set is closed */

    /* How many are there: 0 .. count-1 can be opened. A missing driver library is count 0 and no
     * error. An elastic driver returns 0: any index opens, none is in the default set. */
    unsigned (*count)(void *library);
    /* (optional) pre: count is 0. Why, for people: "libcuda.so.1: cannot open shared object file:
     * no NVIDIA driver on this machine". *broken: something is there and does not work. Borrowed
     * from the library. Default: nothing to say. */
    const char *(*why_none)(void *library, bool *broken);

    /* total: bytes an elastic device shall have, 0 for others. */
    berth_status (*open)(void *library, const struct dev_env *env, unsigned index, uint64_t total,
                         struct phys **out, berth_err *err);
    /* pre: streams, events and memory are freed. Frees what is left all the same. NULL is fine. */
    void (*close)(struct phys *p);

    /* ---- memory ---- */

    /* pre: n is a multiple of align. post: *addr is a multiple of granularity, unique among live
     * allocations of the driver, contents unspecified. Slow: called for pool segments only. */
    berth_status (*alloc)(struct phys *p, size_t n, uint64_t *addr, berth_err *err);
    /* pre: (addr, n) is exactly what alloc gave and no queued work touches it; parts of it may be
     * discarded. Cannot fail: a driver that is refused logs it. post: the memory is back with the
     * driver or OS. */
    void (*free)(struct phys *p, uint64_t addr, size_t n);
    /* Any thread. post: free <= total. Limits that bind the process (cgroup) count. */
    berth_status (*info)(struct phys *p, uint64_t *total, uint64_t *free, berth_err *err);
    /* (optional) Bytes of that total that the pool leaves alone when nobody gave the device a
     * number: the process needs memory of the same kind for itself. Default: 0. */
    uint64_t (*spare)(struct phys *p);
    /* (optional) [addr, addr+n) inside an allocation keeps its addresses, the memory behind them
     * goes back to the driver or OS, contents are lost. pre: addr and n are multiples of
     * granularity, nothing of it is discarded, no queued work. post: true, and `info` counts it as
     * free; or false, and nothing changed. Default: false, so that only wholly idle allocations go
     * back. cuda_mem.c shows how a card's allocations are built so that they come apart. */
    bool (*discard)(struct phys *p, uint64_t addr, size_t n);
    /* (optional, needs discard) A driver that takes several granules from the hardware at once can
     * give them back only together: narrows [*addr, *addr + *n), which is as for discard, to what
     * it would give back of it; *n 0: nothing. Default: all of it. */
    void (*discardable)(struct phys *p, uint64_t *addr, size_t *n);
    /* (optional, needs discard) Memory for discarded addresses again, contents unspecified. pre: as
     * discard, but all of it is discarded. BERTH_ENODEVMEM: others took it meanwhile. Default:
     * nothing is needed, it comes when it is touched (pages of the OS). */
    berth_status (*restore)(struct phys *p, uint64_t addr, size_t n, berth_err *err);
    /* (optional) The pool hands a range out (live) or takes it back. A device that checks its users
     * hears about it; a failure to note it is not an error. Default: nothing. */
    void (*mark)(struct phys *p, uint64_t addr, size_t n, bool live);

    /* ---- host memory that copies at full speed ---- */

    /* (optional, both or none) post: page-aligned; pinned if BERTH_CAP_PINNED is set, and reachable
     * by every device of the driver. Default: plain pages. */
    berth_status (*host_alloc)(struct phys *p, size_t n, void **out, berth_err *err);
    void (*host_free)(struct phys *p, void *ptr, size_t n);
    /* (optional, both or none) A driver that checks the order of its users has to know what else
     * happens to host memory that its copies touch. Told to every such driver with an open device
     * in the set, whoever's memory it is. Default: nothing.
     * host_access: the host, or a host-visible device on its behalf, reads or writes [ptr, ptr+n)
     * now. host_mark: see the enum; IDLE and GONE come before it happens. A failure to note it is
     * no error. */
    void (*host_access)(void *library, const void *ptr, size_t n, unsigned how);
    void (*host_mark)(void *library, const void *ptr, size_t n, enum dev_host_mark mark);

    /* ---- streams and events ---- */
    /* (optional, all nine or none) Default: every call does its work before it returns, streams
     * and events carry nothing and are always complete. BERTH_CAP_ASYNC says which. */

    /* device/ allocates them zeroed, sets phys, and frees them after close. */
    size_t stream_size, event_size; /* of the driver's structs, which begin with the base */
    berth_status (*stream_open)(struct dev_stream *s, berth_err *err);
    void (*stream_close)(struct dev_stream *s); /* waits for its work first */
    berth_status (*stream_sync)(struct dev_stream *s, berth_err *err); /* post: its work is done */
    /* Later work on s starts after e as it is recorded now; returns at once. s and e may belong to
     * two devices of the same driver. */
    berth_status (*stream_wait)(struct dev_stream *s, struct dev_event *e, berth_err *err);
    berth_status (*event_open)(struct dev_event *e, berth_err *err);
    void (*event_close)(struct dev_event *e); /* waits that refer to it stay valid */
    /* Moves the mark to the end of s. pre: e and s belong to the same phys. */
    berth_status (*event_record)(struct dev_event *e, struct dev_stream *s, berth_err *err);
    berth_status (*event_query)(struct dev_event *e, bool *done, berth_err *err); /* no waiting */
    berth_status (*event_sync)(struct dev_event *e, berth_err *err);              /* waits */
    /* (optional, beyond the nine) ns from when `from` was reached until `to` was, each as recorded
     * last; negative if `to` came first. pre: both are recorded, and of one phys. *done false: one
     * of them is not reached yet, *ns is 0. Neither waits nor orders anything: whoever goes on
     * because of it asks event_query. Default: between the record calls, on the host's clock, which
     * is right where everything is done before a call returns. */
    berth_status (*event_elapsed)(struct dev_event *from, struct dev_event *to, bool *done,
                                  int64_t *ns, berth_err *err);

    /* ---- copies: queued on s; both sides stay valid and undisturbed until it is done ----
     * pre: each side lies inside one allocation: of alloc, or of host_alloc, or it is host memory
     * of others, no byte of which host_alloc gave. Neighbours in address are not one allocation: a
     * driver that is asked to go from one into the next refuses, BERTH_EDEVICE. */

    berth_status (*copy_h2d)(struct dev_stream *s, uint64_t dst, const void *src, size_t n,
                             berth_err *err);
    berth_status (*copy_d2h)(struct dev_stream *s, void *dst, uint64_t src, size_t n,
                             berth_err *err);
    /* Within s->phys. pre: the ranges do not overlap. */
    berth_status (*copy_d2d)(struct dev_stream *s, uint64_t dst, uint64_t src, size_t n,
                             berth_err *err);
    /* (optional) May `to` read `from` directly? Both of this driver. Default: no. */
    bool (*can_peer)(const struct phys *to, const struct phys *from);
    /* (optional) Between two devices of this driver, on a stream of either. pre: can_peer.
     * Default, and where can_peer says no: device/ stages through host memory and waits, see
     * dev_copy(). */
    berth_status (*copy_peer)(struct dev_stream *s, struct phys *dst_phys, uint64_t dst,
                              struct phys *src_phys, uint64_t src, size_t n, berth_err *err);

    /* ---- work ---- */

    /* (optional) Runs fn on the host in stream order. Declared accesses (at most
     * DEV_LAUNCH_ACCESS_MAX, copied by the call) are everything it touches of the device's memory;
     * `user` stays valid until it has run. A driver that has it says BERTH_CAP_LAUNCH in caps.
     * Default: BERTH_EUNSUPPORTED. */
    berth_status (*launch)(struct dev_stream *s, dev_fn *fn, void *user,
                           const struct dev_access *access, size_t n, berth_err *err);

    /* (optional, all four or none) record_begin: kernels that are queued on s from now on are kept,
     * not run. pre: nobody records on it. record_end: what was kept, ready to run; s is as before.
     * Fails as a whole if anything was queued meanwhile that cannot be kept. graph_launch: queues
     * all of it on s, in order, with the arguments it was recorded with. graph_free: not before
     * the last launch is done. Default: nothing can be recorded. */
    berth_status (*record_begin)(struct dev_stream *s, berth_err *err);
    berth_status (*record_end)(struct dev_stream *s, struct dev_graph **out, berth_err *err);
    berth_status (*graph_launch)(struct dev_graph *g, struct dev_stream *s, berth_err *err);
    void (*graph_free)(struct dev_graph *g);
};

#define DEV_LAUNCH_ACCESS_MAX 16

/* The drivers of this build, in the order of devices.def, NULL at the end. */
const struct dev_driver *const *dev_drivers(void);

struct dev_absent { /* a kind of device that is not here, and why, for people */
    const char *kind, *why;
    bool broken; /* something is there and does not work */
};
/* The drivers this build was made without; ends with a NULL kind. */
const struct dev_absent *dev_not_built(void);

#define DEVICE(x) extern const struct dev_driver driver_##x;
#include "device/devices.def"
#undef DEVICE
