/* bpe_source.c: files of tokenizers that merge pairs. */
#include "text/bpe_source.h"

#include "base/file.h"
#include "base/jstok.h"
#include "base/str.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16
#define TEXT_ROOM (6 * BPE_TEXT_MAX) /* an escape has six bytes */

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a tokenizer");
}

void bpe_source_release(struct bpe_source *b)
{
    vocab_release(&b->vocab);
    pairs_release(&b->pairs);
    vec_release(&b->added);
    arena_release(&b->mem);
}

/* ---- one by one ---- */

berth_status bpe_add_text(struct bpe_source *b, const char *text, size_t n, uint64_t id,
                          berth_err *err)
{
    switch (id < BPE_VOCAB_MAX ? vocab_add(&b->vocab, text, n, id) : VOCAB_FULL) {
    case VOCAB_OK:
        return BERTH_OK;
    case VOCAB_NOMEM:
        return no_memory(err);
    case VOCAB_TEXT_TWICE:
        return err_set(err, BERTH_EFORMAT, "a piece of vocabulary twice");
    case VOCAB_ID_TWICE:
        return err_set(err, BERTH_EFORMAT, "an id twice");
    case VOCAB_FULL:
        break;
    }
    return id < BPE_VOCAB_MAX
               ? err_set(err, BERTH_ELIMIT, "more than %u bytes of vocabulary", VOCAB_BYTES_MAX)
               : err_set(err, BERTH_EFORMAT, "an id beyond 2^20");
}

static berth_status bad_merge(const struct bpe_source *b, const char *left, size_t n,
                              const char *what, berth_err *err)
{
    return err_set(err, BERTH_EFORMAT, "merge %zu ('%.*s...'): %s is not in the vocabulary",
                   b->merges + 1, (int)(n < 60 ? n : 60), left, what);
}

berth_status bpe_add_merge(struct bpe_source *b, const char *left, size_t n, const char *right,
                           size_t m, berth_err *err)
{
    char both[2 * BPE_TEXT_MAX];
    if (b->merges >= BPE_VOCAB_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %u merges", BPE_VOCAB_MAX);
    if (n == 0 || m == 0 || n > BPE_TEXT_MAX || m > BPE_TEXT_MAX)
        return err_set(err, BERTH_EFORMAT, "merge %zu is not two pieces, or too long",
                       b->merges + 1);
    memcpy(both, left, n);
    memcpy(both + n, right, m);
    int32_t l = vocab_find(&b->vocab, left, n), r = vocab_find(&b->vocab, right, m);
    if (l < 0 || r < 0)
        return bad_merge(b, left, n, l < 0 ? "its left piece" : "its right piece", err);
    int32_t to = vocab_find(&b->vocab, both, n + m);
    if (to < 0)
        return bad_merge(b, left, n, "what it makes", err);
    return pairs_set(&b->pairs, l, r, (uint32_t)b->merges++, to) ? BERTH_OK : no_memory(err);
}

berth_status bpe_add_merge_line(struct bpe_source *b, const char *text, size_t n, berth_err *err)
{
    const char *gap = n ? memchr(text, ' ', n) : NULL;
    size_t left = gap ? (size_t)(gap - text) : 0;
    if (left == 0 || left + 1 == n || memchr(gap + 1, ' ', n - left - 1))
        return err_set(err, BERTH_EFORMAT, "merge %zu is not two pieces", b->merges + 1);
    return bpe_add_merge(b, text, left, gap + 1, n - left - 1, err);
}

berth_status bpe_push_token(struct bpe_source *b, const struct added_token *t, berth_err *err)
{
    struct added_token copy = *t;
    if (t->n == 0 || t->n > BPE_TEXT_MAX)
        return err_set(err, BERTH_EFORMAT, "an added token of %zu bytes", t->n);
    if (b->added.n >= BPE_VOCAB_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %u added tokens", BPE_VOCAB_MAX);
    b->added.elem = sizeof copy;
    copy.text = arena_strndup(&b->mem, t->text, t->n);
    return copy.text && vec_push(&b->added, &copy) ? BERTH_OK : no_memory(err);
}

berth_status bpe_add_token(struct bpe_source *b, const struct added_token *t, berth_err *err)
{
    int32_t have = vocab_find(&b->vocab, t->text, t->n);
    if (have >= 0 && have != t->id)
        return err_set(err, BERTH_EFORMAT, "a piece of vocabulary twice");
    return bpe_push_token(b, t, err);
}

int32_t bpe_id_of(const struct bpe_source *b, const char *text, size_t n)
{
    const struct added_token *t = b->added.p;
    for (size_t i = 0; i < b->added.n; i++)
        if (t[i].n == n && memcmp(t[i].text, text, n) == 0)
            return t[i].id;
    return vocab_find(&b->vocab, text, n);
}

size_t bpe_ids(const struct bpe_source *b)
{
    size_t n = vocab_ids(&b->vocab);
    const struct added_token *t = b->added.p;
    for (size_t i = 0; i < b->added.n; i++)
        n = (size_t)t[i].id >= n ? (size_t)t[i].id + 1 : n;
    return n;
}

/* ---- JSON ---- */

static bool is(const struct jstok *j, const char *z)
{
    return str_eq(j->s, j->n, z);
}

/* An error of ours about what the reader sees: where it is. */
static berth_status at(const struct jstok *j, berth_err *err)
{
    char what[sizeof err->msg];
    if (err->code != BERTH_EFORMAT)
        return err->code;
    memcpy(what, err->msg, sizeof what);
    return jstok_fail(j, what, err);
}

static berth_status skip(struct jstok *j, berth_err *err)
{
    return jstok_skip(j) ? BERTH_OK : jstok_fail(j, "malformed", err);
}

/* The current key or string, decoded. */
static berth_status decode(const struct jstok *j, char buf[TEXT_ROOM], size_t *n, berth_err *err)
{
    if (j->n > TEXT_ROOM)
        return jstok_fail(j, "a piece of vocabulary that is too long", err);
    return jstok_decode(j, buf, n, NULL) ? BERTH_OK : jstok_fail(j, "half a surrogate pair", err);
}

static berth_status read_bool(struct jstok *j, bool *out, berth_err *err)
{
    enum jstok_type k = jstok_next(j);
    if (k != JSTOK_TRUE && k != JSTOK_FALSE)
        return jstok_fail(j, "neither true nor false", err);
    *out = k == JSTOK_TRUE;
    return BERTH_OK;
}

/* A text of the arena, NULL for null. */
static berth_status read_string(struct bpe_source *b, struct jstok *j, const char **out,
                                berth_err *err)
{
    char buf[TEXT_ROOM];
    size_t n = 0;
    enum jstok_type k = jstok_next(j);
    *out = NULL;
    if (k == JSTOK_NULL)
        return BERTH_OK;
    if (k != JSTOK_STRING)
        return jstok_fail(j, "no text where there must be one", err);
    if (decode(j, buf, &n, err))
        return err->code;
    if (memchr(buf, 0, n))
        return jstok_fail(j, "a text with a NUL in it", err);
    *out = arena_strndup(&b->mem, buf, n);
    return *out ? BERTH_OK : no_memory(err);
}

/* { "text": id, ... } */
static berth_status read_vocab(struct bpe_source *b, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT)
        return jstok_fail(j, "the vocabulary is no object", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_OBJECT_END;) {
        char text[TEXT_ROOM];
        size_t n = 0;
        uint64_t id;
        if (k != JSTOK_KEY)
            return jstok_fail(j, "the vocabulary is malformed", err);
        if (decode(j, text, &n, err))
            return err->code;
        if (jstok_next(j) != JSTOK_INT || !jstok_u64(j, &id))
            return jstok_fail(j, "an id that is no number from 0 on", err);
        if (bpe_add_text(b, text, n, id, err))
            return at(j, err);
    }
    return BERTH_OK;
}

static berth_status read_pair(struct bpe_source *b, struct jstok *j, berth_err *err)
{
    char left[TEXT_ROOM], right[TEXT_ROOM];
    size_t n = 0, m = 0;
    if (jstok_next(j) != JSTOK_STRING)
        return jstok_fail(j, "a merge is neither text nor a pair", err);
    if (decode(j, left, &n, err))
        return err->code;
    if (jstok_next(j) != JSTOK_STRING)
        return jstok_fail(j, "a merge is no pair", err);
    if (decode(j, right, &m, err))
        return err->code;
    if (jstok_next(j) != JSTOK_ARRAY_END)
        return jstok_fail(j, "a merge is no pair", err);
    return bpe_add_merge(b, left, n, right, m, err);
}

/* ["left right", ...] or [["left", "right"], ...] */
static berth_status read_merges(struct bpe_source *b, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "the merges are no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        char text[TEXT_ROOM];
        size_t n = 0;
        berth_status s = BERTH_OK;
        if (k == JSTOK_STRING) {
            if (decode(j, text, &n, err))
                return err->code;
            s = bpe_add_merge_line(b, text, n, err);
        } else if (k == JSTOK_ARRAY) {
            s = read_pair(b, j, err);
        } else {
            return jstok_fail(j, "a merge is neither text nor a pair", err);
        }
        if (s)
            return s;
    }
    return BERTH_OK;
}

/* Round 0: all but the merges, which need the vocabulary; round 1: those alone. */
static berth_status read_model(struct bpe_source *b, struct jstok *j, int round, berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT)
        return jstok_fail(j, "\"model\" is no object", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_OBJECT_END;) {
        berth_status s = BERTH_OK;
        if (k != JSTOK_KEY)
            return jstok_fail(j, "\"model\" is malformed", err);
        if (is(j, "merges"))
            s = round == 1 ? read_merges(b, j, err) : skip(j, err);
        else if (round == 1)
            s = skip(j, err);
        else if (is(j, "type"))
            s = read_string(b, j, &b->type, err);
        else if (is(j, "vocab") && (!b->type || strcmp(b->type, "BPE") == 0))
            s = read_vocab(b, j, err);
        else if (is(j, "end_of_word_suffix"))
            s = read_string(b, j, &b->suffix, err);
        else if (is(j, "unk_token"))
            s = read_string(b, j, &b->unknown, err);
        else if (is(j, "byte_fallback"))
            s = read_bool(j, &b->byte_fallback, err);
        else if (is(j, "fuse_unk"))
            s = read_bool(j, &b->fuse_unknown, err);
        else
            s = skip(j, err);
        if (s)
            return s;
    }
    return BERTH_OK;
}

/* Behind an object's brace. id: of its key, where that says it; else UINT64_MAX. */
static berth_status read_token(struct bpe_source *b, struct jstok *j, uint64_t id, berth_err *err)
{
    struct added_token t = { 0 };
    char text[TEXT_ROOM];
    bool there = false;
    enum jstok_type k;
    while ((k = jstok_next(j)) == JSTOK_KEY) {
        berth_status s = BERTH_OK;
        if (is(j, "id")) {
            if (jstok_next(j) != JSTOK_INT || !jstok_u64(j, &id))
                return jstok_fail(j, "an added token without id or content", err);
        } else if (is(j, "content")) {
            if (jstok_next(j) != JSTOK_STRING)
                return jstok_fail(j, "an added token without id or content", err);
            s = decode(j, text, &t.n, err);
            there = true;
        } else {
            bool *flag = is(j, "lstrip")        ? &t.lstrip
                         : is(j, "rstrip")      ? &t.rstrip
                         : is(j, "single_word") ? &t.single_word
                         : is(j, "normalized")  ? &t.normalized
                         : is(j, "special")     ? &t.special
                                                : NULL;
            s = flag ? read_bool(j, flag, err) : skip(j, err);
        }
        if (s)
            return s;
    }
    if (k != JSTOK_OBJECT_END || !there)
        return jstok_fail(j, "an added token without content", err);
    if (id >= BPE_VOCAB_MAX)
        return jstok_fail(j, "an id beyond 2^20", err);
    t.text = text;
    t.id = (int32_t)id;
    return bpe_add_token(b, &t, err) ? at(j, err) : BERTH_OK;
}

static berth_status read_added(struct bpe_source *b, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "\"added_tokens\" is no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        if (k != JSTOK_OBJECT)
            return jstok_fail(j, "an added token is no object", err);
        if (read_token(b, j, UINT64_MAX, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- steps ---- */

/* {"Regex": "x"} or {"String": "x"} */
static berth_status read_pattern(struct bpe_source *b, struct jstok *j, struct bpe_step *p,
                                 berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT || jstok_next(j) != JSTOK_KEY)
        return jstok_fail(j, "a pattern is no object", err);
    p->regex = is(j, "Regex");
    if (!p->regex && !is(j, "String"))
        return jstok_fail(j, "a pattern that is neither Regex nor String", err);
    if (read_string(b, j, &p->pattern, err))
        return err->code;
    return jstok_next(j) == JSTOK_OBJECT_END ? BERTH_OK : jstok_fail(j, "a pattern", err);
}

struct steps { /* being read */
    struct bpe_step *step;
    size_t *n;
    const char *list; /* the key of those in a Sequence */
};

static berth_status read_step(struct bpe_source *b, struct jstok *j, const struct steps *to,
                              berth_err *err);

static berth_status read_sequence(struct bpe_source *b, struct jstok *j, const struct steps *to,
                                  berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "a Sequence without steps", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        if (k != JSTOK_OBJECT)
            return jstok_fail(j, "a step is no object", err);
        if (read_step(b, j, to, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status read_step_key(struct bpe_source *b, struct jstok *j, const struct steps *to,
                                  struct bpe_step *p, berth_err *err)
{
    if (is(j, "type"))
        return read_string(b, j, &p->type, err);
    if (is(j, "content") || is(j, "prepend"))
        return read_string(b, j, &p->to, err);
    if (is(j, "behavior"))
        return read_string(b, j, &p->behavior, err);
    if (is(j, "pattern"))
        return read_pattern(b, j, p, err);
    if (is(j, "invert"))
        return read_bool(j, &p->invert, err);
    if (is(j, "add_prefix_space"))
        return read_bool(j, &p->prefix_space, err);
    if (is(j, "use_regex")) {
        bool use = true;
        berth_status s = read_bool(j, &use, err);
        p->keep_words = !use;
        return s;
    }
    return is(j, to->list) ? read_sequence(b, j, to, err) : skip(j, err);
}

/* Behind an object's brace. The steps of a Sequence come one after the other. */
static berth_status read_step(struct bpe_source *b, struct jstok *j, const struct steps *to,
                              berth_err *err)
{
    struct bpe_step p = { 0 };
    enum jstok_type k;
    while ((k = jstok_next(j)) == JSTOK_KEY)
        if (read_step_key(b, j, to, &p, err))
            return err->code;
    if (k != JSTOK_OBJECT_END || !p.type)
        return jstok_fail(j, "a step without type", err);
    if (strcmp(p.type, "Sequence") == 0)
        return BERTH_OK;
    if (*to->n == BPE_STEPS_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %d steps", BPE_STEPS_MAX);
    to->step[(*to->n)++] = p;
    return BERTH_OK;
}

static berth_status read_steps(struct bpe_source *b, struct jstok *j, const struct steps *to,
                               berth_err *err)
{
    enum jstok_type k = jstok_next(j);
    if (k == JSTOK_NULL)
        return BERTH_OK;
    return k == JSTOK_OBJECT ? read_step(b, j, to, err) : jstok_fail(j, "a step is no object", err);
}

/* ---- files ---- */

static berth_status read_key(struct bpe_source *b, struct jstok *j, int round, bool *model,
                             berth_err *err)
{
    if (is(j, "model")) {
        *model = true;
        return read_model(b, j, round, err);
    }
    if (round == 1)
        return is(j, "added_tokens") ? read_added(b, j, err) : skip(j, err);
    if (is(j, "normalizer"))
        return read_steps(b, j, &(struct steps) { b->normal, &b->normals, "normalizers" }, err);
    if (is(j, "pre_tokenizer"))
        return read_steps(b, j, &(struct steps) { b->words, &b->cuts, "pretokenizers" }, err);
    return skip(j, err);
}

/* Two rounds: merges and added tokens are held against the vocabulary, which may come last. */
berth_status bpe_read_tokenizer(struct bpe_source *b, const char *text, size_t n, berth_err *err)
{
    bool model = false;
    for (int round = 0; round < 2; round++) {
        struct jstok j;
        jstok_init(&j, text, n, DEPTH_MAX);
        if (jstok_next(&j) != JSTOK_OBJECT)
            return jstok_fail(&j, "no object", err);
        for (enum jstok_type k; (k = jstok_next(&j)) != JSTOK_OBJECT_END;) {
            if (k != JSTOK_KEY)
                return jstok_fail(&j, "malformed", err);
            if (read_key(b, &j, round, &model, err))
                return err->code;
        }
        if (jstok_next(&j) != JSTOK_END)
            return jstok_fail(&j, "more behind the end", err);
    }
    return model ? BERTH_OK : err_set(err, BERTH_EFORMAT, "there is no \"model\" in it");
}

berth_status bpe_read_vocab(struct bpe_source *b, const char *text, size_t n, berth_err *err)
{
    struct jstok j;
    jstok_init(&j, text, n, DEPTH_MAX);
    if (read_vocab(b, &j, err))
        return err->code;
    return jstok_next(&j) == JSTOK_END ? BERTH_OK : jstok_fail(&j, "more behind the end", err);
}

/* merges.txt: an optional "#version" line, then a pair on each. */
berth_status bpe_read_merges(struct bpe_source *b, const char *text, size_t n, berth_err *err)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        const char *nl = memchr(text + i, '\n', n - i);
        end = nl ? (size_t)(nl - text) : n;
        size_t len = end - i - (end > i && text[end - 1] == '\r');
        if (len == 0 || (i == 0 && len >= 8 && memcmp(text, "#version", 8) == 0))
            continue;
        if (bpe_add_merge_line(b, text + i, len, err))
            return err->code;
    }
    return BERTH_OK;
}

/* {"added_tokens_decoder": {"151643": {"content": "<|endoftext|>", ...}, ...}, ...} */
static berth_status read_by_id(struct bpe_source *b, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT)
        return jstok_fail(j, "added_tokens_decoder is no object", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_OBJECT_END;) {
        uint64_t id;
        if (k != JSTOK_KEY || !str_parse_u64(j->s, j->n, &id))
            return jstok_fail(j, "added_tokens_decoder has a key that is no id", err);
        if (jstok_next(j) != JSTOK_OBJECT)
            return jstok_fail(j, "an added token is no object", err);
        if (read_token(b, j, id, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status bpe_read_config(struct bpe_source *b, const char *text, size_t n, berth_err *err)
{
    struct jstok j;
    jstok_init(&j, text, n, DEPTH_MAX);
    if (jstok_next(&j) != JSTOK_OBJECT)
        return jstok_fail(&j, "no object", err);
    for (enum jstok_type k; (k = jstok_next(&j)) != JSTOK_OBJECT_END;) {
        if (k != JSTOK_KEY)
            return jstok_fail(&j, "malformed", err);
        if (is(&j, "added_tokens_decoder") ? read_by_id(b, &j, err) : skip(&j, err))
            return err->code;
    }
    return BERTH_OK;
}

berth_status bpe_read_file(struct bpe_source *b, const char *path, bpe_read_fn *read,
                           berth_err *err)
{
    char *text = NULL;
    size_t n = 0;
    if (file_read_all(path, BPE_FILE_MAX, &text, &n, err))
        return err->code;
    berth_status s = read(b, text, n, err);
    free(text);
    return s ? err_add(err, "'%s'", path) : BERTH_OK;
}

berth_status bpe_read_in(struct bpe_source *b, const char *folder, const char *name,
                         bpe_read_fn *read, berth_err *err)
{
    struct str file = { 0 };
    str_addf(&file, "%s/%s", folder, name);
    berth_status s = file.bad ? no_memory(err) : bpe_read_file(b, file.p, read, err);
    str_release(&file);
    return s;
}
