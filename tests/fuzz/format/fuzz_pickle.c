/* Any bytes as a file of torch.save(): refused, or an index that holds together and can be read to
 * the end. */
#include "walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct weights_file file = { .name = "fuzz.pt", .data = data, .size = n };
    fuzz_walk(&file, 1);
    return 0;
}
