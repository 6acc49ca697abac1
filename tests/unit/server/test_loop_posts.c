/* Calls that other threads want made on the loop: their order, also when memory is out. */
#include "support/http_routes.h"
#include "support/oom.h"

enum { POSTS = 2000 };
static atomic_int called;
static int order[4];
static struct post posts[4][POSTS];

static void note(struct server *s, void *arg)
{
    (void)s;
    int k = atomic_load(&called);
    int who = (int)((uintptr_t)arg >> 16), n = (int)((uintptr_t)arg & 0xffff);
    if (order[who] != n)
        fail_msg("thread %d: %d after %d", who, n, order[who]);
    order[who] = n + 1;
    atomic_store(&called, k + 1);
}

static void *poster(void *arg)
{
    uintptr_t who = (uintptr_t)arg;
    for (uintptr_t i = 0; i < POSTS; i++)
        loop_post(&g.s, &posts[who][i], note, (void *)(who << 16 | i));
    return NULL;
}

static void posts_keep_their_order(void **state)
{
    (void)state;
    pthread_t t[4];
    memset(order, 0, sizeof order);
    atomic_store(&called, 0);
    for (uintptr_t i = 0; i < 4; i++)
        pthread_create(&t[i], NULL, poster, (void *)i);
    for (int i = 0; i < 4; i++)
        pthread_join(t[i], NULL);
    while (atomic_load(&called) < 8000)
        sched_yield();
}

/* From other threads, and from the loop itself. */
static void post_more(struct server *s, void *arg)
{
    uintptr_t who = (uintptr_t)arg;
    for (uintptr_t i = 0; i < 500; i++)
        loop_post(s, &posts[who][i], note, (void *)(who << 16 | i));
}

static void posts_without_memory(void **state)
{
    (void)state;
    pthread_t t[2];
    memset(order, 0, sizeof order);
    atomic_store(&called, 0);
    oom_after(2); /* for the threads themselves, at most */
    for (uintptr_t i = 0; i < 2; i++)
        pthread_create(&t[i], NULL, poster, (void *)i);
    loop_post(&g.s, &posts[3][0], post_more, (void *)2);
    for (int i = 0; i < 2; i++)
        pthread_join(t[i], NULL);
    while (atomic_load(&called) < 4500)
        sched_yield();
    oom_off();
    expect(port, "GET /hello HTTP/1.1\r\nHost: localhost\r\n\r\n", 200, "hello");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(posts_keep_their_order, setup, teardown),
        cmocka_unit_test_setup_teardown(posts_without_memory, setup, teardown),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
