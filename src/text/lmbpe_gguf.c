/* lmbpe_gguf.c: tokenizers in a GGUF file's metadata.
 *
 *     tokenizer.ggml.model       "gpt2": pairs of bytes
 *     tokenizer.ggml.pre         how words are cut: "qwen2", "llama-bpe", "tekken"
 *     tokenizer.ggml.tokens      texts, by id;  .token_type: 1 normal, 3 control, 4 of users,
 *                                5 unused
 *     tokenizer.ggml.merges      "left right", by rank */
#include "text/lmbpe_impl.h"

#include "base/rd.h"
#include "format/weights.h"

#include <inttypes.h>
#include <string.h>

enum token_type { TOKEN_CONTROL = 3, TOKEN_OF_USERS = 4, TOKEN_UNUSED = 5 };

static const struct weights_meta *array_of(const struct weights *w, const char *key, uint32_t type)
{
    const struct weights_meta *m = weights_meta_find(w, key);
    return m && m->kind == META_ARRAY && m->elem_type == type ? m : NULL;
}

/* The next text of an array; NULL: it is cut short, or too long. */
static const char *next_text(struct rd *r, size_t *n)
{
    uint64_t len = rd_u64le(r);
    *n = (size_t)len;
    return len <= BPE_TEXT_MAX ? (const char *)rd_take(r, (size_t)len) : NULL;
}

static berth_status add_one(struct bpe_source *b, const char *text, size_t n, uint32_t type,
                            uint64_t id, berth_err *err)
{
    if (type == TOKEN_UNUSED)
        return BERTH_OK; /* makes the table longer, and is never written */
    if (type != TOKEN_CONTROL && type != TOKEN_OF_USERS)
        return bpe_add_text(b, text, n, id, err);
    const struct added_token t = {
        .text = text, .n = n, .id = (int32_t)id, .special = type == TOKEN_CONTROL
    };
    return bpe_push_token(b, &t, err);
}

static berth_status read_tokens(struct bpe_source *b, const struct weights *w, berth_err *err)
{
    const struct weights_meta *tokens = array_of(w, "tokenizer.ggml.tokens", GGUF_STRING);
    const struct weights_meta *types = array_of(w, "tokenizer.ggml.token_type", GGUF_I32);
    if (!tokens || !types || tokens->count != types->count)
        return err_set(err, BERTH_EFORMAT,
                       "tokenizer.ggml.tokens and token_type are no lists of one length");
    if (tokens->count > BPE_VOCAB_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %u tokens", BPE_VOCAB_MAX);
    struct rd text = rd_init(tokens->raw, tokens->raw_len),
              type = rd_init(types->raw, types->raw_len);
    for (uint64_t i = 0; i < tokens->count; i++) {
        size_t n;
        const char *s = next_text(&text, &n);
        uint32_t kind = rd_u32le(&type);
        if (!s || type.bad)
            return err_set(err, BERTH_EFORMAT, "token %" PRIu64 " of %zu bytes", i, n);
        if (add_one(b, s, n, kind, i, err))
            return err_add(err, "token %" PRIu64, i);
    }
    return BERTH_OK;
}

static berth_status read_merges(struct bpe_source *b, const struct weights *w, berth_err *err)
{
    const struct weights_meta *merges = array_of(w, "tokenizer.ggml.merges", GGUF_STRING);
    if (!merges)
        return err_set(err, BERTH_EFORMAT, "tokenizer.ggml.merges is no list of texts");
    struct rd r = rd_init(merges->raw, merges->raw_len);
    for (uint64_t i = 0; i < merges->count; i++) {
        size_t n;
        const char *s = next_text(&r, &n);
        if (!s)
            return err_set(err, BERTH_EFORMAT, "merge %" PRIu64 " of %zu bytes", i, n);
        if (bpe_add_merge_line(b, s, n, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status check_kind(const struct weights *w, const struct lmbpe_kind *kind,
                               berth_err *err)
{
    const struct weights_meta *model = weights_meta_find(w, "tokenizer.ggml.model");
    const struct weights_meta *pre = weights_meta_find(w, "tokenizer.ggml.pre");
    if (!model || model->kind != META_STRING || !weights_meta_find(w, "tokenizer.ggml.tokens"))
        return err_set(err, BERTH_ENOTFOUND, "'%s' has no tokenizer in it", weights_path(w));
    if (!str_eq(model->str, model->str_len, "gpt2"))
        return err_set(err, BERTH_EUNSUPPORTED, "'%s' has a tokenizer '%.40s', no %s one",
                       weights_path(w), model->str, kind->name);
    for (const char *const *name = kind->gguf; pre && pre->kind == META_STRING && *name; name++)
        if (str_eq(pre->str, pre->str_len, *name))
            return BERTH_OK;
    return err_set(err, BERTH_EUNSUPPORTED, "'%s' has a tokenizer whose pre is '%.40s', no %s one",
                   weights_path(w), pre && pre->kind == META_STRING ? pre->str : "", kind->name);
}

berth_status lmbpe_from_gguf(const struct weights *w, const struct lmbpe_kind *kind,
                             struct lmbpe **out, berth_err *err)
{
    struct bpe_source b = { 0 };
    struct lmbpe *t = NULL;
    *out = NULL;
    if (check_kind(w, kind, err))
        return err->code;
    berth_status s = read_tokens(&b, w, err);
    if (!s)
        s = read_merges(&b, w, err);
    if (!s)
        s = weights_check(w, err);
    if (!s && !(t = lmbpe_new(kind)))
        s = err_set(err, BERTH_ENOMEM, "a tokenizer");
    if (!s)
        s = lmbpe_take_plain(t, &b, err);
    bpe_source_release(&b);
    if (s)
        lmbpe_close(t);
    *out = s ? NULL : t;
    return s ? err_add(err, "tokenizer in '%s'", weights_path(w)) : BERTH_OK;
}
