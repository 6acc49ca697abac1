/* berth.h: the whole public face of libberth.
 *
 * Conventions  Functions that can fail return berth_status (0 is fine) and take `berth_err *err` last.
 *              `err` is never NULL and is meaningful only after a failure.
 * Threads      Everything here is safe to call from any thread unless its comment says otherwise. */
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

BERTH_API const char *berth_version(void);                     /* "0.1.0" */
BERTH_API const char *berth_status_name(berth_status s);       /* "ENOMEM"; "?" when unknown */
BERTH_API const char *berth_status_text(berth_status s);       /* "out of host memory" */

#ifdef __cplusplus
}
#endif
#endif
