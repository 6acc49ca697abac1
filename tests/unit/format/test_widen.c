/* Matrices that are given more columns than their file has. */
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "format/weights.h"
#include "tensor/dtype.h"

#include <math.h>

#define ROWS 3
#define COLS 64

static float value(size_t i)
{
    return (float)((int)(i % 17) - 8) / 8;
}

static berth_status fill(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    const struct weights_spec *spec = (const struct weights_spec *)user + i;
    const struct dtype_desc *d = dtype_desc(spec->dtype);
    float x[ROWS * COLS];
    size_t first = (size_t)off / d->bytes * d->elems, count = n / d->bytes * d->elems;
    (void)err;
    for (size_t k = 0; k < count; k++)
        x[k] = value(first + k);
    d->from_f32(x, dst, count);
    return BERTH_OK;
}

/* "before", the matrix "x" of this type, "after". */
static struct weights *open_file(enum dtype type, const char *format)
{
    const struct weights_spec spec[] = { { "before", DT_F32, { 1, { 4 } } },
                                         { "x", type, { 2, { ROWS, COLS } } },
                                         { "after", DT_F32, { 2, { 2, 2 } } } };
    const char *path = tmp_path("widen");
    struct weights *w;
    berth_err err = { 0 };
    struct weights_write_args args = { .format = format,
                                       .path = path,
                                       .spec = spec,
                                       .count = ARRAY_LEN(spec),
                                       .fill = fill,
                                       .user = (void *)spec };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    return w;
}

static size_t number(const struct weights *w, const char *name)
{
    return (size_t)(weights_find(w, name, strlen(name)) - weights_at(w, 0));
}

/* The old columns are what they were, the new ones 0; by reading and by looking. */
static void check(const struct weights *w, size_t i, size_t cols, enum dtype as)
{
    const struct weights_entry *e = weights_at(w, i);
    const struct dtype_desc *d = dtype_desc(as), *stored = dtype_desc(e->stored);
    uint8_t *raw = malloc((size_t)e->size);
    float *got = calloc(ROWS * cols, sizeof *got), *seen = calloc(ROWS * cols, sizeof *got);
    berth_err err = { 0 };
    assert_true(raw && got && seen);
    weights_verify(w);
    assert_true(e->dtype == as && e->shape.ndim == 2 && e->shape.dim[1] == cols);
    assert_ok(weights_read(w, e, 0, raw, (size_t)e->size, &err), err);
    d->to_f32(raw, got, ROWS * cols);
    stored->to_f32(weights_stored(w, e), seen, ROWS * cols);
    for (size_t k = 0; k < ROWS * cols; k++) {
        float want = k % cols < COLS ? value(k / cols * COLS + k % cols) : 0.0f;
        assert_true(fabsf(got[k] - want) < 0.07f && fabsf(seen[k] - want) < 0.02f);
        assert_true(k % cols < COLS || got[k] == 0);
    }
    assert_fails(weights_read(w, e, e->size, raw, 1, &err), err, BERTH_EINVAL, "'x'");
    free(raw), free(got), free(seen);
}

static void every_type(void **state)
{
    static const struct {
        enum dtype type;
        const char *format;
    } row[] = { { DT_F32, "safetensors" }, { DT_BF16, "safetensors" }, { DT_Q8_0, "gguf" } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct weights *w = open_file(row[i].type, row[i].format);
        size_t x = number(w, "x");
        berth_err err = { 0 };
        assert_ok(weights_widen(w, x, 2 * COLS, &err), err);
        check(w, x, 2 * COLS, row[i].type);
        assert_ok(weights_widen(w, x, 3 * COLS, &err), err); /* and wider again */
        check(w, x, 3 * COLS, row[i].type);
        weights_close(w);
    }
}

/* Both at once, in either order. */
static void converted_too(void **state)
{
    (void)state;
    for (int first = 0; first < 2; first++) {
        struct weights *w = open_file(DT_F32, "safetensors");
        size_t x = number(w, "x");
        berth_err err = { 0 };
        if (first)
            weights_convert(w, x, DT_F8_E4M3);
        assert_ok(weights_widen(w, x, COLS + 5, &err), err);
        if (!first)
            weights_convert(w, x, DT_F8_E4M3);
        check(w, x, COLS + 5, DT_F8_E4M3);
        weights_close(w);
    }
}

static void refused(void **state)
{
    struct weights *w = open_file(DT_Q8_0, "gguf");
    size_t x = number(w, "x");
    berth_err err = { 0 };
    (void)state;
    assert_fails(weights_widen(w, x, COLS + 5, &err), err, BERTH_EUNSUPPORTED, "Q8_0");
    assert_fails(weights_widen(w, x, COLS / 2, &err), err, BERTH_EUNSUPPORTED, "32 columns");
    assert_fails(weights_widen(w, x, UINT64_MAX / 64 * 64, &err), err, BERTH_EUNSUPPORTED, "'x'");
    assert_fails(weights_widen(w, number(w, "before"), 8, &err), err, BERTH_EUNSUPPORTED,
                 "'before'");
    oom_after(0);
    berth_status s = weights_widen(w, x, 1 << 20, &err);
    oom_off();
    assert_int_equal(s, BERTH_ENOMEM);
    assert_int_equal(weights_at(w, x)->shape.dim[1], COLS);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_type),
                                        cmocka_unit_test(converted_too),
                                        cmocka_unit_test(refused) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
