/* seed: the seed of the random program that runs now, told when it fails, even by a BUG(). */
#ifndef SUPPORT_SEED_H
#define SUPPORT_SEED_H

#include "support/test.h"

#include <signal.h>
#include <unistd.h>

static uint64_t running; /* 0: none */

static inline int say_seed(void **state) /* after a failure */
{
    (void)state;
    if (running)
        print_message("to see it again: BERTH_SEED=%llu\n", (unsigned long long)running);
    return 0;
}

/* For SIGABRT: not much may be called then, this is enough. */
static inline void say_seed_and_die(int signal_number)
{
    char text[64];
    int n = snprintf(text, sizeof text, "BERTH_SEED=%llu\n", (unsigned long long)running);
    signal(signal_number, SIG_DFL);
    (void)!write(STDERR_FILENO, text, n > 0 ? (size_t)n : 0);
}

#endif
