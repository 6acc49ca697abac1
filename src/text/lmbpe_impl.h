/* lmbpe_impl: inside of language models' tokenizers, for the lmbpe_*.c files. */
#pragma once

#include "base/str.h"
#include "text/bpe_source.h"
#include "text/lmbpe.h"

#define LMBPE_HIGH 68 /* bytes that a character from U+0100 on stands for */
#define LMBPE_NORMAL_MAX (16u * TEXT_PROMPT_MAX) /* bytes of a text once it is normal */
#define METASPACE "\xe2\x96\x81"                 /* U+2581, which stands for a blank */

enum lmbpe_symbols {                   /* what a word is made of, and the texts of the vocabulary */
                     SYMBOL_BYTES,     /* characters that stand for bytes (bpe_byte_symbol()) */
                     SYMBOL_RAW,       /* bytes */
                     SYMBOL_CHARACTERS /* characters */
};
struct lmbpe {
    const struct lmbpe_kind *kind;
    enum lmbpe_symbols symbols;
    struct vocab vocab; /* without added tokens, unless the file has them there too */
    struct pairs pairs;
    bool by_text;       /* any two symbols merge whose text is in the vocabulary, lowest id first */
    struct vocab extra; /* added tokens */
    struct added raw, normal; /* the same; those looked for in the normal text */
    uint8_t *special;         /* [ids]: not part of a decoded text */
    size_t ids;               /* highest + 1 */
    struct split_rule split;
    bool nfc;
    struct arena mem;                    /* texts of steps */
    struct bpe_step step[BPE_STEPS_MAX]; /* Replace, Prepend */
    size_t steps;
    int32_t byte[256];        /* their ids; -1: none, where symbols are characters */
    uint8_t high[LMBPE_HIGH]; /* the bytes that U+0100 and up stand for */
    bool byte_fallback, fuse_unknown;
    bool blank_in_front; /* a step puts one in front of every text */
    int32_t unknown;     /* -1: every text has tokens */
    int32_t start, pad;  /* -1: none */
};

/* Appends s as it is looked up: well-formed and normal. */
berth_status lmbpe_normalize(const struct lmbpe *t, const char *s, size_t n, struct str *out,
                             berth_err *err);
/* Takes vocabulary, merges and added tokens out of b, and makes the tables that all kinds have.
 * pre: t's symbols, kind and steps are set */
berth_status lmbpe_take(struct lmbpe *t, struct bpe_source *b, berth_err *err);
/* The same of vocab.json and merges.txt, or GGUF: what they do not say is the kind's. */
berth_status lmbpe_take_plain(struct lmbpe *t, struct bpe_source *b, berth_err *err);
/* A new one; NULL: memory is exhausted. */
struct lmbpe *lmbpe_new(const struct lmbpe_kind *kind);
