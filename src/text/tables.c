/* tables.c: the lists of the .def files. A test adds lines of its own by including this file with
 * TEXT_TEST_<LIST> naming a .def; the linker then takes the test's tables instead of these. */
#include "text/encoder.h"

#define TOKENIZER(x) &tokenizer_##x,
static const struct tokenizer *const tokenizers[] = {
#include "text/tokenizers.def"
#ifdef TEXT_TEST_TOKENIZERS
#include TEXT_TEST_TOKENIZERS
#endif
};
#undef TOKENIZER

#define ENCODER(x) &encoder_##x,
static const struct encoder_class *const encoders[] = {
#include "text/encoders.def"
#ifdef TEXT_TEST_ENCODERS
#include TEXT_TEST_ENCODERS
#endif
};
#undef ENCODER

#define TEXT_SET(x) &text_set_##x,
static const struct text_set *const sets[] = {
#include "text/text_sets.def"
#ifdef TEXT_TEST_SETS
#include TEXT_TEST_SETS
#endif
};
#undef TEXT_SET

size_t tokenizer_count(void)
{
    return ARRAY_LEN(tokenizers);
}

const struct tokenizer *tokenizer_at(size_t i)
{
    return tokenizers[i];
}

size_t encoder_count(void)
{
    return ARRAY_LEN(encoders);
}

const struct encoder_class *encoder_at(size_t i)
{
    return encoders[i];
}

size_t text_set_count(void)
{
    return ARRAY_LEN(sets);
}

const struct text_set *text_set_at(size_t i)
{
    return sets[i];
}
