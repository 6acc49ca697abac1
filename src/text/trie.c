/* trie.c: built level by level from sorted keys, so that children are neighbours. */
#include "text/trie.h"

#include "base/vec.h"

#include <stdlib.h>
#include <string.h>

struct trie_node {
    uint32_t kid;  /* first child; 0: none, as node 0 is the root */
    uint16_t kids; /* 0 to 256 */
    uint8_t byte;
    int32_t id; /* of the key that ends here; -1: none does */
};
struct range { /* keys below a node while it has no children yet */
    uint32_t from, to, depth;
};

static int by_bytes(const void *a, const void *b)
{
    const struct trie_key *x = a, *y = b;
    int c = memcmp(x->s, y->s, x->n < y->n ? x->n : y->n);
    return c ? c : x->n < y->n ? -1 : x->n > y->n;
}

/* Children of node `at`: one for each byte that follows in its keys. A key that ends there is the
 * first of them. */
static bool add_kids(struct vec *node, struct vec *range, const struct trie_key *key, size_t at)
{
    struct range r = *(struct range *)vec_at(range, at);
    uint32_t i = r.from + (key[r.from].n == r.depth);
    if (i == r.to)
        return true;
    ((struct trie_node *)vec_at(node, at))->kid = (uint32_t)node->n;
    while (i < r.to) {
        uint8_t byte = (uint8_t)key[i].s[r.depth];
        uint32_t end = i + 1;
        while (end < r.to && (uint8_t)key[end].s[r.depth] == byte)
            end++;
        struct trie_node *kid = vec_add(node);
        struct range *below = vec_add(range);
        if (!kid || !below)
            return false;
        *kid = (struct trie_node) { .byte = byte, .id = key[i].n == r.depth + 1 ? key[i].id : -1 };
        *below = (struct range) { .from = i, .to = end, .depth = r.depth + 1 };
        ((struct trie_node *)vec_at(node, at))->kids++;
        i = end;
    }
    return true;
}

enum trie_result trie_build(struct trie *t, struct trie_key *key, size_t n, size_t *at)
{
    *t = (struct trie) { 0 };
    if (n == 0)
        return TRIE_OK;
    qsort(key, n, sizeof *key, by_bytes);
    for (size_t i = 1; i < n; i++)
        if (by_bytes(&key[i - 1], &key[i]) == 0) {
            *at = i;
            return TRIE_TWICE;
        }
    struct vec node = { .elem = sizeof(struct trie_node) },
               range = { .elem = sizeof(struct range) };
    struct trie_node *root = vec_add(&node);
    struct range *all = vec_add(&range);
    bool ok = root && all;
    if (ok) {
        root->id = -1;
        *all = (struct range) { .to = (uint32_t)n };
    }
    for (size_t i = 0; ok && i < node.n; i++)
        ok = add_kids(&node, &range, key, i);
    vec_release(&range);
    if (!ok) {
        vec_release(&node);
        return TRIE_NOMEM;
    }
    t->node = node.p;
    for (uint32_t i = 0; i < t->node[0].kids; i++)
        t->first[t->node[t->node[0].kid + i].byte] = t->node[0].kid + i;
    return TRIE_OK;
}

void trie_release(struct trie *t)
{
    free(t->node);
    *t = (struct trie) { 0 };
}

/* The child of `at` for a byte; 0: none. */
static uint32_t kid_of(const struct trie *t, uint32_t at, uint8_t byte)
{
    uint32_t lo = t->node[at].kid, n = t->node[at].kids;
    while (n > 0) {
        uint32_t half = n / 2;
        if (t->node[lo + half].byte == byte)
            return lo + half;
        if (t->node[lo + half].byte < byte) {
            lo += half + 1;
            n -= half + 1;
        } else {
            n = half;
        }
    }
    return 0;
}

bool trie_next(const struct trie *t, const char *s, size_t n, struct trie_walk *w)
{
    while (w->len < n) {
        uint8_t byte = (uint8_t)s[w->len];
        uint32_t to = w->len ? kid_of(t, w->node, byte) : t->first[byte];
        if (!to)
            return false;
        w->node = to;
        w->len++;
        if (t->node[to].id >= 0) {
            w->id = t->node[to].id;
            return true;
        }
    }
    return false;
}

size_t trie_longest(const struct trie *t, const char *s, size_t n, int32_t *id)
{
    struct trie_walk w = { 0 };
    size_t len = 0;
    while (trie_next(t, s, n, &w)) {
        len = w.len;
        *id = w.id;
    }
    return len;
}
