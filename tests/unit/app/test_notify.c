/* What a service manager hears, and what happens when it does not. */
#include "support/test.h"

#include "app/app.h"
#include "base/str.h"

#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

/* A manager that listens on a name without a file, so that nothing must be cleaned up. */
static int listen_on(char name[64])
{
    static int n;
    struct sockaddr_un at = { .sun_family = AF_UNIX };
    snprintf(name, 64, "@berth-notify-%ld-%d", (long)getpid(), n++);
    memcpy(at.sun_path, name, strlen(name));
    at.sun_path[0] = '\0';
    int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_NONBLOCK, 0);
    assert_true(fd >= 0);
    assert_int_equal(bind(fd, (struct sockaddr *)&at,
                          (socklen_t)(offsetof(struct sockaddr_un, sun_path) + strlen(name))),
                     0);
    return fd;
}

static void it_is_heard(void **state)
{
    (void)state;
    char name[64], text[64] = "";
    berth_err err;
    int fd = listen_on(name);
    assert_ok(notify_send(name, NOTIFY_READY, &err), err);
    assert_int_equal(recv(fd, text, sizeof text, 0), 7);
    assert_string_equal(text, "READY=1");
    close(fd);
}

static void nobody_listens(void **state)
{
    (void)state;
    berth_err err;
    assert_ok(notify_send(NULL, NOTIFY_READY, &err), err);
    assert_ok(notify_send("", NOTIFY_READY, &err), err);
}

static void a_name_that_is_none(void **state)
{
    (void)state;
    char longest[256];
    berth_err err;
    memset(longest, 'x', sizeof longest);
    longest[0] = '/';
    longest[sizeof longest - 1] = '\0';
    assert_fails(notify_send("relative", NOTIFY_READY, &err), err, BERTH_EINVAL, "relative");
    assert_fails(notify_send(longest, NOTIFY_READY, &err), err, BERTH_EINVAL, "NOTIFY_SOCKET");
    assert_fails(notify_send("/nowhere/notify", NOTIFY_READY, &err), err, BERTH_EIO, "/nowhere");
}

/* A manager that is stuck must not hold up the server: its queue fills, then we are told. */
static void a_manager_that_is_stuck(void **state)
{
    (void)state;
    char name[64];
    berth_err err;
    int fd = listen_on(name);
    berth_status s = BERTH_OK;
    for (int i = 0; i < 1000000 && !s; i++)
        s = notify_send(name, NOTIFY_READY, &err);
    assert_int_equal(s, BERTH_EIO);
    close(fd);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(it_is_heard),
        cmocka_unit_test(nobody_listens),
        cmocka_unit_test(a_name_that_is_none),
        cmocka_unit_test(a_manager_that_is_stuck),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
