/* use: what one op holds while it runs, and the tensors of its layer as kernels take them.
 *
 *     struct use u;
 *     if (!use_begin(&u, r, layer))            the run is bad: nothing is held
 *         return (struct act) { 0 };
 *     const struct net_layer *l = net_layer_with(r, layer, 2, true, &shape);
 *     u.keep = l->weight.block;
 *     a.bias = use_param(&u, &l->bias);
 *     a.w = use_weight(&u, &l->weight, &shape);   last: its block stays acquired
 *     use_op_linear(&u, &a);
 *     use_end(&u);
 *
 * Held are the block its weight lies in (one at a time: a ring may have a single slot), places in
 * the slab for copies of parameters, scratch. All of it goes back when the use ends, in the dry run
 * as in the real one.
 * Files: use.c holding and running, tensors.c tensors of layers, coded.c
 *         quantised ones. */
#pragma once

#include "net/net_impl.h"

#define USE_PLACES 8

struct use {
    struct net_run *r;
    const char *layer; /* for messages */
    struct op_env env;
    uint64_t place[USE_PLACES];
    size_t places;
    uint64_t keep;  /* block whose memory operands point into; UINT64_MAX: none */
    uint64_t block; /* acquired; UINT64_MAX: none */
    uint64_t addr;  /* of it */
};

/* False: the run is bad, or was canceled. Nothing needs an end then. layer: as long as the use. */
bool use_begin(struct use *u, struct net_run *r, const char *layer);
void use_end(struct use *u);
/* Gives back places but the first so many (u.places, before). */
void use_give(struct use *u, size_t but);
/* r->err was set by a callee: the run is bad. */
void use_failed(struct use *u);
/* Memory in the slab until the use ends; 0: the run is bad. */
uint64_t use_place(struct use *u, uint64_t bytes);
/* Acquires the tensor's block, unless it is already. Its bytes; NULL: the run is bad. */
void *use_bytes(struct use *u, const struct net_tensor *t);
/* The same of a tensor that lies on the compute device and stays there: its block need not be
 * held. */
void *use_resident_bytes(struct use *u, const struct net_tensor *t);

/* Every op: in a dry run its checks and what it needs to be ready, its scratch, and in a real run
 * the op itself. Does nothing when the run is bad. */
#define OP(x) void use_op_##x(struct use *u, const struct op_##x *a);
#include "op/ops.def"
#undef OP

/* ---- tensors of layers ---- */

/* <prefix><layer> with a weight of so many dimensions, and a bias if it is to have one; *shape: in
 * those. NULL: the run is bad. */
const struct net_layer *net_layer_with(struct net_run *r, const char *layer, int ndim, bool bias,
                                       struct shape *shape);
/* The same for ops that multiply by no scale: one that would matter is refused. */
const struct net_layer *net_layer_plain(struct net_run *r, const char *layer, int ndim, bool bias);
/* A table whose rows are looked up: with a scale only where its layout says how. */
const struct net_layer *net_layer_table(struct net_run *r, const char *layer);
/* A weight as kernels take it, under the shape s: where it lies, if they can read it there. To be
 * asked for last: its block stays acquired until the use ends. */
struct view use_weight(struct use *u, const struct net_tensor *t, const struct shape *s);
/* linear with a layer's weight, t being it or some of its rows, under the shape w: expanded in
 * pieces where it is codes. All else of *a is there. */
void use_linear(struct use *u, const struct net_layer *l, const struct net_tensor *t,
                struct shape w, struct op_linear *a);
/* Values of codes in the slab: rows [row, row + s->dim[0]), or those of ids. pre: t->coded */
struct view use_decoded(struct use *u, const struct net_tensor *t, uint64_t row,
                        const struct shape *s, enum dtype to);
struct view use_decoded_rows(struct use *u, const struct net_tensor *t, const struct view *ids,
                             enum dtype to);
/* A copy in F32 in the slab, packed as it is stored. */
struct view use_widened(struct use *u, const struct net_tensor *t);
/* A parameter: where it lies, if kernels read its type and it stays there for the op; else a copy
 * in F32. */
struct view use_param(struct use *u, const struct net_tensor *t);
/* Elements of everything but the outermost dimension: a row, a filter. */
uint64_t net_unit(const struct shape *s);
/* A view without gaps, whatever the type. A quant's rows may be no whole blocks by its last
 * dimension alone. */
struct view net_packed(enum dtype t, const struct shape *s, void *data);
