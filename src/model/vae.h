/* vae: AutoencoderKL of SD1, SDXL, SD3, Flux (spec: vae.md): pictures to latents and back.
 *
 * Config     from names and shapes; diffusers' names are translated (vae_names.c).
 * Tiling     vae_tiled(): overlapping pieces blended as ComfyUI does it. Automatic: when a whole pass
 *            has no room (net.h, Ladder) the tiles of vae.md 7 are used, then ever smaller ones; log and result say so.
 * Pictures   Values between nodes: pictures [n, h, w, 3] 0..1, latents [n, c, h/8, w/8] unscaled.
 * Files      vae_config.c, vae.c forward, vae_tile.c tiling, vae_image.c pictures <-> latents, vae_names.c */
#ifndef MODEL_VAE_H
#define MODEL_VAE_H

#include "format/weights.h"
#include "net/net.h"

#define VAE_LEVELS_MAX 8
struct vae_net {
    uint64_t z_channels; /* of a latent as nodes see it */
    uint64_t embed;      /* after post_quant_conv; == z_channels mostly */
    uint32_t levels;
    uint32_t enc_blocks, dec_blocks; /* res blocks per level */
    bool quant, post_quant;
    bool encoder, decoder; /* what is in the file */
    uint32_t ratio;        /* pixels per latent pixel: 2^(levels - 1) */
};
berth_status vae_detect(const struct weights *w, const char *root, struct vae_net *out,
                        berth_err *err);
net_names_fn *vae_names(const struct weights *w, const char *root); /* NULL: names are ours */

/* Progress over tiles, and batch items; may be NULL. BERTH_ECANCELED ends it. */
typedef berth_status vae_step_fn(void *user, size_t done, size_t total, berth_err *err);
struct vae_job {
    struct net *net;
    const struct vae_net *vae;
    vae_step_fn *step;
    void *user;
    /* Tiles in latent units (decode) or pixels (encode); 0: whole, tiles only when there is no room */
    size_t tile_x, tile_y, overlap;
    bool tiled; /* out: it was, though nobody asked */
};
/* Raw modules: z [n, z, h, w] -> [n, 3, h*r, w*r] nominally -1..1; and back (the mean). One item after another
 * when a batch has no room. */
berth_status vae_decode(struct vae_job *j, const float *z, size_t n, size_t h, size_t w, float *out,
                        berth_err *err);
berth_status vae_encode(struct vae_job *j, const float *x, size_t n, size_t h, size_t w, float *out,
                        berth_err *err);
/* As nodes see them: latent -> [n, h*r, w*r, 3] 0..1; pictures (any channels >= 3, the first three count; sizes cut to
 * multiples of r, centred) -> latent. *_size(): of the results. */
berth_status vae_decode_image(struct vae_job *j, const float *z, size_t n, size_t h, size_t w,
                              float *out, berth_err *err);
void vae_encoded_size(const struct vae_net *v, size_t h, size_t w, size_t *lh, size_t *lw);
berth_status vae_encode_image(struct vae_job *j, const float *image, size_t n, size_t h, size_t w,
                              size_t c, float *out, berth_err *err);
/* Peak of a whole decode of one item, before it runs. */
berth_status vae_predict_decode(struct vae_job *j, size_t n, size_t h, size_t w, uint64_t *peak,
                                berth_err *err);

#endif
