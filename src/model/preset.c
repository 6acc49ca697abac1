#include "model/preset.h"

#include "model/arch.h"

#include <stdio.h>

/* The i-th of all families' lists; *n (may be NULL): how many there are. */
static const struct preset *nth(size_t i, size_t *n)
{
    const struct preset *found = NULL;
    size_t at = 0;
    for (size_t a = 0; a < arch_count(); a++)
        for (const struct preset *p = arch_at(a)->presets; p && p->name; p++, at++)
            if (at == i)
                found = p;
    if (n)
        *n = at;
    return found;
}

size_t preset_count(void)
{
    size_t n;
    nth(0, &n);
    return n;
}

const struct preset *preset_at(size_t i)
{
    const struct preset *p = nth(i, NULL);
    if (!p)
        BUG("preset %zu of %zu", i, preset_count());
    return p;
}

const struct preset *preset_find(const char *name)
{
    for (size_t i = 0; i < preset_count(); i++)
        if (!strcmp(preset_at(i)->name, name))
            return preset_at(i);
    return NULL;
}

berth_status preset_keys(const struct preset *p, struct keys *k, berth_err *err)
{
    p->build(k, p->config);
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
