/* trie: byte strings with numbers, to be found at the beginning of a text. For text/ alone.
 *
 * Words      key   a byte string without NUL in front of others: any bytes, not empty
 *            node  one byte of some key; children lie side by side, ordered by byte
 * Time       A step is a binary search among at most 256 children; the first byte is a table.
 * Threads    Immutable once built: any. */
#pragma once

#include "base/attr.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

struct trie_key {
    const char *s; /* borrowed for the building */
    uint32_t n;    /* not 0 */
    int32_t id;    /* not negative */
};
struct trie_node;
struct trie { /* a zeroed one has no keys */
    struct trie_node *node;
    uint32_t first[256]; /* node of a key's first byte; 0: no key begins so */
};
enum trie_result { TRIE_OK, TRIE_NOMEM, TRIE_TWICE };
/* Sorts key[]. TRIE_TWICE: two keys are equal, *at is one of them (of the order now). n * length of
 * all keys stays below 2^32, the caller saw to it. */
WARN_UNUSED enum trie_result trie_build(struct trie *t, struct trie_key *key, size_t n, size_t *at);
void trie_release(struct trie *t);

/* Keys that s begins with, shortest first: start with { 0 }; false: no more. */
struct trie_walk {
    uint32_t node;
    size_t len; /* of the key found */
    int32_t id;
};
bool trie_next(const struct trie *t, const char *s, size_t n, struct trie_walk *w);
/* The longest of them: its bytes; 0: none. */
size_t trie_longest(const struct trie *t, const char *s, size_t n, int32_t *id);
