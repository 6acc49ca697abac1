/* The same network over the same weights gives the same bits wherever they lie. */
#include "toy_net.h"

#include "merge/adapter.h"

struct place {
    const char *devices, *alloc;
    bool streams; /* some blocks are of memory the host cannot touch */
};

static const struct place places[] = {
    { "cpu=64m", "cpu,*", false },
    { "cuda:0@cpu=32m,cpu=64m", "cuda:0,*#cuda:0", false },
    { "cuda:0@cpu=32m,cuda:1@cpu=32m,cpu=64m", "cuda:0,20%;cuda:1,40%;cpu,40%#cuda:0", false },
    { "cuda:0@cpu=32m,cuda:1@cpu=32m,cpu=64m", "cuda:1,10%;cpu,90%#cuda:1", false },
    { "cpu=64m,null:0=32m", "null:0,60%;cpu,40%#cpu", true },
    { "cpu=64m,null:0=32m,null:1=32m", "null:1,50%;null:0,50%#cpu", true },
};

static const enum dtype types[] = { DT_F32, DT_F16, DT_BF16, DT_F8_E4M3, DT_Q8_0, DT_Q4_K };

/* The toy's rows are no whole blocks of Q4_K; its types are in another file. */
static bool fits(enum dtype t)
{
    return dtype_desc(t)->elems <= TOY_C;
}

static void addresses(struct res_model *m, uint64_t *addr)
{
    for (size_t i = 0; i < res_blocks(m)->n; i++) {
        struct res_block_at at;
        berth_err err = { 0 };
        assert_ok(res_block_at(m, i, &at, &err), err);
        addr[i] = at.addr;
    }
}

static void same_bits(const float *a, const float *b, const char *what)
{
    if (memcmp(a, b, TOY_OUT * sizeof *a) != 0)
        fail_msg("%s: not the same bits", what);
}

static void every_placement_gives_the_same_bits(void **state)
{
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        float first[TOY_OUT] = { 0 };
        if (!fits(types[k]))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
            struct toy t;
            float out[TOY_OUT];
            uint64_t before[64], after[64];
            toy_open(&t, places[i].devices, places[i].alloc,
                     (struct toy_file) { .weight = types[k],
                                         .param = dtype_is_quant(types[k]) ? DT_F32 : types[k] });
            uint64_t moved = res_info(t.m).moved;
            assert_true(res_blocks(t.m)->n <= ARRAY_LEN(before));
            addresses(t.m, before);
            for (int pass = 0; pass < 3; pass++) {
                memset(out, 0, sizeof out);
                toy_pass(&t, out);
                if (i == 0 && pass == 0)
                    memcpy(first, out, sizeof first);
                same_bits(first, out, places[i].alloc);
            }
            struct net_report rep = net_report(t.net);
            assert_int_equal(rep.passes, 3);
            assert_int_equal(rep.predicted, rep.peak);
            assert_int_equal(rep.rungs, 0);
            assert_int_equal(rep.stream.bytes > 0, places[i].streams);
            addresses(t.m, after);
            assert_memory_equal(before, after, res_blocks(t.m)->n * sizeof *before);
            assert_int_equal(res_info(t.m).moved, moved);
            toy_close(&t);
        }
    }
}

static void predictions_are_the_same_on_every_placement(void **state)
{
    uint64_t first = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(places); i++) {
        struct toy t;
        struct toy_in in = { TOY_N, TOY_H, TOY_W, NULL, NULL };
        uint64_t peak;
        berth_err err = { 0 };
        toy_open(&t, places[i].devices, places[i].alloc, (struct toy_file) { .weight = DT_F16 });
        assert_ok(net_predict(t.net, toy_forward, &in, &peak, &err), err);
        first = first ? first : peak;
        assert_int_equal(peak, first);
        toy_close(&t);
    }
}

/* ---- adapters ---- */

static bool touches(const struct res_adapter *a, const char *key, size_t n)
{
    (void)a, (void)n;
    return strstr(key, ".weight") && !strstr(key, "norm") && !strstr(key, "scale");
}

static berth_status terms(const struct res_adapter *a, const char *key, size_t n,
                          const struct shape *shape, float strength, struct arena *tmp,
                          struct vec *out, berth_err *err)
{
    uint64_t rows, cols;
    (void)a, (void)key, (void)n, (void)err;
    assert_true(merge_matrix(shape, &rows, &cols));
    float *dense = arena_array(tmp, rows * cols, sizeof *dense);
    struct res_term *t = vec_add(out);
    assert_true(dense && t);
    for (uint64_t i = 0; i < rows * cols; i++)
        dense[i] = (float)(int)(i % 5 - 2) / 32;
    *t = (struct res_term) {
        .kind = TERM_ADD, .rows = rows, .cols = cols, .scale = strength, .dense = dense
    };
    return BERTH_OK;
}

static void keep(struct res_adapter *a)
{
    (void)a;
}

static void patched_blocks_too(void **state)
{
    static const struct res_adapter_ops ops = { touches, terms, keep };
    (void)state;
    for (size_t k = 0; k < ARRAY_LEN(types); k++) {
        float first[TOY_OUT] = { 0 };
        if (!fits(types[k]))
            continue;
        for (size_t i = 0; i < ARRAY_LEN(places); i++) {
            struct res_adapter a = { .ops = &ops, .id = 5, .name = "toy" };
            const struct res_patch p = { .adapter = &a, .strength = 0.5f };
            struct toy t;
            float base[TOY_OUT], out[TOY_OUT];
            berth_err err = { 0 };
            atomic_init(&a.refs, 1);
            toy_open(&t, places[i].devices, places[i].alloc,
                     (struct toy_file) { .weight = types[k], .param = DT_F32 });
            toy_pass(&t, base);
            net_close(t.net);
            t.net = NULL;
            assert_ok(res_set_patches(t.m, &p, 1, &err), err);
            assert_ok(res_load(t.m, NULL, NULL, &err), err);
            toy_net(&t);
            toy_pass(&t, out);
            if (i == 0)
                memcpy(first, out, sizeof first);
            same_bits(first, out, places[i].alloc);
            assert_memory_not_equal(base, out, sizeof out);
            toy_close(&t);
        }
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_placement_gives_the_same_bits),
        cmocka_unit_test(predictions_are_the_same_on_every_placement),
        cmocka_unit_test(patched_blocks_too),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
