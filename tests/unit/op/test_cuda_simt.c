/* Our CUDA kernels without a card: compiled for the host (support/cuda_simt), launched by the real
 * op/cuda through the fake driver, and held against the reference with the cases of op_cases.h.
 *
 * Orders     Each case runs with threads and blocks in three orders, the last on grids so small
 *            that kernels that can take turns must. All give the same bits, or a barrier is
 *            missing.
 * Libraries  cuBLASLt is the stand-in: computes, has no epilogues, refuses all. cuDNN is missing,
 *            so attention is ours; of conv2d what surrounds a convolution is tried alone.
 * Coverage   Every kernel must have run by the end. */
#include "support/cuda_simt/plug.h"
#include "unit/op/cuda_between.h"

/* ---- the card ---- */

static struct fake_cuda *card;
static struct fake_cublaslt *blas;

/* The stand-in computes at once: what is queued before comes first. */
static void run_queued(void *stream)
{
    CUresult (*sync)(CUstream s);
    fake_symbol(BERTH_FAKE_CUDA, "cuStreamSynchronize", &sync);
    assert_int_equal(sync(stream), CUDA_SUCCESS);
}

static void plug_in(enum fake_refuses refuses)
{
    fake_cuda_reset_fn *reset;
    fake_symbol(BERTH_FAKE_CUDA, "fake_cuda_reset", &reset);
    reset();
    struct plugged p = plug_kernels(refuses, run_queued);
    card = p.card;
    blas = p.blas;
}

/* Which run has which order. Kernels of the first three take turns over the whole grid, products
 * over rows. */
static void turn_order(unsigned run)
{
    const bool narrow = run == SIMT_SHUFFLED;
    simt_in_order((enum simt_order)run);
    simt_norm.most[0] = simt_pointwise.most[0] = simt_move.most[0] = narrow ? 3 : 0;
    simt_product.most[1] = simt_merge.most[1] = narrow ? 2 : 0;
}

static void card_open(struct stand *s, enum fake_refuses refuses, struct tally *t)
{
    static const struct dev_env env = { .cuda_library = BERTH_FAKE_CUDA };
    berth_err err = { 0 };
    plug_in(refuses);
    assert_ok(stand_open_in(s, &env, "cuda:0", NULL, t, &err), err);
    assert_string_equal(s->backend->name, "cuda");
    s->large = false;
    s->again = SIMT_ORDERS - 1;
    s->turn = turn_order;
    plug_no_dnn(&(struct op_env) { .backend = s->backend, .stream = s->stream });
}

static void card_close(struct stand *s)
{
    stand_close(s);
    assert_true(card->modules == 0 && card->contexts == 0 && card->streams == 0);
    assert_int_equal(blas->live, 0);
}

/* ---- ops ---- */

/* step: 1: every case in every type; 4: three of four cases, the types take turns. */
static void try_ops(enum fake_refuses refuses, bool (*meant)(const char *name), size_t step)
{
    size_t bad = 0, all = 0;
    for (size_t o = 0; o < OPS; o++) {
        struct tally t = { 0 };
        struct stand s;
        if (!meant(ops[o].name) || !wanted("BERTH_TEST_OP", ops[o].name))
            continue;
        card_open(&s, refuses, &t);
        try_op(&s, &ops[o], 0, step);
        card_close(&s);
        sum_up("simt", ops[o].name, &t);
        bad += tally_bad(&t);
        all += t.cases[0] + t.cases[1] + t.cases[2];
    }
    if (bad)
        fail_msg("%zu cases are wrong, of %zu", bad, all);
}

static bool is_product(const char *name)
{
    return strcmp(name, "linear") == 0 || strcmp(name, "matmul") == 0;
}

static bool asks_for_products(const char *name)
{
    return is_product(name) || strcmp(name, "attention") == 0; /* of wide heads */
}

static bool is_own(const char *name)
{
    return !is_product(name) && strcmp(name, "conv2d") != 0;
}

static void own_kernels(void **state)
{
    (void)state;
    try_ops(FAKE_REFUSES_NOTHING, is_own, 1);
}

static void products_around_the_library(void **state)
{
    (void)state;
    try_ops(FAKE_REFUSES_NOTHING, is_product, 1);
}

static void products_without_epilogues(void **state)
{
    (void)state;
    try_ops(FAKE_REFUSES_EPILOGUES, is_product, 4);
}

static void products_refused(void **state)
{
    (void)state;
    try_ops(FAKE_REFUSES_ALL, asks_for_products, 1);
}

static void between_libraries(void **state)
{
    struct stand s;
    (void)state;
    card_open(&s, FAKE_REFUSES_NOTHING, NULL);
    for (unsigned run = 0; run < SIMT_ORDERS; run++) {
        turn_order(run);
        check_pictures(&s);
        check_weights(&s);
    }
    card_close(&s);
}

/* ---- stored types, also those that hardly any weight has ---- */

/* No NaN: those have many bits. */
static void fill_stored(enum dtype t, void *p, size_t n, struct rng *rng)
{
    const struct dtype_desc *d = dtype_desc(t);
    bool quant = d->elems > 1 && !convert_possible(DT_F32, t);
    for (size_t i = 0; i < n / d->elems * d->bytes; i++)
        ((uint8_t *)p)[i] = (uint8_t)rng_below(rng, t == DT_BOOL ? 2 : quant ? 50 : 255);
    for (size_t i = 0; i < n && t == DT_F64; i++)
        ((double *)p)[i] = ldexp((double)uniform(rng), (int)rng_below(rng, 60) - 40);
    bool is_float = t == DT_F32 || t == DT_F16 || t == DT_BF16 || t == DT_F8_E4M3 ||
                    t == DT_F8_E5M2 || (d->elems > 1 && !quant);
    float f[256];
    berth_err err;
    for (size_t i = 0; is_float && i < n; i += d->elems) {
        for (size_t k = 0; k < d->elems; k++)
            f[k] = uniform(rng);
        assert_ok(convert(DT_F32, f, t, (char *)p + i / d->elems * d->bytes, d->elems, &err), err);
    }
}

/* n elements, the result `shift` elements behind a multiple of 16 bytes. */
static void expand_there(struct stand *s, enum dtype from, enum dtype to, size_t n, size_t shift)
{
    const struct dtype_desc *f = dtype_desc(from);
    const size_t src = GUARD, wide = dtype_desc(to)->bytes;
    const size_t dst = (src + n / f->elems * f->bytes + 2 * GUARD) / GUARD * GUARD + shift * wide;
    const size_t all = dst + n * wide + GUARD;
    const struct op_env env = { .backend = s->backend, .stream = s->stream };
    struct rng rng = { n + from };
    char *image = malloc(all), *back = malloc(all);
    berth_err err = { 0 };
    assert_true(image && back);
    memset(image, 0xa5, all);
    fill_stored(from, image + src, n, &rng);
    assert_ok(grow(s, &s->operands, all, &err), err);
    char *there = (char *)(uintptr_t)s->operands.addr;
    assert_ok(dev_copy_h2d(s->stream, s->operands.addr, image, all, &err), err);
    assert_ok(cuda_expand(&env, from, there + src, to, there + dst, n, &err), err);
    assert_ok(dev_copy_d2h(s->stream, back, s->operands.addr, all, &err), err);
    assert_ok(dev_stream_sync(s->stream, &err), err);
    assert_ok(convert(from, image + src, to, image + dst, n, &err), err);
    for (size_t i = 0; i < all; i++)
        if (back[i] != image[i])
            fail_msg("%s to %s, %zu elements: byte %td of the result is %02x, not %02x",
                     dtype_name(from), dtype_name(to), n, (ptrdiff_t)i - (ptrdiff_t)dst,
                     (uint8_t)back[i], (uint8_t)image[i]);
    free(image);
    free(back);
}

static void stored_types(void **state)
{
    struct stand s;
    (void)state;
    card_open(&s, FAKE_REFUSES_NOTHING, NULL);
    for (int from = 0; from < DT_COUNT;
         from++) /* pairs are codes, of which op_decode makes values */
        for (size_t to = 0; to < TYPES && dtype_desc((enum dtype)from)->elems != 2; to++)
            for (unsigned i = 0; i < 4; i++) { /* a block of threads has 4096 elements */
                size_t elems = dtype_desc((enum dtype)from)->elems, n = 1 + i / 2 * 4700;
                turn_order(i % SIMT_ORDERS);
                expand_there(&s, (enum dtype)from, act_types[to], (n + elems) / elems * elems,
                             i % 2);
            }
    card_close(&s);
}

/* ---- every kernel ---- */

static void every_kernel_ran(void **state)
{
    size_t never = 0;
    (void)state;
    for (size_t m = 0; m < CUDA_MODULES; m++) {
        const struct fake_module *of = &plug_modules[m]->base;
        size_t ran = 0;
        for (size_t k = 0; k < of->kernels; k++) {
            if (of->kernel[k].launches)
                ran++;
            else
                print_message("%s never ran\n", of->kernel[k].name);
        }
        never += of->kernels - ran;
        print_message("%s: %zu of %zu kernels ran\n", of->name, ran, of->kernels);
    }
    if (never && !getenv("BERTH_TEST_OP"))
        fail_msg("%zu kernels never ran", never);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(own_kernels),
        cmocka_unit_test(products_around_the_library),
        cmocka_unit_test(products_without_epilogues),
        cmocka_unit_test(products_refused),
        cmocka_unit_test(stored_types),
        cmocka_unit_test(between_libraries),
        cmocka_unit_test(every_kernel_ran),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
