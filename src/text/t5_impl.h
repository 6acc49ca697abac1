/* t5_impl: what the files about T5 share. For text/ alone. */
#ifndef TEXT_T5_IMPL_H
#define TEXT_T5_IMPL_H

#include "text/encoder.h"

#define T5_BUCKETS 32 /* of distances between tokens */
#define T5_BIAS(block) "encoder.block." #block ".layer.0.SelfAttention.relative_attention_bias"

/* Is there a T5 behind root; if so, with llama.cpp's names? */
bool t5_there(const struct weights *w, const char *root, bool *gguf);
/* Which row of the table of positions a key `distance` tokens behind its query has. */
int32_t t5_bucket(int64_t distance);

#endif
