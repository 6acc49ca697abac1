/* op_null.c: a backend for null devices that has one kernel, as docs/adding.md tells it. The kernel
 * is queued and runs when the stream does; the host never follows its addresses. */
#include "adding/negate.h"

#include "device/device.h"
#include "op/op_def.h"

#include <stdlib.h>

static void run(void *user, void *const *ptr)
{
    struct op_unary *a = user;
    berth_err err;
    a->x.data = ptr[0];
    a->y.data = ptr[1];
    (void)op_unary_def.reference(&(struct op_env) { 0 }, a, &err); /* does not fail */
    free(a);
}

static berth_status null_unary(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    struct op_unary *later = malloc(sizeof *later);
    if (!later)
        return err_set(err, BERTH_ENOMEM, "unary");
    *later = *a;
    const struct dev_access access[] = {
        { (uintptr_t)a->x.data, view_span(&a->x), DEV_READ },
        { (uintptr_t)a->y.data, view_span(&a->y), DEV_WRITE },
    };
    if (dev_launch(env->stream, run, later, access, 2, err)) {
        free(later);
        return err->code;
    }
    return BERTH_OK;
}

const struct op_backend op_null = { .name = "null", .unary = null_unary };
