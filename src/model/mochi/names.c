/* What files call the layers of Mochi: the network's own names. The filter over patches is a matrix
 * to us, and the table of frequencies a vector. */
#include "model/mochi/mochi.h"

#include "model/canonical.h"

#include <string.h>

bool mochi_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct mochi_net *f = user;
    *out = (struct net_source) { .rows = 0 };
    if (!strcmp(canonical, "x_embedder.proj.weight")) {
        out->as = (struct shape) { 2, { f->hidden, f->channels * MOCHI_PATCH * MOCHI_PATCH } };
        return name_print(out->name, sizeof out->name, "%s", canonical);
    }
    if (strcmp(canonical, "pos_frequencies.weight") != 0)
        return false;
    out->flat = true;
    return name_print(out->name, sizeof out->name, "pos_frequencies");
}
