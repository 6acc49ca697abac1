/* rope_table: positions as angles, for tables of rotations of queries and keys. */
#pragma once

#include <stdint.h>

/* Cosine and sine of one axis at a position, in double as the reference has them: dim / 2 pairs. */
void rope_angles(double theta, double position, uint32_t dim, float *out);
