/* bounce: a call whose operands lie where the host cannot touch them, computed by the reference on
 * copies. So a backend may begin with a single kernel. Slow, and logged once for each op and
 * device (op.bounce).
 *
 *     struct bounce b;
 *     if (!bounce_in(&b, env, &call, a, err))                    b.host: arguments over copies
 *         s = bounce_out(&b, reference(&b.env, b.host, err), err)  results are where they belong
 *
 * Floats of 16 bits are widened on the way and results rounded, since the reference has F32 alone.
 * Only elements of operands are copied, never what lies between them: neighbours may be in use. */
#pragma once

#include "op/op_def.h"

struct bounce_call {
    const char *op;
    unsigned index; /* of the op in ops.def */
    const struct op_operand *operand;
    size_t size;    /* of the arguments */
    size_t scratch; /* of the reference */
};

struct bounce {
    struct op_env env; /* for the reference */
    const struct op_operand *operand;
    struct dev_stream *stream;
    const void *args;
    void *host; /* arguments for the reference */
    char *memory;
    size_t bytes;
};

/* args: of the call. Waits for what was queued. Nothing is held after a failure. */
berth_status bounce_in(struct bounce *b, const struct op_env *env, const struct bounce_call *call,
                       const void *args, berth_err *err);
/* computed: what the reference returned, err filled if it failed. Waits for the copies. */
berth_status bounce_out(struct bounce *b, berth_status computed, berth_err *err);
