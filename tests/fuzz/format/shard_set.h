/* shard_set: the files that a shard index in a test can point to. Also what the fuzzer of the index
 * has beside its input. */
#ifndef FUZZ_FORMAT_SHARD_SET_H
#define FUZZ_FORMAT_SHARD_SET_H

#include "base/str.h"
#include "format/format_impl.h"

#define SHARD_U8(name, from, to)                                                                   \
    "\"" name "\":{\"dtype\":\"U8\",\"shape\":[" #to "],\"data_offsets\":[" #from "," #to "]}"

/* name of the file, its header, bytes of data */
static const struct {
    const char *name, *header;
    size_t data;
} shard_set[] = {
    { "m-1.safetensors",
      "{\"__metadata__\":{\"format\":\"pt\",\"one\":\"1\"}," SHARD_U8("a", 0, 1) "}", 1 },
    { "m-2.safetensors",
      "{\"__metadata__\":{\"format\":\"xx\",\"two\":\"2\"}," SHARD_U8("b", 0, 2) "}", 2 },
    { "again.safetensors", "{" SHARD_U8("a", 0, 3) "}", 3 },
    { "broken.safetensors", "{" SHARD_U8("c", 0, 4) "}", 3 },
    { "empty.safetensors", "{}", 0 },
    { "twice.safetensors", "{\"__metadata__\":{\"k\":\"1\",\"k\":\"2\"}," SHARD_U8("b", 0, 2) "}",
      2 },
};
enum { SHARD_SET = sizeof shard_set / sizeof shard_set[0] };

static inline void shard_set_bytes(size_t i, struct str *f)
{
    size_t n = strlen(shard_set[i].header);
    for (int k = 0; k < 8; k++)
        str_addc(f, (char)((uint64_t)n >> (8 * k)));
    str_add(f, shard_set[i].header, n);
    for (size_t k = 0; k < shard_set[i].data; k++)
        str_addc(f, (char)('A' + k));
}

#endif
