/* unigram_load.c: opens files of every kind and turns their pieces into tables. */
#include "text/unigram_impl.h"

#include "base/file.h"
#include "base/utf8.h"

#include <float.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "a tokenizer");
}

void unigram_close(struct unigram *t)
{
    if (!t)
        return;
    trie_release(&t->piece);
    trie_release(&t->token);
    charsmap_release(&t->map);
    vec_release(&t->special);
    arena_release(&t->mem);
    vocab_release(&t->text);
    free(t->type);
    free(t->score);
    free(t);
}

/* ---- while a file is read ---- */

berth_status unigram_load_init(struct unigram_load *l, berth_err *err)
{
    *l = (struct unigram_load) { .t = calloc(1, sizeof *l->t),
                                 .piece.elem = sizeof(struct piece),
                                 .added.elem = sizeof(struct trie_key),
                                 .unknown = -1 };
    if (!l->t)
        return no_memory(err);
    l->t->special.elem = sizeof(struct special);
    return BERTH_OK;
}

static berth_status take_text(struct unigram_load *l, const char *text, size_t n, const char **out,
                              berth_err *err)
{
    if (n > UNIGRAM_PIECE_MAX || n > UNIGRAM_TEXT_MAX - l->text_bytes)
        return err_set(err, BERTH_ELIMIT,
                       "a piece of %zu bytes (at most %d), or all of them have more than %u", n,
                       UNIGRAM_PIECE_MAX, UNIGRAM_TEXT_MAX);
    l->text_bytes += n;
    *out = arena_strndup(&l->mem, text, n);
    return *out ? BERTH_OK : no_memory(err);
}

berth_status unigram_add_piece(struct unigram_load *l, const char *text, size_t n, double score,
                               uint32_t type, berth_err *err)
{
    const char *copy;
    if (l->piece.n >= UNIGRAM_VOCAB_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %u pieces", UNIGRAM_VOCAB_MAX);
    if (!isfinite(score))
        return err_set(err, BERTH_EFORMAT, "the score of piece %zu is no number", l->piece.n);
    if (type < PIECE_NORMAL || type > PIECE_BYTE)
        return err_set(err, BERTH_EFORMAT, "piece %zu is of type %u", l->piece.n, (unsigned)type);
    if (take_text(l, text, n, &copy, err))
        return err->code;
    const struct piece p = { .text = copy, .n = (uint32_t)n, .type = type, .score = score };
    return vec_push(&l->piece, &p) ? BERTH_OK : no_memory(err);
}

berth_status unigram_add_special(struct unigram_load *l, const char *text, size_t n,
                                 struct special s, berth_err *err)
{
    const char *copy;
    if (n == 0 || s.id < 0 || (uint32_t)s.id >= UNIGRAM_VOCAB_MAX)
        return err_set(err, BERTH_EFORMAT, "an added token of %zu bytes with id %d", n, (int)s.id);
    if (l->added.n >= UNIGRAM_VOCAB_MAX)
        return err_set(err, BERTH_ELIMIT, "more than %u added tokens", UNIGRAM_VOCAB_MAX);
    if (take_text(l, text, n, &copy, err))
        return err->code;
    const struct trie_key key = { .s = copy, .n = (uint32_t)n, .id = (int32_t)l->t->special.n };
    return vec_push(&l->added, &key) && vec_push(&l->t->special, &s) ? BERTH_OK : no_memory(err);
}

/* ---- tables ---- */

/* SentencePiece looks for pieces of these kinds alone; Hugging Face for all there are. */
static bool is_looked_for(const struct unigram *t, const struct piece *p)
{
    return p->n && (!t->sentencepiece || p->type == PIECE_NORMAL || p->type == PIECE_USER_DEFINED);
}

static berth_status build(struct trie *t, struct vec *key, const char *what, berth_err *err)
{
    size_t at = 0;
    switch (trie_build(t, key->p, key->n, &at)) {
    case TRIE_OK:
        return BERTH_OK;
    case TRIE_NOMEM:
        return no_memory(err);
    case TRIE_TWICE:
        break;
    }
    const struct trie_key *k = vec_at(key, at);
    char text[48];
    size_t n = k->n < sizeof text ? k->n : sizeof text;
    memcpy(text, k->s, n);
    utf8_sanitize(text, n);
    return err_set(err, BERTH_EFORMAT, "%s '%.*s' appears twice", what, (int)n, text);
}

/* The lowest score decides what a character costs that no piece has; the highest makes pieces that
 * users defined win. */
static void set_scores(struct unigram_load *l)
{
    struct unigram *t = l->t;
    /* SentencePiece's highest begins with the smallest positive float: where all scores are
     * negative, as they are in trained models, pieces of users score -0.1 however long. */
    double low = INFINITY, high = FLT_MIN;
    const struct piece *p = l->piece.p;
    for (size_t i = 0; i < l->piece.n; i++)
        if (!t->sentencepiece || p[i].type == PIECE_NORMAL) {
            low = p[i].score < low ? p[i].score : low;
            high = p[i].score > high ? p[i].score : high;
        }
    if (low == INFINITY)
        low = 0; /* there are none */
    for (size_t i = 0; i < l->piece.n; i++)
        t->score[i] = t->sentencepiece && p[i].type == PIECE_USER_DEFINED
                          ? (double)p[i].n * high - 0.1
                          : p[i].score;
    t->unknown_score = low - UNIGRAM_UNKNOWN_PENALTY;
    if (t->sentencepiece)
        t->unknown_score = (double)(float)t->unknown_score;
}

/* All pieces by text, for merging and for the way back. */
static berth_status set_texts(struct unigram_load *l, berth_err *err)
{
    struct unigram *t = l->t;
    t->type = calloc(l->piece.n, sizeof *t->type);
    if (!t->type)
        return no_memory(err);
    for (size_t i = 0; i < l->piece.n; i++) {
        const struct piece *p = vec_at(&l->piece, i);
        t->type[i] = (uint8_t)p->type;
        if (p->type == PIECE_UNUSED)
            return err_set(err, BERTH_EUNSUPPORTED,
                           "piece %zu is unused: merges that are taken back", i);
        switch (vocab_add(&t->text, p->text, p->n, i)) {
        case VOCAB_OK:
            break;
        case VOCAB_TEXT_TWICE:
        case VOCAB_ID_TWICE:
            return err_set(err, BERTH_EFORMAT, "piece %zu appears twice", i);
        case VOCAB_NOMEM:
            return no_memory(err);
        case VOCAB_FULL:
            return err_set(err, BERTH_ELIMIT, "more than %u pieces", UNIGRAM_VOCAB_MAX);
        }
    }
    return BERTH_OK;
}

static berth_status set_pieces(struct unigram_load *l, berth_err *err)
{
    struct unigram *t = l->t;
    struct vec key = { .elem = sizeof(struct trie_key) },
               user = { .elem = sizeof(struct trie_key) };
    berth_status s = BERTH_OK;
    t->score = calloc(l->piece.n, sizeof *t->score);
    if (!t->score || (!t->merges && !vec_reserve(&key, l->piece.n)))
        s = no_memory(err);
    for (size_t i = 0; !s && i < l->piece.n; i++) {
        const struct piece *p = vec_at(&l->piece, i);
        const struct trie_key k = { .s = p->text, .n = p->n, .id = (int32_t)i };
        bool users = t->sentencepiece && p->type == PIECE_USER_DEFINED;
        if (is_looked_for(t, p) &&
            ((!t->merges && !vec_push(&key, &k)) || (users && !vec_push(&user, &k))))
            s = no_memory(err);
    }
    if (!s) {
        set_scores(l);
        s = t->merges ? set_texts(l, err) : build(&t->piece, &key, "piece", err);
    }
    if (!s)
        s = t->sentencepiece ? build(&t->token, &user, "piece", err)
                             : build(&t->token, &l->added, "added token", err);
    vec_release(&key);
    vec_release(&user);
    return s;
}

/* Ids of pieces with a meaning of their own. -1: there is no such piece. control: those that
 * SentencePiece calls so; in Gemma "</s>" is what ends struck-out text in HTML. */
static int32_t id_of(const struct unigram_load *l, const char *text, bool control)
{
    const struct piece *p = l->piece.p;
    for (size_t i = 0; i < l->piece.n; i++)
        if ((!control || p[i].type == PIECE_CONTROL) && str_eq(p[i].text, p[i].n, text))
            return (int32_t)i;
    if (control)
        return -1;
    const struct trie_key *k = l->added.p;
    for (size_t i = 0; i < l->added.n; i++)
        if (str_eq(k[i].s, k[i].n, text))
            return ((const struct special *)vec_at(&l->t->special, (size_t)k[i].id))->id;
    return -1;
}

static void set_bytes(struct unigram_load *l)
{
    struct unigram *t = l->t;
    size_t have = 0;
    for (size_t i = 0; i < 256; i++)
        t->byte[i] = -1;
    for (size_t i = 0; i < l->piece.n; i++) {
        const struct piece *p = vec_at(&l->piece, i);
        int b = text_byte_piece(p->text, p->n);
        if (b < 0 || t->byte[b] >= 0 || (t->sentencepiece && p->type != PIECE_BYTE))
            continue;
        t->byte[b] = (int32_t)i;
        have++;
    }
    t->byte_fallback = l->byte_fallback && have == 256;
}

static berth_status set_ids(struct unigram_load *l, berth_err *err)
{
    struct unigram *t = l->t;
    t->vocab = l->piece.n;
    for (size_t i = 0; i < t->special.n; i++) {
        size_t id = (size_t)((struct special *)vec_at(&t->special, i))->id;
        t->vocab = id >= t->vocab ? id + 1 : t->vocab;
    }
    if (l->piece.n == 0)
        return err_set(err, BERTH_EFORMAT, "no pieces in it");
    if (l->unknown < 0 || (uint64_t)l->unknown >= l->piece.n)
        return err_set(err, BERTH_EFORMAT, "no piece for what is unknown among its %zu",
                       l->piece.n);
    t->unknown = (int32_t)l->unknown;
    t->end = id_of(l, "</s>", t->sentencepiece);
    t->eos = t->end < 0 && (t->end = id_of(l, "<eos>", t->sentencepiece)) >= 0;
    if (t->end < 0)
        t->end = id_of(l, "</s>", false);
    t->start = id_of(l, t->eos ? "<bos>" : "<s>", t->sentencepiece);
    t->pad = id_of(l, "<pad>", false);
    t->pad = t->pad < 0 ? 0 : t->pad;
    if (t->end < 0)
        return err_set(err, BERTH_EFORMAT, "no '</s>' among its %zu pieces: no tokenizer of T5",
                       l->piece.n);
    return BERTH_OK;
}

berth_status unigram_finish(struct unigram_load *l, berth_status s, struct unigram **out,
                            berth_err *err)
{
    if (!s)
        s = set_ids(l, err);
    if (!s) {
        set_bytes(l);
        s = set_pieces(l, err);
    }
    vec_release(&l->piece);
    vec_release(&l->added);
    arena_release(&l->mem);
    if (s)
        unigram_close(l->t);
    *out = s ? NULL : l->t;
    return s;
}

/* ---- public ---- */

static bool looks_like_json(const char *s, size_t n)
{
    size_t i = 0;
    while (i < n && (s[i] == ' ' || s[i] == '\n' || s[i] == '\r' || s[i] == '\t'))
        i++;
    return i < n && s[i] == '{';
}

berth_status unigram_from_memory(const char *bytes, size_t n, struct unigram **out, berth_err *err)
{
    struct unigram_load l;
    *out = NULL;
    if (unigram_load_init(&l, err))
        return err->code;
    /* A ModelProto begins with the tag of its first piece, a line feed: JSON that does has a brace
     * behind it, where the other has a length and a tag. */
    bool json = looks_like_json(bytes, n);
    berth_status s =
        json ? unigram_read_json(&l, bytes, n, err) : unigram_read_proto(&l, bytes, n, err);
    if (s == BERTH_EFORMAT && !json && n && bytes[0] != '\n')
        s = err_set(err, s, "neither JSON nor a SentencePiece model");
    return unigram_finish(&l, s, out, err);
}

berth_status unigram_from_proto(const void *bytes, size_t n, const char *what, struct unigram **out,
                                berth_err *err)
{
    struct unigram_load l;
    *out = NULL;
    if (unigram_load_init(&l, err))
        return err->code;
    berth_status s = unigram_finish(&l, unigram_read_proto(&l, bytes, n, err), out, err);
    return s ? err_add(err, "tokenizer '%s'", what) : BERTH_OK;
}

static berth_status open_file(const char *path, struct unigram **out, berth_err *err)
{
    char *text = NULL;
    size_t n = 0;
    if (file_read_all(path, UNIGRAM_FILE_MAX, &text, &n, err))
        return err->code;
    berth_status s = unigram_from_memory(text, n, out, err);
    free(text);
    return s ? err_add(err, "'%s'", path) : BERTH_OK;
}

/* The first of two files that the folder has. */
static berth_status open_folder(const char *path, const char *const name[2], struct unigram **out,
                                berth_err *err)
{
    struct str file = { 0 };
    berth_status s = BERTH_ENOTFOUND;
    for (size_t i = 0; s == BERTH_ENOTFOUND && i < 2; i++) {
        str_clear(&file);
        str_addf(&file, "%s/%s", path, name[i]);
        s = file.bad ? no_memory(err) : open_file(file.p, out, err);
    }
    str_release(&file);
    return s == BERTH_ENOTFOUND
               ? err_set(err, s, "'%s' has neither %s nor %s", path, name[0], name[1])
               : s;
}

static berth_status open_one_of(const char *path, const char *const name[2], struct unigram **out,
                                berth_err *err)
{
    *out = NULL;
    berth_status s = open_file(path, out, err);
    if (s == BERTH_EINVAL)
        s = open_folder(path, name, out, err);
    return s ? err_add(err, "tokenizer '%s'", path) : BERTH_OK;
}

berth_status unigram_open(const char *path, struct unigram **out, berth_err *err)
{
    return open_one_of(path, (const char *const[]) { "tokenizer.json", "spiece.model" }, out, err);
}

berth_status unigram_open_proto(const char *path, struct unigram **out, berth_err *err)
{
    return open_one_of(path, (const char *const[]) { "tokenizer.model", "spiece.model" }, out, err);
}
