/* expand: stored weights become activations' types, by the kernels of expand.cu. */
#include "op/cuda/cuda_op.h"
#include "op/cuda/expand_args.h"
#include "op/cuda/expand_decode.h"

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
    size_t count = quant ? n / 8 : n; /* chunks of eight, or elements */
    size_t a_block = !kernel_of[from] ? EXPAND_THREADS
                     : quant          ? 2 * EXPAND_THREADS
                                      : 16 * EXPAND_THREADS;
    size_t blocks = (count + a_block - 1) / a_block;
    if (blocks > INT_MAX)
        return err_set(err, BERTH_ELIMIT, "%s to %s: %zu elements at once", f->name, dtype_name(to),
                       n);
    int last = !kernel_of[from] ? (int)from /* which type; else whether 16 bytes move at once */
                                : at_multiple(dst, 16) && (quant || at_multiple(src, 16));
    void *args[] = { &src, &dst, &count, &last };
    const struct cuda_launch l = { .module = CUDA_MODULE_expand,
                                   .kernel = kernel_of[from] ? kernel_of[from] : "expand_any",
                                   .type = to,
                                   .grid = { (unsigned)blocks },
                                   .block = { EXPAND_THREADS },
                                   .args = args };
    if (cuda_launch(env, &l, err))
        return err_add(err, "%s to %s", f->name, dtype_name(to));
    return BERTH_OK;
}
