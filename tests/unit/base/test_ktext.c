/* Small files of the kernel: lines, numbers, and what is none. */
#include "base/ktext.h"
#include "support/test.h"
#include "support/tmp.h"

#include <errno.h>
#include <sys/stat.h>

static struct ktext t;

static bool read_text(const char *text)
{
    return ktext_read(&t, tmp_write("text", text, strlen(text)));
}

static void lines(void **state)
{
    static const char *const want[] = { "a", "", "b c" };
    struct ktext_line l;
    size_t at = 0;
    (void)state;
    assert_true(read_text("a\n\nb c"));
    for (size_t i = 0; i < ARRAY_LEN(want); i++) {
        assert_true(ktext_line(&t, &at, &l));
        assert_int_equal(l.n, strlen(want[i]));
        assert_memory_equal(l.s, want[i], l.n);
    }
    assert_false(ktext_line(&t, &at, &l));
    assert_false(ktext_line(&t, &at, &l));
    at = 0;
    assert_true(read_text("\n") && ktext_line(&t, &at, &l) && l.n == 0);
    assert_false(ktext_line(&t, &at, &l));
    at = 0;
    assert_true(read_text(""));
    assert_false(ktext_line(&t, &at, &l));
}

static void number_behind_a_key(void **state)
{
    uint64_t v = 7;
    (void)state;
    assert_true(
        read_text("file 1\ninactive_file_x 2\n xfile 3\ninactive_file\ninactive_file \t40 kB"));
    assert_true(ktext_number_after(&t, "file", &v) && v == 1);
    assert_true(ktext_number_after(&t, "inactive_file", &v) && v == 40);
    v = 7;
    assert_false(ktext_number_after(&t, "xfile", &v)); /* not at the start of its line */
    assert_true(read_text("a \nb x\nc -1\nd 18446744073709551616\ne 18446744073709551615"));
    for (const char *key = "a\0b\0c\0d\0"; *key; key += 2)
        assert_false(ktext_number_after(&t, key, &v));
    assert_true(ktext_number_after(&t, "e", &v) && v == UINT64_MAX);
}

static void number_alone(void **state)
{
    static const char *const none[] = { "", "\n", "max\n", "-1\n", " 1\n", "1 2\n", "0x1", "\n1" };
    uint64_t v;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(none); i++) {
        tmp_write("n", none[i], strlen(none[i]));
        assert_false(ktext_number_in(&t, tmp_dir(), "n", &v));
    }
    tmp_write("n", "12\n34\n", 6);
    assert_true(ktext_number_in(&t, tmp_dir(), "n", &v) && v == 12);
}

static void files_that_are_none(void **state)
{
    char far[3000];
    uint64_t v;
    (void)state;
    assert_false(ktext_read(&t, tmp_path("nowhere")));
    assert_int_equal(errno, ENOENT);
    assert_false(ktext_read(&t, tmp_dir()));
    assert_int_equal(errno, EISDIR);
    assert_int_equal(mkfifo(tmp_path("fifo"), 0600), 0);
    assert_false(ktext_number_in(&t, tmp_dir(), "fifo", &v)); /* nobody writes: no waiting */
    memset(far, 'x', sizeof far);
    far[sizeof far - 1] = '\0';
    assert_false(ktext_read_in(&t, far, "n"));
    assert_int_equal(errno, ENAMETOOLONG);
}

static void a_long_file_is_cut(void **state)
{
    static char big[KTEXT_MAX + 100];
    struct ktext_line l;
    size_t at = 0;
    (void)state;
    memset(big, 'x', sizeof big);
    assert_true(ktext_read(&t, tmp_write("big", big, sizeof big)));
    assert_int_equal(t.n, KTEXT_MAX);
    assert_true(ktext_line(&t, &at, &l) && l.n == KTEXT_MAX);
    assert_false(ktext_line(&t, &at, &l));
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(lines),
        cmocka_unit_test(number_behind_a_key),
        cmocka_unit_test(number_alone),
        cmocka_unit_test(files_that_are_none),
        cmocka_unit_test(a_long_file_is_cut),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
