/* Random programs of adds, moves, takes, parks and deletes against a plain list of names: the order
 * is the list's, numbers ascend along it, and what lies on the disk at any moment opens as the same
 * list. In half of the programs clients make up numbers, often the same ones. In the others numbers
 * are the counter's, and nobody looks at them: who comes is the last one, or the first one if it
 * says so. */
#include "support/rng.h"
#include "support/seed.h"
#include "support/stores.h"

#include <fcntl.h>
#include <math.h>

enum { PROGRAMS = 6, STEPS = 100, MAX = 64, NAME = 16 };

struct list {
    size_t n;
    char id[MAX][NAME];
    double number[MAX]; /* as the store said last */
};

struct world {
    struct rng rng;
    struct store *s;
    struct list list;
    size_t named;
    bool counted; /* numbers are the store's own */
};

/* ---- the list ---- */

static size_t place_of(const struct list *l, const char *id)
{
    size_t i = 0;
    while (i < l->n && strcmp(l->id[i], id) != 0)
        i++;
    return i;
}

static void list_insert(struct list *l, size_t at, const char *id)
{
    memmove(&l->id[at + 1], &l->id[at], (l->n - at) * sizeof l->id[0]);
    snprintf(l->id[at], NAME, "%s", id);
    l->n++;
}

static void list_remove(struct list *l, size_t at)
{
    memmove(&l->id[at], &l->id[at + 1], (l->n - at - 1) * sizeof l->id[0]);
    l->n--;
}

/* ---- the store, seen ---- */

static bool see(void *user, const struct store_job *j, bool is_running)
{
    struct list *l = user;
    if (is_running)
        return true;
    assert_true(l->n < MAX);
    snprintf(l->id[l->n], NAME, "%s", j->id);
    assert_true(strtod(j->number, NULL) == j->order); /* what clients see is what it goes by */
    l->number[l->n++] = j->order;
    return true;
}

static void compare(struct store *s, struct list *want, const char *what)
{
    struct list got = { 0 };
    berth_err err = { 0 };
    assert_ok(store_each_job(s, false, see, &got, &err), err);
    if (got.n != want->n)
        fail_msg("%s: %zu wait, wanted %zu", what, got.n, want->n);
    for (size_t i = 0; i < got.n; i++) {
        if (strcmp(got.id[i], want->id[i]) != 0)
            fail_msg("%s: place %zu has %s, wanted %s", what, i, got.id[i], want->id[i]);
        if (i && !(got.number[i - 1] <= got.number[i]))
            fail_msg("%s: place %zu: %.17g before %.17g", what, i, got.number[i - 1],
                     got.number[i]);
    }
    memcpy(want->number, got.number, sizeof got.number);
}

static void copy_file(const char *from, const char *to)
{
    char buf[65536];
    int in = open(from, O_RDONLY), out = open(to, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    assert_true(out >= 0);
    for (ssize_t n; in >= 0 && (n = read(in, buf, sizeof buf)) > 0;)
        assert_int_equal(write(out, buf, (size_t)n), n);
    if (in >= 0)
        close(in);
    close(out);
}

static double next_number(struct store *s, bool front)
{
    double n = (double)store_next_number(s);
    return front ? -n : n;
}

/* As if the process had been killed now: nothing of it is asked, only its files. running: the job
 * that is; it comes back as the first of those with its number. */
static void crash(struct world *w, const char *running_id)
{
    char from[4096];
    snprintf(from, sizeof from, "%s", tmp_path("move.db"));
    copy_file(from, tmp_path("crash.db"));
    snprintf(from, sizeof from, "%s", tmp_path("move.db-wal"));
    copy_file(from, tmp_path("crash.db-wal"));
    struct store *s = open_store(tmp_path("crash.db"));
    struct list want = w->list;
    if (running_id)
        list_insert(&want, 0, running_id);
    compare(s, &want, "after a crash");
    if (w->counted) { /* the counter went on, too */
        add(s, "first", next_number(s, true));
        list_insert(&want, 0, "first");
        add(s, "last", next_number(s, false));
        list_insert(&want, want.n, "last");
        compare(s, &want, "new ones after a crash");
    }
    store_close(s);
    unlink(tmp_path("crash.db"));
}

/* ---- steps ---- */

static void do_add(struct world *w)
{
    static const double far[] = { 1e15, -1e15, 1e300, -1e300, 0.5, -0.25 };
    char id[NAME];
    size_t at = 0;
    struct list *l = &w->list;
    if (l->n + 4 >= MAX)
        return;
    snprintf(id, sizeof id, "p%zu", w->named++);
    if (w->counted) {
        bool front = rng_below(&w->rng, 2);
        add(w->s, id, next_number(w->s, front));
        list_insert(l, front ? 0 : l->n, id);
        return;
    }
    double number = (double)rng_below(&w->rng, 6) - 2; /* often the same */
    if (!rng_below(&w->rng, 10))
        number = far[rng_below(&w->rng, ARRAY_LEN(far))];
    add(w->s, id, number);
    while (at < l->n && l->number[at] <= number)
        at++;
    list_insert(l, at, id);
}

static void do_move(struct world *w)
{
    struct list *l = &w->list;
    berth_err err = { 0 };
    if (!l->n)
        return;
    char id[NAME], before[NAME];
    snprintf(id, sizeof id, "%s", l->id[rng_below(&w->rng, l->n)]);
    size_t to = rng_below(&w->rng, l->n + 1);
    if (!rng_below(&w->rng, 3)) /* to an end, where numbers are new */
        to = rng_below(&w->rng, 2) * l->n;
    if (!rng_below(&w->rng, 12)) {
        assert_int_equal(store_move(w->s, id, "nobody", &err), BERTH_ENOTFOUND);
        assert_int_equal(store_move(w->s, "nobody", id, &err), BERTH_ENOTFOUND);
        return;
    }
    snprintf(before, sizeof before, "%s", to < l->n ? l->id[to] : "");
    assert_ok(store_move(w->s, id, to < l->n ? before : NULL, &err), err);
    if (strcmp(id, before) == 0)
        return;
    list_remove(l, place_of(l, id));
    list_insert(l, before[0] ? place_of(l, before) : l->n, id);
}

static void do_delete(struct world *w)
{
    struct list *l = &w->list;
    berth_err err = { 0 };
    if (!l->n)
        return;
    size_t at = rng_below(&w->rng, l->n);
    const char *id = l->id[at];
    assert_int_equal(store_delete(w->s, &id, 1, &err), 1);
    list_remove(l, at);
}

/* The first one runs; it cannot be moved, and nothing can be moved before it. */
static void do_run(struct world *w)
{
    struct list *l = &w->list;
    char id[NAME];
    berth_err err = { 0 };
    if (!l->n)
        return;
    snprintf(id, sizeof id, "%s", l->id[0]);
    take(w->s, id, 0);
    double number = l->number[0];
    list_remove(l, 0);
    assert_int_equal(store_move(w->s, id, NULL, &err), BERTH_ENOTFOUND);
    if (l->n)
        assert_int_equal(store_move(w->s, l->id[0], id, &err), BERTH_ENOTFOUND);
    crash(w, id);
    compare(w->s, l, "while one runs");
    if (rng_below(&w->rng, 2)) {
        finish(w->s);
        return;
    }
    assert_ok(try_park(w->s, &err), err);
    assert_true(!l->n || number <= l->number[0]);
    list_insert(l, 0, id);
}

static void program(uint64_t seed)
{
    struct world w = { .rng = { seed }, .counted = seed % 2 };
    running = seed;
    unlink(tmp_path("move.db"));
    w.s = open_store(tmp_path("move.db"));
    for (size_t i = 0; i < STEPS; i++) {
        size_t what = rng_below(&w.rng, 20);
        if (what < 8)
            do_add(&w);
        else if (what < 16) {
            do_move(&w);
            if (!rng_below(&w.rng, 4))
                crash(&w, NULL);
        } else if (what < 17)
            do_delete(&w);
        else if (what < 18)
            do_run(&w);
        else if (what < 19)
            crash(&w, NULL);
        else {
            store_close(w.s);
            w.s = open_store(tmp_path("move.db"));
        }
        compare(w.s, &w.list, "after a step");
    }
    store_close(w.s);
    running = 0;
}

static void programs(void **state)
{
    uint64_t seed = rng_seed();
    (void)state;
    for (uint64_t i = 0; i < PROGRAMS; i++)
        program(seed + i);
}

int main(void)
{
    const struct CMUnitTest tests[] = { cmocka_unit_test_teardown(programs, say_seed) };
    signal(SIGABRT, say_seed_and_die);
    return cmocka_run_group_tests(tests, NULL, NULL);
}
