/* unet: the denoising network of SD1.x, SD2.x, SDXL, its refiner and relatives (spec: unet.md).
 *
 * Config     is read from names and shapes, never from a list of known models: tiny ones work.
 *            Files in diffusers' names are translated (names.c).
 * Whole      A block exists if any tensor of it does. The layer that misses a tensor says so, in
 *            the dry run of diffusion_open(). Without any tensor of a middle there is none, as in
 *            small relatives.
 * Trust      A file's counts meet the limits below before they size anything, and shapes the config
 *            is read from are checked; all others meet their layer's checks when it runs
 *            (op/ops.h).
 * Heads      The file does not say. 8 of them if there is no extra vector and projections are
 *            convolutions (SD1); else 64 wide (SD2, SDXL). A caller that knows better changes
 *            `heads` after unet_detect().
 * Threads    unet_forward(): executor; the rest any.
 * Numbers    F32 on the cpu. Golden: tests/golden/model/test_unet.c
 * Files      family.c the descriptor, config.c detection (through canonical.h), names.c, forward.c,
 *            control.c ControlNets, lora.c what adapters call its tensors, keys.c and presets.c
 *            synthetic models */
#pragma once

#include "format/weights.h"
#include "net/net.h"

struct arch_net;
struct family_batch;
struct lora_table;

#define UNET_LEVELS_MAX 8
#define UNET_BLOCKS_MAX 64
#define UNET_DEPTH_MAX 64           /* transformer blocks in a row */
#define UNET_CHANNELS_MAX (1 << 16) /* and width of the context */

struct unet_net { /* what a file's UNet looks like */
    uint64_t in_channels, out_channels, model_channels, context_dim, adm_channels; /* adm 0: none */
    uint32_t levels, res[UNET_LEVELS_MAX]; /* res blocks of a level on the way down */
    uint32_t mult[UNET_LEVELS_MAX];
    uint32_t input_blocks, output_blocks;
    uint32_t depth_in[UNET_BLOCKS_MAX],
        depth_out[UNET_BLOCKS_MAX]; /* transformer blocks, by block index */
    uint32_t depth_middle;
    bool middle, middle_attention;
    bool linear_proj;
    uint32_t heads; /* > 0: so many; else channels / head_dim */
    uint32_t head_dim;
    bool diffusers; /* the file has diffusers' names */
};
/* root: in front of names, as net_args.root. BERTH_EUNSUPPORTED: not a UNet, or one we cannot run:
 * says why. */
berth_status unet_detect(const struct weights *w, const char *root, struct unet_net *out,
                         berth_err *err);
/* The same of a network that ends with its middle: a ControlNet. */
berth_status unet_detect_half(const struct weights *w, const char *root, struct unet_net *out,
                              berth_err *err);
/* For net_args: `names`, with the struct unet_net as names_user, which then outlives the net. NULL:
 * the file has our names. */
net_names_fn *unet_names(const struct unet_net *u);
/* What diffusers calls a layer ("input_blocks.1.0.in_layers.2" -> "down_blocks.0.resnets.0.conv1"),
 * res being the res blocks of a level. False: it has no name there, or one that does not fit. */
bool unet_diffusers_name(const char *path, uint32_t res, char *out, size_t cap);

/* For its descriptor. */
void unet_lora(struct lora_table *t, const struct weights *w, const struct arch_net *net);

/* A name in diffusers' files; net_names_fn with a struct unet_net that has those names. */
bool unet_diffusers_tensor(const void *u, const char *canonical, struct net_source *out);

/* family.forward of it. */
berth_status unet_forward(struct net *net, const struct unet_net *u, const struct family_batch *b,
                          uint64_t *peak, berth_err *err);
