/* Metadata of every GGUF type as JSON, and the ranking of the largest tensors. */
#include "support/layout_files.h"
#include "support/quant_preset.h"
#include "support/test.h"
#include "support/tmp.h"

#include "app/inspect.h"
#include "base/json.h"

#include <unistd.h>

/* What inspect_meta() prints, read back by a strict reader; the text stays in *text. */
static json_t *print_meta(const struct weights_meta *m, uint64_t max_items, char **text)
{
    struct str out = { 0 };
    struct jsonout j = { .out = &out, .indent = 2 };
    berth_err err;
    json_t *v;
    inspect_meta(&j, NULL, m, max_items);
    assert_ok(js_parse(str_c(&out), out.n, NULL, &v, &err), err);
    *text = str_take(&out);
    return v;
}

static void expect(const struct weights_meta *m, uint64_t max_items, const char *want)
{
    char *text = NULL;
    json_decref(print_meta(m, max_items, &text));
    assert_string_equal(text, want);
    free(text);
}

static void single_values(void **state)
{
    (void)state;
    expect(&(struct weights_meta) { .kind = META_UINT, .u = UINT64_MAX }, 0,
           "18446744073709551615");
    expect(&(struct weights_meta) { .kind = META_INT, .i = INT64_MIN }, 0, "-9223372036854775808");
    expect(&(struct weights_meta) { .kind = META_FLOAT, .f = 0.5 }, 0, "0.5");
    expect(&(struct weights_meta) { .kind = META_BOOL, .b = true }, 0, "true");
    expect(&(struct weights_meta) { .kind = META_STRING, .str = "a\"\n\033b", .str_len = 5 }, 0,
           "\"a\\\"\\n\\u001bb\"");
}

static struct weights_meta array_of(uint32_t type, uint64_t count, const void *raw, size_t n)
{
    return (struct weights_meta) {
        .kind = META_ARRAY, .elem_type = type, .count = count, .raw = raw, .raw_len = n
    };
}

#define EXPECT_ARRAY(type, count, raw, want)                                                       \
    do {                                                                                           \
        struct weights_meta m_ = array_of(type, count, raw, sizeof(raw) - 1);                      \
        expect(&m_, 0, want);                                                                      \
    } while (0)

static void arrays_of_every_type(void **state)
{
    (void)state;
    EXPECT_ARRAY(0, 2, "\x01\xff", "[1, 255]");
    EXPECT_ARRAY(1, 2, "\x01\xff", "[1, -1]");
    EXPECT_ARRAY(2, 1, "\xff\xff", "[65535]");
    EXPECT_ARRAY(3, 1, "\xff\xff", "[-1]");
    EXPECT_ARRAY(4, 1, "\xff\xff\xff\xff", "[4294967295]");
    EXPECT_ARRAY(5, 1, "\xfe\xff\xff\xff", "[-2]");
    EXPECT_ARRAY(6, 2, "\0\0\x80\x3f\0\0\xc0\x7f", "[1.0, \"NaN\"]");
    EXPECT_ARRAY(7, 2, "\x01\0", "[true, false]");
    EXPECT_ARRAY(8, 2, "\x02\0\0\0\0\0\0\0hi\x01\0\0\0\0\0\0\0\xff", "[\"hi\", \"\xef\xbf\xbd\"]");
    EXPECT_ARRAY(10, 1, "\xff\xff\xff\xff\xff\xff\xff\xff", "[18446744073709551615]");
    EXPECT_ARRAY(11, 1, "\xff\xff\xff\xff\xff\xff\xff\xff", "[-1]");
    EXPECT_ARRAY(12, 1, "\0\0\0\0\0\0\xe0\x3f", "[0.5]");
    /* [[1, 2], []]: element type, count, elements */
    EXPECT_ARRAY(9, 2,
                 "\0\0\0\0\x02\0\0\0\0\0\0\0\x01\x02"
                 "\x08\0\0\0\0\0\0\0\0\0\0\0",
                 "[[1, 2], []]");
    EXPECT_ARRAY(4, 0, "", "[]");
}

static void long_arrays_can_be_cut(void **state)
{
    (void)state;
    struct weights_meta m = array_of(0, 5, "\x01\x02\x03\x04\x05", 5);
    expect(&m, 3, "[1, 2, 3, \"...\"]");
    expect(&m, 5, "[1, 2, 3, 4, 5]");
}

/* The reader checks structure when it opens; bytes that changed since must still do no harm. */
static void a_cut_array_ends_quietly(void **state)
{
    (void)state;
    static const uint8_t raw[] = "\x09\0\0\0\0\0\0\0hi";
    for (size_t n = 0; n < sizeof raw - 1; n++) {
        char *text = NULL;
        struct weights_meta m = array_of(8, 3, raw, n);
        json_decref(print_meta(&m, 0, &text));
        free(text);
    }
    char *text = NULL;
    struct weights_meta m = array_of(77, 3, raw, 8);
    json_decref(print_meta(&m, 0, &text));
    free(text);
    assert_string_equal(inspect_meta_type(8), "string");
    assert_string_equal(inspect_meta_type(77), "?");
}

/* A GGUF file with one array of 100,000 numbers and no tensor, all of them 7. */
static const char *gguf_with_array(void)
{
    enum { COUNT = 100000 };
    static const uint8_t head[] = "GGUF\x03\0\0\0"
                                  "\0\0\0\0\0\0\0\0"        /* tensors */
                                  "\x01\0\0\0\0\0\0\0"      /* metadata */
                                  "\x04\0\0\0\0\0\0\0list"  /* key */
                                  "\x09\0\0\0\0\0\0\0"      /* array of u8 */
                                  "\xa0\x86\x01\0\0\0\0\0"; /* COUNT */
    static uint8_t file[sizeof head - 1 + COUNT];
    memcpy(file, head, sizeof head - 1);
    memset(file + sizeof head - 1, 7, COUNT);
    return tmp_write("array.gguf", file, sizeof file);
}

/* The array is read while it is printed. A file that is cut short meanwhile reads as zeros, which
 * must not pass for an answer. */
static void a_file_that_shrinks_is_an_error(void **state)
{
    (void)state;
    const char *path = gguf_with_array();
    for (int cut = 0; cut < 2; cut++) {
        struct weights *w;
        struct summary s;
        berth_err err;
        struct str text = { 0 };
        json_t *v;
        assert_ok(weights_open(path, NULL, &w, &err), err);
        summary_make(w, &s);
        assert_true(!cut || !truncate(path, 100));
        struct jsonout j = { .out = &text, .indent = 2 };
        berth_status status = inspect_json(&j, w, &s, true, &err);
        assert_int_equal(status, cut ? BERTH_EIO : BERTH_OK);
        assert_ok(js_parse(str_c(&text), text.n, NULL, &v, &err), err); /* whole all the same */
        const json_t *error = json_object_get(v, "error");
        assert_int_equal(!error, !cut);
        if (cut)
            assert_string_equal(json_string_value(json_object_get(error, "code")), "EIO");
        json_decref(v);
        str_release(&text);
        weights_close(w);
    }
}

static berth_status zeros(void *user, size_t i, uint64_t off, void *dst, size_t n, berth_err *err)
{
    (void)user, (void)i, (void)off, (void)err;
    memset(dst, 0, n);
    return BERTH_OK;
}

static void the_largest_come_first(void **state)
{
    (void)state;
    enum { N = 25 };
    struct weights_spec spec[N];
    char name[N][16];
    for (int i = 0; i < N; i++) {
        snprintf(name[i], sizeof name[i], "t%d", i);
        /* sizes 0 7 14 21 3 10 ..., with t20 and t21 as large as t0 and t1 */
        spec[i] = (struct weights_spec) { .name = name[i],
                                          .dtype = i % 2 ? DT_F32 : DT_I8,
                                          .shape = { 1, { (uint64_t)(i % 20 * 7 % 25) } } };
    }
    berth_err err;
    struct weights *w;
    const struct weights_write_args args = { .format = "safetensors",
                                             .path = tmp_path("top.safetensors"),
                                             .spec = spec,
                                             .count = N,
                                             .fill = zeros };
    assert_ok(weights_write(&args, &err), err);
    assert_ok(weights_open(args.path, NULL, &w, &err), err);
    struct summary s;
    summary_make(w, &s);
    assert_int_equal(s.tops, INSPECT_TOP);
    assert_int_equal(s.all.tensors, N);
    assert_int_equal(s.by_dtype[DT_F32].tensors + s.by_dtype[DT_I8].tensors, N);
    assert_int_equal(s.by_dtype[DT_F32].bytes, 4 * s.by_dtype[DT_F32].params);
    assert_int_equal(s.all.bytes, s.by_dtype[DT_F32].bytes + s.by_dtype[DT_I8].bytes);
    for (size_t i = 0; i < s.tops; i++) {
        size_t larger = 0;
        for (size_t k = 0; k < N; k++)
            larger += weights_at(w, k)->size > s.top[i]->size;
        assert_true(larger <= i);
        assert_true(!i || s.top[i - 1]->size > s.top[i]->size ||
                    (s.top[i - 1]->size == s.top[i]->size && s.top[i - 1] < s.top[i]));
    }
    weights_close(w);
}

/* A model of a family that runs, stored in a way that does not. */
static void a_layout_that_cannot_be_computed_is_said(void **state)
{
    struct quant_layer q = { .layer = "img_in", .dtype = DT_U8, .marker = "{\"format\": \"hqq\"}" };
    const char *path = tmp_path("hqq.safetensors");
    struct weights *w;
    struct summary s;
    struct str out = { 0 };
    struct jsonout j = { .out = &out, .spaced = true };
    berth_err err = { 0 };
    (void)state;
    quant_write_preset(path, "flux-tiny", &q);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    summary_make(w, &s);
    assert_ok(inspect_json(&j, w, &s, false, &err), err);
    assert_non_null(strstr(str_c(&out), "\"runs\": false"));
    assert_non_null(strstr(str_c(&out), "stored in the layout 'hqq', which cannot be computed"));
    str_release(&out);
    weights_close(w);
}

/* Of every tensor, in words; and how often each layout is there. */
static void quantised_weights_are_told_in_words(void **state)
{
    struct weights *w;
    struct summary s;
    struct str out = { 0 };
    struct jsonout j = { .out = &out, .spaced = true };
    berth_err err = { 0 };
    static const char *const says[] = {
        "4-bit floats in blocks (nvfp4), one for every 16",
        "scales of its weight's blocks",
        "the scale of all scales of its weight",
        "how its weight is stored",
        "\"stored\": \"16-bit floats\"",
    };
    const char *path = tmp_path("words.safetensors");
    (void)state;
    layout_write("z-image-tiny", "nvfp4", path);
    assert_ok(weights_open(path, NULL, &w, &err), err);
    summary_make(w, &s);
    assert_true(s.family.runs);
    assert_ok(inspect_json(&j, w, &s, true, &err), err);
    for (size_t i = 0; i < ARRAY_LEN(says); i++)
        if (!strstr(str_c(&out), says[i]))
            fail_msg("nothing says '%s'", says[i]);
    str_release(&out);
    weights_close(w);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(quantised_weights_are_told_in_words),
        cmocka_unit_test(single_values),
        cmocka_unit_test(arrays_of_every_type),
        cmocka_unit_test(long_arrays_can_be_cut),
        cmocka_unit_test(a_cut_array_ends_quietly),
        cmocka_unit_test(the_largest_come_first),
        cmocka_unit_test(a_file_that_shrinks_is_an_error),
        cmocka_unit_test(a_layout_that_cannot_be_computed_is_said),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
