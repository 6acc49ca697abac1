/* lmbpe: tokenizers of language models that merge pairs: of bytes (Qwen, Llama 3, GPT-2, Mistral's
 * tekken), or of characters as a tokenizer.json of Gemma 4 has it (llm-encoders.md 4).
 *
 * The way      added tokens are cut out; what is between them becomes normal (NFC, or blanks to
 *              U+2581); words are cut (split.h); pairs of a word are merged by rank.
 * Data         tokenizer.json; vocab.json, merges.txt and tokenizer_config.json (which has the
 *              added tokens); tekken.json; a GGUF file's metadata. What a file says that we do not
 *              do is refused by name: text would become other tokens than the model learned.
 * Limits       BPE_VOCAB_MAX ids and merges, BPE_FILE_MAX bytes a file: BERTH_ELIMIT.
 * Files        lmbpe.c text to ids and back; lmbpe_load.c its files; lmbpe_tekken.c Mistral's;
 *              lmbpe_gguf.c metadata; bpe_source.c reads, merge.c merges, split.c words,
 *              added.c added tokens, vocab.c */
#pragma once

#include "text/bpe.h"
#include "text/split.h"

/* What one kind is, where its files do not say; and what tells it from the others. */
struct lmbpe_kind {
    const char *name;               /* for messages */
    const struct split_rule *split; /* of files that do not say; NULL: they must */
    bool nfc;                       /* the same */
    const char *const *must;        /* tokens it has; NULL ends the list */
    const char *start;              /* stands in front of every text; NULL: nothing does */
    const char *pad;                /* must be one of `must` */
    int32_t pad_id;                 /* and have this id, which tells kinds apart; 0: any */
    const char *const *gguf;        /* its tokenizer.ggml.pre; NULL ends the list */
};

struct lmbpe;
/* path: a tokenizer.json, or a folder with vocab.json, merges.txt and tokenizer_config.json, else
 * with tokenizer.json. kind: outlives it. */
berth_status lmbpe_open(const char *path, const struct lmbpe_kind *kind, struct lmbpe **out,
                        berth_err *err);
/* The text of a tokenizer.json. what: for messages. */
berth_status lmbpe_from_json(const char *text, size_t n, const char *what,
                             const struct lmbpe_kind *kind, struct lmbpe **out, berth_err *err);
/* The text of a tekken.json. */
berth_status lmbpe_from_tekken(const char *text, size_t n, const char *what,
                               const struct lmbpe_kind *kind, struct lmbpe **out, berth_err *err);
/* BERTH_ENOTFOUND: the file has none. */
berth_status lmbpe_from_gguf(const struct weights *w, const struct lmbpe_kind *kind,
                             struct lmbpe **out, berth_err *err);
void lmbpe_close(void *t); /* NULL is fine */

/* For struct tokenizer: what all kinds have, and functions that open one. kind: an lmbpe_kind. */
#define LMBPE_CALLS                                                                                \
    .close = lmbpe_close, .ids = lmbpe_ids, .encode = lmbpe_encode, .bytes = lmbpe_bytes,          \
    .find = lmbpe_find
#define LMBPE_OPEN(kind)                                                                           \
    static berth_status open_path(const char *path, void **out, berth_err *err)                    \
    {                                                                                              \
        struct lmbpe *t;                                                                           \
        berth_status s = lmbpe_open(path, &(kind), &t, err);                                       \
        *out = t;                                                                                  \
        return s;                                                                                  \
    }
#define LMBPE_SPARE(kind)                                                                          \
    static berth_status spare(const struct weights *w, void **out, berth_err *err)                 \
    {                                                                                              \
        struct lmbpe *t;                                                                           \
        berth_status s = lmbpe_from_gguf(w, &(kind), &t, err);                                     \
        *out = t;                                                                                  \
        return s;                                                                                  \
    }
struct token_ids lmbpe_ids(const void *t);
text_encode_fn lmbpe_encode;
text_bytes_fn lmbpe_bytes;
int32_t lmbpe_find(const void *t, const char *text);
