/* bpe_load.c: vocab.json with merges.txt, or tokenizer.json, checked and turned into tables; from
 * files of their own, or out of a model's metadata. */
#include "base/file.h"
#include "base/jstok.h"
#include "base/str.h"
#include "base/utf8.h"
#include "format/weights.h"
#include "text/bpe_impl.h"
#include "text/clean.h"

#include <stdlib.h>
#include <string.h>

#define DEPTH_MAX 16
#define NAME_MAX_BYTES 1024 /* of a piece of vocabulary; CLIP's longest has 51 */

struct load { /* while files are read */
    struct bpe *t;
    struct arena mem; /* texts of the vocabulary */
    struct map id;    /* text -> id */
    struct vec merge; /* struct merge, in file order */
};
struct merge {
    const char *text; /* "left right", in the arena */
    uint32_t n, left; /* bytes of all, of the left one */
};

void bpe_close(struct bpe *t)
{
    if (!t)
        return;
    map_release(&t->merge);
    free(t->pair);
    free(t);
}

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a tokenizer");
}

/* ---- JSON ---- */

/* The current key or string as text of the arena. */
static berth_status copy_text(struct load *l, const struct jstok *j, const char **out, size_t *n,
                              berth_err *err)
{
    if (j->n > 6 * NAME_MAX_BYTES) /* an escape has six bytes */
        return jstok_fail(j, "a piece of vocabulary that is too long", err);
    char *text = arena_alloc(&l->mem, j->n + 1);
    if (!text)
        return no_memory(err);
    if (!jstok_decode(j, text, n, NULL))
        return jstok_fail(j, "half a surrogate pair", err);
    text[*n] = 0;
    *out = text;
    return BERTH_OK;
}

static berth_status add_name(struct load *l, const struct jstok *j, const char *text, size_t n,
                             uint64_t id, bool again, berth_err *err)
{
    if (id >= BPE_VOCAB_MAX)
        return jstok_fail(j, "an id beyond 2^20", err);
    uint64_t have;
    switch (map_add(&l->id, text, n, id)) {
    case MAP_NOMEM:
        return no_memory(err);
    case MAP_EXISTS:
        if (again && map_get(&l->id, text, n, &have) && have == id)
            return BERTH_OK;
        return jstok_fail(j, "a piece of vocabulary twice", err);
    case MAP_ADDED:
        break;
    }
    if (id >= l->t->vocab)
        l->t->vocab = id + 1;
    return BERTH_OK;
}

/* { "text": id, ... } */
static berth_status read_vocab(struct load *l, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT)
        return jstok_fail(j, "the vocabulary is no object", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_OBJECT_END;) {
        const char *text = NULL;
        size_t n;
        uint64_t id;
        if (k != JSTOK_KEY)
            return jstok_fail(j, "the vocabulary is malformed", err);
        if (copy_text(l, j, &text, &n, err))
            return err->code;
        if (jstok_next(j) != JSTOK_INT || !jstok_u64(j, &id))
            return jstok_fail(j, "an id that is no number from 0 on", err);
        if (add_name(l, j, text, n, id, false, err))
            return err->code;
    }
    return BERTH_OK;
}

/* Notes a pair; its pieces are looked up when the vocabulary is known. */
static berth_status add_merge(struct load *l, const char *text, size_t n, size_t left,
                              berth_err *err)
{
    if (l->merge.n >= BPE_VOCAB_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %u merges", BPE_VOCAB_MAX);
    const struct merge m = { .text = text, .n = (uint32_t)n, .left = (uint32_t)left };
    return vec_push(&l->merge, &m) ? BERTH_OK : no_memory(err);
}

/* "left right" */
static berth_status add_merge_text(struct load *l, const char *text, size_t n, berth_err *err)
{
    const char *gap = memchr(text, ' ', n);
    size_t left = gap ? (size_t)(gap - text) : 0;
    if (left == 0 || left + 1 == n || memchr(gap + 1, ' ', n - left - 1) || n > 2 * NAME_MAX_BYTES)
        return err_set(err, BERTH_EFORMAT, "merge %zu is not two pieces", l->merge.n + 1);
    return add_merge(l, text, n, left, err);
}

/* ["left right", ...] or [["left", "right"], ...] */
static berth_status read_merges(struct load *l, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "the merges are no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        const char *a, *b;
        size_t n, m;
        if (k == JSTOK_STRING) {
            if (copy_text(l, j, &a, &n, err) || add_merge_text(l, a, n, err))
                return err->code;
            continue;
        }
        if (k != JSTOK_ARRAY || jstok_next(j) != JSTOK_STRING)
            return jstok_fail(j, "a merge is neither text nor a pair", err);
        if (copy_text(l, j, &a, &n, err))
            return err->code;
        if (jstok_next(j) != JSTOK_STRING)
            return jstok_fail(j, "a merge is no pair", err);
        if (copy_text(l, j, &b, &m, err))
            return err->code;
        if (jstok_next(j) != JSTOK_ARRAY_END || n == 0 || m == 0)
            return jstok_fail(j, "a merge is no pair", err);
        char *both = arena_alloc(&l->mem, n + m + 2);
        if (!both)
            return no_memory(err);
        memcpy(both, a, n);
        both[n] = ' ';
        memcpy(both + n + 1, b, m);
        if (add_merge(l, both, n + 1 + m, n, err))
            return err->code;
    }
    return BERTH_OK;
}

/* A text that must be `want`, or null. */
static berth_status want_text(struct jstok *j, const char *want, const char *what, berth_err *err)
{
    enum jstok_type k = jstok_next(j);
    if (k == JSTOK_ERROR)
        return jstok_fail(j, what, err);
    if (k == JSTOK_NULL || (k == JSTOK_STRING && j->n == strlen(want) && !memcmp(j->s, want, j->n)))
        return BERTH_OK;
    return err_set(err, BERTH_EUNSUPPORTED, "%s is not \"%s\": this is no tokenizer of CLIP", what,
                   want);
}

static bool key_is(const struct jstok *j, const char *z)
{
    return str_eq(j->s, j->n, z);
}

static berth_status read_model(struct load *l, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_OBJECT)
        return jstok_fail(j, "\"model\" is no object", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_OBJECT_END;) {
        berth_status s = BERTH_OK;
        if (k != JSTOK_KEY)
            return jstok_fail(j, "\"model\" is malformed", err);
        if (key_is(j, "vocab"))
            s = read_vocab(l, j, err);
        else if (key_is(j, "merges"))
            s = read_merges(l, j, err);
        else if (key_is(j, "type"))
            s = want_text(j, "BPE", "type", err);
        else if (key_is(j, "end_of_word_suffix"))
            s = want_text(j, "</w>", "end_of_word_suffix", err);
        else if (!jstok_skip(j))
            s = jstok_fail(j, "malformed", err);
        if (s)
            return s;
    }
    return BERTH_OK;
}

/* [{"id": 49406, "content": "<|startoftext|>", ...}, ...]: usually in the vocabulary as well. */
static berth_status read_added(struct load *l, struct jstok *j, berth_err *err)
{
    if (jstok_next(j) != JSTOK_ARRAY)
        return jstok_fail(j, "\"added_tokens\" is no array", err);
    for (enum jstok_type k; (k = jstok_next(j)) != JSTOK_ARRAY_END;) {
        const char *text = NULL;
        size_t n = 0;
        uint64_t id = UINT64_MAX;
        if (k != JSTOK_OBJECT)
            return jstok_fail(j, "an added token is no object", err);
        while ((k = jstok_next(j)) == JSTOK_KEY) {
            bool is_id = key_is(j, "id"), is_text = key_is(j, "content");
            if (!is_id && !is_text) {
                if (!jstok_skip(j))
                    return jstok_fail(j, "malformed", err);
                continue;
            }
            k = jstok_next(j);
            if (is_id ? k != JSTOK_INT || !jstok_u64(j, &id) : k != JSTOK_STRING)
                return jstok_fail(j, "an added token without id or content", err);
            if (is_text && copy_text(l, j, &text, &n, err))
                return err->code;
        }
        if (k != JSTOK_OBJECT_END || !text)
            return jstok_fail(j, "an added token without content", err);
        if (add_name(l, j, text, n, id, true, err))
            return err->code;
    }
    return BERTH_OK;
}

/* "model" may come before or behind "added_tokens", whose tokens it may repeat: two rounds. */
static berth_status read_tokenizer(struct load *l, const char *text, size_t n, berth_err *err)
{
    bool model = false;
    for (int round = 0; round < 2; round++) {
        struct jstok j;
        jstok_init(&j, text, n, DEPTH_MAX);
        if (jstok_next(&j) != JSTOK_OBJECT)
            return jstok_fail(&j, "no object", err);
        for (enum jstok_type k; (k = jstok_next(&j)) != JSTOK_OBJECT_END;) {
            berth_status s = BERTH_OK;
            if (k != JSTOK_KEY)
                return jstok_fail(&j, "malformed", err);
            if (round == 0 && key_is(&j, "model"))
                model = !(s = read_model(l, &j, err));
            else if (round == 1 && key_is(&j, "added_tokens"))
                s = read_added(l, &j, err);
            else if (!jstok_skip(&j))
                s = jstok_fail(&j, "malformed", err);
            if (s)
                return s;
        }
        if (jstok_next(&j) != JSTOK_END)
            return jstok_fail(&j, "more behind the end", err);
    }
    return model ? BERTH_OK : err_set(err, BERTH_EFORMAT, "there is no \"model\" in it");
}

static berth_status read_vocab_file(struct load *l, const char *text, size_t n, berth_err *err)
{
    struct jstok j;
    jstok_init(&j, text, n, DEPTH_MAX);
    if (read_vocab(l, &j, err))
        return err->code;
    return jstok_next(&j) == JSTOK_END ? BERTH_OK : jstok_fail(&j, "more behind the end", err);
}

/* merges.txt: an optional "#version" line, then a pair on each. */
static berth_status read_merges_file(struct load *l, const char *text, size_t n, berth_err *err)
{
    for (size_t i = 0, end; i < n; i = end + 1) {
        const char *nl = memchr(text + i, '\n', n - i);
        end = nl ? (size_t)(nl - text) : n;
        size_t len = end - i - (end > i && text[end - 1] == '\r');
        if (len == 0 || (i == 0 && len >= 8 && memcmp(text, "#version", 8) == 0))
            continue;
        char *line = len > 2 * NAME_MAX_BYTES ? NULL : arena_strndup(&l->mem, text + i, len);
        if (len <= 2 * NAME_MAX_BYTES && !line)
            return no_memory(err);
        if (!line)
            return err_set(err, BERTH_EFORMAT, "merge %zu is too long", l->merge.n + 1);
        if (add_merge_text(l, line, len, err))
            return err->code;
    }
    return BERTH_OK;
}

/* ---- tables ---- */

static int32_t id_of(const struct load *l, const char *text, size_t n)
{
    uint64_t id;
    return map_get(&l->id, text, n, &id) ? (int32_t)id : -1;
}

bool bpe_byte_is_printable(unsigned byte)
{
    return (byte >= '!' && byte <= '~') || (byte >= 0xa1 && byte <= 0xac) || byte >= 0xae;
}

size_t bpe_byte_symbol(unsigned byte, char out[4])
{
    uint32_t next = 0x100;
    for (unsigned b = 0; b < byte; b++)
        next += !bpe_byte_is_printable(b);
    return utf8_put(bpe_byte_is_printable(byte) ? byte : next, out);
}

static berth_status set_symbols(struct load *l, berth_err *err)
{
    struct bpe *t = l->t;
    size_t ends = 0;
    for (unsigned b = 0; b < 256; b++) {
        char text[8];
        size_t n = bpe_byte_symbol(b, text);
        t->byte[b] = id_of(l, text, n);
        memcpy(text + n, "</w>", 4);
        t->byte_end[b] = id_of(l, text, n + 4);
        ends += t->byte_end[b] >= 0;
    }
    t->start = id_of(l, WORD_START_TEXT, strlen(WORD_START_TEXT));
    t->end = id_of(l, WORD_END_TEXT, strlen(WORD_END_TEXT));
    if (t->start < 0 || t->end < 0)
        return err_set(err, BERTH_EFORMAT, "no %s in the vocabulary: this is no tokenizer of CLIP",
                       t->start < 0 ? WORD_START_TEXT : WORD_END_TEXT);
    if (ends == 0)
        return err_set(err, BERTH_EFORMAT,
                       "no byte with </w> in the vocabulary: this is no tokenizer of CLIP");
    return BERTH_OK;
}

static berth_status set_merges(struct load *l, berth_err *err)
{
    struct bpe *t = l->t;
    if (l->merge.n == 0)
        return BERTH_OK;
    t->pair = calloc(l->merge.n, sizeof *t->pair);
    if (!t->pair || !map_reserve(&t->merge, l->merge.n))
        return no_memory(err);
    for (size_t i = 0; i < l->merge.n; i++) {
        const struct merge *m = vec_at(&l->merge, i);
        char both[2 * NAME_MAX_BYTES * 6];
        size_t right = m->n - m->left - 1;
        if (m->n > sizeof both)
            return err_set(err, BERTH_EFORMAT, "merge %zu is too long", i + 1);
        memcpy(both, m->text, m->left);
        memcpy(both + m->left, m->text + m->left + 1, right);
        int32_t a = id_of(l, m->text, m->left), b = id_of(l, m->text + m->left + 1, right),
                to = id_of(l, both, m->left + right);
        if (a < 0 || b < 0 || to < 0)
            return err_set(err, BERTH_EFORMAT, "merge %zu ('%.*s'): %s is not in the vocabulary",
                           i + 1, (int)(m->n < 60 ? m->n : 60), m->text,
                           a < 0   ? "its left piece"
                           : b < 0 ? "its right piece"
                                   : "what it makes");
        t->pair[i] = (uint64_t)a << 32 | (uint32_t)b;
        const char *key = (const char *)&t->pair[i];
        uint64_t value = (uint64_t)i << 32 | (uint32_t)to;
        enum map_put_result put = map_add(&t->merge, key, sizeof *t->pair, value);
        if (put == MAP_NOMEM)
            return no_memory(err);
        if (put == MAP_EXISTS) /* the last one counts, as in a dictionary */
            map_set(&t->merge, key, sizeof *t->pair, value);
    }
    return BERTH_OK;
}

/* ---- public ---- */

typedef berth_status read_fn(struct load *l, const char *text, size_t n, berth_err *err);

/* ENOTFOUND, EINVAL (a folder) and other statuses of file_read_all(). */
static berth_status read_file(struct load *l, const char *path, read_fn *read, berth_err *err)
{
    char *text = NULL;
    size_t n = 0;
    if (file_read_all(path, BPE_FILE_MAX, &text, &n, err))
        return err->code;
    berth_status s = read(l, text, n, err);
    free(text);
    return s ? err_add(err, "'%s'", path) : BERTH_OK;
}

static berth_status read_folder(struct load *l, const char *path, berth_err *err)
{
    struct str file = { 0 };
    str_addf(&file, "%s/vocab.json", path);
    berth_status s = file.bad ? no_memory(err) : read_file(l, file.p, read_vocab_file, err);
    if (s == BERTH_ENOTFOUND) {
        str_clear(&file);
        str_addf(&file, "%s/tokenizer.json", path);
        s = file.bad ? no_memory(err) : read_file(l, file.p, read_tokenizer, err);
        if (s == BERTH_ENOTFOUND)
            s = err_set(err, BERTH_ENOTFOUND,
                        "'%s' has neither vocab.json and merges.txt nor tokenizer.json", path);
    } else if (!s) {
        str_clear(&file);
        str_addf(&file, "%s/merges.txt", path);
        s = file.bad ? no_memory(err) : read_file(l, file.p, read_merges_file, err);
    }
    str_release(&file);
    return s;
}

static berth_status load_init(struct load *l, berth_err *err)
{
    *l = (struct load) { .t = calloc(1, sizeof *l->t), .merge.elem = sizeof(struct merge) };
    return l->t ? BERTH_OK : no_memory(err);
}

/* Makes the tables when s is BERTH_OK; releases what loading took. */
static berth_status load_finish(struct load *l, berth_status s, struct bpe **out, berth_err *err)
{
    if (!s)
        s = set_symbols(l, err);
    if (!s)
        s = set_merges(l, err);
    map_release(&l->id);
    vec_release(&l->merge);
    arena_release(&l->mem);
    if (s)
        bpe_close(l->t);
    *out = s ? NULL : l->t;
    return s;
}

berth_status bpe_from_text(const char *vocab, size_t n, const char *merges, size_t m,
                           struct bpe **out, berth_err *err)
{
    struct load l;
    *out = NULL;
    if (load_init(&l, err))
        return err->code;
    berth_status s =
        merges ? read_vocab_file(&l, vocab, n, err) : read_tokenizer(&l, vocab, n, err);
    if (!s && merges)
        s = read_merges_file(&l, merges, m, err);
    return load_finish(&l, s, out, err);
}

berth_status bpe_open(const char *path, struct bpe **out, berth_err *err)
{
    struct load l;
    *out = NULL;
    if (load_init(&l, err))
        return err->code;
    berth_status s = read_file(&l, path, read_tokenizer, err);
    if (s == BERTH_EINVAL)
        s = read_folder(&l, path, err);
    s = load_finish(&l, s, out, err);
    return s ? err_add(err, "tokenizer '%s'", path) : BERTH_OK;
}

berth_status bpe_from_weights(const struct weights *w, struct bpe **out, berth_err *err)
{
    const struct weights_meta *m = weights_meta_find(w, BPE_METADATA);
    berth_status s;
    *out = NULL;
    if (!m)
        return err_set(err, BERTH_ENOTFOUND, "'%s' has no tokenizer in it", weights_path(w));
    if (m->kind != META_STRING)
        s = err_set(err, BERTH_EFORMAT, "it is no text");
    else if (m->str_len > BPE_FILE_MAX)
        s = err_set(err, BERTH_ELIMIT, "%zu bytes are more than %u", m->str_len, BPE_FILE_MAX);
    else
        s = bpe_from_text(m->str, m->str_len, NULL, 0, out, err);
    return s ? err_add(err, "tokenizer (%s) in '%s'", BPE_METADATA, weights_path(w)) : BERTH_OK;
}
