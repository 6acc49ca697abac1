/* tokenizer: prompts to token ids (text-encoders.md 1-5, llm-encoders.md 4), and ids to text.
 * Emphasis cuts a prompt into parts, a tokenizer turns each into ids, and the ids become chunks:
 * what one pass of an encoder takes.
 *
 *     text_chunks(prompt, n, tokenizer_clip.encode, tok, &rules, "clip_l", emb, &mem, &chunks, err)
 *
 * What a language model writes comes back id by id, in whole characters:
 *
 *     struct text_decoder d = { .is = &tokenizer_qwen25, .tok = tok };
 *     text_decode(&d, id, &out); ... text_decode_end(&d, &out)
 *
 * Words      part    a piece of a prompt with one weight; group: its tokens
 * Adding     one file with a `const struct tokenizer tokenizer_<x>` and a line in tokenizers.def
 * Data       comes from users or models; nothing is built in. It is hostile until checked: sizes,
 *            ids and ranks have limits, errors name the file.
 * Limits     A prompt TEXT_PROMPT_MAX bytes and TEXT_CHUNKS_MAX chunks, emphasis TEXT_NESTING_MAX
 *            deep: BERTH_ELIMIT.
 * Time       grows with the length of the text and the depth of its emphasis, never with the square
 *            of the length.
 * Threads    An opened tokenizer is immutable: any thread.
 * Files      tokenizer_*.c what there is; bpe.h CLIP's byte pairs; lmbpe.h those of language
 *            models; unigram.h SentencePiece; emphasis.c prompt weights; chunks.c; chat.h what
 *            stands around a prompt; decode.c ids to text; embedding.c textual inversion files;
 *            unicode.c NFC, lower case, classes (unicode_tables.h); stand_in.c tokenizers for
 *            people who have none; tokenizers.c the list */
#pragma once

#include "base/arena.h"
#include "base/err.h"
#include "base/str.h"
#include "base/vec.h"

#define TEXT_PROMPT_MAX (1u << 20)
#define TEXT_CHUNKS_MAX 4096
#define TEXT_NESTING_MAX 1024

/* ---- tokenizers ---- */
struct weights;
struct token_ids {
    int32_t start, end, pad; /* -1: none */
};
/* Appends int32_t ids of plain text (no emphasis, no start or end). Any bytes: what is not UTF-8 is
 * replaced. */
typedef berth_status text_encode_fn(const void *tok, const char *text, size_t n, struct vec *out,
                                    berth_err *err);

/* Appends the bytes that an id stands for: of characters, not always whole ones. An id that the
 * tokenizer does not have stands for nothing. True: what follows is not at the beginning of the
 * text any more. */
typedef bool text_bytes_fn(const void *tok, int32_t id, unsigned how, struct str *out);
#define TEXT_SPECIAL 1u /* how: special tokens are written out, too, else left out */
#define TEXT_FIRST 2u   /* at the beginning of a text */

/* One kind of tokenizer. What open() and its kin make is immutable, and closed with close(). */
struct tokenizer {
    const char *name;           /* for messages: "no CLIP tokenizer" */
    const char *files;          /* what people bring, for messages: "vocab.json, merges.txt" */
    const char *const *folders; /* where they may lie below a folder that people name, in the order
                                 * they are tried; "": in that folder itself. NULL ends the list */
    size_t own;  /* the first so many `folders` are named after it: what is there must be of this
                 * kind. The others may hold any tokenizer; one of another kind is passed over */
    bool beside; /* the folder of the model's file counts too, after `folders` */
    const char *const (*any_of)[2]; /* files a folder must have: one of these, or these two; {NULL}
                                     * ends the list */
    berth_status (*open)(const char *path, void **out, berth_err *err); /* a folder or a file */
    /* What a model's file carries. BERTH_ENOTFOUND: nothing.
     *   carried  goes before folders: this model's own. Optional
     *   spare    comes after them (GGUF metadata). Optional */
    berth_status (*carried)(const struct weights *w, void **out, berth_err *err);
    berth_status (*spare)(const struct weights *w, void **out, berth_err *err);
    bool keep_carried; /* slow to open: stays open until another one of this kind is wanted */
    void (*close)(void *tok); /* NULL is fine */
    struct token_ids (*ids)(const void *tok);
    text_encode_fn *encode;
    /* Of language models; NULL for the others. */
    text_bytes_fn *bytes;
    bool each_byte; /* one U+FFFD for each byte of a broken character, else for all of them */
    int32_t (*find)(const void *tok, const char *text); /* id of a token; -1: there is none */
    /* Appends what people see of a whole text, which was decoded with special tokens. Optional: all
     * that was decoded without them. */
    void (*tidy)(const char *text, size_t n, struct str *out);
};
#define TOKENIZER(x) extern const struct tokenizer tokenizer_##x;
#include "text/tokenizers.def"
#undef TOKENIZER
extern const struct tokenizer *const tokenizer_list[]; /* tokenizers.def; NULL ends it */

/* ---- emphasis ---- */
struct text_part {
    const char *text; /* in the arena, NUL-terminated; may hold NULs in `n` bytes */
    size_t n;
    double weight; /* as Python computes it; may be any number, inf or nan */
};
/* Appends struct text_part: the prompt cut at its parentheses, without them and without escapes. */
berth_status text_parts(const char *prompt, size_t n, struct arena *mem, struct vec *out,
                        berth_err *err);

/* The prompt as one part of weight 1, without escapes: for encoders that know no weights. */
berth_status text_whole(const char *prompt, size_t n, struct arena *mem, struct vec *out,
                        berth_err *err);

/* ---- chunks ---- */
struct token {  /* one slot of a chunk */
    int32_t id; /* -1: a vector of an embedding file */
    double weight;
    const float *vector; /* [width], in the arena of the chunks; NULL: id */
    uint32_t width;
    const char *embedding; /* the vector's, by name; in the same arena */
};
struct chunk_rules {         /* tables of text-encoders.md 3, llm-encoders.md 3.2 */
    int32_t start, end, pad; /* start, end -1: none */
    uint32_t max_length;     /* 77; 0: no limit */
    uint32_t min_length;
    uint32_t min_padding; /* pads behind the last token, before any other rule asks for some */
    bool pad_to_max;
    bool pad_left; /* in front of the tokens, the start token included */
    bool plain;    /* parentheses are text, all weights are 1; \( and \) lose their backslash */
    /* The so-manieth of its parts, as emphasis and embeddings cut them, is left out; 0: none. */
    uint32_t without;
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
/* A whole prompt. encode: of the tokenizer `tok`. emb NULL: `embedding:` is plain text.
 * BERTH_EINVAL: a weight that is no finite float. */
berth_status text_chunks(const char *prompt, size_t n, text_encode_fn *encode, const void *tok,
                         const struct chunk_rules *rules, const char *key,
                         const struct text_embeddings *emb, struct arena *mem, struct chunks *out,
                         berth_err *err);

/* ---- ids to text ---- */
struct text_decoder {           /* of one text */
    const struct tokenizer *is; /* with bytes() */
    const void *tok;
    bool special; /* special tokens are written out, too */
    /* private */
    bool begun;
    char held[4]; /* bytes of a character that is not whole yet */
    size_t held_n;
};
/* Appends what an id adds to the text: whole characters, U+FFFD for bytes that are none. Memory:
 * out->bad. */
void text_decode(struct text_decoder *d, int32_t id, struct str *out);
void text_decode_end(struct text_decoder *d, struct str *out); /* what is held is broken */
/* "<0x41>": the byte that a piece of vocabulary stands for; -1: none. */
int text_byte_piece(const char *s, size_t n);

/* An embedding file's vectors, in the arena: what "string_to_param" holds, else the tensor called
 * `key` ("clip_l"), else what an adapter bundles, else the first tensor, or all of a list. */
berth_status text_embedding_read(const char *path, const char *key, struct arena *mem,
                                 const float **vectors, uint32_t *count, uint32_t *width,
                                 berth_err *err);
