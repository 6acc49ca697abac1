#include "support/oom.h"
#include "support/test.h"

#include "base/cores.h"
#include "base/tpool.h"

#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>

/* This program's pthread_create stands in front of the library's and can be told to fail. */
typedef int create_fn(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static atomic_int creates_left = -1; /* -1: no limit */

int pthread_create(pthread_t *t, const pthread_attr_t *a, void *(*main)(void *), void *arg)
{
    create_fn *real;
    void *sym = dlsym(RTLD_NEXT, "pthread_create");
    memcpy(&real, &sym, sizeof real);
    if (atomic_load(&creates_left) == 0)
        return EAGAIN;
    if (atomic_load(&creates_left) > 0)
        atomic_fetch_sub(&creates_left, 1);
    return real(t, a, main, arg);
}

static struct tpool *new_ok(size_t n)
{
    struct tpool *p = NULL;
    berth_err err = { 0 };
    assert_ok(tpool_new(n, &p, &err), err);
    assert_non_null(p);
    return p;
}

enum { N = 10000 };
struct count {
    unsigned char done[N]; /* not atomic: each index belongs to one task */
    unsigned long per[16]; /* by worker */
    size_t size;
    atomic_bool wrong_worker;
};

static void count_task(void *user, size_t i, size_t worker)
{
    struct count *c = user;
    if (worker >= c->size)
        atomic_store(&c->wrong_worker, true);
    else
        c->per[worker]++; /* one thread per worker number: no race, or TSan would say so */
    c->done[i]++;
}

static void every_index_runs_once(void **state)
{
    (void)state;
    static struct count c;
    static const size_t sizes[] = { 1, 2, 3, 8 }, counts[] = { 0, 1, 2, 7, N };
    for (size_t s = 0; s < ARRAY_LEN(sizes); s++) {
        struct tpool *p = new_ok(sizes[s]);
        assert_int_equal(tpool_size(p), sizes[s]);
        for (size_t k = 0; k < ARRAY_LEN(counts); k++)
            for (int round = 0; round < 20; round++) {
                memset(&c, 0, sizeof c);
                c.size = sizes[s];
                tpool_for(p, counts[k], count_task, &c);
                unsigned long sum = 0;
                for (size_t w = 0; w < c.size; w++)
                    sum += c.per[w];
                assert_int_equal(sum, counts[k]);
                assert_false(c.wrong_worker);
                for (size_t i = 0; i < N; i++)
                    assert_int_equal(c.done[i], i < counts[k]);
            }
        tpool_free(p);
    }
}

/* Without a pool: all of them, here, in order. */
static void append_task(void *user, size_t i, size_t worker)
{
    struct count *c = user;
    assert_int_equal(worker, 0);
    assert_int_equal(i, c->size++);
}

static void no_pool_is_this_thread(void **state)
{
    static struct count c;
    (void)state;
    tpool_for(NULL, 7, append_task, &c);
    assert_int_equal(c.size, 7);
    assert_int_equal(tpool_size(NULL), 1);
}

static void zero_means_one_per_core(void **state)
{
    (void)state;
    struct tpool *p = new_ok(0);
    assert_int_equal(tpool_size(p), cores_usable(""));
    tpool_free(p);
    tpool_free(NULL);
}

/* Two tasks that wait for each other finish only when two threads run them. */
static void meet(void *user, size_t i, size_t worker)
{
    (void)i, (void)worker;
    atomic_int *here = user;
    atomic_fetch_add(here, 1);
    while (atomic_load(here) < 2)
        sched_yield();
}

static void tasks_run_in_parallel(void **state)
{
    (void)state;
    struct tpool *p = new_ok(2);
    for (int i = 0; i < 100; i++) {
        atomic_int here = 0;
        tpool_for(p, 2, meet, &here);
        assert_int_equal(here, 2);
    }
    tpool_free(p);
}

struct nest {
    struct tpool *p;
    atomic_size_t inner;
    atomic_bool moved; /* an inner task ran on another thread or under another number */
    pthread_t outer_thread[64];
    size_t outer_worker[64];
};

struct inner {
    struct nest *n;
    size_t outer;
};

static void inner_task(void *user, size_t i, size_t worker)
{
    (void)i;
    struct inner *in = user;
    if (worker != in->n->outer_worker[in->outer] ||
        !pthread_equal(pthread_self(), in->n->outer_thread[in->outer]))
        atomic_store(&in->n->moved, true);
    atomic_fetch_add(&in->n->inner, 1);
}

static void outer_task(void *user, size_t i, size_t worker)
{
    struct nest *n = user;
    n->outer_thread[i] = pthread_self();
    n->outer_worker[i] = worker;
    struct inner in = { .n = n, .outer = i };
    tpool_for(n->p, 10, inner_task, &in);
}

static void nested_calls_run_inline(void **state)
{
    (void)state;
    for (size_t size = 1; size <= 4; size++)
        for (size_t count = 1; count <= 64; count += 21) { /* one outer task runs inline too */
            struct nest n = { .p = new_ok(size) };
            tpool_for(n.p, count, outer_task, &n);
            assert_int_equal(n.inner, count * 10);
            assert_false(n.moved);
            tpool_free(n.p);
        }
}

static void many_small_jobs(void **state)
{
    (void)state;
    static struct count c;
    struct tpool *p = new_ok(4);
    memset(&c, 0, sizeof c);
    c.size = 4;
    for (int i = 0; i < 2000; i++)
        tpool_for(p, 3, count_task, &c);
    assert_int_equal(c.done[0], 2000 % 256);
    tpool_free(p);
}

static void *use_from_here(void *arg)
{
    static struct count c;
    memset(&c, 0, sizeof c);
    c.size = tpool_size(arg);
    tpool_for(arg, N, count_task, &c);
    return c.done[N - 1] == 1 ? NULL : "not done";
}

static void another_thread_may_take_over(void **state)
{
    (void)state;
    struct tpool *p = new_ok(3);
    for (int i = 0; i < 5; i++) {
        pthread_t t;
        void *what;
        assert_int_equal(pthread_create(&t, NULL, use_from_here, p), 0);
        pthread_join(t, &what);
        assert_null(what);
        assert_null(use_from_here(p));
    }
    tpool_free(p);
}

static void failures_are_clean(void **state)
{
    (void)state;
    struct tpool *p = (void *)1;
    berth_err err = { 0 };
    assert_fails(tpool_new(100000, &p, &err), err, BERTH_EINVAL, "100000");
    assert_null(p);
    oom_after(0);
    assert_fails(tpool_new(4, &p, &err), err, BERTH_ENOMEM, "4");
    oom_off();
    assert_null(p);
    for (int k = 0; k < 3; k++) { /* the first, second, third thread does not start */
        atomic_store(&creates_left, k);
        assert_fails(tpool_new(4, &p, &err), err, BERTH_ELIMIT, "thread pool");
        assert_int_equal(err.native, EAGAIN);
        assert_null(p);
    }
    atomic_store(&creates_left, 3);
    p = new_ok(4);
    assert_int_equal(creates_left, 0); /* the caller is the fourth */
    atomic_store(&creates_left, -1);
    tpool_free(p);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(no_pool_is_this_thread),       cmocka_unit_test(every_index_runs_once),
        cmocka_unit_test(zero_means_one_per_core),      cmocka_unit_test(tasks_run_in_parallel),
        cmocka_unit_test(nested_calls_run_inline),      cmocka_unit_test(many_small_jobs),
        cmocka_unit_test(another_thread_may_take_over), cmocka_unit_test(failures_are_clean),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
