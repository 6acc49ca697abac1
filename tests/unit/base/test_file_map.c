#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "base/file.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

enum { BIG = 300000 }; /* some pages, and not a whole number of them */

static const char *big_file(const char *name)
{
    static uint8_t b[BIG];
    for (size_t i = 0; i < sizeof b; i++)
        b[i] = (uint8_t)(i % 250 + 1); /* never 0 */
    return tmp_write(name, b, sizeof b);
}

static struct file_map *open_ok(const char *path)
{
    struct file_map *m = NULL;
    berth_err err = { 0 };
    assert_ok(file_map_open(path, &m, &err), err);
    assert_non_null(m);
    return m;
}

static unsigned long sum_of(const struct file_map *m)
{
    const volatile uint8_t *p = m->data;
    unsigned long sum = 0;
    for (size_t i = 0; i < m->size; i++)
        sum += p[i];
    return sum;
}

static void maps_a_file(void **state)
{
    (void)state;
    const char *path = tmp_write("hello", "hello world", 11);
    struct file_map *m = open_ok(path);
    berth_err err = { 0 };
    char buf[16] = { 0 };
    assert_int_equal(m->size, 11);
    assert_memory_equal(m->data, "hello world", 11);
    assert_string_equal(m->path, path);
    assert_ok(file_map_check(m, &err), err);
    assert_ok(file_map_read(m, 6, buf, 5, &err), err);
    assert_string_equal(buf, "world");
    assert_ok(file_map_read(m, 11, buf, 0, &err), err);
    assert_ok(file_map_read(m, 0, NULL, 0, &err), err);
    assert_fails(file_map_read(m, 7, buf, 5, &err), err, BERTH_EINVAL, "offset 7");
    assert_fails(file_map_read(m, 12, buf, 0, &err), err, BERTH_EINVAL, path);
    assert_fails(file_map_read(m, UINT64_MAX, buf, 2, &err), err, BERTH_EINVAL, "outside");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    struct file_id id = m->id;
    assert_true(id.inode == st.st_ino && id.dev == st.st_dev && id.size == 11);
    file_map_close(m);
    file_map_close(NULL);
}

static void refuses_what_is_no_file(void **state)
{
    (void)state;
    struct file_map *m = (void *)1;
    berth_err err = { 0 };
    const char *path = tmp_path("no such file");
    assert_fails(file_map_open(path, &m, &err), err, BERTH_ENOTFOUND, "no such file");
    assert_null(m);
    assert_int_equal(err.native, ENOENT);
    assert_non_null(strstr(err.msg, "No such file or directory"));
    assert_fails(file_map_open("", &m, &err), err, BERTH_ENOTFOUND, "''");
    tmp_write("plain", "x", 1);
    assert_fails(file_map_open(tmp_path("plain/x"), &m, &err), err, BERTH_ENOTFOUND, "plain/x");

    assert_fails(file_map_open(tmp_dir(), &m, &err), err, BERTH_EINVAL, "is a directory");
    assert_non_null(strstr(err.msg, tmp_dir()));
    assert_fails(file_map_open("/dev/null", &m, &err), err, BERTH_EINVAL, "character device");

    path = tmp_path("fifo");
    assert_int_equal(mkfifo(path, 0600), 0);
    assert_fails(file_map_open(path, &m, &err), err, BERTH_EINVAL, "is a FIFO"); /* no hang */

    struct sockaddr_un a = { .sun_family = AF_UNIX };
    snprintf(a.sun_path, sizeof a.sun_path, "%s/sock", tmp_dir());
    int s = socket(AF_UNIX, SOCK_STREAM, 0);
    assert_int_equal(bind(s, (struct sockaddr *)&a, sizeof a), 0);
    assert_fails(file_map_open(a.sun_path, &m, &err), err, BERTH_EINVAL, "not a regular file");
    close(s);

    path = tmp_write("empty", "", 0);
    assert_fails(file_map_open(path, &m, &err), err, BERTH_EFORMAT, "is empty (0 bytes)");
    assert_non_null(strstr(err.msg, path));

    assert_int_equal(symlink("loop", tmp_path("loop")), 0);
    assert_fails(file_map_open(tmp_path("loop"), &m, &err), err, BERTH_EIO, "loop");

    path = tmp_write("locked", "x", 1);
    assert_int_equal(chmod(path, 0), 0);
    if (geteuid() != 0) /* root may read everything */
        assert_fails(file_map_open(path, &m, &err), err, BERTH_EIO, "Permission denied");
    assert_null(m);
}

/* Cuts the file under the mapping and reads every byte: what is gone reads as zero, nobody dies,
 * and the check names the file and both sizes. */
static void cut_to(off_t left, unsigned long want_at_least)
{
    const char *path = big_file("cut");
    struct file_map *m = open_ok(path);
    unsigned long whole = sum_of(m);
    assert_int_equal(truncate(path, left), 0);
    unsigned long rest = sum_of(m);
    assert_true(rest < whole && rest >= want_at_least);
    assert_int_equal(m->data[BIG - 1], 0);
    berth_err err = { 0 };
    char now[64], buf[8];
    snprintf(now, sizeof now, "300000 bytes then, %ld now", (long)left);
    assert_fails(file_map_check(m, &err), err, BERTH_EIO, now);
    assert_non_null(strstr(err.msg, path));
    assert_non_null(strstr(err.msg, "shrank"));
    assert_fails(file_map_read(m, BIG - 8, buf, 8, &err), err, BERTH_EIO, now);
    assert_fails(file_map_read(m, 0, buf, 8, &err), err, BERTH_EIO, now);
    file_map_close(m);
}

static void survives_a_file_cut_to_nothing(void **state)
{
    (void)state;
    cut_to(0, 0);
}

static void survives_a_file_cut_in_half(void **state)
{
    (void)state;
    cut_to(BIG / 2, BIG / 2); /* the first half is still there: no byte of it is 0 */
}

static void loss_is_sticky(void **state)
{
    (void)state;
    const char *path = big_file("regrown");
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    struct file_map *m = open_ok(path);
    assert_int_equal(truncate(path, 10), 0);
    (void)sum_of(m);
    big_file("regrown"); /* same size again, and the same time */
    struct timespec t[2] = { st.st_atim, st.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    berth_err err = { 0 };
    assert_fails(file_map_check(m, &err), err, BERTH_EIO, "could not be read");
    file_map_close(m);
    m = open_ok(path); /* a fresh mapping is clean, whatever slot it got */
    assert_ok(file_map_check(m, &err), err);
    file_map_close(m);
}

/* Pages that were dropped come again; what was lost is not found again that way. */
static void dropped_pages_come_again(void **state)
{
    (void)state;
    berth_err err = { 0 };
    const char *path = big_file("dropped");
    struct file_map *m = open_ok(path);
    unsigned long whole = sum_of(m);
    file_map_drop(m);
    assert_true(sum_of(m) == whole);
    assert_ok(file_map_check(m, &err), err);
    file_map_drop(m);
    assert_int_equal(truncate(path, 10), 0); /* a page that was read before is gone all the same */
    unsigned long rest = sum_of(m);
    assert_true(rest < whole);
    big_file("dropped"); /* whole again */
    file_map_drop(m);
    assert_int_equal(m->data[BIG - 1], 0);
    assert_int_equal(file_map_check(m, &err), BERTH_EIO);
    file_map_close(m);
}

static void notices_changes(void **state)
{
    (void)state;
    berth_err err = { 0 };
    const char *path = big_file("changing");
    struct file_map *m = open_ok(path);
    assert_ok(file_map_check(m, &err), err);
    assert_int_equal(truncate(path, BIG + 1), 0);
    assert_fails(file_map_check(m, &err), err, BERTH_EIO, "grew");
    assert_int_equal(truncate(path, BIG), 0);
    struct timespec t[2] = { { .tv_nsec = UTIME_OMIT }, { .tv_sec = 1000, .tv_nsec = 5 } };
    assert_int_equal(utimensat(AT_FDCWD, path, t, 0), 0);
    assert_fails(file_map_check(m, &err), err, BERTH_EIO, "was written to");
    file_map_close(m);

    path = big_file("replaced");
    m = open_ok(path);
    assert_int_equal(rename(tmp_write("other", "x", 1), path), 0);
    assert_ok(file_map_check(m, &err), err); /* ours is the file, not the name */
    assert_true(sum_of(m) > BIG);
    file_map_close(m);
}

/* ---- several threads ---- */

struct race {
    struct file_map *map[4];
    atomic_int go;
};

static void *race_main(void *arg)
{
    struct race *r = arg;
    while (!atomic_load(&r->go))
        ;
    unsigned long sum = 0;
    for (int k = 0; k < 4; k++)
        sum += sum_of(r->map[k]);
    return (void *)sum;
}

static void many_threads_fault_at_once(void **state)
{
    (void)state;
    for (int round = 0; round < 10; round++) {
        struct race r = { 0 };
        pthread_t t[4];
        const char *path[4];
        for (int k = 0; k < 4; k++) {
            char name[16];
            snprintf(name, sizeof name, "race%d", k);
            path[k] = big_file(name);
            r.map[k] = open_ok(path[k]);
        }
        for (int k = 0; k < 4; k++)
            assert_int_equal(pthread_create(&t[k], NULL, race_main, &r), 0);
        for (int k = 0; k < 3; k++)
            assert_int_equal(truncate(path[k], k * 100000), 0);
        atomic_store(&r.go, 1);
        for (int k = 0; k < 4; k++) {
            void *sum;
            assert_int_equal(pthread_join(t[k], &sum), 0);
            assert_true((unsigned long)sum >= BIG); /* the fourth file is whole */
        }
        berth_err err = { 0 };
        for (int k = 0; k < 3; k++)
            assert_fails(file_map_check(r.map[k], &err), err, BERTH_EIO, path[k]);
        assert_ok(file_map_check(r.map[3], &err), err);
        for (int k = 0; k < 4; k++)
            file_map_close(r.map[k]);
    }
}

/* Threads open, cut, read and close their own files: slots change hands all the time. */
static void *churn_main(void *arg)
{
    const char *path = arg;
    uint8_t b[20000];
    memset(b, 7, sizeof b);
    for (int i = 0; i < 100; i++) {
        struct file_map *m = NULL;
        berth_err err = { 0 };
        int fd = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
        if (fd < 0 || write(fd, b, sizeof b) != (ssize_t)sizeof b)
            return "write";
        if (file_map_open(path, &m, &err))
            return "open";
        if (i % 2 && ftruncate(fd, 5000))
            return "truncate";
        unsigned long sum = sum_of(m);
        if (i % 2 ? sum != 5000 * 7 : sum != 20000 * 7)
            return "sum";
        if (file_map_check(m, &err) != (i % 2 ? BERTH_EIO : BERTH_OK))
            return "check";
        file_map_close(m);
        close(fd);
    }
    return NULL;
}

static void opening_and_closing_in_parallel(void **state)
{
    (void)state;
    static char path[4][512];
    pthread_t t[4];
    for (int k = 0; k < 4; k++) {
        snprintf(path[k], sizeof path[k], "%s/churn%d", tmp_dir(), k);
        assert_int_equal(pthread_create(&t[k], NULL, churn_main, path[k]), 0);
    }
    for (int k = 0; k < 4; k++) {
        void *what;
        pthread_join(t[k], &what);
        if (what)
            fail_msg("thread %d: %s", k, (const char *)what);
    }
}

/* ---- faults that are not ours ---- */

/* A child that a broken handler sends in circles must end by itself. */
static pid_t fork_for_a_minute(void)
{
    pid_t pid = fork();
    if (pid == 0)
        alarm(60);
    return pid;
}

static volatile sig_atomic_t passed_on;

static void their_handler(int sig, siginfo_t *info, void *context)
{
    (void)context;
    passed_on = sig == SIGBUS && info->si_code == BUS_ADRERR;
    _exit(passed_on ? 42 : 43);
}

/* A child touches a mapping of its own whose file is empty. Before the handler is installed it sets
 * what should get the signal. */
static int fault_of_a_stranger(bool with_handler)
{
    pid_t pid = fork_for_a_minute();
    if (pid == 0) {
        struct sigaction sa = { .sa_flags = SA_SIGINFO };
        if (with_handler)
            sa.sa_sigaction = their_handler;
        else
            sa.sa_handler = SIG_DFL, sa.sa_flags = 0;
        sigaction(SIGBUS, &sa, NULL);
        struct file_map *m = NULL;
        berth_err err = { 0 };
        if (file_map_open(tmp_path("ours"), &m, &err)) /* installs the handler, once per process */
            _exit(1);
        int fd = open(tmp_path("theirs"), O_RDWR | O_CREAT | O_TRUNC, 0600);
        const volatile char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        _exit(p[0] + 2);
    }
    int status = 0;
    waitpid(pid, &status, 0);
    return status;
}

/* Runs before anything else in this program has mapped a file, so that the child installs. */
static void faults_of_others_are_passed_on(void **state)
{
    (void)state;
    tmp_write("ours", "x", 1);
    int status = fault_of_a_stranger(true);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 42);
    status = fault_of_a_stranger(false);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

static void sent_signals_are_passed_on(void **state)
{
    (void)state;
    tmp_write("ours", "x", 1);
    pid_t pid = fork_for_a_minute();
    if (pid == 0) {
        signal(SIGBUS, SIG_DFL);
        struct file_map *m = NULL;
        berth_err err = { 0 };
        if (file_map_open(tmp_path("ours"), &m, &err))
            _exit(1);
        raise(SIGBUS);
        _exit(2);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);

    pid = fork_for_a_minute();
    if (pid == 0) {
        signal(SIGBUS, SIG_IGN);
        struct file_map *m = NULL;
        berth_err err = { 0 };
        if (file_map_open(tmp_path("ours"), &m, &err))
            _exit(1);
        raise(SIGBUS);
        _exit(7); /* ignored, as asked */
    }
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

static struct sigaction replaced; /* by chaining_handler */

static void chaining_handler(int sig, siginfo_t *info, void *context)
{
    if (replaced.sa_flags & SA_SIGINFO)
        replaced.sa_sigaction(sig, info, context);
}

/* A handler set after ours that calls ours, which the next open puts in front of it again. */
static void handlers_in_a_circle_end(void **state)
{
    (void)state;
    const char *path = big_file("circle");
    pid_t pid = fork_for_a_minute();
    if (pid == 0) {
        struct file_map *m = NULL;
        berth_err err = { 0 };
        if (file_map_open(path, &m, &err))
            _exit(1);
        file_map_close(m);
        struct sigaction sa = { .sa_sigaction = chaining_handler, .sa_flags = SA_SIGINFO };
        sigaction(SIGBUS, &sa, &replaced);
        if (file_map_open(path, &m, &err) || truncate(path, 0))
            _exit(2);
        (void)sum_of(m); /* ours: survived */
        if (file_map_check(m, &err) != BERTH_EIO)
            _exit(3);
        int fd = open(path, O_RDWR);
        const volatile char *p = mmap(NULL, 4096, PROT_READ, MAP_SHARED, fd, 0);
        _exit(p[0] + 4); /* not ours: ends, by signal */
    }
    int status = 0;
    waitpid(pid, &status, 0);
    assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGBUS);
}

/* ---- limits ---- */

static void the_table_has_an_end(void **state)
{
    (void)state;
    /* In a child: it needs more descriptors than usual. */
    pid_t pid = fork_for_a_minute();
    if (pid == 0) {
        struct file_map *m = NULL, **all = calloc(FILE_MAPS_MAX + 1, sizeof(*all));
        berth_err err = { 0 };
        size_t n = 0;
        const char *path = tmp_path("hello");
        while (all && n <= FILE_MAPS_MAX && file_map_open(path, &all[n], &err) == BERTH_OK)
            n++;
        bool by_table = n == FILE_MAPS_MAX && err.code == BERTH_ELIMIT;
        bool by_descriptors = n < FILE_MAPS_MAX && err.native == EMFILE;
        if (!by_table && !by_descriptors)
            _exit(1);
        file_map_close(all[0]);
        if (file_map_open(path, &m, &err)) /* a free slot is used again */
            _exit(2);
        _exit(by_table ? 0 : 3);
    }
    int status;
    waitpid(pid, &status, 0);
    assert_true(WIFEXITED(status));
    assert_true(WEXITSTATUS(status) == 0 || WEXITSTATUS(status) == 3);
}

static void exhaustion(void **state)
{
    (void)state;
    const char *path = tmp_path("hello");
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct file_map *m = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = file_map_open(path, &m, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !m && strstr(err.msg, path)));
        file_map_close(m);
        assert_true(k < 10);
    }
}

/* ---- file_read_all ---- */

static void reads_small_files(void **state)
{
    (void)state;
    char *p = NULL;
    size_t n = 0;
    berth_err err = { 0 };
    const char *path = tmp_write("small", "abc\0def", 7);
    assert_ok(file_read_all(path, 7, &p, &n, &err), err);
    assert_int_equal(n, 7);
    assert_memory_equal(p, "abc\0def", 8); /* terminated */
    free(p);
    assert_fails(file_read_all(path, 6, &p, &n, &err), err, BERTH_ELIMIT, path);
    assert_null(p);
    assert_ok(file_read_all(path, SIZE_MAX, &p, &n, &err), err);
    free(p);
    assert_ok(file_read_all(tmp_write("empty", "", 0), 0, &p, &n, &err), err);
    assert_int_equal(n, 0);
    assert_string_equal(p, "");
    free(p);
    assert_ok(file_read_all("/proc/self/status", 1 << 20, &p, &n, &err),
              err); /* size 0 says stat */
    assert_true(n > 100 && p[n] == '\0');
    free(p);
    assert_fails(file_read_all("/proc/self/status", 100, &p, &n, &err), err, BERTH_ELIMIT, "100");
    assert_fails(file_read_all(tmp_path("nope"), 9, &p, &n, &err), err, BERTH_ENOTFOUND, "nope");
    assert_fails(file_read_all(tmp_dir(), 9, &p, &n, &err), err, BERTH_EINVAL, "directory");
    assert_null(p);
}

static void reading_survives_exhaustion(void **state)
{
    (void)state;
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        char *p = NULL;
        size_t n;
        berth_err err = { 0 };
        oom_after(k);
        s = file_read_all("/proc/self/status", 1 << 20, &p, &n, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !p && err.msg[0]));
        free(p);
        assert_true(k < 50);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(faults_of_others_are_passed_on), /* first: see there */
        cmocka_unit_test(sent_signals_are_passed_on),
        cmocka_unit_test(handlers_in_a_circle_end),
        cmocka_unit_test(maps_a_file),
        cmocka_unit_test(refuses_what_is_no_file),
        cmocka_unit_test(survives_a_file_cut_to_nothing),
        cmocka_unit_test(survives_a_file_cut_in_half),
        cmocka_unit_test(loss_is_sticky),
        cmocka_unit_test(dropped_pages_come_again),
        cmocka_unit_test(notices_changes),
        cmocka_unit_test(many_threads_fault_at_once),
        cmocka_unit_test(opening_and_closing_in_parallel),
        cmocka_unit_test(the_table_has_an_end),
        cmocka_unit_test(exhaustion),
        cmocka_unit_test(reads_small_files),
        cmocka_unit_test(reading_survives_exhaustion),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
