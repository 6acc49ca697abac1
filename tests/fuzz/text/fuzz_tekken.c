/* Mistral's tekken.json. What can be read encodes a text, and its ids are decoded. */
#include "text/lmbpe_impl.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct lmbpe_kind kind = { .name = "any",
                                        .split = &split_llama3,
                                        .must = (const char *const[]) { NULL },
                                        .start = "<s>",
                                        .pad = "<pad>" };

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char text[] = "A caf\xc3\xa9, don't <s>[INST] 12345\r\n\n x aaaaabababa \xff";
    static const struct tokenizer is = { .bytes = lmbpe_bytes };
    struct lmbpe *t;
    berth_err err = { 0 };
    if (lmbpe_from_tekken(n ? (const char *)data : "", n, "input", &kind, &t, &err)) {
        if (t || !err.msg[0])
            abort();
        return 0;
    }
    struct text_decoder d = { .is = &is, .tok = t };
    struct vec ids = { .elem = sizeof(int32_t) };
    struct str out = { 0 };
    if (lmbpe_encode(t, text, sizeof text - 1, &ids, &err))
        abort();
    for (size_t i = 0; i < ids.n; i++) {
        int32_t id = *(int32_t *)vec_at(&ids, i);
        if (id < 0 || (size_t)id >= t->ids)
            abort();
        text_decode(&d, id, &out);
    }
    text_decode_end(&d, &out);
    if (!str_is_utf8(str_c(&out), out.n))
        abort();
    vec_release(&ids);
    str_release(&out);
    lmbpe_close(t);
    return 0;
}
