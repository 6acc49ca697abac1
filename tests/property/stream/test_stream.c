/* Random plans through the streaming engine, on null devices that look for every missing wait.
 *
 * A case draws blocks with padding from pinned and pageable host memory, another device and the
 * compute device itself, ring and run sizes, a drawn order of the engine and how far it runs
 * between two calls (the "layer times"). Each layer is a launch that compares every byte of its
 * block. Then: no hazard, no wrong byte, exactly the plan's bytes per pass in order, nothing
 * allocated in a pass, everything given back. Some cases jump about, some stop early, some have a
 * call fail. */
#include "stream/stream.h"
#include "support/devices.h"
#include "support/rng.h"
#include "support/seed.h"

#include <signal.h>

#define ITEMS 24
#define PIECES 4
#define SPAN_MAX (PIECES * 768)
#define HELD 3
#define DEVICES 4
#define DONORS 4 /* at most: two devices, pinned, pageable */

struct block {
    unsigned char byte[SPAN_MAX]; /* what its layer must see; padding is not looked at */
    struct dev_mem mem;           /* unless pinned */
    struct stream_piece piece[PIECES];
};

struct layer { /* one launch; lives until the end of its case */
    const struct block *block;
    const struct stream_item *item;
    uint64_t *wrong;
};

struct machine { /* devices for some cases */
    struct devset *set;
    struct device *dev[DEVICES]; /* null:0, null:1, cpu, null:2 (logical, on null:0) */
    struct dev_owner *weights[DEVICES], *staging[DEVICES], *pinned;
    struct null_config null;
};

struct plan_case {
    struct machine *m;
    struct rng r;
    struct device *compute;
    struct dev_stream *stream;
    struct stream *s;
    struct block block[ITEMS];
    struct stream_item item[ITEMS];
    size_t n;
    struct dev_host host; /* all pinned blocks */
    uint64_t donor_bytes;
    struct stream_config cfg;
    struct layer *layer;
    size_t layers, layers_max;
    uint64_t wrong;
    bool failing; /* some call may fail on purpose */
};

/* ---- devices ---- */

static void machine_open(struct machine *m, uint64_t seed)
{
    static const char *const name[DEVICES] = { "null:0", "null:1", "cpu", "null:2" };
    *m = (struct machine) { .null = { .seed = seed, .lazy = seed & 1 } };
    struct dev_env env = { .null = &m->null };
    m->set = open_devices("null:0=32m,null:1=32m,cpu=256m,null:2@null:0=8m", &env);
    for (size_t i = 0; i < DEVICES; i++) {
        m->dev[i] = device_named(m->set, name[i]);
        m->weights[i] = owner_of(m->dev[i], "model", DEV_WEIGHTS);
        m->staging[i] = owner_of(m->dev[i], "ring", DEV_STAGING);
    }
    m->pinned = owner_of(m->dev[2], "model", DEV_PINNED);
}

static void machine_close(struct machine *m)
{
    for (size_t i = 0; i < DEVICES; i++) {
        dev_owner_close(m->weights[i]);
        dev_owner_close(m->staging[i]);
        if (stats_of(m->dev[i]).in_use || stats_of(m->dev[i]).pinned)
            fail_msg("%s: %d bytes left", m->dev[i]->name, (int)stats_of(m->dev[i]).in_use);
    }
    dev_owner_close(m->pinned);
    devset_close(m->set);
}

static uint64_t allocs_of(const struct device *d) /* without asking its driver, which may fail */
{
    struct dev_stats sum;
    (void)dev_ledger(d, NULL, 0, &sum);
    return sum.allocs;
}

static void assert_no_hazard(const struct machine *m)
{
    if (null_hazards(m->dev[0]))
        fail_msg("hazard: %s", null_last_hazard(m->dev[0]));
}

static size_t device_index(const struct machine *m, const struct device *d)
{
    for (size_t i = 0; i < DEVICES; i++)
        if (m->dev[i] == d)
            return i;
    fail_msg("unknown device");
    return 0;
}

/* ---- blocks ---- */

static void draw_pieces(struct plan_case *c, size_t i)
{
    struct stream_item *it = &c->item[i];
    size_t at = 0;
    it->piece = c->block[i].piece;
    it->pieces = (uint32_t)(1 + rng_below(&c->r, PIECES));
    for (uint32_t k = 0; k < it->pieces; k++) {
        size_t n = rng_below(&c->r, 8) ? 1 + rng_below(&c->r, 600) : 0;
        if (rng_below(&c->r, 2)) /* whole lines: the next piece follows at once */
            n = (n + 255) & ~(size_t)255;
        c->block[i].piece[k] = (struct stream_piece) { at, n };
        at = (at + n + 255) & ~(size_t)255;
        it->span = c->block[i].piece[k].off + n;
        if (it->source != STREAM_RESIDENT)
            c->donor_bytes += n;
    }
    if (!it->span)
        it->span = 1;
}

static struct device *draw_home(struct plan_case *c, enum stream_source source)
{
    struct machine *m = c->m;
    if (source == STREAM_RESIDENT)
        return c->compute;
    if (source != STREAM_DEVICE)
        return m->dev[2];
    struct device *d;
    do
        d = m->dev[rng_below(&c->r, DEVICES)];
    while (d == c->compute || d == m->dev[2]);
    return d;
}

/* One kind mostly, so that long runs happen, or any. */
static enum stream_source draw_source(struct plan_case *c, size_t mostly)
{
    size_t x = rng_below(&c->r, 8);
    return (enum stream_source)(mostly < 4 && x < 6 ? mostly : x & 3);
}

/* Only the pieces are written: padding stays blank, reading it is a hazard. */
static void fill_block(struct plan_case *c, size_t i)
{
    const struct stream_item *it = &c->item[i];
    struct block *b = &c->block[i];
    bool host = it->source == STREAM_PINNED || it->source == STREAM_PAGEABLE;
    struct dev_stream *s = host ? NULL : stream_of(it->dev);
    for (size_t k = 0; k < it->span; k++)
        b->byte[k] = (unsigned char)rng_u64(&c->r);
    for (uint32_t k = 0; k < it->pieces; k++) {
        const struct stream_piece *p = &it->piece[k];
        berth_err err = { 0 };
        if (s) {
            assert_ok(dev_copy_h2d(s, it->addr + p->off, b->byte + p->off, p->n, &err), err);
        } else {
            char *to = (char *)(uintptr_t)it->addr + p->off;
            dev_host_access(it->dev, to, p->n, DEV_WRITE);
            memcpy(to, b->byte + p->off, p->n);
        }
    }
    dev_stream_free(s);
}

static void draw_blocks(struct plan_case *c)
{
    size_t mostly = rng_below(&c->r, 6), pinned = 0;
    for (size_t i = 0; i < c->n; i++) {
        struct stream_item *it = &c->item[i];
        it->source = draw_source(c, mostly);
        it->dev = draw_home(c, it->source);
        it->name = "block";
        draw_pieces(c, i);
        if (it->source == STREAM_PINNED) {
            it->addr = pinned; /* packed: neighbours in memory */
            pinned += (it->span + 255) & ~(size_t)255;
        } else {
            size_t d = device_index(c->m, it->dev);
            c->block[i].mem = alloc_on(it->dev, c->m->weights[d], it->span);
            it->addr = c->block[i].mem.addr;
        }
    }
    berth_err err = { 0 };
    if (pinned)
        assert_ok(dev_host_alloc(c->m->dev[0], c->m->pinned, pinned, &c->host, &err), err);
    for (size_t i = 0; i < c->n; i++) {
        if (c->item[i].source == STREAM_PINNED)
            c->item[i].addr += (uintptr_t)c->host.ptr;
        fill_block(c, i);
    }
}

/* ---- layers ---- */

static void compare(void *user, void *const *ptr)
{
    struct layer *l = user;
    for (uint32_t k = 0; k < l->item->pieces; k++) {
        const struct stream_piece *p = &l->item->piece[k];
        *l->wrong += p->n && memcmp(ptr[k], l->block->byte + p->off, p->n) != 0;
    }
}

static berth_status run_layer(struct plan_case *c, size_t i, uint64_t addr, berth_err *err)
{
    struct dev_access a[PIECES];
    struct stream_item *it = &c->item[i];
    for (uint32_t k = 0; k < it->pieces; k++)
        a[k] = (struct dev_access) { addr + it->piece[k].off, it->piece[k].n, DEV_READ };
    assert_true(c->layers < c->layers_max);
    struct layer *l = &c->layer[c->layers++];
    *l = (struct layer) { &c->block[i], it, &c->wrong };
    return dev_launch(c->stream, compare, l, a, it->pieces, err);
}

/* Some of what is queued happens. */
static void time_passes(struct plan_case *c)
{
    for (size_t k = rng_below(&c->r, 8); k-- && null_step(c->m->dev[0]);)
        ;
}

/* ---- passes ---- */

enum how { IN_ORDER, JUMPING };

/* The next item of a pass: the one after, or with jumps any. */
static size_t draw_next(struct plan_case *c, enum how how, size_t at)
{
    if (how == IN_ORDER || rng_below(&c->r, 4))
        return at;
    return rng_below(&c->r, c->n);
}

/* Layers over all items, a few blocks acquired at a time. stop: so many layers, then the end. */
static berth_status pass(struct plan_case *c, enum how how, size_t stop, berth_err *err)
{
    size_t held[HELD], n_held = 0, most = how == IN_ORDER ? 1 : 1 + rng_below(&c->r, HELD);
    if (stream_begin(c->s, c->stream, err))
        return err->code;
    for (size_t at = 0, k = 0; at < c->n && k < stop; k++) {
        uint64_t addr;
        size_t i = draw_next(c, how, at);
        at = i + 1;
        time_passes(c);
        berth_status st = stream_acquire(c->s, i, &addr, err);
        while (st == BERTH_EBUSY && n_held) { /* as many blocks at a time as the ring can have */
            if (stream_release(c->s, held[--n_held], err))
                return err->code;
            st = stream_acquire(c->s, i, &addr, err);
        }
        if (st || run_layer(c, i, addr, err))
            return err->code;
        time_passes(c);
        held[n_held++] = i;
        for (; n_held == most || (n_held && rng_below(&c->r, 2)); n_held--) {
            size_t x = rng_below(&c->r, n_held), last = held[x];
            held[x] = held[n_held - 1];
            if (stream_release(c->s, last, err))
                return err->code;
        }
    }
    return BERTH_OK; /* what is still held is for stream_end() */
}

struct counts { /* what must not change within a pass */
    uint64_t allocs[DEVICES], calls;
};

static struct counts count(const struct machine *m)
{
    static const enum null_call made[] = { NULL_ALLOC, NULL_HOST_ALLOC, NULL_STREAM_NEW,
                                           NULL_EVENT_NEW };
    struct counts x = { .calls = 0 };
    for (size_t i = 0; i < DEVICES; i++)
        x.allocs[i] = allocs_of(m->dev[i]);
    for (size_t k = 0; k < ARRAY_LEN(made); k++)
        x.calls += null_calls(m->dev[0], made[k]) + null_calls(m->dev[1], made[k]);
    return x;
}

static void check_stats(const struct plan_case *c)
{
    struct stream_stats x = stream_stats(c->s);
    assert_true(x.donor_bytes == c->donor_bytes);
    assert_true(x.ahead + x.dropped <= x.bytes && x.staged <= x.bytes);
    assert_true(x.slots <= (c->cfg.slots ? c->cfg.slots : 1 + DONORS));
    assert_true((x.slots == 0) == (c->donor_bytes == 0));
    if (!x.slots)
        assert_true(!x.bytes && !x.ring_bytes && !x.stage_bytes && !x.copies);
}

static void one_pass(struct plan_case *c, enum how how, bool whole)
{
    struct stream_stats a = stream_stats(c->s), b;
    struct counts before = count(c->m), after;
    berth_err err = { 0 };
    berth_status st = pass(c, how, whole ? SIZE_MAX : rng_below(&c->r, c->n + 1), &err);
    if (st && !c->failing)
        fail_msg("%s", err.msg);
    if (st)
        assert_true(err.msg[0]);
    if (stream_stats(c->s).passes != a.passes)
        while (stream_end(c->s, &err)) /* a call can fail once */
            assert_true(c->failing);
    b = stream_stats(c->s);
    after = count(c->m);
    assert_memory_equal(&before, &after, sizeof before);
    check_stats(c);
    if (how == IN_ORDER && whole && !st) {
        uint64_t got = (b.bytes - b.ahead - b.dropped) - (a.bytes - a.ahead - a.dropped);
        if (got != c->donor_bytes || b.out_of_order != a.out_of_order)
            fail_msg("%d bytes in a pass instead of %d", (int)got, (int)c->donor_bytes);
        assert_true(b.dropped == a.dropped || c->failing);
    }
}

/* ---- cases ---- */

static void draw_config(struct plan_case *c)
{
    struct rng *r = &c->r;
    c->cfg = (struct stream_config) { .run_bytes = 1 + rng_below(r, 4000),
                                      .slots = (unsigned)rng_below(r, 6),
                                      .stage_slots = (unsigned)(1 + rng_below(r, 3)),
                                      .loaders = (unsigned)(1 + rng_below(r, 2)),
                                      .stage_bytes = 1 + rng_below(r, 3000) };
}

static berth_status open_stream(struct plan_case *c, berth_err *err)
{
    struct stream_args a = { .name = "model",
                             .compute = c->compute,
                             .item = c->item,
                             .n = c->n,
                             .owner = c->m->staging[device_index(c->m, c->compute)],
                             .host_owner = c->m->pinned,
                             .cfg = c->cfg };
    return stream_open(&a, &c->s, err);
}

static void passes(struct plan_case *c, enum how how, size_t n)
{
    for (size_t k = 0; k < n; k++) {
        bool whole = how == IN_ORDER && rng_below(&c->r, 5);
        one_pass(c, how, whole);
        if (rng_below(&c->r, 4) == 0) { /* the next pass on another stream */
            berth_err err;
            dev_stream_free(c->stream);
            while (dev_stream_new(c->compute, &c->stream, &err))
                assert_true(c->failing);
        }
    }
}

static void case_close(struct plan_case *c)
{
    berth_err err;
    bool open = rng_below(&c->r, 3) == 0; /* closed in the middle of a pass */
    if (open)
        (void)pass(c, JUMPING, rng_below(&c->r, c->n + 1), &err);
    else if (rng_below(&c->r, 2))
        dev_stream_free(c->stream), c->stream = NULL;
    if (c->failing && rng_below(&c->r, 2))
        null_fail(c->m->dev[0], NULL_ANY, 1 + rng_below(&c->r, 20));
    stream_close(c->s);
    null_fail(c->m->dev[0], NULL_ANY, 0);
    null_fail(c->m->dev[1], NULL_ANY, 0);
    dev_stream_free(c->stream);
    assert_ok(dev_drain(c->compute, NULL, &err), err); /* what close could not wait for */
    for (size_t i = 0; i < c->n; i++)
        dev_free(&c->block[i].mem);
    dev_host_free(&c->host);
    if (c->wrong)
        fail_msg("%d pieces with wrong bytes", (int)c->wrong);
    assert_no_hazard(c->m);
    assert_int_equal(null_queued(c->m->dev[0]), 0);
    free(c->layer);
    free(c);
}

static void one_case(struct machine *m, uint64_t seed, enum how how, bool failing)
{
    struct plan_case *c = calloc(1, sizeof *c);
    assert_non_null(c);
    running = seed;
    c->m = m;
    c->r.state = seed;
    c->failing = failing;
    null_seed(m->dev[0], rng_u64(&c->r));
    c->compute = m->dev[rng_below(&c->r, 6) ? 0 : 2];
    c->n = 1 + rng_below(&c->r, ITEMS);
    c->layers_max = (size_t)6 * 40 * ITEMS;
    c->layer = calloc(c->layers_max, sizeof *c->layer);
    assert_non_null(c->layer);
    draw_blocks(c);
    draw_config(c);
    c->stream = stream_of(c->compute);
    berth_err err = { 0 };
    if (failing)
        null_fail(m->dev[rng_below(&c->r, 4) == 0], NULL_ANY, 1 + rng_below(&c->r, 300));
    while (open_stream(c, &err)) {
        assert_true(failing && !c->s && err.msg[0]);
        null_fail(m->dev[0], NULL_ANY, 1 + rng_below(&c->r, 300));
    }
    passes(c, how, 1 + rng_below(&c->r, 5));
    case_close(c);
    running = 0;
}

static void cases(size_t n, enum how how, bool failing)
{
    uint64_t seed = rng_seed();
    for (size_t i = 0; i < n; i += 50) {
        struct machine m;
        running = seed + i;
        machine_open(&m, seed + i);
        for (size_t k = i; k < i + 50 && k < n; k++)
            one_case(&m, seed + k, how, failing);
        machine_close(&m);
    }
}

static void in_order(void **state)
{
    (void)state;
    cases(1500, IN_ORDER, false);
}

static void jumping(void **state)
{
    (void)state;
    cases(1000, JUMPING, false);
}

static void in_order_with_failures(void **state)
{
    (void)state;
    cases(2000, IN_ORDER, true);
}

static void jumping_with_failures(void **state)
{
    (void)state;
    cases(1500, JUMPING, true);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(in_order, say_seed),
        cmocka_unit_test_teardown(jumping, say_seed),
        cmocka_unit_test_teardown(in_order_with_failures, say_seed),
        cmocka_unit_test_teardown(jumping_with_failures, say_seed),
    };
    signal(SIGABRT, say_seed_and_die); /* validators stop the process */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
