#include "tensor/cpu.h"

#if CPU_X86
#include "op/cpu/vmath.h"

#include <immintrin.h>

#define TARGET TARGET_AVX512
#define WIDTH 16
#define VECS 3 /* with ROWS: 24 sums, 3 rows of lanes and one number in 32 registers */
#define ROWS 8

typedef __m512 vf;

TARGET INLINE_BODY vf vf_load(const float *p)
{
    return _mm512_loadu_ps(p);
}

TARGET INLINE_BODY void vf_store(float *p, vf x)
{
    _mm512_storeu_ps(p, x);
}

TARGET INLINE_BODY vf vf_all(float x)
{
    return _mm512_set1_ps(x);
}

TARGET INLINE_BODY vf vf_fma(vf a, vf b, vf c)
{
    return _mm512_fmadd_ps(a, b, c);
}

TARGET INLINE_BODY vf vf_max(vf a, vf b)
{
    return _mm512_max_ps(a, b);
}

TARGET INLINE_BODY vf vf_exp2(vf x)
{
    vf n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC), r = x - n;
    vf p = vf_fma(vf_all(EXP2_C6), r, vf_all(EXP2_C5));
    p = vf_fma(p, r, vf_all(EXP2_C4));
    p = vf_fma(p, r, vf_all(EXP2_C3));
    p = vf_fma(p, r, vf_all(EXP2_C2));
    p = vf_fma(p, r, vf_all(EXP2_C1));
    p = vf_fma(p, r, vf_all(1));
    /* Not below: NaN goes through. */
    __mmask16 kept = _mm512_cmp_ps_mask(x, vf_all(EXP2_LEAST), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(kept, p, n);
}

#include "op/cpu/attention_kernel.inc"

const struct attn_kernel attn_avx512 = { .lanes = LANES, .run = run };
#endif
