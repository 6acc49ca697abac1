/* Models whose weights are converted as they are read: held to the same weights saved in that
 * type. */
#include "patch_toy.h"

#include "plan/convert.h"
#include "support/oom.h"
#include "support/resave.h"

#include <unistd.h>

static const enum dtype sources[] = { DT_F32, DT_F16, DT_BF16, DT_F8_E5M2, DT_F8_E4M3 };
static const enum dtype targets[] = { DT_F8_E4M3, DT_F8_E5M2, DT_F16 };

static const char *saved_as(const char *path, enum dtype to)
{
    const char *saved = tmp_path("saved.safetensors");
    resave(path, to, saved);
    return saved;
}

static struct res_model *open_as(struct fixture *f, struct res_open_args args, const char *path,
                                 const char *dtype)
{
    struct res_model *m;
    berth_err err = { 0 };
    args.path = path;
    args.dtype = dtype;
    assert_ok(res_open(f->r, &args, &m, NULL, &err), err);
    return m;
}

/* Layers as wide as the toys' are, with numbers that fp8 has to round. */
static const char *source_file(enum dtype type)
{
    struct stored s = STORED(type, false);
    s.size = 0.7f;
    return write_file("source", s);
}

/* ---- the same bytes in the same places ---- */

static const struct way {
    const char *devices, *alloc;
    uint64_t pins;
} ways[] = {
    { "cpu=8m", "#cpu", 0 },
    { "cuda:0@cpu=1m,cpu=8m", "cuda:0,30kb;cpu,*#cuda:0", 0 },
    { "cpu=8m,null:0=1m", "#null:0", 0 },
    { "cpu=8m,null:0=1m", "null:0,30kb;cpu,*#null:0", 0 },
    { "cpu=8m,null:0=1m", "null:0,30kb;cpu,*#null:0", RES_NO_PINS },
    { "cpu=8m,null:0=1m,null:1=1m", "null:0,30kb;null:1,*#null:0", 0 },
};

static void same_places(const struct fixture *f, struct res_model *a, struct res_model *b)
{
    assert_int_equal(res_info(a).bytes, res_info(b).bytes);
    for (size_t d = 0; d < devset_count(f->set); d++)
        assert_int_equal(res_bytes_on(a, d), res_bytes_on(b, d));
    for (size_t i = 0; i < res_blocks(a)->n; i++)
        assert_int_equal(res_block_place(a, i).device, res_block_place(b, i).device);
    assert_int_equal(checksum(a), checksum(b));
}

/* With an adapter, and without it again. */
static void with_and_without(const struct fixture *f, struct res_model *a, struct res_model *b,
                             unsigned dora)
{
    struct toy toy = toy_of("layers.", 0.3f, 1 + dora);
    uint64_t before = checksum(a);
    toy.dora = dora;
    set(a, &toy, 1);
    set(b, &toy, 1);
    model_load(a);
    model_load(b);
    same_places(f, a, b);
    assert_true(checksum(a) != before);
    set(a, NULL, 0);
    set(b, NULL, 0);
    model_load(a);
    model_load(b);
    same_places(f, a, b);
    assert_int_equal(checksum(a), before);
}

static void one_way(const struct way *x, const char *from, enum dtype to, struct tpool *pool)
{
    struct fixture f;
    struct res_config cfg = { .pin_budget = x->pins, .pool = pool };
    struct res_open_args args = { .plan.alloc = x->alloc };
    fixture_open(&f, x->devices, &cfg);
    struct res_model *a = open_as(&f, args, from, dtype_name(to));
    struct res_model *b = open_as(&f, args, saved_as(from, to), NULL);
    struct res_load_result got = model_load(a), want = model_load(b);
    assert_int_equal(res_info(a).bytes, 4 * (ROWS * COLS + ROWS) * dtype_desc(to)->bytes);
    assert_int_equal(got.read, want.read);
    assert_int_equal(got.moved, want.moved);
    same_places(&f, a, b);
    for (size_t high = 0; high < 2; high++) {
        for (unsigned dora = NO_DORA; dora <= DORA_COLUMNS; dora++)
            with_and_without(&f, a, b, dora);
        res_unref(a);
        res_unref(b);
        if (high)
            break;
        args.high_precision = true;
        a = open_as(&f, args, from, dtype_name(to));
        b = open_as(&f, args, tmp_path("saved.safetensors"), NULL);
        model_load(a);
        model_load(b);
    }
    fixture_close(&f);
}

static void as_if_it_had_been_saved_so(void **state)
{
    (void)state;
    for (size_t threads = 0; threads < 4; threads += 3)
        for (size_t s = 0; s < ARRAY_LEN(sources); s++)
            for (size_t t = 0; t < ARRAY_LEN(targets); t++)
                for (size_t i = 0; i < ARRAY_LEN(ways); i++) {
                    struct tpool *pool = NULL;
                    berth_err err = { 0 };
                    if (targets[t] == DT_F16 && sources[s] != DT_F32)
                        continue; /* stays: the_files_own_type_is_the_same_model() */
                    if (threads)
                        assert_ok(tpool_new(threads, &pool, &err), err);
                    one_way(&ways[i], source_file(sources[s]), targets[t], pool);
                    tpool_free(pool);
                }
}

/* Tensors of several pieces, read by several threads, patched by several, too. */
static void large_tensors(void **state)
{
    enum { TALL = 1500, WIDE = 1024 }; /* 1.5 MB as fp8, 3 MB in the file */
    (void)state;
    const struct weights_spec spec[] = { { "layers.0.weight", DT_BF16, { 2, { TALL, WIDE } } },
                                         { "layers.0.bias", DT_BF16, { 1, { TALL } } },
                                         { "layers.1.weight", DT_BF16, { 2, { TALL, WIDE } } } };
    struct filling x = { spec, &(struct stored) { DT_BF16, false, DT_F32, 1, 0.7f, NULL } };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("large.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = fill,
                                       .user = &x };
    struct tpool *pool;
    struct fixture f;
    berth_err err = { 0 };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(tpool_new(3, &pool, &err), err);
    fixture_open(&f, "cpu=64m,null:0=8m", &(struct res_config) { .pool = pool });
    for (size_t i = 0; i < 2; i++) {
        struct res_open_args plan = { .plan.alloc = i ? "null:0,1600kb;cpu,*#null:0" : "#cpu" };
        struct res_model *a = open_as(&f, plan, args.path, "F8_E4M3");
        struct res_model *b = open_as(&f, plan, saved_as(args.path, DT_F8_E4M3), NULL);
        struct toy toy = toy_of("layers.1", 0.3f, 1);
        model_load(a);
        model_load(b);
        same_places(&f, a, b);
        set(a, &toy, 1); /* of layers.0 nothing is merged, layers.1 is derived again */
        set(b, &toy, 1);
        model_load(a);
        model_load(b);
        same_places(&f, a, b);
        res_unref(a);
        res_unref(b);
    }
    fixture_close(&f);
    tpool_free(pool);
}

/* ---- which is which ---- */

static void types_make_models(void **state)
{
    struct fixture f;
    struct res_open_args args = { .plan.alloc = "#cpu" };
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "cpu=64m,null:0=8m", NULL);
    const char *path = source_file(DT_BF16);
    struct res_model *plain = open_as(&f, args, path, NULL);
    struct res_model *e4 = open_as(&f, args, path, "F8_E4M3");
    struct res_model *e5 = open_as(&f, args, path, "F8_E5M2");
    struct res_model *again = open_as(&f, args, path, "f8_e4m3");
    assert_true(plain != e4 && plain != e5 && e4 != e5);
    assert_ptr_equal(e4, again);
    assert_int_equal(res_info(plain).bytes, 4 * (2 * ROWS * COLS + 4 * ROWS));
    assert_int_equal(res_info(e4).bytes, 4 * (ROWS * COLS + ROWS));
    model_load(plain);
    model_load(e4);
    model_load(e5);
    assert_int_equal(res_model_count(f.r), 3);
    /* A plan of one is no plan of the other, and nobody adopts the wrong weights. */
    struct plan_args elsewhere = { .alloc = "#null:0" };
    assert_ok(res_replan(e4, &elsewhere, NULL, &err), err);
    args.plan.alloc = "#null:0";
    struct res_model *moved = open_as(&f, args, path, "F8_E4M3");
    assert_ptr_equal(moved, e4);
    res_set_retention(e4, RES_KEEP);
    res_unref(moved);
    res_unref(again);
    res_unref(e4); /* anchored, and nobody has a handle */
    args.plan.alloc = "null:0,30kb;cpu,*#null:0";
    struct res_model *other = open_as(&f, args, path, NULL);
    assert_ptr_not_equal(other, e4);
    struct res_model *same = open_as(&f, args, path, "F8_E4M3");
    assert_ptr_equal(same, e4);
    res_unref(other);
    res_unref(same);
    res_unref(plain);
    res_unref(e5);
    fixture_close(&f);
}

static void the_files_own_type_is_the_same_model(void **state)
{
    struct fixture f;
    struct res_open_args args = { .plan.alloc = "#cpu" };
    (void)state;
    fixture_open(&f, "cpu=64m", NULL);
    const char *path = saved_as(source_file(DT_BF16), DT_F8_E4M3);
    struct res_model *a = open_as(&f, args, path, NULL);
    struct res_model *b = open_as(&f, args, path, "F8_E4M3");
    struct res_model *c = open_as(&f, args, path, "F8_E5M2");
    assert_ptr_equal(a, b);
    assert_ptr_not_equal(a, c);
    res_unref(a);
    res_unref(b);
    res_unref(c);
    for (size_t i = 0; i < ARRAY_LEN(sources); i++) { /* F16: what is as small stays as it is */
        path = saved_as(source_file(DT_F32), sources[i]);
        a = open_as(&f, args, path, NULL);
        b = open_as(&f, args, path, "F16");
        assert_int_equal(a == b, sources[i] != DT_F32);
        res_unref(a);
        res_unref(b);
    }
    fixture_close(&f);
}

/* ---- what is converted, and what is not ---- */

/* An F32 file was kept as F16 and is now saved so: nothing is converted any more, and it is the
 * same file all the same. */
static void replaced_by_one_of_that_type(void **state)
{
    struct fixture f;
    const char *path = source_file(DT_F32);
    (void)state;
    fixture_open(&f, "cpu=8m", NULL);
    struct res_model *m =
        open_as(&f, (struct res_open_args) { .retention = RES_KEEP }, path, "F16");
    model_load(m);
    res_unref(m);
    assert_int_equal(rename(saved_as(path, DT_F16), path), 0);
    m = open_as(&f, (struct res_open_args) { 0 }, path, "F16");
    assert_int_equal(res_model_count(f.r), 1);
    assert_int_equal(res_info(m).retention, RES_KEEP);
    assert_int_equal(fixture_in_use(&f, "cpu"), 0);
    struct res_model *narrow = open_as(&f, (struct res_open_args) { 0 }, path, "fp8");
    assert_int_equal(res_info(m).retention,
                     RES_KEEP); /* another type of one file is another model */
    assert_int_equal(res_info(narrow).retention, RES_AUTO);
    res_unref(narrow);
    res_unref(m);
    fixture_close(&f);
}

static void weights_only(void **state)
{
    static const struct {
        const char *name;
        enum dtype stored;
        struct shape shape;
        enum dtype whole, part; /* opened as F8_E4M3: all of it, the part "net." */
    } row[] = {
        { "net.a.weight", DT_BF16, { 2, { 4, 8 } }, DT_F8_E4M3, DT_F8_E4M3 },
        { "net.a.bias", DT_F32, { 1, { 4 } }, DT_F8_E4M3, DT_F8_E4M3 },
        { "net.norm.scale", DT_F16, { 1, { 8 } }, DT_F8_E4M3, DT_F8_E4M3 },
        { "net.wide", DT_F64, { 1, { 8 } }, DT_F8_E4M3, DT_F8_E4M3 },
        { "net.ids", DT_I64, { 1, { 8 } }, DT_I64, DT_I64 },
        { "net.mark", DT_F32, { 1, { 0 } }, DT_F32, DT_F32 },
        { "net.sigma", DT_F32, { 0, { 0 } }, DT_F32, DT_F32 },
        { "net.s.weight", DT_F8_E5M2, { 2, { 4, 8 } }, DT_F8_E5M2, DT_F8_E5M2 },
        { "net.s.bias", DT_BF16, { 1, { 4 } }, DT_BF16, DT_BF16 },
        { "net.s.scale_weight", DT_F32, { 1, { 1 } }, DT_F32, DT_F32 },
        { "net.s.scale_input", DT_F32, { 1, { 1 } }, DT_F32, DT_F32 },
        { "net.t.weight", DT_F8_E5M2, { 2, { 4, 8 } }, DT_F8_E5M2, DT_F8_E5M2 },
        { "net.t.weight_scale", DT_F32, { 1, { 4 } }, DT_F32, DT_F32 },
        { "net.u.weight", DT_F8_E5M2, { 2, { 4, 8 } }, DT_F8_E5M2, DT_F8_E5M2 },
        { "net.u.comfy_quant", DT_U8, { 1, { 2 } }, DT_U8, DT_U8 },
        { "net.scaled_fp8", DT_F8_E5M2, { 1, { 2 } }, DT_F8_E5M2, DT_F8_E5M2 },
        { "other.weight", DT_BF16, { 2, { 4, 8 } }, DT_F8_E4M3, DT_NONE },
    };
    struct weights_spec spec[ARRAY_LEN(row)];
    struct fixture f;
    berth_err err = { 0 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        spec[i] = (struct weights_spec) { row[i].name, row[i].stored, row[i].shape };
    struct weights_write_args args = { .format = "safetensors",
                                       .path = tmp_path("mixed.safetensors"),
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = model_fill };
    assert_ok(weights_write(&args, &err), err);
    fixture_open(&f, "cpu=64m", NULL);
    for (int part = 0; part < 2; part++) {
        struct res_open_args open = { .plan.alloc = "#cpu", .part = part ? "net." : NULL };
        struct res_model *m = open_as(&f, open, args.path, "F8_E4M3");
        const struct weights *w = res_weights(m);
        model_load(m);
        for (size_t i = 0; i < ARRAY_LEN(row); i++) {
            const struct weights_entry *e = weights_find(w, row[i].name, strlen(row[i].name));
            enum dtype want = part && row[i].part != DT_NONE ? row[i].part
                              : part                         ? row[i].stored
                                                             : row[i].whole;
            assert_int_equal(e->stored, row[i].stored);
            if (e->dtype != want)
                fail_msg("%s: %s, not %s", e->name, dtype_name(e->dtype), dtype_name(want));
        }
        res_unref(m);
    }
    fixture_close(&f);
}

static void words_for_types(void **state)
{
    static const struct {
        const char *word;
        enum dtype want;
    } row[] = {
        { "F8_E4M3", DT_F8_E4M3 },
        { "f8_e5m2", DT_F8_E5M2 },
        { "fp8_e4m3fn", DT_F8_E4M3 },
        { "FP8_E5M2", DT_F8_E5M2 },
        { "fp8_e4m3fn_fast", DT_F8_E4M3 },
        { "fp8", DT_F8_E4M3 },
        { "default", DT_NONE },
        { "", DT_NONE },
        { "fp8_", DT_NONE },
        { "F8_E8M0", DT_NONE },
        { "Q8_0", DT_NONE },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        assert_int_equal(res_convert_type(row[i].word), row[i].want);
}

static void what_cannot_be_converted(void **state)
{
    static const struct {
        enum dtype stored;
        const char *dtype;
        berth_status want;
        const char *text;
    } row[] = {
        { DT_Q4_0, "F8_E4M3", BERTH_EUNSUPPORTED,
          "weights of a GGUF file are not converted to F8_E4M3: leave the type (weight_dtype, "
          "--dtype) "
          "at its default" },
        { DT_Q8_0, "F8_E5M2", BERTH_EUNSUPPORTED, "to F8_E5M2" },
        { DT_BF16, "BF16", BERTH_EINVAL, "to fp8_e4m3fn, fp8_e5m2 or F16, not to 'BF16'" },
        { DT_BF16, "F8_E8M0", BERTH_EINVAL, "F8_E8M0" },
        { DT_BF16, "", BERTH_EINVAL, "not to ''" },
    };
    struct fixture f;
    (void)state;
    fixture_open(&f, "cpu=64m", NULL);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct stored s = STORED(row[i].stored, false);
        struct res_open_args args = { .path = write_file("refused", s), .dtype = row[i].dtype };
        struct res_model *m;
        berth_err err = { 0 };
        assert_fails(res_open(f.r, &args, &m, NULL, &err), err, row[i].want, row[i].text);
        assert_null(m);
        assert_int_equal(res_model_count(f.r), 0);
    }
    fixture_close(&f);
}

/* ---- trouble ---- */

static void survives_oom(void **state)
{
    struct fixture f;
    berth_status s = BERTH_ENOMEM;
    long k = 0;
    (void)state;
    fixture_open(&f, "cpu=64m,null:0=1m", NULL);
    const char *path = source_file(DT_BF16);
    for (; s != BERTH_OK; k++) {
        struct toy toy = toy_of("layers.1", 0.3f, 1);
        struct res_open_args args = { .path = path,
                                      .plan.alloc = "null:0,30kb;cpu,*#null:0",
                                      .dtype = "F8_E4M3" };
        const struct res_patch patch = { .adapter = &toy.base, .strength = 1 };
        struct res_model *m;
        berth_err err = { 0 };
        oom_after(k);
        s = res_open(f.r, &args, &m, NULL, &err);
        if (!s)
            s = res_set_patches(m, &patch, 1, &err);
        if (!s)
            s = res_load(m, NULL, NULL, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        res_unref(m);
        fixture_check(&f);
        assert_int_equal(res_model_count(f.r), 0);
    }
    assert_true(k > 20);
    fixture_close(&f);
}

static void a_file_that_shrinks(void **state)
{
    (void)state;
    for (int patched = 0; patched < 2; patched++) {
        struct fixture f;
        struct toy toy = toy_of("layers.", 0.3f, 1);
        struct res_open_args args = { .plan.alloc = "#cpu" };
        berth_err err = { 0 };
        fixture_open(&f, "cpu=64m", NULL);
        const char *path = source_file(DT_BF16);
        struct res_model *m = open_as(&f, args, path, "F8_E4M3");
        if (patched)
            set(m, &toy, 1);
        assert_int_equal(truncate(path, 20000), 0);
        assert_fails(res_load(m, NULL, NULL, &err), err, BERTH_EIO, "source.safetensors");
        assert_int_equal(res_info(m).resident, 0);
        res_unref(m);
        fixture_close(&f);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(as_if_it_had_been_saved_so),
        cmocka_unit_test(large_tensors),
        cmocka_unit_test(types_make_models),
        cmocka_unit_test(the_files_own_type_is_the_same_model),
        cmocka_unit_test(replaced_by_one_of_that_type),
        cmocka_unit_test(weights_only),
        cmocka_unit_test(words_for_types),
        cmocka_unit_test(what_cannot_be_converted),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(a_file_that_shrinks),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
