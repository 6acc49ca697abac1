/* move.cu: copies between layouts and types, looking up, padding, resizing. */
#include "op/cuda/kernel.cuh"

/* ---- copy ---- */

/* Units of whatever is in them, each from its place in x to its place in y. */
template <class U> DEV void copy_units(const struct copy_args &a)
{
    int last = a.nd - 1;
    EACH(i, a.n)
    {
        u64 rest = i, k = fast_div_mod(&a.dim[last], &rest);
        u64 from = k * a.sx[last], to = k * a.sy[last];
        for (int d = last - 1; d >= 0; d--) {
            k = fast_div_mod(&a.dim[d], &rest);
            from += k * a.sx[d];
            to += k * a.sy[d];
        }
        *(U *)((char *)a.y + to) = *(const U *)((const char *)a.x + from);
    }
}

ENTRY(copy_16, copy_args, copy_units<uint4>, 256)
ENTRY(copy_8, copy_args, copy_units<uint2>, 256)
ENTRY(copy_4, copy_args, copy_units<uint32_t>, 256)
ENTRY(copy_2, copy_args, copy_units<uint16_t>, 256)

/* A tile of two dimensions is read in x's order and written in y's. Blocks of CUDA_TILE x 8. */
template <class U> DEV void turn_tiles(const struct turn_args &a)
{
    __shared__ U tile[CUDA_TILE][CUDA_TILE + 1]; /* + 1: columns lie in different banks */
    for (u64 at = blockIdx.x; at < a.tiles; at += gridDim.x) {
        u64 rest = at, from = 0, to = 0;
        u64 across = fast_div_mod(&a.tiles_across, &rest) * CUDA_TILE;
        u64 along = fast_div_mod(&a.tiles_along, &rest) * CUDA_TILE;
        for (int d = a.nd - 1; d >= 0; d--) {
            u64 k = fast_div_mod(&a.dim[d], &rest);
            from += k * a.sx[d];
            to += k * a.sy[d];
        }
        const U *x = (const U *)a.x + from;
        U *y = (U *)a.y + to;
        for (u32 k = threadIdx.y; k < CUDA_TILE; k += blockDim.y)
            if (along + k < a.along && across + threadIdx.x < a.across)
                tile[k][threadIdx.x] = x[(along + k) * a.sx_along + across + threadIdx.x];
        __syncthreads();
        for (u32 k = threadIdx.y; k < CUDA_TILE; k += blockDim.y)
            if (across + k < a.across && along + threadIdx.x < a.along)
                y[(across + k) * a.sy_across + along + threadIdx.x] = tile[threadIdx.x][k];
        __syncthreads(); /* before the next tile overwrites this one */
    }
}

ENTRY(turn_4, turn_args, turn_tiles<uint32_t>, 256)
ENTRY(turn_2, turn_args, turn_tiles<uint16_t>, 256)

/* Between the three types, without gaps. The type in the name is y's. */
template <class T> DEV void convert_body(const struct convert_args &a)
{
    constexpr int N = vec<T>::n;
    u64 units = a.packed ? a.n / N : 0;
    EACH(i, units)
    {
        float v[N];
        param_load<N>(a.from, a.x, i, v);
        store<T>(a.y, i, v);
    }
    EACH(i, a.n - units * N)
    {
        u64 at = units * N + i;
        ((T *)a.y)[at] = of_f32<T>(param_at(a.from, a.x, at));
    }
}
KERNELS(convert, convert_args, 256)

/* ---- embedding ---- */

/* The row of the table for row i of y; false: there is none. */
DEV bool gather_row(const struct gather_args &a, u64 i, u64 *row)
{
    int32_t id = ((const int32_t *)a.ids)[i];
    *row = (u64)(u32)id;
    return id >= 0 && *row < a.rows;
}

template <class T> DEV void embedding_body(const struct gather_args &a)
{
    EACH(i, a.n)
    {
        u64 r = i, c = fast_div_mod(&a.row, &r), row;
        float v = gather_row(a, r, &row) ? param_at(a.from, a.table, row * a.row.d + c) : 0.0f;
        ((T *)a.y)[i] = of_f32<T>(v);
    }
}
KERNELS(embedding, gather_args, 256)

/* Rows as they are stored. */
template <class U> DEV void gather_units(const struct gather_args &a)
{
    EACH(i, a.n)
    {
        u64 r = i, c = fast_div_mod(&a.row, &r), row;
        U v = {};
        if (gather_row(a, r, &row))
            v = ((const U *)a.table)[row * a.row.d + c];
        ((U *)a.y)[i] = v;
    }
}

ENTRY(gather_16, gather_args, gather_units<uint4>, 256)
ENTRY(gather_2, gather_args, gather_units<uint16_t>, 256)
ENTRY(gather_1, gather_args, gather_units<uint8_t>, 256)

/* ---- resize2d, pad2d ---- */

/* torch's "nearest": the position in float, rounded down. */
DEV u32 nearest(u64 i, float scale, u32 in)
{
    u32 at = (u32)floorf((float)i * scale);
    return at < in ? at : in - 1;
}

/* Two neighbours of bilinear interpolation and their weights, corners not aligned; the position in
 * one rounding, as torch has it. */
struct pair {
    u32 i0, i1;
    float w0, w1;
};
DEV struct pair pair_at(u64 i, float scale, u32 in)
{
    struct pair p;
    float x = fmaf(scale, (float)i + 0.5f, -0.5f);
    x = x < 0.0f ? 0.0f : x;
    p.i0 = (u32)x;
    p.i0 = p.i0 < in - 1 ? p.i0 : in - 1;
    p.i1 = p.i0 + 1 < in ? p.i0 + 1 : p.i0;
    float w = x - (float)p.i0;
    p.w1 = w < 0.0f ? 0.0f : w > 1.0f ? 1.0f : w;
    p.w0 = 1.0f - p.w1;
    return p;
}

template <class T> DEV void resize2d_body(const struct resize2d_args &a)
{
    EACH(i, a.n)
    {
        u64 plane = i, c = fast_div_mod(&a.w, &plane), r = fast_div_mod(&a.h, &plane);
        const T *x = (const T *)a.x + plane * a.in_h * a.in_w;
        if (a.bilinear) {
            struct pair v = pair_at(r, a.scale_h, a.in_h), u = pair_at(c, a.scale_w, a.in_w);
            const T *x0 = x + (u64)v.i0 * a.in_w, *x1 = x + (u64)v.i1 * a.in_w;
            float upper = u.w0 * to_f32(x0[u.i0]) + u.w1 * to_f32(x0[u.i1]);
            float lower = u.w0 * to_f32(x1[u.i0]) + u.w1 * to_f32(x1[u.i1]);
            ((T *)a.y)[i] = of_f32<T>(v.w0 * upper + v.w1 * lower);
        } else {
            x += (u64)nearest(r, a.scale_h, a.in_h) * a.in_w;
            ((T *)a.y)[i] = x[nearest(c, a.scale_w, a.in_w)];
        }
    }
}
KERNELS(resize2d, resize2d_args, 256)

/* The coordinate of x, which has n, that i of y comes from, behind `before` of padding; n: none. */
DEV u64 pad_from(u64 i, u64 before, u64 n, int kind)
{
    if (i >= before && i - before < n)
        return i - before;
    if (kind == 0) /* OP_PAD_ZERO */
        return n;
    if (kind == 2) /* OP_PAD_EDGE */
        return i < before ? 0 : n - 1;
    if (kind == 3) /* OP_PAD_REFLECT */
        return i < before ? before - i : 2 * (n - 1) - (i - before);
    return (i + (before + n - 1) / n * n - before) % n; /* so many turns that nothing is below 0 */
}

template <class T> DEV void pad2d_body(const struct pad2d_args &a)
{
    EACH(i, a.n)
    {
        u64 plane = i, c = fast_div_mod(&a.w, &plane), r = fast_div_mod(&a.h, &plane);
        u64 j = pad_from(c, a.left, a.in_w, a.kind), k = pad_from(r, a.top, a.in_h, a.kind);
        T v = of_f32<T>(0.0f);
        if (j < a.in_w && k < a.in_h)
            v = ((const T *)a.x)[(plane * a.in_h + k) * a.in_w + j];
        ((T *)a.y)[i] = v;
    }
}
KERNELS(pad2d, pad2d_args, 256)
