/* What a free leaves in writing: its receipt as JSON and as text. */
#include "support/res_rig.h"

#include "base/json.h"

#define DEVICES "cpu=256m,null:0=64m,null:1=64m"
#define SIZE RIG_TINY_SIZE
#define BLOCKS RIG_TINY_BLOCKS

static void receipt_as_json_and_text(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct str s = { 0 };
    json_t *v, *x_models, *device;
    berth_err err = { 0 };
    (void)state;
    rig_load(g, rig_tiny("m0", "null:0", RES_EJECT), NULL, NULL);
    rig_load(g, rig_tiny("m1", "null:1", RES_AUTO), NULL, NULL);
    struct res_receipt x =
        rig_free(g, (struct res_free_args) { .free_memory = true, .reason = "a \"b\"\n" });
    res_receipt_json(&x, &s);
    assert_null(strchr(str_c(&s), '\n'));
    assert_ok(js_parse(s.p, s.n, NULL, &v, &err), err);
    assert_string_equal(json_string_value(json_object_get(v, "reason")), "a \"b\"\n");
    assert_int_equal(json_integer_value(json_object_get(v, "serial")), 1);
    assert_true(json_is_true(json_object_get(v, "free_memory")));
    assert_true(json_is_true(json_object_get(v, "unload_models"))); /* implied */
    assert_true(json_is_false(json_object_get(v, "force")));
    x_models = json_object_get(v, "models");
    assert_int_equal(json_array_size(x_models), 2);
    assert_string_equal(json_string_value(json_object_get(json_array_get(x_models, 0), "verdict")),
                        "ejected");
    assert_int_equal(json_integer_value(json_object_get(json_array_get(x_models, 1), "bytes")),
                     SIZE);
    device = json_array_get(json_object_get(v, "devices"), 1);
    assert_string_equal(json_string_value(json_object_get(device, "device")), "null:0");
    assert_true(json_integer_value(json_object_get(json_object_get(device, "before"), "weights")) >=
                (json_int_t)SIZE);
    assert_int_equal(
        json_integer_value(json_object_get(json_object_get(device, "after"), "weights")), 0);
    assert_true(json_integer_value(json_object_get(device, "released")) >= (json_int_t)SIZE);
    assert_int_equal(json_array_size(json_object_get(v, "violations")), 0);
    assert_true(json_integer_value(json_object_get(json_object_get(v, "rss"), "before")) > 0);
    assert_true(json_is_real(json_object_get(v, "seconds")));
    json_decref(v);
    str_clear(&s);
    res_receipt_text(&x, &s);
    assert_non_null(
        strstr(str_c(&s), "  m0     model     eject      ejected   1.00 MiB  marked eject\n"));
    assert_non_null(
        strstr(str_c(&s), "  m1     model     auto       kept      1.00 MiB  auto: others are"));
    assert_non_null(strstr(str_c(&s), "  null:0  "));
    str_release(&s);
    res_receipt_release(&x);
    res_receipt_release(&x); /* zeroed is fine */
    rig_close(g);
}

/* Clients and logs read it: the bytes do not change when their writer does. */
static void receipt_keeps_its_bytes(void **state)
{
    (void)state;
    struct res_receipt_model m[] = {
        { .id = 7, .name = "a\"\xc3\xa9", .role = "unet", .why = "marked keep", .bytes = 5 },
        { .id = 8,
          .name = "b",
          .role = "vae",
          .converted = DT_F16,
          .verdict = RES_KEPT,
          .why = "" },
    };
    struct res_receipt_device d = { .name = "cpu", .released = 9 };
    struct res_receipt_violation v[] = {
        { .of = m, .step = "eject", .block = "", .was = 255, .gone = true },
        { .of = m + 1, .step = "trim", .block = "x", .is = 16 }
    };
    struct res_receipt x = { .serial = 3,
                             .reason = "why",
                             .force = true,
                             .tiers = 5,
                             .model = m,
                             .models = 2,
                             .device = &d,
                             .devices = 1,
                             .violation = v,
                             .violations = 2,
                             .rss_before = 11,
                             .rss_after = 10,
                             .ns = 1500 };
    struct str s = { 0 };
    d.before[0] = 4;
    res_receipt_json(&x, &s);
    assert_string_equal(
        str_c(&s),
        "{\"serial\":3,\"reason\":\"why\",\"unload_models\":false,"
        "\"free_memory\":false,\"force\":true,\"automatic\":false,"
        "\"dry_run\":false,\"tiers\":[\"weights\",\"activations\"],"
        "\"models\":[{\"id\":7,\"name\":\"a\\\"\xc3\xa9\",\"role\":\"unet\","
        "\"converted\":\"F64\",\"retention\":\"auto\",\"verdict\":\"ejected\","
        "\"why\":\"marked keep\",\"bytes\":5,\"read\":0,\"moved\":0},{\"id\":8,"
        "\"name\":\"b\",\"role\":\"vae\",\"converted\":\"F16\",\"retention\":\"auto\","
        "\"verdict\":\"kept\",\"why\":\"\",\"bytes\":0,\"read\":0,\"moved\":0}],"
        "\"devices\":[{\"device\":\"cpu\",\"before\":{\"weights\":4,\"staging\":0,"
        "\"activations\":0,\"pinned\":0,\"pool-idle\":0},"
        "\"after\":{\"weights\":0,\"staging\":0,\"activations\":0,\"pinned\":0,"
        "\"pool-idle\":0},\"released\":9}],\"rss\":{\"before\":11,\"after\":10},"
        "\"violations\":[{\"model\":7,\"name\":\"a\\\"\xc3\xa9\",\"step\":\"eject\","
        "\"block\":\"\",\"was\":\"0xff\",\"is\":\"0x0\",\"gone\":true},{\"model\":8,"
        "\"name\":\"b\",\"step\":\"trim\",\"block\":\"x\",\"was\":\"0x0\",\"is\":\"0x10\","
        "\"gone\":false}],\"seconds\":0.000002}");
    str_release(&s);
}

/* One file, held three times: each line says which it is of. */
static void receipt_of_one_file(void **state)
{
    static const struct {
        const char *role, *dtype, *line, *json;
    } row[] = {
        { "unet", NULL, "\n  m0             unet      auto ",
          "\"role\":\"unet\",\"converted\":null," },
        { "unet", "fp8", "\n  m0 as F8_E4M3  unet      auto ",
          "\"role\":\"unet\",\"converted\":\"F8_E4M3\"," },
        { "cl\x1bip", "F8_E5M2", "\n  m0 as F8_E5M2  cl?ip     auto ",
          "\"role\":\"cl\\u001bip\",\"converted\":\"F8_E5M2\"," },
    };
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct str text = { 0 }, json = { 0 };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct res_open_args a = { .path = rig_file("m0.safetensors", BLOCKS, SIZE),
                                   .role = row[i].role,
                                   .dtype = row[i].dtype,
                                   .plan = { .alloc = "null:0,*", .compute = "null:0" } };
        struct res_model *m;
        berth_err err = { 0 };
        assert_ok(res_open(g->r, &a, &m, NULL, &err), err);
        assert_ok(res_load(m, NULL, NULL, &err), err);
        g->cached[g->cached_n++] = m;
    }
    struct res_receipt x = rig_free(g, (struct res_free_args) { .unload_models = true });
    res_receipt_text(&x, &text);
    res_receipt_json(&x, &json);
    for (size_t i = 0; i < ARRAY_LEN(row); i++)
        if (!strstr(str_c(&text), row[i].line) || !strstr(str_c(&json), row[i].json))
            fail_msg("row %zu: %s%s", i, str_c(&text), str_c(&json));
    str_release(&text);
    str_release(&json);
    res_receipt_release(&x);
    rig_close(g);
}

/* The reasons and the header say what the tiers made of a request. */
static void receipt_of_tiers(void **state)
{
    static const struct {
        struct res_free_args args;
        const char *header, *json, *why; /* why m0, which is marked, stays; NULL: it goes */
    } row[] = {
        { { .unload_models = true }, "): unload_models in ", "\"tiers\":[\"weights\",", NULL },
        { { 0 }, "): trim only in ", "\"tiers\":[\"weights\",", "no models were asked for" },
        { { .unload_models = true, .tiers = RES_TIER_IDLE },
          "): unload_models, tiers pool-idle (not weights: models stay) in ",
          "\"tiers\":[\"pool-idle\"]",
          "tier weights is not selected" },
        { { .force = true, .tiers = RES_TIER_STAGING | RES_TIER_ACTIVATIONS | RES_TIER_PINNED },
          "): unload_models force, tiers staging+activations+pinned (not weights: models stay) "
          "(not pool-idle: no trim) in ",
          "\"tiers\":[\"staging\",\"activations\",\"pinned\"]",
          "tier weights is not selected" },
        { { .tiers = RES_TIER_WEIGHTS },
          "): nothing, tiers weights in ",
          "\"tiers\":[\"weights\"]",
          "no models were asked for" },
        { { .unload_models = true, .tiers = RES_TIER_WEIGHTS },
          "): unload_models, tiers weights (not pool-idle: no trim) in ",
          "\"tiers\":[\"weights\"]",
          NULL },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct rig *g = rig_open(DEVICES, NULL, NULL);
        struct rig_model spread = rig_tiny("m0", NULL, RES_EJECT); /* half of it pinned in RAM */
        struct str s = { 0 };
        spread.alloc = "null:0,512kb;cpu,*#null:0";
        rig_load(g, spread, NULL, NULL);
        struct res_receipt x = rig_free(g, row[i].args);
        assert_verdict(&x, "m0", row[i].why ? RES_KEPT : RES_EJECTED_BY_FREE,
                       row[i].why ? row[i].why : "marked eject");
        assert_true(x.device[0].before[DEV_PINNED] >= SIZE / 2); /* weights, whatever the tier */
        assert_true(x.device[0].after[DEV_PINNED] ==
                    (row[i].why ? x.device[0].before[DEV_PINNED] : 0));
        res_receipt_text(&x, &s);
        if (!strstr(str_c(&s), row[i].header))
            fail_msg("row %zu: %s", i, str_c(&s));
        str_clear(&s);
        res_receipt_json(&x, &s);
        if (!strstr(str_c(&s), row[i].json))
            fail_msg("row %zu: %s", i, str_c(&s));
        str_release(&s);
        res_receipt_release(&x);
        rig_close(g);
    }
}

/* A file may be called anything; a terminal sees none of it, JSON all of it. */
static void receipt_of_a_hostile_name(void **state)
{
    struct rig *g = rig_open(DEVICES, NULL, NULL);
    struct res_open_args a = { .path = rig_file("m0.safetensors", BLOCKS, SIZE),
                               .name = "\x1b[2Jm\n\xc3\xa9\xff",
                               .plan = { .alloc = "null:0,*", .compute = "null:0" },
                               .retention = RES_EJECT };
    struct res_model *m;
    struct str s = { 0 };
    berth_err err = { 0 };
    (void)state;
    assert_ok(res_open(g->r, &a, &m, NULL, &err), err);
    assert_ok(res_load(m, NULL, NULL, &err), err);
    g->cached[g->cached_n++] = m;
    struct res_receipt x =
        rig_free(g, (struct res_free_args) { .unload_models = true, .reason = "\x1b[1mwhy\r\n" });
    res_receipt_text(&x, &s);
    for (const char *c = str_c(&s); *c; c++)
        assert_true((unsigned char)*c >= ' ' || *c == '\n');
    assert_non_null(strstr(str_c(&s), "free 1 (?[1mwhy?"
                                      "?): "));
    assert_non_null(strstr(str_c(&s), "\n  ?[2Jm?\xc3\xa9?  model     eject      ejected"));
    str_release(&s);
    res_receipt_release(&x);
    rig_close(g);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(receipt_as_json_and_text),  cmocka_unit_test(receipt_keeps_its_bytes),
        cmocka_unit_test(receipt_of_one_file),       cmocka_unit_test(receipt_of_tiers),
        cmocka_unit_test(receipt_of_a_hostile_name),
    };
    return cmocka_run_group_tests_name("receipt", tests, NULL, NULL);
}
