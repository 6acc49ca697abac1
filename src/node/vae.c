/* vae.c: between pictures and latents, and pictures made larger by a model. Declared in full; computed
 * when the networks are there. */
#include "node/node_impl.h"

NOT_YET(VAEDecode, .display = "VAE Decode", .category = "latent", .module = "nodes",
        INS(SOCKET("samples", "LATENT"), SOCKET("vae", "VAE")), OUTS({ .type = "IMAGE" }));

NOT_YET(VAEEncode, .display = "VAE Encode", .category = "latent", .module = "nodes",
        INS(SOCKET("pixels", "IMAGE"), SOCKET("vae", "VAE")), OUTS({ .type = "LATENT" }));

NOT_YET(VAEDecodeTiled, .display = "VAE Decode (Tiled)", .category = "_for_testing",
        .module = "nodes",
        INS(SOCKET("samples", "LATENT"), SOCKET("vae", "VAE"),
            INT_IN("tile_size", 512, 64, 4096, 32), INT_IN("overlap", 64, 0, 4096, 32),
            INT_IN("temporal_size", 64, 8, 4096, 4), INT_IN("temporal_overlap", 8, 4, 4096, 4)),
        OUTS({ .type = "IMAGE" }));

NOT_YET(VAEEncodeTiled, .display = "VAE Encode (Tiled)", .category = "_for_testing",
        .module = "nodes",
        INS(SOCKET("pixels", "IMAGE"), SOCKET("vae", "VAE"), INT_IN("tile_size", 512, 64, 4096, 64),
            INT_IN("overlap", 64, 0, 4096, 32), INT_IN("temporal_size", 64, 8, 4096, 4),
            INT_IN("temporal_overlap", 8, 4, 4096, 4)),
        OUTS({ .type = "LATENT" }));

NOT_YET(VAEEncodeForInpaint, .display = "VAE Encode (for Inpainting)", .category = "latent/inpaint",
        .module = "nodes",
        INS(SOCKET("pixels", "IMAGE"), SOCKET("vae", "VAE"), SOCKET("mask", "MASK"),
            INT_IN("grow_mask_by", 6, 0, 64, 1)),
        OUTS({ .type = "LATENT" }));

NOT_YET(ImageUpscaleWithModel, .display = "Upscale Image (using Model)",
        .category = "image/upscaling", .module = MOD("upscale_model"), .flags = NODE_V3,
        INS(SOCKET("upscale_model", "UPSCALE_MODEL"), SOCKET("image", "IMAGE")),
        OUTS({ .type = "IMAGE" }));
