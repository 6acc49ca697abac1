/* tables.c: the lists of the .def files. A test adds lines of its own by including this file with
 * TEXT_TEST_<LIST> naming a .def; the linker then takes the test's tables instead of these. */
#include "text/encoder.h"

#define TOKENIZER(x) &tokenizer_##x,
const struct tokenizer *const tokenizer_list[] = {
#include "text/tokenizers.def"
#ifdef TEXT_TEST_TOKENIZERS
#include TEXT_TEST_TOKENIZERS
#endif
    NULL
};

#define ENCODER(x) &encoder_##x,
const struct encoder_class *const encoder_list[] = {
#include "text/encoders.def"
#ifdef TEXT_TEST_ENCODERS
#include TEXT_TEST_ENCODERS
#endif
    NULL
};

#define TEXT_SET(x) &text_set_##x,
const struct text_set *const text_set_list[] = {
#include "text/text_sets.def"
#ifdef TEXT_TEST_SETS
#include TEXT_TEST_SETS
#endif
    NULL
};
