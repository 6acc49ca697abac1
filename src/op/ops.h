/* ops: what networks are made of, each with its arguments checked and a plain-C reference.
 *
 * Words      operand   a struct view (tensor/tensor.h); `data` is an address of the device that
 *                      computes
 *            backend   kernels for one kind of device, from a single one on. A slot that is NULL
 *                      falls to the reference. Where the host cannot touch the device's memory it
 *                      works on copies (bounce.h), which is slow and logged
 *            scratch   memory a kernel needs beside its operands; its size follows from the
 *                      arguments, so that a pass can be predicted to the byte before it runs
 *            ready     what a call needs and is no memory of the caller's: modules, libraries, a
 *                      plan for its shapes; there after op_x_ready()
 *            row       the last dimension
 * Operands   Activations of a call are all of one type: F32, or F16 or BF16 where the backend has
 *            them (op_backend.acts). But for some, so that what a network adds up layer by layer
 *            can stay F32 between layers of 16 bits: norms may read F32, linear and binary may
 *            write it (and add to F32 then). Sums are F32 in any case, and each result is rounded
 *            once (products of 16 bits may round a weight to the type first, and a sum before what
 *            is added to it). What comes with activations without being one, masks, modulation and
 *            gates, is of their type or F32. Biases and parameters of norms are F32, or any of the
 *            three where the backend says so (op_backend.params), each as it is stored. Weights of
 *            linear, conv2d and embedding are of any stored type that converts to F32, GGML quants
 *            included: kernels widen them piece by piece, the bytes that lie in memory stay as
 *            stored. Row-major without gaps unless said, strides in whole elements; an optional
 *            operand is absent when its data is NULL. Outputs do not overlap inputs unless said.
 * Checks     op_x() looks at every shape, type and layout before it calls a kernel; BERTH_EINVAL
 *            names the op and the shapes. BERTH_EUNSUPPORTED names the backend and the type that it
 *            does not have. The reference has F32 alone: where it computes in place of a kernel it
 *            is given that on copies; a backend on the host's own memory says more in `acts` and
 *            `params` only when it has every op. Kernels trust their arguments. A pass that ran dry
 *            (op_x_ready()) does not check again (op_env.checked).
 * Same bits  An element of the result has the same bits whatever the number of threads, however
 *            many rows or pictures are computed with it, wherever operands lie, thrifty or not:
 *            cond and uncond in one batch or apart, on one device or three, give equal pictures.
 *            Other rows or pictures do not enter. Within a picture a 3x3 convolution may compute
 *            tiles of 2x2 or 4x4 results; rounding, an infinity or a NaN spreads over such a tile
 *            (op/cpu/winograd.h). Tiles begin where the picture does, so a piece of one may round
 *            differently than the whole; so may another processor level or backend. A GPU's
 *            libraries choose kernels by shape: the same shapes give the same bits, wherever
 *            operands lie, and a batch may round differently than its rows alone.
 * Cancel     Kernels that take long look at env->cancel between pieces: BERTH_ECANCELED, outputs
 *            undefined.
 * Threads    A call spreads over env->pool and returns when all is done (or queued, on an
 *            asynchronous backend).
 * Files      <op>.c an op, op_def.h what it is made of, check.c what it may ask of operands; ops.c
 *            backends and dispatch; bounce.c the reference for devices; ops_impl.h for ops and
 *            kernels; cpu/ vectorised kernels; cuda/ those of NVIDIA cards. */
#pragma once

#include "base/err.h"
#include "base/tpool.h"
#include "tensor/coded.h"
#include "tensor/tensor.h"

#include <stdatomic.h>

struct device;
struct dev_stream;
struct op_backend;

struct op_env {
    const struct op_backend *backend; /* NULL: the reference */
    struct tpool *pool;               /* may be NULL */
    struct dev_stream *stream;        /* asynchronous backends; NULL: on the host, at once */
    const atomic_bool *cancel;        /* may be NULL */
    const struct log *log;            /* may be NULL; op.slow, op.bounce: calls that take long */
    bool thrifty;                     /* little scratch rather than speed; the same bits */
    bool checked; /* op_x_ready() or op_x_check() took the same call, except for addresses: only
                     builds with BERTH_CHECKS look at its arguments again */
    bool fp8;     /* linear layers whose weight is F8_E4M3 may round x to fp8, too, where the device
                 multiplies fp8: faster, and other numbers */
    void *scratch;        /* an address of the device, aligned to OP_SCRATCH_ALIGN */
    size_t scratch_bytes; /* at least op_x_scratch() of the call */
};
#define OP_SCRATCH_ALIGN 256 /* bytes; what libraries of cards ask of workspaces */

/* The kernels for a device, by its driver; NULL: none, only the reference if it is host-visible. */
const struct op_backend *op_backend_for(const struct device *d);
/* OP_TYPE() of activations beside F32 that the device is made for. Kernels of the backend may
 * compute more (op_backend.acts), slowly: cards before Ampere have no units for BF16. */
uint64_t op_acts(const struct device *d);
/* The libraries of this machine that kernels of the device open when they need them, by index;
 * false: there is no such. why: BERTH_OK if it can be opened, else what is wrong, what to do and
 * what does not work until then. Opens it; the device is not touched. */
bool op_library(const struct device *d, unsigned i, berth_err *why);
/* Everything that calls of any shape need on the device of env is loaded: what memory it still has
 * free after this is for others. BERTH_ENODEVMEM: there was no room for it. Whatever failed,
 * op_x_ready() tries again and says it. */
berth_status op_open(const struct op_env *env, berth_err *err);

/* ---- products ---- */

/* y[..., N] = after(x[..., K] . w[N, K]^T * scale + bias[N]) + add[..., N] */
enum op_after { OP_AFTER_NONE, OP_AFTER_GELU_TANH };
struct op_linear {
    struct view x, w, bias, add, y; /* bias, add optional; add may be y itself. x, y, add: leading
                                       dimensions equal, rows contiguous, any even stride between
                                       rows. y and add of x's type, or F32 both */
    bool scaled;                    /* the weight has a scale (fp8); else it counts as 1 */
    float scale;
    enum op_after after; /* not together with add */
};
/* y[B, M, N] = a[B, M, K] . b[B, K, N], or b[B, N, K] transposed */
struct op_matmul {
    struct view a, b, y;
    bool b_transposed;
};
/* y[n, OC, h', w'] = conv(x[n, IC, h, w], w[OC, IC/groups, kh, kw]) + bias[OC] + add[n, OC, h',
 * w']. h' = (h + top + bottom - kh) / stride + 1, rounded down. */
struct op_conv2d {
    struct view x, w, bias, add, y;    /* bias, add optional; add may be y itself */
    uint32_t stride, groups;           /* 0 means 1 */
    uint32_t top, left, bottom, right; /* zeros around x */
    bool scaled;                       /* as of op_linear */
    float scale;
};
/* h' or w'; 0: the filter does not fit. */
uint64_t op_conv_side(uint64_t n, uint32_t before, uint32_t after, uint64_t k, uint32_t stride);

/* y[B, Tq, H, D] = softmax(q . k^T * scale + mask) . v per head; k, v: [B, Tk, G, D], H a multiple
 * of G: each of their heads serves H / G heads of q in a row, and is not copied for it. No buffer
 * that grows as Tq x Tk. Dimensions 0..2 may have any stride (slices of a fused projection), D is
 * contiguous. A query that sees no key at all gets zeros. */
struct op_attention {
    struct view q, k, v, y;
    struct view mask; /* optional, added to the scores: [1 or B, 1 or H, 1 or Tq, Tk], -inf hides */
    float scale;      /* 0 means 1 / sqrt(D) */
    bool causal;      /* query i sees keys 0..past + i */
    uint32_t past;    /* keys in front of the first query's own; 0 unless causal */
    uint32_t window;  /* of those a query sees, the last so many; 0: all. 0 unless causal */
};
/* The keys that query i sees where attention is causal: [first, end); a mask may hide more. */
struct op_seen {
    uint64_t first, end;
};
static inline struct op_seen op_attention_seen(const struct op_attention *a, uint64_t i)
{
    uint64_t keys = a->k.shape.dim[1], own = a->past + i + 1; /* itself included */
    uint64_t end = a->causal && own < keys ? own : keys;
    uint64_t first = a->window && own > a->window ? own - a->window : 0;
    return (struct op_seen) { first < end ? first : end, end };
}

/* ---- norms; y may be x, which may be F32 where y is not: then they are apart ---- */
struct op_group_norm { /* x, y: [n, C, ...]; w, b: [C] */
    struct view x, w, b, y;
    uint32_t groups;
    float eps;
    bool silu; /* y = silu(norm(x)) */
};
/* Over the channels of each pixel: y = w[c] * sqrt(C) * x / max(|x|, eps), |x| being the length of
 * all C of them. x, y: [n, C, ...], of one type; w: [C], optional */
struct op_channel_norm {
    struct view x, w, y;
    struct view scale, shift; /* [C] each, both or none: y = norm(x) * (1 + scale[c]) + shift[c] */
    float eps;
    bool rooted; /* by sqrt(|x|^2 / C + eps) instead, as rms norms have it */
    bool silu;   /* of all that */
};
struct op_row_norm { /* over rows: layer norm, or without mean RMS norm; w, b: [row], optional */
    struct view x, w, b, y;
    struct view scale, shift; /* optional, not with b, shift not without scale: x is [B, ..., row],
                                 they are [B, row] with any stride between rows:
                                 y = norm(x) * w * (1 + scale[b]) + shift[b] */
    float eps;
    bool rms;
    bool from_one; /* w counts from 1: norm(x) * (1 + w) */
};
/* Queries and keys of attention made ready, in place: RMS norm over D (where there are weights),
 * then each pair (x, y) of a head turned by the angle of its position: (c x - s y, s x + c y).
 * q, k: [B, T, heads, D], k may have another number of heads, any strides, D contiguous and even.
 * wq, wk: [D], optional, both or none. table: [T, D/2, 2] F32, (cos, sin) of each pair. */
struct op_qk_rope {
    struct view q, k;
    struct view wq, wk;
    struct view table;
    float eps;
    bool halves;   /* pairs are (i, i + D/2); else adjacent, (2i, 2i + 1) */
    bool from_one; /* wq and wk count from 1, as of op_row_norm */
};
/* y = x + gate[b] * z; x, z, y: [B, ..., C], rows evenly apart; gate: [B, C] with any stride
 * between rows. y may be x. */
struct op_gate {
    struct view x, gate, z, y;
};

/* ---- element by element; y may be x ---- */
enum op_unary_kind {
    OP_SILU,
    OP_GELU,
    OP_GELU_TANH,
    OP_QUICK_GELU,
    OP_RELU,
    OP_TANH,
    OP_SIGMOID,
    OP_UNARY_COUNT
};
struct op_unary {
    enum op_unary_kind kind;
    struct view x, y;
};
enum op_binary_kind {
    OP_ADD,
    OP_SUB,
    OP_MUL,
    OP_SILU_MUL, /* silu(a) * b */
    OP_LEAK,     /* a where it is not below 0, else a * b: leaky ReLU, PReLU */
    OP_BINARY_COUNT
};
/* y = a <kind> b * scale. b has a's shape, or a's with some dimensions 1 ([n, C, 1, 1], [1, 1,
 * row]): those repeat. y may be a. y may be F32 where b is not; a is then of either type. */
struct op_binary {
    enum op_binary_kind kind;
    struct view a, b, y;
    float scale; /* 0 means 1 */
};
/* x[..., 2C]: y[..., C] = first half * gelu(second half), erf form unless tanh */
struct op_geglu {
    struct view x, y;
    bool tanh;
};

/* ---- looking up and moving ---- */
/* y[n, D] = table[ids[i]]; ids: [n] I32, each below the table's rows. A kernel on the host looks
 * (BERTH_EINVAL); asynchronous ones give zeros for others, so callers check their ids. */
struct op_embedding {
    struct view table, ids, y;
};
/* y[i] = row ids[i], or row + i, of a weight [N, K] whose numbers are codes (tensor/coded.h); y may
 * have fewer columns: those behind are padding. */
struct op_decode {
    struct view codes;  /* [N, K] of how.type */
    struct view rows;   /* F32, N of them; optional */
    struct view blocks; /* of how.block_type, coded_blocks_stored(); there where how.how says so */
    struct view ids;    /* [n] I32, as of op_embedding; optional */
    struct view y;      /* [n, k] */
    uint64_t row;       /* without ids */
    struct coded how;   /* its addresses and cols do not count */
};
/* y[..., N] = after(x . w^T + bias[N]) + add[..., N], x and w being whole numbers: w the codes [N,
 * K] from `row` on (coded_is_int()), x rounded to 8 bits, each row by the scale that its largest
 * value asks for, turned before where the codes are. ComfyUI's product with such weights: faster
 * than the values', and other numbers. x, y, add as of op_linear. */
#define OP_INT_COLUMNS 131072 /* most of them: sums stay below 2^31 */
struct op_int_linear {
    struct view x, codes, rows, blocks, bias, add, y; /* codes, rows, blocks as of op_decode */
    uint64_t row;
    struct coded how;    /* as of op_decode */
    enum op_after after; /* not together with add */
};
/* y[n, dim]: [cos(t f) | sin(t f)], f_k = exp(-ln(period) k / (dim/2)); an odd dim ends with 0. t:
 * [n] F32, whatever y is */
struct op_timestep {
    struct view t, y;
    float period; /* 0 means 10000 */
    bool sin_first;
};
enum op_resize_kind { OP_NEAREST, OP_BILINEAR }; /* as torch's interpolate(), corners not aligned */
struct op_resize2d {                             /* x[n, c, h, w] -> y[n, c, h', w'] */
    enum op_resize_kind kind;
    struct view x, y;
};
struct op_concat { /* y = x[0..n) one behind the other along axis; any strides */
    const struct view *x;
    size_t n;
    int axis;
    struct view y;
};
/* Around the last two dimensions: zeros, the other side, what is at the border, or a mirror there,
 * which is less wide than the picture. */
enum op_pad_kind { OP_PAD_ZERO, OP_PAD_CIRCULAR, OP_PAD_EDGE, OP_PAD_REFLECT };
struct op_pad2d {
    struct view x, y;
    uint32_t top, left; /* bottom and right follow from the shapes */
    enum op_pad_kind kind;
};
/* y gets x's elements in order; any strides on both sides: permutes, slices. The shapes are equal
 * unless y has no gaps. x of another type than y, any stored one, is converted (y F32; or F16, BF16
 * where the backend has them); then there are no gaps on either side. */
struct op_copy {
    struct view x, y;
};

/* w[R, C] += scale * up[R, K] . down[K, C]: what adapters add to weights. All F32, rows without
 * gaps and evenly apart. A sum is in order, one rounding a step, as op_lowrank_tile() (op.h) has
 * it: the same bits from every backend. */
struct op_add_product {
    struct view w, up, down;
    float scale;
};

/* op_x(): checks, then computes. op_x_check(): the checks alone. op_x_ready(): the checks, and
 * everything the call needs beside its operands and scratch is loaded and chosen. BERTH_ENODEVMEM:
 * there was no room for that on the device; nothing is decided, and once there is room it can be
 * asked again. op_x_scratch(): bytes the call needs; 0 for most, and for arguments that op_x()
 * would refuse or that cannot be made ready. It cannot say why, so predict a pass by asking
 * op_x_ready() first: after BERTH_OK the number is that of the call, now and later, and the call
 * itself takes no memory of the device. For all but op_x() arguments whose `data` is not there yet
 * will do: they look at shapes, types and strides (so a mask or bias that will be there has a shape
 * then, and an absent operand is all zero). */
#define OP(x)                                                                                      \
    struct op_##x;                                                                                 \
    berth_status op_##x(const struct op_env *env, const struct op_##x *a, berth_err *err);         \
    berth_status op_##x##_check(const struct op_env *env, const struct op_##x *a, berth_err *err); \
    berth_status op_##x##_ready(const struct op_env *env, const struct op_##x *a, berth_err *err); \
    size_t op_##x##_scratch(const struct op_env *env, const struct op_##x *a);
#include "op/ops.def"
#undef OP

/* A backend: one kernel per op. */
#define OP_TYPE(t) (UINT64_C(1) << (t)) /* of enum dtype, in masks */
struct op_backend {
    const char *name;
    uint64_t acts;                               /* OP_TYPE() of activations beside F32 */
    uint64_t params;                             /* OP_TYPE() of biases and parameters beside F32 */
    uint64_t (*acts_of)(const struct device *d); /* op_acts(); NULL: `acts` */
    bool (*library)(unsigned i, berth_err *why); /* op_library(); NULL: none */
    /* What ops of any shape need on the device: modules, libraries. Asked by op_open() and by every
     * op_x_ready(), so it is quick once all is there. A library that is missing is no error here
     * but one of the ops that cannot do without. NULL: nothing. */
    berth_status (*ready)(const struct op_env *env, berth_err *err);
#define OP(x)                                                                                      \
    berth_status (*x)(const struct op_env *env, const struct op_##x *a, berth_err *err);           \
    berth_status (*x##_ready)(const struct op_env *env, const struct op_##x *a,                    \
                              berth_err *err); /* of this shape; NULL: nothing */                  \
    size_t (*x##_scratch)(const struct op_env *env, const struct op_##x *a); /* NULL: none */
#include "op/ops.def"
#undef OP
};
#define BACKEND(x) extern const struct op_backend op_##x;
#include "op/backends.def"
#undef BACKEND
