/* toy_text: the toy's text encoder, with a tokenizer and a set of its own: one folder, and one line
 * in each list (docs/adding.md).
 *
 * Tokenizer  a byte is a token; toy.txt holds the number that is added to it
 * Encoder    z = mix(table[token]); pooled: z of the end token
 * Set        cond is z with its rows in reverse order: a join of its own; type "ovis" */
#ifndef FAMILIES_TOY_TEXT_H
#define FAMILIES_TOY_TEXT_H

#include "model/encoder.h"
#include "model/keys.h"

#define TOY_WIDTH 8
#define TOY_VOCAB 300
#define TOY_END 299
#define TOY_TABLE "toy_table"
#define TOY_MIX "toy_mix"

/* Its tensors, not in the order they are used in. */
static inline void keys_toy_text(struct keys *k)
{
    keys_linear(k, TOY_MIX, TOY_WIDTH, TOY_WIDTH, KEYS_NO_BIAS);
    keys_tensor(k, TOY_TABLE ".weight", TOY_VOCAB, TOY_WIDTH, 0, 0);
}

#endif
