/* carried: tokenizers that a model's file brings as a tensor of bytes, as ComfyUI writes them
 * ("spiece_model", "tekken_model", "tokenizer_json"). For text/ alone. */
#pragma once

#include "base/err.h"

struct weights;
struct carried {
    const char *bytes; /* borrowed from the file */
    size_t n;
    char what[512]; /* for messages */
};
/* By itself, or in a whole checkpoint. BERTH_ENOTFOUND: there is none. */
berth_status carried_find(const struct weights *w, const char *name, struct carried *out,
                          berth_err *err);
