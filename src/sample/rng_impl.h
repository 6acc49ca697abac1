/* rng_impl: the two versions of torch_randn()'s kernel, for the test that holds them together. */
#ifndef SAMPLE_RNG_IMPL_H
#define SAMPLE_RNG_IMPL_H

#include <stddef.h>

/* `count` blocks of 16 uniform numbers in place into normal ones. */
void randn_blocks_plain(float *d, size_t count); /* any machine */
void randn_blocks(float *d, size_t count);       /* the best this processor has */

#endif
