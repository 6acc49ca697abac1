/* What the rest of the program knows of AutoencoderKL. */
#include "model/vae_kl/presets.h"
#include "model/vae_kl/vae_kl.h"

static bool vae_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "decoder.conv_in.weight") ||
           arch_find(w, root, "encoder.conv_in.weight");
}

/* What placement may count on: the names that the pass has. */
static bool is_vae(const struct weights *w, const char *root)
{
    return arch_find(w, root, "decoder.conv_in.weight") &&
           arch_find(w, root, "decoder.mid.block_1.conv1.weight");
}

const struct vae_family vae_kl = {
    .arch = { VAE_ARCH("vae", "AutoencoderKL: the VAE of SD1, SDXL, SD3, Flux, Flux.2"),
              .detect = is_vae, .presets = vae_kl_presets },
    .what = "a VAE of SD's or Flux's kind",
    .name = "AutoencoderKL",
    .at = vae_at,
    .config = vae_kl_config,
    .names = vae_kl_names,
    .decode = vae_kl_decode,
    .encode = vae_kl_encode,
};
