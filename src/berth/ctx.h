/* ctx: what other folders of the program may ask a context beside its public header. */
#ifndef BERTH_CTX_H
#define BERTH_CTX_H

#include "residency/plan.h"

/* The context's devices as plans see them; measure: with the speed of copies to `compute`, which
 * takes some milliseconds per device, once. */
berth_status ctx_plan_devices(berth_ctx *ctx, const char *compute, bool measure,
                              struct plan_devices *out, berth_err *err);

#endif
