/* blocks: the units a model is placed in.
 *
 * A block is the tensors of a file that share a name up to the last dot: the weight, bias and
 * scales of one leaf layer. A tensor without a dot is a block of its own, named as the tensor (with
 * those named below it, should there be any: names of blocks are unique). A block's bytes are those
 * of its tensors in the stored types, nothing else; a tensor without bytes costs nothing. In memory
 * its tensors lie behind one another, the largest first, each aligned to BLOCK_ALIGN, which takes
 * `span` bytes: a weight is mostly a multiple of the alignment, so its bias follows it without a
 * hole and the block travels in one piece.
 *
 * Order   Execution order: as the architecture's pass comes to them (struct block_arch), else file
 *         order. Everything that counts or spreads blocks goes by it.
 * Work    What a step spends where, as far as the architecture can tell: an estimate for pictures
 *         of one size, compared among the blocks of one list. Layout `spread` goes by it.
 * Roles   An input embedding is looked up by token, not multiplied through: it stays with the
 *         compute device whatever the quotas say. The architecture knows it; in files of no known
 *         one the last part of the name does (embed_tokens, wte, shared, ...).
 * Threads A list is constant once it is made. Files blocks.c. */
#pragma once

#include "base/arena.h"
#include "format/weights.h"

#define BLOCK_ALIGN 256 /* of a tensor in its block; the least every device aligns to */

enum block_kind {
    BLOCK_LINEAR,    /* a weight of two dimensions */
    BLOCK_CONV,      /* of three and more */
    BLOCK_NORM,      /* of one */
    BLOCK_EMBEDDING, /* the role */
    BLOCK_OTHER,     /* no tensor called weight */
    BLOCK_KIND_COUNT
};
const char *block_kind_name(enum block_kind kind);

struct block_tensor {
    const struct weights_entry *entry; /* borrowed from the file's index; NULL in made-up lists */
    uint64_t off;                      /* in the block's memory, a multiple of BLOCK_ALIGN */
    uint64_t bytes;
};

struct block {
    const char *name; /* NUL-terminated, without the part's prefix */
    uint32_t name_len;
    enum block_kind kind;
    bool embedding; /* role: input embedding */
    uint64_t bytes; /* sum of its tensors: what plans count */
    uint64_t span;  /* with the padding between them: what a device is asked for */
    uint64_t work;  /* its part of a step's time, of whatever unit; 0 in all: bytes stand for it */
    uint32_t first, n; /* its tensors, blocks.tensor[first .. first+n) */
};

struct blocks {
    struct arena mem;
    struct block *at; /* in execution order */
    size_t n;
    struct block_tensor *tensor; /* of each block beside each other, the largest first */
    size_t tensors;
    uint64_t bytes; /* of all blocks, S of the plans */
};

/* Tensors whose names start with `root` in a file are called `known` and the rest everywhere else,
 * by adapters and by ComfyUI: "model.diffusion_model.", "diffusion_model.". */
#define BLOCK_ALIAS_MAX 128
struct block_alias {
    char root[BLOCK_ALIAS_MAX], known[BLOCK_ALIAS_MAX];
};

/* What a pass does with one tensor of a file. Zeroed: nothing that anybody knows. */
struct block_use {
    uint64_t
        when;    /* its turn, counted from 1; tensors of one turn keep the file's order. 0: never */
    bool lookup; /* rows of it are looked up by token or position */
    uint64_t work; /* what it costs against others */
};
struct block_trace {
    struct block_use *use; /* [weights_count()] */
    uint64_t turns;        /* the highest `when` so far */
};

/* What an architecture knows about its blocks. */
struct block_arch {
    const char *name; /* "flux" */
    const char *about;
    /* Fills in what a pass does with the tensors behind `part`; out->use comes zeroed. A pass that
     * cannot be followed to its end is no error: what is left keeps the file's order. NULL: the
     * file's order. BERTH_ENOMEM alone. */
    berth_status (*trace)(const struct block_arch *arch, const struct weights *w, const char *part,
                          struct block_trace *out, berth_err *err);
    /* What its tensors are called elsewhere; returns how many aliases, at most cap. NULL: as in the
     * file. */
    size_t (*aliases)(const struct weights *w, const char *part, struct block_alias *out,
                      size_t cap);
};

/* Bytes of the name of the block that a tensor is of: all before the last dot, or all of it. */
size_t block_name_length(const char *tensor, size_t n);

/* The blocks of those tensors whose name starts with `prefix` (NULL or "": all), or of whole files.
 *   arch  NULL: not known
 * BERTH_ENOTFOUND: no tensor has that prefix. Release with blocks_release(), also after an
 * error. */
berth_status blocks_from_weights(const struct weights *w, const char *prefix,
                                 const struct block_arch *arch, struct blocks *out, berth_err *err);

void blocks_release(struct blocks *b); /* zeroed is fine */
