/* net: running a network whose weights residency placed.
 *
 * Words      net       a resident model between net_open() and net_close(): its weights by name,
 *                      wherever they lie; holds a use (through a stream), so that no block moves
 *            forward   a function that writes a network down as a sequence of net_*() calls, once
 *            run       one execution of a forward. dry: only shapes and sizes; real: it computes
 *            act       an activation of a run: row-major, in the run's slab, of the net's type:
 *                      F32, or F16 or BF16 where whoever opened it asked and the device has it.
 *                      Sums may be F32 all the same (see layers)
 *            slab      the one piece of the compute device's memory a real run lives in
 *            peak      the highest end of anything in the slab, scratch of kernels included
 * Flow       net_forward(): dry run -> peak -> one allocation of that size (res_alloc, which makes
 *            room) -> real run with the same placements in the slab -> slab back to the pool. The
 *            dry run also makes every op ready (op/ops.h): modules, libraries, plans. So memory
 *            runs short before a pass begins, not in the middle of it.
 *            A pass in which a device call failed (a copy of a streamed block), or for which the
 *            device ran short all the same, is run once more, after making room: all it wrote was
 *            the slab, and what net_output() gave is written again.
 *            A pass after two that were alike is not run dry, and if it turns out to differ begins
 *            again with a dry run (run.c).
 * Ladder     No room for the slab, or beside it for what makes ops ready: (0) a ring gives back
 *            what it has beyond its need (stream_config.ring_least); (1) res_alloc trims pools
 *            and pushes other models back; (2) thrifty, if that lowers the peak: smaller chunks of
 *            attention and of products (op_env), feed-forwards by rows; (3) the model's own blocks
 *            move to its donors or the host (res_evict_own), where others make room for them by
 *            (1), and where the compute device cannot read them there they are streamed, through
 *            a ring of one or two blocks; (4) BERTH_ENODEVMEM with wanted and predicted bytes: the
 *            caller splits the batch or tiles.
 *            Every rung is logged (net.rung) and counted in the report. A net stays thrifty, and
 *            its ring small, until net_close().
 * Same bits  Rungs 0, 1 and 3 never change a result: where blocks lie does not. Rung 2 does not on
 *            the cpu; on cards it may round differently, because rows go in pieces and a card's
 *            libraries choose kernels by the number of rows (op/ops.h).
 * Errors     Sticky, as in base/rd.h: after the first failure every net_*() of the run does nothing
 *            and gives an empty act; net_forward() returns the error with the layer's name in
 *            front. A forward looks at net_bad() only where it loops or branches on values.
 * Names      A forward asks for "input_blocks.1.0.in_layers.2": the layer's tensors are
 *            <root><name>.weight, .bias, .scale_weight ... in the file. net_names (below)
 *            translates where files call them differently.
 * Weights    Every weight is read as stored and where it lies (op/ops.h): the block is acquired
 *            from the stream for the op, one at a time. Copied into the slab, for the op:
 *            parameters of one dimension of a type that the kernels do not read; transposed
 *            matrices; quants whose filters are no whole blocks.
 * Scales     A weight of products and convolutions with a scale beside it (.scale_weight,
 *            .weight_scale: one number, the file's or the one that a merge of adapters chose,
 *            looked up once) is scaled by the op. Embeddings and parameters of one dimension have
 *            none: one that is not 1 beside them is refused by name, and so are layouts nobody
 *            here knows (comfy_quant, integers).
 * NaN        net_finite() ends a run whose values went wrong, naming where; callers use it on
 *            results.
 * Devices    Those with kernels (op_backend_for()): cpu and cards, and logical devices on them. On
 *            an asynchronous one a pass is queued and net_output() waits for it; so does the end of
 *            a pass that went wrong.
 * Threads    Executor. Kernels spread over the pool. Any thread may set cancel.
 * Log        net.rung, net.again, net.unused as they happen; net.memory (model, device, predicted,
 *            peak ...) at net_close().
 * Files      net.c open, names, ways of storing; run.c passes, ladder; replay.c recorded
 *            kernels; slab.c places; acts.c activations; layers.c the doors of layers, frames.c of
 *            those over frames; use.c what an op holds while it runs; tensors.c tensors of layers;
 *            trace.c traces; use.h, net_impl.h what they share. */
#pragma once

#include "op/ops.h"
#include "residency/residency.h"
#include "stream/stream.h"

struct net;
struct net_run;

/* ---- a net ---- */

/* Where a canonical tensor is in this file. */
struct net_source {
    char name[192];     /* full name in the file, without root */
    uint64_t row, rows; /* rows of the outermost dimension that are meant; 0: all */
    bool transpose;     /* a matrix that the file keeps the other way round */
    struct shape as;    /* ndim 0: the file's shape; else that many elements under this shape */
    bool flat;          /* all its elements as a vector */
};
/* Translates `canonical` ("text_model.final_layer_norm.weight"). False: called so in the file
 * too. */
typedef bool net_names_fn(const void *user, const char *canonical, struct net_source *out);

/* Where time goes, layer by layer: each op is waited for, so that passes take longer as a whole. */
#define NET_TIMES_MAX 128
struct net_times {
    struct net_time {
        char what[64]; /* "linear img_mlp.0" */
        uint64_t count, ns;
    } at[NET_TIMES_MAX]; /* the last one takes what has no room */
    size_t n;
};

struct net_args {
    struct residency *res; /* borrowed, as everything here, until net_close() */
    struct res_model *m;   /* loaded (res_load) */
    const char *root; /* in front of every name in the file ("model.diffusion_model."); NULL: "" */
    net_names_fn *names; /* NULL: canonical names are the file's */
    const void *names_user;
    struct tpool *pool;        /* may be NULL */
    const atomic_bool *cancel; /* may be NULL */
    const struct log *log;     /* may be NULL */
    /* Of activations: the first that the device is made for (op_acts()), else F32. */
    enum dtype act, act_else; /* DT_NONE: F32 */
    bool fp8;                 /* op_env.fp8 */
    bool int8; /* products with weights that are whole numbers round their inputs to 8 bits, too, as
                  ComfyUI's: faster, and other numbers; where the host computes, and the file does
                  not ask for exact ones */
    struct net_times *times; /* filled; NULL: nobody asks */
};
/* BERTH_EINVAL: not resident. BERTH_EUNSUPPORTED: its compute device cannot compute (names it and
 * those that can), or the file says its weights are in a layout nobody here knows. BERTH_ENODEVMEM:
 * no room for the ring of a model that streams. */
berth_status net_open(const struct net_args *a, struct net **out, berth_err *err);
void net_close(struct net *n); /* NULL is fine */

/* ---- traces: what passes would do, from a file's header alone ----
 *
 *     net_trace_open()      no device, no memory for weights, nothing of them is read
 *     net_predict() ...     for each pass that the network has, in the order they run
 *     net_close()
 *
 * fills in, for every tensor that a layer took, its turn, whether it was looked up, and what the
 * layer costs (trace.c). A prediction that fails has traced the layers before the one it failed
 * at. A trace takes milliseconds. It is for nothing else: not for net_forward(). */
struct net_trace_args {
    const struct weights *w; /* all borrowed until net_close() */
    const char *root;        /* as net_args */
    net_names_fn *names;
    const void *names_user;
    struct block_trace *out;
};
berth_status net_trace_open(const struct net_trace_args *a, struct net **out, berth_err *err);

/* Tensors behind the root that no layer has taken in any run so far, dry ones included, beside
 * those that files carry along and nobody computes with (position_ids, logit_scale, loss.*,
 * markers, scales of activations). For after a dry run of everything: what is left over then
 * belongs to a network of another build. Logs net.unused unless there are none. first: the name of
 * one, as long as the model. */
size_t net_unused(const struct net *n, const char **first);

struct net_report {     /* of the last net_forward(), and what all of them did */
    uint64_t predicted; /* bytes, by the dry run that the last pass went by */
    uint64_t peak;      /* what the pass really reached; equal, or something is wrong */
    uint64_t largest,
        largest_predicted; /* the largest peak of all passes, and what was said of it */
    uint64_t weights; /* bytes of the model's blocks on that device, beside the slab and the ring */
    uint64_t passes, rungs; /* rungs of the ladder taken */
    uint64_t replayed;      /* of the passes: launched as recorded (replay.c) */
    bool thrifty;
    /* Layers of the last pass whose block comes before that of the layer they ran after: streams
     * fetch blocks in the order that the family says (plan/blocks.h), and each of these may
     * wait for a copy that nothing hides. */
    uint64_t backward;
    char device[DEV_NAME_MAX];
    struct stream_stats stream;
};
struct net_report net_report(struct net *n);
enum dtype net_act(const struct net *n); /* of activations */

/* ---- runs ---- */

struct act { /* a value: copy it. Empty (ndim 0, addr 0) after an error */
    struct shape shape;
    uint64_t addr;
    enum dtype dtype;
};
/* Writes the network down. Called dry, not at all (see Flow), once or for every size a rung tries,
 * then real, once or after a failing device call again. Gets the same arguments each time and must
 * do the same calls. */
typedef void net_forward_fn(struct net_run *r, void *user);
/* BERTH_ECANCELED, BERTH_ENODEVMEM (see Ladder), BERTH_ENOTFOUND (no such weight), BERTH_EINVAL
 * (shapes). */
berth_status net_forward(struct net *n, net_forward_fn *fn, void *user, berth_err *err);
/* Peak of such a pass without running it, on the rung the net is on; its ops are ready then.
 * BERTH_ENODEVMEM: they could not be, or the stream over a model that made way has no room. */
berth_status net_predict(struct net *n, net_forward_fn *fn, void *user, uint64_t *peak,
                         berth_err *err);

bool net_bad(const struct net_run *r);
bool net_thrifty(const struct net_run *r); /* on rung 2: less memory rather than speed */
/* Ends the run with this error, unless there is one already. */
void net_fail(struct net_run *r, berth_status s, const char *fmt, ...) PRINTF_LIKE(3, 4);
/* Prefix of layer names for what follows ("input_blocks.1.0."); returns the mark for
 * net_leave(). */
size_t net_enter(struct net_run *r, const char *fmt, ...) PRINTF_LIKE(2, 3);
void net_leave(struct net_run *r, size_t mark);
/* Is there any of <prefix><layer>: weight or bias. */
bool net_has(struct net_run *r, const char *layer);

/* ---- memory that stays ----
 * Passes leave nothing behind but what net_output() gave; a language model goes on where its last
 * pass ended. So many bytes of the compute device are the net's until net_close(), or until it is
 * asked again. They hold what passes wrote there; a pass that is run again writes it again. Not for
 * traces. BERTH_ENODEVMEM: no room. */
berth_status net_keep(struct net *n, uint64_t bytes, berth_err *err);
/* It was taken as so many pieces of `from` bytes each: makes them `to` bytes, no less. What is in
 * them stays, at their beginnings. Between passes. BERTH_ENODEVMEM: as it was. */
berth_status net_keep_more(struct net *n, uint64_t pieces, uint64_t from, uint64_t to,
                           berth_err *err);
/* A part of it, `at` bytes behind its beginning, under a shape; not to be dropped. */
struct act net_kept(struct net_run *r, uint64_t at, const struct shape *s);

/* ---- guests ----
 * Layers of another net in the passes of this one: a network that was trained to stand between its
 * layers. Both compute on one device (BERTH_EUNSUPPORTED: they do not); the guest is open as long
 * as n is, and runs nothing of its own meanwhile. */
berth_status net_invite(struct net *n, struct net *guest, berth_err *err);
/* Layers that are asked for from now on are the guest's, behind the same prefix; false: the net's
 * own again. */
void net_visit(struct net_run *r, bool guest);

/* ---- activations ---- */
struct act net_new(struct net_run *r, const struct shape *s); /* contents unspecified */
void net_drop(struct net_run *r, struct act *a); /* its place may be used again; empty is fine */
enum dtype net_dtype(const struct net_run *r);   /* of acts */
/* Host floats in, rounded to the net's type, and out. Dry: nothing is touched.
 * What comes from the host, here and in net_embedding() and net_timestep(), is copied in the order
 * of the queue: it stays where and as it is until net_forward() returns, or net_output() of
 * something made from it has. So it is memory of the caller of net_forward(), not of the forward's
 * stack. */
struct act net_input(struct net_run *r, const struct shape *s, const float *src);
struct act net_input_f32(struct net_run *r, const struct shape *s,
                         const float *src); /* stays F32: tables for kernels */
void net_output(struct net_run *r, struct act a, float *dst);
/* The same elements under another shape; shares a's place: drop one of them. */
struct act net_reshape(struct net_run *r, struct act a, const struct shape *s);
/* A view on it, for layers that take slices, and slices of views: no copies. */
struct view net_view(const struct act *a);
struct view net_part(struct net_run *r, struct view v, int axis, uint64_t begin, uint64_t end);
struct view net_split(struct net_run *r, struct view v,
                      uint32_t heads); /* [B, T, heads * D] as [B, T, heads, D] */
/* To be said right before a's net_output(), which then looks at what came to the host: BERTH_EINVAL
 * "<what>: NaN at [0, 3, 17, 2]" for the first value that is not finite. */
void net_finite(struct net_run *r, struct act a, const char *what);

/* A step on the host, for what no op computes: a new act of shape `as` = fn(x), F32 on both sides.
 * fn runs in real runs alone. user: as src of net_input(). Slow on cards, which wait meanwhile. */
typedef void net_host_fn(const float *x, const struct shape *xs, float *y, const struct shape *ys,
                         const void *user);
struct act net_host(struct net_run *r, struct act x, const struct shape *as, net_host_fn *fn,
                    const void *user);

/* ---- layers: outputs are new acts unless said; inputs stay ----
 * A 1x1 convolution's weight does for linear, and a matrix for a 1x1 convolution.
 * Bias: products, convolutions, group and layer norms have one; a file without it is broken and
 * refused (BERTH_ENOTFOUND). no_bias, rms norms and embeddings have none, and do not look at
 * one.
 * Types: acts of the net's type in and out. But a sum that is F32 (net_linear_f32, net_sum_f32)
 * goes on as x of norms (not in place), net_add, net_permute, net_slice and net_round, and as what
 * net_linear_add and net_feed_forward add to. */
struct act net_linear(struct net_run *r, struct act x, const char *layer);
struct act net_linear_no_bias(struct net_run *r, struct act x, const char *layer);
struct act net_linear_f32(struct net_run *r, struct act x, const char *layer); /* gives F32 */
/* A layer that no file of the net has: w [rows, x's row], bias [rows] or NULL; as src of
 * net_input(). */
struct act net_linear_given(struct net_run *r, struct act x, const float *w, const float *bias,
                            uint64_t rows);
struct act net_linear_add(struct net_run *r, struct act x, const char *layer,
                          struct act add); /* + add; may give add's place: drops it */
/* The same between slices: y (all of it) = after(x . rows of the weight + their bias). */
struct net_product {
    const char *layer;
    struct view x, y;
    uint64_t row, rows; /* of the weight; rows 0: all */
    enum op_after after;
    bool no_bias; /* as net_linear_no_bias() */
};
void net_product(struct net_run *r, const struct net_product *p);
/* Several of one layer: its block is acquired once. A layer that is asked for twice may be streamed
 * twice. */
void net_products(struct net_run *r, const struct net_product *p, size_t n);
struct net_conv {
    uint32_t stride, top, left, bottom, right;
}; /* zero: stride 1, no padding */
struct act net_conv2d(struct net_run *r, struct act x, const char *layer, struct net_conv c);
struct act net_conv2d_no_bias(struct net_run *r, struct act x, const char *layer,
                              struct net_conv c);
struct act net_conv2d_add(struct net_run *r, struct act x, const char *layer, struct net_conv c,
                          struct act add); /* + add, in its place: takes it */
struct act net_conv2d_plus(struct net_run *r, struct act x, const char *layer, struct net_conv c,
                           struct act add); /* + add, which stays */
#define NET_PAD1 ((struct net_conv) { .stride = 1, .top = 1, .left = 1, .bottom = 1, .right = 1 })
#define NET_1X1 ((struct net_conv) { .stride = 1 })
/* Over frames, causal: x [frames, C, h, w], the weight [OC, C, t, kh, kw]. Result j sees the t
 * frames that end with frame step * (j + 1) - 1 of x, of as many as a multiple of step; or with
 * frame step * j, of any number. Those before the first are `before`, [n, C, h, w]. What is beyond
 * those, and around each picture, is zeros, or goes on as it is at the edge, or a mirror there. */
enum net_outside { NET_ZEROS, NET_EDGE, NET_MIRROR /* of space alone */ };
struct net_frames {
    struct net_conv plane;
    struct act before; /* empty: none */
    uint32_t step;     /* 0 means 1 */
    bool from_first;   /* the first result ends with frame 0 */
    enum net_outside time, space;
};
struct act net_conv3d(struct net_run *r, struct act x, const char *layer, struct net_frames f);
struct act net_conv3d_add(struct net_run *r, struct act x, const char *layer, struct net_frames f,
                          struct act add); /* + add, in its place: takes it */
/* Frames begin..end of such an act, or rows of another, in the same place: not to be dropped. */
struct act net_rows(struct net_run *r, struct act a, uint64_t begin, uint64_t end);
struct act net_group_norm(struct net_run *r, struct act x, const char *layer, uint32_t groups,
                          float eps, bool silu);
void net_group_norm_in_place(struct net_run *r, struct act *x, const char *layer, uint32_t groups,
                             float eps, bool silu);
struct act net_channel_norm(struct net_run *r, struct act x, const char *layer, float eps,
                            bool silu); /* op_channel_norm */
void net_channel_norm_in_place(struct net_run *r, struct act *x, const char *layer, float eps,
                               bool silu);
/* x = silu(x / sqrt(mean of its channels' squares + eps) * (1 + scale) + shift), of each pixel;
 * scale, shift: of C values each, empty: left out. */
void net_channel_modulate(struct net_run *r, struct act *x, struct act scale, struct act shift,
                          float eps, bool silu);
struct act net_layer_norm(struct net_run *r, struct act x, const char *layer,
                          float eps); /* layer NULL: without parameters */
struct act net_rms_norm(struct net_run *r, struct act x, const char *layer, float eps);
struct act net_rms_norm_from_one(struct net_run *r, struct act x, const char *layer,
                                 float eps); /* its weights count from 1 */
/* y = rms_norm(x) * weight of layer * (1 + scale) + shift, between slices; scale, shift: as of
 * net_modulate(), empty: left out. */
struct net_norm {
    const char *layer;
    struct view x, y, scale, shift;
    float eps;
    bool from_one; /* its weights count from 1 */
};
void net_rms_norm_to(struct net_run *r, const struct net_norm *n);
/* The same with a layer norm. layer NULL, here as there: without parameters. */
void net_norm_to(struct net_run *r, const struct net_norm *n);
void net_unary(struct net_run *r, struct act *x, enum op_unary_kind kind); /* in place */
void net_add(struct net_run *r, struct act *x, struct act b);              /* x += b, broadcast */
struct act net_sum_f32(struct net_run *r, struct act a, struct act b);     /* a + b, in F32 */
void net_add_scaled(struct net_run *r, struct act *x, struct act b,
                    float scale); /* x += b * scale */
/* y = x where it is not below 0, else x * slope; slope: one number for all, [1, 1, 1, 1], or as
 * net_add() spreads. y may be x. */
void net_leak(struct net_run *r, struct act x, struct act slope, struct act y);
/* The same in place, with a slope for each channel of x [n, C, ...]: the layer's weight. */
void net_prelu(struct net_run *r, struct act *x, const char *layer);
struct act net_geglu(struct net_run *r, struct act x);
/* add + down(geglu(up(x))) row by row, in add's place; drops x. A thrifty run does some rows at a
 * time. */
struct act net_feed_forward(struct net_run *r, struct act x, const char *up, const char *down,
                            struct act add);
/* x = down(silu(gate(x)) * up(x)) row by row, without biases. A thrifty run does half of the rows
 * at a time. */
void net_swiglu(struct net_run *r, struct act x, const char *gate, const char *up,
                const char *down);
/* q [B, Tq, C], k, v [B, Tk, C], heads * head_dim = C; all else as op_attention has it. */
struct net_attn {
    uint32_t heads;
    float scale;
    bool causal;
    uint32_t past, window;
    struct act mask;
};
struct act net_attention(struct net_run *r, struct act q, struct act k, struct act v,
                         struct net_attn a);
/* Between slices: q, k, v, y as op_attention has them. */
void net_attend(struct net_run *r, struct view q, struct view k, struct view v, struct view y,
                struct net_attn a); /* heads is not looked at */
/* op_qk_rope in place on slices; wq, wk: layers with a weight [D] each, or NULL both. table: of
 * net_input_f32(). */
void net_qk_rope(struct net_run *r, struct view q, struct view k, const char *wq, const char *wk,
                 struct act table, float eps);
struct net_rope { /* the same with all that op_qk_rope has */
    const char *wq, *wk;
    struct act table;
    float eps;
    bool halves, from_one;
};
void net_rotate(struct net_run *r, struct view q, struct view k, const struct net_rope *how);
/* norm(x) * (1 + scale) + shift, layer norm without parameters; scale, shift: [B, C] slices. An
 * empty shift is left out. */
struct act net_modulate(struct net_run *r, struct view x, struct view scale, struct view shift,
                        float eps);
/* rms_norm(x) * weight of layer * (1 + scale); scale: [B, C] slice, empty: left out. */
struct act net_rms_modulate(struct net_run *r, struct act x, const char *layer, struct view scale,
                            float eps);
/* x += gate * z; x, z: [B, T, C] slices; gate: [B, C]. */
void net_gate(struct net_run *r, struct view x, struct view gate, struct act z);
void net_mul(struct net_run *r, struct act *x, struct act b);      /* x *= b */
void net_silu_mul(struct net_run *r, struct act *x, struct act b); /* x = silu(x) * b */
/* All values of a layer's weight, which has one dimension. */
struct act net_param(struct net_run *r, const char *layer);
/* [n, D]; BERTH_EINVAL: an id beyond the table. ids: as src of net_input(). */
struct act net_embedding(struct net_run *r, const int32_t *ids, size_t n, const char *layer);
struct act net_timestep(struct net_run *r, const float *t, size_t n,
                        uint64_t dim); /* t: as src of net_input() */
struct act net_nearest(struct net_run *r, struct act x, uint64_t h, uint64_t w);
struct act net_concat(struct net_run *r, const struct act *x, size_t n, int axis);
struct act net_permute(struct net_run *r, struct act x, const int *axis); /* a copy */
void net_copy(struct net_run *r, struct view x, struct view y);           /* y = x, in y's type */
struct act net_round(struct net_run *r, struct act x); /* a copy of F32 in the net's type */
struct act net_slice(struct net_run *r, struct act x, int axis, uint64_t begin,
                     uint64_t end); /* a copy */
