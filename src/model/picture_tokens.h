/* picture_tokens: latents as a transformer takes them: a token for every 2 x 2 pixels, and where it
 * stands as angles; and host memory for both, which outlives a pass.
 *
 * Latents are [n, channels, frames, h, w]. Odd sides wrap around to the first row and column. A
 * token's features are ordered channel, row, column of its pixels; tokens by frame, row, column. */
#pragma once

#include "tensor/shape.h"

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define TOKENS_PATCH 2 /* pixels a side */
#define TOKENS_AXES 3  /* of positions: layer, row, column */

uint64_t tokens_side(uint64_t n);             /* rows or columns of tokens */
uint64_t tokens_count(const struct shape *s); /* of one latent */
bool tokens_moderate(const struct shape *s);  /* few enough that sums of some of them fit */

/* Those of one latent; return what is behind the last. */
float *tokens_from(const float *x, const struct shape *s, float *out);
const float *tokens_to(const float *tokens, const struct shape *s, float *out);

/* Of a batch: every item's latent, and behind it the first so many pictures that it looks at. */
struct family_batch;
void tokens_from_batch(const struct family_batch *b, size_t refs, float *out);
/* What came out for its latents, of so many channels, to b->out. */
void tokens_to_batch(const float *tokens, uint64_t channels, const struct family_batch *b);

struct tokens_place { /* of the first token: its layer, row and column */
    double layer, row, column;
};
/* Cosines and sines of every token of a latent, sum(axis) floats each; axis: how many of them an
 * axis turns. Frames beyond the first one count layers. Returns what is behind the last. */
float *tokens_angles(double theta, const uint32_t axis[TOKENS_AXES], const struct shape *s,
                     struct tokens_place at, float *out);

struct tokens_room { /* zeroed is empty; p is freed by its owner */
    float *p;
    size_t cap;
};
/* Room for a * b * c floats; what was in it is gone. False: there is none. */
bool tokens_room(struct tokens_room *to, uint64_t a, uint64_t b, uint64_t c);
