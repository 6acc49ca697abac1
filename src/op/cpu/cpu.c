/* cpu.c: the kernels of the CPU. What has no slot here takes the reference: it moves a few bytes. */
#include "op/cpu/cpu_impl.h"

extern const struct op_backend op_cpu; /* declared by backends.def */

const struct op_backend op_cpu = {
    .name = "cpu",
    .linear = cpu_linear,
    .linear_scratch = cpu_linear_scratch,
    .matmul = cpu_matmul,
    .matmul_scratch = cpu_matmul_scratch,
    .conv2d = cpu_conv2d,
    .conv2d_scratch = cpu_conv2d_scratch,
};
