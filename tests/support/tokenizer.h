/* tokenizer: CLIP tokenizers for tests: a tiny one that is written here, and the real one where it
 * is. */
#ifndef SUPPORT_TOKENIZER_H
#define SUPPORT_TOKENIZER_H

#include <stdbool.h>
#include <stddef.h>

/* Writes <folder>/vocab.json and merges.txt (the folder is made when it is not there): 256 bytes,
 * 256 with </w>, a few merges ("cat", "photo", "of", "the", ...), the two special tokens. Returns
 * its vocabulary, start and end are the last two ids. 0: it could not be written. `one_file`:
 * tokenizer.json instead of the two. */
size_t tiny_tokenizer_write(const char *folder, bool one_file);

/* BERTH_TOKENIZERS_DIR or ../shared/tokenizers beside the source tree, with `name` ("clip") behind
 * it; NULL: not there. Good until the next call. */
const char *tokenizer_dir(const char *name);

#define tokenizer_or_skip(name)                                                                    \
    do {                                                                                           \
        if (!tokenizer_dir(name)) {                                                                \
            print_message("skipped: no tokenizer '%s'; set BERTH_TOKENIZERS_DIR to the folder "    \
                          "that has it\n",                                                         \
                          name);                                                                   \
            skip();                                                                                \
        }                                                                                          \
    } while (0)

#endif
