/* stubs: functions of cuda_api.def that the fake library does not need to do. They are there, so
 * that it counts as a driver, and refuse. Weak: what the files beside it
 * define wins. */
#include <cuda.h>

#undef CUDA_FN
#define STUB(line) STUB_(line)
#define STUB_(line) stub_##line
#define CUDA_FN(name, symbol)                                                                      \
    CUresult STUB(name)(void) __asm__(symbol) __attribute__((weak));                               \
    CUresult STUB(name)(void)                                                                      \
    {                                                                                              \
        return CUDA_ERROR_NOT_SUPPORTED;                                                           \
    }
#include "device/cuda/cuda_api.def"
