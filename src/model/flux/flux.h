/* flux: the transformer of Flux.1 dev and schnell, of the tools (Fill, Canny, Depth) and of models
 * built like them (spec: flux.md).
 *
 * Config     is read from names and shapes, never from a list of known models, so tiny ones work.
 *            Files in diffusers' names are translated (names.c); they keep q, k, v and the mlp of
 *            single blocks apart and swap (scale, shift) of the last modulation, which the forward
 *            knows. Relatives that are not Flux.1 (Flux2, Chroma, Ovis, Hunyuan) are refused by
 *            name.
 * Whole      A block exists if any tensor of it does. The layer that misses a tensor says so, in
 *            the dry run of diffusion_open().
 * Sequence   Text first, then the picture's patches, then those of pictures to look at (Kontext),
 *            in one buffer from the first layer to the last; both streams of a double block work on
 *            slices of it.
 * Beside     The tools have more channels in than out: a picture's latent behind the one that is
 *            sampled, and for Fill the mask of its pixels. Callers give both (diffusion_in.concat).
 * Host       Patches, positions and small vectors are made on the host, in buffers that outlive a
 *            pass: positions are the same for every step of a picture.
 * Trust      A file's counts meet the limits below before they size anything; shapes the config is
 *            not read from meet their layer's checks (op/ops.h).
 * Threads    flux_forward(): executor; the rest any.
 * Numbers    Golden: tests/golden/model/test_flux.c
 * Files      family.c the descriptor, config.c detection, names.c, host.c patches and positions,
 *            forward.c, control.c control nets, lora.c what adapters call its tensors,
 *            presets.c */
#pragma once

#include "format/weights.h"
#include "model/patch.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define FLUX_DEPTH_MAX 256       /* blocks of a kind */
#define FLUX_REFS_MAX 64         /* pictures to look at */
#define FLUX_WIDTH_MAX (1 << 16) /* of anything a row is made of */
#define FLUX_AXES 3              /* of positions: which picture, row, column */
#define FLUX_PATCH 2             /* latent pixels a side */
#define FLUX_TIME_WIDTH 256      /* of the embedding of one number */

struct flux_net {                       /* what a file's transformer looks like */
    uint64_t in_channels, out_channels; /* of a latent */
    uint64_t hidden, mlp;               /* D; width inside of feed-forwards */
    uint64_t context_dim, vec_dim;
    uint32_t heads, head_dim;
    uint32_t axis[FLUX_AXES]; /* of head_dim: how much each axis turns; even, adds up to it */
    uint32_t depth, depth_single;
    bool guidance;  /* has the embedding of it (dev) */
    bool diffusers; /* the file has diffusers' names */
};
/* Does something like it stand behind root? */
bool flux_at(const struct weights *w, const char *root);
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: not Flux.1, or one we cannot run:
 * says why. */
berth_status flux_detect(const struct weights *w, const char *root, struct flux_net *out,
                         berth_err *err);
/* A control net of it, which is such a transformer without a way out (control.c): its builds. */
bool flux_instantx_at(const struct weights *w, const char *root);
bool flux_xlabs_at(const struct weights *w, const char *root);
berth_status flux_detect_control(const struct weights *w, const char *root, struct flux_net *out,
                                 berth_err *err);
/* For net_args: `names`, with the struct flux_net as names_user, which then outlives the net. */
net_names_fn *flux_names(const struct flux_net *f);

/* What diffusers calls the layers, in files and in adapters. Lists end with a layer of NULL. */
struct flux_name {
    const char *theirs, *layer; /* layer: as the forward asks for it */
    const char *in;        /* BFL's stacked layer that it is rows of; NULL: it is whole there */
    uint8_t row, rows, of; /* of `in`, in multiples of the width; `of`: all it has */
    bool swap;             /* its halves are exchanged */
};
extern const struct flux_name flux_once[], flux_double[], flux_single[];
/* Flux.2's own, which adapters use for both. */
extern const struct flux_name flux_later_double[], flux_later_single[];
struct lora_table;
/* Adapters' names of the scales of norms: ComfyUI holds them as weights. */
void flux_lora_norms(struct lora_table *t, const struct weights *w, const char *prefix);

/* For its descriptor. */
void flux_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

/* Host memory that passes use; zeroed is empty. Owner: who runs the net. */
struct flux_host {
    float *table;  /* [tokens + picture + refs, head_dim / 2, 2]: cos and sin of every position */
    size_t tokens; /* that it was made for; 0: none */
    uint64_t h, w; /* h 0: for pictures to look at, too */
    struct patch_positions to;
    float *patches; /* [n, picture + refs, 4 * channels] */
    float *result;  /* [n, picture, 4 * channels]. A pass that goes wrong on the way back is run
                       again, so they are two */
    size_t patches_cap, result_cap;
    float *number; /* [2, n]: times and guidances as they are embedded */
    size_t number_cap;
    float *hint; /* what a control net looks at: patches, or pixels */
    size_t hint_cap;
};
void flux_host_release(struct flux_host *host);

/* control_kind.turn of its control nets; host: of the net. pixels: it looks at those, not at a
 * latent. */
struct control_turn;
berth_status flux_turn(struct net *net, const struct flux_net *f, struct control_turn *t,
                       bool pixels, struct flux_host *host, uint64_t *peak, berth_err *err);

/* family.forward of it; host: for the latents it computes. */
berth_status flux_forward(struct net *net, const struct flux_net *f, const struct family_batch *b,
                          struct flux_host *host, uint64_t *peak, berth_err *err);

/* ---- host.c, for forward.c ---- */

/* Rows or columns of patches. */
static inline uint64_t flux_side(uint64_t n)
{
    return (n + FLUX_PATCH - 1) / FLUX_PATCH;
}
#define FLUX_TIMES 1000.0f /* noise levels and guidances, before they are embedded */
/* Patches of the pictures that each item looks at, all together. */
uint64_t flux_refs(const struct family_batch *b);
/* What is embedded for a guidance. It reaches the reference rounded to the type it computes in, and
 * is multiplied in that: 3.5 becomes 3504 in BF16. Noise levels are not rounded. */
float flux_guidance(float guidance, enum dtype act);
/* Table, patches and room for numbers of such a pass. */
berth_status flux_host_fill(struct flux_host *host, const struct flux_net *f,
                            const struct family_batch *b, berth_err *err);
/* Patches [n, picture, 4 * channels] of latents s: [n, channels, h, w]. A token's features are
 * ordered channel, row, column of its pixels. Odd sizes wrap around to the first row and column. */
void flux_patchify(const float *x, const struct shape *s, float *out);
/* And back; what was wrapped around is left out. */
void flux_unpatchify(const float *patches, const struct shape *s, float *out);
