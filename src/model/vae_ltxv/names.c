/* What files call the layers of LTX-Video's VAE: convolutions over frames are one level deeper than
 * ours, and tables and factors have no "weight" behind their names. */
#include "model/vae_ltxv/vae_ltxv.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

static bool names(const void *user, const char *canonical, struct net_source *out)
{
    static const char *const bare[] = { "scale_shift_table",  "per_channel_scale1",
                                        "per_channel_scale2", "std-of-means",
                                        "mean-of-means",      "timestep_scale_multiplier" };
    size_t n = strlen(canonical);
    (void)user;
    *out = (struct net_source) { .rows = 0 };
    if (!str_ends(canonical, n, ".weight"))
        return false;
    n -= strlen(".weight");
    for (size_t i = 0; i < ARRAY_LEN(bare); i++)
        if (str_ends(canonical, n, bare[i])) {
            out->flat = i != 0;
            return name_print(out->name, sizeof out->name, "%.*s", (int)n, canonical);
        }
    return false;
}

net_names_fn *vae_ltxv_names(const struct vae_net *v)
{
    (void)v;
    return names;
}
