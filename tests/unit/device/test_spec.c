/* The --devices text: what is understood, what is refused and in which words. */
#include "device/spec.h"
#include "support/oom.h"
#include "support/test.h"

static berth_status parse(const char *text, bool hypothetical, struct spec *s, berth_err *err)
{
    return spec_parse(text, strlen(text), hypothetical, s, err);
}

static void reads_entries(void **state)
{
    struct spec s;
    berth_err err = { 0 };
    (void)state;
    assert_ok(parse("cpu=16g, NULL:0 = 24 GiB,\tcuda:1@Cuda:0=2.5g,mps=*,xpu:7", false, &s, &err),
              err);
    assert_int_equal(s.n, 5);
    assert_string_equal(s.entry[0].name.text, "cpu");
    assert_string_equal(s.entry[0].phys.text, "cpu");
    assert_false(s.entry[0].name.indexed);
    assert_true(s.entry[0].budget == UINT64_C(16) << 30);
    assert_string_equal(s.entry[1].name.text, "null:0");
    assert_true(s.entry[1].budget == UINT64_C(24) << 30);
    assert_string_equal(s.entry[2].name.text, "cuda:1");
    assert_string_equal(s.entry[2].name.kind, "cuda");
    assert_int_equal(s.entry[2].name.index, 1);
    assert_string_equal(s.entry[2].phys.text, "cuda:0");
    assert_true(s.entry[2].budget == UINT64_C(2684354560));
    assert_true(s.entry[3].budget == SPEC_REST);
    assert_true(s.entry[4].budget == SPEC_REST);
    assert_int_equal(s.entry[4].name.index, 7);
}

static void text_of(const struct spec *s, struct str *out)
{
    char buf[SPEC_ENTRY_TEXT_MAX];
    for (size_t i = 0; i < s->n; i++)
        str_addf(out, "%s%s", i ? "," : "", spec_entry_text(&s->entry[i], buf));
}

static void writes_what_it_read(void **state)
{
    static const struct {
        const char *in, *out;
    } cases[] = {
        { "cpu", "cpu" },
        { " cpu = * ", "cpu" },
        { "cpu@cpu=1024m", "cpu=1g" },
        { "cuda:1@cuda:0=2.5g,cuda:0=1536k", "cuda:1@cuda:0=2560m,cuda:0=1536k" },
        { "NULL:255=1000", "null:255=1000" },
        { "directml:10=1b,corex:0=1k,npu:0,mlu:3=1g", "directml:10=1,corex:0=1k,npu:0,mlu:3=1g" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct spec s, again;
        struct str text = { 0 }, text2 = { 0 };
        berth_err err = { 0 };
        assert_ok(parse(cases[i].in, false, &s, &err), err);
        text_of(&s, &text);
        assert_string_equal(str_c(&text), cases[i].out);
        assert_ok(parse(str_c(&text), false, &again, &err), err);
        assert_int_equal(s.n, again.n);
        for (size_t k = 0; k < s.n; k++) {
            assert_string_equal(s.entry[k].name.text, again.entry[k].name.text);
            assert_string_equal(s.entry[k].phys.text, again.entry[k].phys.text);
            assert_true(s.entry[k].budget == again.entry[k].budget);
        }
        text_of(&again, &text2);
        assert_string_equal(str_c(&text), str_c(&text2));
        str_release(&text);
        str_release(&text2);
    }
}

/* Every refusal names the entry and says what is wrong with it. */
static void refuses(void **state)
{
    static const struct {
        const char *text, *entry, *why;
    } cases[] = {
        { "", "devices", "no device named" },
        { " \t ", "devices", "no device named" },
        { ",", "entry 1 ''", "empty" },
        { "cpu,,null:0", "entry 2 ''", "empty" },
        { "cpu,", "entry 2 ''", "empty" },
        { "cpu, ,", "entry 2 ''", "empty" },
        { "gpu0", "entry 1 'gpu0'", "'gpu0' is not a device name (write letters and an index" },
        { "cpu;null:0", "entry 1", "'cpu;null:0' is not a device name" },
        { "open-cl:0", "entry 1", "is not a device name" },
        { ":0", "entry 1", "is not a device name" },
        { "abcdefghijklm:0", "entry 1", "is not a device name" },
        { "null", "entry 1", "device index missing: write null:0" },
        { "cuda", "entry 1 'cuda'", "device index missing: write cuda:0" },
        { "cuda:", "entry 1", "is not a device index" },
        { "cuda:x", "entry 1", "'x' is not a device index" },
        { "cuda:-1", "entry 1", "is not a device index" },
        { "cuda:0x1", "entry 1", "is not a device index" },
        { "cuda:01", "entry 1", "'01' is not a device index" },
        { "cuda: 1", "entry 1", "is not a device index" },
        { "cuda:0:1", "entry 1", "is not a device index" },
        { "cuda:256", "entry 1", "device index 256 is over 255" },
        { "cuda:99999999999999999999", "entry 1", "is not a device index" },
        { "cpu:0", "entry 1 'cpu:0'", "cpu takes no index" },
        { "mps:0", "entry 1", "mps takes no index" },
        { "cpu=", "entry 1 'cpu='", "budget missing" },
        { "cpu=0", "entry 1", "budget is zero" },
        { "cpu=0.1b", "entry 1", "budget is zero" },
        { "cpu=4x", "entry 1", "'4x' is not a budget" },
        { "cpu=-1g", "entry 1", "is not a budget" },
        { "cpu=1e3m", "entry 1", "is not a budget" },
        { "cpu=.5g", "entry 1", "is not a budget" },
        { "cpu=1g=2g", "entry 1", "is not a budget" },
        { "cpu=**", "entry 1", "is not a budget" },
        { "cpu=18446744073709551615", "entry 1", "is not a budget" },
        { "cpu=99999999999g", "entry 1", "is not a budget" },
        { "=4g", "entry 1", "device name missing" },
        { "@cpu=4g", "entry 1", "device name missing" },
        { "cuda:0@=4g", "entry 1", "behind '@': device name missing" },
        { "cuda:0@gpu0=4g", "entry 1", "behind '@': 'gpu0' is not a device name" },
        { "cuda:0@cpu@cpu=4g", "entry 1", "behind '@': 'cpu@cpu' is not a device name" },
        { "cpu=1g,cpu=2g", "entry 2 'cpu=2g'", "cpu is also entry 1" },
        { "cpu=1g,null:0,CPU", "entry 3 'CPU'", "cpu is also entry 1" },
        { "cuda:0@cpu=1g,cuda:0=1g", "entry 2", "cuda:0 is also entry 1" },
        { "cuda:0@cpu,cuda:1@cpu", "entry 2", "entry 1 already takes all that is left of cpu" },
        { "cuda:0@cpu=1g,cuda:1@cuda:0=1g", "entry 2", "a logical device here and a physical" },
        { "cuda:1@cuda:0=1g,cuda:0@cpu=1g", "entry 2", "cuda:0 is a logical device here" },
        { "cuda:0@cuda:1=1g,cuda:1@cuda:0=1g", "entry 2", "a logical device here" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct spec s;
        berth_err err = { 0 };
        assert_fails(parse(cases[i].text, false, &s, &err), err, BERTH_EINVAL, cases[i].why);
        if (!strstr(err.msg, cases[i].entry))
            fail_msg("'%s': '%s' does not name '%s'", cases[i].text, err.msg, cases[i].entry);
        assert_int_equal(s.n, 0);
    }
}

static void keeps_its_limits(void **state)
{
    struct spec s;
    struct str text = { 0 };
    berth_err err = { 0 };
    (void)state;
    for (int i = 0; i < SPEC_MAX; i++)
        str_addf(&text, "%snull:%d=1g", i ? "," : "", i);
    assert_ok(spec_parse(text.p, text.n, false, &s, &err), err);
    assert_int_equal(s.n, SPEC_MAX);
    str_adds(&text, ",cpu");
    assert_fails(spec_parse(text.p, text.n, false, &s, &err), err, BERTH_ELIMIT, "more than 64");
    assert_int_equal(s.n, 0);
    str_clear(&text);
    str_adds(&text, "cpu");
    str_pad(&text, ' ', SPEC_TEXT_MAX);
    assert_ok(spec_parse(text.p, text.n, false, &s, &err), err);
    str_addc(&text, ' ');
    assert_fails(spec_parse(text.p, text.n, false, &s, &err), err, BERTH_ELIMIT, "4097 bytes");
    str_clear(&text);
    str_pad(&text, 'x', 3000); /* a long name stays a short message */
    assert_fails(spec_parse(text.p, text.n, false, &s, &err), err, BERTH_EINVAL,
                 "is not a device name");
    assert_true(strlen(err.msg) < 300);
    str_release(&text);
    assert_fails(spec_parse("a\0b\n\x1b[", 6, false, &s, &err), err, BERTH_EINVAL,
                 "not a device name");
    for (const char *p = err.msg; *p; p++)
        assert_true((unsigned char)*p >= 0x20);
}

static void hypothetical_needs_budgets(void **state)
{
    struct spec s;
    berth_err err = { 0 };
    (void)state;
    assert_ok(parse("cuda:0=24g,cuda:1=12g,cpu=64g,mps=1g", true, &s, &err), err);
    assert_int_equal(s.n, 4);
    assert_fails(parse("cuda:0=24g,cpu", true, &s, &err), err, BERTH_EINVAL,
                 "entry 2 'cpu': a hypothetical device needs a budget");
    assert_fails(parse("cuda:0=*", true, &s, &err), err, BERTH_EINVAL, "needs a budget");
    assert_fails(parse("gpu0=1g", true, &s, &err), err, BERTH_EINVAL, "not a device name");
}

/* What a plan for another machine needs: names, budgets, and how much each phys would have. */
static void hypothetical_machines_add_up(void **state)
{
    struct spec s;
    struct spec_shares sh;
    berth_err err = { 0 };
    (void)state;
    assert_ok(parse("cuda:0=24g,cuda:1=12g,cpu=64g,cuda:2@cuda:0=16g,tpu:3=8g", true, &s, &err),
              err);
    assert_string_equal(s.entry[3].name.text, "cuda:2");
    assert_string_equal(s.entry[3].phys.text, "cuda:0");
    assert_ok(spec_shares(&s, s.entry[3].phys.text, &sh, &err), err);
    assert_true(sh.stated == UINT64_C(40) << 30 && !sh.rest);
    assert_ok(spec_shares(&s, "tpu:3", &sh, &err), err); /* nobody here has heard of it */
    assert_true(sh.stated == UINT64_C(8) << 30);
    assert_ok(spec_shares(&s, "cuda:9", &sh, &err), err);
    assert_true(sh.stated == 0 && !sh.rest);
    assert_fails(parse("cuda:0=17179869183g,cuda:1@cuda:0=17179869183g", true, &s, &err), err,
                 BERTH_ELIMIT,
                 "entry 2 'cuda:1@cuda:0=17179869183g': the budgets on cuda:0 do not");
    assert_int_equal(s.n, 0);
}

/* A driver is one file and one line: its names need no list of names. */
static void any_kind_is_a_name(void **state)
{
    struct spec s;
    berth_err err = { 0 };
    (void)state;
    assert_ok(parse("OpenCL:0=1g,vulkan:12,metal=1g,abcdefghijkl:255", false, &s, &err), err);
    assert_string_equal(s.entry[0].name.text, "opencl:0");
    assert_string_equal(s.entry[0].name.kind, "opencl");
    assert_true(s.entry[1].name.indexed && s.entry[1].name.index == 12);
    assert_false(s.entry[2].name.indexed);
    assert_string_equal(s.entry[3].name.text, "abcdefghijkl:255");
}

static void names_alone(void **state)
{
    struct spec_name n;
    berth_err err = { 0 };
    (void)state;
    assert_ok(spec_parse_name(" Cuda:3 ", 8, &n, &err), err);
    assert_string_equal(n.text, "cuda:3");
    assert_fails(spec_parse_name("", 0, &n, &err), err, BERTH_EINVAL, "missing");
    assert_fails(spec_parse_name("cu_", 3, &n, &err), err, BERTH_EINVAL, "device name");
}

static void needs_no_memory(void **state)
{
    struct spec s;
    berth_err err = { 0 };
    (void)state;
    oom_after(0);
    berth_status st = parse("cpu=1g,null:0", false, &s, &err);
    long seen = oom_seen();
    oom_off();
    assert_int_equal(st, BERTH_OK);
    assert_int_equal(seen, 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_entries),
        cmocka_unit_test(writes_what_it_read),
        cmocka_unit_test(refuses),
        cmocka_unit_test(keeps_its_limits),
        cmocka_unit_test(names_alone),
        cmocka_unit_test(hypothetical_needs_budgets),
        cmocka_unit_test(needs_no_memory),
        cmocka_unit_test(hypothetical_machines_add_up),
        cmocka_unit_test(any_kind_is_a_name),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
