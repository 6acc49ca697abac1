#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include "base/file_impl.h"

#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

static bool named; /* the suite runs twice: with unnamed temporary files, then with named ones */

static struct file_new *open_ok(const char *path, uint64_t hint)
{
    struct file_new *f = NULL;
    berth_err err = { 0 };
    assert_ok(file_new_open_as(path, hint, named, &f, &err), err);
    assert_non_null(f);
    return f;
}

static void assert_content(const char *path, const char *want)
{
    char *p = NULL;
    size_t n;
    berth_err err = { 0 };
    assert_ok(file_read_all(path, 1 << 20, &p, &n, &err), err);
    assert_string_equal(p, want);
    free(p);
}

static bool has_leftovers(void)
{
    DIR *d = opendir(tmp_dir());
    assert_non_null(d);
    bool found = false;
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".tmp")) {
            print_message("in the folder: %s\n", e->d_name);
            found = true;
        }
    closedir(d);
    return found;
}

static void assert_no_leftovers(void)
{
    assert_false(has_leftovers());
}

static void write_ok(const char *path, const char *text)
{
    struct file_new *f = open_ok(path, strlen(text));
    berth_err err = { 0 };
    assert_ok(file_new_write(f, text, strlen(text), &err), err);
    assert_ok(file_new_commit(f, &err), err);
}

static void new_file_appears_whole(void **state)
{
    (void)state;
    const char *path = tmp_path("fresh");
    struct file_new *f = open_ok(path, 0);
    berth_err err = { 0 };
    assert_ok(file_new_write(f, "one ", 4, &err), err);
    assert_int_not_equal(access(path, F_OK), 0); /* nothing there yet */
    assert_ok(file_new_write(f, "two", 3, &err), err);
    assert_ok(file_new_write(f, NULL, 0, &err), err);
    assert_ok(file_new_commit(f, &err), err);
    assert_content(path, "one two");
    assert_no_leftovers();
}

static void replacing_is_all_or_nothing(void **state)
{
    (void)state;
    const char *path = tmp_path("target");
    berth_err err = { 0 };
    write_ok(path, "old");
    struct file_new *f = open_ok(path, 0);
    assert_ok(file_new_write(f, "half of the n", 13, &err), err);
    assert_content(path, "old");
    file_new_abort(f);
    assert_content(path, "old");
    file_new_abort(NULL);
    write_ok(path, "new");
    assert_content(path, "new");
    assert_no_leftovers();
}

/* Two that began while the name was free: the first to commit has it, the second loses nothing of
 * the first. */
static void a_name_is_taken_once(void **state)
{
    (void)state;
    const char *path = tmp_path("once");
    berth_err err = { 0 };
    struct file_new *a = open_ok(path, 0), *b = open_ok(path, 0);
    assert_ok(file_new_write(a, "a", 1, &err), err);
    assert_ok(file_new_write(b, "b", 1, &err), err);
    assert_ok(file_new_commit_new(a, &err), err);
    assert_fails(file_new_commit_new(b, &err), err, BERTH_EBUSY, "once");
    assert_int_equal(err.native, EEXIST);
    assert_content(path, "a");
    assert_no_leftovers();
    b = open_ok(path, 0); /* there before it began */
    assert_fails(file_new_commit_new(b, &err), err, BERTH_EBUSY, "once");
    assert_ok(file_write_all(path, "all", 3, &err), err);
    assert_content(path, "all");
    assert_no_leftovers();
}

static void positioned_writes(void **state)
{
    (void)state;
    const char *path = tmp_path("positioned");
    struct file_new *f = open_ok(path, 10);
    berth_err err = { 0 };
    assert_ok(file_new_write_at(f, 5, "world", 5, &err), err);
    assert_ok(file_new_write(f, "hello", 5, &err), err); /* appends to what was appended: at 0 */
    assert_fails(file_new_write_at(f, UINT64_MAX, "x", 1, &err), err, BERTH_EINVAL, "positioned");
    assert_fails(file_new_write_at(f, INT64_MAX, "x", 1, &err), err, BERTH_EINVAL, "positioned");
    assert_ok(file_new_commit(f, &err), err);
    assert_content(path, "helloworld");
}

struct part {
    struct file_new *f;
    uint64_t from;
    berth_status s;
};

static void *write_part(void *arg)
{
    struct part *p = arg;
    berth_err err = { 0 };
    uint8_t b[1000];
    for (uint64_t i = 0; i < 50 && !p->s; i++) {
        uint64_t off = p->from + i * 4 * sizeof b;
        memset(b, (int)(off / sizeof b % 251), sizeof b);
        p->s = file_new_write_at(p->f, off, b, sizeof b, &err);
    }
    return NULL;
}

static void positioned_writes_from_threads(void **state)
{
    (void)state;
    const char *path = tmp_path("parallel");
    struct file_new *f = open_ok(path, 200000);
    struct part part[4];
    pthread_t t[4];
    for (size_t k = 0; k < 4; k++) {
        part[k] = (struct part) { .f = f, .from = k * 1000 };
        assert_int_equal(pthread_create(&t[k], NULL, write_part, &part[k]), 0);
    }
    for (size_t k = 0; k < 4; k++) {
        pthread_join(t[k], NULL);
        assert_int_equal(part[k].s, BERTH_OK);
    }
    berth_err err = { 0 };
    assert_ok(file_new_commit(f, &err), err);
    char *p;
    size_t n;
    assert_ok(file_read_all(path, 1 << 20, &p, &n, &err), err);
    assert_int_equal(n, 200000);
    for (size_t i = 0; i < n; i++)
        assert_int_equal((uint8_t)p[i], i / 1000 % 251);
    free(p);
}

static void failing_commit_leaves_the_old_file(void **state)
{
    (void)state;
    berth_err err = { 0 };
    /* Works for root too: between open and commit the name becomes a folder that is not empty. */
    const char *path = tmp_path("becomes");
    struct file_new *f = open_ok(path, 0);
    assert_ok(file_new_write(f, "new", 3, &err), err);
    assert_int_equal(mkdir(path, 0700), 0);
    tmp_write("becomes/inside", "kept", 4);
    assert_fails(file_new_commit(f, &err), err, BERTH_EIO, "becomes");
    assert_content(tmp_path("becomes/inside"), "kept");
    assert_no_leftovers();

    if (!named)
        return;
    /* The temporary file vanishes: the rename fails, the old file stays. */
    path = tmp_path("victim");
    write_ok(path, "old");
    f = open_ok(path, 0);
    assert_ok(file_new_write(f, "new", 3, &err), err);
    DIR *d = opendir(tmp_dir());
    for (struct dirent *e; (e = readdir(d));)
        if (strstr(e->d_name, ".tmp"))
            unlinkat(dirfd(d), e->d_name, 0);
    closedir(d);
    assert_fails(file_new_commit(f, &err), err, BERTH_EIO, "renaming");
    assert_content(path, "old");
}

static void failing_writes_name_the_file(void **state)
{
    (void)state;
    /* A limit on the file size stands in for a full disk: it holds on every file system. */
    const char *path = tmp_path("limited");
    struct file_new *f = open_ok(path, 0);
    berth_err err = { 0 };
    struct rlimit was, small;
    assert_int_equal(getrlimit(RLIMIT_FSIZE, &was), 0);
    small = was;
    small.rlim_cur = 100;
    void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &small), 0);
    berth_status fits = file_new_write(f, "0123456789", 10, &err);
    berth_status s = file_new_write_at(f, 200, "x", 1, &err);
    assert_int_equal(setrlimit(RLIMIT_FSIZE, &was), 0);
    signal(SIGXFSZ, handler);
    assert_int_equal(fits, BERTH_OK);
    assert_fails(s, err, BERTH_EIO, path);
    assert_int_equal(err.native, EFBIG);
    file_new_abort(f);
    assert_int_not_equal(access(path, F_OK), 0);
    assert_no_leftovers();
}

static void refuses_impossible_targets(void **state)
{
    (void)state;
    struct file_new *f = (void *)1;
    berth_err err = { 0 };
    assert_fails(file_new_open(tmp_dir(), 0, &f, &err), err, BERTH_EINVAL, "directory");
    assert_null(f);
    assert_fails(file_new_open("/dev/null", 0, &f, &err), err, BERTH_EINVAL, "character device");
    assert_fails(file_new_open(tmp_path("no/such/x"), 0, &f, &err), err, BERTH_ENOTFOUND,
                 "no/such");
    assert_fails(file_new_open(tmp_path("x/"), 0, &f, &err), err, BERTH_EINVAL, "name a file");
    assert_fails(file_new_open("", 0, &f, &err), err, BERTH_EINVAL, "name a file");
    assert_int_equal(symlink("circle", tmp_path("circle")), 0);
    assert_fails(file_new_open(tmp_path("circle"), 0, &f, &err), err, BERTH_EINVAL, "links");
    assert_fails(file_new_open(tmp_path("large"), UINT64_MAX, &f, &err), err, BERTH_EIO,
                 "needs 16.0 EiB");
    assert_int_equal(err.native, ENOSPC);
    assert_non_null(strstr(err.msg, " free "));
    assert_null(f);
    assert_no_leftovers();
}

static mode_t mode_of(const char *path)
{
    struct stat st;
    assert_int_equal(stat(path, &st), 0);
    return st.st_mode & 07777;
}

static void modes(void **state)
{
    (void)state;
    mode_t was = umask(027);
    const char *path = tmp_path("masked");
    write_ok(path, "x");
    assert_int_equal(mode_of(path), 0640); /* as open() would have made it */
    assert_int_equal(chmod(path, 0604), 0);
    write_ok(path, "y");
    assert_int_equal(mode_of(path), 0604); /* a replacement keeps it */
    umask(was);
}

static void links_stay_and_their_target_changes(void **state)
{
    (void)state;
    struct stat st;
    assert_int_equal(mkdir(tmp_path("deep"), 0700), 0);
    tmp_write("deep/real", "old", 3);
    assert_int_equal(symlink("deep/hop", tmp_path("link")), 0);
    assert_int_equal(symlink("real", tmp_path("deep/hop")), 0); /* relative to its own folder */
    write_ok(tmp_path("link"), "new");
    assert_content(tmp_path("deep/real"), "new");
    assert_int_equal(lstat(tmp_path("link"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));
    assert_int_equal(lstat(tmp_path("deep/hop"), &st), 0);
    assert_true(S_ISLNK(st.st_mode));

    char absolute[512];
    snprintf(absolute, sizeof absolute, "%s/deep/made", tmp_dir());
    assert_int_equal(symlink(absolute, tmp_path("dangling")), 0);
    write_ok(tmp_path("dangling"), "made"); /* creates what the link promised */
    assert_content(absolute, "made");
    assert_no_leftovers();
}

static void relative_paths(void **state)
{
    (void)state;
    char *here = getcwd(NULL, 0);
    assert_int_equal(chdir(tmp_dir()), 0);
    write_ok("relative", "r");
    assert_content("relative", "r");
    struct file_new *f = open_ok("moved", 0); /* the folder is held open: cwd may change */
    assert_int_equal(chdir("/"), 0);
    berth_err err = { 0 };
    assert_ok(file_new_commit(f, &err), err);
    assert_int_equal(access(tmp_path("moved"), F_OK), 0);
    assert_int_equal(chdir(here), 0);
    free(here);
    /* as long as a name may be: the temporary one does not grow with it */
    char name[256];
    memset(name, 'n', 255);
    name[255] = '\0';
    write_ok(tmp_path(name), "long");
    assert_content(tmp_path(name), "long");
}

static void exhaustion(void **state)
{
    (void)state;
    tmp_write("exhausted", "old", 3);
    symlink("exhausted", tmp_path("to_exhausted"));
    berth_status s = BERTH_ENOMEM;
    for (long k = 0; s != BERTH_OK; k++) {
        struct file_new *f = NULL;
        berth_err err = { 0 };
        oom_after(k);
        s = file_new_open_as(tmp_path("to_exhausted"), 3, named, &f, &err);
        oom_off();
        assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && !f && strstr(err.msg, "to_exhausted")));
        file_new_abort(f);
        assert_no_leftovers();
        assert_true(k < 20);
    }
    assert_content(tmp_path("exhausted"), "old");
}

/* A process that dies in the middle leaves nothing when the file had no name, and never a half. */
static void killed_while_writing(void **state)
{
    (void)state;
    const char *path = tmp_write("survivor", "old", 3);
    pid_t pid = fork();
    if (pid == 0) {
        struct file_new *f;
        berth_err err;
        if (file_new_open_as(path, 0, false, &f, &err) || file_new_write(f, "new", 3, &err))
            _exit(1);
        kill(getpid(), has_leftovers() ? SIGTERM : SIGKILL);
        _exit(2);
    }
    int status = 0;
    assert_int_equal(waitpid(pid, &status, 0), pid);
    assert_true(WIFSIGNALED(status));
    assert_content(path, "old");
    if (WTERMSIG(status) == SIGKILL)
        assert_no_leftovers();
    else
        print_message("this file system has no unnamed files: leftovers not checked\n");
}

static int clean(void **state)
{
    (void)state;
    return tmp_clear();
}

/* The file itself where it has no name yet, a copy where it has one: the same bytes either way. */
static void commits_under_another_path(void **state)
{
    struct stat st;
    berth_err err = { 0 };
    char back[4] = "";
    (void)state;
    write_ok(tmp_path("as_old"), "old");
    assert_int_equal(chmod(tmp_path("as_old"), 0640), 0);
    struct file_new *f = open_ok(tmp_path("as_never"), 0);
    assert_ok(file_new_write(f, "new", 3, &err), err);
    assert_int_equal(pread(file_new_fd(f), back, 3, 0), 3);
    assert_string_equal(back, "new");
    assert_ok(file_new_commit_as(f, tmp_path("as_old"), &err), err);
    assert_content(tmp_path("as_old"), "new");
    assert_int_equal(stat(tmp_path("as_old"), &st), 0);
    assert_int_equal(st.st_mode & 0777, 0640);
    assert_int_equal(access(tmp_path("as_never"), F_OK), -1);
    f = open_ok(tmp_path("as_never"), 0);
    assert_int_equal(file_new_commit_as(f, tmp_path("nowhere/x"), &err), BERTH_ENOTFOUND);
    assert_no_leftovers();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(commits_under_another_path),
        cmocka_unit_test(new_file_appears_whole),
        cmocka_unit_test(replacing_is_all_or_nothing),
        cmocka_unit_test(a_name_is_taken_once),
        cmocka_unit_test(positioned_writes),
        cmocka_unit_test(positioned_writes_from_threads),
        cmocka_unit_test(failing_commit_leaves_the_old_file),
        cmocka_unit_test(failing_writes_name_the_file),
        cmocka_unit_test(refuses_impossible_targets),
        cmocka_unit_test(modes),
        cmocka_unit_test(links_stay_and_their_target_changes),
        cmocka_unit_test(relative_paths),
        cmocka_unit_test(exhaustion),
        cmocka_unit_test(killed_while_writing),
    };
    int failed = cmocka_run_group_tests_name("unnamed temporary files", tests, NULL, clean);
    named = true;
    return failed + cmocka_run_group_tests_name("named temporary files", tests, NULL, NULL);
}
