/* timestep.c: sinusoids of a time. */
#include "op/op_def.h"

#include <math.h>

static void check(struct op_check *c, const struct op_timestep *a)
{
    want_dense(c, "y", &a->y);
    want_dims(c, "y", &a->y, 2);
    want_f32(c, "t", &a->t);
    if (!c->s)
        want_vector(c, "t", &a->t, a->y.shape.dim[0]);
    if (!(a->period >= 0))
        REFUSE(c, "a period of %g", (double)a->period);
    want_apart(c, "y", &a->y, "t", &a->t);
}

/* Frequencies and angles are rounded to float where torch rounds them: an angle of 1000 moves by
 * 6e-5 with the last bit of its frequency. */
static berth_status reference(const struct op_env *env, const struct op_timestep *a, berth_err *err)
{
    (void)env, (void)err;
    size_t n = (size_t)a->y.shape.dim[0], dim = (size_t)a->y.shape.dim[1], half = dim / 2;
    float log_period = (float)-log(a->period == 0 ? 10000.0 : (double)a->period);
    for (size_t i = 0; i < n; i++) {
        float t = op_f32(&a->t)[i], *y = op_f32(&a->y) + i * dim;
        for (size_t k = 0; k < half; k++) {
            float power = log_period * (float)k / (float)half;
            float angle = t * (float)exp((double)power);
            y[a->sin_first ? half + k : k] = (float)cos((double)angle);
            y[a->sin_first ? k : half + k] = (float)sin((double)angle);
        }
        if (dim % 2)
            y[dim - 1] = 0;
    }
    return BERTH_OK;
}

OP_DEFINE(timestep, .operand = { IN(op_timestep, t), OUT(op_timestep, y) });
