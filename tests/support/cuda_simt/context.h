/* context: a stack that runs until it gives way to another one. On x86-64 a few instructions, as a
 * block's threads switch millions of times and ucontext asks the kernel each time; elsewhere
 * ucontext. */
#ifndef SUPPORT_CUDA_SIMT_CONTEXT_H
#define SUPPORT_CUDA_SIMT_CONTEXT_H

#include <stddef.h>

#ifdef __x86_64__
struct context {
    void *at; /* the top of its stack, while it does not run */
};
#else
#include <ucontext.h>
struct context {
    ucontext_t of;
};
#endif

/* The first switch to it calls main on the stack, which never returns. */
void context_init(struct context *c, void *stack, size_t bytes, void (*main)(void));
/* `to` goes on; this returns when somebody switches back to `from`. */
void context_switch(struct context *from, struct context *to);

#endif
