/* latent_format: what the latents of a network or a VAE are: their dimensions, how networks want
 * them scaled, and what they look like. Nodes and samplers ask it and know no sizes of their own.
 *
 * Shapes     [n, channels, h, w] of pictures (rank 2), [n, channels, t, h, w] of video (rank 3).
 * Several    A network may sample latents of several formats as one: a video and its sound. For
 *            that, those of an item are packed one after the other: [n, all values].
 * Threads    any */
#pragma once

#include "tensor/shape.h"

#define LATENT_MORE 3 /* latents that are sampled with the first one, at most */

struct latent_format {
    const char *name; /* "SD1", "SDXL", "SD3", "Flux" */
    uint32_t channels;
    int rank;            /* dimensions behind the channels: 2 or 3 */
    uint32_t ratio;      /* pixels per latent pixel, along h and along w */
    uint32_t time_ratio; /* rank 3: frames per latent frame; the first one stands for one alone */
    double scale, shift; /* into the model: (z - shift) * scale */
    const float *mean, *std; /* per channel instead (EDM SDXL, Wan); NULL: none */
    /* Each latent pixel holds so many, side by side along h and along w; 0 means 1. Channels are
     * ordered channel, row, column of them, and channels / packed^2 of them have colours. */
    uint32_t packed;
    const float (*rgb)[3]; /* [channels] for previews; NULL: none */
    const float *rgb_bias; /* [3]; NULL: 0 */
};
extern const struct latent_format latent_sd1, latent_sdxl, latent_playground, latent_sd3,
    latent_flux, latent_flux2, latent_wan21, latent_wan22, latent_ltxv, latent_hunyuan_video,
    latent_mochi;

/* Is s a batch of such latents, none of its dimensions 0? */
bool latent_is(const struct latent_format *f, const struct shape *s);
/* Frames that t latent ones stand for; rank 2: one picture. */
size_t latent_frames(const struct latent_format *f, size_t t);
/* In place; s: of z, whatever its channels. */
void latent_in(const struct latent_format *f, float *z, const struct shape *s);
void latent_out(const struct latent_format *f, float *z, const struct shape *s);
/* Sides of a latent's preview, for its own; 1 or more to each. */
static inline uint64_t latent_preview_side(const struct latent_format *f, uint64_t side)
{
    return side * (f->packed ? f->packed : 1);
}
/* A picture of the first latent, of its first frame: rgb[h * w * 3] bytes, of preview sides. False:
 * the format has no factors. */
bool latent_preview(const struct latent_format *f, const float *z, const struct shape *s,
                    uint8_t *rgb);
