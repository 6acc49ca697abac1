/* Recorded passes on the fake card, whose kernels run on the host: the same bits as launched one by
 * one, other passes than the recorded one are noticed, and what cannot be recorded is not. */
#define FIXTURE_FAKE_CARDS
#include "net/net_impl.h"
#include "support/cuda_simt/plug.h"
#include "unit/net/toy_net.h"

#define LAYERS 5
#define ROWS 20 /* more than kernels of ours multiply where the library can */

static const struct toy_tensor tensors[] = {
    { "l0.weight", { 2, { TOY_C, TOY_C } } }, { "l0.bias", { 1, { TOY_C } } },
    { "l1.weight", { 2, { TOY_C, TOY_C } } }, { "l1.bias", { 1, { TOY_C } } },
    { "l2.weight", { 2, { TOY_C, TOY_C } } }, { "l2.bias", { 1, { TOY_C } } },
    { "l3.weight", { 2, { TOY_C, TOY_C } } }, { "l3.bias", { 1, { TOY_C } } },
    { "l4.weight", { 2, { TOY_C, TOY_C } } }, { "l4.bias", { 1, { TOY_C } } },
};

struct rig {
    struct toy t;
    struct plugged on;
};

static void ignore_failure(void *stream)
{
    CUresult (*sync)(CUstream s);
    fake_symbol(BERTH_FAKE_CUDA, "cuStreamSynchronize", &sync);
    (void)sync(stream);
}

/* All weights are in RAM. A run for each block, and two slots: each layer waits for its own. */
static void rig_open(struct rig *r, enum fake_refuses refuses)
{
    struct dev_stream *s;
    berth_err err = { 0 };
    *r = (struct rig) { .t.net = NULL };
    fixture_open(&r->t.f, "cpu=64m,cuda:0=64m", NULL);
    r->on = plug_kernels(refuses, ignore_failure);
    struct device *d = device_named(r->t.f.set, "cuda:0");
    assert_ok(dev_stream_new(d, &s, &err), err);
    plug_no_dnn(&(struct op_env) { .backend = op_backend_for(d), .stream = s });
    dev_stream_free(s);
    struct toy_file file = {
        .weight = DT_F32, .param = DT_F32, .tensor = tensors, .n = ARRAY_LEN(tensors)
    };
    toy_load(&r->t, toy_write(file), "cuda:0,0kb;cpu,*#cuda:0");
    toy_net(&r->t);
    stream_close(r->t.net->stream);
    r->t.net->ring = 1;
    assert_ok(net_stream_open(r->t.net, &err), err);
}

static void rig_close(struct rig *r)
{
    net_close(r->t.net);
    assert_int_equal(r->on.card->graphs, 0);
    res_unref(r->t.m);
    fixture_close(&r->t.f);
}

struct in {
    float x[ROWS * TOY_C], out[ROWS * TOY_C];
    enum op_unary_kind kind; /* of the last layer: a call with the same operands */
};

static void forward(struct net_run *r, void *user)
{
    struct in *in = user;
    struct act x = net_input(r, &(struct shape) { 2, { ROWS, TOY_C } }, in->x);
    for (int i = 0; i < LAYERS; i++) {
        char name[8];
        snprintf(name, sizeof name, "l%d", i);
        struct act y = net_linear(r, x, name);
        net_drop(r, &x);
        net_unary(r, &y, i == LAYERS - 1 ? in->kind : OP_SILU);
        x = y;
    }
    net_output(r, x, in->out);
    net_drop(r, &x);
}

static struct in input(unsigned seed, enum op_unary_kind kind)
{
    struct in in = { .kind = kind };
    for (size_t i = 0; i < ARRAY_LEN(in.x); i++)
        in.x[i] = (float)((seed * 31 + i * 7) % 23) / 11 - 1;
    return in;
}

static struct in pass(struct rig *r, unsigned seed, enum op_unary_kind kind)
{
    struct in in = input(seed, kind);
    berth_err err = { 0 };
    assert_ok(net_forward(r->t.net, forward, &in, &err), err);
    return in;
}

/* What a pass gives that launches its kernels one by one. */
static struct in plainly(struct rig *r, unsigned seed, enum op_unary_kind kind)
{
    r->t.net->seen.steady = false;
    return pass(r, seed, kind);
}

static void assert_same(const struct in *a, const struct in *b)
{
    assert_memory_equal(a->out, b->out, sizeof a->out);
}

/* Two passes are run dry, the third records. */
static void record(struct rig *r)
{
    (void)plainly(r, 0, OP_SILU);
    (void)plainly(r, 0, OP_SILU);
    (void)pass(r, 0, OP_SILU);
    assert_true(r->t.net->replay.whole);
}

static void passes_are_recorded_and_played(void **state)
{
    struct rig r;
    struct in want[8], got;
    (void)state;
    rig_open(&r, FAKE_REFUSES_ALL);
    for (unsigned i = 0; i < ARRAY_LEN(want); i++)
        want[i] = plainly(&r, i, OP_SILU);
    assert_int_equal(r.on.card->graph_launches, 0);
    assert_true(memcmp(want[0].out, want[1].out, sizeof want[0].out) != 0);
    for (unsigned i = 0; i < ARRAY_LEN(want); i++) {
        got = pass(&r, i, OP_SILU);
        assert_same(&got, &want[i]);
    }
    struct net_report rep = net_report(r.t.net);
    assert_int_equal(rep.replayed, ARRAY_LEN(want) - 1); /* the first was recorded */
    assert_int_equal(r.t.net->replay.recordings, 1);
    /* A graph ends where a layer waits for its block and where a block has been read. */
    assert_true(r.on.card->graph_launches >= (long)(LAYERS * (ARRAY_LEN(want) - 1)));
    assert_int_equal(rep.stream.out_of_order, 0);
    rig_close(&r);
}

/* The same operands, another function of them. */
static void another_pass_is_noticed(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, FAKE_REFUSES_ALL);
    struct in want = plainly(&r, 7, OP_GELU);
    record(&r);
    struct in got = pass(&r, 7, OP_GELU);
    assert_same(&got, &want);
    assert_int_equal(net_report(r.t.net).replayed, 0);
    (void)pass(&r, 7, OP_GELU);
    (void)pass(&r, 7, OP_GELU);
    got = pass(&r, 7, OP_GELU);
    assert_same(&got, &want);
    assert_true(net_report(r.t.net).replayed > 0);
    rig_close(&r);
}

static void another_place_is_recorded_anew(void **state)
{
    struct rig r;
    struct dev_mem hole = { 0 };
    berth_err err = { 0 };
    (void)state;
    rig_open(&r, FAKE_REFUSES_ALL);
    struct in want = plainly(&r, 5, OP_SILU);
    record(&r);
    uint64_t before = r.t.net->replay.slab;
    assert_ok(dev_alloc(r.t.net->compute, r.t.net->owner, (size_t)r.t.net->seen.peak, &hole, &err),
              err);
    assert_true(hole.addr == before); /* where the slab would have been */
    struct in got = pass(&r, 5, OP_SILU);
    assert_same(&got, &want);
    assert_true(r.t.net->replay.whole && r.t.net->replay.slab != before);
    assert_int_equal(r.t.net->replay.recordings, 2);
    dev_free(&hole);
    for (int i = 0; i < 8; i++) { /* and no more often than a few times */
        if (i % 2)
            assert_ok(dev_alloc(r.t.net->compute, r.t.net->owner, (size_t)r.t.net->seen.peak, &hole,
                                &err),
                      err);
        got = pass(&r, 5, OP_SILU);
        assert_same(&got, &want);
        dev_free(&hole);
    }
    assert_int_equal(r.t.net->replay.recordings, 4);
    rig_close(&r);
}

/* The stand-in computes at once and waits for what is queued: that spoils a recording. */
static void what_waits_is_not_recorded(void **state)
{
    struct rig r;
    (void)state;
    rig_open(&r, FAKE_REFUSES_NOTHING);
    struct in want = plainly(&r, 3, OP_SILU), got;
    for (int i = 0; i < 6; i++) {
        got = pass(&r, 3, OP_SILU);
        assert_same(&got, &want);
    }
    assert_true(!r.t.net->replay.whole);
    assert_int_equal(net_report(r.t.net).replayed, 0);
    rig_close(&r);
}

/* Whichever call fails, and whenever: the pass is right, or says which it was. */
static void calls_that_fail(void **state)
{
    static const char *const calls[] = { "cuStreamBeginCapture", "cuStreamEndCapture",
                                         "cuGraphInstantiateWithFlags", "cuGraphLaunch",
                                         "cuLaunchKernel" };
    (void)state;
    for (size_t c = 0; c < ARRAY_LEN(calls); c++)
        for (long k = 1; k <= 12; k++) {
            struct rig r;
            rig_open(&r, FAKE_REFUSES_ALL);
            struct in want = plainly(&r, 2, OP_SILU), got;
            (void)plainly(&r, 2, OP_SILU);
            r.on.card->fail_name = calls[c];
            r.on.card->fail_at = k;
            r.on.card->fail_with = CUDA_ERROR_OUT_OF_MEMORY;
            for (int i = 0; i < 5; i++) {
                got = pass(&r, 2, OP_SILU);
                assert_same(&got, &want);
            }
            assert_true(r.on.card->fail_at == 0 || k > LAYERS || c == 0);
            r.on.card->fail_at = 0;
            got = pass(&r, 2, OP_SILU);
            assert_same(&got, &want);
            rig_close(&r);
        }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(passes_are_recorded_and_played),
        cmocka_unit_test(another_pass_is_noticed),
        cmocka_unit_test(another_place_is_recorded_anew),
        cmocka_unit_test(what_waits_is_not_recorded),
        cmocka_unit_test(calls_that_fail),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
