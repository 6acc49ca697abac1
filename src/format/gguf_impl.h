/* gguf_impl: numbers of the GGUF format that its reader and its writer share. */
#ifndef FORMAT_GGUF_IMPL_H
#define FORMAT_GGUF_IMPL_H

#include "format/format_impl.h"

enum {
    GGUF_DIMS_MAX = 4,
    GGUF_ALIGN_DEFAULT = 32,
    GGUF_ALIGN_MAX = 2 << 20, /* a huge page: nobody has a reason for more */
    GGUF_KEY_EXTRA = 64,      /* a key may be a tensor name with a prefix */
    GGUF_NAME_MAX = 127,      /* written; ComfyUI-GGUF's converter has the same limit */
};

#define GGUF_ORIG_SHAPE "comfy.gguf.orig_shape."

/* gguf_write.c */
berth_status gguf_plan(const struct weights_write_args *a, struct write_plan *p, berth_err *err);

#endif
