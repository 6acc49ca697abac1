/* What files call the layers of Krea 2.
 *
 * The forward asks for the names of its authors' files, with two exceptions: norms have a "weight"
 * like everything else, which files call "scale"; and what is added to modulations is rows to look
 * up, where files have tensors of their own, "mod.lin" and "modulation.lin". */
#include "model/krea2/krea2.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

#define WEIGHT ".weight"

static bool is_norm(const char *layer, size_t n)
{
    return str_ends(layer, n, "norm") || (n == 8 && !memcmp(layer, "txtmlp.0", n));
}

/* Rows of a table: of blocks one, behind each other what six chunks get; of the last layer two. */
static struct shape rows_of(const struct krea2_net *f, const char *layer, size_t n)
{
    const bool block = str_ends(layer, n, ".mod.lin");
    return (struct shape) { .ndim = 2, .dim = { block ? 1 : 2, (block ? 6 : 1) * f->hidden } };
}

bool krea2_names(const void *user, const char *canonical, struct net_source *out)
{
    const size_t all = strlen(canonical), n = all - strlen(WEIGHT);
    *out = (struct net_source) { .rows = 0 };
    if (!str_ends(canonical, all, WEIGHT))
        return false;
    if (is_norm(canonical, n))
        return name_print(out->name, sizeof out->name, "%.*s.scale", (int)n, canonical);
    if (!str_ends(canonical, n, ".lin"))
        return false;
    out->as = rows_of(user, canonical, n);
    return name_print(out->name, sizeof out->name, "%.*s", (int)n, canonical);
}
