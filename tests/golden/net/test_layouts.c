/* Products with quantised layers, and rows looked up in them, against ComfyUI's, wherever the
 * layers lie: the same bits in each place. Layers are those of the golden file. */
#include "support/golden_tensors.h"
#include "unit/net/toy_net.h"

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

/* As ComfyUI has them on the cpu: inputs are rounded to 8 bits, too. Of convrot_w4a4 its portable code
 * rounds them to four, which nobody needs. */
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
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
