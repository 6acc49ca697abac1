#include "tensor/cpu.h"

#if CPU_X86
#include "op/cpu/gemm.h"

#include <immintrin.h>

#define LEVEL(x) x##_avx512
#define TARGET TARGET_AVX512
#define WIDTH 16
#define VECS 3 /* with ROWS: 24 sums, 3 rows of lanes and one number in 32 registers */
#define ROWS 8
#define MR 14 /* 28 sums */

typedef __m512 vf;

#define V(x) _mm512_##x
#include "op/cpu/level_x86.inc"

TARGET INLINE_BODY vf vf_exp2(vf x)
{
    vf n = _mm512_roundscale_ps(x, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC);
    vf p = vf_exp2_part(x - n);
    /* Not below: NaN goes through. */
    __mmask16 kept = _mm512_cmp_ps_mask(x, vf_all(EXP2_LEAST), _CMP_NLT_UQ);
    return _mm512_maskz_scalef_ps(kept, p, n);
}

/* One row of a tile straight from its registers: bursts of stores to memory would stall the next
 * tile. */
TARGET INLINE_BODY void finish_row(const struct gemm_finish *f, size_t row, size_t at,
                                   __mmask16 live, vf v)
{
    v = v * vf_all(f->scale);
    v = v + vf_all(f->of_row ? f->of_row[row] : 0);
    v = v + (f->of_col ? _mm512_maskz_loadu_ps(live, f->of_col + at) : vf_all(0));
    if (f->add)
        v = v + _mm512_maskz_loadu_ps(live, f->add + row * f->ld_add + at);
    _mm512_mask_storeu_ps(f->c + row * f->ld_c + at, live, v);
}

#define FINISH_TILE
TARGET INLINE_BODY bool finish_tile(const struct gemm_finish *f, const size_t R, vf (*s)[2])
{
    __mmask16 m0 = (__mmask16)(f->cols < 16 ? (1u << f->cols) - 1 : 0xffff);
    __mmask16 m1 = (__mmask16)(f->cols > 16 ? 0xffffu >> (32 - f->cols) : 0);
    UNROLL
    for (size_t r = 0; r < R; r++) {
        finish_row(f, r, 0, m0, s[r][0]);
        finish_row(f, r, 16, m1, s[r][1]);
    }
    return true;
}

#include "op/cpu/level.inc"
#endif
