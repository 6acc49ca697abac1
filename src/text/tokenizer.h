/* tokenizer: prompts to token ids (text-encoders.md 1-5): CLIP's byte pairs, T5's unigrams.
 *
 * Words      part    a piece of a prompt with one weight; group: its tokens; chunk: what one pass
 *            of an encoder takes
 *            piece   an entry of T5's vocabulary: text and score (the logarithm of how common it
 *            is); a prompt becomes the pieces whose scores sum up highest
 * Data       CLIP: vocab.json + merges.txt, or tokenizer.json (a folder with either, the file
 *            itself, or its text in a model file). T5: tokenizer.json or spiece.model. Hostile until
 *            checked: sizes, ids, ranks have limits, errors name the file. Users or models bring
 *            it; nothing is built in.
 * Limits     A prompt TEXT_PROMPT_MAX bytes and TEXT_CHUNKS_MAX chunks, emphasis TEXT_NESTING_MAX
 *            deep; a tokenizer BPE_VOCAB_MAX or UNIGRAM_VOCAB_MAX ids and as many merges,
 *            BPE_FILE_MAX or UNIGRAM_FILE_MAX bytes a file: BERTH_ELIMIT.
 * Time       Grows with the length of the text, and with the depth of its emphasis, never with the
 *            square of the length.
 * Threads    A tokenizer is immutable: any thread.
 * Files      bpe.c CLIP's merges; bpe_load.c its files; clean.c what happens to text before, and
 *            its words; unigram.c T5's best pieces; unigram_normal.c what happens to text before;
 *            unigram_load.c tables, and unigram_json.c and unigram_proto.c the files they come from
 *            (unigram_impl.h: whose rules hold for which); charsmap.c precompiled rules; trie.c;
 *            unicode.c NFC, lower case, classes (unicode_tables.h); emphasis.c prompt weights;
 *            chunks.c; embedding.c textual inversion files; stand_in.c tokenizers for who has
 *            none */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/arena.h"
#include "base/err.h"
#include "base/vec.h"

#include <stdbool.h>

#define TEXT_PROMPT_MAX (1u << 20)
#define TEXT_CHUNKS_MAX 4096
#define TEXT_NESTING_MAX 1024
#define BPE_VOCAB_MAX (1u << 20)
#define BPE_FILE_MAX (64u << 20)
#define UNIGRAM_VOCAB_MAX (1u << 20)
#define UNIGRAM_FILE_MAX (64u << 20)

struct bpe;
/* path: a folder (vocab.json and merges.txt, else tokenizer.json), or a tokenizer.json. */
berth_status bpe_open(const char *path, struct bpe **out, berth_err *err);
/* The one that a model file brings: metadata BPE_METADATA is the text of a tokenizer.json.
 * BERTH_ENOTFOUND: it has none. Errors name the file. */
#define BPE_METADATA "berth.tokenizer"
struct weights;
berth_status bpe_from_weights(const struct weights *w, struct bpe **out, berth_err *err);
void bpe_close(struct bpe *t); /* NULL is fine */
size_t bpe_vocab(const struct bpe *t);
int32_t bpe_start(const struct bpe *t); /* <|startoftext|> */
int32_t bpe_end(const struct bpe *t);   /* <|endoftext|> */
/* Appends int32_t ids of plain text (no emphasis, no start or end). Any bytes: what is not UTF-8 is
 * replaced. */
berth_status bpe_encode(const struct bpe *t, const char *text, size_t n, struct vec *out,
                        berth_err *err);

/* Writes vocab.json and merges.txt of a tokenizer that knows letters and no words, with CLIP's ids:
 * for tours and tests on machines that have no other. The folder must be there. */
berth_status bpe_write_stand_in(const char *dir, berth_err *err);

/* T5's and umT5's pieces with scores (text-encoders.md 5). path: a folder with tokenizer.json or
 * spiece.model (looked for in this order), or one of these files. Special tokens written out in a
 * prompt ("</s>", "<extra_id_0>") are tokens where a tokenizer.json says so, text to the others. */
struct unigram;
berth_status unigram_open(const char *path, struct unigram **out, berth_err *err);
/* A serialized SentencePiece ModelProto: what spiece.model holds, and the tensor spiece_model of
 * umT5 checkpoints. what: for messages. */
berth_status unigram_from_proto(const void *bytes, size_t n, const char *what, struct unigram **out,
                                berth_err *err);
/* From a GGUF file's metadata (tokenizer.ggml.*). BERTH_ENOTFOUND: it has none. */
berth_status unigram_from_gguf(const struct weights *w, struct unigram **out, berth_err *err);
void unigram_close(struct unigram *t); /* NULL is fine */
size_t unigram_vocab(const struct unigram *t);
int32_t unigram_end(const struct unigram *t); /* </s> */
int32_t unigram_pad(const struct unigram *t); /* <pad>, or 0 */
/* Appends int32_t ids of plain text, no end token. Any bytes: what is not UTF-8 is replaced. */
berth_status unigram_encode(const struct unigram *t, const char *text, size_t n, struct vec *out,
                            berth_err *err);
/* Writes a tokenizer.json that knows letters and no words, with T5's ids: as
 * bpe_write_stand_in(). */
berth_status unigram_write_stand_in(const char *dir, berth_err *err);

/* ---- emphasis ---- */
struct text_part {
    const char *text; /* in the arena, NUL-terminated; may hold NULs in `n` bytes */
    size_t n;
    double weight; /* as Python computes it; may be any number, inf or nan */
};
/* Appends struct text_part: the prompt cut at its parentheses, without them and without escapes. */
berth_status text_parts(const char *prompt, size_t n, struct arena *mem, struct vec *out,
                        berth_err *err);

/* ---- chunks ---- */
struct token {  /* one slot of a chunk */
    int32_t id; /* -1: a vector of an embedding file */
    double weight;
    const float *vector; /* [width], in the arena of the chunks; NULL: id */
    uint32_t width;
    const char *embedding; /* the vector's, by name; in the same arena */
};
struct chunk_rules {         /* table of text-encoders.md 3 */
    int32_t start, end, pad; /* start, end -1: none */
    uint32_t max_length;     /* 77; 0: no limit */
    uint32_t min_length;
    bool pad_to_max;
};
struct chunks {               /* in the arena */
    struct token **chunk;     /* [n][len[i]] */
    size_t *len, n;           /* at least one */
    struct chunk_rules rules; /* that they were made by */
};
/* The chunk of the empty prompt, padded to `length`: what weights are measured against. */
berth_status text_empty_chunk(const struct chunk_rules *rules, size_t length, struct arena *mem,
                              struct token **out, berth_err *err);
/* Vectors of an embedding file by name, as `embedding:name` asks for. key: "clip_l", "clip_g". The
 * answer lives in `mem`. Asked once for a name, whatever a prompt refers to it. text_chunks() warns
 * and goes on without it when it is not there (BERTH_ENOTFOUND) or cannot be read. */
typedef berth_status text_embedding_fn(void *user, const char *name, size_t n, const char *key,
                                       struct arena *mem, const float **vectors, uint32_t *count,
                                       uint32_t *width, berth_err *err);
struct text_embeddings {
    text_embedding_fn *find;
    void *user;
    const struct log *log;
};
/* A whole prompt. encode: text_encode_bpe or another tokenizer's. emb NULL: `embedding:` is plain
 * text. BERTH_EINVAL: a weight that is no finite float. */
typedef berth_status text_encode_fn(const void *tok, const char *text, size_t n, struct vec *out,
                                    berth_err *err);
text_encode_fn text_encode_bpe;     /* tok: struct bpe */
text_encode_fn text_encode_unigram; /* tok: struct unigram; no end token */
berth_status text_chunks(const char *prompt, size_t n, text_encode_fn *encode, const void *tok,
                         const struct chunk_rules *rules, const char *key,
                         const struct text_embeddings *emb, struct arena *mem, struct chunks *out,
                         berth_err *err);

/* An embedding file's vectors, in the arena: what "string_to_param" holds, else the tensor called
 * `key` ("clip_l"), else what an adapter bundles, else the first tensor, or all of a list. */
berth_status text_embedding_read(const char *path, const char *key, struct arena *mem,
                                 const float **vectors, uint32_t *count, uint32_t *width,
                                 berth_err *err);

#endif
