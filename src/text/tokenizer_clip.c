/* tokenizer_clip.c: CLIP's byte pairs, as a tokenizer. */
#include "text/bpe_impl.h"

static berth_status open_path(const char *path, void **out, berth_err *err)
{
    struct bpe *t;
    berth_status s = bpe_open(path, &t, err);
    *out = t;
    return s;
}

static berth_status carried(const struct weights *w, void **out, berth_err *err)
{
    struct bpe *t;
    berth_status s = bpe_from_weights(w, &t, err);
    *out = t;
    return s;
}

static void close_it(void *tok)
{
    bpe_close(tok);
}

static struct token_ids ids(const void *tok)
{
    const struct bpe *t = tok;
    return (struct token_ids) { .start = t->start, .end = t->end, .pad = 0 };
}

static berth_status encode(const void *tok, const char *text, size_t n, struct vec *out,
                           berth_err *err)
{
    return bpe_encode(tok, text, n, out, err);
}

const struct tokenizer tokenizer_clip = {
    .name = "CLIP",
    .files = "vocab.json, merges.txt",
    .folders = (const char *const[]) { "/clip", "/sd1_tokenizer", "", NULL },
    .own = 2,
    .any_of =
        (const char *const[][2]) { { "vocab.json", "merges.txt" }, { "tokenizer.json" }, { NULL } },
    .open = open_path,
    .carried = carried,
    .close = close_it,
    .ids = ids,
    .encode = encode,
};
