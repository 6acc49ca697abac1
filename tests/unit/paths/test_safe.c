/* Names under a root: what is refused, what is resolved; folders made; paths joined. */
#include "paths/paths.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include <sys/stat.h>
#include <unistd.h>

static char root[512], outside[512];

static int setup(void **state)
{
    berth_err err = { 0 };
    char path[1024];
    (void)state;
    snprintf(root, sizeof root, "%s", tmp_path("root"));
    snprintf(outside, sizeof outside, "%s", tmp_path("outside"));
    snprintf(path, sizeof path, "%s/sub/deep", root);
    assert_ok(path_make_dirs(path, &err), err);
    assert_ok(path_make_dirs(outside, &err), err);
    tmp_write("root/file", "x", 1);
    tmp_write("outside/secret", "x", 1);
    static const char *const link[][2] = {
        { "../outside", "out" },  { "../outside/secret", "secret" }, { "sub", "in" },
        { "nowhere", "dangles" }, { "/etc/berth-not-there", "new" }, { "loop", "loop" },
    };
    for (size_t i = 0; i < ARRAY_LEN(link); i++) {
        snprintf(path, sizeof path, "%s/%s", root, link[i][1]);
        assert_int_equal(symlink(link[i][0], path), 0);
    }
    return 0;
}

static berth_status inside(const char *rel, size_t n, bool follow, struct str *out, berth_err *err)
{
    return path_inside(root, rel, n, follow, out, err);
}

static void hostile_names_are_refused(void **state)
{
    static const struct {
        const char *rel;
        const char *why;
    } row[] = {
        { "/etc/passwd", "absolute" },
        { "//x", "absolute" },
        { "..", "'..'" },
        { "../outside/secret", "'..'" },
        { "sub/../../outside", "'..'" },
        { "sub/..", "'..'" },
        { "a/b/../../..", "'..'" },
        { "./../x", "'..'" },
        { "a\nb", "control" },
        { "a\x7f", "control" },
        { "\xff\xfe", "UTF-8" },
        { "\xc0\xae\xc0\xae/x", "UTF-8" }, /* dots in an overlong form */
        { "out", "out of its folder" },
        { "out/secret", "out of its folder" },
        { "out/new", "out of its folder" },
        { "secret", "out of its folder" },
        { "dangles", "nowhere" },
        { "new", "nowhere" },
        { "loop", "nowhere" },
        { "loop/x", "nowhere" },
        { "file/x", "not a folder" },
        { "file/", NULL }, /* empty parts are skipped: the file itself */
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct str out = { 0 };
        berth_err err = { 0 };
        berth_status s = inside(row[i].rel, strlen(row[i].rel), false, &out, &err);
        if (!row[i].why)
            assert_ok(s, err);
        else
            assert_fails(s, err, BERTH_EINVAL, row[i].why);
        str_release(&out);
    }
}

static void lengths_and_nul_are_refused(void **state)
{
    static char longest[PATH_BYTES_MAX + 2];
    struct str out = { 0 };
    berth_err err = { 0 };
    (void)state;
    assert_fails(inside("a\0b", 3, false, &out, &err), err, BERTH_EINVAL, "NUL");
    memset(longest, 'a', sizeof longest);
    assert_fails(inside(longest, 256, false, &out, &err), err, BERTH_EINVAL,
                 "part that is too long");
    assert_ok(inside(longest, 255, false, &out, &err), err);
    assert_fails(inside(longest, sizeof longest, false, &out, &err), err, BERTH_EINVAL, "too long");
    for (size_t i = 200; i < sizeof longest; i += 200)
        longest[i] = '/';
    assert_fails(inside(longest, PATH_BYTES_MAX, false, &out, &err), err, BERTH_EINVAL, "too long");
    str_release(&out);
}

static void names_inside_resolve(void **state)
{
    static const struct {
        const char *rel, *is;
        bool follow;
    } row[] = {
        { "", "", false },
        { "file", "/file", false },
        { "./file", "/file", false },
        { "sub//deep/", "/sub/deep", false },
        { "in/deep/x.png", "/sub/deep/x.png", false }, /* resolved */
        { "in/deep/x.png", "/in/deep/x.png", true },   /* as written */
        { "new-dir/a/b", "/new-dir/a/b", false },
        { "a\\..\\b", "/a\\..\\b", false }, /* one name, with backslashes in it */
        { "%2e%2e/x", "/%2e%2e/x", false },
        { "...", "/...", false },
        { "out/secret", "/out/secret", true },
        { "\xc3\xa9.png", "/\xc3\xa9.png", false },
    };
    (void)state;
    char real[4096];
    assert_non_null(realpath(root, real));
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct str out = { 0 };
        berth_err err = { 0 };
        char want[5000];
        snprintf(want, sizeof want, "%s%s", row[i].follow ? root : real, row[i].is);
        assert_ok(inside(row[i].rel, strlen(row[i].rel), row[i].follow, &out, &err), err);
        assert_string_equal(str_c(&out), want);
        str_release(&out);
    }
}

static void a_root_that_is_not_there(void **state)
{
    struct str out = { 0 };
    berth_err err = { 0 };
    (void)state;
    assert_fails(path_inside(tmp_path("no-root"), "x", 1, false, &out, &err), err, BERTH_ENOTFOUND,
                 "no-root");
    str_release(&out);
}

static void survives_oom(void **state)
{
    berth_status s = BERTH_ENOMEM;
    (void)state;
    for (long k = 0; s != BERTH_OK; k++) {
        struct str out = { 0 };
        berth_err err = { 0 };
        oom_after(k);
        s = inside("in/deep/a-name-that-is-long-enough-for-a-second-allocation.png", 58, false,
                   &out, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]));
        str_release(&out);
    }
}

static void folders_are_made(void **state)
{
    berth_err err = { 0 };
    char path[1024];
    struct stat st;
    (void)state;
    snprintf(path, sizeof path, "%s/x/y/z/", root);
    assert_ok(path_make_dirs(path, &err), err);
    assert_ok(path_make_dirs(path, &err), err);
    assert_int_equal(stat(path, &st), 0);
    snprintf(path, sizeof path, "%s/file/y", root);
    assert_fails(path_make_dirs(path, &err), err, BERTH_EIO, "file");
    snprintf(path, sizeof path, "%s/file", root);
    assert_fails(path_make_dirs(path, &err), err, BERTH_EINVAL, "not a folder");
    assert_fails(path_make_dirs("x/y", &err), err, BERTH_EINVAL, "absolute");
}

static void joined(void **state)
{
    static const char *const row[][3] = {
        { "/a", "b", "/a/b" },     { "/a/", "./b//c/", "/a/b/c" },
        { "/a", "../b", "/b" },    { "/a", "../../../b", "/b" },
        { "/a", "/b/../c", "/c" }, { "/", "", "/" },
        { "/a/b", "..", "/a" },    { "/a", "..", "/" },
        { "/a", "", "/a" },        { "/a/./b/..", "c", "/a/c" },
        { "/", "..", "/" },        { "/a", "b/...", "/a/b/..." },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct str out = { 0 };
        path_join(row[i][0], row[i][1], strlen(row[i][1]), &out);
        assert_string_equal(str_c(&out), row[i][2]);
        str_release(&out);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(hostile_names_are_refused),
        cmocka_unit_test(lengths_and_nul_are_refused),
        cmocka_unit_test(names_inside_resolve),
        cmocka_unit_test(a_root_that_is_not_there),
        cmocka_unit_test(survives_oom),
        cmocka_unit_test(folders_are_made),
        cmocka_unit_test(joined),
    };
    return cmocka_run_group_tests(tests, setup, NULL);
}
