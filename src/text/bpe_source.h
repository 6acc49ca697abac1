/* bpe_source: vocab.json, merges.txt, tokenizer.json and tokenizer_config.json of tokenizers that
 * merge pairs, read and checked: what CLIP's (bpe_load.c) and those of language models (lmbpe_*.c)
 * are made of. For text/ alone.
 *
 *     tokenizer.json { "added_tokens":  [{"id": 0, "content": "<pad>", "lstrip": false, ...}, ...],
 *                      "normalizer":    null, {"type": "NFC"}, or a Sequence of such steps
 *                      "pre_tokenizer": the same of {"type": "Split", "pattern": ...} and others
 *                      "model":         {"type": "BPE", "vocab": {"text": id, ...},
 *                                        "merges": ["left right", ...] or [["left", "right"]]} }
 *
 * Trust      Hostile until checked: BPE_VOCAB_MAX ids and merges, texts of BPE_TEXT_MAX bytes,
 *            BPE_STEPS_MAX steps. Errors say where. */
#pragma once

#include "base/arena.h"
#include "text/added.h"
#include "text/bpe.h"
#include "text/merge.h"
#include "text/vocab.h"

#define BPE_TEXT_MAX 1024 /* bytes of a piece of vocabulary; CLIP's longest has 51 */
#define BPE_STEPS_MAX 16

struct bpe_step {                          /* of a normalizer or pre_tokenizer */
    const char *type;                      /* NULL where the file has none, as the others */
    const char *pattern, *to, *behavior;   /* to: "content", or "prepend" */
    bool regex;                            /* the pattern */
    bool invert, prefix_space, keep_words; /* keep_words: "use_regex" is false */
};
struct bpe_source { /* a zeroed one is empty; bpe_source_release() */
    struct arena mem;
    struct vocab vocab;
    struct pairs pairs;
    size_t merges;    /* read so far: the rank of the next one */
    struct vec added; /* struct added_token, texts in the arena */
    struct bpe_step normal[BPE_STEPS_MAX], words[BPE_STEPS_MAX];
    size_t normals, cuts;
    /* of "model"; NULL: null, or not there */
    const char *type, *suffix, *unknown;
    bool byte_fallback, fuse_unknown;
};
void bpe_source_release(struct bpe_source *b);

typedef berth_status bpe_read_fn(struct bpe_source *b, const char *text, size_t n, berth_err *err);
bpe_read_fn bpe_read_vocab;     /* vocab.json */
bpe_read_fn bpe_read_merges;    /* merges.txt; pre: the vocabulary is read */
bpe_read_fn bpe_read_tokenizer; /* tokenizer.json */
bpe_read_fn bpe_read_config;    /* tokenizer_config.json: its added_tokens_decoder */
/* Statuses of file_read_all() (ENOTFOUND; EINVAL: a folder), errors with the file's name. */
berth_status bpe_read_file(struct bpe_source *b, const char *path, bpe_read_fn *read,
                           berth_err *err);
/* The same of a folder's file. */
berth_status bpe_read_in(struct bpe_source *b, const char *folder, const char *name,
                         bpe_read_fn *read, berth_err *err);

/* ---- one by one, for those that come otherwise ---- */
berth_status bpe_add_text(struct bpe_source *b, const char *text, size_t n, uint64_t id,
                          berth_err *err);
berth_status bpe_add_merge(struct bpe_source *b, const char *left, size_t n, const char *right,
                           size_t m, berth_err *err);
berth_status bpe_add_merge_line(struct bpe_source *b, const char *text, size_t n, berth_err *err);
/* t->text: borrowed for the call */
berth_status bpe_add_token(struct bpe_source *b, const struct added_token *t, berth_err *err);
/* The same, whether or not the vocabulary has that text under another id. */
berth_status bpe_push_token(struct bpe_source *b, const struct added_token *t, berth_err *err);
int32_t bpe_id_of(const struct bpe_source *b, const char *text, size_t n); /* -1: none */
size_t bpe_ids(const struct bpe_source *b);                                /* highest + 1 */
