/* pointwise.cu: ops that look at one element at a time. Every thread computes a unit (16 bytes, or
 * one element where layouts do not allow it), so a result may lie where an operand of the same
 * shape does. */
#include "op/cuda/kernel.cuh"

/* ---- gate: y = x + gate * z ---- */

template <class T> DEV void gate_body(const struct gate_args &a)
{
    constexpr int N = vec<T>::n;
    EACH(i, a.n)
    {
        u64 r = i, c = fast_div_mod(&a.row, &r);
        const void *gate = item_of(&a.gate, fast_div_by(&a.per_item, r));
        const char *x = (const char *)a.x + r * a.sx, *z = (const char *)a.z + r * a.sz;
        char *y = (char *)a.y + r * a.sy;
        if (a.packed) {
            float u[N], v[N], g[N];
            load<T>(x, c, u);
            load<T>(z, c, v);
            param_load<N>(a.gate.type, gate, c, g);
            for (int j = 0; j < N; j++)
                u[j] += g[j] * v[j];
            store<T>(y, c, u);
        } else {
            float v = to_f32(((const T *)x)[c]);
            v += param_at(a.gate.type, gate, c) * to_f32(((const T *)z)[c]);
            ((T *)y)[c] = of_f32<T>(v);
        }
    }
}
KERNELS(gate, gate_args, 256)

/* ---- unary: the order of the kinds is op/ops.h's; pointwise.c holds the two together ---- */

template <int KIND> DEV float unary_of(float x)
{
    if constexpr (KIND == CUDA_SILU)
        return f_silu(x);
    else if constexpr (KIND == CUDA_GELU)
        return f_gelu(x);
    else if constexpr (KIND == CUDA_GELU_TANH)
        return f_gelu_tanh(x);
    else if constexpr (KIND == CUDA_QUICK_GELU)
        return x / (1.0f + expf(-1.702f * x));
    else if constexpr (KIND == CUDA_RELU)
        return x < 0.0f ? 0.0f : x; /* NaN stays */
    else if constexpr (KIND == CUDA_TANH)
        return tanhf(x);
    else
        return 1.0f / (1.0f + expf(-x));
}

template <class T, int KIND> DEV void unary_all(const struct unary_args &a)
{
    constexpr int N = vec<T>::n;
    u64 units = a.packed ? a.n / N : 0;
    EACH(i, units)
    {
        float v[N];
        load<T>(a.x, i, v);
        for (int j = 0; j < N; j++)
            v[j] = unary_of<KIND>(v[j]);
        store<T>(a.y, i, v);
    }
    EACH(i, a.n - units * N)
    { /* what is left of the last unit, or all of it */
        u64 at = units * N + i;
        ((T *)a.y)[at] = of_f32<T>(unary_of<KIND>(to_f32(((const T *)a.x)[at])));
    }
}

template <class T, int KIND = 0> DEV void unary_body(const struct unary_args &a)
{
    if (a.kind == KIND)
        unary_all<T, KIND>(a);
    else if constexpr (KIND < CUDA_SIGMOID)
        unary_body<T, KIND + 1>(a);
}
KERNELS(unary, unary_args, 256)

/* ---- binary: a (+, -, *, silu(a) *, leak) b * scale ---- */

DEV float binary_of(int kind, float x, float b)
{
    return kind == CUDA_ADD        ? x + b
           : kind == CUDA_SUB      ? x - b
           : kind == CUDA_SILU_MUL ? f_silu(x) * b
           : kind == CUDA_LEAK     ? (x < 0.0f ? x * b : x)
                                   : x * b;
}

/* The element of b that is below unit i of a. */
DEV u64 binary_below(const struct binary_args &a, u64 i)
{
    int last = a.nd - 1;
    u64 rest = i, at = fast_div_mod(&a.dim[last], &rest) * a.sb[last];
    for (int d = last - 1; d >= 0; d--)
        at += fast_div_mod(&a.dim[d], &rest) * a.sb[d];
    return at;
}

/* T: of y, and of a and b, or where ANY these have types of their own. */
template <class T, bool ANY> DEV void binary_all(const struct binary_args &a)
{
    constexpr int N = vec<T>::n;
    int last = a.nd - 1;
    EACH(i, a.n)
    {
        u64 at = binary_below(a, i);
        const T *b = (const T *)a.b + at;
        if (a.packed) {
            float x[N], v[N];
            if constexpr (ANY)
                param_load<N>(a.a_type, a.a, i, x);
            else
                load<T>(a.a, i, x);
            if (!a.sb[last]) {
                float one = ANY ? param_at(a.b_type, a.b, at) : to_f32(*b);
                for (int j = 0; j < N; j++)
                    v[j] = one;
            } else if constexpr (ANY) {
                param_load<N>(a.b_type, a.b, at / N, v);
            } else {
                load<T>(b, 0, v);
            }
            for (int j = 0; j < N; j++)
                x[j] = binary_of(a.kind, x[j], v[j] * a.scale);
            store<T>(a.y, i, x);
        } else {
            float x = ANY ? param_at(a.a_type, a.a, i) : to_f32(((const T *)a.a)[i]);
            float v = ANY ? param_at(a.b_type, a.b, at) : to_f32(*b);
            ((T *)a.y)[i] = of_f32<T>(binary_of(a.kind, x, v * a.scale));
        }
    }
}

template <class T> DEV void binary_body(const struct binary_args &a)
{
    binary_all<T, false>(a);
}
KERNELS(binary, binary_args, 256)
ENTRY(binary_to_f32, binary_args, (binary_all<float, true>), 256)

/* ---- geglu: x[..., 2C] to y[..., C] ---- */

template <class T> DEV void geglu_body(const struct geglu_args &a)
{
    constexpr int N = vec<T>::n;
    EACH(i, a.n)
    {
        u64 r = i, c = fast_div_mod(&a.row, &r);
        u64 at = r * 2 * a.row.d + c; /* of the first half; the other is a row of y further */
        if (a.packed) {
            float x[N], g[N];
            load<T>(a.x, at, x);
            load<T>(a.x, at + a.row.d, g);
            for (int j = 0; j < N; j++)
                x[j] *= a.tanh ? f_gelu_tanh(g[j]) : f_gelu(g[j]);
            store<T>(a.y, i, x);
        } else {
            const T *x = (const T *)a.x + at;
            float g = to_f32(x[a.row.d]);
            float v = to_f32(*x) * (a.tanh ? f_gelu_tanh(g) : f_gelu(g));
            ((T *)a.y)[i] = of_f32<T>(v);
        }
    }
}
KERNELS(geglu, geglu_args, 256)

/* ---- timestep: frequencies and angles are rounded where torch rounds them; they are few ---- */

template <class T> DEV void timestep_body(const struct timestep_args &a)
{
    u64 half = a.dim / 2;
    EACH(i, a.n * half)
    {
        u64 r = i, k = fast_div_mod(&a.half, &r);
        float power = a.log_period * (float)k / (float)half;
        float angle = a.t[r] * (float)exp((double)power);
        T *y = (T *)a.y + r * a.dim;
        y[a.sin_first ? half + k : k] = of_f32<T>((float)cos((double)angle));
        y[a.sin_first ? k : half + k] = of_f32<T>((float)sin((double)angle));
    }
    if (a.dim % 2)
        EACH(r, a.n)
    ((T *)a.y)[r * a.dim + a.dim - 1] = of_f32<T>(0.0f);
}
KERNELS(timestep, timestep_args, 256)
