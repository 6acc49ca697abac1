/* Any bytes, from a client and from a server: the same messages whole and one by one; a key is
 * answered or refused. */
#include "support/streams.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t one(void *user)
{
    (void)user;
    return 1;
}

static void read_both_ways(const uint8_t *data, size_t n, bool client)
{
    struct str whole = { 0 }, got = { 0 }, copy = { 0 };
    str_add(&copy, (const char *)data, n);
    stream_ws(copy.p, n, client, NULL, NULL, &whole);
    str_clear(&copy);
    str_add(&copy, (const char *)data, n);
    stream_ws(copy.p, n, client, one, NULL, &got);
    stream_require(got.n == whole.n && !memcmp(str_c(&got), str_c(&whole), whole.n));
    str_release(&whole);
    str_release(&got);
    str_release(&copy);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str key = { 0 };
    char accept[29];
    read_both_ways(data, n, false);
    read_both_ways(data, n, true);
    str_add(&key, (const char *)data, n);
    if (wsframe_accept(str_c(&key), accept))
        stream_require(strlen(accept) == 28);
    str_release(&key);
    return 0;
}
