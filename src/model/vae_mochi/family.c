/* What the rest of the program knows of the VAE of Mochi. */
#include "model/vae_mochi/presets.h"
#include "model/vae_mochi/vae_mochi.h"

const struct vae_family vae_mochi = {
    .arch = { VAE_ARCH("mochi-vae", "the VAE of Mochi"), .detect = vae_mochi_at,
              .presets = vae_mochi_presets },
    .what = "a VAE of Mochi's kind",
    .name = "Mochi",
    .at = vae_mochi_at,
    .config = vae_mochi_config,
    .names = vae_mochi_names,
    .decode = vae_mochi_decode,
    .encode = vae_mochi_encode,
};
