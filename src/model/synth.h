/* synth: weights computed from their names, so that any program can make the same file.
 *
 * Rule    For a tensor with full key `name` and elements i = 0, 1, ... in row-major order:
 *             h = FNV-1a 64 of the name
 *             z = h + (i+1) * 0x9E3779B97F4A7C15                                  (mod 2^64)
 *             z = (z ^ z>>30) * 0xBF58476D1CE4E5B9; z = (z ^ z>>27) * 0x94D049BB133111EB
 *             z = z ^ z>>31;  u = (z >> 40) / 2^24 * 2 - 1                         (double)
 *             2 or more dimensions:                         u * sqrt(3 / product(shape[1:]))
 *             1 dimension, last name part weight or scale:  1 + 0.1 u
 *             otherwise:                                    0.1 u
 *         in double, rounded to float32, then to the stored type as dtype_desc.from_f32 does it.
 *         Every element stands alone: the bytes do not depend on threads, chunks or order.
 * Types   One type throughout, unless the format is `mixed` (GGUF): then as ComfyUI-GGUF's
 *         converter does it, whatever the type asked for: tensors with fewer than two dimensions or
 *         at most 1024 elements stay F32. With a quant type, tensors the preset names as sensitive
 *         and those whose elements do not fill whole blocks stay F16.
 * Layouts As ComfyUI's quantised files have them (synth_layout.c): Linears are codes with scales
 *         beside them, chosen from the values of the rule; all else is BF16.
 * Threads synth_fill() and synth_weights_fill() from any; they share nothing they write. */
#pragma once

#include "format/weights.h"
#include "model/keys.h"

#include <stdatomic.h>

/* Elements [first, first + count) of the tensor, by the rule. */
void synth_fill(const char *name, size_t name_len, const struct shape *shape, uint64_t first,
                size_t count, float *out);

struct synth_item;
struct synth_layout { /* what --dtype calls it, and the layout that is (format/layout.h) */
    const char *name, *format;
    bool rows, turned; /* rows have scales of their own; columns are turned where they fit */
};
extern const struct synth_layout synth_layouts[];
extern const size_t synth_layouts_n;
const struct synth_layout *synth_layout_find(const char *name); /* in any case; NULL: none */

struct synth {                 /* what a file will hold; user data of synth_weights_fill() */
    const struct keys *keys;   /* borrowed */
    struct weights_spec *spec; /* owned; names borrowed from keys, and from here */
    size_t n;                  /* of spec: keys->n, or more in a layout */
    const struct synth_layout *layout; /* NULL: none */
    struct synth_item *item;           /* of a layout, [n] */
    struct arena mem;
    uint64_t bytes;            /* of tensor data, without header and padding */
    const atomic_bool *cancel; /* borrowed; when it turns true filling ends with ECANCELED */
};

/* Decides the stored type of every tensor.
 *   hiprec  see struct preset; NULL: none        cancel  NULL: cannot be canceled
 * EUNSUPPORTED, listing what can be written, when this type cannot be made or stored there. */
berth_status synth_init(struct synth *s, const struct keys *keys, enum dtype dtype,
                        const struct weights_writer *format, const char *const *hiprec,
                        const atomic_bool *cancel, berth_err *err);
/* The same in a layout, for safetensors: matrices in it, the rest BF16. */
berth_status synth_layout_init(struct synth *s, const struct keys *keys,
                               const struct synth_layout *layout, const char *const *hiprec,
                               const atomic_bool *cancel, berth_err *err);
void synth_release(struct synth *s);

weights_fill_fn synth_weights_fill; /* user: const struct synth * */

/* Can a file of this format be made in this type? format NULL: of any format. */
bool synth_can(enum dtype dtype, const struct weights_writer *format);
