#include "support/cuda_simt/context.h"

#ifdef __x86_64__

#include <stdint.h>

/* What a call must keep goes on the stack; then the stack is another one. */
void context_swap(void **from, void *to);
__asm__(".pushsection .text\n"
        ".type context_swap, @function\n"
        "context_swap:\n"
        "    push %rbp\n    push %rbx\n"
        "    push %r12\n    push %r13\n    push %r14\n    push %r15\n"
        "    mov %rsp, (%rdi)\n"
        "    mov %rsi, %rsp\n"
        "    pop %r15\n    pop %r14\n    pop %r13\n    pop %r12\n"
        "    pop %rbx\n    pop %rbp\n"
        "    ret\n"
        ".size context_swap, . - context_swap\n"
        ".popsection\n");

void context_init(struct context *c, void *stack, size_t bytes, void (*main)(void))
{
    enum { KEPT = 6 };
    uintptr_t *top = (uintptr_t *)(void *)((char *)stack + bytes / 16 * 16);
    *--top = 0; /* where main would return to */
    *--top = (uintptr_t)main;
    for (int i = 0; i < KEPT; i++)
        *--top = 0;
    c->at = top;
}

void context_switch(struct context *from, struct context *to)
{
    context_swap(&from->at, to->at);
}

#else

#include <stdlib.h>

void context_init(struct context *c, void *stack, size_t bytes, void (*main)(void))
{
    if (getcontext(&c->of))
        abort();
    c->of.uc_stack.ss_sp = stack;
    c->of.uc_stack.ss_size = bytes;
    makecontext(&c->of, main, 0);
}

void context_switch(struct context *from, struct context *to)
{
    if (swapcontext(&from->of, &to->of))
        abort();
}

#endif
