/* Threads of a block as support/cuda_simt runs them: barriers, shuffles and those who leave early
 * do what they do on a card, and a missing barrier gives other results in another order. */
#include "support/cuda_simt/simt.h"
#include "support/test.h"

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

enum { THREADS = 96, BLOCKS = 3 };
static unsigned out[BLOCKS][THREADS], board[THREADS];

/* A grid of blocks of a kernel that is a plain function. */
static void run(void (*kernel)(void **args), enum simt_order order)
{
    struct fake_kernel k = { .name = "kernel", .call = kernel };
    struct simt_module m = { .base = { .name = "module", .kernel = &k, .kernels = 1 } };
    const struct fake_launch l = { &m.base, &k, { BLOCKS, 1, 1 }, { THREADS, 1, 1 }, NULL };
    memset(out, 0, sizeof out);
    memset(board, 0, sizeof board);
    simt_in_order(order);
    simt_run(&l);
}

static unsigned neighbour(void)
{
    return board[(threadIdx.x + THREADS - 1) % THREADS];
}

static void with_barrier(void **args)
{
    (void)args;
    for (unsigned round = 1; round < 4; round++) {
        simt_barrier(1); /* the round before is read */
        board[threadIdx.x] = round * (100 * blockIdx.x + threadIdx.x);
        simt_barrier(2);
        out[blockIdx.x][threadIdx.x] += neighbour();
    }
}

static void without_barrier(void **args)
{
    (void)args;
    simt_barrier(1);
    board[threadIdx.x] = 100 * blockIdx.x + threadIdx.x + 1;
    out[blockIdx.x][threadIdx.x] = neighbour();
}

static void barriers_hold(void **state)
{
    (void)state;
    for (int order = 0; order < SIMT_ORDERS; order++) {
        run(with_barrier, (enum simt_order)order);
        for (unsigned b = 0; b < BLOCKS; b++)
            for (unsigned t = 0; t < THREADS; t++)
                assert_int_equal(out[b][t], 6 * (100 * b + (t + THREADS - 1) % THREADS));
    }
}

static void orders_show_a_missing_barrier(void **state)
{
    unsigned first[BLOCKS][THREADS];
    (void)state;
    run(without_barrier, SIMT_ASCENDING);
    memcpy(first, out, sizeof first);
    run(without_barrier, SIMT_DESCENDING);
    assert_memory_not_equal(first, out, sizeof first);
    run(without_barrier, SIMT_SHUFFLED);
    assert_memory_not_equal(first, out, sizeof first);
}

/* A third ends before the barrier, the next third after it. */
static void leaves(void **args)
{
    (void)args;
    if (threadIdx.x % 3 == 0)
        return;
    board[threadIdx.x] = 1;
    simt_barrier(1);
    if (threadIdx.x % 3 == 1)
        return;
    simt_barrier(2);
    for (unsigned i = 0; i < THREADS; i++)
        out[blockIdx.x][threadIdx.x] += board[i];
}

static void who_ends_holds_up_nobody(void **state)
{
    (void)state;
    for (int order = 0; order < SIMT_ORDERS; order++) {
        run(leaves, (enum simt_order)order);
        for (unsigned t = 0; t < THREADS; t++)
            assert_int_equal(out[1][t], t % 3 == 2 ? THREADS / 3 * 2 : 0);
    }
}

/* The last warp takes part in half of it. */
static void sums(void **args)
{
    unsigned v = threadIdx.x;
    (void)args;
    for (unsigned mask = 16; mask; mask /= 2)
        v += simt_shuffle_xor(v, mask);
    if (threadIdx.x >= THREADS - 32)
        return;
    simt_barrier(1);
    out[blockIdx.x][threadIdx.x] = v + simt_shuffle_xor(threadIdx.x, 1);
}

static void lanes_exchange(void **state)
{
    (void)state;
    for (int order = 0; order < SIMT_ORDERS; order++) {
        run(sums, (enum simt_order)order);
        for (unsigned t = 0; t < THREADS - 32; t++)
            assert_int_equal(out[2][t], t / 32 * 32 * 32 + 31 * 16 + (t ^ 1));
        assert_int_equal(out[2][THREADS - 1], 0);
    }
}

/* ---- mistakes ---- */

static void apart_barriers(void **args)
{
    (void)args;
    simt_barrier(threadIdx.x < 5 ? 1 : 2);
}

static void for_each_other(void **args)
{
    (void)args;
    if (threadIdx.x < 40)
        simt_barrier(1);
    else
        (void)simt_shuffle_xor(1, 1);
}

static void with_the_dead(void **args)
{
    (void)args;
    if (threadIdx.x != 7)
        (void)simt_shuffle_xor(1, 1);
}

static void assert_ends_program(void (*kernel)(void **args))
{
    int how;
    fflush(stdout);
    pid_t pid = fork();
    assert_true(pid >= 0);
    if (pid == 0) {
        signal(SIGABRT, SIG_DFL); /* cmocka would take it for a failed test */
        run(kernel, SIMT_ASCENDING);
        _exit(0);
    }
    assert_int_equal(waitpid(pid, &how, 0), pid);
    assert_true(WIFSIGNALED(how) && WTERMSIG(how) == SIGABRT);
}

static void mistakes_are_told(void **state)
{
    (void)state;
    assert_ends_program(apart_barriers);
    assert_ends_program(for_each_other);
    assert_ends_program(with_the_dead);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(barriers_hold),
        cmocka_unit_test(orders_show_a_missing_barrier),
        cmocka_unit_test(who_ends_holds_up_nobody),
        cmocka_unit_test(lanes_exchange),
        cmocka_unit_test(mistakes_are_told),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
