/* unigram_impl: inside of SentencePiece tokenizers, for the unigram_*.c files.
 *
 * Two libraries tokenise with such files, and they differ. We treat a tokenizer.json as Hugging
 * Face's tokenizers do, and spiece.model, umT5's tensor and GGUF files as SentencePiece does.
 * ComfyUI uses the former for T5 and the latter for umT5.
 *                         tokenizer.json                        SentencePiece
 *     text becomes normal its steps, one after the other;       one pass: the longest rule, runs of
 *                         rules by grapheme (unigram_normal.c)  blanks are one, none at the ends
 *     words               cut in front of every U+2581          none, it is one
 *     special tokens      added_tokens, before all else         pieces that users defined
 *     sums of scores      double                                float */
#pragma once

#include "base/str.h"
#include "text/charsmap.h"
#include "text/merge.h"
#include "text/trie.h"
#include "text/unigram.h"
#include "text/vocab.h"

#define UNIGRAM_PIECE_MAX 256        /* bytes */
#define UNIGRAM_TEXT_MAX (32u << 20) /* bytes of all pieces */
#define UNIGRAM_STEPS_MAX 16
#define UNIGRAM_NORMAL_MAX (16u * TEXT_PROMPT_MAX) /* bytes of a prompt once it is normal */
#define UNIGRAM_UNKNOWN_PENALTY 10.0
#define METASPACE "\xe2\x96\x81" /* U+2581, which stands for a blank */

enum piece_type { /* of SentencePiece, with its numbers; GGUF has the same */
                  PIECE_NORMAL = 1,
                  PIECE_UNKNOWN,
                  PIECE_CONTROL,
                  PIECE_USER_DEFINED,
                  PIECE_UNUSED,
                  PIECE_BYTE,
};
struct piece {        /* while a file is read */
    const char *text; /* in the arena of the load */
    uint32_t n;
    uint32_t type; /* enum piece_type */
    double score;
};
struct special { /* a token of added_tokens */
    int32_t id;
    bool lstrip, rstrip; /* takes the white space in front, behind */
};

enum step_kind { STEP_CHARSMAP, STEP_STRIP, STEP_BLANKS, STEP_REPLACE };
struct step { /* of a tokenizer.json's normalizer */
    enum step_kind kind;
    bool left, right; /* STEP_STRIP */
    const char *from,
        *to; /* STEP_REPLACE: every from; STEP_BLANKS: two and more blanks become to */
    size_t from_n, to_n;
};
enum prefix { /* U+2581 in front of */
              PREFIX_NONE,
              PREFIX_FIRST, /* the text at the very beginning */
              PREFIX_ALWAYS /* each between special tokens */
};

struct unigram {
    struct arena mem; /* texts of steps */
    struct trie piece;
    double *score; /* [vocab]; of those in `piece`, or `text` */
    /* SentencePiece's "BPE": pairs are merged, and nothing is in `piece` */
    bool merges;
    struct vocab text; /* all pieces */
    uint8_t *type;     /* [vocab]: enum piece_type */
    size_t vocab;      /* highest id + 1 */
    double unknown_score;
    int32_t unknown, start, end, pad; /* start -1: none */
    bool eos;                         /* "<eos>" is the end, as in Gemma; else "</s>" */
    bool byte_fallback;
    int32_t byte[256];
    struct trie token;  /* added_tokens: ids are indices of `special`; or user-defined pieces */
    struct vec special; /* struct special */
    struct charsmap map;
    bool sentencepiece;
    /* tokenizer.json */
    struct step step[UNIGRAM_STEPS_MAX];
    size_t steps;
    bool split_blanks; /* words between white space, which goes, before all else */
    bool split_metaspace;
    enum prefix prefix;
    /* SentencePiece */
    bool dummy_prefix, squeeze, escape;
};

/* ---- building (unigram_load.c) ---- */
struct unigram_load {
    struct unigram *t;
    struct arena mem;
    struct vec piece;  /* struct piece; its index is its id */
    struct vec added;  /* struct trie_key: id is an index of t->special */
    size_t text_bytes; /* of all pieces */
    int64_t unknown;   /* said by the file; -1: not */
    bool byte_fallback;
};
/* text: borrowed for the call; ELIMIT names what is too much. */
berth_status unigram_add_piece(struct unigram_load *l, const char *text, size_t n, double score,
                               uint32_t type, berth_err *err);
berth_status unigram_add_special(struct unigram_load *l, const char *text, size_t n,
                                 struct special s, berth_err *err);
/* Makes the tables unless s says that reading failed; releases what loading took. */
berth_status unigram_finish(struct unigram_load *l, berth_status s, struct unigram **out,
                            berth_err *err);
berth_status unigram_load_init(struct unigram_load *l, berth_err *err);

/* ---- reading ---- */
berth_status unigram_read_json(struct unigram_load *l, const char *text, size_t n, berth_err *err);
berth_status unigram_read_proto(struct unigram_load *l, const void *bytes, size_t n,
                                berth_err *err);
/* A file in memory: tokenizer.json if it begins as JSON, else a ModelProto. */
berth_status unigram_from_memory(const char *bytes, size_t n, struct unigram **out, berth_err *err);

/* ---- merging (unigram_merge.c) ---- */
/* What of a word whose symbols are merged; unknown ones as add_unknown() in unigram.c has it. */
bool unigram_merge_word(const struct unigram *t, const char *s, size_t n, struct merge_work *w,
                        struct vec *out);
/* Its bytes, or one token for all of it. */
bool unigram_add_unknown(const struct unigram *t, const char *s, size_t n, struct vec *out);

/* ---- making text normal (unigram_normal.c) ---- */
/* Appends to out the text as pieces are looked for in it, U+2581 for blanks. first: it stands at
 * the beginning of all text. s: well-formed UTF-8. ELIMIT, or ENOMEM when out is bad. */
berth_status unigram_normalize(const struct unigram *t, const char *s, size_t n, bool first,
                               struct str *out, berth_err *err);
/* Without the white space (White_Space of Unicode) at its beginning, at its end. */
void unigram_strip(bool left, bool right, const char **s, size_t *n);
