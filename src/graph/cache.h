/* cache: outputs of nodes by content key, and node states by id.
 *
 * Words      entry       the outputs and ui of one node, counted: the cache holds one reference, a
 *                        run one for each node it still needs
 *            generation  number of the prompt; an entry was used in the last prompt that has its
 *                        key
 * Modes      classic     at the start of a prompt every entry goes whose key no node of it has
 *            lru         then, while there are more than N, those of the oldest generations go
 *            ram         after each node, when free RAM is at most GB: by size x 1.3^age until it
 *                        is 1.1 x GB again; entries that a run holds stay, nothing would be gained
 *            none        nothing is kept
 * Models     of an entry that goes at the start of a prompt linger until that ends (res_linger()):
 *            a loader whose plan changed then moves blocks instead of reading the file again
 * Threads    Executor. */
#pragma once

#include "graph/graph_impl.h"

/* ---- keys.c ---- */

struct node_key {
    uint64_t h[2];
    bool set; /* false: never cached, nor anything downstream */
};
/* key: one per node, zeroed. Writes "is_changed" into the nodes. cancel (may be NULL): looked at
 * for every node, and while files are read. BERTH_ENOMEM, BERTH_ECANCELED. */
berth_status keys_make(const struct node_env *env, const struct workflow *wf,
                       const uint64_t seed[2], const atomic_bool *cancel, struct node_key *key,
                       berth_err *err);

/* key_files.c: appends the identity of every file that the node's constants name. */
void key_files(const struct node_env *env, const struct wf_node *n, struct str *out);

/* ---- entries ---- */

struct keyed { /* first member of what a table holds */
    const char *key;
    size_t len;
    size_t at; /* in table.item */
};
struct table {
    struct vec item;   /* struct keyed * */
    struct map by_key; /* -> place in item */
};

struct entry {
    struct keyed in; /* of the cache, by `key` */
    unsigned refs;
    struct node_key key;
    struct values *out; /* outs lists */
    size_t outs;
    json_t *ui;       /* object of arrays; NULL: none */
    size_t bytes;     /* of host values, once it is in the cache */
    uint64_t used;    /* generation */
    uint64_t touched; /* order of use */
};
struct entry *entry_new(size_t outs); /* one reference; NULL: out of memory */
struct entry *entry_ref(struct entry *e);
void entry_unref(struct entry *e); /* NULL is fine */

struct node_state; /* cache.c */

struct cache {
    enum cache_mode mode;
    size_t lru;
    double ram_gb;
    uint64_t (*ram_free)(void *user);
    void *ram_user;
    struct table entries; /* struct entry */
    struct table states;  /* struct node_state */
    uint64_t generation, oldest, touches;
    uint64_t hits, misses;
    size_t bytes;
};
void cache_init(struct cache *c, const struct executor_config *cfg);
void cache_clear(struct cache *c); /* entries and states */
void cache_release(struct cache *c);

/* A new prompt: its keys count as used, then what the mode does not keep goes. */
void cache_begin(struct cache *c, const struct workflow *wf, const struct node_key *key);
/* Borrowed; NULL: not there. Counts as a use. */
struct entry *cache_get(struct cache *c, const struct node_key *key);
/* Adds a reference. Without memory for it, or without a key, it is just not cached. */
void cache_put(struct cache *c, struct entry *e, const struct node_key *key);
void cache_relieve(struct cache *c); /* CACHE_RAM, after each node */
/* Where the node keeps its state; stays until the node's id leaves the prompts. NULL: no memory. */
char **cache_state(struct cache *c, const char *id, const char *class_name);
