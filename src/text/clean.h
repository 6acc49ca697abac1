/* clean: a text as CLIP's tokenizer sees it, and its words. For text/ alone. */
#ifndef TEXT_CLEAN_H
#define TEXT_CLEAN_H

#include "base/vec.h"

#include <stdint.h>

/* Appends the points of s: control characters gone, CJK ideographs parted, NFC, lower case, words
 * parted by one blank each. False: memory is exhausted. */
WARN_UNUSED bool text_clean(const char *s, size_t n, struct vec *out);

enum word_kind { WORD_NONE, WORD_START, WORD_END, WORD_PLAIN }; /* none: the text is at its end */
struct word {
    enum word_kind kind; /* start, end: the literal of that special token */
    size_t at, n;        /* points */
};
/* The first word of a clean text at or behind *at, which moves on. */
struct word text_next_word(const uint32_t *c, size_t n, size_t *at);

#define WORD_START_TEXT "<|startoftext|>"
#define WORD_END_TEXT "<|endoftext|>"

#endif
