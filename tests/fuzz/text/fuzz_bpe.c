/* Tokenizer files: tokenizer.json, or, behind a NUL byte, merges.txt for the vocab.json before it.
 * What can be read encodes a text. */
#include "text/bpe_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char text[] =
        "A caf\xc3\xa9, don't <|endoftext|> aaaaabababa \xf0\x9f\x90\x88 1 2";
    const uint8_t *nul = n ? memchr(data, 0, n) : NULL;
    size_t first = nul ? (size_t)(nul - data) : n;
    struct bpe *t;
    berth_err err = { 0 };
    if (bpe_from_text((const char *)data, first, nul ? (const char *)nul + 1 : NULL,
                      nul ? n - first - 1 : 0, &t, &err))
        return 0;
    struct vec ids = { .elem = sizeof(int32_t) };
    if (bpe_encode(t, text, sizeof text - 1, &ids, &err))
        abort();
    for (size_t i = 0; i < ids.n; i++) {
        int32_t id = *(int32_t *)vec_at(&ids, i);
        if (id < 0 || (size_t)id >= t->vocab)
            abort();
    }
    vec_release(&ids);
    bpe_close(t);
    return 0;
}
