/* net_impl: what the files of net/ share. */
#pragma once

#include "base/map.h"
#include "base/vec.h"
#include "net/net.h"
#include "net/slab.h"

#define NET_RINGS 3      /* sizes of a stream's ring: the usual, two slots of one block, one */
#define NET_NAME_MAX 256 /* bytes of a canonical name, prefix included, NUL too */

struct net_tensor { /* a tensor of the file as a forward means it; constant while the net is open */
    bool there;
    uint32_t block;
    size_t index;        /* in struct blocks: what net.used is counted by */
    enum dtype dtype;    /* as it is stored now: patched blocks may be wider than the file */
    uint64_t off, bytes; /* in the block's memory: of the rows that are meant */
    struct shape stored; /* those rows, before transposing and reshaping */
    struct shape shape;  /* as the forward sees it */
    bool transpose;
    uint64_t row;                  /* of the file's rows the first that is meant */
    uint32_t pad;                  /* of a quantised weight: rows and columns are padded to it */
    const struct net_coded *coded; /* NULL: its numbers are its values, but for a scale */
};

struct net_coded { /* a weight whose numbers are codes, and what stands beside it */
    struct coded how;
    struct net_tensor codes, rows, blocks; /* whole ones */
    bool exact;                            /* the file asks for products of values */
    bool by_scale;                         /* ops that multiply by a scale need nothing of this */
};

struct net_layer {
    struct net_tensor weight, bias, scale;
    struct net_tensor pre; /* of a quantised weight: what inputs are multiplied by */
    float scale_value;     /* what scale holds now */
};

#define NET_NO_LAYER SIZE_MAX

/* What the latest dry run found, in order: the place of everything in the slab, and of each call a
 * hash of its operands' shapes. A pass that comes
 * with the same calls as the two before it is not run dry again (run.c). */
struct net_foreseen {
    net_forward_fn *fn; /* NULL: nothing, or the run failed */
    bool thrifty;
    bool steady; /* the dry run before it found the same */
    uint64_t peak;
    struct net_spot {
        uint64_t off, bytes;
    } * at;
    size_t n, cap;
    uint64_t hash; /* of all places */
};

enum replay_mode { REPLAY_OFF, REPLAY_RECORD, REPLAY_PLAY };

struct net_replay {        /* replay.c */
    enum replay_mode mode; /* of the pass that runs */
    struct vec calls;      /* uint64_t: what each was */
    struct vec segments;   /* struct replay_segment */
    uint64_t slab;         /* where that of the recorded pass was */
    unsigned recordings;   /* begun */
    bool whole;            /* calls and segments are those of a whole pass */
    bool open;             /* the last segment is being recorded */
    bool missed;           /* the pass is not the recorded one, or could not be recorded */
    size_t from, next;     /* played: calls [from, next) came and were not launched yet */
    size_t at;             /* segment they are in */
};

struct net {
    struct residency *res;
    struct res_model *m;       /* referenced; NULL: a trace */
    const struct weights *w;   /* the file */
    struct block_trace *trace; /* NULL: none */
    uint64_t pending;          /* of a trace: costs since the last layer that has a weight */
    struct arena mem;          /* root, layers and their names */
    const char *root;
    net_names_fn *names;
    const void *names_user;
    struct tpool *pool;
    const atomic_bool *cancel;
    const struct log *log;
    bool fp8, int8;
    enum dtype act; /* of activations */
    struct net_times *times;
    struct map tensors; /* name in the file -> block << 32 | tensor of the block */
    struct map layers;  /* canonical name -> struct net_layer *, once asked for */
    bool *used;         /* [tensors of the file]: a layer took it */
    struct device *compute;
    const struct op_backend *backend;
    bool host; /* its memory is host memory: ops are done when they return */
    struct dev_stream *queue;
    struct dev_owner *owner;
    struct stream *stream; /* NULL: could not be opened again after the model made way */
    unsigned ring;         /* how small the stream's ring has to be, 0 .. NET_RINGS - 1 */
    bool tight;            /* the usual one without spare room, too (stream_config.ring_least) */
    bool thrifty;          /* rung 2 was taken: kernels do with little scratch, rows go in pieces */
    struct net *guest;     /* net_invite(); NULL: none */
    struct slab slab;
    struct dev_mem kept; /* net_keep() */
    uint64_t kept_bytes;
    struct net_foreseen seen;
    struct net_replay replay;
    struct net_report rep;
};

struct net_run {
    struct net *n;
    struct net *from; /* whose layers are asked for: n's, or its guest's */
    bool dry, bad;
    bool unproven; /* real, but without a dry run of its own */
    bool missed;   /* it is not the pass that was foreseen */
    berth_err err;
    uint64_t base; /* address of the slab; dry: one that nobody follows */
    bool thrifty;
    size_t taken;      /* acts and scratch so far: index in net.seen.at */
    bool queued;       /* something was queued since the device was last waited for */
    uint64_t watched;  /* act whose values are to be looked at when they are on the host; 0: none */
    const char *watch; /* what it is */
    size_t block;      /* taken last; see net_report.backward */
    size_t layer;      /* of a trace: the tensor that the op's cost counts at, or NET_NO_LAYER */
    uint64_t backward;
    struct net_room { /* of net_host(), until nothing is on its way any more */
        struct net_room *next;
        float at[];
    } * rooms;
    char prefix[NET_NAME_MAX];
    size_t prefix_len;
};

/* net.c */
/* The stream over the model's blocks, with a ring of size n->ring, or smaller where there is no
 * room. */
berth_status net_stream_open(struct net *n, berth_err *err);
/* The layer called so, known from now on; NULL: err says why. One without weight is not an
 * error. */
const struct net_layer *net_layer_get(struct net *n, const char *name, berth_err *err);
/* coded.c: what stands beside the layer's weight, which is e in the file. pre: weight, bias and
 * scale are there. */
berth_status net_find_codes(struct net *n, const struct weights_entry *e, struct net_layer *l,
                            berth_err *err);
/* In which type a net of these wishes computes on d. */
enum dtype net_act_on(const struct device *d, const struct net_args *a);
/* BERTH_ENOTFOUND with the tensor's name in the file, and the file's. what: "weight", "bias". */
berth_status net_missing(const struct net *n, const char *layer, const char *what, berth_err *err);

/* trace.c, for nets that are traces: a layer takes a tensor, looks it up, runs an op. */
void trace_tensor(struct net *n, size_t index);
void trace_lookup(struct net *n, size_t index);
#define OP(x) void trace_op_##x(struct net_run *r, const struct op_##x *a);
#include "op/ops.def"
#undef OP

/* acts.c */
void net_rooms_free(struct net_run *r);
size_t net_type_bytes(enum dtype t); /* of an element */
struct act net_new_of(struct net_run *r, enum dtype t,
                      const struct shape *s); /* contents unspecified */

/* run.c: places in the slab as addresses; 0: the run is bad. */
uint64_t net_take(struct net_run *r, uint64_t bytes);
struct op_operand;
/* A call with these operands comes next. False: the run is bad, or not the one foreseen. */
bool net_note_call(struct net_run *r, const struct op_operand *operand, const void *args);
void net_give(struct net_run *r, uint64_t addr);

/* replay.c. Of a pass: replay_begin(); for each op replay_call(), the op unless that was true, and
 * replay_called(); replay_end() before anybody waits for the stream. */
void replay_close(struct net_replay *p);
void replay_begin(struct net *n, bool foreseen, uint64_t slab);
/* True: it was launched before, or will be with its segment; or the run is bad. */
bool replay_call(struct net_run *r, const struct op_operand *operand, size_t size,
                 const struct op_env *env, const void *args);
void replay_called(struct net_run *r, const char *op);
berth_status replay_end(struct net *n, bool ok, berth_err *err);
/* Is there a reason not to begin the next op? Looks at cancel, too. */
bool net_stop(struct net_run *r);
/* r->err was set by a callee: the run is bad, and the error names the layer ("" : only where). */
void net_failed(struct net_run *r, const char *layer);
