#include "model/preset.h"

#include <stdio.h>

static const struct preset *const all[] = {
#define PRESET(x) &preset_##x,
#include "model/presets.def"
#undef PRESET
};

size_t preset_count(void)
{
    return ARRAY_LEN(all);
}

const struct preset *preset_at(size_t i)
{
    if (i >= ARRAY_LEN(all))
        BUG("preset %zu of %zu", i, ARRAY_LEN(all));
    return all[i];
}

const struct preset *preset_find(const char *name)
{
    for (size_t i = 0; i < ARRAY_LEN(all); i++)
        if (!strcmp(all[i]->name, name))
            return all[i];
    return NULL;
}

berth_status preset_keys(const struct preset *p, struct keys *k, berth_err *err)
{
    p->build(k);
    if (!k->bad)
        return BERTH_OK;
    keys_release(k);
    return err_set(err, BERTH_ENOMEM, "shape table of preset '%s'", p->name);
}

size_t preset_meta(const struct preset *p, bool mixed, struct preset_meta *out)
{
    size_t n = 0;
    if (mixed && p->arch)
        out->at[n++] = (struct weights_meta_spec) { "general.architecture", p->arch };
    if (p->heads) {
        snprintf(out->heads, sizeof out->heads, "%u", p->heads);
        out->at[n++] = (struct weights_meta_spec) { "berth.heads", out->heads };
    }
    return n;
}
