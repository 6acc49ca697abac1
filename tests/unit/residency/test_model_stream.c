/* Streams of registered models: items from the registry, the use they hold, whom they push out. */
#include "residency/residency_impl.h"
#include "stream/stream.h"
#include "support/models.h"
#include "support/oom.h"

#define LAYERS 8
#define MANY 60
#define LAYER_BYTES ((uint64_t)64 << 10)

struct look { /* user of a layer: compares a block with the file */
    const struct res_model *m;
    size_t block;
    unsigned wrong;
};

static void layer(void *user, void *const *ptr)
{
    struct look *l = user;
    const struct blocks *b = res_blocks(l->m);
    for (uint32_t k = 0; k < b->at[l->block].n; k++) {
        const unsigned char *p = ptr[k];
        const struct block_tensor *t = &b->tensor[b->at[l->block].first + k];
        size_t index = strtoul(t->entry->name + strlen("layers."), NULL, 10);
        index = index * 2 + (strstr(t->entry->name, ".bias") != NULL);
        for (uint64_t at = 0; at < t->bytes; at++)
            l->wrong += p[at] != model_byte(index, at);
    }
}

static void passes(struct res_model *m, struct stream *s, struct device *compute, int n)
{
    const struct blocks *b = res_blocks(m);
    struct dev_stream *on = stream_of(compute);
    static struct look look[MANY];
    berth_err err = { 0 };
    assert_true(b->n == LAYERS || b->n == MANY);
    for (int pass = 0; pass < n; pass++) {
        assert_ok(stream_begin(s, on, &err), err);
        for (size_t i = 0; i < b->n; i++) {
            struct dev_access a[2];
            uint64_t addr;
            assert_ok(stream_acquire(s, i, &addr, &err), err);
            for (uint32_t k = 0; k < b->at[i].n; k++) {
                const struct block_tensor *t = &b->tensor[b->at[i].first + k];
                a[k] = (struct dev_access) { addr + t->off, (size_t)t->bytes, DEV_READ };
            }
            look[i] = (struct look) { .m = m, .block = i };
            assert_ok(dev_launch(on, layer, &look[i], a, b->at[i].n, &err), err);
            assert_ok(stream_release(s, i, &err), err);
        }
        assert_ok(stream_end(s, &err), err);
        assert_ok(dev_stream_sync(on, &err), err);
        for (size_t i = 0; i < b->n; i++)
            assert_int_equal(look[i].wrong, 0);
    }
    dev_stream_free(on);
}

static void streams_what_the_plan_left_on_donors(void **state)
{
    static const struct {
        const char *devices, *alloc, *compute;
        uint64_t pin_budget;
        uint64_t moved; /* bytes a pass */
        bool staged;    /* some of it */
    } row[] = {
        { "null:0=8m,cpu=64m", "#null:0;0.000244140625;cpu", "null:0", 0, 256 << 10, false },
        { "null:0=8m,cpu=64m", "cpu,*#null:0", "null:0", 0, 512 << 10, false },
        { "null:0=8m,cpu=64m", "cpu,*#null:0", "null:0", RES_NO_PINS, 512 << 10, true },
        { "null:0=8m,cpu=64m", "cpu,*#null:0", "null:0", 200 << 10, 512 << 10, true },
        { "null:0=8m,null:1=8m,cpu=64m", "null:1,50%;cpu,50%#null:0", "null:0", 0, 512 << 10,
          false },
        { "null:0=8m,cpu=64m", "null:0,*#null:0", "null:0", 0, 0, false },
        { "cpu=64m", "cpu,*#cpu", "cpu", 0, 0, false },
        { "cpu=64m,cuda:0@cpu=64m", "cuda:0,50%;cpu,50%#cuda:0", "cuda:0", 0, 0, false },
        { "cpu=64m,null:0=8m", "null:0,25%;cpu,75%#cpu", "cpu", 0, 128 << 10, false },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct fixture f;
        struct stream *s;
        berth_err err = { 0 };
        struct res_config cfg = { .pin_budget = row[i].pin_budget };
        fixture_open(&f, row[i].devices, &cfg);
        struct res_model *m =
            model_open(&f, model_file("streamed", LAYERS, LAYER_BYTES), row[i].alloc, RES_AUTO);
        model_load(m);
        struct stream_config sc = { .run_bytes = 100 << 10, .slots = 2, .stage_bytes = 10000 };
        assert_ok(res_stream_open(m, &sc, &s, &err), err);
        passes(m, s, device_named(f.set, row[i].compute), 3);
        fixture_check(&f); /* the ledger has the weights exactly, ring and staging apart */
        struct stream_stats x = stream_stats(s);
        if (x.bytes - x.ahead != 3 * row[i].moved || x.donor_bytes != row[i].moved)
            fail_msg("row %d: %d bytes in three passes, %d wanted each", (int)i,
                     (int)(x.bytes - x.ahead), (int)row[i].moved);
        assert_int_equal(x.staged > 0, row[i].staged);
        assert_int_equal(x.out_of_order + x.dropped, 0);
        struct res_streamed all = res_streamed(f.r); /* of the only stream there was */
        assert_true(all.bytes == x.bytes && all.copy_ns == x.copy_ns &&
                    all.exposed_ns == x.exposed_ns);
        assert_int_equal(x.ring_bytes > 0, row[i].moved > 0);
        stream_close(s);
        model_intact(m);
        res_unref(m);
        fixture_close(&f);
    }
}

/* Layout `spread` deals blocks to donors in turn; their runs are long all the same. */
static void spread_over_donors_in_long_runs(void **state)
{
    static const struct {
        const char *alloc;
        unsigned slots, runs; /* wanted; a pass */
    } row[] = {
        { "cpu,*#null:0", 3, 4 },
        { "null:1,50%;cpu,50%#null:0", 3, 5 },
        { "null:1,34%;null:2,33%;cpu,33%#null:0", 4, 6 },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct fixture f;
        struct stream *s;
        berth_err err = { 0 };
        fixture_open(&f, "null:0=16m,null:1=16m,null:2=16m,cpu=64m", NULL);
        struct res_model *m =
            model_open(&f, model_file("long", MANY, LAYER_BYTES), row[i].alloc, RES_AUTO);
        model_load(m);
        struct stream_config sc = { .run_bytes = 16 * LAYER_BYTES };
        assert_ok(res_stream_open(m, &sc, &s, &err), err);
        struct device *d = device_named(f.set, "null:0");
        passes(m, s, d, 1);
        uint64_t before = stream_stats(s).runs;
        passes(m, s, d, 1);
        struct stream_stats x = stream_stats(s);
        if (x.slots != row[i].slots || x.runs - before > row[i].runs)
            fail_msg("%s: %d runs a pass through %d slots", row[i].alloc, (int)(x.runs - before),
                     (int)x.slots);
        assert_int_equal(x.bytes - x.ahead, 2 * x.donor_bytes);
        assert_true(x.donor_bytes >= (MANY - 2) * LAYER_BYTES); /* the rest of the shares */
        stream_close(s);
        res_unref(m);
        fixture_close(&f);
    }
}

/* Where a jump lands the runs of all donors are under way: one copy is not hidden, not one each. */
static void a_jump_fetches_all_that_is_under_way(void **state)
{
    struct fixture f;
    struct stream *s;
    berth_err err = { 0 };
    uint64_t addr;
    (void)state;
    fixture_open(&f, "null:0=16m,null:1=16m,cpu=64m", NULL);
    struct res_model *m = model_open(&f, model_file("jump", MANY, LAYER_BYTES),
                                     "null:1,50%;cpu,50%#null:0", RES_AUTO);
    model_load(m);
    struct stream_config sc = { .run_bytes = 4 * LAYER_BYTES };
    assert_ok(res_stream_open(m, &sc, &s, &err), err);
    struct dev_stream *on = stream_of(device_named(f.set, "null:0"));
    for (size_t first = 0; first < MANY; first++) {
        uint64_t before = stream_stats(s).out_of_order;
        assert_ok(stream_begin(s, on, &err), err);
        for (size_t i = first; i < MANY; i++) {
            assert_ok(stream_acquire(s, i, &addr, &err), err);
            assert_ok(stream_release(s, i, &err), err);
        }
        uint64_t jumps = stream_stats(s).out_of_order - before;
        if (jumps > 1)
            fail_msg("%d runs out of turn after a jump to %d", (int)jumps, (int)first);
        assert_ok(stream_end(s, &err), err);
    }
    stream_close(s);
    dev_stream_free(on);
    res_unref(m);
    fixture_close(&f);
}

static berth_status fill_weights(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                 berth_err *err)
{
    return model_fill(user, 2 * i, off, dst, n, err);
}

/* Layers of whole pages, so that blocks in pinned memory are neighbours without a gap. Those that
 * were loaded together share an allocation, and a run is one copy. Those that came one by one have
 * their own, and no copy goes from one into the next, which the device would refuse. */
static void blocks_of_whole_pages(void **state)
{
    static char name[LAYERS][32];
    struct weights_spec spec[LAYERS];
    struct fixture f;
    struct stream *s;
    berth_err err = { 0 };
    (void)state;
    for (size_t i = 0; i < LAYERS; i++) {
        snprintf(name[i], sizeof name[i], "layers.%zu.weight", i);
        spec[i] = (struct weights_spec) { .name = name[i],
                                          .dtype = DT_U8,
                                          .shape = { .ndim = 1, .dim = { LAYER_BYTES } } };
    }
    const char *path = tmp_path("whole.safetensors");
    struct weights_write_args args = {
        .format = "safetensors", .path = path, .spec = spec, .count = LAYERS, .fill = fill_weights
    };
    assert_ok(weights_write(&args, &err), err);
    fixture_open(&f, "null:0=8m,null:1=8m,cpu=64m", NULL);
    struct res_model *m = model_open(&f, path, "cpu,*#null:0", RES_AUTO);
    for (int moved = 0; moved < 2; moved++) {
        static const char *const alloc[] = { "null:1,*#null:0", "cpu,*#null:0" };
        model_load(m);
        for (int i = 0; moved && i < 2; i++)
            assert_ok(res_replan(m, &(struct plan_args) { .alloc = alloc[i] }, NULL, &err), err);
        assert_ok(res_stream_open(m, NULL, &s, &err), err);
        passes(m, s, device_named(f.set, "null:0"), 3);
        struct stream_stats x = stream_stats(s);
        assert_int_equal(x.copies, moved ? LAYERS * x.runs : x.runs);
        fixture_check(&f);
        stream_close(s);
    }
    res_unref(m);
    fixture_close(&f);
}

static void holds_a_use(void **state)
{
    struct fixture f;
    struct stream *s;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "null:0=8m,cpu=64m", NULL);
    struct res_model *m =
        model_open(&f, model_file("used", LAYERS, LAYER_BYTES), "cpu,*#null:0", RES_AUTO);
    assert_fails(res_stream_open(m, NULL, &s, &err), err, BERTH_EINVAL, "registered");
    assert_null(s);
    model_load(m);
    assert_ok(res_stream_open(m, NULL, &s, &err), err);
    assert_int_equal(res_info(m).uses, 1);
    assert_fails(res_eject(m, &err), err, BERTH_EBUSY, "");
    res_unref(m); /* the stream is its last owner */
    assert_int_equal(res_model_count(f.r), 1);
    passes(m, s, device_named(f.set, "null:0"), 1);
    stream_close(s);
    assert_int_equal(res_model_count(f.r), 0);
    fixture_close(&f);
}

/* A card with much room gives some of it to the ring, for what is ahead. */
static void room_makes_a_ring_larger(void **state)
{
    static const struct {
        const char *devices;
        uint64_t ring;
    } row[] = { { "null:0=64m,cpu=64m", 3 * LAYER_BYTES },
                { "null:0=1g,cpu=64m", MANY * LAYER_BYTES } };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct fixture f;
        struct stream *s;
        berth_err err = { 0 };
        fixture_open(&f, row[i].devices, NULL);
        struct res_model *m =
            model_open(&f, model_file("room", MANY, LAYER_BYTES), "cpu,*#null:0", RES_AUTO);
        model_load(m);
        struct stream_config sc = { .run_bytes = LAYER_BYTES };
        assert_ok(res_stream_open(m, &sc, &s, &err), err);
        uint64_t ring = stream_stats(s).ring_bytes; /* of layers with their padding */
        assert_true(ring >= row[i].ring && ring < row[i].ring + row[i].ring / 50);
        ring -= stream_stats(s).ring_spare; /* what it needs is the same everywhere */
        assert_true(ring >= row[0].ring && ring < row[0].ring + row[0].ring / 50);
        passes(m, s, device_named(f.set, "null:0"), 2);
        stream_close(s);
        res_unref(m);
        fixture_close(&f);
    }
}

/* A ring that has no room pushes another model off the compute device, as any allocation does. */
static void the_ring_makes_room(void **state)
{
    struct fixture f;
    struct stream *s;
    berth_err err = { 0 };
    (void)state;
    fixture_open(&f, "null:0=600k,cpu=64m", NULL);
    struct res_model *a =
        model_open(&f, model_file("tenant", LAYERS, LAYER_BYTES), "null:0,*#null:0", RES_AUTO);
    struct res_model *b =
        model_open(&f, model_file("comer", LAYERS, LAYER_BYTES), "cpu,*#null:0", RES_AUTO);
    model_load(a);
    model_load(b);
    size_t null0 = 0;
    assert_int_equal(res_bytes_on(a, null0), LAYERS * LAYER_BYTES);
    struct stream_config sc = { .run_bytes = 64 << 10 };
    assert_ok(res_stream_open(b, &sc, &s, &err), err);
    assert_true(res_bytes_on(a, null0) < LAYERS * LAYER_BYTES);
    passes(b, s, device_named(f.set, "null:0"), 2);
    stream_close(s);
    model_load(a);
    model_intact(a);
    res_set_retention(a, RES_KEEP);
    sc.run_bytes = 512 << 10; /* and one that never fits says so, and leaves nothing behind */
    assert_fails(res_stream_open(b, &sc, &s, &err), err, BERTH_ENODEVMEM, "a ring of ");
    assert_int_equal(res_info(b).uses, 0);
    res_set_retention(a, RES_EJECT);
    res_unref(a);
    res_unref(b);
    fixture_close(&f);
}

/* ---- patched ---- */

static bool touches(const struct res_adapter *a, const char *key, size_t n)
{
    (void)a;
    return str_eq(key, n, "diffusion_model.layers.1.weight");
}

static berth_status terms(const struct res_adapter *a, const char *key, size_t n,
                          const struct shape *shape, float strength, struct arena *tmp,
                          struct vec *out, berth_err *err)
{
    uint64_t rows = shape->dim[0], cols = shape->dim[1];
    float *dense = arena_array(tmp, (size_t)(rows * cols), sizeof *dense);
    struct res_term *t = vec_add(out);
    (void)a, (void)key, (void)n;
    if (!dense || !t)
        return err_set(err, BERTH_ENOMEM, "a term");
    for (uint64_t i = 0; i < rows * cols; i++)
        dense[i] = (float)i;
    *t = (struct res_term) {
        .kind = TERM_ADD, .rows = rows, .cols = cols, .scale = strength, .dense = dense
    };
    return BERTH_OK;
}

static void never(struct res_adapter *a)
{
    (void)a;
}

#define Q_ROWS 8
#define Q_COLS 256

static berth_status fill_quants(void *user, size_t i, uint64_t off, void *dst, size_t n,
                                berth_err *err)
{
    (void)user, (void)err;
    for (size_t k = 0; k < n;
         k++) /* a Q8_0 block is a scale of two bytes, here 1.0, and 32 bytes */
        ((unsigned char *)dst)[k] = (off + k) % 34 == 0   ? 0
                                    : (off + k) % 34 == 1 ? 0x3c
                                                          : (unsigned char)(off + k + i);
    return BERTH_OK;
}

static const char *quant_file(void)
{
    static char name[3 * 2][40];
    struct weights_spec spec[3 * 2];
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(spec); i++) {
        bool bias = i % 2;
        snprintf(name[i], sizeof name[i], "layers.%zu.%s", i / 2, bias ? "bias" : "weight");
        spec[i] = (struct weights_spec) { .name = name[i], .dtype = bias ? DT_F32 : DT_Q8_0 };
        spec[i].shape = bias ? (struct shape) { .ndim = 1, .dim = { 5 } }
                             : (struct shape) { .ndim = 2, .dim = { Q_ROWS, Q_COLS } };
    }
    const char *path = tmp_path("quants.gguf");
    struct weights_write_args args = {
        .format = "gguf", .path = path, .spec = spec, .count = ARRAY_LEN(spec), .fill = fill_quants
    };
    assert_ok(weights_write(&args, &err), err);
    return path;
}

/* What res_tensor_read() says about every tensor arrives in the slot, at the stored layout. */
static void arrives(struct res_model *m, struct stream *s, struct device *compute)
{
    struct dev_stream *on = stream_of(compute);
    berth_err err = { 0 };
    assert_ok(stream_begin(s, on, &err), err);
    for (size_t i = 0; i < res_blocks(m)->n; i++) {
        uint64_t addr;
        assert_ok(stream_acquire(s, i, &addr, &err), err);
        for (size_t k = 0; k < res_blocks(m)->at[i].n; k++) {
            struct res_tensor_at t = res_tensor_at(m, i, k);
            char *want = malloc(t.bytes), *got = malloc(t.bytes);
            assert_true(want && got);
            assert_ok(res_tensor_read(m, i, k, want, t.bytes, &err), err);
            assert_ok(dev_copy_d2h(on, got, addr + t.off, t.bytes, &err), err);
            assert_ok(dev_stream_sync(on, &err), err);
            assert_memory_equal(want, got, t.bytes);
            dev_host_gone(compute->phys, got, t.bytes);
            free(want);
            free(got);
        }
        assert_ok(stream_release(s, i, &err), err);
    }
    assert_ok(stream_end(s, &err), err);
    dev_stream_free(on);
}

static void patched_blocks_travel_as_they_are_stored(void **state)
{
    static const struct res_adapter_ops ops = { touches, terms, never };
    struct res_adapter adapter = { .ops = &ops, .refs = 1, .id = 7, .name = "adds" };
    uint64_t base = 0;
    struct fixture f;
    (void)state;
    fixture_open(&f, "null:0=8m,cpu=64m", NULL);
    struct res_model *m = model_open(&f, quant_file(), "cpu,*#null:0", RES_AUTO);
    for (int patched = 0; patched < 2; patched++) {
        struct res_patch p = { &adapter, 1 };
        struct stream *s;
        berth_err err = { 0 };
        assert_ok(res_set_patches(m, &p, (size_t)patched, &err), err);
        model_load(m);
        assert_ok(res_stream_open(m, NULL, &s, &err), err);
        arrives(m, s, device_named(f.set, "null:0"));
        uint64_t bytes = stream_stats(s).donor_bytes;
        if (!patched)
            base = bytes;
        else /* Q8_0 has 34 bytes for 32 weights, F16 64 */
            assert_int_equal(bytes - base, Q_ROWS * Q_COLS / 32 * (64 - 34));
        stream_close(s);
    }
    res_unref(m);
    fixture_close(&f);
}

static void open_survives_oom(void **state)
{
    struct fixture f;
    berth_status st = BERTH_ENOMEM;
    (void)state;
    struct res_config cfg = { .pin_budget = RES_NO_PINS };
    fixture_open(&f, "null:0=8m,cpu=64m", &cfg);
    struct res_model *m =
        model_open(&f, model_file("scarce", LAYERS, LAYER_BYTES), "cpu,*#null:0", RES_AUTO);
    model_load(m);
    for (long k = 0; st; k++) {
        struct stream *s;
        berth_err err = { 0 };
        oom_after(k);
        st = res_stream_open(m, NULL, &s, &err);
        oom_off();
        assert_true(!st || (st == BERTH_ENOMEM && !s && err.msg[0]));
        stream_close(s);
        assert_int_equal(res_info(m).uses, 0);
    }
    res_unref(m);
    fixture_close(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(streams_what_the_plan_left_on_donors),
        cmocka_unit_test(spread_over_donors_in_long_runs),
        cmocka_unit_test(a_jump_fetches_all_that_is_under_way),
        cmocka_unit_test(blocks_of_whole_pages),
        cmocka_unit_test(holds_a_use),
        cmocka_unit_test(room_makes_a_ring_larger),
        cmocka_unit_test(the_ring_makes_room),
        cmocka_unit_test(patched_blocks_travel_as_they_are_stored),
        cmocka_unit_test(open_survives_oom),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
