/* A small disk that fills in many ways: no prompt stands still, a clear always works, and then
 * there is room. The disk is a made-up one (support/vfs.h): nobody must be root. */
#include "support/rng.h"
#include "support/seed.h"
#include "support/stores.h"
#include "support/vfs.h"

#include "support/sqlite_store.h"

#include <sys/stat.h>
#include <unistd.h>

enum { RESERVE = 1 << 20, PICTURE = RESERVE / 2, FILLINGS = 24 };

static char path[512];

static bool made_up_disk(const char *file, uint64_t *bytes, uint64_t *total)
{
    (void)file;
    long left = vfs_left();
    *bytes = left > 0 ? (uint64_t)left : 0;
    *total = (uint64_t)atomic_load(&vfs_disk);
    return true;
}

static int no_sync(int fd)
{
    (void)fd;
    return 0;
}

static void remove_files(void)
{
    static const char *const ends[] = { "", "-wal", "-shm", ".reserve" };
    for (size_t i = 0; i < ARRAY_LEN(ends); i++) {
        char name[600];
        snprintf(name, sizeof name, "%s%s", path, ends[i]);
        unlink(name);
    }
}

static long reserve_bytes(void)
{
    char name[600];
    struct stat st;
    snprintf(name, sizeof name, "%s.reserve", path);
    assert_int_equal(stat(name, &st), 0);
    assert_true(st.st_blocks * 512 >= st.st_size); /* no holes: it is really taken */
    return (long)st.st_size;
}

static struct store *open_again(void)
{
    struct store_config cfg = { .path = path, .disk = made_up_disk };
    struct store *s;
    berth_err err = { 0 };
    assert_ok(store_open(&cfg, &s, &err), err);
    sqlite_of(s)->sync = no_sync;
    return s;
}

/* A disk of so many bytes; a quarter of it, 1 MiB at least, is the reserve. */
static struct store *open_on(long bytes)
{
    snprintf(path, sizeof path, "%s", tmp_path("room.db"));
    snprintf(vfs_database, sizeof vfs_database, "%s", path);
    remove_files();
    atomic_store(&vfs_eaten, 0);
    atomic_store(&vfs_disk, bytes);
    struct store *s = open_again();
    assert_int_equal(reserve_bytes(), sqlite_of(s)->reserve_most);
    assert_int_equal(sqlite_of(s)->reserve_most, bytes < 4 * RESERVE ? RESERVE : bytes / 4);
    return s;
}

static void close_with_room(struct store *s)
{
    atomic_store(&vfs_eaten, 0);
    atomic_store(&vfs_disk, LONG_MAX);
    store_close(s);
}

static void eat(long most)
{
    long left = vfs_left();
    atomic_fetch_add(&vfs_eaten, left < most ? left : most);
}

static bool add_of(struct store *s, int i, size_t bytes)
{
    char id[24];
    berth_err err = { 0 };
    snprintf(id, sizeof id, "j%d", i);
    struct store_job j = job_of(id, i);
    free(j.prompt);
    j.prompt = text_of("{\"a\":\"%*d\"}", (int)bytes, i);
    berth_status st = try_add(s, j, &err);
    if (st)
        assert_fails(st, err, BERTH_EIO, "full");
    return !st;
}

/* A job that was accepted runs, whether or not its end finds room. */
static void run_one(struct store *s)
{
    struct store_job j;
    bool got = false;
    berth_err err = { 0 };
    assert_ok(try_take(s, UINT64_MAX, &j, &got, &err), err);
    assert_true(got);
    store_job_release(&j);
    if (try_finish(s, &fine, &err))
        assert_int_equal(err.code, BERTH_EIO);
}

/* The same, and its end finds room. */
static void run_to_the_end(struct store *s)
{
    struct store_job j;
    bool got = false;
    berth_err err = { 0 };
    assert_ok(try_take(s, UINT64_MAX, &j, &got, &err), err);
    assert_true(got);
    store_job_release(&j);
    finish(s);
}

static void fill(struct store *s, struct rng *r, unsigned way)
{
    bool room = true;
    for (int i = 0; i < 2000 && room; i++) {
        room = add_of(s, i, 100 + rng_u64(r) % (way & 1 ? 2000 : 120000));
        if (way & 2 && rng_u64(r) % 2)
            eat((long)(rng_u64(r) % 60000));
        if (way & 4 && store_pending(s) && rng_u64(r) % 4)
            run_one(s);
        if (way & 8 && rng_u64(r) % 200 == 0)
            break;
    }
    eat(LONG_MAX);
}

static void one_filling(uint64_t seed)
{
    struct rng r = { seed };
    running = seed;
    berth_err err = { 0 };
    struct store *s = open_on((long)(3 + seed % 9) << 20);
    run_through(s, "first");
    fill(s, &r, (unsigned)rng_u64(&r));
    assert_true(vfs_left() <= 0);
    if (rng_u64(&r) % 2)
        while (store_pending(s))
            run_one(s);
    assert_ok(store_history_clear(s, &err), err);
    assert_int_equal(store_history_count(s), 0);
    if (vfs_left() < PICTURE)
        fail_msg("%ld bytes are left after the clear", vfs_left());
    assert_true(reserve_bytes() >= RESERVE / 4); /* for the next time */
    while (store_pending(s))
        run_one(s);
    eat(vfs_left() - PICTURE);
    add(s, "after", 1e9);
    take(s, "after", 1);
    finish(s);
    eat(LONG_MAX); /* the picture, and more */
    assert_ok(store_history_clear(s, &err), err);
    close_with_room(s);
    s = open_store(path);
    assert_int_equal(store_history_count(s) + store_remaining(s), 0);
    store_close(s);
    running = 0;
}

static void fillings(void **state)
{
    (void)state;
    uint64_t seed = rng_seed();
    for (int i = 0; i < FILLINGS; i++)
        one_filling(seed + (uint64_t)i);
}

/* The log has grown, and the file has no room for what is in it: accepted jobs run all the same. */
static void a_log_that_cannot_be_moved(void **state)
{
    (void)state;
    berth_err err = { 0 };
    struct store *s = open_on(6 << 20);
    for (int i = 0; i < 20; i++)
        assert_true(add_of(s, i, 5000));
    eat(LONG_MAX);
    while (store_pending(s))
        run_one(s);
    assert_true(reserve_bytes() > 0);
    assert_ok(store_history_clear(s, &err), err);
    close_with_room(s);
}

/* The store's thread is moving the log, on a slow disk, while the end of a job needs that it is
 * moved: it waits for that instead of finding the disk full. */
static void a_log_that_is_being_moved(void **state)
{
    (void)state;
    berth_err err = { 0 };
    struct store *s = open_on(6 << 20);
    atomic_store(&vfs_move_us, 3000);
    atomic_store(&vfs_moves, 0);
    for (int i = 0; !atomic_load(&vfs_moves); i++) {
        assert_true(add_of(s, i, 5000));
        usleep(10000); /* by then it has begun, where the log is long enough */
    }
    eat(vfs_left() - (long)sqlite_of(s)->wal_pages * SQLITE_PAGE - (56 << 10));
    run_to_the_end(s);
    atomic_store(&vfs_move_us, 0);
    assert_ok(store_history_clear(s, &err), err);
    close_with_room(s);
}

/* A prompt that would leave no room for moving the log is refused while that can be said. */
static void a_prompt_that_is_too_large(void **state)
{
    (void)state;
    berth_err err = { 0 };
    struct store *s = open_on(24 << 20);
    eat(vfs_left() - (17 << 20));
    assert_true(add_of(s, 0, 4 << 20));
    assert_false(add_of(s, 1, 12 << 20));
    eat(LONG_MAX);
    run_one(s);
    assert_ok(store_history_clear(s, &err), err);
    assert_true(vfs_left() >= PICTURE);
    close_with_room(s);
}

/* What a clear gave to pictures is taken back when there is plenty. */
static void the_reserve_comes_back(void **state)
{
    (void)state;
    berth_err err = { 0 };
    struct store *s = open_on(8 << 20);
    eat(LONG_MAX);
    assert_ok(store_history_clear(s, &err), err);
    assert_true(reserve_bytes() < 2 * RESERVE);
    atomic_store(&vfs_eaten, 0);
    for (int i = 0; i < 6000 && reserve_bytes() < 2 * RESERVE; i++)
        usleep(10000); /* the writer looks once a second */
    assert_int_equal(reserve_bytes(), 2 * RESERVE);
    close_with_room(s);
}

/* The server starts on a full disk, and then clears. */
static void opened_on_a_full_disk(void **state)
{
    (void)state;
    berth_err err = { 0 };
    struct store *s = open_on(6 << 20);
    for (int i = 0; add_of(s, i, 50000); i++)
        ;
    size_t jobs = store_remaining(s);
    eat(LONG_MAX);
    store_close(s);
    eat(LONG_MAX);
    s = open_again();
    assert_int_equal(store_remaining(s), jobs);
    while (store_pending(s))
        run_one(s);
    assert_ok(store_history_clear(s, &err), err);
    assert_true(vfs_left() >= PICTURE);
    close_with_room(s);
}

/* A reserve that lies there with holes, a link, or a folder: none of them is one. */
static void what_is_no_reserve(void **state)
{
    (void)state;
    char name[600], other[600];
    struct stat st;
    struct store *s = open_on(8 << 20);
    close_with_room(s);
    snprintf(name, sizeof name, "%s.reserve", path);
    snprintf(other, sizeof other, "%s.other", path);
    assert_int_equal(truncate(name, 0), 0);
    assert_int_equal(truncate(name, RESERVE), 0);
    s = open_store(path);
    assert_true(reserve_bytes() > 0);
    store_close(s);
    for (int dir = 0; dir < 2; dir++) {
        unlink(name);
        assert_int_equal(dir ? mkdir(name, 0700) : symlink(other, name), 0);
        s = open_store(path);
        run_through(s, "works");
        store_close(s);
        assert_int_not_equal(stat(other, &st), 0); /* nothing was made through the link */
    }
    rmdir(name);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_teardown(fillings, say_seed), cmocka_unit_test(a_log_that_cannot_be_moved),
        cmocka_unit_test(a_log_that_is_being_moved),   cmocka_unit_test(a_prompt_that_is_too_large),
        cmocka_unit_test(the_reserve_comes_back),      cmocka_unit_test(opened_on_a_full_disk),
        cmocka_unit_test(what_is_no_reserve),
    };
    signal(SIGABRT, say_seed_and_die);
    return cmocka_run_group_tests(tests, vfs_install, NULL);
}
