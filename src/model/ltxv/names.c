/* What files call the layers of LTX-Video: the network's own names, but for the tables that noise
 * levels are added to, which have no "weight" behind them. They are rows to look up: of a block
 * one, of the way out two. */
#include "model/ltxv/ltxv.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

#define TABLE "scale_shift_table"
#define WEIGHT ".weight"
#define CHUNKS 6

bool ltxv_names(const void *user, const char *canonical, struct net_source *out)
{
    const struct ltxv_net *f = user;
    const size_t n = strlen(canonical);
    *out = (struct net_source) { .rows = 0 };
    if (!str_ends(canonical, n, TABLE WEIGHT))
        return false;
    if (n > sizeof TABLE WEIGHT - 1)
        out->as = (struct shape) { 2, { 1, CHUNKS * f->hidden } };
    return name_print(out->name, sizeof out->name, "%.*s", (int)(n - strlen(WEIGHT)), canonical);
}
