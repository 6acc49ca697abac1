/* Kernels of ours that elsewhere run beside NVIDIA's libraries, without them, on a card: so they are
 * tried with every shape, not those a library leaves to them, and compute-sanitizer, which gives up
 * inside the libraries, can watch them. cuBLASLt is the stand-in, which refuses all it is asked for;
 * cuDNN's place is taken by nothing: what is turned for it is turned back. */
#include "op/cuda/conv2d_args.h"
#include "op/cuda/cuda_op.h"
#include "support/fake_cublaslt.h"
#include "support/rng.h"
#include "unit/op/op_device.h"

#include <dlfcn.h>

/* ---- products ---- */

/* Opened first, by its path, it is the library that is found by name. */
static void refuse_products(void)
{
    fake_cublaslt_fn *control;
    void *lib = dlopen(BERTH_FAKE_CUBLASLT, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
    if (!lib)
        fail_msg("%s", dlerror());
    void *f = dlsym(lib, "fake_cublaslt");
    assert_non_null(f);
    memcpy(&control, &f, sizeof f);
    control()->refuses = FAKE_REFUSES_ALL;
}

static void products_that_are_refused(void **state)
{
    static const char *const op[] = { "linear", "matmul" };
    (void)state;
    refuse_products();
    for (size_t i = 0; i < ARRAY_LEN(op); i++) {
        assert_int_equal(setenv("BERTH_TEST_OP", op[i], 1), 0);
        every_op_on("cuda", "cuda:0");
    }
}

/* ---- pictures in cuDNN's order and back ---- */

enum { PICTURES = 2, EDGE = 64 }; /* bytes around, which nobody touches */

struct shape_of {
    uint32_t channels;
    int64_t plane, from, pixels;
};
/* Around tiles of 64, odd ones that go value by value, and pieces out of the middle of a plane. */
static const struct shape_of shapes[] = {
    { 1, 1, 0, 1 },       { 3, 64, 0, 64 },    { 4, 65, 0, 65 },      { 64, 63, 0, 63 },
    { 65, 128, 0, 128 },  { 9, 77, 5, 70 },    { 130, 200, 40, 120 }, { 7, 194, 64, 130 },
    { 320, 256, 0, 256 }, { 33, 129, 1, 127 },
};

struct range { /* of the card, and a copy of it here */
    struct dev_mem there;
    uint16_t *here;
    size_t n;
};

static struct range range_new(struct stand *s, size_t n, struct rng *rng)
{
    struct range r = { .n = n };
    berth_err err = { 0 };
    r.here = malloc((n + 2 * EDGE) * sizeof *r.here);
    assert_non_null(r.here);
    /* Finite in both types: signs, small exponents. */
    for (size_t i = 0; i < n + 2 * EDGE; i++)
        r.here[i] = (uint16_t)(rng_below(rng, 2) << 15 | (0x3800 + rng_below(rng, 0x800)));
    assert_ok(dev_alloc(s->dev, s->owner, (n + 2 * EDGE) * sizeof *r.here, &r.there, &err), err);
    assert_ok(dev_copy_h2d(s->stream, r.there.addr, r.here, (n + 2 * EDGE) * sizeof *r.here, &err),
              err);
    assert_ok(dev_stream_sync(s->stream, &err), err);
    return r;
}

static void range_free(struct range *r)
{
    dev_free(&r->there);
    free(r->here);
}

static void *at_card(const struct range *r)
{
    return (uint16_t *)(uintptr_t)r->there.addr + EDGE;
}

static uint16_t *fetch(struct stand *s, const struct range *r)
{
    berth_err err = { 0 };
    size_t bytes = (r->n + 2 * EDGE) * sizeof *r->here;
    uint16_t *now = malloc(bytes);
    assert_non_null(now);
    assert_ok(dev_copy_d2h(s->stream, now, r->there.addr, bytes, &err), err);
    assert_ok(dev_stream_sync(s->stream, &err), err);
    return now;
}

static uint64_t tiles(uint64_t n)
{
    return (n + CONV_TILE - 1) / CONV_TILE;
}

static void turn(struct stand *s, const char *kernel, enum dtype type, uint32_t channels,
                 struct conv_turn *t)
{
    const struct op_env env = { .backend = s->backend, .stream = s->stream };
    const struct cuda_launch l = { .module = CUDA_MODULE_conv2d,
                                   .kernel = kernel,
                                   .type = type,
                                   .grid = { (unsigned)tiles((uint64_t)t->pixels),
                                             (unsigned)tiles(channels), PICTURES },
                                   .block = { CONV_THREADS },
                                   .args = (void *[]) { t } };
    berth_err err = { 0 };
    assert_ok(cuda_launch(&env, &l, &err), err);
}

/* What a range must be: `want` has all of it, edges included. */
static void assert_same(const char *what, const struct shape_of *sh, const uint16_t *got,
                        const uint16_t *want, size_t n)
{
    for (size_t i = 0; i < n; i++)
        if (got[i] != want[i])
            fail_msg("%s, %u channels, pixels %lld to %lld of %lld: value %zu of %zu is %04x, not "
                     "%04x",
                     what, sh->channels, (long long)sh->from, (long long)(sh->from + sh->pixels),
                     (long long)sh->plane, i, n, got[i], want[i]);
}

static float value_of(enum dtype t, const void *p, size_t i)
{
    const struct dtype_desc *d = dtype_desc(t);
    float f;
    d->to_f32((const char *)p + i * d->bytes, &f, 1);
    return f;
}

/* Bias and add as conv2d.c has them: neither, a bias of each type, add that is dst itself. */
struct more {
    enum dtype bias; /* DT_NONE: no bias */
    bool add;
};

static void turn_back(struct stand *s, const struct shape_of *sh, struct conv_turn t,
                      enum dtype type, struct more more, struct rng *rng)
{
    struct range pixels = range_new(s, PICTURES * (size_t)sh->pixels * t.padded, rng);
    struct range planes = range_new(s, PICTURES * (size_t)sh->plane * sh->channels, rng);
    struct range bias = range_new(s, 2 * (size_t)sh->channels, rng); /* room for F32 */
    t.src = at_card(&pixels);
    t.dst = at_card(&planes);
    t.add = more.add ? t.dst : NULL;
    t.bias = more.bias == DT_NONE ? NULL : at_card(&bias);
    t.bias_type = more.bias == DT_F16 ? 1 : more.bias == DT_BF16 ? 2 : 0;
    turn(s, "conv2d_unpack", type, sh->channels, &t);
    uint16_t *got = fetch(s, &planes), *want = planes.here;
    for (size_t n = 0; n < PICTURES; n++)
        for (size_t c = 0; c < sh->channels; c++)
            for (size_t p = 0; p < (size_t)sh->pixels; p++) {
                size_t to =
                    EDGE + (n * sh->channels + c) * (size_t)sh->plane + (size_t)sh->from + p;
                uint16_t bits = pixels.here[EDGE + (n * (size_t)sh->pixels + p) * t.padded + c];
                float sum = value_of(type, &bits, 0);
                if (t.bias)
                    sum += value_of(more.bias, bias.here + EDGE, c);
                if (more.add)
                    sum += value_of(type, want, to);
                berth_err err;
                assert_ok(convert(DT_F32, &sum, type, &want[to], 1, &err), err);
            }
    assert_same("unpack", sh, got, want, planes.n + 2 * (size_t)EDGE);
    free(got);
    range_free(&pixels), range_free(&planes), range_free(&bias);
}

static void turn_there(struct stand *s, const struct shape_of *sh, struct conv_turn t,
                       struct rng *rng)
{
    struct range planes = range_new(s, PICTURES * (size_t)sh->plane * sh->channels, rng);
    struct range pixels = range_new(s, PICTURES * (size_t)sh->pixels * t.padded, rng);
    t.src = at_card(&planes);
    t.dst = at_card(&pixels);
    turn(s, "conv2d_pack", DT_NONE, t.padded, &t);
    uint16_t *got = fetch(s, &pixels), *want = pixels.here;
    for (size_t n = 0; n < PICTURES; n++)
        for (size_t p = 0; p < (size_t)sh->pixels; p++)
            for (size_t c = 0; c < t.padded; c++)
                want[EDGE + (n * (size_t)sh->pixels + p) * t.padded + c] =
                    c < sh->channels
                        ? planes.here[EDGE + (n * sh->channels + c) * (size_t)sh->plane +
                                      (size_t)sh->from + p]
                        : 0;
    assert_same("pack", sh, got, want, pixels.n + 2 * (size_t)EDGE);
    free(got);
    range_free(&planes), range_free(&pixels);
}

static void pictures_are_turned_and_back(void **state)
{
    static const struct more mores[] = { { DT_NONE, false },
                                         { DT_F32, false },
                                         { DT_F16, true },
                                         { DT_BF16, true },
                                         { DT_NONE, true } };
    const char *named = getenv("BERTH_TEST_DEVICE"), *asked = getenv("BERTH_TEST_BACKEND");
    const char *device = named && strncmp(named, "cuda", 4) == 0 ? named : "cuda:0";
    struct stand s;
    berth_err err = { 0 };
    struct rng rng = { 1 };
    (void)state;
    if (!wanted("BERTH_TEST_BACKEND", "cuda") || stand_open(&s, device, NULL, NULL, &err)) {
        if (asked && strcmp(asked, "cuda") == 0)
            fail_msg("%s does not open: %s", device, err.msg);
        print_message("skipped: no %s: %s\n", device, err.code ? err.msg : asked);
        skip();
    }
    for (size_t i = 0; i < ARRAY_LEN(shapes); i++) {
        const struct shape_of *sh = &shapes[i];
        struct conv_turn t = { .plane = sh->plane,
                               .from = sh->from,
                               .pixels = sh->pixels,
                               .channels = sh->channels,
                               .padded = (sh->channels + 7) / 8 * 8,
                               .pairs = (sh->plane | sh->from | sh->pixels) % 2 == 0 };
        turn_there(&s, sh, t, &rng);
        for (size_t m = 0; m < ARRAY_LEN(mores); m++)
            for (size_t type = 1; type < TYPES; type++)
                turn_back(&s, sh, t, act_types[type], mores[m], &rng);
    }
    stand_close(&s);
}

int main(void)
{
    /* Products first: they run in processes of their own, which a driver that is open here does not
     * survive. */
    const struct CMUnitTest tests[] = { cmocka_unit_test(products_that_are_refused),
                                        cmocka_unit_test(pictures_are_turned_and_back) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
