/* Any bytes are a sequence of operations on a registry: support/res_world.h. */
#include "support/res_world.h"

#include <stdio.h>
#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct str report; /* memory of the previous one is used again */
    if (!world_run(data, n, &report)) {
        fprintf(stderr, "%s\n", str_c(&report));
        abort();
    }
    return 0;
}
