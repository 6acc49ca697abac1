#include "support/test.h"

#include "base/err.h"
#include "base/str.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

static void set_fills_everything(void **state)
{
    (void)state;
    berth_err err = { 0 };
    assert_int_equal(err_set(&err, BERTH_EFORMAT, "header %d > %d bytes", 9, 8), BERTH_EFORMAT);
    assert_int_equal(err.code, BERTH_EFORMAT);
    assert_int_equal(err.native, 0);
    assert_string_equal(err.msg, "header 9 > 8 bytes");
    assert_non_null(strstr(err.file, "test_err.c"));
    assert_true(err.line > 0);
}

static void add_puts_context_in_front(void **state)
{
    (void)state;
    berth_err err = { 0 };
    err_set(&err, BERTH_EFORMAT, "header too long");
    int line = err.line;
    assert_int_equal(err_add(&err, "opening '%s'", "a.st"), BERTH_EFORMAT);
    assert_int_equal(err_add(&err, "job %d", 7), BERTH_EFORMAT);
    assert_string_equal(err.msg, "job 7: opening 'a.st': header too long");
    assert_int_equal(err.line, line); /* where it was first noticed */
}

static void sys_appends_the_reason(void **state)
{
    (void)state;
    berth_err err = { 0 };
    assert_int_equal(err_sys(&err, BERTH_EIO, ENOSPC, "writing '%s'", "x"), BERTH_EIO);
    assert_int_equal(err.native, ENOSPC);
    assert_string_equal(err.msg, "writing 'x': No space left on device");
}

static void control_characters_are_replaced(void **state)
{
    (void)state;
    berth_err err = { 0 };
    err_set(&err, BERTH_EFORMAT, "'%s'",
            "a\x1b[31mb\nc\x7f"
            "d\tz");
    assert_string_equal(err.msg, "'a?[31mb?c?d?z'");
    err_set(&err, BERTH_EFORMAT, "%s",
            "caf\xc3\xa9 \xc2\x9b"
            "2J \xff\xc3 \xe2\x80\xae x");
    assert_string_equal(err.msg, "caf\xc3\xa9 ??2J ?? ??? x");
    err_add(&err, "%s", "\r\x01");
    assert_string_equal(err.msg, "??: caf\xc3\xa9 ??2J ?? ??? x");
}

static void long_messages_are_cut_and_marked(void **state)
{
    (void)state;
    berth_err err = { 0 };
    char text[2000];
    /* every offset of a four-byte character relative to the cut */
    for (size_t shift = 0; shift < 8; shift++) {
        memset(text, 'a', shift);
        for (size_t i = shift; i + 4 < sizeof text; i += 4) {
            memcpy(text + i, "\xf0\x9f\x8c\x8d", 4);
            text[i + 4] = '\0';
        }
        err_set(&err, BERTH_EINVAL, "%s", text);
        size_t n = strlen(err.msg);
        assert_true(n < sizeof err.msg && n > sizeof err.msg - 8);
        assert_string_equal(err.msg + n - 3, "...");
        assert_true(str_is_utf8(err.msg, n));
        err_add(&err, "context %zu", shift);
        n = strlen(err.msg);
        assert_true(n < sizeof err.msg && str_is_utf8(err.msg, n));
        assert_string_equal(err.msg + n - 3, "...");
        assert_memory_equal(err.msg, "context ", 8);
        err_sys(&err, BERTH_EIO, ENOENT, "%s", text);
        assert_true(str_is_utf8(err.msg, strlen(err.msg)));
        err_set(&err, BERTH_EINVAL, "short");
        err_add(&err, "%s", text); /* a context that fills the message by itself */
        n = strlen(err.msg);
        assert_true(n < sizeof err.msg && str_is_utf8(err.msg, n));
        assert_string_equal(err.msg + n - 3, "...");
    }
}

static void exact_fit_is_not_cut(void **state)
{
    (void)state;
    berth_err err = { 0 };
    char text[sizeof err.msg + 1];
    memset(text, 'x', sizeof text);
    text[sizeof err.msg - 1] = '\0';
    err_set(&err, BERTH_EINVAL, "%s", text);
    assert_string_equal(err.msg, text);
    text[sizeof err.msg - 1] = 'x';
    text[sizeof err.msg] = '\0';
    err_set(&err, BERTH_EINVAL, "%s", text);
    assert_string_equal(err.msg + sizeof err.msg - 4, "...");
}

static void arguments_may_point_into_the_message(void **state)
{
    (void)state;
    berth_err err = { 0 };
    err_set(&err, BERTH_EIO, "inner");
    err_set(&err, BERTH_EINVAL, "outer (%s)", err.msg);
    assert_string_equal(err.msg, "outer (inner)");
    err_add(&err, "again (%s)", err.msg);
    assert_string_equal(err.msg, "again (outer (inner)): outer (inner)");
}

/* Messages are composed conversion by conversion; printf says how each one looks. */
#define SAME(...)                                                                                  \
    do {                                                                                           \
        char want[600];                                                                            \
        snprintf(want, sizeof want, __VA_ARGS__);                                                  \
        err_set(&err, BERTH_EIO, __VA_ARGS__);                                                     \
        assert_string_equal(err.msg, want);                                                        \
    } while (0)

static void every_conversion_is_printfs(void **state)
{
    (void)state;
    berth_err err = { 0 };
    SAME("100%% of %d, %i and %u", -1, INT_MIN, UINT_MAX);
    SAME("%ld %lld %zu %zd %jd %ju %td", LONG_MIN, LLONG_MIN, SIZE_MAX, (ssize_t)-1, INTMAX_MIN,
         UINTMAX_MAX, (ptrdiff_t)-2);
    SAME("%llu %lu %lx %llX %#o", ULLONG_MAX, ULONG_MAX, 255UL, 0xabcULL, 8U);
    SAME("%5d|%-5d|%05d|%+d|% d|%.3d|%*d|%-*d", 42, 42, 42, 42, 42, 7, 6, 42, 6, 42);
    SAME("%s|%8s|%-8s|%.2s|%.*s|%-*s|%6.2s", "abc", "abc", "abc", "abc", 1, "abc", 5, "abc", "abc");
    SAME("%c%c %f %.2f %8.3g %e %g", 'a', 'z', 1.5, 2.0 / 3, 1e10, 1e-300, 0.1);
    SAME("%02x%04x %hu %hhu", 10U, 255U, (unsigned short)7, (unsigned char)8);
}

static char *hidden(const berth_err *err)
{
    static char text[sizeof err->msg];
    struct str s = { 0 };
    err_without_folders(err, &s);
    snprintf(text, sizeof text, "%s", str_c(&s));
    str_release(&s);
    return text;
}

static void names_are_known_and_lose_their_folders(void **state)
{
    (void)state;
    berth_err err = { 0 };
    err_set(&err, BERTH_EFORMAT, "tensor '%s' of '%s' is not in '%s/%s'", "a/b", "/m/it's 1.st",
            "/m/x", "y.st");
    assert_true(err_names(&err, "a/b") && err_names(&err, "/m/it's 1.st"));
    assert_true(err_names(&err, "/m/x/y.st"));
    assert_false(err_names(&err, "of"));
    assert_string_equal(hidden(&err), "tensor 'a/b' of 'it's 1.st' is not in 'y.st'");
    err_add(&err, "loading '%.*s'", 4, "/z/w and more");
    err_append(&err, "; see '%s'", "/n/log");
    assert_string_equal(hidden(&err), "loading 'w': tensor 'a/b' of 'it's 1.st' is not in 'y.st'; "
                                      "see 'log'");
    assert_true(err_names(&err, "/m/it's 1.st") && err_names(&err, "/n/log"));
    err_set(&err, BERTH_EIO, "the server's %s and '%s'%s", "/not/quoted", "q", "/next");
    assert_string_equal(hidden(&err), err.msg);
    err_sys(&err, BERTH_EIO, ENOENT, "'%s'", "/a/b");
    assert_string_equal(hidden(&err), "'b': No such file or directory");
    for (int i = 0; i < 40; i++) { /* more names than are kept, and more text than fits */
        err_add(&err, "'%s' of thirty letters or so", "/a/b");
        assert_true(strlen(hidden(&err)) <= strlen(err.msg));
    }
    err_set(&err, BERTH_EIO, "looked in '%s'", "/a/b");
    for (int i = 0; i < 40; i++) { /* more names than are kept, all of which fit */
        err_append(&err, ", '%s'", "/a/b");
        assert_null(strstr(hidden(&err), "/a"));
    }
    err_set(&err, BERTH_EINVAL, "'%s' is none of '%s', '%.0s'%s", "", "/a/b", "x", "");
    err_add(&err, "no '%s'", "");
    assert_string_equal(hidden(&err), "no '': '' is none of 'b', ''");
    assert_false(err_names(&err, ""));
}

static void causes_and_subjects(void **state)
{
    (void)state;
    berth_err err = { 0 };
    struct str s = { 0 };
    err_set(&err, BERTH_ENODEVMEM, "cuda:0 is full");
    assert_int_equal(err_on_device(&err, "cuda:0", 42), BERTH_ENODEVMEM);
    err_add(&err, "step %d of '%s'", 1, "/m/a.st");
    assert_string_equal(err.msg + err.cause, "cuda:0 is full");
    assert_string_equal(err.device, "cuda:0");
    assert_int_equal(err.number, 42);
    err_cause_first(&err, true, &s);
    assert_string_equal(str_c(&s), "cuda:0 is full\nstep 1 of '/m/a.st'\n");
    str_clear(&s);
    err_cause_first(&err, false, &s);
    assert_string_equal(str_c(&s), "cuda:0 is full\nstep 1 of 'a.st'\n");
    str_release(&s);
    err_set(&err, BERTH_EINVAL, "devices: entry 1 '%s'", "/x");
    assert_int_equal(err.device[0], 0); /* of the error before */
    err_about(&err, "devices");
    err_add(&err, "run");
    err_rename_subject(&err, "--the-devices");
    assert_string_equal(err.msg, "run: --the-devices: entry 1 '/x'");
    assert_true(err_names(&err, "/x") && !err.subject);
    err_rename_subject(&err, "again");
    assert_string_equal(err.msg, "run: --the-devices: entry 1 '/x'");
}

static void bug_aborts_and_says_where(void **state)
{
    (void)state;
    int fd[2];
    assert_int_equal(pipe(fd), 0);
    pid_t pid = fork();
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL);
        dup2(fd[1], 2);
        BUG("invariant %d broken", 3);
    }
    close(fd[1]);
    char text[512] = { 0 };
    assert_true(read(fd[0], text, sizeof text - 1) > 0);
    close(fd[0]);
    int status;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT);
    assert_non_null(strstr(text, "test_err.c"));
    assert_non_null(strstr(text, "invariant 3 broken"));
}

static void statuses_have_names(void **state)
{
    (void)state;
    assert_string_equal(berth_status_name(BERTH_OK), "OK");
    assert_string_equal(berth_status_name(BERTH_EBUSY), "EBUSY");
    assert_string_equal(berth_status_text(BERTH_ENOMEM), "out of host memory");
    assert_string_equal(berth_status_name((berth_status)99), "?");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(set_fills_everything),
        cmocka_unit_test(add_puts_context_in_front),
        cmocka_unit_test(sys_appends_the_reason),
        cmocka_unit_test(control_characters_are_replaced),
        cmocka_unit_test(long_messages_are_cut_and_marked),
        cmocka_unit_test(exact_fit_is_not_cut),
        cmocka_unit_test(arguments_may_point_into_the_message),
        cmocka_unit_test(every_conversion_is_printfs),
        cmocka_unit_test(names_are_known_and_lose_their_folders),
        cmocka_unit_test(causes_and_subjects),
        cmocka_unit_test(bug_aborts_and_says_where),
        cmocka_unit_test(statuses_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
