/* The stage: what goes through its buffers arrives, whole and in order, with threads or without. */
#include "stream/stage.h"
#include "support/devices.h"
#include "support/oom.h"

enum { PIECES = 3, PIECE = 100, ROUNDS = 40 };

struct rig {
    struct devset *set;
    struct device *dev;
    struct dev_owner *pins, *weights;
    struct dev_stream *s;
    struct dev_mem mem; /* ROUNDS * PIECES * PIECE */
    struct stage stage;
    size_t round_of[STAGE_BUFS_MAX]; /* by buffer: what it holds */
    size_t sent;
    bool skip; /* odd rounds are thrown away */
};

static unsigned char byte_of(size_t round, size_t i)
{
    return (unsigned char)(round * 7 + i);
}

static void fill(void *user, unsigned buf, size_t piece)
{
    struct rig *g = user;
    for (size_t i = piece * PIECE; i < (piece + 1) * PIECE; i++)
        stage_at(&g->stage, buf)[i] = (char)byte_of(g->round_of[buf], i);
}

static berth_status send(void *user, unsigned buf, berth_err *err)
{
    struct rig *g = user;
    size_t round = g->round_of[buf];
    assert_int_equal(round, g->sent++); /* in the order they were posted */
    if (g->skip && round % 2)
        return BERTH_OK;
    if (dev_copy_h2d(g->s, g->mem.addr + round * PIECES * PIECE, stage_at(&g->stage, buf),
                     (size_t)PIECES * PIECE, err))
        return err->code;
    return stage_mark(&g->stage, buf, g->s, err);
}

static const struct stage_ops ops = { .fill = fill, .send = send };

static void rig_open(struct rig *g, struct null_config *null)
{
    *g = (struct rig) { 0 };
    struct dev_env env = { .null = null };
    g->set = open_devices("null:0=1m,cpu=4m", &env);
    g->dev = devset_at(g->set, 0);
    g->pins = owner_of(g->dev, "stage", DEV_PINNED);
    g->weights = owner_of(g->dev, "weights", DEV_WEIGHTS);
    g->mem = alloc_on(g->dev, g->weights, (size_t)ROUNDS * PIECES * PIECE);
    g->s = stream_of(g->dev);
}

static void rig_close(struct rig *g)
{
    berth_err err = { 0 };
    assert_ok(dev_stream_sync(g->s, &err), err);
    stage_close(&g->stage);
    if (null_hazards(g->dev))
        fail_msg("%s", null_last_hazard(g->dev));
    dev_free(&g->mem);
    dev_stream_free(g->s);
    dev_owner_close(g->pins);
    dev_owner_close(g->weights);
    assert_int_equal(stats_of(g->dev).in_use, 0);
    devset_close(g->set);
}

static berth_status open_stage(struct rig *g, unsigned bufs, unsigned threads, berth_err *err)
{
    return stage_open(&g->stage,
                      &(struct stage_args) { .dev = g->dev,
                                             .owner = g->pins,
                                             .bytes = (size_t)PIECES * PIECE,
                                             .bufs = bufs,
                                             .threads = threads,
                                             .ops = &ops,
                                             .user = g },
                      err);
}

static berth_status run(struct rig *g, berth_err *err)
{
    for (size_t round = 0; round < ROUNDS;) {
        unsigned buf;
        if (stage_pump(&g->stage, err))
            return err->code;
        bool wait = round % 3 == 0 || g->stage.sent == g->stage.posted;
        if (stage_take(&g->stage, wait, &buf, err))
            return err->code;
        if (buf == STAGE_NONE) {
            stage_wait(&g->stage);
            continue;
        }
        g->round_of[buf] = round++;
        dev_host_access(g->dev, stage_at(&g->stage, buf), (size_t)PIECES * PIECE, DEV_WRITE);
        stage_post(&g->stage, PIECES);
    }
    return stage_drain(&g->stage, err);
}

static void everything_arrives(void **state)
{
    (void)state;
    static unsigned char got[ROUNDS * PIECES * PIECE];
    for (unsigned threads = 0; threads < 4; threads++)
        for (unsigned bufs = 1; bufs < 5; bufs++)
            for (int skip = 0; skip < 2; skip++) {
                struct null_config null = { .seed = bufs, .lazy = false };
                struct rig g;
                berth_err err = { 0 };
                rig_open(&g, &null);
                g.skip = skip;
                assert_ok(open_stage(&g, bufs, threads, &err), err);
                assert_ok(run(&g, &err), err);
                assert_int_equal(g.sent, ROUNDS);
                for (size_t r = 0; r < ROUNDS; r += 1 + (size_t)skip) {
                    const size_t n = (size_t)PIECES * PIECE;
                    assert_ok(dev_copy_d2h(g.s, got + r * n, g.mem.addr + r * n, n, &err), err);
                }
                assert_ok(dev_stream_sync(g.s, &err), err);
                for (size_t r = 0; r < ROUNDS; r += 1 + (size_t)skip)
                    for (size_t i = 0; i < PIECES * PIECE; i++)
                        assert_int_equal(got[r * PIECES * PIECE + i], byte_of(r, i));
                dev_host_gone(g.dev->phys, got, sizeof got);
                rig_close(&g);
            }
}

/* What was posted and will not be sent is filled and forgotten: its buffers serve again. */
static void a_reset_forgets(void **state)
{
    (void)state;
    struct null_config null = { .seed = 3, .lazy = true };
    struct rig g;
    berth_err err = { 0 };
    unsigned buf;
    rig_open(&g, &null);
    assert_ok(open_stage(&g, 2, 1, &err), err);
    for (size_t i = 0; i < 2; i++) {
        assert_ok(stage_take(&g.stage, true, &buf, &err), err);
        g.round_of[buf] = 0;
        stage_post(&g.stage, PIECES);
    }
    assert_ok(stage_take(&g.stage, true, &buf, &err), err);
    assert_int_equal(buf, STAGE_NONE);
    stage_reset(&g.stage);
    assert_int_equal(g.sent, 0);
    assert_ok(run(&g, &err), err);
    assert_int_equal(g.sent, ROUNDS);
    rig_close(&g);
}

static void a_fault_at_every_call(void **state)
{
    (void)state;
    bool more = true;
    uint64_t failed = 0;
    for (uint64_t k = 1; more; k++) {
        struct null_config null = { .seed = 1, .lazy = false };
        struct rig g;
        berth_err err = { 0 }, ignored;
        rig_open(&g, &null);
        uint64_t before = null_calls(g.dev, NULL_ANY);
        null_fail(g.dev, NULL_ANY, k);
        berth_status s = open_stage(&g, 2, 2, &err);
        s = s ? s : run(&g, &err);
        null_fail(g.dev, NULL_ANY, 0);
        more = null_calls(g.dev, NULL_ANY) - before >= k;
        failed += s != BERTH_OK;
        (void)dev_stream_sync(g.s, &ignored);
        rig_close(&g);
    }
    assert_true(failed > 40);
}

static void survives_oom(void **state)
{
    (void)state;
    struct null_config null = { .seed = 1 };
    struct rig g;
    berth_err err = { 0 };
    bool done = false;
    rig_open(&g, &null);
    for (long k = 0; !done; k++) {
        oom_after(k);
        berth_status s = open_stage(&g, 3, 2, &err);
        oom_off();
        done = s == BERTH_OK;
        if (!done)
            assert_int_equal(s, BERTH_ENOMEM);
        stage_close(&g.stage);
        assert_int_equal(stats_of(g.dev).pinned, 0);
    }
    rig_close(&g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(everything_arrives),
        cmocka_unit_test(a_reset_forgets),
        cmocka_unit_test(a_fault_at_every_call),
        cmocka_unit_test(survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
