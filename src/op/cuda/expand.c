/* expand: stored weights become activations' types, by the kernels of expand.cu. */
#include "op/cuda/expand_decode.h"
#include "op/cuda/own.h"

#include <limits.h>

/* Kernels of their own; NULL: expand_any. */
static const char *const kernel_of[DT_COUNT] = {
    [DT_F32] = "expand_f32",         [DT_F16] = "expand_f16",         [DT_BF16] = "expand_bf16",
    [DT_F8_E4M3] = "expand_f8_e4m3", [DT_F8_E5M2] = "expand_f8_e5m2", [DT_Q4_0] = "expand_q4_0",
    [DT_Q4_1] = "expand_q4_1",       [DT_Q5_0] = "expand_q5_0",       [DT_Q5_1] = "expand_q5_1",
    [DT_Q8_0] = "expand_q8_0",       [DT_Q2_K] = "expand_q2_k",       [DT_Q3_K] = "expand_q3_k",
    [DT_Q4_K] = "expand_q4_k",       [DT_Q5_K] = "expand_q5_k",       [DT_Q6_K] = "expand_q6_k",
    [DT_IQ4_NL] = "expand_iq4_nl",   [DT_IQ4_XS] = "expand_iq4_xs",
};

static bool at_multiple(const void *p, size_t of)
{
    return (uintptr_t)p % of == 0;
}

berth_status cuda_expand(const struct op_env *env, enum dtype from, const void *src, enum dtype to,
                         void *dst, size_t n, berth_err *err)
{
    const struct dtype_desc *f = dtype_desc(from);
    bool quant = f->elems > 1;
    if (n == 0)
        return BERTH_OK;
    if (n % f->elems)
        return err_set(err, BERTH_EINVAL, "%s to %s: %zu elements, in blocks of %u", f->name,
                       dtype_name(to), n, f->elems);
    if (quant && !kernel_of[from])
        BUG("no kernel expands %s", f->name);
    if (!at_multiple(src, quant ? DEC_ALIGN(f->bytes) : f->bytes))
        return err_set(err, BERTH_EINVAL, "%s to %s: %p is not aligned", f->name, dtype_name(to),
                       src);
    const char *kernel = kernel_of[from] ? kernel_of[from] : "expand_any";
    struct expand_args k = { .src = src,
                             .dst = dst,
                             .n = quant ? n / 8 : n, /* chunks of eight, or elements */
                             .wide = at_multiple(dst, 16) && (quant || at_multiple(src, 16)),
                             .type = (int32_t)from };
    size_t a_block = (size_t)EXPAND_THREADS * (!kernel_of[from] ? 1 : quant ? 2 : 16);
    size_t blocks = (k.n + a_block - 1) / a_block;
    if (blocks > INT_MAX)
        return err_set(err, BERTH_ELIMIT, "%s to %s: %zu elements at once", f->name, dtype_name(to),
                       n);
    if (cuda_launch_blocks(env, CUDA_MODULE_expand, kernel, to, (unsigned)blocks, EXPAND_THREADS,
                           &k, err))
        return err_add(err, "%s to %s", f->name, dtype_name(to));
    return BERTH_OK;
}
