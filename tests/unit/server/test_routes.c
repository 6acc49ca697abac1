/* What the routes share, without a server: values as Python takes them, names, listings. */
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "server/routes.h"

#include <errno.h>
#include <sys/stat.h>
#include <unistd.h>

static void integers(void **state)
{
    (void)state;
    static const struct {
        const char *text;
        int64_t want;
    } good[] = { { "0", 0 },
                 { "7", 7 },
                 { "-7", -7 },
                 { "+7", 7 },
                 { " 7\t\n", 7 },
                 { "007", 7 },
                 { "9223372036854775807", INT64_MAX },
                 { "-9223372036854775808", INT64_MIN } };
    static const char *const bad[] = { "", " ", "-", "+", "1.5", "1e3", "0x1", "x", "1 2", "--1" };
    int64_t v;
    for (size_t i = 0; i < ARRAY_LEN(good); i++) {
        assert_true(py_int(good[i].text, strlen(good[i].text), &v));
        assert_int_equal(v, good[i].want);
    }
    for (size_t i = 0; i < ARRAY_LEN(bad); i++)
        assert_false(py_int(bad[i], strlen(bad[i]), &v));
    assert_true(py_int("99999999999999999999999", 23, &v) && v > INT64_MAX / 100);
    assert_true(py_int("-99999999999999999999999", 24, &v) && v < INT64_MIN / 100);
}

static void truth(void **state)
{
    (void)state;
    static const char *const no[] = { "null", "false", "0", "0.0", "\"\"", "[]", "{}", "-0.0" };
    static const char *const yes[] = { "true",
                                       "1",
                                       "-1",
                                       "0.5",
                                       "\"0\"",
                                       "\"false\"",
                                       "[0]",
                                       "{\"a\":null}",
                                       "18446744073709551615" };
    berth_err err = { 0 };
    json_t *v;
    assert_false(py_truth(NULL));
    for (size_t i = 0; i < ARRAY_LEN(no); i++) {
        assert_ok(js_parse(no[i], strlen(no[i]), NULL, &v, &err), err);
        assert_false(py_truth(v));
        json_decref(v);
    }
    for (size_t i = 0; i < ARRAY_LEN(yes); i++) {
        assert_ok(js_parse(yes[i], strlen(yes[i]), NULL, &v, &err), err);
        assert_true(py_truth(v));
        json_decref(v);
    }
}

static void names_normalised(void **state)
{
    (void)state;
    static const struct {
        const char *in, *out; /* NULL: refused */
    } all[] = { { "", "" },
                { ".", "" },
                { "a", "a" },
                { "a/b", "a/b" },
                { "a//b/", "a/b" },
                { "./a/./b", "a/b" },
                { "a/..", "" },
                { "a/../b", "b" },
                { "a/b/../../c", "c" },
                { "a/b/../c", "a/c" },
                { "..", NULL },
                { "../a", NULL },
                { "a/../..", NULL },
                { "/", NULL },
                { "/a", NULL },
                { "a/../../a", NULL },
                { "...", "..." },
                { "..a/b..", "..a/b.." },
                { "a/b/..", "a" } };
    for (size_t i = 0; i < ARRAY_LEN(all); i++) {
        struct str out = { 0 };
        assert_int_equal(rel_normalise(all[i].in, strlen(all[i].in), &out), all[i].out != NULL);
        if (all[i].out)
            assert_string_equal(str_c(&out), all[i].out);
        str_release(&out);
    }
    struct str kept = { 0 }; /* what is there already is not climbed over */
    str_adds(&kept, "root/");
    assert_false(rel_normalise("a/../..", 7, &kept));
    str_release(&kept);
}

static void small_texts(void **state)
{
    (void)state;
    char a[UUID_TEXT], b[UUID_TEXT];
    uuid4_text(a);
    uuid4_text(b);
    assert_int_equal(strlen(a), 36);
    assert_string_not_equal(a, b);
    assert_true(a[8] == '-' && a[13] == '-' && a[14] == '4' && a[18] == '-' && a[23] == '-');
    assert_non_null(strchr("89ab", a[19]));
    assert_string_equal(path_base("/a/b.png"), "b.png");
    assert_string_equal(path_base("b.png"), "b.png");
    struct str s = { 0 };
    disposition_text("a\"b\\c\r\nd.png", &s);
    assert_string_equal(s.p, "filename=\"a\\\"b\\\\cd.png\"");
    str_release(&s);
}

static void statuses(void **state)
{
    (void)state;
    berth_err e = { .code = BERTH_EIO, .native = ENOSPC };
    assert_int_equal(err_http_status(&e), 507);
    e.native = EIO;
    assert_int_equal(err_http_status(&e), 503);
    e = (berth_err) { .code = BERTH_EINVAL };
    assert_int_equal(err_http_status(&e), 400);
    e.code = BERTH_ENOTFOUND;
    assert_int_equal(err_http_status(&e), 404);
    e.code = BERTH_EBUSY;
    assert_int_equal(err_http_status(&e), 409);
    e.code = BERTH_ENOMEM;
    assert_int_equal(err_http_status(&e), 503);
    e.code = BERTH_EDEVICE;
    assert_int_equal(err_http_status(&e), 500);
}

static void says(const berth_err *e, const char *want)
{
    struct str got = { 0 };
    err_without_folders(e, &got);
    assert_string_equal(str_c(&got), want);
    str_release(&got);
}

/* What clients are told does not say where things are on this machine. */
static void errors_without_folders(void **state)
{
    (void)state;
    char path[1000];
    berth_err e;
    err_set(&e, BERTH_EIO, "no file in it");
    says(&e, "no file in it");
    err_set(&e, BERTH_EIO, "folder '%s': full", "/srv/base/user");
    err_add(&e, "cannot write '%s'", "/srv/base/user/x.json");
    says(&e, "cannot write 'x.json': folder 'user': full");
    err_set(&e, BERTH_EIO, "'%s' stays, '%s' has no name", "a/b", "/");
    says(&e, "'a/b' stays, '' has no name");
    err_set(&e, BERTH_EIO, "looked in: %s", "'/srv/a', '/srv/b'"); /* composed before */
    says(&e, "looked in: 'a', 'b'");
    memset(path, 'x', sizeof path);
    memcpy(path, "/srv/", 5);
    path[sizeof path - 1] = '\0';
    err_set(&e, BERTH_EIO, "cut: '%s'", path);
    struct str got = { 0 };
    err_without_folders(&e, &got);
    assert_memory_equal(str_c(&got), "cut: 'xxx", 9);
    str_clear(&got);
    err_add(&e, "as a context '%s'", path);
    err_without_folders(&e, &got);
    assert_memory_equal(str_c(&got), "as a context 'xxx", 17);
    str_release(&got);
    err_set(&e, BERTH_EIO, "'%s'", "/a/\"b\"");
    struct str json = { 0 };
    err_http_json(&e, &json);
    assert_string_equal(json.p, "{\"error\": \"'\\\"b\\\"'\"}");
    str_release(&json);
}

static void touch(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    FILE *f = fopen(path, "w");
    assert_non_null(f);
    fputs("123", f);
    fclose(f);
}

static void depths(void **state)
{
    (void)state;
    assert_int_equal(path_depth(""), 0);
    assert_int_equal(path_depth("a"), 1);
    assert_int_equal(path_depth("a/b/c"), 3);
    /* the deepest folder that is listed */
    struct str path = { 0 };
    struct vec t = { 0 };
    berth_err err = { 0 };
    str_addf(&path, "%s/deep", tmp_dir());
    size_t root = path.n;
    for (int i = 0; i <= TREE_DEPTH + 1; i++) {
        assert_int_equal(mkdir(path.p, 0777), 0);
        touch(path.p, "f");
        str_adds(&path, "/d");
    }
    path.p[root] = '\0';
    assert_ok(tree_list(path.p, &(struct tree_args) { .recurse = true }, &t, &err), err);
    assert_int_equal(t.n, TREE_DEPTH + 1); /* a file in the root and in each */
    assert_int_equal(path_depth(((struct tree_entry *)vec_at(&t, t.n - 1))->rel), TREE_DEPTH + 1);
    tree_release(&t);
    str_release(&path);
}

static void folder(const char *dir, const char *name)
{
    char path[512];
    snprintf(path, sizeof path, "%s/%s", dir, name);
    assert_int_equal(mkdir(path, 0777), 0);
}

/* Names in order, folders with a slash behind. */
static void lists(const char *root, struct tree_args args, const char *want)
{
    struct vec t = { 0 };
    struct str got = { 0 };
    berth_err err = { 0 };
    assert_ok(tree_list(root, &args, &t, &err), err);
    for (size_t i = 0; i < t.n; i++) {
        const struct tree_entry *e = vec_at(&t, i);
        str_addf(&got, "%s%s ", e->rel, e->dir ? "/" : "");
        assert_int_equal(e->size, e->dir ? 0 : 3);
        assert_true(e->modified > 1e9);
    }
    assert_string_equal(str_c(&got), want);
    str_release(&got);
    tree_release(&t);
}

static void trees(void **state)
{
    struct vec t = { 0 };
    berth_err err = { 0 };
    const char *root = tmp_dir();
    char path[512];
    (void)state;
    touch(root, "b");
    touch(root, "a");
    touch(root, ".hidden");
    folder(root, "sub");
    folder(root, "sub/deep");
    folder(root, ".dot");
    touch(root, "sub/x");
    touch(root, "sub/deep/y");
    touch(root, ".dot/z");
    snprintf(path, sizeof path, "%s/loop", root);
    assert_int_equal(symlink(root, path), 0);
    snprintf(path, sizeof path, "%s/dangling", root);
    assert_int_equal(symlink("/nowhere/at/all", path), 0);
    lists(root, (struct tree_args) { 0 }, "a b ");
    lists(root, (struct tree_args) { .recurse = true }, "a b sub/x sub/deep/y ");
    lists(root, (struct tree_args) { .dirs = true }, "a b loop/ sub/ ");
    lists(root, (struct tree_args) { .recurse = true, .dirs = true, .hidden = true },
          ".dot/ .hidden a b loop/ sub/ .dot/z sub/deep/ sub/x sub/deep/y ");
    snprintf(path, sizeof path, "%s/none", root);
    assert_fails(tree_list(path, &(struct tree_args) { 0 }, &t, &err), err, BERTH_ENOTFOUND,
                 "none");
    snprintf(path, sizeof path, "%s/a", root);
    assert_fails(tree_list(path, &(struct tree_args) { 0 }, &t, &err), err, BERTH_ENOTFOUND, "a");
    /* every allocation fails once */
    berth_status st = BERTH_ENOMEM;
    for (int k = 0; st != BERTH_OK && k < 1000; k++) {
        oom_after(k);
        st = tree_list(root, &(struct tree_args) { .recurse = true, .dirs = true }, &t, &err);
        oom_off();
        assert_true(st == BERTH_OK || st == BERTH_ENOMEM || st == BERTH_EIO);
        tree_release(&t);
    }
    assert_int_equal(st, BERTH_OK);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(integers),
        cmocka_unit_test(truth),
        cmocka_unit_test(names_normalised),
        cmocka_unit_test(small_texts),
        cmocka_unit_test(statuses),
        cmocka_unit_test(errors_without_folders),
        cmocka_unit_test(trees),
        cmocka_unit_test(depths),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
