/* lists.c: choices and outputs that more than one family declares. */
#include "node/node_impl.h"

const char *const list_samplers[] = {
#define SAMPLER(n, ...) #n,
#define SAMPLER_LOOP SAMPLER
#include "sample/samplers.def"
#undef SAMPLER
#undef SAMPLER_LOOP
    NULL,
};
const char *const list_schedulers[] = {
#define SCHEDULER(n) #n,
#include "sample/schedulers.def"
#undef SCHEDULER
    NULL,
};

const char *const list_resize_image[] = {
    "nearest-exact", "bilinear", "area", "bicubic", "lanczos", NULL,
};
const char *const list_resize_latent[] = {
    "nearest-exact", "bilinear", "area", "bicubic", "bislerp", NULL,
};
const char *const list_crop[] = { "disabled", "center", NULL };

const struct node_output out_image[1] = { { .type = "IMAGE" } };
const struct node_output out_mask[1] = { { .type = "MASK" } };
const struct node_output out_latent[1] = { { .type = "LATENT" } };
const struct node_output out_image_mask[2] = { { .type = "IMAGE" }, { .type = "MASK" } };

const char *const list_a_to_z[] = { "a", "b", "c", "d", "e", "f", "g", "h", "i",
                                    "j", "k", "l", "m", "n", "o", "p", "q", "r",
                                    "s", "t", "u", "v", "w", "x", "y", "z", NULL };
