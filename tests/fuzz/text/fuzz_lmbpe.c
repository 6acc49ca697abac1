/* Files of language models' tokenizers: tokenizer.json; or, where there are NUL bytes, vocab.json,
 * merges.txt and tokenizer_config.json parted by them. What can be read encodes a text, and its ids
 * are decoded. */
#include "text/lmbpe_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const struct lmbpe_kind kind = {
    .name = "any", .split = &split_llama3, .must = (const char *const[]) { NULL }, .pad = "<pad>"
};

/* The text up to the next NUL, which is passed over. */
static size_t next_part(const char **s, size_t *n, const char **part)
{
    const char *nul = *n ? memchr(*s, 0, *n) : NULL;
    size_t len = nul ? (size_t)(nul - *s) : *n;
    *part = *s;
    *s += len + (nul != NULL);
    *n -= len + (nul != NULL);
    return len;
}

static berth_status read_files(const char *s, size_t n, struct lmbpe **out, berth_err *err)
{
    struct bpe_source b = { 0 };
    bpe_read_fn *const read[] = { bpe_read_vocab, bpe_read_merges, bpe_read_config };
    berth_status status = BERTH_OK;
    *out = NULL;
    for (size_t i = 0; !status && i < ARRAY_LEN(read); i++) {
        const char *part;
        size_t len = next_part(&s, &n, &part);
        status = read[i](&b, part, len, err);
    }
    struct lmbpe *t = status ? NULL : lmbpe_new(&kind);
    if (t && !(status = lmbpe_take_plain(t, &b, err)))
        *out = t;
    else
        lmbpe_close(t);
    bpe_source_release(&b);
    return status;
}

static void use(const struct lmbpe *t)
{
    static const char text[] = "A caf\xc3\xa9, don't <|im_start|>  e\xcc\x81 12345\r\n\n x "
                               "aaaaabababa \xf0\x9f\x90\x88 <pad> \xff\xe2\x96\x81";
    static const struct tokenizer is = { .bytes = lmbpe_bytes };
    struct text_decoder d = { .is = &is, .tok = t };
    struct vec ids = { .elem = sizeof(int32_t) };
    struct str out = { 0 };
    berth_err err = { 0 };
    berth_status s = lmbpe_encode(t, text, sizeof text - 1, &ids, &err);
    if (s != BERTH_OK && s != BERTH_ELIMIT)
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
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    const char *s = n ? (const char *)data : "";
    struct lmbpe *t;
    berth_err err = { 0 };
    berth_status status = memchr(s, 0, n) ? read_files(s, n, &t, &err)
                                          : lmbpe_from_json(s, n, "input", &kind, &t, &err);
    if (!status != (t != NULL) || (status && !err.msg[0]))
        abort();
    if (t)
        use(t);
    lmbpe_close(t);
    return 0;
}
