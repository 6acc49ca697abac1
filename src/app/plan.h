/* plan: the pieces of `berth plan`, one file each.
 *
 * Flow   weights_open() -> arch_detect() -> blocks_from_weights() -> quotas from the options ->
 *        plan_make() -> plan_text() and plan_picture(), or plan_as_json(). Nothing is loaded, and
 *        with --devices nothing is opened but the file. */
#pragma once

#include "app/app.h"
#include "model/arch.h"
#include "plan/plan.h"

struct planned { /* everything borrowed */
    const char *file;
    const char *prefix; /* of the part that was planned; "": the whole file */
    const struct weights *weights;
    const struct arch *arch; /* NULL: not known */
    const struct blocks *blocks;
    const struct plan *plan;
    bool brief; /* no tables, no notes but warnings */
};

/* plan_text.c: headline, the tables, the picture, notes, the allocation string. */
void plan_text(const struct app *a, const struct planned *x);
/* plan_picture.c: how full each device is, and where along the order its blocks are. */
void plan_picture(const struct app *a, const struct planned *x);
