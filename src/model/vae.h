/* vae: AutoencoderKL of SD1, SDXL, SD3, Flux (spec: vae.md): pictures to latents and back.
 *
 * Config     from names and shapes; diffusers' names are translated (vae_names.c). A file may have
 *            the encoder or the decoder alone.
 * Whole      Any tensor of a half makes it one; what is missing of it is said by its first pass, so
 *            a file with one whole half serves. Quant convolutions come as a pair, or for the
 *            halves that are there.
 * Batches    go item by item: the pass of one picture fills every processor, and memory is that of
 *            one.
 * Tiling     overlapping pieces blended as ComfyUI does it: three passes with different tiles,
 *            averaged. Automatic: when a whole pass has no room (net.h, Ladder) the tiles of vae.md
 *            7 are used, then ever smaller ones, down to VAE_TILE_MIN; log and job say so.
 * Pictures   Values between nodes: pictures [n, h, w, 3] 0..1, latents [n, c, h/8, w/8] unscaled.
 * Threads    Executor; vae_detect() any.
 * Files      vae_config.c detection (through canonical.h), vae.c forward, vae_tile.c tiling,
 *            vae_image.c pictures <-> latents, vae_names.c */
#ifndef MODEL_VAE_H
#define MODEL_VAE_H

#include "format/weights.h"
#include "net/net.h"

#define VAE_LEVELS_MAX 8
#define VAE_BLOCKS_MAX 16
#define VAE_CHANNELS_MAX (1 << 16)
#define VAE_TILE_MIN 8 /* latent units: smaller tiles are all seam */
struct vae_net {
    uint64_t z_channels; /* of a latent as nodes see it */
    uint32_t levels;
    uint32_t enc_blocks, dec_blocks; /* res blocks per level */
    bool quant, post_quant;
    bool encoder, decoder; /* what is in the file */
    uint32_t ratio;        /* pixels per latent pixel: 2^(levels - 1) */
    bool diffusers;        /* the file has diffusers' names */
    bool old_attention;    /* those of its first years: "query" for "to_q" */
    bool nested_quant;     /* "encoder.quant_conv", "decoder.post_quant_conv" */
};
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: no such VAE, or one we cannot run:
 * says why. */
berth_status vae_detect(const struct weights *w, const char *root, struct vae_net *out,
                        berth_err *err);
/* For net_args: `names`, with the struct vae_net as names_user, which then outlives the net. NULL:
 * the file has our names. */
net_names_fn *vae_names(const struct vae_net *v);
/* Finds the VAE in the model's file, behind `part` (as it was opened; NULL: all), and opens it. a:
 * all but root and names, which are filled in here. *vae is what *out reads names with: it
 * stays where it is until net_close(). */
berth_status vae_open(const struct net_args *a, const char *part, struct vae_net *vae,
                      struct net **out, berth_err *err);

/* Progress over tiles, and batch items; may be NULL. BERTH_ECANCELED ends it. */
typedef berth_status vae_step_fn(void *user, size_t done, size_t total, berth_err *err);
struct vae_job {
    struct net *net;
    const struct vae_net *vae;
    const struct log *log; /* may be NULL */
    vae_step_fn *step;
    void *user;
    /* Tiles in latent units (decode) or pixels (encode); 0: whole, tiles only when there is no
     * room */
    size_t tile_x, tile_y, overlap;
    bool tiled;   /* out: it was, though nobody asked. Later items begin with tiles then */
    size_t tiles; /* out: so many for the last item, all three passes; of those nobody asked for */
    uint64_t rungs; /* out: how often it turned to tiles, or to smaller ones, for want of memory */
};
/* Raw modules: z [n, z, h, w] -> [n, 3, h*r, w*r] nominally -1..1; and back (the mean), h and w
 * multiples of r. BERTH_EUNSUPPORTED: the file has no such half. BERTH_EINVAL: tiles that do not
 * overlap properly. */
berth_status vae_decode(struct vae_job *j, const float *z, size_t n, size_t h, size_t w, float *out,
                        berth_err *err);
berth_status vae_encode(struct vae_job *j, const float *x, size_t n, size_t h, size_t w, float *out,
                        berth_err *err);
/* As nodes see them: latent -> [n, h*r, w*r, 3] 0..1; pictures (any channels >= 3, the first three
 * count; sizes cut to multiples of r, centred) -> latent. *_size(): of the results. */
berth_status vae_decode_image(struct vae_job *j, const float *z, size_t n, size_t h, size_t w,
                              float *out, berth_err *err);
void vae_encoded_size(const struct vae_net *v, size_t h, size_t w, size_t *lh, size_t *lw);
berth_status vae_encode_image(struct vae_job *j, const float *image, size_t n, size_t h, size_t w,
                              size_t c, float *out, berth_err *err);
/* Peak of a pass, before it runs: of one item, since they go one by one, or of the largest tile the
 * job asks for. It is the compute device's memory; pictures, latents, tiles and their sums are host
 * buffers beside it: for each of the n items in and out, and with tiles 4 * (3 or z) bytes for
 * every pixel or latent pixel once more. */
berth_status vae_predict_decode(struct vae_job *j, size_t h, size_t w, uint64_t *peak,
                                berth_err *err);
berth_status vae_predict_encode(struct vae_job *j, size_t h, size_t w, uint64_t *peak,
                                berth_err *err);

#endif
