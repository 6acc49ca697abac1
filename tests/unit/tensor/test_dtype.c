/* The table of element types: numbers and names other programs rely on. */
#include "support/test.h"

#include "tensor/dtype.h"

/* From the GGUF and safetensors definitions, typed once more and not read from the table. */
static const struct {
    const char *name, *st_name;
    int ggml;
    unsigned elems, bytes;
} known[] = {
    { "F64", "F64", 28, 1, 8 },         { "F32", "F32", 0, 1, 4 },
    { "F16", "F16", 1, 1, 2 },          { "BF16", "BF16", 30, 1, 2 },
    { "F8_E4M3", "F8_E4M3", -1, 1, 1 }, { "F8_E5M2", "F8_E5M2", -1, 1, 1 },
    { "F8_E8M0", "F8_E8M0", -1, 1, 1 }, { "I64", "I64", 27, 1, 8 },
    { "I32", "I32", 26, 1, 4 },         { "I16", "I16", 25, 1, 2 },
    { "I8", "I8", 24, 1, 1 },           { "U64", "U64", -1, 1, 8 },
    { "U32", "U32", -1, 1, 4 },         { "U16", "U16", -1, 1, 2 },
    { "U8", "U8", -1, 1, 1 },           { "BOOL", "BOOL", -1, 1, 1 },
    { "Q4_0", NULL, 2, 32, 18 },        { "Q4_1", NULL, 3, 32, 20 },
    { "Q5_0", NULL, 6, 32, 22 },        { "Q5_1", NULL, 7, 32, 24 },
    { "Q8_0", NULL, 8, 32, 34 },        { "Q2_K", NULL, 10, 256, 84 },
    { "Q3_K", NULL, 11, 256, 110 },     { "Q4_K", NULL, 12, 256, 144 },
    { "Q5_K", NULL, 13, 256, 176 },     { "Q6_K", NULL, 14, 256, 210 },
    { "IQ4_NL", NULL, 20, 32, 18 },     { "IQ4_XS", NULL, 23, 256, 136 },
    { "I4", NULL, -1, 2, 1 },           { "U4", NULL, -1, 2, 1 },
    { "E2M1", NULL, -1, 2, 1 },
};

static void the_table_says_what_the_formats_say(void **state)
{
    (void)state;
    for (int t = 0; t < DT_COUNT; t++) {
        size_t i = 0;
        while (i < ARRAY_LEN(known) && strcmp(known[i].name, dtype_name((enum dtype)t)) != 0)
            i++;
        if (i == ARRAY_LEN(known))
            fail_msg("%s has no row here: add what the formats' definitions say about it",
                     dtype_name((enum dtype)t));
    }
    for (size_t i = 0; i < ARRAY_LEN(known); i++) {
        enum dtype t = dtype_by_name(known[i].name, strlen(known[i].name));
        assert_int_not_equal(t, DT_NONE);
        const struct dtype_desc *d = dtype_desc(t);
        assert_string_equal(d->name, known[i].name);
        assert_int_equal(d->ggml_id, known[i].ggml);
        assert_int_equal(d->elems, known[i].elems);
        assert_int_equal(d->bytes, known[i].bytes);
        bool named_float = known[i].name[0] == 'F' || strncmp(known[i].name, "BF", 2) == 0;
        assert_int_equal(d->is_float, named_float);
        assert_int_equal(dtype_is_quant(t), known[i].elems > 1);
        assert_non_null(d->to_f32);
        if (known[i].st_name) {
            assert_string_equal(d->st_name, known[i].st_name);
            assert_int_equal(dtype_by_st_name(d->st_name, strlen(d->st_name)), t);
            assert_non_null(d->from_f32);
        } else {
            assert_null(d->st_name);
        }
        if (known[i].ggml >= 0)
            assert_int_equal(dtype_by_ggml_id((uint32_t)known[i].ggml), t);
    }
}

static void names_are_found(void **state)
{
    (void)state;
    assert_int_equal(dtype_by_name("q4_k", 4), DT_Q4_K);
    assert_int_equal(dtype_by_name("Bf16", 4), DT_BF16);
    assert_int_equal(dtype_by_name("F16garbage", 3), DT_F16); /* length counts, not NUL */
    assert_int_equal(dtype_by_name("F1", 2), DT_NONE);
    assert_int_equal(dtype_by_name("F160", 4), DT_NONE);
    assert_int_equal(dtype_by_name("", 0), DT_NONE);
    assert_int_equal(dtype_by_st_name("f16", 3), DT_NONE); /* headers are exact */
    assert_int_equal(dtype_by_st_name("Q4_0", 4), DT_NONE);
    assert_int_equal(dtype_by_ggml_id(4), DT_NONE);
    assert_int_equal(dtype_by_ggml_id(39), DT_NONE);
    assert_int_equal(dtype_by_ggml_id(UINT32_MAX), DT_NONE);
    assert_string_equal(dtype_name(DT_Q4_K), "Q4_K");
    assert_string_equal(dtype_name(DT_NONE), "?");
}

static void bytes_are_checked(void **state)
{
    (void)state;
    uint64_t n = 0;
    assert_true(dtype_bytes(DT_Q4_K, 512, &n) && n == 288);
    assert_true(dtype_bytes(DT_F16, 3, &n) && n == 6);
    assert_true(dtype_bytes(DT_Q8_0, 0, &n) && n == 0);
    assert_false(dtype_bytes(DT_Q4_K, 128, &n));
    assert_true(dtype_bytes(DT_U8, UINT64_MAX, &n) && n == UINT64_MAX);
    assert_false(dtype_bytes(DT_F64, UINT64_MAX / 8 + 1, &n));
    assert_false(dtype_bytes(DT_Q8_0, UINT64_MAX - 31, &n)); /* 34 bytes for 32 elements */
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_table_says_what_the_formats_say),
        cmocka_unit_test(names_are_found),
        cmocka_unit_test(bytes_are_checked),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
