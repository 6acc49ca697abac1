/* bpe_impl: inside of CLIP's tokenizer, for bpe.c and bpe_load.c. */
#pragma once

#include "text/bpe.h"
#include "text/merge.h"

struct bpe {
    int32_t byte[256]; /* id of each byte's symbol; -1: there is none, it becomes the end token */
    int32_t byte_end[256]; /* with </w>: the last byte of a word */
    struct pairs pairs;
    size_t vocab; /* highest id + 1 */
    int32_t start, end;
};

/* The character that stands for a byte in a vocabulary, in UTF-8: itself if it is printable, else
 * U+0100 and up in byte order. Returns its bytes. */
size_t bpe_byte_symbol(unsigned byte, char out[4]);
bool bpe_byte_is_printable(unsigned byte);

/* bpe_open() from memory: vocab.json and merges.txt, or, when merges is NULL, tokenizer.json. */
berth_status bpe_from_text(const char *vocab, size_t n, const char *merges, size_t m,
                           struct bpe **out, berth_err *err);
