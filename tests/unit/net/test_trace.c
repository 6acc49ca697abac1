/* Traces: what a pass would do, from a file's header alone. */
#include "net/net.h"
#include "support/test.h"
#include "support/tmp.h"

#define M(...)                                                                                     \
    {                                                                                              \
        2,                                                                                         \
        {                                                                                          \
            __VA_ARGS__                                                                            \
        }                                                                                          \
    }
#define V(n)                                                                                       \
    {                                                                                              \
        1,                                                                                         \
        {                                                                                          \
            n                                                                                      \
        }                                                                                          \
    }

/* As files have them: in no order, and with tensors that no layer asks for. */
static const struct weights_spec spec[] = {
    { "net.last.bias", DT_F16, V(4) },
    { "net.last.weight", DT_F16, M(4, 64) },
    { "net.stacked.weight", DT_F32, M(128, 64) },
    { "net.stacked.bias", DT_F32, V(128) },
    { "net.table.weight", DT_BF16, M(100, 64) },
    { "net.norm.weight", DT_F32, V(64) },
    { "net.norm.bias", DT_F32, V(64) },
    { "net.position_ids", DT_I64, V(77) },
    { "elsewhere.last.weight", DT_F32, M(4, 4) },
};

static berth_status zeros(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

static struct weights *open_file(void)
{
    const char *path = tmp_path("trace.safetensors");
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = ARRAY_LEN(spec), .fill = zeros
    };
    struct weights *w;
    berth_err err;
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    return w;
}

/* The middle layer is the second half of a stacked one. */
static bool names(const void *user, const char *canonical, struct net_source *out)
{
    assert_string_equal(user, "mine");
    *out = (struct net_source) { .row = 64, .rows = 64 };
    if (strncmp(canonical, "middle.", 7) != 0)
        return false;
    snprintf(out->name, sizeof out->name, "stacked.%s", canonical + 7);
    return true;
}

static void forward(struct net_run *r, void *user)
{
    struct act x = net_embedding(r, NULL, 32, "table"), n, y;
    n = net_layer_norm(r, x, "norm", 1e-5f);
    y = net_linear(r, n, "middle");
    net_add(r, &y, x);
    net_unary(r, &y, OP_SILU);
    if (user)
        net_linear(r, y, user);
    net_linear(r, y, "last");
}

static const struct block_use *use_of(const struct weights *w, const struct block_trace *t,
                                      const char *name)
{
    const struct weights_entry *e = weights_find(w, name, strlen(name));
    assert_non_null(e);
    return &t->use[e - weights_at(w, 0)];
}

static berth_status trace(const struct weights *w, char *missing, struct block_trace *t,
                          berth_err *err)
{
    struct net *net;
    uint64_t peak;
    const struct net_trace_args args = {
        .w = w, .root = "net.", .names = names, .names_user = "mine", .out = t
    };
    assert_ok(net_trace_open(&args, &net, err), *err);
    berth_status s = net_predict(net, forward, missing, &peak, err);
    net_close(net);
    return s;
}

static void order_lookups_and_costs(void **state)
{
    struct block_use use[ARRAY_LEN(spec)] = { 0 };
    struct block_trace t = { .use = use };
    struct weights *w = open_file();
    berth_err err;
    (void)state;
    assert_ok(trace(w, NULL, &t, &err), err);
    const struct block_use *table = use_of(w, &t, "net.table.weight");
    const struct block_use *norm = use_of(w, &t, "net.norm.weight");
    const struct block_use *middle = use_of(w, &t, "net.stacked.weight");
    const struct block_use *last = use_of(w, &t, "net.last.weight");
    assert_true(0 < table->when && table->when < norm->when && norm->when < middle->when &&
                middle->when < last->when && last->when <= t.turns);
    assert_true(use_of(w, &t, "net.stacked.bias")->when > middle->when);
    assert_true(table->lookup && !norm->lookup && !middle->lookup && !last->lookup);
    assert_true(table->work && norm->work && middle->work);
    assert_true(last->work > 2 * norm->work); /* with the ops that have no weight before it */
    assert_int_equal(use_of(w, &t, "net.position_ids")->when, 0);
    assert_int_equal(use_of(w, &t, "elsewhere.last.weight")->when, 0);

    /* A second pass of the same network goes on behind the first, and moves nothing. */
    struct block_use before = *middle;
    uint64_t turns = t.turns;
    assert_ok(trace(w, NULL, &t, &err), err);
    assert_true(middle->when == before.when && middle->work == 2 * before.work && t.turns == turns);
    weights_close(w);
}

/* What a pass came to before it failed is known. */
static void a_pass_that_fails(void **state)
{
    struct block_use use[ARRAY_LEN(spec)] = { 0 };
    struct block_trace t = { .use = use };
    struct weights *w = open_file();
    char missing[] = "missing";
    berth_err err;
    (void)state;
    assert_fails(trace(w, missing, &t, &err), err, BERTH_ENOTFOUND, "net.missing.weight");
    assert_true(use_of(w, &t, "net.stacked.weight")->when > 0);
    assert_int_equal(use_of(w, &t, "net.last.weight")->when, 0);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(order_lookups_and_costs),
        cmocka_unit_test(a_pass_that_fails),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
