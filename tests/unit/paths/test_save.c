/* Names of saved files: prefixes, counters, races, foreign files. */
#include "paths/paths.h"
#include "support/clock_manual.h"
#include "support/oom.h"
#include "support/test.h"
#include "support/tmp.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>

static char root[512];
static struct clock_manual clock_;

static int setup(void **state)
{
    berth_err err = { 0 };
    (void)state;
    /* 2024-02-03 04:05:06 in the zone this runs in */
    struct tm t = { .tm_year = 124,
                    .tm_mon = 1,
                    .tm_mday = 3,
                    .tm_hour = 4,
                    .tm_min = 5,
                    .tm_sec = 6,
                    .tm_isdst = -1 };
    clock_manual_init(&clock_, 1000, (uint64_t)mktime(&t) * 1000000000);
    assert_int_equal(tmp_clear(), 0);
    snprintf(root, sizeof root, "%s", tmp_path("output"));
    assert_ok(path_make_dirs(root, &err), err);
    return 0;
}

static void touch(const char *name)
{
    char path[1024];
    snprintf(path, sizeof path, "output/%s", name);
    tmp_write(path, "f", 1);
}

static berth_status open_save(struct save_cache *c, const char *prefix, struct save_path *p,
                              berth_err *err)
{
    return path_save(c, root, prefix, 640, 480, &clock_.base, p, err);
}

static uint64_t counter(struct save_cache *c, const char *prefix)
{
    struct save_path p;
    berth_err err = { 0 };
    assert_ok(open_save(c, prefix, &p, &err), err);
    uint64_t n = p.counter;
    save_path_release(&p);
    return n;
}

/* Saves one and returns its name, good until the next call. */
static const char *save(struct save_cache *c, const char *prefix, uint64_t batch)
{
    static char name[300];
    struct save_path p;
    struct str file = { 0 };
    berth_err err = { 0 };
    assert_ok(open_save(c, prefix, &p, &err), err);
    assert_ok(path_save_file(c, &p, batch, ".png", "data", 4, &file, &err), err);
    snprintf(name, sizeof name, "%s", str_c(&file));
    str_release(&file);
    save_path_release(&p);
    return name;
}

/* A file that is written piece by piece has no name before it is closed, then one that nobody has;
 * or none, where it is thrown away. */
static void streams(void **state)
{
    struct save_path p;
    struct save_stream f;
    struct str file = { 0 };
    char path[800];
    struct stat st;
    berth_err err = { 0 };
    (void)state;
    assert_ok(open_save(NULL, "clip", &p, &err), err);
    for (int keep = 0; keep < 3; keep++) {
        assert_ok(path_save_open(&p, &f, &err), err);
        assert_int_equal(write(f.fd, "some", 4), 4);
        assert_int_equal(pread(f.fd, path, 4, 0), 4); /* muxers read what they wrote */
        assert_ok(path_save_close(NULL, &p, 0, ".mp4", keep, &f, &file, &err), err);
        assert_int_equal(f.fd, -1);
        assert_ok(path_save_close(NULL, &p, 0, ".mp4", true, &f, NULL, &err), err);
        if (!keep)
            continue;
        snprintf(path, sizeof path, "%s/%s", root, str_c(&file));
        assert_int_equal(stat(path, &st), 0);
        assert_int_equal(st.st_size, 4);
    }
    assert_string_equal(str_c(&file), "clip_00002_.mp4");
    str_release(&file);
    save_path_release(&p);
}

static void prefixes(void **state)
{
    static const struct {
        const char *prefix, *subfolder, *name;
    } row[] = {
        { "ComfyUI", "", "ComfyUI" },
        { "a/b/c", "a/b", "c" },
        { "a/../b", "", "b" },
        { "./a//b", "a", "b" },
        { "%width%x%height%", "", "640x480" },
        { "%year%-%month%-%day%/%hour%.%minute%.%second%", "2024-02-03", "04.05.06" },
        { "%date%_%batch_num%", "", "%date%_%batch_num%" },
        { "", "", "" },
        { "a\\b", "", "a\\b" },
        { "\xc3\xa9", "", "\xc3\xa9" },
    };
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(row); i++) {
        struct save_path p;
        berth_err err = { 0 };
        struct stat st;
        assert_ok(open_save(NULL, row[i].prefix, &p, &err), err);
        assert_string_equal(str_c(&p.subfolder), row[i].subfolder);
        assert_string_equal(str_c(&p.name), row[i].name);
        assert_int_equal(p.counter, 1);
        assert_int_equal(stat(str_c(&p.folder), &st), 0);
        save_path_release(&p);
    }
    struct save_path p; /* an absolute one that is inside */
    berth_err err = { 0 };
    char text[600];
    snprintf(text, sizeof text, "%s/q/r", root);
    assert_ok(open_save(NULL, text, &p, &err), err);
    assert_string_equal(str_c(&p.subfolder), "q");
    save_path_release(&p);
}

static void prefixes_that_leave(void **state)
{
    char path[600], longest[400] = "";
    struct save_path p;
    berth_err err = { 0 };
    (void)state;
    static const char *const bad[] = { "../x", "a/../../x", "/etc/x", "..", "a\nb", "a\x01/b" };
    for (size_t i = 0; i < ARRAY_LEN(bad); i++) {
        assert_int_equal(open_save(NULL, bad[i], &p, &err), BERTH_EINVAL);
        save_path_release(&p);
    }
    memset(longest, 'x', 300);
    assert_fails(open_save(NULL, longest, &p, &err), err, BERTH_EINVAL, "300 bytes");
    save_path_release(&p);
    snprintf(path, sizeof path, "%s-beside", root); /* the same text in front, another folder */
    assert_int_equal(open_save(NULL, path, &p, &err), BERTH_EINVAL);
    save_path_release(&p);
    snprintf(path, sizeof path, "%s/link", root);
    assert_int_equal(symlink("/tmp", path), 0);
    assert_fails(open_save(NULL, "link/x", &p, &err), err, BERTH_EINVAL, "out of its folder");
    save_path_release(&p);
}

static void counters_follow_what_is_there(void **state)
{
    (void)state;
    assert_int_equal(counter(NULL, "A"), 1);
    touch("A_00007_.png");
    touch("A_00003_.png");
    touch("A_12x_.png");  /* no number */
    touch("A_00006.txt"); /* counts too: some nodes leave the second '_' away */
    touch("AB_00050_.png");
    touch("a_00060_.png");                /* another name here */
    touch("A_99999999999999999999_.png"); /* beyond every counter */
    assert_int_equal(counter(NULL, "A"), 8);
    touch("A_00011.png");
    assert_int_equal(counter(NULL, "A"), 12);
    assert_int_equal(counter(NULL, "AB"), 51);
    touch("A_100000_.png");
    assert_int_equal(counter(NULL, "A"), 100001);
    assert_string_equal(save(NULL, "A", 0), "A_100001_.png");
    assert_string_equal(save(NULL, "n%batch_num%", 3), "n3_00001_.png");
    assert_string_equal(save(NULL, "n%batch_num%", 12), "n12_00002_.png");
    assert_string_equal(save(NULL, "", 0), "_00001_.png");
}

static void a_taken_name_is_never_overwritten(void **state)
{
    struct save_path p;
    struct str file = { 0 };
    berth_err err = { 0 };
    char path[600], buf[16];
    (void)state;
    assert_ok(open_save(NULL, "A", &p, &err), err);
    touch("A_00001_.png"); /* between the proposal and the save */
    touch("A_00041_.png");
    assert_ok(path_save_file(NULL, &p, 0, ".png", "mine", 4, &file, &err), err);
    assert_string_equal(str_c(&file), "A_00042_.png");
    assert_int_equal(p.counter, 43);
    snprintf(path, sizeof path, "%s/A_00001_.png", root);
    int fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, buf, sizeof buf), 1); /* still the other's */
    close(fd);
    snprintf(path, sizeof path, "%s/A_00042_.png", root);
    fd = open(path, O_RDONLY);
    assert_int_equal(read(fd, buf, sizeof buf), 4);
    assert_memory_equal(buf, "mine", 4);
    close(fd);
    str_release(&file);
    save_path_release(&p);
}

/* With a cache: the same numbers as without, at once when mtimes tell, else after the interval. */
static void the_cache_sees_foreign_files(void **state)
{
    struct save_cache *c = save_cache_new();
    (void)state;
    assert_non_null(c);
    for (int i = 1; i <= 20; i++) {
        char want[32];
        snprintf(want, sizeof want, "A_%05d_.png", i);
        assert_string_equal(save(c, "A", 0), want);
        snprintf(want, sizeof want, "B_%05d_.png", i); /* another name in the same folder */
        assert_string_equal(save(c, "B", 0), want);
    }
    touch("A_00500_.png");
    clock_manual_advance(&clock_, SAVE_RESCAN_NS);
    assert_string_equal(save(c, "A", 0), "A_00501_.png");
    assert_string_equal(save(c, "B", 0), "B_00021_.png");
    char path[600];
    for (int i = 21; i <= 501; i++) {
        snprintf(path, sizeof path, "%s/A_%05d_.png", root, i);
        unlink(path);
    }
    clock_manual_advance(&clock_, SAVE_RESCAN_NS);
    assert_string_equal(save(c, "A", 0), "A_00021_.png");
    /* Another mtime needs no interval. */
    touch("A_00700_.png");
    struct timespec t[2] = { { .tv_sec = 1000 }, { .tv_sec = 1000 } };
    assert_int_equal(utimensat(AT_FDCWD, root, t, 0), 0);
    assert_string_equal(save(c, "A", 0), "A_00701_.png");
    save_cache_free(c);
}

/* What makes it fast: a folder nobody else touches is not read again. A file that was put there
 * behind the mtime's back shows it: its number is not known until the interval is over. */
static void the_cache_does_not_look_twice(void **state)
{
    struct save_cache *c = save_cache_new();
    struct stat st;
    (void)state;
    assert_string_equal(save(c, "A", 0), "A_00001_.png");
    assert_int_equal(stat(root, &st), 0);
    touch("A_00900_.png");
    struct timespec t[2] = { st.st_atim, st.st_mtim };
    assert_int_equal(utimensat(AT_FDCWD, root, t, 0), 0);
    assert_string_equal(save(c, "A", 0), "A_00002_.png");
    clock_manual_advance(&clock_, SAVE_RESCAN_NS);
    assert_string_equal(save(c, "A", 0), "A_00901_.png");
    save_cache_free(c);
}

static void more_names_than_the_cache_holds(void **state)
{
    struct save_cache *c = save_cache_new();
    char name[32], want[64];
    (void)state;
    for (int round = 1; round <= 2; round++)
        for (int i = 0; i < SAVE_CACHE_MAX + 10; i++) {
            snprintf(name, sizeof name, "d%d/n%d", i, i);
            snprintf(want, sizeof want, "n%d_%05d_.png", i, round);
            assert_string_equal(save(c, name, 0), want);
        }
    save_cache_free(c);
}

struct racer {
    pthread_t thread;
    int saved;
};

static void *race(void *user)
{
    struct racer *r = user;
    struct save_cache *c = save_cache_new();
    for (int i = 0; i < 50; i++) {
        struct save_path p;
        berth_err err = { 0 };
        if (!open_save(c, "R", &p, &err) &&
            !path_save_file(c, &p, 0, ".png", "race", 4, NULL, &err))
            r->saved++;
        save_path_release(&p);
    }
    save_cache_free(c);
    return NULL;
}

static void racing_saves_are_all_there(void **state)
{
    struct racer r[4] = { 0 };
    char path[600];
    int there = 0;
    (void)state;
    for (size_t i = 0; i < ARRAY_LEN(r); i++)
        assert_int_equal(pthread_create(&r[i].thread, NULL, race, &r[i]), 0);
    for (size_t i = 0; i < ARRAY_LEN(r); i++) {
        pthread_join(r[i].thread, NULL);
        assert_int_equal(r[i].saved, 50);
    }
    for (int i = 1; i <= 2000; i++) {
        struct stat st;
        snprintf(path, sizeof path, "%s/R_%05d_.png", root, i);
        there += stat(path, &st) == 0 && st.st_size == 4;
    }
    assert_int_equal(there, 200);
}

static void a_folder_that_cannot_be_written(void **state)
{
    struct save_path p;
    berth_err err = { 0 };
    (void)state;
    assert_ok(open_save(NULL, "gone/x", &p, &err), err);
    assert_int_equal(rmdir(str_c(&p.folder)), 0);
    assert_fails(path_save_file(NULL, &p, 0, ".png", "x", 1, NULL, &err), err, BERTH_EIO, "gone");
    save_path_release(&p);
}

static void survives_oom(void **state)
{
    (void)state;
    for (int once = 0; once < 2; once++) {
        bool done = false;
        for (long k = 0; !done; k++) {
            struct save_cache *c = save_cache_new();
            struct save_path p;
            struct str file = { 0 };
            berth_err err = { 0 };
            if (once)
                oom_once(k);
            else
                oom_after(k);
            berth_status s = open_save(c, "oom/A", &p, &err);
            if (!s)
                s = path_save_file(c, &p, 0, ".png", "x", 1, &file, &err);
            done = oom_seen() <= k;
            oom_off();
            assert_true(s == BERTH_OK || (s == BERTH_ENOMEM && err.msg[0]) ||
                        (s == BERTH_EIO && err.native)); /* opendir() has no memory */
            assert_true(!done || s == BERTH_OK);
            str_release(&file);
            save_path_release(&p);
            save_cache_free(c);
        }
    }
}

/* A path stands between quotes wherever it is named: that is how the server finds what it keeps
 * from clients. mode: of the folder output/sub. */
static void refused_in_quotes(const char *prefix, mode_t mode)
{
    struct save_path p = { 0 };
    berth_err err = { 0 };
    uid_t me = geteuid();
    assert_int_equal(chmod(tmp_path("output/sub"), mode), 0);
    if (me == 0)
        assert_int_equal(seteuid(65534), 0);
    berth_status s = open_save(NULL, prefix, &p, &err);
    if (!s)
        s = path_save_file(NULL, &p, 0, ".png", "x", 1, NULL, &err);
    assert_int_equal(seteuid(me), 0);
    save_path_release(&p);
    const char *at = strstr(err.msg, root);
    if (s != BERTH_EIO || !strstr(err.msg, "Permission denied") || !at || at[-1] != '\'')
        fail_msg("%s under %o: %s", prefix, (unsigned)mode, err.msg);
}

static void folders_without_permission(void **state)
{
    static const char *const prefix[] = { "sub/x", "sub/deep/x", "sub/new/deeper/x" };
    static const mode_t mode[] = { 0, 0444, 0555, 0333 };
    berth_err err = { 0 };
    (void)state;
    assert_int_equal(chmod(tmp_dir(), 0755), 0);
    assert_ok(path_make_dirs(tmp_path("output/sub/deep"), &err), err);
    assert_int_equal(chmod(tmp_path("output/sub/deep"), 0), 0);
    for (size_t i = 0; i < ARRAY_LEN(prefix) * ARRAY_LEN(mode); i++)
        if (i / 4 < 2 || mode[i % 4] != 0333) /* there one may make a folder */
            refused_in_quotes(prefix[i / 4], mode[i % 4]);
    assert_int_equal(chmod(tmp_path("output/sub"), 0755), 0);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup(streams, setup),
        cmocka_unit_test_setup(prefixes, setup),
        cmocka_unit_test_setup(prefixes_that_leave, setup),
        cmocka_unit_test_setup(counters_follow_what_is_there, setup),
        cmocka_unit_test_setup(a_taken_name_is_never_overwritten, setup),
        cmocka_unit_test_setup(the_cache_sees_foreign_files, setup),
        cmocka_unit_test_setup(the_cache_does_not_look_twice, setup),
        cmocka_unit_test_setup(more_names_than_the_cache_holds, setup),
        cmocka_unit_test_setup(racing_saves_are_all_there, setup),
        cmocka_unit_test_setup(a_folder_that_cannot_be_written, setup),
        cmocka_unit_test_setup(folders_without_permission, setup),
        cmocka_unit_test_setup(survives_oom, setup),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
