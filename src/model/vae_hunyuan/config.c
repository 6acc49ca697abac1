/* What a file's VAE looks like, from the names and shapes of its tensors (hunyuan-video.md 8). */
#include "model/vae_hunyuan/vae_hunyuan.h"

#include "model/config_look.h"

#define TIME_HALVES 2 /* of frames */

bool vae_hunyuan_at(const struct weights *w, const char *root)
{
    return arch_find(w, root, "decoder.mid.block_1.conv1.conv.weight") ||
           arch_find(w, root, "encoder.mid.block_1.conv1.conv.weight");
}

static berth_status count_levels(const struct config_look *k, const char *list, uint32_t *out)
{
    *out = arch_layers(k->w, k->root, list);
    if (*out > TIME_HALVES && *out <= VAE_HUNYUAN_LEVELS_MAX)
        return BERTH_OK;
    return err_set(k->err, BERTH_EUNSUPPORTED, "'%s' has %u levels", list, *out);
}

berth_status vae_hunyuan_config(const struct weights *w, const char *root, struct vae_net *out,
                                berth_err *err)
{
    const struct config_look k = { w, root, "a VAE of HunyuanVideo's kind",
                                   VAE_HUNYUAN_CHANNELS_MAX, err };
    struct vae_hunyuan *own = vae_hunyuan_of(out);
    uint64_t moments = 0, latents = 0, colours[2] = { 3, 3 };
    uint32_t levels[2] = { 0 };
    out->encoder = arch_find(w, root, "encoder.mid.block_1.conv1.conv.weight") != NULL;
    out->decoder = arch_find(w, root, "decoder.mid.block_1.conv1.conv.weight") != NULL;
    if ((out->encoder && (count_levels(&k, "encoder.down", &levels[0]) ||
                          config_dim(&k, "encoder.conv_in.conv.weight", 5, 1, &colours[0]) ||
                          config_dim(&k, "encoder.conv_out.conv.weight", 5, 0, &moments))) ||
        (out->decoder && (count_levels(&k, "decoder.up", &levels[1]) ||
                          config_dim(&k, "decoder.conv_out.conv.weight", 5, 0, &colours[1]) ||
                          config_dim(&k, "decoder.conv_in.conv.weight", 5, 1, &latents))))
        return err->code;
    latents = out->decoder ? latents : moments / 2;
    own->levels = levels[out->decoder];
    own->timed = TIME_HALVES;
    own->quant =
        arch_find(w, root, "quant_conv.weight") || arch_find(w, root, "post_quant_conv.weight");
    if (colours[0] != 3 || colours[1] != 3 ||
        (out->encoder && out->decoder && (levels[0] != levels[1] || moments != 2 * latents)))
        return err_set(err, BERTH_EUNSUPPORTED,
                       "a VAE of HunyuanVideo's kind whose halves differ, or not of colours");
    if (latents == 32)
        return err_set(err, BERTH_EUNSUPPORTED,
                       "the VAE is HunyuanVideo 1.5's, which cannot be computed yet");
    out->latent = (struct latent_format) { .name = "the HunyuanVideo kind",
                                           .channels = (uint32_t)latents,
                                           .rank = 3,
                                           .ratio = UINT32_C(1) << (own->levels - 1),
                                           .time_ratio = UINT32_C(1) << TIME_HALVES };
    return BERTH_OK;
}
