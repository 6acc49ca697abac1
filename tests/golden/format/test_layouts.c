/* Quantised layers as ComfyUI writes and reads them: every layer of the golden file that has a
 * marker is told, expands to ComfyUI's values, and is coded as ComfyUI codes it. */
#include "support/golden_tensors.h"
#include "support/oom.h"

#include "base/str.h"
#include "format/layout.h"

#include <math.h>

#define TOLERANCE 1e-6 /* of the largest value: rotations are summed in another order */
#define CODES_OFF 0.01 /* the part of all codes that may be the next one, for the same reason */

static struct weights *file;
static size_t seen;

static int setup(void **state)
{
    (void)state;
    file = golden_open("quants.safetensors");
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    weights_close(file);
    return 0;
}

static const struct weights_entry *beside(const char *layer, const char *what)
{
    char name[128];
    snprintf(name, sizeof name, "%s%s", layer, what);
    return weights_find(file, name, strlen(name));
}

typedef void case_fn(const char *layer, const struct weights_entry *e);

static void each_case(case_fn *fn)
{
    static const char end[] = ".comfy_quant";
    seen = 0;
    for (size_t i = 0; i < weights_count(file); i++) {
        const struct weights_entry *m = weights_at(file, i);
        char layer[64];
        if (!str_ends(m->name, m->name_len, end))
            continue;
        snprintf(layer, sizeof layer, "%.*s", (int)(m->name_len - strlen(end)), m->name);
        const struct weights_entry *e = beside(layer, ".weight");
        if (!e || !e->layout)
            fail_msg("%s has no layout", layer);
        fn(layer, e);
        seen++;
    }
    assert_true(seen >= 8);
}

/* Whole rows, and ranges that begin and end anywhere, give ComfyUI's values. */
static void expands(const char *layer, const struct weights_entry *e)
{
    struct coded c;
    berth_err err = { 0 };
    size_t n;
    const struct weights_entry *v = beside(layer, "/values");
    assert_non_null(v);
    float *want = golden_floats(file, v, &n), most = 0, row[4096];
    const uint64_t rows = v->shape.dim[0], cols = v->shape.dim[1];
    assert_ok(layout_mapped(file, e, &c, &err), err);
    assert_true(e->shape.dim[0] >= rows && e->shape.dim[1] >= cols && cols <= ARRAY_LEN(row));
    for (size_t i = 0; i < n; i++)
        most = fabsf(want[i]) > most ? fabsf(want[i]) : most;
    for (uint64_t r = 0; r < rows; r++) {
        coded_expand(&c, r, 0, (size_t)cols, row);
        for (uint64_t k = 0; k < cols; k++)
            if (!(fabs((double)(row[k] - want[r * cols + k])) <=
                  (c.turn ? TOLERANCE * (double)most : 0)))
                fail_msg("%s [%d, %d]: %.9g, not %.9g", layer, (int)r, (int)k, (double)row[k],
                         (double)want[r * cols + k]);
        for (uint64_t at = r % 7; at < cols; at += 13) {
            float some[11];
            size_t now = cols - at < 11 ? (size_t)(cols - at) : 11;
            coded_expand(&c, r, at, now, some);
            assert_memory_equal(some, row + at, now * sizeof *some);
        }
    }
    free(want);
}

static void values(void **state)
{
    (void)state;
    each_case(expands);
}

static size_t differing(const uint8_t *a, const uint8_t *b, size_t n)
{
    size_t d = 0;
    for (size_t i = 0; i < n; i++)
        d += a[i] != b[i];
    return d;
}

/* What the weight was before, coded again by us. */
static void encodes(const char *layer, const struct weights_entry *e)
{
    struct coded c;
    berth_err err = { 0 };
    size_t n, off = 0, codes_n = 0;
    float *from = golden_floats(file, beside(layer, "/from"), &n);
    const struct weights_entry *v = beside(layer, "/values");
    const uint64_t rows = v->shape.dim[0], cols = v->shape.dim[1];
    assert_ok(layout_mapped(file, e, &c, &err), err);
    if (c.how == BLOCKS_STEPS && !c.booked) { /* which we do not write */
        free(from);
        return;
    }
    float *x = calloc((size_t)c.cols, sizeof *x);
    uint8_t codes[4096], blocks[512];
    const size_t bytes = (size_t)(c.cols / dtype_desc(c.type)->elems);
    assert_true(x && bytes <= sizeof codes);
    for (uint64_t r = 0; r < rows; r++) {
        struct coded_row out = { .codes = codes, .blocks = c.how == BLOCKS_NONE ? NULL : blocks };
        memset(x, 0, (size_t)c.cols * sizeof *x);
        memcpy(x, from + r * cols, (size_t)cols * sizeof *x);
        coded_encode(&c, c.rows != NULL, x, &out);
        off += differing(codes, (const uint8_t *)c.codes + r * bytes, bytes);
        codes_n += bytes;
        assert_true(fabsf(out.scale - coded_row_scale(&c, r)) <= 2e-6F * fabsf(out.scale) ||
                    c.how == BLOCKS_STEPS);
        for (uint64_t b = 0; c.how == BLOCKS_TIMES && b < c.cols / c.group; b++)
            assert_int_equal(blocks[b], ((const uint8_t *)c.blocks)[coded_block_at(&c, r, b)]);
    }
    const double may = c.how == BLOCKS_STEPS ? 5 * CODES_OFF : c.turn ? CODES_OFF : 0;
    if ((double)off > may * (double)codes_n)
        fail_msg("%s: %zu of %zu bytes of codes are others", layer, off, codes_n);
    free(x);
    free(from);
}

static void codes(void **state)
{
    (void)state;
    each_case(encodes);
}

/* Opened when memory runs out: all layouts, or none of the file. */
static void opening_survives_failing_allocations(void **state)
{
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (int k = 0; s != BERTH_OK; k++) {
        struct weights *w = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = weights_open(golden_path("quants.safetensors"), NULL, &w, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !w && err.msg[0]));
        size_t layouts = 0;
        for (size_t i = 0; w && i < weights_count(w); i++)
            layouts += weights_at(w, i)->layout != NULL;
        assert_true(!w || layouts == seen);
        weights_close(w);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(values),
        cmocka_unit_test(codes),
        cmocka_unit_test(opening_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
