/* Every block type in the golden file dequantises to its golden values. Which types, how many
 * blocks and their sizes come from the manifest. */
#include "support/golden.h"
#include "support/json_file.h"
#include "support/test.h"

#include "base/json.h"
#include "format/weights.h"
#include "tensor/dtype.h"

#include <math.h>

/* |got - want| <= TOLERANCE * |want|, element by element. */
#define TOLERANCE 1e-6f

static const uint8_t *tensor(const struct weights *w, const char *type, const char *part,
                             const struct weights_entry **entry)
{
    char name[64];
    int n = snprintf(name, sizeof name, "%s/%s", type, part);
    assert_true(n > 0 && (size_t)n < sizeof name);
    *entry = weights_find(w, name, (size_t)n);
    if (!*entry)
        fail_msg("no '%s' in %s", name, weights_path(w));
    return weights_data(w, *entry);
}

static void one_type(const struct weights *w, const char *type, const json_t *size)
{
    enum dtype t = dtype_by_name(type, strlen(type));
    if (t == DT_NONE)
        fail_msg("the manifest lists %s, which is no dtype here", type);
    const struct dtype_desc *d = dtype_desc(t);
    uint64_t elems = 0, bytes = 0;
    assert_true(js_get_u64(json_array_get(size, 0), &elems));
    assert_true(js_get_u64(json_array_get(size, 1), &bytes));
    assert_int_equal(d->elems, elems);
    assert_int_equal(d->bytes, bytes);

    const struct weights_entry *raw_entry, *f32_entry;
    const uint8_t *raw = tensor(w, type, "raw", &raw_entry);
    const uint8_t *want = tensor(w, type, "f32", &f32_entry);
    uint64_t n;
    assert_true(shape_count(&f32_entry->shape, &n));
    assert_int_equal(raw_entry->size, n / elems * bytes);
    assert_true(n > 0 && n % elems == 0);

    float *got = malloc(n * sizeof *got);
    assert_non_null(got);
    d->to_f32(raw, got, n);
    float worst = 0;
    for (uint64_t i = 0; i < n; i++) {
        float x;
        memcpy(&x, want + 4 * i, 4);
        float err = got[i] == x ? 0 : fabsf(got[i] - x) / fabsf(x);
        worst = fmaxf(worst, err);
        if (!(err <= TOLERANCE))
            fail_msg("%s element %d: %.9g, golden %.9g", type, (int)i, (double)got[i], (double)x);
    }
    print_message("%-6s %5d values, largest error %.2g\n", type, (int)n, (double)worst);
    free(got);
}

static void every_type_equals_the_golden_values(void **state)
{
    (void)state;
    berth_err err;
    json_t *manifest = NULL;
    struct weights *w = NULL;
    assert_ok(js_parse_file(golden_path("manifest.json"), NULL, &manifest, &err), err);
    assert_ok(weights_open(golden_path("gguf_quants.safetensors"), NULL, &w, &err), err);
    json_t *sizes = json_object_get(json_object_get(manifest, "gguf_quants"), "sizes");
    const char *type;
    json_t *size;
    int types = 0;
    json_object_foreach(sizes, type, size)
    {
        one_type(w, type, size);
        types++;
    }
    assert_int_equal(2 * (size_t)types,
                     weights_count(w)); /* raw and f32 of each, and nothing else */
    assert_true(types > 0);
    assert_ok(weights_check(w, &err), err);
    weights_close(w);
    json_decref(manifest);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test(every_type_equals_the_golden_values) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
