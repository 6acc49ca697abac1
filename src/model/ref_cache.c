#include "model/ref_cache.h"

#include "model/families.h"

#include <stdlib.h>

void ref_cache_release(struct ref_cache *c)
{
    free(c->kept);
    free(c->item);
    *c = (struct ref_cache) { .n = 0 };
}

/* What is kept for a place; c->n: nothing. */
static size_t find(const struct ref_cache *c, size_t place)
{
    size_t i = 0;
    while (i < c->n && (c->kept[i].place != place || c->kept[i].tokens != c->tokens))
        i++;
    return i;
}

static berth_status no_memory(berth_err *err)
{
    return err_set(err, BERTH_ENOMEM, "what is kept of pictures to look at");
}

/* Room for one more in the list. */
static bool grow(struct ref_cache *c)
{
    size_t cap = c->cap ? 2 * c->cap : 4;
    if (c->n < c->cap)
        return true;
    struct ref_kept *more = realloc(c->kept, cap * sizeof *more);
    if (!more)
        return false;
    c->kept = more;
    c->cap = cap;
    return true;
}

/* Places for items that have none yet, each behind the last. */
static berth_status take_places(struct ref_cache *c, struct net *net, const struct family_batch *b,
                                uint64_t attentions, berth_err *err)
{
    const size_t was = c->n;
    uint64_t each, bytes = c->bytes;
    for (size_t i = 0; i < c->items; i++) {
        size_t at = find(c, b->first + i);
        if (at == c->n) {
            if (!grow(c)) {
                c->n = was;
                return no_memory(err);
            }
            c->kept[c->n++] =
                (struct ref_kept) { .place = b->first + i, .tokens = c->tokens, .at = bytes };
            if (__builtin_mul_overflow(attentions * c->row, c->tokens, &each) ||
                __builtin_add_overflow(bytes, each, &bytes)) {
                c->n = was;
                return err_set(err, BERTH_ELIMIT, "%llu tokens of pictures to look at",
                               (unsigned long long)c->tokens);
            }
        }
        c->item[i] = at;
    }
    if (bytes == c->bytes)
        return BERTH_OK;
    berth_status s =
        c->bytes ? net_keep_more(net, 1, c->bytes, bytes, err) : net_keep(net, bytes, err);
    if (s) {
        c->n = was;
        return err_add(err, "keys and values of pictures to look at");
    }
    c->bytes = bytes;
    return BERTH_OK;
}

berth_status ref_cache_begin(struct ref_cache *c, struct net *net, const struct family_batch *b,
                             uint64_t tokens, uint64_t width, uint64_t attentions, berth_err *err)
{
    size_t filled = 0;
    c->state = REF_CACHE_OFF;
    if (!tokens || !patch_keeps_refs(&b->patches))
        return BERTH_OK;
    c->tokens = tokens;
    c->row = 2 * width * dtype_desc(net_act(net))->bytes;
    c->items = (size_t)b->shape.dim[0];
    free(c->item);
    if (!(c->item = calloc(c->items, sizeof *c->item)))
        return no_memory(err);
    if (take_places(c, net, b, attentions, err))
        return err->code;
    for (size_t i = 0; i < c->items; i++)
        filled += c->kept[c->item[i]].filled;
    c->state = filled == c->items ? REF_CACHE_SERVES : REF_CACHE_FILLS;
    return BERTH_OK;
}

void ref_cache_kv(struct net_run *r, const struct ref_cache *c, uint64_t attention, struct view kv)
{
    if (!c || c->state == REF_CACHE_OFF)
        return;
    for (size_t i = 0; i < c->items; i++) {
        const struct ref_kept *kept = &c->kept[c->item[i]];
        if (c->state == REF_CACHE_FILLS && kept->filled)
            continue;
        struct view here = net_part(r, kv, 0, i, i + 1);
        struct act there =
            net_kept(r, c->kept[c->item[i]].at + attention * c->row * c->tokens, &here.shape);
        if (c->state == REF_CACHE_FILLS)
            net_copy(r, here, net_view(&there));
        else
            net_copy(r, net_view(&there), here);
    }
}

void ref_cache_end(struct ref_cache *c)
{
    for (size_t i = 0; c->state == REF_CACHE_FILLS && i < c->items; i++)
        c->kept[c->item[i]].filled = true;
    c->state = REF_CACHE_OFF;
}
