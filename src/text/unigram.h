/* unigram: SentencePiece: T5's, umT5's and Gemma's tokenizer (text-encoders.md 5, llm-encoders.md
 * 4). A piece is an entry of the vocabulary, a text and a score (the logarithm of how common it
 * is). A prompt becomes the pieces with the highest sum of scores; or, where the model says that it
 * is "BPE" (Gemma, Llama 2), its characters are merged, the pair of the best score first.
 *
 * Limits     UNIGRAM_VOCAB_MAX ids, UNIGRAM_FILE_MAX bytes a file: BERTH_ELIMIT.
 * Files      unigram.c the best pieces; unigram_merge.c merging, and ids to bytes;
 *            unigram_normal.c what happens to text before; unigram_load.c tables, unigram_json.c
 *            and unigram_proto.c the files they come from (unigram_impl.h: whose rules hold for
 *            which); charsmap.c precompiled rules; trie.c */
#pragma once

#include "text/tokenizer.h"

#define UNIGRAM_VOCAB_MAX (1u << 20)
#define UNIGRAM_FILE_MAX (64u << 20)

/* T5's and umT5's pieces with scores (text-encoders.md 5). path: a folder with tokenizer.json or
 * spiece.model (looked for in this order), or one of these files. Special tokens written out in a
 * prompt ("</s>", "<extra_id_0>") are tokens where a tokenizer.json says so, text to the others. */
struct unigram;
berth_status unigram_open(const char *path, struct unigram **out, berth_err *err);
/* path: a SentencePiece model, or a folder with tokenizer.model or spiece.model. */
berth_status unigram_open_proto(const char *path, struct unigram **out, berth_err *err);
/* A serialized SentencePiece ModelProto: what spiece.model holds, and the tensor spiece_model of
 * umT5 checkpoints. what: for messages. */
berth_status unigram_from_proto(const void *bytes, size_t n, const char *what, struct unigram **out,
                                berth_err *err);
/* From a GGUF file's metadata (tokenizer.ggml.*) of this model: "t5", or "llama" for merges.
 * BERTH_ENOTFOUND: it has none. */
berth_status unigram_from_gguf(const struct weights *w, const char *model, struct unigram **out,
                               berth_err *err);
void unigram_close(struct unigram *t); /* NULL is fine */
/* Appends int32_t ids of plain text, no end token. Any bytes: what is not UTF-8 is replaced. */
berth_status unigram_encode(const struct unigram *t, const char *text, size_t n, struct vec *out,
                            berth_err *err);
/* For struct tokenizer, where pairs are merged: BUG() otherwise. */
text_bytes_fn unigram_bytes;
int32_t unigram_find(const void *t, const char *text);
/* Writes a tokenizer.json that knows letters and no words, with T5's ids: as
 * bpe_write_stand_in(). */
berth_status unigram_write_stand_in(const char *dir, berth_err *err);
