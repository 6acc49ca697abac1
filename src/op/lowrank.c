/* lowrank: w += scale * up . down. */
#include "op/op.h"

void op_lowrank_add_ref(float *w, size_t rows, size_t cols, const float *up, const float *down,
                        size_t rank, float scale)
{
    for (size_t i = 0; i < rows; i++)
        for (size_t j = 0; j < cols; j++) {
            float sum = 0;
            for (size_t k = 0; k < rank; k++)
                sum += up[i * rank + k] * down[k * cols + j];
            w[i * cols + j] += scale * sum;
        }
}
