/* Ops that take weights as they are stored, on every block type of the golden file: copies, rows of
 * a table, and a product with the unit matrix all give the golden values, on the device and in the
 * type that support/where.h reads from the environment. Which types, how many blocks and their
 * sizes come from the manifest. */
#include "support/golden_tensors.h"
#include "support/json_file.h"
#include "support/where.h"

#include "base/json.h"
#include "op/ops_impl.h"
#include "tensor/convert.h"

#include <math.h>

#define TOLERANCE 1e-6 /* of each golden value in F32: others add the parts in another order */

struct rig {
    struct where at;
    struct devset *set;
    struct device *dev;
    struct dev_owner *owner;
    struct dev_stream *stream;
    struct op_env env;
    struct dev_mem mem[8], scratch;
    size_t n;
    enum dtype act; /* of results */
};

static void rig_open(struct rig *r)
{
    *r = (struct rig) { .at = where_from_env() };
    const struct dev_env real = { 0 };
    r->set = open_devices(r->at.devices, r->at.card ? &real : NULL);
    r->dev = device_named(r->set, r->at.device);
    r->owner = owner_of(r->dev, "quants", DEV_ACTIVATIONS);
    r->stream = stream_of(r->dev);
    r->env.backend = op_backend_for(r->dev);
    assert_non_null(r->env.backend);
    r->env.stream = dev_can(r->dev, BERTH_CAP_HOST_VISIBLE) ? NULL : r->stream;
    r->act = r->at.card ? r->at.act : DT_F32;
}

static void rig_clear(struct rig *r)
{
    while (r->n)
        dev_free(&r->mem[--r->n]);
    dev_free(&r->scratch);
}

static void rig_close(struct rig *r)
{
    rig_clear(r);
    dev_stream_free(r->stream);
    dev_owner_close(r->owner);
    devset_close(r->set);
}

/* A tensor there; without data its bytes are all ones, which is NaN. */
static struct view there(struct rig *r, enum dtype t, struct shape s, const void *data)
{
    uint64_t n = 0, bytes = 0;
    struct view v;
    berth_err err;
    assert_true(shape_count(&s, &n) && dtype_bytes(t, n, &bytes) && r->n < ARRAY_LEN(r->mem));
    struct dev_mem *m = &r->mem[r->n++];
    *m = alloc_on(r->dev, r->owner, (size_t)bytes);
    char *ones = malloc((size_t)bytes);
    assert_non_null(ones);
    memset(ones, 0xff, (size_t)bytes);
    assert_ok(dev_copy_h2d(r->stream, m->addr, data ? data : ones, (size_t)bytes, &err), err);
    assert_ok(dev_stream_sync(r->stream, &err), err);
    free(ones);
    void *at = (void *)(uintptr_t)m->addr;
    assert_ok(view_init(t, &s, at, (size_t)bytes, &v, &err), err);
    return v;
}

#define RUN(r, op, ...)                                                                            \
    do {                                                                                           \
        struct op_##op a_ = { __VA_ARGS__ };                                                       \
        berth_err err_ = { 0 };                                                                    \
        (r)->env.scratch_bytes = op_##op##_scratch(&(r)->env, &a_);                                \
        if ((r)->env.scratch_bytes)                                                                \
            (r)->scratch = alloc_on((r)->dev, (r)->owner, (r)->env.scratch_bytes);                 \
        (r)->env.scratch = (void *)(uintptr_t)(r)->scratch.addr;                                   \
        assert_ok(op_##op(&(r)->env, &a_, &err_), err_);                                           \
        assert_ok(dev_stream_sync((r)->stream, &err_), err_);                                      \
        dev_free(&(r)->scratch);                                                                   \
    } while (0)

/* y there is `want` [rows, row], or that transposed, rounded to y's type and otherwise exact. */
static void assert_is(struct rig *r, const char *what, const struct view *y, const float *want,
                      size_t rows, size_t row, bool transposed)
{
    size_t n = rows * row;
    float *got = malloc(n * sizeof *got);
    char *raw = malloc(n * sizeof *got);
    berth_err err;
    assert_true(got && raw);
    assert_int_equal(op_count(y), n);
    size_t bytes = n * dtype_desc(y->dtype)->bytes;
    assert_ok(dev_copy_d2h(r->stream, raw, (uint64_t)(uintptr_t)y->data, bytes, &err), err);
    assert_ok(dev_stream_sync(r->stream, &err), err);
    assert_ok(convert(y->dtype, raw, DT_F32, got, n, &err), err);
    for (size_t i = 0; i < n; i++) {
        float w = want[i];
        size_t at = transposed ? i % row * rows + i / row : i;
        assert_ok(convert(DT_F32, &w, y->dtype, raw, 1, &err), err);
        assert_ok(convert(y->dtype, raw, DT_F32, &w, 1, &err), err);
        if (got[at] != w)
            fail_msg("%s on %s in %s: element %zu is %.9g, not %.9g", what, r->at.device,
                     dtype_name(y->dtype), i, (double)got[at], (double)w);
    }
    free(got);
    free(raw);
}

/* The unit matrix times w^T: exact whatever the order of sums. */
static void product(struct rig *r, const char *what, const struct view *w, const float *want)
{
    size_t rows = (size_t)w->shape.dim[0], row = (size_t)w->shape.dim[1];
    float *unit = calloc(row * row, sizeof *unit);
    void *x = malloc(row * row * sizeof *unit);
    berth_err err;
    assert_true(unit && x);
    for (size_t i = 0; i < row; i++)
        unit[i * row + i] = 1;
    assert_ok(convert(DT_F32, unit, r->act, x, row * row, &err), err);
    struct view y = there(r, r->act, (struct shape) { 2, { row, rows } }, NULL);
    RUN(r, linear, .x = there(r, r->act, (struct shape) { 2, { row, row } }, x), .w = *w, .y = y);
    assert_is(r, what, &y, want, rows, row, true);
    free(unit);
    free(x);
}

static void one_type(struct rig *r, const struct weights *w, const char *type)
{
    char name[64];
    berth_err err;
    enum dtype t = dtype_by_name(type, strlen(type));
    assert_true(t != DT_NONE);
    snprintf(name, sizeof name, "%s/raw", type);
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    snprintf(name, sizeof name, "%s/f32", type);
    const struct weights_entry *f = weights_find(w, name, strlen(name));
    assert_true(e && f && f->shape.ndim == 2);
    void *raw = malloc((size_t)e->size);
    size_t n, rows = (size_t)f->shape.dim[0], row = (size_t)f->shape.dim[1];
    float *golden = golden_floats(w, f, &n), *want = malloc(n * sizeof *want);
    assert_true(raw && want && n == rows * row);
    assert_ok(weights_read(w, e, 0, raw, e->size, &err), err);
    assert_ok(convert(t, raw, DT_F32, want, n, &err), err);
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)want[i] - (double)golden[i]) <= TOLERANCE * fabs((double)golden[i])))
            fail_msg("%s element %zu: %.9g, golden %.9g", type, i, (double)want[i],
                     (double)golden[i]);

    struct view stored = there(r, t, f->shape, raw), y = there(r, DT_F32, f->shape, NULL);
    RUN(r, copy, .x = stored, .y = y);
    assert_is(r, type, &y, want, rows, row, false);
    if (r->act != DT_F32) {
        y = there(r, r->act, f->shape, NULL);
        RUN(r, copy, .x = stored, .y = y);
        assert_is(r, type, &y, want, rows, row, false);
    }
    product(r, type, &stored, want);
    int32_t id[256];
    assert_true(rows <= ARRAY_LEN(id));
    for (size_t i = 0; i < rows; i++)
        id[i] = (int32_t)i;
    y = there(r, r->act, f->shape, NULL);
    RUN(r, embedding, .table = stored, .ids = there(r, DT_I32, (struct shape) { 1, { rows } }, id),
        .y = y);
    assert_is(r, type, &y, want, rows, row, false);
    rig_clear(r);
    free(raw);
    free(golden);
    free(want);
}

static void every_type_through_the_ops(void **state)
{
    (void)state;
    where_or_skip();
    struct rig r;
    berth_err err;
    json_t *manifest = NULL;
    rig_open(&r);
    struct weights *w = golden_open("gguf_quants.safetensors");
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    json_t *sizes = json_object_get(json_object_get(manifest, "gguf_quants"), "sizes"), *size;
    const char *type;
    int types = 0;
    json_object_foreach(sizes, type, size)
    {
        one_type(&r, w, type);
        types++;
    }
    print_message("%d types on %s in %s\n", types, r.at.device, dtype_name(r.act));
    assert_int_equal(2 * (size_t)types, weights_count(w));
    assert_true(types > 0);
    weights_close(w);
    json_decref(manifest);
    rig_close(&r);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_type_through_the_ops) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
