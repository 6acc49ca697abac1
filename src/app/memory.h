/* memory: a limit of the process's own, below that of its control group.
 *
 * The kernel hands memory out when it is first touched. If the group is full at that moment, the
 * process is killed: no call has failed, and nobody can say why. So in a limited group the process
 * may not even reserve more than there is. RLIMIT_DATA counts what is reserved (all private
 * writable memory: pools, tensors, what libpng, libwebp or SQLite take), and a request beyond it
 * fails with an error that can be reported. */
#pragma once

#include "app/app.h"

/* Once, when all threads are there: their stacks are promised in full and hardly touched, so they
 * must not count. Nothing happens where no group limits memory, and with cards, whose driver
 * reserves more than it takes. */
void app_limit_memory(struct app *a, berth_ctx *ctx);

/* The limit for a process that was promised `data` bytes and finds `left` in its group. */
uint64_t app_memory_most(uint64_t data, uint64_t left);
