/* Any bytes as a GGUF file: whatever tokenizer its metadata hold, each kind refuses it in words, or
 * encodes a text with it, and the ids are decoded. */
#include "format/format_impl.h"
#include "text/tokenizer.h"

#include <stdlib.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static void decode(const struct tokenizer *is, const void *tok, const struct vec *ids)
{
    struct text_decoder d = { .is = is, .tok = tok };
    struct str out = { 0 };
    for (size_t i = 0; i < ids->n; i++)
        text_decode(&d, *(int32_t *)vec_at(ids, i), &out);
    text_decode_end(&d, &out);
    if (!str_is_utf8(str_c(&out), out.n))
        abort();
    str_release(&out);
}

static void use(const struct tokenizer *is, const void *tok)
{
    static const char text[] = "A caf\xc3\xa9, don't <|im_start|><s>  e\xcc\x81 12345\r\n\n x "
                               "aaaaabababa \xf0\x9f\x90\x88 </s><pad> \xff\xe2\x96\x81";
    struct vec ids = { .elem = sizeof(int32_t) };
    berth_err err = { 0 };
    berth_status s = is->encode(tok, text, sizeof text - 1, &ids, &err);
    if (s != BERTH_OK && (s != BERTH_ELIMIT || !err.msg[0]))
        abort();
    for (size_t i = 0; i < ids.n; i++)
        if (*(int32_t *)vec_at(&ids, i) < 0)
            abort();
    is->ids(tok);
    if (is->find && is->find(tok, "<pad>") < -1)
        abort();
    if (is->bytes)
        decode(is, tok, &ids);
    vec_release(&ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const struct weights_file file = { .name = "fuzz.gguf", .data = data, .size = n };
    struct weights *w = NULL;
    berth_err err = { 0 };
    if (weights_open_memory(&file, 1, NULL, &w, &err))
        return 0;
    for (const struct tokenizer *const *k = tokenizer_list; *k; k++) {
        void *tok = NULL;
        berth_status s = (*k)->spare ? (*k)->spare(w, &tok, &err) : BERTH_ENOTFOUND;
        if (!s != (tok != NULL) || (s && (*k)->spare && !err.msg[0]))
            abort();
        if (tok)
            use(*k, tok);
        (*k)->close(tok);
    }
    weights_close(w);
    return 0;
}
