/* The safetensors reader: what it gives, and what it refuses. */
#include "support/data_bytes.h"
#include "unit/format/build.h"

/* Two tensors and metadata; 14 bytes of data. */
static const char valid[] =
    "{\"__metadata__\":{\"format\":\"pt\"},"
    "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]},"
    "\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[8,14]}}  ";
enum { DATA = 14 };

#define A "\"a.weight\":{\"dtype\":\"F32\",\"shape\":[2,1],\"data_offsets\":[0,8]}"
#define B "\"b\":{\"dtype\":\"F16\",\"shape\":[3],\"data_offsets\":[8,14]}"

/* The valid file with `find` replaced by `put` in its header (both NULL: header as it is). The
 * length in front is right unless `len` says otherwise; data bytes unless `data` does. */
struct broken {
    const char *name, *find, *put;
    berth_status want;
    const char *text;
    uint64_t len;
    int data; /* added to DATA */
};

#define BAD(n, f, p, w, t, ...)                                                                    \
    {                                                                                              \
        .name = n, .find = f, .put = p, .want = BERTH_##w, .text = t, __VA_ARGS__                  \
    }

static const struct broken broken[] = {
    /* the length in front */
    BAD("len_huge", NULL, NULL, ELIMIT, "over the limit of 100000000", .len = UINT64_MAX),
    BAD("len_over_limit", NULL, NULL, ELIMIT, "over the limit", .len = 100000001),
    BAD("len_beyond_file", NULL, NULL, EFORMAT, "cut short: the header takes 500", .len = 500),
    BAD("len_short", NULL, NULL, EFORMAT, "must end with '}'", .len = 40),
    BAD("len_one", NULL, NULL, EFORMAT, "must end with '}'", .len = 1),
    BAD("len_takes_data", NULL, NULL, EFORMAT, "must end with '}'", .len = sizeof valid + 3),
    /* around the object */
    BAD("space_in_front", "{\"__meta", " {\"__meta", EFORMAT, "must begin with '{'"),
    BAD("array", valid, "[]", EFORMAT, "must begin with '{'", .data = -DATA),
    BAD("newline_behind", "}}  ", "}}\n ", EFORMAT, "must end with '}'"),
    BAD("text_behind", "}}  ", "}}{}", EFORMAT, "more text behind"),
    BAD("brace_missing", "}}  ", "}  ", EFORMAT, "ends early"),
    BAD("comma_behind", "}}  ", "},}", EFORMAT, "expected a key"),
    BAD("comma_missing", "]},\"b\"", "]} \"b\"", EFORMAT, "expected ','"),
    BAD("comment", "\"b\":", "/**/\"b\":", EFORMAT, "expected a key"),
    BAD("utf8_broken", "a.weight", "a.\xff", EFORMAT, "malformed UTF-8"),
    BAD("utf8_overlong", "a.weight", "a.\xc0\xaf", EFORMAT, "malformed UTF-8"),
    BAD("utf8_surrogate", "a.weight", "a.\xed\xa0\x80", EFORMAT, "malformed UTF-8"),
    /* names */
    BAD("name_twice", "\"b\"", "\"a.weight\"", EFORMAT, "'a.weight' occurs twice"),
    BAD("name_twice_escaped", "\"b\"", "\"a.weigh\\u0074\"", EFORMAT, "'a.weight' occurs"),
    BAD("name_empty", "\"b\"", "\"\"", EFORMAT, "empty tensor name"),
    BAD("name_nul", "\"b\"", "\"b\\u0000\"", EFORMAT, "control character at byte 1"),
    BAD("name_escape", "\"b\"", "\"\\u001b[2J\"", EFORMAT, "control character at byte 0"),
    BAD("name_del", "\"b\"", "\"b\x7f\"", EFORMAT, "control character at byte 1"),
    BAD("name_c1", "\"b\"", "\"b\\u009b\"", EFORMAT, "control character at byte 1"),
    BAD("name_lone_surrogate", "\"b\"", "\"\\ud800\"", EFORMAT, "malformed escape"),
    BAD("name_bad_escape", "\"b\"", "\"\\x\"", EFORMAT, "malformed escape"),
    BAD("metadata_twice", B, "\"__metadata__\":{}", EFORMAT, "'__metadata__' occurs twice"),
    /* metadata */
    BAD("meta_number", "\"pt\"", "1", EFORMAT, "metadata 'format'"),
    BAD("meta_object", "\"pt\"", "{}", EFORMAT, "must be a string"),
    BAD("meta_null", "{\"format\":\"pt\"}", "null", EFORMAT, "must be an object"),
    BAD("meta_array", "{\"format\":\"pt\"}", "[]", EFORMAT, "must be an object"),
    BAD("meta_key_twice", "\"pt\"", "\"pt\",\"format\":\"x\"", EFORMAT, "'format' occurs twice"),
    BAD("meta_key_empty", "\"format\"", "\"\"", EFORMAT, "empty metadata key"),
    BAD("meta_value_nul", "\"pt\"", "\"p\\u0000t\"", EFORMAT, "has a NUL"),
    /* fields */
    BAD("tensor_is_array", A, "\"a\":[\"F32\",[2,1],[0,8]]", EFORMAT, "must be an object"),
    BAD("tensor_is_null", A, "\"a\":null", EFORMAT, "must be an object"),
    BAD("dtype_missing", "\"dtype\":\"F32\",", "", EFORMAT, "'dtype' is missing"),
    BAD("shape_missing", "\"shape\":[2,1],", "", EFORMAT, "'shape' is missing"),
    BAD("offsets_missing", ",\"data_offsets\":[0,8]", "", EFORMAT, "'data_offsets' is missing"),
    BAD("dtype_twice", "\"dtype\":\"F32\"", "\"dtype\":\"F32\",\"dtype\":\"F32\"", EFORMAT,
        "'dtype' occurs twice"),
    BAD("shape_twice_escaped", "[2,1]", "[2,1],\"sh\\u0061pe\":[2]", EFORMAT,
        "'shape' occurs twice"),
    BAD("dtype_number", "\"F32\"", "32", EFORMAT, "dtype must be a string"),
    BAD("dtype_unknown", "F32", "F33", EFORMAT, "unknown dtype 'F33'"),
    BAD("dtype_case", "F32", "f32", EFORMAT, "unknown dtype 'f32'"),
    BAD("dtype_empty", "F32", "", EFORMAT, "unknown dtype ''"),
    BAD("dtype_quant", "F32", "Q4_0", EFORMAT, "unknown dtype 'Q4_0'"),
    BAD("dtype_f4", "F32", "F4", EUNSUPPORTED, "dtype F4 is not supported"),
    BAD("dtype_f6", "F32", "F6_E2M3", EUNSUPPORTED, "F6_E2M3 is not supported"),
    BAD("dtype_c64", "F32", "C64", EUNSUPPORTED, "C64 is not supported"),
    BAD("field_unknown_deep", "\"F32\"", "\"F32\",\"x\":[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]", EFORMAT,
        "too deep"),
    /* shapes */
    BAD("shape_object", "[2,1]", "{}", EFORMAT, "shape must be an array"),
    BAD("shape_negative", "[2,1]", "[-2,-1]", EFORMAT, "must be an integer, 0 or more"),
    BAD("shape_minus_zero", "[2,1]", "[-0]", EFORMAT, "must be an integer, 0 or more"),
    BAD("shape_real", "[2,1]", "[2.0,1]", EFORMAT, "must be an integer, 0 or more"),
    BAD("shape_string", "[2,1]", "[\"2\",1]", EFORMAT, "must be an integer, 0 or more"),
    BAD("shape_nested", "[2,1]", "[[2],1]", EFORMAT, "must be an integer, 0 or more"),
    BAD("shape_beyond_u64", "[2,1]", "[18446744073709551616]", EFORMAT, "must be an integer"),
    BAD("shape_nine", "[2,1]", "[2,1,1,1,1,1,1,1,1]", ELIMIT, "more than 8 dimensions"),
    BAD("shape_overflow", "[2,1]", "[4294967296,4294967296]", EFORMAT, "too many elements"),
    BAD("shape_overflow_by_0", "[2,1]", "[4294967296,4294967296,0]", EFORMAT, "too many elements"),
    BAD("shape_bytes_overflow", "[2,1]", "[9223372036854775807]", EFORMAT, "too many"),
    BAD("shape_wrong", "[2,1]", "[2,2]", EFORMAT, "span 8 bytes, but F32 of shape [2, 2] takes 16"),
    BAD("shape_zero_with_bytes", "[2,1]", "[0]", EFORMAT, "span 8 bytes"),
    /* offsets */
    BAD("offsets_one", "[0,8]", "[0]", EFORMAT, "two integers"),
    BAD("offsets_three", "[0,8]", "[0,8,8]", EFORMAT, "and no more"),
    BAD("offsets_object", "[0,8]", "{}", EFORMAT, "data_offsets must be an array"),
    BAD("offsets_negative", "[0,8]", "[-8,0]", EFORMAT, "two integers"),
    BAD("offsets_real", "[0,8]", "[0,8e0]", EFORMAT, "two integers"),
    BAD("offsets_backwards", "[0,8]", "[8,0]", EFORMAT, "run backwards"),
    BAD("offsets_huge", "[0,8]", "[18446744073709551607,18446744073709551615]", EFORMAT,
        "file holds only 14"),
    BAD("offsets_beyond", "[8,14]", "[9,15]", EFORMAT, "ends at byte 15 of the data"),
    BAD("overlap", "[8,14]", "[6,12]", EFORMAT, "overlapping the one before, which ends at 8"),
    BAD("overlap_same", B, "\"b\":{\"dtype\":\"F32\",\"shape\":[2],\"data_offsets\":[0,8]}",
        EFORMAT, "overlapping"),
    BAD("hole", "[0,8]", "[4,12]", EFORMAT, "leaving a hole: the one before ends at 0", .data = 6),
    BAD("hole_between", "[8,14]", "[9,15]", EFORMAT, "leaving a hole", .data = 1),
    BAD("empty_inside", B, "\"b\":{\"dtype\":\"F16\",\"shape\":[0],\"data_offsets\":[4,4]}",
        EFORMAT, "overlapping", .data = -6),
    BAD("data_behind", NULL, NULL, EFORMAT, "cover 14 bytes of data, the file has 15", .data = 1),
    BAD("data_short", NULL, NULL, EFORMAT, "cut short", .data = -1),
    BAD("data_none", NULL, NULL, EFORMAT, "file holds only 0", .data = -DATA),
    BAD("no_tensors_but_data", valid, "{}", EFORMAT, "cover 0 bytes of data, the file has 14"),
};

static void make(struct str *f, const struct broken *c)
{
    struct str h = { 0 };
    str_adds(&h, valid);
    if (c->find)
        replace(&h, c->find, c->put);
    st_file(f, h.p, c->len ? c->len : h.n, (size_t)(DATA + c->data));
    str_release(&h);
}

static void hostile_files_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        struct str f = { 0 };
        make(&f, &broken[i]);
        expect_refusal(broken[i].name, &f, "x.safetensors", broken[i].want, broken[i].text);
        str_release(&f);
    }
}

static struct weights *open_header(const char *header, size_t data, void **mem)
{
    struct str f = { 0 };
    struct weights *w;
    berth_err err;
    static int nth;
    char name[32];
    st_file(&f, header, strlen(header), data);
    snprintf(name, sizeof name, "valid_%d", nth++);
    if (f.n < 1000)
        dump_case(name, &f);
    assert_ok(open_bytes(&f, "x", mem, &w, &err), err);
    str_release(&f);
    return w;
}

static void valid_file_opens(void **state)
{
    (void)state;
    void *mem;
    struct weights *w = open_header(valid, DATA, &mem);
    assert_string_equal(weights_format(w), "safetensors");
    assert_string_equal(weights_path(w), "x");
    assert_int_equal(weights_count(w), 2);
    assert_int_equal(data_bytes(w), DATA);
    assert_int_equal(weights_shards(w), 1);
    const struct weights_entry *e = weights_at(w, 0);
    assert_string_equal(e->name, "a.weight");
    assert_int_equal(e->dtype, DT_F32);
    assert_int_equal(e->shape.ndim, 2);
    assert_int_equal(e->shape.dim[0], 2);
    assert_int_equal(e->off, 8 + strlen(valid));
    assert_int_equal(e->size, 8);
    assert_ptr_equal(weights_find(w, "b", 1), weights_at(w, 1));
    assert_null(weights_find(w, "c", 1));
    assert_null(weights_find(w, "", 0));
    assert_null(weights_find(w, "bb", 2));
    assert_int_equal(weights_meta_count(w), 1);
    assert_string_equal(weights_meta_find(w, "format")->str, "pt");
    assert_null(weights_meta_find(w, "form"));
    uint8_t got[6];
    berth_err err;
    assert_ok(weights_read(w, weights_at(w, 1), 2, got, 4, &err), err);
    assert_memory_equal(got, weights_data(w, weights_at(w, 1)) + 2, 4);
    assert_int_equal(got[0], 10 * 7 + 1);
    assert_fails(weights_read(w, weights_at(w, 1), 3, got, 4, &err), err, BERTH_EINVAL, "'b'");
    assert_fails(weights_read(w, weights_at(w, 1), UINT64_MAX, got, 4, &err), err, BERTH_EINVAL,
                 "'b'");
    weights_close(w);
    free(mem);
}

static void check_decoded_names(void)
{
    void *mem;
    struct weights *w =
        open_header("{ \"__metadata__\" :\n{\"k\\u00e9\":\"a\\tb\\ud83d\\ude00\",\"e\":\"\"},\t"
                    "\"\\u0061\\/\\\\\\\"\" : { \"data_offsets\" : [ 0 , 1 ] , \"future\": "
                    "{\"x\":[null,true,1e3]},"
                    "\"sh\\u0061pe\" : [ 1 ] , \"dtype\" : \"\\u00558\" } }",
                    1, &mem);
    assert_int_equal(weights_count(w), 1);
    assert_string_equal(weights_at(w, 0)->name, "a/\\\"");
    assert_int_equal(weights_at(w, 0)->dtype, DT_U8);
    assert_ptr_equal(weights_find(w, "a/\\\"", 4), weights_at(w, 0));
    assert_string_equal(weights_meta_find(w, "k\xc3\xa9")->str, "a\tb\xf0\x9f\x98\x80");
    assert_int_equal(weights_meta_find(w, "k\xc3\xa9")->str_len, 7);
    assert_int_equal(weights_meta_find(w, "e")->str_len, 0);
    weights_close(w);
    free(mem);
}

/* Allowed oddities: no tensors, unknown fields, escapes, white space inside, fields in any order, a
 * scalar, eight dimensions. */
static void unusual_files_open(void **state)
{
    (void)state;
    void *mem;
    struct weights *w = open_header("{}", 0, &mem);
    assert_int_equal(weights_count(w), 0);
    assert_int_equal(data_bytes(w), 0);
    assert_null(weights_find(w, "a", 1));
    weights_close(w);
    free(mem);
    check_decoded_names();
    w = open_header("{\"s\":{\"dtype\":\"F32\",\"shape\":[],\"data_offsets\":[0,4]},"
                    "\"t\":{\"dtype\":\"U8\",\"shape\":[1,1,1,1,1,1,1,2],\"data_offsets\":[4,6]}}",
                    6, &mem);
    assert_int_equal(weights_at(w, 0)->shape.ndim, 0);
    assert_int_equal(weights_at(w, 1)->shape.ndim, 8);
    weights_close(w);
    free(mem);
}

/* A header length with '{' as its low byte looks like JSON at first sight. */
static void header_length_like_a_brace(void **state)
{
    (void)state;
    struct str h = { 0 };
    void *mem;
    str_adds(&h, valid);
    str_pad(&h, ' ', 0x17b); /* 0x7b is '{' */
    struct weights *w = open_header(h.p, DATA, &mem);
    assert_string_equal(weights_format(w), "safetensors");
    weights_close(w);
    free(mem);
    str_clear(&h);
    str_adds(&h, valid);
    str_pad(&h, ' ', 0x280); /* 80 02 is how a pickle begins */
    w = open_header(h.p, DATA, &mem);
    assert_string_equal(weights_format(w), "safetensors");
    weights_close(w);
    free(mem);
    str_release(&h);
}

static void every_dtype_is_read(void **state)
{
    (void)state;
    for (int t = 0; t < DT_COUNT; t++) {
        const struct dtype_desc *d = dtype_desc((enum dtype)t);
        if (!d->st_name)
            continue;
        char header[200];
        void *mem;
        snprintf(header, sizeof header,
                 "{\"x\":{\"dtype\":\"%s\",\"shape\":[3],\"data_offsets\":[0,%d]}}", d->st_name,
                 3 * d->bytes);
        struct weights *w = open_header(header, 3u * d->bytes, &mem);
        assert_int_equal(weights_at(w, 0)->dtype, t);
        assert_int_equal(weights_at(w, 0)->size, 3 * d->bytes);
        weights_close(w);
        free(mem);
    }
}

/* Entries come in file order whatever the header's order; a tensor without bytes stands before the
 * one that begins where it lies, several of them as in the header. */
static void entries_are_sorted(void **state)
{
    (void)state;
    static const char *const want[] = { "z1", "z0", "first", "zm", "second", "zl" };
    void *mem;
    struct weights *w =
        open_header("{\"second\":{\"dtype\":\"U8\",\"shape\":[2],\"data_offsets\":[3,5]},"
                    "\"zl\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[5,5]},"
                    "\"z1\":{\"dtype\":\"U8\",\"shape\":[0,7],\"data_offsets\":[0,0]},"
                    "\"first\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                    "\"zm\":{\"dtype\":\"F32\",\"shape\":[0],\"data_offsets\":[3,3]},"
                    "\"z0\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                    5, &mem);
    assert_int_equal(weights_count(w), ARRAY_LEN(want));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_string_equal(weights_at(w, i)->name, want[i]);
        assert_ptr_equal(weights_find(w, want[i], strlen(want[i])), weights_at(w, i));
    }
    weights_verify(w);
    weights_close(w);
    free(mem);
}

/* In order but for a tensor without bytes, named behind the one that begins where it lies. */
static void empty_tensor_named_late(void **state)
{
    (void)state;
    void *mem;
    struct weights *w =
        open_header("{\"first\":{\"dtype\":\"U8\",\"shape\":[3],\"data_offsets\":[0,3]},"
                    "\"z\":{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[0,0]}}",
                    3, &mem);
    assert_string_equal(weights_at(w, 0)->name, "z");
    weights_close(w);
    free(mem);
}

/* Enough tensors for the table to grow and the names to fill several blocks; last one first. */
static void many_tensors_are_found(void **state)
{
    (void)state;
    enum { N = 20000 };
    struct str h = { 0 };
    char name[64];
    void *mem;
    str_addc(&h, '{');
    for (int i = N; i-- > 0;)
        str_addf(
            &h,
            "%s\"model.block.%d.weight\":{\"dtype\":\"U8\",\"shape\":[1],\"data_offsets\":[%d,%d]}",
            i == N - 1 ? "" : ",", i, i, i + 1);
    str_addc(&h, '}');
    struct weights *w = open_header(h.p, N, &mem);
    assert_int_equal(weights_count(w), N);
    for (int i = 0; i < N; i++) {
        int n = snprintf(name, sizeof name, "model.block.%d.weight", i);
        assert_ptr_equal(weights_find(w, name, (size_t)n), weights_at(w, (size_t)i));
        assert_null(weights_find(w, name, (size_t)n - 1));
    }
    /* what the index costs: the bar is 200 bytes a tensor and the name */
    assert_true(weights_heap_bytes(w) < (size_t)N * (200 + 24));
    weights_close(w);
    free(mem);
    str_release(&h);
}

static void limits_hold(void **state)
{
    (void)state;
    static const struct {
        struct weights_limits lim;
        const char *text;
    } cases[] = {
        { { .max_header = 100, .max_tensors = 9, .max_name = 99, .max_kv = 9 }, "header of" },
        { { .max_header = 999, .max_tensors = 1, .max_name = 99, .max_kv = 9 },
          "more than 1 tensors" },
        { { .max_header = 999, .max_tensors = 9, .max_name = 7, .max_kv = 9 }, "the limit is 7" },
        { { .max_header = 999, .max_tensors = 9, .max_name = 99, .max_kv = 0 },
          "more than 0 metadata" },
    };
    struct str f = { 0 };
    st_file(&f, valid, strlen(valid), DATA);
    struct weights_file file = { .name = "x", .data = f.p, .size = f.n };
    for (size_t i = 0; i < ARRAY_LEN(cases); i++) {
        struct weights *w;
        berth_err err;
        assert_fails(weights_open_memory(&file, 1, &cases[i].lim, &w, &err), err, BERTH_ELIMIT,
                     cases[i].text);
    }
    str_release(&f);
}

static void open_survives_oom(void **state)
{
    (void)state;
    struct str f = { 0 };
    static const char header[] =
        "{\"__metadata__\":{\"a\\u0062\":\"b\\\\\"}," B "," A ",\"\\u0063\":"
        "{\"dtype\":\"U8\",\"shape\":[0],\"data_offsets\":[14,14]}}";
    st_file(&f, header, strlen(header), DATA);
    struct weights_file file = { .name = "x", .data = f.p, .size = f.n };
    expect_survives_oom(&file, 1);
    str_release(&f);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_file_opens),       cmocka_unit_test(hostile_files_are_refused),
        cmocka_unit_test(unusual_files_open),     cmocka_unit_test(header_length_like_a_brace),
        cmocka_unit_test(every_dtype_is_read),    cmocka_unit_test(entries_are_sorted),
        cmocka_unit_test(many_tensors_are_found), cmocka_unit_test(limits_hold),
        cmocka_unit_test(open_survives_oom),      cmocka_unit_test(empty_tensor_named_late),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
