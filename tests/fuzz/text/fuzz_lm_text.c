/* Prompts through small tokenizers of language models: any bytes become ids that are decoded to
 * UTF-8. Where nothing is made normal, well-formed text comes back as it was. */
#include "text/bpe_impl.h"
#include "text/lmbpe_impl.h"

#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

static const char *const merge[][2] = { { "a", "b" },       { "ab", "a" },  { " ", "a" },
                                        { "\xc3", "\xa9" }, { "\n", "\n" }, { "'", "s" } };

static void put_symbols(struct str *out, const char *s, size_t n)
{
    for (size_t i = 0; i < n; i++) {
        char utf8[4];
        str_add(out, utf8, bpe_byte_symbol((unsigned char)s[i], utf8));
    }
}

static void must(berth_status s)
{
    if (s)
        abort();
}

/* All bytes, a few merges, tokens with every flag. */
static struct lmbpe *make(const struct lmbpe_kind *kind)
{
    static const struct added_token token[] = {
        { .text = "<a>", .n = 3, .id = 300, .special = true },
        { .text = "<b>", .n = 3, .id = 301, .lstrip = true, .rstrip = true },
        { .text = "cab", .n = 3, .id = 302, .single_word = true },
        { .text = "e\xcc\x81", .n = 3, .id = 303, .normalized = true },
    };
    struct bpe_source b = { 0 };
    berth_err err = { 0 };
    for (unsigned i = 0; i < 256; i++) {
        struct str text = { 0 };
        const char byte = (char)i;
        put_symbols(&text, &byte, 1);
        must(bpe_add_text(&b, text.p, text.n, i, &err));
        str_release(&text);
    }
    for (size_t i = 0; i < ARRAY_LEN(merge); i++) {
        struct str l = { 0 }, r = { 0 }, both = { 0 };
        put_symbols(&l, merge[i][0], strlen(merge[i][0]));
        put_symbols(&r, merge[i][1], strlen(merge[i][1]));
        str_addf(&both, "%s%s", l.p, r.p);
        must(bpe_add_text(&b, both.p, both.n, 256 + i, &err));
        must(bpe_add_merge(&b, l.p, l.n, r.p, r.n, &err));
        str_release(&l);
        str_release(&r);
        str_release(&both);
    }
    for (size_t i = 0; kind->nfc && i < ARRAY_LEN(token); i++)
        must(bpe_add_token(&b, &token[i], &err));
    struct lmbpe *t = lmbpe_new(kind);
    if (!t)
        abort();
    must(lmbpe_take_plain(t, &b, &err));
    bpe_source_release(&b);
    return t;
}

static void there_and_back(const struct lmbpe *t, const char *s, size_t n)
{
    static const struct tokenizer is = { .bytes = lmbpe_bytes };
    struct text_decoder d = { .is = &is, .tok = t, .special = true };
    struct vec ids = { .elem = sizeof(int32_t) };
    struct str out = { 0 };
    berth_err err = { 0 };
    berth_status status = lmbpe_encode(t, s, n, &ids, &err);
    if (status != BERTH_OK && status != BERTH_ELIMIT)
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
    if (!status && !t->nfc && str_is_utf8(s, n) && (out.n != n || (n && memcmp(out.p, s, n) != 0)))
        abort();
    vec_release(&ids);
    str_release(&out);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    static const char *const none[] = { NULL };
    static const struct lmbpe_kind kinds[] = {
        { .name = "GPT-2", .split = &split_gpt2, .must = none, .pad = "a" },
        { .name = "Qwen", .split = &split_qwen2, .nfc = true, .must = none, .pad = "a" },
        { .name = "Llama 3", .split = &split_llama3, .must = none, .pad = "a" },
    };
    static struct lmbpe *made[ARRAY_LEN(kinds)]; /* once for all inputs */
    for (size_t i = 0; i < ARRAY_LEN(kinds); i++) {
        if (!made[i])
            made[i] = make(&kinds[i]);
        there_and_back(made[i], n ? (const char *)data : "", n);
    }
    return 0;
}
