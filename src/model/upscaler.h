/* upscaler: networks that make pictures larger, or mend them at their size.
 *
 * Shapes     As networks have pictures, [1, 3, h, w], 0..1; as nodes have them, [n, h, w, 3].
 * Config     from names and shapes.
 * Batches    go picture by picture: memory is that of one.
 * Tiles      A picture larger than UPSCALE_TILE goes in tiles that overlap by UPSCALE_OVERLAP and
 *            are blended as ComfyUI does it. Where a pass has no room (net.h, Ladder) all begins
 *            again with tiles of half the side, down to UPSCALE_TILE_MIN; log and job say so.
 * Threads    Executor; upscaler_detect() any.
 * Adding     a folder src/model/upscale_<x>/ that exports `const struct upscaler_family
 *            upscaler_<x>`, and the line UPSCALER(<x>) in upscalers.def.
 * Files      upscaler.c doors, upscaler_tile.c pictures in tiles; a folder for each family */
#pragma once

#include "format/weights.h"
#include "model/arch.h"
#include "net/net.h"

#include <stddef.h>

#define UPSCALE_TILE 512
#define UPSCALE_OVERLAP 32
#define UPSCALE_TILE_MIN 128
#define UPSCALE_COLOURS 3
#define UPSCALER_OWN_MAX 64 /* bytes of a family's config */

struct upscaler_net { /* what a file's upscaler looks like */
    const struct upscaler_family *family;
    uint32_t scale;    /* sides of the result over those of the picture; 1: as large */
    uint32_t multiple; /* sides of what a pass is given are multiples of this */
    uint32_t least;    /* and at least this long */
    _Alignas(max_align_t) unsigned char own[UPSCALER_OWN_MAX]; /* the family's config */
};

struct upscaler_pass { /* of a picture or a tile of it; host memory, borrowed */
    const struct upscaler_net *up;
    struct shape shape; /* of in, [1, 3, h, w]; out is `scale` times as wide and as high */
    const float *in;
    float *out;
};

struct upscaler_family {
    struct arch arch; /* UPSCALER_ARCH(), .detect, .presets */
    const char *what; /* "an ESRGAN upscale model": for people */
    const char *name; /* "ESRGAN": of the family, likewise */
    /* Fills in all but family; multiple and least are 1 unless it says so. Errors say why it
     * cannot be computed. */
    berth_status (*config)(const struct weights *w, const char *root, struct upscaler_net *out,
                           berth_err *err);
    net_names_fn *(*names)(const struct upscaler_net *u); /* called with u; NULL: the file's */
    net_forward_fn *forward;                              /* user: a struct upscaler_pass */
};
#define UPSCALER(x) extern const struct upscaler_family upscaler_##x;
#include "model/upscalers.def"
#undef UPSCALER
#define UPSCALER_ROLE "upscale"
#define UPSCALER_ARCH(name_, about_)                                                               \
    .base = { .name = name_, .about = about_, .trace = arch_trace, .aliases = arch_aliases },      \
    .role = UPSCALER_ROLE, .trace = upscaler_trace
/* arch.trace of every upscaler. */
berth_status upscaler_trace(const struct arch *arch, const struct weights *w, const char *root,
                            struct block_trace *out, berth_err *err);

/* The upscaler of a file behind `part` (NULL: all), and where it stands. BERTH_ENOTFOUND: there is
 * none we know. BERTH_EUNSUPPORTED: one of a build that cannot be computed: says why. out->family
 * is set then. */
berth_status upscaler_find(const struct weights *w, const char *part, char root[ARCH_ROOT_MAX],
                           struct upscaler_net *out, berth_err *err);
/* Finds and opens it. a: all but root and names, which are filled in here. *up is what *out reads
 * names with: it stays where it is until net_close(). */
berth_status upscaler_open(const struct net_args *a, const char *part, struct upscaler_net *up,
                           struct net **out, berth_err *err);

/* Progress over the tiles of all pictures; may be NULL. BERTH_ECANCELED ends it. */
typedef berth_status upscaler_step_fn(void *user, size_t done, size_t total, berth_err *err);
struct upscaler_job {
    struct net *net;
    const struct upscaler_net *up;
    const struct log *log; /* may be NULL */
    upscaler_step_fn *step;
    void *user;
    size_t tile;    /* out: the side of tiles at last; UPSCALE_TILE unless room was short */
    size_t tiles;   /* out: so many of each picture */
    uint64_t rungs; /* out: how often tiles were halved */
};
/* s: [n, h, w, 3] of image; out: [n, h * scale, w * scale, 3], 0..1. BERTH_EINVAL: no such
 * picture. BERTH_ENODEVMEM: no room for the smallest tile. */
berth_status upscaler_image(struct upscaler_job *j, const float *image, const struct shape *s,
                            float *out, berth_err *err);
/* Peak of the largest pass over such pictures, on the compute device, with UPSCALE_TILE. */
berth_status upscaler_predict(struct upscaler_job *j, const struct shape *s, uint64_t *peak,
                              berth_err *err);
/* How long a side of n is made for a pass: reflected pixels follow it. */
size_t upscaler_side(const struct upscaler_net *u, size_t n);

/* ---- for families ---- */

/* A dimension of a convolution's weight that must be there, 1..4096. */
berth_status upscaler_dim(const struct weights_entry *e, const char *name, int axis, uint32_t *out,
                          berth_err *err);
/* Pixels of s x s squares as channels, and back; both take x. [1, C, h, w] -> [1, C * s * s, h / s,
 * w / s]. */
struct act upscaler_unshuffle(struct net_run *r, struct act x, uint32_t s);
struct act upscaler_shuffle(struct net_run *r, struct act x, uint32_t s);
