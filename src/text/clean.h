/* clean: a text as CLIP's tokenizer sees it, and its words. For text/ alone.
 *
 * The rules are those of transformers 5 (CLIPTokenizer), which has one tokenizer where 4 had a slow
 * and a fast one: text_clean() is its normalizer, text_next_word() its pre-tokenizer. */
#pragma once

#include "base/vec.h"

#include <stdint.h>

/* Appends the points of s in NFC, then lower case. Spaces and controls stay: what is no space is
 * part of a word. False: memory is exhausted. */
WARN_UNUSED bool text_clean(const char *s, size_t n, struct vec *out);

struct word {
    size_t at, n; /* points; n 0: the text is at its end */
};
/* The first word of a clean text at or behind *at, which moves on. */
struct word text_next_word(const uint32_t *c, size_t n, size_t *at);

/* Points of the ASCII text z if c begins with it; 0: it does not. */
size_t text_literal(const uint32_t *c, size_t n, const char *z);

#define WORD_START_TEXT "<|startoftext|>"
#define WORD_END_TEXT "<|endoftext|>"
