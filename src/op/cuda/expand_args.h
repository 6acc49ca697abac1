/* expand_args: what expand.c and expand.cu agree on. */
#ifndef OP_CUDA_EXPAND_ARGS_H
#define OP_CUDA_EXPAND_ARGS_H

#define EXPAND_THREADS 256 /* of a block; each has two chunks of eight elements */

#endif
