/* Any bytes: the same answer whole, one by one, and cut by their own values. */
#include "support/streams.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static size_t one(void *user)
{
    (void)user;
    return 1;
}

struct cuts {
    const uint8_t *p;
    size_t n, at;
};

static size_t by_value(void *user)
{
    struct cuts *c = user;
    return 1u + (c->p[c->at++ % c->n] & 31u);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct str whole = { 0 }, got = { 0 };
    struct cuts cuts = { data, n, 0 };
    stream_http1((const char *)data, n, NULL, NULL, &whole);
    stream_http1((const char *)data, n, one, NULL, &got);
    stream_require(got.n == whole.n && !memcmp(str_c(&got), str_c(&whole), whole.n));
    str_clear(&got);
    stream_http1((const char *)data, n, by_value, &cuts, &got);
    stream_require(got.n == whole.n && !memcmp(str_c(&got), str_c(&whole), whole.n));
    str_release(&whole);
    str_release(&got);
    return 0;
}
