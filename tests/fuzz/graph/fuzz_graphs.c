/* Workflows that validation lets pass and whose parts do not fit each other: the bytes are a
 * type-correct graph of any nodes (support/graph_dice.h), which is run over tiny models. */
#include "support/graph_world.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    world_open();
    world_try(data, n < 4096 ? n : 4096);
    return 0;
}
