#include "support/fake_cublaslt.h"

#include "tensor/dtype.h"

#include <cublasLt.h>
#include <math.h>
#include <stdlib.h>
#include <string.h>

#define WRONG                                                                                      \
    CUBLAS_STATUS_INTERNAL_ERROR /* a caller's mistake: no refusal, so that tests see it */

struct op {
    int32_t turn_a;
    uint32_t epilogue;
    const void *bias;
};
struct matrix { /* columns first */
    cudaDataType type;
    uint64_t rows, cols;
    int64_t ld, of;
    int32_t batch;
};

static struct fake_cublaslt fake;

struct fake_cublaslt *fake_cublaslt(void); /* found by dlsym() */
struct fake_cublaslt *fake_cublaslt(void)
{
    return &fake;
}

static void *made(size_t n)
{
    void *p = calloc(1, n);
    if (!p)
        abort();
    fake.live++;
    return p;
}

static cublasStatus_t gone(void *p)
{
    free(p);
    fake.live--;
    return CUBLAS_STATUS_SUCCESS;
}

static bool set(void *field, size_t field_bytes, const void *value, size_t bytes)
{
    if (field_bytes == bytes)
        memcpy(field, value, bytes);
    return field_bytes == bytes;
}

static const struct dtype_desc *desc(cudaDataType t)
{
    return dtype_desc(t == CUDA_R_32F    ? DT_F32
                      : t == CUDA_R_16F  ? DT_F16
                      : t == CUDA_R_16BF ? DT_BF16
                                         : DT_F8_E4M3);
}

static double get(const void *p, cudaDataType t, size_t i)
{
    float v;
    desc(t)->to_f32((const char *)p + i * desc(t)->bytes, &v, 1);
    return (double)v;
}

static size_t at(const struct matrix *m, int32_t b, uint64_t row, uint64_t col)
{
    return (size_t)(b * m->of) + col * (size_t)m->ld + row;
}

/* ---- what the library offers ---- */

cublasStatus_t cublasLtCreate(cublasLtHandle_t *out)
{
    if (fake.open_with)
        return (cublasStatus_t)fake.open_with;
    *out = made(1);
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtDestroy(cublasLtHandle_t h)
{
    return gone(h);
}

size_t cublasLtGetVersion(void)
{
    return 130000;
}

const char *cublasLtGetStatusName(cublasStatus_t s)
{
    return s == CUBLAS_STATUS_EXECUTION_FAILED ? "CUBLAS_STATUS_EXECUTION_FAILED" : "another";
}

const char *cublasLtGetStatusString(cublasStatus_t s)
{
    (void)s;
    return "of the fake";
}

cublasStatus_t cublasLtMatmulDescCreate(cublasLtMatmulDesc_t *out, cublasComputeType_t compute,
                                        cudaDataType_t scale)
{
    if (compute != CUBLAS_COMPUTE_32F || scale != CUDA_R_32F)
        return WRONG;
    struct op *o = made(sizeof *o);
    o->epilogue = CUBLASLT_EPILOGUE_DEFAULT;
    *out = (cublasLtMatmulDesc_t)o;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulDescDestroy(cublasLtMatmulDesc_t d)
{
    return gone(d);
}

cublasStatus_t cublasLtMatmulDescSetAttribute(cublasLtMatmulDesc_t d,
                                              cublasLtMatmulDescAttributes_t what,
                                              const void *value, size_t bytes)
{
    struct op *o = (struct op *)d;
    bool ok = what == CUBLASLT_MATMUL_DESC_TRANSA ? set(&o->turn_a, sizeof o->turn_a, value, bytes)
              : what == CUBLASLT_MATMUL_DESC_EPILOGUE
                  ? set(&o->epilogue, sizeof o->epilogue, value, bytes)
              : what == CUBLASLT_MATMUL_DESC_BIAS_POINTER
                  ? set(&o->bias, sizeof o->bias, value, bytes)
                  : false;
    return ok ? CUBLAS_STATUS_SUCCESS : WRONG;
}

cublasStatus_t cublasLtMatrixLayoutCreate(cublasLtMatrixLayout_t *out, cudaDataType type,
                                          uint64_t rows, uint64_t cols, int64_t ld)
{
    if (ld < (int64_t)rows)
        return WRONG;
    struct matrix *m = made(sizeof *m);
    *m = (struct matrix) { .type = type, .rows = rows, .cols = cols, .ld = ld, .batch = 1 };
    *out = (cublasLtMatrixLayout_t)m;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatrixLayoutDestroy(cublasLtMatrixLayout_t l)
{
    return gone(l);
}

cublasStatus_t cublasLtMatrixLayoutSetAttribute(cublasLtMatrixLayout_t l,
                                                cublasLtMatrixLayoutAttribute_t what,
                                                const void *value, size_t bytes)
{
    struct matrix *m = (struct matrix *)l;
    bool ok = what == CUBLASLT_MATRIX_LAYOUT_BATCH_COUNT
                  ? set(&m->batch, sizeof m->batch, value, bytes)
              : what == CUBLASLT_MATRIX_LAYOUT_STRIDED_BATCH_OFFSET
                  ? set(&m->of, sizeof m->of, value, bytes)
                  : false;
    return ok ? CUBLAS_STATUS_SUCCESS : WRONG;
}

cublasStatus_t cublasLtMatmulPreferenceCreate(cublasLtMatmulPreference_t *out)
{
    *out = made(sizeof(uint64_t)); /* the most bytes of workspace */
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulPreferenceDestroy(cublasLtMatmulPreference_t p)
{
    return gone(p);
}

cublasStatus_t cublasLtMatmulPreferenceSetAttribute(cublasLtMatmulPreference_t p,
                                                    cublasLtMatmulPreferenceAttributes_t what,
                                                    const void *value, size_t bytes)
{
    uint32_t number = 0;
    if (what == CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES)
        return set(p, sizeof(uint64_t), value, bytes) ? CUBLAS_STATUS_SUCCESS : WRONG;
    if (!set(&number, sizeof number, value, bytes))
        return WRONG;
    if (what == CUBLASLT_MATMUL_PREF_REDUCTION_SCHEME_MASK)
        fake.split_out |= (number & (CUBLASLT_REDUCTION_SCHEME_INPLACE |
                                     CUBLASLT_REDUCTION_SCHEME_OUTPUT_TYPE)) != 0;
    return CUBLAS_STATUS_SUCCESS;
}

cublasStatus_t cublasLtMatmulAlgoGetHeuristic(cublasLtHandle_t h, cublasLtMatmulDesc_t d,
                                              cublasLtMatrixLayout_t a, cublasLtMatrixLayout_t b,
                                              cublasLtMatrixLayout_t c, cublasLtMatrixLayout_t y,
                                              cublasLtMatmulPreference_t like, int want,
                                              cublasLtMatmulHeuristicResult_t *out, int *n)
{
    const struct op *o = (const struct op *)d;
    (void)h, (void)a, (void)b, (void)c, (void)y;
    *n = 0;
    fake.asked++;
    if (fake.ask_with)
        return (cublasStatus_t)fake.ask_with;
    if (fake.refuses == FAKE_REFUSES_ALL ||
        (fake.refuses == FAKE_REFUSES_EPILOGUES && o->epilogue != CUBLASLT_EPILOGUE_DEFAULT))
        return CUBLAS_STATUS_NOT_SUPPORTED;
    for (; *n < want; ++*n)
        memcpy(&out[*n].workspaceSize, like,
               sizeof(uint64_t)); /* all it may have, and it writes it */
    return CUBLAS_STATUS_SUCCESS;
}

/* All of one of a batch, columns first without gaps: products ask for every value many times. */
static double *widened(const void *p, const struct matrix *m, int32_t b)
{
    double *v = malloc((m->rows * m->cols + 1) * sizeof *v);
    if (!v)
        abort();
    for (uint64_t col = 0; col < m->cols; col++)
        for (uint64_t row = 0; row < m->rows; row++)
            v[col * m->rows + row] = get(p, m->type, at(m, b, row, col));
    return v;
}

cublasStatus_t cublasLtMatmul(cublasLtHandle_t h, cublasLtMatmulDesc_t d, const void *alpha,
                              const void *A, cublasLtMatrixLayout_t la, const void *B,
                              cublasLtMatrixLayout_t lb, const void *beta, const void *C,
                              cublasLtMatrixLayout_t lc, void *D, cublasLtMatrixLayout_t ld,
                              const cublasLtMatmulAlgo_t *algo, void *work, size_t work_bytes,
                              cudaStream_t stream)
{
    const struct op *o = (const struct op *)d;
    const struct matrix *a = (const struct matrix *)la, *b = (const struct matrix *)lb;
    const struct matrix *c = (const struct matrix *)lc, *y = (const struct matrix *)ld;
    const double scale = (double)*(const float *)alpha, keep = (double)*(const float *)beta;
    const bool turned = o->turn_a == CUBLAS_OP_T, bias = o->epilogue & CUBLASLT_EPILOGUE_BIAS;
    (void)h, (void)algo;
    if (fake.fail_with)
        return (cublasStatus_t)fake.fail_with;
    if (fake.before)
        fake.before(stream);
    if ((turned ? a->cols : a->rows) != y->rows || (turned ? a->rows : a->cols) != b->rows ||
        b->cols != y->cols || c->rows != y->rows || c->cols != y->cols ||
        (bias && (uintptr_t)o->bias % 16) || (uintptr_t)work % 16)
        return WRONG;
    memset(work, 0x5a, work_bytes);
    for (int32_t e = 0; e < y->batch; e++) {
        double *wa = widened(A, a, e), *wb = widened(B, b, e);
        for (uint64_t j = 0; j < y->cols; j++)
            for (uint64_t i = 0; i < y->rows; i++) {
                double v = 0;
                for (uint64_t k = 0; k < b->rows; k++)
                    v += wa[turned ? i * a->rows + k : k * a->rows + i] * wb[j * b->rows + k];
                v *= scale;
                v += keep != 0 ? keep * get(C, c->type, at(c, e, i, j)) : 0;
                v += bias ? get(o->bias, y->type, i) : 0;
                if (o->epilogue & CUBLASLT_EPILOGUE_GELU)
                    v = 0.5 * v * (1 + tanh(0.7978845608028654 * (v + 0.044715 * v * v * v)));
                const float f = (float)v;
                desc(y->type)->from_f32(&f, (char *)D + at(y, e, i, j) * desc(y->type)->bytes, 1);
            }
        free(wa);
        free(wb);
    }
    fake.products++;
    return CUBLAS_STATUS_SUCCESS;
}
