/* impl: what the files of the fake libcuda share. fake_cuda.c has the machine, its cards and
 * contexts, memory.c their memory, queue.c streams, events and copies, kernels.c modules and
 * launches. */
#ifndef SUPPORT_FAKE_CUDA_IMPL_H
#define SUPPORT_FAKE_CUDA_IMPL_H

#include "support/fake_cuda.h"

#include <cuda.h>

struct CUctx_st { /* the primary context of a card */
    int card;
    long refs;
    int lost;
    bool peer[FAKE_CARDS]; /* enabled towards */
};

/* fake_cuda.c */
extern struct fake_cuda fake_machine;
extern struct CUctx_st fake_context[FAKE_CARDS];
/* Every call begins and ends with these: the lock is held between them, also after a failure. */
CUresult fake_enter(const char *name);
CUresult fake_leave(CUresult r);
/* The context that is current here, and whether it can be used. */
CUresult fake_current(CUcontext *out);
CUcontext fake_top(void); /* the same whatever became of it; NULL: none */

/* memory.c */
bool fake_reachable(int card, uint64_t addr, size_t n); /* may the card touch all of it? */
/* Host memory of a copy is registered in one piece or not at all; all else is refused. */
bool fake_host_whole(const void *ptr, size_t n);
void fake_free_pinned(int card); /* pinned memory goes with its context */
void fake_memory_reset(void);

/* queue.c */
struct fake_work;
void fake_queue_reset(void);
CUresult fake_push_work(CUstream s, CUcontext c, struct fake_work *w); /* takes w if it succeeds */

/* kernels.c */
void fake_kernels_reset(void);
void fake_work_run(struct fake_work *w); /* in its stream's turn */
void fake_work_ref(struct fake_work *w);
void fake_work_unref(struct fake_work *w); /* NULL is fine */

#define ENTER()                                                                                    \
    CUresult r = fake_enter(__func__);                                                             \
    if (r)                                                                                         \
    return fake_leave(r)
#define ENTER_CONTEXT()                                                                            \
    CUcontext c;                                                                                   \
    ENTER();                                                                                       \
    r = fake_current(&c);                                                                          \
    if (r)                                                                                         \
    return fake_leave(r)
#define CHECK(what, error)                                                                         \
    if (!(what))                                                                                   \
    return fake_leave(error)

#define POP(list, x)                                                                               \
    (x) = (list);                                                                                  \
    (list) = (x)->next

#endif
