/* Cutting: which items travel together, where they lie in the slot, as which copies. */
#include "stream/stream_impl.h"
#include "support/devices.h"
#include "support/oom.h"
#include "support/rng.h"
#include "support/seed.h"

#define ITEMS_MAX 64

struct bench {
    struct devset *set;
    struct device *null0, *null1, *cpu, *logical, *cpu2;
};

static int setup(void **state)
{
    static struct bench b;
    b.set = open_devices("null:0=16m,null:1=16m,cpu=32m,null:2@null:0=1m,cuda:0@cpu=32m", NULL);
    b.null0 = device_named(b.set, "null:0");
    b.null1 = device_named(b.set, "null:1");
    b.cpu = device_named(b.set, "cpu");
    b.logical = device_named(b.set, "null:2");
    b.cpu2 = device_named(b.set, "cuda:0");
    *state = &b;
    return 0;
}

static int teardown(void **state)
{
    devset_close(((struct bench *)*state)->set);
    return 0;
}

/* Items from a text, one word each: kind, span and, after a colon, the source address, after an @
 * the base of its allocation; without one they lie far apart. r resident, p pinned, m pageable, d
 * on null:1, e on null:2. One piece each. */
struct drawn {
    struct stream_item item[ITEMS_MAX];
    struct stream_piece piece[ITEMS_MAX];
    struct stream_args args;
};

static void draw(const struct bench *b, const char *text, struct drawn *x)
{
    size_t n = 0;
    *x = (struct drawn) { .args.compute = b->null0 };
    for (const char *p = text; *p; n++) {
        struct stream_item *it = &x->item[n];
        char kind = *p++, *end;
        it->span = strtoull(p, &end, 10);
        it->addr = *end == ':' ? strtoull(end + 1, &end, 10) : (n + 1) << 20;
        it->base = *end == '@' ? strtoull(end + 1, &end, 10) : 0;
        it->source = kind == 'r'   ? STREAM_RESIDENT
                     : kind == 'p' ? STREAM_PINNED
                     : kind == 'm' ? STREAM_PAGEABLE
                                   : STREAM_DEVICE;
        it->dev = kind == 'r' ? b->null0 : kind == 'd' ? b->null1 : b->cpu;
        it->dev = kind == 'e' ? b->logical : it->dev;
        x->piece[n] = (struct stream_piece) { 0, it->span };
        it->piece = &x->piece[n];
        it->pieces = 1;
        for (p = end; *p == ' '; p++)
            ;
    }
    x->args.item = x->item;
    x->args.n = n;
}

static void cut_rows(void **state)
{
    /* items: may begin with the slots and a bar; runs: first item x items / span / copies, "s" when
     * staged, then the lane */
    static const struct {
        const char *name, *items;
        uint64_t run_bytes;
        const char *runs;
    } row[] = {
        { "nothing to move", "r100 r200", 1000, "" },
        { "one", "p100", 1000, "0x1/100/1 l0" },
        { "neighbours join", "p100 p100 p100", 1000, "0x3/612/3 l0" },
        { "resident ones between them do not matter", "r9 p100 r9 r9 p100 r9", 1000,
          "1x2/356/2 l0" },
        { "up to run_bytes, exactly", "p256 p244 p1", 500, "0x2/500/2 l0, 2x1/1/1 l0" },
        { "one byte more does not fit", "p256 p245", 500, "0x1/256/1 l0, 1x1/245/1 l0" },
        { "padding counts", "p100 p245", 500, "0x1/100/1 l0, 1x1/245/1 l0" },
        { "a large one stands alone", "p10 p900 p10", 500,
          "0x1/10/1 l0, 1x1/900/1 l0, 2x1/10/1 l0" },
        { "another donor does not end a run", "p10 d10 p10 p10", 5000,
          "0x3/522/3 l0, 1x1/10/1 l1" },
        { "but with two slots it does", "2|p10 d10 p10 p10", 5000,
          "0x1/10/1 l0, 1x1/10/1 l1, 2x2/266/2 l0" },
        { "and with one", "1|p10 d10 p10", 5000, "0x1/10/1 l0, 1x1/10/1 l1, 2x1/10/1 l0" },
        { "pinned and pageable do not mix, and share a lane", "p10 m10 p10 m10", 5000,
          "0x2/266/2 l0, 1x2/266/2s l0" },
        { "a lane for every device", "d10 e10 d10", 5000, "0x2/266/2 l0, 1x1/10/1 l1" },
        { "three donors, four slots by default", "p10 d10 e10 p10 d10 e10", 5000,
          "0x2/266/2 l0, 1x2/266/2 l1, 2x2/266/2 l2" },
        { "three donors, three slots: the one met longest ago loses", "3|p10 d10 p10 e10 p10 d10",
          5000, "0x3/522/3 l0, 1x1/10/1 l1, 3x1/10/1 l2, 5x1/10/1 l1" },
        { "two donors end their runs in turn",
          "p256 d256 p256 d256 p256 d256 p256 d256 p256 d256 p256 d256 p256 d256 p256 d256", 1024,
          "0x4/1024/4 l0, 1x2/512/2 l1, 5x4/1024/4 l1, 8x4/1024/4 l0, 13x2/512/2 l1" },
        { "a rare one does not wait until it is full",
          "p256 d256 d256 d256 d256 d256 d256 d256 d256 p256", 1024,
          "0x1/256/1 l0, 1x4/1024/4 l1, 5x4/1024/4 l1, 9x1/256/1 l0" },
        { "neighbours in memory are one copy", "p256:1024 p256:1280 p100:1536 p100:1636", 5000,
          "0x4/868/2 l0" },
        { "what alignment leaves between them travels too", "p100:1024 p100:1280 p200:1536 p9:1793",
          5000, "0x4/777/2 l0" },
        { "not on a device, nor through staging", "d100:1024 d100:1280 m100:1024 m100:1280", 5000,
          "0x2/356/2 l0, 2x2/356/2s l1" },
        { "not from one allocation into the next", "p256:1024@1024 p256:1280@1280 p256:1536@1280",
          5000, "0x3/768/2 l0" },
        { "nor on a device", "d512:4096@4096 d512:4608@4608", 5000, "0x2/1024/2 l0" },
        { "the same on a device", "d512:4096 r1 d512:4608", 5000, "0x2/1024/1 l0" },
        { "not if the slot has padding there", "p100:1024 p100:1124", 5000, "0x2/356/2 l0" },
        { "an item without bytes stays", "p0 p100 p0", 5000, "1x1/100/1 l0" },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct drawn x;
        struct stream_cut c;
        char got[512] = "";
        berth_err err = { 0 };
        const char *bar = strchr(row[i].items, '|');
        uint32_t slots = bar ? (uint32_t)strtoul(row[i].items, NULL, 10) : 0;
        draw(*state, bar ? bar + 1 : row[i].items, &x);
        assert_ok(stream_cut(&x.args, row[i].run_bytes, slots, &c, &err), err);
        for (uint32_t k = 0; k < c.runs; k++) {
            const struct stream_run *r = &c.run[k];
            size_t n = strlen(got);
            snprintf(got + n, sizeof got - n, "%s%ux%u/%zu/%u%s l%u", k ? ", " : "", r->first,
                     r->items, r->span, r->copies, r->staged ? "s" : "", r->lane);
        }
        if (strcmp(got, row[i].runs) != 0)
            fail_msg("%s: got \"%s\", wanted \"%s\"", row[i].name, got, row[i].runs);
        stream_cut_release(&c);
    }
}

static void places_and_sums(void **state)
{
    struct drawn x;
    struct stream_cut c;
    berth_err err = { 0 };
    draw(*state, "p100 r50 p100 d300 m40 m70", &x);
    assert_ok(stream_cut(&x.args, 4096, 0, &c, &err), err);
    static const struct stream_place want[] = {
        { 0, 0, 0 }, { STREAM_NONE, 0, 0 }, { 0, 0, 256 }, { 1, 1, 0 }, { 2, 2, 0 }, { 2, 2, 256 },
    };
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_int_equal(c.place[i].run, want[i].run);
        assert_int_equal(c.place[i].off, want[i].off);
        if (want[i].run != STREAM_NONE)
            assert_int_equal(c.place[i].newest, want[i].newest);
    }
    assert_int_equal(c.bytes, 100 + 100 + 300 + 40 + 70);
    assert_int_equal(c.span, 356);
    assert_int_equal(c.staged, 110);
    assert_int_equal(c.lanes, 2);
    assert_null(c.lane[0]);
    assert_ptr_equal(c.lane[1], ((struct bench *)*state)->null1);
    stream_cut_release(&c);
}

/* Each run has room, even with as many others lying about as can be under way with it. */
static void assert_ring(const struct stream_cut *c)
{
    size_t largest = 0, all = 0;
    uint32_t most = 0, live;
    for (uint32_t k = 0; k < c->runs; k++) {
        const struct stream_run *a = &c->run[k];
        assert_true(a->room >= a->span && a->room - a->span < 256 && a->room % 256 == 0);
        assert_true(a->home <= c->ring && a->room <= c->ring - a->home);
        for (uint32_t m = 0; m < k; m++)
            if (c->run[m].last >= a->first) /* under way with it */
                assert_true(c->run[m].home + c->run[m].room <= a->home ||
                            a->home + a->room <= c->run[m].home);
        all += a->room;
        largest = a->room > largest ? a->room : largest;
        for (uint32_t m = live = 0; m < c->runs; m++)
            live += c->run[m].first <= a->first && a->first <= c->run[m].last;
        most = live > most ? live : most;
    }
    assert_true(
        !c->runs || c->ring == all ||
        (c->ring < all && c->ring >= c->slots * largest && c->ring >= (2 * most - 1) * largest));
    for (uint32_t k = 1; k < c->runs && c->ring == all; k++) /* each has its own */
        assert_true(c->run[k].home == c->run[k - 1].home + c->run[k - 1].room);
    assert_true(!c->runs == !c->places && (!c->runs || c->places > most));
}

/* What the ring relies on, for random items: in order every run under way has a slot and one is
 * left, and each item has a place of its own in its run. */
static void never_more_under_way_than_slots(void **state)
{
    struct rng r = { rng_seed() };
    for (int round = 0; round < 3000; round++) {
        char text[ITEMS_MAX * 8] = "";
        struct drawn x;
        struct stream_cut c;
        berth_err err = { 0 };
        size_t n = 1 + rng_below(&r, ITEMS_MAX), kinds = 1 + rng_below(&r, 5);
        for (size_t i = 0, at = 0; i < n; i++)
            at += (size_t)snprintf(text + at, sizeof text - at, "%c%d ",
                                   "pdmer"[rng_below(&r, kinds)], (int)(1 + rng_below(&r, 900)));
        draw(*state, text, &x);
        uint32_t slots = (uint32_t)rng_below(&r, 7), live = 0;
        assert_ok(stream_cut(&x.args, 1 + rng_below(&r, 4000), slots, &c, &err), err);
        uint32_t most = slots ? slots : kinds > 2 ? (uint32_t)kinds + 1 : 3;
        uint64_t bytes = 0;
        for (uint32_t k = 0; k < c.runs; k++) {
            const struct stream_run *a = &c.run[k];
            uint32_t items = 0;
            size_t end = 0;
            assert_true(!k || a->first > c.run[k - 1].first);
            for (size_t i = a->first; i <= a->last; i++) {
                if (c.place[i].run != k)
                    continue;
                assert_true(c.place[i].off >= end && c.place[i].off % 256 == 0);
                end = c.place[i].off + x.item[i].span;
                items++;
            }
            assert_true(items == a->items && end == a->span);
            for (uint32_t m = live = 0; m < c.runs; m++)
                live += c.run[m].first <= a->first && a->first <= c.run[m].last;
            if (live > (most > 2 ? most - 1 : 1))
                fail_msg("%d runs under way at item %d with %d slots: %s", (int)live, (int)a->first,
                         (int)most, text);
            for (uint32_t m = 0; m < a->copies; m++)
                bytes += c.copy[a->copy + m].bytes;
        }
        assert_true(bytes == c.bytes && c.slots <= most && c.slots <= c.runs);
        assert_ring(&c);
        stream_cut_release(&c);
    }
}

static void the_ring_can_be_larger(void **state)
{
    static const struct {
        uint64_t least, ring; /* four runs of 512: all of them are 2048 */
    } row[] = { { 0, 1536 }, { 1000, 1536 }, { 1800, 1800 }, { 2048, 2048 }, { UINT64_MAX, 2048 } };
    struct drawn x;
    struct stream_cut c;
    berth_err err = { 0 };
    draw(*state, "p512 p512 p512 p512", &x);
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        x.args.cfg.ring_least = row[i].least;
        assert_ok(stream_cut(&x.args, 512, 0, &c, &err), err);
        assert_true(c.ring == row[i].ring);
        stream_cut_release(&c);
    }
}

static void what_becomes_of_padding(void **state)
{
    struct drawn x;
    struct stream_cut c;
    berth_err err = { 0 };
    static const struct stream_piece p[] = { { 0, 10 }, { 256, 256 }, { 512, 0 }, { 512, 8 } };
    for (int pinned = 0; pinned < 2; pinned++) {
        draw(*state, pinned ? "p600:8192" : "d600:8192", &x);
        x.item[0].piece = p;
        x.item[0].pieces = ARRAY_LEN(p);
        assert_ok(stream_cut(&x.args, 4096, 0, &c, &err), err);
        assert_int_equal(c.run[0].copies, pinned ? 1 : 2);
        assert_int_equal(c.run[0].bytes, 274);
        const struct stream_copy *last = &c.copy[c.run[0].copies - 1];
        assert_int_equal(last->src, pinned ? 8192 : 8192 + 256);
        assert_int_equal(last->dst, pinned ? 0 : 256);
        assert_int_equal(last->n, pinned ? 520 : 264); /* what no copy counts goes along */
        assert_int_equal(last->bytes, pinned ? 274 : 264);
        stream_cut_release(&c);
    }
}

/* Staging is for devices that have faster memory than pages; a cpu copies by itself, and a card's
 * blocks reach it on the card's stream. */
static void a_cpu_that_computes(void **state)
{
    struct bench *b = *state;
    struct drawn x;
    struct stream_cut c;
    berth_err err = { 0 };
    draw(b, "m100 d100", &x);
    x.args.compute = b->cpu;
    assert_ok(stream_cut(&x.args, 4096, 0, &c, &err), err);
    assert_int_equal(c.staged, 0);
    assert_ptr_equal(c.lane_on[0], b->cpu);
    assert_ptr_equal(c.lane_on[1], b->null1);
    stream_cut_release(&c);
}

static void refuses(void **state)
{
    static const struct stream_piece outside = { 50, 51 }, wraps = { 8, UINT64_MAX },
                                     beyond = { 101, 0 }, twice[] = { { 0, 60 }, { 59, 2 } };
    static const struct {
        const struct stream_piece *piece;
        uint64_t addr, span;
        const char *text;
        uint32_t pieces;
        berth_status want;
    } row[] = {
        { &outside, 4096, 100, "outside of it", 1, BERTH_EINVAL },
        { &wraps, 4096, 100, "outside of it", 1, BERTH_EINVAL },
        { &beyond, 4096, 100, "outside of it", 1, BERTH_EINVAL },
        { twice, 4096, 100, "out of order", 2, BERTH_EINVAL },
        { twice, UINT64_MAX - 99, 100, "address space", 1, BERTH_ELIMIT },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct drawn x;
        struct stream_cut c;
        berth_err err = { 0 };
        draw(*state, "p10 p100", &x);
        x.item[1].name = "attn.qkv";
        x.item[1].piece = row[i].piece;
        x.item[1].pieces = row[i].pieces;
        x.item[1].addr = row[i].addr;
        x.item[1].span = row[i].span;
        assert_fails(stream_cut(&x.args, 4096, 0, &c, &err), err, row[i].want, row[i].text);
        assert_non_null(strstr(err.msg, "block 'attn.qkv' (item 1, 100 bytes on cpu)"));
        stream_cut_release(&c);
    }
}

static void refuses_what_is_not_there(void **state)
{
    struct bench *b = *state;
    struct drawn x;
    struct stream_cut c;
    berth_err err = { 0 };
    draw(b, "r10", &x);
    x.item[0].dev = b->null1;
    assert_fails(stream_cut(&x.args, 4096, 0, &c, &err), err, BERTH_EINVAL, "where the layers run");
    x.item[0].dev = NULL;
    assert_fails(stream_cut(&x.args, 4096, 0, &c, &err), err, BERTH_EINVAL, "no device");
    draw(b, "p100 p100", &x);
    x.item[0].span = x.item[1].span = UINT64_MAX / 2 + 1;
    x.item[0].addr = x.item[1].addr = 1;
    assert_fails(stream_cut(&x.args, 4096, 0, &c, &err), err, BERTH_ELIMIT, "too many bytes");
    stream_cut_release(&c);
}

static void survives_oom(void **state)
{
    struct drawn x;
    berth_status s = BERTH_ENOMEM;
    draw(*state, "p100 m100 d100 r5 p100", &x);
    for (long k = 0; s; k++) {
        struct stream_cut c;
        berth_err err = { 0 };
        oom_after(k);
        s = stream_cut(&x.args, 4096, 0, &c, &err);
        oom_off();
        assert_true(!s || (s == BERTH_ENOMEM && err.msg[0]));
        stream_cut_release(&c);
    }
}

static void sources(void **state)
{
    struct bench *b = *state;
    const struct {
        const struct device *compute, *dev;
        bool pinned;
        enum stream_source want;
    } row[] = {
        { b->null0, b->null0, false, STREAM_RESIDENT },
        { b->null0, b->null1, false, STREAM_DEVICE },
        { b->null0, b->logical, false,
          STREAM_DEVICE }, /* a card in two parts copies as two would */
        { b->null0, b->cpu, false, STREAM_PAGEABLE },
        { b->null0, b->cpu, true, STREAM_PINNED },
        { b->null0, b->cpu2, false, STREAM_PAGEABLE },
        { b->cpu, b->cpu, false, STREAM_RESIDENT },
        { b->cpu, b->cpu, true, STREAM_RESIDENT },
        { b->cpu, b->cpu2, false, STREAM_RESIDENT }, /* one address space */
        { b->cpu2, b->cpu, false, STREAM_RESIDENT },
        { b->cpu, b->null0, false, STREAM_DEVICE },
    };
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (stream_source_of(row[i].compute, row[i].dev, row[i].pinned) != row[i].want)
            fail_msg("row %d: %s for %s", (int)i, row[i].dev->name, row[i].compute->name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(cut_rows),
        cmocka_unit_test(places_and_sums),
        cmocka_unit_test_teardown(never_more_under_way_than_slots, say_seed),
        cmocka_unit_test(the_ring_can_be_larger),
        cmocka_unit_test(what_becomes_of_padding),
        cmocka_unit_test(a_cpu_that_computes),
        cmocka_unit_test(refuses),
        cmocka_unit_test(refuses_what_is_not_there),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(sources),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
