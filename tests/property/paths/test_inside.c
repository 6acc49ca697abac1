/* Hostile names against a naive oracle: whatever path_inside() lets through, realpath() of it (or
 * of the part that exists) is inside the root; and a harmless name is never refused. */
#include "paths/paths.h"
#include "support/rng.h"
#include "support/seed.h"
#include "support/test.h"
#include "support/tmp.h"

#include <limits.h>
#include <sys/stat.h>
#include <unistd.h>

#define NAMES 20000

static char root[PATH_MAX];

static void make_link(const char *to, const char *name)
{
    char path[PATH_MAX];
    snprintf(path, sizeof path, "%s/%s", tmp_dir(), name);
    assert_int_equal(symlink(to, path), 0);
}

static void make_world(void)
{
    static const char *const dir[] = { "root/a/b", "root/c", "outside/d", "root-beside" };
    berth_err err = { 0 };
    for (size_t i = 0; i < ARRAY_LEN(dir); i++)
        assert_ok(path_make_dirs(tmp_path(dir[i]), &err), err);
    tmp_write("root/a/f", "x", 1);
    tmp_write("outside/d/f", "x", 1);
    make_link("../outside", "root/out");
    make_link("/", "root/top");
    make_link("a", "root/in");
    make_link("../..", "root/a/up");
    make_link("../c", "root/a/over");
    make_link("../../outside/d/f", "root/c/file");
    make_link("gone", "root/gone");
    make_link("/tmp/berth-nowhere/x", "root/c/far");
    make_link("loop", "root/loop");
    make_link("../root-beside", "root/beside");
    assert_non_null(realpath(tmp_path("root"), root));
}

/* Parts that matter, put together at random; now and then a random byte. */
static size_t make_name(struct rng *r, char *out, size_t cap)
{
    static const char *const part[] = {
        "a",      "b",       "c",   "f",    "in",  "out",      "up",
        "over",   "file",    "top", "gone", "far", "loop",     "beside",
        "new",    "..",      ".",   "",     "d",   "tmp",      "etc",
        "%2e%2e", "..\\",    "...", " ",    "~",   "\xc0\xae", "\xe2\x80\xae",
        "a\\b",   "outside",
    };
    size_t n = 0, parts = rng_below(r, 6);
    for (size_t i = 0; i <= parts; i++) {
        const char *p = part[rng_below(r, ARRAY_LEN(part))];
        if ((i || rng_below(r, 8) == 0) && n < cap)
            out[n++] = '/';
        for (; *p && n < cap; p++)
            out[n++] = *p;
    }
    if (n && rng_below(r, 16) == 0)
        out[rng_below(r, n)] = (char)rng_u64(r);
    return n;
}

static bool under(const char *path)
{
    size_t n = strlen(root);
    return strncmp(path, root, n) == 0 && (path[n] == '/' || !path[n]);
}

/* The longest beginning of path that exists, resolved by the system. */
static bool oracle_inside(const char *path)
{
    char part[PATH_MAX], real[PATH_MAX];
    snprintf(part, sizeof part, "%s", path);
    for (;;) {
        struct stat st;
        if (realpath(part, real))
            return under(real);
        if (lstat(part, &st) == 0)
            return false; /* a link that leads nowhere: writing would follow it */
        char *slash = strrchr(part, '/');
        if (!slash || slash == part)
            return false;
        *slash = '\0';
    }
}

/* Naively: no strange text, every beginning of it exists inside, or nothing is there. */
static bool harmless(const char *rel, size_t n)
{
    char path[PATH_MAX + 300];
    if (memchr(rel, 0, n) || rel[0] == '/' || !str_is_utf8(rel, n))
        return false;
    for (size_t i = 0; i < n; i++)
        if ((unsigned char)rel[i] < 0x20 || rel[i] == 0x7f)
            return false;
    for (size_t i = 0; i <= n; i++) {
        struct stat st;
        if (i < n && rel[i] != '/')
            continue;
        size_t from = i;
        while (from && rel[from - 1] != '/')
            from--;
        if (i - from == 2 && memcmp(rel + from, "..", 2) == 0)
            return false;
        snprintf(path, sizeof path, "%s/%.*s", root, (int)i, rel);
        size_t len = strlen(path);
        while (len > 1 && path[len - 1] == '/')
            path[--len] = '\0';
        if (!oracle_inside(path))
            return false;
        bool more = false; /* parts behind it that count */
        for (size_t k = i; k < n; k++)
            more |= rel[k] != '/' &&
                    !(rel[k] == '.' && (k + 1 == n || rel[k + 1] == '/') && rel[k - 1] == '/');
        if (more && stat(path, &st) == 0 && !S_ISDIR(st.st_mode))
            return false;
    }
    return true;
}

static void names_stay_inside(void **state)
{
    struct rng r = { rng_seed() };
    size_t passed = 0;
    (void)state;
    running = r.state;
    make_world();
    for (int i = 0; i < NAMES; i++) {
        char rel[256];
        struct str out = { 0 };
        berth_err err = { 0 };
        size_t n = make_name(&r, rel, sizeof rel - 1);
        rel[n] = '\0';
        berth_status s = path_inside(root, rel, n, false, &out, &err);
        if (s && s != BERTH_EINVAL)
            fail_msg("'%s': %s", rel, err.msg);
        if (!s && !oracle_inside(str_c(&out)))
            fail_msg("'%s' leads to %s", rel, str_c(&out));
        if (!s != harmless(rel, n))
            fail_msg("'%s' was %s: %s", rel, s ? "refused" : "let through", err.msg);
        passed += !s;
        str_release(&out);
    }
    assert_true(passed > NAMES / 100 && passed < NAMES * 9 / 10); /* both happen */
    running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(names_stay_inside, say_seed) };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
