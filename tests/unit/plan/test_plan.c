/* Plans: the worked examples (residency.md 2.6) with exact quotas, classes, budgets, tables. */
#include "support/oom.h"
#include "support/plan_same.h"
#include "support/plans.h"
#include "support/sparse.h"
#include "support/tmp.h"

static struct blocks list(const struct block_spec *spec, size_t n)
{
    struct blocks b;
    assert_true(blocks_from_specs(spec, n, &b));
    return b;
}

static struct plan plan_of(const struct blocks *b, const char *text, enum plan_layout layout)
{
    struct plan p;
    berth_err err = { 0 };
    struct plan_args args = { .alloc = text, .layout = layout, .reserve = UINT64_MAX };
    assert_ok(plan_from_args(b, &machine, &args, &p, &err), err);
    return p;
}

/* One letter per block: 0 cuda:0, 1 cuda:1, c cpu. */
static void assert_devices(const struct plan *p, const char *want)
{
    char got[64] = "";
    for (size_t i = 0; i < p->n; i++)
        got[i] = "01c"[p->device[i]];
    assert_string_equal(got, want);
}

/* The examples in layout tail. Blocks: patch_in, blk.0 .. blk.7, norm_out (tiny), head. Where what
 * upstream does differs it is for exact quotas, or for orphans that went to the compute device. */
static void worked_examples_tail(void **state)
{
    (void)state;
    static const struct {
        const char *text, *devices;
        uint64_t mib[3]; /* without the tiny block */
        unsigned orphans, orphans_on;
    } cases[] = {
        /* 1968.03 / 2048: blk.4..1 -> cpu, 48 MiB left; blk.0 -> cpu, the last donor */
        { "#cuda:0;2.0;cpu", "0ccccc00000", { 1516, 0, 2500 }, 1, CPU },
        { "#cuda:0;99;cpu", "ccccccccc0c", { 0, 0, 4016 }, 0, CPU },
        /* 1024 / 1536 / 1456.03: head, blk.7,6 | blk.5,4,3 | blk.2,1; blk.0 -> "*" */
        { "cuda:0,1gb;cuda:1,1.5gb;cpu,*", "0ccc1110000", { 1016, 1500, 1500 }, 1, CPU },
        /* 500 / 3072 / 444.03: head | blk.7..2 | -; blk.1,0 -> "*"; patch_in -> cuda:0 */
        { "cuda:0,500mb;cuda:1,3.0g;cpu,5gb*", "0cc11111100", { 16, 3000, 1000 }, 2, CPU },
        /* 1004.007 / 3012.02: no "*", so the compute device takes blk.0 */
        { "cuda:0,25%;cpu,75%", "00cccccc000", { 1016, 0, 3000 }, 1, CUDA0 },
        /* 1606.41 / 1606.41 / 803.2 */
        { "cuda:0,8%;cuda:1,8%;cpu,4%", "00c11100000", { 2016, 1500, 500 }, 1, CUDA0 },
        /* 1228.8 / 1228.8 / the rest, 1558.43: they hold the model, so compute takes blk.0 */
        { "cuda:0,0.05;cuda:1,0.05;cpu,0.03", "00ccc110000", { 1516, 1000, 1500 }, 1, CUDA0 },
        /* 1228.8 / 1228.8: they do not, and cpu takes the rest and the orphans */
        { "cuda:0,0.05;cuda:1,0.05", "0cccc110000", { 1016, 1000, 2000 }, 1, CPU },
        /* the order written is the order of placement */
        { "cpu,1gb;cuda:1,1.5gb;cuda:0,*", "c000111cc0c", { 1500, 1500, 1016 }, 1, CUDA0 },
        { "#cuda:1", "11111111111", { 0, 4016, 0 }, 0, CUDA1 },
    };
    struct blocks b = list(toy, TOY_BLOCKS);
    assert_int_equal(b.bytes, TOY_BYTES);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan p = plan_of(&b, cases[i].text, PLAN_TAIL);
        assert_devices(&p, cases[i].devices);
        for (size_t d = 0; d < machine.n; d++) {
            const struct plan_share *s = &p.share[d];
            assert_int_equal(s->bytes - s->by_class[PLAN_TINY], cases[i].mib[d] * MIB);
            assert_int_equal(s->blocks_by_class[PLAN_TINY], d == p.quotas.compute);
            assert_int_equal(s->blocks_by_class[PLAN_ORPHAN],
                             d == cases[i].orphans_on ? cases[i].orphans : 0);
        }
        plan_release(&p);
    }
    blocks_release(&b);
}

/* 476.02 MiB for cuda:1, less the embedding's 300: layers.0 fits neither that nor cpu's last 24. */
static void worked_example_clip(void **state)
{
    (void)state;
    struct blocks b = list(clip, CLIP_BLOCKS);
    struct plan p = plan_of(&b, "#cuda:1;1.0;cpu", PLAN_TAIL);
    assert_devices(&p, "1cccccc1");
    assert_int_equal(p.why[0], PLAN_EMBEDDING);
    assert_int_equal(p.why[1], PLAN_ORPHAN);
    assert_int_equal(p.why[7], PLAN_TINY);
    assert_int_equal(p.share[CUDA1].bytes, 300 * MIB + 16 * KIB);
    assert_int_equal(p.share[CPU].bytes, 1200 * MIB);
    plan_release(&p);
    p = plan_of(&b, "#cuda:1;1.0;cpu", PLAN_SPREAD);
    assert_devices(&p, "1cccccc1"); /* 176 MiB never hold a layer */
    plan_release(&p);
    p = plan_of(&b, "cpu,*#cuda:1", PLAN_TAIL); /* embeddings stay even without a quota */
    assert_devices(&p, "1cccccc1");
    plan_release(&p);
    blocks_release(&b);
}

/* The same model as a file of no known family: the embedding is known by its name. */
static void worked_example_clip_as_a_file(void **state)
{
    (void)state;
    struct weights_spec spec[CLIP_BLOCKS];
    char name[CLIP_BLOCKS][40];
    for (size_t i = 0; i < CLIP_BLOCKS; i++) {
        snprintf(name[i], sizeof name[i], "%s.weight", clip[i].name);
        spec[i] = (struct weights_spec) { .name = name[i],
                                          .dtype = DT_F16,
                                          .shape = { 2, { clip[i].bytes / 1024, 512 } } };
    }
    const char *path = tmp_path("clip.safetensors");
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0666);
    assert_true(fd >= 0);
    berth_err err = { 0 };
    assert_ok(sparse_fill(fd, spec, CLIP_BLOCKS, &err), err);
    close(fd);
    struct weights *w;
    struct blocks b;
    assert_ok(weights_open(path, NULL, &w, &err), err);
    assert_ok(blocks_from_weights(w, NULL, NULL, &b, &err), err);
    for (enum plan_layout l = PLAN_SPREAD; l <= PLAN_TAIL; l++) {
        struct plan p = plan_of(&b, "#cuda:1;1.0;cpu", l);
        assert_int_equal(p.share[CUDA1].bytes, 300 * MIB + 16 * KIB);
        assert_int_equal(p.share[CPU].bytes, 1200 * MIB);
        plan_release(&p);
    }
    blocks_release(&b);
    weights_close(w);
}

static void spread_interleaves(void **state)
{
    (void)state;
    struct block_spec even[12];
    for (size_t i = 0; i < ARRAY_LEN(even); i++)
        even[i] = (struct block_spec) { "x", 100 * MIB, false };
    struct blocks b = list(even, ARRAY_LEN(even));
    static const struct {
        const char *text, *devices;
    } cases[] = {
        { "cuda:0,600mb;cpu,*", "0c0c0c0c0c0c" }, /* the first block is there when it is needed */
        { "cuda:0,50%;cpu,50%", "0c0c0c0c0c0c" },
        { "cuda:0,900mb;cpu,*", "000c000c000c" },
        { "cuda:0,300mb;cpu,*", "0ccc0ccc0ccc" },
        { "cuda:0,399mb;cpu,*", "0ccc0ccc0ccc" }, /* 99 MiB hold no block: as if 300 were asked */
        { "cuda:0,600mb;cuda:1,300mb;cpu,*", "010c010c010c" },
        { "cuda:0,400mb;cuda:1,400mb;cpu,400mb#cuda:0", "01c01c01c01c" },
        { "cuda:0,*;cuda:1,450mb;cpu,450mb#cuda:0", "01c01c01c01c" }, /* each its own 400 */
        { "cpu,*", "cccccccccccc" },
        { "cuda:0,*", "000000000000" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan p = plan_of(&b, cases[i].text, PLAN_SPREAD);
        assert_devices(&p, cases[i].devices);
        plan_release(&p);
    }
    blocks_release(&b);
}

/* Where the time of blocks is known copies are due by it, whatever its unit is. */
static void spread_goes_by_time(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        unsigned time[12];   /* of blocks of 100 MiB */
        unsigned first, all; /* donors' blocks among the first six, and all of them */
    } cases[] = {
        { "cuda:0,800mb;cpu,*", { 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1 }, 3, 4 },
        { "cuda:0,800mb;cpu,*", { 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3 }, 1, 4 },
        { "cuda:0,67%;cpu,33.5%#cuda:0", { 3, 3, 3, 3, 3, 3, 1, 1, 1, 1, 1, 1 }, 3, 4 },
        { "cuda:0,67%;cpu,33.5%#cuda:0", { 1, 1, 1, 1, 1, 1, 3, 3, 3, 3, 3, 3 }, 1, 4 },
        { "cuda:0,600mb;cpu,*", { 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7, 7 }, 3, 6 },
        /* the first half has no more to give, and what is asked for is got */
        { "cuda:0,200mb;cpu,*", { 99, 99, 99, 99, 99, 99, 1, 1, 1, 1, 1, 1 }, 6, 10 },
        { "cuda:0,*;cpu,1000mb#cuda:0", { 99, 99, 99, 99, 99, 99, 1, 1, 1, 1, 1, 1 }, 6, 10 },
        { "cuda:0,*;cpu,1000mb#cuda:0", { 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1 }, 6, 10 },
        { "cuda:0,*;cpu,1200mb#cuda:0", { 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0 }, 6, 12 },
    };
    struct block_spec even[12];
    for (size_t i = 0; i < ARRAY_LEN(even); i++)
        even[i] = (struct block_spec) { "x", 100 * MIB, false };
    struct blocks b = list(even, ARRAY_LEN(even));
    for (size_t i = 0; i < ARRAY_LEN(cases); i++)
        for (uint64_t unit = 1; unit; unit = unit == 1 ? UINT64_MAX / 99 : 0) {
            unsigned first = 0, all = 0;
            for (size_t k = 0; k < b.n; k++)
                b.at[k].work = unit * cases[i].time[k];
            struct plan p = plan_of(&b, cases[i].text, PLAN_SPREAD);
            for (size_t k = 0; k < b.n; k++) {
                first += k < 6 && p.device[k] == CPU;
                all += p.device[k] == CPU;
            }
            if (first != cases[i].first || all != cases[i].all)
                fail_msg("case %zu: %u and %u", i, first, all);
            plan_release(&p);
        }
    blocks_release(&b);
}

/* The same bytes per device as tail has where blocks allow it, and small blocks fill what is
 * open. */
static void spread_and_tail_give_the_same_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *text, *devices;
        int more[3]; /* MiB more than tail */
    } cases[] = {
        { "#cuda:0;2.0;cpu", "00c0cc0cc00", { 0 } },
        { "cuda:0,1gb;cuda:1,1.5gb;cpu,*", "010c1c01c00", { 0 } },
        { "cuda:0,0.05;cuda:1,0.05", "0c10cc01c00", { 0 } },
        /* the amounts of devices that take no orphans are used better than from the last to the
         * first: 500 of 500, 3010 of 3012, 510 of 803 */
        { "cuda:0,500mb;cuda:1,3.0g;cpu,5gb*", "1111c011101", { 484, 16, -500 } },
        { "cuda:0,25%;cpu,75%", "00ccc0ccc0c", { -10, 0, 10 } },
        { "cuda:0,8%;cuda:1,8%;cpu,4%", "0010c10100c", { -10, 0, 10 } },
        { "cuda:0,0.05;cuda:1,0.05;cpu,0.03", "00c10c10c01", { -10, 10, 0 } },
    };
    struct blocks b = list(toy, TOY_BLOCKS);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan tail = plan_of(&b, cases[i].text, PLAN_TAIL);
        struct plan p = plan_of(&b, cases[i].text, PLAN_SPREAD);
        assert_devices(&p, cases[i].devices);
        for (size_t d = 0; d < machine.n; d++)
            assert_int_equal(p.share[d].bytes - tail.share[d].bytes,
                             (uint64_t)cases[i].more[d] * MIB);
        plan_release(&tail);
        plan_release(&p);
    }
    blocks_release(&b);
}

/* 21 blocks, donors hold 4 (of 4.9) and 5 of them: 9 of 21, in every window to within one block. */
static void several_donors_without_a_wildcard_interleave(void **state)
{
    (void)state;
    struct block_spec even[21];
    for (size_t i = 0; i < ARRAY_LEN(even); i++)
        even[i] = (struct block_spec) { "x", 100 * MIB, false };
    struct blocks b = list(even, ARRAY_LEN(even));
    struct plan p = plan_of(&b, "cuda:0,1110mb*;cuda:1,490mb;cpu,500mb", PLAN_SPREAD);
    assert_int_equal(p.share[CUDA1].blocks, 4);
    assert_int_equal(p.share[CPU].blocks, 5);
    assert_int_equal(p.device[0], CUDA0);
    for (size_t from = 0; from < p.n; from++) {
        int donors = 0;
        for (size_t i = from; i < p.n; i++) {
            donors += p.device[i] != CUDA0;
            int off = donors * 21 - (int)(i + 1 - from) * 9;
            assert_true(off <= 21 && off >= -21);
        }
    }
    plan_release(&p);
    blocks_release(&b);
}

/* Shares may send a block to a donor that is full: another one with room takes it before
 * compute. */
static void spread_fills_donors_before_orphans(void **state)
{
    (void)state;
    struct block_spec spec[7];
    for (size_t i = 0; i < ARRAY_LEN(spec); i++)
        spec[i] = (struct block_spec) { "x", (i < 6 ? 60 : 40) * MIB, false };
    struct blocks b = list(spec, ARRAY_LEN(spec));
    struct plan p = plan_of(&b, "cuda:1,75%;cpu,25%#cuda:0", PLAN_SPREAD);
    assert_devices(&p, "11c111c");
    assert_int_equal(p.share[CUDA0].blocks, 0);
    plan_release(&p);
    blocks_release(&b);
}

static void tiny_is_below_a_ten_thousandth(void **state)
{
    (void)state;
    const struct block_spec spec[] = { { "big", 10000 * MIB - 2 * MIB + 1, false },
                                       { "at", MIB, false },
                                       { "below", MIB - 1, false },
                                       { "nothing", 0, false } };
    struct blocks b = list(spec, ARRAY_LEN(spec));
    assert_int_equal(b.bytes, 10000 * MIB);
    struct plan p = plan_of(&b, "cpu,*", PLAN_SPREAD);
    assert_devices(&p, "cc00");
    assert_int_equal(p.why[1], PLAN_QUOTA);
    assert_int_equal(p.why[2], PLAN_TINY);
    assert_int_equal(p.share[CUDA0].blocks, 2);
    plan_release(&p);
    blocks_release(&b);
}

/* What is beyond the amount of the compute device is said when it is more than a hundredth of
 * it. */
static void notes_what_stays_beyond_the_amount(void **state)
{
    (void)state;
    static const struct {
        const char *text, *note; /* NULL: none */
    } cases[] = {
        { "cuda:1,476mb;cpu,*#cuda:1", NULL }, /* the embedding is in, 16 KiB are 0.003 % */
        { "cuda:1,300mb;cpu,*#cuda:1", NULL },
        { "cuda:1,200mb;cpu,*#cuda:1", "cuda:1 holds 100 MiB beyond its amount: embeddings and "
                                       "small blocks stay there" },
        { "cpu,*#cuda:1", "cuda:1 holds 300 MiB beyond its amount" },
        { "cuda:1,1mb;cpu,*#cuda:1", "cuda:1 holds 299 MiB beyond its amount" },
    };
    struct blocks b = list(clip, CLIP_BLOCKS);
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct plan p = plan_of(&b, cases[i].text, PLAN_SPREAD);
        assert_int_equal(p.quotas.notes, cases[i].note ? 1 : 0);
        if (cases[i].note && !strstr(p.quotas.note[0], cases[i].note))
            fail_msg("'%s': '%s'", cases[i].text, p.quotas.note[0]);
        plan_release(&p);
    }
    blocks_release(&b);
}

static void over_budget_is_an_error(void **state)
{
    (void)state;
    struct blocks b = list(toy, TOY_BLOCKS);
    struct plan_devices d = machine;
    struct plan p;
    berth_err err = { 0 };
    d.at[CUDA0].budget = GIB;
    struct plan_args args = { .alloc = "#cuda:0", .layout = PLAN_TAIL };
    assert_fails(plan_from_args(&b, &d, &args, &p, &err), err, BERTH_ELIMIT,
                 "plan (tail): cuda:0 would hold 3.92 GiB (4211113984 bytes in 11 blocks), its "
                 "budget is 1.00 GiB (1073741824 bytes)");
    assert_null(p.device);
    plan_release(&p);
    args.alloc = "cuda:0,1.2gb;cpu,*"; /* 1228 MiB asked, 1010 used: what is held counts */
    assert_ok(plan_from_args(&b, &d, &args, &p, &err), err);
    plan_release(&p);
    struct quotas q;
    assert_ok(resolve("cpu,*", &d, NULL, b.bytes - 1, &q, &err), err);
    assert_fails(plan_make(&b, &d, &q, PLAN_TAIL, &p, &err), err, BERTH_EINVAL,
                 "the quotas are of 4211113983 bytes, the blocks have 4211113984");
    plan_release(&p);
    struct quotas q2 = q;
    struct blocks huge = { .bytes = UINT64_C(1) << 60 };
    q2.at[0].bytes = huge.bytes;
    assert_fails(plan_make(&huge, &d, &q2, PLAN_SPREAD, &p, &err), err, BERTH_ELIMIT,
                 "plans are for less than 2^60");
    plan_release(&p);
    args.alloc = "cuda:0,1qb";
    assert_fails(plan_from_args(&b, &d, &args, &p, &err), err, BERTH_EINVAL, "entry 1");
    plan_release(&p);
    blocks_release(&b);
}

static void compares(void **state)
{
    (void)state;
    struct blocks b = list(toy, TOY_BLOCKS);
    struct plan p = plan_of(&b, "cuda:0,1gb;cpu,*", PLAN_SPREAD), other;
    struct plan same = plan_of(&b, "cuda:0,1gb;cpu,*", PLAN_SPREAD);
    assert_true(plan_same(&p, &same));
    same.device[3] ^= CPU;
    assert_false(plan_same(&p, &same));
    plan_release(&same);
    other = plan_of(&b, "cuda:0,1gb;cpu,*", PLAN_TAIL);
    assert_false(plan_same(&p, &other));
    plan_release(&other);
    plan_release(&p);
    plan_release(&p);
    blocks_release(&b);
    enum plan_layout l;
    assert_true(plan_layout_parse("tail", 4, &l) && l == PLAN_TAIL);
    assert_true(plan_layout_parse("spread", 6, &l) && l == PLAN_SPREAD);
    assert_false(plan_layout_parse("tailor", 6, &l));
}

static void survives_oom(void **state)
{
    (void)state;
    struct blocks b = list(toy, TOY_BLOCKS);
    struct plan_args args = { .alloc = "cuda:0,1gb;cpu,*" };
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        struct plan p;
        berth_err err = { 0 };
        oom_after(k);
        s = plan_from_args(&b, &machine, &args, &p, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0] && !p.device && !p.n));
        assert_true(k > 0 || s);
        plan_release(&p);
    }
    blocks_release(&b);
}

/* ---- tables ---- */

static void collect(void *user, const char *line)
{
    struct str *s = user;
    str_adds(s, line);
    str_addc(s, '\n');
}

static const char tables[] = "===================================================\n"
                             "          Virtual VRAM of the plan\n"
                             "===================================================\n"
                             "Object   Role    Original GiB  Total GiB   Virt GiB\n"
                             "---------------------------------------------------\n"
                             "cuda:0   recip          24.00      26.00      +2.00\n"
                             "cpu      donor          64.00      62.00      -2.00\n"
                             "---------------------------------------------------\n"
                             "model    model           3.92       1.92      -2.00\n"
                             "Fractions of each device (rounded; the exact string comes last)\n"
                             "cuda:0,0.0801;cuda:1,0.0000;cpu,0.0312\n"
                             "==================================================\n"
                             "            Device allocations\n"
                             "==================================================\n"
                             "Device   VRAM GiB    Dev %  Model GiB    Dist %\n"
                             "--------------------------------------------------\n"
                             "cuda:0      24.00     8.0%       1.92     49.0%\n"
                             "cuda:1      24.00     0.0%       0.00      0.0%\n"
                             "cpu         64.00     3.1%       2.00     51.0%\n"
                             "--------------------------------------------------\n"
                             "            Layer types\n"
                             "--------------------------------------------------\n"
                             "Layer Type         Layers  Memory (MiB)   % Total\n"
                             "--------------------------------------------------\n"
                             "Linear                 11       4016.03    100.0%\n"
                             "--------------------------------------------------\n"
                             "            Final assignments\n"
                             "--------------------------------------------------\n"
                             "Device             Layers  Memory (MiB)   % Total\n"
                             "--------------------------------------------------\n"
                             "cuda:0 (<0.01%)         1          0.03      0.0%\n"
                             "cuda:0                  5       1516.00     37.7%\n"
                             "cpu                     5       2500.00     62.3%\n"
                             "--------------------------------------------------\n"
                             "fit no amount that was left: 1 block, 500.00 MiB -> cpu\n";

static void prints_the_tables_people_know(void **state)
{
    (void)state;
    struct blocks b = list(toy, TOY_BLOCKS);
    struct plan p = plan_of(&b, "#cuda:0;2.0;cpu", PLAN_TAIL);
    struct str out = { 0 };
    plan_tables(&p, &b, collect, &out);
    assert_string_equal(str_c(&out), tables);
    plan_release(&p);
    str_clear(&out);
    p = plan_of(&b, "cpu,*", PLAN_TAIL);
    plan_tables(&p, &b, collect, &out);
    assert_null(strstr(str_c(&out), "Virtual"));
    assert_null(strstr(str_c(&out), "fit no amount"));
    assert_non_null(strstr(str_c(&out), "cuda:0,0.0000;cuda:1,0.0000;cpu,0.0613\n"));
    plan_release(&p);
    str_release(&out);
    blocks_release(&b);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(worked_examples_tail),
        cmocka_unit_test(worked_example_clip),
        cmocka_unit_test(worked_example_clip_as_a_file),
        cmocka_unit_test(spread_interleaves),
        cmocka_unit_test(spread_goes_by_time),
        cmocka_unit_test(spread_and_tail_give_the_same_bytes),
        cmocka_unit_test(several_donors_without_a_wildcard_interleave),
        cmocka_unit_test(spread_fills_donors_before_orphans),
        cmocka_unit_test(tiny_is_below_a_ten_thousandth),
        cmocka_unit_test(notes_what_stays_beyond_the_amount),
        cmocka_unit_test(over_budget_is_an_error),
        cmocka_unit_test(compares),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(prints_the_tables_people_know),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
