/* Any bytes as a safetensors file: refused, or an index that holds together and can be read to the
 * end. */
#include "walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct weights_file file = { .name = "fuzz.safetensors", .data = data, .size = n };
    fuzz_walk(&file, 1);
    return 0;
}
