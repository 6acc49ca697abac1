/* Lists of blocks made by hand: names and bytes, one tensor each. */
#ifndef SUPPORT_BLOCK_SPECS_H
#define SUPPORT_BLOCK_SPECS_H

#include "plan/blocks.h"

#include <string.h>

struct block_spec {
    const char *name;
    uint64_t bytes;
    bool embedding;
};

/* False: no memory. *out: blocks_release(). */
static inline bool blocks_from_specs(const struct block_spec *spec, size_t n, struct blocks *out)
{
    *out = (struct blocks) { .n = n, .tensors = n };
    out->at = arena_array(&out->mem, n + 1, sizeof *out->at);
    out->tensor = arena_array(&out->mem, n + 1, sizeof *out->tensor);
    for (size_t i = 0; out->at && out->tensor && i < n; i++) {
        size_t len = strlen(spec[i].name);
        out->at[i] = (struct block) { .name = arena_strndup(&out->mem, spec[i].name, len),
                                      .name_len = (uint32_t)len,
                                      .kind = spec[i].embedding ? BLOCK_EMBEDDING : BLOCK_LINEAR,
                                      .embedding = spec[i].embedding,
                                      .bytes = spec[i].bytes,
                                      .span = spec[i].bytes,
                                      .first = (uint32_t)i,
                                      .n = 1 };
        out->tensor[i] = (struct block_tensor) { .bytes = spec[i].bytes };
        out->bytes += spec[i].bytes;
    }
    return out->at && out->tensor;
}

#endif
