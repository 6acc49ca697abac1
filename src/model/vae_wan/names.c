/* What the file calls a norm's weight. */
#include "model/vae_wan/vae_wan.h"

#include "base/str.h"
#include "model/canonical.h"

#include <string.h>

/* Norms have a "gamma" of [C, 1, 1, 1] or [C, 1, 1]: a vector to us. */
static bool names(const void *user, const char *canonical, struct net_source *out)
{
    static const char *const norm[] = { "residual.0.weight", "residual.3.weight", "norm.weight",
                                        "head.0.weight" };
    size_t n = strlen(canonical);
    (void)user;
    *out = (struct net_source) { .rows = 0, .flat = true };
    for (size_t i = 0; i < ARRAY_LEN(norm); i++)
        if (str_ends(canonical, n, norm[i]))
            return name_print(out->name, sizeof out->name, "%.*sgamma", (int)(n - 6), canonical);
    return false;
}

net_names_fn *vae_wan_names(const struct vae_net *v)
{
    (void)v;
    return names;
}
