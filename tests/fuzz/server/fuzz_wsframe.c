/* Any bytes: the same messages whole and one by one; a key is answered or refused. */
#include "support/streams.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t one(void *user)
{
    (void)user;
    return 1;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str whole = { 0 }, got = { 0 }, copy = { 0 };
    char accept[29];
    str_add(&copy, (const char *)data, n);
    stream_ws(copy.p, n, NULL, NULL, &whole);
    str_clear(&copy);
    str_add(&copy, (const char *)data, n);
    stream_ws(copy.p, n, one, NULL, &got);
    stream_require(got.n == whole.n && !memcmp(str_c(&got), str_c(&whole), whole.n));
    if (wsframe_accept(str_c(&copy), accept))
        stream_require(strlen(accept) == 28);
    str_release(&whole);
    str_release(&got);
    str_release(&copy);
    return 0;
}
