/* int_linear: products with int8 weights, with and without a rotation, beside the same in F32, at
 * sizes of transformers. Each number is the best of several tries, in ms; ratio: of the time of
 * F32.
 *
 *     int_linear [--json]         as many threads as there are cores: taskset -c 0,1 for two */
#include "base/tpool.h"
#include "bench.h"
#include "op/cpu/cpu_impl.h"

#define TRIES 5

static const struct size {
    size_t m, k, n;
} sizes[] = {
    { 1024, 3072, 3072 }, { 1024, 3072, 12288 }, { 256, 2560, 9728 }, { 4096, 1536, 1536 }
};

static struct view rows_of(enum dtype t, void *data, size_t rows, size_t cols)
{
    const size_t each = dtype_desc(t)->bytes;
    return (struct view) {
        .dtype = t, .data = data, .shape = { 2, { rows, cols } }, .stride = { cols * each, each }
    };
}

static double best_of(struct op_env *env, const struct op_linear *f, const struct op_int_linear *i)
{
    double best = 1e30;
    berth_err err;
    size_t bytes = f ? cpu_linear_scratch(env, f) : cpu_int_linear_scratch(env, i);
    env->scratch = aligned_alloc(OP_SCRATCH_ALIGN, (bytes + OP_SCRATCH_ALIGN) & ~(size_t)255);
    for (int k = 0; env->scratch && k < TRIES; k++) {
        double at = bench_now_ms();
        if (f ? cpu_linear(env, f, &err) : cpu_int_linear(env, i, &err))
            exit(1);
        double ms = bench_now_ms() - at;
        best = ms < best ? ms : best;
    }
    free(env->scratch);
    return best;
}

int main(int argc, char **argv)
{
    bool json;
    int rc = bench_args(argc, argv, "int_linear [--json]: int8 products beside F32\n", &json);
    if (rc >= 0)
        return rc;
    struct op_env env = { 0 };
    berth_err err;
    if (tpool_new(0, &env.pool, &err))
        return 1;
    if (!json)
        printf("%-24s %9s %9s %9s %7s %7s\n", "rows x in to out, ms", "F32", "int8", "turned",
               "ratio", "ratio");
    for (size_t i = 0; i < ARRAY_LEN(sizes); i++) {
        const struct size s = sizes[i];
        float *x = malloc(s.m * s.k * sizeof *x), *y = malloc(s.m * s.n * sizeof *y);
        float *w = malloc(s.n * s.k * sizeof *w), *scale = malloc(s.n * sizeof *scale);
        int8_t *codes = malloc(s.n * s.k);
        if (!x || !y || !w || !scale || !codes)
            return 1;
        for (size_t k = 0; k < s.m * s.k; k++)
            x[k] = (float)((uint32_t)(k * 2654435761u) >> 8) * 0x1p-23F - 1;
        for (size_t k = 0; k < s.n * s.k; k++) {
            codes[k] = (int8_t)((uint32_t)(k * 2246822519u) >> 24);
            w[k] = (float)codes[k] * 1e-3F;
        }
        for (size_t k = 0; k < s.n; k++)
            scale[k] = 1e-3F;
        memset(y, 0, s.m * s.n * sizeof *y);
        const struct op_linear f = { .x = rows_of(DT_F32, x, s.m, s.k),
                                     .w = rows_of(DT_F32, w, s.n, s.k),
                                     .y = rows_of(DT_F32, y, s.m, s.n) };
        struct op_int_linear q = { .x = f.x,
                                   .y = f.y,
                                   .codes = rows_of(DT_I8, codes, s.n, s.k),
                                   .rows = rows_of(DT_F32, scale, s.n, 1),
                                   .how = { .type = DT_I8, .scale = 1 } };
        double plain = best_of(&env, &f, NULL), int8 = best_of(&env, NULL, &q);
        q.how.turn = 256;
        double turned = best_of(&env, NULL, &q);
        if (json)
            printf("{\"m\":%zu,\"k\":%zu,\"n\":%zu,\"ms_f32\":%.3f,\"ms_int8\":%.3f,"
                   "\"ms_turned\":%.3f}\n",
                   s.m, s.k, s.n, plain, int8, turned);
        else
            printf("%5zu x %5zu to %5zu    %9.1f %9.1f %9.1f %7.2f %7.2f\n", s.m, s.k, s.n, plain,
                   int8, turned, int8 / plain, turned / plain);
        free(x), free(y), free(w), free(scale), free(codes);
    }
    tpool_free(env.pool);
    return 0;
}
