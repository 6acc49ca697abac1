/* Random programs on the null engine and a cpu device beside it, with some of their waits left out.
 *
 * A plain model decides by reachability (sets of operations as bit masks) whether every two
 * operations that touch the same bytes are ordered, and byte by byte whether null memory is written
 * before it is read. The engine must report a hazard exactly if the model finds a fault, in every
 * drawn order; and when there is none, the bytes at the end must be those of running the program
 * line by line. */
#include "support/devices.h"
#include "support/rng.h"
#include "support/seed.h"

#include <signal.h>
#include <unistd.h>

#define OPS 48    /* fits a mask */
#define STREAMS 5 /* 0, 1 of null:0, 2, 3 of null:1, 4 of cpu */
#define DEVICES 3 /* null:0, null:1, cpu */
#define BUFFERS 8 /* 0..2 on null:0, 3 and 4 on null:1, 5 and 6 on cpu, 7 host */
#define NULL_BUFFERS 5
#define HOST_BUFFER 7
#define BYTES 256

enum what { COPY, MIX, HOST_READ, HOST_WRITE };

struct op {
    enum what what;
    size_t stream;
    size_t dst, src, dst_at, src_at, n; /* host accesses use dst only */
    uint64_t waits;                     /* operations whose event is waited for before it */
    unsigned char key;
};

struct program {
    struct op op[OPS];
    size_t n;
    bool blank[NULL_BUFFERS]; /* starts with nothing in it */
};

static bool on_host(const struct op *o)
{
    return o->what == HOST_READ || o->what == HOST_WRITE;
}

static size_t device_of_stream(size_t stream)
{
    return stream / 2;
}

/* Happens when it is called, in the host's order: cpu work too. */
static bool at_once(const struct op *o)
{
    return on_host(o) || device_of_stream(o->stream) == 2;
}

static bool overlap(size_t buf, size_t at, size_t n, size_t buf2, size_t at2, size_t n2)
{
    return buf == buf2 && at < at2 + n2 && at2 < at + n;
}

static bool writes(const struct op *o, size_t buf, size_t at, size_t n)
{
    return o->what != HOST_READ && overlap(o->dst, o->dst_at, o->n, buf, at, n);
}

static bool reads(const struct op *o, size_t buf, size_t at, size_t n)
{
    if (on_host(o))
        return o->what == HOST_READ && overlap(o->dst, o->dst_at, o->n, buf, at, n);
    return overlap(o->src, o->src_at, o->n, buf, at, n) ||
           (o->what == MIX && overlap(o->dst, o->dst_at, o->n, buf, at, n));
}

static bool conflict(const struct op *a, const struct op *b)
{
    bool host_read = a->what == HOST_READ;
    if (!host_read && (writes(b, a->dst, a->dst_at, a->n) || reads(b, a->dst, a->dst_at, a->n)))
        return true;
    if (host_read)
        return writes(b, a->dst, a->dst_at, a->n);
    return !on_host(a) && writes(b, a->src, a->src_at, a->n);
}

/* ---- making programs ---- */

static struct op draw_op(struct rng *r)
{
    struct op o = { .stream = rng_below(r, STREAMS), .n = 1 + rng_below(r, BYTES / 2) };
    o.key = (unsigned char)rng_u64(r);
    o.dst_at = rng_below(r, BYTES - o.n + 1);
    o.src_at = rng_below(r, BYTES - o.n + 1);
    size_t kind = rng_below(r, 8);
    o.what = kind < 4 ? COPY : kind < 6 ? MIX : kind < 7 ? HOST_READ : HOST_WRITE;
    if (on_host(&o)) {
        o.dst = o.src = HOST_BUFFER;
        return o;
    }
    static const struct {
        size_t first, n;
    } on[DEVICES] = { { 0, 3 }, { 3, 2 }, { 5, 2 } };
    size_t d = device_of_stream(o.stream);
    do { /* a launch runs on its stream's device */
        bool mix = o.what == MIX;
        o.dst = mix ? on[d].first + rng_below(r, on[d].n) : rng_below(r, BUFFERS);
        o.src = mix ? on[d].first + rng_below(r, on[d].n) : rng_below(r, BUFFERS);
    } while (o.dst == o.src);
    return o;
}

static size_t device_of(size_t buf) /* 0, 1 null; 2 cpu; 3 is the host */
{
    return buf < 3 ? 0 : buf < NULL_BUFFERS ? 1 : buf < HOST_BUFFER ? 2 : 3;
}

/* A copy needs one of its ends on its stream's device; cpu streams reach host memory only (their
 * copies to a null device are staged, with waits of their own). */
static bool possible(const struct op *o)
{
    size_t d = device_of_stream(o->stream), a = device_of(o->dst), b = device_of(o->src);
    return on_host(o) || ((a == d || b == d) && (d != 2 || (a >= 2 && b >= 2)));
}

/* Every wait that could be needed, then some of them taken away again: `keep` of 100. */
static void draw_program(struct rng *r, struct program *p, size_t keep, bool blanks)
{
    for (size_t i = 0; i < NULL_BUFFERS; i++)
        p->blank[i] = blanks && rng_below(r, 4) == 0;
    p->n = 8 + rng_below(r, OPS - 8 + 1);
    for (size_t i = 0; i < p->n; i++) {
        do
            p->op[i] = draw_op(r);
        while (!possible(&p->op[i]));
        for (size_t k = 0; k < i; k++)
            if (!at_once(&p->op[k]) && conflict(&p->op[k], &p->op[i]) && rng_below(r, 100) < keep)
                p->op[i].waits |= UINT64_C(1) << k;
    }
}

/* ---- the model ---- */

/* Is some pair that conflicts not ordered? before[i]: what happens before operation i. */
static bool has_race(const struct program *p)
{
    uint64_t before[OPS], host = 0, in_stream[STREAMS] = { 0 };
    bool race = false;
    for (size_t i = 0; i < p->n; i++) {
        const struct op *o = &p->op[i];
        uint64_t waited = 0;
        for (size_t k = 0; k < i; k++)
            if (o->waits >> k & 1)
                waited |= before[k] | UINT64_C(1) << k;
        if (at_once(o)) {
            host |= waited;
            before[i] = host;
            host |= UINT64_C(1) << i;
        } else {
            in_stream[o->stream] |= waited | host;
            before[i] = in_stream[o->stream];
            in_stream[o->stream] |= UINT64_C(1) << i;
        }
        for (size_t k = 0; k < i; k++)
            race |= conflict(&p->op[k], o) && !(before[i] >> k & 1);
    }
    return race;
}

/* Does some operation read bytes of a null device that none before it wrote? */
static bool reads_blank(const struct program *p)
{
    bool written[BUFFERS][BYTES], fault = false;
    for (size_t b = 0; b < BUFFERS; b++)
        memset(written[b], b >= NULL_BUFFERS || !p->blank[b], BYTES);
    for (size_t i = 0; i < p->n; i++) {
        const struct op *o = &p->op[i];
        for (size_t b = 0; b < BUFFERS; b++)
            for (size_t k = 0; k < BYTES; k++)
                fault |= !written[b][k] && reads(o, b, k, 1);
        for (size_t k = 0; k < o->n && o->what != HOST_READ; k++)
            written[o->dst][o->dst_at + k] = true;
    }
    return fault;
}

static void mix(unsigned char *dst, const unsigned char *src, size_t n, unsigned char key)
{
    for (size_t i = 0; i < n; i++)
        dst[i] = (unsigned char)(dst[i] * 3 + src[i] + key);
}

static void run_plainly(const struct program *p, unsigned char mem[BUFFERS][BYTES])
{
    for (size_t i = 0; i < p->n; i++) {
        const struct op *o = &p->op[i];
        if (o->what == COPY)
            memcpy(mem[o->dst] + o->dst_at, mem[o->src] + o->src_at, o->n);
        else if (o->what == MIX)
            mix(mem[o->dst] + o->dst_at, mem[o->src] + o->src_at, o->n, o->key);
        else if (o->what == HOST_WRITE)
            memset(mem[o->dst] + o->dst_at, o->key, o->n);
    }
}

/* ---- the engine ---- */

struct machine {
    struct devset *set;
    struct device *dev[DEVICES];
    struct dev_owner *owner[DEVICES];
    struct dev_mem mem[HOST_BUFFER];
    unsigned char host[BYTES];
    struct dev_stream *stream[STREAMS];
    struct dev_event *event[OPS];
};

static struct dev_stream *a_stream_of(struct machine *m, size_t device)
{
    return m->stream[device * 2];
}

static void machine_open(struct machine *m, uint64_t seed, const struct program *p,
                         unsigned char init[BUFFERS][BYTES])
{
    struct null_config cfg = { .seed = seed };
    struct dev_env env = { .null = &cfg };
    berth_err err = { 0 };
    *m = (struct machine) { .set = open_devices("null:0=1m,null:1=1m,cpu=1m", &env) };
    for (size_t i = 0; i < DEVICES; i++) {
        m->dev[i] = devset_at(m->set, i);
        m->owner[i] = owner_of(m->dev[i], "m", DEV_WEIGHTS);
    }
    for (size_t i = 0; i < STREAMS; i++)
        m->stream[i] = stream_of(m->dev[device_of_stream(i)]);
    for (size_t i = 0; i < HOST_BUFFER; i++) {
        struct device *d = m->dev[device_of(i)];
        m->mem[i] = alloc_on(d, m->owner[device_of(i)], BYTES);
        struct dev_stream *s = a_stream_of(m, device_of(i));
        if (i < NULL_BUFFERS && p->blank[i])
            continue;
        assert_ok(dev_copy_h2d(s, m->mem[i].addr, init[i], BYTES, &err), err);
        assert_ok(dev_stream_sync(s, &err), err);
    }
    memcpy(m->host, init[HOST_BUFFER], BYTES);
}

static void run_mix(void *user, void *const *ptr)
{
    const struct op *o = user;
    mix(ptr[0], ptr[1], o->n, o->key);
}

static void queue(struct machine *m, struct op *o)
{
    struct dev_stream *s = m->stream[o->stream];
    berth_err err = { 0 };
    if (o->what == MIX) {
        struct dev_access access[] = {
            { m->mem[o->dst].addr + o->dst_at, o->n, DEV_READ | DEV_WRITE },
            { m->mem[o->src].addr + o->src_at, o->n, DEV_READ },
        };
        assert_ok(dev_launch(s, run_mix, o, access, 2, &err), err);
    } else if (o->src == HOST_BUFFER) {
        assert_ok(dev_copy_h2d(s, m->mem[o->dst].addr + o->dst_at, m->host + o->src_at, o->n, &err),
                  err);
    } else if (o->dst == HOST_BUFFER) {
        assert_ok(dev_copy_d2h(s, m->host + o->dst_at, m->mem[o->src].addr + o->src_at, o->n, &err),
                  err);
    } else {
        struct dev_at dst = { m->dev[device_of(o->dst)], m->mem[o->dst].addr + o->dst_at };
        struct dev_at src = { m->dev[device_of(o->src)], m->mem[o->src].addr + o->src_at };
        assert_ok(dev_copy(s, dst, src, o->n, &err), err);
    }
}

static void run_on(struct machine *m, struct program *p, struct rng *r)
{
    berth_err err = { 0 };
    for (size_t i = 0; i < p->n; i++) {
        struct op *o = &p->op[i];
        for (size_t k = 0; k < i; k++) {
            if (!(o->waits >> k & 1))
                continue;
            if (on_host(o))
                assert_ok(dev_event_sync(m->event[k], &err), err);
            else
                assert_ok(dev_stream_wait(m->stream[o->stream], m->event[k], &err), err);
        }
        if (on_host(o)) {
            unsigned how = o->what == HOST_WRITE ? DEV_WRITE : DEV_READ;
            dev_host_access(m->dev[0], m->host + o->dst_at, o->n, how);
            if (how == DEV_WRITE)
                memset(m->host + o->dst_at, o->key, o->n);
        } else {
            queue(m, o);
            m->event[i] = event_of(m->dev[device_of_stream(o->stream)]);
            assert_ok(dev_event_record(m->event[i], m->stream[o->stream], &err), err);
        }
        for (size_t k = rng_below(r, 3); k; k--)
            null_step(m->dev[0]);
    }
    for (size_t i = 0; i < STREAMS; i++)
        assert_ok(dev_stream_sync(m->stream[i], &err), err);
}

static void machine_close(struct machine *m)
{
    for (size_t i = 0; i < OPS; i++)
        dev_event_free(m->event[i]);
    for (size_t i = 0; i < STREAMS; i++)
        dev_stream_free(m->stream[i]);
    for (size_t i = 0; i < HOST_BUFFER; i++)
        dev_free(&m->mem[i]);
    for (size_t i = 0; i < DEVICES; i++)
        dev_owner_close(m->owner[i]);
    devset_close(m->set);
}

static void compare(struct machine *m, const struct program *p, unsigned char want[BUFFERS][BYTES])
{
    unsigned char got[BYTES];
    berth_err err = { 0 };
    for (size_t i = 0; i < HOST_BUFFER; i++) {
        if (i < NULL_BUFFERS && p->blank[i])
            continue; /* parts of it have no value */
        struct dev_stream *s = a_stream_of(m, device_of(i));
        assert_ok(dev_copy_d2h(s, got, m->mem[i].addr, BYTES, &err), err);
        assert_ok(dev_stream_sync(s, &err), err);
        assert_memory_equal(got, want[i], BYTES);
    }
    assert_memory_equal(m->host, want[HOST_BUFFER], BYTES);
}

/* ---- properties ---- */

struct tally {
    int races, blanks, clean;
};

static void one_program(uint64_t seed, size_t keep, bool blanks, struct tally *tally)
{
    struct rng r = { seed };
    struct program p = { .n = 0 };
    unsigned char init[BUFFERS][BYTES], want[BUFFERS][BYTES];
    running = seed;
    draw_program(&r, &p, keep, blanks);
    for (size_t i = 0; i < BUFFERS; i++)
        for (size_t k = 0; k < BYTES; k++)
            init[i][k] = (unsigned char)rng_u64(&r);
    memcpy(want, init, sizeof want);
    run_plainly(&p, want);
    bool race = has_race(&p), blank = reads_blank(&p);
    for (int order = 0; order < 3; order++) {
        struct machine m;
        machine_open(&m, rng_u64(&r), &p, init);
        run_on(&m, &p, &r);
        uint64_t found = null_hazards(m.dev[0]);
        uint64_t found_blank = null_hazards_of(m.dev[0], NULL_READ_BLANK);
        if ((found != found_blank) != race || (found_blank != 0) != blank)
            fail_msg(
                "keep %d order %d: race %d, %d reported; blank read %d, %d reported; last '%s'",
                (int)keep, order, race, (int)(found - found_blank), blank, (int)found_blank,
                null_last_hazard(m.dev[0]));
        if (!race && !blank)
            compare(&m, &p, want);
        machine_close(&m);
    }
    tally->races += race;
    tally->blanks += blank;
    tally->clean += !race && !blank;
    running = 0;
}

static void reports_exactly_the_races(void **state)
{
    uint64_t seed = rng_seed();
    struct tally all = { 0 }, some = { 0 }, blank = { 0 };
    (void)state;
    for (uint64_t i = 0; i < 400; i++) {
        one_program(seed + i, 100, false, &all);
        one_program(seed + i, 97, false, &some);
        one_program(seed + i, 80, false, &some);
        one_program(seed + i, 97, true, &blank);
    }
    assert_int_equal(all.races, 0); /* every needed wait is there */
    assert_int_equal(all.blanks, 0);
    assert_true(some.races > 20 && some.clean > 20);
    assert_true(blank.blanks > 20 && blank.blanks < 380);
}

/* A complete program, one wait removed: a race unless other waits imply the order. Both happen. */
static void one_missing_wait(void **state)
{
    uint64_t seed = rng_seed();
    int needed = 0;
    (void)state;
    for (uint64_t i = 0; i < 600; i++) {
        struct rng r = { running = seed + i };
        struct program p = { .n = 0 };
        unsigned char init[BUFFERS][BYTES] = { { 0 } };
        draw_program(&r, &p, 100, false);
        size_t at = rng_below(&r, p.n);
        while (at < p.n && !p.op[at].waits)
            at++;
        if (at == p.n)
            continue;
        p.op[at].waits &= p.op[at].waits - 1; /* the oldest one */
        bool race = has_race(&p);
        struct machine m;
        machine_open(&m, seed + i, &p, init);
        run_on(&m, &p, &r);
        if ((null_hazards(m.dev[0]) != 0) != race)
            fail_msg("race %d, last report '%s'", race, null_last_hazard(m.dev[0]));
        machine_close(&m);
        needed += race;
    }
    running = 0;
    assert_true(needed > 10);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(reports_exactly_the_races, say_seed),
        cmocka_unit_test_teardown(one_missing_wait, say_seed),
    };
    signal(SIGABRT, say_seed_and_die); /* validators stop the process */
    return cmocka_run_group_tests(tests, NULL, NULL);
}
