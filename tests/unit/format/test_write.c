/* The writers: what they write is read back, and is whole or not there. */
#include "unit/format/build.h"

#include "support/oom.h"
#include "support/tmp.h"

#include <dirent.h>
#include <stdatomic.h>

/* Byte k of tensor i: a pattern that notices a piece in the wrong place. */
static uint8_t pattern(size_t i, uint64_t k)
{
    return (uint8_t)(k * 31 + (k >> 8) * 7 + (k >> 16) * 3 + i * 101 + 1);
}

struct filler {
    const struct weights_write_args *a;
    atomic_size_t calls;
    size_t fail_at; /* call number that fails; 0: none */
    berth_status code;
};

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    struct filler *f = user;
    const struct dtype_desc *d = dtype_desc(f->a->spec[i].dtype);
    size_t call = atomic_fetch_add(&f->calls, 1) + 1;
    if (f->fail_at && call >= f->fail_at)
        return err_set(err, f->code, "call %zu was told to fail", call);
    if (off % d->bytes || n % d->bytes || n == 0)
        return err_set(err, BERTH_EINVAL, "[%zu, +%zu) cuts a block", (size_t)off, n);
    for (size_t k = 0; k < n; k++)
        ((uint8_t *)dst)[k] = pattern(i, off + k);
    return BERTH_OK;
}

static berth_status write_specs(const char *format, const char *path,
                                const struct weights_spec *spec, size_t count, struct tpool *pool,
                                struct filler *f, berth_err *err)
{
    static const struct weights_meta_spec meta[] = { { "general.architecture", "flux" },
                                                     { "note", "\"quoted\"\n\xc3\xa4" } };
    struct weights_write_args a = { .format = format,
                                    .path = path,
                                    .spec = spec,
                                    .count = count,
                                    .meta = meta,
                                    .meta_count = 2,
                                    .fill = fill,
                                    .user = f,
                                    .pool = pool };
    f->a = &a;
    return weights_write(&a, err);
}

/* Reads a file back and compares every tensor's type, shape and bytes, and their order. */
static void expect_specs(const char *path, const char *format, const struct weights_spec *spec,
                         size_t count)
{
    struct weights *w;
    berth_err err;
    assert_ok(weights_open(path, NULL, &w, &err), err);
    weights_verify(w);
    assert_string_equal(weights_format(w), format);
    assert_int_equal(weights_count(w), count);
    for (size_t i = 0; i < count; i++) {
        const struct weights_entry *e = weights_find(w, spec[i].name, strlen(spec[i].name));
        assert_non_null(e);
        assert_int_equal(e->dtype, spec[i].dtype);
        assert_true(shape_eq(&e->shape, &spec[i].shape));
        for (uint64_t k = 0; k < e->size; k++)
            if (weights_data(w, e)[k] != pattern(i, k))
                fail_msg("%s: byte %zu differs", spec[i].name, (size_t)k);
    }
    assert_string_equal(weights_meta_find(w, "general.architecture")->str, "flux");
    assert_string_equal(weights_meta_find(w, "note")->str, "\"quoted\"\n\xc3\xa4");
    weights_close(w);
}

static struct shape dims(int n, uint64_t a, uint64_t b, uint64_t c, uint64_t d, uint64_t e)
{
    return (struct shape) { .ndim = n, .dim = { a, b, c, d, e } };
}

static void every_dtype_round_trips(void **state)
{
    (void)state;
    static const char *const formats[] = { "safetensors", "gguf" };
    for (size_t k = 0; k < ARRAY_LEN(formats); k++) {
        struct weights_spec spec[2 * DT_COUNT];
        char name[2 * DT_COUNT][32];
        size_t n = 0;
        for (int t = 0; t < DT_COUNT; t++) {
            const struct dtype_desc *d = dtype_desc((enum dtype)t);
            if (k == 0 ? !d->st_name : d->ggml_id < 0)
                continue;
            for (int odd = 0; odd < 2; odd++, n++) {
                snprintf(name[n], sizeof name[n], "%s.%d", d->name, odd);
                spec[n] = (struct weights_spec) { .name = name[n], .dtype = (enum dtype)t };
                spec[n].shape =
                    odd ? dims(1, 3u * d->elems, 0, 0, 0, 0) : dims(3, 2, 5, d->elems, 0, 0);
            }
        }
        struct filler f = { 0 };
        berth_err err;
        assert_true(n >= 20);
        assert_ok(write_specs(formats[k], tmp_path("all"), spec, n, NULL, &f, &err), err);
        expect_specs(tmp_path("all"), formats[k], spec, n);
    }
}

/* Shapes that GGUF cannot hold as they are, scalars, and tensors without bytes. */
static void odd_shapes_round_trip(void **state)
{
    (void)state;
    const struct weights_spec spec[] = {
        { "empty.first", DT_F32, dims(2, 0, 3, 0, 0, 0) },
        { "scalar", DT_F32, dims(0, 0, 0, 0, 0, 0) },
        { "conv", DT_BF16, dims(4, 32, 8, 3, 3, 0) },
        { "five", DT_F16, dims(5, 2, 3, 1, 2, 7) },
        { "empty", DT_F16, dims(1, 0, 0, 0, 0, 0) },
        { "odd", DT_I8, dims(1, 3, 0, 0, 0, 0) },
        { "empty.last", DT_F32, dims(5, 1, 0, 1, 1, 1) },
    };
    static const char *const formats[] = { "safetensors", "gguf" };
    for (size_t k = 0; k < ARRAY_LEN(formats); k++) {
        struct filler f = { 0 };
        berth_err err;
        assert_ok(write_specs(formats[k], tmp_path("odd"), spec, ARRAY_LEN(spec), NULL, &f, &err),
                  err);
        expect_specs(tmp_path("odd"), formats[k], spec, ARRAY_LEN(spec));
        assert_ok(write_specs(formats[k], tmp_path("none"), NULL, 0, NULL, &f, &err), err);
        expect_specs(tmp_path("none"), formats[k], NULL, 0);
    }
    const struct weights_spec quant[] = {
        { "conv3x3", DT_Q8_0, dims(4, 32, 8, 3, 3, 0) },   /* 2304 elements: rows of 256 */
        { "conv_small", DT_Q4_0, dims(4, 4, 8, 3, 1, 0) }, /* 96: rows of 32 */
        { "five", DT_Q4_K, dims(5, 1, 2, 1, 1, 256) },
    };
    struct filler f = { 0 };
    berth_err err;
    assert_ok(write_specs("gguf", tmp_path("flat"), quant, 3, NULL, &f, &err), err);
    expect_specs(tmp_path("flat"), "gguf", quant, 3);
    struct weights *w;
    assert_ok(weights_open(tmp_path("flat"), NULL, &w, &err), err);
    assert_int_equal(weights_meta_find(w, "comfy.gguf.orig_shape.conv3x3")->count, 4);
    weights_close(w);
}

static size_t read_file(const char *path, uint8_t **out)
{
    char *p;
    size_t n;
    berth_err err;
    assert_ok(file_read_all(path, 64 << 20, &p, &n, &err), err);
    *out = (uint8_t *)p;
    return n;
}

static const struct weights_spec large[] = {
    { "big", DT_F32, { 2, { 2000, 1500 } } }, /* 12 MB: several pieces */
    { "tiny", DT_U8, { 1, { 3 } } },
    { "middle", DT_F16, { 1, { 2100000 } } }, /* ends in the middle of a piece */
    { "odd", DT_U8, { 1, { 4194301 } } },
    { "last", DT_U8, { 1, { 1 } } },
};
static const struct weights_spec large_gguf[] = {
    { "q4_0", DT_Q4_0, { 2, { 4000, 4096 } } }, /* 18-byte blocks do not divide a piece */
    { "q6_k", DT_Q6_K, { 1, { 256 * 21000 } } },
    { "bias", DT_F32, { 1, { 7 } } },
};

/* The same bytes for any number of threads. */
static void threads_do_not_matter(void **state)
{
    (void)state;
    static const struct {
        const char *format;
        const struct weights_spec *spec;
        size_t count;
    } cases[] = { { "safetensors", large, ARRAY_LEN(large) },
                  { "gguf", large_gguf, ARRAY_LEN(large_gguf) } };
    for (size_t k = 0; k < ARRAY_LEN(cases); k++) {
        uint8_t *first = NULL;
        size_t first_n = 0;
        for (size_t threads = 0; threads <= 4; threads += 2) { /* 0: no pool at all */
            struct tpool *pool = NULL;
            struct filler f = { 0 };
            berth_err err;
            uint8_t *bytes;
            if (threads)
                assert_ok(tpool_new(threads, &pool, &err), err);
            assert_ok(write_specs(cases[k].format, tmp_path("large"), cases[k].spec, cases[k].count,
                                  pool, &f, &err),
                      err);
            tpool_free(pool);
            assert_true(f.calls > cases[k].count); /* it was cut */
            size_t n = read_file(tmp_path("large"), &bytes);
            if (!first) {
                expect_specs(tmp_path("large"), cases[k].format, cases[k].spec, cases[k].count);
                first = bytes;
                first_n = n;
                continue;
            }
            assert_int_equal(n, first_n);
            assert_memory_equal(bytes, first, n);
            free(bytes);
        }
        free(first);
    }
}

/* What the bytes are, exactly: the smallest file of each format. */
static void layout_is_as_documented(void **state)
{
    (void)state;
    static const char st[] = "{\"t\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[0,1]}}   ";
    const struct weights_spec spec[] = { { "t", DT_U8, { 1, { 1 } } },
                                         { "u", DT_I8, { 1, { 2 } } } };
    struct filler f = { 0 };
    berth_err err;
    uint8_t *p;
    struct weights_write_args a = { .format = "safetensors",
                                    .path = tmp_path("min"),
                                    .spec = spec,
                                    .count = 1,
                                    .fill = fill,
                                    .user = &f };
    f.a = &a;
    assert_ok(weights_write(&a, &err), err);
    size_t n = read_file(a.path, &p);
    assert_int_equal(n, 8 + sizeof st - 1 + 1);
    assert_int_equal(p[0], sizeof st - 1);
    assert_int_equal((sizeof st - 1) % 8, 0);
    assert_memory_equal(p + 8, st, sizeof st - 1);
    free(p);

    const struct weights_spec two[] = { { "t", DT_I8, { 1, { 3 } } },
                                        { "u", DT_I8, { 1, { 2 } } } };
    a.format = "gguf";
    a.spec = two;
    a.count = 2;
    assert_ok(weights_write(&a, &err), err);
    n = read_file(a.path, &p);
    static const uint8_t head[] = { 'G', 'G', 'U', 'F', 3, 0, 0, 0, 2, 0, 0, 0,  0, 0, 0, 0,   0,
                                    0,   0,   0,   0,   0, 0, 0, 1, 0, 0, 0, 0,  0, 0, 0, 't', 1,
                                    0,   0,   0,   3,   0, 0, 0, 0, 0, 0, 0, 24, 0, 0, 0 };
    assert_memory_equal(p, head, sizeof head);
    assert_int_equal(n, 96 + 32 + 32); /* header of 90, padded; each tensor padded to 32 */
    assert_int_equal(p[96], pattern(0, 0));
    assert_int_equal(p[96 + 2], pattern(0, 2));
    for (size_t i = 96 + 3; i < 96 + 32; i++)
        assert_int_equal(p[i], 0);
    assert_int_equal(p[128 + 1], pattern(1, 1));
    for (size_t i = 128 + 2; i < n; i++)
        assert_int_equal(p[i], 0);
    free(p);
}

/* ---- refusals ---- */

static const struct {
    const char *format;
    struct weights_spec spec;
    berth_status want;
    const char *words;
} refused[] = {
    { "zip", { "t", DT_F32, { 1, { 1 } } }, BERTH_EINVAL, "'zip' is no format" },
    { "pickle", { "t", DT_F32, { 1, { 1 } } }, BERTH_EINVAL, "'pickle' is no format" },
    { "safetensors",
      { "t", DT_Q4_0, { 1, { 32 } } },
      BERTH_EUNSUPPORTED,
      "cannot hold Q4_0; gguf can" },
    { "gguf",
      { "t", DT_F8_E4M3, { 1, { 1 } } },
      BERTH_EUNSUPPORTED,
      "cannot hold F8_E4M3; safetensors can" },
    { "safetensors", { "__metadata__", DT_F32, { 1, { 1 } } }, BERTH_EINVAL, "__metadata__" },
    { "gguf", { "t", DT_Q4_0, { 2, { 3, 31 } } }, BERTH_EINVAL, "whole blocks" },
    { "safetensors", { "", DT_F32, { 1, { 1 } } }, BERTH_EFORMAT, "empty tensor name" },
    { "safetensors", { "a\033", DT_F32, { 1, { 1 } } }, BERTH_EFORMAT, "control character" },
    { "safetensors", { "a\xff", DT_F32, { 1, { 1 } } }, BERTH_EFORMAT, "not UTF-8" },
    { "safetensors", { NULL, DT_F32, { 1, { 1 } } }, BERTH_EINVAL, "without a name" },
    { "safetensors", { "t", DT_F32, { 2, { UINT64_MAX, 2 } } }, BERTH_EINVAL, "too large" },
    { "safetensors",
      { "t", DT_F32, { 1, { INT64_MAX / 4 } } },
      BERTH_EINVAL,
      "too large for a file" },
    { "safetensors", { "t", DT_NONE, { 1, { 1 } } }, BERTH_EINVAL, "no such dtype" },
    { "safetensors", { "t", DT_F32, { 9, { 1 } } }, BERTH_EINVAL, "9 dimensions" },
    { "gguf",
      { "t", DT_F32, { 5, { UINT64_C(1) << 31, 1, 1, 1, 1 } } },
      BERTH_EINVAL,
      "over 2^31-1" },
    { "gguf",
      { "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx"
        "xxxxx"
        "xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx",
        DT_F32,
        { 1, { 1 } } },
      BERTH_ELIMIT,
      "128 bytes long, gguf takes 127" },
};

static void impossible_requests_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(refused); i++) {
        struct filler f = { 0 };
        berth_err err;
        assert_fails(
            write_specs(refused[i].format, tmp_path("no"), &refused[i].spec, 1, NULL, &f, &err),
            err, refused[i].want, refused[i].words);
        assert_non_null(strstr(err.msg, "/no"));
        assert_int_equal(f.calls, 0);
        assert_int_not_equal(access(tmp_path("no"), F_OK), 0);
    }
    const struct weights_spec twice[] = { { "t", DT_F32, { 1, { 1 } } }, { "t", DT_U8, { 0 } } };
    struct filler f = { 0 };
    berth_err err;
    assert_fails(write_specs("gguf", tmp_path("no"), twice, 2, NULL, &f, &err), err, BERTH_EINVAL,
                 "'t' is given twice");
    assert_fails(write_specs("gguf", tmp_path("no/where"), twice, 1, NULL, &f, &err), err,
                 BERTH_ENOTFOUND, "no/where");
}

static void bad_metadata_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *format, *key, *value;
        const char *words;
    } cases[] = {
        { "gguf", "general.alignment", "64", "the writer's own" },
        { "gguf", "comfy.gguf.orig_shape.t", "[1]", "the writer's own" },
        { "gguf", "a", "\xff", "'a' is not UTF-8" },
        { "safetensors", "", "x", "empty metadata key" },
        { "safetensors", "note", "x", "'note' is given twice" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        const struct weights_spec spec = { "t", DT_F32, { 1, { 1 } } };
        const struct weights_meta_spec meta[] = { { "note", "" },
                                                  { cases[i].key, cases[i].value } };
        struct filler f = { 0 };
        struct weights_write_args a = { .format = cases[i].format,
                                        .path = tmp_path("no"),
                                        .spec = &spec,
                                        .count = 1,
                                        .meta = meta,
                                        .meta_count = 2,
                                        .fill = fill,
                                        .user = &f };
        berth_err err = { 0 };
        f.a = &a;
        assert_true(weights_write(&a, &err));
        if (!strstr(err.msg, cases[i].words))
            fail_msg("'%s', wanted '%s'", err.msg, cases[i].words);
    }
}

static size_t files_in(const char *dir)
{
    size_t n = 0;
    DIR *d = opendir(dir);
    assert_non_null(d);
    for (struct dirent *e; (e = readdir(d));)
        n += e->d_name[0] != '.' || strlen(e->d_name) > 2;
    closedir(d);
    return n;
}

/* An error in any piece stops the rest, is reported once, and leaves the old file alone. */
static void failing_fill_leaves_the_old_file(void **state)
{
    (void)state;
    const char *path = tmp_write("old", "precious", 8);
    size_t files = files_in(tmp_dir());
    for (size_t threads = 1; threads <= 4; threads += 3) {
        for (size_t at = 1; at <= 4; at++) {
            struct tpool *pool;
            struct filler f = { .fail_at = at, .code = BERTH_ECANCELED };
            berth_err err;
            assert_ok(tpool_new(threads, &pool, &err), err);
            assert_fails(write_specs("safetensors", path, large, ARRAY_LEN(large), pool, &f, &err),
                         err, BERTH_ECANCELED, "told to fail");
            tpool_free(pool);
            assert_null(strstr(strstr(err.msg, "told to fail") + 1, "told to fail"));
            assert_true(f.calls < at + threads + 1); /* the rest was not even tried */
            uint8_t *p;
            assert_int_equal(read_file(path, &p), 8);
            assert_memory_equal(p, "precious", 8);
            free(p);
            assert_int_equal(files_in(tmp_dir()), files); /* no temporary file is left */
        }
    }
}

struct progress {
    uint64_t last, total;
    size_t calls;
    atomic_int inside;
};

static void on_progress(void *user, uint64_t done, uint64_t total)
{
    struct progress *p = user;
    assert_int_equal(atomic_fetch_add(&p->inside, 1), 0); /* one thread at a time */
    assert_true(done > p->last && done <= total);
    p->last = done;
    p->total = total;
    p->calls++;
    atomic_fetch_sub(&p->inside, 1);
}

static void progress_reaches_the_end(void **state)
{
    (void)state;
    struct tpool *pool;
    struct filler f = { 0 };
    struct progress p = { 0 };
    berth_err err;
    assert_ok(tpool_new(3, &pool, &err), err);
    struct weights_write_args a = { .format = "safetensors",
                                    .path = tmp_path("progress"),
                                    .spec = large,
                                    .count = ARRAY_LEN(large),
                                    .fill = fill,
                                    .user = &f,
                                    .pool = pool,
                                    .progress = on_progress,
                                    .progress_user = &p };
    f.a = &a;
    assert_ok(weights_write(&a, &err), err);
    tpool_free(pool);
    assert_int_equal(p.total, 12000000 + 3 + 4200000 + 4194301 + 1);
    assert_int_equal(p.last, p.total);
    assert_true(p.calls >= 5);
}

static void write_survives_oom(void **state)
{
    (void)state;
    const struct weights_spec spec[] = { { "conv", DT_Q8_0, { 4, { 32, 8, 3, 3 } } },
                                         { "b", DT_F32, { 1, { 9 } } } };
    const struct weights_spec plain[] = { { "a", DT_BF16, { 1, { 9 } } },
                                          { "b", DT_F32, { 1, { 9 } } } };
    static const char *const formats[] = { "gguf", "safetensors" };
    for (size_t i = 0; i < 2; i++) {
        berth_status s = BERTH_ENOMEM;
        long k = 0;
        for (; s != BERTH_OK; k++) {
            struct filler f = { 0 };
            berth_err err = { 0 };
            unlink(tmp_path("oom"));
            oom_after(k);
            s = write_specs(formats[i], tmp_path("oom"), i ? plain : spec, 2, NULL, &f, &err);
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
            assert_int_equal(access(tmp_path("oom"), F_OK) == 0, s == BERTH_OK);
        }
        assert_true(k > 6);
        expect_specs(tmp_path("oom"), formats[i], i ? plain : spec, 2);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_dtype_round_trips),
        cmocka_unit_test(odd_shapes_round_trip),
        cmocka_unit_test(threads_do_not_matter),
        cmocka_unit_test(layout_is_as_documented),
        cmocka_unit_test(impossible_requests_are_refused),
        cmocka_unit_test(bad_metadata_is_refused),
        cmocka_unit_test(failing_fill_leaves_the_old_file),
        cmocka_unit_test(progress_reaches_the_end),
        cmocka_unit_test(write_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
