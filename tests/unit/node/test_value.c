#include "device/cpu/meminfo.h"
#include "node/value.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include <math.h>
#include <sys/stat.h>

static void describes(struct value *v, const char *want)
{
    struct str text = { 0 };
    json_t *j = value_describe(v);
    assert_non_null(j);
    js_write(j, 0, &text);
    assert_string_equal(str_c(&text), want);
    str_release(&text);
    json_decref(j);
    value_unref(v);
}

static struct htensor *tensor(int ndim, uint64_t a, uint64_t b, uint64_t c, uint64_t d)
{
    struct htensor *t;
    berth_err err;
    struct shape s = { .ndim = ndim, .dim = { a, b, c, d } };
    assert_ok(htensor_zeros(&s, &t, &err), err);
    return t;
}

static void values_describe_themselves(void **state)
{
    (void)state;
    describes(value_null(), "null");
    describes(value_int(-5), "-5");
    describes(value_uint(UINT64_MAX), "18446744073709551615");
    describes(value_float(1.5), "1.5");
    describes(value_float((double)INFINITY), "null");
    describes(value_bool(true), "true");
    describes(value_string("a\"b", 3), "\"a\\\"b\"");
    describes(value_tensor(tensor(4, 1, 64, 64, 3)), "\"tensor [1, 64, 64, 3]\"");
    struct latent l = { .samples = tensor(4, 2, 4, 8, 8), .noise_mask = tensor(4, 1, 1, 64, 64) };
    describes(value_latent(&l), "\"latent [2, 4, 8, 8] with a noise mask\"");
    assert_null(l.samples); /* taken */
}

static void numbers_keep_their_kind(void **state)
{
    (void)state;
    struct value *v = value_uint(5), *u = value_uint(UINT64_C(1) << 63);
    assert_true(v->kind == V_INT && v->i == 5); /* V_UINT is for what V_INT cannot hold */
    assert_true(u->kind == V_UINT && u->u == UINT64_C(1) << 63);
    value_unref(v);
    value_unref(u);
}

static void json_becomes_values(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        enum value_kind kind;
    } t[] = { { "null", V_NULL },  { "true", V_BOOL },     { "-3", V_INT },
              { "1.0", V_FLOAT },  { "\"x\"", V_STRING },  { "18446744073709551615", V_UINT },
              { "[1,2]", V_JSON }, { "{\"a\":1}", V_JSON } };
    for (size_t i = 0; i < sizeof t / sizeof *t; i++) {
        berth_err err;
        json_t *j;
        assert_ok(js_parse(t[i].text, strlen(t[i].text), NULL, &j, &err), err);
        struct value *v = value_from_json(j);
        assert_int_equal(v->kind, t[i].kind);
        if (json_is_array(j)) { /* what happens to the prompt later does not reach the value */
            json_array_clear(j);
            assert_int_equal(json_array_size(v->json), 2);
        }
        json_decref(j);
        value_unref(v);
    }
}

static void tensors_have_a_limit(void **state)
{
    (void)state;
    berth_err err;
    struct htensor *t = (void *)1;
    struct shape big = { .ndim = 2, .dim = { UINT64_C(1) << 20, UINT64_C(1) << 20 } };
    assert_fails(htensor_new(&big, &t, &err), err, BERTH_ELIMIT, "[1048576, 1048576]");
    assert_null(t);
    big.dim[0] = big.dim[1] = UINT64_MAX; /* the product does not fit either */
    assert_fails(htensor_zeros(&big, &t, &err), err, BERTH_ELIMIT, "18446744073709551615");
    struct shape none = { .ndim = 3, .dim = { 0, 4, 4 } };
    assert_ok(htensor_new(&none, &t, &err), err);
    assert_int_equal(htensor_count(t), 0);
    htensor_unref(t);
}

static void bytes_are_counted(void **state)
{
    (void)state;
    struct value *v = value_tensor(tensor(3, 1, 100, 100, 0));
    assert_true(value_bytes(v) >= 40000 && value_bytes(v) < 41000);
    value_unref(v);
    v = value_string("hello", 5);
    assert_true(value_bytes(v) >= 6);
    value_unref(v);
}

static unsigned freed;
static void free_object(void *p)
{
    freed++;
    free(p);
}
static size_t object_bytes(const void *p)
{
    (void)p;
    return 1000;
}
static const struct value_type toy = { .name = "TOY", .free = free_object, .bytes = object_bytes };

static void objects_go_with_the_last_reference(void **state)
{
    (void)state;
    freed = 0;
    struct value *v = value_object(&toy, malloc(1));
    assert_true(value_bytes(v) >= 1000);
    value_ref(v);
    value_unref(v);
    assert_int_equal(freed, 0);
    describes(v, "\"TOY\""); /* and lets go of it */
    assert_int_equal(freed, 1);
}

/* Whatever fails, what was handed in is gone (ASan counts) and what was there stays. */
static void ownership_survives_oom(void **state)
{
    (void)state;
    freed = 0;
    for (long k = 0; k < 6; k++) {
        struct values list = { 0 };
        berth_err err = { 0 };
        void *obj = malloc(1);
        struct latent l = { .samples = tensor(4, 1, 4, 2, 2) };
        oom_after(k);
        berth_status s1 = values_add(&list, value_object(&toy, obj), &err);
        berth_status s2 = values_add(&list, value_latent(&l), &err);
        berth_status s3 = values_add(&list, value_string("abc", 3), &err);
        oom_off();
        assert_null(l.samples);
        size_t n = (size_t)(s1 == BERTH_OK) + (size_t)(s2 == BERTH_OK) + (size_t)(s3 == BERTH_OK);
        assert_int_equal(list.n, n);
        assert_true(n == 3 || (err.code == BERTH_ENOMEM && err.msg[0]));
        values_release(&list);
        assert_int_equal(freed, k + 1);
    }
}

static void tensors_survive_oom(void **state)
{
    (void)state;
    struct shape s = { .ndim = 3, .dim = { 1, 2, 2 } };
    berth_status st = BERTH_ENOMEM;
    for (long k = 0; st; k++) {
        struct htensor *t;
        berth_err err = { 0 };
        oom_after(k);
        st = htensor_new(&s, &t, &err);
        oom_off();
        assert_true(st == BERTH_OK || (st == BERTH_ENOMEM && !t && strstr(err.msg, "[1, 2, 2]")));
        htensor_unref(t);
    }
}

static void model_references_are_copied_whole(void **state)
{
    (void)state;
    struct model_ref m = { .clip_type = strdup("sd3"), .said = { .clip_skip = -2 } };
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s; k++) {
        struct model_ref copy;
        berth_err err = { 0 };
        oom_after(k);
        s = model_ref_copy(&m, &copy, &err);
        oom_off();
        assert_true(s == BERTH_OK || s == BERTH_ENOMEM);
        if (!s) {
            assert_string_equal(copy.clip_type, "sd3");
            assert_int_equal(copy.said.clip_skip, -2);
        }
        model_ref_release(&copy);
    }
    model_ref_release(&m);
}

/* What is larger than free memory is refused by numbers; malloc() alone would promise it. */
static void tensors_meet_memory(void **state)
{
    static const char meminfo[] = "MemTotal: 4194304 kB\nMemFree: 1 kB\nMemAvailable: 1048576 kB\n";
    const char *root = tmp_dir();
    berth_err err;
    (void)state;
    assert_int_equal(mkdir(tmp_path("proc"), 0700), 0);
    tmp_write("proc/meminfo", meminfo, sizeof meminfo - 1);
    assert_ok(host_room(root, (size_t)900 << 20, &err), err);
    assert_fails(host_room(root, (size_t)1 << 30, &err), err, BERTH_ENOMEM,
                 "1073741824 bytes wanted, 1073741824 of 4294967296 available");
    assert_fails(host_room(root, (size_t)3 << 30, &err), err, BERTH_ENOMEM, "3221225472");
    assert_ok(host_room(root, 1 << 20, &err), err);            /* small ones do not look */
    assert_ok(host_room("/nowhere", SIZE_MAX / 2, &err), err); /* not known */

    uint64_t total, left;
    struct htensor *t;
    assert_ok(meminfo_read("", &total, &left, &err), err);
    if (left >= HTENSOR_MAX - ((size_t)256 << 20))
        return; /* a machine that has room for the largest there is */
    struct shape s = { .ndim = 4, .dim = { HTENSOR_MAX >> 14, 32, 32, 4 } };
    assert_fails(htensor_new(&s, &t, &err), err, BERTH_ENOMEM, "a tensor of [1048576, 32, 32, 4]");
    assert_null(t);
    assert_fails(htensor_zeros(&s, &t, &err), err, BERTH_ENOMEM, "17179869184 bytes wanted");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(tensors_meet_memory),
        cmocka_unit_test(values_describe_themselves),
        cmocka_unit_test(numbers_keep_their_kind),
        cmocka_unit_test(json_becomes_values),
        cmocka_unit_test(tensors_have_a_limit),
        cmocka_unit_test(bytes_are_counted),
        cmocka_unit_test(objects_go_with_the_last_reference),
        cmocka_unit_test(ownership_survives_oom),
        cmocka_unit_test(tensors_survive_oom),
        cmocka_unit_test(model_references_are_copied_whole),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
