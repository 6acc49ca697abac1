/* rope_table.c: see rope_table.h. */
#include "model/rope_table.h"

#include <math.h>

void rope_angles(double theta, double position, uint32_t dim, float *out)
{
    for (uint32_t j = 0; j < dim / 2; j++) {
        double angle = position * (1.0 / pow(theta, 2.0 * j / dim));
        out[2 * j] = (float)cos(angle);
        out[2 * j + 1] = (float)sin(angle);
    }
}
