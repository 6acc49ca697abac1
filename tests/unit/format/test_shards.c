/* Models in several files: *.safetensors.index.json. */
#include "fuzz/format/shard_set.h"
#include "unit/format/build.h"

#include "support/data_bytes.h"
#include "support/tmp.h"

static const char valid[] =
    "{\"metadata\":{\"total_size\":3},"
    "\"weight_map\":{\"b\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\"}}\n";

static struct str bytes[SHARD_SET];

static int setup(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHARD_SET; i++)
        shard_set_bytes(i, &bytes[i]);
    return 0;
}

static int teardown(void **state)
{
    (void)state;
    for (size_t i = 0; i < SHARD_SET; i++)
        str_release(&bytes[i]);
    return 0;
}

#define INDEX "model.safetensors.index.json"

static void shard_files(const char *text, struct weights_file files[SHARD_SET + 1])
{
    files[0] = (struct weights_file) { INDEX, text, strlen(text) };
    for (size_t i = 0; i < SHARD_SET; i++)
        files[i + 1] = (struct weights_file) { shard_set[i].name, bytes[i].p, bytes[i].n };
}

static berth_status open_index(const char *text, const struct weights_limits *lim,
                               struct weights **w, berth_err *err)
{
    struct weights_file files[SHARD_SET + 1];
    shard_files(text, files);
    return weights_open_memory(files, SHARD_SET + 1, lim, w, err);
}

#define BROKEN(n, f, p, w, t)                                                                      \
    {                                                                                              \
        n, f, p, BERTH_##w, t                                                                      \
    }

static const struct {
    const char *name, *find, *put;
    berth_status want;
    const char *words;
} broken[] = {
    BROKEN("not_json", valid, "{weight_map}", EFORMAT, "expected a key"),
    BROKEN("cut", "}}\n", "}", EFORMAT, "ends early"),
    BROKEN("text_behind", "}}\n", "}} x", EFORMAT, "more text behind"),
    BROKEN("no_map", "weight_map", "weights", EFORMAT, "without a 'weight_map'"),
    BROKEN("empty_object", valid, "{}", EFORMAT, "without a 'weight_map'"),
    BROKEN("map_is_array", "{\"b\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\"}", "[]", EFORMAT,
           "weight_map must be an object"),
    BROKEN("map_empty", "{\"b\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\"}", "{}", EFORMAT,
           "the weight map is empty"),
    BROKEN("map_twice", "\"metadata\":{\"total_size\":3}", "\"weight_map\":{}", EFORMAT,
           "'weight_map' occurs twice"),
    BROKEN("metadata_twice", "{\"metadata\"", "{\"metadata\":{},\"metadata\"", EFORMAT,
           "'metadata' occurs twice"),
    BROKEN("metadata_array", "{\"total_size\":3}", "[]", EFORMAT, "metadata must be an object"),
    BROKEN("metadata_key_twice", "\"total_size\":3", "\"total_size\":3,\"total_size\":3", EFORMAT,
           "'total_size' occurs twice"),
    BROKEN("metadata_key_empty", "total_size", "", EFORMAT, "empty metadata key"),
    BROKEN("metadata_nul", ":3", ":\"\\u0000\"", EFORMAT, "has a NUL"),
    BROKEN("metadata_huge", ":3", ":1e999", EFORMAT, "number out of range"),
    BROKEN("metadata_deep", ":3",
           ":[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[[]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]]", EFORMAT,
           "too deep"),
    BROKEN("shard_key_twice", "m-2.safetensors", "twice.safetensors", EFORMAT,
           "metadata key 'k' occurs twice"),
    BROKEN("file_number", "\"m-2.safetensors\"", "2", EFORMAT, "must be a string"),
    BROKEN("file_empty", "m-2.safetensors", "", EFORMAT, "empty file name"),
    BROKEN("file_absolute", "m-2.safetensors", "/etc/passwd", EFORMAT, "not a plain name"),
    BROKEN("file_parent", "m-2.safetensors", "../m-2.safetensors", EFORMAT, "not a plain name"),
    BROKEN("file_dotdot", "m-2.safetensors", "..", EFORMAT, "not a plain name"),
    BROKEN("file_folder", "m-2.safetensors", "x/m-2.safetensors", EFORMAT, "not a plain name"),
    BROKEN("file_slash_escaped", "m-2.safetensors", "x\\u002fm-2.safetensors", EFORMAT,
           "not a plain name"),
    BROKEN("file_backslash", "m-2.safetensors", "x\\\\m-2.safetensors", EFORMAT,
           "not a plain name"),
    BROKEN("file_nul", "m-2.safetensors", "m-2.safetensors\\u0000", EFORMAT, "control character"),
    BROKEN("file_hidden", "m-2.safetensors", ".m", EFORMAT, "not a plain name"),
    BROKEN("file_not_there", "m-2.safetensors", "m-3.safetensors", ENOTFOUND, "'m-3.safetensors'"),
    BROKEN("file_is_the_index", "m-2.safetensors", INDEX, EFORMAT, "not a safetensors file"),
    BROKEN("file_broken", "\"b\":\"m-2.safetensors\"", "\"c\":\"broken.safetensors\"", EFORMAT,
           "shard 'broken.safetensors': tensor 'c' ends at byte 4"),
    BROKEN("file_empty_shard", "m-2.safetensors", "empty.safetensors", EFORMAT,
           "'b' is not in 'empty.safetensors'"),
    BROKEN("name_twice", "\"b\":", "\"a\":", EFORMAT, "'a' occurs twice in the weight map"),
    BROKEN("name_twice_escaped", "\"b\":", "\"\\u0061\":", EFORMAT, "'a' occurs twice"),
    BROKEN("name_empty", "\"b\":", "\"\":", EFORMAT, "empty tensor name"),
    BROKEN("name_control", "\"b\":", "\"\\n\":", EFORMAT, "control character"),
    BROKEN("name_not_there", "\"b\":", "\"c\":\"m-2.safetensors\",\"b\":", EFORMAT,
           "'c' is not in 'm-2.safetensors'"),
    BROKEN("name_not_in_map", "\"b\":\"m-2.safetensors\"", "\"x\":\"m-2.safetensors\"", EFORMAT,
           "'b' is in 'm-2.safetensors' but not in the weight map"),
    BROKEN("name_elsewhere", "\"a\":\"m-1.safetensors\"", "\"a\":\"m-2.safetensors\"", EFORMAT,
           "'a' is not in 'm-2.safetensors', where the weight map puts it"),
    BROKEN("name_swapped", "\"b\":\"m-2.safetensors\",\"a\":\"m-1.safetensors\"",
           "\"a\":\"m-2.safetensors\",\"b\":\"m-1.safetensors\"", EFORMAT,
           "'a' is in 'm-1.safetensors', the weight map says 'm-2.safetensors'"),
    BROKEN("name_in_two_files", "\"b\":", "\"q\":\"again.safetensors\",\"b\":", EFORMAT,
           "'a' is in 'again.safetensors', the weight map says 'm-1.safetensors'"),
};

static void hostile_indexes_are_refused(void **state)
{
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(broken); i++) {
        struct str text = { 0 };
        struct weights *w = NULL;
        berth_err err = { 0 };
        str_adds(&text, valid);
        replace(&text, broken[i].find, broken[i].put);
        dump_case(broken[i].name, &text);
        berth_status got = open_index(text.p, NULL, &w, &err);
        if (got != broken[i].want || w || !strstr(err.msg, broken[i].words) ||
            !strstr(err.msg, INDEX))
            fail_msg("%s: got %s '%s', wanted %s with '%s'", broken[i].name, berth_status_name(got),
                     got ? err.msg : "", berth_status_name(broken[i].want), broken[i].words);
        str_release(&text);
    }
}

static void check_valid(const struct weights *w)
{
    assert_string_equal(weights_format(w), "safetensors (sharded)");
    assert_int_equal(weights_shards(w), 2);
    assert_int_equal(weights_count(w), 2);
    assert_int_equal(data_bytes(w), 3);
    const struct weights_entry *a = weights_find(w, "a", 1), *b = weights_find(w, "b", 1);
    assert_ptr_equal(a, weights_at(w, 0)); /* shards are numbered by file name */
    assert_int_equal(a->shard, 0);
    assert_int_equal(b->shard, 1);
    uint8_t got[2];
    berth_err err;
    assert_ok(weights_read(w, b, 0, got, 2, &err), err);
    assert_memory_equal(got, "AB", 2);
    /* the index first, then what shards add; the first shard's word stands */
    const struct weights_meta *m = weights_meta_at(w, 0);
    assert_string_equal(m->key, "total_size");
    assert_int_equal(m->kind, META_UINT);
    assert_int_equal(m->u, 3);
    assert_string_equal(weights_meta_find(w, "format")->str, "pt");
    assert_string_equal(weights_meta_find(w, "two")->str, "2");
    weights_verify(w);
}

static void valid_index_opens(void **state)
{
    (void)state;
    struct weights *w;
    berth_err err;
    struct str text = { 0 };
    str_adds(&text, valid);
    dump_case("valid", &text);
    assert_ok(open_index(valid, NULL, &w, &err), err);
    assert_string_equal(weights_path(w), INDEX);
    check_valid(w);
    weights_close(w);
    str_release(&text);
}

/* Exporters put "format" into the index and into every shard: that is no contradiction. */
static void index_and_shards_may_share_keys(void **state)
{
    (void)state;
    struct str text = { 0 };
    struct weights *w;
    berth_err err;
    str_adds(&text, valid);
    replace(&text, "\"total_size\":3", "\"total_size\":3,\"format\":\"index\"");
    dump_case("shared_key", &text);
    assert_ok(open_index(text.p, NULL, &w, &err), err);
    assert_string_equal(weights_meta_find(w, "format")->str, "index");
    assert_int_equal(weights_meta_count(w), 4); /* total_size, format, one, two */
    weights_close(w);
    str_release(&text);
}

static void pickled_shards_are_refused_with_the_reason(void **state)
{
    (void)state;
    static const char index[] = "{\"weight_map\":{\"a\":\"m-1.bin\"}}";
    const struct weights_file files[] = { { "m.bin.index.json", index, sizeof index - 1 },
                                          { "m-1.bin", "\x80\x02}q.", 5 } };
    struct weights *w;
    berth_err err;
    assert_fails(weights_open_memory(files, 2, NULL, &w, &err), err, BERTH_EUNSUPPORTED,
                 "read as safetensors only");
}

/* Unknown fields are skipped, scalars in the metadata are kept whatever their kind. */
static void unusual_index_opens(void **state)
{
    (void)state;
    static const char text[] =
        " {\"future\":[{}],\"weight_map\":{\"\\u0061\":\"m-1.safe\\u0074ensors\"},"
        "\"metadata\":{\"total_size\":1.5e3,\"n\":-7,\"t\":true,\"s\":\"x\",\"o\":{},\"z\":null,"
        "\"l\":[1]}}";
    struct weights *w;
    berth_err err;
    struct str dump = { 0 };
    str_adds(&dump, text);
    dump_case("unusual", &dump);
    str_release(&dump);
    assert_ok(open_index(text, NULL, &w, &err), err);
    assert_int_equal(weights_count(w), 1);
    assert_true(weights_meta_find(w, "total_size")->f == 1500);
    assert_int_equal(weights_meta_find(w, "n")->i, -7);
    assert_true(weights_meta_find(w, "t")->b);
    assert_string_equal(weights_meta_find(w, "s")->str, "x");
    assert_null(weights_meta_find(w, "o"));
    weights_close(w);
}

static void limits_hold(void **state)
{
    (void)state;
    struct weights_limits lim = weights_limits_default;
    struct weights *w;
    berth_err err;
    lim.max_shards = 1;
    assert_fails(open_index(valid, &lim, &w, &err), err, BERTH_ELIMIT, "more than 1 shards");
    lim = weights_limits_default;
    lim.max_tensors = 1;
    assert_fails(open_index(valid, &lim, &w, &err), err, BERTH_ELIMIT, "more than 1 tensors");
    lim = weights_limits_default;
    lim.max_header = 50;
    assert_fails(open_index(valid, &lim, &w, &err), err, BERTH_ELIMIT, "over the limit of 50");
}

/* On disk: shards are looked for in the folder of the index, wherever we stand. */
static void files_are_found_beside_the_index(void **state)
{
    (void)state;
    struct weights *w;
    berth_err err;
    for (size_t i = 0; i < 2; i++)
        tmp_write(shard_set[i].name, bytes[i].p, bytes[i].n);
    const char *path = tmp_write(INDEX, valid, strlen(valid));
    assert_ok(weights_open(path, NULL, &w, &err), err);
    check_valid(w);
    assert_string_equal(weights_path(w), path);
    assert_string_equal(weights_shard(w, 1)->path, tmp_path("m-2.safetensors"));
    assert_ok(weights_check(w, &err), err);
    assert_int_equal(truncate(tmp_path("m-2.safetensors"), 10), 0);
    assert_fails(weights_check(w, &err), err, BERTH_EIO, "m-2.safetensors");
    weights_close(w);
    assert_fails(weights_open(path, NULL, &w, &err), err, BERTH_EFORMAT, "m-2.safetensors");
    assert_int_equal(unlink(tmp_path("m-2.safetensors")), 0);
    assert_fails(weights_open(path, NULL, &w, &err), err, BERTH_ENOTFOUND, "m-2.safetensors");
}

static void open_survives_oom(void **state)
{
    (void)state;
    struct weights_file files[SHARD_SET + 1];
    shard_files(valid, files);
    expect_survives_oom(files, SHARD_SET + 1);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(valid_index_opens),
        cmocka_unit_test(hostile_indexes_are_refused),
        cmocka_unit_test(index_and_shards_may_share_keys),
        cmocka_unit_test(pickled_shards_are_refused_with_the_reason),
        cmocka_unit_test(unusual_index_opens),
        cmocka_unit_test(limits_hold),
        cmocka_unit_test(files_are_found_beside_the_index),
        cmocka_unit_test(open_survives_oom),
    };
    return cmocka_run_group_tests(tests, setup, teardown);
}
