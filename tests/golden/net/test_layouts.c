/* Products with quantised layers, and rows looked up in them, against ComfyUI's, wherever the
 * layers lie: the same bits in each place. Layers are those of the golden file. */
#include "support/golden_tensors.h"
#include "unit/net/toy_net.h"

#include "merge/adapter.h"

#include <math.h>

#define TOLERANCE 1e-5 /* of the largest result */
#define ROUNDED                                                                                    \
    2e-3 /* where inputs are rounded: rotations differ in last bits, codes then by one */
#define ROWS_MAX 32

static struct weights *file;

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

struct layer { /* of the file */
    char name[64];
    struct shape x, y;
    float *in, *full, *values;
    size_t n, n_values;
};

static float *floats_of(const char *layer, const char *what, struct shape *s, size_t *n)
{
    char name[128];
    snprintf(name, sizeof name, "%s/%s", layer, what);
    const struct weights_entry *e = weights_find(file, name, strlen(name));
    assert_non_null(e);
    *s = e->shape;
    return golden_floats(file, e, n);
}

/* The i-th quantised layer; false: there are not so many. */
static bool layer_at(size_t i, struct layer *l)
{
    static const char end[] = ".comfy_quant";
    for (size_t k = 0; k < weights_count(file); k++) {
        const struct weights_entry *e = weights_at(file, k);
        struct shape s;
        size_t n;
        if (!str_ends(e->name, e->name_len, end) || i--)
            continue;
        snprintf(l->name, sizeof l->name, "%.*s", (int)(e->name_len - strlen(end)), e->name);
        l->in = floats_of(l->name, "x", &l->x, &n);
        l->full = floats_of(l->name, "full", &l->y, &l->n);
        l->values = floats_of(l->name, "values", &s, &l->n_values);
        return true;
    }
    return false;
}

static void layer_free(struct layer *l)
{
    free(l->in);
    free(l->full);
    free(l->values);
}

struct pass {
    const struct layer *l;
    float *out;
};

static void multiply(struct net_run *r, void *user)
{
    const struct pass *p = user;
    struct act x = net_input(r, &p->l->x, p->l->in);
    struct act y = net_linear(r, x, p->l->name);
    net_drop(r, &x);
    net_output(r, y, p->out);
    net_drop(r, &y);
}

static const int32_t ids[] = { 19, 0, 7, 7 };

static void look_up(struct net_run *r, void *user)
{
    const struct pass *p = user;
    struct act y = net_embedding(r, ids, ARRAY_LEN(ids), p->l->name);
    net_output(r, y, p->out);
    net_drop(r, &y);
}

static void near_by(const struct layer *l, const char *what, const float *have, const float *want,
                    size_t n, double tolerance)
{
    double most = 0;
    for (size_t i = 0; i < n; i++)
        most = fabs((double)want[i]) > most ? fabs((double)want[i]) : most;
    for (size_t i = 0; i < n; i++)
        if (!(fabs((double)(have[i] - want[i])) <= tolerance * most))
            fail_msg("%s, %s: %g at %zu, not %g", l->name, what, (double)have[i], i,
                     (double)want[i]);
}

static void near(const struct layer *l, const char *what, const float *have, const float *want,
                 size_t n)
{
    near_by(l, what, have, want, n, TOLERANCE);
}

/* Whether a table has columns that nobody's bias or input could tell are padding. */
static bool is_padded(const struct layer *l)
{
    return strstr(l->name, "odd") != NULL;
}

static void one_layer(struct toy *t, const struct layer *l, float *products)
{
    const uint64_t cols = l->x.dim[l->x.ndim - 1];
    struct pass p = { .l = l, .out = products };
    berth_err err = { 0 };
    assert_ok(net_forward(t->net, multiply, &p, &err), err);
    near(l, "product", products, l->full, l->n);
    if (is_padded(l))
        return;
    float *rows = calloc(ARRAY_LEN(ids) * (size_t)cols, sizeof *rows);
    assert_non_null(rows);
    p.out = rows;
    assert_ok(net_forward(t->net, look_up, &p, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(ids); i++)
        near(l, "row", rows + i * cols, l->values + (size_t)ids[i] * cols, (size_t)cols);
    free(rows);
}

static void products_and_rows(void **state)
{
    static const struct {
        const char *devices, *alloc;
    } place[] = { { "cpu=64m", "cpu,*" },
                  { "cpu=64m,null:0=64m", "null:0,40%;cpu,60%#cpu" },
                  { "cpu=64m,null:0=64m", "null:0,*#cpu" } };
    struct layer l;
    (void)state;
    for (size_t i = 0; layer_at(i, &l); i++) {
        float *first = calloc(l.n, sizeof *first), *other = calloc(l.n, sizeof *other);
        assert_true(first && other);
        for (size_t k = 0; k < ARRAY_LEN(place); k++) {
            struct res_config cfg = { .reserve = 4096 };
            struct toy t = { .m = NULL };
            fixture_open(&t.f, place[k].devices, &cfg);
            toy_load(&t, golden_path("quants.safetensors"), place[k].alloc);
            toy_net(&t);
            one_layer(&t, &l, k ? other : first);
            if (k)
                assert_memory_equal(first, other, l.n * sizeof *first);
            toy_close(&t);
        }
        free(first);
        free(other);
        layer_free(&l);
    }
}

/* ---- adapters: the codes become values of F16, with what an adapter adds ---- */

#define HALF 1e-3 /* a rounding of every weight to F16 */

static float up_at(size_t row)
{
    return 0.25f + (float)(row % 5) / 16;
}

static float down_at(size_t col)
{
    return (float)(col % 7) / 32 - 0.0625f;
}

static bool on_weights(const struct res_adapter *a, const char *key, size_t n)
{
    (void)a;
    return str_ends(key, n, ".weight");
}

static berth_status one_product(const struct res_adapter *a, const char *key, size_t n,
                                const struct shape *s, float strength, struct arena *tmp,
                                struct vec *out, berth_err *err)
{
    struct res_term t = { .kind = TERM_LOWRANK, .rank = 1, .scale = strength };
    (void)a, (void)key, (void)n, (void)err;
    assert_true(merge_matrix(s, &t.rows, &t.cols));
    float *up = arena_array(tmp, (size_t)t.rows, sizeof *up);
    float *down = arena_array(tmp, (size_t)t.cols, sizeof *down);
    assert_true(up && down);
    for (size_t i = 0; i < t.rows; i++)
        up[i] = up_at(i);
    for (size_t i = 0; i < t.cols; i++)
        down[i] = down_at(i);
    t.up = up;
    t.down = down;
    assert_true(vec_push(out, &t));
    return BERTH_OK;
}

static void nothing(struct res_adapter *a)
{
    (void)a;
}

/* Adds x . (strength * up . down)^T to the product without it. */
static void add_change(const struct layer *l, float strength, float *y)
{
    const size_t cols = (size_t)l->x.dim[l->x.ndim - 1], rows = (size_t)l->y.dim[l->y.ndim - 1];
    for (size_t i = 0; i < l->n; i++) {
        double sum = 0;
        for (size_t c = 0; c < cols; c++)
            sum += (double)l->in[i / rows * cols + c] * (double)down_at(c);
        y[i] += (float)(sum * (double)strength * (double)up_at(i % rows));
    }
}

static void adapters_in_codes(void **state)
{
    static const char *const place[][2] = { { "cpu=64m", "cpu,*" },
                                            { "cpu=64m,null:0=64m", "null:0,*#cpu" } };
    static const struct res_adapter_ops ops = { on_weights, one_product, nothing };
    struct res_adapter a = { .ops = &ops, .id = 5, .name = "one" };
    const struct res_patch patch = { &a, 0.5f };
    struct layer l;
    size_t tried = 0;
    (void)state;
    atomic_init(&a.refs, 1);
    for (size_t i = 0; layer_at(i, &l); i++) {
        char pre[128];
        snprintf(pre, sizeof pre, "%s.pre_quant_scale", l.name);
        for (size_t k = 0; k < ARRAY_LEN(place) && !is_padded(&l) && /* nobody could tell whose */
                           !weights_find(file, pre, strlen(pre));
             k++, tried++) {
            struct toy t = { .m = NULL };
            float *out = calloc(l.n, sizeof *out), *want = malloc(l.n * sizeof *want);
            struct pass p = { .l = &l, .out = out };
            berth_err err = { 0 };
            assert_true(out && want);
            memcpy(want, l.full, l.n * sizeof *want);
            add_change(&l, patch.strength, want);
            fixture_open(&t.f, place[k][0], NULL);
            toy_load(&t, golden_path("quants.safetensors"), place[k][1]);
            assert_ok(res_set_patches(t.m, &patch, 1, &err), err);
            assert_ok(res_load(t.m, NULL, NULL, &err), err);
            toy_net(&t);
            assert_ok(net_forward(t.net, multiply, &p, &err), err);
            if (strncmp(l.name, "fp8", 3) != 0) /* those are rounded by chance */
                near_by(&l, "product with an adapter", out, want, l.n, HALF);
            fixture_check(&t.f);
            toy_close(&t);
            free(out);
            free(want);
        }
        layer_free(&l);
    }
    assert_true(tried >= 12);
}

/* As ComfyUI has them on the cpu: inputs are rounded to 8 bits, too. Of convrot_w4a4 its portable
 * code rounds them to four, which nobody needs. */
static void products_of_whole_numbers(void **state)
{
    struct layer l;
    size_t tried = 0;
    (void)state;
    for (size_t i = 0; layer_at(i, &l); i++) {
        char name[128];
        snprintf(name, sizeof name, "%s/native", l.name);
        const struct weights_entry *e = weights_find(file, name, strlen(name));
        for (int k = 0; e && k < 2 && !strstr(l.name, "w4a4"); k++) {
            struct toy t = { .m = NULL };
            size_t n;
            float *want = golden_floats(file, e, &n), *got = calloc(n, sizeof *got);
            struct pass p = { .l = &l, .out = got };
            berth_err err = { 0 };
            assert_true(got && n == l.n);
            fixture_open(&t.f, "cpu=64m", NULL);
            toy_load(&t, golden_path("quants.safetensors"), "cpu,*");
            t.args.int8 = k;
            toy_net(&t);
            assert_ok(net_forward(t.net, multiply, &p, &err), err);
            if (k)
                near_by(&l, "product of whole numbers", got, want, n, ROUNDED);
            else /* the other one is not just as near */
                assert_true(memcmp(got, want, n * sizeof *got) != 0);
            tried += (size_t)k;
            toy_close(&t);
            free(want);
            free(got);
        }
        layer_free(&l);
    }
    assert_true(tried >= 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(products_and_rows),
        cmocka_unit_test(products_of_whole_numbers),
        cmocka_unit_test(adapters_in_codes),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
