/* patch: which adapters touch a block, and the block derived again from its base weights. */
#include "residency/residency_impl.h"

#include "base/hash.h"

#include <string.h>

static bool touches(const struct res_patch *p, const struct res_model *m, const struct block *b)
{
    if (p->strength == 0)
        return false;
    for (uint32_t t = 0; t < b->n; t++) {
        const struct weights_entry *e = m->blocks.tensor[b->first + t].entry;
        if (e && p->adapter->ops->touches(p->adapter, e->name, e->name_len))
            return true;
    }
    return false;
}

uint64_t res_patch_signature(const struct res_model *m, size_t block)
{
    uint64_t sum = 0;
    for (size_t i = 0; i < m->patches.n; i++) {
        const struct res_patch *p = vec_at(&m->patches, i);
        if (!touches(p, m, &m->blocks.at[block]))
            continue;
        uint32_t bits;
        memcpy(&bits, &p->strength, sizeof bits);
        const uint64_t link[3] = { sum, p->adapter->id, bits };
        sum = hash_xxh64(link, sizeof link, 0);
        sum += !sum; /* 0 is kept for "untouched" */
    }
    return sum;
}

berth_status res_patch_block(struct res_model *m, size_t block, const struct res_load_args *args,
                             struct res_load_result *result, berth_err *err)
{
    (void)args;
    (void)result;
    return err_set(err, BERTH_EUNSUPPORTED, "%s: block '%s' cannot be patched yet", m->name,
                   m->blocks.at[block].name);
}
