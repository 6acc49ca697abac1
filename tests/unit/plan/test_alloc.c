/* The 42 rows of malformed or surprising allocation strings (residency.md 1.5), one test each.
 * Where a row is refused, the message says what is wrong, in which entry, and repeats its text. */
#include "support/plans.h"

#define MODEL TOY_BYTES

static struct quotas accepted(const char *text)
{
    struct quotas q;
    berth_err err = { 0 };
    assert_ok(resolve(text, &machine, NULL, MODEL, &q, &err), err);
    uint64_t sum = 0;
    for (size_t i = 0; i < q.n; i++)
        sum += q.at[i].bytes;
    if (sum != MODEL)
        fail_msg("%s: quotas add up to %llu", text, (unsigned long long)sum);
    return q;
}

static void assert_quotas(const struct quotas *q, uint64_t cuda0, uint64_t cuda1, uint64_t cpu)
{
    assert_int_equal(quota_on(q, CUDA0), cuda0);
    assert_int_equal(quota_on(q, CUDA1), cuda1);
    assert_int_equal(quota_on(q, CPU), cpu);
}

static void assert_note(const struct quotas *q, bool warn, const char *text)
{
    for (size_t i = 0; i < q->notes; i++)
        if (strstr(q->note[i], text) && q->warn[i] == warn)
            return;
    fail_msg("no %s '%s'", warn ? "warning" : "note", text);
}

/* where: `entry N: "text"` */
static void refused_on(const struct plan_devices *d, const char *text, const char *what,
                       const char *where)
{
    struct quotas q;
    berth_err err = { 0 };
    berth_status s = resolve(text, d, NULL, MODEL, &q, &err);
    if (s != BERTH_EINVAL || strncmp(err.msg, "expert_mode_allocations: ", 25) != 0 ||
        !strstr(err.msg, what) || !strstr(err.msg, where) || !strstr(err.msg, " (entry ") ||
        !str_ends(err.msg, strlen(err.msg), "\")"))
        fail_msg("'%s': %s '%s', wanted '%s' and '%s'", text, berth_status_name(s), err.msg, what,
                 where);
}

static void refused(const char *text, const char *what, const char *where)
{
    refused_on(&machine, text, what, where);
}

#define ROW(name) static void name(void **state __attribute__((unused)))

ROW(row_01_entry_without_comma)
{
    refused("cuda:0 2gb", "missing \",\" between device and amount", "(entry 1: \"cuda:0 2gb\")");
    refused("cpu,*; cuda:0 2gb ;", "missing \",\"", "(entry 2: \"cuda:0 2gb\")");
}

ROW(row_02_empty_entries_are_skipped)
{
    struct quotas q = accepted(";cuda:0,1gb;; ;cpu,*;");
    assert_int_equal(q.n, 2);
    assert_quotas(&q, GIB, 0, MODEL - GIB);
    refused(";;cuda:0,1gb;;cpu,x", "bad number", "(entry 2: \"cpu,x\")"); /* counts without them */
}

ROW(row_03_no_entries_at_all)
{
    refused(";", "no device entries", "(entry 1: \";\")");
    refused("  ", "no device entries", "(entry 1: \"  \")");
    refused(" ; ;", "no device entries", "(entry 1: \" ; ;\")");
    refused("", "no device entries", "(entry 1: \"\")");
    refused("#", "no device entries", "(entry 1: \"#\")");
    refused(";#cuda:0;2;cpu", "no device entries", "(entry 1: \";#cuda:0;2;cpu\")");
}

ROW(row_04_spaces_around_a_device)
{
    struct quotas q = accepted(" cuda:0 , 1gb ;\tcuda:1 ,1 gb; cpu , * ");
    assert_quotas(&q, GIB, GIB, MODEL - 2 * GIB);
}

ROW(row_05_upper_case)
{
    struct quotas q = accepted("CUDA:1,1GiB;Cpu,*#Cuda:1");
    assert_quotas(&q, 0, GIB, MODEL - GIB);
    assert_int_equal(q.compute, CUDA1);
}

ROW(row_06_unknown_device)
{
    refused("cuda:0,1gb;cuda:9,1gb", "unknown device cuda:9, there are cuda:0, cuda:1, cpu",
            "(entry 2: \"cuda:9,1gb\")");
    refused("gpu0,25%;cpu,75%", "unknown device gpu0", "(entry 1: \"gpu0,25%\")");
    refused("cpu,*#cuda:7", "compute device: unknown device cuda:7", "(entry 1: \"cuda:7\")");
    refused("#cuda:0;1;cuda:8", "donor: unknown device cuda:8", "(entry 3: \"cuda:8\")");
    refused("a-name-that-is-longer-than-any-device,1gb", "unknown device", "(entry 1: \"a-name");
}

ROW(row_07_device_without_its_index)
{
    refused("cpu,1gb;cuda,1gb", "device index missing", "(entry 2: \"cuda,1gb\")");
    refused("#cuda;1;cpu", "compute device: device index missing", "(entry 1: \"cuda\")");
    /* whatever the machine has */
    static const char *const kind[] = { "xpu", "npu", "mlu", "directml", "corex" };
    for (size_t i = 0; i < ARRAY_LEN(kind); i++) {
        char text[32];
        snprintf(text, sizeof text, "%s,1gb", kind[i]);
        refused(text, "device index missing", "(entry 1: \"");
    }
    refused("mps,1gb", "unknown device mps", "(entry 1: \"mps,1gb\")"); /* it has none */
}

ROW(row_08_device_twice_in_bytes)
{
    refused("cuda:0,1gb;cpu,*;cuda:0,2gb", "device listed twice", "(entry 3: \"cuda:0,2gb\")");
    refused("cuda:0,1gb;CUDA:0,1gb*", "device listed twice", "(entry 2: \"CUDA:0,1gb*\")");
}

ROW(row_09_device_twice_in_ratio_and_fraction)
{
    refused("cuda:0,10%;cuda:0,20%", "device listed twice", "(entry 2: \"cuda:0,20%\")");
    refused("cuda:0,10%;cuda:0,*", "device listed twice", "(entry 2: \"cuda:0,*\")");
    refused("cpu,0.1;cuda:0,0.2;cpu,0.3", "device listed twice", "(entry 3: \"cpu,0.3\")");
}

ROW(row_10_bytes_and_wildcard_on_one_device)
{
    struct quotas q = accepted("cuda:0,2gb;cuda:0,*");
    assert_quotas(&q, MODEL, 0, 0);
    assert_int_equal(q.orphans, CUDA0);
    q = accepted("cuda:0,2gb;cuda:1,3gb;cuda:0,*"); /* the minimum comes before later entries */
    assert_quotas(&q, 2 * GIB, MODEL - 2 * GIB, 0);
    assert_int_equal(q.orphans, CUDA0);
    q = accepted("cuda:0,*;cuda:1,1gb;cuda:0,2gb");
    assert_quotas(&q, MODEL - GIB, GIB, 0);
}

ROW(row_11_two_wildcards)
{
    refused("cuda:0,*;cpu,*", "more than one \"*\"", "(entry 2: \"cpu,*\")");
    refused("cuda:0,1gb*;cpu,1gb;cuda:1,2gb*", "more than one \"*\"", "(entry 3: \"cuda:1,2gb*\")");
}

ROW(row_12_wildcard_alone)
{
    struct quotas q = accepted("cpu,*");
    assert_quotas(&q, 0, 0, MODEL);
    assert_int_equal(q.orphans, CPU);
    assert_int_equal(q.mode, ALLOC_BYTES);
}

ROW(row_13_percent_and_wildcard)
{
    struct quotas q = accepted("cuda:0,50%;cpu,*");
    assert_quotas(&q, MODEL / 2, 0, MODEL - MODEL / 2);
    assert_int_equal(q.orphans, CPU);
    q = accepted("cuda:0,50%;cpu,*;cuda:1,50%");
    assert_quotas(&q, MODEL / 2, MODEL / 2, 0);
    refused("cuda:0,50%;cpu,*;cuda:1,50.1%", "more than 100 %", "(entry 3: \"cuda:1,50.1%\")");
}

ROW(row_14_fraction_and_wildcard)
{
    refused("cuda:0,0.5;cpu,*", "\"*\" needs byte or % amounts", "(entry 2: \"cpu,*\")");
    refused("cuda:0,0.5*", "\"*\" behind a number needs a byte unit", "(entry 1: \"cuda:0,0.5*\")");
}

ROW(row_15_percent_and_bytes)
{
    refused("cuda:0,25%;cpu,4gb", "mixed units, % in entry 1 and bytes here",
            "(entry 2: \"cpu,4gb\")");
    refused("cuda:0,*;cpu,4gb;cuda:1,1gb;cuda:2,25%;cuda:3,1gb",
            "mixed units, bytes in entry 2 and % here", "(entry 4: \"cuda:2,25%\")");
}

ROW(row_16_fraction_and_bytes)
{
    refused("cuda:0,0.5;cpu,4gb", "mixed units", "(entry 2: \"cpu,4gb\")");
    refused("cuda:0,0.5;cpu,40%", "mixed units", "(entry 2: \"cpu,40%\")");
}

ROW(row_17_number_with_wildcard_is_a_minimum)
{
    struct quotas q = accepted("cpu,3gb*;cuda:0,2gb");
    assert_quotas(&q, MODEL - 3 * GIB, 0, 3 * GIB);
    assert_int_equal(q.orphans, CPU);
    q = accepted("cpu,1gb *;cuda:0,2gb"); /* and it takes the remainder */
    assert_quotas(&q, 2 * GIB, 0, MODEL - 2 * GIB);
}

ROW(row_18_unknown_unit)
{
    refused("cuda:0,4tb", "unknown unit \"tb\", not b, kb, mb, gb or % ",
            "(entry 1: \"cuda:0,4tb\")");
    refused("cpu,*;cuda:0,4x", "unknown unit \"x\"", "(entry 2: \"cuda:0,4x\")");
    refused("cuda:0,4gigs", "unknown unit \"gigs\"", "(entry 1: \"cuda:0,4gigs\")");
    refused("cuda:0,4 thousands of megabytes", "unknown unit \"thousand", "(entry 1:");
}

ROW(row_19_exponent)
{
    refused("cuda:0,1e3m", "bad number", "(entry 1: \"cuda:0,1e3m\")");
}

ROW(row_20_two_dots)
{
    refused("cuda:0,4.5.6g", "bad number", "(entry 1: \"cuda:0,4.5.6g\")");
}

ROW(row_21_decimal_comma)
{
    refused("cuda:0,4,5gb", "bad number", "(entry 1: \"cuda:0,4,5gb\")");
    refused("cuda:0,4,5%", "bad number", "(entry 1: \"cuda:0,4,5%\")");
}

ROW(row_22_leading_dot)
{
    refused("cuda:0,.5gb", "bad number, write 0.5gb", "(entry 1: \"cuda:0,.5gb\")");
}

ROW(row_23_negative)
{
    refused("cuda:0,-4gb", "amount must be >= 0", "(entry 1: \"cuda:0,-4gb\")");
    refused("cuda:0,-10%", "amount must be >= 0", "(entry 1: \"cuda:0,-10%\")");
    refused("cpu,0.5;cuda:0,-0.1", "amount must be >= 0", "(entry 2: \"cuda:0,-0.1\")");
}

ROW(row_24_amount_missing)
{
    refused("cuda:0,", "amount missing", "(entry 1: \"cuda:0,\")");
    refused("cpu,4gb;cuda:0, ;", "amount missing", "(entry 2: \"cuda:0,\")");
}

ROW(row_25_ratios_of_zero)
{
    refused("cuda:0,0%;cpu,0.0%", "ratios add up to 0", "(entry 1: \"cuda:0,0%\")");
}

ROW(row_26_fraction_above_one)
{
    refused("cuda:0,1.01", "fraction must be between 0 and 1", "(entry 1: \"cuda:0,1.01\")");
    refused("cpu,1;cuda:0,512", "fraction must be between 0 and 1", "(entry 2: \"cuda:0,512\")");
    struct quotas q = accepted("cpu,1.000");
    assert_quotas(&q, 0, 0, MODEL);
}

ROW(row_27_three_fields)
{
    refused("cuda:0,0.5,0.3", "too many \",\"", "(entry 1: \"cuda:0,0.5,0.3\")");
    refused("cuda:0,50%,cpu,50%", "\";\" goes between entries",
            "(entry 1: \"cuda:0,50%,cpu,50%\")");
    refused("cuda:0,4g, cpu,*", "\";\" goes between entries", "(entry 1:");
    refused("cuda:0,0.5,", "too many \",\"", "(entry 1: \"cuda:0,0.5,\")");
}

ROW(row_28_more_than_the_device_has)
{
    refused("cuda:0,25gb;cpu,*", "25.0 GiB exceed device memory, cuda:0 has 24.0 GiB",
            "(entry 1: \"cuda:0,25gb\")");
    refused("cpu,65gb*", "exceed device memory, cpu has 64.0 GiB", "(entry 1: \"cpu,65gb*\")");
    struct quotas q = accepted("cuda:0,24gb;cpu,*"); /* all of it is fine */
    assert_quotas(&q, MODEL, 0, 0);
}

ROW(row_29_bytes_below_the_model_without_wildcard)
{
    struct quotas q = accepted("cuda:0,1gb;cuda:1,1gb");
    assert_quotas(&q, GIB, GIB, MODEL - 2 * GIB);
    assert_int_equal(q.orphans, CPU);
    assert_note(&q, false, "2063630336 bytes");
    assert_note(&q, false, "go to cpu");
}

ROW(row_30_fractions_below_the_model)
{
    struct quotas q = accepted("cuda:0,0.05;cuda:1,0.05");
    uint64_t each = 24 * GIB / 20; /* 1228.8 MiB, rounded down */
    assert_quotas(&q, each, each, MODEL - 2 * each);
    assert_int_equal(q.orphans, CPU);
    assert_note(&q, true, "1634133608 bytes (1558.43 MiB)");
}

ROW(row_31_entries_after_the_model_is_used_up)
{
    struct quotas q = accepted("cuda:0,5gb;cuda:1,1gb;cpu,*");
    assert_quotas(&q, MODEL, 0, 0);
    assert_note(&q, false, "nothing for entry 2 \"cuda:1,1gb\"");
}

ROW(row_32_suffix_without_donor)
{
    refused("#cuda:0;4.0", "donor device missing", "(entry 2: \"4.0\")");
    refused("#cuda:0;4.0;", "donor device missing", "(entry 3: \"\")");
    refused("#cuda:0;4.0;cpu,", "donor device missing", "(entry 3: \"cpu,\")");
}

ROW(row_33_suffix_with_four_fields)
{
    refused("#cuda:0;4.0;cpu;x", "too many \";\" fields", "(entry 4: \"x\")");
    refused("cpu,*#cuda:0;4.0;cpu;", "too many \";\" fields", "(entry 4: \"\")");
}

ROW(row_34_second_hash)
{
    refused("cpu,*#cuda:0#cuda:1", "more than one \"#\"", "(entry 1: \"cuda:0#cuda:1\")");
}

ROW(row_35_gigabytes_no_number)
{
    refused("#cuda:0;four;cpu", "gigabytes: bad number", "(entry 2: \"four\")");
    refused("#cuda:0;4gb;cpu", "bad number", "(entry 2: \"4gb\")");
    refused("#cuda:0;;cpu", "gigabytes: amount missing", "(entry 2: \"\")");
}

ROW(row_36_virtual_vram_out_of_range)
{
    struct str text = { 0 };
    berth_err err = { 0 };
    static const char *const out_of_range[] = { "-1", "-0.5", "128.5", "129" };
    for (size_t i = 0; i < ARRAY_LEN(out_of_range); i++) {
        assert_fails(alloc_compose("cuda:0", out_of_range[i], "cpu", "", &text, &err), err,
                     BERTH_EINVAL, "virtual VRAM out of range 0..128 (entry 2: \"");
        assert_non_null(strstr(err.msg, out_of_range[i]));
        assert_int_equal(text.n, 0);
    }
    refused("#cuda:0;-1;cpu", "virtual VRAM out of range", "(entry 2: \"-1\")");
    refused("cpu,*#cuda:0;129;cpu", "virtual VRAM out of range", "(entry 2: \"129\")");
}

ROW(row_37_donor_is_the_compute_device)
{
    struct quotas q = accepted("#cuda:0;2;cuda:0");
    assert_quotas(&q, MODEL, 0, 0);
    assert_int_equal(q.orphans, CUDA0);
    assert_note(&q, true, "donor cuda:0 is the compute device");
    q = accepted("#cuda:0;2;cuda:0,cpu"); /* another donor still gives */
    assert_quotas(&q, MODEL - 2 * GIB, 0, 2 * GIB);
}

ROW(row_38_more_than_the_donors_hold)
{
    struct plan_devices small = machine;
    small.at[CPU].total = small.at[CPU].budget = GIB;
    small.at[CUDA1].total = small.at[CUDA1].budget = GIB;
    refused_on(&small, "#cuda:0;3.5;cuda:1,cpu", "donors can hold only 2.00 GiB of 3.50 GiB",
               "(entry 3: \"cuda:1,cpu\")");
    struct quotas q;
    berth_err err = { 0 };
    assert_ok(resolve("#cuda:0;2;cuda:1,cpu", &small, NULL, MODEL, &q, &err), err);
    assert_quotas(&q, MODEL - 2 * GIB, GIB, GIB);
    /* More than there is, of a model that has less: nothing is short. People hear of it. */
    q = accepted("#cuda:0;99;cpu");
    assert_quotas(&q, 0, 0, MODEL);
    assert_note(&q, true, "99.00 GiB");
}

ROW(row_39_device_omitted)
{
    struct str text = { 0 };
    berth_err err = { 0 };
    assert_ok(alloc_compose(NULL, "1.0", "cpu", NULL, &text, &err), err);
    assert_string_equal(str_c(&text), "#;1.0;cpu");
    struct quotas q = accepted(str_c(&text));
    assert_int_equal(q.compute, CUDA0);
    assert_quotas(&q, MODEL - GIB, 0, GIB);
    str_release(&text);
    q = accepted("#None;1.0;cpu");
    assert_int_equal(q.compute, CUDA0);
}

ROW(row_40_compute_device_in_no_entry)
{
    struct quotas q = accepted("cpu,*#cuda:1");
    assert_quotas(&q, 0, 0, MODEL);
    assert_int_equal(q.compute, CUDA1);
    q = accepted("cuda:1,50%;cpu,50%#cuda:0");
    assert_int_equal(q.compute, CUDA0);
    assert_int_equal(q.orphans, CUDA0);
    assert_quotas(&q, 0, MODEL / 2, MODEL / 2);
}

ROW(row_41_donor_listed_twice)
{
    refused("#cuda:0;2;cpu,cuda:1,CPU", "donor listed twice, cpu", "(entry 3: \"cpu,cuda:1,CPU\")");
}

ROW(row_42_device_without_memory)
{
    struct plan_devices broken = machine;
    broken.at[CUDA1].total = broken.at[CUDA1].budget = 0;
    refused_on(&broken, "cuda:0,1gb;cuda:1,0.5gb", "device cuda:1 reports no memory",
               "(entry 2: \"cuda:1,0.5gb\")");
    refused_on(&broken, "#cuda:0;1;cuda:1", "device cuda:1 reports no memory",
               "(entry 3: \"cuda:1\")");
    refused_on(&broken, "cpu,*#cuda:1", "device cuda:1 reports no memory", "(entry 1: \"cuda:1\")");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(row_01_entry_without_comma),
        cmocka_unit_test(row_02_empty_entries_are_skipped),
        cmocka_unit_test(row_03_no_entries_at_all),
        cmocka_unit_test(row_04_spaces_around_a_device),
        cmocka_unit_test(row_05_upper_case),
        cmocka_unit_test(row_06_unknown_device),
        cmocka_unit_test(row_07_device_without_its_index),
        cmocka_unit_test(row_08_device_twice_in_bytes),
        cmocka_unit_test(row_09_device_twice_in_ratio_and_fraction),
        cmocka_unit_test(row_10_bytes_and_wildcard_on_one_device),
        cmocka_unit_test(row_11_two_wildcards),
        cmocka_unit_test(row_12_wildcard_alone),
        cmocka_unit_test(row_13_percent_and_wildcard),
        cmocka_unit_test(row_14_fraction_and_wildcard),
        cmocka_unit_test(row_15_percent_and_bytes),
        cmocka_unit_test(row_16_fraction_and_bytes),
        cmocka_unit_test(row_17_number_with_wildcard_is_a_minimum),
        cmocka_unit_test(row_18_unknown_unit),
        cmocka_unit_test(row_19_exponent),
        cmocka_unit_test(row_20_two_dots),
        cmocka_unit_test(row_21_decimal_comma),
        cmocka_unit_test(row_22_leading_dot),
        cmocka_unit_test(row_23_negative),
        cmocka_unit_test(row_24_amount_missing),
        cmocka_unit_test(row_25_ratios_of_zero),
        cmocka_unit_test(row_26_fraction_above_one),
        cmocka_unit_test(row_27_three_fields),
        cmocka_unit_test(row_28_more_than_the_device_has),
        cmocka_unit_test(row_29_bytes_below_the_model_without_wildcard),
        cmocka_unit_test(row_30_fractions_below_the_model),
        cmocka_unit_test(row_31_entries_after_the_model_is_used_up),
        cmocka_unit_test(row_32_suffix_without_donor),
        cmocka_unit_test(row_33_suffix_with_four_fields),
        cmocka_unit_test(row_34_second_hash),
        cmocka_unit_test(row_35_gigabytes_no_number),
        cmocka_unit_test(row_36_virtual_vram_out_of_range),
        cmocka_unit_test(row_37_donor_is_the_compute_device),
        cmocka_unit_test(row_38_more_than_the_donors_hold),
        cmocka_unit_test(row_39_device_omitted),
        cmocka_unit_test(row_40_compute_device_in_no_entry),
        cmocka_unit_test(row_41_donor_listed_twice),
        cmocka_unit_test(row_42_device_without_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
