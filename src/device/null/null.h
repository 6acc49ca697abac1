/* null: devices without hardware, for tests: null:0, null:1, ...
 *
 * Memory     as many bytes as the spec says, backed by host pages that are touched only when used.
 *            Addresses are invented and never used twice, so that following one as a pointer, or
 *            using one after its end, is noticed.
 * Failing    null_config says which call of a kind fails, once; tests arm it anew (null_fail(),
 *            tests/support/null_hooks.h, as all that only tests ask of null devices).
 * Engine     Copies and launches are queued and take effect when their stream runs: by null_step()
 *            and null_run(), in an order drawn from the seed that respects streams and events; or
 *            when somebody waits. All null devices of a set share one engine.
 * Time       Virtual, for event_elapsed; it decides nothing. The host and each stream have a clock.
 *            Copies and launches move their stream's on by what null_config says, a wait moves it
 *            to the mark's, an operation begins no earlier than the host's when it was queued, and
 *            the host's moves to what it learns by a sync or a query. Each lane is a link of its
 *            own.
 * Hazards    Whether two accesses to the same bytes are ordered is decided by happens-before, not
 *            by what the drawn order happened to be. The host and every stream carry a vector
 *            clock, record/wait/sync join them, and each access is held against the earlier ones
 *            when it is *queued*. NULL_HAZARD_MAP lists what is found. Host memory counts too:
 *            copies touch it, memory of the cpu device and of dev_host_alloc() is followed, and the
 *            host says what else it does (dev_host_access(), dev_host_gone()). Work on memory that
 *            goes away is reported and then runs at once, so that a report is all that happens.
 * Threads    as every driver: one thread, except info. */
#pragma once

#include "device/device.h"

#define NULL_TOTAL_DEFAULT (UINT64_C(16) << 30) /* bytes of a null device nobody gave a size */
#define NULL_STREAMS_MAX 63                     /* at a time in one set */

/* Calls that can be made to fail. ALLOC, RESTORE and HOST_ALLOC say "no memory", others EDEVICE. */
#define NULL_CALL_MAP(X)                                                                           \
    X(OPEN, "open")                                                                                \
    X(ALLOC, "alloc")                                                                              \
    X(RESTORE, "restore")                                                                          \
    X(INFO, "info")                                                                                \
    X(HOST_ALLOC, "host_alloc")                                                                    \
    X(STREAM_NEW, "stream_new")                                                                    \
    X(STREAM_SYNC, "stream_sync")                                                                  \
    X(STREAM_WAIT, "stream_wait")                                                                  \
    X(EVENT_NEW, "event_new")                                                                      \
    X(EVENT_RECORD, "event_record")                                                                \
    X(EVENT_QUERY, "event_query")                                                                  \
    X(EVENT_SYNC, "event_sync")                                                                    \
    X(EVENT_ELAPSED, "event_elapsed")                                                              \
    X(COPY, "copy")                                                                                \
    X(LAUNCH, "launch")                                                                            \
    X(ANY, "any") /* counts every call of the others */

enum null_call {
#define NULL_CALL_ENUM(name, text) NULL_##name,
    NULL_CALL_MAP(NULL_CALL_ENUM)
#undef NULL_CALL_ENUM
        NULL_CALL_COUNT
};

#define NULL_HAZARD_MAP(X)                                                                         \
    X(READ_UNWRITTEN, "reads bytes whose write is not ordered before it")                          \
    X(READ_BLANK, "reads bytes nobody wrote")                                                      \
    X(OVERWRITE_READ, "overwrites bytes that may still be read")                                   \
    X(OVERWRITE_WRITE, "overwrites bytes that may still be written")                               \
    X(FREE_PENDING, "frees bytes that queued work touches")                                        \
    X(USE_FREED, "touches bytes that are free")                                                    \
    X(UNKNOWN_ADDRESS, "touches bytes that were never allocated")                                  \
    X(LEAK, "was not freed before close")

enum null_hazard {
#define NULL_HAZARD_ENUM(name, text) NULL_##name,
    NULL_HAZARD_MAP(NULL_HAZARD_ENUM)
#undef NULL_HAZARD_ENUM
        NULL_HAZARD_COUNT
};

/* text: who does what to which bytes, and who else is at them. Borrowed for the call. */
typedef void null_hazard_fn(void *user, enum null_hazard kind, const char *text);

struct null_config { /* zero: defaults */
    uint64_t seed;   /* of the drawn order */
    bool lazy;       /* asking an event runs nothing; else each question runs one step */
    bool strict; /* a call to queue that makes a hazard fails, BERTH_EDEVICE; nothing is queued */
    uint64_t copy_bytes_per_s; /* virtual time of copies; 0: they take none */
    uint64_t launch_ns;        /* and of a launch */
    enum null_call fail_call;
    uint64_t fail_at; /* as null_fail() on every device, from its open on; 0: never */
    null_hazard_fn *on_hazard;
    void *user;
};
