/* conv2d_args: what conv2d.c tells the kernels of conv2d.cu. C and CUDA. */
#ifndef OP_CUDA_CONV2D_ARGS_H
#define OP_CUDA_CONV2D_ARGS_H

#include <stdint.h>

enum {
    CONV_THREADS = 256,
    CONV_TILE = 64,
    CONV_RUN = 1024 /* elements of a block of conv2d_finish */
};

/* Pixels of planes to pixels of channels and back: the planes are [n, channels, plane], of which
 * pixels [from, from + pixels) count; the pixels are [n, pixels, padded], aligned to 4 bytes. */
struct conv_turn {
    const void *src;
    void *dst;
    const void *bias, *add; /* back only; NULL: none. add lies as dst does, and may be dst */
    int64_t plane, from, pixels;
    uint32_t channels, padded; /* padded is even */
    uint32_t bias_type;        /* 0 F32, 1 F16, 2 BF16 */
    uint32_t pairs;            /* planes can be read and written two pixels at a time */
};

/* dst[i] = src[i] in the type of dst, zeros from n on; src NULL: zeros. */
struct conv_bias {
    const void *src;
    void *dst;
    uint32_t n, padded, type; /* as bias_type */
};

/* dst[oc, rs, ic] = src[oc, ic, rs] * scale, zeros where oc or ic is beyond those of src. */
struct conv_filter {
    const void *src;
    void *dst;
    int64_t n; /* of dst */
    uint32_t out, in, in_padded, window;
    float scale;
};

/* dst = src + bias of the channel + add, all [n, channels, plane]. */
struct conv_finish {
    const void *src, *bias, *add;
    void *dst;
    int64_t plane;
    uint32_t channels, runs; /* of CONV_RUN elements in a plane */
    uint32_t bias_type;
};

#endif
