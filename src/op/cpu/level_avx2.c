#include "tensor/cpu.h"

#if CPU_X86
#include "op/cpu/cpu_impl.h"

#include <immintrin.h>

#define LEVEL(x) x##_avx2
#define TARGET TARGET_FMA
#define WIDTH 8
#define VECS 3 /* with ROWS: 12 sums, 3 rows of lanes and one number in 16 registers */
#define ROWS 4
#define MR 6 /* 12 sums */

typedef __m256 vf;

#define V(x) _mm256_##x
#include "op/cpu/level_x86.inc"

TARGET INLINE_BODY vf vf_exp2(vf x)
{
    vf n = _mm256_round_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf p = vf_exp2_part(x - n);
    __m256i e = _mm256_slli_epi32(_mm256_cvtps_epi32(n), 23);
    p = _mm256_castsi256_ps(_mm256_add_epi32(_mm256_castps_si256(p), e));
    vf nan = _mm256_cmp_ps(x, x, _CMP_UNORD_Q); /* its exponent is beyond help: put it back */
    p = _mm256_blendv_ps(p, x, nan);
    return _mm256_and_ps(p, _mm256_cmp_ps(x, vf_all(EXP2_LEAST), _CMP_NLT_UQ));
}

#include "op/cpu/level.inc"
#endif
