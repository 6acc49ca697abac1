/* op/cuda without a card: modules load once and kernels are looked up once, failures say what was
 * wanted and leave nothing behind, and every op of our own kernels asks for the right one. The
 * driver is the fake library, with functions for modules and launches that write down what they
 * are asked. */
#include "op/cuda/dnn.h"
#include "op/cuda/own.h"
#include "support/oom.h"
#include "unit/device/cuda_rig.h"

struct CUfunc_st {
    char name[64];
};

static struct log_of {
    CUresult answer_load, answer_function, answer_launch;
    int loads, unloads, functions, launches, closed;
    const void *image;
    struct CUfunc_st function[64];
    struct { /* the latest launch */
        char kernel[64];
        unsigned grid[3], block[3];
        char args[sizeof(struct turn_args)];
    } last;
} seen;

static CUresult load(CUmodule *out, const void *image)
{
    seen.loads++;
    seen.image = image;
    *out = seen.answer_load ? NULL : (CUmodule)(uintptr_t)image;
    return seen.answer_load;
}

static CUresult unload(CUmodule m)
{
    (void)m;
    seen.unloads++;
    return CUDA_SUCCESS;
}

static CUresult function(CUfunction *out, CUmodule m, const char *name)
{
    assert_non_null(m);
    if (seen.answer_function)
        return seen.answer_function;
    *out = &seen.function[seen.functions++];
    snprintf((*out)->name, sizeof(*out)->name, "%s", name);
    return CUDA_SUCCESS;
}

static size_t args_bytes(const char *kernel)
{
    static const struct {
        const char *name;
        size_t n;
    } of[] = {
        { "row_norm", sizeof(struct row_norm_args) }, { "group_", sizeof(struct group_norm_args) },
        { "qk_rope", sizeof(struct qk_rope_args) },   { "copy", sizeof(struct copy_args) },
        { "turn", sizeof(struct turn_args) },         { "binary", sizeof(struct binary_args) }
    };
    for (size_t i = 0; i < sizeof of / sizeof *of; i++)
        if (strncmp(kernel, of[i].name, strlen(of[i].name)) == 0)
            return of[i].n;
    return 0;
}

static CUresult launch(CUfunction f, unsigned gx, unsigned gy, unsigned gz, unsigned bx,
                       unsigned by, unsigned bz, unsigned shared, CUstream s, void **args,
                       void **extra)
{
    assert_true(s && !extra && !shared);
    seen.launches++;
    memcpy(seen.last.kernel, f->name, sizeof f->name);
    memcpy(seen.last.grid, (unsigned[]) { gx, gy, gz }, sizeof seen.last.grid);
    memcpy(seen.last.block, (unsigned[]) { bx, by, bz }, sizeof seen.last.block);
    assert_true(gx && gy && gz && gx <= INT32_MAX && gy <= 65535 && gz <= 65535);
    assert_true(bx && by && bz && bx * by * bz <= 1024);
    if (args[0] && args_bytes(f->name))
        memcpy(seen.last.args, args[0], args_bytes(f->name));
    return seen.answer_launch;
}

struct stand {
    struct rig rig;
    struct devset *set;
    struct dev_stream *stream;
    struct cuda_api api;
    struct op_env env;
};

static int open_card(void **state)
{
    struct stand *s = calloc(1, sizeof *s);
    assert_non_null(s);
    fake_rig(&s->rig);
    memset(&seen, 0, sizeof seen);
    s->set = open_devices("cuda:0", &s->rig.env);
    s->stream = stream_of(devset_at(s->set, 0));
    struct cuda_phys *p = cuda_of(s->stream->phys);
    s->api = *p->api;
    s->api.cuModuleLoadData = load;
    s->api.cuModuleUnload = unload;
    s->api.cuModuleGetFunction = function;
    s->api.cuLaunchKernel = launch;
    p->api = &s->api;
    s->env =
        (struct op_env) { .backend = op_backend_for(devset_at(s->set, 0)), .stream = s->stream };
    assert_string_equal(s->env.backend->name, "cuda");
    *state = s;
    return 0;
}

static int close_card(void **state)
{
    struct stand *s = *state;
    dev_stream_free(s->stream);
    close_clean(&s->rig, s->set);
    free(s);
    return 0;
}

static void kernels_are_looked_up_once(void **state)
{
    struct stand *s = *state;
    berth_err err = { 0 };
    struct cuda_launch l = { .module = CUDA_MODULE_move, .kernel = "pad2d", .type = DT_F16 };
    for (int i = 0; i < 3; i++)
        assert_ok(cuda_launch(&s->env, &l, &err), err);
    assert_true(seen.loads == 1 && seen.functions == 1 && seen.launches == 3);
    assert_ptr_equal(seen.image, cuda_module_move);
    assert_string_equal(seen.last.kernel, "pad2d_f16");
    assert_true(seen.last.grid[0] == 1 && seen.last.block[2] == 1); /* 0 counts as 1 */
    l.type = DT_BF16;
    assert_ok(cuda_launch(&s->env, &l, &err), err);
    assert_string_equal(seen.last.kernel, "pad2d_bf16");
    l = (struct cuda_launch) { .module = CUDA_MODULE_norm, .kernel = "whole", .type = DT_NONE };
    assert_ok(cuda_launch(&s->env, &l, &err), err);
    assert_string_equal(seen.last.kernel, "whole");
    l.module = CUDA_MODULE_move; /* the same name in another file is another kernel */
    assert_ok(cuda_launch(&s->env, &l, &err), err);
    assert_true(seen.loads == 2 && seen.functions == 4);
    dev_stream_free(s->stream);
    devset_close(s->set);
    assert_int_equal(seen.unloads, 2);
    assert_clean(&s->rig);
    s->set = NULL; /* closed: what the teardown needs is gone */
    s->stream = NULL;
}

static void failures_say_what_was_wanted(void **state)
{
    struct stand *s = *state;
    berth_err err = { 0 };
    struct cuda_launch l = {
        .module = CUDA_MODULE_norm, .kernel = "row_norm", .type = DT_F32, .grid = { 7 }
    };
    struct op_env nowhere = { .backend = s->env.backend };
    assert_fails(cuda_launch(&nowhere, &l, &err), err, BERTH_EINVAL, "stream");
    seen.answer_load = CUDA_ERROR_NO_BINARY_FOR_GPU;
    assert_fails(cuda_launch(&s->env, &l, &err), err, BERTH_EDEVICE, "norm.cu");
    assert_int_equal(err.native, CUDA_ERROR_NO_BINARY_FOR_GPU);
    assert_non_null(strstr(err.msg, "cuda:0"));
    seen.answer_load = CUDA_SUCCESS;
    seen.answer_function = CUDA_ERROR_NOT_FOUND;
    assert_fails(cuda_launch(&s->env, &l, &err), err, BERTH_EDEVICE, "row_norm_f32 of norm.cu");
    seen.answer_function = CUDA_SUCCESS;
    seen.answer_launch = CUDA_ERROR_LAUNCH_OUT_OF_RESOURCES;
    assert_fails(cuda_launch(&s->env, &l, &err), err, BERTH_EDEVICE, "7 x 1 x 1 blocks");
    seen.answer_launch = CUDA_SUCCESS; /* and nothing is broken by it */
    assert_ok(cuda_launch(&s->env, &l, &err), err);
    assert_true(seen.loads == 2 && seen.functions == 1);
}

static void memory_may_be_short(void **state)
{
    struct stand *s = *state;
    berth_status got = BERTH_ENOMEM;
    long k = 0;
    for (; got != BERTH_OK; k++) {
        struct cuda_card *c = NULL;
        berth_err err = { 0 };
        oom_after(k);
        got = cuda_card(&s->env, &c, &err);
        oom_off();
        assert_true(got == BERTH_OK ? c != NULL : got == BERTH_ENOMEM && !c && err.msg[0]);
    }
    assert_true(k > 1);
}

static void count_closed(void *p)
{
    assert_int_equal(*(int *)p, seen.closed++);
}

/* All modules come before a pass, once, and no room for one of them is said and tried again. */
static void made_ready_once(void **state)
{
    static struct dnn missing = { .missing = "not here" }; /* libraries of this machine: no part */
    static int opened;
    struct stand *s = *state;
    struct cuda_card *c;
    berth_err err = { 0 };
    assert_ok(cuda_card(&s->env, &c, &err), err);
    missing.phys = c->phys;
    c->keep[CUDA_SLOT_DNN].p = &missing;
    c->keep[CUDA_SLOT_BLAS].p = &opened;
    seen.answer_load = CUDA_ERROR_OUT_OF_MEMORY;
    assert_fails(op_open(&s->env, &err), err, BERTH_ENODEVMEM, "bytes free");
    struct view x = { .dtype = DT_F32, .shape = { 1, { 4 } }, .stride = { 4 } };
    struct op_unary a = { .kind = OP_SILU, .x = x, .y = x };
    assert_fails(op_unary_ready(&s->env, &a, &err), err, BERTH_ENODEVMEM, "bytes free");
    assert_int_equal(seen.loads, 2);
    seen.answer_load = CUDA_SUCCESS;
    for (int i = 0; i < 2; i++)
        assert_ok(op_open(&s->env, &err), err);
    assert_int_equal(seen.loads, 2 + CUDA_MODULES);
    struct cuda_launch l = { .module = CUDA_MODULE_move, .kernel = "pad2d", .type = DT_F16 };
    assert_ok(cuda_launch(&s->env, &l, &err), err);
    assert_int_equal(seen.loads, 2 + CUDA_MODULES);
}

/* BF16 came with Ampere; kernels for it are there before, but nobody should want them. */
static void cards_are_made_for_some_types(void **state)
{
    static const int sm[] = { 75, 80, 86, 90, 120 };
    struct stand *s = *state;
    const struct device *d = devset_at(s->set, 0);
    assert_int_equal(cuda_of(d->phys)->sm, 90);
    for (size_t i = 0; i < ARRAY_LEN(sm); i++) {
        cuda_of(d->phys)->sm = sm[i];
        assert_true(op_acts(d) & OP_TYPE(DT_F16));
        assert_int_equal((op_acts(d) & OP_TYPE(DT_BF16)) != 0, sm[i] >= 80);
        assert_false(op_acts(d) & ~s->env.backend->acts);
    }
    s->rig.fake->sm = 75; /* as the driver says it */
    struct devset *turing = open_devices("cuda:0", &s->rig.env);
    assert_int_equal(cuda_of(devset_at(turing, 0)->phys)->sm, 75);
    assert_true(op_acts(devset_at(turing, 0)) == OP_TYPE(DT_F16));
    devset_close(turing);
}

/* What files keep for a card goes with it, the last made first. */
static void kept_things_are_closed(void **state)
{
    struct stand *s = *state;
    static int place[CUDA_SLOTS];
    struct cuda_card *c, *again;
    berth_err err = { 0 };
    assert_ok(cuda_card(&s->env, &c, &err), err);
    assert_ok(cuda_card(&s->env, &again, &err), err);
    assert_ptr_equal(c, again);
    assert_ptr_equal(c->phys, s->stream->phys);
    for (int i = 0; i < CUDA_SLOTS; i++) {
        struct cuda_keep *k = &c->keep[i];
        assert_null(k->p);
        place[i] = CUDA_SLOTS - 1 - i;
        *k = (struct cuda_keep) { .p = &place[i], .close = count_closed };
    }
    dev_stream_free(s->stream);
    devset_close(s->set);
    assert_int_equal(seen.closed, CUDA_SLOTS);
    assert_clean(&s->rig);
    s->set = NULL;
    s->stream = NULL;
}

/* ---- which kernel ---- */

static struct view view_at_address(enum dtype t, struct shape s, uintptr_t at)
{
    struct view v;
    berth_err err = { 0 };
    assert_ok(view_init(t, &s, (void *)at, SIZE_MAX / 4, &v, &err), err);
    return v;
}

#define S2(a, b) ((struct shape) { 2, { a, b } })
#define S3(a, b, c) ((struct shape) { 3, { a, b, c } })

static void assert_kernel(const char *kernel, unsigned grid, unsigned bx, unsigned by)
{
    if (strcmp(kernel, seen.last.kernel) != 0 || seen.last.grid[0] != grid ||
        seen.last.block[0] != bx || seen.last.block[1] != by)
        fail_msg("%s in %u blocks of %u x %u, wanted %s in %u of %u x %u", seen.last.kernel,
                 seen.last.grid[0], seen.last.block[0], seen.last.block[1], kernel, grid, bx, by);
}

static void row_norms(void **state)
{
    struct stand *s = *state;
    static const struct {
        enum dtype t;
        uint64_t rows, row;
        uintptr_t x;
        const char *kernel;
        unsigned grid, bx, by;
    } at[] = {
        { DT_BF16, 4608, 3072, 4096, "row_norm_bf16", 4608, 96, 1 },
        { DT_F32, 512, 4096, 4096, "row_norm_f32", 512, 256, 1 },
        { DT_F16, 77, 768, 4096, "row_norm_f16", 20, 32, 4 },
        { DT_BF16, 3, 32768, 4096, "row_norm_bf16", 3, 1024, 1 },
        { DT_BF16, 3, 32776, 4096, "row_norm_any_bf16", 3, 256, 1 }, /* too long */
        { DT_BF16, 3, 3076, 4096, "row_norm_any_bf16", 3, 256, 1 },  /* half a unit */
        { DT_BF16, 3, 3072, 4098, "row_norm_any_bf16", 3, 256, 1 },  /* not aligned */
        { DT_F32, 9, 33, 4096, "row_norm_any_f32", 9, 64, 1 },
        { DT_F32, (uint64_t)1 << 33, 4, 4096, "row_norm_f32", INT32_MAX, 32, 4 },
    };
    for (size_t i = 0; i < sizeof at / sizeof *at; i++) {
        struct view x = view_at_address(at[i].t, S2(at[i].rows, at[i].row), at[i].x);
        berth_err err = { 0 };
        assert_ok(op_row_norm(&s->env, &(struct op_row_norm) { .x = x, .y = x }, &err), err);
        assert_kernel(at[i].kernel, at[i].grid, at[i].bx, at[i].by);
    }
    /* F32 to 16 bits: units of x count. */
    static const struct {
        enum dtype to;
        uint64_t rows, row;
        const char *kernel;
        unsigned grid, bx, by;
    } narrow[] = { { DT_BF16, 4096, 640, "row_norm_of_f32_bf16", 4096, 64, 1 },
                   { DT_F16, 77, 320, "row_norm_of_f32_f16", 20, 32, 4 },
                   { DT_BF16, 9, 33, "row_norm_any_of_f32_bf16", 9, 64, 1 } };
    for (size_t i = 0; i < sizeof narrow / sizeof *narrow; i++) {
        struct shape both = S2(narrow[i].rows, narrow[i].row);
        struct op_row_norm a = { .x = view_at_address(DT_F32, both, 4096),
                                 .y = view_at_address(narrow[i].to, both, 1 << 28) };
        berth_err err = { 0 };
        assert_ok(op_row_norm(&s->env, &a, &err), err);
        assert_kernel(narrow[i].kernel, narrow[i].grid, narrow[i].bx, narrow[i].by);
    }
    /* A modulation that lies at an odd place: its item's stride counts, too. */
    struct view x = view_at_address(DT_BF16, S3(2, 8, 64), 4096);
    struct view m = view_at_address(DT_F32, S2(2, 130), 1 << 20);
    berth_err err = { 0 };
    assert_ok(view_slice(&m, 1, 0, 64, &m, &err), err);
    struct op_row_norm a = { .x = x, .y = x, .scale = m, .shift = m };
    assert_ok(op_row_norm(&s->env, &a, &err), err);
    assert_kernel("row_norm_any_bf16", 16, 64, 1);
    struct row_norm_args k;
    memcpy(&k, seen.last.args, sizeof k);
    assert_true(k.scale.stride == 520 && k.scale.type == CUDA_F32 && k.per_item.d == 8 && !k.w.p);
}

static void copies(void **state)
{
    struct stand *s = *state;
    berth_err err = { 0 };
    struct view x = view_at_address(DT_BF16, S3(2, 320, 4096), 1 << 20), t;
    struct view y = view_at_address(DT_BF16, S3(2, 4096, 320), 1 << 28);
    assert_ok(view_permute(&x, (int[]) { 0, 2, 1 }, &t, &err), err);
    assert_ok(op_copy(&s->env, &(struct op_copy) { .x = t, .y = y }, &err), err);
    assert_kernel("turn_2", 2 * 128 * 10, 32, 8);
    y = view_at_address(DT_BF16, S3(2, 320, 4096), 1 << 28);
    assert_ok(op_copy(&s->env, &(struct op_copy) { .x = x, .y = y }, &err), err);
    assert_kernel("copy_16", 2 * 320 * 4096 / 8 / 256, 256, 1);
    assert_ok(view_slice(&x, 2, 2, 4094, &t, &err), err);
    y = view_at_address(DT_BF16, t.shape, 1 << 28);
    assert_ok(op_copy(&s->env, &(struct op_copy) { .x = t, .y = y }, &err), err);
    assert_kernel("copy_4", (2 * 320 * 4092 / 2 + 255) / 256, 256, 1);
}

static void group_norm_scratch(void **state)
{
    struct stand *s = *state;
    berth_err err = { 0 };
    struct view x = view_at_address(DT_BF16, (struct shape) { 4, { 1, 512, 1024, 1024 } }, 4096);
    struct view w = view_at_address(DT_F32, (struct shape) { 1, { 512 } }, 1 << 20);
    struct op_group_norm a = { .x = x, .y = x, .w = w, .b = w, .groups = 32 };
    size_t n = op_group_norm_scratch(&s->env, &a);
    assert_int_equal(n, 32 * 256 * 2 * sizeof(float));
    s->env.scratch = (void *)(uintptr_t)(1 << 30);
    s->env.scratch_bytes = n;
    assert_ok(op_group_norm(&s->env, &a, &err), err);
    assert_kernel("group_norm_bf16", 32 * 256, 256, 1);
    struct group_norm_args k;
    memcpy(&k, seen.last.args, sizeof k);
    assert_true(k.packed && k.packed_sums && k.part == s->env.scratch && k.chunk % 8 == 0);
    assert_true(k.chunk * k.chunks.d >= k.size && k.chunk * (k.chunks.d - 1) < k.size);
    a.x = view_at_address(DT_F32, x.shape, UINT64_C(1) << 40);
    assert_int_equal(op_group_norm_scratch(&s->env, &a), n);
    assert_ok(op_group_norm(&s->env, &a, &err), err);
    assert_kernel("group_norm_of_f32_bf16", 32 * 256, 256, 1);
    struct op_binary sum = { .a = a.x, .b = x, .y = a.x };
    assert_ok(op_binary(&s->env, &sum, &err), err);
    assert_string_equal(seen.last.kernel, "binary_to_f32");
}

static int close_what_is_left(void **state)
{
    struct stand *s = *state;
    if (s->set)
        return close_card(state);
    free(s);
    return 0;
}

#define TEST(f) cmocka_unit_test_setup_teardown(f, open_card, close_what_is_left)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(kernels_are_looked_up_once),
        TEST(failures_say_what_was_wanted),
        TEST(memory_may_be_short),
        TEST(made_ready_once),
        TEST(kept_things_are_closed),
        TEST(cards_are_made_for_some_types),
        TEST(row_norms),
        TEST(copies),
        TEST(group_norm_scratch),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
