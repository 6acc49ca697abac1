/* channel_norm.cu: norm of the channels of each pixel.
 *
 * A thread has one pixel, and neighbours have neighbouring ones: what a warp reads of a channel
 * lies together. The channels are read twice, the second time mostly from cache. */
#include "op/cuda/kernel.cuh"

template <class T> DEV void channel_norm_body(const struct channel_norm_args &a)
{
    EACH(i, a.pixels)
    {
        u64 item = i, pixel = fast_div_mod(&a.inner, &item), inner = a.inner.d;
        u64 first = item * a.channels * inner + pixel;
        const T *x = (const T *)a.x + first;
        T *y = (T *)a.y + first;
        float sum = 0.0f;
        for (u64 c = 0; c < a.channels; c++) {
            float f = to_f32(x[c * inner]);
            sum += f * f;
        }
        float by = a.rooted ? 1.0f / sqrtf(sum / (float)a.channels + a.eps)
                            : a.root / fmaxf(sqrtf(sum), a.eps);
        for (u64 c = 0; c < a.channels; c++) {
            float w = a.w.p ? param_at(a.w.type, a.w.p, c) : 1.0f;
            float f = to_f32(x[c * inner]) * by;
            if (a.scale.p)
                f = fmaf(f, w * (1.0f + param_at(a.scale.type, a.scale.p, c)),
                         param_at(a.shift.type, a.shift.p, c));
            else
                f *= w;
            y[c * inner] = of_f32<T>(a.silu ? f_silu(f) : f);
        }
    }
}
KERNELS(channel_norm, channel_norm_args, 256)
