/* Any text as a shard index, beside a few shards that it may name. */
#include "shard_set.h"
#include "walk.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static struct str bytes[SHARD_SET]; /* the same for every input */
    struct weights_file files[SHARD_SET + 1] = { { "x.safetensors.index.json", data, n } };
    for (size_t i = 0; i < SHARD_SET; i++) {
        if (!bytes[i].p)
            shard_set_bytes(i, &bytes[i]);
        files[i + 1] = (struct weights_file) { shard_set[i].name, bytes[i].p, bytes[i].n };
    }
    fuzz_walk(files, SHARD_SET + 1);
    return 0;
}
