/* ref_cache: keys and values of pictures to look at, kept from the first step of a run on, so that
 * later steps need not compute their tokens (FluxKVCache).
 *
 * They are kept on the compute device (net_keep()), of every item of a pass apart, for the same
 * place in later passes. As in ComfyUI, prompts that cannot be in one pass share places: the second
 * of them sees pictures as the first one does.
 *
 *     ref_cache_begin()   before a pass: are all of its items kept, or is there room for them now?
 *     ref_cache_kv()      in its forward, for each attention: copies in or out
 *     ref_cache_end()     after a pass that went well: they are kept
 *
 * One belongs to a net and is good as long as that is open.
 * Threads    Executor. */
#pragma once

#include "net/net.h"

struct family_batch;

struct ref_cache {       /* zeroed is empty */
    struct ref_kept {    /* of one item */
        size_t place;    /* family_batch.first, and following */
        uint64_t tokens; /* of its pictures */
        uint64_t at;     /* where it begins in what the net keeps */
        bool filled;
    } * kept;
    size_t n, cap;
    uint64_t bytes; /* of all */
    /* Of the pass at hand: */
    uint64_t tokens, row; /* of an item's pictures; bytes of keys and values of one token */
    size_t *item;         /* [batch]: indices in kept */
    size_t items;
    enum { REF_CACHE_OFF, REF_CACHE_FILLS, REF_CACHE_SERVES } state;
};
void ref_cache_release(struct ref_cache *c);

/* tokens: of an item's pictures. width: values of a key or of a value. attentions: of a pass.
 * BERTH_ENODEVMEM: no room. */
berth_status ref_cache_begin(struct ref_cache *c, struct net *net, const struct family_batch *b,
                             uint64_t tokens, uint64_t width, uint64_t attentions, berth_err *err);
/* kv [B, tokens, 2 * width]: keys, turned by their positions, and values of the pictures in this
 * attention: a slice. They are kept, or what was kept is put there. */
void ref_cache_kv(struct net_run *r, const struct ref_cache *c, uint64_t attention, struct view kv);
void ref_cache_end(struct ref_cache *c);
