/* Allocation strings beyond the table of surprises: exact numbers, limits, composing, writing. */
#include "support/oom.h"
#include "support/plans.h"

static void numbers_are_exact(void **state)
{
    (void)state;
    static const struct {
        const char *amount;
        uint64_t bytes;
    } cases[] = {
        { "2.5gb", 2684354560 },
        { "0.000000001g", 1 }, /* 1.07 bytes, rounded down */
        { "1.g", 1073741824 },
        { "1234567891b", 1234567891 }, /* no quantum */
        { "1 MiB", 1048576 },
        { "1.5 K", 1536 },
        { "0.3gb", 322122547 },
        { "00001gb", 1073741824 },
        { "0.5000000000000000000000000000000g", 536870912 },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        char text[96];
        struct alloc a;
        berth_err err = { 0 };
        snprintf(text, sizeof text, "cuda:0,%s;cpu,*", cases[i].amount);
        assert_ok(alloc_parse(text, strlen(text), &a, &err), err);
        assert_int_equal(a.mode, ALLOC_BYTES);
        assert_int_equal(a.entry[0].bytes, cases[i].bytes);
    }
}

static void ratios_and_fractions_are_exact(void **state)
{
    (void)state;
    struct quotas q;
    berth_err err = { 0 };
    struct plan_devices big = machine;
    for (size_t i = 0; i < big.n; i++)
        big.at[i].total = UINT64_MAX;
    const uint64_t m = UINT64_C(18446744073709551557); /* the largest 64-bit prime */
    assert_ok(resolve("cuda:0,1%;cuda:1,2%#cpu", &big, NULL, m, &q, &err), err);
    assert_int_equal(quota_on(&q, CUDA0), m / 3);
    assert_int_equal(quota_on(&q, CUDA1), m - m / 3 - 1);
    assert_int_equal(quota_on(&q, CPU), 1); /* what rounding left, to the orphans device */
    assert_ok(resolve("cuda:0,3.333333333333333333%;cpu,*", &big, NULL, m, &q, &err), err);
    assert_int_equal(quota_on(&q, CUDA0),
                     UINT64_C(614891469123651718)); /* not m/30, 614891469123651718 */
    assert_ok(resolve("cuda:0,0.000000000000000001%;cpu,1000000%", &big, NULL, m, &q, &err), err);
    assert_int_equal(quota_on(&q, CPU), m - 1); /* m * 10^24 / (10^24 + 1) */
    assert_ok(resolve("cuda:0,0.1;cpu,1", &big, NULL, m, &q, &err), err);
    assert_int_equal(quota_on(&q, CUDA0), UINT64_MAX / 10);
}

static void too_much_is_refused(void **state)
{
    (void)state;
    static const struct {
        const char *text, *what;
    } cases[] = {
        { "cuda:0,0.0000000000000000001;cpu,0.5", "too many digits (entry 1: " },
        { "cpu,1%;cuda:0,99999999999999999999%", "too many digits (entry 2: " },
        { "cuda:0,1000001%;cpu,1%", "more than 1000000 % (entry 1: " },
        { "cuda:0,17179869184gb", "more than 2^64 bytes (entry 1: " },
        { "cuda:0,0000000000000000000000000000000000000000000000000000000000000000000001g",
          "too many digits (entry 1: " },
        { "#cuda:0;0.0000000000000000001;cpu", "too many digits (entry 2: " },
        { "cuda:0,+4gb", "bad number, write 4gb, 50%, 0.5 or * (entry 1: " },
        { "cuda:0,4 5gb", "bad number, write 4gb, 50%, 0.5 or * (entry 1: " },
        { "cuda:0,50%%", "unknown unit \"%%\", not b, kb, mb, gb or % (entry 1: " },
        { ",4gb", "device missing (entry 1: " },
        { "cuda:0,**", "bad number, write 4gb, 50%, 0.5 or * (entry 1: " },
        { "cuda:0,25%*", "\"*\" behind a number needs a byte unit (entry 1: " },
    };
    struct quotas q;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        berth_err err = { 0 };
        assert_fails(resolve(cases[i].text, &machine, NULL, GIB, &q, &err), err, BERTH_EINVAL,
                     cases[i].what);
    }
}

static void limits(void **state)
{
    (void)state;
    static char text[ALLOC_TEXT_MAX + 8];
    struct alloc a;
    berth_err err = { 0 };
    memset(text, ';', sizeof text);
    for (size_t i = 0; i < 5; i++)
        text[i] = "cpu,*"[i];
    assert_ok(alloc_parse(text, ALLOC_TEXT_MAX - 1, &a, &err), err);
    assert_fails(alloc_parse(text, ALLOC_TEXT_MAX, &a, &err), err, BERTH_ELIMIT, "4096 bytes");
    size_t n = 0;
    for (int i = 0; i <= ALLOC_ENTRIES_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, "x:%d,1b;", i);
    assert_fails(alloc_parse(text, n, &a, &err), err, BERTH_ELIMIT,
                 "more than 64 entries (entry 65: \"x:64,1b\")");
    n = (size_t)snprintf(text, sizeof text, "#cuda:0;1;x:0");
    for (int i = 1; i <= ALLOC_ENTRIES_MAX; i++)
        n += (size_t)snprintf(text + n, sizeof text - n, ",x:%d", i);
    assert_fails(alloc_parse(text, n, &a, &err), err, BERTH_ELIMIT, "more than 64 donors (entry 3");
    assert_fails(alloc_parse("cpu,\0*", 6, &a, &err), err, BERTH_EINVAL, "NUL");
}

static void long_and_hostile_entries_stay_readable(void **state)
{
    (void)state;
    struct alloc a;
    berth_err err = { 0 };
    char text[400];
    memset(text, 'x', sizeof text);
    assert_fails(alloc_parse(text, sizeof text, &a, &err), err, BERTH_EINVAL, "xxx...\")");
    assert_fails(alloc_parse("a\033[2Jb", 6, &a, &err), err, BERTH_EINVAL, "\"a?[2Jb\"");
    struct plan_devices many = { .n = ALLOC_ENTRIES_MAX };
    for (size_t i = 0; i < many.n; i++) {
        snprintf(many.at[i].name, sizeof many.at[i].name, "directml:%d", (int)(i % 256));
        many.at[i].total = GIB;
    }
    struct quotas q;
    assert_fails(resolve("nowhere,*", &many, NULL, GIB, &q, &err), err, BERTH_EINVAL,
                 ", ... (entry 1: \"nowhere,*\")");
}

static void suffix_and_argument_choose_the_compute_device(void **state)
{
    (void)state;
    struct quotas q;
    berth_err err = { 0 };
    assert_ok(resolve("cpu,*", &machine, NULL, GIB, &q, &err), err);
    assert_int_equal(q.compute, CUDA0); /* the first that is not the host */
    assert_ok(resolve("cpu,*", &machine, " CUDA:1", GIB, &q, &err), err);
    assert_int_equal(q.compute, CUDA1);
    assert_ok(resolve("cpu,*#cuda:0", &machine, "cuda:1", GIB, &q, &err), err);
    assert_int_equal(q.compute, CUDA0); /* the text wins */
    assert_ok(resolve("cpu,*#", &machine, "cuda:1", GIB, &q, &err), err);
    assert_int_equal(q.compute, CUDA1);
    assert_ok(resolve("#cuda:1", &machine, NULL, GIB, &q, &err), err);
    assert_int_equal(q.mode, ALLOC_COMPUTE_ONLY);
    assert_int_equal(quota_on(&q, CUDA1), GIB);
    assert_fails(resolve("cpu,*", &machine, "cuda:5", GIB, &q, &err), err, BERTH_EINVAL,
                 "unknown device cuda:5");
    assert_string_equal(err.msg, "compute device: unknown device cuda:5, there are cuda:0, cuda:1, "
                                 "cpu"); /* the text has nothing to do with it */
    struct plan_devices host = { .at = { machine.at[CPU] }, .n = 1 };
    assert_ok(resolve("cpu,*", &host, NULL, GIB, &q, &err), err);
    assert_int_equal(q.compute, 0);
    assert_fails(resolve("cpu,*", &(struct plan_devices) { 0 }, NULL, GIB, &q, &err), err,
                 BERTH_EINVAL, "there are none");
    assert_fails(resolve("cpu,*", &machine, NULL, 0, &q, &err), err, BERTH_EINVAL, "no bytes");
}

static void the_mode_comes_from_amounts_only(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum alloc_mode mode;
    } cases[] = {
        { "mps,25%;mlu:0,75%", ALLOC_RATIO }, /* letters of names say nothing */
        { "directml:0,0.5", ALLOC_FRACTION },    { "mps,*", ALLOC_BYTES },
        { "cuda:0,1b;cpu,*", ALLOC_BYTES },      { "cuda:0,1;cpu,0", ALLOC_FRACTION },
        { "#mps;1;cpu", ALLOC_VIRTUAL },         { " # mps ; 1.5 ; cpu , mlu:0 ", ALLOC_VIRTUAL },
        { "mps,25%#mps;4;cpu", ALLOC_RATIO },    { "#mps", ALLOC_COMPUTE_ONLY },
        { "cuda:0,20%;cpu,*#mps", ALLOC_RATIO }, { "cpu,*#mps;4", ALLOC_BYTES },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct alloc a;
        berth_err err = { 0 };
        assert_ok(alloc_parse(cases[i].text, strlen(cases[i].text), &a, &err), err);
        assert_int_equal(a.mode, cases[i].mode);
    }
}

static void shares_that_are_scaled_are_said_to_be(void **state)
{
    (void)state;
    static const struct {
        const char *text, *note;
    } cases[] = {
        { "cuda:0,50%;cuda:1,25%", "the shares make 75 %: they are scaled to the whole model" },
        { "cuda:0,120%;cpu,80%", "the shares make 200 %: " },
        { "cuda:0,62.5%;cpu,37.5%", NULL },
        { "cuda:0,50%;cpu,*", NULL },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct quotas q;
        berth_err err = { 0 };
        assert_ok(resolve(cases[i].text, &machine, NULL, GIB, &q, &err), err);
        assert_int_equal(q.notes, cases[i].note ? 1 : 0);
        if (cases[i].note)
            assert_non_null(strstr(q.note[0], cases[i].note));
    }
}

static void virtual_vram(void **state)
{
    (void)state;
    struct quotas q;
    berth_err err = { 0 };
    assert_ok(resolve("#cuda:0;30.25;cuda:1,cpu", &machine, NULL, 40 * GIB, &q, &err), err);
    assert_int_equal(quota_on(&q, CUDA0), 40 * GIB - 30 * GIB - GIB / 4);
    assert_int_equal(quota_on(&q, CUDA1), 24 * GIB);
    assert_int_equal(quota_on(&q, CPU), 6 * GIB + GIB / 4);
    assert_int_equal(q.orphans, CPU);
    assert_int_equal(q.virtual_bytes, 30 * GIB + GIB / 4);
    assert_int_equal(q.notes, 0);
    /* 22 GiB stay on a card of 24: upstream's advice, a tenth free */
    assert_ok(resolve("#cuda:0;8;cpu", &machine, NULL, 30 * GIB, &q, &err), err);
    assert_int_equal(q.notes, 1);
    assert_true(q.warn[0]);
    assert_non_null(strstr(q.note[0], "8.40 GiB of virtual VRAM are advised"));
    assert_fails(resolve("#cuda:0;5;cpu", &machine, NULL, 30 * GIB, &q, &err), err, BERTH_EINVAL,
                 "25.0 GiB stay and exceed device memory, cuda:0 has 24.0 GiB "
                 "(entry 2: \"5\")");
    assert_ok(resolve("#cuda:0;0;cpu", &machine, NULL, GIB, &q, &err), err);
    assert_int_equal(quota_on(&q, CUDA0), GIB);
    /* Entries decide, virtual VRAM beside them is not looked at, and that is said. */
    assert_ok(resolve("cpu,*#cuda:0;2;cuda:1", &machine, NULL, GIB, &q, &err), err);
    assert_int_equal(quota_on(&q, CPU), GIB);
    assert_non_null(strstr(q.note[0], "the entries decide"));
}

static void more_notes_than_fit_are_counted(void **state)
{
    (void)state;
    struct plan_devices many = { .n = 20 };
    struct str text = { 0 };
    struct quotas q;
    berth_err err = { 0 };
    for (size_t i = 0; i < many.n; i++) {
        snprintf(many.at[i].name, sizeof many.at[i].name, "cuda:%d", (int)(i % 256));
        many.at[i].total = GIB;
        str_addf(&text, "cuda:%zu,1gb;", i);
    }
    /* all but the first come after the model is used up: 19 notes */
    assert_ok(resolve(str_c(&text), &many, NULL, GIB, &q, &err), err);
    assert_int_equal(q.notes, QUOTA_NOTES_MAX);
    assert_non_null(strstr(q.note[QUOTA_NOTES_MAX - 2], "nothing for entry 12"));
    char want[32];
    snprintf(want, sizeof want, "and %d more", 19 - (QUOTA_NOTES_MAX - 1));
    assert_string_equal(q.note[QUOTA_NOTES_MAX - 1], want);
    str_release(&text);
}

static void composes_what_a_loader_means(void **state)
{
    (void)state;
    static const struct {
        const char *device, *gib, *donors, *expert, *want;
    } cases[] = {
        { "cuda:0", "4.0", "cpu", "", "#cuda:0;4.0;cpu" },
        { "cuda:0", " 4.0 ", "cuda:1,cpu", "cpu,*", "cpu,*#cuda:0;4.0;cuda:1,cpu" },
        { "cuda:1", "0.0", "cpu", "cuda:0,50%;cpu,*", "cuda:0,50%;cpu,*#cuda:1" },
        { "cuda:1", NULL, NULL, "cpu,*", "cpu,*#cuda:1" },
        { "cuda:1", "0", "cpu", "", "" },
        { NULL, NULL, NULL, NULL, "" },
        { NULL, "", NULL, "cpu,*", "cpu,*#" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct str out = { 0 };
        berth_err err = { 0 };
        assert_ok(alloc_compose(cases[i].device, cases[i].gib, cases[i].donors, cases[i].expert,
                                &out, &err),
                  err);
        assert_string_equal(str_c(&out), cases[i].want);
        str_release(&out);
    }
    struct str out = { 0 };
    berth_err err = { 0 };
    assert_fails(alloc_compose("cuda:0", "x", "cpu", "", &out, &err), err, BERTH_EINVAL,
                 "bad number, write gigabytes as 4 or 0.5 (entry 2: \"x\")");
    assert_fails(alloc_compose("cuda:0", "", "cpu", " ; ", &out, &err), err, BERTH_EINVAL,
                 "no device entries (entry 1: \" ; \")");
    oom_after(0);
    berth_status s = alloc_compose("cuda:0", "1", "cpu", "", &out, &err);
    oom_off();
    assert_int_equal(s, BERTH_ENOMEM);
    str_release(&out);
}

static void legacy_donors(void **state)
{
    (void)state;
    struct plan_devices d = { .n = 5 };
    static const char *const names[] = { "cpu", "cuda:10", "cuda:2", "mps", "cuda:0" };
    for (size_t i = 0; i < d.n; i++)
        snprintf(d.at[i].name, sizeof d.at[i].name, "%s", names[i]);
    d.at[0].host = true;
    struct str out = { 0 };
    berth_err err = { 0 };
    assert_ok(alloc_legacy_donors(&d, "cuda:0", false, &out, &err), err);
    assert_string_equal(str_c(&out), "cpu");
    str_clear(&out);
    assert_ok(alloc_legacy_donors(&d, "cuda:0", true, &out, &err), err);
    assert_string_equal(str_c(&out), "mps,cuda:2,cuda:10,cpu"); /* by number, not by text */
    str_release(&out);
}

static void string_of(const struct quotas *q, struct str *out)
{
    static struct plan p;
    p.devices = machine;
    p.quotas = *q;
    plan_string(&p, out);
}

static void writes_quotas_as_bytes(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "cuda:0,1gb;cpu,*", "cuda:0,1gb;cpu,9gb*#cuda:0" },
        { "cuda:0,1536mb;cuda:1,1b;cpu,*#cuda:1",
          "cuda:0,1536mb;cuda:1,1b;cpu,9126805503b*#cuda:1" },
        { "cuda:0,10%;cpu,90%", "cuda:0,1gb*;cpu,9gb#cuda:0" },
        { "cuda:1,10%;cpu,90%#cuda:0", "cuda:1,1gb;cpu,9gb;cuda:0,*#cuda:0" },
        { "#cuda:0;4;cuda:1,cpu", "cuda:0,6gb;cuda:1,4gb;cpu,*#cuda:0" },
        { "cuda:0,20gb;cuda:1,1gb", "cuda:0,10gb;cpu,*#cuda:0" },
        { "#cuda:1", "cuda:1,10gb*#cuda:1" },
    };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct quotas q, again;
        struct str out = { 0 };
        berth_err err = { 0 };
        assert_ok(resolve(cases[i].in, &machine, NULL, 10 * GIB, &q, &err), err);
        string_of(&q, &out);
        assert_string_equal(str_c(&out), cases[i].out);
        assert_ok(resolve(str_c(&out), &machine, NULL, 10 * GIB, &again, &err), err);
        for (size_t d = 0; d < machine.n; d++)
            assert_int_equal(quota_on(&q, d), quota_on(&again, d));
        assert_int_equal(q.orphans, again.orphans);
        assert_int_equal(q.compute, again.compute);
        str_release(&out);
    }
}

/* A "*" may be due more than its device has (tiny blocks and embeddings never get there): no text
 * may ask for that, but it need not. */
static void writes_a_wildcard_beyond_the_device(void **state)
{
    (void)state;
    struct quotas q, again;
    struct str out = { 0 };
    berth_err err = { 0 };
    assert_ok(resolve("cuda:0,1gb;cpu,*", &machine, NULL, 66 * GIB, &q, &err), err);
    string_of(&q, &out);
    assert_string_equal(str_c(&out), "cuda:0,1gb;cpu,64gb*#cuda:0");
    assert_ok(resolve(str_c(&out), &machine, NULL, 66 * GIB, &again, &err), err);
    assert_int_equal(quota_on(&again, CPU), 65 * GIB);
    str_release(&out);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(numbers_are_exact),
        cmocka_unit_test(ratios_and_fractions_are_exact),
        cmocka_unit_test(too_much_is_refused),
        cmocka_unit_test(limits),
        cmocka_unit_test(long_and_hostile_entries_stay_readable),
        cmocka_unit_test(suffix_and_argument_choose_the_compute_device),
        cmocka_unit_test(the_mode_comes_from_amounts_only),
        cmocka_unit_test(shares_that_are_scaled_are_said_to_be),
        cmocka_unit_test(virtual_vram),
        cmocka_unit_test(more_notes_than_fit_are_counted),
        cmocka_unit_test(composes_what_a_loader_means),
        cmocka_unit_test(legacy_donors),
        cmocka_unit_test(writes_quotas_as_bytes),
        cmocka_unit_test(writes_a_wildcard_beyond_the_device),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
