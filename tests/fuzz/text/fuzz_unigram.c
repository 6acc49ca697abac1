/* Tokenizer files of T5's and Gemma's kind: tokenizer.json if it begins as JSON, else a ModelProto.
 * What can be read encodes a text; where pairs are merged, the ids are decoded. */
#include "text/unigram_impl.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char text[] = "A caf\xc3\xa9  e\xcc\x82\xcc\x81 \xef\xac\x81 </s>\r\n ab abab "
                               "\xe2\x96\x81 \xf0\x9f\x90\x88 \xff";
    struct unigram *t;
    berth_err err = { 0 };
    if (unigram_from_memory((const char *)data, n, &t, &err)) {
        if (t || !err.msg[0])
            abort();
        return 0;
    }
    static const struct tokenizer is = { .bytes = unigram_bytes, .each_byte = true };
    struct text_decoder d = { .is = &is, .tok = t };
    struct vec ids = { .elem = sizeof(int32_t) };
    struct str out = { 0 };
    if (unigram_encode(t, text, sizeof text - 1, &ids, &err))
        abort();
    for (size_t i = 0; i < ids.n; i++) {
        int32_t id = *(int32_t *)vec_at(&ids, i);
        if (id < 0 || (size_t)id >= t->vocab)
            abort();
        if (t->merges)
            text_decode(&d, id, &out);
    }
    text_decode_end(&d, &out);
    if (!str_is_utf8(str_c(&out), out.n))
        abort();
    vec_release(&ids);
    str_release(&out);
    unigram_close(t);
    return 0;
}
