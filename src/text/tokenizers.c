/* tokenizers.c: the list of tokenizers.def. */
#include "text/tokenizer.h"

const struct tokenizer *const tokenizer_list[] = {
#define TOKENIZER(x) &tokenizer_##x,
#include "text/tokenizers.def"
#undef TOKENIZER
    NULL
};
