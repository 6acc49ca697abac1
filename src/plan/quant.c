#include "plan/quant.h"

#include "base/str.h"
#include "format/layout.h"
#include "tensor/dtype.h"

static const struct weights_entry *find_beside(const struct weights *w,
                                               const struct weights_entry *e, const char *ending)
{
    char name[1024];
    int n = snprintf(name, sizeof name, "%s%s", e->name, ending);
    return n > 0 && (size_t)n < sizeof name ? weights_find(w, name, (size_t)n) : NULL;
}

static berth_status check_type(const struct weights *w, const struct weights_entry *e,
                               berth_err *err)
{
    if (e->shape.ndim < 2 || e->layout || dtype_desc(e->dtype)->is_float ||
        dtype_is_quant(e->dtype))
        return BERTH_OK;
    return err_set(err, BERTH_EUNSUPPORTED,
                   "'%.100s' is stored as %s%s, which cannot be computed"
                   " yet",
                   e->name, dtype_name(e->dtype),
                   find_beside(w, e, ".absmax") ? " by bitsandbytes" : "");
}

berth_status quant_check(const struct weights *w, const char *root, berth_err *err)
{
    berth_status s = layouts_check(w, root, true, err);
    for (size_t i = 0; !s && i < weights_count(w); i++) {
        const struct weights_entry *e = weights_at(w, i);
        if ((!root || str_starts(e->name, e->name_len, root)) &&
            str_ends(e->name, e->name_len, ".weight"))
            s = check_type(w, e, err);
    }
    return s;
}
