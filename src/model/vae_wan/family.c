/* What the rest of the program knows of Wan's VAEs. */
#include "model/vae_wan/presets.h"
#include "model/vae_wan/vae_wan.h"

static bool is_vae(const struct weights *w, const char *root)
{
    return arch_find(w, root, "decoder.middle.0.residual.0.gamma") &&
           (arch_find(w, root, "decoder.upsamples.0.residual.2.weight") ||
            arch_find(w, root, "decoder.upsamples.0.upsamples.0.residual.2.weight"));
}

const struct vae_family vae_wan = {
    .arch = { VAE_ARCH("wan-vae", "the VAE of Wan 2.1, Wan 2.2 and Qwen-Image"), .detect = is_vae,
              .presets = vae_wan_presets },
    .what = "a VAE of Wan's kind",
    .name = "Wan",
    .at = vae_wan_at,
    .config = vae_wan_config,
    .names = vae_wan_names,
    .decode = vae_wan_decode,
    .encode = vae_wan_encode,
};
