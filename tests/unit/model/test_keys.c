/* Lists of tensors from JSON files: good ones, and everything a stranger may send. */
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "model/keys.h"

static const char *write_text(const char *text)
{
    return tmp_write("keys.json", text, strlen(text));
}

static void reads_names_and_shapes_in_order(void **state)
{
    (void)state;
    struct keys k = { 0 };
    berth_err err;
    const char *path = write_text("{\"z.weight\": [2, 3], \"a\": [], \"na\\u00efve\": [0, 7],"
                                  " \"eight\": [1, 1, 1, 1, 1, 1, 1, 9]}");
    assert_ok(keys_read(path, &k, &err), err);
    assert_int_equal(k.n, 4);
    assert_string_equal(k.at[0].name, "z.weight");
    assert_int_equal(k.at[0].count, 6);
    assert_string_equal(k.at[1].name, "a");
    assert_int_equal(k.at[1].shape.ndim, 0);
    assert_int_equal(k.at[1].count, 1);
    assert_string_equal(k.at[2].name, "na\xc3\xafve");
    assert_int_equal(k.at[2].count, 0);
    assert_int_equal(k.at[3].shape.ndim, 8);
    assert_int_equal(k.params, 6 + 1 + 0 + 9);
    keys_release(&k);
}

static void refuses_what_is_wrong(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        berth_status status;
        const char *says;
    } bad[] = {
        { "", BERTH_EFORMAT, "" },
        { "[]", BERTH_EFORMAT, "not an object" },
        { "7", BERTH_EFORMAT, "not an object" },
        { "{}", BERTH_ELIMIT, "0 tensors" },
        { "{\"a\": 3}", BERTH_EFORMAT, "list of at most 8" },
        { "{\"a\": {}}", BERTH_EFORMAT, "list of at most 8" },
        { "{\"a\": [1,1,1,1,1,1,1,1,1]}", BERTH_EFORMAT, "list of at most 8" },
        { "{\"a\": [-1]}", BERTH_EFORMAT, "dimension 0" },
        { "{\"a\": [4, 2.5]}", BERTH_EFORMAT, "dimension 1" },
        { "{\"a\": [\"4\"]}", BERTH_EFORMAT, "dimension 0" },
        { "{\"a\": [null]}", BERTH_EFORMAT, "dimension 0" },
        { "{\"a\": [[4]]}", BERTH_EFORMAT, "dimension 0" },
        { "{\"a\": [1e3]}", BERTH_EFORMAT, "dimension 0" },
        { "{\"\": [1]}", BERTH_ELIMIT, "name of 0 bytes" },
        { "{\"a\": [4294967296, 4294967296]}", BERTH_ELIMIT, "2^60" },
        { "{\"a\": [1152921504606846977]}", BERTH_ELIMIT, "2^60" },
        { "{\"a\": [1152921504606846976], \"b\": [1]}", BERTH_ELIMIT, "'b'" },
        { "{\"a\": [18446744073709551615]}", BERTH_ELIMIT, "2^60" },
        { "{\"a\": [18446744073709551616]}", BERTH_EFORMAT, "out of range" },
        { "{\"a\": [1], \"a\": [1]}", BERTH_EFORMAT, "" },
        { "{\"a\": [1]", BERTH_EFORMAT, "" },
        { "{\"a\": [1],}", BERTH_EFORMAT, "" },
        { "{\"a\": [[[[[[1]]]]]]}", BERTH_EFORMAT, "" },
    };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        struct keys k = { 0 };
        berth_err err = { 0 };
        const char *path = write_text(bad[i].text);
        berth_status s = keys_read(path, &k, &err);
        if (s != bad[i].status &&
            !(bad[i].status == BERTH_EFORMAT && s == BERTH_ELIMIT && !*bad[i].says))
            fail_msg("%s: %s '%s'", bad[i].text, berth_status_name(s), err.msg);
        if (!strstr(err.msg, bad[i].says) || !strstr(err.msg, "keys.json"))
            fail_msg("%s: '%s' does not say '%s' and the file", bad[i].text, err.msg, bad[i].says);
        assert_null(k.at);
        keys_release(&k);
    }
}

static void names_have_a_limit(void **state)
{
    (void)state;
    char text[1100];
    for (size_t len = 1024; len <= 1025; len++) {
        struct keys k = { 0 };
        berth_err err;
        memset(text, 'n', sizeof text);
        memcpy(text, "{\"", 2);
        snprintf(text + 2 + len, sizeof text - 2 - len, "\": [1]}");
        const char *path = write_text(text);
        if (len == 1024)
            assert_ok(keys_read(path, &k, &err), err);
        else
            assert_fails(keys_read(path, &k, &err), err, BERTH_ELIMIT, "1025 bytes");
        keys_release(&k);
    }
}

static void a_file_that_is_not_there(void **state)
{
    (void)state;
    struct keys k = { 0 };
    berth_err err;
    berth_status s = keys_read(tmp_path("no-such.json"), &k, &err);
    assert_int_not_equal(s, BERTH_OK);
    assert_non_null(strstr(err.msg, "no-such.json"));
    s = keys_read(tmp_dir(), &k, &err);
    assert_int_not_equal(s, BERTH_OK);
    assert_non_null(strstr(err.msg, tmp_dir()));
}

static void survives_exhausted_memory(void **state)
{
    (void)state;
    const char *path = write_text("{\"a.weight\": [2, 3], \"b.weight\": [4], \"c\": []}");
    berth_status st = BERTH_ENOMEM;
    for (long n = 0; st != BERTH_OK; n++) {
        struct keys k = { 0 };
        berth_err err = { 0 };
        oom_after(n);
        st = keys_read(path, &k, &err);
        oom_off();
        if (st && (st != BERTH_ENOMEM || !err.msg[0] || k.at))
            fail_msg("after %ld allocations: %s '%s'", n, berth_status_name(st), err.msg);
        keys_release(&k);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(reads_names_and_shapes_in_order),
        cmocka_unit_test(refuses_what_is_wrong),
        cmocka_unit_test(names_have_a_limit),
        cmocka_unit_test(a_file_that_is_not_there),
        cmocka_unit_test(survives_exhausted_memory),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
