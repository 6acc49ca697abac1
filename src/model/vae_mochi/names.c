/* What files call the layers of Mochi's VAE: files of one half may leave out which it is. */
#include "model/vae_mochi/vae_mochi.h"

#include "model/canonical.h"

#include <string.h>

static bool names(const void *user, const char *canonical, struct net_source *out)
{
    static const char *const half[] = { "decoder.", "encoder." };
    (void)user;
    *out = (struct net_source) { .rows = 0 };
    for (size_t i = 0; i < 2; i++)
        if (!strncmp(canonical, half[i], strlen(half[i])))
            return name_print(out->name, sizeof out->name, "%s", canonical + strlen(half[i]));
    return false;
}

net_names_fn *vae_mochi_names(const struct vae_net *v)
{
    return vae_mochi_in(v)->bare ? names : NULL;
}
