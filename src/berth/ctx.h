/* ctx: what other folders of the program may ask a context beside its public header. */
#pragma once

#include "residency/residency.h"

/* The context's devices as plans see them; measure: with the speed of copies to `compute`, which
 * takes some milliseconds per device, once. */
berth_status ctx_plan_devices(berth_ctx *ctx, const char *compute, bool measure,
                              struct plan_devices *out, berth_err *err);

/* What an executor of its own needs. From the first call on the context's registry and devices
 * belong to the thread that uses these: nobody calls berth_model_*, berth_free() and the like
 * meanwhile. */
struct ctx_parts {
    struct residency *res;
    struct devset *devices;
    struct tpool *pool;
    const struct log *log;
};
struct ctx_parts ctx_parts(berth_ctx *ctx); /* all borrowed */
