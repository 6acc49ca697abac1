/* tokenizer_t5.c: T5's pieces, as a tokenizer. */
#include "text/unigram_impl.h"

static berth_status open_path(const char *path, void **out, berth_err *err)
{
    struct unigram *t;
    berth_status s = unigram_open(path, &t, err);
    if (!s && t->eos) {
        unigram_close(t);
        t = NULL;
        s = err_set(err, BERTH_EFORMAT, "'%s' has no '</s>': no tokenizer of T5", path);
    }
    *out = t;
    return s;
}

static berth_status spare(const struct weights *w, void **out, berth_err *err)
{
    struct unigram *t;
    berth_status s = unigram_from_gguf(w, "t5", &t, err);
    *out = t;
    return s;
}

static void close_it(void *tok)
{
    unigram_close(tok);
}

static struct token_ids ids(const void *tok)
{
    const struct unigram *t = tok;
    return (struct token_ids) { .start = -1, .end = t->end, .pad = t->pad };
}

static berth_status encode(const void *tok, const char *text, size_t n, struct vec *out,
                           berth_err *err)
{
    return unigram_encode(tok, text, n, out, err);
}

const struct tokenizer tokenizer_t5 = {
    .name = "T5",
    .files = "tokenizer.json or spiece.model",
    /* ComfyUI's own is in comfy/text_encoders; diffusers' Flux calls it the second; stand-ins of
     * both kinds (berth synth --tokenizer) are in one folder */
    .folders =
        (const char *const[]) { "/t5", "/t5xxl", "/t5_tokenizer", "/text_encoders/t5_tokenizer",
                                "/tokenizer_2", "", "/clip", NULL },
    .own = 5,
    .beside = true,
    .any_of = (const char *const[][2]) { { "tokenizer.json" }, { "spiece.model" }, { NULL } },
    .open = open_path,
    .spare = spare,
    .close = close_it,
    .ids = ids,
    .encode = encode,
};
