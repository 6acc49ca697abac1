/* layout: weights of a file whose stored numbers are codes (tensor/coded.h), told by a marker
 * beside them (<layer>.comfy_quant, a few bytes of JSON), by the file's metadata
 * (_quantization_metadata), or by a scale beside an fp8 weight.
 *
 * Words   part: what stands beside the codes under the layer's name: scales, a book
 * Flow    weights_open() attaches a layout to each such weight (weights_entry.layout). The entry's
 *         type is then that of the codes and its shape that of the weight, padding included. So
 *         whoever reads sizes of a network sees the network; its bytes stay the file's. A weight
 *         whose layout is not known, or whose parts do not fit, stays as the file has it.
 *         layouts_check() says what is wrong with it.
 * Adding  a row in layout.c.
 * Threads As format/weights.h. */
#pragma once

#include "format/weights.h"
#include "tensor/coded.h"

struct layout_kind {
    const char *format; /* as markers say it */
    const char *words;  /* what it is, for people */
    enum dtype codes;   /* in the file, or as U8 or I8 with the same bytes */
    const char *rows;   /* part: F32 for each row, or one number */
    const char *all;    /* part: one number; NULL: none */
    const char *blocks; /* part: a scale for each group of columns; NULL: none */
    const char *book;   /* part that may be there: 16 numbers; NULL: none */
    const char *unread; /* part that may not be there */
    enum coded_blocks how;
    enum dtype block_type;
    uint32_t group; /* 0: none; unless the marker says another, where it may */
    bool swizzled, group_told;
    uint32_t pad; /* rows and columns are padded to a multiple; 1: they are not */
    enum { TURN_NEVER, TURN_TOLD, TURN_ALWAYS } turn;
};

struct weights_layout {
    const struct layout_kind *kind;
    enum dtype raw; /* in the file */
    struct shape raw_shape;
    const struct weights_entry *rows, *all, *blocks, *book; /* parts; NULL: not there */
    const struct weights_entry *pre; /* [columns]: inputs of the layer are multiplied by it */
    enum dtype block_type;
    uint32_t group, turn;
    bool exact; /* the file asks for exact products: inputs are not to be rounded */
};

/* Does op_linear's own scale do? One number beside fp8 codes. */
bool layout_is_plain(const struct weights_layout *l);
/* "4-bit floats (nvfp4), a scale for every 16" */
#define LAYOUT_WORDS_MAX 128
const char *layout_words(const struct weights_layout *l, char buf[LAYOUT_WORDS_MAX]);

/* How e, which has a layout, is expanded, but for where its codes, rows and blocks lie: those are
 * NULL. Single numbers and the book are read; BERTH_EFORMAT: one is not finite, or a scale is 0. */
berth_status layout_coded(const struct weights *w, const struct weights_entry *e, struct coded *out,
                          berth_err *err);
/* The same from the file's mapping; weights_check() afterwards. */
berth_status layout_mapped(const struct weights *w, const struct weights_entry *e,
                           struct coded *out, berth_err *err);

/* Values of all of e, row by row, as F32. */
berth_status layout_values(const struct weights *w, const struct weights_entry *e, float *dst,
                           berth_err *err);

/* The quantised weight that e stands beside, as a part or as its marker; NULL: it is no such. */
const struct weights_entry *layout_owner(const struct weights *w, const struct weights_entry *e);

/* Can all quantised weights behind `root` (NULL: of the file) be computed? Looks at markers, types
 * and shapes; values: at every number of a scale, too. BERTH_EUNSUPPORTED names the layer and its
 * layout, BERTH_EFORMAT what does not fit. */
berth_status layouts_check(const struct weights *w, const char *root, bool values, berth_err *err);

/* The kind that markers call so; NULL: none. */
const struct layout_kind *layout_kind_find(const char *format);
const struct layout_kind *layout_kind_at(size_t i); /* NULL: behind the last */
