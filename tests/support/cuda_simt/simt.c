/* A block's threads by turns: see simt.h. */
#include "support/cuda_simt/simt.h"

#include "support/cuda_simt/context.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#ifdef __SANITIZE_ADDRESS__
#include <sanitizer/common_interface_defs.h>
#endif

enum {
    THREADS = 1024, /* of a block at most */
    WARP = 32,
    GUARD = 4096, /* bytes below a stack that nobody may touch */
    STACK = 256 << 10,
};

enum state { FRESH, READY, AT_BARRIER, IN_SHUFFLE, ENDED };

/* A stack that runs one thread after the other; it changes threads only when one has ended. */
struct worker {
    struct worker *next; /* of those without a thread */
    struct context context;
    const void *stack; /* lowest address; NULL: the program's own */
    size_t stack_bytes;
    void *shadow; /* AddressSanitizer's, while it does not run */
};

struct thread {
    enum state state;
    struct worker *worker; /* NULL: none yet, none any more */
    struct simt_dim at;
    uint32_t slot[2]; /* what its shuffles show others, by turns: nobody is two ahead */
    unsigned shuffles;
};

static struct {
    const struct fake_launch *launch;
    enum simt_order order;
    unsigned warp_turn[THREADS / WARP], lane_turn[WARP]; /* in the order they run */
    unsigned warps, warp_place, lane_place;              /* whose turn it was */
    struct thread thread[THREADS];
    struct thread *running;
    unsigned threads, alive, waiting;            /* waiting: at the barrier */
    unsigned warp_alive[WARP], warp_ready[WARP]; /* ready: lanes in a shuffle */
    int line;                                    /* of the barrier the first one waits at */
    struct worker *worker, *idle;                /* the one that runs; those without a thread */
    struct worker program;
} block;

struct simt_dim threadIdx, blockIdx, blockDim, gridDim;

void simt_in_order(enum simt_order order)
{
    block.order = order;
}

__attribute__((format(printf, 1, 2), noreturn)) static void mistake(const char *format, ...)
{
    va_list args;
    fprintf(stderr, "%s, block %u %u %u, thread %u %u %u: ", block.launch->kernel->name, blockIdx.x,
            blockIdx.y, blockIdx.z, threadIdx.x, threadIdx.y, threadIdx.z);
    va_start(args, format);
    vfprintf(stderr, format, args);
    va_end(args);
    fputc('\n', stderr);
    abort();
}

/* ---- stacks ---- */

/* The other one goes on; this returns when somebody switches back. */
static void switch_to(struct worker *to)
{
    struct worker *from = block.worker;
    if (from == to)
        return;
    block.worker = to;
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_start_switch_fiber(&from->shadow, to->stack, to->stack_bytes);
#endif
    context_switch(&from->context, &to->context);
#ifdef __SANITIZE_ADDRESS__
    __sanitizer_finish_switch_fiber(from->shadow, NULL, NULL);
#endif
}

static void worker_main(void);

static struct worker *worker_get(void)
{
    struct worker *w = block.idle;
    if (w) {
        block.idle = w->next;
        return w;
    }
    char *at = mmap(NULL, GUARD + STACK, PROT_READ | PROT_WRITE,
                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    w = calloc(1, sizeof *w);
    if (!w || at == MAP_FAILED || mprotect(at, GUARD, PROT_NONE))
        mistake("no stack for another thread");
    w->stack = at + GUARD;
    w->stack_bytes = STACK;
    context_init(&w->context, at + GUARD, STACK, worker_main);
    return w;
}

/* ---- whose turn it is ---- */

static void first_is_next(void)
{
    block.warp_place = 0;
    block.lane_place = WARP - 1;
}

/* The next of the order that can go on; NULL: all have ended. A warp goes on for as long as it can:
 * its shuffles make nobody else wait, and who runs far ahead shows what others still read. */
static struct thread *next_thread(void)
{
    for (unsigned n = 0; n < block.warps; n++) {
        for (unsigned i = 0; i < WARP; i++) {
            block.lane_place = (block.lane_place + 1) % WARP;
            unsigned at =
                block.warp_turn[block.warp_place] * WARP + block.lane_turn[block.lane_place];
            struct thread *t = &block.thread[at];
            if (at < block.threads && (t->state == FRESH || t->state == READY))
                return t;
        }
        block.warp_place = (block.warp_place + 1) % block.warps;
        block.lane_place = WARP - 1;
    }
    if (block.alive)
        mistake("%u threads wait for each other", block.alive);
    return NULL;
}

static void begin(struct thread *t)
{
    block.running = t;
    threadIdx = t->at;
}

/* This thread waits; comes back when it can go on. */
static void wait_for_others(void)
{
    struct thread *me = block.running, *next = next_thread();
    if (next->state == FRESH)
        next->worker = worker_get();
    begin(next);
    switch_to(next->worker);
    begin(me);
}

static void wake(unsigned first, unsigned count, enum state from)
{
    for (unsigned i = first; i < first + count && i < block.threads; i++)
        if (block.thread[i].state == from)
            block.thread[i].state = READY;
}

static void open_barrier(void)
{
    if (!block.waiting || block.waiting < block.alive)
        return;
    block.waiting = 0;
    wake(0, block.threads, AT_BARRIER);
    first_is_next();
}

static void end_shuffle(unsigned warp)
{
    if (!block.warp_ready[warp] || block.warp_ready[warp] < block.warp_alive[warp])
        return;
    block.warp_ready[warp] = 0;
    wake(warp * WARP, WARP, IN_SHUFFLE);
}

static unsigned number(const struct thread *t)
{
    return (unsigned)(t - block.thread);
}

static void end_thread(void)
{
    struct thread *me = block.running;
    unsigned warp = number(me) / WARP;
    me->state = ENDED;
    me->worker = NULL;
    block.alive--;
    block.warp_alive[warp]--;
    open_barrier();
    end_shuffle(warp);
}

/* A stack that has lost its thread takes a fresh one, or waits to be needed. */
static void worker_main(void)
{
    struct worker *me = block.worker;
#ifdef __SANITIZE_ADDRESS__
    const void *stack;
    size_t bytes;
    __sanitizer_finish_switch_fiber(NULL, &stack, &bytes);
    if (!block.program.stack) {
        block.program.stack = stack;
        block.program.stack_bytes = bytes;
    }
#endif
    for (;;) {
        block.launch->kernel->call(block.launch->args);
        end_thread();
        struct thread *next = next_thread();
        if (next)
            begin(next);
        if (next && next->state == FRESH) {
            next->worker = me;
            continue;
        }
        me->next = block.idle;
        block.idle = me;
        switch_to(next ? next->worker : &block.program);
    }
}

/* ---- what kernels call ---- */

void simt_barrier(int line)
{
    if (block.waiting == 0)
        block.line = line;
    if (line != block.line)
        mistake("waits in line %d, others in line %d", line, block.line);
    block.waiting++;
    block.running->state = AT_BARRIER;
    open_barrier();
    wait_for_others();
}

uint32_t simt_shuffle_xor(uint32_t bits, unsigned mask)
{
    struct thread *me = block.running;
    unsigned warp = number(me) / WARP, other = number(me) ^ mask, slot = me->shuffles++ & 1;
    if (mask >= WARP || other >= block.threads)
        mistake("a shuffle with thread %u of %u", other, block.threads);
    me->slot[slot] = bits;
    me->state = IN_SHUFFLE;
    block.warp_ready[warp]++;
    end_shuffle(warp);
    wait_for_others();
    const struct thread *from = &block.thread[other];
    if (from->shuffles < me->shuffles)
        mistake("a shuffle with thread %u, which has ended", other);
    return from->slot[slot];
}

/* ---- blocks ---- */

/* 0 .. n-1 in the order, shuffled by a fixed seed. */
static void in_order(unsigned *at, unsigned n)
{
    uint64_t state = n;
    for (unsigned i = 0; i < n; i++)
        at[i] = block.order == SIMT_DESCENDING ? n - 1 - i : i;
    for (unsigned i = n; block.order == SIMT_SHUFFLED && i > 1; i--) {
        state = state * 6364136223846793005u + 1442695040888963407u;
        unsigned k = (unsigned)((state >> 33) % i), was = at[i - 1];
        at[i - 1] = at[k];
        at[k] = was;
    }
}

static struct simt_dim split(unsigned i, struct simt_dim by)
{
    return (struct simt_dim) { i % by.x, i / by.x % by.y, i / by.x / by.y };
}

static void run_block(void)
{
    block.alive = block.threads;
    block.waiting = 0;
    first_is_next();
    memset(block.warp_alive, 0, sizeof block.warp_alive);
    memset(block.warp_ready, 0, sizeof block.warp_ready);
    for (unsigned i = 0; i < block.threads; i++) {
        block.thread[i] = (struct thread) { .at = split(i, blockDim) };
        block.warp_alive[i / WARP]++;
    }
    struct thread *first = next_thread();
    first->worker = worker_get();
    begin(first);
    switch_to(first->worker);
}

/* AddressSanitizer guards what lies between the arrays: nothing of it is to look at this. */
__attribute__((no_sanitize("address"))) static void poison(const struct simt_module *m)
{
    for (volatile uint64_t *at = (volatile uint64_t *)(void *)m->shared;
         (char *)(uintptr_t)at + sizeof *at <= m->shared_end; at++)
        *at = UINT64_MAX;
}

static unsigned most_of(unsigned n, unsigned most)
{
    return most && most < n ? most : n;
}

void simt_run(const struct fake_launch *l)
{
    const struct simt_module *m = (const struct simt_module *)l->module; /* base comes first */
    blockDim = (struct simt_dim) { l->block[0], l->block[1], l->block[2] };
    gridDim = (struct simt_dim) { most_of(l->grid[0], m->most[0]), most_of(l->grid[1], m->most[1]),
                                  most_of(l->grid[2], m->most[2]) };
    block.launch = l;
    block.worker = &block.program;
    block.threads = blockDim.x * blockDim.y * blockDim.z;
    unsigned blocks = gridDim.x * gridDim.y * gridDim.z;
    unsigned *turn = malloc(blocks * sizeof *turn);
    if (!turn)
        mistake("no memory for %u blocks", blocks);
    in_order(turn, blocks);
    block.warps = (block.threads + WARP - 1) / WARP;
    in_order(block.warp_turn, block.warps);
    in_order(block.lane_turn, WARP);
    for (unsigned i = 0; i < blocks; i++) {
        blockIdx = split(turn[i], gridDim);
        poison(m);
        run_block();
    }
    free(turn);
}
