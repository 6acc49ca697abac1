/* lora: merging a rank-16 LoRA into every matrix and convolution of an SD1.5 UNet stored in F16, on
 * the CPU, against the same products alone in the same run: up . down of every layer into a float32
 * buffer, by our own low-rank update and, where the machine has a BLAS, by its sgemm. The merge
 * also reads the base weights, converts them to float32 and back, and writes them.
 *
 * Each number is the best of several tries, the three taking turns. All of them use every core. */
#include "base/clock.h"
#include "base/tpool.h"
#include "bench.h"
#include "merge/merge.h"
#include "model/preset.h"
#include "op/op.h"

#include <dlfcn.h>

#define RANK 16
#define TRIES 5
#define TILE_ROWS 64 /* of one task */

typedef void sgemm_fn(int order, int ta, int tb, int m, int n, int k, float alpha, const float *a,
                      int lda, const float *b, int ldb, float beta, float *c, int ldc);

struct layer {
    uint64_t rows, cols;
    size_t at; /* its first element among all */
};

struct bench {
    struct layer *layer;
    size_t layers, elems, largest, rows, cols; /* rows, cols: the most of any layer */
    uint16_t *base, *merged;
    float *product, *up, *down;
    struct tpool *pool;
    sgemm_fn *sgemm;
    char blas[64];
};

static bool plan(struct bench *b, const struct keys *k)
{
    b->layer = calloc(k->n, sizeof *b->layer);
    for (size_t i = 0; b->layer && i < k->n; i++) {
        struct layer l = { .at = b->elems };
        if (!str_starts(k->at[i].name, k->at[i].name_len, "model.diffusion_model.") ||
            k->at[i].shape.ndim < 2 || !merge_matrix(&k->at[i].shape, &l.rows, &l.cols))
            continue;
        size_t n = (size_t)(l.rows * l.cols);
        b->layer[b->layers++] = l;
        b->elems += n;
        b->largest = n > b->largest ? n : b->largest;
        b->rows = l.rows > b->rows ? (size_t)l.rows : b->rows;
        b->cols = l.cols > b->cols ? (size_t)l.cols : b->cols;
    }
    return b->layer;
}

static float number(uint64_t *z)
{
    *z = *z * UINT64_C(6364136223846793005) + 1;
    return (float)(int32_t)(*z >> 32) * 0x1p-31f;
}

static bool make_data(struct bench *b)
{
    uint64_t z = 1;
    b->base = malloc(b->elems * sizeof *b->base);
    b->merged = malloc(b->elems * sizeof *b->merged);
    b->product = malloc(b->largest * sizeof *b->product);
    b->up = malloc(b->rows * RANK * sizeof *b->up);
    b->down = malloc(b->cols * RANK * sizeof *b->down);
    if (!b->base || !b->merged || !b->product || !b->up || !b->down)
        return false;
    for (size_t i = 0; i < b->elems; i++) /* numbers of size 2^-5, as weights are */
        b->base[i] = (uint16_t)(0x2800 | ((uint32_t)(i * 2654435761u) >> 16 & 0x83ff));
    memset(b->merged, 0, b->elems * sizeof *b->merged);
    memset(b->product, 0, b->largest * sizeof *b->product);
    for (size_t i = 0; i < b->rows * RANK; i++)
        b->up[i] = number(&z) / 16;
    for (size_t i = 0; i < b->cols * RANK; i++)
        b->down[i] = number(&z) / 16;
    return true;
}

static void find_blas(struct bench *b)
{
    static const char *const names[] = { "libopenblas.so.0", "libmkl_rt.so.2", "libblas.so.3" };
    for (size_t i = 0; i < ARRAY_LEN(names) && !b->sgemm; i++) {
        void *lib = dlopen(names[i], RTLD_NOW);
        void *f = lib ? dlsym(lib, "cblas_sgemm") : NULL;
        memcpy(&b->sgemm, &f, sizeof f); /* ISO C has no cast from data to function */
        snprintf(b->blas, sizeof b->blas, "%s", names[i]);
    }
}

static void run_merge(struct bench *b, const struct layer *l)
{
    struct res_term t = { .kind = TERM_LOWRANK,
                          .rows = l->rows,
                          .cols = l->cols,
                          .rank = RANK,
                          .scale = 0.8f,
                          .up = b->up,
                          .down = b->down };
    const struct merge_plain from = merge_numbers(DT_F16, b->base + l->at);
    struct merge_plain to = merge_numbers(DT_F16, b->merged + l->at);
    struct merge m = { .from = &merge_plain,
                       .to = &merge_plain,
                       .base = &from,
                       .result = &to,
                       .rows = l->rows,
                       .cols = l->cols,
                       .term = &t,
                       .terms = 1 };
    merge_run(&m, b->pool);
}

/* A band of rows. */
static void product_rows(void *user, size_t i, size_t worker)
{
    (void)worker;
    struct op_lowrank t = *(const struct op_lowrank *)user;
    size_t from = i * TILE_ROWS, left = t.rows - from;
    t.rows = left < TILE_ROWS ? left : TILE_ROWS;
    t.w += from * t.ld_w;
    t.up += from * t.ld_up;
    op_lowrank_tile(&t);
}

static void run_product(struct bench *b, const struct layer *l)
{
    struct op_lowrank t = { .w = b->product,
                            .rows = (size_t)l->rows,
                            .cols = (size_t)l->cols,
                            .ld_w = (size_t)l->cols,
                            .up = b->up,
                            .down = b->down,
                            .rank = RANK,
                            .ld_up = RANK,
                            .ld_down = (size_t)l->cols,
                            .scale = 0.8f };
    tpool_for(b->pool, (t.rows + TILE_ROWS - 1) / TILE_ROWS, product_rows, &t);
}

static void run_sgemm(struct bench *b, const struct layer *l)
{
    enum { ROW_MAJOR = 101, PLAIN = 111 };
    int rows = (int)l->rows, cols = (int)l->cols;
    b->sgemm(ROW_MAJOR, PLAIN, PLAIN, rows, cols, RANK, 0.8f, b->up, RANK, b->down, cols, 0,
             b->product, cols);
}

typedef void run_fn(struct bench *b, const struct layer *l);
static double seconds(struct bench *b, run_fn *run, double best)
{
    uint64_t t0 = clock_mono_ns(clock_system());
    for (size_t i = 0; i < b->layers; i++)
        run(b, &b->layer[i]);
    double s = (double)(clock_mono_ns(clock_system()) - t0) * 1e-9;
    return best > 0 && best < s ? best : s;
}

static void measure(struct bench *b, bool json)
{
    double merge = 0, product = 0, sgemm = 0;
    for (int i = 0; i < TRIES; i++) {
        merge = seconds(b, run_merge, merge);
        product = seconds(b, run_product, product);
        sgemm = b->sgemm ? seconds(b, run_sgemm, sgemm) : 0;
    }
    double flops = 2.0 * RANK * (double)b->elems * 1e-9;
    if (json) {
        printf("{\"layers\": %zu, \"weights\": %zu, \"rank\": %d, \"threads\": %zu, \"merge_s\": "
               "%.4f, "
               "\"product_s\": %.4f, \"share\": %.3f",
               b->layers, b->elems, RANK, tpool_size(b->pool), merge, product, product / merge);
        if (b->sgemm)
            printf(", \"blas\": \"%s\", \"blas_s\": %.4f, \"blas_share\": %.3f", b->blas, sgemm,
                   sgemm / merge);
        printf("}\n");
        return;
    }
    printf("rank-%d LoRA into %zu layers, %.0f million F16 weights, %zu threads\n\n", RANK,
           b->layers, (double)b->elems * 1e-6, tpool_size(b->pool));
    printf("%-34s %7s %9s %s\n", "", "seconds", "GFLOP/s", "merge at");
    printf("%-34s %7.3f %9.1f\n", "merge: F16 -> F32, add, -> F16", merge, flops / merge);
    printf("%-34s %7.3f %9.1f %6.0f%%\n", "the same products alone, ours", product, flops / product,
           100 * product / merge);
    if (b->sgemm)
        printf("the same products, %-17.17s%7.3f %9.1f %6.0f%%\n", b->blas, sgemm, flops / sgemm,
               100 * sgemm / merge);
    else
        printf("no BLAS on this machine: nothing else to compare with\n");
}

int main(int argc, char **argv)
{
    struct bench b = { 0 };
    struct keys keys = { 0 };
    berth_err err = { 0 };
    bool json;
    int code = bench_args(
        argc, argv,
        "usage: lora [--json]\n"
        "Merging a LoRA into an SD1.5 UNet against its matrix products alone. Takes about\n"
        "ten seconds and 3.6 GiB of memory.\n",
        &json);
    if (code >= 0)
        return code;
    bool ok = !preset_keys(preset_find("sd15"), &keys, &err) && !tpool_new(0, &b.pool, &err);
    if (ok && !(ok = plan(&b, &keys) && make_data(&b)))
        err_set(&err, BERTH_ENOMEM, "no memory for %zu weights", b.elems);
    if (ok) {
        find_blas(&b);
        measure(&b, json);
    } else {
        fprintf(stderr, "lora: %s\n", err.msg);
    }
    tpool_free(b.pool);
    keys_release(&keys);
    free(b.layer), free(b.base), free(b.merged), free(b.product), free(b.up), free(b.down);
    return ok ? 0 : 1;
}
