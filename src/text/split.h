/* split: words of a text, as language models cut it before pairs are merged. For text/ alone.
 *
 * Files name the way as a regular expression. There are a few of them, with few differences, so
 * that they are written out here by hand:
 *
 *     's|'t|'re|'ve|'m|'ll|'d | LEAD? LETTERS+ | NUMBERS | BLANK? REST+ | \s+(?!\S) | \s+
 *
 * A word is what the first of them matches that matches at all. Any text is made of words. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

struct split_rule {
    bool any_case;     /* of contractions: 'S too */
    bool any_lead;     /* anything but a line end may stand in front of letters; else a blank */
    bool number_blank; /* a blank may stand in front of numbers */
    unsigned numbers;  /* at most so many in a word; 0: any */
    bool line_ends;    /* belong to the rest in front of them, else to the space in front of them */
    bool whole;        /* nothing is cut, and nothing else here counts */
};
extern const struct split_rule split_gpt2, split_qwen2, split_llama3;

/* The rule that a regular expression of a tokenizer.json stands for; NULL: we do not know it. */
const struct split_rule *split_of_regex(const char *regex, size_t n);
/* Bytes of the word at s; 0: n is 0. Well-formed UTF-8. */
size_t split_word(const struct split_rule *r, const char *s, size_t n);
