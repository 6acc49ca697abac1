/* simt: our CUDA kernels on the host, for tests: every .cu file of op/cuda compiled by g++ (card.h
 * stands for what nvcc knows by itself) and run block by block.
 *
 * Threads    of a block are coroutines on one thread of the machine. One runs until it waits, at a
 *            barrier for all of the block or in a shuffle for its warp, or ends; then the next one
 *            of the order goes on, of the same warp if it can. Who has ended holds up nobody.
 * Orders     Between two barriers threads may run in any order, and so may blocks. A kernel whose
 *            results have other bits in another order lacks a barrier.
 * Shared     memory is 0xff when a block begins: what nobody wrote is NaN.
 * Mistakes   end the program and say in which kernel: threads of a block that wait at different
 *            barriers, or for each other; a shuffle with a lane that has ended.
 * Not seen   lanes of a warp that read what another wrote without __syncwarp() in between, when
 *            each order happens to be right; memory order; registers and banks.
 * Threads    One at a time: the fake driver's lock. */
#ifndef SUPPORT_CUDA_SIMT_SIMT_H
#define SUPPORT_CUDA_SIMT_SIMT_H

#include "support/fake_cuda.h"

#ifdef __cplusplus
extern "C" {
#endif

enum simt_order { SIMT_ASCENDING, SIMT_DESCENDING, SIMT_SHUFFLED, SIMT_ORDERS };
void simt_in_order(enum simt_order order);

/* The modules, simt_<x> for <x>.cu; the test gives them their images. most: blocks in each
 * dimension of a grid; 0: as many as asked for. It is for kernels that take turns when a grid
 * cannot have as many blocks as there is work. */
struct simt_module {
    struct fake_module base;
    unsigned most[3];
    char *shared, *shared_end; /* all its kernels' */
};
#define MODULE(x) extern struct simt_module simt_##x;
#include "op/cuda/modules.def"
#undef MODULE

fake_run_fn simt_run; /* what the driver is told */

/* ---- for card.h: what a kernel sees ---- */

struct simt_dim {
    unsigned x, y, z;
};
extern struct simt_dim threadIdx, blockIdx, blockDim, gridDim;
/* line: of the caller, to tell barriers apart. */
void simt_barrier(int line);
/* The bits of the lane that differs by `mask` from this one. */
uint32_t simt_shuffle_xor(uint32_t bits, unsigned mask);

#ifdef __cplusplus
}
#endif

#endif
