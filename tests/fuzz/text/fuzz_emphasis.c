/* Prompts: weights, references, cleaning, words, merges, chunks. The first byte says which limits
 * chunks have. */
#include "text/bpe_impl.h"

#include <stdlib.h>
#include <string.h>

static const char vocab[] = "{\"a\":0,\"a</w>\":1,\"b\":2,\"b</w>\":3,\"ab\":4,\"aba</w>\":5,"
                            "\"<|startoftext|>\":6,\"<|endoftext|>\":7}";
static const char merges[] = "a b\nab a</w>\n";

/* "x..." is a file of as many vectors as its name is long, at most 64; others are not there. */
static berth_status find(void *user, const char *name, size_t n, const char *key, struct arena *mem,
                         const float **v, uint32_t *count, uint32_t *width, berth_err *err)
{
    static const float zero[64];
    (void)user, (void)key, (void)mem;
    if (n == 0)
        abort();
    *v = zero;
    *count = n < 64 ? (uint32_t)n : 64;
    *width = 1;
    return name[0] == 'x' ? BERTH_OK : err_set(err, BERTH_ENOTFOUND, "none");
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t n)
{
    struct bpe *t;
    berth_err err = { 0 };
    if (n == 0)
        return 0;
    if (bpe_from_text(vocab, sizeof vocab - 1, merges, sizeof merges - 1, &t, &err))
        abort();
    struct arena mem = { 0 };
    struct chunks c;
    bool clip = data[0] & 1;
    struct chunk_rules rules = { .start = clip ? 6 : -1,
                                 .end = data[0] & 2 ? 7 : -1,
                                 .pad = 0,
                                 .max_length = clip ? 9u + data[0] / 4 : 0,
                                 .min_length = clip ? 0 : 5,
                                 .pad_to_max = clip };
    struct text_embeddings emb = { .find = find };
    berth_status s = text_chunks((const char *)data + 1, n - 1, tokenizer_clip.encode, t, &rules,
                                 "clip_l", data[0] & 64 ? NULL : &emb, &mem, &c, &err);
    if (s != BERTH_OK && s != BERTH_ELIMIT && s != BERTH_EINVAL) /* EINVAL: a weight of nan */
        abort();
    for (size_t i = 0; !s && i < c.n; i++) {
        if (clip && c.len[i] != rules.max_length)
            abort(); /* every chunk of an encoder has one length */
        for (size_t k = 0; k < c.len[i]; k++)
            if (c.chunk[i][k].vector ? c.chunk[i][k].id != -1
                                     : c.chunk[i][k].id < 0 || c.chunk[i][k].id > 7)
                abort();
    }
    arena_release(&mem);
    bpe_close(t);
    return 0;
}
