/* tokenizer_gemma.c: Gemma 2 and 3, as tokenizers: SentencePiece's BPE, and a few tokens that
 * ComfyUI adds to it.
 *
 * ComfyUI drops the first id of what the tokenizer returns, because that is its start token; but
 * where one of the added tokens occurs, the tokenizer returns none, and the first id of the text is
 * lost ("<start_of_turn>" of the chat template). Pictures are made with that, so it is done here as
 * well. */
#include "text/carried.h"
#include "text/unigram_impl.h"

#include <string.h>

struct extra {
    const char *text;
    int32_t id;
};
static const struct extra gemma2_extra[] = { { "<end_of_turn>", 107 }, { NULL, 0 } };
static const struct extra gemma3_extra[] = { { "<image_soft_token>", 262144 },
                                             { "<end_of_turn>", 106 },
                                             { NULL, 0 } };

/* ---- opening ---- */

static berth_status check(berth_status s, struct unigram *t, const char *what, void **out,
                          berth_err *err)
{
    if (!s && (!t->merges || !t->eos || t->start < 0)) {
        unigram_close(t);
        t = NULL;
        s = err_set(err, BERTH_EFORMAT, "'%s' is no tokenizer of Gemma", what);
    }
    *out = t;
    return s;
}

static berth_status open_path(const char *path, void **out, berth_err *err)
{
    struct unigram *t;
    berth_status s = unigram_open_proto(path, &t, err);
    return check(s, t, path, out, err);
}

static berth_status carried(const struct weights *w, void **out, berth_err *err)
{
    struct carried own;
    struct unigram *t;
    *out = NULL;
    if (carried_find(w, "spiece_model", &own, err))
        return err->code;
    berth_status s = unigram_from_proto(own.bytes, own.n, own.what, &t, err);
    return check(s, t, own.what, out, err);
}

static berth_status spare(const struct weights *w, void **out, berth_err *err)
{
    struct unigram *t;
    berth_status s = unigram_from_gguf(w, "llama", &t, err);
    return check(s, t, "the file's metadata", out, err);
}

static void close_it(void *tok)
{
    unigram_close(tok);
}

static struct token_ids ids(const void *tok)
{
    const struct unigram *t = tok;
    return (struct token_ids) { .start = t->start, .end = -1, .pad = t->pad };
}

/* ---- text to ids ---- */

/* The first added token in s; NULL: none. *at: where. All of them begin with '<'. */
static const struct extra *next_extra(const struct extra *extra, const char *s, size_t n,
                                      size_t *at)
{
    for (const char *p = s; (p = n ? memchr(p, '<', n - (size_t)(p - s)) : NULL); p++) {
        *at = (size_t)(p - s);
        for (const struct extra *e = extra; e->text; e++)
            if (str_starts(p, n - *at, e->text))
                return e;
    }
    *at = n;
    return NULL;
}

static berth_status encode(const void *tok, const struct extra *extra, const char *s, size_t n,
                           struct vec *out, berth_err *err)
{
    size_t first = out->n, at;
    bool any = false;
    for (const struct extra *e; (e = next_extra(extra, s, n, &at));) {
        if (unigram_encode(tok, s, at, out, err))
            return err->code;
        if (!vec_push(out, &e->id))
            return err_set(err, BERTH_ENOMEM, "tokens of %zu bytes of text", n);
        any = true;
        at += strlen(e->text);
        s += at;
        n -= at;
    }
    if (unigram_encode(tok, s, n, out, err))
        return err->code;
    if (any) {
        int32_t *id = (int32_t *)out->p + first;
        memmove(id, id + 1, (out->n - first - 1) * sizeof *id);
        vec_pop(out);
    }
    return BERTH_OK;
}

static berth_status encode2(const void *tok, const char *s, size_t n, struct vec *out,
                            berth_err *err)
{
    return encode(tok, gemma2_extra, s, n, out, err);
}

static berth_status encode3(const void *tok, const char *s, size_t n, struct vec *out,
                            berth_err *err)
{
    return encode(tok, gemma3_extra, s, n, out, err);
}

/* ---- ids to bytes ---- */

static bool bytes(const void *tok, const struct extra *extra, int32_t id, unsigned how,
                  struct str *out)
{
    for (; extra->text; extra++)
        if (extra->id == id) {
            str_adds(out, how & TEXT_SPECIAL ? extra->text : "");
            return how & TEXT_SPECIAL;
        }
    return unigram_bytes(tok, id, how, out);
}

static bool bytes2(const void *tok, int32_t id, unsigned how, struct str *out)
{
    return bytes(tok, gemma2_extra, id, how, out);
}

static bool bytes3(const void *tok, int32_t id, unsigned how, struct str *out)
{
    return bytes(tok, gemma3_extra, id, how, out);
}

static int32_t find(const void *tok, const struct extra *extra, const char *text)
{
    for (; extra->text; extra++)
        if (strcmp(extra->text, text) == 0)
            return extra->id;
    return unigram_find(tok, text);
}

static int32_t find2(const void *tok, const char *text)
{
    return find(tok, gemma2_extra, text);
}

static int32_t find3(const void *tok, const char *text)
{
    return find(tok, gemma3_extra, text);
}

#define GEMMA(number)                                                                              \
    .name = "Gemma " #number, .files = "tokenizer.model", .own = 1, .beside = true,                \
    .folders = (const char *const[]) { "/gemma" #number, "/tokenizer", "", NULL },                 \
    .any_of = (const char *const[][2]) { { "tokenizer.model" }, { "spiece.model" }, { NULL } },    \
    .open = open_path, .carried = carried, .spare = spare, .keep_carried = true,                   \
    .close = close_it, .ids = ids, .encode = encode##number, .bytes = bytes##number,               \
    .each_byte = true, .find = find##number

const struct tokenizer tokenizer_gemma2 = { GEMMA(2) };
const struct tokenizer tokenizer_gemma3 = { GEMMA(3) };
