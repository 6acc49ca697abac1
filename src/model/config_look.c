#include "model/config_look.h"

#include "model/arch.h"

berth_status config_dim(const struct config_look *k, const char *name, int ndim, int axis,
                        uint64_t *out)
{
    const struct weights_entry *e = arch_find(k->w, k->root, name);
    char text[SHAPE_TEXT_MAX];
    if (!e)
        return err_set(k->err, BERTH_EUNSUPPORTED, "%s without '%s'", k->what, name);
    if (e->shape.ndim != ndim || !e->shape.dim[axis] || e->shape.dim[axis] > k->most)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%.120s' is %s, not of %d dimensions of at most %llu", e->name,
                       shape_text(&e->shape, text), ndim, (unsigned long long)k->most);
    *out = e->shape.dim[axis];
    return BERTH_OK;
}

berth_status config_channels(const struct config_look *k, const char *name, int axis,
                             uint64_t pixels, uint64_t *out)
{
    uint64_t wide;
    if (config_dim(k, name, 2, axis, &wide))
        return k->err->code;
    if (wide % pixels)
        return err_set(k->err, BERTH_EUNSUPPORTED,
                       "'%s': patches of %llu values, not %llu a channel", name,
                       (unsigned long long)wide, (unsigned long long)pixels);
    *out = wide / pixels;
    return BERTH_OK;
}
