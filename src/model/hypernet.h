/* hypernet: small networks beside a UNet's attention that change its keys and values before their
 * products, as files of the first years have them:
 *
 *     { 320: [ {"linear.0.weight": ..}, {..} ], 768: .., "activation_func": "relu", .. }
 *
 * a pair for each width, of keys and of values. k + net(k) * strength, and v likewise.
 *
 * Threads    Immutable once open. */
#pragma once

#include "base/arena.h"
#include "model/patch.h"

#define HYPER_DIMS_MAX 64
#define HYPER_STEPS_MAX 64
#define HYPER_BYTES_MAX (UINT64_C(2) << 30)

struct hyper_step {
    enum { HYPER_LINEAR, HYPER_ACTIVATION, HYPER_NORM } kind;
    const float *w, *b; /* [out, in] and [out]; of a norm [in] both */
    uint64_t in, out;
};
struct hyper_net {
    struct hyper_step step[HYPER_STEPS_MAX];
    size_t steps;
};
struct hypernet {
    struct arena mem;
    struct hyper_pair {
        uint64_t dim;
        struct hyper_net of[2]; /* keys, values */
    } * at;
    size_t n;
    const struct hyper_activation *activation; /* NULL: none */
    bool dropout; /* it was trained with such, which ComfyUI does not turn off */
};
/* hypernet_free() it. BERTH_EUNSUPPORTED: an activation that nobody knows. BERTH_EFORMAT: no
 * hypernetwork. */
berth_status hypernet_open(const char *path, struct hypernet **out, berth_err *err);
struct weights;
berth_status hypernet_read(const struct weights *w, struct hypernet **out, berth_err *err);
void hypernet_free(struct hypernet *h); /* NULL is fine */
