/* patch_impl: what the files of patch share: patch.c -> patch_card.c -> patch_send.c. */
#pragma once

#include "merge/merge.h"
#include "residency/residency_impl.h"

struct job { /* one tensor to merge */
    struct merge merge;
    struct merge_plain from, to; /* what it reads and writes; or it reads */
    struct coded codes;
    struct arena tmp; /* factors, draws */
    struct vec terms; /* struct res_term */
    struct tpool *pool;
};

/* ---- patch_send.c ---- */

/* A piece of a block on its way to its memory: bytes of the file, or of memory, or made on the
 * spot. One of the three. */
struct part {
    const struct weights_entry *entry;
    uint64_t from;   /* of the entry */
    const void *raw; /* n bytes */
    berth_status (*make)(void *of, void *to,
                         berth_err *err); /* n bytes to `to`, which the host sees */
    void *of;
    uint64_t off;  /* in the block's memory */
    uint64_t addr; /* not 0: goes there instead, on the block's device */
    size_t n;
    bool weight; /* counted as moved */
};
#define PATCH_BOUNCE ((size_t)8 << 20) /* most of the file that is one part */

/* A stage for this device, with room for n bytes in a buffer: x->stream is its stream. */
berth_status patch_stage(struct res_patching *x, size_t device, size_t n, berth_err *err);
/* Straight into memory that the host sees, else through the stage; the copy is queued then, on
 * x->stream, and may still be on its way. */
berth_status patch_put(struct res_patching *x, const struct res_block *to, const struct part *t,
                       berth_err *err);
/* Bytes [0, n) of the entry, in parts, to the block from `off` on, or to addr. */
berth_status patch_put_entry(struct res_patching *x, const struct res_block *to,
                             const struct weights_entry *e, uint64_t from, uint64_t n,
                             const struct part *where, berth_err *err);
/* Waits for the copies that are on their way. */
berth_status patch_settle(struct res_patching *x, berth_err *err);

/* ---- patch_card.c ---- */

/* Merges on the device where the block lies, if it can: *done says whether. at: the tensor's place
 * in the block. Queued; the block's memory is read and written until patch_settle(). */
berth_status patch_on_card(struct res_patching *x, const struct res_block *to,
                           const struct weights_entry *e, const struct res_tensor_at *at,
                           const struct job *j, bool *done, berth_err *err);
