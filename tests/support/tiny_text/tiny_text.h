/* tiny_text: a text encoder with its own tokenizer and its own set, added as docs/adding.md says: one
 * folder, and one line in each list. A test includes tiny_text.c, which brings the tables with these
 * lines in them.
 *
 * Tokenizer  a byte is a token; tiny.txt holds the number that is added to it
 * Encoder    z = mix(table[token]); pooled: z of the end token
 * Set        cond is z with its rows in reverse order: a join of its own; type "ovis" */
#ifndef SUPPORT_TINY_TEXT_H
#define SUPPORT_TINY_TEXT_H

#include "text/encoder.h"

#define TOKENIZER(x) extern const struct tokenizer tokenizer_##x;
#include "support/tiny_text/tokenizers.def"
#undef TOKENIZER
#define ENCODER(x) extern const struct encoder_class encoder_##x;
#include "support/tiny_text/encoders.def"
#undef ENCODER
#define TEXT_SET(x) extern const struct text_set text_set_##x;
#include "support/tiny_text/text_sets.def"
#undef TEXT_SET

#define TINY_WIDTH 8
#define TINY_VOCAB 300
#define TINY_END 299
#define TINY_TABLE "tiny_table"
#define TINY_MIX "tiny_mix"

#endif
