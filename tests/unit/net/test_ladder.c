/* No room for a pass: each rung of the ladder, taken in the middle of many passes; the same bits on
 * every one, nothing lost, and an error that says it all where there is no rung left. */
#include "toy_net.h"

#include "net/net_impl.h"
#include "support/oom.h"

#define H 24
#define W 16
#define OUT (TOY_N * TOY_IN * H * W)
#define BALLAST 16 /* blocks of 256 KiB that no layer reads, behind the others */

static const struct toy_tensor *ballasted(size_t *n)
{
    static const struct toy_tensor ff[] = { { "ff.up.weight", { 2, { 8 * TOY_C, TOY_C } } },
                                            { "ff.up.bias", { 1, { 8 * TOY_C } } },
                                            { "ff.down.weight", { 2, { TOY_C, 4 * TOY_C } } },
                                            { "ff.down.bias", { 1, { TOY_C } } } };
    enum { OWN = ARRAY_LEN(toy_tensors) + ARRAY_LEN(ff) };
    static struct toy_tensor all[OWN + BALLAST];
    static char name[BALLAST][32];
    memcpy(all, toy_tensors, sizeof toy_tensors);
    memcpy(all + ARRAY_LEN(toy_tensors), ff, sizeof ff);
    for (size_t i = 0; i < BALLAST; i++) {
        snprintf(name[i], sizeof name[i], "z.%zu.weight", i);
        all[OWN + i] = (struct toy_tensor) { name[i], { 2, { 256, 256 } } }; /* in F32 */
    }
    *n = ARRAY_LEN(all);
    return all;
}

struct ladder {
    struct toy t;
    struct log log;
    char said[4096]; /* lines of net.* */
    float x[OUT], want[OUT];
    struct dev_owner *hog_owner;
    struct dev_mem hog;
};

static void listen(void *user, enum log_level level, uint64_t wall, const char *event,
                   const char *text)
{
    struct ladder *l = user;
    size_t n = strlen(l->said);
    (void)level, (void)wall;
    if (strncmp(event, "net.", 4) == 0)
        snprintf(l->said + n, sizeof l->said - n, "%s %s\n", event, text);
}

static void ladder_open_file(struct ladder *l, const char *devices, const char *alloc,
                             const struct toy_tensor *all, size_t n)
{
    memset(l, 0, sizeof *l);
    toy_open(&l->t, devices, alloc,
             (struct toy_file) {
                 .name = "heavy", .weight = DT_F32, .param = DT_F32, .tensor = all, .n = n });
    net_close(l->t.net);
    l->log = (struct log) { .level = LOG_DEBUG, .write = listen, .user = l };
    l->t.args.log = &l->log;
    toy_net(&l->t);
    toy_input(l->x, OUT);
}

static void ladder_open(struct ladder *l, const char *devices, const char *alloc)
{
    size_t n;
    const struct toy_tensor *all = ballasted(&n);
    ladder_open_file(l, devices, alloc, all, n);
}

static void ladder_close(struct ladder *l)
{
    dev_free(&l->hog);
    dev_owner_close(l->hog_owner);
    toy_close(&l->t);
}

static berth_status try_pass(struct ladder *l, float *out, berth_err *err)
{
    struct toy_in in = { TOY_N, H, W, l->x, out };
    memset(out, 0, OUT * sizeof *out);
    return net_forward(l->t.net, toy_forward, &in, err);
}

/* A pass that must give what the first one did. */
static void pass(struct ladder *l)
{
    static float out[OUT];
    berth_err err = { 0 };
    assert_ok(try_pass(l, out, &err), err);
    if (net_report(l->t.net).passes == 1)
        memcpy(l->want, out, sizeof l->want);
    if (memcmp(l->want, out, sizeof out) != 0)
        fail_msg("pass %llu: not the same bits", (unsigned long long)net_report(l->t.net).passes);
    struct net_report rep = net_report(l->t.net);
    assert_int_equal(rep.predicted, rep.peak);
    fixture_check(&l->t.f);
}

/* Takes all but `leave` bytes of what is left of the device. */
static void hog(struct ladder *l, const char *device, uint64_t leave)
{
    struct device *d = device_named(l->t.f.set, device);
    dev_free(&l->hog);
    struct dev_stats s = stats_of(d);
    berth_err err = { 0 };
    uint64_t left = d->budget - s.in_use - s.pinned;
    assert_true(left > leave);
    if (!l->hog_owner)
        l->hog_owner = owner_of(d, "hog", DEV_ACTIVATIONS);
    assert_ok(dev_alloc(d, l->hog_owner, (size_t)(left - leave) & ~(size_t)4095, &l->hog, &err),
              err);
}

static uint64_t peak_of(struct ladder *l)
{
    struct toy_in in = { TOY_N, H, W, NULL, NULL };
    uint64_t peak;
    berth_err err = { 0 };
    assert_ok(net_predict(l->t.net, toy_forward, &in, &peak, &err), err);
    return peak;
}

/* ---- rung 1 ---- */

static void other_models_make_room(void **state)
{
    struct ladder l;
    struct res_model *other;
    berth_err err = { 0 };
    (void)state;
    ladder_open(&l, "cuda:0@cpu=8m,cpu=64m", "cuda:0,*#cuda:0");
    pass(&l);
    struct res_open_args open = { .path = model_file("other", 12, 256 << 10),
                                  .plan = { .alloc = "cuda:0,*#cuda:0" } };
    assert_ok(res_open(l.t.f.r, &open, &other, NULL, &err), err);
    assert_ok(res_load(other, NULL, NULL, &err), err);
    hog(&l, "cuda:0", peak_of(&l) / 2);
    pass(&l);
    assert_int_equal(net_report(l.t.net).rungs, 0); /* res_alloc()'s own */
    assert_true(res_info(other).demoted > 0);
    assert_int_equal(res_info(l.t.m).demoted, 0);
    res_unref(other);
    ladder_close(&l);
}

/* A ring that took more than it needs gives that back before anybody goes. */
static void a_large_ring_makes_room_first(void **state)
{
    enum { LARGE = 5, OWN = ARRAY_LEN(toy_tensors) };
    static const char *const name[LARGE] = { "z.0.weight", "z.1.weight", "z.2.weight", "z.3.weight",
                                             "z.4.weight" };
    struct toy_tensor all[OWN + LARGE];
    struct ladder l;
    struct res_model *other;
    berth_err err = { 0 };
    (void)state;
    memcpy(all, toy_tensors, sizeof toy_tensors);
    for (size_t i = 0; i < LARGE; i++) /* each a run of its own */
        all[OWN + i] = (struct toy_tensor) { name[i], { 2, { 2048, 2048 } } };
    ladder_open_file(&l, "cpu=1g,null:0=128m", "null:0,*#cpu", all, ARRAY_LEN(all));
    struct res_open_args open = { .path = model_file("other", 12, 256 << 10),
                                  .plan = { .alloc = "cpu,*#cpu" } };
    assert_ok(res_open(l.t.f.r, &open, &other, NULL, &err), err);
    assert_ok(res_load(other, NULL, NULL, &err), err);
    pass(&l);
    struct stream_stats before = net_report(l.t.net).stream;
    assert_true(before.ring_spare > 16 << 20);
    hog(&l, "cpu", peak_of(&l) / 2);
    pass(&l);
    pass(&l); /* stays so */
    struct net_report rep = net_report(l.t.net);
    assert_int_equal(rep.stream.ring_spare, 0);
    assert_int_equal(rep.stream.ring_bytes, before.ring_bytes - before.ring_spare);
    assert_int_equal(rep.rungs, 1);
    assert_non_null(strstr(l.said, "rung=spare"));
    assert_int_equal(res_info(other).demoted, 0);
    assert_int_equal(res_info(other).resident, res_info(other).bytes);
    res_unref(other);
    ladder_close(&l);
}

/* ---- rung 2 ---- */

#define ROWS 1536
#define WIDE (ROWS * TOY_C)

struct ff_in {
    const float *x;
    float *out;
    uint64_t
        beside; /* floats of an activation that is there before the feed-forward, and gone then */
};

static void ff_forward(struct net_run *r, void *user)
{
    const struct ff_in *in = user;
    struct act beside = { 0 };
    if (in->beside)
        beside = net_new(r, &(struct shape) { 1, { in->beside } });
    net_drop(r, &beside);
    struct act x = net_input(r, &(struct shape) { 3, { 2, ROWS / 2, TOY_C } }, in->x);
    struct act n = net_layer_norm(r, x, NULL, 1e-5f);
    x = net_feed_forward(r, n, "ff.up", "ff.down", x);
    net_output(r, x, in->out);
    net_drop(r, &x);
}

static float ff_x[WIDE], ff_want[WIDE], ff_out[WIDE];

static struct net_report ff_pass(struct ladder *l, uint64_t beside)
{
    struct ff_in in = { ff_x, ff_out, beside };
    berth_err err = { 0 };
    assert_ok(net_forward(l->t.net, ff_forward, &in, &err), err);
    if (net_report(l->t.net).passes == 1)
        memcpy(ff_want, ff_out, sizeof ff_want);
    assert_memory_equal(ff_want, ff_out, sizeof ff_want);
    fixture_check(&l->t.f);
    struct net_report rep = net_report(l->t.net);
    assert_int_equal(rep.predicted, rep.peak);
    return rep;
}

/* With the kernels there are: rows of a feed-forward go in pieces. */
static void passes_get_thrifty(void **state)
{
    struct ladder l;
    (void)state;
    ladder_open(&l, "cuda:0@cpu=8m,cpu=64m", "cuda:0,*#cuda:0");
    toy_input(ff_x, WIDE);
    uint64_t first = ff_pass(&l, 0).peak;
    assert_true(first > ROWS * 8 * TOY_C * sizeof(float)); /* all of value and gate */
    hog(&l, "cuda:0", first / 2);
    struct net_report rep = ff_pass(&l, 0);
    assert_true(rep.thrifty && rep.peak < first / 2);
    assert_int_equal(rep.rungs, 1);
    assert_int_equal(rep.largest, first);
    assert_int_equal(rep.largest_predicted, first); /* not that of the last one */
    ff_pass(&l, 0);                                 /* stays so */
    assert_int_equal(net_report(l.t.net).rungs, 1);
    assert_int_equal(res_info(l.t.m).demoted, 0);
    assert_non_null(strstr(l.said, "net.rung model=heavy dev=cuda:0 rung=thrifty"));
    ladder_close(&l);
}

/* Thrifty would be another sequence of places, but no smaller peak: not taken, the next rung is. */
static void thrift_that_brings_nothing_is_left(void **state)
{
    struct ladder l;
    (void)state;
    ladder_open(&l, "cuda:0@cpu=8m,cpu=64m", "cuda:0,*#cuda:0");
    toy_input(ff_x, WIDE);
    uint64_t big = ff_pass(&l, 0).peak; /* bytes; the act beside has four times as many */
    uint64_t peak = ff_pass(&l, big / 4 + 65536).peak;
    assert_true(peak > big);
    hog(&l, "cuda:0", peak - (256 << 10));
    struct net_report rep = ff_pass(&l, big / 4 + 65536);
    assert_false(rep.thrifty);
    assert_true(rep.rungs > 0 && res_info(l.t.m).demoted > 0);
    ladder_close(&l);
}

/* A pass for which there is no room at all does not make the next one slower. */
static void thrift_in_vain_is_forgotten(void **state)
{
    struct ladder l;
    (void)state;
    ladder_open(&l, "cpu=8m", "cpu,*");
    toy_input(ff_x, WIDE);
    uint64_t first = ff_pass(&l, 0).peak;
    hog(&l, "cpu", 64 << 10);
    struct ff_in in = { ff_x, ff_out, 0 };
    berth_err err = { 0 };
    assert_fails(net_forward(l.t.net, ff_forward, &in, &err), err, BERTH_ENODEVMEM,
                 "cpu is full: needs ");
    dev_free(&l.hog);
    struct net_report rep = ff_pass(&l, 0);
    assert_false(rep.thrifty);
    assert_int_equal(rep.peak, first);
    ladder_close(&l);
}

/* ---- rung 3 ---- */

static void own_blocks_make_way(void **state)
{
    struct ladder l;
    uint64_t sum, after;
    berth_err err = { 0 };
    (void)state;
    for (int keep = 0; keep < 2; keep++) {
        ladder_open(&l, "cuda:0@cpu=8m,cpu=64m", "cuda:0,*#cuda:0");
        res_set_retention(l.t.m, keep ? RES_KEEP : RES_AUTO);
        assert_ok(res_checksum(l.t.m, &sum, &err), err);
        pass(&l);
        for (uint64_t leave = 5; leave-- > 0;) { /* of fives: less and less */
            hog(&l, "cuda:0", peak_of(&l) * leave / 5);
            pass(&l);
            pass(&l);
        }
        struct net_report rep = net_report(l.t.net);
        assert_true(rep.rungs >= 2);
        assert_int_equal(rep.passes, 11);
        assert_int_equal(rep.stream.bytes, 0); /* host memory is read where it is */
        assert_non_null(strstr(l.said, "rung=blocks"));
        struct res_model_info info = res_info(l.t.m);
        assert_true(info.demoted > 0 && info.resident == info.bytes && info.uses == 1);
        net_close(l.t.net);
        assert_non_null(strstr(l.said, "net.memory model=heavy dev=cuda:0 predicted="));
        dev_free(&l.hog);
        assert_ok(res_load(l.t.m, NULL, NULL, &err), err); /* they come home */
        assert_int_equal(res_info(l.t.m).demoted, 0);
        assert_ok(res_checksum(l.t.m, &after, &err), err);
        assert_int_equal(sum, after);
        toy_net(&l.t);
        pass(&l);
        res_set_retention(l.t.m, RES_AUTO);
        ladder_close(&l);
    }
}

/* Blocks that move to a device the host cannot touch are streamed from there. */
static void own_blocks_are_streamed_then(void **state)
{
    struct ladder l;
    (void)state;
    ladder_open(&l, "cpu=12m,null:0=32m", "cpu,*;null:0,1kb#cpu");
    pass(&l);
    assert_int_equal(net_report(l.t.net).stream.donor_bytes, 0);
    hog(&l, "cpu", peak_of(&l) / 4);
    pass(&l);
    pass(&l);
    struct net_report rep = net_report(l.t.net);
    assert_true(rep.rungs > 0 && rep.stream.donor_bytes > 0);
    ladder_close(&l);
}

/* A ring of the usual size has no room: one that holds a block or two will do. */
static void rings_get_smaller(void **state)
{
    static const struct {
        const char *devices;
        unsigned slots;
    } cases[] = { { "cpu=8m,null:0=32m", 0 }, { "cpu=2m,null:0=32m", 2 } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct ladder l;
        ladder_open(&l, cases[i].devices, "null:0,*#cpu");
        struct net_report rep = net_report(l.t.net);
        assert_int_equal(rep.rungs > 0, cases[i].slots > 0);
        assert_true(rep.stream.ring_bytes > 0);
        if (cases[i].slots)
            assert_int_equal(rep.stream.slots, cases[i].slots);
        pass(&l);
        pass(&l);
        ladder_close(&l);
    }
}

/* A keep model in the way stays where it is. */
static void keep_models_of_others_stay(void **state)
{
    struct ladder l;
    struct res_model *other;
    berth_err err = { 0 };
    (void)state;
    ladder_open(&l, "cuda:0@cpu=8m,cpu=64m", "cuda:0,*#cuda:0");
    pass(&l);
    uint64_t peak = peak_of(&l);
    struct res_open_args open = { .path = model_file("kept", 12, 256 << 10),
                                  .plan = { .alloc = "cuda:0,*#cuda:0" },
                                  .retention = RES_KEEP };
    assert_ok(res_open(l.t.f.r, &open, &other, NULL, &err), err);
    assert_ok(res_load(other, NULL, NULL, &err), err);
    hog(&l, "cuda:0", peak / 2);
    pass(&l);
    assert_int_equal(res_info(other).demoted, 0);
    assert_true(res_info(l.t.m).demoted > 0);
    res_set_retention(other, RES_AUTO);
    res_unref(other);
    ladder_close(&l);
}

/* ---- rung 4 ---- */

static void the_end_of_the_ladder_says_the_numbers(void **state)
{
    struct ladder l;
    static float out[OUT];
    char text[128], bytes[STR_BYTES_MAX];
    berth_err err = { 0 };
    (void)state;
    ladder_open(&l, "cpu=8m", "cpu,*");
    pass(&l);
    uint64_t peak = peak_of(&l);
    hog(&l, "cpu", peak / 2);
    str_bytes(peak, bytes);
    snprintf(text, sizeof text, "model heavy, a pass of %s on cpu: cpu is full: needs %s, ", bytes,
             bytes);
    assert_fails(try_pass(&l, out, &err), err, BERTH_ENODEVMEM, text);
    assert_int_equal(res_info(l.t.m).uses, 1); /* still a net */
    assert_int_equal(net_report(l.t.net).rungs, 0);
    dev_free(&l.hog);
    pass(&l);
    ladder_close(&l);
}

/* More than the device ever has: nobody moves for nothing. */
static void too_much_is_said_at_once(void **state)
{
    struct ladder l;
    berth_err err = { 0 };
    (void)state;
    ladder_open(&l, "cuda:0@cpu=5m,cpu=64m", "cuda:0,*#cuda:0");
    pass(&l);
    static float big[TOY_N * TOY_IN * 128 * 64];
    struct toy_in in = { TOY_N, 128, 64, big, big };
    assert_fails(net_forward(l.t.net, toy_forward, &in, &err), err, BERTH_ENODEVMEM,
                 " on cuda:0: cuda:0 is full: needs ");
    assert_int_equal(res_info(l.t.m).demoted, 0);
    assert_int_equal(net_report(l.t.net).weights, res_info(l.t.m).bytes);
    pass(&l);
    ladder_close(&l);
}

/* ---- faults ---- */

/* The k-th call of a donor's device fails, for every k of a pass: the pass is run again. */
static void a_failing_device_call_costs_one_pass(void **state)
{
    static const enum null_call calls[] = { NULL_COPY, NULL_EVENT_RECORD, NULL_STREAM_WAIT,
                                            NULL_EVENT_SYNC, NULL_ANY };
    struct ladder l;
    (void)state;
    ladder_open(&l, "cpu=12m,null:0=32m", "null:0,60%;cpu,40%#cpu");
    struct device *d = device_named(l.t.f.set, "null:0");
    pass(&l);
    for (size_t c = 0; c < ARRAY_LEN(calls); c++) {
        uint64_t before = null_calls(d, calls[c]);
        pass(&l);
        uint64_t of_a_pass = null_calls(d, calls[c]) - before;
        uint64_t step = of_a_pass / 12 + 1;
        for (uint64_t k = 1; k <= of_a_pass; k += step) {
            null_fail(d, calls[c], k);
            pass(&l);
        }
        null_fail(d, calls[c], 0);
    }
    assert_non_null(strstr(l.said, "net.again model=heavy dev=cpu why=\""));
    ladder_close(&l);
}

/* ---- memory outside of pools ---- */

/* The cpu's kernels, and a driver that wants memory of the device for itself: it has some when no
 * more than `most` bytes of the device are held; until then nothing is ready, or an op fails. */
static struct {
    struct op_backend table;
    const struct device *dev;
    uint64_t most;
    bool in_passes; /* nobody was told in the dry run */
    bool has;
    unsigned refused;
} greedy;

static berth_status greedy_takes(berth_err *err)
{
    struct dev_stats s = stats_of(greedy.dev);
    greedy.has |= s.in_use + s.idle <= greedy.most;
    greedy.refused += !greedy.has;
    return greedy.has ? BERTH_OK : err_set(err, BERTH_ENODEVMEM, "no room for a module");
}

static berth_status greedy_ready(const struct op_env *env, berth_err *err)
{
    assert_ptr_equal(env->backend, &greedy.table);
    return greedy.in_passes ? BERTH_OK : greedy_takes(err);
}

static berth_status greedy_unary(const struct op_env *env, const struct op_unary *a, berth_err *err)
{
    if (greedy.in_passes && greedy_takes(err))
        return err->code;
    return op_backend_for(greedy.dev)->unary(env, a, err);
}

static void be_greedy(struct ladder *l, uint64_t most, bool in_passes)
{
    greedy.dev = l->t.net->compute;
    greedy.table = *op_backend_for(greedy.dev);
    greedy.table.ready = greedy_ready;
    greedy.table.unary = greedy_unary;
    greedy.most = most;
    greedy.in_passes = in_passes;
    greedy.has = false;
    greedy.refused = 0;
    l->t.net->backend = &greedy.table;
}

static uint64_t held(const struct ladder *l)
{
    struct dev_stats s = stats_of(l->t.net->compute);
    return s.in_use + s.idle;
}

/* Said in the dry run or only by the op: idle bytes go back, then others leave, then own blocks. */
static void room_outside_is_made(void **state)
{
    (void)state;
    for (int in_passes = 0; in_passes < 2; in_passes++) {
        struct ladder l;
        struct res_model *other;
        berth_err err = { 0 };
        ladder_open(&l, "cuda:0@cpu=8m,cpu=64m", "cuda:0,*#cuda:0");
        pass(&l);
        uint64_t own = res_info(l.t.m).bytes, slab = in_passes ? peak_of(&l) : 0;
        be_greedy(&l, own + slab + (64 << 10), in_passes); /* without what is idle */
        assert_true(in_passes || held(&l) > greedy.most);
        pass(&l);
        assert_true(greedy.has && (in_passes || greedy.refused > 0));
        assert_int_equal(res_info(l.t.m).demoted, 0);
        struct res_open_args open = { .path = model_file("other", 4, 256 << 10),
                                      .plan = { .alloc = "cuda:0,*#cuda:0" } };
        assert_ok(res_open(l.t.f.r, &open, &other, NULL, &err), err);
        assert_ok(res_load(other, NULL, NULL, &err), err);
        hog(&l, "cuda:0", slab + (128 << 10)); /* room for 8m / 32 only if somebody leaves */
        be_greedy(&l, stats_of(greedy.dev).in_use + slab - (64 << 10), in_passes);
        pass(&l);
        assert_true(greedy.refused > 0 && res_info(other).demoted > 0);
        assert_int_equal(res_info(l.t.m).demoted, 0);
        assert_non_null(strstr(l.said, "net.rung model=heavy dev=cuda:0 rung=outside"));
        res_unref(other);
        hog(&l, "cuda:0", slab + (128 << 10)); /* nobody else is there */
        be_greedy(&l, stats_of(greedy.dev).in_use + slab - (64 << 10), in_passes);
        pass(&l);
        assert_true(greedy.refused > 0 && res_info(l.t.m).demoted > 0);
        ladder_close(&l);
    }
}

/* Nothing helps: an error that names the op, and the next pass is as ever. */
static void no_room_outside(void **state)
{
    struct ladder l;
    static float out[OUT];
    struct toy_in in = { TOY_N, H, W, NULL, NULL };
    uint64_t peak;
    berth_err err = { 0 };
    (void)state;
    for (int in_passes = 0; in_passes < 2; in_passes++) {
        ladder_open(&l, "cpu=8m", "cpu,*");
        pass(&l);
        be_greedy(&l, 0, in_passes);
        assert_fails(try_pass(&l, out, &err), err, BERTH_ENODEVMEM,
                     in_passes ? "no room for a module" : "heavy, making a pass ready on cpu: ");
        assert_int_equal(greedy.refused, in_passes ? 2 : greedy.refused);
        if (!in_passes)
            assert_fails(net_predict(l.t.net, toy_forward, &in, &peak, &err), err, BERTH_ENODEVMEM,
                         "no room for a module");
        assert_false(net_report(l.t.net).thrifty);
        greedy.has = true;
        pass(&l);
        ladder_close(&l);
    }
}

/* After a rung that could not open it again. */
static void prediction_without_a_stream(void **state)
{
    struct ladder l;
    (void)state;
    ladder_open(&l, "cpu=12m,null:0=32m", "null:0,60%;cpu,40%#cpu");
    uint64_t peak = peak_of(&l);
    stream_close(l.t.net->stream);
    l.t.net->stream = NULL;
    assert_int_equal(peak_of(&l), peak);
    pass(&l);
    ladder_close(&l);
}

static void the_ladder_survives_failing_allocations(void **state)
{
    struct ladder l;
    static float out[OUT];
    (void)state;
    ladder_open(&l, "cuda:0@cpu=8m,cpu=64m", "cuda:0,*#cuda:0");
    pass(&l);
    hog(&l, "cuda:0", peak_of(&l) / 4);
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        berth_err err = { 0 };
        oom_after(k);
        s = try_pass(&l, out, &err);
        oom_off();
        if (s && s != BERTH_ENOMEM && s != BERTH_ENODEVMEM)
            fail_msg("%s: %s", berth_status_name(s), err.msg);
        fixture_check(&l.t.f);
    }
    assert_memory_equal(l.want, out, sizeof out);
    pass(&l);
    ladder_close(&l);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(other_models_make_room),
        cmocka_unit_test(a_large_ring_makes_room_first),
        cmocka_unit_test(passes_get_thrifty),
        cmocka_unit_test(thrift_that_brings_nothing_is_left),
        cmocka_unit_test(thrift_in_vain_is_forgotten),
        cmocka_unit_test(own_blocks_make_way),
        cmocka_unit_test(own_blocks_are_streamed_then),
        cmocka_unit_test(rings_get_smaller),
        cmocka_unit_test(keep_models_of_others_stay),
        cmocka_unit_test(the_end_of_the_ladder_says_the_numbers),
        cmocka_unit_test(too_much_is_said_at_once),
        cmocka_unit_test(a_failing_device_call_costs_one_pass),
        cmocka_unit_test(room_outside_is_made),
        cmocka_unit_test(no_room_outside),
        cmocka_unit_test(prediction_without_a_stream),
        cmocka_unit_test(the_ladder_survives_failing_allocations),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
