/* load_impl: what the files of a load share. */
#ifndef RESIDENCY_LOAD_IMPL_H
#define RESIDENCY_LOAD_IMPL_H

#include "base/vec.h"
#include "residency/residency_impl.h"

#include <pthread.h>

#define LOAD_PIECE ((size_t)256 << 10) /* one read: 0.1 ms, so that threads end together */
#define LOAD_BATCH_PIECES 1024

struct piece { /* a part of a tensor on its way */
    size_t block;
    const struct weights_entry *entry;
    uint64_t from; /* first byte in the tensor */
    uint64_t to;   /* in the block's memory */
    char *dst;     /* where the reader puts it */
    size_t n;
};

struct loading { /* owner: executor, except under lock */
    struct res_model *m;
    const struct res_load_args *args; /* never NULL */
    uint64_t *want;                   /* [blocks] patch signatures; NULL: none */
    struct res_load_result got;
    uint64_t promoted; /* bytes that came home: each move counts itself */
    uint64_t done;     /* bytes of blocks that are where they belong */
    uint64_t room_ns;  /* until all blocks had memory */
    struct vec batch;
    atomic_bool stop;     /* nobody needs further pieces */
    pthread_mutex_t lock; /* of the next two */
    berth_err first;      /* error of any reader; code 0: none */
    size_t first_block;
};

/* ---- load_pieces.c ---- */

struct cursor { /* over the tensors of the blocks on one device that come straight from the file */
    size_t device;
    size_t block, tensor;
    uint64_t off;
};
/* Is the cursor's block elsewhere, or does it not come straight from the file? */
bool load_skips(const struct loading *l, const struct cursor *c);
/* At most `most` bytes, or LOAD_PIECE. False: all were given out. */
bool load_next(const struct loading *l, struct cursor *c, size_t most, struct piece *out);
/* NULL: err is set. */
struct piece *load_add(const struct loading *l, struct vec *to, berth_err *err);
/* The pieces' memory is the readers' from here on. Their bytes. Thread: executor. */
uint64_t load_hand_out(const struct loading *l, const struct vec *pieces);
/* Thread: any. */
void load_read(struct loading *l, const struct piece *p);
/* Counts pieces of `bytes` that were read; fails with the first error of a reader, or canceled. */
berth_status load_account(struct loading *l, uint64_t bytes, berth_err *err);
uint64_t load_wanted_patch(const struct loading *l, size_t i); /* signature; 0: none */
bool load_canceled(const struct loading *l);
berth_status load_cancel_err(const struct loading *l, berth_err *err);
void load_progress(const struct loading *l);

/* ---- load_stage.c ---- */

/* The blocks of one device whose memory the host does not see. */
berth_status load_staged(struct loading *l, size_t device, berth_err *err);

#endif
