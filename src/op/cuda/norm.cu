/* norm.cu: layer, RMS and group norm, queries and keys made ready.
 *
 * Variances are sums of squares around the mean, never E[x^2] - E[x]^2. A row's mean is taken
 * first; what rounding left of it is seen in the second sum, together with the squares, and goes
 * into both: mean and variance are then as good as a float can hold them. Means and squares of
 * chunks (group norm) are joined by Chan's formula. */
#include "op/cuda/kernel.cuh"

/* ---- row_norm ---- */

struct affine { /* (x - mean) * inv */
    float mean, inv;
};

/* d: sum of x - about, and of its square, over n elements. */
DEV struct affine affine_of(float about, float2 d, float n, float eps)
{
    struct affine f;
    float rest = d.x / n;
    f.mean = about + rest;
    f.inv = 1.0f / sqrtf(fmaxf(d.y / n - rest * rest, 0.0f) + eps);
    return f;
}

/* The row a thread holds pieces of, 16 bytes each: piece k is unit threadIdx.x + k * blockDim.x. */
enum { PIECES = 4 };

template <class X, class Y>
DEV void row_out(const struct row_norm_args &a, u64 r, const uint4 *v, struct affine f)
{
    constexpr int N = vec<X>::n;
    u32 units = (u32)(a.row / N);
    u64 item = a.scale.p ? fast_div_by(&a.per_item, r) : 0;
    Y *y = (Y *)a.y + r * a.row;
#pragma unroll
    for (int k = 0; k < PIECES; k++) {
        u32 i = threadIdx.x + (u32)k * blockDim.x;
        if (i >= units)
            break;
        float x[N], w[N], b[N];
        unpack<X>(v[k], x);
        for (int j = 0; j < N; j++)
            x[j] = (x[j] - f.mean) * f.inv;
        if (a.w.p) {
            param_load<N>(a.w.type, a.w.p, i, w);
            for (int j = 0; j < N; j++)
                x[j] *= a.from + w[j];
        }
        if (a.scale.p) {
            param_load<N>(a.scale.type, item_of(&a.scale, item), i, w);
            for (int j = 0; j < N; j++)
                b[j] = 0.0f;
            if (a.shift.p)
                param_load<N>(a.shift.type, item_of(&a.shift, item), i, b);
            for (int j = 0; j < N; j++)
                x[j] = x[j] * (1.0f + w[j]) + b[j];
        }
        if (a.b.p) {
            param_load<N>(a.b.type, a.b.p, i, b);
            for (int j = 0; j < N; j++)
                x[j] += b[j];
        }
        store_n<Y, N>(y, i, x);
    }
}

/* A row in registers: packed, at most PIECES units a thread. Either a warp per row and blockDim.y
 * rows a block, or a block per row. */
template <class X, class Y = X> DEV void row_norm_body(const struct row_norm_args &a)
{
    constexpr int N = vec<X>::n;
    u32 units = (u32)(a.row / N);
    float n = (float)a.row;
    int turn = 0;
    for (u64 r = (u64)blockIdx.x * blockDim.y + threadIdx.y; r < a.rows;
         r += (u64)gridDim.x * blockDim.y) {
        const uint4 *x = (const uint4 *)a.x + r * units;
        uint4 v[PIECES];
        float2 s = make_float2(0, 0);
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            u32 i = threadIdx.x + (u32)k * blockDim.x;
            v[k] = i < units ? x[i] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < PIECES; k++) { /* what is not there is 0 and adds nothing */
            float f[N];
            unpack<X>(v[k], f);
            for (int j = 0; j < N; j++) {
                s.x += f[j];
                s.y += f[j] * f[j];
            }
        }
        s = row_sum(s, &turn);
        if (a.rms) {
            struct affine f = { 0.0f, 1.0f / sqrtf(s.y / n + a.eps) };
            row_out<X, Y>(a, r, v, f);
            continue;
        }
        float mean = s.x / n;
        float2 d = make_float2(0, 0);
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            if (threadIdx.x + (u32)k * blockDim.x >= units)
                break;
            float f[N];
            unpack<X>(v[k], f);
            for (int j = 0; j < N; j++) {
                d.x += f[j] - mean;
                d.y += (f[j] - mean) * (f[j] - mean);
            }
        }
        d = row_sum(d, &turn);
        row_out<X, Y>(a, r, v, affine_of(mean, d, n, a.eps));
    }
}
KERNELS(row_norm, row_norm_args, 1024)
KERNELS_OF_F32(row_norm, row_norm_args, 1024)

/* Rows of any length and place: a block per row, which is read three times. */
template <class X, class Y = X> DEV void row_norm_any_body(const struct row_norm_args &a)
{
    float n = (float)a.row;
    int turn = 0;
    for (u64 r = blockIdx.x; r < a.rows; r += gridDim.x) {
        const X *x = (const X *)a.x + r * a.row;
        Y *y = (Y *)a.y + r * a.row;
        float2 s = make_float2(0, 0);
        for (u64 i = threadIdx.x; i < a.row; i += blockDim.x) {
            float f = to_f32(x[i]);
            s.x += f;
            s.y += f * f;
        }
        s = row_sum(s, &turn);
        struct affine f = { 0.0f, 1.0f / sqrtf(s.y / n + a.eps) };
        if (!a.rms) {
            float mean = s.x / n;
            float2 d = make_float2(0, 0);
            for (u64 i = threadIdx.x; i < a.row; i += blockDim.x) {
                float e = to_f32(x[i]) - mean;
                d.x += e;
                d.y += e * e;
            }
            f = affine_of(mean, row_sum(d, &turn), n, a.eps);
        }
        u64 item = a.scale.p ? fast_div_by(&a.per_item, r) : 0;
        for (u64 i = threadIdx.x; i < a.row; i += blockDim.x) {
            float v = (to_f32(x[i]) - f.mean) * f.inv;
            if (a.w.p)
                v *= a.from + param_at(a.w.type, a.w.p, i);
            if (a.scale.p)
                v = v * (1.0f + param_at(a.scale.type, item_of(&a.scale, item), i)) +
                    (a.shift.p ? param_at(a.shift.type, item_of(&a.shift, item), i) : 0.0f);
            if (a.b.p)
                v += param_at(a.b.type, a.b.p, i);
            y[i] = of_f32<Y>(v); /* y may be x: this thread alone reads it from here on */
        }
    }
}
KERNELS(row_norm_any, row_norm_args, 1024)
KERNELS_OF_F32(row_norm_any, row_norm_args, 1024)

/* ---- group_norm: chunks of groups are summed up, then a block joins those of its group ---- */

struct moments {
    float n, mean, m2; /* m2: sum of (x - mean)^2 */
};

/* Joins `count` values of mean `mean` and squares m2 around it. pre: count > 0. */
DEV void moments_join(struct moments *m, float count, float mean, float m2)
{
    float n = m->n + count, delta = mean - m->mean, share = count / n;
    m->mean += delta * share;
    m->m2 += m2 + delta * delta * m->n * share;
    m->n = n;
}

/* Where block work `at` lies: chunk of group. */
struct chunk {
    u64 group, first, len; /* first: element within the group */
};
DEV struct chunk chunk_at(const struct group_norm_args &a, u64 at)
{
    struct chunk c;
    c.first = fast_div_mod(&a.chunks, &at) * a.chunk;
    c.group = at;
    c.len = a.size - c.first < a.chunk ? a.size - c.first : a.chunk;
    return c;
}

/* The values of one thread: PIECES at a time, each a unit of N elements or one element. */
template <class T> DEV struct moments chunk_packed(const uint4 *x, u64 units)
{
    constexpr int N = vec<T>::n;
    struct moments m = { 0, 0, 0 };
    for (u64 i = threadIdx.x; i < units; i += (u64)PIECES * blockDim.x) {
        uint4 v[PIECES];
        float count = 0, sum = 0, m2 = 0;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            u64 at = i + (u64)k * blockDim.x;
            v[k] = at < units ? x[at] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            float f[N];
            unpack<T>(v[k], f);
            for (int j = 0; j < N; j++)
                sum += f[j];
            count += i + (u64)k * blockDim.x < units ? (float)N : 0.0f;
        }
        float mean = sum / count;
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            if (i + (u64)k * blockDim.x >= units)
                break;
            float f[N];
            unpack<T>(v[k], f);
            for (int j = 0; j < N; j++)
                m2 += (f[j] - mean) * (f[j] - mean);
        }
        moments_join(&m, count, mean, m2);
    }
    return m;
}

template <class T> DEV struct moments chunk_any(const T *x, u64 len)
{
    struct moments m = { 0, 0, 0 };
    for (u64 i = threadIdx.x; i < len; i += blockDim.x)
        moments_join(&m, 1, to_f32(x[i]), 0);
    return m;
}

template <class T> DEV void group_sums_body(const struct group_norm_args &a)
{
    int turn = 0;
    for (u64 at = blockIdx.x; at < a.all; at += gridDim.x) {
        struct chunk c = chunk_at(a, at);
        const T *x = (const T *)a.x + c.group * a.size + c.first;
        struct moments m = a.packed_sums ? chunk_packed<T>((const uint4 *)x, c.len / vec<T>::n)
                                         : chunk_any<T>(x, c.len);
        float share = m.n / (float)c.len;
        float mean = row_sum(make_float2(share * m.mean, 0), &turn).x;
        float delta = m.mean - mean;
        float m2 = row_sum(make_float2(m.m2 + m.n * delta * delta, 0), &turn).x;
        if (threadIdx.x == 0)
            ((float2 *)a.part)[at] = make_float2(mean, m2);
    }
}
KERNELS(group_sums, group_norm_args, 256)

/* Mean and 1 / sqrt(variance + eps) of a group, from its chunks. */
DEV struct affine group_join(const struct group_norm_args &a, u64 group, int *turn)
{
    const float2 *part = (const float2 *)a.part + group * a.chunks.d;
    u64 last = a.chunks.d - 1;
    float size = (float)a.size, whole = (float)a.chunk, rest = (float)(a.size - last * a.chunk);
    float2 s = make_float2(0, 0);
    for (u64 i = threadIdx.x; i <= last; i += blockDim.x)
        s.x += (i < last ? whole : rest) / size * part[i].x;
    float mean = row_sum(s, turn).x;
    s.x = 0;
    for (u64 i = threadIdx.x; i <= last; i += blockDim.x) {
        float delta = part[i].x - mean;
        s.x += part[i].y + (i < last ? whole : rest) * delta * delta;
    }
    struct affine f = { mean, 0 };
    f.inv = 1.0f / sqrtf(row_sum(s, turn).x / size + a.eps);
    return f;
}

DEV float group_out(float x, struct affine f, float w, float b, int silu)
{
    float v = (x - f.mean) * (f.inv * w) + b;
    return silu ? f_silu(v) : v;
}

/* PIECES units of a thread are under way at a time. */
template <class X, class Y>
DEV void chunk_out(const struct group_norm_args &a, struct chunk c, struct affine f, u64 channel,
                   const X *x, Y *y)
{
    constexpr int N = vec<X>::n;
    u64 units = c.len / N;
    for (u64 i = threadIdx.x; i < units; i += (u64)PIECES * blockDim.x) {
        uint4 in[PIECES];
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            u64 at = i + (u64)k * blockDim.x;
            in[k] = at < units ? ((const uint4 *)x)[at] : make_uint4(0, 0, 0, 0);
        }
#pragma unroll
        for (int k = 0; k < PIECES; k++) {
            u64 at = i + (u64)k * blockDim.x;
            if (at >= units)
                break;
            u64 of = channel + fast_div_by(&a.inner, c.first + at * N);
            float w = param_at(a.w.type, a.w.p, of), b = param_at(a.b.type, a.b.p, of), v[N];
            unpack<X>(in[k], v);
            for (int j = 0; j < N; j++)
                v[j] = group_out(v[j], f, w, b, a.silu);
            store_n<Y, N>(y, at, v);
        }
    }
}

/* From the last chunk to the first: what group_sums read last may still be in the card's cache. */
template <class X, class Y = X> DEV void group_norm_body(const struct group_norm_args &a)
{
    int turn = 0;
    for (u64 at = blockIdx.x; at < a.all; at += gridDim.x) {
        struct chunk c = chunk_at(a, a.all - 1 - at);
        struct affine f = group_join(a, c.group, &turn);
        u64 channel = c.group % a.groups * a.per; /* of the group's first */
        const X *x = (const X *)a.x + c.group * a.size + c.first;
        Y *y = (Y *)a.y + c.group * a.size + c.first;
        if (a.packed) {
            chunk_out<X, Y>(a, c, f, channel, x, y);
            continue;
        }
        for (u64 i = threadIdx.x; i < c.len; i += blockDim.x) {
            u64 of = channel + fast_div_by(&a.inner, c.first + i);
            float w = param_at(a.w.type, a.w.p, of), b = param_at(a.b.type, a.b.p, of);
            y[i] = of_f32<Y>(group_out(to_f32(x[i]), f, w, b, a.silu));
        }
    }
}
KERNELS(group_norm, group_norm_args, 256)
KERNELS_OF_F32(group_norm, group_norm_args, 256)

/* ---- qk_rope: a block takes the heads of one position, of q and of k ---- */

/* Adjacent pairs (x, y) of n values turned by (cos, sin) pairs. */
template <int N> DEV void turn_pairs(float *x, const float *table)
{
    for (int j = 0; j < N; j += 2) {
        float c = table[j], s = table[j + 1], u = x[j], v = x[j + 1];
        x[j] = c * u - s * v;
        x[j + 1] = s * u + c * v;
    }
}

DEV char *head_of(const struct qk_rope_args &a, u32 which, u64 item, u64 t, u32 h)
{
    const uint64_t *s = a.stride[which];
    return (char *)a.x[which] + item * s[0] + t * s[1] + h * s[2];
}

/* 16 bytes of a head a thread, a.lanes of them a head. */
template <class T> DEV void qk_rope_body(const struct qk_rope_args &a)
{
    constexpr int N = vec<T>::n;
    u32 lane = threadIdx.x % a.lanes, slot = threadIdx.x / a.lanes, slots = blockDim.x / a.lanes;
    float w[2][N];
#pragma unroll
    for (int q = 0; q < 2; q++)
        if (a.w[q].p) {
            param_load<N>(a.w[q].type, a.w[q].p, lane, w[q]);
            for (int j = 0; j < N; j++)
                w[q][j] += a.from;
        } else {
            for (int j = 0; j < N; j++)
                w[q][j] = 1;
        }
    for (u64 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        u64 item = row, t = fast_div_mod(&a.T, &item);
        float table[N];
        for (int j = 0; j < N; j += 4)
            unpack<float>(((const uint4 *)a.table)[(t * a.D + lane * N + j) / 4], table + j);
        for (u32 first = 0; first < a.H[0] + a.H[1]; first += slots) {
            u32 h = first + slot;
            bool on = h < a.H[0] + a.H[1]; /* who has no head joins the sums all the same */
            bool k = h >= a.H[0];
            uint4 *at = (uint4 *)head_of(a, k, item, t, on ? (k ? h - a.H[0] : h) : 0) + lane;
            float x[N], squares = 0, inv = 1;
            unpack<T>(on ? *at : make_uint4(0, 0, 0, 0), x);
            if (a.w[0].p) {
                for (int j = 0; j < N; j++)
                    squares += x[j] * x[j];
                inv = 1.0f / sqrtf(lanes_sum(squares, a.lanes) / (float)a.D + a.eps);
            }
            for (int j = 0; j < N; j++)
                x[j] = x[j] * inv * (k ? w[1][j] : w[0][j]);
            turn_pairs<N>(x, table);
            if (on)
                *at = pack<T>(x);
        }
    }
}
KERNELS(qk_rope, qk_rope_args, 256)

/* Heads of any even size and place: a warp each, pair by pair, read twice. */
template <class T> DEV void qk_rope_any_body(const struct qk_rope_args &a)
{
    u32 lane = threadIdx.x % 32, warp = threadIdx.x / 32, warps = blockDim.x / 32;
    for (u64 row = blockIdx.x; row < a.rows; row += gridDim.x) {
        u64 item = row, t = fast_div_mod(&a.T, &item);
        const float *table = (const float *)a.table + t * a.D;
        for (u32 h = warp; h < a.H[0] + a.H[1]; h += warps) {
            u32 k = h >= a.H[0];
            T *at = (T *)head_of(a, k, item, t, k ? h - a.H[0] : h);
            const struct param *w = &a.w[k];
            float squares = 0, inv = 1;
            if (w->p) {
                for (u32 i = 2 * lane; i < a.D; i += 64) {
                    float u = to_f32(at[i]), v = to_f32(at[i + 1]);
                    squares += u * u + v * v;
                }
                inv = 1.0f / sqrtf(lanes_sum(squares, 32) / (float)a.D + a.eps);
            }
            for (u32 pair = lane; pair < a.D / 2; pair += 32) {
                u32 i = a.halves ? pair : 2 * pair, j = a.halves ? pair + a.D / 2 : 2 * pair + 1;
                float x[2] = { to_f32(at[i]) * inv, to_f32(at[j]) * inv };
                if (w->p) {
                    x[0] *= a.from + param_at(w->type, w->p, i);
                    x[1] *= a.from + param_at(w->type, w->p, j);
                }
                turn_pairs<2>(x, table + 2 * pair);
                at[i] = of_f32<T>(x[0]);
                at[j] = of_f32<T>(x[1]);
            }
        }
    }
}
KERNELS(qk_rope_any, qk_rope_args, 256)
