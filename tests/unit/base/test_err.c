#include "support/test.h"

#include "base/err.h"
#include "base/str.h"

#include <errno.h>
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
        cmocka_unit_test(bug_aborts_and_says_where),
        cmocka_unit_test(statuses_have_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
