/* kill -9 at random moments: what was accepted is there, once; what ended has ended; what was
 * deleted is gone. A child works and says over a pipe what it was told; the parent kills it, opens
 * the store and compares. */
#include "support/rng.h"
#include "support/seed.h"
#include "support/stores.h"
#include "support/vfs.h"

#include <poll.h>
#include <sys/wait.h>

enum { ROUNDS = 60, PER_ROUND = 2000, IDS = ROUNDS * PER_ROUND };

enum { ACCEPTED = 1, DELETING = 2, DELETED = 4, FINISHED = 8, QUEUED = 16, IN_HISTORY = 32 };

static struct store *open_large(const char *path)
{
    struct store_config cfg = { .path = path, .max_history = IDS };
    struct store *s;
    berth_err err = { 0 };
    assert_ok(store_open(&cfg, &s, &err), err);
    return s;
}

/* ---- the child ---- */

struct child {
    struct store *s;
    int out;
    size_t base;
    uint64_t seed;
};

static void say(int fd, char what, size_t id, uint64_t number)
{
    char line[64];
    int n = snprintf(line, sizeof line, "%c %zu %llu\n", what, id, (unsigned long long)number);
    if (write(fd, line, (size_t)n) != n) /* one write: a line is whole or not there */
        _exit(1);
}

struct added {
    struct child *c;
    size_t id;
    uint64_t number;
};

static void added_done(void *user, berth_status st, const berth_err *err)
{
    struct added *a = user;
    (void)err;
    if (st)
        _exit(2);
    say(a->c->out, 'A', a->id, a->number);
    free(a);
}

static void *add_many(void *arg)
{
    struct child *c = arg;
    struct rng r = { c->seed ^ 1 };
    berth_err err;
    for (size_t i = 0; i < PER_ROUND; i++) {
        struct added *a = malloc(sizeof *a);
        if (!a)
            _exit(3);
        *a = (struct added) { c, c->base + i, store_next_number(c->s) };
        char id[24];
        snprintf(id, sizeof id, "%zu", a->id);
        struct store_job j = job_of(id, rng_below(&r, 4) ? (double)a->number : -(double)a->number);
        if (store_add(c->s, &j, added_done, a, &err))
            _exit(4);
        if (!rng_below(&r, 8))
            usleep((useconds_t)rng_below(&r, 3000));
    }
    return NULL;
}

static void delete_one(struct child *c, struct rng *r)
{
    char id[24];
    const char *ids = id;
    berth_err err;
    size_t n = c->base + rng_below(r, 200);
    snprintf(id, sizeof id, "%zu", n);
    say(c->out, 'd', n, 0);
    if (store_delete(c->s, &ids, 1, &err))
        say(c->out, 'D', n, 0);
    else if (err.code)
        _exit(5);
    else
        say(c->out, 'u', n, 0); /* it was not pending: nothing happened */
}

static void run_one(struct child *c, struct rng *r)
{
    struct store_job j;
    bool got;
    berth_err err;
    if (try_take(c->s, 0, &j, &got, &err))
        _exit(6);
    if (!got)
        return;
    size_t id = strtoull(j.id, NULL, 10);
    store_job_release(&j);
    if (!rng_below(r, 10)) {
        if (try_park(c->s, &err))
            _exit(7);
        return;
    }
    if (try_finish(c->s, &fine, &err))
        _exit(8);
    say(c->out, 'F', id, 0);
}

static _Noreturn void be_child(const char *path, int out, size_t round, uint64_t seed)
{
    struct store_config cfg = { .path = path, .max_history = IDS };
    struct child c = { .out = out, .base = round * PER_ROUND, .seed = seed };
    struct rng r = { seed };
    pthread_t adder;
    berth_err err;
    if (store_open(&cfg, &c.s, &err) || pthread_create(&adder, NULL, add_many, &c))
        _exit(9);
    say(out, 'O', 0, 0);
    for (;;) {
        if (!rng_below(&r, 6))
            delete_one(&c, &r);
        else
            run_one(&c, &r);
    }
}

/* ---- the parent ---- */

struct truth {
    unsigned flags[IDS];
    uint64_t largest; /* accepted number */
};

static void learn(struct truth *t, const char *line)
{
    char what;
    size_t id;
    unsigned long long number;
    if (sscanf(line, "%c %zu %llu", &what, &id, &number) != 3 || id >= IDS)
        fail_msg("the child said '%s'", line);
    if (what == 'A') {
        t->flags[id] |= ACCEPTED;
        t->largest = number > t->largest ? number : t->largest;
    } else if (what != 'O') {
        t->flags[id] |= what == 'd' ? DELETING : what == 'D' ? DELETED : what == 'F' ? FINISHED : 0;
        if (what == 'u')
            t->flags[id] &= ~(unsigned)DELETING;
    }
}

/* Everything the child says, and its end, `us` after it opened the store (or after the start). */
static void live_and_die(pid_t child, int in, bool from_open, unsigned us, struct str *said)
{
    char buf[4096];
    ssize_t n;
    if (from_open) {
        n = read(in, buf, sizeof buf);
        assert_true(n > 0);
        str_add(said, buf, (size_t)n);
    }
    uint64_t end = clock_mono_ns(clock_system()) + us * UINT64_C(1000);
    for (uint64_t now; (now = clock_mono_ns(clock_system())) < end;) {
        struct pollfd p = { .fd = in, .events = POLLIN };
        if (poll(&p, 1, (int)((end - now) / 1000000)) > 0 && (n = read(in, buf, sizeof buf)) > 0)
            str_add(said, buf, (size_t)n);
    }
    assert_int_equal(kill(child, SIGKILL), 0);
    while ((n = read(in, buf, sizeof buf)) > 0)
        str_add(said, buf, (size_t)n);
    int code;
    waitpid(child, &code, 0);
    if (!WIFSIGNALED(code))
        fail_msg("the child gave up with %d", WEXITSTATUS(code));
}

struct look {
    struct truth *t;
    unsigned as;
    double order;
    uint64_t seq;
};

static void note(struct look *l, const char *id)
{
    size_t n = strtoull(id, NULL, 10);
    assert_true(n < IDS);
    if (l->t->flags[n] & (QUEUED | IN_HISTORY))
        fail_msg("job %zu is there twice", n);
    l->t->flags[n] |= l->as;
}

static bool look_at_job(void *user, const struct store_job *j, bool runs)
{
    struct look *l = user;
    assert_false(runs);
    assert_true(j->order > l->order || (j->order == l->order && j->seq > l->seq));
    assert_true(j->attempts < STORE_ATTEMPTS);
    l->order = j->order;
    l->seq = j->seq;
    note(l, j->id);
    return true;
}

static bool look_at_entry(void *user, const struct store_entry *e)
{
    note(user, e->job.id);
    return true;
}

static void compare(struct truth *t, struct store *s)
{
    struct look l = { .t = t, .as = QUEUED, .order = -1e300 };
    berth_err err = { 0 };
    for (size_t i = 0; i < IDS; i++)
        t->flags[i] &= ~(unsigned)(QUEUED | IN_HISTORY);
    assert_ok(store_each_job(s, false, look_at_job, &l, &err), err);
    l.as = IN_HISTORY;
    assert_ok(store_each_brief(s, false, look_at_entry, &l, &err), err);
    for (size_t i = 0; i < IDS; i++) {
        unsigned f = t->flags[i];
        if ((f & DELETED) && (f & (QUEUED | IN_HISTORY)))
            fail_msg("job %zu was deleted and is back", i);
        if ((f & FINISHED) && !(f & IN_HISTORY))
            fail_msg("job %zu had ended and is not in the history", i);
        if ((f & ACCEPTED) && !(f & (DELETING | DELETED | QUEUED | IN_HISTORY)))
            fail_msg("job %zu was accepted and is lost", i);
    }
    if (t->largest)
        assert_true(store_next_number(s) > t->largest);
}

static void killed_at_any_moment(void **state)
{
    (void)state;
    static struct truth t;
    struct rng r = { running = rng_seed() };
    char path[512];
    size_t accepted = 0, ended = 0;
    snprintf(path, sizeof path, "%s", tmp_path("kill.db"));
    for (size_t round = 0; round < ROUNDS; round++) {
        int p[2];
        struct str said = { 0 };
        assert_int_equal(pipe(p), 0);
        uint64_t seed = rng_u64(&r);
        pid_t child = fork();
        if (!child) {
            close(p[0]);
            be_child(path, p[1], round, seed);
        }
        close(p[1]);
        bool from_open = rng_below(&r, 5) > 0;
        live_and_die(child, p[0], from_open, (unsigned)rng_below(&r, from_open ? 40000 : 8000),
                     &said);
        close(p[0]);
        for (char *line = said.p, *next; line && *line; line = next) {
            next = strchr(line, '\n');
            assert_non_null(next);
            *next++ = '\0';
            learn(&t, line);
        }
        str_release(&said);
        struct store *s = open_large(path);
        compare(&t, s);
        store_close(s);
    }
    for (size_t i = 0; i < IDS; i++) {
        accepted += t.flags[i] & ACCEPTED;
        ended += (t.flags[i] & FINISHED) != 0;
    }
    print_message("%d kills, %zu jobs accepted, %zu ended\n", ROUNDS, accepted, ended);
    assert_true(accepted > ROUNDS && ended > 0);
    running = 0;
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(killed_at_any_moment, say_seed) };
    return cmocka_run_group_tests(tests, vfs_install, NULL);
}
