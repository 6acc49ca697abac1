/* types: one value of an activation's type to F32 and, rounded once, back. */
#ifndef OP_CUDA_TYPES_CUH
#define OP_CUDA_TYPES_CUH

#include <cuda_bf16.h>
#include <cuda_fp16.h>

static __device__ __forceinline__ float to_float(float x)
{
    return x;
}
static __device__ __forceinline__ float to_float(__half x)
{
    return __half2float(x);
}
static __device__ __forceinline__ float to_float(__nv_bfloat16 x)
{
    return __bfloat162float(x);
}
static __device__ __forceinline__ void from_float(float *p, float x)
{
    *p = x;
}
static __device__ __forceinline__ void from_float(__half *p, float x)
{
    *p = __float2half_rn(x);
}
static __device__ __forceinline__ void from_float(__nv_bfloat16 *p, float x)
{
    *p = __float2bfloat16_rn(x);
}

#endif
