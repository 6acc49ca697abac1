/* tokenizer: prompts to token ids (text-encoders.md 1-5). So far CLIP's byte-pair encoding.
 *
 * Words      part    a piece of a prompt with one weight; group: its tokens; chunk: what one pass of an encoder takes
 * Data       vocab.json + merges.txt, or tokenizer.json (a folder with either, or the file itself). Hostile until
 *            checked: sizes, ids, ranks have limits, errors name the file. Users bring it; nothing is built in.
 * Threads    A tokenizer is immutable: any thread.
 * Files      bpe.c CLIP's merges; bpe_load.c its files; clean.c Unicode: NFC, lower case, classes (unicode_*.h
 *            tables); emphasis.c prompt weights; chunks.c; embedding.c textual inversion files */
#ifndef TEXT_TOKENIZER_H
#define TEXT_TOKENIZER_H

#include "base/arena.h"
#include "base/err.h"
#include "base/vec.h"

#include <stdbool.h>

struct bpe;
/* path: a folder (vocab.json and merges.txt, else tokenizer.json), or a tokenizer.json. */
berth_status bpe_open(const char *path, struct bpe **out, berth_err *err);
void bpe_close(struct bpe *t); /* NULL is fine */
size_t bpe_vocab(const struct bpe *t);
int32_t bpe_start(const struct bpe *t); /* <|startoftext|> */
int32_t bpe_end(const struct bpe *t);   /* <|endoftext|> */
/* Appends int32_t ids of plain text (no emphasis, no start or end). Any bytes: what is not UTF-8 is replaced. */
berth_status bpe_encode(const struct bpe *t, const char *text, size_t n, struct vec *out,
                        berth_err *err);

/* ---- emphasis ---- */
struct text_part {
    const char *text; /* in the arena, NUL-terminated; may hold NULs in `n` bytes */
    size_t n;
    float weight; /* as Python's float would be when it meets a tensor; see weight_exact */
    double weight_exact;
};
/* token_weights(): appends struct text_part. Nesting beyond 1024 is BERTH_ELIMIT. */
berth_status text_parts(const char *prompt, size_t n, struct arena *mem, struct vec *out,
                        berth_err *err);

/* ---- chunks ---- */
struct token {  /* one slot of a chunk */
    int32_t id; /* -1: a vector of an embedding file */
    float weight;
    const float *vector; /* [width], borrowed from `embeddings`; NULL: id */
    uint32_t width;
};
struct chunk_rules {         /* table of text-encoders.md 3 */
    int32_t start, end, pad; /* start, end -1: none */
    uint32_t max_length;     /* 77; 0: no limit */
    uint32_t min_length;
    bool pad_to_max;
};
struct chunks {           /* in the arena */
    struct token **chunk; /* [n][len[i]] */
    size_t *len, n;
};
/* Vectors of an embedding file by name, as `embedding:name` asks for. key: "clip_l", "clip_g". The answer lives in `mem`.
 * BERTH_ENOTFOUND: there is none (a warning and ignored by text_chunks). */
typedef berth_status text_embedding_fn(void *user, const char *name, size_t n, const char *key,
                                       struct arena *mem, const float **vectors, uint32_t *count,
                                       uint32_t *width, berth_err *err);
struct text_embeddings {
    text_embedding_fn *find;
    void *user;
    const struct log *log;
};
/* A whole prompt. tokenize: bpe_encode or another tokenizer. emb NULL: `embedding:` is plain text. */
typedef berth_status text_encode_fn(const void *tok, const char *text, size_t n, struct vec *out,
                                    berth_err *err);
berth_status text_chunks(const char *prompt, size_t n, text_encode_fn *encode, const void *tok,
                         const struct chunk_rules *rules, const char *key,
                         const struct text_embeddings *emb, struct arena *mem, struct chunks *out,
                         berth_err *err);

/* An embedding file's vectors (safetensors): 2.; pickles are refused by name. */
berth_status text_embedding_read(const char *path, const char *key, uint32_t width,
                                 struct arena *mem, const float **vectors, uint32_t *count,
                                 uint32_t *out_width, berth_err *err);

#endif
