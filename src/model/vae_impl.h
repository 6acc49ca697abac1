/* vae_impl: for the files of vae alone. */
#ifndef MODEL_VAE_IMPL_H
#define MODEL_VAE_IMPL_H

#include "model/vae.h"

/* One direction of the VAE, as the tiling sees it. */
struct vae_way {
    const char *name; /* "decode", "encode": for people */
    net_forward_fn *forward;
    size_t in_planes, out_planes; /* channels, times frames */
    bool up;                      /* results are `ratio` times as large; else as small */
    size_t tile, overlap;         /* when there is no room and nobody said */
    size_t tile_min;
};
struct vae_way vae_way(const struct vae_job *j, bool decode);
/* Latent frames of an item. */
static inline size_t vae_frames(const struct vae_job *j)
{
    return j->frames ? j->frames : 1;
}

/* Of the job's items so far, for its step callback. */
struct vae_progress {
    size_t item, items;
};
/* One item, [c, h, w], whole or in tiles as the job says, or as there is room. */
berth_status vae_item(struct vae_job *j, const struct vae_way *way, struct vae_progress at,
                      const float *in, size_t h, size_t w, float *out, berth_err *err);

#endif
