/* unigram_json.c: T5's tokenizer.json as Hugging Face writes it.
 *
 *     { "added_tokens":  [{"id": 0, "content": "<pad>", "lstrip": false, ...}, ...],
 *       "normalizer":    null, one of these, or {"type": "Sequence", "normalizers": [...]} of them:
 *                        {"type": "Precompiled", "precompiled_charsmap": "base64"}
 *                        {"type": "Strip", "strip_left": false, "strip_right": true}
 *                        {"type": "Replace", "pattern": {"Regex": " {2,}"}, "content": "x"}
 *                        {"type": "Replace", "pattern": {"String": "x"}, "content": "y"}
 *       "pre_tokenizer": {"type": "Metaspace", "replacement": "x", "prepend_scheme": "first", ...}
 *                        or a Sequence of {"type": "WhitespaceSplit"} and that
 *       "model":         {"type": "Unigram", "unk_id": 2, "vocab": [["piece", -1.5], ...], ...} }
 *
 * Anything else is refused by name: text would become other tokens than the model learned. */
#include "text/unigram_impl.h"

#include "base/jstok.h"
#include "text/base64.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a tokenizer");
}

static bool is(const struct jstok *j, const char *z)
{
    return str_eq(j->s, j->n, z);
}

/* The current string, decoded into the arena. */
static berth_status copy_text(struct jstok *j, size_t max, struct arena *mem, const char **out,
                              size_t *n, berth_err *err)
{
    if (j->n > 6 * max) /* an escape has six bytes */
        return err_set(err, BERTH_ELIMIT, "a text of %zu bytes in a tokenizer", j->n);
    char *text = arena_alloc(mem, j->n + 1);
    if (!text)
        return no_memory(err);
    if (!jstok_decode(j, text, n, NULL))
        return jstok_fail(j, "half a surrogate pair", err);
    text[*n] = 0;
    *out = text;
    return BERTH_OK;
}

static berth_status read_string(struct jstok *j, struct arena *mem, const char **out, size_t *n,
                                berth_err *err)
{
    if (jstok_next(j) != JSTOK_STRING)
        return jstok_fail(j, "no text where there must be one", err);
    return copy_text(j, UNIGRAM_PIECE_MAX, mem, out, n, err);
}

static berth_status read_bool(struct jstok *j, bool *out, berth_err *err)
{
    enum jstok_type k = jstok_next(j);
    if (k != JSTOK_TRUE && k != JSTOK_FALSE)
        return jstok_fail(j, "neither true nor false", err);
    *out = k == JSTOK_TRUE;
    return BERTH_OK;
}

static berth_status skip(struct jstok *j, berth_err *err)
{
    return jstok_skip(j) ? BERTH_OK : jstok_fail(j, "malformed", err);
}

static berth_status refuse(const char *what, const char *type, berth_err *err)
{
    return err_set(err, BERTH_EUNSUPPORTED, "a %s '%.60s', which no T5 has", what, type);
}

/* ---- model ---- */

/* [["piece", score], ...] */
static berth_status read_vocab(struct unigram_load *l, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "the vocabulary is no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        char text[6 * UNIGRAM_PIECE_MAX];
        size_t n = 0;
        double score;
        if (k != JSTOK_ARRAY || jstok_next(j) != JSTOK_STRING)
            return jstok_fail(j, "a piece of vocabulary is no text with a score", err);
        if (j->n > sizeof text)
            return jstok_fail(j, "a piece of vocabulary that is too long", err);
        if (!jstok_decode(j, text, &n, NULL))
            return jstok_fail(j, "half a surrogate pair", err);
        k = jstok_next(j);
        if ((k != JSTOK_INT && k != JSTOK_REAL) || !jstok_f64(j, &score))
            return jstok_fail(j, "a score that is no number", err);
        if (jstok_next(j) != JSTOK_ARRAY_END)
            return jstok_fail(j, "a piece of vocabulary with more than a score", err);
        if (unigram_add_piece(l, text, n, score, PIECE_NORMAL, err))
            return err->code;
    }
    return BERTH_OK;
}

static berth_status read_unknown(struct unigram_load *l, struct jstok *j, berth_err *err)
{
    uint64_t id;
    if (jstok_next(j) != JSTOK_INT || !jstok_u64(j, &id) || id >= UNIGRAM_VOCAB_MAX)
        return jstok_fail(j, "unk_id is no id", err);
    l->unknown = (int64_t)id;
    return BERTH_OK;
}

static berth_status read_model(struct unigram_load *l, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT)
        return jstok_fail(j, "\"model\" is no object", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_OBJECT_END;) {
        berth_status s = BERTH_OK;
        if (k != JSTOK_KEY)
            return jstok_fail(j, "\"model\" is malformed", err);
        if (is(j, "vocab")) {
            if (l->piece.n)
                return jstok_fail(j, "a second vocabulary", err);
            s = read_vocab(l, j, err);
        } else if (is(j, "unk_id")) {
            s = read_unknown(l, j, err);
        } else if (is(j, "byte_fallback")) {
            s = read_bool(j, &l->byte_fallback, err);
        } else if (is(j, "type")) {
            if (jstok_next(j) != JSTOK_STRING || !is(j, "Unigram"))
                s = err_set(err, BERTH_EUNSUPPORTED,
                            "its model is not \"Unigram\": this is no tokenizer of T5");
        } else {
            s = skip(j, err);
        }
        if (s)
            return s;
    }
    return BERTH_OK;
}

/* ---- normalizer ---- */

struct reading_step { /* an object as it is read: "type" may come last */
    struct step step;
    const char *type, *charsmap; /* NULL: not there */
    size_t type_n, charsmap_n;
    bool regex;
};

/* {"Regex": "x"} or {"String": "x"} */
static berth_status read_pattern(struct unigram_load *l, struct jstok *j, struct reading_step *r,
                                 berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT || jstok_next(j) != JSTOK_KEY)
        return jstok_fail(j, "a pattern is no object", err);
    r->regex = is(j, "Regex");
    if (!r->regex && !is(j, "String"))
        return jstok_fail(j, "a pattern that is neither Regex nor String", err);
    if (read_string(j, &l->t->mem, &r->step.from, &r->step.from_n, err))
        return err->code;
    return jstok_next(j) == JSTOK_OBJECT_END ? BERTH_OK : jstok_fail(j, "a pattern", err);
}

static berth_status take_charsmap(struct unigram_load *l, const struct reading_step *r,
                                  berth_err *err)
{
    size_t n = 0;
    if (l->t->map.units)
        return err_set(err, BERTH_EUNSUPPORTED, "two character maps");
    if (!r->charsmap)
        return err_set(err, BERTH_EFORMAT, "Precompiled without precompiled_charsmap");
    char *copy = malloc(r->charsmap_n + 1);
    if (!copy)
        return no_memory(err);
    memcpy(copy, r->charsmap, r->charsmap_n);
    berth_status s = base64_decode(copy, r->charsmap_n, &n)
                         ? charsmap_init(&l->t->map, copy, n, err)
                         : err_set(err, BERTH_EFORMAT, "precompiled_charsmap is no base64");
    free(copy);
    return s;
}

static berth_status add_step(struct unigram_load *l, struct reading_step *r, berth_err *err)
{
    struct unigram *t = l->t;
    if (!r->type)
        return err_set(err, BERTH_EFORMAT, "a normalizer without type");
    if (t->steps == UNIGRAM_STEPS_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %d normalizers", UNIGRAM_STEPS_MAX);
    if (str_eq(r->type, r->type_n, "Precompiled")) {
        r->step.kind = STEP_CHARSMAP;
        if (take_charsmap(l, r, err))
            return err->code;
    } else if (str_eq(r->type, r->type_n, "Strip")) {
        r->step.kind = STEP_STRIP;
    } else if (str_eq(r->type, r->type_n, "Replace")) {
        r->step.kind = r->regex ? STEP_BLANKS : STEP_REPLACE;
        if (!r->step.from_n || !r->step.to)
            return err_set(err, BERTH_EFORMAT, "Replace without pattern or content");
        if (r->regex && !str_eq(r->step.from, r->step.from_n, " {2,}"))
            return refuse("pattern", r->step.from, err);
    } else {
        return refuse("normalizer", r->type, err);
    }
    t->step[t->steps++] = r->step;
    return BERTH_OK;
}

static berth_status read_normalizer(struct unigram_load *l, struct jstok *j, bool inner,
                                    berth_err *err);

static berth_status read_normalizers(struct unigram_load *l, struct jstok *j, bool inner,
                                     berth_err *err)
{
    if (inner || jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "normalizers in normalizers", err);
    for (;;) {
        berth_status s = read_normalizer(l, j, true, err);
        if (s)
            return s == BERTH_ENOTFOUND ? BERTH_OK : s;
    }
}

static berth_status read_step_key(struct unigram_load *l, struct jstok *j, struct reading_step *r,
                                  bool inner, berth_err *err)
{
    struct arena *mem = &l->t->mem;
    if (is(j, "type"))
        return read_string(j, mem, &r->type, &r->type_n, err);
    if (is(j, "normalizers"))
        return read_normalizers(l, j, inner, err);
    if (is(j, "strip_left"))
        return read_bool(j, &r->step.left, err);
    if (is(j, "strip_right"))
        return read_bool(j, &r->step.right, err);
    if (is(j, "pattern"))
        return read_pattern(l, j, r, err);
    if (is(j, "content"))
        return read_string(j, mem, &r->step.to, &r->step.to_n, err);
    if (!is(j, "precompiled_charsmap"))
        return skip(j, err);
    enum jstok_type k = jstok_next(j);
    if (k == JSTOK_NULL)
        return BERTH_OK;
    if (k != JSTOK_STRING)
        return jstok_fail(j, "precompiled_charsmap is no text", err);
    if (j->n > 2 * CHARSMAP_BYTES_MAX)
        return err_set(err, BERTH_ELIMIT, "a character map of %zu bytes", j->n);
    return copy_text(j, j->n, &l->mem, &r->charsmap, &r->charsmap_n, err);
}

/* An object, or null. inner: in a Sequence; BERTH_ENOTFOUND then says that its array ended. */
static berth_status read_normalizer(struct unigram_load *l, struct jstok *j, bool inner,
                                    berth_err *err)
{
    enum jstok_type k = jstok_next(j);
    struct reading_step r = { .step.right = false };
    if (k == JSTOK_NULL && !inner)
        return BERTH_OK;
    if (k == JSTOK_ARRAY_END && inner)
        return BERTH_ENOTFOUND;
    if (k != JSTOK_OBJECT)
        return jstok_fail(j, "a normalizer is no object", err);
    while ((k = jstok_next(j)) == JSTOK_KEY)
        if (read_step_key(l, j, &r, inner, err))
            return err->code;
    if (k != JSTOK_OBJECT_END)
        return jstok_fail(j, "a normalizer is malformed", err);
    if (!inner && r.type && str_eq(r.type, r.type_n, "Sequence"))
        return BERTH_OK; /* its steps are there already */
    return add_step(l, &r, err);
}

/* ---- pre_tokenizer ---- */

static berth_status read_words(struct unigram_load *l, struct jstok *j, bool inner, berth_err *err);

struct reading_words {
    const char *type, *replacement, *scheme; /* NULL: not there */
    size_t type_n, replacement_n, scheme_n;
    bool no_prefix, split;
};

static berth_status read_words_key(struct unigram_load *l, struct jstok *j, struct reading_words *r,
                                   bool inner, berth_err *err)
{
    bool add = true;
    if (is(j, "type"))
        return read_string(j, &l->mem, &r->type, &r->type_n, err);
    if (is(j, "replacement"))
        return read_string(j, &l->mem, &r->replacement, &r->replacement_n, err);
    if (is(j, "prepend_scheme"))
        return read_string(j, &l->mem, &r->scheme, &r->scheme_n, err);
    if (is(j, "split"))
        return read_bool(j, &r->split, err);
    if (is(j, "add_prefix_space")) {
        berth_status s = read_bool(j, &add, err);
        r->no_prefix = !add;
        return s;
    }
    if (!is(j, "pretokenizers"))
        return skip(j, err);
    if (inner || jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "pre-tokenizers in pre-tokenizers", err);
    for (;;) {
        berth_status s = read_words(l, j, true, err);
        if (s)
            return s == BERTH_ENOTFOUND ? BERTH_OK : s;
    }
}

static berth_status take_metaspace(struct unigram *t, const struct reading_words *r, berth_err *err)
{
    if (!r->replacement || !str_eq(r->replacement, r->replacement_n, METASPACE))
        return refuse("replacement of blanks", r->replacement ? r->replacement : "", err);
    t->split_metaspace = r->split;
    if (r->no_prefix || (r->scheme && str_eq(r->scheme, r->scheme_n, "never")))
        t->prefix = PREFIX_NONE;
    else if (!r->scheme || str_eq(r->scheme, r->scheme_n, "always"))
        t->prefix = PREFIX_ALWAYS;
    else if (str_eq(r->scheme, r->scheme_n, "first"))
        t->prefix = PREFIX_FIRST;
    else
        return refuse("prepend_scheme", r->scheme, err);
    return BERTH_OK;
}

/* As read_normalizer(). */
static berth_status read_words(struct unigram_load *l, struct jstok *j, bool inner, berth_err *err)
{
    enum jstok_type k = jstok_next(j);
    struct reading_words r = { .split = true };
    if (k == JSTOK_NULL && !inner)
        return BERTH_OK;
    if (k == JSTOK_ARRAY_END && inner)
        return BERTH_ENOTFOUND;
    if (k != JSTOK_OBJECT)
        return jstok_fail(j, "a pre-tokenizer is no object", err);
    while ((k = jstok_next(j)) == JSTOK_KEY)
        if (read_words_key(l, j, &r, inner, err))
            return err->code;
    if (k != JSTOK_OBJECT_END || !r.type)
        return jstok_fail(j, "a pre-tokenizer without type", err);
    if (!inner && str_eq(r.type, r.type_n, "Sequence"))
        return BERTH_OK;
    if (str_eq(r.type, r.type_n, "Metaspace"))
        return take_metaspace(l->t, &r, err);
    if (!str_eq(r.type, r.type_n, "WhitespaceSplit"))
        return refuse("pre-tokenizer", r.type, err);
    l->t->split_blanks = true;
    return BERTH_OK;
}

/* ---- added_tokens ---- */

static berth_status read_token(struct unigram_load *l, struct jstok *j, berth_err *err)
{
    struct special s = { .id = -1 };
    const char *text = NULL;
    size_t n = 0;
    enum jstok_type k;
    while ((k = jstok_next(j)) == JSTOK_KEY) {
        berth_status status = BERTH_OK;
        bool alone = false;
        uint64_t id;
        if (is(j, "id")) {
            if (jstok_next(j) != JSTOK_INT || !jstok_u64(j, &id) || id >= UNIGRAM_VOCAB_MAX)
                return jstok_fail(j, "an added token's id", err);
            s.id = (int32_t)id;
        } else if (is(j, "content")) {
            status = read_string(j, &l->mem, &text, &n, err);
        } else if (is(j, "lstrip")) {
            status = read_bool(j, &s.lstrip, err);
        } else if (is(j, "rstrip")) {
            status = read_bool(j, &s.rstrip, err);
        } else if (is(j, "single_word")) {
            status = read_bool(j, &alone, err);
            if (!status && alone)
                return err_set(err, BERTH_EUNSUPPORTED, "an added token that is a single_word");
        } else {
            status = skip(j, err);
        }
        if (status)
            return status;
    }
    if (k != JSTOK_OBJECT_END || !text)
        return jstok_fail(j, "an added token without content", err);
    return unigram_add_special(l, text, n, s, err);
}

static berth_status read_added(struct unigram_load *l, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "\"added_tokens\" is no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        if (k != JSTOK_OBJECT)
            return jstok_fail(j, "an added token is no object", err);
        if (read_token(l, j, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- public ---- */

/* transformers 5 takes T5's character map, pieces and added tokens from the file and has its own
 * rules for the rest: words lie between white space, and each gets its U+2581, even behind an added
 * token. What else such a file says (runs of blanks, the text's end) was for transformers 4. */
static void follow_transformers(struct unigram *t)
{
    if (t->steps == 0 || t->step[0].kind != STEP_CHARSMAP)
        return;
    t->steps = 1;
    t->split_blanks = t->split_metaspace = true;
    t->prefix = PREFIX_ALWAYS;
}

static berth_status check_whole(const struct unigram_load *l, bool model, berth_err *err)
{
    const struct unigram *t = l->t;
    if (!model)
        return err_set(err, BERTH_EFORMAT, "there is no \"model\" in it");
    if (t->split_blanks && t->prefix != PREFIX_ALWAYS)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "words between white space without U+2581 in front of each");
    return BERTH_OK;
}

berth_status unigram_read_json(struct unigram_load *l, const char *text, size_t n, berth_err *err)
{
    bool model = false;
    struct jstok j;
    jstok_init(&j, text, n, DEPTH_MAX);
    if (jstok_next(&j) != JSTOK_OBJECT)
        return jstok_fail(&j, "no object", err);
    for (enum jstok_type k; (k = jstok_next(&j)) != JSTOK_OBJECT_END;) {
        berth_status s = BERTH_OK;
        if (k != JSTOK_KEY)
            return jstok_fail(&j, "malformed", err);
        if (is(&j, "model"))
            model = !(s = read_model(l, &j, err));
        else if (is(&j, "normalizer"))
            s = read_normalizer(l, &j, false, err);
        else if (is(&j, "pre_tokenizer"))
            s = read_words(l, &j, false, err);
        else if (is(&j, "added_tokens"))
            s = read_added(l, &j, err);
        else
            s = skip(&j, err);
        if (s)
            return s;
    }
    if (jstok_next(&j) != JSTOK_END)
        return jstok_fail(&j, "more behind the end", err);
    follow_transformers(l->t);
    return check_whole(l, model, err);
}
