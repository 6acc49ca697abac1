/* added: tokens that are looked for in a text before it is cut into words ("<|im_start|>"). For
 * text/ alone.
 *
 * The rules are those of Hugging Face's tokenizers: the first one in the text, of those that begin
 * there the longest. Threads: immutable once built. */
#pragma once

#include "base/err.h"
#include "base/vec.h"
#include "text/trie.h"

struct added_token {
    const char *text; /* while it is read; borrowed */
    size_t n;
    int32_t id;
    bool lstrip, rstrip; /* takes the white space in front, behind */
    bool single_word;    /* not inside a word */
    bool normalized;     /* looked for in the normal text, not in what was written */
    bool special;        /* not part of a decoded text */
};
struct added { /* a zeroed one has no tokens; added_release() */
    struct trie trie;
    struct added_token *token; /* [tokens]; their texts are gone */
    size_t tokens;
};
/* Takes those of `tokens` (struct added_token) that are normalized, or those that are not. Their
 * texts are not empty. EFORMAT: one appears twice. */
berth_status added_init(struct added *a, const struct vec *tokens, bool normalized, berth_err *err);
void added_release(struct added *a);
/* The error for it: what a file calls its token is made fit to print. */
berth_status added_twice(const char *token, size_t len, berth_err *err);

struct added_hit {
    size_t from, to; /* with the white space it takes */
    int32_t id;
};
/* The first token in s from `from` on. False: there is none. */
bool added_find(const struct added *a, const char *s, size_t n, size_t from, struct added_hit *out);
