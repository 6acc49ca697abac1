/* lmbpe_tekken.c: Mistral's tekken.json.
 *
 *     { "config":         {"default_vocab_size": 131072, "default_num_special_tokens": 1000, ...},
 *       "vocab":          [{"rank": 0, "token_bytes": "AA==", ...}, ...],
 *       "special_tokens": [{"rank": 0, "token_str": "<unk>", ...}, ...] }
 *
 * A token's id is its rank behind the special tokens', whose ranks are their ids. Ranks beyond the
 * vocabulary's size are left out. The file has no merges: any two symbols merge that make a token.
 * ComfyUI cuts words as Llama 3 does, not by the pattern in "config", and so do we. */
#include "text/lmbpe_impl.h"

#include "base/jstok.h"
#include "text/base64.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16
#define TEXT_ROOM (6 * BPE_TEXT_MAX) /* an escape has six bytes */

struct tekken {
    struct bpe_source b;
    uint64_t size, special; /* of the vocabulary, the special tokens among it */
    bool config, vocab, tokens;
};
struct one { /* of "vocab" or "special_tokens" */
    uint64_t rank;
    bool there;           /* the rank */
    char text[TEXT_ROOM]; /* token_bytes, decoded; else token_str */
    size_t n;
    bool bytes, any;
};

static bool is(const struct jstok *j, const char *z)
{
    return str_eq(j->s, j->n, z);
}

static berth_status skip(struct jstok *j, berth_err *err)
{
    return jstok_skip(j) ? BERTH_OK : jstok_fail(j, "malformed", err);
}

static berth_status read_number(struct jstok *j, uint64_t *out, berth_err *err)
{
    if (jstok_next(j) != JSTOK_INT || !jstok_u64(j, out))
        return jstok_fail(j, "no number from 0 on", err);
    return BERTH_OK;
}

/* A text, or null: nothing. */
static berth_status read_text(struct jstok *j, struct one *o, bool bytes, berth_err *err)
{
    enum jstok_type k = jstok_next(j);
    if (k == JSTOK_NULL)
        return BERTH_OK;
    if (k != JSTOK_STRING || j->n > sizeof o->text)
        return jstok_fail(j, "a token's text is none, or too long", err);
    if (!jstok_decode(j, o->text, &o->n, NULL))
        return jstok_fail(j, "half a surrogate pair", err);
    if (bytes && !base64_decode(o->text, o->n, &o->n))
        return jstok_fail(j, "token_bytes is no base64", err);
    o->any = true;
    o->bytes = bytes;
    return BERTH_OK;
}

static berth_status read_one(struct jstok *j, struct one *o, berth_err *err)
{
    enum jstok_type k;
    o->there = o->any = o->bytes = false;
    while ((k = jstok_next(j)) == JSTOK_KEY) {
        berth_status s;
        if (is(j, "rank")) {
            s = read_number(j, &o->rank, err);
            o->there = true;
        } else if (is(j, "token_bytes")) {
            s = read_text(j, o, true, err);
        } else if (is(j, "token_str") && !o->bytes) {
            s = read_text(j, o, false, err);
        } else {
            s = skip(j, err);
        }
        if (s)
            return s;
    }
    if (k != JSTOK_OBJECT_END || !o->there || !o->any)
        return jstok_fail(j, "a token without rank or text", err);
    return BERTH_OK;
}

static berth_status read_config(struct tekken *t, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT)
        return jstok_fail(j, "\"config\" is no object", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_OBJECT_END;) {
        if (k != JSTOK_KEY)
            return jstok_fail(j, "\"config\" is malformed", err);
        berth_status s = is(j, "default_vocab_size")           ? read_number(j, &t->size, err)
                         : is(j, "default_num_special_tokens") ? read_number(j, &t->special, err)
                                                               : skip(j, err);
        if (s)
            return s;
    }
    if (t->size > BPE_VOCAB_MAX || t->special >= t->size)
        return jstok_fail(j, "a vocabulary without a size, or of more than 2^20", err);
    t->config = true;
    return BERTH_OK;
}

static berth_status read_vocab(struct tekken *t, struct jstok *j, struct one *o, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "\"vocab\" is no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        if (k != JSTOK_OBJECT)
            return jstok_fail(j, "a token is no object", err);
        if (read_one(j, o, err))
            return err->code;
        if (!o->bytes || o->n == 0)
            return jstok_fail(j, "a token without bytes", err);
        if (o->rank < t->size - t->special &&
            bpe_add_text(&t->b, o->text, o->n, o->rank + t->special, err))
            return err_add(err, "rank %llu", (unsigned long long)o->rank);
    }
    t->vocab = true;
    return BERTH_OK;
}

static berth_status read_special(struct tekken *t, struct jstok *j, struct one *o, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "\"special_tokens\" is no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        if (k != JSTOK_OBJECT)
            return jstok_fail(j, "a token is no object", err);
        if (read_one(j, o, err))
            return err->code;
        if (o->rank >= BPE_VOCAB_MAX)
            return jstok_fail(j, "an id beyond 2^20", err);
        const struct added_token token = {
            .text = o->text, .n = o->n, .id = (int32_t)o->rank, .special = true
        };
        if (bpe_push_token(&t->b, &token, err))
            return err->code;
    }
    t->tokens = true;
    return BERTH_OK;
}

/* The vocabulary needs the config. Where it comes first it is read in a second round. */
static berth_status read_round(struct tekken *t, const char *text, size_t n, struct one *o,
                               berth_err *err)
{
    bool again = t->config;
    struct jstok j;
    jstok_init(&j, text, n, DEPTH_MAX);
    if (jstok_next(&j) != JSTOK_OBJECT)
        return jstok_fail(&j, "no object", err);
    for (enum jstok_type k; (k = jstok_next(&j)) != JSTOK_OBJECT_END;) {
        berth_status s;
        if (k != JSTOK_KEY)
            return jstok_fail(&j, "malformed", err);
        if (is(&j, "config") && !t->config)
            s = read_config(t, &j, err);
        else if (is(&j, "vocab") && t->config && !t->vocab)
            s = read_vocab(t, &j, o, err);
        else if (is(&j, "special_tokens") && !again && !t->tokens)
            s = read_special(t, &j, o, err);
        else
            s = skip(&j, err);
        if (s)
            return s;
    }
    return jstok_next(&j) == JSTOK_END ? BERTH_OK : jstok_fail(&j, "more behind the end", err);
}

static berth_status read_all(struct tekken *t, const char *text, size_t n, berth_err *err)
{
    struct one *o = malloc(sizeof *o);
    if (!o)
        return err_set(err, BERTH_ENOMEM, "a tokenizer");
    berth_status s = read_round(t, text, n, o, err);
    if (!s && t->config && !t->vocab)
        s = read_round(t, text, n, o, err);
    free(o);
    if (!s && (!t->config || !t->vocab || !t->tokens))
        s = err_set(err, BERTH_EFORMAT, "there is no \"%s\" in it: no tekken.json",
                    !t->config  ? "config"
                    : !t->vocab ? "vocab"
                                : "special_tokens");
    return s;
}

/* A special token whose text an ordinary one has too is that one, wherever it is written out: so it
 * is in ComfyUI, which looks both up by their text. */
static void prefer_ordinary(struct bpe_source *b)
{
    struct added_token *a = b->added.p;
    for (size_t i = 0; i < b->added.n; i++) {
        int32_t id = vocab_find(&b->vocab, a[i].text, a[i].n);
        a[i].id = id >= 0 ? id : a[i].id;
    }
}

berth_status lmbpe_from_tekken(const char *text, size_t n, const char *what,
                               const struct lmbpe_kind *kind, struct lmbpe **out, berth_err *err)
{
    struct tekken k = { .size = 0 };
    struct lmbpe *t = NULL;
    berth_status s = read_all(&k, text, n, err);
    if (!s && !(t = lmbpe_new(kind)))
        s = err_set(err, BERTH_ENOMEM, "a tokenizer");
    if (!s) {
        t->symbols = SYMBOL_RAW;
        t->by_text = true;
        t->split = *kind->split;
        t->start = bpe_id_of(&k.b, kind->start, strlen(kind->start));
        t->pad = bpe_id_of(&k.b, kind->pad, strlen(kind->pad));
        prefer_ordinary(&k.b);
        s = lmbpe_take(t, &k.b, err);
    }
    bpe_source_release(&k.b);
    if (s)
        lmbpe_close(t);
    *out = s ? NULL : t;
    return s ? err_add(err, "tokenizer '%s'", what) : BERTH_OK;
}
