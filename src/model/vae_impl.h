/* vae_impl: for the files of vae alone. */
#pragma once

#include "model/vae.h"

/* One direction of the VAE, as the tiling sees it. */
struct vae_way {
    const char *name; /* "decode", "encode": for people */
    net_forward_fn *forward;
    bool up;              /* results are `ratio` times as large; else as small */
    size_t tile, overlap; /* where there is no room, unless asked for others */
    size_t tile_min;
};
/* How many covers of different tiles are averaged. */
#define VAE_FORMS_MAX 3
static inline size_t vae_forms(const struct vae_net *v)
{
    return v->latent.rank == 3 ? 1 : VAE_FORMS_MAX;
}
struct vae_way vae_way(const struct vae_job *j, bool decode);

struct vae_item { /* one of a job's batch */
    const struct vae_way *way;
    struct shape in, out; /* [1, c, ..., h, w] */
    size_t i, items;      /* for the job's step callback */
};
/* Computes it, whole or in tiles as the job says, or as there is room. */
berth_status vae_item(struct vae_job *j, const struct vae_item *item, const float *in, float *out,
                      berth_err *err);
