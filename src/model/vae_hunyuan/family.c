/* What the rest of the program knows of the VAE of HunyuanVideo. */
#include "model/vae_hunyuan/presets.h"
#include "model/vae_hunyuan/vae_hunyuan.h"

static net_names_fn *names(const struct vae_net *v)
{
    (void)v;
    return NULL;
}

const struct vae_family vae_hunyuan = {
    .arch = { VAE_ARCH("hunyuan-video-vae", "the VAE of HunyuanVideo"), .detect = vae_hunyuan_at,
              .presets = vae_hunyuan_presets },
    .what = "a VAE of HunyuanVideo's kind",
    .name = "HunyuanVideo",
    .at = vae_hunyuan_at,
    .config = vae_hunyuan_config,
    .names = names,
    .decode = vae_hunyuan_decode,
    .encode = vae_hunyuan_encode,
};
