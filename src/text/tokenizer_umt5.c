/* tokenizer_umt5.c: umT5's pieces, as a tokenizer: its files carry it. T5's has other ids, so that
 * folders which may hold any tokenizer are not looked through. */
#include "text/carried.h"
#include "text/unigram_impl.h"

/* What was opened, if its first pieces are umT5's; else it is closed. what: for messages. */
static berth_status give(struct unigram *t, const char *what, void **out, berth_err *err)
{
    *out = t;
    if (t->end == 1 && t->pad == 0)
        return BERTH_OK;
    unigram_close(t);
    *out = NULL;
    return err_set(err, BERTH_EFORMAT,
                   "'%.200s' does not begin with <pad> and </s>: no tokenizer of umT5", what);
}

static berth_status open_path(const char *path, void **out, berth_err *err)
{
    struct unigram *t;
    berth_status s = unigram_open(path, &t, err);
    *out = NULL;
    return s ? s : give(t, path, out, err);
}

static berth_status carried(const struct weights *w, void **out, berth_err *err)
{
    struct carried own;
    struct unigram *t;
    berth_status s = carried_find(w, "spiece_model", &own, err);
    *out = NULL;
    if (!s)
        s = unigram_from_proto(own.bytes, own.n, own.what, &t, err);
    return s ? s : give(t, own.what, out, err);
}

static berth_status spare(const struct weights *w, void **out, berth_err *err)
{
    struct unigram *t;
    berth_status s = unigram_from_gguf(w, "t5", &t, err);
    *out = NULL;
    return s ? s : give(t, "metadata", out, err);
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

const struct tokenizer tokenizer_umt5 = {
    .name = "umT5",
    .files = "spiece.model or tokenizer.json",
    .folders = (const char *const[]) { "/umt5", "/umt5xxl", "/umt5-xxl", "/google/umt5-xxl", NULL },
    .own = 4,
    .any_of = (const char *const[][2]) { { "tokenizer.json" }, { "spiece.model" }, { NULL } },
    .open = open_path,
    .carried = carried,
    .spare = spare,
    .keep_carried = true,
    .close = close_it,
    .ids = ids,
    .encode = encode,
};
