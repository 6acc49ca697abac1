/* What the rest of the program knows of the VAE of LTX-Video. */
#include "model/vae_ltxv/presets.h"
#include "model/vae_ltxv/vae_ltxv.h"

const struct vae_family vae_ltxv = {
    .arch = { VAE_ARCH("ltxv-vae", "the VAE of LTX-Video"), .detect = vae_ltxv_at,
              .presets = vae_ltxv_presets },
    .what = "a VAE of LTX-Video's kind",
    .name = "LTX-Video",
    .at = vae_ltxv_at,
    .config = vae_ltxv_config,
    .names = vae_ltxv_names,
    .noise = vae_ltxv_noise,
    .decode = vae_ltxv_decode,
    .encode = vae_ltxv_encode,
};
