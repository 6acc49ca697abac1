/* tables.c: the lists of the .def files. A test adds its own lines by including this file with
 * TEXT_TEST_<LIST> naming a .def of its own; the linker then takes its tables instead of these. */
#include "text/tokenizer.h"

#define TOKENIZER(x) &tokenizer_##x,
static const struct tokenizer *const tokenizers[] = {
#include "text/tokenizers.def"
#ifdef TEXT_TEST_TOKENIZERS
#include TEXT_TEST_TOKENIZERS
#endif
};
#undef TOKENIZER

size_t tokenizer_count(void)
{
    return sizeof tokenizers / sizeof *tokenizers;
}

const struct tokenizer *tokenizer_at(size_t i)
{
    return tokenizers[i];
}
